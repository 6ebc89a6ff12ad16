"""A party's process ends with the process that started it, however that one ends.

A party's process runs the text of this file before it imports anything else, because
its starter may die while it imports. Hence the standard library only.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading

_WATCH_MILLISECONDS = 250


def end_with(starter: int, lifeline: int) -> None:
    """End this process and its group when the process that started it is gone.

    Parameters
    ----------
    starter : int
        Number of the process that started this one.
    lifeline : int
        Reading end of a pipe into which nothing is written, and whose other end is the
        starter's: it is readable when the starter is gone.
    """
    if hasattr(fcntl, "F_SETSIG"):
        # Linux: the kernel kills the whole group when the pipe breaks, even while
        # C code keeps Python's threads from running.
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    threading.Thread(target=_watch, args=(starter, lifeline), daemon=True).start()


def _watch(starter: int, lifeline: int) -> None:
    """The same by looking: for macOS, and for starters that forked themselves.

    A fork of the starter holds the other end of the pipe open, but is not our parent.
    """
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    while os.getppid() == starter and not poll.poll(_WATCH_MILLISECONDS):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)
