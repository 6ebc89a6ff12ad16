"""A party's default preprocessing of its own columns."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from numbers import Integral

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from scipy.linalg.blas import dnrm2
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array
from sklearn.utils.sparsefuncs import inplace_column_scale
from sklearn.utils.validation import check_is_fitted, validate_data

from skvfl._cells import unquoted
from skvfl._sklearn import Interval, StrOptions, _check_feature_names_in, _fit_context
from skvfl._warnings import warn_about_column
from skvfl.exceptions import InvalidColumnError
from skvfl.partition._columns import refuse_masked
from skvfl.partition._encoding import ENOUGH_LATER_ROWS, encode
from skvfl.partition._kinds import (
    CATEGORIES,
    EMPTY,
    NUMERIC_DTYPES,
    TOO_LARGE,
    all_missing,
    kinds_and_values,
    numeric_table,
    read_series,
    read_values,
)
from skvfl.partition._text import NUMBERS, PLAIN, STRINGS, guess

INFINITE = (
    "holds infinite values (inf); replace them by missing values or clip them on "
    "purpose before fitting"
)
ONE_SECOND = np.timedelta64(1, "s")
CHUNK_CELLS = 2**15
SAMPLE = 1000  # numbers that bound the median of a column

# Warnings about a column speak of shares, which few rows do not give.
ENOUGH_ROWS = 20
BY_CHANCE = 1e-3
FEW_ROWS = 200  # where repeated numbers show first, in a column that has them
NAME_OF_ID = re.compile(r"(?i:(?:_|\b)(?:id|ids|uuid|guid)(?:_|\b))|[a-z]I[Dd]$")
ID_NUMBERS = (
    "looks like an identifier: its whole numbers are all different and {}; it tells "
    "nothing about other rows, so leave it out unless it has a meaning"
)
ID_STRINGS = (
    "looks like an identifier: {} of its {} values are different; it tells nothing "
    "about other rows and puts values of single rows into the fitted model, so leave "
    "it out or convert it to something that repeats"
)
RARE = (
    "holds mostly rare categories: {:.0%} of its rows have one that is too rare to "
    "learn from or to have a column of its own; group the categories, or convert the "
    "column if it is numbers or dates"
)
NO_VALUE = (
    "has no value in any of {} rows, and had one in {:.0%} of those of fit: they count "
    "as missing; look whether the column was delivered"
)
UNREAD = "holds text that cannot be read as {} in {} of {} rows; it counts as missing"


class PartyPreprocessor(TransformerMixin, BaseEstimator):
    """Turn one party's columns of any kind into finite numbers.

    The default per-party preprocessing of :class:`VerticalPartitioner`: each party
    fits its own on its own columns only.

    - Numbers and booleans: missing values are imputed by the median, then the column
      is standardised.
    - Strings and categories: one-hot encoded, without blanks around them. A missing
      value is a category of its own.
    - Datetimes and durations: seconds, imputed by the median and standardised.
    - Strings of which nearly all are numbers, dates or times of day: what they are.
      A column that is of a categorical type stays one of categories.

    Parameters
    ----------
    max_categories : int, default=100
        Largest number of output columns per column of categories. A column with that
        many categories or more keeps its ``max_categories - 1`` most frequent ones and
        sends the others to one infrequent bucket.
    dtype : {"float32", "float64"}, default="float32"
        Data type of the output. All arithmetic is done in float64.

    Attributes
    ----------
    kinds_ : list of str
        What each input column was taken for: ``"numbers"`` (booleans too),
        ``"strings"`` (categories too), ``"datetimes"``, ``"datetimes with time zone"``,
        ``"durations"`` or ``"no values"``.
    n_features_in_ : int
        Number of columns seen during :term:`fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns seen during :term:`fit`, where all are strings.

    See Also
    --------
    sklearn.compose.ColumnTransformer : Preprocessing chosen by hand.
    sklearn.preprocessing.OneHotEncoder : Encodes categories in the same way.

    Notes
    -----
    A category that was not seen during :term:`fit` goes to the infrequent bucket if
    there is one, and else becomes all zeros. A missing value that was not seen during
    :term:`fit` does the same.

    Numbers as text may have a separator of thousands, a decimal comma, a currency, a
    percent sign or another unit, parentheses for negative ones, and markers such as
    "?", "NA" or "-" for missing ones; dates may be written as 2024-12-31, 31.12.2024,
    12/31/2024 or 31 Dec 2024, with a time or without. The whole column decides what is
    ambiguous. Digits with leading zeros are codes, hence categories.

    A :class:`~skvfl.exceptions.ColumnWarning` names a column that may be read in two
    ways or in none, looks like an identifier, holds mostly rare categories, or comes
    later with other categories or with text that cannot be read, which counts as
    missing.

    A column without any value in :term:`fit` becomes a constant 0, whatever it holds
    later, and a warning names it. A column of numbers that is constant, up to
    rounding, is centred and not scaled.

    A sparse matrix stays sparse: its columns are scaled and not centred, and only
    stored missing values are imputed.

    What is kept: per column a median, a mean and a scale, or the names of the frequent
    categories (they also appear in the output's feature names). Rows and infrequent
    categories are not kept.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl import PartyPreprocessor
    >>> X = np.array([[30, "clerk"], [50, "nurse"], [None, "clerk"]], dtype=object)
    >>> preprocessor = PartyPreprocessor().fit(X)
    >>> preprocessor.get_feature_names_out()
    array(['x0', 'x1_clerk', 'x1_nurse'], dtype=object)
    >>> preprocessor.transform(np.array([[40, "pilot"]], dtype=object))
    array([[0., 0., 0.]], dtype=float32)
    """

    # What a warning says that becomes of a column without any value.
    _instead_of_nothing = "it becomes a constant 0"

    _parameter_constraints: dict = {
        "max_categories": [Interval(Integral, 2, None, closed="left")],
        "dtype": [StrOptions({"float32", "float64"})],
    }

    def __init__(self, *, max_categories=100, dtype="float32"):
        self.max_categories = max_categories
        self.dtype = dtype

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Learn medians, means, scales and categories of every column.

        Parameters
        ----------
        X : {dataframe, array-like, sparse matrix} of shape (n_samples, n_features)
            The party's columns.
        y : None
            Ignored.

        Returns
        -------
        self : PartyPreprocessor
            The fitted transformer.

        Raises
        ------
        InvalidColumnError
            If a column holds infinite values, mixed kinds of values or values of a
            type that cannot be preprocessed. The message names the column.
        """
        self._fit(self._read(X, reset=True))
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_transform(self, X, y=None):
        """Fit and transform, reading the columns once.

        Parameters
        ----------
        X : {dataframe, array-like, sparse matrix} of shape (n_samples, n_features)
            The party's columns.
        y : None
            Ignored.

        Returns
        -------
        X_out : {ndarray, sparse matrix} of shape (n_samples, n_features_out)
            Finite numbers of type `dtype`; sparse where `X` is.
        """
        return self._transform(self._fit(self._read(X, reset=True)))

    def transform(self, X):
        """Impute, standardise and encode.

        Parameters
        ----------
        X : {dataframe, array-like, sparse matrix} of shape (n_samples, n_features)
            The columns that were fitted, in the same order.

        Returns
        -------
        X_out : {ndarray, sparse matrix} of shape (n_samples, n_features_out)
            Finite numbers of type `dtype`; sparse where `X` is.

        Raises
        ------
        InvalidColumnError
            If a column holds values of another kind than in :term:`fit`, infinite
            values, or values too large for `dtype`. The message names the column.
        """
        check_is_fitted(self, "kinds_")
        return self._transform(self._read(X, reset=False))

    def get_feature_names_out(self, input_features=None):
        """Get the names of the output columns.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Names of the input columns; by default those seen in :term:`fit`.

        Returns
        -------
        names : ndarray of str objects
            The column's name, or ``"<column>_<category>"``.
        """
        check_is_fitted(self, "kinds_")
        names = _check_feature_names_in(self, input_features)
        names_out = []
        for j, name in enumerate(names):
            if j in self._encodings:
                names_out += [f"{name}_{label}" for label in self._encodings[j].labels]
            else:
                names_out.append(name)
        return np.array(names_out, dtype=object)

    def _read(self, X, *, reset):
        """Validate; a sparse matrix, an ndarray of numbers or (kind, values) pairs."""
        refuse_masked(X)
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        is_frame = isinstance(frame, nw.DataFrame)
        if not is_frame:
            table = self._check_array(X)
        elif 0 in frame.shape:
            check_array(np.empty(frame.shape), estimator=self)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if is_frame:
            table = numeric_table(frame)
            if table is None:
                return self._read_columns(frame, read_series)
        elif table.dtype.kind not in NUMERIC_DTYPES:
            return self._read_columns(table, read_values)
        return table

    def _check_array(self, X):
        checks = {"ensure_all_finite": False, "estimator": self, "input_name": "X"}
        checks |= {"accept_sparse": ("csr", "csc"), "dtype": None}
        table = unquoted(check_array, X, **checks)
        if table.dtype.kind == "U" and not hasattr(X, "dtype"):
            return unquoted(check_array, X, **{**checks, "dtype": object})
        return table

    def _read_columns(self, table, read):
        columns = []
        for j in range(table.shape[1]):
            with self._naming(j):
                columns.append(read(table[:, j]))
        return columns

    @contextmanager
    def _naming(self, j):
        """Put the name of the column before the message of an error about it."""
        try:
            yield
        except InvalidColumnError as exc:
            raise type(exc)(f"{self._describe(j)} {exc}") from None

    def _describe(self, j):
        return f"column {str(self._name(j))!r} (position {j})"

    def _name(self, j):
        return _check_feature_names_in(self, None)[j]

    def _warn(self, j, message):
        warn_about_column(f"{self._describe(j)} {message}")

    def _fit(self, table):
        """Learn from what was read; return it with text read as what it is."""
        self._sparse = sparse.issparse(table)
        self._encodings = {}
        self._origins = {}
        self._readings = {}
        self._missing = {}  # share of each column's rows in fit without a value
        if self._sparse:
            kinds = self._fit_sparse(table)
        else:
            if isinstance(table, list):
                table = list(map(self._understand, range(len(table)), table))
            kinds = self._fit_columns(kinds_and_values(table))
        for j, kind in enumerate(kinds):
            if kind == EMPTY:
                self._warn(j, f"has no value at all: {self._instead_of_nothing}")
        self.kinds_ = kinds
        return table

    def _understand(self, j, column):
        """Read text that is numbers or times; learn how categories are encoded."""
        kind, values = column
        if kind not in (STRINGS, CATEGORIES) or all_missing(values):
            return kind, values
        counts = Counter(values)
        missing = counts.pop(None, 0)
        if kind == STRINGS:
            reading, remark = guess(counts)
            if remark:
                self._warn(j, remark)
            if reading is not None:
                typed, n_unread = reading.read(values)
                self._readings[j] = reading, n_unread / counts.total()
                if reading.kind == NUMBERS:
                    self._warn_of_numeric_id(j, typed)
                return reading.kind, typed
        self._encodings[j] = encode(counts, missing, self.max_categories)
        self._missing[j] = missing / len(values)
        if not (kind == STRINGS and remark):
            self._warn_of_rare(j, counts)
        return STRINGS, values

    def _fit_columns(self, columns):
        kinds = []
        statistics = []
        for j, (kind, values) in enumerate(columns):
            if all_missing(values):
                kind = EMPTY
                # An infinite scale makes 0 of whatever comes later.
                statistics.append((0.0, 0.0, np.inf))
            elif kind != STRINGS:
                if kind != NUMBERS:
                    self._origins[j] = _origin(values)
                    values = _seconds(values, self._origins[j])
                elif values.dtype.kind in "iu":
                    self._warn_of_numeric_id(j, values)
                with self._naming(j):
                    n_present, *column = self._summary(values)
                statistics.append(column)
                self._missing[j] = 1 - n_present / len(values)
            kinds.append(kind)
        self._median, self._mean, self._scale = np.reshape(statistics, (-1, 3)).T
        return kinds

    def _summary(self, values):
        """Number of values of a column; what the others take, mean, scale."""
        return _statistics(values)

    def _warn_of_numeric_id(self, j, values):
        why = _why_identifier(values, NAME_OF_ID.search(str(self._name(j))))
        if why:
            self._warn(j, ID_NUMBERS.format(why))

    def _warn_of_rare(self, j, counts):
        n_rows = counts.total()
        if n_rows < ENOUGH_ROWS:
            return
        if len(counts) >= 0.9 * n_rows:
            self._warn(j, ID_STRINGS.format(len(counts), n_rows))
            return
        single = sum(count == 1 for count in counts.values()) / n_rows
        rare = max(single, self._encodings[j].rare)
        if rare > 0.5:
            self._warn(j, RARE.format(rare))

    def _fit_sparse(self, table):
        X, missing, columns = self._read_sparse(table)
        # The variance is a sum of squares.
        squares_overflow = np.abs(X.data) > 1e150
        self._refuse_stored(X, squares_overflow, TOO_LARGE.format("float64"))
        imputer = SimpleImputer(strategy="median", keep_empty_features=True).fit(X)
        self._median = imputer.statistics_
        X.data[missing] = self._median[columns]
        scale = StandardScaler(with_mean=False).fit(X).scale_
        empty = np.bincount(columns, minlength=X.shape[1]) == X.shape[0]
        self._scale = np.where(empty, np.inf, scale)
        return [EMPTY if is_empty else NUMBERS for is_empty in empty]

    def _read_sparse(self, table):
        """Copy to float64; say which stored values are missing, in which columns."""
        X = table.astype(np.float64)
        self._refuse_stored(X, np.isinf(X.data), INFINITE)
        missing = np.isnan(X.data)
        return X, missing, X.tocoo().col[missing]

    def _refuse_stored(self, X, refused, message):
        """Name the first column with a refused stored value, if there is one."""
        if refused.any():
            with self._naming(X.tocoo().col[refused].min()):
                raise InvalidColumnError(message)

    def _transform(self, table):
        if sparse.issparse(table) != self._sparse:
            fitted, given = ("sparse", "dense") if self._sparse else ("dense", "sparse")
            raise InvalidColumnError(
                f"X is {given}, but {type(self).__name__} was fitted on a {fitted} "
                f"table, which it scales in another way; convert X to a {fitted} one"
            )
        if self._sparse:
            return self._transform_sparse(table)
        self._warn_of_columns_without_values(table)
        if isinstance(table, np.ndarray) and not self._encodings and not self._origins:
            out = np.empty(table.shape, dtype=self.dtype)
            self._standardise(table, out, np.arange(table.shape[1]), slice(None))
            return out
        return self._transform_columns(list(kinds_and_values(table)))

    def _warn_of_columns_without_values(self, table):
        """Say which columns have no value at all, though some others have one."""
        if isinstance(table, list):
            columns = [values for _, values in table]
        else:
            columns = table.T
        n_rows = len(columns[0])
        if n_rows < ENOUGH_LATER_ROWS:
            return
        empty = [j for j, values in enumerate(columns) if all_missing(values)]
        if len(empty) == len(columns) > 1:  # rows that the party does not hold
            return
        for j in empty:
            usual = self._missing.get(j, 1.0)
            # How likely so many rows without a value are, at the rate of fit.
            if usual**n_rows < BY_CHANCE:
                self._warn(j, NO_VALUE.format(n_rows, 1 - usual))

    def _transform_columns(self, columns):
        n_rows = len(columns[0][1])
        widths = [1] * len(columns)
        for j, encoding in self._encodings.items():
            widths[j] = len(encoding.labels)
        ends = np.cumsum(widths)
        out = np.zeros((n_rows, ends[-1]), dtype=self.dtype)
        numeric = np.setdiff1d(np.arange(len(columns)), list(self._encodings))
        numbers = np.empty((n_rows, len(numeric)), order="F")
        targets = dict(zip(numeric.tolist(), numbers.T, strict=True))
        for j, (kind, values) in enumerate(columns):
            with self._naming(j):
                values = self._match(j, kind, values)
            if j in self._encodings:
                block = out[:, ends[j] - widths[j] : ends[j]]
                remark = self._encodings[j].write(values, block)
                if remark:
                    self._warn(j, remark)
            else:
                targets[j][:] = values
        self._standardise(numbers, out, numeric, ends[numeric] - 1)
        return out

    def _match(self, j, kind, values):
        """Values of the fitted kind; a column without any value has every kind."""
        fitted = self.kinds_[j]
        if kind == CATEGORIES:
            kind = STRINGS
        if kind == STRINGS and fitted in PLAIN:
            kind, values = self._read_text(j, values)
        if kind == fitted:
            return _seconds(values, self._origins[j]) if j in self._origins else values
        if fitted == EMPTY and kind == NUMBERS:
            return values
        if fitted != EMPTY and not all_missing(values):
            raise InvalidColumnError(
                f"held {fitted} in fit and holds {kind} now; convert it to {fitted}, "
                "or fit again"
            )
        return np.full(len(values), None if fitted == STRINGS else np.nan)

    def _read_text(self, j, values):
        """Text where fit saw numbers or times, or text that it took for them."""
        fitted = self.kinds_[j]
        reading, usual = self._readings.get(j, (PLAIN[fitted], 0.0))
        typed, n_unread = reading.read(values)
        if not n_unread:
            return fitted, typed
        if j not in self._readings or reading.is_other_clock(values):
            return STRINGS, values
        n_present = sum(value is not None for value in values)
        if n_unread > (0.05 + usual) * n_present:
            self._warn(j, UNREAD.format(fitted, n_unread, n_present))
        return fitted, typed

    def _standardise(self, numbers, out, columns, positions):
        """Impute and scale these input columns into these positions of ``out``."""
        imputed = (self._median - self._mean) / self._scale
        # In pieces, so that double precision takes no second table.
        step = max(1, CHUNK_CELLS // max(1, len(columns)))
        for start in range(0, len(numbers), step):
            chunk = numbers[start : start + step]
            with np.errstate(over="ignore", invalid="ignore"):
                scaled = np.subtract(chunk, self._mean, dtype=np.float64)
                scaled /= self._scale
                scaled = scaled.astype(out.dtype, copy=False)
            # Nearly always true: only then it matters what a cell was.
            finite = np.isfinite(scaled)
            if not finite.all():
                missing = np.isnan(chunk)
                self._refuse(chunk, ~(finite | missing), columns)
                scaled = np.where(missing, imputed, scaled)
            out[start : start + step, positions] = scaled

    def _transform_sparse(self, table):
        X, missing, columns = self._read_sparse(table)
        X.data[missing] = self._median[columns]
        inplace_column_scale(X, 1.0 / self._scale)
        with np.errstate(over="ignore"):
            X = X.astype(self.dtype)
        self._refuse_stored(X, ~np.isfinite(X.data), TOO_LARGE.format(self.dtype))
        return X

    def _refuse(self, chunk, refused, columns):
        """Name the first column with a refused value, if there is one."""
        found = np.flatnonzero(refused.any(axis=0))
        if found.size:
            infinite = np.isinf(chunk[:, found[0]]).any()
            with self._naming(columns[found[0]]):
                raise InvalidColumnError(
                    INFINITE if infinite else TOO_LARGE.format(self.dtype)
                )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = [self.dtype]
        return tags


def _why_identifier(values, is_called_one):
    """What makes a column of whole numbers look like an identifier, or None."""
    n_rows = len(values)
    if n_rows < ENOUGH_ROWS:
        return None
    # A few rows rule most columns out, and the sort below is for the rest.
    first = values[:FEW_ROWS].tolist()
    if len(set(first)) < len(first):
        return None
    why = _why_if_all_differ(values, is_called_one)
    return why if why and np.unique(values).size == n_rows else None


def _why_if_all_differ(values, is_called_one):
    if values.dtype.kind == "f" and not (np.floor(values) == values).all():
        return None
    # As floats, because the span of integers of 64 bits may not be one.
    span = float(values.max()) - float(values.min()) + 1
    # So many draws from a range this narrow would almost surely meet twice.
    if len(values) ** 2 >= 20 * span:
        return "from a narrow range, as numbers given in turn are"
    if is_called_one:
        return "the column is called one"
    if (values[1:] > values[:-1]).all():
        return "in rising order"
    return None


def _statistics(values):
    """Number of values of a column; its median, which the others take, mean, scale."""
    n_rows = len(values)
    values = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        # One sum in place of two masks for most columns.
        unusual = not np.isfinite(values.sum())
    if unusual:
        values = values[~np.isnan(values)]
        if np.isinf(values).any():
            raise InvalidColumnError(INFINITE)
    median = _median(values)
    with np.errstate(over="ignore", invalid="ignore"):
        # Centred twice: sums of large numbers that vary little lose the digits that
        # vary.
        values -= median
        shift = values.sum() / n_rows
        values -= shift
        # Imputed cells stand at the median. BLAS's norm does not overflow in squares.
        imputed_part = np.sqrt(n_rows - len(values)) * shift
        scale = np.hypot(dnrm2(values), imputed_part) / np.sqrt(n_rows)
        mean = median + shift
    if not (np.isfinite(mean) and np.isfinite(scale)):
        raise InvalidColumnError(TOO_LARGE.format("float64"))
    # What varies by no more than rounding is constant.
    if scale <= 10 * np.finfo(np.float64).eps * abs(mean):
        scale = 1.0
    return len(values), median, mean, scale


def _median(values):
    """Median of finite numbers."""
    half = len(values) // 2
    # Of the two in the middle, or twice of the one.
    ranks = half - 1 + len(values) % 2, half
    middle = values
    if len(values) > 4 * SAMPLE:
        # Between two numbers of a sample that very likely embrace the median lie few,
        # and to count those below costs a tenth of putting all in order.
        sample = np.sort(values[:: len(values) // SAMPLE])
        low, high = sample[int(0.45 * len(sample))], sample[int(0.55 * len(sample))]
        below = np.count_nonzero(values < low)
        among = values[(values >= low) & (values <= high)]
        if below <= ranks[0] and ranks[1] < below + len(among):
            middle, ranks = among, [rank - below for rank in ranks]
    middle = np.partition(middle, ranks)
    if ranks[0] == ranks[1]:
        return middle[ranks[1]]
    return 0.5 * middle[ranks[0]] + 0.5 * middle[ranks[1]]


def _origin(times):
    """Median in whole seconds: subtracting it first keeps all digits of what varies."""
    seconds = times[~np.isnat(times)].astype(f"{times.dtype.kind}8[s]")
    return times.dtype.type(int(np.median(seconds.astype(np.int64))), "s")


def _seconds(times, origin):
    """Seconds since ``origin``; NaN where missing."""
    whole = times.astype(origin.dtype)
    return (whole - origin) / ONE_SECOND + (times - whole) / ONE_SECOND
