"""TabVFL: TabNet across parties."""

from __future__ import annotations

from numbers import Integral, Real

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from skvfl._base import (
    VFLClassifierMixin,
    VFLEstimator,
    check_answers,
)
from skvfl._random import branch, seed_sequence
from skvfl._renamed import renamed
from skvfl._sklearn import Interval, StrOptions, _fit_context, _num_samples
from skvfl.federation._replies import Fields, Rows, rows_of
from skvfl.federation._transport import check_rows
from skvfl.nn._steps import n_held_out
from skvfl.nn._tabnet import MASKS
from skvfl.tabvfl._host import HostSettings
from skvfl.tabvfl._parties import GuestSettings
from skvfl.tabvfl._protocol import ClientFailures, Training


class _BaseTabVFL(ClassNamePrefixFeaturesOutMixin, TransformerMixin, VFLEstimator):
    """Training and serving; the subclasses say what the labels are."""

    # Never changed: another branch would be another result for the same seed.
    _streams = {"prepare": (1, 0), "models": (1, 1), "noise": (1, 2), "labels": (1, 3)}
    # The host is told more, see ``_settings``.
    _roles = (GuestSettings, GuestSettings)

    # Of classifiers, whose parameter it is.
    label_epsilon = None

    _parameter_constraints = {
        **VFLEstimator._parameter_constraints,
        "design": [StrOptions({"joint", "local_encoder", "local"})],
        "n_d": [Interval(Integral, 1, None, closed="left")],
        "n_a": [Interval(Integral, 1, None, closed="left")],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "gamma": [Interval(Real, 1, None, closed="left")],
        "n_independent": [Interval(Integral, 0, None, closed="left")],
        "n_shared": [Interval(Integral, 0, None, closed="left")],
        "mask_type": [StrOptions(set(MASKS))],
        "lambda_sparse": [Interval(Real, 0, None, closed="left")],
        "virtual_batch_size": [Interval(Integral, 2, None, closed="left")],
        "momentum": [Interval(Real, 0, 1, closed="neither")],
        "pretrain": ["boolean"],
        "pretraining_ratio": [Interval(Real, 0, 1, closed="neither")],
        "pretraining_epochs": [Interval(Integral, 1, None, closed="left"), None],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 2, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "optimizer": [callable, None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "max_grad_norm": [Interval(Real, 0, None, closed="neither"), None],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "callbacks": [list, dict, None],
        "device": [str, dict],
        "failure": [ClientFailures, None],
        "missing_party": [StrOptions({"raise", "cache", "zero"})],
        "gradient_noise": [Interval(Real, 0, None, closed="left")],
    }

    @renamed({"zeros": "zero"}, on_failure="missing_party")
    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        missing_party="cache",
        failure=None,
        design="joint",
        n_d=8,
        n_a=8,
        n_steps=3,
        gamma=1.3,
        n_independent=2,
        n_shared=2,
        mask_type="sparsemax",
        lambda_sparse=1e-3,
        virtual_batch_size=128,
        momentum=0.02,
        pretrain=True,
        pretraining_ratio=0.5,
        pretraining_epochs=None,
        max_epochs=50,
        batch_size=256,
        lr=0.02,
        optimizer=None,
        weight_decay=0.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        warm_start=False,
        callbacks=None,
        device="cpu",
        gradient_noise=0.0,
        max_grad_norm=1.0,
        transport="local",
        random_state=None,
    ):
        self.parties = parties
        self.active = active
        self.missing_rows = missing_rows
        self.missing_party = missing_party
        self.failure = failure
        self.design = design
        self.n_d = n_d
        self.n_a = n_a
        self.n_steps = n_steps
        self.gamma = gamma
        self.n_independent = n_independent
        self.n_shared = n_shared
        self.mask_type = mask_type
        self.lambda_sparse = lambda_sparse
        self.virtual_batch_size = virtual_batch_size
        self.momentum = momentum
        self.pretrain = pretrain
        self.pretraining_ratio = pretraining_ratio
        self.pretraining_epochs = pretraining_epochs
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.device = device
        self.gradient_noise = gradient_noise
        self.max_grad_norm = max_grad_norm
        self.transport = transport
        self.random_state = random_state

    def _fit(self, X, y, labels):
        n_rows = len(labels.values)
        root = seed_sequence(self.random_state)
        # Both phases report their epochs to one callback, which is told their number.
        n_epochs = self.pretrain * self._pretraining_epochs + self.max_epochs
        training = self._training(X, y, labels, n_epochs, root=root)
        with training as (session, course):
            # Inside the session: only now the parties have said which of them hold
            # columns.
            self._check_sizes(n_rows)
            # All curves are set before training, so that callbacks can read them after
            # the first epoch, and a refit shows none of an earlier fit.
            self.failures_ = []
            self._spend_on_labels()
            self._begin_curves()
            self.pretraining_loss_curve_ = []
            self.pretraining_validation_loss_curve_ = []
            # The order of the rows is public, so its branch leads to no party's stream.
            protocol = Training(self, session, n_rows, branch(root, 2), course)
            protocol.run()
            self._widths = protocol.widths
            self.n_iter_ = len(self.loss_curve_)
        return self

    def _settings(self, name):
        said = super()._settings(name)
        if name != self._active:
            return said
        # Where nobody can be offline, all that is sent would be kept for nothing.
        may_fail = self.failure is not None or self._transport.timeout is not None
        cache = may_fail and self.missing_party == "cache"
        alone = {
            "cache": cache,
            "gradient_noise": self.gradient_noise,
            "label_epsilon": self.label_epsilon,
        }
        return HostSettings(**vars(said), **alone)

    def _check_sizes(self, n_rows):
        """Refuse what leaves nothing to train, once all have said what they hold."""
        n_train = n_rows - n_held_out(self, n_rows)
        # Before the networks are built: batch norm would fail at a guest, in torch's
        # words.
        if n_train < 2:
            raise ValueError(
                f"n_samples={n_rows}, of which {n_rows - n_train} are held out: batch "
                "norm needs at least two rows to train on; give more rows"
            )
        if self.n_shared + self.n_independent == 0:
            raise ValueError(
                "n_shared=0 and n_independent=0 leave no layer: raise one of them"
            )
        if self.n_d < len(self._holders):
            raise ValueError(
                f"n_d={self.n_d} is less than the number of parties with columns, "
                f"{len(self._holders)}, among whom the latent vector is shared out: "
                "raise n_d"
            )

    @property
    def _pretraining_epochs(self):
        # None, and never 0, which the constraints refuse: ``pretrain`` turns the phase
        # off.
        return self.pretraining_epochs or self.max_epochs

    def _serve(self, X, operation):
        """What the active party computes for rows to be served."""
        with self._serving(X) as session:
            n_rows = _num_samples(X)
            session.begin_round()
            expected = rows_of(self._widths, n_rows)
            rows = {"start": 0, "stop": n_rows}
            received = session.call(
                "represent", to=self._holders, reply=expected, **rows
            )
            check_rows(received, n_rows, self._widths)
            # A reply's shape is declared before it is asked for, so that the wire
            # refuses any other.
            own = {
                "embed": Rows(n_rows, self.n_d),
                "predict": Rows(n_rows, self._n_outputs),
                "explain_received": Fields(expected),
            }[operation]
            asked = {"reply": own, "received": received}
            return check_answers(session.ask(self._active, operation, **asked))

    def transform(self, X):
        """Latent vectors, learnt with the labels.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        latent : ndarray of shape (n_samples, n_d), dtype float32
            Not negative.
        """
        return self._serve(X, "embed")

    def explain(self, X):
        """How much the attention looks at what each party sends, for every row.

        The attention of all steps, each in proportion to what the step contributes to
        the latent vector. With ``design="joint"`` it weighs what a passive party sends,
        and each of those columns is a mixture of all its prepared columns: the weights
        say how much the network looks at that party, and nothing about its single
        columns. Only the active party's own columns are not mixed. With the other
        designs each party sends the weights of its prepared columns, which its own
        encoder gives.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        weights : dict of str to ndarray of shape (n_samples, n_outputs)
            Of every party with columns; not negative. All weights of a row add up to
            one, or are zero where no step contributes anything. The sum of a party's
            weights is its part.
        """
        # The party that has the encoder answers: the host, or each for itself.
        if self.design == "joint":
            weights = self._serve(X, "explain_received")
        else:
            with self._serving(X) as session:
                rows = {"start": 0, "stop": _num_samples(X)}
                session.begin_round()
                expected = self._any_rows(rows["stop"])
                weights = session.call(
                    "explain", to=self._holders, reply=expected, **rows
                )
                check_rows(weights, rows["stop"])
        # Here and not at the parties, which do not know each other's weights.
        total = sum(each.sum(axis=1, keepdims=True) for each in weights.values())
        # A row in which no step decides anything has weights of zero, and keeps them.
        total[total == 0] = 1
        return {name: each / total for name, each in weights.items()}

    @property
    def _n_features_out(self):
        return self.n_d

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


