"""Whether an attacker may believe what it has found.

An attack that finds something in whatever it is given is no measurement. So every attack
asks its side knowledge whether the reconstruction is better than a guess, and falls back
on the guess where it is not.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student

# A reconstruction from numbers in single precision is about as exact.
EXACT = 1e-3
# So many views without information are believed by mistake.
LEVEL = 0.02
N_PERMUTATIONS = 199


def proves_better(errors, prior):
    """Whether errors are smaller than a guess's, and not by chance.

    Parameters
    ----------
    errors, prior : ndarray of shape (n_rows,)
        Squared errors of known rows, of the reconstruction and of the guess.
    """
    gain = prior - errors
    if len(gain) < 2 or gain.mean() <= 0:
        return False
    spread = gain.std(ddof=1) / np.sqrt(len(gain))
    return gain.mean() > spread * student.ppf(1 - LEVEL, len(gain) - 1)


def scales(values):
    """Standard deviation of every column, and 1 for a constant one."""
    scale = values.std(axis=0)
    return np.where(scale > 1e-12 * np.maximum(1, abs(values).max(axis=0)), scale, 1.0)


def held_against(guess, known, mean):
    """A guess, but the mean of columns of which known rows say that it is better.

    Parameters
    ----------
    guess : ndarray of shape (n_rows, n_columns)
    known : tuple of ndarray or None
        Positions of known rows and their values.
    mean : ndarray of shape (n_columns,)
        What is guessed without a view.
    """
    if known is None:
        return guess
    rows, values = known
    errors = (guess[rows] - values) ** 2
    prior = (mean - values) ** 2
    better = [proves_better(*pair) for pair in zip(errors.T, prior.T, strict=True)]
    return np.where(better, guess, mean)
