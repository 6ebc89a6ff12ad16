"""What a party's trees look at: the bin of each of its cells."""

from __future__ import annotations

import numpy as np

from skvfl.exceptions import InvalidColumnError, InvalidOutputError
from skvfl.federation._party import run
from skvfl.partition._kinds import NUMBERS
from skvfl.partition._preprocessing import INFINITE, PartyPreprocessor

# Quantiles of more rows are hardly better, and sorting all of them takes longer than
# some trees do. scikit-learn's histogram boosting has the same number.
MOST_SORTED = 200_000
_LARGEST = 1e300


class TreeColumns(PartyPreprocessor):
    """Columns of any kind as trees take them: one number each, missing ones as NaN.

    Numbers, dates and durations stay what they are, since trees look at their order
    alone. Categories are numbered; those that ``fit`` did not see are missing.

    Parameters
    ----------
    max_categories : int, default=255
        Largest number of categories of a column; the rarest share the last one.
    """

    _instead_of_nothing = "no tree splits by it, whatever it holds later"

    def __init__(self, *, max_categories=255):
        super().__init__(max_categories=max_categories, dtype="float64")

    @property
    def categorical_(self):
        """Which columns are categories."""
        return np.isin(np.arange(len(self.kinds_)), list(self._encodings))

    def _summary(self, values):
        """Numbers stay as they are, and missing ones missing."""
        if np.isinf(values).any():
            raise InvalidColumnError(INFINITE)
        return np.count_nonzero(~np.isnan(values)), np.nan, 0.0, 1.0

    def _transform_columns(self, columns):
        out = np.empty((len(columns[0][1]), len(columns)), order="F")
        for j, (kind, values) in enumerate(columns):
            with self._naming(j):
                values = self._match(j, kind, values)
                if j in self._encodings:
                    encoding = self._encodings[j]
                    codes, remark = encoding.read(values)
                    # Elsewhere a missing value is a category of its own. Here one that
                    # nobody has seen goes wherever missing values go.
                    missing = (codes < 0) | (codes == encoding.codes.get(None))
                    values = np.where(missing, np.nan, codes)
                    if remark:
                        self._warn(j, remark)
                elif kind == NUMBERS and np.isinf(values).any():
                    raise InvalidColumnError(INFINITE)
            out[:, j] = values
        return out


class Bins:
    """Cuts every column at quantiles, or between its values where these are few.

    The cuts are those of scikit-learn's histogram boosting, so that trees over parties
    are the trees of pooled columns.

    Parameters
    ----------
    transformer : transformer
        Unfitted; prepares the columns.
    max_bins : int
        Most bins of a column, not counting that of missing values.
    stream : SeedSequence
        Draws the rows of which the quantiles are taken, where there are many.

    Attributes
    ----------
    n_bins : ndarray of int of shape (n_columns,)
        Number of bins of every column.
    categorical : ndarray of bool of shape (n_columns,)
        Which columns are categories.
    """

    def __init__(self, transformer, max_bins, stream):
        self.missing = max_bins
        self.transformer = transformer
        self._stream = stream

    def fit(self, block, rows=slice(None)):
        """Cut the columns of a block; the bin of each of its cells.

        Parameters
        ----------
        block : DataFrame or ndarray of shape (n_rows, n_columns)
            The party's own.
        rows : ndarray of int, default=slice(None)
            Rows whose values are cut between; the others are binned all the same.
        """
        columns = self._numbers(self.transformer.fit_transform, block)
        self.categorical = getattr(
            self.transformer, "categorical_", np.zeros(columns.shape[1], bool)
        )
        sample = columns[rows]
        if len(sample) > MOST_SORTED:
            rng = np.random.default_rng(self._stream)
            sample = sample[rng.choice(len(sample), MOST_SORTED, replace=False)]
        self._cuts = [
            _between_codes(columns[:, j])
            if self.categorical[j]
            else _cuts(sample[:, j], self.missing)
            for j in range(columns.shape[1])
        ]
        self.n_bins = np.array([len(cuts) + 1 for cuts in self._cuts])
        return self._bin(columns)

    def look_up(self, block):
        """The bin of each cell of another block."""
        return self._bin(self._numbers(self.transformer.transform, block))

    def _numbers(self, method, block):
        columns = run(method, block)
        # Between infinities there is no middle to cut at.
        if columns.dtype.kind == "f" and np.isinf(columns).any():
            raise InvalidOutputError(
                "its transformer gave infinite values: let it clip them"
            )
        return columns

    def _bin(self, columns):
        # Column by column in memory, as they are added up.
        bins = np.empty(columns.shape, np.uint8, order="F")
        for j, cuts in enumerate(self._cuts):
            column = columns[:, j].astype(np.float64)
            bins[:, j] = np.searchsorted(cuts, column)
            bins[np.isnan(column), j] = self.missing
        return bins


def _cuts(column, max_bins):
    """Between which numbers a column is cut, in rising order."""
    column = np.sort(column[~np.isnan(column)].astype(np.float64))
    values = (
        column[np.append(True, column[1:] > column[:-1])] if column.size else column
    )
    if len(values) <= max_bins:
        return np.minimum((values[:-1] + values[1:]) * 0.5, _LARGEST)
    shares = np.linspace(0, 100, max_bins + 1)[1:-1]
    cuts = np.percentile(column, shares, method="averaged_inverted_cdf")
    return np.minimum(np.unique(cuts), _LARGEST)


def _between_codes(column):
    """Cuts that give every category a bin of its own."""
    return np.arange(0.5, np.nanmax(column, initial=0))
