"""What each role of a run was handed and received."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


@dataclass(frozen=True)
class Seen:
    """One message, as its receiver reads it.

    Parameters
    ----------
    run : int
        Number of the run, from 0: a fit, or a session of a prediction.
    epoch : int
        Number of the epoch, from 1; 0 before the first.
    sender, receiver : str
        Names of parties, or ``"server"``.
    operation : str
        What was asked or answered.
    content : arrays, scalars, strings, lists and dicts
        A copy of what crossed: the arguments of a request, or a reply.
    rows : ndarray of int or None
        Positions, in the table of the run, of the rows under way; None where the
        session does not name them.
    opening : bool
        Whether it opened the run.

    See Also
    --------
    record_views : Records the views of all roles.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy import record_views
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> with record_views() as views:
    ...     _ = RandomProjectionVFL(LogisticRegression()).fit(X, y)
    >>> seen = views["party1"].messages[0]
    >>> seen.sender, seen.operation
    ('server', 'open')
    """

    run: int
    epoch: int
    sender: str
    receiver: str
    operation: str
    content: Any
    rows: np.ndarray | None
    opening: bool

    def arrays(self) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
        """Arrays of the message, and where they are in it.

        Returns
        -------
        arrays : iterator of (tuple of str, ndarray)
            The place is of names of arguments or parties, and positions in lists.
        """
        return _arrays_in(self.content)


class Matrix(NamedTuple):
    """Arrays of one operation about rows of the table, put together.

    Parameters
    ----------
    run, epoch : int
        As in :class:`Seen`.
    sender, operation : str
        As in :class:`Seen`.
    place : tuple of str
        Where in the messages the arrays are.
    known : ndarray of bool of shape (n_rows,)
        Which rows some message was about.
    values : ndarray of shape (n_rows, n_columns), dtype float64
        NaN in the other rows. Unsigned integers of several bytes are fixed-point
        numbers, and are read as signed.

    See Also
    --------
    record_views : Records the views of all roles.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy import record_views
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> with record_views() as views:
    ...     _ = RandomProjectionVFL(LogisticRegression()).fit(X, y)
    >>> matrix = views["server"].matrix(sender="party1")
    >>> matrix.operation, matrix.values.shape
    ('fit_transform', (569, 15))
    """

    run: int
    epoch: int
    sender: str
    operation: str
    place: tuple[str, ...]
    known: np.ndarray
    values: np.ndarray


@dataclass
class Run:
    """What those who are at home here bring to a run, as far as views need it.

    Parameters
    ----------
    fitting : bool
        Whether something is learnt.
    n_rows : int
        Number of rows of its table.
    blocks : dict of str to DataFrame or ndarray
        Columns of each party.
    labels : dict of str to ndarray
        Of whoever has some.
    rows : dict of str to ndarray of int
        Which rows of the run a block has, for those that have not all in their order.
    """

    fitting: bool
    n_rows: int
    blocks: dict[str, Any]
    labels: dict[str, np.ndarray]
    rows: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class View:
    """What a role, or several together, have of some runs.

    Parameters
    ----------
    roles : tuple of str
        Whose view it is.
    messages : list of Seen
        What crossed to them, in order.
    brought : dict of int to Run
        What was brought to each run.
    given : list of Seen
        What they sent to others.

    See Also
    --------
    record_views : Records the views of all roles.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy import record_views
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> with record_views() as views:
    ...     _ = RandomProjectionVFL(LogisticRegression()).fit(X, y)
    >>> server = views["server"]
    >>> server.matrix(sender="party1").values.shape
    (569, 15)
    >>> server.labels is None
    True
    """

    roles: tuple[str, ...]
    messages: list[Seen]
    brought: Mapping[int, Run] = field(default_factory=dict)
    given: list[Seen] = field(default_factory=list)

    @property
    def role(self) -> str:
        """Name of the role; names of a coalition are joined by ``+``."""
        return "+".join(self.roles)

    @property
    def runs(self) -> list[int]:
        """Numbers of the runs."""
        return list(self.brought)

    @property
    def fits(self) -> list[int]:
        """Numbers of the runs in which something was learnt."""
        return [number for number, run in self.brought.items() if run.fitting]

    @property
    def fit(self) -> View:
        """The view of the first fit.

        Raises
        ------
        ValueError
            If nothing was fitted.
        """
        if not self.fits:
            raise ValueError(
                "nothing was fitted while this view was recorded: call fit inside "
                "record_views"
            )
        return self.run(self.fits[0])

    def run(self, number: int) -> View:
        """The view of one run.

        Parameters
        ----------
        number : int
            One of :attr:`runs`.

        Returns
        -------
        view : View
        """
        messages, sent = (
            [each for each in crossed if each.run == number]
            for crossed in (self.messages, self.given)
        )
        return View(self.roles, messages, {number: self.brought[number]}, sent)

    @property
    def sent(self) -> View:
        """What the roles sent to others, which they know as well."""
        return View(self.roles, self.given, self.brought)

    @property
    def n_rows(self) -> int:
        """Number of rows of the first run's table."""
        return next((run.n_rows for run in self.brought.values()), 0)

    @property
    def blocks(self) -> dict[str, Any]:
        """Own columns of those of the roles that have some, in the first run."""
        run = next(iter(self.brought.values()), None)
        blocks = {} if run is None else run.blocks
        return {name: blocks[name] for name in self.roles if name in blocks}

    @property
    def labels(self) -> np.ndarray | None:
        """Codes of the classes or targets, in the first fit, if a role holds them."""
        for number in self.fits:
            labels = self.brought[number].labels
            for name in self.roles:
                if name in labels:
                    return labels[name]
        return None

    def matrices(
        self,
        *,
        sender: str | None = None,
        operation: str | None = None,
        place: str | None = None,
    ) -> list[Matrix]:
        """Received arrays that have a line for each row, put together from batches.

        Parameters
        ----------
        sender, operation : str, default=None
            Only what this party sent, or for this operation.
        place : str, default=None
            Only what stands at this place of a message; the name of an argument, or of
            a party.

        Returns
        -------
        matrices : list of Matrix
            One for each place of an operation, sender and epoch, in order.
        """
        groups: dict[tuple[Any, ...], list[tuple[np.ndarray, np.ndarray]]] = {}
        for seen in self.messages:
            if sender not in (None, seen.sender):
                continue
            if operation not in (None, seen.operation):
                continue
            n_rows = self.brought[seen.run].n_rows
            for where, array in seen.arrays():
                if place is not None and place not in where:
                    continue
                rows = seen.rows
                if rows is None and len(array) == n_rows:
                    rows = np.arange(n_rows)
                if rows is None or len(rows) != len(array):
                    continue
                if array.dtype.kind not in "fuib":
                    continue
                key = (seen.run, seen.epoch, seen.sender, seen.operation, where)
                groups.setdefault(key, []).append((rows, array))
        return [self._assemble(key, parts) for key, parts in groups.items()]

    def matrix(
        self,
        *,
        sender: str | None = None,
        operation: str | None = None,
        place: str | None = None,
        epoch: int = -1,
    ) -> Matrix:
        """One of :meth:`matrices`, by its position; the last by default.

        Parameters
        ----------
        sender, operation, place : str, default=None
            As for :meth:`matrices`.
        epoch : int, default=-1
            Which one of those.

        Returns
        -------
        matrix : Matrix

        Raises
        ------
        ValueError
            If nothing of the kind was received.
        """
        found = self.matrices(sender=sender, operation=operation, place=place)
        if not found:
            raise ValueError(
                f"{self.role!r} received no rows by operation {operation!r} from "
                f"{sender!r}: it received {self.kinds()}"
            )
        return found[epoch]

    def kinds(self) -> list[tuple[str, str]]:
        """Sender and operation of what was received, each once.

        Returns
        -------
        kinds : list of tuple of str
        """
        return list(dict.fromkeys((m.sender, m.operation) for m in self.messages))

    def _assemble(self, key, parts):
        run, epoch, sender, operation, place = key
        n_rows = self.brought[run].n_rows
        width = int(np.prod(parts[0][1].shape[1:]))
        values = np.full((n_rows, width), np.nan)
        for rows, array in parts:
            if array.dtype.kind == "u" and array.itemsize > 1:
                array = array.view(array.dtype.str.replace("u", "i"))
            # Sums over a batch have other widths than its rows.
            if int(np.prod(array.shape[1:])) == width:
                values[rows] = array.reshape(len(array), -1)
        known = ~np.isnan(values).any(axis=1)
        return Matrix(run, epoch, sender, operation, place, known, values)

    def __repr__(self) -> str:
        return f"<View of {self.role}: {len(self.messages)} messages>"


