"""Gradient-boosted trees over parties, in the manner of SecureBoost."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np

from skvfl._base import (
    VFLClassifierMixin,
    VFLEstimator,
    VFLRegressorMixin,
    check_answers,
)
from skvfl._sklearn import Interval, StrOptions, _fit_context, _num_samples
from skvfl._targets import weights_of_classes
from skvfl.boosting._losses import LOSSES, POSITIVE
from skvfl.boosting._parties import ActiveSettings, PassiveSettings
from skvfl.boosting._protocol import boost, route
from skvfl.federation._replies import Rows


class _BaseVFLBoosting(VFLEstimator):
    """Training and serving; the subclasses say what the labels are."""

    # Never changed: another branch would be another result for the same seed.
    _streams = {
        "prepare": (1, 0),
        "bins": (1, 1),
        "held_out": (1, 2),
        "labels": (1, 3),
    }
    _roles = (PassiveSettings, ActiveSettings)
    # Parameters where there is a target; classes need none.
    target_range, loss, quantile = None, "squared_error", None

    _parameter_constraints = {
        **VFLEstimator._parameter_constraints,
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "max_leaf_nodes": [Interval(Integral, 2, None, closed="left"), None],
        "max_depth": [Interval(Integral, 1, None, closed="left"), None],
        "min_samples_leaf": [Interval(Integral, 1, None, closed="left")],
        "l2_regularization": [Interval(Real, 0, None, closed="left")],
        "max_bins": [Interval(Integral, 2, 255, closed="both")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "warm_start": ["boolean"],
        "label_epsilon": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        learning_rate=0.1,
        max_iter=100,
        max_leaf_nodes=31,
        max_depth=None,
        min_samples_leaf=20,
        l2_regularization=0.0,
        max_bins=255,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-7,
        warm_start=False,
        label_epsilon=None,
        transport="local",
        random_state=None,
    ):
        self.parties = parties
        self.active = active
        self.missing_rows = missing_rows
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.max_leaf_nodes = max_leaf_nodes
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.l2_regularization = l2_regularization
        self.max_bins = max_bins
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.label_epsilon = label_epsilon
        self.transport = transport
        self.random_state = random_state

    def _fit(self, X, y, labels, class_weight=None):
        n_rows = len(labels.values)
        if self.warm_start and self.label_epsilon is not None:
            # Further gradients would follow from leaves, which are of true labels.
            raise ValueError(
                "warm_start cannot be used with label_epsilon: set warm_start=False"
            )
        with self._training(X, y, labels, self.max_iter) as (session, course):
            self._begin_curves()
            self._spend_on_labels()
            asked = (session, self._active, n_rows, class_weight, course)
            boost(self, *asked)
            self.n_iter_ = len(self.loss_curve_)
        return self

    def _so_far(self, session):
        return super()._so_far(session, _n_splits=dict(self._n_splits))

    def _serve(self, X):
        """What the active party says of rows to be served."""
        with self._serving(X) as session:
            n_rows = _num_samples(X)
            said = {"sides": route(session, self._n_splits, n_rows), "n_rows": n_rows}
            expected = Rows(n_rows, self._n_outputs)
            answers = session.ask(self._active, "predict", reply=expected, **said)
            return check_answers(answers)

    def _instead_of_rows(self, name):
        return "its part of them counts as missing values"

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.required = True
        return tags


class VFLBoostingClassifier(VFLClassifierMixin, _BaseVFLBoosting):
    """Gradient-boosted trees of which every party makes the splits of its own columns.

    For every tree the active party sends all parties the derivatives of the loss by
    rows; each adds them up by the bins of its own columns; the active party chooses the
    split that gains most, and its owner answers which rows go left. That is SecureBoost
    [1]_ without encryption of what passive parties see. The trees are those of
    :class:`~sklearn.ensemble.HistGradientBoostingClassifier` on pooled columns.

    Read more in the :ref:`User Guide <boosting>`.

    Parameters
    ----------
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`. A party that is
        prepared by default hands numbers and dates to the trees as they are, missing
        ones as missing, and text as categories.
    active : str or int, default=0
        Name or position of the active party, which holds the labels and the trees. It
        may hold no columns.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all: an error that names the party and counts them, or they are taken
        as rows whose values are missing. Later they are taken so, and a
        :class:`~skvfl.exceptions.MissingRowsWarning` counts them.
    learning_rate : float, default=0.1
        What the values of leaves are multiplied by.
    max_iter : int, default=100
        Number of iterations. Each grows one tree, or one for each of several classes.
    max_leaf_nodes : int or None, default=31
        Most leaves of a tree; None for no limit, so that all nodes of a level are split
        in the same two rounds.
    max_depth : int or None, default=None
        Most splits one above the other; None for no limit.
    min_samples_leaf : int, default=20
        Fewest rows of a leaf. Parties refuse to add up derivatives of fewer.
    l2_regularization : float, default=0.0
        Added to the sum of second derivatives in a leaf.
    max_bins : int, default=255
        Most bins of a column, not counting that of missing values.
    early_stopping : bool, default=False
        Whether to hold out rows, stop when their loss no longer improves, and go back
        to the trees that were best on them.
    validation_fraction : float, default=0.1
        Fraction of the rows held out.
    n_iter_no_change : int, default=10
        Iterations without improvement before stopping.
    tol : float, default=1e-7
        By how much a loss must be lower to be an improvement.
    warm_start : bool, default=False
        Whether ``fit`` goes on with the trees of the last fit, for ``max_iter`` more
        iterations; columns are cut into bins as they were. Not with a budget.
    label_epsilon : float or None, default=None
        Budget of the labels' differential privacy towards the other parties, see Notes.
        None shows them everything that derivatives say.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in the loss, as in scikit-learn.
    transport : {"local", "process"} or Transport, default="local"
        How the parties are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of one random stream per party: held-out rows, wrong labels, and rows for
        quantiles of more than 200,000. ``None`` takes fresh entropy from the operating
        system. A known seed is a known secret.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    loss_curve_ : list of float
        Mean training loss after every iteration.
    validation_loss_curve_ : list of float
        Loss of the held-out rows after every iteration; empty without early stopping.
        With ``label_epsilon`` it is that of the labels that are shown.
    n_iter_ : int
        Number of iterations.
    label_epsilon_ : float
        What was spent on the labels; only with a budget.
        Fits that failed or were interrupted, and left no model, have spent theirs as
        well: ``label_epsilon_lost_`` has the sum, where there were any.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    VFLBoostingRegressor : The same for numerical targets.
    SplitNNClassifier : Networks in place of trees.

    Notes
    -----
    *Who sees what, in short.* Passive parties see every row's gradients, from which
    labels can be read, and which rows every node holds; the active party sees sums of
    gradients by bin, from which the bin of every cell can be computed.

    *Who learns what.* A gradient is negative for the true class and positive for every
    other one, so passive parties read every label of ``fit`` unless ``label_epsilon``
    is set, and weights of rows. They also see which rows go to which child, whoever
    owns the split. The active party sees how many bins each column has, whether values
    are missing, the sums, and on which side of every split each row lies. A sum is
    linear in who lies in a bin: of 150 rows it computed the bins of over 90 % of cells
    from 40 trees. Fewer bins say less. Thresholds, names of categories and cells stay
    with the owner of a column. For a prediction, owners answer on which side of each of
    their splits a row lies.

    With ``label_epsilon`` the active party first draws every label at random: it is
    told truly with probability ``exp(ε) / (exp(ε) + n_classes - 1)``, and is else one
    of the others (randomised response). All that passive parties see of labels follows
    from these: gradients, splits, and when training stops. So whatever they do, what
    they see is at most ``exp(ε)`` times as likely for one label of a row as for
    another. Leaves are then filled by the true labels, which stay with the active party
    as the leaves do. Sample weights, how many classes there are, which rows, and
    callbacks that stop training by true labels are not covered, every further ``fit``
    on the same rows spends ε again, and a ``random_state`` that others guess tells them
    which labels are true: leave it at None where it matters. Over
    :func:`~skvfl.connect` labels are drawn from the operating system, whatever it is.

    Weights of rows do not move bins, as the parties do not have them.

    References
    ----------
    .. [1] K. Cheng, T. Fan, Y. Jin, Y. Liu, T. Chen, D. Papadopoulos, Q. Yang,
       "SecureBoost: A Lossless Federated Learning Framework".

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from skvfl import VFLBoostingClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> trees = VFLBoostingClassifier(parties=3, max_iter=20).fit(X, y)
    >>> pooled = HistGradientBoostingClassifier(max_iter=20).fit(X, y)
    >>> bool((trees.predict(X) == pooled.predict(X)).all())
    True
    """

    _parameter_constraints = {
        **_BaseVFLBoosting._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        learning_rate=0.1,
        max_iter=100,
        max_leaf_nodes=31,
        max_depth=None,
        min_samples_leaf=20,
        l2_regularization=0.0,
        max_bins=255,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-7,
        warm_start=False,
        label_epsilon=None,
        class_weight=None,
        transport="local",
        random_state=None,
    ):
        super().__init__(
            parties=parties,
            active=active,
            missing_rows=missing_rows,
            learning_rate=learning_rate,
            max_iter=max_iter,
            max_leaf_nodes=max_leaf_nodes,
            max_depth=max_depth,
            min_samples_leaf=min_samples_leaf,
            l2_regularization=l2_regularization,
            max_bins=max_bins,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
            warm_start=warm_start,
            label_epsilon=label_epsilon,
            transport=transport,
            random_state=random_state,
        )
        self.class_weight = class_weight

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Grow trees over all parties' columns.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The active party's labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss, by which derivatives are multiplied.

        Returns
        -------
        self : VFLBoostingClassifier

        Raises
        ------
        ValueError
            If the parties and the columns do not match; the message names both.
        PartyError
            If a party fails; the message names it.
        """
        # Weights of classes are applied by the active party, to labels that it may
        # have drawn at random; here they are only looked at.
        self._read_classes(X, y, sample_weight, self.class_weight)
        labels = self._read_classes(X, y, sample_weight, None)
        class_weight = self.class_weight
        if isinstance(class_weight, dict):
            codes = np.arange(len(self.classes_))
            class_weight = weights_of_classes(class_weight, self.classes_, codes)
        return self._fit(X, y, labels, class_weight)

    def predict_proba(self, X):
        """Probabilities of classes, in the order of ``classes_``.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        return self._serve(X)


class VFLBoostingRegressor(VFLRegressorMixin, _BaseVFLBoosting):
    """Gradient-boosted trees of a target; see :class:`VFLBoostingClassifier`.

    They are those of :class:`~sklearn.ensemble.HistGradientBoostingRegressor` on pooled
    columns.

    Read more in the :ref:`User Guide <boosting>`.

    Parameters
    ----------
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`. A party that is
        prepared by default hands numbers and dates to the trees as they are, missing
        ones as missing, and text as categories.
    active : str or int, default=0
        Name or position of the active party, which holds the labels and the trees. It
        may hold no columns.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all: an error that names the party and counts them, or they are taken
        as rows whose values are missing. Later they are taken so, and a
        :class:`~skvfl.exceptions.MissingRowsWarning` counts them.
    loss : str, default="squared_error"
        ``"squared_error"``, ``"absolute_error"``, ``"quantile"``, ``"poisson"`` of
        targets that are not negative, or ``"gamma"`` of positive ones, as in
        scikit-learn.
    quantile : float or None, default=None
        Which quantile is predicted with ``loss="quantile"``, from 0 to 1.
    learning_rate : float, default=0.1
        What the values of leaves are multiplied by.
    max_iter : int, default=100
        Number of iterations. Each grows one tree.
    max_leaf_nodes : int or None, default=31
        Most leaves of a tree; None for no limit, so that all nodes of a level are split
        in the same two rounds.
    max_depth : int or None, default=None
        Most splits one above the other; None for no limit.
    min_samples_leaf : int, default=20
        Fewest rows of a leaf. Parties refuse to add up derivatives of fewer.
    l2_regularization : float, default=0.0
        Added to the sum of second derivatives in a leaf.
    max_bins : int, default=255
        Most bins of a column, not counting that of missing values.
    early_stopping : bool, default=False
        Whether to hold out rows, stop when their loss no longer improves, and go back
        to the trees that were best on them.
    validation_fraction : float, default=0.1
        Fraction of the rows held out.
    n_iter_no_change : int, default=10
        Iterations without improvement before stopping.
    tol : float, default=1e-7
        By how much a loss must be lower to be an improvement.
    warm_start : bool, default=False
        Whether ``fit`` goes on with the trees of the last fit, for ``max_iter`` more
        iterations; columns are cut into bins as they were. Not with a budget.
    label_epsilon : float or None, default=None
        Budget of the labels' differential privacy towards the other parties, see Notes.
        None shows them everything that derivatives say.
    target_range : tuple of float or None, default=None
        Lowest and highest target that may be, as anybody may know them, such as
        ``(0.0, 100.0)``. Needed with ``label_epsilon``: noise goes by its width.
        Positive with ``loss="poisson"`` and ``"gamma"``.
    transport : {"local", "process"} or Transport, default="local"
        How the parties are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of one random stream per party: held-out rows, wrong labels, and rows for
        quantiles of more than 200,000. ``None`` takes fresh entropy from the operating
        system. A known seed is a known secret.

    Attributes
    ----------
    loss_curve_ : list of float
        Mean training loss after every iteration.
    validation_loss_curve_ : list of float
        Loss of the held-out rows after every iteration; empty without early stopping.
        With ``label_epsilon`` it is that of the targets that are shown.
    n_iter_ : int
        Number of iterations.
    label_epsilon_ : float
        What was spent on the labels; only with a budget.
        Fits that failed or were interrupted, and left no model, have spent theirs as
        well: ``label_epsilon_lost_`` has the sum, where there were any.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    VFLBoostingClassifier : The same for classes.
    SplitNNRegressor : Networks in place of trees.

    Notes
    -----
    *Who sees what, in short.* Passive parties see every row's gradients, from which
    labels can be read, and which rows every node holds; the active party sees sums of
    gradients by bin, from which the bin of every cell can be computed.

    *Who learns what.* As in :class:`VFLBoostingClassifier`. The first gradients are the
    distances of all targets from their mean. With ``label_epsilon`` what is shown is
    computed from targets that are clipped to ``target_range`` and have Laplace noise of
    its width divided by ε added, once, before anything else; leaves are filled by the
    true targets.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvfl import VFLBoostingRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> trees = VFLBoostingRegressor(parties=2, max_iter=20).fit(X, y)
    >>> trees.score(X, y) > 0.5
    True
    """

    _parameter_constraints = {
        **_BaseVFLBoosting._parameter_constraints,
        "loss": [StrOptions(set(LOSSES))],
        "quantile": [Interval(Real, 0, 1, closed="both"), None],
        "target_range": ["array-like", None],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        loss="squared_error",
        quantile=None,
        learning_rate=0.1,
        max_iter=100,
        max_leaf_nodes=31,
        max_depth=None,
        min_samples_leaf=20,
        l2_regularization=0.0,
        max_bins=255,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-7,
        warm_start=False,
        label_epsilon=None,
        target_range=None,
        transport="local",
        random_state=None,
    ):
        super().__init__(
            parties=parties,
            active=active,
            missing_rows=missing_rows,
            learning_rate=learning_rate,
            max_iter=max_iter,
            max_leaf_nodes=max_leaf_nodes,
            max_depth=max_depth,
            min_samples_leaf=min_samples_leaf,
            l2_regularization=l2_regularization,
            max_bins=max_bins,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
            warm_start=warm_start,
            label_epsilon=label_epsilon,
            transport=transport,
            random_state=random_state,
        )
        self.loss = loss
        self.quantile = quantile
        self.target_range = target_range

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Grow trees over all parties' columns.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The active party's target.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss, by which derivatives are multiplied.

        Returns
        -------
        self : VFLBoostingRegressor

        Raises
        ------
        ValueError
            If the parties and the columns do not match; the message names both.
        PartyError
            If a party fails; the message names it.
        """
        _check_range(self.target_range, self.label_epsilon, self.loss)
        if (self.loss == "quantile") != (self.quantile is not None):
            raise ValueError(
                f"loss={self.loss!r} with quantile={self.quantile}: give quantile=, "
                'from 0 to 1, where loss="quantile", and only there'
            )
        labels = self._read_targets(X, y, sample_weight)
        _check_targets(labels.values, self.loss)
        return self._fit(X, y, labels)

    def predict(self, X):
        """Predict targets in their own units.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        y : ndarray of shape (n_samples,), dtype float64
        """
        return self._serve(X)[:, 0]


