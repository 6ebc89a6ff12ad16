"""Sums of derivatives over the rows that lie in a bin."""

from __future__ import annotations

import numpy as np

from skvfl._sklearn import HistogramBuilder, n_threads

# Cells of which the sums are worth several threads.
LARGE = 500_000


class Histograms:
    """Adds up the derivatives of a loss by a party's bins.

    What adds up is scikit-learn's own compiled builder, or numpy where a version of
    scikit-learn does not have it under this name; the sums are the same to the bit.

    Parameters
    ----------
    bins : ndarray of uint8 of shape (n_rows, n_columns)
        In column order.
    width : int
        Number of bins of a column, that of missing values included.
    cells : ndarray of int of shape (n_cells,)
        Which bins exist, in a table of ``width`` bins for every column.
    gradients : ndarray of float32 of shape (n_rows,)
        First derivatives.
    hessians : ndarray of float32 of shape (n_rows,) or None
        Second derivatives; None where they are one.
    """

    def __init__(self, bins, width, cells, gradients, hessians):
        self._bins, self._width, self._cells = bins, width, cells
        self._derivatives = [gradients] if hessians is None else [gradients, hessians]
        self._builder = None
        if HistogramBuilder is not None:
            constant = hessians is None
            ones = np.ones(1, np.float32) if constant else hessians
            options = (width, gradients, ones, constant, n_threads())
            self._builder = HistogramBuilder(bins, *options)

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
            return self._count(rows)
        # To wake threads takes longer than to add up a small node without them.
        is_small = len(rows) * self._bins.shape[1] < LARGE
        self._builder.n_threads = 1 if is_small else n_threads()
        # Its base is an array already; to read what it says of itself takes longer than
        # the sums of a small node.
        table = self._builder.compute_histograms_brute(rows).base.reshape(-1)
        parts = ["sum_gradients", "sum_hessians", "count"]
        if len(self._derivatives) == 1:
            parts.remove("sum_hessians")
        found = table.take(self._cells)
        sums = np.empty((len(parts), len(self._cells)))
        for each, part in zip(sums, parts, strict=True):
            each[:] = found[part]
        return sums

    def _count(self, rows):
        n_columns = self._bins.shape[1]
        sums = np.empty((len(self._derivatives) + 1, n_columns, self._width))
        # In double precision before they are added up, as the compiled builder does.
        weights = [each[rows].astype(np.float64) for each in self._derivatives]
        for j in range(n_columns):
            bins = self._bins[rows, j]
            for part, weight in enumerate([*weights, None]):
                sums[part, j] = np.bincount(bins, weight, self._width)
        return sums.reshape(len(sums), -1)[:, self._cells]
