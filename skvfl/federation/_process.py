"""Every party in an operating-system process of its own."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pickle
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import cloudpickle

from skvfl.exceptions import PartyError, PartyTypeError, PartyValueError
from skvfl.federation import _lifeline, _wire
from skvfl.federation._channel import (
    OversizeError,
    limit_blocking,
    receive,
    send,
)
from skvfl.federation._log import CommunicationLog
from skvfl.federation._member import Member
from skvfl.federation._party import LOGGER, Party, SealedParty
from skvfl.federation._replies import Reply
from skvfl.federation._transport import (
    Measure,
    Session,
    Transport,
    answer,
    lent,
)

_STOP_SECONDS = 5.0
_WATCH_SECONDS = 1.0
_NUMBER_BYTES = 8
# Shorter than a number, so no request of a protocol is like it.
_LEND = b"+"
# A header names every array and number of a reply; most have less than a kilobyte.
_HEADER_BYTES = 1 << 20
# What a party has learnt is its own affair; nobody opens it, but it must be kept.
_HOME_BYTES = 1 << 30
_ERROR_LETTERS = 4000
_LIFELINE = Path(_lifeline.__file__).read_text(encoding="utf-8")
_KINDS = {kind.__name__: kind for kind in (PartyError, PartyTypeError, PartyValueError)}


class ProcessTransport(Transport):
    """Every party in a process of its own: the proof of the boundary.

    This is one user's rehearsal: each run starts one Python process per party and hands
    it its member once, table and random streams included, as a pickle. From then on
    only messages in the wire format pass between the processes, the opening first. When
    the run ends, the parties come home without their blocks and the processes end. What
    a party has learnt comes home as bytes that only a process of this party opens
    again, in the next run: a fitted estimator keeps its transport. Only the party that
    runs the protocol itself is opened here.

    A party's warnings and tracebacks are printed by its own process. All processes of
    the parties end with the one that started them, even if it is killed.

    Starting a Python process per party costs seconds, so this transport shows that a
    protocol keeps to the boundary; it is not a way to go faster. Linux and macOS only.

    Parameters
    ----------
    timeout : float, default=None
        Seconds to wait for the replies to a call, the start of processes included; for
        as long as a party lives by default. Who is late ends the run with an error,
        where the estimator does not say how it goes on without a party.

    See Also
    --------
    LocalTransport : All parties in this process.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import ProcessTransport, RandomProjectionVFL
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> local = RandomProjectionVFL(LogisticRegression(), random_state=0).fit(X, y)
    >>> apart = RandomProjectionVFL(
    ...     LogisticRegression(), transport=ProcessTransport(timeout=60), random_state=0
    ... ).fit(X, y)
    >>> bool((local.predict_proba(X) == apart.predict_proba(X)).all())
    True
    """

    def __init__(self, timeout: float | None = None) -> None:
        self.timeout = timeout

    def connect(
        self,
        parties: Sequence[Party | Member],
        log: CommunicationLog,
        centre: str = "server",
    ) -> Session:
        """Start the parties' processes and open a session with them.

        Parameters
        ----------
        parties : sequence of Member or Party
            With what they hold; they hold nothing in this process afterwards.
        log : CommunicationLog
            Where messages are recorded.
        centre : str, default="server"
            Name of the organisation that runs the protocol.

        Returns
        -------
        session : Session

        Raises
        ------
        PartyError
            If a party's process does not start.
        """
        if self.timeout is not None and not (
            isinstance(self.timeout, int | float) and self.timeout > 0
        ):
            raise ValueError(
                f"timeout is a positive number of seconds or None, got {self.timeout!r}"
            )
        return _ProcessSession(parties, log, centre, self.timeout)

    def __repr__(self) -> str:
        return f"ProcessTransport(timeout={self.timeout})"


class _Request(NamedTuple):
    """What a party still owes a reply to."""

    number: bytes
    operation: str
    n_bytes: int


class _ProcessSession(Session):
    def __init__(
        self,
        parties: Sequence[Party | Member],
        log: CommunicationLog,
        centre: str,
        timeout: float | None,
    ) -> None:
        super().__init__(parties, log, centre)
        self._timeout = timeout
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._channels: dict[str, Connection] = {}
        self._doors: dict[str, Connection] = {}
        self._lifelines: dict[str, int] = {}
        self._exit_codes: dict[str, int] = {}
        self._owed: dict[str, list[_Request]] = {party.name: [] for party in parties}
        try:
            for party in parties:
                self._start(party.name)
            for party in parties:
                self._hand_over(party)
        except BaseException:
            self._abort()
            raise

    def _start(self, name: str) -> None:
        with contextlib.ExitStack() as far_ends:
            self._channels[name], far_channel = Pipe()
            far_ends.callback(far_channel.close)
            self._doors[name], far_door = Pipe()
            far_ends.callback(far_door.close)
            far_lifeline, self._lifelines[name] = os.pipe()
            far_ends.callback(os.close, far_lifeline)
            if math.isfinite(self._seconds):
                for connection in (self._channels[name], self._doors[name]):
                    limit_blocking(connection, self._seconds)
            handles = far_channel.fileno(), far_door.fileno()
            command = (
                # The same paths, so that classes of the user's own are found by their
                # names.
                f"import sys; sys.path[:] = {sys.path!r}; exec({_LIFELINE!r}); "
                f"end_with({os.getpid()}, {far_lifeline}); "
                f"from skvfl.federation._process import serve; serve{handles}"
            )
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-c", command],
                pass_fds=(*handles, far_lifeline),
                # A transformer that asks for input would wait for ever.
                stdin=subprocess.DEVNULL,
                # A group of its own, so that all that the party starts can be ended
                # with it.
                start_new_session=True,
            )

    @property
    def _seconds(self) -> float:
        return math.inf if self._timeout is None else self._timeout

    def _hand_over(self, party: Party | Member) -> None:
        message = cloudpickle.dumps(party)
        self._send(self._doors[party.name], party.name, message, "the handover")
        party.release()

    def late(self) -> set[str]:
        """Names of the parties that still owe a reply to a call that skipped them."""
        try:
            return {name for name in self.names if not self._catch_up(name, 0.0)}
        except BaseException:
            self._abort()
            raise

    def _exchange(
        self, requests: Mapping[str, Any], skip_late: bool
    ) -> dict[str, tuple[Any, Measure, Measure | None]]:
        if skip_late:
            # Whoever still works on one request is not given another to queue up.
            requests = {n: each for n, each in requests.items() if not self._owed[n]}
        for name, request in requests.items():
            self._wait_for(name)
            self._ask(name, request, self._expected[name])
        exchanged: dict[str, tuple[Any, Measure, Measure | None]] = {}
        start = time.monotonic()
        for name, request in requests.items():
            sent = _wire.measure(request)
            left = self._timeout
            if left is not None:
                # Counted from the start of the call: the parties work at the same time,
                # and waiting for each in full would add their timeouts up.
                left = max(left + start - time.monotonic(), 0.0)
            reply = self._next_reply(name, left)
            if reply is not None:
                exchanged[name] = (reply[1], sent, _wire.measure(reply))
            elif skip_late:
                exchanged[name] = (None, sent, None)
            else:
                self._out_of_time(name, request[0])
        return exchanged

    def _ask(self, name: str, request: Any, expected: Reply) -> None:
        # Nobody can answer a request, or repeat an answer to it, before it was made.
        number = secrets.token_bytes(_NUMBER_BYTES)
        message = _wire.pack(request)
        self._send(self._channels[name], name, message, request[0], number)
        self._owed[name].append(_Request(number, request[0], expected.n_bytes))

    def _catch_up(self, name: str, patience: float | None) -> bool:
        """Drop replies that nobody waits for any more; whether all have arrived."""
        while self._owed[name]:
            operation = self._owed[name][0].operation
            reply = self._next_reply(name, patience)
            if reply is None:
                return False
            self._came_late(name, operation, reply[1], _wire.measure(reply))
        return True

    def _wait_for(self, name: str) -> None:
        if not self._catch_up(name, self._timeout):
            self._out_of_time(name, self._owed[name][0].operation)

    def _send(
        self,
        connection: Connection,
        name: str,
        message: bytes,
        operation: str,
        number: bytes = b"",
    ) -> None:
        try:
            send(connection, message, number, seconds=self._seconds)
        except BlockingIOError:
            raise PartyError(
                name, f"it did not take in {operation!r} within {self._timeout} seconds"
            ) from None
        except OSError:
            self._died(name, operation)

    def _next_reply(self, name: str, patience: float | None) -> list[Any] | None:
        """Reply to the oldest request that is open; None if it is late."""
        number, operation, n_bytes = self._owed[name][0]
        most = n_bytes + _HEADER_BYTES + _NUMBER_BYTES
        frame = self._receive(self._channels[name], name, operation, patience, most)
        if frame is None:
            return None
        del self._owed[name][0]
        message = frame[:-_NUMBER_BYTES]
        try:
            reply = _wire.unpack(message, _HEADER_BYTES)
        except ValueError as exc:
            fault = f"its reply to {operation!r} cannot be read: {exc}"
        else:
            if frame[-_NUMBER_BYTES:] != number:
                fault = (
                    f"its reply is not to {operation!r}, which was asked last: it came "
                    "twice, too late or too early, or was altered"
                )
            elif _is_answer(reply):
                return list(reply)
            elif _is_error(reply):
                raise _KINDS[reply[1]](name, reply[2][:_ERROR_LETTERS])
            else:
                fault = f"its reply to {operation!r} is neither an answer nor an error"
        raise PartyError(name, fault)

    def _receive(
        self,
        connection: Connection,
        name: str,
        operation: str,
        patience: float | None,
        most: int,
    ) -> memoryview | None:
        """Next message of a party; None if it does not arrive in time."""
        process = self._processes[name]
        left = math.inf if patience is None else patience
        deadline = time.monotonic() + left
        try:
            while not connection.poll(min(left, _WATCH_SECONDS)):
                # A process that the party started may hold the connection open.
                if process.poll() is not None and not connection.poll():
                    raise EOFError
                left = max(deadline - time.monotonic(), 0.0)
                if not left:
                    return None
            return receive(connection, most, self._seconds)
        except BlockingIOError:
            raise PartyError(
                name,
                f"its reply to {operation!r} stood still for {self._timeout} seconds, "
                "or took longer than that to arrive",
            ) from None
        except OversizeError as exc:
            raise PartyError(
                name,
                f"its reply to {operation!r} has {exc.n_bytes} bytes where at most "
                f"{most} were expected",
            ) from None
        except (EOFError, OSError):
            self._died(name, operation)

    def _out_of_time(self, name: str, operation: str) -> NoReturn:
        raise PartyError(
            name, f"no reply to {operation!r} within {self._timeout} seconds"
        )

    def _died(self, name: str, operation: str) -> NoReturn:
        code = self._end(name, _STOP_SECONDS)
        raise PartyError(
            name, f"its process ended with exit code {code} during {operation!r}"
        )

    def _end(self, name: str, patience: float = 0.0) -> int:
        """End a party's process and all that it started; return its exit code."""
        if name not in self._exit_codes:
            process = self._processes[name]
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
            # The group, even if the process has ended: what it started may live on.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            self._exit_codes[name] = process.wait()
            os.close(self._lifelines.pop(name))
        return self._exit_codes[name]

    def halves(self) -> dict[str, Party]:
        """Copies of what the parties have learnt so far, to predict with."""
        halves = {}
        for name in self.names:
            self._wait_for(name)
            self._send(self._channels[name], name, _LEND, "lending its model")
            halves[name] = self._take(name, "lending its model")
        return halves

    def _dismiss(self) -> dict[str, Party]:
        return {name: self._call_home(name) for name in self.names}

    def _call_home(self, name: str) -> Party:
        self._wait_for(name)
        channel, door = self._channels[name], self._doors[name]
        self._send(channel, name, b"", "coming home")
        party = self._take(name, "coming home")
        self._end(name, _STOP_SECONDS)
        for connection in (channel, door):
            if _has_more(connection):
                raise PartyError(name, "it sent more than it was asked for")
        return party

    def _take(self, name: str, what: str) -> Party:
        """What a party has learnt, as others may keep it."""
        door = self._doors[name]
        state = self._receive(door, name, what, self._timeout, _HOME_BYTES)
        if state is None:
            self._out_of_time(name, what)
        if name != self.centre:
            return SealedParty(name, bytes(state))
        # Whoever runs the protocol opens what is its own.
        party: Party = pickle.loads(state)
        return party

    def _abort(self) -> None:
        for connection in [*self._channels.values(), *self._doors.values()]:
            connection.close()
        for name in self._processes:
            self._owed[name].clear()
            self._end(name)
        while self._lifelines:
            os.close(self._lifelines.popitem()[1])


