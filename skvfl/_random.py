"""Private random streams: one child seed per party and purpose."""

from __future__ import annotations

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
    children = {}
    for name in names:
        digest = np.frombuffer(hashlib.sha256(name.encode()).digest(), "<u4")
        children[name] = np.random.SeedSequence(
            sequence.entropy, spawn_key=(*sequence.spawn_key, *digest.tolist())
        )
    return children


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


def seed_party(estimator, sequence, *, leaves=True):
    """Give every ``random_state`` inside ``estimator`` a stream of this party's own.

    A seed that the user set is kept as the root of the parties' streams, so that
    clones of one seeded template draw different numbers in different parties. What
    draws secrets has a method ``_draw_from`` and takes the stream itself: a seed has
    31 bits, which can be searched. The user's seed is then struck out where the
    estimator leaves for a party, because it is the root of all other parties' secrets.
    """
    owners = _owners(estimator)
    seeds = {}
    for (key, owner, given), child in zip(
        owners, sequence.spawn(len(owners)), strict=True
    ):
        if given is not None:
            child = np.random.SeedSequence(
                seed_sequence(given).entropy, spawn_key=child.spawn_key
            )
        if hasattr(owner, "_draw_from"):
            owner._draw_from(one_way(child))
            seeds[key] = None if leaves else given
        else:
            seeds[key] = int_seed(child)
    return estimator.set_params(**seeds)
