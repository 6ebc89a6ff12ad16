"""Which rows of the table a message is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skvfl.federation import Holding

# Operations that name rows in the order of the table, not in that of an epoch.
_SERVED = ("represent", "evaluate", "explain")
_SORTED_BY_SEED = ("prepare", "join", "join_privately")


class Order:
    """Follows a run, and says which rows are under way.

    Most methods sort rows by seeds that everybody is sent; where a party draws the
    batch itself, its state is looked at, which only a run in this process allows.

    Parameters
    ----------
    members : sequence of Member
        Those that are at home here.
    n_rows : int
        Number of rows of the run's table.

    Attributes
    ----------
    epoch : int
        Number of the epoch under way, from 1; 0 before the first.
    rows : ndarray of int or None
        Positions in the table of the rows under way; None where nobody said.
    """

    def __init__(self, members: Sequence[Any], n_rows: int) -> None:
        self._members = members
        self._n_rows = n_rows
        self._table: np.ndarray | None = None
        self._of_epoch: np.ndarray | None = None
        self.epoch = 0
        self.rows: np.ndarray | None = None

    def before(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """Members are about to be asked for an operation."""
        # Here, because it needs torch, which views of other methods do without.
        from skvfl.nn._steps import public_order

        seed = arguments.get("seed")
        if operation == "begin_trees":
            # Boosting has iterations in place of epochs, and all rows in each.
            self.epoch += 1
        if operation in _SORTED_BY_SEED and seed is not None:
            self._table = public_order(seed, self._n_rows)
        elif operation == "begin_epoch":
            self.epoch += 1
            if seed is not None and self._table is not None:
                order = public_order(seed, arguments["n_train"])
                self._of_epoch = self._table[order]
        if "start" in arguments:
            order = self._table if operation in _SERVED else self._of_epoch
            order = np.arange(self._n_rows) if order is None else order
            self.rows = order[arguments["start"] : arguments["stop"]]

    def after(self, operation: str) -> None:
        """Members have answered."""
        if operation == "select":
            self.rows = self._held("batch")
        elif operation in ("draw", "forward_rows"):
            self.epoch += 1
            drawn = self._held("rows")
            if drawn is not None and self._table is not None:
                self.rows = self._table[drawn]

    def _held(self, field: str) -> np.ndarray | None:
        """Copy of what some party holds for this run under a name."""
        for member in self._members:
            states = {} if member.party is None else member.party._states
            for kind, state in states.items():
                if kind is not Holding and field in vars(state):
                    return np.asarray(vars(state)[field]).copy()
        return None
