"""Noise as targets: representations learnt without labels (the FedOnce paper)."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from skvfl._cells import unquoted
from skvfl._random import int_seed, seed_sequence
from skvfl._renamed import renamed
from skvfl._sklearn import CallbackSupportMixin, Interval, StrOptions, _fit_context
from skvfl.fedonce._targets import NoiseTargets, train_together
from skvfl.nn._build import Build
from skvfl.nn._private import train_privately
from skvfl.nn._steps import infer, tensor
from skvfl.nn._training import train


class NoiseAsTargetsEncoder(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseEstimator,
):
    """Represent rows by a network whose outputs are drawn to random points.

    Every row has a target, drawn uniformly from the unit sphere. The network is trained
    to hit the targets, and in every batch the rows exchange them so that they are as
    near as they can be: rows that are alike come to lie together, and all rows fill the
    sphere. Section 2.2 of the FedOnce paper [1]_, whose guests encode their columns in
    this way without seeing a label.

    Read more in the :ref:`User Guide <fedonce>`.

    Parameters
    ----------
    n_components : int, default=3
        Number of columns of the representation.
    hidden_layer_sizes : array-like of int or callable, default=(30, 30)
        Hidden layers of a perceptron, or ``network(n_inputs, n_outputs)`` that returns
        a ``torch.nn.Module``: a class, or for tiles of images a
        :class:`~skvfl.nn.ConvolutionalBottom`.
    output_activation : {"tanh", "identity"}, default="tanh"
        What comes after the module.
    targets : {"noise", "projection"}, default="noise"
        Random points, or for each row the direction of its own random projection, the
        same for all rows. The latter are never exchanged.
    update_every : int or None, default=1
        Every how many epochs rows exchange targets; what they have got they keep. None
        leaves every row its first target.
    max_epochs : int, default=50
        Number of passes over the rows; 0 leaves the network as it is drawn.
    batch_size : int, default=100
        Rows per step, which exchange targets among them; the time that takes grows
        with the cube of their number. A last batch of one row joins its predecessor.
    lr : float, default=1e-3
        Learning rate.
    optimizer : class or None, default=None
        From ``torch.optim``; Adam by default.
    weight_decay : float, default=0.0
        Of the optimiser: for Adam, half the weight of the squared parameters.
    callbacks : list of skorch.callbacks.Callback or None, default=None
        Called while training, as by skorch.
    device : str, default="cpu"
        Where to train, as torch names it.
    random_state : int, RandomState instance or None, default=None
        Seed of the weights, the targets and the order of the rows. ``None`` takes fresh
        entropy from the operating system.

    Attributes
    ----------
    module_ : torch.nn.Module
        The network, its last activation included, in evaluation mode on the CPU.
    loss_curve_ : list of float
        Mean loss of every epoch: half the squared distance from the target.
    n_iter_ : int
        Number of epochs.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    FedOnceClassifier : Has such an encoder at every guest.
    RandomFeaturesEncoder : Learns nothing, and reveals nothing of other rows.

    Notes
    -----
    Scale the columns first; the estimators of this package do.

    *What the paper leaves open.* The loss is its equation 1: half the squared distance
    from the target, summed over components and averaged over the batch. As in the
    authors' program, exchanged targets are kept, and representations are computed in
    evaluation mode. Their guests have no activation after the last layer where there
    are more than two classes.

    *Who learns what.* Neither rows nor targets are kept. Whoever receives a
    representation learns which rows are alike, and with the network can look for
    columns that give it. The exchange makes the target of a row depend on all others of
    its batch, so that clipping gradients row by row does not bound what one row
    changes.

    References
    ----------
    .. [1] Z. Wu, Q. Li, B. He, "Practical Vertical Federated Learning with Unsupervised
       Representation Learning", equation 1 and Algorithm 1.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import scale
    >>> from skvfl import NoiseAsTargetsEncoder
    >>> X = scale(load_digits(return_X_y=True)[0])
    >>> encoder = NoiseAsTargetsEncoder(max_epochs=20, random_state=0).fit(X)
    >>> encoder.transform(X).shape
    (1797, 3)
    >>> encoder.loss_curve_[-1] < 0.5 * encoder.loss_curve_[0]
    True
    """

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "hidden_layer_sizes": ["array-like", callable],
        "output_activation": [StrOptions({"tanh", "identity"})],
        "max_epochs": [Interval(Integral, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "targets": [StrOptions({"noise", "projection"})],
        "update_every": [Interval(Integral, 1, None, closed="left"), None],
        "optimizer": [callable, None],
        "callbacks": [list, None],
        "device": [str],
        "random_state": ["random_state"],
    }

    # What is made of a network of the user's own, under a budget; see Build.
    _check = None

    @renamed(module="hidden_layer_sizes")
    def __init__(
        self,
        n_components=3,
        *,
        hidden_layer_sizes=(30, 30),
        output_activation="tanh",
        targets="noise",
        update_every=1,
        max_epochs=50,
        batch_size=100,
        lr=1e-3,
        optimizer=None,
        weight_decay=0.0,
        callbacks=None,
        device="cpu",
        random_state=None,
    ):
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.output_activation = output_activation
        self.targets = targets
        self.update_every = update_every
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.callbacks = callbacks
        self.device = device
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Columns as numbers, best standardised.
        y : None
            Ignored.

        Returns
        -------
        self : NoiseAsTargetsEncoder

        Raises
        ------
        ValueError
            If the loss is not finite; the message names the cure.
        """
        X, noise, to_rows = self._start(X)
        context = self._init_callback_context(max_subtasks=self.max_epochs)
        context.call_on_fit_task_begin(estimator=self, X=X)

        def end_epoch(epoch, losses):
            # The loss is asked for targets during the epoch, and is told here whether
            # rows exchange them in the next one.
            noise.begin_epoch(epoch + 1)
            self.loss_curve_.append(losses["train_loss"])
            task = context.subcontext(task_name="epoch")
            task.call_on_fit_task_begin(estimator=self)
            return task.call_on_fit_task_end(estimator=self)

        # Training refuses to take no step, and a network that is only drawn needs none.
        if self.max_epochs:
            train(
                self.module_,
                X,
                np.arange(len(X)),
                loss=noise,
                max_epochs=self.max_epochs,
                batch_size=self.batch_size,
                lr=self.lr,
                sequence=to_rows,
                optimizer=self.optimizer,
                weight_decay=self.weight_decay,
                callbacks=self.callbacks,
                device=self.device,
                report=end_epoch,
            )
        self.n_iter_ = len(self.loss_curve_)
        context.call_on_fit_task_end(estimator=self, X=X)
        return self

    def _start(self, X, secret=None):
        """Columns, targets (of a secret stream if given), stream of the rows."""
        # Errors of the check would quote cells of the guest to whoever runs the
        # protocol.
        X = unquoted(validate_data, self, X, dtype=np.float32)
        to_weights, to_targets, to_rows = seed_sequence(self.random_state).spawn(3)
        # Apart from the weights, so that a secret stream can take the targets' place
        # and change nothing else.
        to_targets = to_targets if secret is None else secret
        build = Build(
            self.hidden_layer_sizes,
            self.n_components,
            name="hidden_layer_sizes",
            trains=self.max_epochs > 0,
            check=self._check,
        )
        generator = torch.Generator().manual_seed(int_seed(to_weights))
        self.module_ = build(X.shape[1], generator).eval()
        # The targets lie on the unit sphere, so the outputs are kept near it.
        if self.output_activation == "tanh":
            self.module_ = nn.Sequential(self.module_, nn.Tanh()).eval()
        self.loss_curve_ = []
        projects = self.targets == "projection"
        noise = NoiseTargets(
            len(X),
            self.n_components,
            # A projection is a target of the row itself: exchanged, it would be another
            # row's.
            None if projects else self.update_every,
            to_targets,
            self.device,
            X if projects else None,
            secret=secret is not None,
        )
        return X, noise, to_rows

    @staticmethod
    def fit_together(encoders, blocks):
        """Fit the encoders of several parties that one process simulates.

        Faster than one after another, because a layer of all encoders is one matrix
        product, and with the same results up to rounding. It sees everybody's columns
        in one place, which no party may: it is for simulations, and no federated
        estimator uses it.

        Parameters
        ----------
        encoders : list of NoiseAsTargetsEncoder
            With the same parameters, but for ``random_state``: hidden layers of a
            perceptron, and neither an optimiser of its own nor callbacks nor a device.
        blocks : list of array-like of shape (n_samples, n_features)
            Each encoder's columns, any number of them.

        Returns
        -------
        encoders : list of NoiseAsTargetsEncoder
            The same, fitted.

        Raises
        ------
        ValueError
            If the encoders cannot be fitted together.
        """
        # Before settings are compared: a wrong one is an error of its own, and not a
        # difference between encoders.
        for encoder in encoders:
            encoder._validate_params()
        settings = [encoder._settings_together() for encoder in encoders]
        if any(each != settings[0] for each in settings):
            raise ValueError(
                "encoders that are fitted together have the same parameters, but for "
                "random_state"
            )
        # All are fitted or none is, after an interrupt, too.
        before = [dict(vars(encoder)) for encoder in encoders]
        try:
            return _fit_together(encoders, blocks)
        except BaseException:
            for encoder, state in zip(encoders, before, strict=True):
                encoder.__dict__ = state
            raise

    def _settings_together(self):
        """Parameters that encoders have in common, if they can be fitted together."""
        settings = self.get_params(deep=False)
        own = [settings[name] for name in ("optimizer", "callbacks")]
        if callable(self.hidden_layer_sizes) or any(own) or self.device != "cpu":
            raise ValueError(
                "encoders that are fitted together have hidden layers of a perceptron, "
                "and no optimizer, callbacks or device of their own"
            )
        # A list and a tuple of the same sizes are the same layers.
        return settings | {
            "hidden_layer_sizes": list(self.hidden_layer_sizes),
            "random_state": None,
        }

    def transform(self, X):
        """Represent rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Columns as in ``fit``.

        Returns
        -------
        X_out : ndarray of shape (n_samples, n_components), dtype float32
            Outputs of the network, each a function of its row alone.
        """
        check_is_fitted(self)
        X = unquoted(validate_data, self, X, dtype=np.float32, reset=False)
        return infer(self.module_, tensor(X), torch.float32).numpy()

    @property
    def _n_features_out(self):
        return self.n_components

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _fit_together(encoders, blocks):
    starts = [each._start(X) for each, X in zip(encoders, blocks, strict=True)]
    inputs, noises, sequences = zip(*starts, strict=True)
    # The batches are stacked, so every encoder needs a row at every position.
    if len(set(map(len, inputs))) > 1:
        raise ValueError("the blocks have different numbers of rows")
    # Their settings are equal, so those of the first are everybody's.
    first = encoders[0]
    curves = train_together(
        [encoder.module_ for encoder in encoders],
        inputs,
        noises,
        sequences,
        max_epochs=first.max_epochs,
        batch_size=first.batch_size,
        lr=first.lr,
        weight_decay=first.weight_decay,
    )
    for encoder, curve in zip(encoders, curves, strict=True):
        encoder.loss_curve_, encoder.n_iter_ = curve, len(curve)
    return encoders


