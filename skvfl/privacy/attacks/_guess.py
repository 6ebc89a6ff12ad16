"""What a few known rows teach of all others, and nothing where they teach nothing.

All that learns from known rows goes through kernel ridge regression, because leaving
out one row after the other then costs one decomposition. What does no better on
left-out rows than the prior guess is not used: a view without information must give the
prior's score, and what is learnt by chance would give less.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.linalg import eigh
from scipy.spatial.distance import cdist
from scipy.stats import binom, ttest_1samp, wilcoxon

# How often a guess may look better than the prior one by chance: seldom, as several
# kernels are tried on several columns.
CHANCE = 0.004
N_ORDERS = 499
# Of the prior guess's squared error, what must go away at least.
LEAST_GAIN = 0.02
# The decomposition costs the cube of it.
MOST_ROWS = 1500
PENALTIES = np.logspace(-9, 3, 13)
# Of a Gaussian kernel, in median distances of two rows.
WIDTHS = (0.5, 1.0, 3.0)
# In ranks: the first one tells categories apart.
REACHES = (0.1, 1.0, 4.0, 16.0)


def standardised(features):
    """Features of rows with mean 0 and deviation 1; constant ones are left out.

    Parameters
    ----------
    features : ndarray of shape (n_rows, n_features)
        NaN where nothing was seen.

    Returns
    -------
    features : ndarray of shape (n_rows, n_kept), dtype float64
        The mean, which is zero, where nothing was seen.
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
    prior = values.mean(axis=0)
    seen = ~np.isnan(features).all(axis=1)
    used = _few(np.flatnonzero(seen[known]))
    known, values = known[used], values[used]
    columns = np.tile(prior, (len(features), 1))
    if len(known) < 8:
        return columns
    features = standardised(features)
    least, most = values.min(axis=0), values.max(axis=0)
    room = most - least
    without = (values.sum(axis=0) - values) / (len(values) - 1)
    chance = (values - without) ** 2
    best = chance.mean(axis=0)
    for similar in kernels(features, known):
        guess, left_out = ridge(similar, known, values)
        error = (values - left_out) ** 2
        better = (error.mean(axis=0) < best) & surely_less(error, chance)
        best = np.where(better, error.mean(axis=0), best)
        # Rows far out lead far out, where no known row has been; but for a way back
        # that is exact.
        exact = error.mean(axis=0) < 0.01 * chance.mean(axis=0)
        guess = np.where(exact, guess, guess.clip(least - room, most + room))
        columns[:, better] = guess[:, better]
    columns[~seen] = prior
    return columns


def guess_from_ranks(ranks, known, values):
    """Columns of all rows from ranks or codes of a few columns behind them.

    Each column is taken to follow from one of the ranks: as the mean of known rows of
    about the same rank.

    Parameters
    ----------
    ranks : ndarray of shape (n_rows, n_ranked)
    known : ndarray of int
        Positions of the known rows.
    values : ndarray of shape (n_known, n_columns)
        Theirs.

    Returns
    -------
    columns : ndarray of shape (n_rows, n_columns)
        The known rows' mean in columns of which no ranks say anything.
    """
    columns = np.tile(values.mean(axis=0), (len(ranks), 1))
    if len(known) < 8:
        return columns
    without = (values.sum(axis=0) - values) / (len(values) - 1)
    chance = (values - without) ** 2
    best = chance.mean(axis=0)
    # The more are tried, the more often one looks better by chance.
    level = CHANCE / max(ranks.shape[1], 1)
    for rank, reach in product(ranks.T, REACHES):
        apart = abs(rank[:, None] - rank[known])
        among = apart[known]
        np.fill_diagonal(among, np.inf)
        error = (values - _nearby(among, reach) @ values) ** 2
        better = (error.mean(axis=0) < best) & surely_less(error, chance, level)
        if better.any():
            best = np.where(better, error.mean(axis=0), best)
            columns[:, better] = _nearby(apart, reach) @ values[:, better]
    return columns


def _nearby(apart, reach):
    """Weights of known rows that fall with distance; the nearest always has some."""
    weights = np.exp((apart.min(axis=1, keepdims=True) - apart) / reach)
    return weights / weights.sum(axis=1, keepdims=True)


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
    right : ndarray of bool of shape (n_known,)
        Which known rows were guessed rightly from the others.
    """
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    guess = np.full(len(features), classes[counts.argmax()])
    seen = ~np.isnan(features).all(axis=1)
    right = codes == counts.argmax()
    used = _few(np.flatnonzero(seen[known]))
    if len(classes) < 2 or len(used) < 8:
        return guess, right
    codes, rows = codes[used], known[used]
    ones = np.eye(len(classes))[codes]
    best = right[used]
    if similarities is None:
        features, similarities = standardised(features), kernels
    for similar in similarities(features, rows):
        scores, left_out = ridge(similar, rows, ones)
        named = left_out.argmax(axis=1)
        hits = named == codes
        if hits.sum() > best.sum() and surely_related(named, codes):
            best = hits
            guess = np.where(seen, classes[scores.argmax(axis=1)], guess)
    right[used] = best
    return guess, right


def surely_less(errors, prior, level=CHANCE):
    """For every column, whether errors are smaller, and not by chance.

    Parameters
    ----------
    errors, prior : ndarray of shape (n_known, n_columns)
        Squared errors of the guess and of the prior one.
    level : float, default=CHANCE
        How often it may be said by chance.
    """
    better = np.zeros(errors.shape[1], bool)
    for i, gain in enumerate((prior - errors).T):
        # What is hardly better is a guess that was shrunk to almost the prior one, or
        # in a column of which a single known row differs, all others' value.
        if gain.mean() > LEAST_GAIN * prior[:, i].mean():
            # Ranks as well, because a few rows far out leave a mean without certainty.
            by_mean = ttest_1samp(gain, 0, alternative="greater").pvalue
            by_rank = wilcoxon(gain, alternative="greater").pvalue
            better[i] = min(by_mean, by_rank) < level
    return better


def surely_more(hits, others):
    """Whether more rows are right than of another guess, and not by chance.

    Parameters
    ----------
    hits, others : ndarray of bool of shape (n_known,)
        Which rows each of them has right.
    """
    won, lost = int((hits & ~others).sum()), int((others & ~hits).sum())
    # Of rows that only one of them has right, half would be this one's by chance.
    return won > lost and binom.sf(won - 1, won + lost, 0.5) < CHANCE


def surely_related(named, codes):
    """Whether named classes agree with true ones more than in any other order.

    Parameters
    ----------
    named, codes : ndarray of int of shape (n_known,)
        Classes by number.
    """
    hits = (named == codes).sum()
    # Always the same orders, so that the same view gives the same guess.
    rng = np.random.default_rng(0)
    others = [(named == rng.permutation(codes)).sum() for _ in range(N_ORDERS)]
    return (1 + (np.array(others) >= hits).sum()) / (1 + N_ORDERS) < CHANCE


def _few(known):
    """As many of the known rows as a decomposition takes in time."""
    return known[:: -(-len(known) // MOST_ROWS) or 1]
