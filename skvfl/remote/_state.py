"""What an organisation has learnt, as plain data that it keeps at home.

A fitted party becomes a list of nodes in the wire format: containers, arrays, and the
attributes of objects of a few packages, by the names of their classes. Reading it makes
such objects and sets their attributes; nothing else in it is looked up or called.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch

from skvfl.exceptions import SettingsError
from skvfl.federation import _settings

# Classes and functions of these are looked up by name, and no others.
_PACKAGES = {"collections", "numpy", "scipy", "skvfl", "sklearn", "torch"}
_BUILTINS = {each.__name__: each for each in (bool, bytes, dict, float, int, list, str)}
_CONTAINERS = {each.__name__: each for each in (list, tuple, set, frozenset)}
_MAPPINGS = {"dict": dict, "OrderedDict": OrderedDict}
_NAMED = (type, FunctionType, BuiltinFunctionType, np.ufunc)
_PLAIN = (bool, int, float, str)


def to_state(value: Any) -> dict[str, Any]:
    """Plain data that says all about an object and what it holds.

    Raises
    ------
    SettingsError
        If something in it is of a package that is not known here.
    """
    writer = _Writer()
    root = writer.say(value)
    return {"root": root, "nodes": writer.nodes}


def from_state(state: dict[str, Any]) -> Any:
    """The object that :func:`to_state` wrote down.

    Raises
    ------
    SettingsError
        If it cannot be made again.
    """
    try:
        return _Reader(state["nodes"]).make(state["root"])
    except SettingsError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as exc:
        raise SettingsError(
            f"what was kept cannot be read ({type(exc).__name__}): fit again"
        ) from None


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        # The objects too, or another one could be given the place of one that is gone.
        self._seen: dict[int, tuple[int, Any]] = {}

    def say(self, value: Any) -> Any:
        if value is None or type(value) in _PLAIN:
            return value
        if id(value) not in self._seen:
            number = len(self.nodes)
            self._seen[id(value)] = number, value
            # Its place is taken first, because what it holds may refer to it.
            self.nodes.append(None)
            self.nodes[number] = self._describe(value)
        return [self._seen[id(value)][0]]

    def _describe(self, value: Any) -> list[Any]:
        kind = type(value)
        for describe in (_as_number, _as_tensor, _as_stream):
            if (found := describe(value)) is not None:
                return found
        if kind is bytes:
            return ["bytes", np.frombuffer(value, np.uint8)]
        if kind is np.ndarray:
            return self._array(value)
        if kind in _CONTAINERS.values():
            return [kind.__name__, [self.say(each) for each in value]]
        if kind in _MAPPINGS.values():
            pairs = [[self.say(k), self.say(v)] for k, v in value.items()]
            return [kind.__name__, pairs]
        if isinstance(value, _NAMED):
            return ["name", _name_of(value)]
        if kind is MethodType:
            return ["method", self.say(value.__self__), value.__name__]
        if kind is functools.partial:
            parts = value.func, value.args, value.keywords
            return ["partial", *map(self.say, parts)]
        return self._object(value)

    def _array(self, value: np.ndarray) -> list[Any]:
        if value.dtype.kind in "biuf":
            return ["array", np.array(value)]
        shape = list(value.shape)
        if value.dtype.kind in "mM":
            return ["times", value.dtype.str, value.astype(np.int64)]
        if value.dtype.kind not in "OU":
            raise SettingsError(f"an array of {value.dtype} cannot be kept")
        cells = [self.say(each) for each in value.ravel().tolist()]
        return ["cells", value.dtype.str, shape, cells]

    def _object(self, value: Any) -> list[Any]:
        kind = type(value)
        try:
            reduced = value.__reduce_ex__(2)
        except TypeError:
            reduced = ""
        # Attributes alone: whatever else an object asks for would have to be called.
        match reduced:
            case (maker, (_, *arguments), state, None, None) if (
                maker.__name__ == "__newobj__"
            ):
                said = [self.say(each) for each in arguments]
                return ["object", _name_of(kind), said, self.say(state)]
        raise SettingsError(f"a {kind.__name__} cannot be kept in plain data")


def _as_number(value: Any) -> list[Any] | None:
    if isinstance(value, np.dtype):
        return ["dtype", value.str]
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return ["number", np.array(value)]
    # The wire has no moments and durations: a column of dates is measured from one.
    if isinstance(value, np.datetime64 | np.timedelta64):
        return ["time", value.dtype.str, int(value.astype(np.int64))]
    if isinstance(value, torch.dtype | torch.device):
        return ["torch", type(value).__name__, str(value).removeprefix("torch.")]
    return None


def _as_tensor(value: Any) -> list[Any] | None:
    if isinstance(value, torch.Generator):
        return ["generator", value.get_state().numpy()]
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        numbers = value.detach().numpy().copy()
        return ["tensor", type(value).__name__, numbers, value.requires_grad]
    return None


def _as_stream(value: Any) -> list[Any] | None:
    if isinstance(value, np.random.SeedSequence):
        entropy = value.entropy
        words = [str(each) for each in np.atleast_1d(np.array(entropy, object))]
        rest = [*map(int, value.spawn_key)], value.pool_size, value.n_children_spawned
        return ["stream", isinstance(entropy, int), words, *rest]
    if isinstance(value, np.random.Generator):
        bits = value.bit_generator
        return ["draws", type(bits).__name__, _text_of(bits.state)]
    return None


def _text_of(state: Any) -> Any:
    """State of a bit generator; its numbers are too long for anything but text."""
    if isinstance(state, dict):
        return {key: _text_of(each) for key, each in state.items()}
    if isinstance(state, int) and not isinstance(state, bool):
        return {"int": str(state)}
    return state


def _of_text(state: Any) -> Any:
    if isinstance(state, dict) and state.keys() == {"int"}:
        return int(state["int"])
    if isinstance(state, dict):
        return {key: _of_text(each) for key, each in state.items()}
    return state


def _name_of(value: Any) -> str:
    for name, block in _settings._REGISTERED.items():
        if block is value:
            return f":{name}"
    if isinstance(value, type) and value in _BUILTINS.values():
        return f"builtins:{value.__name__}"
    module = getattr(value, "__module__", None) or "numpy"
    name = f"{module}:{getattr(value, '__qualname__', value.__name__)}"
    try:
        found = _find(name)
    except (SettingsError, AttributeError, ImportError):
        found = None
    if found is not value:
        raise SettingsError(
            f"{value.__name__} is of no package whose state can be kept: register it "
            "(skvfl.federation.register)"
        )
    return name


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    if not module:
        return _settings._REGISTERED[path]
    if module == "builtins":
        return _BUILTINS[path]
    if module.partition(".")[0] not in _PACKAGES:
        raise SettingsError(f"what was kept speaks of {name!r}, which is not known")
    found = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if not isinstance(found, _NAMED):
        raise SettingsError(f"what was kept speaks of {name!r}, which is no block")
    return found


class _Reader:
    def __init__(self, nodes: list[Any]) -> None:
        self._nodes = nodes
        self._made: dict[int, Any] = {}

    def make(self, said: Any) -> Any:
        if not isinstance(said, list):
            return said
        (number,) = said
        if number not in self._made:
            kind, *parts = self._nodes[number]
            made = _MAKERS[kind](self, number, kind, *parts)
            self._made[number] = made
        return self._made[number]

    def container(self, number: int, kind: str, items: list[Any]) -> Any:
        if kind != "list":
            return _CONTAINERS[kind]([self.make(each) for each in items])
        # Known before it is filled: what it holds may refer to it.
        made = self._made[number] = []
        made += [self.make(each) for each in items]
        return made

    def mapping(self, number: int, kind: str, pairs: list[Any]) -> Any:
        made = self._made[number] = _MAPPINGS[kind]()
        for key, value in pairs:
            made[self.make(key)] = self.make(value)
        return made

    def cells(
        self, _n: int, _k: str, dtype: str, shape: list[Any], items: list[Any]
    ) -> Any:
        array = np.empty(len(items), object)
        array[:] = [self.make(each) for each in items]
        return array.astype(dtype).reshape(shape)

    def method(self, _n: int, _k: str, owner: Any, name: str) -> Any:
        made = getattr(self.make(owner), name)
        if not isinstance(made, MethodType):
            raise SettingsError(f"what was kept speaks of {name!r}, which is no method")
        return made

    def partial(self, _n: int, _k: str, *parts: Any) -> Any:
        function, arguments, keywords = map(self.make, parts)
        return functools.partial(function, *arguments, **keywords)

    def object(
        self, number: int, _k: str, name: str, said: list[Any], state: Any
    ) -> Any:
        kind = _find(name)
        if not isinstance(kind, type):
            raise SettingsError(f"what was kept speaks of {name!r}, which is no class")
        arguments = [self.make(each) for each in said]
        made = self._made[number] = kind.__new__(kind, *arguments)
        state = self.make(state)
        if hasattr(made, "__setstate__"):
            if state is not None:
                made.__setstate__(state)
        elif isinstance(state, tuple):
            for each in filter(None, state):
                for key, value in each.items():
                    object.__setattr__(made, key, value)
        elif state:
            vars(made).update(state)
        return made


def _tensor(_r: Any, _n: int, _k: str, kind: str, numbers: Any, learns: bool) -> Any:
    tensor = torch.from_numpy(np.array(numbers))
    if kind == "Parameter":
        return torch.nn.Parameter(tensor, requires_grad=learns)
    return tensor.requires_grad_(learns)


def _generator(_r: Any, _n: int, _k: str, state: np.ndarray) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(torch.from_numpy(np.array(state)))
    return generator


def _torch(_r: Any, _n: int, _k: str, kind: str, name: str) -> Any:
    if kind == "device":
        return torch.device(name)
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise SettingsError("what was kept speaks of no data type")
    return found


def _stream(
    _r: Any, _n: int, _k: str, single: bool, words: list[Any], *rest: Any
) -> Any:
    entropy = [int(word) for word in words]
    key, pool_size, n_spawned = rest
    return np.random.SeedSequence(
        entropy[0] if single else entropy,
        spawn_key=tuple(key),
        pool_size=pool_size,
        n_children_spawned=n_spawned,
    )


def _draws(_r: Any, _n: int, _k: str, kind: str, state: Any) -> np.random.Generator:
    bits = {"PCG64": np.random.PCG64, "MT19937": np.random.MT19937}[kind](0)
    bits.state = _of_text(state)
    return np.random.Generator(bits)


_MAKERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_CONTAINERS, _Reader.container),
    **dict.fromkeys(_MAPPINGS, _Reader.mapping),
    "bytes": lambda _r, _n, _k, array: array.tobytes(),
    "array": lambda _r, _n, _k, array: array,
    "times": lambda _r, _n, _k, dtype, array: array.astype(dtype),
    "number": lambda _r, _n, _k, array: array[()],
    "time": lambda _r, _n, _k, dtype, count: np.array(count).astype(dtype)[()],
    "dtype": lambda _r, _n, _k, name: np.dtype(name),
    "name": lambda _r, _n, _k, name: _find(name),
    "cells": _Reader.cells,
    "method": _Reader.method,
    "partial": _Reader.partial,
    "object": _Reader.object,
    "tensor": _tensor,
    "generator": _generator,
    "torch": _torch,
    "stream": _stream,
    "draws": _draws,
}
