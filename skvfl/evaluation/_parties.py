"""Who holds what, the same for everything that is compared."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from sklearn.base import clone

from skvfl.federation import Federation
from skvfl.partition._partitioner import (
    VerticalPartitioner,
    _check_table,
    as_partition,
    party_name,
)

GRIDS = ("param_grid", "param_distributions")


class Parties(NamedTuple):
    """Who holds what.

    Attributes
    ----------
    given : VerticalPartitioner or Federation
        The ``parties`` of every federated estimator.
    owner : str
        Name of the active party.
    here : VerticalPartitioner
        Of the columns that are here; the same as ``given`` in a simulation.
    elsewhere : list of str
        Members whose columns are not here.
    """

    given: Any
    owner: str
    here: VerticalPartitioner
    elsewhere: list[str]

    @property
    def held(self):
        """What learns alone: entries of ``parties`` of each party with columns here."""
        parties = self.here.parties
        if isinstance(parties, list):
            return {entry[0]: [entry] for entry in parties if entry[2].size}
        return {name: {name: held} for name, held in parties.items() if held.size}

    @property
    def pooled(self):
        """All of them together."""
        if isinstance(self.here.parties, list):
            return [entry for [entry] in self.held.values()]
        return {name: entry[name] for name, entry in self.held.items()}


def find_federated(estimator):
    """Federated estimators in a model, by the prefix of their parameters' names.

    Parameters
    ----------
    estimator : estimator
        One of them, or a search, a pipeline or another meta-estimator around it.

    Returns
    -------
    found : dict of str to estimator
    """
    inside = estimator.get_params(deep=True)
    everything = {"": estimator} | {f"{key}__": each for key, each in inside.items()}
    return {key: each for key, each in everything.items() if _is_federated(each)}


def _is_federated(value):
    if isinstance(value, type) or not hasattr(value, "get_params"):
        return False
    return {"parties", "active"} <= value.get_params(deep=False).keys()


def refuse_varied_parties(name, method):
    """Refuse a search whose grid would undo that all rows have the same parties."""
    for key, value in method.get_params(deep=True).items():
        if key.rpartition("__")[2] not in GRIDS:
            continue
        for grid in value if isinstance(value, list) else [value]:
            for varied, values in grid.items():
                if varied.rpartition("__")[2] in ("parties", "active"):
                    raise ValueError(
                        f"{name!r} searches over {varied!r}, and all rows of a "
                        "comparison have the same parties: leave it out of the grid, "
                        "and compare once for each choice of parties"
                    )
                if isinstance(values, list) and any(map(_is_federated, values)):
                    raise ValueError(
                        f"the grid of {name!r} holds federated estimators as values of "
                        f"{varied!r}: give each of them as a method of its own"
                    )


def agree(methods, parties, active, X, y, seed):
    """Fix who holds which columns, so that all rows and folds have the same parties.

    Parameters
    ----------
    methods : dict of str to estimator
        With or without ``parties`` and ``active`` of their own.
    parties, active : object
        As :func:`skvfl.compare` was given them, or None.
    X, y : array-like
        The table and the labels.
    seed : callable
        Sets what is random in an estimator.

    Returns
    -------
    parties : Parties
    X : table
        Validated.

    Raises
    ------
    ValueError
        If two say different things; the message names both.
    """
    claims = _claims(methods, "parties", parties)
    first, source = claims[0] if claims else (2, "compare")
    owners = _claims(methods, "active", active)
    owner = owners[0][0] if owners else 0
    agreed, X = _deal(first, owner, X, y, seed)
    for other, name in claims[1:]:
        if other is not first and not _same(agreed, other, owner, X, y, seed):
            raise ValueError(
                f"{name} has other parties than {source}: all rows of a comparison "
                "have the same parties, so leave parties out of one of them, or "
                "compare twice"
            )
    names = _names(agreed)
    for other, name in owners[1:]:
        if party_name(names, other) != agreed.owner:
            raise ValueError(
                f"{name} has active={other!r} and {owners[0][1]} has "
                f"active={owner!r}: all rows of a comparison have the same active "
                "party, so leave it out of one of them, or compare twice"
            )
    return agreed, X


def _claims(methods, parameter, given):
    """What compare and the estimators say, with who says it; defaults say nothing."""
    claims = [] if given is None else [(given, "compare")]
    for name, method in methods.items():
        for each in find_federated(method).values():
            value = getattr(each, parameter)
            signature = inspect.signature(type(each)).parameters
            default = signature[parameter].default
            if not (type(value) is type(default) and value == default):
                claims.append((value, repr(name)))
    return claims


def _deal(parties, active, X, y, seed):
    if isinstance(parties, Federation):
        X = _check_table(X)
        owner = party_name(parties.names, active)
        own = VerticalPartitioner(
            parties={owner: parties.own_columns(X)}, remainder="drop"
        )
        partition, given = own, parties
        elsewhere = [name for name in parties.names if name != owner]
    else:
        partition, given, elsewhere = seed(as_partition(parties)), None, []
        owner = active
    X = partition._fit_columns(X, y, label_owner=owner)
    held = partition.parties_
    owner = party_name(held, owner)
    if isinstance(partition.parties, list):
        held = [(name, each, held[name]) for name, each, _ in partition.parties]
    fixed = clone(partition).set_params(parties=held)
    return Parties(fixed if given is None else given, owner, fixed, elsewhere), X


def _names(agreed):
    if isinstance(agreed.given, Federation):
        return agreed.given.names
    parties = agreed.here.parties
    return [entry[0] for entry in parties] if isinstance(parties, list) else [*parties]


def _same(agreed, other, active, X, y, seed):
    """Whether another way to write parties comes to the same columns and preparation.

    A federation is like itself alone: what its members hold is not known here.
    """
    if any(isinstance(each, Federation) for each in (other, agreed.given)):
        return other is agreed.given
    try:
        return _resolved(_deal(other, active, X, y, seed)[0]) == _resolved(agreed)
    except ValueError:
        return False


def _resolved(agreed):
    """Columns and preparation of each party, whichever way they were written."""
    parties, same_for_all = agreed.here.parties, agreed.here.transformer
    if not isinstance(parties, list):
        parties = [(name, same_for_all, held) for name, held in parties.items()]
    return {name: (repr(each), sorted(held)) for name, each, held in parties}
