"""Transports carry operations to parties, bring the replies, and count both."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from skvfl.exceptions import PartyError
from skvfl.federation import _wire
from skvfl.federation._log import CommunicationLog
from skvfl.federation._member import OPEN, Member
from skvfl.federation._party import Party, SealedParty, gives
from skvfl.federation._replies import (
    ANYTHING,
    NOTHING,
    Count,
    Fields,
    Reply,
    all_finite,
    check_replies,
)
from skvfl.federation._watching import listening

Measure = tuple[int, bool]
_MOST_COLUMNS = 1 << 24
_NO_REPLY = _wire.measure(["ok", None])


class Session(ABC):
    """One protocol run: its parties, the place where it runs, and its log.

    A session is a context manager. When the block ends well the parties come home
    without what they held, as ``parties``; when it fails they are dismissed. A call
    that fails ends the session.

    Parameters
    ----------
    parties : sequence of Member or Party
        In the order of the protocol. Estimators give members, which make their parties
        when they are told to (:meth:`open`). Parties that are made already serve
        protocols without an opening.
    log : CommunicationLog
        Where messages are recorded.
    centre : str
        Name of the organisation that runs the protocol: ``"server"``, or a party.

    Attributes
    ----------
    parties : dict of str to Party
        The parties, once the session has ended well.

    See Also
    --------
    Transport : Opens one.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skvfl import CommunicationLog, LocalTransport
    >>> from skvfl.federation import TransformerParty
    >>> log = CommunicationLog()
    >>> shop = TransformerParty("shop", StandardScaler()).holding(np.ones((4, 3)))
    >>> with LocalTransport().connect([shop], log) as session:
    ...     session.begin_round()
    ...     replies = session.call("fit_transform")
    >>> replies["shop"].shape, log.n_messages
    ((4, 3), 1)
    """

    # Whether ``halves`` lets partners elsewhere keep theirs, which may be lost later.
    keeps_epochs = False

    def __init__(
        self, parties: Sequence[Party | Member], log: CommunicationLog, centre: str
    ) -> None:
        self.names = [party.name for party in parties]
        self.log = log
        self.centre = centre
        self.parties: dict[str, Party] = {}
        # Of the call that is under way.
        self._expected: Mapping[str, Reply] = {}

    def begin_round(self) -> None:
        """Start the next communication round."""
        self.log.begin_round()

    def call(
        self,
        operation: str,
        *,
        to: Iterable[str] | None = None,
        reply_to: str | None = None,
        each: Mapping[str, Mapping[str, Any]] | None = None,
        skip_late: bool = False,
        reply: Reply | Mapping[str, Reply] = ANYTHING,
        opening: bool = False,
        meanwhile: Callable[[], object] | None = None,
        **arguments: Any,
    ) -> dict[str, Any]:
        """Ask parties for an operation.

        Parameters
        ----------
        operation : str
            Name of the operation.
        to : iterable of str, default=None
            Names of the parties; all of them by default.
        reply_to : str, default=None
            Who receives the replies; the centre by default. A party that keeps its
            own answer replies to itself, and nothing is counted.
        each : dict of str to dict, default=None
            Further arguments for each party asked, by its name.
        skip_late : bool, default=False
            Whether a party that does not answer in time is left out of the replies
            instead of ending the session. What it answers later is counted and
            dropped, and until then such calls do not ask it again. A party that
            stalls in the middle of a message, which is longer than a connection holds,
            still ends the session: what is left of it cannot be told from the next one.
        reply : Reply or dict of str to Reply, default=ANYTHING
            What is expected of everybody's reply, or of each party's by its name.
        opening : bool, default=False
            Whether it is a part of opening the run, which comes before the first round.
        meanwhile : callable, default=None
            What else is to be done, by calls to other parties, and may be while the
            answers of parties elsewhere are under way.
        **arguments : arrays, scalars, strings, lists and dicts
            Sent to every party asked.

        Returns
        -------
        replies : dict of str to reply
            In the order of the parties, whatever order the replies arrived in.

        Raises
        ------
        PartyError
            If a party fails, dies, (but for ``skip_late``) does not answer in time, or
            sends what was not expected.
        """
        names = self._in_order(to)
        if not names:
            return {}
        to_all = [operation, arguments]
        requests = dict.fromkeys(names, to_all)
        for name, own in (each or {}).items():
            if name in requests:
                requests[name] = [operation, {**arguments, **own}]
        expected = dict.fromkeys(names, reply) if isinstance(reply, Reply) else reply
        self._expected = expected
        listener = listening.get()
        try:
            # Before the exchange, because a party may write into what it is sent.
            if listener is not None:
                listener.request(self, operation, requests, opening)
            # Interrupts included: no party may keep its table, or its process, for a
            # run that nobody goes on with.
            if meanwhile is None:
                exchanged = self._exchange(requests, skip_late)
            else:
                exchanged = self._exchange_meanwhile(requests, skip_late, meanwhile)
        except BaseException:
            self._abort()
            raise
        receiver = self.centre if reply_to is None else reply_to
        replies = self._logged(exchanged, operation, receiver, opening)
        if listener is not None:
            listener.reply(self, operation, replies, receiver, opening)
        try:
            # After all are logged: a refused reply has crossed as well.
            check_replies(replies, expected, operation)
        except PartyError:
            self._abort()
            raise
        return replies

    def _in_order(self, to: Iterable[str] | None) -> list[str]:
        """Names of who is asked, in the order of the protocol.

        Not in the caller's: sums over parties must not depend on it.
        """
        if to is None:
            return self.names
        asked = set(to)
        names = [name for name in self.names if name in asked]
        if len(names) < len(asked):
            raise ValueError(f"no such party: {sorted(asked.difference(names))}")
        return names

    def _logged(
        self,
        exchanged: Mapping[str, tuple[Any, Measure, Measure | None]],
        operation: str,
        receiver: str,
        opening: bool,
    ) -> dict[str, Any]:
        """Count what has crossed; the replies of who answered in time."""
        replies: dict[str, Any] = {}
        centre, record = self.centre, self.log.record
        for name, (answered, (size, has_array), received) in exchanged.items():
            record(centre, name, operation, size, has_array, opening=opening)
            if received is None:
                continue
            size, has_array = received
            # A message that has no byte did not cross.
            if size:
                record(name, receiver, operation, size, has_array, opening=opening)
            replies[name] = answered
        return replies

    def _came_late(
        self, name: str, operation: str, reply: Any, measure: Measure
    ) -> None:
        """A reply that nobody waits for any more is used by nobody, and has crossed."""
        self.log.record(name, self.centre, operation, *measure)
        listener = listening.get()
        if listener is not None:
            listener.late(self, operation, name, reply)

    def _exchange_meanwhile(
        self,
        requests: Mapping[str, Any],
        skip_late: bool,
        meanwhile: Callable[[], object],
    ) -> dict[str, tuple[Any, Measure, Measure | None]]:
        """As :meth:`_exchange`, with something else to do that asks other parties."""
        expected = self._expected
        meanwhile()
        self._expected = expected
        return self._exchange(requests, skip_late)

    def ask(self, party: str, operation: str, **arguments: Any) -> Any:
        """Reply of one party; see :meth:`call`.

        Parameters
        ----------
        party : str
            Name of the party.
        operation : str
            Name of the operation.
        **arguments : arrays, scalars, strings, lists and dicts
            What :meth:`call` takes.

        Returns
        -------
        reply : reply
        """
        return self.call(operation, to=[party], **arguments)[party]

    def tell(self, operation: str, **arguments: Any) -> None:
        """Ask parties for an operation that has no answer; see :meth:`call`.

        Parameters
        ----------
        operation : str
            Name of the operation.
        **arguments : arrays, scalars, strings, lists and dicts
            What :meth:`call` takes.
        """
        self.call(operation, reply=NOTHING, **arguments)

    def open(
        self,
        each: Mapping[str, Mapping[str, Any]],
        to: Iterable[str] | None = None,
        reply_to: str | None = None,
    ) -> dict[str, dict[str, int]]:
        """Let members make their parties.

        Parameters
        ----------
        each : dict of str to dict
            For each member ``role`` and, but for one that was fitted, ``settings``.
        to : iterable of str, default=None
            Names of the members; all of them by default.
        reply_to : str, default=None
            Who is told what they hold; the centre by default.

        Returns
        -------
        held : dict of str to dict
            What each member says it holds, see :meth:`Member.open`.
        """
        most = int(np.iinfo(np.int64).max)
        sizes = dict.fromkeys(("n_rows", "n_empty"), Count(0, most))
        # How much a member may send goes by it.
        sizes["n_columns"] = Count(0, _MOST_COLUMNS)
        held: dict[str, dict[str, int]] = self.call(
            OPEN,
            to=to,
            each=each,
            reply_to=reply_to,
            reply=Fields(sizes),
            opening=True,
        )
        return held

    def late(self) -> set[str]:
        """Names of the parties that still owe a reply to a call that skipped them."""
        return set()

    def lost(self) -> set[str]:
        """Names of those of them that are gone, and come back in no call."""
        return set()

    def halves(self) -> dict[str, Party]:
        """Copies of what the parties have learnt so far, to predict with.

        Returns
        -------
        halves : dict of str to Party or Handle
            None of them where that cannot be had. What a partner elsewhere has learnt
            stays there, and a handle stands for it; see :meth:`settled`.
        """
        return {}

    def settled(self, *, wait: bool = False) -> bool:
        """Whether all partners elsewhere have kept what :meth:`halves` asked for last.

        Parameters
        ----------
        wait : bool, default=False
            Whether to wait for them.

        Raises
        ------
        PartyError
            If one of them is gone.
        """
        return True

    @abstractmethod
    def _exchange(
        self, requests: Mapping[str, Any], skip_late: bool
    ) -> dict[str, tuple[Any, Measure, Measure | None]]:
        """Reply of each party, and what the request and the reply measure.

        A reply that is late measures None; who was late before is left out. One that is
        larger than expected may be refused before it is read. Where nobody waits for an
        answer it has no byte.
        """

    @abstractmethod
    def _dismiss(self) -> dict[str, Party]:
        """Call the parties home and return them; :meth:`_abort` follows."""

    @abstractmethod
    def _abort(self) -> None:
        """End every party's part at once, and make it drop what it holds."""

    def end(self) -> None:
        """End the session without calling anybody home."""
        self._abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.parties = self._dismiss()
        finally:
            self._abort()


