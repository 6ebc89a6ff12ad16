"""Sessions in which nothing is asked for any more, though nobody has hung up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from skvfl.remote._endpoint import Endpoint

_LONGEST_PAUSE = 15.0


class _Watched(NamedTuple):
    endpoint: Endpoint
    peer: str
    hang_up: Callable[[], object]


class Idle:
    """Ends sessions that were silent for too long.

    A peer that lives answers pings, however long it asks for nothing, and a session
    holds a table. The connection is left open as long again, so that whoever comes back
    is told in words what has become of the session.

    Parameters
    ----------
    seconds : float
        For how long a session may be silent.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._watched: list[_Watched] = []
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(
        self, endpoint: Endpoint, peer: str, hang_up: Callable[[], object]
    ) -> Iterator[None]:
        """Watch a session for as long as the block lasts.

        Parameters
        ----------
        endpoint : Endpoint
            This side of the session.
        peer : str
            Who asks.
        hang_up : callable
            Ends the connection.
        """
        watched = _Watched(endpoint, peer, hang_up)
        with self._lock:
            self._watched.append(watched)
            # Not before there is anything to watch, and no longer.
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                # By identity: two sessions of a peer may look alike.
                self._watched = [each for each in self._watched if each is not watched]

    def _watch(self) -> None:
        while True:
            time.sleep(min(self._seconds / 4, _LONGEST_PAUSE))
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return
                watched = list(self._watched)
            for endpoint, peer, hang_up in watched:
                if endpoint.silent_for() > 2 * self._seconds:
                    hang_up()
                else:
                    endpoint.expire(peer, self._seconds)
