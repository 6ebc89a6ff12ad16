"""One at a time, among all processes of an organisation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock, which a process that dies lets go of.

    Parameters
    ----------
    path : Path
        A file beside what is locked, which is made and stays.
    wait : bool, default=True
        Whether to wait for whoever holds it.

    Yields
    ------
    is_held : bool
        False where somebody else holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _take(file, wait)
    finally:
        os.close(file)


def _take(file: int, wait: bool) -> bool:
    try:
        if os.name == "nt":
            windows: Any = import_module("msvcrt")
            windows.locking(file, windows.LK_LOCK if wait else windows.LK_NBLCK, 1)
        else:
            unix: Any = import_module("fcntl")
            unix.flock(file, unix.LOCK_EX | (0 if wait else unix.LOCK_NB))
    except OSError:
        return False
    return True
