"""An organisation's own record of who asked for what."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

from skvfl.remote._lock import locked

# A peer can ask for what is refused without end, and each refusal is a line.
_MOST_BYTES, _MOST_FILES = 1 << 26, 10
_DELETED = ("lines deleted", "refusals deleted")


class Audit:
    """Writes one line of JSON for everything that happens.

    Lines have names, words and numbers; there is no way to write a cell, an id or an
    array by mistake. A file of 64 MiB is put aside, as ``NAME.1``, and a new one is
    begun; ten are kept. A new file begins with a line that says so, and how many lines
    and refusals were in all that have been deleted.

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
        line: dict[str, object] = {"time": _now(), "event": event, "peer": peer}
        line |= {name: _plain(name, fact) for name, fact in facts.items()}
        if self.path is None:
            return
        with self._lock, locked(self.path.with_name(f".{self.path.name}.lock")):
            self._put_aside()
            self._write(line)

    def _write(self, line: dict[str, object]) -> None:
        assert self.path is not None
        # One write of one line. JSON has no line breaks in text, so no peer can add a
        # line of its own.
        written = (json.dumps(line) + "\n").encode()
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, written)
        finally:
            os.close(file)

    def _put_aside(self) -> None:
        """Begin a new file where this one is full."""
        path = self.path
        if path is None or not path.exists() or path.stat().st_size < _MOST_BYTES:
            return
        earlier = [path.with_name(f"{path.name}.{i}") for i in range(1, _MOST_FILES)]
        lost = _lost_before(path)
        if earlier[-1].exists():
            with earlier[-1].open("rb") as lines:
                for line in lines:
                    lost["lines deleted"] += 1
                    lost["refusals deleted"] += b'"event": "refused"' in line
        files = [path, *earlier]
        for older, newer in zip(reversed(files), reversed(files[:-1]), strict=False):
            if newer.exists():
                newer.replace(older)
        said = {"event": "new file", "peer": "", "earlier": files[1].name}
        self._write({"time": _now(), **said, **lost})


def _lost_before(path: Path) -> dict[str, int]:
    """Lines and refusals that had been deleted when a file was begun."""
    with path.open("rb") as lines:
        first = next(lines, b"{}")
    said = json.loads(first) if b'"event": "new file"' in first else {}
    return {what: said.get(what, 0) for what in _DELETED}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _plain(name: str, fact: object) -> object:
    if isinstance(fact, str):
        return fact[:500]
    if fact is None or type(fact) in (bool, int, float):
        return fact
    if isinstance(fact, list | tuple) and all(isinstance(each, str) for each in fact):
        return [each[:500] for each in fact[:500]]
    raise TypeError(f"{name} is a {type(fact).__name__}, which is not written down")
