"""A party: one organisation's columns, random stream and private models."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MethodType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.exceptions import NotFittedError

from skvfl._rows import apply
from skvfl._warnings import SPEAKER
from skvfl.exceptions import (
    ColumnWarning,
    InvalidColumnError,
    InvalidOutputError,
    PartyError,
    PartyValueError,
    ShareableError,
    StateError,
    party_error,
)
from skvfl.federation._holding import Holding

# Tracebacks of the parties, cells included: for whoever may see the parties' tables.
LOGGER = logging.getLogger("skvfl.parties")
_Method = TypeVar("_Method", bound=Callable[..., Any])
_State = TypeVar("_State")


# An AttributeError as well, because hasattr and copy expect one of ``__getattr__``.
class NotMadeError(StateError, AttributeError):
    """A model was asked for before the operation that makes it."""


def operation(method: _Method) -> _Method:
    """Mark a party's method as one that others may ask for through a transport.

    Parameters
    ----------
    method : callable
        Takes and returns arrays, numbers, strings, and lists and dicts of them.

    Returns
    -------
    method : callable
        The same.

    See Also
    --------
    serving : For operations that predictions need.

    Examples
    --------
    >>> from skvfl.federation import Holding, Party, operation
    >>> class Counter(Party):
    ...     @operation
    ...     def count(self):
    ...         return self.held(Holding).n_rows
    >>> Counter("shop").holding([[1.0], [2.0]]).perform("count", {})
    2
    """
    method.__skvfl_operation__ = True  # type: ignore[attr-defined]
    return method


def serving(method: _Method) -> _Method:
    """Mark an operation that a fitted party also offers when rows are to be predicted.

    Between organisations nothing else is offered then: an operation of training would
    change, or wear out, the model that is being used.

    Parameters
    ----------
    method : callable
        As for :func:`operation`, which is implied.

    Returns
    -------
    method : callable
        The same.

    See Also
    --------
    operation : For operations of training.

    Examples
    --------
    >>> from skvfl.federation import Party, serving
    >>> class Greeter(Party):
    ...     @serving
    ...     def greet(self):
    ...         return self.name
    >>> Greeter("shop").perform("greet", {})
    'shop'
    """
    method.__skvfl_serves__ = True  # type: ignore[attr-defined]
    return operation(method)


def giving(method: _Method) -> _Method:
    """Mark an operation whose reply is new and which the party keeps no part of.

    Within one process it is then handed over: what is many times a table would
    otherwise be there twice while it is copied.

    Parameters
    ----------
    method : callable
        As for :func:`operation`, which is implied.

    Returns
    -------
    method : callable
        The same.
    """
    method.__skvfl_gives__ = True  # type: ignore[attr-defined]
    return operation(method)


def gives(kind: type, operation: str) -> bool:
    """Whether parties of a class keep no part of what they reply to an operation."""
    return getattr(getattr(kind, operation, None), "__skvfl_gives__", False)


def serves(kind: type, operation: str) -> bool:
    """Whether parties of a class offer an operation when rows are to be predicted."""
    return getattr(getattr(kind, operation, None), "__skvfl_serves__", False)


class Party:
    """One organisation.

    What it holds for one protocol run (its block of the table, labels) is private and
    is dropped by :meth:`release`; what it learnt (fitted models, its random matrix)
    stays with it. Others reach it only through methods marked with :func:`operation`.

    Parameters
    ----------
    name : str
        Name of the party.

    See Also
    --------
    Member : Makes one for every run.
    TransformerParty : A party that sends what a transformer makes of its columns.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl.federation import Holding, Party, operation
    >>> class Means(Party):
    ...     @operation
    ...     def means(self):
    ...         return self.held(Holding).block.mean(axis=0)
    >>> shop = Means("shop").holding(np.array([[1.0, 4.0], [3.0, 8.0]]))
    >>> shop.perform("means", {})
    array([2., 6.])
    """

    # What an operation makes and the party keeps: attribute to operation.
    made_by: ClassVar[Mapping[str, str]] = {}

    def __init__(self, name: str) -> None:
        self.name = name
        self._states: dict[type, Any] = {}

    def __getattr__(self, attribute: str) -> Any:
        # Only what is not there is looked for here.
        made_by = type(self).made_by.get(attribute)
        if made_by is None:
            raise AttributeError(f"{type(self).__name__} has no {attribute!r}")
        raise NotMadeError(f"it has no model yet: {made_by!r} comes first")

    def hold(self, state: Any) -> None:
        """Keep a dataclass for this run, in place of one of its kind.

        Parameters
        ----------
        state : dataclass
            Its class may say in ``after`` which operation gives it.
        """
        self._states[type(state)] = state

    def held(self, kind: type[_State]) -> _State:
        """What is held of one kind.

        Raises
        ------
        StateError
            If nothing is, because an operation is asked for before the one that gives
            it.
        """
        try:
            state: _State = self._states[kind]
        except KeyError:
            before = getattr(kind, "after", None)
            raise StateError(
                f"it has no {kind.__name__}"
                + ("" if before is None else f": {before!r} comes first")
            ) from None
        return state

    def holds(self, kind: type) -> bool:
        """Whether something of one kind is held."""
        return kind in self._states

    def drop(self, kind: type) -> None:
        """Forget what is held of one kind, if anything is."""
        self._states.pop(kind, None)

    def take_over(self, *names: str) -> bool:
        """Take what an earlier run made, if this one goes on from it.

        Parameters
        ----------
        *names : str
            Attributes; copies of them, since the earlier fit must survive a later one
            that fails.

        Returns
        -------
        goes_on : bool
        """
        if not self.holds(Earlier):
            return False
        earlier = self.held(Earlier).party
        for name in names:
            setattr(self, name, copy.deepcopy(getattr(earlier, name)))
        return True

    def again(self) -> Self:
        """The same party for another run, which holds nothing; models are shared."""
        # Shallow: models are shared, and two predictions at once hold different tables.
        party = copy.copy(self)
        party._states = {}
        return party

    def holding(self, block: Any) -> Self:
        """Copy of this party that holds a block; its models are shared.

        The block is held without its index and its attributes, which belong to the
        whole table.
        """
        party = copy.copy(self)
        party._states = {Holding: Holding(bare(block))}
        return party

    def release(self) -> None:
        """Drop the block and everything else that belongs to one run."""
        self._states = {}

    def perform(self, operation: str, arguments: dict[str, Any]) -> Any:
        """Carry out an operation that somebody asked for.

        Raises
        ------
        PartyError
            If the operation is not offered or fails. The message names the party and
            the kind of error; only what a :class:`~skvfl.exceptions.ShareableError`
            says, which never quotes a value, is passed on in full. The error has no
            cause and no context, which might quote one.
        """
        # On the class, so that an attribute which holds a callable cannot be called
        # from outside, and no property runs.
        method: Any = getattr(type(self), str(operation), None)
        if not getattr(method, "__skvfl_operation__", False):
            raise PartyError(self.name, f"it offers no operation {operation!r}")
        return shielded(self.name, operation, MethodType(method, self), arguments)


@dataclass
class Earlier:
    """What a party learnt in a fit that this run goes on from."""

    party: Party


class SealedParty(Party):
    """A party that lives in processes of its own, as others may keep it.

    Its state is bytes that only a process of this party opens: reading them runs code
    of the party's choice. :class:`ProcessTransport` makes one of every party but the
    one that runs the protocol, and a fitted estimator keeps it in the party's place,
    which is why it is one.

    Parameters
    ----------
    name : str
        Name of the party.
    state : bytes
        What it has learnt.
    """

    def __init__(self, name: str, state: bytes) -> None:
        super().__init__(name)
        self._sealed = state

    def perform(self, operation: str, arguments: dict[str, Any]) -> Any:
        """Refuse, as everybody but the party's own process does."""
        raise PartyValueError(
            self.name,
            "it was fitted in a process of its own, and what it learnt is opened by no "
            'other: keep transport="process", or fit again with transport="local"',
        )

    def open(self) -> Party:
        """The party itself, with what it holds; for its own process."""
        party: Party = pickle.loads(self._sealed)
        party._states = self._states
        return party


