"""Private random streams: one child seed per party and purpose."""

from __future__ import annotations

import copy
import hashlib
from numbers import Integral

import numpy as np


def seed_sequence(random_state):
    """Root of a fit's random streams.

    ``None`` takes fresh entropy from the operating system (never numpy's global
    generator), an int seeds the root, and a ``RandomState`` is drawn from.
    """
    if random_state is None:
        return np.random.SeedSequence()
    if isinstance(random_state, Integral):
        return np.random.SeedSequence(int(random_state))
    words = random_state.randint(2**32, size=4, dtype=np.uint32)
    return np.random.SeedSequence(words.tolist())


def generator(random_state):
    """A generator of its own for one purpose; see :func:`seed_sequence`."""
    return np.random.default_rng(seed_sequence(random_state))


def one_way(sequence):
    """A stream that may be handed to a party, or whose words may be sent.

    numpy's own streams are invertible functions of the entropy of their root: four
    words of one give away the root, and with it the streams of everybody else.
    """
    state = sequence.generate_state(8).astype("<u4").tobytes()
    digest = hashlib.sha256(state).digest()
    return np.random.SeedSequence(int.from_bytes(digest, "little"))


def spawn_named(sequence, names):
    """One child stream for each party, which depends on the party's name alone.

    Numbered children, as ``sequence.spawn`` gives them, would change hands when the
    parties are written in another order, and with them every result of the seed.

    Parameters
    ----------
    sequence : numpy.random.SeedSequence
        Their parent. It is left as it was.
    names : iterable of str
        Names of the parties.

    Returns
    -------
    children : dict of str to numpy.random.SeedSequence
        Streams from which the parent can be computed; see :func:`one_way`.
    """
    return {
        name: np.random.SeedSequence(
            sequence.entropy, spawn_key=(*sequence.spawn_key, *_words(name))
        )
        for name in names
    }


def _words(name):
    return np.frombuffer(hashlib.sha256(name.encode()).digest(), "<u4").tolist()


def deal(roots, names):
    """Every member's secret streams, for a simulation, which stands for all of them.

    Parameters
    ----------
    roots : dict of str to numpy.random.SeedSequence
        Where each purpose's streams branch off.
    names : iterable of str
        Names of the members.

    Returns
    -------
    streams : dict of str to dict of str to numpy.random.SeedSequence
        By member and purpose; none leads to another, see :func:`one_way`.
    """
    dealt = {name: {} for name in names}
    for purpose, root in roots.items():
        for name, child in spawn_named(root, dealt).items():
            # numpy's streams can be inverted: who is handed one would find the root,
            # and with it everybody's.
            dealt[name][purpose] = one_way(child)
    return dealt


def branch(root, *path):
    """The stream that ``root.spawn`` gives at the end of a path of positions.

    ``root`` is left as it was, so that branches do not depend on who asks first.
    """
    return np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, *path))


def int_seed(sequence):
    """An integer that scikit-learn's ``random_state`` accepts.

    It may be sent or kept, see :func:`one_way`.
    """
    return int(one_way(sequence).generate_state(1)[0] >> 1)


def _owners(estimator):
    """Every object inside an estimator that has a ``random_state``, in a fixed order.

    Returns
    -------
    owners : list of (str, estimator, seed)
        Name of the parameter, the object that owns it, and its value.
    """
    params = estimator.get_params(deep=True)
    return [
        (key, params.get(key.rpartition("__")[0], estimator), params[key])
        for key in sorted(params)
        if key == "random_state" or key.endswith("__random_state")
    ]


def seed_missing(estimator, sequence):
    """Give every ``random_state`` inside ``estimator`` that is None a seed."""
    owners = _owners(estimator)
    return estimator.set_params(
        **{
            key: int_seed(child)
            for (key, _, given), child in zip(
                owners, sequence.spawn(len(owners)), strict=True
            )
            if given is None
        }
    )


def seed_party(estimator, sequence, name="", *, leaves=True):
    """Give every ``random_state`` inside ``estimator`` a stream of this party's own.

    A seed that the user set is kept as the root of the parties' streams, so that
    clones of one seeded template draw different numbers in different parties. What
    draws secrets has a method ``_draw_from`` and takes the stream itself: a seed has
    31 bits, which can be searched. The user's seed is then struck out where the
    estimator leaves for a party, because it is the root of all other parties' secrets.

    Parameters
    ----------
    estimator : estimator
        Unfitted; changed in place.
    sequence : numpy.random.SeedSequence
        The party's own.
    name : str, default=""
        Of the party; its streams below a seed that the user set go by it. Not needed
        where ``sequence`` was spawned for the party by its name.
    leaves : bool, default=True
        Whether the estimator leaves for a party.

    Returns
    -------
    estimator : estimator
    """
    owners = _owners(estimator)
    seeds = {}
    for (key, owner, given), child in zip(
        owners, sequence.spawn(len(owners)), strict=True
    ):
        if given is not None:
            path = (*_words(name), *child.spawn_key) if name else child.spawn_key
            child = branch(seed_sequence(given), *path)
        if hasattr(owner, "_draw_from"):
            owner._draw_from(one_way(child))
            seeds[key] = None if leaves else given
        else:
            seeds[key] = int_seed(child)
    return estimator.set_params(**seeds)


def seed_own(estimator, sequence):
    """Give what has neither a seed nor a stream yet one of its organisation's own.

    Parameters
    ----------
    estimator : estimator
        Unfitted; changed in place.
    sequence : numpy.random.SeedSequence
        The organisation's own.

    Returns
    -------
    estimator : estimator
    """
    owners = _owners(estimator)
    for (key, owner, given), child in zip(
        owners, sequence.spawn(len(owners)), strict=True
    ):
        if given is not None or hasattr(owner, "_sequence"):
            continue
        if hasattr(owner, "_draw_from"):
            owner._draw_from(one_way(child))
        else:
            estimator.set_params(**{key: int_seed(child)})
    return estimator


def without_seeds(value):
    """The same with every ``random_state`` in it struck out, however deep.

    Parameters
    ----------
    value : object
        An estimator, or lists, tuples and dicts of some; left as it was.

    Returns
    -------
    copied : object
        Estimators are copied with what they have learnt; the rest is shared.
    """
    if isinstance(value, dict):
        return {key: without_seeds(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(without_seeds(each) for each in value)
    if isinstance(value, type) or not hasattr(value, "get_params"):
        return value
    copied = copy.copy(value)
    for name, each in value.get_params(deep=False).items():
        struck = None if name == "random_state" else without_seeds(each)
        setattr(copied, name, struck)
    return copied
