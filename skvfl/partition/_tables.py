"""Tables as users give them, checked, and copies of some of their columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array

from skvfl._cells import unquoted
from skvfl._sklearn import _safe_indexing
from skvfl.partition._columns import refuse_masked

CHUNK_ROWS = 512


def _check_table(X):
    """Accept a frame, an array or a sparse matrix as it is; convert anything else."""
    # Each has a shape or a length as well, and would fail below with a message about
    # something else.
    refuse_masked(X)
    _refuse_several(X)
    if hasattr(X, "collect"):
        raise TypeError("X is a lazy frame; call its collect() first")
    if type(X).__module__.startswith("pyarrow"):
        X = X.to_pandas()  # whose columns have names and can be picked
    is_frame = hasattr(X, "columns") and hasattr(X, "shape")
    if not is_frame and not isinstance(X, np.ndarray) and not sparse.issparse(X):
        X = _as_cells(X)
    if len(X.shape) != 2:
        raise ValueError(
            f"X: Expected 2D array, got {len(X.shape)}D array instead. Reshape your "
            "data to (n_samples, n_features)."
        )
    for count, what in zip(X.shape, ("sample(s)", "feature(s)"), strict=True):
        if not count:
            raise ValueError(
                f"X: Found array with 0 {what} (shape={X.shape}) while a minimum of 1 "
                "is required."
            )
    if is_frame:
        return X
    # Nothing about cells is decided for all: each party's transformer says whether it
    # takes text, missing or infinite ones. Errors of the check may quote a cell, hence
    # unquoted.
    settings = {"accept_sparse": ["csr", "csc"], "dtype": None}
    return unquoted(check_array, X, ensure_all_finite=False, **settings)


def _as_cells(X):
    """Array of a list of rows, or of anything else that is like one."""
    try:
        table = np.asarray(X)
        # numpy turns a list of numbers and text into text, None into "None".
        if table.dtype.kind in "US" and not hasattr(X, "dtype"):
            table = np.asarray(X, dtype=object)
    except ValueError:
        raise ValueError(
            f"X is a {type(X).__name__} whose rows are of different lengths: give a "
            "table, with the same columns in every row"
        ) from None
    if not table.ndim:
        raise ValueError(
            f"X is a {type(X).__name__} where a table is due: Expected 2D array, got "
            "0D array instead. Reshape your data to (n_samples, n_features)."
        )
    return table


def _refuse_several(X):
    """Refuse a table for each party where one table of all is due."""
    is_dict = isinstance(X, Mapping) and not sparse.issparse(X)  # a DOK is a dict
    if is_dict or (
        isinstance(X, list | tuple)
        and any(hasattr(each, "columns") or getattr(each, "ndim", 1) > 1 for each in X)
    ):
        what = "entries" if is_dict else "tables"
        raise TypeError(
            f"X is a {type(X).__name__} of {len(X)} {what} where one table with the "
            "columns of all parties is due: skvfl.alignment.align makes it of one "
            "table for each party and returns it as .table; of columns by name, "
            "pandas.DataFrame(X) makes it"
        )


def _take_columns(X, positions):
    """Copies of columns; an array's in column order, in which they are worked on."""
    if not isinstance(X, np.ndarray):
        return _safe_indexing(X, positions, axis=1)
    # In pieces: picking columns of a whole array in row order misses the cache with
    # every cell.
    block = np.empty((len(X), len(positions)), dtype=X.dtype, order="F")
    for start in range(0, len(X), CHUNK_ROWS):
        block[start : start + CHUNK_ROWS] = X[start : start + CHUNK_ROWS, positions]
    return block