class Transport(ABC):
    """How operations reach the parties.

    A transport holds settings only, so that it can be a constructor parameter:
    estimators are cloned and pickled with it, and open a session for every run.

    Attributes
    ----------
    timeout : float or None
        Seconds to wait for a party's reply; for as long as the party lives if None.

    See Also
    --------
    skvfl.LocalTransport : All parties in this process.
    skvfl.ProcessTransport : Every party in a process of its own.

    Examples
    --------
    >>> from skvfl import LocalTransport
    >>> from skvfl.federation import Transport
    >>> isinstance(LocalTransport(), Transport)
    True
    """

    timeout: float | None = None

    @abstractmethod
    def connect(
        self,
        parties: Sequence[Party | Member],
        log: CommunicationLog,
        centre: str = "server",
    ) -> Session:
        """Hand the parties over and open a session with them.

        Parameters
        ----------
        parties : sequence of Member or Party
            With what they hold.
        log : CommunicationLog
            Where messages are recorded.
        centre : str, default="server"
            Name of the organisation that runs the protocol.

        Returns
        -------
        session : Session
        """


class LocalTransport(Transport):
    """All parties in this process; the default.

    Everything is delivered as the wire would deliver it: with the same types, and
    copied, unless the sender keeps no part of it.

    See Also
    --------
    ProcessTransport : Every party in a process of its own.

    Examples
    --------
    >>> from skvfl import LocalTransport, RandomProjectionVFL
    >>> RandomProjectionVFL(transport=LocalTransport())
    RandomProjectionVFL(transport=LocalTransport())
    """

    def connect(
        self,
        parties: Sequence[Party | Member],
        log: CommunicationLog,
        centre: str = "server",
    ) -> Session:
        """Open a session with parties that live in this process.

        Parameters
        ----------
        parties : sequence of Member or Party
            With what they hold.
        log : CommunicationLog
            Where messages are recorded.
        centre : str, default="server"
            Name of the organisation that runs the protocol.

        Returns
        -------
        session : Session
        """
        return _LocalSession(parties, log, centre)

    def __repr__(self) -> str:
        return "LocalTransport()"


