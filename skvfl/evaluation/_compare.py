"""One table of federated methods, pooled columns, and each party alone."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import check_cv

from skvfl._base import VFLEstimator, read_truth
from skvfl._sklearn import (
    HasMethods,
    Interval,
    StrOptions,
    _num_samples,
    _safe_indexing,
    validate_params,
)
from skvfl._targets import read_weights
from skvfl._warnings import warn
from skvfl.evaluation._contenders import contenders, read_baselines, read_methods
from skvfl.evaluation._gain import INTERVAL
from skvfl.evaluation._import import optional
from skvfl.evaluation._leaks import worst_leaks
from skvfl.evaluation._parties import agree
from skvfl.evaluation._run import Comparison
from skvfl.evaluation._table import COLUMNS, tabulate

# Bits per second, and seconds from sender to receiver.
NETWORKS = {
    "data centre": (10e9, 0.0001),
    "office": (1e9, 0.001),
    "internet": (100e6, 0.02),
}


@validate_params(
    {
        "methods": [str, dict, list, HasMethods(["fit", "predict"])],
        "parties": [*VFLEstimator._parameter_constraints["parties"], None],
        "active": [*VFLEstimator._parameter_constraints["active"], None],
        "baseline": [HasMethods(["fit", "predict"]), dict, None],
        "cv": ["cv_object"],
        "groups": ["array-like", None],
        "sample_weight": ["array-like", None],
        "scoring": [str, callable, list, tuple, dict, None],
        "network": [StrOptions(set(NETWORKS))],
        "bandwidth": [Interval(Real, 0, None, closed="neither"), None],
        "latency": [Interval(Real, 0, None, closed="left"), None],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
        "random_state": [Interval(Integral, 0, 2**32 - 1, closed="both"), None],
        "n_jobs": [Integral, None],
        "leakage": ["boolean"],
    },
    prefer_skip_nested_validation=False,
)
def compare(
    methods,
    X,
    y,
    *,
    parties=None,
    active=None,
    baseline=None,
    cv=5,
    groups=None,
    sample_weight=None,
    scoring=None,
    network="internet",
    bandwidth=None,
    latency=None,
    time_limit=None,
    callbacks=None,
    random_state=None,
    n_jobs=None,
    leakage=False,
):
    """Compare federated methods with pooling the columns and with each party alone.

    Everything is cross-validated on the same rows and the same split of the columns.
    What counts is ``gain``: the difference to what the active party reaches alone.

    Read more in the :ref:`User Guide <comparison>`.

    Parameters
    ----------
    methods : "all", estimator or dict of str to estimator
        The federated estimators, by the name of their row; a single one goes by the
        name of its class. Searches, pipelines and other meta-estimators around them
        will do. ``"all"`` is one of every method, as
        :func:`skvfl.evaluation.all_methods` gives them; ``"classifiers"`` or
        ``"regressors"`` says which, where `y` does not.
    X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
        The table of which every party holds some columns; the active party's where
        `parties` is a :class:`~skvfl.federation.Federation`.
    y : array-like of shape (n_samples,)
        The label owner's labels or target.
    parties : int, splitter, dict, list of tuple, VerticalPartitioner or Federation, \
            default=None
        Who holds which columns, see :class:`VerticalPartitioner`. A splitter deals
        them once, from the whole table. By default what the estimators say; they must
        agree, with each other and with what is given here. Two parties where nobody
        says anything.
    active : str or int, default=None
        Name or position of the label owner; by default what the estimators say.
    baseline : estimator or dict of str to estimator, default=None
        What a party, or all of them together, would train without federation. By
        default two models, ``"linear"`` (``LogisticRegression`` or ``Ridge``) and
        ``"trees"`` (``HistGradientBoostingClassifier`` or ``…Regressor``, with a small
        penalty). Where the server of a method trains an estimator, such as RAP's, that
        is a baseline, too.
    cv : int, cross-validation generator or iterable, default=5
        The folds, as in scikit-learn. ``ShuffleSplit(1, test_size=0.3)`` fits
        everything once, which suits large tables and says nothing about noise.
    groups : array-like of shape (n_samples,), default=None
        Groups of rows, for `cv` such as ``GroupKFold``.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows, in training and in the score.
    scoring : str, callable, list or dict, default=None
        One scorer or several, as in ``cross_validate``; accuracy or R² by default.
        ``score`` and ``gain`` are the first one's.
    network : {"internet", "office", "data centre"}, default="internet"
        Where ``transfer_seconds`` are spent: 100 Mbit/s and 20 ms one way, 1 Gbit/s
        and 1 ms, or 10 Gbit/s and 0.1 ms.
    bandwidth : float, default=None
        Bits per second, instead of the network's.
    latency : float, default=None
        Seconds from sender to receiver, one way, instead of the network's.
    time_limit : float, default=None
        Seconds for each row, all its folds together. One that takes longer is stopped,
        and its ``error`` says so. On Windows and outside the main thread it is stopped
        when the fit that it is in has ended.
    callbacks : callback or list of callback, default=None
        Of ``sklearn.callback``, such as ``ProgressBar()``: they hear of every row, of
        every fold, and of what happens inside.
    random_state : int or None, default=None
        Replaces every ``random_state`` that is None in the estimators, in the baselines
        and in the parties' transformers.
    n_jobs : int, default=None
        Number of folds that are fitted at the same time, as in joblib.
    leakage : bool, default=False
        Whether to attack every method, too: it is fitted once more, on the training
        rows of the first fold, and the most successful attack of a
        :func:`~skvfl.privacy.privacy_report` is in the frame.

    Returns
    -------
    frame : pandas.DataFrame
        One row per way to learn: ``"centralised"`` and ``"<party> alone"`` for every
        party with columns (with the baseline's name behind a comma where there are
        several), then the methods. Columns:

        - ``model``: the class that learns;
        - ``shares``: what its owner gives away in the clear: ``"raw columns"`` when
          they are pooled, ``"nothing"`` when the label owner learns alone,
          ``"raw labels"`` when another party does, and nothing but the protocol's
          ``"messages"`` for a method;
        - ``score``, ``score_std``: mean and standard deviation over the folds;
        - ``gain``, ``gain_low``, ``gain_high``: mean difference, fold by fold, to the
          active party alone with its best baseline, and its 95 % interval (the
          corrected resampled t interval, see Notes);
        - ``verdict``: what the interval says, in words;
        - ``rounds``, ``messages``, ``bytes``: of one ``fit``, from ``communication_``;
          of a search, those of its last fit;
        - ``fit_seconds``: measured on this machine, without transfer;
        - ``transfer_seconds``: from :meth:`CommunicationLog.transfer_time`;
        - ``epsilon``: the largest ``epsilon_spent_`` of the folds, NaN where a method
          has none;
        - ``worst_leakage``, ``worst_attack``: with ``leakage=True`` the score of the
          most successful attack, from 0 (no better than guessing) to 1 (exact), and
          what it does, in a sentence; NaN where no messages are sent;
        - ``who_sees_what``: in a sentence;
        - ``error``: why there is no score; empty where there is one.

        Several scorers have columns of their own: ``<name>``, ``<name>_std``,
        ``<name>_gain``, ``<name>_gain_low`` and ``<name>_gain_high``.
        Numbers are means over the folds where nothing else is said. The traffic is 0
        where nothing is shared, and NaN where raw columns or labels would have to be
        moved, which no protocol here does. ``frame.attrs`` has ``reference`` (the row
        that gains are measured from), ``interval``, ``network`` and ``notes``.

    Raises
    ------
    ImportError
        If pandas is not installed.
    ValueError
        If an estimator has no parties, or others than `parties`, if a name is taken, or
        if classifiers and regressors are mixed. What a fit raises is in ``error``.

    See Also
    --------
    ComparisonDisplay : Draw the result.
    skvfl.evaluation.all_methods : What ``"all"`` stands for.
    skvfl.privacy.privacy_report : All attacks on one method.

    Notes
    -----
    "Centralised" is what federation is measured against, and the label owner alone what
    it has to beat; another party alone would have to be given the labels. All rows
    prepare the columns alike: each party with its own transformer,
    fitted on its own columns of the training rows. Where members are elsewhere, as in a
    :class:`~skvfl.federation.Federation`, nobody can pool their columns, and there is
    no such row.

    Folds share training rows, so the usual t interval would be much too narrow.
    Nadeau and Bengio's corrected one [1]_ adds the ratio of tested to trained rows to
    the factor 1 / (number of folds) of the variance. It says how a difference varies
    with the rows, not whether the better baseline was chosen by luck: the reference is
    the one that scored best.

    References
    ----------
    .. [1] C. Nadeau, Y. Bengio, "Inference for the Generalization Error", Machine
       Learning 52, 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL, compare
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LogisticRegression()
    >>> frame = compare(
    ...     {"RAP": RandomProjectionVFL(model)},
    ...     X,
    ...     y,
    ...     parties={"clinic": [0, 1], "laboratory": slice(2, None)},
    ...     baseline=model,
    ...     random_state=1,
    ... )
    >>> frame[["shares", "score", "gain", "rounds"]].round(2)
                           shares  score  gain  rounds
    centralised       raw columns   0.98  0.09     NaN
    clinic alone          nothing   0.89  0.00     0.0
    laboratory alone   raw labels   0.98  0.09     NaN
    RAP                  messages   0.98  0.09     1.0
    >>> frame.loc["RAP", "verdict"]
    'better than clinic alone'
    """
    pandas = optional("pandas", "compare", "frames")
    methods = read_methods(methods, y)
    baselines = read_baselines(baseline, methods)
    classifies = is_classifier(next(iter(methods.values())))

    def seed(estimator):
        return _seed(estimator, random_state)

    # All rows must share the columns out alike, or a difference between methods would
    # be one between splits.
    agreed, X = agree(methods, parties, active, X, y, seed)
    if leakage and agreed.elsewhere:
        raise ValueError(
            f"leakage=True needs all tables, and those of {agreed.elsewhere} are "
            "elsewhere: compare in a simulation with columns like theirs"
        )
    # Before anything is fitted, so that a mistake costs no hours.
    rows = contenders(methods, baselines, agreed, seed)
    n_rows = _num_samples(X)
    y, _ = read_truth(y, None, n_rows, classifies=classifies)
    if sample_weight is not None:
        sample_weight = read_weights(sample_weight, n_rows)
    scorers = _read_scoring(scoring, methods, sample_weight is not None)
    splits = check_cv(cv, y, classifier=classifies).split(X, y, groups)
    # Drawn once: gains are differences fold by fold, and a generator can be used once.
    folds = [(np.asarray(train), np.asarray(test)) for train, test in splits]
    link = _read_network(network, bandwidth, latency)

    comparison = Comparison(rows, scorers, link[1:], time_limit, n_jobs)
    if callbacks is not None:
        several = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
        comparison.set_callbacks(*several)
    comparison.fit(X, y, folds, sample_weight)
    notes = _notes(agreed)
    leaks = None
    if leakage:
        # One fold is enough for a worst number: attacks cost as much as fits.
        train = folds[0][0]
        leaks = worst_leaks(
            rows, comparison.results_, _safe_indexing(X, train), y[train], random_state
        )
    records, reference = tabulate(rows, comparison.results_, folds, leaks)
    frame = pandas.DataFrame.from_dict(records, orient="index")
    # What holds for all rows, where pandas keeps it through copies and slices.
    frame.attrs = {
        "reference": reference,
        "interval": INTERVAL,
        "network": link[0],
        "notes": notes,
    }
    return frame


def _seed(estimator, random_state):
    """Set every ``random_state`` inside ``estimator`` that is None."""
    # Seeds that somebody has chosen stay: they may be part of what is compared.
    params = estimator.get_params(deep=True)
    missing = [
        key
        for key, value in params.items()
        if key.rpartition("__")[2] == "random_state" and value is None
    ]
    return estimator.set_params(**dict.fromkeys(missing, random_state))


def _read_scoring(scoring, methods, weighted):
    """Scorers by name, the first of which decides.

    Without a scorer all rows get the same one: a search's own ``score`` is by whatever
    it searched for.
    """
    some = next(iter(methods.values()))
    if scoring is None:
        scoring = "accuracy" if is_classifier(some) else "r2"
    if not isinstance(scoring, list | tuple | dict):
        scoring = {"score": scoring}
    elif not isinstance(scoring, dict):
        unnamed = [each for each in scoring if not isinstance(each, str)]
        if unnamed:
            raise ValueError(
                f"scoring is a list that holds {unnamed[0]!r}: a list holds names of "
                "scorers; give a dict of names to callables"
            )
        scoring = {name: name for name in scoring}
    taken = [name for name in scoring if name in COLUMNS]
    if taken and [*scoring] != ["score"]:
        raise ValueError(f"scorers cannot be named {taken}: such columns exist already")
    if not scoring:
        raise ValueError("scoring is empty: name at least one scorer, or leave it out")
    scorers = {
        name: get_scorer(each) if isinstance(each, str) else check_scoring(some, each)
        for name, each in scoring.items()
    }
    for name, scorer in scorers.items():
        takes = getattr(scorer, "_accept_sample_weight", lambda: False)
        if weighted and not takes():
            raise ValueError(
                f"the scorer {name!r} takes no sample_weight, so that its score would "
                "count all rows alike: make one with sklearn.metrics.make_scorer, of a "
                "metric that takes it"
            )
    return scorers


def _read_network(network, bandwidth, latency):
    """Description, bandwidth and latency."""
    usual = NETWORKS[network]
    rate = usual[0] if bandwidth is None else bandwidth
    delay = usual[1] if latency is None else latency
    # Numbers that were changed no longer go by the network's name.
    name = network if (rate, delay) == usual else "network"
    return f"{name} of {rate / 1e6:g} Mbit/s and {1e3 * delay:g} ms", rate, delay


def _notes(parties):
    """What a reader should know of this comparison; also said as a warning."""
    if not parties.elsewhere:
        return []
    names = ", ".join(map(repr, parties.elsewhere))
    note = (
        f"no row 'centralised', nor any of {names} alone: their columns are elsewhere, "
        "and nobody here can pool them"
    )
    warn(note, UserWarning)
    return [note]
