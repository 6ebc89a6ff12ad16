"""One party's autoencoder, and Algorithm 1 of the APC-VFL paper, which judges it."""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real

import numpy as np
import torch
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
    is_classifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import check_cv, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from skvfl._cells import unquoted
from skvfl._random import int_seed, seed_sequence
from skvfl._sklearn import (
    CallbackSupportMixin,
    HasMethods,
    Interval,
    StrOptions,
    _fit_context,
    validate_params,
)
from skvfl.federation._replies import all_finite
from skvfl.nn._autoencoder import DISTANCES, Autoencoder, AutoencoderLoss
from skvfl.nn._build import hidden_layers
from skvfl.nn._steps import Joined, infer, tensor
from skvfl.nn._training import train
from skvfl.partition._columns import refuse_masked

# Rows that are joined at once: of many parties their columns are many.
_FEW_ROWS = 1024


class AutoencoderTransformer(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseEstimator,
):
    """Shallow autoencoder: columns to the latent vector that rebuilds them.

    What every party of :class:`APCVFLClassifier` trains on its own columns. With more
    components than columns it is overcomplete, which the paper [1]_ prefers for few
    columns. It can also learn to imitate a representation that is known of some rows
    only.

    Read more in the :ref:`User Guide <apc>`.

    Parameters
    ----------
    n_components : int, default=256
        Length of the latent vector.
    hidden_layer_sizes : array-like of int, default=(256,)
        Hidden layers of the encoder; the decoder has the same in reverse. SELU follows
        every layer but the decoder's last, which is linear.
    distillation_loss : {"mse", "mae"}, default="mse"
        Distance of the latent vector from its target: squared or absolute error.
    distillation_weight : float, default=0.01
        Weight λ of that distance beside the reconstruction error. Both are summed over
        dimensions and averaged over rows.
    max_epochs : int, default=50
        Number of passes over the rows.
    batch_size : int, default=128
        Rows per step. A last batch of one row joins its predecessor.
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
        Seed of the first weights and of the order of rows. ``None`` takes fresh entropy
        from the operating system.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained ``encoder`` and ``decoder``.
    loss_curve_ : list of float
        Mean training loss of every epoch.
    n_iter_ : int
        Number of epochs.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    APCVFLClassifier : Several parties' autoencoders, one exchange.
    EncoderEvaluationDisplay : How good the representation is, epoch by epoch.

    Notes
    -----
    Columns should be standardised, as the reconstruction error treats them alike.
    What :meth:`transform` and :meth:`inverse_transform` give is computed in double
    precision and rounded to single precision.

    References
    ----------
    .. [1] J. Irureta, J. Imaz, A. Lojo, M. González, I. Perona, "Towards Active
       Participant-Centric Vertical Federated Learning: Some Representations May Be All
       You Need", section IV and equation 9.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from skvfl import AutoencoderTransformer
    >>> X = scale(load_iris().data)
    >>> autoencoder = AutoencoderTransformer(64, random_state=0).fit(X)
    >>> latent = autoencoder.transform(X)
    >>> latent.shape
    (150, 64)
    >>> bool(np.abs(autoencoder.inverse_transform(latent) - X).mean() < 0.1)
    True
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "hidden_layer_sizes": ["array-like"],
        "distillation_loss": [StrOptions(set(DISTANCES))],
        "distillation_weight": [Interval(Real, 0, None, closed="left")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "optimizer": [callable, None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "callbacks": [list, None],
        "device": [str],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components=256,
        *,
        hidden_layer_sizes=(256,),
        distillation_loss="mse",
        distillation_weight=0.01,
        max_epochs=50,
        batch_size=128,
        lr=1e-3,
        optimizer=None,
        weight_decay=0.0,
        callbacks=None,
        device="cpu",
        random_state=None,
    ):
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.distillation_loss = distillation_loss
        self.distillation_weight = distillation_weight
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.callbacks = callbacks
        self.device = device
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, *, latent_target=None, has_target=None):
        """Train the encoder and the decoder.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers.
        y : None
            Ignored.
        latent_target : array-like of shape (n_samples, n_components), default=None
            Representation that the latent vectors should come near.
        has_target : array-like of bool of shape (n_samples,), default=None
            Rows of which ``latent_target`` is known; all of them by default. Its other
            rows are not looked at.

        Returns
        -------
        self : AutoencoderTransformer

        Raises
        ------
        ValueError
            If the target and the rows, or the loss and the numbers, do not match.
        """
        return self._fit(X, latent_target, has_target)

    def _fit(self, X, latent_target=None, has_target=None, report=None):
        if isinstance(X, Joined):
            self.n_features_in_ = X.shape[1]
        else:
            settings = {"dtype": np.float32, "accept_sparse": "csr"}
            X = _dense(unquoted(validate_data, self, X, **settings))
        target = self._check_target(latent_target, has_target, len(X))
        to_weights, to_rows = seed_sequence(self.random_state).spawn(2)
        hidden = hidden_layers(self.hidden_layer_sizes, "hidden_layer_sizes")
        sizes = [X.shape[1], *hidden, self.n_components]
        generator = torch.Generator().manual_seed(int_seed(to_weights))
        context = self._init_callback_context(max_subtasks=self.max_epochs)
        context.call_on_fit_task_begin(estimator=self, X=X)
        self.loss_curve_ = []

        def end_epoch(epoch, losses):
            self.loss_curve_.append(losses["train_loss"])
            task = context.subcontext(task_name="epoch")
            task.call_on_fit_task_begin(estimator=self)
            stop = task.call_on_fit_task_end(estimator=self)
            if report is not None:
                report(self)
            return stop

        # There before it is trained, because ``report`` represents rows by it.
        self.module_ = Autoencoder(sizes, generator)
        train(
            self.module_,
            X,
            (X, *target),
            loss=AutoencoderLoss(self.distillation_loss, self.distillation_weight),
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

    def _check_target(self, latent_target, has_target, n_rows):
        """Target with zeros where there is none, and where there is one."""
        if latent_target is None:
            if has_target is not None:
                raise ValueError("has_target is given without latent_target")
            return ()
        refuse_masked(has_target, "has_target")
        target = unquoted(
            check_array,
            latent_target,
            name="latent_target",
            dtype=np.float32,
            # Rows without a target may hold anything.
            ensure_all_finite=False,
            input_name="latent_target",
        )
        if target.shape != (n_rows, self.n_components):
            raise ValueError(
                f"latent_target has shape {target.shape} for {n_rows} rows and "
                f"n_components={self.n_components}"
            )
        known = np.ones(n_rows, bool) if has_target is None else np.asarray(has_target)
        if known.dtype != bool or known.shape != (n_rows,):
            raise ValueError(
                f"has_target must be one bool for each of the {n_rows} rows, got "
                f"{known.dtype} of shape {known.shape}"
            )
        # Zeros, because the loss weighs all rows, and NaN times zero is NaN.
        if not known.all():
            target = np.where(known[:, None], target, np.float32(0))
        if not all_finite(target):
            raise ValueError("latent_target is not finite in a row of has_target")
        return target, known.astype(np.float32)

    def transform(self, X):
        """Latent vectors of rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``.

        Returns
        -------
        latent : ndarray of shape (n_samples, n_components), dtype float32
        """
        check_is_fitted(self)
        settings = {"dtype": np.float32, "accept_sparse": "csr", "reset": False}
        X = unquoted(validate_data, self, X, **settings)
        return infer(self.module_.encoder, tensor(_dense(X)), torch.float32).numpy()

    def inverse_transform(self, X):
        """Rebuild columns from latent vectors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Latent vectors.

        Returns
        -------
        columns : ndarray of shape (n_samples, n_features), dtype float32
        """
        check_is_fitted(self)
        X = unquoted(check_array, X, dtype=np.float32, input_name="X")
        if X.shape[1] != self._n_features_out:
            raise ValueError(
                f"X has {X.shape[1]} columns where the latent vector has "
                f"{self._n_features_out}"
            )
        return infer(self.module_.decoder, tensor(X), torch.float32).numpy()

    @property
    def _n_features_out(self):
        # The last layer is an activation. The parameter may have changed since fit.
        return self.module_.encoder[-2].out_features

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


class EncoderEvaluationDisplay:
    """How good an encoder's representation is, epoch by epoch.

    Algorithm 1 of the APC-VFL paper [1]_: after every epoch, the cross-validated score
    of a classifier on the representation, beside its score on the columns themselves.
    Meant for choosing an encoder before a federation, by a party that has labels.

    Make one by :meth:`from_estimator`.

    Parameters
    ----------
    losses : list of float
        Training loss of every epoch.
    scores : ndarray of shape (n_epochs, n_folds)
        Scores on the representation after every epoch.
    column_scores : ndarray of shape (n_folds,)
        Scores on the columns.
    threshold : float
        The paper's r: by how much the mean score may fall short of the columns' while
        the representation counts as equivalent to them.

    Attributes
    ----------
    equivalent_ : ndarray of bool of shape (n_epochs,)
        Whether the representation keeps what the classifier needs (equation 8).
    ax_ : matplotlib Axes
        The axes of the scores, after :meth:`plot`.

    See Also
    --------
    AutoencoderTransformer : The encoder.

    References
    ----------
    .. [1] J. Irureta, J. Imaz, A. Lojo, M. González, I. Perona, "Towards Active
       Participant-Centric Vertical Federated Learning: Some Representations May Be All
       You Need", algorithm 1, equations 7 and 8.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from skvfl import AutoencoderTransformer, EncoderEvaluationDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> display = EncoderEvaluationDisplay.from_estimator(
    ...     AutoencoderTransformer(64, max_epochs=5, random_state=0), scale(X), y
    ... )
    >>> display.scores.shape
    (5, 5)
    """

    def __init__(self, losses, scores, column_scores, threshold):
        self.losses = losses
        self.scores = scores
        self.column_scores = column_scores
        self.threshold = threshold
        self.equivalent_ = column_scores.mean() - scores.mean(axis=1) <= threshold

    @classmethod
    @validate_params(
        {
            "encoder": [AutoencoderTransformer],
            "estimator": [HasMethods(["fit", "predict"]), None],
            "cv": ["cv_object"],
            "scoring": [str, callable, None],
            "threshold": [Interval(Real, 0, None, closed="left")],
        },
        prefer_skip_nested_validation=True,
    )
    def from_estimator(
        cls,
        encoder,
        X,
        y,
        *,
        estimator=None,
        cv=5,
        scoring=None,
        threshold=0.01,
    ):
        """Train an encoder and judge its representation after every epoch.

        Parameters
        ----------
        encoder : AutoencoderTransformer
            A clone of it is trained.
        X : array-like of shape (n_samples, n_features)
            Standardised columns.
        y : array-like of shape (n_samples,)
            Labels or targets.
        estimator : estimator or None, default=None
            Any classifier or regressor; by default logistic regression on standardised
            inputs.
        cv : int, splitter or iterable, default=5
            As in scikit-learn; the same folds for every epoch.
        scoring : str, callable or None, default=None
            As in scikit-learn; the classifier's own score by default.
        threshold : float, default=0.01
            By how much the mean score may fall short.

        Returns
        -------
        display : EncoderEvaluationDisplay
        """
        if estimator is None:
            estimator = make_pipeline(
                StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)
            )
        # A list, because epochs are compared on the same folds, and a generator of them
        # can be read once.
        folds = list(check_cv(cv, y, classifier=is_classifier(estimator)).split(X, y))
        judge = partial(cross_val_score, estimator, y=y, cv=folds, scoring=scoring)
        scores = []

        def report(trained):
            scores.append(judge(X=trained.transform(X)))

        encoder = clone(encoder)._fit(X, report=report)
        return cls(encoder.loss_curve_, np.array(scores), judge(X=X), threshold)

    def plot(self, ax=None):
        """Draw scores and losses against epochs.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Returns
        -------
        self : EncoderEvaluationDisplay

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        # Only here: plots are an extra, and the package works without them.
        try:
            import matplotlib.pyplot as plt
        except ImportError as exc:
            raise ImportError(
                "EncoderEvaluationDisplay.plot needs matplotlib: "
                "pip install 'skvfl[plot]'"
            ) from exc
        if ax is None:
            _, ax = plt.subplots()
        epochs = np.arange(1, len(self.losses) + 1)
        mean, spread = self.scores.mean(axis=1), self.scores.std(axis=1)
        level = self.column_scores.mean()
        ax.plot(epochs, mean, label="score on the representation")
        ax.fill_between(epochs, mean - spread, mean + spread, alpha=0.2)
        ax.axhline(level, color="grey", linestyle="--", label="score on the columns")
        ax.axhline(level - self.threshold, color="grey", linestyle=":")
        losses = ax.twinx()
        losses.plot(epochs, self.losses, color="C1", label="loss")
        losses.set_ylabel("training loss")
        ax.set(xlabel="epoch", ylabel="cross-validated score")
        ax.legend(handles=[*ax.lines[:2], *losses.lines])
        self.ax_ = ax
        return self


