"""Parameters that had another name, which still works for a while."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any


def renamed(values: dict[str, Any] | None = None, **names: str) -> Callable[..., Any]:
    """Let a constructor take parameters by their former names, with a warning.

    Parameters
    ----------
    values : dict, default=None
        Former values and what they are called now.
    **names : str
        The present name of each former one.

    Returns
    -------
    decorate : callable
        For ``__init__``, whose signature stays as it is written.
    """
    now = values or {}

    def decorate(init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def wrapper(self: Any, *args: Any, **params: Any) -> None:
            for old in names.keys() & params.keys():
                new = names[old]
                if new in params:
                    raise TypeError(f"{old!r} is {new!r} now: give one of them")
                warnings.warn(
                    f"parameter {old!r} of {type(self).__name__} is {new!r} now, and "
                    "its old name will go: rename it",
                    FutureWarning,
                    stacklevel=2,
                )
                value = params.pop(old)
                known = isinstance(value, str) and value in now
                params[new] = now[value] if known else value
            init(self, *args, **params)

        # scikit-learn reads the parameters' names off this attribute, as it does for
        # deprecated classes.
        wrapper.deprecated_original = init  # type: ignore[attr-defined]
        return wrapper

    return decorate
