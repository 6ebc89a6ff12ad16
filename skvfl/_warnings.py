"""Warnings that point to the user's line, and name the party where there is one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from skvfl.exceptions import ColumnWarning

_PARTY: ContextVar[str | None] = ContextVar("party", default=None)
_OWN = {"contextlib", "joblib", "skvfl", "sklearn"}


@contextmanager
def speaking_for(party: str) -> Iterator[None]:
    """Name this party in warnings about columns."""
    token = _PARTY.set(party)
    try:
        yield
    finally:
        _PARTY.reset(token)


def warn_about_column(message: str) -> None:
    """Warn about a column; name the party that holds it, where there is one.

    Parameters
    ----------
    message : str
        Names the column and quotes no value.
    """
    party = _PARTY.get()
    if party is not None:
        message = f"party {party!r}: {message}"
    warn(message, ColumnWarning)


def warn(message: str, category: type[Warning]) -> None:
    """Warn, pointing to the user's line, however many calls of ours lie between.

    Parameters
    ----------
    message : str
        Quotes no value.
    category : type of Warning
    """
    level = 1
    frame = sys._getframe()
    while frame.f_back and frame.f_globals["__name__"].partition(".")[0] in _OWN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
