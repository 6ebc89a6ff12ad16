"""Warnings that point to the user's line, and name the party where there is one."""

from __future__ import annotations

import sys
import warnings
from contextvars import ContextVar

from skvfl.exceptions import ColumnWarning

# The party that is at work; see :class:`speaking_for`.
SPEAKER: ContextVar[str | None] = ContextVar("party", default=None)
_OWN = {"contextlib", "joblib", "skvfl", "sklearn"}


class speaking_for:
    """Name this party in warnings about columns; a context manager.

    Parameters
    ----------
    party : str
        Name of the party.
    """

    def __init__(self, party: str) -> None:
        self._party = party

    def __enter__(self) -> None:
        self._token = SPEAKER.set(self._party)

    def __exit__(self, *failure: object) -> None:
        SPEAKER.reset(self._token)


def warn_about_column(message: str) -> None:
    """Warn about a column; name the party that holds it, where there is one.

    Parameters
    ----------
    message : str
        Names the column and quotes no value.
    """
    party = SPEAKER.get()
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