class _LocalSession(Session):
    def __init__(
        self, parties: Sequence[Party | Member], log: CommunicationLog, centre: str
    ) -> None:
        super().__init__(parties, log, centre)
        for party in parties:
            kept = party.fitted if isinstance(party, Member) else party
            if isinstance(kept, SealedParty):
                # It refuses, and says which transport opens it.
                kept.perform("connect", {})
        self._present = {party.name: party for party in parties}

    def halves(self) -> dict[str, Party]:
        """Copies of what the parties have learnt so far, to predict with."""
        return {name: lent(party) for name, party in self._present.items()}

    def _exchange(
        self, requests: Mapping[str, Any], skip_late: bool
    ) -> dict[str, tuple[Any, Measure, Measure | None]]:
        exchanged: dict[str, tuple[Any, Measure, Measure | None]] = {}
        last, sent = None, (0, True)
        for name, request in requests.items():
            # Within one organisation nothing is sent, so nothing need be copied.
            copy = name != self.centre
            # A request without arrays may be delivered once for all; arrays are copied
            # for each, so that no party can write into another's.
            if request is not last or sent[1]:
                (operation, arguments), sent = _wire.deliver(request, copy=copy)
                last = request
            party = self._present[name]
            reply, received = answer(party, operation, arguments, copy=copy)
            exchanged[name] = (reply[1], sent, received)
        return exchanged

    def _dismiss(self) -> dict[str, Party]:
        return {
            name: each.dismiss() if isinstance(each, Member) else each
            for name, each in self._present.items()
        }

    def _abort(self) -> None:
        for party in self._present.values():
            party.release()


