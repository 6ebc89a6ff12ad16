"""What the label owner brings: labels, targets and weights, read and checked.

Everything is looked at before a party is asked for anything, so that the label owner's
own mistakes have a message of their own. A message counts rows and names types; it
never quotes a label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Complex, Number, Real

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from sklearn.utils import column_or_1d, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from skvfl.partition._kinds import MISSING_TYPES

LARGEST_TARGET = 1e150  # the square of it, and a sum of such squares, is finite
WEIGHT_RANGE = 1e-30, 1e30  # what networks can add up in single precision
_TIMES = date, time, timedelta, np.datetime64, np.timedelta64


def read_column(values, name, *, ravel=True):
    """One-dimensional array of any list, array or series; and what is missing in it.

    Parameters
    ----------
    values : array-like
        Missing are None, NaN, NaT, pandas' NA, nulls, and what a mask covers.
    name : str
        Of the parameter, for the messages.
    ravel : bool, default=True
        Whether one column of a table will do, with a warning, as in scikit-learn.

    Returns
    -------
    values : ndarray of shape (n_samples,)
        Of data type object where that is how missing values are told apart.
    missing : ndarray of bool of shape (n_samples,)

    Raises
    ------
    TypeError
        If it is no list, array or series.
    ValueError
        If it has more than one dimension, or none.
    """
    # numpy's conversions drop the mask, and what lies under it would be learnt from.
    masked = None
    if isinstance(values, np.ma.MaskedArray):
        masked, values = np.ma.getmaskarray(values), np.ma.getdata(values)
    array = _as_array(values, name)
    if ravel and array.ndim == 2 and array.shape[1] == 1:
        array = column_or_1d(array, input_name=name, warn=True)
    if array.ndim != 1:
        raise ValueError(
            f"{name} should be a 1d array, got an array of shape {array.shape} instead."
        )
    missing = _missing(array, name)
    if masked is not None:
        missing = missing | masked.ravel()
    return array, missing


def _as_array(values, name):
    if sparse.issparse(values):
        raise TypeError(
            f"{name} is a sparse matrix; give a dense array, such as "
            f"{name}.toarray().ravel()"
        )
    series = nw.from_native(values, allow_series=True, pass_through=True)
    if isinstance(series, nw.LazyFrame):
        raise TypeError(f"{name} is a lazy frame; call its collect() first")
    if isinstance(series, nw.DataFrame):
        columns = [_of_series(series[each]) for each in series.columns]
        return np.column_stack(columns) if columns else np.empty(series.shape)
    if isinstance(series, nw.Series):
        return _of_series(series)
    listed = hasattr(values, "__len__") and not isinstance(
        values, str | bytes | Set | Mapping
    )
    # Sets have no order, so that their entries belong to no row; text and mappings have
    # a length, but their entries are letters and keys.
    if not listed and not hasattr(values, "__array__"):
        raise TypeError(
            f"{name} must be a list, an array or a series with one entry for each "
            f"row, got {type(values).__name__}"
        )
    if hasattr(values, "dtype") or hasattr(values, "__array__"):
        return np.asarray(values)
    # numpy would turn [1, "a"] into text, and None beside text into "None".
    array = np.asarray(values, dtype=object)
    if array.ndim == 1 and not all(isinstance(value, str) for value in array):
        return array
    return np.asarray(values)


def _of_series(series):
    if series.is_null().any():
        # The extra None keeps numpy from stacking cells that are lists into a matrix.
        return np.array([*series.to_list(), None], dtype=object)[:-1]
    return np.asarray(series.to_native())


def _missing(array, name):
    if array.dtype.kind in "fc":
        return np.isnan(array)
    if array.dtype.kind in "mM":
        return np.isnat(array)
    if array.dtype.kind != "O":
        return np.zeros(len(array), bool)
    return np.fromiter((_is_missing(value, name) for value in array), bool, len(array))


def _is_missing(value, name):
    if type(value).__name__ in MISSING_TYPES or value is np.ma.masked:
        return True
    try:
        # Only NaN and NaT differ from themselves; a type of its own need not be known.
        return bool(value != value)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} holds a {type(value).__name__} where one value is due"
        ) from None


def settle(array, name):
    """Array of numbers or of text from one without missing values.

    Raises
    ------
    ValueError
        If it holds anything else, or both.
    """
    if array.dtype.kind == "O":
        # Objects first: they may turn out to be numbers, which are checked below.
        array = _settle_objects(array, name)
    kind = array.dtype.kind
    if kind == "c":
        raise ValueError(
            f"{name} holds complex numbers: give real ones. Complex data not supported"
        )
    if kind in "mM":
        _refuse_times(name)
    if kind == "T":
        # scikit-learn's encoders do not take numpy's own variable-width text yet.
        return array.astype(object)
    if kind not in "biufUO":
        raise ValueError(
            f"{name} holds values of type {array.dtype.name}: give numbers or text"
        )
    if kind == "f" and not np.isfinite(array).all():
        n_infinite = np.count_nonzero(~np.isfinite(array))
        raise ValueError(
            f"{name} holds infinite values in {n_infinite} of {len(array)} rows"
        )
    return array


def _settle_objects(array, name):
    kinds = set(map(type, array))
    if all(issubclass(kind, str) for kind in kinds):
        return array
    if any(issubclass(kind, _TIMES) for kind in kinds):
        _refuse_times(name)
    if any(issubclass(kind, str) for kind in kinds):
        raise ValueError(
            f"{name} mixes text with {_names(kinds, str)}: convert it to one of them"
        )
    if all(issubclass(kind, Real | Decimal | np.bool_) for kind in kinds):
        # Whole numbers stay whole, because labels beyond 2**53 would run together as
        # floats. Of more than 64 bits, numpy keeps them as objects, which nobody can
        # learn.
        whole = all(issubclass(kind, int | np.integer) for kind in kinds)
        array = np.array(array.tolist() if whole else list(map(_plain, array)))
        if array.dtype.kind == "O":
            raise ValueError(f"{name} holds whole numbers of more than 64 bits")
        return array
    if all(issubclass(kind, Complex | Decimal | np.bool_) for kind in kinds):
        return array.astype(complex)
    raise ValueError(
        f"{name} holds values of type {_names(kinds, Number)}: give numbers or text"
    )


def _plain(value):
    return value if isinstance(value, bool | np.bool_) else float(value)


def _names(kinds, known):
    return ", ".join(sorted(k.__name__ for k in kinds if not issubclass(k, known)))


def _refuse_times(name):
    raise ValueError(
        f"{name} holds dates or durations: convert them to numbers, such as "
        f"({name} - {name}.min()) / pandas.Timedelta('1h')"
        + ", or to text for classes"
        * (name == "y")
    )


def refuse_missing(missing, name, what):
    """Refuse missing values, and say how many there are and what to do."""
    if missing.any():
        raise ValueError(
            f"{name} is missing (NaN, None, NaT or masked) in "
            f"{np.count_nonzero(missing)} of {len(missing)} rows: {what}"
        )


def read_labels(y):
    """Labels or targets of all rows, none of which may be missing."""
    y, missing = read_column(y, "y")
    refuse_missing(
        missing, "y", "leave these rows out; APC-VFL learns from rows without a label"
    )
    return settle(y, "y")


def as_classes(y):
    """Checked labels of a classification.

    Raises
    ------
    ValueError
        If they are no classes.
    """
    if not len(y):
        raise ValueError("y holds no label")
    try:
        check_classification_targets(y)
    except ValueError as exc:
        raise ValueError(f"y holds no classes. {exc}") from None
    return y


def as_targets(y):
    """Checked numbers of a regression, as float64.

    Raises
    ------
    ValueError
        If they are text, or too large to compute with.
    """
    if y.dtype.kind not in "biuf":
        raise ValueError(
            "y holds values that are not numbers, which a regressor needs: convert "
            "them, or take the classifier"
        )
    # In their own type small integers would overflow in abs and in squares.
    y = y.astype(np.float64)
    if not len(y):
        raise ValueError("y holds no target")
    if np.abs(y).max() > LARGEST_TARGET:
        raise ValueError(
            f"y holds numbers beyond {LARGEST_TARGET:g}, whose squares overflow: "
            "express it in a larger unit"
        )
    return y


def mean_and_scale(target):
    """Mean and standard deviation of a target.

    A constant one has scale 0, so that it is predicted as it is, whatever a model says.
    Dividing by a power of two first loses nothing, and keeps the squares of very small
    numbers from vanishing.
    """
    # A plain division by the largest would round every value.
    unit = 2.0 ** math.frexp(np.abs(target).max() or 1.0)[1]
    target = target / unit
    return target.mean() * unit, target.std() * unit


def standardised(target, mean, scale):
    """Column of a target for a model to learn; zeros for a constant one."""
    return ((target - mean) / (scale or 1.0))[:, None]


class Standard:
    """Units in which models learn a target: mean 0, standard deviation 1.

    Parameters
    ----------
    target : ndarray of shape (n_samples,), dtype float64
        All of it that is learnt from.
    """

    def __init__(self, target):
        self._mean, self._scale = mean_and_scale(target)

    @property
    def units(self):
        """Mean and scale, by which somebody else writes targets alike."""
        return {"mean": float(self._mean), "scale": float(self._scale)}

    @units.setter
    def units(self, units):
        self._mean, self._scale = units["mean"], units["scale"]

    def encode(self, target):
        """Column for a model to learn; zeros for a constant target."""
        return standardised(target, self._mean, self._scale)

    def decode(self, outputs):
        """Outputs of a model in the target's own units."""
        return outputs * self._scale + self._mean


