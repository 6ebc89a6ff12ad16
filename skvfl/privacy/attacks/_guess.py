"""What a few known rows teach of all others, and nothing where they teach nothing.

All that learns from known rows goes through kernel ridge regression, because leaving
out one row after the other then costs one decomposition. What does no better on
left-out rows than the prior guess is not used: a view without information must give the
prior's score, and what is learnt by chance would give less.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

# How many standard errors better than the prior guess left-out rows must be. With the
# best of several kernels chosen by the same rows, two are exceeded by chance too often.
CERTAIN = 2.5
# The decomposition costs the cube of it.
MOST_ROWS = 1500
PENALTIES = np.logspace(-9, 3, 13)
# Of a Gaussian kernel, in median distances of two rows.
WIDTHS = (0.5, 1.0, 3.0)


def standardised(features):
    """Features of rows with mean 0 and deviation 1; constant ones are left out.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features)
        Rows of NaN are not known.

    Returns
    -------
    features : ndarray of shape (n_rows, n_kept), dtype float64
        Zero where not known.
    """
    features = np.asarray(features, dtype=np.float64)
    if not len(features) or np.isnan(features).all():
        return np.zeros((len(features), 0))
    varies = np.nanmax(features, axis=0) > np.nanmin(features, axis=0)
    features = features[:, varies]
    scaled = features - np.nanmean(features, axis=0)
    deviation = np.nanstd(features, axis=0)
    scaled /= np.where(deviation > 0, deviation, 1)
    return np.nan_to_num(scaled, copy=False)


def kernels(features, known):
    """Similarities of all rows to the known ones: linear, then Gaussian ones.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features)
        Standardised.
    known : ndarray of int
        Positions of the known rows.

    Yields
    ------
    similar : ndarray of shape (n_rows, n_known)
    """
    width = max(features.shape[1], 1)
    yield features @ features[known].T / width
    squared = cdist(features, features[known], "sqeuclidean")
    typical = np.median(squared[known][~np.eye(len(known), dtype=bool)])
    if typical > 0:
        for factor in WIDTHS:
            yield np.exp(-squared / (2 * factor**2 * typical))


def ridge(similar, known, targets):
    """Kernel ridge regression, and what it says of known rows that are left out.

    Parameters
    ----------
    similar : ndarray of shape (n_rows, n_known)
        Similarities to the known rows.
    known : ndarray of int
        Positions of the known rows.
    targets : ndarray of shape (n_known, n_targets)
        What to predict.

    Returns
    -------
    guess : ndarray of shape (n_rows, n_targets)
    left_out : ndarray of shape (n_known, n_targets)
        Of each known row, learnt from the others.
    """
    # A constant in the kernel is an intercept that is not penalised, so that leaving a
    # row out leaves it out of the mean, too.
    intercept = 1e3 * max(np.abs(similar).max(), 1.0)
    values, vectors = eigh(similar[known] + intercept)
    values = np.maximum(values, 0)
    rotated = vectors.T @ targets
    best = np.full(targets.shape[1], np.inf)
    weights, left_out = np.zeros_like(targets), np.zeros_like(targets)
    for penalty in PENALTIES:
        inverse = 1 / (values + penalty)
        candidate = vectors @ (inverse[:, None] * rotated)
        own = (vectors**2 @ inverse)[:, None]
        residuals = candidate / own
        error = (residuals**2).mean(axis=0)
        better = error < best
        best = np.where(better, error, best)
        weights[:, better] = candidate[:, better]
        left_out[:, better] = (targets - residuals)[:, better]
    guess = similar @ weights + intercept * weights.sum(axis=0)
    return guess, left_out


def guess_columns(features, known, values):
    """Columns of all rows from the known ones, column by column.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features)
        What was seen of the rows; NaN where nothing was.
    known : ndarray of int
        Positions of the known rows.
    values : ndarray of shape (n_known, n_columns)
        Theirs.

    Returns
    -------
    columns : ndarray of shape (n_rows, n_columns)
        The known rows' mean in columns of which the features say nothing.
    """
    seen = ~np.isnan(features).any(axis=1)
    known, values = _few(known[seen[known]], values[seen[known]])
    prior = values.mean(axis=0) if len(values) else np.zeros(values.shape[1])
    columns = np.tile(prior, (len(features), 1))
    if len(known) < 3:
        return columns
    features = standardised(features)
    without = (values.sum(axis=0) - values) / (len(values) - 1)
    chance = (values - without) ** 2
    best = chance.mean(axis=0)
    for similar in kernels(features, known):
        guess, left_out = ridge(similar, known, values)
        error = (values - left_out) ** 2
        better = (error.mean(axis=0) < best) & certain(chance - error)
        best = np.where(better, error.mean(axis=0), best)
        columns[:, better] = guess[:, better]
    columns[~seen] = prior
    return columns


def guess_classes(features, known, labels, similarities=None):
    """Classes of all rows from the known ones.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features)
        What was seen of the rows; NaN where nothing was.
    known : ndarray of int
        Positions of the known rows.
    labels : ndarray of shape (n_known,)
        Their classes.
    similarities : callable, default=None
        ``similarities(features, known)`` gives kernels other than :func:`kernels`.

    Returns
    -------
    guess : ndarray of shape (n_rows,)
        The known rows' most frequent class where the features say nothing.
    gain : float
        How many more of the left-out rows were right than with that class, as a share.
    """
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    guess = np.full(len(features), classes[counts.argmax()])
    seen = ~np.isnan(features).any(axis=1)
    known, codes = _few(known[seen[known]], codes[seen[known]])
    if len(classes) < 2 or len(known) < 3:
        return guess, 0.0
    by_prior = counts.argmax() == codes
    ones = np.eye(len(classes))[codes]
    best = 0.0
    if similarities is None:
        features, similarities = standardised(features), kernels
    for similar in similarities(features, known):
        scores, left_out = ridge(similar, known, ones)
        gains = (left_out.argmax(axis=1) == codes).astype(float) - by_prior
        if gains.mean() > best and certain(gains[:, None])[0]:
            best = gains.mean()
            guess = np.where(seen, classes[scores.argmax(axis=1)], guess)
    return guess, best


def certain(gains):
    """Whether the mean gain of every column is no matter of chance.

    Parameters
    ----------
    gains : ndarray of shape (n_known, n_columns)
        How much better the guess was than the prior one, row by row.
    """
    # One more of each sign: without it a few rows that are all right would be certain
    # of everything.
    size = np.abs(gains).max(axis=0, initial=0)
    padded = np.vstack([gains, size, -size])
    error = padded.std(axis=0, ddof=1) / np.sqrt(len(padded))
    return padded.mean(axis=0) > CERTAIN * error


def _few(known, values):
    """As many of the known rows as a decomposition takes in time."""
    step = -(-len(known) // MOST_ROWS) or 1
    return known[::step], values[::step]
