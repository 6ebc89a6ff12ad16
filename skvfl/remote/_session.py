"""A session of which some parties are at other organisations."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from skvfl.exceptions import PartyError, PartyValueError, RefusedError
from skvfl.federation import (
    CommunicationLog,
    Handle,
    Member,
    Party,
    Session,
    _wire,
)
from skvfl.federation._replies import NOTHING, Reply
from skvfl.federation._transport import Measure, answer, lent
from skvfl.remote._endpoint import (
    HELLO,
    KEEP,
    KEEP_EPOCH,
    MOST_HEADER,
    pack_hello,
    pack_request,
    read_reply,
)

# A request has so much longer for every byte of it, and less for every byte that its
# reply may have at most.
_BYTES_PER_SECOND = 1e6
_MOST_BYTES_PER_SECOND = 1e7
_GREETING, _MODEL = Reply(1 << 16), Reply(1 << 10)


class _Request(NamedTuple):
    """What a party still owes a reply to."""

    number: int
    operation: str
    expected: Reply
    extra_seconds: float
    # Of a reply that nobody waits for any more, but that has to be counted.
    is_late: bool = False


class _Partner:
    """What one other organisation was asked, and still owes."""

    def __init__(self, name: str, line: Any) -> None:
        self.name = name
        self.line = line
        self.owed: deque[_Request] = deque()
        # Of the request after the one that was answered last.
        self.first = 0
        # Why nothing more will come of it.
        self.lost: PartyError | None = None
        # Under which name it has kept its half of an epoch last.
        self.kept: str | None = None
        self._number = 0
        # Requests that need no answer travel together with the one after them.
        self._held: list[bytes] = []

    def flush(self) -> None:
        """Send what was put off."""
        if self._held:
            self.line.send(*self._held)
            self._held.clear()

    def ask(self, operation: str, expected: Reply, **arguments: Any) -> Measure:
        """Send a request without waiting; what its frame measures.

        One without an answer is put off until :meth:`flush`, or the next request.
        """
        number, self._number = self._number, self._number + 1
        waits = expected is not NOTHING
        if operation == HELLO:
            frame = pack_hello(number)
        else:
            frame = pack_request(number, operation, waits, **arguments)
        self._held.append(frame)
        if not waits:
            return len(frame), _has_array(frame)
        # What was put off has to arrive before it.
        seconds = sum(map(len, self._held)) / _BYTES_PER_SECOND
        self.flush()
        seconds += expected.n_bytes / _MOST_BYTES_PER_SECOND
        self.owed.append(_Request(number, operation, expected, seconds))
        return len(frame), _has_array(frame)


class RemoteSession(Session):
    """A session with members that are at home here, and with partners.

    Parameters
    ----------
    members : sequence of Member
        Those at home.
    log : CommunicationLog
        Where messages are recorded.
    centre : str
        Name of the organisation that runs the protocol.
    names : list of str
        Everybody that takes part, in the order of the protocol.
    reach : callable
        ``reach(name)`` gives a line to a partner.
    timeout : float
        Seconds that a partner has for a reply, whatever its length.
    forget : callable, default=None
        ``forget(name)`` is called where a partner no longer knows the list of rows.
    """

    keeps_epochs = True

    def __init__(
        self,
        members: Sequence[Member],
        log: CommunicationLog,
        centre: str,
        names: Sequence[str],
        reach: Callable[[str], Any],
        timeout: float,
        forget: Callable[[str], object] = lambda name: None,
    ) -> None:
        super().__init__(members, log, centre)
        self._forget = forget
        self.names = list(names)
        self._timeout = timeout
        self._home = {member.name: member for member in members}
        self._partners: dict[str, _Partner] = {}
        self._opened: dict[str, Mapping[str, Any]] = {}
        self._meanwhile: Callable[[], object] | None = None
        try:
            for name in self.names:
                if name not in self._home:
                    self._partners[name] = _Partner(name, reach(name))
            # Nobody waits for the greeting: it is answered with what comes next.
            for partner in self._partners.values():
                sent = partner.ask(HELLO, _GREETING)
                log.record(centre, partner.name, HELLO, *sent, opening=True)
        except BaseException:
            self._abort()
            raise

    def open(
        self,
        each: Mapping[str, Mapping[str, Any]],
        to: Any = None,
        reply_to: str | None = None,
    ) -> dict[str, dict[str, int]]:
        """Let members make their parties; see :meth:`Session.open`."""
        self._opened = dict(each)
        try:
            return super().open(each, to, reply_to)
        except PartyError as exc:
            # Its list has expired, or ids on it have gone from its table.
            if "compare the ids again" not in exc.message:
                raise
            self._forget(exc.party)
            why = f"{exc.message} (which happens when this is called again)"
            raise type(exc)(exc.party, why) from None

    def halves(self) -> dict[str, Party]:
        """Copies of what those at home have learnt, and handles of the others' copies.

        Nobody waits for these, see :meth:`settled`. There are none while a partner is
        late, or owes an answer to the last time: it would have to keep three.
        """
        if self.late() or not self.settled():
            return {}
        halves: dict[str, Any] = {}
        # First those that are far away, as in every exchange.
        for name, partner in self._partners.items():
            model = secrets.token_hex(16)
            sent = partner.ask(KEEP_EPOCH, _MODEL, model=model)
            self._record(self.centre, name, KEEP_EPOCH, sent)
            halves[name] = Handle(name, model)
        halves |= {name: lent(member) for name, member in self._home.items()}
        return {name: halves[name] for name in self.names}

    def settled(self, *, wait: bool = False) -> bool:
        """Whether all partners have kept what they were asked to keep."""
        start = time.monotonic()
        for partner in self._partners.values():
            while any(each.operation == KEEP_EPOCH for each in partner.owed):
                left = start + self._timeout - time.monotonic() if wait else 0.0
                if self._next_reply(partner, max(left, 0.0)) is not None:
                    continue
                if not wait:
                    return False
                fault = f"it has not kept its half within {self._timeout:g} seconds"
                raise PartyError(partner.name, fault)
        return True

    def late(self) -> set[str]:
        """Names of the parties that still owe a reply to a call that skipped them."""
        return self.lost() | {
            name
            for name, partner in self._partners.items()
            if any(each.is_late for each in partner.owed)
            and not self._catch_up(partner)
        }

    def lost(self) -> set[str]:
        """Names of the parties whose connection was lost in a call that skips them."""
        return {name for name, partner in self._partners.items() if partner.lost}

    def _exchange_meanwhile(
        self,
        requests: Mapping[str, Any],
        skip_late: bool,
        meanwhile: Callable[[], object],
    ) -> dict[str, tuple[Any, Measure, Measure | None]]:
        self._meanwhile = meanwhile
        return self._exchange(requests, skip_late)

    def _do_meanwhile(self) -> None:
        """What else there is to do once others have been asked."""
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()

    def _exchange(
        self, requests: Mapping[str, Any], skip_late: bool
    ) -> dict[str, tuple[Any, Measure, Measure | None]]:
        # Of this call; there may be another one meanwhile.
        expectations = self._expected
        if skip_late:
            late = self.late()
            requests = {n: each for n, each in requests.items() if n not in late}
        for name in self.lost() & requests.keys():
            raise self._partners[name].lost or PartyError(name, "it is gone")
        start = time.monotonic()
        sent = {}
        # First those that are far away: they work while the ones at home do.
        for name, request in requests.items():
            if name in self._partners:
                operation, arguments = request
                expected = expectations[name]
                sent[name] = self._partners[name].ask(operation, expected, **arguments)
        if self._home.keys() & requests.keys():
            # What is done here takes time, in which nobody need stand still.
            for partner in self._partners.values():
                partner.flush()
        exchanged: dict[str, tuple[Any, Measure, Measure | None]] = {
            name: self._ask_home(name, request)
            for name, request in requests.items()
            if name in self._home
        }
        self._do_meanwhile()
        for name in requests:
            if name not in self._partners:
                continue
            partner = self._partners[name]
            if expectations[name] is NOTHING:
                # It does what comes next after this, so nobody has to wait; an error
                # arrives before the next answer that is waited for.
                exchanged[name] = None, sent[name], (0, False)
                continue
            reply = self._receive(partner, start, skip_late)
            value, received = (None, None) if reply is None else reply
            exchanged[name] = value, sent[name], received
        return {name: exchanged[name] for name in requests}

    def _ask_home(self, name: str, request: Any) -> tuple[Any, Measure, Measure]:
        copy = name != self.centre
        (operation, arguments), sent = _wire.deliver(request, copy=copy)
        reply, received = answer(self._home[name], operation, arguments, copy=copy)
        return reply[1], sent, received

    def _receive(
        self, partner: _Partner, start: float, skip_late: bool
    ) -> tuple[Any, Measure] | None:
        """The reply to the request that was made last; None if it is late."""
        while True:
            request = partner.owed[0]
            patience = self._timeout
            if not skip_late:
                patience += request.extra_seconds
            # Counted from the start of the call: all partners work at the same time.
            left = max(start + patience - time.monotonic(), 0.0)
            try:
                reply = self._next_reply(partner, left)
            except PartyError:
                if skip_late and _is_gone(partner):
                    return None
                raise
            if reply is None and skip_late:
                last = partner.owed.pop()
                partner.owed.append(last._replace(is_late=True))
                return None
            if reply is None:
                raise PartyError(
                    partner.name,
                    f"no reply to {request.operation!r} within {patience:g} seconds "
                    "(the timeout of connect, and more for long messages)",
                )
            if not partner.owed:
                return reply

    def _next_reply(
        self, partner: _Partner, seconds: float
    ) -> tuple[Any, Measure] | None:
        """Reply to the oldest open request; None if it does not arrive in time."""
        try:
            frame = partner.line.receive(seconds)
        except PartyError as exc:
            partner.lost = exc
            raise
        if frame is None:
            return None
        request = partner.owed.popleft()
        number, operation = request.number, request.operation
        most = request.expected.n_bytes + MOST_HEADER
        if len(frame) > most:
            # Before it is read, which would take as much memory again.
            raise PartyError(
                partner.name,
                f"its reply to {operation!r} has {len(frame)} bytes where at most "
                f"{most} are expected",
            )
        value = read_reply(partner.name, frame, number, operation, partner.first)
        partner.first = number + 1
        if operation == KEEP_EPOCH:
            partner.kept = value
        measure = len(frame), _has_array(frame)
        # What somebody waits for is recorded there.
        if request.is_late and operation != KEEP_EPOCH:
            self._came_late(partner.name, operation, value, measure)
        elif operation in (HELLO, KEEP_EPOCH):
            self.log.record(
                *(partner.name, self.centre, operation, *measure),
                opening=operation == HELLO,
            )
        return value, measure

    def _catch_up(self, partner: _Partner) -> bool:
        """Take in late replies that have arrived; whether these are all."""
        while any(each.is_late for each in partner.owed):
            try:
                if self._next_reply(partner, 0.0) is None:
                    return False
            except PartyError:
                if _is_gone(partner):
                    return False
                raise
        return True

    def _dismiss(self) -> dict[str, Party]:
        for name, partner in self._partners.items():
            # What serves a prediction has learnt nothing in it, and whoever is gone
            # has kept what it had learnt until then.
            if self._opened[name]["role"] is not None and not partner.lost:
                sent = partner.ask(KEEP, _MODEL)
                self._record(self.centre, name, KEEP, sent)
        start = time.monotonic()
        home: dict[str, Any] = {}
        for name in self.names:
            if name in self._home:
                home[name] = self._home[name].dismiss()
            else:
                home[name] = Handle(name, self._model_of(self._partners[name], start))
        return home

    def _model_of(self, partner: _Partner, start: float) -> str:
        """Under which name a partner has kept what it learnt."""
        if partner.lost:
            if partner.kept is None:
                raise partner.lost
            return partner.kept
        model = self._opened[partner.name].get("model")
        while partner.owed:
            keeps = partner.owed[-1].operation == KEEP
            # Errors of what was not waited for have to arrive before the session ends.
            reply = self._receive(partner, start, skip_late=False)
            if keeps and reply is not None:
                model, received = reply
                self._record(partner.name, self.centre, KEEP, received)
        if not isinstance(model, str):
            raise PartyValueError(partner.name, "it did not name what it has kept")
        return model

    def _record(self, sender: str, receiver: str, what: str, sent: Measure) -> None:
        # Where no round was begun, the whole session belongs to an opening.
        opening = not self.log.has_begun
        self.log.record(sender, receiver, what, *sent, opening=opening)

    def _abort(self) -> None:
        for partner in self._partners.values():
            partner.line.close()
        for member in self._home.values():
            member.release()


def _is_gone(partner: _Partner) -> bool:
    """Whether its connection was lost, and not refused."""
    return partner.lost is not None and not isinstance(partner.lost, RefusedError)


def _has_array(frame: bytes) -> bool:
    """Whether a frame has more than its header."""
    start = len(_wire.MAGIC) + 4
    length = int.from_bytes(frame[start - 4 : start], "little")
    return len(frame) > start + length
