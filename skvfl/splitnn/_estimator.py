"""SplitNN: bottom models at the parties, a top model at the active party."""

from __future__ import annotations

from functools import lru_cache, partial
from numbers import Integral, Real

from sklearn.base import (
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)

from skvfl._base import (
    VFLClassifierMixin,
    VFLEstimator,
    VFLRegressorMixin,
    check_answers,
)
from skvfl._random import branch, int_seed, seed_sequence
from skvfl._sklearn import Interval, StrOptions, _fit_context, _num_samples
from skvfl.federation._replies import NUMBER, OWN_WIDTH, Rows, learnt, rows_of
from skvfl.federation._transport import check_finite_rows, check_rows
from skvfl.nn._steps import batch_bounds, epoch_loss, has_stalled, n_held_out
from skvfl.nn._training import check_finite
from skvfl.splitnn._active import AGGREGATIONS, ActiveSettings
from skvfl.splitnn._parties import PassiveSettings


def split_epoch(session, active, passive, widths, batches):
    """The batches of an epoch of split learning.

    Parameters
    ----------
    session : Session
        Of parties that have begun an epoch.
    active : str
        The party that learns from the activations.
    passive : list of str
        The parties that send them.
    widths : dict of str to int
        How many numbers for each row.
    batches : list of tuple of int
        Bounds of each batch in the epoch's order of the rows.

    Returns
    -------
    steps : list of dict
        Of each batch ``loss``, and ``weight``, what the rows weigh together.
    """
    steps = [_split_step(session, active, passive, widths, *each) for each in batches]
    # What the last batch has left to it.
    session.tell("catch_up", to=[active])
    return steps


def _split_step(session, active, passive, widths, start, stop):
    """One batch: a round of activations, and one of gradients."""
    session.begin_round()
    batch = {"start": start, "stop": stop}
    # A reply's shape is declared before it is asked for, so that the wire refuses any
    # other and a party can neither crash the active one nor fill its memory.
    expected, report = _expected(tuple(widths.items()), stop - start)
    received = session.call(
        "forward",
        to=passive,
        reply=expected,
        # What nobody waits for the active party does while the others compute: its own
        # way back through the batch before, and its own activations of this one.
        meanwhile=partial(session.tell, "catch_up", to=[active], **batch),
        **batch,
    )
    # The session has looked at their shapes.
    check_finite_rows(received)
    learn = {"received": received, "later": True, **batch}
    step = session.ask(active, "learn", reply=report, **learn)
    # Each party is told its own gradient alone: the others' depend on their columns.
    session.begin_round()
    gradients = {n: {"gradient": g} for n, g in step["gradients"].items()}
    session.tell("backward", to=passive, each=gradients)
    # Whoever sums up an epoch keeps these, which need not keep its gradients.
    return {name: step[name] for name in ("loss", "weight")}


# Batches of a run have one size, or two.
@lru_cache(maxsize=64)
def _expected(widths, n_rows):
    """What is expected of activations, and of who learns from them."""
    expected = rows_of(dict(widths), n_rows)
    return expected, learnt(expected)