def fit_privately(encoder, inputs, steps, max_grad_norm, to_targets):
    """Fit a NoiseAsTargetsEncoder by noisy gradient steps.

    Parameters
    ----------
    encoder : NoiseAsTargetsEncoder
        Unfitted.
    inputs : ndarray of shape (n_rows, n_columns)
        The guest's prepared columns.
    steps : PrivateSteps
        Rows and noise.
    max_grad_norm : float
        Norm to which the gradient of every row is clipped.
    to_targets : numpy.random.SeedSequence
        Stream of the targets, which nobody may know: targets go by position, and
        known ones would tell which rows there are.
    """
    # Rows are drawn by the steps, so the encoder's own stream of them has no use.
    inputs, noise, _ = encoder._start(inputs, to_targets)
    module, columns = encoder.module_, tensor(inputs)
    per_epoch = steps.run.steps // encoder.max_epochs

    # Before the step and not in the loss, which may be asked of one row
    # at a time.
    def exchange(rows):
        if noise.exchanges:
            with torch.no_grad():
                noise.exchange(module(columns[rows]), rows)

    def report(step):
        if step % per_epoch == 0:
            noise.begin_epoch(step // per_epoch + 1)

    train_privately(
        module,
        inputs,
        np.arange(len(inputs)),
        loss=noise.half_squares,
        steps=steps,
        max_grad_norm=max_grad_norm,
        lr=encoder.lr,
        before_step=exchange,
        report=report,
    )
    # No loss curve: losses are a release that nobody accounts for.
    encoder.n_iter_ = encoder.max_epochs
