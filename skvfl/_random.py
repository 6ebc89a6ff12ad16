"""Private random streams: one child seed per party and purpose."""

from __future__ import annotations

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


def int_seed(sequence):
    """An integer that scikit-learn's ``random_state`` accepts."""
    return int(sequence.generate_state(1)[0] >> 1)


def _purposes(estimator):
    """Names of every ``random_state`` inside an estimator, in a fixed order."""
    return sorted(
        key
        for key in estimator.get_params(deep=True)
        if key == "random_state" or key.endswith("__random_state")
    )


def seed_missing(estimator, sequence):
    """Give every ``random_state`` inside ``estimator`` that is None a seed."""
    params, purposes = estimator.get_params(deep=True), _purposes(estimator)
    return estimator.set_params(
        **{
            key: int_seed(child)
            for key, child in zip(purposes, sequence.spawn(len(purposes)), strict=True)
            if params[key] is None
        }
    )


def seed_party(estimator, sequence):
    """Give every ``random_state`` inside ``estimator`` a seed of this party's own.

    A seed that the user set is kept as the root of the parties' streams, so that
    clones of one seeded template draw different numbers in different parties.
    """
    params, purposes = estimator.get_params(deep=True), _purposes(estimator)
    seeds = {}
    for key, child in zip(purposes, sequence.spawn(len(purposes)), strict=True):
        if params[key] is not None:
            child = np.random.SeedSequence(
                seed_sequence(params[key]).entropy, spawn_key=child.spawn_key
            )
        seeds[key] = int_seed(child)
    return estimator.set_params(**seeds)
