"""Which columns a party holds: names, positions, slices, masks or selectors."""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping, Set
from difflib import get_close_matches
from numbers import Integral

import numpy as np

from skvfl._sklearn import _get_feature_names

# Of a wide table a message names so many columns.
MOST_NAMES = 10


def refuse_masked(array, name="X"):
    """Refuse a masked array, whose mask numpy and scikit-learn would drop."""
    if isinstance(array, np.ma.MaskedArray):
        raise ValueError(
            f"{name} is a masked array; fill its masked cells with NaN first, as in "
            f"{name}.astype(float).filled(numpy.nan)"
        )


def column_names(X):
    """Names of the columns of ``X``, or None where it has none.

    Raises
    ------
    ValueError
        If a name occurs more than once.
    """
    labels = getattr(X, "columns", None)
    # scikit-learn lets equal names pass, and a column asked for by name would be the
    # first of them.
    if getattr(labels, "has_duplicates", False):
        repeated = sorted(map(str, labels[labels.duplicated()].unique()))
        raise ValueError(
            f"duplicate column names {repeated}: rename the columns so that every "
            "name is unique"
        )
    return _get_feature_names(X)


def column_labels(X):
    """Labels of a frame's columns, of whatever type, or None where it is no frame."""
    if hasattr(X, "column_names"):  # pyarrow's columns are the cells themselves
        return list(X.column_names)
    return list(X.columns) if hasattr(X, "columns") else None


def resolve(columns, X, names, party):
    """Positions of a party's columns.

    Parameters
    ----------
    columns : str, int, list, slice, boolean mask or callable
        As in scikit-learn's ``ColumnTransformer``: integers are positions, strings are
        names, and a callable is given ``X`` and returns any of the others.
    X : table
        Used only by a callable.
    names : ndarray of str or None
        Names of the columns, where they have names.
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
        positions = np.arange(n_columns)[_positional(columns, names, n_columns, party)]
    else:
        # Before any is counted or turned into a list: a set would lose its kind there.
        _refuse_unordered(columns, party)
        if isinstance(columns, str) or not np.iterable(columns):
            columns = [columns]
        columns = list(columns)
        # Before integers, which booleans are to Python.
        if columns and all(isinstance(c, bool | np.bool_) for c in columns):
            if len(columns) != n_columns:
                raise ValueError(
                    f"party {party!r}: its boolean mask has {len(columns)} entries "
                    f"for {n_columns} columns; give one for each"
                )
            positions = np.flatnonzero(columns)
        else:
            if any(isinstance(c, Integral) for c in columns) and _ambiguous(X):
                raise ValueError(
                    f"party {party!r} is given integers, which are positions, but the "
                    "table's columns are labelled by other integers; rename the "
                    "columns to strings"
                )
            found = [_locate(column, names, n_columns, party) for column in columns]
            positions = np.array(found, int)
    # Names, negative positions and masks are compared after all have become positions,
    # so that one column written in two ways is found.
    held, count = np.unique(positions, return_counts=True)
    if (count > 1).any():
        column = describe(held[count > 1][0], names)
        raise ValueError(f"party {party!r} lists {column} more than once; list it once")
    return positions


def _refuse_unordered(columns, party):
    """Refuse what has no order of its own, or can be read only once.

    The order of a set of names changes from one start of Python to the next, and with
    it the order of the party's columns: one seed would give many results.
    """
    # Keys of a dictionary are a Set to Python, but keep the order of writing.
    if isinstance(columns, Set | Mapping) and not isinstance(columns, KeysView):
        raise ValueError(
            f"party {party!r} is given its columns as a {type(columns).__name__}, "
            "which has no order: give a list"
        )
    if isinstance(columns, Iterator):
        raise ValueError(
            f"party {party!r} is given its columns as a {type(columns).__name__}, "
            "which can be read only once: give a list"
        )


def _ambiguous(X):
    """Whether an integer could mean a label or another position."""
    labels = column_labels(X)
    # Labels 0, 1, 2, … in their places are pandas' default, and mean the same either
    # way.
    if labels is None or labels == list(range(len(labels))):
        return False
    return any(isinstance(label, Integral) for label in labels)


def describe(position, names):
    """A column in words: its name where it has one, and its position."""
    if names is None:
        return f"the column at position {position}"
    return f"column {str(names[position])!r} (position {position})"


def look_alike(column, names):
    """Words about a name that reads like a missing column's, or about all names.

    Names differ by what is not seen (blanks, a byte order mark, upper case), or by a
    letter or two.
    """

    def as_read(name):
        return "".join(str(name).replace("\ufeff", "").split()).casefold()

    found = [str(name) for name in names if as_read(name) == as_read(column)]
    if not found:
        found = get_close_matches(str(column), [str(name) for name in names], 1)
    if found:
        return f", which has {found[0]!a}"
    some = ", ".join(ascii(str(name)) for name in names[:MOST_NAMES])
    return f", which has {some}{', …' if len(names) > MOST_NAMES else ''}"


def _locate(column, names, n_columns, party):
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
                f"{look_alike(column, names)}"
            )
        return int(found[0])
    if isinstance(column, Integral) and not isinstance(column, bool | np.bool_):
        if not -n_columns <= column < n_columns:
            raise ValueError(
                f"party {party!r}: there is no column at position {column} in a table "
                f"of {n_columns} columns; integers are positions, even where columns "
                "are labelled by integers"
            )
        # Counted from the front, so that a column named twice is found out.
        return int(column) % n_columns
    raise ValueError(
        f"party {party!r}: columns are names or positions, "
        f"got a {type(column).__name__}"
    )


def _positional(columns, names, n_columns, party):
    """A slice of positions; names in a slice are inclusive, as in pandas."""
    start, stop = columns.start, columns.stop
    if isinstance(start, str):
        start = _locate(start, names, n_columns, party)
    if isinstance(stop, str):
        # Nobody knows what comes after a name, so the end of a range of names belongs
        # to it.
        stop = _locate(stop, names, n_columns, party) + 1
    return slice(start, stop, columns.step)
