"""What statistics of the columns say of projected ones."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtri
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

from skvfl.privacy.attacks._evidence import scales
from skvfl.privacy.attacks._linear import principal, whitened

# Rows that are looked at where all would take long.
SAMPLE = 1000
STARTS, FEW_STARTS = 64, 4
# Components up to which all third moments are computed.
MOST_CUBED = 12
# Logarithm of the ratio of variances that are not the same.
OTHERS = 0.2
SWEEPS = 20
# Of the squared cube roots of skewness that the right signs may leave unexplained.
UNEXPLAINED = 0.1
LEVELS = np.linspace(0.01, 0.99, 99)
# Of the distance of a histogram from a normal one: what is nearer is recognised.
NEAR = 0.25
# Of a standard deviation: rows that differ by less are equal.
SAME = 1e-5
# Component analysis starts at random, and is tried on halves of a sample.
N_STARTS = 4
N_TRIALS, FEW_TRIALS = 5, 3
# Of a column's squares, what has to be explained in each trial.
LEAST = 0.02
TOO_FAR = 2.0
# Columns of which a component analysis takes long.
MANY = 20
# Mean of log cosh of a standard normal number.
OF_NORMAL = 0.3746


def moments(values):
    """Mean, covariance and third central moments of columns."""
    mean = values.mean(axis=0)
    centred = values - mean
    return mean, centred.T @ centred / len(values), (centred**3).mean(axis=0)


def from_moments(received, mean, covariance, third, rng):
    """Columns from their moments: principal components by variance, signs by skewness.

    Returns
    -------
    guess : ndarray of shape (n_rows, n_columns), or None
        None if no signs give the skewness that is known.
    """
    centre, axes, deviations = principal(received)
    variances, known = np.linalg.eigh(covariance)
    variances, known = np.clip(variances[::-1], 0, None), known[:, ::-1]
    rank = min(len(deviations), int((variances > 1e-10 * variances[:1]).sum()))
    # The search for signs takes long where there are many, and other variances than the
    # known ones are no components of theirs.
    apart = abs(np.log(deviations[:rank] ** 2 / variances[:rank]))
    if rank > MOST_CUBED and np.median(apart) > OTHERS:
        return None
    components = (received - centre) @ axes[:, :rank] / deviations[:rank]
    known = known[:, :rank] * np.sqrt(variances[:rank])
    scale = np.sqrt(np.diag(covariance))
    scale[scale == 0] = 1.0
    skewness = third / scale**3
    signs = search_signs(components, known / scale[:, None], skewness, rng)
    guess = components * signs @ known.T
    # Cube roots, as in the search: rare categories have so much skewness that they
    # would decide alone, and those of one frequency have one variance and are not told
    # apart.
    roots = np.cbrt(skewness)
    left = np.cbrt((guess**3).mean(axis=0) / scale**3) - roots
    if (left**2).sum() > UNEXPLAINED * (roots**2).sum():
        return None
    return mean + guess


def search_signs(components, axes, skewness, rng):
    """Signs of components with which the columns have a skewness that is known.

    A local search from many starts, as there are as many patterns as two to the number
    of components.

    Parameters
    ----------
    components : ndarray of shape (n_rows, rank)
    axes : ndarray of shape (n_columns, rank)
    skewness : ndarray of shape (n_columns,)
    rng : numpy.random.Generator

    Returns
    -------
    signs : ndarray of shape (rank,)
    """
    rank = components.shape[1]
    if rank > MOST_CUBED:
        few = components[rng.permutation(len(components))[:SAMPLE]]
        starts = rng.choice([-1.0, 1.0], (FEW_STARTS, rank))
        found = [climb(few, axes, skewness, signs, rng) for signs in starts]
        _, signs = min(found, key=lambda each: each[0])
        return climb(components, axes, skewness, signs, rng)[1]
    signs = rng.choice([-1.0, 1.0], (STARTS, rank))
    cubed = third_order(components)

    def errors(signs):
        mixed = signs[:, None, :] * axes
        found = np.einsum(
            "ijk,pfi,pfj,pfk->pf", cubed, mixed, mixed, mixed, optimize=True
        )
        return ((np.cbrt(found) - np.cbrt(skewness)) ** 2).sum(axis=1)

    best = errors(signs)
    for _ in range(SWEEPS):
        before = best.copy()
        for i in rng.permutation(rank):
            signs[:, i] *= -1
            new = errors(signs)
            worse = new >= best
            signs[worse, i] *= -1
            best = np.minimum(best, new)
        if (best == before).all():
            break
    return signs[best.argmin()]


def climb(components, axes, skewness, signs, rng):
    """Signs to which no change of a single one is better, and their error.

    It works on rows and not on third moments, of which many components have too many.
    """
    signs = signs.copy()
    mixed = components * signs @ axes.T

    def error(mixed):
        # A power is computed much more slowly.
        found = (mixed * mixed * mixed).mean(axis=0)
        return ((np.cbrt(found) - np.cbrt(skewness)) ** 2).sum()

    best = error(mixed)
    for _ in range(SWEEPS):
        before = best
        for i in rng.permutation(len(signs)):
            other = mixed - np.outer(2 * signs[i] * components[:, i], axes[:, i])
            new = error(other)
            if new < best:
                best, mixed = new, other
                signs[i] *= -1
        if best == before:
            break
    return best, signs


def third_order(components):
    """Third moments of components, as a matrix over pairs."""
    n, rank = components.shape
    pairs = (components[:, :, None] * components[:, None, :]).reshape(n, -1)
    return (components.T @ pairs / n).reshape(rank, rank, rank)


def sources(received, rng):
    """Independent components of unit variance, and the matrix that mixes them."""
    rank = len(principal(received)[2])
    best = None
    for _ in range(N_STARTS if rank <= MANY else 1):
        seed = int(rng.integers(2**31))
        ica = FastICA(rank, whiten="unit-variance", max_iter=200, random_state=seed)
        with warnings.catch_warnings():
            # Without independent components there is nothing to converge to.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = ica.fit_transform(received)
        # Of several solutions the one whose components are the least normal.
        contrast = ((np.log(np.cosh(found)).mean(axis=0) - OF_NORMAL) ** 2).sum()
        if best is None or contrast > best[0]:
            best = contrast, found, ica.mixing_.T
    return best[1:]


def shapes(values):
    """Quantiles of every column as a direction, and their size.

    Few rows that are far off decide a variance, and hardly any quantile.
    """
    found = np.quantile(values, LEVELS, axis=0).T
    found -= found.mean(axis=1, keepdims=True)
    size = np.sqrt((found**2).mean(axis=1))
    return found / np.where(size > 0, size, 1.0)[:, None], size


def normal():
    """Shape of what is mixed of many, and of noise."""
    found = ndtri(LEVELS)
    return found / np.sqrt((found**2).mean())


def distances(ours, theirs):
    """Mean squared differences of all pairs of shapes."""
    return ((ours[:, None] - theirs) ** 2).mean(axis=2)


def match(found, known):
    """Which found component is which known one, and by what factor.

    Parameters
    ----------
    found, known : ndarray of shape (n_rows, n_found) and (n_sample, n_known)

    Returns
    -------
    rows, columns, factors, cost, sure
        ``rows`` of the known ones, ``columns`` of the found ones.
    """
    (ours, large), (theirs, small) = shapes(known), shapes(found)
    both = np.stack([distances(ours, q) for q in (theirs, -theirs[:, ::-1])])
    costs = both.min(axis=0)
    rows, columns = linear_sum_assignment(costs)
    signs = 1.0 - 2.0 * both.argmin(axis=0)[rows, columns]
    cost = costs[rows, columns]
    rivals = costs[rows].copy()
    rivals[np.arange(len(rows)), columns] = np.inf
    plain = distances(ours[rows], normal()[None])[:, 0]
    turned = both.max(axis=0)[rows, columns]
    others = np.minimum(np.minimum(plain, turned), rivals.min(axis=1, initial=np.inf))
    sure = (cost < NEAR * others) & (others > _noise(known)[rows])
    factors = signs * large[rows] / np.where(small > 0, small, 1.0)[columns]
    return rows, columns, factors, cost.sum(), sure


def _noise(known, n_times=10):
    """How far shapes of two samples may be apart by chance."""
    rng = np.random.default_rng(0)
    apart = []
    for _ in range(n_times):
        order = rng.permutation(len(known))
        halves = shapes(known[order[::2]])[0], shapes(known[order[1::2]])[0]
        apart.append(((halves[0] - halves[1]) ** 2).mean(axis=1))
    return 2 * np.mean(apart, axis=0)


def unmix(received, known, mixing, rng):
    """Columns, but for their mean, from components that are recognised by histograms.

    Parameters
    ----------
    received : ndarray of shape (n_rows, width)
    known : ndarray of shape (n_sample, n_known)
        Known components, standardised.
    mixing : ndarray of shape (n_known, n_columns)
        How they are mixed into the columns.

    Returns
    -------
    guess : ndarray of shape (n_rows, n_columns)
    cost : float
        How far the histograms are apart.
    sure : ndarray of bool of shape (n_known,)
        Which known components can only be one of the found ones.
    """
    found, _ = sources(received, rng)
    rows, columns, factors, cost, clear = match(found, known)
    sure = np.zeros(len(mixing), bool)
    sure[rows] = clear
    return (found[:, columns] * factors) @ mixing[rows], cost, sure


def from_marginals(received, marginals, rng):
    """Columns that are independent of one another from the histogram of each.

    Returns
    -------
    guess : ndarray of shape (n_rows, n_columns)
        NaN for columns that were not recognised.
    """
    if marginals.shape[1] == 1:
        return from_histogram(received, marginals)
    mean, scale = marginals.mean(axis=0), scales(marginals)
    guess, _, sure = unmix(received, (marginals - mean) / scale, np.diag(scale), rng)
    return np.where(sure, mean + guess, np.nan)


def from_sample(received, sample, rng):
    """Columns from another sample of the same population, by independent components.

    How well that works is tried on the sample first: columns that come back badly there
    are guessed with caution here.

    Returns
    -------
    guess : ndarray of shape (n_rows, n_columns)
        NaN where the mean is the better guess.
    """
    trials, costs = [], []
    for _ in range(N_TRIALS if sample.shape[1] <= MANY else FEW_TRIALS):
        one, two = np.array_split(rng.permutation(sample), 2)
        guess, cost, _ = unmix(one, *sources(two, rng), rng)
        centred = one - one.mean(axis=0)
        sums = [guess**2, guess * centred, centred**2]
        trials.append([each.sum(axis=0) for each in sums])
        costs.append(cost)
    squares, products, whole = np.moveaxis(np.array(trials), 1, 0)
    slopes = products / np.where(squares > 0, squares, 1.0)
    # A sign that came out both ways is not known.
    caution = np.where(np.min(slopes, axis=0) > 0, np.median(slopes, axis=0), 0.0)
    caution = np.minimum(caution, 1.0)
    # Nor is a column that one caution does not suit in every trial: a rare category
    # would be guessed at many times its spread.
    left = whole - 2 * caution * products + caution**2 * squares
    caution = np.where((left < (1 - LEAST) * whole).all(axis=0), caution, 0.0)
    known, mixing = sources(sample, rng)
    guess, cost, _ = unmix(received, known, mixing, rng)
    # Histograms that are much farther apart than within the sample, or as far as those
    # of noise, are of something else.
    noise = distances(shapes(known)[0], normal()[None]).sum()
    believed = (caution > 0) & (cost < min(TOO_FAR * max(costs), noise / 2))
    return np.where(believed, sample.mean(axis=0) + caution * guess, np.nan)


def from_histogram(received, sample, n_angles=360):
    """The direction of two received columns whose values are spread as a sample's.

    Returns
    -------
    guess : ndarray of shape (n_rows, 1)
    """
    white = whitened(received)
    angles = np.linspace(0, 2 * np.pi, n_angles, endpoint=False)
    directions = np.array([np.cos(angles), np.sin(angles)])[: white.shape[1]]
    found, sizes = shapes(white[:SAMPLE] @ directions)
    wanted, size = shapes(sample)
    costs = distances(wanted, found)[0]
    best = costs.argmin()
    opposite = costs[(best + n_angles // 2) % n_angles]
    plain = min(distances(wanted, normal()[None])[0, 0], opposite)
    guess = white @ directions[:, [best]] * size / sizes[best]
    believed = costs[best] < NEAR * plain
    return sample.mean() + guess if believed else np.full_like(guess, np.nan)


def kinds(values):
    """Number of the kind of every row, where equal rows are of one kind."""
    # Equal rows may differ in the last digit of a product. A random mixture of columns
    # tells rows apart as well as all columns do.
    mixture = np.random.default_rng(0).standard_normal(values.shape[1])
    key = (values / scales(values)) @ mixture
    order = np.argsort(key)
    new = np.diff(key[order], prepend=key[order[:1]]) > SAME
    numbers = np.empty(len(key), int)
    numbers[order] = np.cumsum(new)
    return numbers


def from_frequencies(received, sample):
    """Rows of few kinds from how often each kind is in a sample.

    Parameters
    ----------
    received : ndarray of shape (n_rows, width)
    sample : ndarray of shape (n_sample, n_columns)

    Returns
    -------
    guess : ndarray of shape (n_rows, n_columns), or None
        None where rows are hardly ever equal, or frequencies are others.
    """
    ours, theirs = kinds(received), kinds(sample)
    found, known = (np.bincount(each) / len(each) for each in (ours, theirs))
    if len(found) > len(received) / 2:
        return None
    both = np.zeros((2, max(len(found), len(known))))
    for ordered, each in zip(both, (found, known), strict=True):
        ordered[: len(each)] = np.sort(each)[::-1]
    variance = known * (1 - known) * (1 / len(received) + 1 / len(sample))
    apart, by_chance = abs(both[0] - both[1]).sum(), np.sqrt(variance).sum()
    if apart > by_chance:
        return None
    if apart < 1e-12:
        variance = np.zeros_like(variance)
    variance = np.maximum(variance, 1e-15)
    # Kinds that are about as frequent cannot be told apart: the guess lies between.
    chances = -((found[:, None] - known) ** 2 / variance + np.log(variance)) / 2
    chances = np.exp(chances - chances.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    _, first = np.unique(theirs, return_index=True)
    return (chances @ sample[first])[ours]