def shielded(
    name: str,
    operation: str,
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
) -> Any:
    """What a function of a party returns, or an error that others may read.

    Parameters
    ----------
    name : str
        Name of the party.
    operation : str
        What an error message calls it.
    function : callable
        What is called.
    arguments : dict of str to argument
        As they arrived, whatever their names.

    Raises
    ------
    PartyError
        In place of any other exception, see :meth:`Party.perform`.
    """
    # By hand, as every call to a party comes through here, and a context manager costs
    # twice as much.
    before = SPEAKER.set(name)
    try:
        return function(**arguments)
    # Somebody ends the program, which says nothing about the party.
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as exc:  # among them the panics of libraries written in Rust
        LOGGER.debug("party %r failed in %r", name, operation, exc_info=True)
        error = party_error(name, _tell(exc, name, operation), exc)
    finally:
        SPEAKER.reset(before)
    # Out here the error has no context.
    raise error


def _tell(exc: BaseException, name: str, operation: str) -> str:
    if isinstance(exc, InvalidColumnError):
        return f"among its own columns, {exc}"
    if isinstance(exc, ColumnWarning):  # where warnings are errors
        return str(exc).removeprefix(f"party {name!r}: ")
    if isinstance(exc, StateError):
        return f"it was asked for {operation!r}, and {exc}"
    if isinstance(exc, ShareableError):
        if isinstance(exc, PartyError) and exc.party == name:
            return exc.message
        return str(exc)
    return (
        f"{type(exc).__name__} in {operation!r}; the message stays with the party, "
        "whose own traceback has it"
    )


