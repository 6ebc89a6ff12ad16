"""Names of parties: which are allowed, which is meant, and in what order they stand."""

from __future__ import annotations

import re
from numbers import Integral

from skvfl.partition._columns import describe

RESERVED_NAMES = ("drop", "raise", "server")


def party_name(names, active):
    """Name of the active party, which is given by name or by position."""
    names = list(names)
    # True is an integer to Python, and would name the second party.
    is_position = isinstance(active, Integral) and not isinstance(active, bool)
    if is_position and -len(names) <= active < len(names):
        return names[active]
    if active in names:
        return active
    raise ValueError(f"active={active!r} is not one of the parties {names}")


def canonical_order(parties):
    """Parties in an order that does not depend on how a dict or a list was written.

    They stand as their first columns do in the table, which is how most people write
    them; parties of the same first column by name, ``party2`` before ``party10``.

    Parameters
    ----------
    parties : dict of str to ndarray of int
        Positions of the columns that each party holds; a party without any comes first.

    Returns
    -------
    parties : dict of str to ndarray of int
    """

    def key(name):
        # Every second part is a run of digits.
        parts = re.split(r"(\d+)", name)
        natural = [int(part) if i % 2 else part for i, part in enumerate(parts)]
        return min(parties[name], default=-1), natural, name

    return {name: parties[name] for name in sorted(parties, key=key)}


def _check_names(parties):
    for name in parties:
        if not isinstance(name, str):
            raise ValueError(
                f"the name of a party must be a string, got {name!r} of type "
                f"{type(name).__name__}"
            )
        # Double underscores separate names in parameters and in output columns; the
        # other words mean something as a remainder, or in the log.
        if not name or "__" in name or name in RESERVED_NAMES:
            raise ValueError(
                f"party name {name!r} is not allowed: a name is not empty, holds no "
                f"double underscore and is none of {RESERVED_NAMES}"
            )


def _check_overlap(held, names):
    # By the first owner, so that the message names both parties.
    owner = {}
    for party, positions in held.items():
        for position in positions:
            if position in owner:
                raise ValueError(
                    f"{describe(position, names)} is held by both "
                    f"{owner[position]!r} and {party!r}; set allow_overlap=True if "
                    "they really share it"
                )
            owner[position] = party
