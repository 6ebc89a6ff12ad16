"""The wire format: arrays and scalars to bytes and back, without pickles.

A message is ``b"skvfl1"``, the length of a JSON header, the header, and the raw bytes
of every array in C order. The header holds the payload with each array replaced by its
data type and shape.
"""

from __future__ import annotations

import json
import math
import struct
from functools import lru_cache
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

Buffer = bytes | bytearray | memoryview

MAGIC = b"skvfl1"
_LENGTH = struct.Struct("<I")
_FRAME = len(MAGIC) + _LENGTH.size
# Whoever walks through a payload later needs about as deep a stack as its reader.
_MOST_NESTED = 32
_DTYPES = {
    name: np.dtype(name)
    for name in (np.dtype(code).newbyteorder("<").str for code in "?bhilqBHILQefdg")
}


def pack(payload: Any) -> bytes:
    """Serialise a payload of arrays, scalars, strings, lists and dicts.

    Raises
    ------
    TypeError
        If the payload holds anything else.
    """
    header, arrays = _encode(payload)
    return b"".join([MAGIC, _LENGTH.pack(len(header)), header, *map(_raw, arrays)])


def unpack(message: Buffer, most_header: int | None = None) -> Any:
    """Read back what :func:`pack` wrote; arrays are the reader's own.

    Parameters
    ----------
    message : bytes or memoryview
        What arrived.
    most_header : int or None, default=None
        Most bytes that its header may have, whatever it announces.

    Raises
    ------
    ValueError
        If the message is not in this format, or is cut short.
    """
    message = memoryview(message)
    start = _FRAME
    if message[: len(MAGIC)] != MAGIC or len(message) < start:
        raise ValueError("not a skvfl message")
    (length,) = _LENGTH.unpack_from(message, len(MAGIC))
    if most_header is not None and length > most_header:
        raise ValueError(
            f"a skvfl message with a header of {length} bytes where at most "
            f"{most_header} were expected"
        )
    offset = start + length

    def restore(node: Any, depth: int = 0) -> Any:
        nonlocal offset
        # A message of brackets alone would otherwise use up the stack of its reader.
        if depth > _MOST_NESTED:
            raise ValueError("lists in lists without end")
        if isinstance(node, list):
            return [restore(item, depth + 1) for item in node]
        if not isinstance(node, dict):
            return node
        if "array" not in node:
            depth += 1
            entries = {_key(key): restore(item, depth) for key, item in node["dict"]}
            # Sender and receiver could each believe another of the two values.
            if len(entries) < len(node["dict"]):
                raise ValueError("a dict with one key twice")
            return entries
        dtype, shape = _DTYPES[node["array"]], node["shape"]
        # True is an int to Python, and -1 would let numpy guess.
        if any(type(n) is not int or n < 0 for n in shape):
            raise ValueError("an array without a shape")
        array = np.frombuffer(message, dtype, math.prod(shape), offset)
        offset += array.nbytes
        return _own(array.reshape(shape))

    try:
        payload = restore(json.loads(bytes(message[start:offset])))
    except (LookupError, TypeError, ValueError, ArithmeticError) as exc:
        raise ValueError("a damaged skvfl message") from exc
    except (RecursionError, MemoryError):
        raise ValueError("a damaged skvfl message") from None
    if offset != len(message):
        raise ValueError(
            f"a skvfl message of {len(message)} bytes where {offset} were announced"
        )
    return payload


def measure(payload: Any) -> tuple[int, bool]:
    """Length of the packed payload in bytes, and whether it holds an array."""
    return deliver(payload, copy=False)[1]


def deliver(payload: Any, *, copy: bool = True) -> tuple[Any, tuple[int, bool]]:
    """What ``unpack(pack(payload))`` gives, and what the message measures.

    Nothing is serialised: the length of the header follows from the payload.

    Parameters
    ----------
    payload : arrays, scalars, strings, lists and dicts
        What is sent.
    copy : bool, default=True
        Whether arrays are copied, as between organisations.

    Returns
    -------
    delivered : payload
        Shares no memory with ``payload`` if copied.
    measure : tuple of int and bool
        See :func:`measure`.
    """
    arrays: list[np.ndarray] = []
    delivered, size = _deliver(payload, copy, arrays)
    return delivered, (_FRAME + size, bool(arrays))


