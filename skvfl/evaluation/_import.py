"""Packages that only some users have."""

from __future__ import annotations

import importlib


def optional(module, caller, extra):
    """Import a package that is needed here alone, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        package = module.partition(".")[0]
        raise ImportError(
            f"{caller} needs {package}: pip install 'skvfl[{extra}]'"
        ) from exc