def _check_targets(values, loss):
    """Refuse targets of which a loss has no logarithm."""
    lowest, highest = values.min(initial=np.inf), values.max(initial=-np.inf)
    if loss == "gamma" and lowest <= 0:
        raise ValueError("loss='gamma' needs targets in y that are all positive")
    if loss == "poisson" and (lowest < 0 or highest <= 0):
        raise ValueError(
            "loss='poisson' needs targets in y that are not negative, and one that is "
            "positive"
        )


def _check_range(target_range, label_epsilon, loss):
    """Refuse a range that is none, or that noise needs and nobody gave."""
    if target_range is None:
        if label_epsilon is not None:
            raise ValueError(
                "label_epsilon needs target_range=(lowest, highest), the bounds of the "
                "target as anybody may know them: those of y would give it away"
            )
        return
    numbers = [each for each in target_range if isinstance(each, Real)]
    if len(target_range) != 2 or len(numbers) != 2 or not np.isfinite(numbers).all():
        raise ValueError("target_range is not a pair of finite numbers")
    if not numbers[0] < numbers[1]:
        raise ValueError("target_range: the first number is not below the second")
    if loss in POSITIVE and not numbers[0] > 0:
        raise ValueError(f"target_range: loss={loss!r} needs a lowest target above 0")