def _deliver(node: Any, copy: bool, arrays: list[np.ndarray]) -> tuple[Any, int]:
    """What arrives of a node, and its length in the message; arrays are listed."""
    # By exact types first, and without a call for most scalars in a dict or a list:
    # every batch of every party comes through here several times.
    kind = type(node)
    if kind is np.ndarray:
        dtype, size = _described(node.dtype, node.shape)
        if dtype is not node.dtype:
            array = _own(node, copy)
        # As ``_own``, at a third of the time for the arrays that cross most often.
        elif copy:
            array = node.copy()
        else:
            array = np.array(node, order="C", copy=None)
        arrays.append(array)
        return array, size
    if kind is dict or (kind is not list and isinstance(node, dict)):
        # A comma between each two entries.
        size = _DICT + len(node) - 1 if node else _DICT
        entries = {}
        for key, item in node.items():
            if type(key) is not str:
                key = _key(key)
            kind = type(item)
            if kind is int:
                length = len(str(item))
            elif kind in _SHORT:
                length = _text_length(item)
            else:
                item, length = _deliver(item, copy, arrays)
            entries[key] = item
            size += _entry_length(key) + length
        return entries, size
    if kind is list or isinstance(node, list | tuple):
        size = _LIST + len(node) - 1 if node else _LIST
        items = []
        for item in node:
            if type(item) in _SHORT:
                length = _text_length(item)
            else:
                item, length = _deliver(item, copy, arrays)
            items.append(item)
            size += length
        return items, size
    if kind is float and isfinite(node):
        return node, len(repr(node))
    if kind is int:
        return node, len(str(node))
    if kind in _SHORT:
        return node, _text_length(node)
    if isinstance(node, np.ndarray):
        return _deliver(np.asarray(node), copy, arrays)
    scalar = _scalar(node)
    return scalar, len(json.dumps(scalar))


# Types whose values' lengths are kept.
_SHORT = {str, bool, type(None)}
_DICT, _LIST = len('{"dict":[]}'), len("[]")


# Every batch brings the same words and shapes again.
@lru_cache(maxsize=4096)
def _text_length(text: str | bool | None) -> int:
    return len(json.dumps(text))


@lru_cache(maxsize=4096)
def _entry_length(key: str) -> int:
    return len(json.dumps(key)) + len("[,]")


@lru_cache(maxsize=4096)
def _described(dtype: np.dtype, shape: tuple[int, ...]) -> tuple[np.dtype, int]:
    """Data type in which an array crosses, and its length in the message."""
    dtype = _little(dtype)
    header = json.dumps({"array": dtype.str, "shape": shape}, separators=(",", ":"))
    return dtype, len(header) + math.prod(shape) * dtype.itemsize


def _encode(payload: Any) -> tuple[bytes, list[np.ndarray]]:
    arrays: list[np.ndarray] = []

    def describe(node: Any) -> Any:
        if isinstance(node, np.ndarray):
            arrays.append(node)
            return {"array": _little(node.dtype).str, "shape": node.shape}
        if isinstance(node, dict):
            return {"dict": [[_key(key), describe(item)] for key, item in node.items()]}
        if isinstance(node, list | tuple):
            return [describe(item) for item in node]
        return _scalar(node)

    return json.dumps(describe(payload), separators=(",", ":")).encode(), arrays


def _scalar(node: Any) -> Any:
    if node is None or isinstance(node, bool):
        return node
    if isinstance(node, str):
        return str(node)
    if isinstance(node, np.bool_):
        return bool(node)
    if isinstance(node, Integral):
        return int(node)
    if isinstance(node, Real):
        return float(node)
    raise TypeError(
        f"{type(node).__name__} does not cross the wire: send arrays of numbers, "
        "scalars, strings, and lists or dicts of them"
    )


def _key(key: Any) -> str:
    if type(key) is str:
        return key
    if not isinstance(key, str):
        raise TypeError("keys of a dict that crosses the wire must be strings")
    return str(key)


def _little(dtype: np.dtype) -> np.dtype:
    try:
        return _DTYPES[dtype.newbyteorder("<").str]
    except KeyError:
        raise TypeError(
            f"an array of data type {dtype} does not cross the wire"
        ) from None


def _own(array: np.ndarray, copy: bool = True) -> np.ndarray:
    """Aligned array in C order; a copy shares no memory with anybody."""
    dtype = _DTYPES.get(array.dtype.str) or _little(array.dtype)
    # None copies where type or order must change, and nowhere else.
    return np.array(array, dtype, order="C", copy=copy or None)


def _raw(array: np.ndarray) -> bytes:
    return array.astype(_little(array.dtype), copy=False).tobytes()
