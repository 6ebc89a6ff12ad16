"""Whether sums can be those of the rows that a party was asked about."""

from __future__ import annotations

import numpy as np

# By so much of a tree's derivatives may sums in another order differ.
ROUNDING = 1e-8


class Checks:
    """What sums must come to, by whoever knows all derivatives.

    Every row lies in one bin of every column, so the bins of a column add up to the
    node. Without this a party could change what every leaf says.

    Parameters
    ----------
    columns : dict of str to Columns
        Of every party that has some, in their order.
    constant : bool
        Whether second derivatives are one, and not sent.
    """

    def __init__(self, columns, constant):
        self._constant = constant
        parts = [each.n_bins + each.has_missing for each in columns.values()]
        widths = [len(each) for each in parts]
        self._owners = np.repeat([*columns], widths)
        self._starts = np.append(0, np.cumsum(np.concatenate(parts))[:-1])

    def begin(self, gradients, hessians):
        """Take the derivatives of an iteration."""
        self._slopes = [gradients] if self._constant else [gradients, hessians]
        # For each output; numbers of rows are exact.
        sizes = [np.abs(each).sum(axis=1, dtype=np.float64) for each in self._slopes]
        self._sizes = np.column_stack([*sizes, np.zeros(len(gradients))])

    def expected(self, output, rows):
        """What the sums of a node come to: each part's, and how many rows there are."""
        sums = [each[output].take(rows).sum(dtype=np.float64) for each in self._slopes]
        return np.array([*sums, len(rows)])

    def faulty(self, sums, outputs, expected):
        """Who sent sums that cannot be, or None.

        Parameters
        ----------
        sums : ndarray of shape (n_nodes, n_parts, n_cells + 1)
            Of all bins; the last one is zero.
        outputs : list of int
            Of which output each node is.
        expected : list of ndarray of shape (n_parts,)
            What the sums of each node come to.
        """
        sizes = self._sizes[outputs]
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.add.reduceat(sums[:, :, :-1], self._starts, axis=2)
            far = np.abs(found - np.array(expected)[:, :, None])
        wrong = ~(far <= ROUNDING * sizes[:, :, None]).all(axis=(0, 1))
        # Large numbers that cancel would overflow where splits are compared.
        most = 2 * sizes[:, 0, None]
        if (np.abs(sums[:, 0]) > most).any():
            large = np.maximum.reduceat(np.abs(sums[:, 0, :-1]), self._starts, axis=1)
            wrong |= (large > most).any(axis=0)
        return str(self._owners[wrong.argmax()]) if wrong.any() else None

    def agrees(self, totals, output, expected):
        """Whether a node has the sums that its parent's split gave it."""
        first, second, rows = totals
        told = [first, rows] if self._constant else [first, second, rows]
        return (np.abs(told - expected) <= ROUNDING * self._sizes[output]).all()