def check_entries(n_entries, n_rows, name):
    """Refuse a parameter that does not have one entry for each row."""
    if n_entries != n_rows:
        raise ValueError(
            f"{name} has {n_entries} entries for the {n_rows} rows of X "
            "(inconsistent numbers of samples): give one for each row"
        )


def read_weights(sample_weight, n_rows):
    """Weights of rows as float64: finite, not negative, and not all zero.

    Raises
    ------
    ValueError
        If they are not; the message says in how many rows.
    """
    name = "sample_weight"
    if isinstance(sample_weight, Number):
        sample_weight = np.full(n_rows, sample_weight)
    weights, missing = read_column(sample_weight, name, ravel=False)
    # Before the cells are looked at: counts of missing cells mean nothing for a
    # parameter that belongs to other rows.
    check_entries(len(weights), n_rows, name)
    refuse_missing(missing, name, "a row that shall not count has weight 0")
    weights = settle(weights, name)
    if weights.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds values that are not numbers")
    weights = weights.astype(np.float64)
    if (weights < 0).any():
        raise ValueError(
            f"{name} is negative in {np.count_nonzero(weights < 0)} of {n_rows} rows: "
            "weights are 0 or more (Negative values in data)"
        )
    check_total(weights, name)
    return weights


def check_total(weights, name):
    """Refuse weights of rows that leave nothing to learn from, or overflow."""
    largest = weights.max(initial=0)
    if not largest:
        raise ValueError(
            f"{name}: the weight of every row is zero, so that there is nothing to "
            "learn from; give some row a weight above zero"
        )
    if not WEIGHT_RANGE[0] <= largest <= WEIGHT_RANGE[1]:
        raise ValueError(
            f"{name}: the largest weight of a row is not between {WEIGHT_RANGE[0]:g} "
            f"and {WEIGHT_RANGE[1]:g}; divide the weights by their mean"
        )