class Views(Mapping[str, View]):
    """Views of all roles, by name, as :func:`record_views` collects them.

    Parameters
    ----------
    seen : list of Seen
        Everything that crossed.
    runs : dict of int to Run
        What was brought to each run.
    roles : list of str
        Everybody who took part.

    See Also
    --------
    record_views : Yields them.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy import record_views
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> with record_views() as views:
    ...     _ = RandomProjectionVFL(LogisticRegression()).fit(X, y)
    >>> views.roles
    ['server', 'party0', 'party1']
    >>> sorted(views.coalition("server", "party1").blocks)
    ['party1']
    """

    def __init__(
        self, seen: list[Seen], runs: Mapping[int, Run], roles: list[str]
    ) -> None:
        self._seen = seen
        self._runs = runs
        self.roles = roles

    @property
    def n_runs(self) -> int:
        """Number of fits, and of sessions of predictions."""
        return len(self._runs)

    def coalition(self, *roles: str) -> View:
        """What several have together.

        Parameters
        ----------
        *roles : str
            Their names.

        Returns
        -------
        view : View

        Raises
        ------
        KeyError
            If nobody of such a name took part.
        """
        for role in roles:
            if role not in self.roles:
                raise KeyError(f"no role {role!r}: there are {self.roles}")
        messages = [each for each in self._seen if each.receiver in roles]
        sent = [
            each
            for each in self._seen
            if each.sender in roles and each.receiver not in roles
        ]
        return View(tuple(roles), messages, self._runs, sent)

    def __getitem__(self, role: str) -> View:
        return self.coalition(role)

    def __iter__(self) -> Iterator[str]:
        return iter(self.roles)

    def __len__(self) -> int:
        return len(self.roles)

    def __repr__(self) -> str:
        return f"<Views of {', '.join(self.roles)} in {self.n_runs} run(s)>"


def _arrays_in(content, place=()):
    if isinstance(content, np.ndarray) and content.ndim:
        yield place, content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from _arrays_in(value, (*place, str(key)))
    elif isinstance(content, list | tuple):
        for i, value in enumerate(content):
            yield from _arrays_in(value, (*place, str(i)))
