"""A party: one organisation's columns, random stream and private models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from scipy import sparse
from sklearn import config_context

from skvfl._warnings import speaking_for
from skvfl.exceptions import (
    ColumnWarning,
    InvalidColumnError,
    PartyError,
    ShareableError,
    party_error,
)

_Method = TypeVar("_Method", bound=Callable[..., Any])


def operation(method: _Method) -> _Method:
    """Mark a party's method as one that others may ask for through a transport."""
    method.__skvfl_operation__ = True  # type: ignore[attr-defined]
    return method


class Party:
    """One organisation.

    What it holds for one protocol run (its block of the table, labels) is private and
    is dropped by :meth:`release`; what it learnt (fitted models, its random matrix)
    stays with it. Others reach it only through methods marked with :func:`operation`.

    Parameters
    ----------
    name : str
        Name of the party.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._held: dict[str, Any] = {}

    def holding(self, **data: Any) -> Party:
        """Copy of this party that holds ``data``; its models are shared."""
        party = copy.copy(self)
        party._held = data
        return party

    def release(self) -> None:
        """Drop the block and everything else that belongs to one run."""
        self._held = {}

    def perform(self, operation: str, arguments: dict[str, Any]) -> Any:
        """Carry out an operation that somebody asked for.

        Raises
        ------
        PartyError
            If the operation is not offered or fails. The message names the party and
            the kind of error; only what a :class:`~skvfl.exceptions.ShareableError`
            says, which never quotes a value, is passed on in full.
        """
        method: Any = getattr(type(self), operation, None)
        if not getattr(method, "__skvfl_operation__", False):
            raise PartyError(self.name, f"it offers no operation {operation!r}")
        try:
            with speaking_for(self.name):
                return method(self, **arguments)
        except Exception as exc:
            raise party_error(self.name, self._tell(exc, operation), exc) from exc

    def _tell(self, exc: Exception, operation: str) -> str:
        if isinstance(exc, InvalidColumnError):
            return f"among its own columns, {exc}"
        if isinstance(exc, ColumnWarning):  # where warnings are errors
            return str(exc).removeprefix(f"party {self.name!r}: ")
        if isinstance(exc, ShareableError):
            if isinstance(exc, PartyError) and exc.party == self.name:
                return exc.message
            return str(exc)
        return (
            f"{type(exc).__name__} in {operation!r}; the message stays with the party, "
            "whose own traceback has it"
        )


class TransformerParty(Party):
    """A party of a one-round method: it runs a transformer and sends the output.

    Parameters
    ----------
    name : str
        Name of the party.
    transformer : transformer
        Unfitted; this party's own.
    """

    def __init__(self, name: str, transformer: Any) -> None:
        super().__init__(name)
        self._transformer = transformer

    @operation
    def fit_transform(self) -> np.ndarray:
        """Fit the transformer on the block held and return its output."""
        return run(self._transformer.fit_transform, self._held["block"])

    @operation
    def transform(self) -> np.ndarray:
        """Return the fitted transformer's output for the block held."""
        return run(self._transformer.transform, self._held["block"])


def run(method: Callable[[Any], Any], block: Any) -> np.ndarray:
    """Output of a transformer's method as a plain array, however users like theirs."""
    with config_context(transform_output="default"):
        output = method(block)
    if sparse.issparse(output):
        output = output.toarray()
    return np.asarray(output)
