"""Histogram gradient boosting over parties: who is asked for what, and when."""

from __future__ import annotations

from functools import partial
from math import isfinite
from typing import NamedTuple

import numpy as np

from skvfl.exceptions import PartyError, TrainingError
from skvfl.federation._replies import (
    NUMBER,
    Array,
    Count,
    Fields,
    Maybe,
    Reply,
    Rows,
    all_finite,
)
from skvfl.nn._steps import n_held_out


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


class Positions(Reply):
    """Positions of some of so many rows, of each at most ``n_times``."""

    def __init__(self, n_rows, n_times=1):
        super().__init__(4 * n_rows * n_times)
        self._n_rows = n_rows

    def fault(self, reply):
        """What is wrong with a reply, see :class:`Reply`."""
        if not isinstance(reply, np.ndarray) or reply.dtype != np.uint32:
            return "its reply is not positions of rows"
        if reply.ndim != 1 or (reply >= self._n_rows).any():
            return f"its reply is not positions of {self._n_rows} rows"
        return None


class Whole(Reply):
    """A list of whole numbers up to one."""

    def __init__(self, most):
        super().__init__(0)
        self._most = Count(0, most)

    def fault(self, reply):
        """What is wrong with a reply, see :class:`Reply`."""
        if not isinstance(reply, list):
            return "it is not a list of whole numbers"
        return next(filter(None, map(self._most.fault, reply)), None)


class Asked(Reply):
    """What the owners of the next splits are told, by name."""

    def __init__(self, owners, n_bytes):
        super().__init__(n_bytes)
        self._owners = owners

    def fault(self, reply):
        """What is wrong with a reply, see :class:`Reply`."""
        if not isinstance(reply, dict) or not reply.keys() <= {*self._owners}:
            return f"it asks others for splits than {[*self._owners]}"
        for told in reply.values():
            splits = told.get("splits") if isinstance(told, dict) else None
            n_splits = len(splits) if getattr(splits, "ndim", 0) else 0
            each = Fields(
                {"splits": Rows(n_splits, 4)}, {"categories": Bits(n_splits, 256)}
            )
            if (fault := each.fault(told)) is not None:
                return fault
        return None


class OrFault(Reply):
    """A reply, or the name of a party whose own was wrong."""

    def __init__(self, fields, names):
        self._fields, self._names = fields, names
        super().__init__(fields.n_bytes)

    def fault(self, reply):
        """What is wrong with a reply, see :class:`Reply`."""
        if isinstance(reply, dict) and [*reply] == ["fault"]:
            known = reply["fault"] in self._names
            return None if known else "it finds fault with nobody"
        return self._fields.fault(reply)


class Due(NamedTuple):
    """What is expected of the active party's replies, by operation."""

    n_rows: int
    hold_out: Reply
    begin_iteration: Reply
    find: Reply
    divide: Reply
    keep: Reply

    @classmethod
    def of(cls, estimator, n_rows):
        """For a fit of so many rows."""
        owners, n_outputs = estimator._holders, estimator._n_outputs
        n_trees = n_outputs if n_outputs > 2 else 1
        learnt_from = {"rows": Positions(n_rows)} if estimator.early_stopping else {}
        slopes, most = Rows(n_trees, n_rows), n_trees * n_rows
        derivatives = Fields({"gradients": slopes, "hessians": Maybe(slopes)})
        n_train = n_rows - n_held_out(estimator, n_rows)
        few = n_train < 2 * estimator.min_samples_leaf
        nodes = {
            "trees": Whole(n_trees - 1),
            "rows": Positions(n_rows, n_trees),
            "ends": Whole(most),
        }
        return cls(
            n_rows,
            Fields(learnt_from),
            Maybe(derivatives) if few else derivatives,
            OrFault(Fields({"splits": Asked(owners, 64 * most)}), owners),
            OrFault(Fields(nodes), owners),
            Fields(dict.fromkeys(owners, Count(0, int(np.iinfo(np.int64).max)))),
        )


def route(session, n_splits, n_rows):
    """On which side of each split of every party the rows lie, in bits."""
    # Once for all trees: who owns a split says of every row where it goes.
    asked = {name: Bits(n, n_rows) for name, n in n_splits.items() if n}
    if not asked:
        return {}
    session.begin_round()
    return session.call("route", to=[*asked], reply=asked)


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
    due = Due.of(estimator, n_rows)
    widths = _begin(estimator, session, active, class_weight, due)
    for _ in range(estimator.max_iter):
        task = course.begin("iteration", may_end=True)
        _grow(session, active, widths, n_rows, estimator._n_splits, due)
        losses = session.ask(active, "end_iteration", reply=_LOSSES)
        estimator.loss_curve_.append(losses["loss"])
        if "validation" in losses:
            estimator.validation_loss_curve_.append(losses["validation"])
        # With a budget this loss is of true labels, and others see when training stops.
        if estimator.label_epsilon is None:
            _check_finite(losses.values())
        stop = course.end(task, partial(estimator._so_far, session))
        if stop or _stops(estimator):
            break
    _keep_best(estimator, session, active, due)
    _check_finite(estimator.loss_curve_)


def _check_finite(losses):
    if not all(map(isfinite, losses)):
        raise _not_finite("the loss is")


def _not_finite(what):
    return TrainingError(
        f"{what} not finite: lower the learning rate, or express the target in "
        "another unit"
    )


_LOSSES = Fields({"loss": NUMBER}, {"validation": NUMBER})


def _begin(estimator, session, active, class_weight, due):
    """Let everybody cut columns into bins; how many bins each party has."""
    session.begin_round()
    holders = estimator._holders
    goes_on = estimator._earlier is not None
    n_splits = dict(estimator._n_splits) if goes_on else dict.fromkeys(holders, 0)
    estimator._n_splits = n_splits
    told = {
        name: Told(count.high, estimator.max_bins)
        for name, count in estimator._any_widths.items()
    }
    learnt_from = session.ask(
        active, "hold_out", reply=due.hold_out, class_weight=class_weight
    )
    columns = session.call("prepare", to=holders, reply=told, **learnt_from)
    before = {"sides": route(session, n_splits, due.n_rows)} if goes_on else {}
    session.tell("start", to=[active], columns=columns, **before)
    return {name: _n_cells(each) for name, each in columns.items()}


def _keep_best(estimator, session, active, due):
    """Keep the trees that are worth it, and the splits that they have."""
    # The trees that were best on held-out rows, where some were held out.
    n_kept = len(estimator.loss_curve_)
    if estimator.early_stopping:
        n_kept = 1 + int(np.argmin(estimator.validation_loss_curve_))
    n_splits = session.ask(active, "keep", reply=due.keep, n_iter=n_kept)
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


def _grow(session, active, widths, n_rows, n_splits, due):
    """The trees of one iteration, one for each output of the model.

    They grow side by side: two rounds split a node of each of them, or all nodes of a
    level where the number of leaves is not limited.
    """
    slopes = session.ask(active, "begin_iteration", reply=due.begin_iteration)
    if slopes is None:
        return
    if not all_finite(slopes["gradients"]):
        raise _not_finite("derivatives of the loss are")
    n_parts = 2 if slopes["hessians"] is None else 3
    n_nodes = len(slopes["gradients"])
    session.begin_round()
    sums = _add_up(session, "begin_trees", n_nodes, n_parts, widths, slopes)
    while True:
        found = session.ask(active, "find", reply=due.find, sums=sums)
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
        nodes = session.ask(active, "divide", reply=due.divide, sides=sides)
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
