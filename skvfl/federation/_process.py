"""Every party in an operating-system process of its own."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import cloudpickle

from skvfl.exceptions import PartyError, PartyTypeError, PartyValueError
from skvfl.federation import _wire
from skvfl.federation._log import CommunicationLog
from skvfl.federation._party import Party
from skvfl.federation._transport import Measure, Session, Transport, answer

_STOP_SECONDS = 5.0
_WATCH_SECONDS = 1.0
_KINDS = {kind.__name__: kind for kind in (PartyError, PartyTypeError, PartyValueError)}


class ProcessTransport(Transport):
    """Every party in a process of its own: the proof of the boundary.

    Each run starts one Python process per party and hands the party and its block over
    once; from then on only messages in the wire format pass between the processes. When
    the run ends, the parties come home without their blocks and the processes end.

    A party's warnings and tracebacks are printed by its own process.

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
        self, parties: Sequence[Party], log: CommunicationLog, centre: str = "server"
    ) -> Session:
        """Start the parties' processes and open a session with them.

        Parameters
        ----------
        parties : sequence of Party
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


class _ProcessSession(Session):
    def __init__(
        self,
        parties: Sequence[Party],
        log: CommunicationLog,
        centre: str,
        timeout: float | None,
    ) -> None:
        super().__init__(parties, log, centre)
        self._timeout = timeout
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._channels: dict[str, Connection] = {}
        self._doors: dict[str, Connection] = {}
        self._exit_codes: dict[str, int] = {}
        self._owed: dict[str, list[str]] = {party.name: [] for party in parties}
        try:
            for party in parties:
                self._start(party.name)
            for party in parties:
                self._hand_over(party)
        except BaseException:
            self._abort()
            raise

    def _start(self, name: str) -> None:
        self._channels[name], far_channel = Pipe()
        self._doors[name], far_door = Pipe()
        if self._timeout is not None and math.isfinite(self._timeout):
            for connection in (self._channels[name], self._doors[name]):
                _limit_blocking(connection, self._timeout)
        handles = far_channel.fileno(), far_door.fileno()
        command = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from skvfl.federation._process import serve; serve{handles}"
        )
        self._processes[name] = subprocess.Popen(
            [sys.executable, "-c", command],
            pass_fds=handles,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        far_channel.close()
        far_door.close()

    def _hand_over(self, party: Party) -> None:
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
            requests = {n: each for n, each in requests.items() if not self._owed[n]}
        for name, request in requests.items():
            self._wait_for(name)
            self._send(self._channels[name], name, _wire.pack(request), request[0])
            self._owed[name].append(request[0])
        exchanged: dict[str, tuple[Any, Measure, Measure | None]] = {}
        start = time.monotonic()
        for name, request in requests.items():
            sent = _wire.measure(request)
            left = self._timeout
            if left is not None:
                left = max(left + start - time.monotonic(), 0.0)
            reply = self._next_reply(name, left)
            if reply is not None:
                exchanged[name] = (reply[1], sent, _wire.measure(reply))
            elif skip_late:
                exchanged[name] = (None, sent, None)
            else:
                self._out_of_time(name, request[0])
        return exchanged

    def _catch_up(self, name: str, patience: float | None) -> bool:
        """Drop replies that nobody waits for any more; whether all have arrived."""
        while self._owed[name]:
            operation = self._owed[name][0]
            reply = self._next_reply(name, patience)
            if reply is None:
                return False
            self.log.record(name, self.centre, operation, *_wire.measure(reply))
        return True

    def _wait_for(self, name: str) -> None:
        if not self._catch_up(name, self._timeout):
            self._out_of_time(name, self._owed[name][0])

    def _send(
        self, connection: Connection, name: str, message: bytes, operation: str
    ) -> None:
        try:
            connection.send_bytes(message)
        except BlockingIOError:
            raise PartyError(
                name, f"it did not take in {operation!r} within {self._timeout} seconds"
            ) from None
        except OSError:
            self._died(name, operation)

    def _next_reply(self, name: str, patience: float | None) -> list[Any] | None:
        """Reply to the oldest request that is open; None if it is late."""
        message = self._receive(
            self._channels[name], name, self._owed[name][0], patience
        )
        if message is None:
            return None
        del self._owed[name][0]
        reply: list[Any] = _wire.unpack(message)
        if reply[0] == "error":
            raise _KINDS[reply[1]](name, reply[2])
        return reply

    def _receive(
        self, connection: Connection, name: str, operation: str, patience: float | None
    ) -> bytes | None:
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
            return connection.recv_bytes()
        except BlockingIOError:
            raise PartyError(
                name,
                f"its reply to {operation!r} stood still for {self._timeout} seconds",
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
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            self._exit_codes[name] = process.wait()
        return self._exit_codes[name]

    def _dismiss(self) -> dict[str, Party]:
        parties = {}
        for name in self.names:
            self._wait_for(name)
            self._send(self._channels[name], name, b"", "coming home")
            home = self._receive(self._doors[name], name, "coming home", self._timeout)
            if home is None:
                self._out_of_time(name, "coming home")
            parties[name] = pickle.loads(home)
            self._end(name, _STOP_SECONDS)
        return parties

    def _abort(self) -> None:
        for connection in [*self._channels.values(), *self._doors.values()]:
            connection.close()
        for name in self._processes:
            self._owed[name].clear()
            self._end(name)


def _limit_blocking(connection: Connection, seconds: float) -> None:
    """Let a message fail whose other end stands still for so long half way."""
    whole, fraction = divmod(max(round(seconds * 1e6), 1), 10**6)
    limit = struct.pack("ll", min(whole, 2**31 - 1), fraction)
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def serve(channel_handle: int, door_handle: int) -> None:
    """Run one party: take it over, answer requests, send it home without a block."""
    channel, door = Connection(channel_handle), Connection(door_handle)
    with contextlib.suppress(EOFError, OSError):
        party = pickle.loads(door.recv_bytes())
        while request := channel.recv_bytes():
            try:
                reply, _ = answer(party, *_wire.unpack(request))
            except PartyError as exc:
                traceback.print_exception(exc)
                reply = ["error", type(exc).__name__, exc.message]
            channel.send_bytes(_wire.pack(reply))
        party.release()
        door.send_bytes(cloudpickle.dumps(party))