def bare(block: Any) -> Any:
    """A table without an index and attributes, which share nothing with the block."""
    if not hasattr(block, "iloc"):
        return block
    block = block.copy(deep=False)
    block.attrs = {}
    block.columns = block.columns.set_names([None] * block.columns.nlevels)
    return block.set_axis(range(len(block)), axis=0)


class TransformerParty(Party):
    """A party of a one-round method: it runs a transformer and sends the output.

    Parameters
    ----------
    name : str
        Name of the party.
    transformer : transformer
        Unfitted; this party's own.

    See Also
    --------
    Party : What it derives from.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skvfl.federation import TransformerParty
    >>> shop = TransformerParty("shop", StandardScaler())
    >>> shop.holding(np.array([[1.0], [3.0]])).perform("fit_transform", {})
    array([[-1.],
           [ 1.]])
    """

    def __init__(self, name: str, transformer: Any) -> None:
        super().__init__(name)
        self._transformer = transformer

    @operation
    def fit_transform(self) -> np.ndarray:
        """Fit the transformer on the block held and return its output."""
        return run(self._transformer.fit_transform, self.held(Holding).block)

    @serving
    def transform(self) -> np.ndarray:
        """Return the fitted transformer's output for the block held."""
        return run(self._transformer.transform, self.held(Holding).block)


def run(
    method: Callable[[Any], Any], block: Any, what: str = "its transformer"
) -> np.ndarray:
    """Output of a transformer's method as a plain array, however users like theirs."""
    try:
        with config_context(transform_output="default"):
            output = apply(method, block, what, explain=True)
    except NotFittedError:
        raise StateError(f"{what} has not been fitted yet") from None
    if sparse.issparse(output):
        output = output.toarray()
    output = np.asarray(output)
    if output.dtype.kind == "O":
        # Tables of several types come out as objects even where all cells are numbers.
        with suppress(TypeError, ValueError):
            output = output.astype(np.float64)
    if output.dtype.kind not in "biuf":
        raise InvalidOutputError(
            f"{what} gave values of type {output.dtype} where numbers are due; let it "
            "encode text, categories and times"
        )
    if not output.shape[1]:
        raise InvalidOutputError(f"{what} gave no column; let it give one at least")
    return output