def lent(party: Party | Member) -> Party:
    """A copy of a party as it is now, which holds nothing of its run."""
    made = party.party if isinstance(party, Member) else party
    assert made is not None
    # Deep, because training goes on in the same networks.
    party = copy.deepcopy(made.again())
    # As it would come home.
    party.release()
    return party


def answer(
    party: Party | Member,
    operation: str,
    arguments: dict[str, Any],
    *,
    copy: bool = True,
) -> tuple[list[Any], Measure]:
    """A party's answer to a request as the wire delivers it, and what it measures."""
    reply = party.perform(operation, arguments)
    # Most operations answer nothing, and what that measures is known.
    if reply is None:
        return ["ok", None], _NO_REPLY
    made = party.party if isinstance(party, Member) else party
    copy = copy and not gives(type(made), operation)
    try:
        return _wire.deliver(["ok", reply], copy=copy)
    except TypeError as exc:
        raise PartyError(party.name, f"its reply to {operation!r}: {exc}") from None


def check_rows(
    replies: Mapping[str, Any], n_rows: int, widths: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """Validate one matrix per party at the boundary.

    Parameters
    ----------
    replies : dict of str to reply
        What the parties sent.
    n_rows : int
        Number of rows that everybody speaks about.
    widths : dict of str to int, default=None
        Number of columns that each party must send; any number by default.

    Returns
    -------
    matrices : list of ndarray of shape (n_rows, n_columns)
        In the order of ``replies``.

    Raises
    ------
    PartyError
        If a reply is not a finite matrix of the expected shape.
    """
    for party, reply in replies.items():
        if not isinstance(reply, np.ndarray) or reply.ndim != 2:
            raise PartyError(party, "its reply is not a matrix")
        if len(reply) != n_rows:
            raise PartyError(
                party, f"it sent {len(reply)} rows where {n_rows} were expected"
            )
        if widths is not None and reply.shape[1] != widths[party]:
            raise PartyError(
                party,
                f"it sent {reply.shape[1]} columns where {widths[party]} were expected",
            )
    check_finite_rows(replies)
    return list(replies.values())


def check_finite_rows(replies: Mapping[str, np.ndarray]) -> None:
    """The last part of :func:`check_rows`, for matrices of the expected shape.

    Parameters
    ----------
    replies : dict of str to ndarray
        What the parties sent.

    Raises
    ------
    PartyError
        If one of them holds values that are not finite.
    """
    for party, reply in replies.items():
        if not all_finite(reply):
            raise PartyError(
                party,
                "its reply holds values that are not finite: look at the scales of its "
                "columns, and lower the learning rate where training diverges",
            )
