"""Which client of a simulation holds which rows."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from skvfl._sklearn import _safe_indexing
from skvfl._targets import check_entries, read_column, refuse_missing
from skvfl.federation import Holding, Labels
from skvfl.privacy import KeyRing

_NOBODY = -1


def deal_rows(clients, holders, active, n_rows, rng):
    """Deal the rows of a table to clients, as the parameter ``clients`` says.

    Parameters
    ----------
    clients : dict of str to int or array-like of int
        As the estimators take it.
    holders : list of str
        Parties that hold columns, and the active one.
    active : list of str
        Names of the active parties, which hold all rows.
    n_rows : int
        Number of rows.
    rng : numpy.random.Generator
        Deals rows of which only the number of clients is said.

    Returns
    -------
    clusters : dict of str to list of str
        Names of each party's clients.
    held : dict of str to ndarray of int or None
        Ids of each client's rows, None for all.
    partly : set of str
        Parties of which nobody holds some rows.
    """
    for name in clients:
        if name not in holders or name in active:
            raise ValueError(
                f"clients: {name!r} is not one of the passive parties "
                f"{[each for each in holders if each not in active]}"
            )
    # In one order, and drawn for each party in turn: who has which rows depends on it.
    clusters, held, partly = {}, {}, set()
    for name in holders:
        owner = _owners(name, clients.get(name, 1), n_rows, rng)
        if owner is None:
            clusters[name], held[name] = [name], None
            continue
        # Remembered, since a table to be served has no word for rows that nobody holds.
        if (owner == _NOBODY).any():
            partly.add(name)
        n_clients = owner.max() + 1
        cluster = [f"{name}.{i}" for i in range(n_clients)]
        clusters[name] = cluster if n_clients > 1 else [name]
        for i, client in enumerate(clusters[name]):
            held[client] = np.flatnonzero(owner == i)
    names = [client for cluster in clusters.values() for client in cluster]
    if len(set(names)) < len(names):
        raise ValueError(f"two clients have one name: {names}; rename the party")
    return clusters, held, partly


def deal_labels(label_holders, active, n_rows, rng):
    """Position of the active party that holds each row's label; None for a single one.

    Parameters
    ----------
    label_holders : array-like of str or None
        Their names; None deals the labels.
    active : list of str
        Names of the active parties.
    n_rows : int
        Number of rows.
    rng : numpy.random.Generator
        Deals labels of which nobody says who holds them.
    """
    if label_holders is None:
        dealt = rng.permutation(np.arange(n_rows) % len(active))
    else:
        names, missing = read_column(label_holders, "label_holders")
        check_entries(len(names), n_rows, "label_holders")
        refuse_missing(missing, "label_holders", "every row's label is somebody's")
        # As text, because a cell may be anything, and not all of it can be looked up.
        place = {name: i for i, name in enumerate(active)}
        dealt = np.array([place.get(str(name), _NOBODY) for name in names])
        if (dealt == _NOBODY).any():
            raise ValueError(
                f"label_holders has {np.count_nonzero(dealt == _NOBODY)} rows whose "
                f"label none of the active parties {active} holds: name them in active"
            )
    for i, name in enumerate(active):
        if not (dealt == i).any():
            raise ValueError(
                f"label_holders: active party {name!r} holds the label of none of the "
                f"{n_rows} rows: leave it out of active"
            )
    return None if len(active) == 1 else dealt


def labels_of(labels, owners, active):
    """What each active party knows of the labels, by name."""
    if owners is None:
        return {active[0]: labels}
    return {name: _blank(labels, owners == i) for i, name in enumerate(active)}


def sizes_of(labels):
    """How many rows' labels each active party holds."""
    return {
        name: len(each.values) if each.known is None else int(each.known.sum())
        for name, each in labels.items()
    }


def _blank(labels, known):
    """Labels without those that somebody else holds."""
    weights = None if labels.weights is None else np.where(known, labels.weights, 0.0)
    values = np.where(known, labels.values, np.zeros_like(labels.values))
    return Labels(values, labels.n_classes, weights, known)


def dealt_to(party, clusters, held):
    """What each client of a party holds, by name.

    Parameters
    ----------
    party : Member
        With all rows.
    clusters, held : dict
        As :func:`deal_rows` gives them.
    """
    holdings = {}
    for client in clusters.get(party.name, []):
        rows, holding = held[client], party.holding
        holdings[client] = holding if rows is None else _some(holding, rows)
    return holdings


def dealt_in_turn(holdings, clusters):
    """What each client holds of rows to be served, by name.

    Parameters
    ----------
    holdings : dict of str to Holding
        Of the parties that are at home here.
    clusters : dict of str to list of str
        Names of each party's clients.
    """
    dealt = {}
    for party, holding in holdings.items():
        cluster = clusters.get(party, [])
        # In turn, because a prediction draws nothing at random.
        for i, client in enumerate(cluster):
            rows = np.arange(i, holding.n_rows, len(cluster))
            dealt[client] = holding if len(cluster) == 1 else _some(holding, rows)
    return dealt


def refuse_dealing(clients, key_rings, home):
    """Refuse what only a simulation can give to its members.

    Parameters
    ----------
    clients, key_rings : dict or None
        As the estimators take them.
    home : set of str
        Who is at home where the protocol runs.
    """
    if clients:
        raise ValueError(
            "clients deals the rows of one table, and the members of a federation have "
            "tables of their own: leave clients out"
        )
    for name in key_rings or {}:
        if name not in home:
            raise ValueError(
                f"key_rings: {name!r} has its identity at home, and no other "
                "organisation should have it"
            )


def refuse_loner(names, n_features):
    """Refuse a sum that would be one client's contribution."""
    if len(names) < 2:
        raise ValueError(
            f"a secure layer needs at least two clients, and {names[0]!r} is alone "
            f"(n_features={n_features}): its sum would be its own contribution; give "
            "columns to another party"
        )


def check_rings(key_rings, names):
    """Refuse identities of nobody, or of somebody else."""
    for name, ring in key_rings.items():
        if name not in names:
            raise ValueError(f"key_rings: {name!r} is not one of {names}")
        if not isinstance(ring, KeyRing) or ring.name != name:
            raise ValueError(f"key_rings: {name!r} needs a KeyRing({name!r})")


def _some(holding, rows):
    return Holding(_safe_indexing(holding.block, rows), rows)


def _owners(name, clients, n_rows, rng):
    """Position of each row's client in its cluster; None where one holds all rows."""
    if isinstance(clients, Integral) and not isinstance(clients, bool):
        if not 1 <= clients <= n_rows:
            raise ValueError(
                f"clients: {name!r} cannot have {clients} clients with n_samples="
                f"{n_rows}; each holds at least one row"
            )
        return None if clients == 1 else rng.permutation(np.arange(n_rows) % clients)
    owners = _positions(name, clients, n_rows)
    found = np.unique(owners[owners != _NOBODY])
    if not len(found) or not np.array_equal(found, np.arange(len(found))):
        raise ValueError(
            f"clients: the clients of {name!r} must be 0, 1, … and hold a row each, "
            f"with {_NOBODY} for rows that nobody holds; got "
            f"{np.unique(owners)[:5].tolist()} …"
        )
    return None if (owners == 0).all() else owners


def _positions(name, clients, n_rows):
    """Position of each row's client, as it was given."""
    owners = np.asarray(clients)
    if owners.shape != (n_rows,) or owners.dtype.kind not in "iu":
        raise ValueError(
            f"clients: {name!r} needs a number of clients, or the position of each "
            f"row's client as {n_rows} integers; got {owners.dtype} of shape "
            f"{owners.shape}"
        )
    return owners
