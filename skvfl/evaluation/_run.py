"""Fitting and scoring what is compared, one fold at a time."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager, nullcontext

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.callback import with_callbacks
from sklearn.metrics import check_scoring
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from skvfl._sklearn import CallbackSupportMixin, _safe_indexing

COSTS = ("rounds", "messages", "bytes", "transfer_seconds")
# How soon an alarm that something swallowed rings again.
AGAIN = 0.5


class OutOfTimeError(BaseException):
    """The time limit is over.

    Not an ``Exception``: a search that goes on after candidates that fail would take
    it for a failed candidate.
    """


class Comparison(CallbackSupportMixin, BaseEstimator):
    """Cross-validates rows; an estimator so that scikit-learn's callbacks hear of it.

    Parameters
    ----------
    rows : dict of str to Contender
        What to fit.
    scoring : dict of str to scorer
        As in ``cross_validate``.
    network : tuple of (float, float)
        Bandwidth and latency.
    time_limit : float or None
        Seconds for each row.
    n_jobs : int or None
        Folds at a time.
    """

    def __init__(self, rows, scoring, network, time_limit=None, n_jobs=None):
        self.rows = rows
        self.scoring = scoring
        self.network = network
        self.time_limit = time_limit
        self.n_jobs = n_jobs

    @with_callbacks
    def fit(self, X, y, folds, sample_weight=None):
        """Fit and score every row on every fold.

        Parameters
        ----------
        X, y
            Table, and labels or target.
        folds : list of tuple of (ndarray, ndarray)
            Rows to train on and to test on.
        sample_weight : ndarray of shape (n_samples,), default=None
            For training and scoring.

        Returns
        -------
        self : Comparison
            With ``results_``: a list of what :func:`_fit_and_score` returns for every
            row, of all folds or of the one that failed.
        """
        context = self._init_callback_context("compare", max_subtasks=len(self.rows))
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        self.results_ = {}
        for name, row in self.rows.items():
            task = context.subcontext(
                name, max_subtasks=len(folds), sequential_subtasks=False
            )
            task.call_on_fit_task_begin(estimator=self)
            data = (X, y, sample_weight)
            self.results_[name] = self._cross_validate(row, data, folds, task)
            task.call_on_fit_task_end(estimator=self)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _cross_validate(self, row, data, folds, task):
        limit = self.time_limit
        deadline = None if limit is None else time.time() + limit
        jobs = (
            (self, row, data, fold, task.subcontext("fold", task_id=i), deadline)
            for i, fold in enumerate(folds)
        )
        # By itself a failed fold ends its row; those that run beside it have begun.
        if self.n_jobs in (None, 1):
            results = []
            for job in jobs:
                results.append(_fit_and_score(*job))
                if results[-1]["error"]:
                    break
        else:
            results = Parallel(n_jobs=self.n_jobs)(
                delayed(_fit_and_score)(*job) for job in jobs
            )
        failed = [each for each in results if each["error"]]
        return failed[:1] or results


def _fit_and_score(comparison, row, data, fold, context, deadline):
    """One fold: scores and costs, or the error.

    Returns
    -------
    result : dict
        ``error`` (empty where all went well), ``scores`` by name, ``fit_seconds``, the
        traffic and ``epsilon``.
    """
    X, y, weights = data
    train, test = fold
    try:
        with _alarm(deadline):
            model = clone(row.estimator)
            asked = () if weights is None else (weights[train],)
            start = time.perf_counter()
            with _heard(context, model, comparison):
                given = _fit_arguments(model, *asked)
                model.fit(_safe_indexing(X, train), y[train], **given)
            seconds = time.perf_counter() - start
            told = {} if weights is None else {"sample_weight": weights[test]}
            scorer = check_scoring(model, comparison.scoring)
            scores = scorer(model, _safe_indexing(X, test), y[test], **told)
        if deadline is not None and time.time() > deadline:
            raise OutOfTimeError
    except (Exception, OutOfTimeError) as exc:
        # Whoever was interrupted may have turned the alarm into an error of its own.
        if deadline is not None and time.time() >= deadline:
            limit = f"time_limit={comparison.time_limit:g} seconds"
            return {"error": f"stopped: it took longer than {limit}"}
        return {"error": f"{type(exc).__name__}: {exc}"}
    costs = _costs(row.shares, model, *comparison.network)
    return {"error": "", "scores": _flat(scores), "fit_seconds": seconds, **costs}


@contextmanager
def _heard(context, model, caller):
    """Let callbacks hear of one fold, and of what happens in the model's fit."""
    nested = hasattr(model, "set_callbacks")
    with context.propagate_callback_context(model) if nested else nullcontext():
        context.call_on_fit_task_begin(estimator=caller)
        try:
            yield
        finally:
            context.call_on_fit_task_end(estimator=caller)


