"""The attack on TabVFL's pretraining: hidden cells lie in hyperplanes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvfl.privacy.attacks._base import Attack
from skvfl.privacy.attacks._evidence import EXACT, fits_by_chance
from skvfl.privacy.attacks._statistics import match

# The smallest singular value of rows in a hyperplane, as a share of the next one.
FLAT = 0.02
# Mean squared difference of two histograms of unit size that may be of one column.
ALIKE = 0.1
# In so many epochs nearly every cell is shown once.
MOST_EPOCHS = 12
# Cells that two batches must both show to be put on one scale.
SHARED = 5


class HyperplaneAttack(Attack):
    """Columns that TabVFL's guests mix while they pretrain, from which cells they hide.

    A hidden cell has one value in a whole batch, the host is told which cells are
    hidden, and the mixture is linear. The rows in which a column is hidden therefore
    lie in a hyperplane, whose normal gives the column in all other rows, up to its
    scale and mean. Batches are put on one scale by the rows that they share. So what
    TabVFL [1]_ calls a layer that preserves privacy does not while pretraining.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=None
        Rows whose columns are known; they give scale, mean and sign.
    marginals : ndarray of shape (n_samples, n_columns) or bool, default=None
        Values of each column by itself, which give the same where no rows are known.
        True stands for those of the truth. Without either, columns are taken to be
        standardised and skewed to the right.
    sender : str, default=None
        Whose columns; needed where several guests pretrain.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows, n_columns)
        What :meth:`reconstruct` returns.

    References
    ----------
    .. [1] M. Rashad, Z. Zhao, J. Decouchant, L. Y. Chen, "TabVFL: Improving Latent
       Representation in Vertical Federated Learning", 2024.

    Examples
    --------
    >>> from skvfl.privacy.attacks import HyperplaneAttack
    >>> HyperplaneAttack(known_rows=10, sender="laboratory")
    HyperplaneAttack(known_rows=10, sender='laboratory')
    """

    target: ClassVar = "columns"

    def __init__(self, *, known_rows=None, marginals=None, sender=None):
        self.known_rows = known_rows
        self.marginals = marginals
        self.sender = sender

    def fit(self, view):
        """Look for hyperplanes in what was received while pretraining.

        Parameters
        ----------
        view : View
            Of the host.

        Returns
        -------
        self : HyperplaneAttack
        """
        view = view.fit
        batches = self._batches(view)
        n_columns = batches[0][2].shape[1] if batches else 1
        self.guess_ = np.full((view.n_rows, n_columns), np.nan)
        if not batches:
            return self
        columns = [
            join([shown(*batch, j) for batch in batches], view.n_rows)
            for j in range(n_columns)
        ]
        for j, column in enumerate(columns):
            self.guess_[:, j] = self._scaled(column, j)
        return self

    def reconstruct(self):
        """Columns as far as they were worked out.

        Returns
        -------
        guess : ndarray of shape (n_rows, n_columns)
            NaN for cells that were never shown.
        """
        check_is_fitted(self)
        return self.guess_

    def _batches(self, view):
        """Rows, mixtures and hidden cells of the batches of the first epochs."""
        found, senders = [], set()
        for seen in view.messages:
            content = seen.content
            if seen.operation != "hide" or self.sender not in (None, seen.sender):
                continue
            if not isinstance(content, dict) or "hidden" not in content:
                continue
            if seen.epoch <= MOST_EPOCHS and seen.rows is not None:
                mixed = np.asarray(content["outputs"], float)
                found.append((seen.rows, mixed, np.asarray(content["hidden"], bool)))
                senders.add(seen.sender)
        if len(senders) > 1:
            raise ValueError(
                f"{sorted(senders)} sent mixtures: say whose columns, with sender="
            )
        return found

    def _scaled(self, column, j):
        """A column in its own units, as far as side knowledge says."""
        there = np.isfinite(column)
        if not there.any() or column[there].std() == 0:
            return np.full_like(column, np.nan)
        column = (column - column[there].mean()) / column[there].std()
        known, marginals = self._known(), self.marginals
        if known is not None:
            rows, values = known[0], known[1].reshape(len(known[1]), -1)[:, j]
            use = there[rows]
            return _by_known(column, column[rows[use]], values[use].astype(float))
        if marginals is not None:
            sample = np.asarray(marginals, float)[:, [j]]
            centre = np.median(column[there])
            _, _, (factor,), apart, _ = match(column[there, None] - centre, sample)
            # A column of nearly one value has no shape by which it is known, and its
            # scale is the quotient of two numbers that are nearly zero.
            if apart > ALIKE:
                return np.full_like(column, np.nan)
            guess = np.median(sample) + factor * (column - centre)
            return guess.clip(sample.min(), sample.max())
        return column * (np.sign((column[there] ** 3).mean()) or 1.0)


def _by_known(column, found, values):
    """A column at the scale of known values; nothing where they do not agree."""
    if len(values) < 2 or found.std() == 0:
        return np.full_like(column, np.nan)
    slope = np.mean((found - found.mean()) * (values - values.mean())) / found.var()
    guess = values.mean() + slope * (found - found.mean())
    left, spread = ((guess - values) ** 2).sum(), ((values - values.mean()) ** 2).sum()
    exact = len(values) > 2 and left <= EXACT * spread
    if not exact and fits_by_chance(guess, values):
        return np.full_like(column, np.nan)
    return values.mean() + slope * (column - found.mean())


def shown(rows, mixed, hidden, j):
    """Rows of a batch that show a column, and the column up to scale and mean there.

    Parameters
    ----------
    rows : ndarray of int of shape (n_batch,)
    mixed : ndarray of shape (n_batch, width)
    hidden : ndarray of bool of shape (n_batch, n_columns)
    j : int
        Which column.

    Returns
    -------
    piece : tuple of ndarray, or None
        None where the rows that hide it lie in no hyperplane.
    """
    away = hidden[:, j]
    received = np.column_stack([mixed, np.ones(len(mixed))])
    if away.all() or away.sum() <= received.shape[1]:
        return None
    _, lengths, axes = np.linalg.svd(received[away], full_matrices=False)
    if lengths[-1] > FLAT * lengths[-2]:
        return None
    return rows[~away], received[~away] @ axes[-1]


def join(pieces, n_rows):
    """One column from pieces, each of which has a scale and a mean of its own.

    Parameters
    ----------
    pieces : list of tuple or None
        As :func:`shown` gives them.
    n_rows : int

    Returns
    -------
    column : ndarray of shape (n_rows,)
        NaN in rows that no piece, or none that could be put on the scale, has shown.
    """
    column = np.full(n_rows, np.nan)
    left = [piece for piece in pieces if piece is not None]
    if left:
        largest = max(range(len(left)), key=lambda i: len(left[i][0]))
        rows, values = left.pop(largest)
        column[rows] = values / (values.std() or 1.0)
    joined = True
    while left and joined:
        waiting = []
        for rows, values in left:
            on_scale = _put_on_scale(values, column[rows])
            if on_scale is None:
                waiting.append((rows, values))
            else:
                new = np.isnan(column[rows])
                column[rows[new]] = on_scale[new]
        joined = len(waiting) < len(left)
        left = waiting
    return column


def _put_on_scale(values, others):
    """Values at the scale of others of the same rows, where enough are known."""
    both = np.isfinite(others)
    if both.sum() < SHARED:
        return None
    ours, theirs = values[both], others[both]
    spread = ours.var()
    if spread < 1e-12 * (1 + ours.mean() ** 2) or theirs.var() == 0:
        return None
    slope = np.mean((ours - ours.mean()) * (theirs - theirs.mean())) / spread
    on_scale = theirs.mean() + slope * (values - ours.mean())
    if ((on_scale[both] - theirs) ** 2).mean() > FLAT * theirs.var():
        return None
    return on_scale
