"""The wire format: arrays and scalars to bytes and back, without pickles.

A message is ``b"skvfl1"``, the length of a JSON header, the header, and the raw bytes
of every array in C order. The header holds the payload with each array replaced by its
data type and shape.
"""

from __future__ import annotations

import json
import math
import struct
from numbers import Integral, Real
from typing import Any

import numpy as np

MAGIC = b"skvfl1"
_LENGTH = struct.Struct("<I")
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


def unpack(message: bytes) -> Any:
    """Read back what :func:`pack` wrote; arrays are the reader's own.

    Raises
    ------
    ValueError
        If the message is not in this format, or is cut short.
    """
    start = len(MAGIC) + _LENGTH.size
    if message[: len(MAGIC)] != MAGIC or len(message) < start:
        raise ValueError("not a skvfl message")
    (length,) = _LENGTH.unpack_from(message, len(MAGIC))
    offset = start + length

    def restore(node: Any) -> Any:
        nonlocal offset
        if isinstance(node, list):
            return [restore(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "array" not in node:
            return {key: restore(item) for key, item in node["dict"]}
        dtype, shape = _DTYPES[node["array"]], node["shape"]
        if min(shape, default=0) < 0:
            raise ValueError("an array of negative length")
        array = np.frombuffer(message, dtype, math.prod(shape), offset)
        offset += array.nbytes
        return _own(array.reshape(shape))

    try:
        payload = restore(json.loads(message[start:offset]))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise ValueError("a damaged skvfl message") from exc
    if offset != len(message):
        raise ValueError(
            f"a skvfl message of {len(message)} bytes where {offset} were announced"
        )
    return payload


def measure(payload: Any) -> tuple[int, bool]:
    """Length of the packed payload in bytes, and whether it holds an array."""
    header, arrays = _encode(payload)
    size = len(MAGIC) + _LENGTH.size + len(header) + sum(a.nbytes for a in arrays)
    return size, bool(arrays)


def freeze(payload: Any) -> Any:
    """What ``unpack(pack(payload))`` gives, without the detour over bytes."""
    if isinstance(payload, np.ndarray):
        return _own(payload)
    if isinstance(payload, dict):
        return {_key(key): freeze(item) for key, item in payload.items()}
    if isinstance(payload, list | tuple):
        return [freeze(item) for item in payload]
    return _scalar(payload)


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


def _own(array: np.ndarray) -> np.ndarray:
    """Copy that shares no memory with anybody, aligned and in C order."""
    return np.array(array, _little(array.dtype), order="C")


def _raw(array: np.ndarray) -> bytes:
    return array.astype(_little(array.dtype), copy=False).tobytes()