@contextmanager
def _alarm(deadline):
    """Interrupt what runs at the deadline, where the system can.

    Elsewhere (on Windows, and in threads) a fold that takes too long runs to its end
    before its row is given up.
    """
    rings = hasattr(signal, "setitimer") and (
        threading.current_thread() is threading.main_thread()
    )
    if deadline is None or not rings:
        yield
        return

    def ring(*_):
        raise OutOfTimeError

    left = deadline - time.time()
    if left <= 0:
        raise OutOfTimeError
    before = signal.signal(signal.SIGALRM, ring)
    due, interval = signal.setitimer(signal.ITIMER_REAL, left, AGAIN)
    start = time.time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if due:  # somebody else's alarm was set
            signal.setitimer(
                signal.ITIMER_REAL, max(due - (time.time() - start), 1e-3), interval
            )


def _fit_arguments(model, weights=None):
    """Weights under the name by which this model takes them."""
    if weights is None:
        return {}
    prefix = ""
    while not get_config()["enable_metadata_routing"]:
        if isinstance(model, Pipeline):
            name, model = model.steps[-1]
            prefix += f"{name}__"
        elif hasattr(model, "param_grid") or hasattr(model, "param_distributions"):
            model = model.estimator
        else:
            break
    return {f"{prefix}sample_weight": weights}


def _flat(scores):
    """Scores by name, also of a scorer that gives several."""
    flat = {}
    for name, score in scores.items():
        flat |= score if isinstance(score, dict) else {name: score}
    return {name: float(score) for name, score in flat.items()}


def _costs(shares, model, bandwidth, latency):
    """What crossed in a fit, and ε."""
    if shares != "messages":
        # Nobody sends anything, or raw columns or labels that no protocol here moves.
        nothing = 0.0 if shares == "nothing" else np.nan
        return {**dict.fromkeys(COSTS, nothing), "epsilon": np.nan}
    fitted = _fitted_inside(model)
    if not fitted:
        return dict.fromkeys([*COSTS, "epsilon"], np.nan)
    logs = [each.communication_ for each in fitted]
    network = {"bandwidth": bandwidth, "latency": latency}
    # Budgets of several fits on the same rows add up, as the messages do.
    return {
        "rounds": sum(log.n_rounds for log in logs),
        "messages": sum(log.n_messages for log in logs),
        "bytes": sum(log.n_bytes for log in logs),
        "transfer_seconds": sum(log.transfer_time(**network) for log in logs),
        "epsilon": sum(
            float(getattr(each, "epsilon_spent_", np.nan)) for each in fitted
        ),
    }


def _fitted_inside(value):
    """Fitted federated estimators in a fitted search, pipeline or ensemble."""
    if hasattr(value, "communication_"):
        return [value]
    if isinstance(value, Pipeline):
        inside = [value.steps[-1][1]]
    elif isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    elif isinstance(value, BaseEstimator):
        inside = [each for name, each in vars(value).items() if name.endswith("_")]
    else:
        # CalibratedClassifierCV has its classifiers in objects that are no estimators.
        inside = [value.estimator] if hasattr(value, "estimator") else []
    found = [fitted for each in inside for fitted in _fitted_inside(each)]
    return list({id(each): each for each in found}.values())