def represent(encoder, inputs, spent=False):
    """What a fitted autoencoder makes of rows, in single precision.

    For models that learn from it, which takes half of the time; those who are served
    get the same whoever is served beside them, from ``transform``.

    Parameters
    ----------
    encoder : AutoencoderTransformer
        Fitted.
    inputs : ndarray or Joined of shape (n_rows, n_features)
        Finite numbers.
    spent : bool, default=False
        Whether nobody reads joined inputs after this, so that the latent vectors may
        take the place of a part that is as wide.

    Returns
    -------
    latent : ndarray of shape (n_rows, n_components), dtype float32
    """
    inputs = tensor(_dense(inputs))
    shape = len(inputs), encoder.module_.encoder[-2].out_features
    fitting = [part for part in inputs.parts if part.shape == shape] if spent else []
    latent = fitting[0] if fitting else torch.empty(shape)
    with torch.inference_mode():
        for start, values in zip(
            range(0, len(inputs), _FEW_ROWS), inputs.split(_FEW_ROWS), strict=True
        ):
            n_rows = len(values)
            for layer in encoder.module_.encoder:
                # Nobody else has what leaves a linear layer.
                if type(layer) is nn.SELU:
                    values = torch.selu_(values)
                else:
                    values = layer(values)
            latent[start : start + n_rows] = values
    return latent.numpy()


def _dense(X):
    return X.toarray() if sparse.issparse(X) else X
