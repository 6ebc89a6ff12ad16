"""Federated methods beside what could be done without them."""

from __future__ import annotations

import importlib
from numbers import Integral, Real

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import check_cv, cross_validate
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvfl._base import VFLEstimator, read_truth
from skvfl._sklearn import HasMethods, Interval, _num_samples, validate_params
from skvfl.federation import Federation
from skvfl.partition._partitioner import (
    VerticalPartitioner,
    as_partition,
    party_name,
)

CENTRALISED = "centralised"
AXES = {
    "bytes": "bytes sent by one fit",
    "messages": "messages of one fit",
    "rounds": "communication rounds of one fit",
    "transfer_seconds": "estimated seconds to transfer",
    "fit_seconds": "seconds to fit, without transfer",
    "epsilon": "ε spent",
}
LINE_STYLES = {"raw columns": "-", "nothing": "--", "raw labels": ":"}


@validate_params(
    {
        "estimators": [dict, HasMethods(["fit", "predict"])],
        "parties": VFLEstimator._parameter_constraints["parties"],
        "active": VFLEstimator._parameter_constraints["active"],
        "baseline": [HasMethods(["fit", "predict"]), None],
        "cv": ["cv_object"],
        "scoring": [str, callable, None],
        "bandwidth": [Interval(Real, 0, None, closed="neither")],
        "latency": [Interval(Real, 0, None, closed="left")],
        "random_state": [Interval(Integral, 0, 2**32 - 1, closed="both"), None],
        "n_jobs": [Integral, None],
    },
    prefer_skip_nested_validation=False,
)
def compare(
    estimators,
    X,
    y,
    *,
    parties=2,
    active=0,
    baseline=None,
    cv=5,
    scoring=None,
    bandwidth=100e6,
    latency=0.02,
    random_state=None,
    n_jobs=None,
):
    """Compare federated estimators with pooling the columns and with each party alone.

    Everything is cross-validated on the same rows and the same split of the columns.

    Parameters
    ----------
    estimators : estimator or dict of str to estimator
        The federated estimators, by the name of their row; a single one goes by the
        name of its class. Clones are fitted, with `parties` and `active` set.
    X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
        The table of which every party holds some columns.
    y : array-like of shape (n_samples,)
        The label owner's labels or target.
    parties : int, splitter, dict, list of tuple, VerticalPartitioner or Federation, \
            default=2
        Who holds which columns, see :class:`VerticalPartitioner`. A splitter deals
        them once, from the whole table. With organisations in places of their own,
        see :func:`connect`, `X` is the active party's table.
    active : str or int, default=0
        Name or position of the label owner.
    baseline : estimator, default=None
        The model that a party, or all of them together, would train without
        federation. By default the paper's perceptron with one hidden layer of 128
        units, for regression with a standardised target. Give the model that the
        estimators train where that is another one.
    cv : int, cross-validation generator or iterable, default=5
        The folds, as in scikit-learn. ``ShuffleSplit(1, test_size=0.3)`` fits
        everything once, which suits large tables.
    scoring : str or callable, default=None
        A scikit-learn scorer; by default every estimator's own ``score``.
    bandwidth : float, default=100e6
        Bits per second of the network of ``transfer_seconds``.
    latency : float, default=0.02
        Seconds from sender to receiver, one way, on that network.
    random_state : int or None, default=None
        Replaces every ``random_state`` that is None in the estimators, in the baseline
        and in the parties' transformers.
    n_jobs : int, default=None
        Number of folds that are fitted at the same time, as in joblib.

    Returns
    -------
    frame : pandas.DataFrame
        One row per way to learn: ``"centralised"``, ``"<party> alone"`` for every party
        with columns, and the estimators. Between organisations only the active party
        alone, and the estimators: nobody can pool the columns or give labels away to
        find out what that would be worth. Columns:

        - ``shares``: what its owner gives away in the clear: ``"raw columns"`` when
          they are pooled, ``"nothing"`` when the label owner learns alone,
          ``"raw labels"`` when another party does, and nothing but the protocol's
          ``"messages"`` for an estimator;
        - ``score``, ``score_std``: mean and standard deviation over the folds;
        - ``fit_seconds``: measured on this machine, without transfer;
        - ``rounds``, ``messages``, ``bytes``: of one ``fit``, from ``communication_``;
        - ``transfer_seconds``: from :meth:`CommunicationLog.transfer_time`;
        - ``epsilon``: the largest ``epsilon_spent_`` of the folds, NaN where a method
          has none.

        Numbers are means over the folds where nothing else is said. The traffic is 0
        where nothing is shared, and NaN where raw columns or labels would have to be
        moved, which no protocol here does.

    Raises
    ------
    ImportError
        If pandas is not installed.
    ValueError
        If an estimator has no parties, if a name is taken, or if classifiers and
        regressors are mixed.

    See Also
    --------
    ComparisonDisplay : Draw the result.

    Notes
    -----
    "Centralised" is what federation is measured against, and the label owner alone what
    it has to beat; another party alone would have to be given the labels. All rows
    prepare the columns alike: each party with its own transformer,
    fitted on its own columns of the training rows.

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
    >>> frame[["shares", "score", "rounds"]].round(2)
                           shares  score  rounds
    centralised       raw columns   0.98     NaN
    clinic alone          nothing   0.89     0.0
    laboratory alone   raw labels   0.98     NaN
    RAP                  messages   0.98     1.0
    """
    pandas = _import("pandas", "compare", "frames")
    methods = estimators
    if not isinstance(estimators, dict):
        methods = {type(estimators).__name__: estimators}
    model = _check_models(methods, baseline)
    apart = isinstance(parties, Federation)
    _refuse_simulation(methods, apart)
    partition, owner, X = _deal_once(parties, active, X, y, random_state)
    rows = _without_federation(partition, owner, model)
    if apart:
        del rows[CENTRALISED]  # of one party's columns: what it is alone
    taken = [name for name in methods if name in rows]
    if taken:
        raise ValueError(f"estimators cannot be named {taken}: compare adds such rows")
    for name, method in methods.items():
        where = parties if apart else partition
        method = clone(method).set_params(parties=where, active=owner)
        rows[name] = "messages", method

    y, _ = read_truth(y, None, _num_samples(X), classifies=is_classifier(model))
    splitter = check_cv(cv, y, classifier=is_classifier(model))
    folds = list(splitter.split(X, y))
    records = {}
    for name, (shares, estimator) in rows.items():
        results = cross_validate(
            _seed(estimator, random_state),
            X,
            y,
            cv=folds,
            scoring=scoring,
            n_jobs=n_jobs,
            return_estimator=True,
            error_score="raise",
        )
        records[name] = {
            "shares": shares,
            "score": results["test_score"].mean(),
            "score_std": results["test_score"].std(),
            "fit_seconds": results["fit_time"].mean(),
            **_traffic(shares, results["estimator"], bandwidth, latency),
        }
    return pandas.DataFrame.from_dict(records, orient="index")