def _is_answer(reply: Any) -> bool:
    if not isinstance(reply, list) or len(reply) != 2:
        return False
    return isinstance(reply[0], str) and reply[0] == "ok"


def _is_error(reply: Any) -> bool:
    return (
        isinstance(reply, list)
        and len(reply) == 3
        and all(isinstance(part, str) for part in reply)
        and reply[0] == "error"
        and reply[1] in _KINDS
    )


def _has_more(connection: Connection) -> bool:
    """Whether there is anything but the end to read."""
    try:
        return connection.poll() and os.read(connection.fileno(), 1) != b""
    except OSError:
        return False


def serve(channel_handle: int, door_handle: int) -> None:
    """Run one party: take it over, answer requests, send it home without a block."""
    channel, door = Connection(channel_handle), Connection(door_handle)
    LOGGER.addHandler(logging.StreamHandler())
    LOGGER.setLevel(logging.DEBUG)
    with contextlib.suppress(EOFError, OSError):
        party: Party | Member = pickle.loads(door.recv_bytes())
        if isinstance(party, SealedParty):
            party = party.open()
        elif isinstance(party, Member):
            party.go_home()
        # An empty message calls the party home.
        while request := channel.recv_bytes():
            if request == _LEND:
                door.send_bytes(cloudpickle.dumps(lent(party)))
                continue
            message, number = request[:-_NUMBER_BYTES], request[-_NUMBER_BYTES:]
            try:
                reply, _ = answer(party, *_wire.unpack(message))
            except PartyError as exc:
                reply = ["error", type(exc).__name__, exc.message]
            channel.send_bytes(_wire.pack(reply) + number)
        kept = party.dismiss() if isinstance(party, Member) else party
        kept.release()
        door.send_bytes(cloudpickle.dumps(kept))
