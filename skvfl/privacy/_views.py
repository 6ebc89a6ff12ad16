"""What each role of a run was handed and received, from the session itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from skvfl.federation._watching import listening
from skvfl.privacy._order import Order


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
        """Arrays of the message, and where they are in it."""
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
    """

    run: int
    epoch: int
    sender: str
    operation: str
    place: tuple[str, ...]
    known: np.ndarray
    values: np.ndarray


@dataclass
class _Run:
    fitting: bool
    n_rows: int
    blocks: dict[str, Any]
    labels: dict[str, np.ndarray]


@dataclass(frozen=True, repr=False)
class View:
    """What a role, or several together, have of some runs.

    Attributes
    ----------
    roles : tuple of str
        Whose view it is.
    messages : list of Seen
        What crossed to them, in order.
    """

    roles: tuple[str, ...]
    messages: list[Seen]
    _runs: Mapping[int, _Run] = field(default_factory=dict)
    _sent: list[Seen] = field(default_factory=list)

    @property
    def role(self) -> str:
        """Name of the role; names of a coalition are joined by ``+``."""
        return "+".join(self.roles)

    @property
    def runs(self) -> list[int]:
        """Numbers of the runs."""
        return list(self._runs)

    @property
    def fits(self) -> list[int]:
        """Numbers of the runs in which something was learnt."""
        return [number for number, run in self._runs.items() if run.fitting]

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
        """The view of one run."""
        messages, sent = (
            [each for each in crossed if each.run == number]
            for crossed in (self.messages, self._sent)
        )
        return View(self.roles, messages, {number: self._runs[number]}, sent)

    @property
    def sent(self) -> View:
        """What the roles sent to others, which they know as well."""
        return View(self.roles, self._sent, self._runs)

    @property
    def n_rows(self) -> int:
        """Number of rows of the first run's table."""
        return next((run.n_rows for run in self._runs.values()), 0)

    @property
    def blocks(self) -> dict[str, Any]:
        """Own columns of those of the roles that have some, in the first run."""
        run = next(iter(self._runs.values()), None)
        blocks = {} if run is None else run.blocks
        return {name: blocks[name] for name in self.roles if name in blocks}

    @property
    def labels(self) -> np.ndarray | None:
        """Codes of the classes or targets, in the first fit, if a role holds them."""
        for number in self.fits:
            labels = self._runs[number].labels
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
            n_rows = self._runs[seen.run].n_rows
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
        """Sender and operation of what was received, each once."""
        return list(dict.fromkeys((m.sender, m.operation) for m in self.messages))

    def _assemble(self, key, parts):
        run, epoch, sender, operation, place = key
        n_rows = self._runs[run].n_rows
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

    Attributes
    ----------
    roles : list of str
        Everybody who took part.
    """

    def __init__(self) -> None:
        self._seen: list[Seen] = []
        self._runs: dict[int, _Run] = {}
        self._sessions: list[tuple[Any, int, Order]] = []
        self._logs: list[tuple[Any, int]] = []
        self.roles: list[str] = []

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

    # What sessions tell.

    def begin(
        self,
        session: Any,
        members: Sequence[Any],
        brought: Mapping[str, Any],
        *,
        fit: Any,
    ) -> None:
        """Write down what each member that is at home here brings to a run."""
        # A fit may open several sessions, and is one run.
        number = len(self._runs)
        if fit is not None:
            number = next((n for log, n in self._logs if log is fit), number)
            self._logs.append((fit, number))
        run = self._runs.setdefault(number, _Run(fit is not None, 0, {}, {}))
        for name, holding in brought.items():
            run.n_rows = max(run.n_rows, holding.n_rows)
            run.blocks[name] = holding.block
            if holding.labels is not None:
                run.labels[name] = np.array(holding.labels.values)
        self._sessions.append((session, number, Order(members, run.n_rows)))
        for name in (session.centre, *session.names):
            if name not in self.roles:
                self.roles.append(name)

    def _of(self, session):
        """Number of the run that a session belongs to, and which rows are under way."""
        # By identity, and from the last: a callback may predict, in a session of its
        # own, while a fit goes on.
        for each, number, order in reversed(self._sessions):
            if each is session:
                return number, order
        self.begin(session, [], {}, fit=None)
        return self._of(session)

    def request(
        self, session: Any, operation: str, requests: Mapping[str, Any], opening: bool
    ) -> None:
        """Write down what is asked of whom, before it is."""
        _, order = self._of(session)
        arguments = next(iter(requests.values()), [operation, {}])[1]
        order.before(operation, arguments)
        for name, (_, sent) in requests.items():
            self._write(session, session.centre, name, operation, sent, opening)

    def reply(
        self,
        session: Any,
        operation: str,
        replies: Mapping[str, Any],
        receiver: str,
        opening: bool,
    ) -> None:
        """Write down what was answered to whom."""
        self._of(session)[1].after(operation)
        for name, reply in replies.items():
            self._write(session, name, receiver, operation, reply, opening)

    def _write(self, session, sender, receiver, operation, content, opening):
        # What stays inside one organisation is not received by anybody.
        if sender == receiver:
            return
        number, order = self._of(session)
        # Copied, because whoever has it may go on working in the same memory.
        copied = copy.deepcopy(content)
        rows = None if order.rows is None else order.rows.copy()
        seen = (number, order.epoch, sender, receiver, operation, copied, rows, opening)
        self._seen.append(Seen(*seen))

    def _close(self):
        # Sessions, logs and the parties that an order looks at are the estimator's.
        self._sessions, self._logs = [], []


@contextmanager
def record_views() -> Iterator[Views]:
    """Record what every role is handed and receives, in fits and predictions.

    The session itself is listened to, whatever the transport, so nothing that crosses
    is left out. In a simulation the view of a party also has its own columns, and that
    of the label owner the labels. Work in other threads or processes (``n_jobs``) is
    not seen, nor is a reply that came too late and was dropped.

    Yields
    ------
    views : Views
        By role: ``"server"``, or the name of a party.

    See Also
    --------
    record_communication : How much was sent, not what.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy import record_views
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> vfl = RandomProjectionVFL(LogisticRegression(), parties=3, random_state=0)
    >>> with record_views() as views:
    ...     vfl = vfl.fit(X, y)
    >>> views.roles
    ['server', 'party0', 'party1', 'party2']
    >>> views["server"].matrix(sender="party1").values.shape
    (569, 10)
    """
    views = Views()
    token = listening.set(views)
    try:
        yield views
    finally:
        listening.reset(token)
        views._close()


def _arrays_in(content, place=()):
    if isinstance(content, np.ndarray) and content.ndim:
        yield place, content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from _arrays_in(value, (*place, str(key)))
    elif isinstance(content, list | tuple):
        for i, value in enumerate(content):
            yield from _arrays_in(value, (*place, str(i)))
