"""Sums of derivatives over the rows that lie in a bin."""

from __future__ import annotations

import numpy as np

from skvfl._sklearn import HistogramBuilder, n_threads
from skvfl.boosting._splits import Columns

# Cells of which the sums are worth several threads.
LARGE = 500_000
# Of the compiled builder's table; it counts in whole numbers.
_DTYPE = [
    ("sum_gradients", np.float64),
    ("sum_hessians", np.float64),
    ("count", np.uint32),
]


class Bundled:
    """Bins as they are added up: columns of few bins share one.

    A bin of the shared column stands for one bin of each of its columns, so that one
    pass over the rows adds up all of them. What a bin of theirs comes to is the sum of
    those bins of the shared one that stand for it.

    Parameters
    ----------
    bins : ndarray of uint8 of shape (n_rows, n_columns)
        In column order.
    columns : Columns
        What the active party is told of them.
    missing : int
        The bin of missing values, above all others.

    Attributes
    ----------
    bins : ndarray of uint8 of shape (n_rows, n_apart + n_bundles)
        In column order.
    width : int
        Number of bins of a column.
    """

    def __init__(self, bins, columns, missing):
        self.bins, self.width = bins, missing + 1
        # Of all rows, also of those that trees do not learn from: compiled code writes
        # where a row's bin says, and a bin too many would lie behind the table.
        has_missing = np.array([(column == missing).any() for column in bins.T])
        sizes = columns.n_bins + has_missing
        bundles = _bundles(sizes.tolist(), self.width)
        apart = np.ones(len(sizes), bool)
        for bundle in bundles:
            apart[bundle] = False
        self._cells = Columns(*(each[apart] for each in columns)).cells(self.width)
        self.n_cells = columns.n_cells
        self._apart, self._together = slice(None), None
        if bundles:
            of_apart = np.repeat(apart, columns.n_bins + columns.has_missing)
            self._apart, self._together = of_apart, ~of_apart
            self._share(bins, columns, sizes, apart, bundles)

    def _share(self, bins, columns, sizes, apart, bundles):
        """Make the shared columns, and note which of their bins a cell adds up."""
        self._first = int(apart.sum())
        self.bins = np.empty((len(bins), self._first + len(bundles)), np.uint8, "F")
        self.bins[:, : self._first] = bins[:, apart]
        n_cells = columns.n_bins + columns.has_missing
        places = {}
        for i, bundle in enumerate(bundles):
            shared, step = np.zeros(len(bins), np.uint8), 1
            combinations = np.arange(sizes[bundle].prod())
            for j in bundle:
                # Missing values follow the last bin that there is.
                shared += np.minimum(bins[:, j], int(columns.n_bins[j])) * step
                own = combinations // step % sizes[j]
                places[j] = [
                    i * self.width + np.flatnonzero(own == each)
                    for each in range(n_cells[j])
                ]
                step *= int(sizes[j])
            self.bins[:, self._first + i] = shared
        of_cells = [each for j in sorted(places) for each in places[j]]
        self._places = np.concatenate(of_cells)
        self._starts = np.cumsum([0, *map(len, of_cells[:-1])])

    def sums(self, table, parts):
        """The sums of every bin that there is, in the columns' order.

        Parameters
        ----------
        table : ndarray of shape ((n_apart + n_bundles) * width,)
            Sums of these bins, of several parts.
        parts : list of str
            Names of those to take.

        Returns
        -------
        sums : ndarray of float64 of shape (n_parts, n_cells)
        """
        found = table.take(self._cells)
        sums = np.empty((len(parts), self.n_cells))
        for each, part in zip(sums, parts, strict=True):
            each[self._apart] = found[part]
        if self._together is not None:
            bundles = table[self._first * self.width :]
            for each, part in zip(sums, parts, strict=True):
                members = bundles[part].astype(np.float64).take(self._places)
                each[self._together] = np.add.reduceat(members, self._starts)
        return sums


def _bundles(sizes, width):
    """Which columns share one, whose bins are all combinations of theirs."""
    bundles, n_bins = [], width
    # The narrowest first, of which the most share one.
    for j in sorted(range(len(sizes)), key=sizes.__getitem__):
        # Where fewer than four fit, to sum over combinations takes as long as to add up
        # the columns one by one. A constant never fills a column.
        if not 1 < sizes[j] ** 4 <= width:
            continue
        if n_bins * sizes[j] > width:
            bundles.append([])
            n_bins = 1
        bundles[-1].append(j)
        n_bins *= sizes[j]
    bundles = [bundle for bundle in bundles if len(bundle) > 1]
    # All columns are copied, which is too much for a few of many.
    n_saved = sum(map(len, bundles)) - len(bundles)
    return bundles if 10 * n_saved >= len(sizes) else []


class Histograms:
    """Adds up the derivatives of a loss by a party's bins.

    What adds up is scikit-learn's own compiled builder, or numpy where a version of
    scikit-learn does not have it under this name; the sums are the same to the bit.

    Parameters
    ----------
    bundled : Bundled
        The party's bins.
    gradients : ndarray of float32 of shape (n_rows,)
        First derivatives.
    hessians : ndarray of float32 of shape (n_rows,) or None
        Second derivatives; None where they are one.
    """

    def __init__(self, bundled, gradients, hessians):
        self._bundled = bundled
        self._derivatives = {"sum_gradients": gradients}
        if hessians is not None:
            self._derivatives["sum_hessians"] = hessians
        self._parts = [*self._derivatives, "count"]
        self._builder = None
        if HistogramBuilder is not None:
            self._n_threads = n_threads()
            constant = hessians is None
            ones = np.ones(1, np.float32) if constant else hessians
            options = (bundled.width, gradients, ones, constant, self._n_threads)
            self._builder = HistogramBuilder(bundled.bins, *options)

    def add_up(self, rows):
        """Sums of every bin over some rows.

        Parameters
        ----------
        rows : ndarray of uint32
            Positions, in rising order.

        Returns
        -------
        sums : ndarray of float64 of shape (n_parts, n_cells)
            Of first derivatives, of second ones if they are not constant, and numbers
            of rows.
        """
        if self._builder is None:
            return self._bundled.sums(self._count(rows), self._parts)
        # To wake threads takes longer than to add up a small node without them.
        is_small = len(rows) * self._bundled.bins.shape[1] < LARGE
        self._builder.n_threads = 1 if is_small else self._n_threads
        # Its base is an array already; to read what it says of itself takes longer than
        # the sums of a small node.
        table = self._builder.compute_histograms_brute(rows).base.reshape(-1)
        return self._bundled.sums(table, self._parts)

    def _count(self, rows):
        width, n_columns = self._bundled.width, self._bundled.bins.shape[1]
        table = np.empty((n_columns, width), _DTYPE)
        # In double precision before they are added up, as the compiled builder does.
        weights = {
            part: each[rows].astype(np.float64)
            for part, each in self._derivatives.items()
        }
        for line, bins in zip(table, self._bundled.bins.T, strict=True):
            for part in self._parts:
                line[part] = np.bincount(bins[rows], weights.get(part), width)
        return table.reshape(-1)
