"""Columns that are linear in what was received, from rows that are known."""

from __future__ import annotations

from itertools import product

import numpy as np

from skvfl.privacy.attacks._evidence import EXACT, LEVEL, N_PERMUTATIONS, scales

# Of the largest standard deviation: single precision leaves nothing below it.
SMALLEST = 1e-5
RIDGES = (1e-8, 1e-4, 1e-2, 1e-1, 1.0)
# Of an intercept, in the same units: hardly any penalty.
FREE = 1e4
# The rest adds little, and each costs a row of equations.
MOST_KNOWN = 400


def principal(received):
    """Mean, axes and standard deviations of what was received, as far as it varies."""
    mean = received.mean(axis=0)
    _, lengths, axes = np.linalg.svd(received - mean, full_matrices=False)
    keep = lengths > SMALLEST * lengths[:1].max(initial=0)
    return mean, axes[keep].T, lengths[keep] / np.sqrt(len(received))


def whitened(received):
    """Coordinates of unit variance, which an invertible matrix only turns."""
    mean, axes, deviations = principal(received)
    return (received - mean) @ axes / deviations


def maps(received, rows):
    """Ways to find columns from known rows: whitened or not, with a constant or not.

    Yields
    ------
    known : ndarray of shape (n_known, n_known)
        Inner products of the known rows, with a ridge.
    others : ndarray of shape (n_rows, n_known)
        Inner products of all rows with the known ones.
    ridge : float
    """
    for space, constant in product((received, whitened(received)), (0.0, FREE)):
        others = space @ space[rows].T
        size = np.diag(others[rows]).mean() or 1.0
        others = others / size + constant
        for ridge in RIDGES:
            yield others[rows] + ridge * np.eye(len(rows)), others, ridge


def reconstruct(received, rows, values, rng):
    """Columns of all rows, or the known rows' mean where nothing proves a map.

    A map is believed if it guesses known rows that are left out better than it does
    when the known rows are taken for one another.

    Parameters
    ----------
    received : ndarray of shape (n_rows, width)
    rows : ndarray of int of shape (n_known,)
        Which rows are known.
    values : ndarray of shape (n_known, n_columns)
    rng : numpy.random.Generator

    Returns
    -------
    guess : ndarray of shape (n_rows, n_columns)
    """
    rows, values = rows[:MOST_KNOWN], values[:MOST_KNOWN]
    mean = values.mean(axis=0)
    if is_turned(received[rows], values):
        return received @ np.linalg.pinv(received[rows], rcond=SMALLEST) @ values
    if len(rows) < 2:
        return np.tile(mean, (len(received), 1))
    scaled = values / scales(values)
    orders = [np.arange(len(rows)), *map(rng.permutation, [len(rows)] * N_PERMUTATIONS)]
    # Side by side, so that one product serves all orders.
    ordered = np.concatenate([scaled[order] for order in orders], axis=1)
    best, guess = np.full(len(orders), np.inf), None
    for known, others, ridge in maps(received, rows):
        inverse = np.linalg.inv(known)
        # Of each row, when the map is found from the others.
        left_out = inverse / np.diag(inverse)[:, None]
        squares = ((left_out @ ordered) ** 2).mean(axis=0)
        errors = squares.reshape(len(orders), -1).mean(axis=1)
        exact = ridge == RIDGES[0]
        # With as many rows as unknowns the exact map is the true one, and does not
        # show in what is left out.
        errors *= 1.0 if exact else 1.5
        if errors[0] < best[0]:
            guess = others @ (inverse @ values)
            guess = guess if exact else within_reach(guess, values)
        best = np.minimum(best, errors)
    without = (scaled.sum(axis=0) - scaled) / (len(rows) - 1)
    by_chance = (best <= best[0]).mean()
    if by_chance <= LEVEL and best[0] < ((scaled - without) ** 2).mean():
        return guess
    return np.tile(mean, (len(received), 1))


def within_reach(guess, values):
    """A guess, but no farther out than known rows and half their range."""
    least, most = values.min(axis=0), values.max(axis=0)
    room = (most - least) / 2
    return guess.clip(least - room, most + room)


def is_turned(received, values):
    """Whether rows were turned: all lengths and angles are those of the columns."""
    ours, theirs = received @ received.T, values @ values.T
    size = np.linalg.norm(theirs)
    return size > 0 and np.linalg.norm(ours - theirs) < EXACT * size


def find_turned(received, values):
    """Positions of known rows that were turned, by their lengths; None if not turned.

    Parameters
    ----------
    received : ndarray of shape (n_rows, width)
    values : ndarray of shape (n_known, n_columns)
    """
    lengths = np.linalg.norm(received, axis=1)
    apart = abs(lengths[:, None] - np.linalg.norm(values, axis=1))
    rows = apart.argmin(axis=0)
    return rows if is_turned(received[rows], values) else None