def weights_of_classes(class_weight, classes, codes):
    """Weights of rows by their class, as scikit-learn gives them.

    Parameters
    ----------
    class_weight : dict or "balanced"
        As in scikit-learn; a class that is not named has weight 1.
    classes : ndarray of shape (n_classes,)
        Labels.
    codes : ndarray of shape (n_samples,), dtype int64
        Position of each row's label among the classes.

    Returns
    -------
    weights : ndarray of shape (n_samples,), dtype float64

    Raises
    ------
    ValueError
        If a weight is not a number, not finite or negative, or if a label is not one
        of the classes while a class has no weight.
    """
    if isinstance(class_weight, dict):
        for weight in class_weight.values():
            if not isinstance(weight, Real | np.bool_):
                raise ValueError(
                    f"class_weight holds a weight of type {type(weight).__name__}: "
                    "give numbers"
                )
            if not 0 <= weight < math.inf:
                raise ValueError(
                    "class_weight holds a weight that is negative, missing or "
                    "infinite: give finite numbers of at least 0"
                )
        known = classes.tolist()
        unknown = sum(label not in known for label in class_weight)
        # A dictionary for several tasks may name more labels than y holds. But if
        # classes go without a weight at the same time, the labels are most likely of
        # another type ("1" for 1). scikit-learn refuses them too, and quotes labels.
        if unknown and len(class_weight) - unknown < len(known):
            raise ValueError(
                f"class_weight names {unknown} labels that y does not hold, and has "
                f"no weight for {len(known) - len(class_weight) + unknown} of its "
                f"{len(known)} classes: write labels as in y, and of their type"
            )
    return compute_sample_weight(class_weight, classes[codes])


def drawn_classes(codes, n_classes, epsilon, rng):
    """Classes of which each is drawn within a budget of differential privacy.

    A class is told truly with probability ``exp(epsilon) / (exp(epsilon) + n - 1)``,
    and is else one of the others (randomised response), so that no class is more than
    ``exp(epsilon)`` times as likely to give what is drawn as any other.

    Parameters
    ----------
    codes : ndarray of int of shape (n_rows,)
        Positions of the classes.
    n_classes : int
    epsilon : float
        The budget.
    rng : Generator

    Returns
    -------
    drawn : ndarray of int of shape (n_rows,)
    """
    # Of one class there is no other.
    if n_classes < 2:
        return codes
    probability = (n_classes - 1) * lie_probability(n_classes, epsilon)
    lies = rng.random(len(codes)) < probability
    steps = rng.integers(1, n_classes, len(codes))
    return np.where(lies, (codes + steps) % n_classes, codes)


def lie_probability(n_classes, epsilon):
    """How likely :func:`drawn_classes` gives one certain wrong class."""
    # So written, a large budget does not overflow.
    return 1 / (n_classes - 1 + math.exp(min(epsilon, 700)))
