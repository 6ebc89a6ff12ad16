"""Long frames in pieces, and small ones together, as messages of a stream."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

from skvfl.exceptions import PartyError

# Long frames cross in pieces of this size. Each begins with whether more follows, or
# with a whole frame and its length, before what else the message has.
PIECE = 1 << 20
_LAST, _MORE, _WHOLE = b"\0", b"\1", b"\2"
_LENGTH = struct.Struct("<I")
_MOST_WHOLE = len(_WHOLE) + _LENGTH.size


def in_pieces(groups: Iterable[Sequence[bytes]]) -> Iterator[bytes]:
    """Messages that carry frames; a group of small ones travels as one."""
    for frames in groups:
        size = sum(map(len, frames))
        if len(frames) > 1 and size + _MOST_WHOLE * len(frames) < PIECE:
            wholes = [_WHOLE + _LENGTH.pack(len(each)) + each for each in frames[:-1]]
            yield b"".join([*wholes, _LAST, frames[-1]])
            continue
        for frame in frames:
            # At most once for what fits into one, which is nearly everything.
            for start in range(0, max(len(frame), 1), PIECE):
                piece = frame[start : start + PIECE]
                yield (_MORE if start + PIECE < len(frame) else _LAST) + piece


def joined(
    name: str, messages: Iterable[bytes], most_bytes: Callable[[], int]
) -> Iterator[bytes]:
    """Frames that came in pieces.

    Parameters
    ----------
    name : str
        Of who sends them.
    messages : iterable of bytes
        As they arrive.
    most_bytes : callable
        How long the next frame may be.

    Raises
    ------
    PartyError
        If a frame becomes longer. No more of it is taken in.
    """
    pieces: list[bytes] = []
    size = 0
    for message in messages:
        # By position: what is left of a message, cut off after each of many frames,
        # would be copied as often. No frame begins in the middle of another.
        start = 0
        while message[start : start + 1] == _WHOLE and not pieces:
            end = _end_of_whole(name, message, start, most_bytes())
            yield message[start + _MOST_WHOLE : end]
            start = end
        message = message[start:]
        size += len(message)
        if size > (most := most_bytes()) + len(pieces) + 1:
            raise _too_long(name, most)
        pieces.append(message[1:])
        if message[:1] == _MORE:
            continue
        frame = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces, size = [], 0
        yield frame


def _end_of_whole(name: str, message: bytes, start: int, most: int) -> int:
    """Where the frame that starts there ends, after which another one comes."""
    if len(message) < start + _MOST_WHOLE:
        raise PartyError(name, "it sent a message that is cut short")
    (length,) = _LENGTH.unpack_from(message, start + 1)
    if length > most:
        raise _too_long(name, most)
    end: int = start + _MOST_WHOLE + length
    if end >= len(message):
        raise PartyError(name, "it sent a message that is cut short")
    return end


def _too_long(name: str, most: int) -> PartyError:
    return PartyError(
        name, f"it sent a message of more than {most} bytes, which is too long"
    )