class TabVFLClassifier(VFLClassifierMixin, _BaseTabVFL):
    """TabNet across parties: one attention and one latent vector for all columns.

    The parties first learn together to rebuild hidden cells, without labels, and then
    to predict. The active party holds the encoder, every other party a batch norm and a
    linear layer that mixes its columns before they leave it. Training goes on where
    parties are offline for whole epochs.

    Read more in the :ref:`User Guide <tabvfl>`.

    Parameters
    ----------
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`.
    active : str or int, default=0
        Name or position of the active party, the paper's host, which holds the labels
        and most of the network. It may hold no columns.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all: an error that names the party and counts them, or they are imputed
        like other missing values. Later they are imputed, and a
        :class:`~skvfl.exceptions.MissingRowsWarning` counts them.
    missing_party : {"raise", "cache", "zero"}, default="cache"
        What happens while training when a party is offline, or late for the transport's
        ``timeout``: training ends with a :class:`~skvfl.exceptions.PartyError`; or it
        goes on without it, with what it sent last for each row, or with zeros, none of
        which counts as hidden while pretraining. An offline party learns nothing. A
        late party is offline until the next epoch, or until it has answered; it still
        ends the step that it was late with, which is a whole epoch of pretraining with
        ``design="local"``.
    failure : ClientFailures or None, default=None
        Simulates parties that are offline for whole epochs, for ``missing_party`` to be
        tried.
    design : {"joint", "local_encoder", "local"}, default="joint"
        What is trained: one TabNet of all parties' columns (the paper's TabVFL); an
        encoder at every party, whose outputs are added up, with one decoder (its
        TabVFL-LE); or a TabNet at every party, pretrained alone, whose latent vectors
        stand side by side (its LT, local TabNets).
    n_d : int, default=8
        Width of the latent vector, at least the number of parties with columns.
    n_a : int, default=8
        Width of what the next step's attention is made of.
    n_steps : int, default=3
        Number of decision steps.
    gamma : float, default=1.3
        How much a column may be looked at again: the less, the nearer to 1.
    n_independent, n_shared : int, default=2
        Number of gated layers that are each step's own, and that all steps share.
    mask_type : {"sparsemax", "entmax"}, default="sparsemax"
        How attention scores become weights; ``"entmax"`` is less sparse.
    lambda_sparse : float, default=1e-3
        Weight of the entropy of the attention in the loss of finetuning.
    virtual_batch_size : int, default=128
        Rows whose statistics the network's batch norms share.
    momentum : float, default=0.02
        Weight of a virtual batch in their running statistics.
    pretrain : bool, default=True
        Whether the parties first learn to rebuild hidden cells, without labels.
    pretraining_ratio : float, default=0.5
        Fraction of the cells that are hidden, drawn anew for every batch by each party.
    pretraining_epochs : int or None, default=None
        Number of passes over the rows without labels; ``max_epochs`` by default.
    max_epochs : int, default=50
        Number of passes over the rows with labels.
    batch_size : int, default=256
        Rows per step. A last batch of one row joins its predecessor.
    lr : float, default=0.02
        Learning rate of every party's own optimiser.
    optimizer : class or None, default=None
        From ``torch.optim``; Adam by default.
    weight_decay : float, default=0.0
        Of the optimiser: for Adam, half the weight of the squared parameters.
    early_stopping : bool, default=False
        Whether to hold out rows, stop either phase when their loss no longer improves,
        and go back to the models that were best on them.
    validation_fraction : float, default=0.1
        Fraction of the rows held out.
    n_iter_no_change : int, default=10
        Epochs without improvement before stopping.
    warm_start : bool, default=False
        Whether ``fit`` goes on with the models of the last fit, for ``max_epochs`` more
        epochs and with new optimisers; what prepares the columns stays as it was.
    callbacks : list of skorch callbacks, dict of str to list or None, default=None
        Schedulers, checkpoints and loggers of the active party's networks; a dict gives
        each party its own by name. They hear of epochs and steps, and see no rows; only
        the active party's see losses.
    device : str or dict of str to str, default="cpu"
        Where networks are trained, as torch names it, such as ``"cuda"``; a dict says
        it for each party by name. An organisation elsewhere says it in its own file.
        Fitted networks are on the CPU.
    gradient_noise : float, default=0.0
        Gaussian noise that the active party adds to the gradients it sends in
        finetuning: its expected length for a row, in lengths of the batch's longest
        gradient. It averages out over epochs, and has no guarantee.
    max_grad_norm : float or None, default=1.0
        Norm that each optimiser scales longer gradients of its weights down to.
    label_epsilon : float or None, default=None
        Budget of the labels' differential privacy towards the other parties, see Notes.
        None shows them everything that gradients say.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in the loss, as in scikit-learn.
    transport : {"local", "process"} or Transport, default="local"
        How the parties are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of one random stream per party and of the public order of rows. ``None``
        takes fresh entropy from the operating system. A known seed is a known
        secret.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    pretraining_loss_curve_ : list of float
        Mean loss of every epoch of pretraining, summed over the parties; an offline
        party counts with its last loss.
    pretraining_validation_loss_curve_ : list of float
        The same of the held-out rows; empty without early stopping.
    loss_curve_ : list of float
        Mean loss of every epoch of finetuning, without the term of the attention.
    validation_loss_curve_ : list of float
        The same of the held-out rows; empty without early stopping.
    n_iter_ : int
        Number of epochs of finetuning.
    failures_ : list of tuple
        Phase, ``"pretraining"`` or ``"finetuning"``, epoch from 1, and name of each
        party that was offline, or late.
    label_epsilon_ : float
        What was spent on the labels; only with a budget. With ``warm_start`` the sum
        over the fits, infinite after one without a budget.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``. Pretraining's operations are ``hide``, ``rebuild`` and
        ``adapt``, finetuning's are ``forward`` and ``backward``; those on held-out
        rows are ``hide_held_out``, ``rebuild_held_out`` and ``represent``.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    TabVFLRegressor : The same for numerical targets.
    SplitNNClassifier : Any networks, without attention and pretraining.
    ClientFailures : Simulated failures.

    Notes
    -----
    *Pretraining*, for every batch: each party hides random cells of its own columns and
    sends what its batch norm and its square linear layer make of the rest, and which
    cells it hid; the active party encodes, decodes, and sends each party its share of
    the decoder's outputs; each party rebuilds what it hid and sends its loss and the
    gradient of that share; the active party corrects encoder and decoder and sends each
    party the gradient of what came from it. *Finetuning* is split learning of a linear
    map of the latent vector. In the paper's names: a guest has ``f_bottom_repr`` (batch
    norm and square layer), ``RandomObfuscator`` and ``f_bottom_rec`` (what rebuilds);
    the host has ``PartialEnc``, ``PartialDec`` and ``final_mapping``. Guests send
    gradients besides losses, so that no graph crosses a boundary. Every party has its
    own optimiser, and draws its own masks and weights. The columns of the active party
    itself cross nothing and have no square layer, so that with ``parties=1`` this is
    TabNet.

    *Who sees what, in short.* The active party sees linear mixtures of every party's
    columns in every epoch; the others see gradients, from which labels can be inferred,
    and numbers that depend on all parties' columns.

    *Who learns what.* The active party sees a linear mixture of every party's prepared
    columns, for every row and epoch, while the mixture changes. **While pretraining**
    with ``design="joint"`` **the mixture protects nothing from the active party**: a
    hidden cell has one value in the whole batch, so that the rows in which a column is
    hidden lie in a hyperplane, and from these hyperplanes it can solve for the mixing.
    From one batch of a few times as many rows as columns it can compute every cell that
    is not hidden, up to the column's scale and mean. Choose ``pretrain=False`` or
    ``design="local"`` where that must not be. Without pretraining, knowledge of some
    rows or of the columns'
    joint distribution can still undo the mixture. Passive parties see their share of
    the decoder's outputs, which depends on the columns of all, row by row, and
    gradients, from which labels can be inferred while finetuning. Everybody knows the
    order of the rows. Nothing is noised.

    With ``failure`` or a ``timeout``, and ``missing_party="cache"``, the active party
    keeps what every party sent last for every row, until ``fit`` ends.

    A column's variance in the reconstruction loss is that of its batch, of at least
    0.01: without a bound the published loss divides by almost nothing where a column
    hardly varies, and becomes negative where it is constant.

    With ``label_epsilon`` the active party draws every label at random before training:
    it is told truly with probability ``exp(ε) / (exp(ε) + n_classes - 1)``, and is else
    one of the others (randomised response). Gradients, and when training stops, follow
    from these labels, so whatever passive parties do, what they see in ``fit`` is at
    most ``exp(ε)`` times as likely for one label of a row as for another. Probabilities
    are given as of the true classes. Sample weights and callbacks are not covered,
    every further ``fit`` on the same rows spends ε again, and a ``random_state`` that
    others guess tells them which labels are true: leave it at None where it matters.

    References
    ----------
    .. [1] M. Rashad, Z. Zhao, J. Decouchant, L. Y. Chen, "TabVFL: Improving Latent
       Representation in Vertical Federated Learning", 2024.
    .. [2] S. Ö. Arik, T. Pfister, "TabNet: Attentive Interpretable Tabular Learning",
       AAAI 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import TabVFLClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> vfl = TabVFLClassifier(parties=3, max_epochs=30, random_state=0).fit(X, y)
    >>> vfl.score(X, y) > 0.95
    True
    >>> vfl.transform(X).shape
    (569, 8)
    """

    _parameter_constraints = {
        **_BaseTabVFL._parameter_constraints,
        "label_epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    @renamed({"zeros": "zero"}, on_failure="missing_party")
    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        missing_party="cache",
        failure=None,
        design="joint",
        n_d=8,
        n_a=8,
        n_steps=3,
        gamma=1.3,
        n_independent=2,
        n_shared=2,
        mask_type="sparsemax",
        lambda_sparse=1e-3,
        virtual_batch_size=128,
        momentum=0.02,
        pretrain=True,
        pretraining_ratio=0.5,
        pretraining_epochs=None,
        max_epochs=50,
        batch_size=256,
        lr=0.02,
        optimizer=None,
        weight_decay=0.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        warm_start=False,
        callbacks=None,
        device="cpu",
        gradient_noise=0.0,
        max_grad_norm=1.0,
        label_epsilon=None,
        class_weight=None,
        transport="local",
        random_state=None,
    ):
        super().__init__(
            parties=parties,
            active=active,
            missing_rows=missing_rows,
            missing_party=missing_party,
            failure=failure,
            design=design,
            n_d=n_d,
            n_a=n_a,
            n_steps=n_steps,
            gamma=gamma,
            n_independent=n_independent,
            n_shared=n_shared,
            mask_type=mask_type,
            lambda_sparse=lambda_sparse,
            virtual_batch_size=virtual_batch_size,
            momentum=momentum,
            pretrain=pretrain,
            pretraining_ratio=pretraining_ratio,
            pretraining_epochs=pretraining_epochs,
            max_epochs=max_epochs,
            batch_size=batch_size,
            lr=lr,
            optimizer=optimizer,
            weight_decay=weight_decay,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            warm_start=warm_start,
            callbacks=callbacks,
            device=device,
            gradient_noise=gradient_noise,
            max_grad_norm=max_grad_norm,
            transport=transport,
            random_state=random_state,
        )
        self.label_epsilon = label_epsilon
        self.class_weight = class_weight

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Train all parties' models.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The active party's labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss of finetuning; they stay with the active
            party.

        Returns
        -------
        self : TabVFLClassifier

        Raises
        ------
        ValueError
            If the labels are not classes, if the parties and the columns do not match
            (the message names both), or if ``n_d`` is too small for the parties.
        PartyError
            If a party fails, dies (between organisations it is offline from then on),
            is late in the first epoch of a phase, or is offline with
            ``missing_party="raise"``; the message names it.
        """
        self._check_label_budget()
        labels = self._read_classes(X, y, sample_weight, self.class_weight)
        return self._fit(X, y, labels)

    def predict_proba(self, X):
        """Probability of each class.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes), dtype float64
            Columns in the order of ``classes_``.
        """
        return self._serve(X, "predict")
