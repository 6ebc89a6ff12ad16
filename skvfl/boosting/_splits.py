"""Which split of a node gains most, by the sums of all parties' bins.

The order in which splits are looked at, and every sum, is that of scikit-learn's
histogram boosting, so that trees over parties are its trees of pooled columns.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

# What a sum of second derivatives must be at least, on either side of a split.
LEAST_HESSIAN = 1e-3
TINY = 1e-15
# Categories of fewer rows say nothing, and so many rows are added to the others.
SUPPORT = 10.0
# Columns of no more bins than this are looked at together, apart from the wider ones.
NARROW = 16


class Columns(NamedTuple):
    """What the active party is told of somebody's columns.

    Parameters
    ----------
    n_bins : ndarray of int of shape (n_columns,)
        Number of bins of each, not counting that of missing values.
    has_missing : ndarray of bool of shape (n_columns,)
        Which have missing values.
    categorical : ndarray of bool of shape (n_columns,)
        Which are categories.
    """

    n_bins: np.ndarray
    has_missing: np.ndarray
    categorical: np.ndarray

    @property
    def n_cells(self):
        """Number of bins of all columns together."""
        return int(self.n_bins.sum() + self.has_missing.sum())

    def cells(self, width):
        """Which bins exist, in a table of ``width`` bins for every column."""
        found = []
        for j, (n_bins, has_missing) in enumerate(
            zip(self.n_bins.tolist(), self.has_missing.tolist(), strict=True)
        ):
            found += [j * width + each for each in range(n_bins)]
            if has_missing:
                found.append((j + 1) * width - 1)
        return np.array(found, np.intp)


class Best(NamedTuple):
    """The best split of a node.

    Attributes
    ----------
    gain : float
        By how much it lowers the loss; not above zero if there is none.
    column : int
        Which one, among all parties' columns.
    bin : int
        The last one that goes left; of categories it says nothing.
    missing_left : bool
        Whether missing values go left.
    left : tuple of float
        Sums of first and second derivatives, and number of rows, that go left.
    categories : ndarray of int or None
        Bins that go left in a column of categories.
    """

    gain: float
    column: int
    bin: int
    missing_left: bool
    left: tuple
    categories: np.ndarray | None = None


class _Group:
    """Columns of like widths, whose bins are a table with a line for each column."""

    def __init__(self, columns, starts, n_bins, has_missing, *, backwards=False):
        self.columns = columns
        n_looked_at = n_bins - 1 if backwards else n_bins - 1 + has_missing
        width = max(int(n_looked_at.max()), 1)
        place = np.arange(width)
        if backwards:
            # The last bin with a value comes first, and missing values never.
            index = starts[:, None] + n_bins[:, None] - 1 - place
            self.bins = n_bins[:, None] - 2 - place
        else:
            index = starts[:, None] + place
            self.bins = np.broadcast_to(place, (len(columns), width))
        self.real = place < n_looked_at[:, None]
        # What is not there adds nothing: the cell behind the last one is zero.
        self.index = np.where(self.real, index, -1)
        self.backwards = backwards


class Search:
    """Looks for the best splits.

    Parameters
    ----------
    columns : list of Columns
        Of all parties, in their order.
    constant : bool
        Whether second derivatives are one.
    min_samples_leaf, l2_regularization
        As in the estimators.
    """

    def __init__(self, columns, constant, min_samples_leaf, l2_regularization):
        self._constant = constant
        self._least_rows = min_samples_leaf
        self._l2 = l2_regularization
        n_bins = np.concatenate([each.n_bins for each in columns]).astype(np.intp)
        has_missing = np.concatenate([each.has_missing for each in columns])
        categorical = np.concatenate([each.categorical for each in columns])
        self.n_bins, self.has_missing = n_bins, has_missing
        ends = np.cumsum(n_bins + has_missing)
        starts = ends - n_bins - has_missing
        self.n_cells = int(ends[-1])
        self._groups, self._categories = [], None

        def group(those, **options):
            chosen = np.flatnonzero(those & (n_bins + has_missing > 1))
            if chosen.size:
                parts = (starts[chosen], n_bins[chosen], has_missing[chosen])
                self._groups.append(_Group(chosen, *parts, **options))

        group(~categorical & (n_bins <= NARROW))
        group(~categorical & (n_bins > NARROW))
        # Missing values go to either side of a split, the right one first.
        group(~categorical & has_missing & (n_bins > 1), backwards=True)
        chosen = np.flatnonzero(categorical & (n_bins + has_missing > 1))
        if chosen.size:
            parts = (starts[chosen], n_bins[chosen] + 1, has_missing[chosen])
            self._categories = _Group(chosen, *parts)

    def best(self, sums, totals, losses):
        """The best split of each of some nodes.

        Parameters
        ----------
        sums : ndarray of shape (n_nodes, n_parts, n_cells + 1)
            Of all bins; the last one is zero.
        totals : ndarray of shape (n_nodes, 3)
            Of the nodes: first and second derivatives, and numbers of rows.
        losses : ndarray of shape (n_nodes,)
            What the nodes lose as they are.

        Returns
        -------
        best : list of Best
        """
        found = _Found(len(sums), len(self.n_bins))
        totals = totals[:, :, None, None]
        losses = losses[:, None, None]
        for group in self._groups:
            left = np.cumsum(sums.take(group.index, axis=2), axis=3)
            gains = self._gains(left, totals, losses, group.real, group.backwards)
            found.keep_better(group.columns, gains, partial(self._read, group, left))
        if self._categories is not None:
            self._sort_categories(sums, totals, losses, found)
        return [found.best(node, totals) for node in range(len(sums))]

    def _gains(self, sums, totals, losses, real, backwards=False):
        """What splits gain that have these sums on their left, or on their right."""
        first, rows = sums[:, 0], sums[:, -1]
        second = rows if self._constant else sums[:, 1]
        other_first = totals[:, 0] - first
        other_second = totals[:, 1] - second
        with np.errstate(divide="ignore", invalid="ignore"):
            sides = [
                first * (first / (second + self._l2 + TINY)),
                other_first * (other_first / (other_second + self._l2 + TINY)),
            ]
        # The left one first, so that rounding makes no other choice.
        gains = losses + sides[backwards] + sides[not backwards]
        allowed = real & (rows >= self._least_rows)
        allowed &= totals[:, 2] - rows >= self._least_rows
        allowed &= (second >= LEAST_HESSIAN) & (other_second >= LEAST_HESSIAN)
        gains[~allowed] = -1.0
        return gains

    def _read(self, group, cumulated, gain, node, j, place, totals):
        """The split at a place in a column of numbers."""
        column = int(group.columns[j])
        left = self._sums(cumulated[node, :, j, place])
        missing_left = False
        if group.backwards:
            whole = totals[node, :, 0, 0].tolist()
            left = tuple(a - b for a, b in zip(whole, left, strict=True))
            missing_left = True
        elif not self.has_missing[column]:
            # Values that are missing later go where most rows went.
            missing_left = bool(2 * left[2] > totals[node, 2, 0, 0])
        return Best(gain, column, int(group.bins[j, place]), missing_left, left)

    def _sums(self, parts):
        first, *second, rows = parts.tolist()
        return first, (second or [rows])[0], rows

    def _sort_categories(self, sums, totals, losses, found):
        """The same among columns of categories, in the order of what they would say."""
        group = self._categories
        table = sums.take(group.index, axis=2)
        first, rows = table[:, 0], table[:, -1]
        second = rows if self._constant else table[:, 1]
        used = group.real & (second * (totals[:, 2] / totals[:, 1]) >= SUPPORT)
        values = np.where(used, first / (second + SUPPORT), np.inf)
        rising = np.argsort(values, axis=2, kind="stable")
        n_used = used.sum(axis=2, keepdims=True)
        place = np.arange(rising.shape[2])
        falling = np.maximum(n_used - 1 - place, 0)
        falling = np.take_along_axis(rising, falling, axis=2)
        # From the lowest up to the middle, then from the highest down to it: categories
        # of few rows always stay with the larger part.
        middle = (n_used + 1) // 2
        for order, n_taken in ((rising, middle), (falling, middle - 1)):
            ordered = np.take_along_axis(table, order[:, None], axis=3)
            left = np.cumsum(ordered, axis=3)
            real = (place < n_taken) & (n_used > 1)
            gains = self._gains(left, totals, losses, real)
            where = partial(self._read_categories, order, left)
            found.keep_better(group.columns, gains, where)

    def _read_categories(self, order, cumulated, gain, node, j, place, totals):
        """The split of a column of categories in two sets."""
        column = int(self._categories.columns[j])
        left = self._sums(cumulated[node, :, j, place])
        bins, missing = order[node, j, : place + 1], self.n_bins[column]
        if self.has_missing[column]:
            missing_left = bool((bins == missing).any())
        else:
            missing_left = bool(2 * left[2] > totals[node, 2, 0, 0])
        return Best(gain, column, 0, missing_left, left, bins[bins < missing])


class _Found:
    """The best split of every column of some nodes, as far as they were looked at."""

    def __init__(self, n_nodes, n_columns):
        self._gains = np.full((n_nodes, n_columns), -1.0)
        self._places = np.zeros((n_nodes, n_columns), np.intp)
        self._looks = np.full((n_nodes, n_columns), -1)
        self._kept = []

    def keep_better(self, columns, gains, read):
        """Keep what gains more than what was found before."""
        places = gains.argmax(axis=2)
        most = gains.max(axis=2)
        better = most > self._gains[:, columns]
        for table, new in (
            (self._gains, most),
            (self._places, places),
            (self._looks, len(self._kept)),
        ):
            table[:, columns] = np.where(better, new, table[:, columns])
        self._kept.append((columns, read))

    def best(self, node, totals):
        """The best of all columns, the first one where several gain as much."""
        column = int(self._gains[node].argmax())
        gain = float(self._gains[node, column])
        if gain <= 0:
            return Best(gain, column, 0, False, (0.0, 0.0, 0))
        columns, read = self._kept[self._looks[node, column]]
        j = int(np.searchsorted(columns, column))
        return read(gain, node, j, int(self._places[node, column]), totals)