class ComparisonDisplay:
    """Score against cost, from the result of :func:`compare`.

    Parameters
    ----------
    frame : pandas.DataFrame
        What :func:`compare` returned.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where :meth:`plot` drew.
    figure_ : matplotlib Figure
        The figure of ``ax_``.

    See Also
    --------
    compare : The table itself.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import ComparisonDisplay, RandomProjectionVFL
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LogisticRegression()
    >>> display = ComparisonDisplay.from_estimators(
    ...     {"RAP": RandomProjectionVFL(model)}, X, y, baseline=model, random_state=0
    ... )
    >>> display.ax_.get_xlabel()
    'bytes sent by one fit'
    """

    def __init__(self, frame):
        self.frame = frame

    @classmethod
    def from_estimators(cls, estimators, X, y, *, x="bytes", ax=None, **options):
        """Compare and draw in one go.

        Parameters
        ----------
        estimators, X, y
            As for :func:`compare`.
        x : str, default="bytes"
            As for :meth:`plot`.
        ax : matplotlib Axes, default=None
            As for :meth:`plot`.
        **options
            The other parameters of :func:`compare`.

        Returns
        -------
        display : ComparisonDisplay
        """
        return cls(compare(estimators, X, y, **options)).plot(x, ax=ax)

    def plot(self, x="bytes", *, ax=None):
        """Draw estimators as points, and what is possible without them as lines.

        Parameters
        ----------
        x : str, default="bytes"
            The cost: ``"bytes"``, ``"messages"``, ``"rounds"``, ``"transfer_seconds"``,
            ``"fit_seconds"`` or ``"epsilon"``.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Returns
        -------
        display : ComparisonDisplay

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If `x` is not one of the costs.
        """
        if x not in AXES:
            raise ValueError(f"x={x!r} is not one of {list(AXES)}")
        plt = _import("matplotlib.pyplot", "ComparisonDisplay.plot", "plot")
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        lines = self.frame[self.frame["shares"] != "messages"]
        points = self.frame.drop(lines.index)
        for i, (name, row) in enumerate(lines.iterrows()):
            style = LINE_STYLES[row["shares"]]
            ax.axhline(row["score"], label=name, color=f"C{i}", linestyle=style)
        for i, (name, row) in enumerate(points.iterrows(), start=len(lines)):
            ax.errorbar(
                row[x],
                row["score"],
                yerr=row["score_std"],
                label=name,
                color=f"C{i}",
                fmt="o",
                capsize=4,
            )
        ax.set(xscale="log", xlabel=AXES[x], ylabel="score")
        low, high = points[x].min(), points[x].max()
        if low > 0 and high < np.inf:
            ax.set_xlim(low / 10, high * 10)
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
        self.ax_ = ax
        self.figure_ = ax.figure
        return self