class _BaseSplitNN(ClassNamePrefixFeaturesOutMixin, TransformerMixin, VFLEstimator):
    """Training and serving; the subclasses say what the labels are."""

    # Never changed: another branch would be another result for the same seed.
    _streams = {"prepare": (1, 0), "models": (1, 1), "noise": (1, 2), "labels": (1, 3)}
    _roles = (PassiveSettings, ActiveSettings)
    _by_party = ("bottom",)

    # Of classifiers, whose parameter it is.
    label_epsilon = None

    _parameter_constraints = {
        **VFLEstimator._parameter_constraints,
        "bottom": ["array-like", callable, dict],
        "top": ["array-like", callable],
        "cut_width": [Interval(Integral, 1, None, closed="left")],
        "aggregation": [StrOptions(set(AGGREGATIONS))],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "optimizer": [callable, None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "callbacks": [list, dict, None],
        "device": [str, dict],
        "representation_noise": [Interval(Real, 0, None, closed="left")],
        "max_representation_norm": [Interval(Real, 0, None, closed="neither"), None],
        "gradient_noise": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        bottom=(64,),
        top=(64,),
        cut_width=32,
        aggregation="concat",
        max_epochs=50,
        batch_size=128,
        lr=1e-3,
        optimizer=None,
        weight_decay=0.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        warm_start=False,
        callbacks=None,
        device="cpu",
        representation_noise=0.0,
        max_representation_norm=None,
        gradient_noise=0.0,
        transport="local",
        random_state=None,
    ):
        self.parties = parties
        self.active = active
        self.missing_rows = missing_rows
        self.bottom = bottom
        self.top = top
        self.cut_width = cut_width
        self.aggregation = aggregation
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
        self.representation_noise = representation_noise
        self.max_representation_norm = max_representation_norm
        self.gradient_noise = gradient_noise
        self.transport = transport
        self.random_state = random_state

    def _fit(self, X, y, labels):
        root = seed_sequence(self.random_state)
        training = self._training(X, y, labels, self.max_epochs, root=root)
        with training as (session, course):
            # The order of the rows is public, so its branch leads to no party's stream.
            rows = branch(root, 2)
            self._spend_on_labels()
            self._train(session, self._active, len(labels.values), rows, course)
            self.n_iter_ = len(self.loss_curve_)
        return self

    def _train(self, session, active, n_rows, sequence, course):
        """Split learning: activations up, gradients down, for every batch."""
        passive = [name for name in self._holders if name != active]
        # One stream for the order of the table and one for those of the epochs, so that
        # the number of epochs does not change the first.
        to_table, to_epochs = sequence.spawn(2)
        session.begin_round()
        n_train = n_rows - n_held_out(self, n_rows)
        # All parties sort their rows by one seed before anything else. The last rows of
        # that order are held out, so a batch of either kind is named by two numbers.
        order = {"seed": int_seed(to_table)}
        # The top model's input has the widths of the others, so they build first.
        widths = session.call("prepare", to=passive, reply=self._any_widths, **order)
        self._widths = widths
        session.tell(
            "prepare_top",
            to=[active],
            names=self._holders,
            widths=widths,
            n_train=n_train,
            **order,
        )
        batches = batch_bounds(n_train, self.batch_size)
        self._begin_curves()
        for to_epoch in to_epochs.spawn(self.max_epochs):
            task = course.begin("epoch", may_end=True)
            shuffle = {"seed": int_seed(to_epoch), "n_train": n_train}
            session.tell("begin_epoch", to={*passive, active}, **shuffle)
            steps = split_epoch(session, active, passive, widths, batches)
            self.loss_curve_.append(epoch_loss(steps))
            # Here and not at the end, so that a fit that diverges ends at once.
            check_finite(self.loss_curve_[-1:], len(self.loss_curve_), self.lr)
            # The task ends before held-out rows are asked of, so the two reasons to
            # stop are joined here and not in ``Course.tasks``.
            stop = course.end(task, partial(self._so_far, session))
            if self.early_stopping:
                stop |= self._stops_early(session, active, passive, n_train, n_rows)
            stop |= self._ask_callbacks(session, self._last_losses())
            # Somebody may have interrupted it since the epoch ended.
            if stop or course.interrupted:
                break
        # The parties look at their models last, so at those that they will serve.
        if self.early_stopping:
            session.tell("recall", to={*passive, active})
        session.tell("finish", to={*passive, active})

    def _stops_early(self, session, active, passive, n_train, n_rows):
        """Whether the loss of the held-out rows has stopped improving."""
        rows = {"start": n_train, "stop": n_rows}
        session.begin_round()
        # All held-out rows at once: nothing is learnt from them, so there is no batch.
        expected = rows_of(self._widths, n_rows - n_train)
        received = session.call("represent", to=passive, reply=expected, **rows)
        loss = session.ask(active, "evaluate", reply=NUMBER, received=received, **rows)
        curve = self.validation_loss_curve_
        # Each party copies its own model: none leaves its party to be kept elsewhere.
        if not curve or loss < min(curve):
            session.tell("remember", to={*passive, active})
        curve.append(loss)
        return has_stalled(curve, self.n_iter_no_change)

    def _serve(self, X, operation):
        """What the active party computes for rows to be served."""
        with self._serving(X) as session:
            active = self._active
            passive = [name for name in self._holders if name != active]
            n_rows = _num_samples(X)
            rows = {"start": 0, "stop": n_rows}
            session.begin_round()
            expected = rows_of(self._widths, n_rows)
            received = session.call("represent", to=passive, reply=expected, **rows)
            check_rows(received, n_rows, self._widths)
            own = Rows(n_rows, OWN_WIDTH, exact=False)
            if operation == "predict":
                own = Rows(n_rows, self._n_outputs)
            # The active party answers through the session like every other, so that the
            # log has what a prediction costs where it lives elsewhere.
            asked = {"reply": own, "received": received, **rows}
            return check_answers(session.ask(active, operation, **asked))

    def transform(self, X):
        """Cut-layer representation: what the top model is given.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        representation : ndarray of shape (n_samples, n_components), dtype float32
        """
        return self._serve(X, "combine")

    @property
    def _n_features_out(self):
        # Only concatenation makes the top model's input grow with the parties.
        parts = len(self._holders) if self.aggregation == "concat" else 1
        return parts * self.cut_width

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


class SplitNNClassifier(VFLClassifierMixin, _BaseSplitNN):
    """Split learning: a bottom model at every party, a top model at the labels.

    For every batch each party sends its bottom model's activations to the active
    party, which computes the loss and sends back the gradient of what it received.
    The baseline of vertical federated learning: as accurate as joint training, at two
    messages per party and batch.

    Read more in the :ref:`User Guide <splitnn>`.

    Parameters
    ----------
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`.
    active : str or int, default=0
        Name or position of the active party, which holds the labels and the top model.
        It may hold no columns.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all: an error that names the party and counts them, or they are imputed
        like other missing values. Later they are imputed, and a
        :class:`~skvfl.exceptions.MissingRowsWarning` counts them.
    bottom : array-like of int, callable or dict of str to these, default=(64,)
        Every party's bottom model: sizes of the hidden layers of a perceptron, or
        ``bottom(n_inputs, n_outputs)`` that returns a ``torch.nn.Module``. A dict says
        it for each party by name.
    top : array-like of int or callable, default=(64,)
        The top model, given in the same way. A ReLU comes before it.
    cut_width : int, default=32
        Number of outputs of every bottom model.
    aggregation : {"concat", "sum", "mean", "max"}, default="concat"
        How the parties' activations become the top model's input.
    max_epochs : int, default=50
        Number of passes over the rows.
    batch_size : int, default=128
        Rows per step. A last batch of one row joins its predecessor.
    lr : float, default=1e-3
        Learning rate of every party's own optimiser.
    optimizer : class or None, default=None
        From ``torch.optim``; Adam by default.
    weight_decay : float, default=0.0
        Of the optimiser: for Adam, half the weight of the squared parameters.
    early_stopping : bool, default=False
        Whether to hold out rows, stop when their loss no longer improves, and go back
        to the models that were best on them.
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
    representation_noise : float, default=0.0
        Standard deviation of the Gaussian noise that passive parties add to what they
        send: anew in every batch of ``fit``, later as a secret function of the row and
        the model, so that asking again does not average it away; models of other
        epochs and fits do. Without ``max_representation_norm``
        the bottom models learn to put out larger numbers. It has no guarantee.
    max_representation_norm : float or None, default=None
        Norm to which passive parties shorten every row's activations before the noise.
    gradient_noise : float, default=0.0
        Gaussian noise that the active party adds to the gradients it sends: its
        expected length for a row, in lengths of the batch's longest gradient. It
        averages out over epochs, and has no guarantee.
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
    loss_curve_ : list of float
        Mean training loss of every epoch.
    validation_loss_curve_ : list of float
        Loss of the held-out rows after every epoch; empty without early stopping.
    n_iter_ : int
        Number of epochs.
    label_epsilon_ : float
        What was spent on the labels; only with a budget. With ``warm_start`` the sum
        over the fits, infinite after one without a budget.
        Fits that failed or were interrupted, and left no model, have spent theirs as
        well: ``label_epsilon_lost_`` has the sum, where there were any.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``: for every batch, one message of activations from and
        one message of gradients to every passive party with columns (equation 10 of
        the APC-VFL paper [1]_), and the same activations for held-out rows.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    SplitNNRegressor : The same for numerical targets.
    RandomProjectionVFL : One round, any model.

    Notes
    -----
    *Who sees what, in short.* The active party sees every row's activations of every
    epoch, from which columns can be reconstructed; the others see gradients, from which
    labels can be inferred.

    *Who learns what.* The active party sees every passive party's activations of every
    batch, and can train models that invert them. Passive parties see gradients, from
    which labels can be inferred. Everybody knows the order of the rows, so a batch is
    named by its bounds. Nothing is masked; no raw column and no label crosses.

    Every party has its own optimiser, and only numbers cross. For the same seed the
    trained parameters equal, bit for bit, those of the joint network trained in one
    place.

    With ``label_epsilon`` the active party draws every label at random before training:
    it is told truly with probability ``exp(ε) / (exp(ε) + n_classes - 1)``, and is else
    one of the others (randomised response). Gradients, and when training stops, follow
    from these labels, so whatever passive parties do, what they see in ``fit`` is at
    most ``exp(ε)`` times as likely for one label of a row as for another. Probabilities
    are given as of the true classes. Sample weights and callbacks are not covered,
    every further ``fit`` on the same rows spends ε again, and a ``random_state`` that
    others guess tells them which labels are true: leave it at None where it matters.
    Over :func:`~skvfl.connect` the operating system draws them, whatever it is.

    References
    ----------
    .. [1] J. Irureta, J. Imaz, A. Lojo, M. González, I. Perona, "Towards Active
       Participant-Centric Vertical Federated Learning: Some Representations May Be All
       You Need", equation 10: 2 · epochs · batches · passive parties.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import SplitNNClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> split = SplitNNClassifier(parties=3, max_epochs=20, random_state=0).fit(X, y)
    >>> split.score(X, y) > 0.97
    True
    >>> split.communication_.n_messages == 2 * 20 * 5 * 2
    True
    """

    _parameter_constraints = {
        **_BaseSplitNN._parameter_constraints,
        "label_epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        bottom=(64,),
        top=(64,),
        cut_width=32,
        aggregation="concat",
        max_epochs=50,
        batch_size=128,
        lr=1e-3,
        optimizer=None,
        weight_decay=0.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        warm_start=False,
        callbacks=None,
        device="cpu",
        representation_noise=0.0,
        max_representation_norm=None,
        gradient_noise=0.0,
        label_epsilon=None,
        class_weight=None,
        transport="local",
        random_state=None,
    ):
        super().__init__(
            parties=parties,
            active=active,
            missing_rows=missing_rows,
            bottom=bottom,
            top=top,
            cut_width=cut_width,
            aggregation=aggregation,
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
            representation_noise=representation_noise,
            max_representation_norm=max_representation_norm,
            gradient_noise=gradient_noise,
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
            Weights of the rows in the loss; they stay with the active party.

        Returns
        -------
        self : SplitNNClassifier

        Raises
        ------
        ValueError
            If the labels are not classes, or if the parties and the columns do not
            match; the message names both.
        PartyError
            If a party fails; the message names it.
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


class SplitNNRegressor(VFLRegressorMixin, _BaseSplitNN):
    """Split learning of a numerical target; see :class:`SplitNNClassifier`.

    The active party standardises its target and minimises the squared error.

    Read more in the :ref:`User Guide <splitnn>`.

    Parameters
    ----------
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`.
    active : str or int, default=0
        Name or position of the active party, which holds the labels and the top model.
        It may hold no columns.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all: an error that names the party and counts them, or they are imputed
        like other missing values. Later they are imputed, and a
        :class:`~skvfl.exceptions.MissingRowsWarning` counts them.
    bottom : array-like of int, callable or dict of str to these, default=(64,)
        Every party's bottom model: sizes of the hidden layers of a perceptron, or
        ``bottom(n_inputs, n_outputs)`` that returns a ``torch.nn.Module``. A dict says
        it for each party by name.
    top : array-like of int or callable, default=(64,)
        The top model, given in the same way. A ReLU comes before it.
    cut_width : int, default=32
        Number of outputs of every bottom model.
    aggregation : {"concat", "sum", "mean", "max"}, default="concat"
        How the parties' activations become the top model's input.
    max_epochs : int, default=50
        Number of passes over the rows.
    batch_size : int, default=128
        Rows per step. A last batch of one row joins its predecessor.
    lr : float, default=1e-3
        Learning rate of every party's own optimiser.
    optimizer : class or None, default=None
        From ``torch.optim``; Adam by default.
    weight_decay : float, default=0.0
        Of the optimiser: for Adam, half the weight of the squared parameters.
    early_stopping : bool, default=False
        Whether to hold out rows, stop when their loss no longer improves, and go back
        to the models that were best on them.
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
    representation_noise : float, default=0.0
        Standard deviation of the Gaussian noise that passive parties add to what they
        send: anew in every batch of ``fit``, later as a secret function of the row and
        the model, so that asking again does not average it away; models of other
        epochs and fits do. Without ``max_representation_norm``
        the bottom models learn to put out larger numbers. It has no guarantee.
    max_representation_norm : float or None, default=None
        Norm to which passive parties shorten every row's activations before the noise.
    gradient_noise : float, default=0.0
        Gaussian noise that the active party adds to the gradients it sends: its
        expected length for a row, in lengths of the batch's longest gradient. It
        averages out over epochs, and has no guarantee.
    transport : {"local", "process"} or Transport, default="local"
        How the parties are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of one random stream per party and of the public order of rows. ``None``
        takes fresh entropy from the operating system. A known seed is a known
        secret.

    Attributes
    ----------
    loss_curve_ : list of float
        Mean training loss of every epoch.
    validation_loss_curve_ : list of float
        Loss of the held-out rows after every epoch; empty without early stopping.
    n_iter_ : int
        Number of epochs.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``: for every batch, one message of activations from and
        one message of gradients to every passive party with columns (equation 10 of
        the APC-VFL paper [1]_), and the same activations for held-out rows.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    SplitNNClassifier : The same for classes.
    RandomProjectionVFL : One round, any model.

    Notes
    -----
    *Who sees what, in short.* The active party sees every row's activations of every
    epoch, from which columns can be reconstructed; the others see gradients, from which
    labels can be inferred.

    *Who learns what.* The active party sees every passive party's activations of every
    batch, and can train models that invert them. Passive parties see gradients, from
    which labels can be inferred. Everybody knows the order of the rows, so a batch is
    named by its bounds. Nothing is masked; no raw column and no label crosses.

    Every party has its own optimiser, and only numbers cross. For the same seed the
    trained parameters equal, bit for bit, those of the joint network trained in one
    place.

    References
    ----------
    .. [1] J. Irureta, J. Imaz, A. Lojo, M. González, I. Perona, "Towards Active
       Participant-Centric Vertical Federated Learning: Some Representations May Be All
       You Need", equation 10: 2 · epochs · batches · passive parties.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvfl import SplitNNRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> split = SplitNNRegressor(parties=3, max_epochs=30, random_state=0).fit(X, y)
    >>> split.score(X, y) > 0.5
    True
    """

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Train all parties' models.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The active party's target.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss; they stay with the active party.

        Returns
        -------
        self : SplitNNRegressor

        Raises
        ------
        ValueError
            If the parties and the columns do not match; the message names both.
        PartyError
            If a party fails; the message names it.
        """
        return self._fit(X, y, self._read_targets(X, y, sample_weight))

    def predict(self, X):
        """Predict targets in their own units.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        y : ndarray of shape (n_samples,), dtype float64
        """
        return self._serve(X, "predict")[:, 0]
