"""A party's default preprocessing of its own columns."""

from __future__ import annotations

import warnings
from numbers import Integral

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import SimpleImputer
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from skvfl._sklearn import (
    Interval,
    StrOptions,
    _check_feature_names_in,
    _fit_context,
)
from skvfl.exceptions import InvalidColumnError

NUMBERS = "numbers"
CATEGORIES = "categories"
DATETIMES = "datetimes"
AWARE_DATETIMES = "datetimes with time zone"
DURATIONS = "durations"
EMPTY = "no values"

ONE_SECOND = np.timedelta64(1, "s")
CHUNK_CELLS = 2**15


class CellTypeError(InvalidColumnError, TypeError):
    """A column holds values of a type that cannot be preprocessed."""


class PartyPreprocessor(TransformerMixin, BaseEstimator):
    """Turn one party's columns of any kind into finite numbers.

    The default per-party preprocessing of :class:`VerticalPartitioner`: each party
    fits its own on its own columns, and nothing it learns leaves the party.

    - Numbers and booleans: missing values are imputed by the median, then the column
      is standardised.
    - Strings and categories: one-hot encoded. A missing value is a category of its
      own.
    - Datetimes and durations: seconds, imputed by the median and standardised.

    Parameters
    ----------
    max_categories : int, default=100
        Largest number of output columns per column of categories. A column with more
        categories keeps its ``max_categories - 1`` most frequent ones and sends the
        others to one infrequent bucket.
    dtype : {"float32", "float64"}, default="float32"
        Data type of the output. All arithmetic is done in float64.

    Attributes
    ----------
    kinds_ : list of str
        What each input column was taken for: ``"numbers"``, ``"categories"``,
        ``"datetimes"``, ``"datetimes with time zone"``, ``"durations"`` or
        ``"no values"``.
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
        table = self._read(X, reset=True)
        self._fit(table)
        return self._transform(table)

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
        check_is_fitted(self)
        return self._transform(self._read(X, reset=False))

    def get_feature_names_out(self, input_features=None):
        """Names of the output columns.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Names of the input columns; by default those seen in :term:`fit`.

        Returns
        -------
        names : ndarray of str objects
            The column's name, or ``"<column>_<category>"``.
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        names_out = []
        for j, name in enumerate(names):
            if j in self._encodings:
                names_out += [f"{name}_{label}" for label in self._encodings[j].labels]
            else:
                names_out.append(name)
        return np.array(names_out, dtype=object)

    def _read(self, X, *, reset):
        """A sparse matrix, an ndarray of numbers, or a list of (kind, values)."""
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        is_frame = isinstance(frame, nw.DataFrame)
        if not is_frame:
            table = self._check_array(X)
        elif 0 in frame.shape:
            check_array(np.empty(frame.shape), estimator=self)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if is_frame:
            table = _homogeneous_numbers(frame)
        if table is None:
            return [
                _read_series(frame[:, j], self._where(j)) for j in range(frame.shape[1])
            ]
        if sparse.issparse(table) or table.dtype.kind in "biuf":
            return table
        return [_read_array(table[:, j], self._where(j)) for j in range(table.shape[1])]

    def _check_array(self, X):
        checks = {"ensure_all_finite": False, "estimator": self, "input_name": "X"}
        table = check_array(X, accept_sparse=("csr", "csc"), dtype=None, **checks)
        if table.dtype.kind == "U" and not hasattr(X, "dtype"):
            return check_array(X, dtype=object, **checks)
        return table

    def _where(self, j):
        return f"column {_check_feature_names_in(self, None)[j]!r} (position {j})"

    def _fit(self, table):
        self._sparse = sparse.issparse(table)
        if self._sparse:
            self._fit_sparse(table)
        else:
            self._fit_columns(_as_columns(table))
        for j, kind in enumerate(self.kinds_):
            if kind == EMPTY:
                warnings.warn(
                    f"{self._where(j)} has no value at all; it becomes a constant 0",
                    UserWarning,
                    stacklevel=4,
                )

    def _fit_columns(self, columns):
        self.kinds_ = []
        self._encodings = {}
        self._origins = {}
        statistics = []
        for j, (kind, values) in enumerate(columns):
            if _all_missing(values):
                kind = EMPTY
                statistics.append((0.0, 0.0, np.inf))
            elif kind == CATEGORIES:
                self._encodings[j] = Encoding(values, self.max_categories)
            else:
                if kind != NUMBERS:
                    self._origins[j] = _origin(values)
                    values = _seconds(values, self._origins[j])
                statistics.append(_statistics(values, self._where(j)))
            self.kinds_.append(kind)
        self._median, self._mean, self._scale = np.reshape(statistics, (-1, 3)).T

    def _fit_sparse(self, X):
        _refuse_infinite(X, self._where)
        X = X.astype(np.float64)
        with config_context(transform_output="default"), warnings.catch_warnings():
            self._median = (
                SimpleImputer(strategy="median", keep_empty_features=True)
                .fit(X)
                .statistics_
            )
        self._impute_sparse(X)

    def _transform(self, table):
        raise NotImplementedError
