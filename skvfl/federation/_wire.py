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
_KINDS = "biuf"


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
    """Read back what :func:`pack` wrote; arrays are read-only views of ``message``.

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
        dtype, shape = np.dtype(node["array"]), tuple(node["shape"])
        if dtype.kind not in _KINDS or min(shape, default=0) < 0:
            raise ValueError(f"an array of {dtype} and {shape} does not cross the wire")
        count = math.prod(shape)
        array = np.frombuffer(message, dtype, count, offset).reshape(shape)
        offset += array.nbytes
        return array

    try:
        payload = restore(json.loads(message[start:offset]))
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError("the header of a skvfl message is damaged") from exc
    if offset != len(message):
        raise ValueError(f"{len(message) - offset} bytes too many in a skvfl message")
    return payload


def measure(payload: Any) -> tuple[int, bool]:
    """Length of the packed payload in bytes, and whether it holds an array."""
    header, arrays = _encode(payload)
    size = len(MAGIC) + _LENGTH.size + len(header) + sum(a.nbytes for a in arrays)
    return size, bool(arrays)


def freeze(payload: Any) -> Any:
    """What ``unpack(pack(payload))`` gives, without copying the arrays."""
    if isinstance(payload, np.ndarray):
        view = np.ascontiguousarray(payload, _little(payload.dtype)).view(np.ndarray)
        view = view.reshape(payload.shape)
        view.flags.writeable = False
        return view
    if isinstance(payload, dict):
        return {key: freeze(item) for key, item in payload.items()}
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
            if not all(isinstance(key, str) for key in node):
                raise TypeError("keys of a dict that crosses the wire must be strings")
            return {"dict": [[key, describe(item)] for key, item in node.items()]}
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


def _little(dtype: np.dtype) -> np.dtype:
    if dtype.kind not in _KINDS:
        raise TypeError(f"an array of data type {dtype} does not cross the wire")
    return dtype.newbyteorder("<")


def _raw(array: np.ndarray) -> memoryview | bytes:
    array = np.ascontiguousarray(array, _little(array.dtype))
    return array.tobytes() if array.size == 0 else memoryview(array).cast("B")
