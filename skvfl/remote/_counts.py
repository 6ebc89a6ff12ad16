"""What a peer has had so far: of this day, and of its privacy budgets."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# What says all of noisy steps, in the order of the files that keep them.
NOISY = ("sampling_rate", "steps", "noise_multiplier")


class Counts:
    """Counts of a day in a file, which several processes may use at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: sqlite3.Connection | None = None

    def take(
        self, peer: str, amounts: Mapping[str, tuple[int, int]]
    ) -> tuple[str, int] | None:
        """Add to counts; which one would be too many, and how many are left of it."""
        with self._open() as file:
            # At once for writing: two processes must not both read the old count.
            file.execute("BEGIN IMMEDIATE")
            for what, (amount, limit) in amounts.items():
                taken = self._taken(file, peer, what)
                if taken + amount > limit:
                    file.execute("ROLLBACK")
                    return what, max(0, limit - taken)
                file.execute(
                    "INSERT INTO counts VALUES (?, ?, ?, ?) ON CONFLICT (day, peer, "
                    "what) DO UPDATE SET amount = amount + excluded.amount",
                    (_day(), peer, what, amount),
                )
            file.execute("COMMIT")
        return None

    @contextmanager
    def spending(self, peer: str, run: Any) -> Iterator[list[dict[str, Any]]]:
        """Add noisy steps to those of all days, unless the block fails."""
        with self._open(durably=True) as file:
            file.execute("BEGIN IMMEDIATE")
            file.execute(
                "INSERT INTO spent VALUES (?, ?, ?, ?, ?) ON CONFLICT (peer, rate, "
                "noise, parties) DO UPDATE SET steps = steps + excluded.steps",
                (peer, *(getattr(run, each) for each in NOISY), len(run.parties)),
            )
            rows = file.execute(
                "SELECT rate, steps, noise, parties FROM spent WHERE peer = ?",
                (peer,),
            )
            yield [
                {**dict(zip(NOISY, each, strict=True)), "parties": range(n)}
                for *each, n in rows.fetchall()
            ]
            file.execute("COMMIT")

    def today(self, peer: str, what: str) -> int:
        with self._open() as file:
            return self._taken(file, peer, what)

    def keep_run(self, peer: str, run: Mapping[str, Any]) -> None:
        """Write down noisy steps, with which later ones are added up."""
        given = [run[name] for name in NOISY]
        with self._open(durably=True) as file:
            file.execute(
                "INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?)",
                (_day(), peer, *given),
            )

    def runs(self, peer: str) -> list[dict[str, Any]]:
        with self._open() as file:
            rows = file.execute(
                "SELECT rate, steps, noise FROM runs WHERE day = ? AND peer = ?",
                (_day(), peer),
            )
            return [dict(zip(NOISY, row, strict=True)) for row in rows]

    def _taken(self, file: sqlite3.Connection, peer: str, what: str) -> int:
        row = file.execute(
            "SELECT amount FROM counts WHERE day = ? AND peer = ? AND what = ?",
            (_day(), peer, what),
        ).fetchone()
        return 0 if row is None else int(row[0])

    @contextmanager
    def _open(self, *, durably: bool = False) -> Iterator[sqlite3.Connection]:
        """The file; what is written survives this process, and the machine if asked."""
        # One connection for all threads: to open one anew takes as long as a batch.
        with self._lock:
            if self._file is None:
                self._file = self._begin()
            level = "FULL" if durably or not self._appends else "NORMAL"
            self._file.execute(f"PRAGMA synchronous = {level}")
            try:
                yield self._file
            finally:
                # Whoever failed half way must not leave it to the next.
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")

    def _begin(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = sqlite3.connect(
            self._path, timeout=10, isolation_level=None, check_same_thread=False
        )
        # A day's counts are appended to a log, so that no peer waits for a disk. Some
        # file systems of networks cannot do that.
        mode, *_ = file.execute("PRAGMA journal_mode = WAL").fetchone()
        self._appends = mode == "wal"
        file.execute(
            "CREATE TABLE IF NOT EXISTS counts (day TEXT, peer TEXT, what TEXT, "
            "amount INTEGER, PRIMARY KEY (day, peer, what))"
        )
        file.execute(
            "CREATE TABLE IF NOT EXISTS runs (day TEXT, peer TEXT, rate REAL, "
            "steps INTEGER, noise REAL, UNIQUE (day, peer, rate, steps, noise))"
        )
        file.execute(
            "CREATE TABLE IF NOT EXISTS spent (peer TEXT, rate REAL, steps INTEGER, "
            "noise REAL, parties INTEGER, PRIMARY KEY (peer, rate, noise, parties))"
        )
        return file


def _day() -> str:
    return datetime.now(UTC).date().isoformat()
