"""What is expected of a reply: its kind, its shape, and how large it may be.

A session compares every reply with what its caller expects before anything is done
with it, so that protocols may rely on what they asked for. Over processes the size is
compared before the reply is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

# Of the widest number that crosses.
_WIDEST = np.dtype(np.longdouble).itemsize
_ANY_BYTES = 1 << 28
# More outputs than this, or than so many for each column, are nobody's transformer.
_MAX_WIDTH = 4096
_MAX_WIDTH_PER_COLUMN = 256


class Reply:
    """A reply of any kind; the others say more.

    Attributes
    ----------
    n_bytes : int
        Most bytes that its arrays may have together.
    """

    n_bytes = _ANY_BYTES

    def fault(self, reply: Any) -> str | None:
        """What is wrong with a reply, in words about its party; None if nothing is."""
        return None


class _Nothing(Reply):
    n_bytes = 0

    def fault(self, reply: Any) -> str | None:
        return None if reply is None else "it sent something where nothing was expected"


class _Number(Reply):
    n_bytes = 0

    def fault(self, reply: Any) -> str | None:
        if isinstance(reply, Real) and not isinstance(reply, bool):
            return None
        return "its reply is not a number"


ANYTHING, NOTHING, NUMBER = Reply(), _Nothing(), _Number()


class Count(Reply):
    """A whole number within bounds.

    Parameters
    ----------
    low, high : int
        The bounds, which are allowed themselves.
    """

    n_bytes = 0

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def fault(self, reply: Any) -> str | None:
        if type(reply) is int and self.low <= reply <= self.high:
            return None
        return f"its reply is not a whole number from {self.low} to {self.high}"


class Rows(Reply):
    """A matrix of numbers.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    width : int
        Number of columns.
    exact : bool, default=True
        Whether it must have all of the columns; else at least one.
    """

    def __init__(self, n_rows: int, width: int, exact: bool = True) -> None:
        self.n_rows, self.width, self.exact = n_rows, width, exact
        self.n_bytes = n_rows * width * _WIDEST

    def fault(self, reply: Any) -> str | None:
        if not isinstance(reply, np.ndarray) or reply.ndim != 2:
            return "its reply is not a matrix"
        n_rows, width = reply.shape
        if n_rows != self.n_rows:
            return f"it sent {n_rows} rows where {self.n_rows} were expected"
        if width == self.width or (not self.exact and 0 < width < self.width):
            return None
        most = "" if self.exact else "1 to "
        return f"it sent {width} columns where {most}{self.width} were expected"


class Vector(Reply):
    """One number for each row.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    n_codes : int or None, default=None
        Of whole numbers from 0: how many there are. Any numbers by default.
    """

    def __init__(self, n_rows: int, n_codes: int | None = None) -> None:
        self.n_rows, self.n_codes = n_rows, n_codes
        self.n_bytes = n_rows * _WIDEST

    def fault(self, reply: Any) -> str | None:
        if not isinstance(reply, np.ndarray) or reply.shape != (self.n_rows,):
            return f"its reply is not one number for each of {self.n_rows} rows"
        if self.n_codes is None:
            return None
        if reply.dtype.kind not in "iu" or (
            reply.size and not 0 <= reply.min() <= reply.max() < self.n_codes
        ):
            return f"its reply is not whole numbers from 0 to {self.n_codes - 1}"
        return None


class Maybe(Reply):
    """A reply that may as well be None.

    Parameters
    ----------
    reply : Reply
        What it is otherwise.
    """

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.n_bytes = reply.n_bytes

    def fault(self, reply: Any) -> str | None:
        return None if reply is None else self.reply.fault(reply)


class Fields(Reply):
    """A dict with these entries and no others.

    Parameters
    ----------
    fields : dict of str to Reply
        What each entry must be.
    optional : dict of str to Reply, default=None
        Entries that may be missing.
    """

    def __init__(
        self, fields: Mapping[str, Reply], optional: Mapping[str, Reply] | None = None
    ) -> None:
        self.fields = {**fields, **(optional or {})}
        self.required = fields.keys()
        self.n_bytes = sum([each.n_bytes for each in self.fields.values()])

    def fault(self, reply: Any) -> str | None:
        keys = reply.keys() if isinstance(reply, dict) else ()
        if not self.required <= set(keys) <= self.fields.keys():
            return f"its reply does not have the entries {list(self.fields)}"
        for key, each in reply.items():
            fault = self.fields[key].fault(each)
            if fault is not None:
                return f"{key!r} in its reply: {fault}"
        return None


def most_columns(n_columns: int) -> int:
    """How many outputs a party with so many columns may have, before they are known.

    Generous to every transformer that a table's rows could train, and far below what
    fills the memory of whoever receives them.
    """
    return max(_MAX_WIDTH, _MAX_WIDTH_PER_COLUMN * n_columns)
