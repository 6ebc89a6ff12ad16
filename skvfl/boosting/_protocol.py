"""Histogram gradient boosting over parties: who is asked for what, and when."""

from __future__ import annotations

from functools import partial
from math import isfinite

import numpy as np

from skvfl.exceptions import PartyError, TrainingError
from skvfl.federation._replies import NUMBER, Array, Fields, Reply, Rows, all_finite


class Bits(Rows):
    """Bits of rows: a line of bytes for each split."""

    def __init__(self, n_splits, n_rows):
        super().__init__(n_splits, -(-n_rows // 8))

    def fault(self, reply):
        """What is wrong with a reply, see :class:`Reply`."""
        fault = super().fault(reply)
        if fault is None and reply.dtype != np.uint8:
            fault = "it sent numbers where bits were expected"
        return fault


class Told(Reply):
    """What a party says of so many columns, see :class:`Columns`."""

    def __init__(self, most_columns, max_bins):
        parts = ("n_bins", "has_missing", "categorical")
        self._fields = Fields(dict.fromkeys(parts, Array(8 * most_columns)))
        super().__init__(self._fields.n_bytes)
        self._most, self._max_bins = most_columns, max_bins

    def fault(self, reply):
        """What is wrong with a reply, see :class:`Reply`."""
        fault = self._fields.fault(reply)
        if fault is not None:
            return fault
        n_bins = reply["n_bins"]
        n_columns = len(n_bins) if n_bins.ndim == 1 else 0
        if not 0 < n_columns <= self._most:
            return f"it does not speak of 1 to {self._most} columns"
        if n_bins.dtype.kind not in "iu" or not (
            1 <= n_bins.min() <= n_bins.max() <= self._max_bins
        ):
            return f"it says that a column has not 1 to {self._max_bins} bins"
        for part in ("has_missing", "categorical"):
            if reply[part].dtype != bool or reply[part].shape != (n_columns,):
                return f"{part!r} in its reply is not true or false for each column"
        return None


def boost(estimator, session, active, n_rows, class_weight, course):
    """Grow trees until there are enough, or held-out rows say so.

    Parameters
    ----------
    estimator : VFLEstimator
        With the parameters, and the parties with columns.
    session : Session
        Of parties that have just been made.
    active : str
        The party with the labels.
    n_rows : int
        Number of rows.
    class_weight : ndarray, "balanced" or None
        Weights of the classes.
    course : Course
        Of the iterations.
    """
    widths = _begin(estimator, session, active, class_weight)
    for _ in range(estimator.max_iter):
        task = course.begin("iteration", may_end=True)
        _grow(session, active, widths, n_rows, estimator._n_splits)
        losses = session.ask(active, "end_iteration", reply=_LOSSES)
        estimator.loss_curve_.append(losses["loss"])
        if "validation" in losses:
            estimator.validation_loss_curve_.append(losses["validation"])
        if not all(map(isfinite, losses.values())):
            raise TrainingError(
                f"the loss is not finite after {len(estimator.loss_curve_)} "
                "iterations: lower the learning rate, or express the target in "
                "another unit"
            )
        stop = course.end(task, partial(estimator._so_far, session))
        if stop or _stops(estimator):
            break
    _keep_best(estimator, session, active)


_LOSSES = Fields({"loss": NUMBER}, {"validation": NUMBER})


def _begin(estimator, session, active, class_weight):
    """Let everybody cut columns into bins; how many bins each party has."""
    session.begin_round()
    holders = estimator._holders
    estimator._n_splits = dict.fromkeys(holders, 0)
    told = {
        name: Told(count.high, estimator.max_bins)
        for name, count in estimator._any_widths.items()
    }
    learnt_from = session.ask(active, "hold_out", class_weight=class_weight)
    columns = session.call("prepare", to=holders, reply=told, **learnt_from)
    session.tell("start", to=[active], columns=columns)
    return {name: _n_cells(each) for name, each in columns.items()}


def _keep_best(estimator, session, active):
    """Keep the trees that are worth it, and the splits that they have."""
    # The trees that were best on held-out rows, where some were held out.
    n_kept = len(estimator.loss_curve_)
    if estimator.early_stopping:
        n_kept = 1 + int(np.argmin(estimator.validation_loss_curve_))
    n_splits = session.ask(active, "keep", n_iter=n_kept)
    each = {name: {"n_splits": n} for name, n in n_splits.items()}
    session.tell("finish", to=estimator._holders, each=each)
    estimator._n_splits = n_splits


def _n_cells(columns):
    return int(columns["n_bins"].sum() + columns["has_missing"].sum())


def _stops(estimator):
    """Whether the last held-out losses are no better than the one before them."""
    losses, n_iter = estimator.validation_loss_curve_, estimator.n_iter_no_change
    if len(losses) <= n_iter:
        return False
    least = losses[-n_iter - 1] - estimator.tol
    return not any(loss < least for loss in losses[-n_iter:])


def _grow(session, active, widths, n_rows, n_splits):
    """The trees of one iteration, one for each output of the model.

    They grow side by side: two rounds split a node of each of them, or all nodes of a
    level where the number of leaves is not limited.
    """
    slopes = session.ask(active, "begin_iteration")
    if slopes is None:
        return
    n_parts = 2 if slopes["hessians"] is None else 3
    n_nodes = len(slopes["gradients"])
    session.begin_round()
    sums = _add_up(session, "begin_trees", n_nodes, n_parts, widths, slopes)
    while True:
        found = session.ask(active, "find", sums=sums)
        if "fault" in found:
            raise PartyError(
                found["fault"],
                "its sums are not those of the rows that it was asked about: each "
                "column's bins together must come to the whole node",
            )
        splits = found["splits"]
        if not splits:
            return
        # What the active party splits itself is no round of communication.
        if splits.keys() != {active}:
            session.begin_round()
        expected = {n: Bits(len(each["splits"]), n_rows) for n, each in splits.items()}
        sides = session.call("split", to=[*splits], each=splits, reply=expected)
        for name, each in splits.items():
            n_splits[name] += len(each["splits"])
        nodes = session.ask(active, "divide", sides=sides)
        if "fault" in nodes:
            raise PartyError(
                nodes["fault"],
                "the rows that go left at its split are not those it added up",
            )
        n_nodes, sums = len(nodes["trees"]), {}
        if n_nodes:
            session.begin_round()
            sums = _add_up(session, "add_up", n_nodes, n_parts, widths, nodes)


def _add_up(session, operation, n_nodes, n_parts, widths, said):
    """Everybody's sums of some nodes."""
    expected = {name: Rows(n_nodes, n_parts * width) for name, width in widths.items()}
    sums = session.call(operation, to=[*widths], reply=expected, **said)
    for name, each in sums.items():
        if each.dtype.kind != "f" or not all_finite(each):
            raise PartyError(name, "it sent sums that are not finite numbers")
    return sums
