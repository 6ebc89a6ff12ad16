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
# How many times smaller errors of other maps have to be than the plain one's.
DOUBT = 3.0
# Of the spread of all rows to that of known ones, at most.
PROPORTION = 3.0
# Share of all rows that known ones span.
MOSTLY = 0.5
# Of a length in single precision.
ROUNDING = 1e-5
# The rest adds little, and each costs a row of equations.
MOST_KNOWN = 400
# Of known rows, by which a matrix without a spare equation is judged.
N_ORDERS = 999
# Columns that a map is judged by.
MOST_JUDGED = 16


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
    plain : bool
        Whether it is the linear map that fits the known rows exactly.
    """
    for space, constant in product((received, whitened(received)), (0.0, FREE)):
        others = space @ space[rows].T
        size = np.diag(others[rows]).mean() or 1.0
        others = others / size + constant
        for ridge in RIDGES:
            plain = not constant and ridge == RIDGES[0]
            yield others[rows] + ridge * np.eye(len(rows)), others, plain


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
    solution = received @ np.linalg.pinv(received[rows], rcond=SMALLEST) @ values
    if is_turned(received[rows], values):
        return where_spanned(received, rows, solution, mean)
    if len(rows) < 2:
        return np.tile(mean, (len(received), 1))
    if is_solved(received, rows, values, solution, rng):
        return where_spanned(received, rows, solution, mean)
    scaled = sketch(values / scales(values), rng)
    orders = [np.arange(len(rows)), *map(rng.permutation, [len(rows)] * N_PERMUTATIONS)]
    # Side by side, so that one product serves all orders.
    ordered = np.concatenate([scaled[order] for order in orders], axis=1)
    best, guess = np.full(len(orders), np.inf), None
    for known, others, plain in maps(received, rows):
        inverse = np.linalg.inv(known)
        # Of each row, when the map is found from the others.
        left_out = inverse / np.diag(inverse)[:, None]
        squares = ((left_out @ ordered) ** 2).mean(axis=0)
        errors = squares.reshape(len(orders), -1).mean(axis=1)
        # With as many rows as columns the plain map is the true one, which does not
        # show in rows that are left out.
        left = errors[0]
        errors *= 1.0 if plain else DOUBT
        if errors[0] < best[0]:
            error, residuals = left, left_out @ values
            guess = within_reach(others @ (inverse @ values), values)
        best = np.minimum(best, errors)
    without = (scaled.sum(axis=0) - scaled) / (len(rows) - 1)
    by_chance = (best <= best[0]).mean()
    if by_chance <= LEVEL and error < ((scaled - without) ** 2).mean():
        return np.where(is_better(residuals, values), guess, mean)
    return np.tile(mean, (len(received), 1))


def where_spanned(received, rows, solution, mean):
    """A solution, but the mean for rows that known ones do not span, if these are few.

    Most rows of a table with rare categories are mixtures of known ones, and exact. One
    with a category that no known row has is none, and what the solution says of it is
    further off than the spread of the rare columns that it is mixed of.
    """
    known = received[rows]
    left = received - received @ np.linalg.pinv(known, rcond=SMALLEST) @ known
    size = np.linalg.norm(received, axis=1)
    spanned = np.linalg.norm(left, axis=1) <= EXACT * size
    if spanned.mean() < MOSTLY:
        return solution
    return np.where(spanned[:, None], solution, mean)


def is_better(residuals, values):
    """Of which columns known rows that are left out are guessed better than by a mean.

    A map that is right as a whole may still miss a column that hardly varies, such as a
    category of one known row, by many times its spread.
    """
    by_mean = ((values - values.mean(axis=0)) ** 2).mean(axis=0)
    return (residuals**2).mean(axis=0) < by_mean


def sketch(columns, rng):
    """Few mixtures of many columns, whose squared errors are theirs on average."""
    n_columns = columns.shape[1]
    if n_columns <= MOST_JUDGED:
        return columns
    mixture = rng.standard_normal((n_columns, MOST_JUDGED)) / np.sqrt(MOST_JUDGED)
    return columns @ mixture


def within_reach(guess, values):
    """A guess, but no farther out than known rows and half their range."""
    least, most = values.min(axis=0), values.max(axis=0)
    room = (most - least) / 2
    return guess.clip(least - room, most + room)


def is_solved(received, rows, values, solution, rng):
    """Whether known rows determine a matrix: more equations hold than it takes.

    With exactly as many rows as columns nothing is left over to check a solution by.
    But where it is wrong, it makes of all other rows values out of proportion: they
    spread more than for the right order of known rows.
    """
    known = received[rows]
    if np.linalg.norm(values - solution[rows]) > EXACT * np.linalg.norm(values):
        return False
    rank = np.linalg.matrix_rank(known, rtol=SMALLEST)
    if len(rows) > rank:
        return True
    if np.median(solution.std(axis=0) / scales(values)) > PROPORTION:
        return False
    whole = np.linalg.matrix_rank(received, rtol=SMALLEST)
    if min(rank, np.linalg.matrix_rank(values, rtol=SMALLEST)) < whole:
        return False
    _, axes, deviations = principal(received)
    back = (axes * deviations).T @ np.linalg.pinv(known, rcond=SMALLEST)
    scaled = values / scales(values)
    # Among few rows a drawn order is the right one now and then, and must not count
    # against itself: so there are many.
    orders = [np.arange(len(rows)), *map(rng.permutation, [len(rows)] * N_ORDERS)]
    spreads = [np.linalg.norm(back @ scaled[order], axis=0).sum() for order in orders]
    return bool(np.mean(spreads <= spreads[0]) <= LEVEL)


def is_turned(received, values):
    """Whether rows were turned: all lengths and angles are those of the columns."""
    ours, theirs = received @ received.T, values @ values.T
    size = np.linalg.norm(theirs)
    return size > 0 and np.linalg.norm(ours - theirs) < EXACT * size


def find_turned(received, values):
    """Known rows among those that were turned, by lengths and angles.

    Those that few rows can be are found first. Of rows of one length, as there are of
    categories, the one at the right angles to those found before is meant.

    Parameters
    ----------
    received : ndarray of shape (n_rows, width)
    values : ndarray of shape (n_known, n_columns)

    Returns
    -------
    found : tuple of list of int, or None
        Positions among the received rows, and among the known ones. None if half of the
        known rows or more are not there, as where lengths were not kept.
    """
    lengths = np.linalg.norm(received, axis=1)
    wanted = np.linalg.norm(values, axis=1)
    close = abs(lengths[:, None] - wanted) <= ROUNDING * wanted
    rows, which = [], []
    for k in np.argsort(close.sum(axis=0), kind="stable"):
        may_be = np.flatnonzero(close[:, k])
        if not may_be.size:
            continue
        angles = received[may_be] @ received[rows].T - values[k] @ values[which].T
        off = np.linalg.norm(angles, axis=1)
        best = off.argmin()
        if off[best] <= EXACT * wanted[k] * np.linalg.norm(wanted[which]):
            rows.append(may_be[best])
            which.append(k)
    if len(rows) < max(2, len(values) / 2):
        return None
    return rows, which
