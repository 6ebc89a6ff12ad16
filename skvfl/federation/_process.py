"""Every party in an operating-system process of its own."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
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
        Seconds to wait for a party's reply, the start of its process included; for as
        long as the party lives by default.

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
        try:
            self._doors[party.name].send_bytes(cloudpickle.dumps(party))
        except OSError:
            self._died(party.name, "the handover")
        party.release()

    def _exchange(
        self, requests: Mapping[str, Any]
    ) -> dict[str, tuple[Any, Measure, Measure]]:
        for name, request in requests.items():
            try:
                self._channels[name].send_bytes(_wire.pack(request))
            except OSError:
                self._died(name, request[0])
        exchanged = {}
        for name, request in requests.items():
            operation, sent = request[0], _wire.measure(request)
            message = self._receive(self._channels[name], name, operation)
            reply = _wire.unpack(message)
            if reply[0] == "error":
                raise _KINDS[reply[1]](name, reply[2])
            exchanged[name] = (reply[1], sent, _wire.measure(reply))
        return exchanged

    def _receive(self, connection: Connection, name: str, operation: str) -> bytes:
        process = self._processes[name]
        patience = math.inf if self._timeout is None else self._timeout
        deadline = time.monotonic() + patience
        try:
            while not connection.poll(min(patience, _WATCH_SECONDS)):
                # A process that the party started may hold the connection open.
                if process.poll() is not None and not connection.poll():
                    raise EOFError
                patience = max(deadline - time.monotonic(), 0.0)
                if not patience:
                    raise PartyError(
                        name,
                        f"no reply to {operation!r} within {self._timeout} seconds",
                    )
            return connection.recv_bytes()
        except (EOFError, OSError):
            self._died(name, operation)

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
            try:
                self._channels[name].send_bytes(b"")
            except OSError:
                self._died(name, "coming home")
            home = self._receive(self._doors[name], name, "coming home")
            parties[name] = pickle.loads(home)
            self._end(name, _STOP_SECONDS)
        return parties

    def _abort(self) -> None:
        for connection in [*self._channels.values(), *self._doors.values()]:
            connection.close()
        for name in self._processes:
            self._end(name)


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
