"""Which columns a party holds: names, positions, slices, masks or selectors."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from skvfl._sklearn import _get_feature_names


def column_names(X):
    """Names of the columns of ``X``, or None where it has none.

    Raises
    ------
    ValueError
        If a name occurs more than once.
    """
    names = _get_feature_names(X)
    if names is None:
        return None
    seen, count = np.unique(names, return_counts=True)
    if (count > 1).any():
        repeated = [str(name) for name in seen[count > 1]]
        raise ValueError(
            f"duplicate column names {repeated}: rename the columns so that every "
            "name is unique"
        )
    return names


def resolve(columns, X, names, party):
    """Positions of a party's columns.

    Parameters
    ----------
    columns : str, int, list, slice, boolean mask or callable
        As in scikit-learn's ``ColumnTransformer``: integers are positions, strings are
        names, and a callable is given ``X`` and returns any of the others.
    X : table
        Used only by a callable.
    names : ndarray of str or list of int
        Names of the columns, or their positions where they have none.
    party : str
        For the error messages.

    Returns
    -------
    positions : ndarray of int

    Raises
    ------
    ValueError
        If a column does not exist, is repeated, or cannot be told apart.
    """
    n_columns = X.shape[1]
    if callable(columns):
        columns = columns(X)
    if isinstance(columns, slice):
        positions = np.arange(n_columns)[_positional(columns, names, party)]
    else:
        if isinstance(columns, str | Integral):
            columns = [columns]
        columns = list(columns)
        if columns and all(isinstance(c, bool | np.bool_) for c in columns):
            if len(columns) != n_columns:
                raise ValueError(
                    f"party {party!r}: its boolean mask has {len(columns)} entries "
                    f"for {n_columns} columns"
                )
            positions = np.flatnonzero(columns)
        else:
            positions = np.array([_locate(c, names, party) for c in columns], int)
            positions[positions < 0] += n_columns
    held, count = np.unique(positions, return_counts=True)
    if (count > 1).any():
        column = describe(held[count > 1][0], names)
        raise ValueError(f"party {party!r} lists {column} more than once")
    return positions


def describe(position, names):
    """A column in words: its name where it has one, and its position."""
    if names is None:
        return f"the column at position {position}"
    return f"column {str(names[position])!r} (position {position})"


def _locate(column, names, party):
    if isinstance(column, str):
        if names is None:
            raise ValueError(
                f"party {party!r}: column {column!r} is given by name, but the table "
                "has no column names; use positions"
            )
        found = np.flatnonzero(names == column)
        if not found.size:
            raise ValueError(
                f"party {party!r}: column {column!r} is missing from the table"
            )
        return int(found[0])
    if isinstance(column, Integral) and not isinstance(column, bool | np.bool_):
        return int(column)
    raise ValueError(
        f"party {party!r}: columns are names or positions, "
        f"got a {type(column).__name__}"
    )


def _positional(columns, names, party):
    """A slice of positions; names in a slice are inclusive, as in pandas."""
    start, stop = columns.start, columns.stop
    if isinstance(start, str):
        start = _locate(start, names, party)
    if isinstance(stop, str):
        stop = _locate(stop, names, party) + 1
    return slice(start, stop, columns.step)
