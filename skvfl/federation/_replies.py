"""What is expected of a reply: its kind, its shape, and how large it may be.

A session compares every reply with what its caller expects before anything is done
with it, so that protocols may rely on what they asked for. Over processes the size is
compared before the reply is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np

from skvfl.exceptions import PartyError

# Of the widest number that crosses.
_WIDEST = np.dtype(np.longdouble).itemsize
_ANY_BYTES = 1 << 28
_LARGEST = float(np.finfo(np.float64).max)
# More outputs than this, or than so many for each column, are nobody's transformer.
_MAX_WIDTH = 4096
_MAX_WIDTH_PER_COLUMN = 256
# Of what an organisation's own party computes for it.
OWN_WIDTH = 1 << 20


class Reply:
    """A reply of any kind up to a size; the others say more.

    Parameters
    ----------
    n_bytes : int
        Most bytes that its arrays may have together.
    """

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes

    def fault(self, reply: Any) -> str | None:
        """What is wrong with a reply, in words about its party; None if nothing is."""
        return None


class _Nothing(Reply):
    def fault(self, reply: Any) -> str | None:
        return None if reply is None else "it sent something where nothing was expected"


class _Number(Reply):
    def fault(self, reply: Any) -> str | None:
        # Two of every batch are plain, and other kinds take long to look up.
        if type(reply) is float:
            return None
        if type(reply) is not int and (
            not isinstance(reply, Real) or isinstance(reply, bool)
        ):
            return "its reply is not a number"
        # Whole numbers cross with all their digits.
        if isinstance(reply, int) and abs(reply) > _LARGEST:
            return "its reply is a number too large to be used"
        return None


ANYTHING, NOTHING, NUMBER = Reply(_ANY_BYTES), _Nothing(0), _Number(0)


class Count(Reply):
    """A whole number within bounds.

    Parameters
    ----------
    low, high : int
        The bounds, which are allowed themselves.
    """

    def __init__(self, low: int, high: int) -> None:
        super().__init__(0)
        self.low, self.high = low, high

    def fault(self, reply: Any) -> str | None:
        if type(reply) is int and self.low <= reply <= self.high:
            return None
        return f"its reply is not a whole number from {self.low} to {self.high}"


class Array(Reply):
    """An array of any shape.

    Parameters
    ----------
    n_bytes : int
        Most bytes that it may have.
    """

    def fault(self, reply: Any) -> str | None:
        return None if isinstance(reply, np.ndarray) else "its reply is not an array"


class Rows(Reply):
    """A matrix of numbers.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    width : int
        Number of columns.
    exact : bool, default=True
        Whether it must have all of the columns, or may have fewer.
    """

    def __init__(self, n_rows: int, width: int, exact: bool = True) -> None:
        super().__init__(n_rows * width * _WIDEST)
        self.n_rows, self.width, self.exact = n_rows, width, exact

    def fault(self, reply: Any) -> str | None:
        if not isinstance(reply, np.ndarray) or reply.ndim != 2:
            return "its reply is not a matrix"
        n_rows, width = reply.shape
        if n_rows != self.n_rows:
            return f"it sent {n_rows} rows where {self.n_rows} were expected"
        if width == self.width or (not self.exact and 0 < width < self.width):
            return None
        least = "" if self.exact else "1 to "
        return f"it sent {width} columns where {least}{self.width} were expected"


class Vector(Reply):
    """One number for each row.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    n_codes : int or None, default=None
        Of whole numbers from 0: how many there are. Any finite numbers by default.
    """

    def __init__(self, n_rows: int, n_codes: int | None = None) -> None:
        super().__init__(n_rows * _WIDEST)
        self.n_rows, self.n_codes = n_rows, n_codes

    def fault(self, reply: Any) -> str | None:
        if not isinstance(reply, np.ndarray) or reply.shape != (self.n_rows,):
            return f"its reply is not one number for each of {self.n_rows} rows"
        if self.n_codes is None:
            if all_finite(reply):
                return None
            return "its reply holds values that are not finite"
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
        super().__init__(reply.n_bytes)
        self.reply = reply

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
        super().__init__(sum([each.n_bytes for each in self.fields.values()]))

    def fault(self, reply: Any) -> str | None:
        if not isinstance(reply, dict) or not (
            self.required <= reply.keys() <= self.fields.keys()
        ):
            return f"its reply does not have the entries {list(self.fields)}"
        for key, each in reply.items():
            fault = self.fields[key].fault(each)
            if fault is not None:
                return f"{key!r} in its reply: {fault}"
        return None


def all_finite(array: np.ndarray) -> bool:
    """Whether all numbers are finite, in double precision where they have more."""
    # A long double may be finite and infinite once it is used.
    if array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            array = array.astype(np.float64)
    # One product in place of a mask for most arrays: it is finite where all numbers
    # are, but for those whose squares are too large.
    if array.dtype.kind == "f" and isfinite(np.vdot(array, array)):
        return True
    return bool(np.isfinite(array).all())


def check_replies(
    replies: Mapping[str, Any], expected: Mapping[str, Reply], operation: str
) -> None:
    """Compare replies with what was expected.

    Parameters
    ----------
    replies : dict of str to reply
        What the parties sent.
    expected : dict of str to Reply
        What was expected of each of them.
    operation : str
        What they were asked for.

    Raises
    ------
    PartyError
        If a reply is something else; names the party.
    """
    for name, reply in replies.items():
        fault = expected[name].fault(reply)
        if fault is not None:
            raise PartyError(name, f"{fault} (in reply to {operation!r})")


def rows_of(widths: Mapping[str, int], n_rows: int) -> dict[str, Rows]:
    """What is expected of parties whose numbers of columns are known."""
    return {name: Rows(n_rows, width) for name, width in widths.items()}


def learnt(rows: Mapping[str, Reply]) -> Fields:
    """What is expected of whoever learns from a batch: its loss, and gradients.

    Parameters
    ----------
    rows : dict of str to Reply
        What was expected of those who sent the batch.
    """
    gradients = Fields(rows)
    return Fields({"loss": NUMBER, "weight": NUMBER, "gradients": gradients})


def most_columns(n_columns: int) -> int:
    """How many outputs a party with so many columns may have, before they are known.

    Generous to every transformer that a table's rows could train, and far below what
    fills the memory of whoever receives them.
    """
    return max(_MAX_WIDTH, _MAX_WIDTH_PER_COLUMN * n_columns)
