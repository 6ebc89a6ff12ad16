"""What kind of values a column holds, and which of them are missing."""

from __future__ import annotations

from datetime import UTC, date, timedelta
from decimal import Decimal
from numbers import Real

import narwhals.stable.v2 as nw
import numpy as np

from skvfl.exceptions import InvalidColumnError
from skvfl.partition._text import (
    AWARE_DATETIMES,
    DATETIMES,
    DURATIONS,
    NUMBERS,
    OBJECT_DTYPES,
    PLAIN,
    STRINGS,
)

CATEGORIES = "categories"  # strings that somebody has declared to be categories
EMPTY = "no values"
TOO_LARGE = (
    "holds values too large for {} once standardised; clip them on purpose or express "
    "them in another unit"
)
UNSUPPORTED = (
    "holds values of type {}; an argument must be a table of strings, numbers, "
    "booleans or times: convert this column or leave it out"
)
FAMILIES = {
    STRINGS: str,
    DURATIONS: (timedelta, np.timedelta64),  # numpy's one is also a number
    NUMBERS: (Real, Decimal, np.bool_),
    DATETIMES: (date, np.datetime64),
}
MISSING_TYPES = {"NoneType", "NAType", "NaTType"}
NUMERIC_DTYPES = "biuf"
WIDE_INTEGERS = {nw.Int128, nw.UInt128}


class CellTypeError(InvalidColumnError, TypeError):
    """A column holds values of a type that cannot be preprocessed."""


def numeric_table(frame):
    """Convert a frame whose columns are all of one numeric type; else None."""
    dtypes = set(frame.schema.values())
    if dtypes & WIDE_INTEGERS:  # which numpy does not have
        frame = frame.select(
            nw.col(name).cast(nw.Float64) if dtype in WIDE_INTEGERS else nw.col(name)
            for name, dtype in frame.schema.items()
        )
        dtypes = set(frame.schema.values())
    if len(dtypes) == 1 and dtypes.pop().is_numeric():
        table = frame.to_numpy()
        if table.dtype.kind in NUMERIC_DTYPES:
            return table
    return None


def kinds_and_values(table):
    """Pairs of kind and values of what was read."""
    if isinstance(table, list):
        return table
    return ((NUMBERS, np.ascontiguousarray(column)) for column in table.T)


def read_series(series):
    """Kind and values of a frame's column."""
    if series.dtype in (nw.Categorical, nw.Enum):
        return CATEGORIES, _labels(series.to_list())
    if series.dtype in WIDE_INTEGERS:
        series = series.cast(nw.Float64)
    kind, values = read_values(series.to_numpy())
    if kind == DATETIMES and getattr(series.dtype, "time_zone", None):
        kind = AWARE_DATETIMES
    return kind, values


def read_values(values):
    """Kind and values of an array; strings are objects with None where missing."""
    if values.ndim != 1:
        raise CellTypeError(UNSUPPORTED.format("list"))
    match values.dtype.kind:
        case "b" | "i" | "u" | "f":
            return NUMBERS, values
        case "M":
            return DATETIMES, values
        case "m" if np.datetime_data(values.dtype)[0] not in ("Y", "M", "generic"):
            return DURATIONS, values
        case "O" | "U" | "T":
            return _read_objects(values.astype(object, copy=False))
        case "c":
            raise InvalidColumnError(
                "holds complex numbers. Complex data not supported"
            )
    raise CellTypeError(UNSUPPORTED.format(values.dtype))


def _read_objects(values):
    for cell_type in set(map(type, values)):
        if _family(cell_type) is None:
            raise CellTypeError(UNSUPPORTED.format(cell_type.__name__))
    missing = missing_objects(values)
    present = values[~missing]
    kinds = {_family(cell_type) for cell_type in set(map(type, present))}
    if DATETIMES in kinds:
        times = filter(_is_time, present)
        kinds = kinds - {DATETIMES} | {_time_kind(value) for value in times}
    # Spreadsheets and CSV readers leave single cells of a column as text.
    if len(kinds) == 2 and STRINGS in kinds:
        kinds.remove(STRINGS)
        return _read_mixture(*kinds, values, missing)
    if len(kinds) > 1:
        raise InvalidColumnError(
            f"mixes {' and '.join(sorted(kinds))}; convert it to one of them"
        )
    kind = kinds.pop() if kinds else STRINGS
    if kind == STRINGS:
        return STRINGS, np.where(missing, None, values)
    return kind, _typed(kind, present, missing)


def _read_mixture(kind, values, missing):
    """Values of one kind of which some are text that can be read in one way only."""
    # Only forms that need no guess: a guess would come from the few cells that are
    # text.
    is_text = np.fromiter((isinstance(value, str) for value in values), bool)
    typed, n_unread = PLAIN[kind].read(np.where(is_text, values, None))
    if n_unread:
        raise InvalidColumnError(
            f"mixes {' and '.join(sorted([kind, STRINGS]))}; convert it to one of them"
        )
    others = ~(is_text | missing)
    typed[others] = _typed(kind, values[others], ~others)[others]
    return kind, typed


def _typed(kind, present, missing):
    """Array of a kind with these values where none is missing."""
    if kind == AWARE_DATETIMES:
        utc = [value.astimezone(UTC).replace(tzinfo=None) for value in present]
        present = np.array(utc, dtype=object)
    typed = np.full(len(missing), None).astype(OBJECT_DTYPES[kind])
    try:
        typed[~missing] = present.astype(typed.dtype)
    except OverflowError:
        raise InvalidColumnError(TOO_LARGE.format(typed.dtype)) from None
    return typed


def _family(cell_type):
    """Kind of the values of a Python type; None if it is not supported."""
    if cell_type.__name__ in MISSING_TYPES:
        return EMPTY
    for kind, types in FAMILIES.items():
        if issubclass(cell_type, types):
            return kind
    return None


def _is_time(value):
    return _family(type(value)) == DATETIMES


def _time_kind(time):
    aware = getattr(time, "tzinfo", None) is not None
    return AWARE_DATETIMES if aware else DATETIMES


def missing_objects(values):
    """Which cells of an array of objects are None, NaN, NaT or pandas' NA."""
    types = set(map(type, values))
    if types == {str}:
        return np.zeros(len(values), dtype=bool)
    absent = {cell_type for cell_type in types if cell_type.__name__ in MISSING_TYPES}
    flags = (type(value) in absent or value != value for value in values)
    return np.fromiter(flags, bool, len(values))


def all_missing(values):
    """Whether a column that was read holds no value."""
    if values.dtype.kind == "O":
        return all(value is None for value in values)
    if values.dtype.kind not in "fmM" or not np.isnan(values[:1]).all():
        return False  # as the first value shows without a look at the others
    return bool(np.isnan(values).all())


def _labels(values):
    """Names of categories of any type; None where missing."""
    labels = [
        None if missing else _label(value)
        for value, missing in zip(values, missing_objects(values), strict=True)
    ]
    return np.array(labels, dtype=object)


def _label(value):
    """Name of a category; whole numbers have the same one as int and as float."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)
