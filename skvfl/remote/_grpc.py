"""Frames over gRPC: one stream for each session, and mutual TLS.

Whoever has a certificate that was exchanged is let in, by the name under which that was
done. The organisation that is asked listens, or it calls: then the asking one listens,
and sessions run over the streams that were opened to it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import chain
from typing import Any

from skvfl.exceptions import ConfigurationError, PartyError, RefusedError
from skvfl.federation._party import LOGGER
from skvfl.remote._audit import Audit
from skvfl.remote._config import PartyConfig, PeerConfig
from skvfl.remote._endpoint import MOST_BYTES
from skvfl.remote._organisation import Organisation
from skvfl.remote._pieces import PIECE, in_pieces, joined

try:
    grpc: Any = import_module("grpc")
except ImportError as exc:
    raise ImportError(
        "organisations are reached by gRPC: pip install 'skvfl[remote]'"
    ) from exc

_SERVICE = "skvfl.Party"
ASK, CALL = "Ask", "Call"
# The other end shows every few seconds that it lives. gRPC answers that by itself, so
# that whoever computes for hours is not taken for dead, and whoever stands still is.
_PING_SECONDS, _PONG_SECONDS = 10.0, 5.0
# How long a refused connection is tried again: the time of a restart.
_PATIENCE, _PAUSE = 0.7, 0.1
_REACH_SECONDS = 10.0
# How long the asking side waits for a peer that calls it.
_CALL_SECONDS = 15.0
# A line that is lost is looked for again after this time, and later after longer.
_CALL_AGAIN = (0.2, 0.5, 1.0, 2.0)
_MOST_SESSIONS = 64
# Bytes that may wait on a line until this side comes to read them.
_MOST_WAITING = 1 << 24
_STOP_SECONDS = 2.0
_OPTIONS = [
    # As much may be under way as a batch is long, or each would wait for permission to
    # go on, which takes a round trip.
    ("grpc.http2.lookahead_bytes", 1 << 24),
    ("grpc.http2.max_frame_size", 1 << 20),
    # Of a piece of a frame. gRPC takes in a whole message before anybody is asked
    # whether it may be so long.
    ("grpc.max_receive_message_length", PIECE + 1024),
    ("grpc.max_send_message_length", PIECE + 1024),
    ("grpc.keepalive_time_ms", int(1000 * _PING_SECONDS)),
    ("grpc.keepalive_timeout_ms", int(1000 * _PONG_SECONDS)),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", int(500 * _PING_SECONDS)),
    ("grpc.http2.max_ping_strikes", 0),
    # Others are refused by name; beyond these not even a thread is begun for them.
    ("grpc.max_concurrent_streams", 2 * _MOST_SESSIONS),
    # Whoever connects and says nothing has no certificate to be counted by.
    ("grpc.server_handshake_timeout_ms", int(1000 * _REACH_SECONDS)),
    # Two processes would share a port, and a peer would reach one or the other.
    ("grpc.so_reuseport", 0),
]
# What gRPC says when nobody was reached; anything else is said by somebody.
_ABSENT = ("refused", "timed out", "timeout", "unreachable", "no route", "resolution")


class Line:
    """Frames to one organisation and from it, in their order.

    Parameters
    ----------
    name : str
        Of the organisation at the other end.
    asks : bool, default=True
        Whether this end asks, and the other one answers.
    """

    def __init__(self, name: str, *, asks: bool = True) -> None:
        self.name = name
        self._asks = asks
        self._n_owed = 0
        self._n_waiting = 0
        self._room = threading.Condition()
        self._out: queue.SimpleQueue[Sequence[bytes] | None] = queue.SimpleQueue()
        self._in: queue.SimpleQueue[bytes | PartyError] = queue.SimpleQueue()
        self._lost: PartyError | None = None
        self._hang_up: Callable[[], object] = lambda: None
        self._is_closed = False
        self.was_heard = False
        self.is_lost = False

    def send(self, *frames: bytes) -> None:
        """Send frames, together where they are small, without waiting."""
        with self._room:
            self._n_owed += len(frames)
        self._out.put(frames)

    def receive(self, seconds: float | None) -> bytes | None:
        """Next frame; None if none arrives in time.

        Raises
        ------
        PartyError
            If the line is lost, which no answer before it hides.
        """
        if self._lost is not None:
            raise self._lost
        try:
            found = self._in.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, PartyError):
            self._lost = found
            raise found
        with self._room:
            self._n_waiting -= len(found)
            self._room.notify()
        return found

    def close(self) -> None:
        """Hang up."""
        with self._room:
            self._is_closed = True
            self._room.notify()
        self._out.put(None)
        self._hang_up()

    def hang_up_by(self, hang_up: Callable[[], object]) -> None:
        """Say how the connection is ended, once there is one."""
        self._hang_up = hang_up
        if self._is_closed:
            hang_up()

    def outgoing(self) -> Iterator[Sequence[bytes]]:
        """What is to be sent, until the line is closed."""
        while (frames := self._out.get()) is not None:
            yield frames

    def listen(self, frames: Iterable[bytes]) -> None:
        """Take in what arrives, until the other end hangs up."""
        try:
            for frame in frames:
                self.was_heard = True
                self._take_in(frame)
            lost = PartyError(self.name, "it ended the session")
        except grpc.RpcError as exc:
            # The listening side is told no more than that the stream has ended.
            lost = PartyError(self.name, "its connection was lost")
            if hasattr(exc, "code"):
                lost = _lost(self.name, exc, self.was_heard)
        except PartyError as exc:
            lost = exc
            self.close()
        except Exception as exc:  # whatever it is, nobody may wait for an answer
            lost = PartyError(self.name, f"its connection failed: {type(exc).__name__}")
        self.lose(lost)

    def _take_in(self, frame: bytes) -> None:
        """Let a frame wait until it is received, and the other end with it."""
        with self._room:
            if self._asks and not self._n_owed:
                raise PartyError(self.name, "it sent what nobody has asked for")
            self._n_owed -= 1

            def has_room() -> bool:
                waiting = self._n_waiting
                return (
                    self._is_closed
                    or not waiting
                    or (waiting + len(frame) <= _MOST_WAITING)
                )

            # While nothing is taken from the connection, the other end cannot send
            # without bounds either.
            self._room.wait_for(has_room)
            if self._is_closed:
                return
            self._n_waiting += len(frame)
        self._in.put(frame)

    def lose(self, error: PartyError) -> None:
        """End what can be received with an error."""
        self.is_lost = True
        self._in.put(error)


def _lost(name: str, exc: Any, heard: bool) -> PartyError:
    """What the end of a connection means, in words."""
    code, details = exc.code(), str(exc.details() or "")[:500]
    if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
        return RefusedError(name, details)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return PartyError(name, f"its connection ended: {details}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return PartyError(name, "what listens at its address is no party of skvfl")
    if heard:
        return PartyError(name, f"its connection was lost: {details}")
    if _is_absent(exc):
        return PartyError(name, f"nobody listens at its address: {details}")
    # It was reached and hung up, or showed a wrong certificate: no absence, for which
    # somebody could go on without it.
    return RefusedError(
        name,
        "no secure connection was made; look whether both organisations have each "
        f"other's certificate as it is now, and the names in them: {details}",
    )


def _is_absent(exc: Any) -> bool:
    details = str(exc.details()).lower()
    return exc.code() is grpc.StatusCode.UNAVAILABLE and (
        any(word in details for word in _ABSENT) and "handshake" not in details
    )


def dial(config: PartyConfig, name: str, method: str = ASK) -> Line:
    """A line to a peer at its address, on a connection of its own.

    Raises
    ------
    RefusedError
        If there is no such peer, or no address of it.
    """
    peer = config.peer(name)
    if peer.address is None:
        raise RefusedError(
            name, f"{config.path} has no address of it: where does it listen?"
        )
    line = Line(name, asks=method == ASK)
    talk = threading.Thread(target=_talk, args=(config, peer, line, method))
    talk.daemon = True
    talk.start()
    return line


def _talk(config: PartyConfig, peer: PeerConfig, line: Line, method: str) -> None:
    """Connect, and take in what arrives, until one of the two hangs up."""
    try:
        channel = _channel(config, peer)
    except OSError as exc:
        line.lose(PartyError(config.name, f"{exc.filename}: {exc.strerror}"))
        return
    with channel:
        try:
            _reach(channel)
        except grpc.RpcError as exc:
            line.lose(_lost(peer.name, exc, heard=False))
            return
        stream = channel.stream_stream(f"/{_SERVICE}/{method}", None, None)
        # Answers are in pieces already.
        sent = line.outgoing()
        pieces = in_pieces(sent) if method == ASK else chain.from_iterable(sent)
        messages = stream(pieces)
        line.hang_up_by(messages.cancel)
        if method == ASK:
            line.listen(joined(line.name, messages, lambda: MOST_BYTES))
        else:
            # Whoever answers says what is too long, when it comes to the next frame.
            line.listen(messages)


def _reach(channel: Any) -> None:
    """Wait until a connection stands; a refused one is tried again for a moment."""
    # A call of nothing, because a future that waits for the channel leaves a thread
    # behind that complains when the channel is closed. The second call does not wait,
    # and says why there is no connection.
    probe = channel.unary_unary(f"/{_SERVICE}/", None, None)
    for waits, seconds in ((True, _PATIENCE), (False, _REACH_SECONDS)):
        try:
            probe(b"", timeout=seconds, wait_for_ready=waits)
        except grpc.RpcError as exc:
            if exc.code() is grpc.StatusCode.UNIMPLEMENTED:
                return
            if not waits:
                raise


def _channel(config: PartyConfig, peer: PeerConfig) -> Any:
    pinned = peer.certificate.read_bytes()
    own = config.key.read_bytes(), config.certificate.read_bytes()
    options = [
        *_OPTIONS,
        # Its certificate names the organisation, wherever it has its machine.
        ("grpc.ssl_target_name_override", peer.name),
        # A channel of its own for each session: nobody waits because an earlier one
        # was refused.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", int(1000 * _PAUSE)),
        ("grpc.min_reconnect_backoff_ms", int(1000 * _REACH_SECONDS)),
        ("grpc.max_reconnect_backoff_ms", int(1000 * _PAUSE)),
        # By the file of the organisation, and not by what a shell happens to have set.
        ("grpc.enable_http_proxy", int(peer.proxy is not None)),
    ]
    if peer.proxy is not None:
        options.append(("grpc.http_proxy", peer.proxy))
    return grpc.secure_channel(
        peer.address, grpc.ssl_channel_credentials(pinned, *own), options
    )


class Server:
    """Lets in peers with the certificates that were exchanged; a context manager.

    Parameters
    ----------
    config : PartyConfig
        Who it is, and where it listens.
    organisation : Organisation or None, default=None
        Who answers those that ask; nobody by default.

    Attributes
    ----------
    port : int
        Where it listens.
    """

    def __init__(
        self, config: PartyConfig, organisation: Organisation | None = None
    ) -> None:
        self._config = config
        self._organisation = organisation
        self._audit = Audit(config.audit)
        self._busy: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._called: dict[str, queue.SimpleQueue[Line]] = {
            name: queue.SimpleQueue() for name in config.peers
        }
        self._server = grpc.server(_Threads(), options=_OPTIONS)
        streams = {ASK: self._ask, CALL: self._call}
        handlers = {
            name: grpc.stream_stream_rpc_method_handler(handler)
            for name, handler in streams.items()
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, handlers),)
        )
        try:
            self.port = self._server.add_secure_port(config.listen, self._credentials())
        except RuntimeError:
            raise PartyError(
                config.name, f"it cannot listen at {config.listen}: is that in use?"
            ) from None
        self._server.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let no more sessions begin, and end those that there are."""
        self._server.stop(_STOP_SECONDS).wait()

    def take(self, name: str, seconds: float) -> Line:
        """A line to a peer that has called; waits for it.

        Raises
        ------
        PartyError
            If it does not call in time.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._called[name].get(
                    timeout=max(deadline - time.monotonic(), 0)
                )
            except queue.Empty:
                raise PartyError(
                    name, f"it has not called within {seconds:g} seconds"
                ) from None
            if not line.is_lost:
                return line

    def _credentials(self) -> Any:
        def read() -> Any:
            own = self._config.key.read_bytes(), self._config.certificate.read_bytes()
            return grpc.ssl_server_certificate_configuration(
                [own], self._config.roots()
            )

        # Read anew for each connection, so that a certificate can be renewed.
        return grpc.dynamic_ssl_server_credentials(
            read(), read, require_client_authentication=True
        )

    @contextmanager
    def _peer(self, context: Any) -> Iterator[str]:
        """Name of who is at the other end; not too many of one."""
        try:
            (pem,) = context.auth_context()["x509_pem_cert"]
            name = self._config.peer_of(pem)
        except RefusedError as exc:
            self._audit.record("refused", "unknown", why=exc.message)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, exc.message)
        except ConfigurationError as exc:
            # Its message has paths of this machine.
            self._audit.record("failed", "unknown", why=str(exc))
            why = "refused: it cannot read its certificates; its audit log says why"
            context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        with self._lock:
            self._busy[name] += 1
            is_full = self._busy[name] > _MOST_SESSIONS
        try:
            if is_full:
                self._audit.record("refused", name, why="too many sessions at once")
                context.abort(
                    grpc.StatusCode.PERMISSION_DENIED,
                    f"refused: more than {_MOST_SESSIONS} sessions at once",
                )
            yield name
        finally:
            with self._lock:
                self._busy[name] -= 1

    def _ask(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """A session in which the peer asks."""
        with self._peer(context) as name:
            try:
                organisation = self._organisation
                if organisation is None:
                    raise RefusedError(self._config.name, "refused: it answers nobody")
                endpoint = organisation.endpoint(name)
            except RefusedError as exc:
                self._audit.record("refused", name, why=exc.message)
                context.abort(grpc.StatusCode.PERMISSION_DENIED, exc.message)
                return
            frames = joined(name, requests, lambda: endpoint.most_bytes)
            with organisation.idle.watching(endpoint, name, context.cancel):
                try:
                    yield from in_pieces(
                        [answer] for f in frames if (answer := endpoint.answer(name, f))
                    )
                except PartyError as exc:
                    yield from in_pieces([[endpoint.refuse(name, exc.message)]])
                finally:
                    endpoint.close(name)

    def _call(self, replies: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """A peer has called, to be asked over its own connection."""
        with self._peer(context) as name:
            if self._organisation is not None:
                # Nobody here would ever take the line.
                why = "refused: it answers, and asks nobody over calls"
                self._audit.record("refused", name, why=why)
                context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
            line = Line(name)
            line.hang_up_by(context.cancel)
            context.add_callback(line.close)
            frames = joined(name, replies, lambda: MOST_BYTES)
            listener = threading.Thread(target=line.listen, args=(frames,))
            listener.daemon = True
            listener.start()
            self._forget_lost(name)
            self._called[name].put(line)
            yield from in_pieces(line.outgoing())

    def _forget_lost(self, name: str) -> None:
        """Drop lines that nobody took before they were lost."""
        called = self._called[name]
        for _ in range(called.qsize()):
            with suppress(queue.Empty):
                line = called.get_nowait()
                if not line.is_lost:
                    called.put(line)


class _Threads(Executor):
    """A thread for each stream, which does not keep the program from ending."""

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as exc:
                future.set_exception(exc)

        threading.Thread(target=run, daemon=True).start()
        return future


def serve(
    config: PartyConfig,
    stop: threading.Event,
    ready: Callable[[int | None], object] = lambda port: None,
) -> None:
    """Answer peers until told to stop: those that call, and those that are called.

    Parameters
    ----------
    config : PartyConfig
        What the organisation's file says.
    stop : Event
        Set to stop.
    ready : callable, default=None
        Told the port, or None, once peers can ask.
    """
    from skvfl.remote._tables import open_table

    run(Organisation(config, open_table(config)), stop, ready)


def run(
    organisation: Organisation,
    stop: threading.Event,
    ready: Callable[[int | None], object] = lambda port: None,
) -> None:
    """As :func:`serve`, with a table that is there.

    Parameters
    ----------
    organisation : Organisation
        Who answers.
    stop : Event
        Set to stop.
    ready : callable, default=None
        Told the port, or None, once peers can ask.
    """
    config = organisation.config
    server = None if config.listen is None else Server(config, organisation)
    organisation.store.tidy()
    for peer in config.peers.values():
        if peer.dial:
            room = threading.Semaphore(_MOST_SESSIONS)
            _begin_calling(organisation, peer.name, stop, room)
    try:
        ready(None if server is None else server.port)
        stop.wait()
    finally:
        if server is not None:
            server.stop()


def _begin_calling(
    organisation: Organisation,
    name: str,
    stop: threading.Event,
    room: threading.Semaphore,
) -> None:
    call = threading.Thread(target=_keep_calling, args=(organisation, name, stop, room))
    call.daemon = True
    call.start()


def _keep_calling(
    organisation: Organisation,
    name: str,
    stop: threading.Event,
    room: threading.Semaphore,
) -> None:
    # A peer that is called has no more sessions at once than one that calls.
    with room:
        _call(organisation, name, stop, room)


def _answer(organisation: Organisation, line: Line, first: bytes | None) -> None:
    """Answer a session on a line, until the other end hangs up."""
    endpoint = organisation.endpoint(line.name)
    messages = chain([first or b""], iter(lambda: line.receive(None) or b"", None))
    try:
        with organisation.idle.watching(endpoint, line.name, line.close):
            for frame in joined(line.name, messages, lambda: endpoint.most_bytes):
                if answer := endpoint.answer(line.name, frame):
                    line.send(*in_pieces([[answer]]))
    except PartyError as exc:
        if line.is_lost:
            raise
        line.send(*in_pieces([[endpoint.refuse(line.name, exc.message)]]))
        # Whoever hangs up at once is not heard.
        time.sleep(_STOP_SECONDS)
    finally:
        endpoint.close(line.name)


def _call(
    organisation: Organisation,
    name: str,
    stop: threading.Event,
    room: threading.Semaphore,
) -> None:
    """Call a peer until a session begins on the line, and answer it."""
    n_failed = 0
    while not stop.is_set():
        line = dial(organisation.config, name, CALL)
        try:
            first = line.receive(None)
            # The line is taken; another one waits for the next session.
            _begin_calling(organisation, name, stop, room)
            _answer(organisation, line, first)
            return
        except PartyError as exc:
            if line.was_heard:
                return
            LOGGER.debug("a call of %r failed: %s", name, exc)
            stop.wait(_CALL_AGAIN[min(n_failed, len(_CALL_AGAIN) - 1)])
            n_failed += 1
        finally:
            line.close()


_HUBS: dict[str, Server] = {}
_HUBS_LOCK = threading.Lock()


def reach(config: PartyConfig, name: str, seconds: float) -> Line:
    """A line to a peer: at its address, or on a connection that it opened itself.

    Parameters
    ----------
    config : PartyConfig
        Who asks.
    name : str
        Of the peer.
    seconds : float
        How long to wait for a call of a peer that has no address.
    """
    if config.peer(name).address is not None or config.listen is None:
        return dial(config, name)
    with _HUBS_LOCK:
        # For as long as this process lives, because who calls keeps a line open.
        if config.listen not in _HUBS:
            _HUBS[config.listen] = Server(config)
    return _HUBS[config.listen].take(name, min(seconds, _CALL_SECONDS))
