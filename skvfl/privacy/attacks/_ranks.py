"""Attacks on columns of which ranks were sent."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from skvfl.privacy.attacks._evidence import held_against
from skvfl.privacy.attacks._projection import ColumnsAttack

# Points at which a quantile function is averaged within a bin.
POINTS = 25


class RankAttack(ColumnsAttack):
    """Columns from their ranks or bins, and from what values are like.

    Where every party sends the bin of each value, cut at equal numbers of rows, for
    trees to be grown on, the bin is a range of ranks, and quantiles of any sample turn
    ranks into values. It is the attack on order-preserving encryption of [1]_.

    Parameters
    ----------
    marginals : ndarray of shape (n_samples, n_columns) or bool, default=None
        Values of each column by itself. True stands for those of the truth.
    known_rows : tuple (positions, values) or int, default=None
        Rows whose columns are known: they are held against the reconstruction.
    sender : str, default=None
        Whose columns to look at; by default everybody's together.
    operation : str, default=None
        Sent by which operation; by default all but the one that sends labels.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows, n_columns)
        What :meth:`reconstruct` returns.

    References
    ----------
    .. [1] M. Naveed, S. Kamara, C. V. Wright, "Inference attacks on
       property-preserving encrypted databases", CCS 2015.

    Examples
    --------
    >>> from skvfl.privacy.attacks import RankAttack
    >>> RankAttack(marginals=True, sender="shop")
    RankAttack(marginals=True, sender='shop')
    """

    target: ClassVar = "columns"

    def __init__(self, *, marginals=None, known_rows=None, sender=None, operation=None):
        self.marginals = marginals
        self.known_rows = known_rows
        self.sender = sender
        self.operation = operation

    def _guess(self, rows, received):
        if self.marginals is None:
            return None
        sample = np.asarray(self.marginals, float)
        # Bins are whole numbers; as many as columns, and in their order.
        if (
            received.shape[1] != sample.shape[1]
            or (received != np.rint(received)).any()
        ):
            return None
        pairs = zip(received.T, sample.T, strict=True)
        guess = np.column_stack([from_ranks(*pair) for pair in pairs])
        return held_against(guess, self._known_among(rows))


def from_ranks(received, sample):
    """Values from ranks: the mean of the quantiles that ranks of a bin stand for.

    Parameters
    ----------
    received : ndarray of shape (n_rows,)
    sample : ndarray of shape (n_sample,)

    Returns
    -------
    values : ndarray of shape (n_rows,)
        NaN if all rows have one rank.
    """
    _, bins, counts = np.unique(received, return_inverse=True, return_counts=True)
    if len(counts) < 2:
        return np.full(len(received), np.nan)
    stops = np.cumsum(counts) / len(received)
    starts = stops - counts / len(received)
    shares = (np.arange(POINTS) + 0.5) / POINTS
    levels = starts[:, None] + (stops - starts)[:, None] * shares
    return np.quantile(sample, levels).mean(axis=1)[bins]
