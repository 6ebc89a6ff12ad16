"""Whether an attacker may believe what it has found.

An attack that finds something in whatever it is given is no measurement. So every
attack asks its side knowledge whether the reconstruction is better than a guess, and
falls back on the guess where it is not.
"""

from __future__ import annotations

import numpy as np

# A reconstruction from numbers in single precision is about as exact.
EXACT = 1e-3
# So many views without information are believed by mistake.
LEVEL = 0.01
N_PERMUTATIONS = 199


def fits_by_chance(guess, values):
    """Whether a guess of known values is no better than of the same in another order.

    Parameters
    ----------
    guess, values : ndarray of shape (n_known,)
    """
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(values)) for _ in range(N_PERMUTATIONS)]
    errors = ((guess - values) ** 2).sum()
    if errors >= ((values - values.mean()) ** 2).sum():
        return True
    others = np.array([((guess - values[order]) ** 2).sum() for order in orders])
    return (1 + (others <= errors).sum()) / (1 + N_PERMUTATIONS) > LEVEL


def scales(values):
    """Standard deviation of every column, and 1 for a constant one."""
    scale = values.std(axis=0)
    return np.where(scale > 1e-12 * np.maximum(1, abs(values).max(axis=0)), scale, 1.0)


def held_against(guess, known):
    """A guess, without the columns of which known rows say that it is no better.

    Parameters
    ----------
    guess : ndarray of shape (n_rows, n_columns)
    known : tuple of ndarray or None
        Positions of known rows and their values.

    Returns
    -------
    guess : ndarray of shape (n_rows, n_columns)
        NaN in columns that are not believed.
    """
    if known is None:
        return guess
    rows, values = known
    pairs = zip(guess[rows].T, values.T, strict=True)
    chance = [np.isnan(g).any() or fits_by_chance(g, v) for g, v in pairs]
    return np.where(chance, np.nan, guess)
