"""What a comparison asks: how much is gained over learning alone."""

from __future__ import annotations

import numpy as np
from scipy import stats

LEVEL = 0.95
INTERVAL = (
    f"{LEVEL:.0%} corrected resampled t interval (Nadeau and Bengio 2003) of the "
    "paired differences over splits"
)


def corrected_interval(differences, sizes):
    """Mean of paired differences over splits, and its interval.

    The splits share training rows, so their differences are not independent, and the
    usual t interval is far too narrow. Nadeau and Bengio's correction adds the ratio
    of tested to trained rows to the variance's factor 1 / k.

    Parameters
    ----------
    differences : array-like of float of shape (k,)
        Of two scores on the same split.
    sizes : list of tuple of (int, int)
        Rows to train on and rows to test on, of each split.

    Returns
    -------
    mean, low, high : float
        The ends are NaN where there is one split.
    """
    differences = np.asarray(differences, dtype=float)
    mean, k = differences.mean(), len(differences)
    if k < 2 or not np.isfinite(mean):
        return mean, np.nan, np.nan
    ratio = np.mean([n_test / n_train for n_train, n_test in sizes])
    spread = np.sqrt((1 / k + ratio) * differences.var(ddof=1))
    half = stats.t.ppf((1 + LEVEL) / 2, k - 1) * spread
    return mean, mean - half, mean + half


def verdict(gain, low, high, name):
    """What an interval says, in a sentence.

    Parameters
    ----------
    gain, low, high : float
        As :func:`corrected_interval` gives them.
    name : str
        Row that the difference is to.

    Returns
    -------
    sentence : str
    """
    if not np.isfinite(gain):
        return "no score"
    if np.isnan(low):
        return "one split tells nothing about noise: use more"
    if low > 0:
        return f"better than {name}"
    if high < 0:
        return f"worse than {name}"
    return f"within noise: no difference to {name} is shown"
