"""Private random streams: one child seed per party and purpose.

A simulation stands for all organisations, so one seed has to give each of them secrets
of its own. Streams are dealt by name and one-way.
"""

from __future__ import annotations

import copy
import hashlib
from numbers import Integral

import numpy as np
from scipy.special import ndtri

# By name: a party's secrets must not depend on how many parties there are or on the
# order in which they are written, or the results of a seed would change with both. An
# organisation that is dealt its stream apart from the others needs its name alone.
#
# One-way: a party has its stream in full, and words of it may be sent or saved with its
# half of the model. A child of numpy's carries the entropy of its root, and even its
# words can be solved for that entropy. Whoever had one would compute the projection,
# masks and noise of every other party. A stream is therefore hashed where it leaves the
# hands of whoever holds the root, and not before: the hash of a root's child has no
# path back to its siblings, while children of a hashed stream are one party's own.


def seed_sequence(random_state):
    """Root of a fit's random streams.

    ``None`` takes fresh entropy from the operating system (never numpy's global
    generator), an int seeds the root, and a ``RandomState`` is drawn from.
    """
    if random_state is None:
        return np.random.SeedSequence()
    if isinstance(random_state, Integral):
        return np.random.SeedSequence(int(random_state))
    # As many bits as numpy takes from the operating system for a root.
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
    # Fixed byte order, so that a seed gives the same stream on every machine.
    state = sequence.generate_state(8).astype("<u4").tobytes()
    digest = hashlib.sha256(state).digest()
    return np.random.SeedSequence(int.from_bytes(digest, "little"))


def for_data(sequence, digest):
    """A stream that is another one for any other data.

    One seed serves many fits, such as those of a search. What hides rows must not be
    the same in two that differ, or it would cancel.

    Parameters
    ----------
    sequence : numpy.random.SeedSequence
        A party's own.
    digest : bytes
        Hash of the data.

    Returns
    -------
    stream : numpy.random.SeedSequence
    """
    state = sequence.generate_state(8).astype("<u4").tobytes()
    hashed = hashlib.sha256(state + digest).digest()
    return np.random.SeedSequence(int.from_bytes(hashed, "little"))


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
    # 31 bits, because some libraries read a seed as a signed word.
    return int(one_way(sequence).generate_state(1)[0] >> 1)


def _owners(estimator, sequence):
    """Every object inside an estimator that has a ``random_state``, in a fixed order.

    Returns
    -------
    owners : list of (str, estimator, seed, SeedSequence)
        Name of the parameter, the object that owns it, its value, and a stream for it.
    """
    params = estimator.get_params(deep=True)
    # Sorted, because the order of ``get_params`` is that in which a user wrote steps.
    keys = [
        key
        for key in sorted(params)
        if key == "random_state" or key.endswith("__random_state")
    ]
    # What has a seed already uses up a child, too: to set one seed changes no other.
    return [
        (key, params.get(key.rpartition("__")[0], estimator), params[key], child)
        for key, child in zip(keys, sequence.spawn(len(keys)), strict=True)
    ]


def seed_missing(estimator, sequence):
    """Give every ``random_state`` inside ``estimator`` that is None a seed."""
    return estimator.set_params(
        **{
            key: int_seed(child)
            for key, _, given, child in _owners(estimator, sequence)
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
    seeds = {}
    for key, owner, given, child in _owners(estimator, sequence):
        if given is not None:
            # All parties have this seed in common, so the name keeps them apart.
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
    for key, owner, given, child in _owners(estimator, sequence):
        # Seeded in a simulation already, or by the organisation itself.
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


def keyed_noise(key, rows, n_columns):
    """Standard normal numbers that are a secret function of each row.

    The same row always gives the same numbers, so that asking again does not average
    them away; without the key they cannot be told from independent draws.

    Parameters
    ----------
    key : bytes of length 32
        The secret.
    rows : ndarray of shape (n_rows, n_inputs)
        What the numbers depend on.
    n_columns : int
        How many numbers for each row.

    Returns
    -------
    noise : ndarray of shape (n_rows, n_columns), dtype float64
    """
    # Equal rows have equal bytes: in double precision, and without the sign of zero.
    rows = np.ascontiguousarray(rows, dtype=np.float64) + 0.0
    # A sponge keyed by a prefix lets nobody go on from a digest, as older hashes do.
    digests = [
        hashlib.shake_256(key + row.tobytes()).digest(8 * n_columns) for row in rows
    ]
    words = np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, n_columns)
    uniform = (words >> np.uint64(11)) * 2.0**-53 + 2.0**-54
    # The largest number rounds to 1, whose normal number would be infinite.
    return ndtri(np.minimum(uniform, 1 - 2.0**-53))