def _import(module, caller, extra):
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        package = module.partition(".")[0]
        raise ImportError(
            f"{caller} needs {package}: pip install 'skvfl[{extra}]'"
        ) from exc


def _check_models(methods, baseline):
    """The baseline's model; an error where the models do not go together."""
    if not methods:
        raise ValueError("estimators is empty: name at least one")
    for name, method in [*methods.items(), ("baseline", baseline)]:
        if isinstance(method, type):
            raise ValueError(
                f"{name!r} is the class {method.__name__}: give an instance, such as "
                f"{method.__name__}()"
            )
    for name, method in methods.items():
        if "parties" not in method.get_params(deep=False):
            raise ValueError(
                f"{name!r} ({type(method).__name__}) has no parameter 'parties', so it "
                "is no federated estimator; pass another model as baseline"
            )
    kinds = {name: is_classifier(method) for name, method in methods.items()}
    if baseline is None:
        baseline = _default_baseline(next(iter(kinds.values())))
    kinds["the baseline"] = is_classifier(baseline)
    if len(set(kinds.values())) > 1:
        classifiers = [name for name, kind in kinds.items() if kind]
        others = [name for name, kind in kinds.items() if not kind]
        raise ValueError(
            "classifiers and regressors cannot be compared on one target: "
            f"{classifiers} classify and {others} do not"
        )
    return baseline


def _refuse_simulation(methods, apart):
    """Nobody should read scores of a simulation as those of the partners."""
    for name, method in methods.items():
        if isinstance(method.get_params(deep=False)["parties"], Federation) > apart:
            raise ValueError(
                f"{name!r} has parties in places of their own, and compare was asked "
                "to simulate some: pass the same object as compare(..., parties=link)"
            )


def _default_baseline(classifies):
    if classifies:
        return MLPClassifier(hidden_layer_sizes=(128,))
    return TransformedTargetRegressor(
        MLPRegressor(hidden_layer_sizes=(128,)), transformer=StandardScaler()
    )


def _deal_once(parties, active, X, y, random_state):
    """Fix who holds which columns, so that all rows and folds have the same parties."""
    if isinstance(parties, Federation):
        active = party_name(parties.names, active)
        own = {active: parties.own_columns(X)}
        parties = VerticalPartitioner(parties=own, remainder="drop")
    partition = _seed(as_partition(parties), random_state)
    X = partition._fit_columns(X, y, label_owner=active)
    held = partition.parties_
    if isinstance(partition.parties, list):
        parties = [(name, each, held[name]) for name, each, _ in partition.parties]
    else:
        parties = held
    fixed = clone(partition).set_params(parties=parties)
    return fixed, party_name(held, active), X


def _without_federation(partition, owner, model):
    """Rows that need no protocol: what they share, and an estimator."""
    if isinstance(partition.parties, list):
        each = {entry[0]: [entry] for entry in partition.parties if entry[2].size}
        pooled = [entry for [entry] in each.values()]
    else:
        pooled = {name: held for name, held in partition.parties.items() if held.size}
        each = {name: {name: held} for name, held in pooled.items()}

    def learn_from(parties):
        part = clone(partition).set_params(parties=parties, remainder="drop")
        return make_pipeline(part, clone(model))

    rows = {CENTRALISED: ("raw columns", learn_from(pooled))}
    for name, parties in each.items():
        shares = "nothing" if name == owner else "raw labels"
        rows[f"{name} alone"] = shares, learn_from(parties)
    return rows


def _seed(estimator, random_state):
    """Set every ``random_state`` inside ``estimator`` that is None."""
    params = estimator.get_params(deep=True)
    missing = [
        key
        for key, value in params.items()
        if key.rpartition("__")[2] == "random_state" and value is None
    ]
    return estimator.set_params(**dict.fromkeys(missing, random_state))


def _traffic(shares, fitted, bandwidth, latency):
    """Means over the folds of what crossed, and the largest ε."""
    if shares != "messages":
        nothing = 0.0 if shares == "nothing" else np.nan
        names = ("rounds", "messages", "bytes", "transfer_seconds")
        return {**dict.fromkeys(names, nothing), "epsilon": np.nan}
    logs = [estimator.communication_ for estimator in fitted]
    times = [log.transfer_time(bandwidth=bandwidth, latency=latency) for log in logs]
    return {
        "rounds": np.mean([log.n_rounds for log in logs]),
        "messages": np.mean([log.n_messages for log in logs]),
        "bytes": np.mean([log.n_bytes for log in logs]),
        "transfer_seconds": np.mean(times),
        "epsilon": max(
            float(getattr(each, "epsilon_spent_", np.nan)) for each in fitted
        ),
    }
