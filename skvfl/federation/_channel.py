"""Messages over a connection that keep to a size and a time.

The frames are those of :class:`multiprocessing.connection.Connection`, whose own
methods take as long as the other end likes, one byte at a time.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from multiprocessing.connection import Connection

import numpy as np

_LENGTH = struct.Struct("!i")
_LONG = struct.Struct("!Q")


class OversizeError(Exception):
    """A message announces more bytes than were expected."""

    def __init__(self, n_bytes: int) -> None:
        super().__init__(n_bytes)
        self.n_bytes = n_bytes


def limit_blocking(connection: Connection, seconds: float) -> None:
    """Let reading and writing fail where the other end stands still for so long."""
    # A timeval in C. One of zero means no limit, hence a microsecond at least.
    whole, fraction = divmod(max(round(seconds * 1e6), 1), 10**6)
    limit = struct.pack("ll", min(whole, 2**31 - 1), fraction)
    # A copy of the handle, because the socket closes what it was made of.
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def send(connection: Connection, *parts: bytes, seconds: float) -> None:
    """Send one message.

    Parameters
    ----------
    connection : Connection
        Its other end may read by ``recv_bytes``.
    *parts : bytes
        What the message consists of.
    seconds : float
        How long the other end may take to read it.

    Raises
    ------
    BlockingIOError
        If it takes longer.
    """
    deadline = time.monotonic() + seconds
    size = sum(map(len, parts))
    header = _LENGTH.pack(size)
    # As multiprocessing frames messages that are too long for its short header.
    if size > 2**31 - 1:
        header = _LENGTH.pack(-1) + _LONG.pack(size)
    left = [memoryview(part) for part in (header, *parts) if part]
    while left:
        sent = os.writev(connection.fileno(), left)
        while left and sent >= len(left[0]):
            sent -= len(left.pop(0))
        if left:
            left[0] = left[0][sent:]
            _check_time(deadline)


def receive(connection: Connection, n_bytes: int, seconds: float) -> memoryview:
    """Next message, which takes memory only as it arrives.

    Parameters
    ----------
    connection : Connection
        Its other end may write by ``send_bytes``.
    n_bytes : int
        Most bytes that it may have.
    seconds : float
        How long it may take to arrive.

    Raises
    ------
    BlockingIOError
        If it takes longer.
    EOFError
        If the other end closes.
    OversizeError
        If it announces more bytes, none of which is read.
    """
    deadline = time.monotonic() + seconds
    (size,) = _LENGTH.unpack(_read(connection, _LENGTH.size, deadline))
    if size == -1:
        (size,) = _LONG.unpack(_read(connection, _LONG.size, deadline))
    # Before a byte is read, because a party can announce any length.
    if not 0 <= size <= n_bytes:
        raise OversizeError(size)
    return _read(connection, size, deadline)


def _read(connection: Connection, size: int, deadline: float) -> memoryview:
    # Unlike a bytearray, an empty array takes no memory before it is written to.
    message = left = np.empty(size, np.uint8).data
    while left:
        read = os.readv(connection.fileno(), [left])
        if not read:
            raise EOFError
        left = left[read:]
        if left:
            _check_time(deadline)
    return message


def _check_time(deadline: float) -> None:
    # A party that sends byte by byte never lets a single read fail, so the whole
    # message has a time as well.
    if time.monotonic() > deadline:
        raise BlockingIOError
