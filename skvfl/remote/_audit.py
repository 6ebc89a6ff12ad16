"""An organisation's own record of who asked for what."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path


class Audit:
    """Writes one line of JSON for everything that happens.

    Lines have names, words and numbers; there is no way to write a cell, an id or an
    array by mistake.

    Parameters
    ----------
    path : Path or None
        The file, which is added to and never rewritten; None to write nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()

    def record(self, event: str, peer: str, **facts: object) -> None:
        """Write a line.

        Parameters
        ----------
        event : str
            Such as ``"fit"``, ``"refused"`` or ``"end"``.
        peer : str
            Name of the organisation that asked.
        **facts : str, int, float, bool or None, and lists of str
            What else there is to say. Text is cut at 500 characters.

        Raises
        ------
        TypeError
            If a fact is anything else.
        """
        line: dict[str, object] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds")
        }
        line |= {"event": event, "peer": peer}
        line |= {name: _plain(name, fact) for name, fact in facts.items()}
        if self.path is None:
            return
        # One write of one line: other processes append to the file as well. JSON has no
        # line breaks in text, so no peer can add a line of its own.
        written = (json.dumps(line) + "\n").encode()
        with self._lock:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, written)
            finally:
                os.close(file)


def _plain(name: str, fact: object) -> object:
    if isinstance(fact, str):
        return fact[:500]
    if fact is None or type(fact) in (bool, int, float):
        return fact
    if isinstance(fact, list | tuple) and all(isinstance(each, str) for each in fact):
        return [each[:500] for each in fact[:500]]
    raise TypeError(f"{name} is a {type(fact).__name__}, which is not written down")
