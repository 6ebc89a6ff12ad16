"""Every party in an operating-system process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, NoReturn

from skvfl.exceptions import PartyError, PartyValueError
from skvfl.federation import _wire
from skvfl.federation._log import CommunicationLog
from skvfl.federation._party import Party
from skvfl.federation._transport import Session, Transport, answer

_STOP_SECONDS = 5.0


class ProcessTransport(Transport):
    """Every party in a process of its own: the proof of the boundary.

    Each run spawns one process per party and hands the party and its block over once;
    from then on only messages in the wire format pass between the processes. When the
    run ends the parties come home without their blocks and the processes end.

    Starting a Python process per party costs seconds, so this transport shows that a
    protocol keeps to the boundary; it is not a way to go faster. As everywhere with
    spawned processes, a script must call it under ``if __name__ == "__main__":``.

    Parameters
    ----------
    timeout : float, default=None
        Seconds to wait for a party's reply; for as long as the party lives by default.

    See Also
    --------
    LocalTransport : All parties in this process.
    """

    def __init__(self, timeout: float | None = None) -> None:
        self.timeout = timeout

    def connect(
        self, parties: Sequence[Party], log: CommunicationLog, centre: str = "server"
    ) -> Session:
        """Spawn the parties' processes and open a session with them."""
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
        self._processes: dict[str, SpawnProcess] = {}
        self._channels: dict[str, Connection] = {}
        self._homes: dict[str, Connection] = {}
        try:
            for party in parties:
                self._start(party)
        except BaseException:
            self._abort()
            raise

    def _start(self, party: Party) -> None:
        context = multiprocessing.get_context("spawn")
        channel, far_channel = context.Pipe()
        home, far_home = context.Pipe(duplex=False)
        self._channels[party.name], self._homes[party.name] = channel, home
        process = context.Process(
            target=_serve,
            args=(party, far_channel, far_home),
            name=f"skvfl-{party.name}",
            daemon=True,
        )
        try:
            process.start()
        except BrokenPipeError:
            self._processes[party.name] = process
            self._died(party.name, "the handover")
        self._processes[party.name] = process
        party.release()
        far_channel.close()
        far_home.close()

    def _exchange(
        self, names: list[str], request: Any
    ) -> dict[str, tuple[Any, tuple[int, bool], tuple[int, bool]]]:
        operation, frame = request[0], _wire.pack(request)
        for name in names:
            try:
                self._channels[name].send_bytes(frame)
            except OSError:
                self._died(name, operation)
        sent = _wire.measure(request)
        replies = {name: _wire.unpack(self._receive(name, operation)) for name in names}
        for name, reply in replies.items():
            if reply[0] == "error":
                kind = PartyValueError if reply[1] else PartyError
                raise kind(name, reply[2])
        return {
            name: (reply[1], sent, _wire.measure(reply))
            for name, reply in replies.items()
        }

    def _receive(self, name: str, operation: str) -> bytes:
        channel, process = self._channels[name], self._processes[name]
        ready = wait([channel, process.sentinel], self._timeout)
        if not ready:
            raise PartyError(
                name, f"no reply to {operation!r} within {self._timeout} seconds"
            )
        try:
            if channel.poll():
                return channel.recv_bytes()
        except (EOFError, OSError):
            pass
        self._died(name, operation)

    def _died(self, name: str, operation: str) -> NoReturn:
        process = self._processes[name]
        process.join(_STOP_SECONDS)
        raise PartyError(
            name,
            f"its process ended with exit code {process.exitcode} during "
            f"{operation!r}. If it never started, the calling script lacks "
            "the guard `if __name__ == '__main__':`",
        )

    def _dismiss(self) -> dict[str, Party]:
        parties = {}
        for name in self.names:
            try:
                self._channels[name].send_bytes(b"")
                parties[name] = self._homes[name].recv()
            except (EOFError, OSError):
                self._died(name, "coming home")
        return parties

    def _abort(self) -> None:
        for connection in [*self._channels.values(), *self._homes.values()]:
            connection.close()
        for process in self._processes.values():
            if process.pid is not None:
                process.join(_STOP_SECONDS if self.parties else 0)
                process.kill()
                process.join()
                process.close()


def _serve(party: Party, channel: Connection, home: Connection) -> None:
    """Answer requests until an empty one, then send the party home without a block."""
    try:
        while request := channel.recv_bytes():
            try:
                reply = _wire.pack(answer(party, *_wire.unpack(request)))
            except PartyError as exc:
                is_value_error = isinstance(exc, PartyValueError)
                reply = _wire.pack(["error", is_value_error, exc.message])
            channel.send_bytes(reply)
    except (EOFError, OSError):
        return
    party.release()
    home.send(party)
