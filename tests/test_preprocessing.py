import pickle
import subprocess
import sys
import time
import tracemalloc
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skvfl.exceptions import InvalidColumnError
from skvfl.partition._preprocessing import PartyPreprocessor

NAN = np.nan
BERLIN = timezone(timedelta(hours=2))
TIMES = [datetime(2020, 1, 1), datetime(2020, 1, 3), None, datetime(2020, 1, 8)]
DAYS = np.array([0.0, 2.0, 2.0, 7.0])  # with the missing one at the median
STANDARD_DAYS = (DAYS - DAYS.mean()) / DAYS.std()


@parametrize_with_checks(
    [
        PartyPreprocessor(),
        PartyPreprocessor(max_categories=3, dtype="float64"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def fit_transform(X, **params):
    return PartyPreprocessor(**{"dtype": "float64", **params}).fit_transform(X)


def column(values, dtype=object):
    """A table of one column; no value is taken for a row of values."""
    table = np.empty((len(values), 1), dtype=dtype)
    table[:, 0] = values
    return table


def standardise(X):
    pipeline = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    return pipeline.fit_transform(X)


# Numbers


def test_numbers_are_imputed_by_the_median_and_standardised():
    X = np.array([[1.0], [NAN], [2.0], [9.0]])
    filled = np.array([1.0, 2.0, 2.0, 9.0])
    expected = (filled - 3.5) / filled.std()
    assert_allclose(fit_transform(X)[:, 0], expected, rtol=1e-14)


def test_missing_value_seen_only_later_takes_the_median_of_fit():
    preprocessor = PartyPreprocessor(dtype="float64").fit([[1.0], [2.0], [4.0], [9.0]])
    assert_allclose(
        preprocessor.transform([[NAN]]), preprocessor.transform([[3.0]]), rtol=1e-14
    )


@settings(deadline=None)
@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=12),
        elements=st.integers(-50, 50).map(float) | st.just(NAN),
    )
)
def test_numbers_agree_with_scikit_learn(X):
    X[0] = 0.0
    assert_allclose(fit_transform(X), standardise(X), rtol=1e-10, atol=1e-12)


@settings(deadline=None)
@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=8),
        elements=st.floats(allow_nan=True, allow_infinity=True),
    )
)
@pytest.mark.filterwarnings("ignore:.*has no value at all")
def test_output_is_finite_or_the_column_is_refused(X):
    try:
        out = PartyPreprocessor().fit_transform(X)
    except InvalidColumnError:
        assert np.abs(X[np.isfinite(X)]).max(initial=0) > 1e30 or np.isinf(X).any()
    else:
        assert np.isfinite(out).all()
        assert not np.isinf(X).any()


@pytest.mark.parametrize(
    "convert",
    [
        lambda X: X.astype(int),
        lambda X: X.astype("uint8"),
        lambda X: X.astype("float32"),
        lambda X: X.astype("float16"),
        lambda X: X.astype(object),
        np.asfortranarray,
        lambda X: X.tolist(),
        lambda X: pd.DataFrame(X),
        lambda X: pd.DataFrame(X).astype("Int64"),
        lambda X: pd.DataFrame(X).astype({0: "Float64", 1: "Int8"}),
        lambda X: pd.DataFrame(X).astype("float64[pyarrow]"),
        lambda X: pd.DataFrame(X).astype(object),
        lambda X: pd.DataFrame(X).astype({0: pd.SparseDtype("float64")}),
        lambda X: pd.DataFrame(X).map(lambda x: Decimal(int(x))),
        lambda X: pd.DataFrame(X).map(Fraction),
        lambda X: pl.DataFrame(X, schema=["a", "b"]),
        lambda X: pl.DataFrame(X, schema=["a", "b"]).cast({"a": pl.Int16}),
        lambda X: pl.DataFrame(X, schema=["a", "b"]).cast(pl.Decimal(8, 2)),
        lambda X: pl.DataFrame(X, schema=["a", "b"]).to_arrow(),
    ],
)
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_same_numbers_of_any_type_give_the_same_output(convert):
    X = np.array([[3.0, 1], [7, 0], [4, 0], [200, 1], [3, 1]])
    fitted = PartyPreprocessor(dtype="float64").fit(X)
    expected = fitted.transform(X)
    assert_array_equal(fit_transform(convert(X)), expected)
    assert_array_equal(fitted.transform(convert(X)), expected)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": pd.array([1, None, 5, 6], dtype="Int64")}),
        pd.DataFrame({"a": pd.array([1.0, NAN, 5, 6], dtype="Float64")}),
        pd.DataFrame({"a": pd.array([1, None, 5, 6], dtype="int8[pyarrow]")}),
        pd.DataFrame({"a": pd.Series([1, pd.NA, 5.0, Decimal(6)], dtype=object)}),
        pd.DataFrame({"a": [Decimal(1), Decimal("NaN"), Decimal(5), Decimal(6)]}),
        pl.DataFrame({"a": [1, None, 5, 6]}),
        pl.DataFrame({"a": [1.0, NAN, 5.0, 6.0]}),
        pl.DataFrame({"a": [Decimal(1), None, Decimal(5), Decimal(6)]}),
        pa.table({"a": [1, None, 5, 6]}),
        [[1], [None], [5], [6]],
    ],
)
def test_missing_numbers_of_any_type(frame):
    expected = standardise(np.array([[1.0], [NAN], [5], [6]]))
    assert_allclose(fit_transform(frame), expected, rtol=1e-14)


@pytest.mark.parametrize(
    "table",
    [
        np.array([[True], [False], [False], [True]]),
        column([True, False, False, np.True_]),
        pd.DataFrame({"a": [True, False, False, True]}),
        pd.DataFrame({"a": pd.array([True, False, False, True], dtype="boolean")}),
        pd.DataFrame({"a": [True, False, False, True]}, dtype="bool[pyarrow]"),
        pl.DataFrame({"a": [True, False, False, True]}),
    ],
)
def test_booleans_are_numbers(table):
    preprocessor = PartyPreprocessor().fit(table)
    assert preprocessor.kinds_ == ["numbers"]
    assert_array_equal(preprocessor.transform(table)[:, 0], [1, -1, -1, 1])


@pytest.mark.parametrize(
    "table",
    [
        column([True, False, None, True]),
        pd.DataFrame({"a": pd.array([True, False, None, True], dtype="boolean")}),
        pd.DataFrame({"a": [True, False, None, True]}, dtype="bool[pyarrow]"),
        pl.DataFrame({"a": [True, False, None, True]}),
    ],
)
def test_missing_booleans_take_the_median(table):
    expected = standardise(np.array([[1.0], [0], [NAN], [1]]))
    assert_allclose(fit_transform(table), expected, rtol=1e-14)


def test_constant_column_is_zero_and_finite_later():
    X = np.array([[0.1, 7], [0.1, NAN], [0.1, 7]])
    preprocessor = PartyPreprocessor()
    assert_array_equal(preprocessor.fit_transform(X), np.zeros((3, 2)))
    assert_array_equal(preprocessor.transform([[0.1, 8]]), [[0, 1]])


def test_column_that_varies_by_rounding_only_is_not_blown_up():
    X = np.array([[0.1 + 0.2], [0.3], [0.3], [0.1 + 0.2]])
    assert X[0] != X[1]
    assert np.abs(fit_transform(X)).max() < 1e-15


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shift", [0, 2**20])
def test_small_spread_around_a_large_value_is_kept(dtype, shift):
    X = (np.arange(8, dtype=dtype) / 8 + shift)[:, None]
    assert_allclose(fit_transform(X), standardise(np.arange(8.0)[:, None]), rtol=1e-14)


def test_statistics_are_those_of_exact_arithmetic():
    rng = np.random.default_rng(0)
    X = (rng.random((5000, 3)) < [0.001, 0.5, 0.9]) * 1e9 + 1e9 + rng.random((5000, 3))
    exact = X.astype(np.longdouble)
    exact = (exact - exact.mean(axis=0)) / exact.std(axis=0)
    assert_allclose(fit_transform(X), exact.astype(float), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("unit", [1e-200, 1e-30, 1e30, 1e200])
def test_extreme_units_do_not_matter(unit):
    X = np.array([[1.0], [2.0], [4.0]])
    assert_allclose(fit_transform(X * unit), fit_transform(X), rtol=1e-12)


def test_arithmetic_is_in_float64_whatever_the_output():
    X = (2.0**24 + np.arange(6))[:, None]
    expected = fit_transform(X).astype("float32")
    out = PartyPreprocessor().fit_transform(X)
    assert out.dtype == np.float32
    assert_array_equal(out, expected)


# Infinite and too large values


INFINITE_TABLES = [
    lambda x: np.array([[0.0, x], [1.0, 2.0]]),
    lambda x: np.array([[0.0, x], [1.0, 2.0]], dtype="float32"),
    lambda x: np.array([["a", x], ["b", 2.0]], dtype=object),
    lambda x: pd.DataFrame({"a": ["a", "b"], "x1": [x, 2.0]}),
    lambda x: pd.DataFrame({"a": [1.0, 2.0], "x1": pd.array([x, 2.0], "Float64")}),
    lambda x: pl.DataFrame({"a": ["a", "b"], "x1": [x, 2.0]}),
    lambda x: sparse.csr_array([[0.0, x], [1.0, 2.0]]),
    lambda x: sparse.csc_matrix([[0.0, x], [1.0, 2.0]]),
]


@pytest.mark.parametrize("make", INFINITE_TABLES)
@pytest.mark.parametrize("sign", [1, -1])
def test_infinite_values_are_refused(make, sign):
    message = (
        r"column 'x1' \(position 1\) holds infinite values \(inf\); replace them by "
        "missing values or clip them on purpose before fitting"
    )
    with pytest.raises(InvalidColumnError, match=message):
        PartyPreprocessor().fit(make(sign * np.inf))
    fitted = PartyPreprocessor().fit(make(1.0))
    with pytest.raises(InvalidColumnError, match=message):
        fitted.transform(make(sign * np.inf))


def test_infinite_value_is_found_beside_missing_ones_in_a_long_table():
    X = np.random.default_rng(0).standard_normal((50_000, 5))
    fitted = PartyPreprocessor().fit(X)
    X[5:, 1] = NAN
    X[-1, 3] = np.inf
    for method in (fitted.transform, PartyPreprocessor().fit):
        with pytest.raises(InvalidColumnError, match=r"'x3' \(position 3\)"):
            method(X)


def test_overflow_of_float32_is_refused():
    X = np.array([[1.0, 1.0], [2.0, 1.0]])
    for container in (np.asarray, sparse.csr_array):
        fitted = PartyPreprocessor().fit(container(X))
        later = container([[1.0, 1e60]])
        with pytest.raises(InvalidColumnError, match=r"'x1' .* too large for float32"):
            fitted.transform(later)
        wide = PartyPreprocessor(dtype="float64").fit(container(X))
        assert np.isfinite(wide.transform(later).sum())


@pytest.mark.parametrize(
    "table",
    [
        np.array([[1.7e308], [-1.7e308]]),
        sparse.csr_array([[1.7e308], [-1.7e308]]),
        column([10**400, 1]),
    ],
)
def test_values_beyond_float64_are_refused(table):
    with pytest.raises(InvalidColumnError, match=r"'x0' .* too large for float64"):
        PartyPreprocessor().fit(table)


# Strings and categories


JOBS = ["clerk", "nurse", None, "clerk"]
ENCODED_JOBS = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"job": JOBS}),
        pd.DataFrame({"job": JOBS}, dtype=object),
        pd.DataFrame({"job": ["clerk", "nurse", NAN, "clerk"]}, dtype=object),
        pd.DataFrame({"job": ["clerk", "nurse", pd.NA, "clerk"]}, dtype=object),
        pd.DataFrame({"job": ["clerk", "nurse", pd.NaT, "clerk"]}, dtype=object),
        pd.DataFrame({"job": JOBS}, dtype="category"),
        pd.DataFrame({"job": JOBS}, dtype="string[python]"),
        pd.DataFrame({"job": JOBS}, dtype=pd.ArrowDtype(pa.string())),
        pd.DataFrame({"job": JOBS}, dtype="str").astype(
            pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
        ),
        pl.DataFrame({"job": JOBS}),
        pl.DataFrame({"job": JOBS}, schema={"job": pl.Categorical}),
        pl.DataFrame({"job": JOBS}, schema={"job": pl.Enum(["nurse", "clerk"])}),
        pa.table({"job": JOBS}),
        pa.table({"job": pa.array(JOBS).dictionary_encode()}),
        pl.DataFrame({"job": JOBS}, schema={"job": pl.Categorical}).to_arrow(),
    ],
)
def test_strings_of_any_type_are_one_hot_with_missing_as_a_category(table):
    preprocessor = PartyPreprocessor().fit(table)
    assert preprocessor.kinds_ == ["strings"]
    names = preprocessor.get_feature_names_out()
    assert_array_equal(names, ["job_clerk", "job_nurse", "job_nan"])
    assert_array_equal(preprocessor.transform(table), ENCODED_JOBS)
    reference = PartyPreprocessor().fit(pd.DataFrame({"job": JOBS}))
    assert_array_equal(reference.transform(table), ENCODED_JOBS)


@pytest.mark.parametrize(
    "X",
    [
        np.array([["b"], ["a"], ["b"]]),
        np.array([["b"], ["a"], ["b"]], dtype=np.dtypes.StringDType()),
        np.array([["b"], ["a"], ["b"]], dtype=object),
        [["b"], ["a"], ["b"]],
    ],
)
def test_string_arrays(X):
    assert_array_equal(fit_transform(X), [[0, 1], [1, 0], [0, 1]])


def test_list_of_mixed_rows_keeps_its_numbers():
    X = [[1, "a"], [3, "b"]]
    preprocessor = PartyPreprocessor().fit(X)
    assert preprocessor.kinds_ == ["numbers", "strings"]
    assert_array_equal(preprocessor.transform(X), [[-1, 1, 0], [1, 0, 1]])


def test_output_columns_follow_the_input_columns():
    X = pd.DataFrame({"a": [1, 3], "b": ["u", "v"], "c": [True, False]})
    preprocessor = PartyPreprocessor().fit(X)
    names = preprocessor.get_feature_names_out()
    assert_array_equal(names, ["a", "b_u", "b_v", "c"])
    assert_array_equal(preprocessor.transform(X), [[-1, 1, 0, 1], [1, 0, 1, -1]])


@pytest.mark.parametrize("max_categories", [2, 3, 50])
@settings(deadline=None)
@given(
    seen=st.lists(st.sampled_from([*"abcdefg", None]), min_size=1, max_size=30),
    later=st.lists(st.sampled_from([*"abcdefghi", None]), min_size=1),
)
@pytest.mark.filterwarnings("ignore::skvfl.exceptions.ColumnWarning")
def test_categories_agree_with_one_hot_encoder(max_categories, seen, later):
    seen.append("a")
    X, later = column(seen), column(later)
    encoder = OneHotEncoder(
        max_categories=max_categories,
        handle_unknown="infrequent_if_exist",
        sparse_output=False,
    )
    ours = PartyPreprocessor(max_categories=max_categories)
    as_nan = [np.where(table == None, NAN, table) for table in (X, later)]  # noqa: E711
    assert_array_equal(ours.fit_transform(X), encoder.fit_transform(as_nan[0]))
    assert_array_equal(ours.transform(later), encoder.transform(as_nan[1]))
    assert_array_equal(ours.get_feature_names_out(), encoder.get_feature_names_out())


def test_unseen_category_goes_to_the_bucket_or_to_zeros():
    X = pd.DataFrame({"few": [*"aabb"], "many": [*"abcc"]})
    preprocessor = PartyPreprocessor(max_categories=3).fit(X)
    later = pd.DataFrame({"few": ["new", None], "many": ["new", None]})
    assert_array_equal(
        preprocessor.get_feature_names_out(),
        ["few_a", "few_b", "many_b", "many_c", "many_infrequent_sklearn"],
    )
    assert_array_equal(preprocessor.transform(later), [[0, 0, 0, 0, 1]] * 2)


@pytest.mark.filterwarnings("ignore:.*looks like an identifier")
def test_at_most_max_categories_columns():
    X = column([f"id{i}" for i in range(500)])
    assert fit_transform(X).shape == (500, 100)


@pytest.mark.parametrize(
    "labels",
    [
        pd.Categorical([1, 2, None, 1]),
        pd.Categorical([True, False, None, True]),
        pd.cut(np.array([1.0, 5.0, NAN, 2.0]), bins=[0, 3, 6]),
        pd.Categorical([date(2020, 1, 1), date(2020, 1, 2), None, date(2020, 1, 1)]),
    ],
)
def test_categories_need_not_be_strings(labels):
    X = pd.DataFrame({"a": labels})
    assert sorted(fit_transform(X).sum(axis=0)) == [1, 1, 2]
    assert PartyPreprocessor().fit(X).kinds_ == ["strings"]


def test_whole_number_categories_match_as_int_and_float():
    whole = pd.DataFrame({"a": pd.Categorical([1, 2, 1])})
    floats = pd.DataFrame({"a": pd.Categorical([1.0, 2.0, 1.0])})
    fitted = PartyPreprocessor().fit(whole)
    assert_array_equal(fitted.transform(floats), [[1, 0], [0, 1], [1, 0]])


@pytest.mark.parametrize(
    "values", [[1, "a"], [1.5, None, "a"], [True, "a"], [date(2020, 1, 1), "a"]]
)
def test_mixed_column_is_refused(values):
    X = pd.DataFrame({"x": range(len(values)), "y": pd.Series(values, dtype=object)})
    message = r"column 'y' \(position 1\) mixes (datetimes|numbers) and strings"
    with pytest.raises(InvalidColumnError, match=message):
        PartyPreprocessor().fit(X)


# Times


AWARE = [None if t is None else t.replace(tzinfo=UTC) for t in TIMES]
NAIVE_TABLES = [
    pd.DataFrame({"t": pd.to_datetime(TIMES)}),
    pd.DataFrame({"t": pd.to_datetime(TIMES).as_unit("ns")}),
    pd.DataFrame({"t": pd.Series(TIMES, dtype=object)}),
    pd.DataFrame({"t": pd.Series(pd.to_datetime(TIMES), dtype=object)}),
    pd.DataFrame({"t": TIMES}, dtype=pd.ArrowDtype(pa.timestamp("ms"))),
    pd.DataFrame({"t": TIMES}, dtype=pd.ArrowDtype(pa.date32())),
    pl.DataFrame({"t": TIMES}),
    pl.DataFrame({"t": TIMES}).cast(pl.Date),
    pl.DataFrame({"t": TIMES}).cast(pl.Datetime("ns")),
    pa.table({"t": TIMES}),
    np.array(TIMES, dtype="M8[us]")[:, None],
    np.array(TIMES, dtype="M8[D]")[:, None],
    column(TIMES),
    column([None if t is None else t.date() for t in TIMES]),
    column(np.array(TIMES, dtype="M8[s]")),
]
AWARE_TABLES = [
    pd.DataFrame({"t": pd.to_datetime(AWARE)}),
    pd.DataFrame({"t": pd.to_datetime(AWARE).tz_convert("Asia/Tokyo")}),
    pd.DataFrame({"t": pd.Series(AWARE, dtype=object)}),
    pd.DataFrame({"t": AWARE}, dtype=pd.ArrowDtype(pa.timestamp("us", "UTC"))),
    pl.DataFrame({"t": AWARE}, schema={"t": pl.Datetime("us", "Asia/Tokyo")}),
    pa.table({"t": pa.array(AWARE, pa.timestamp("us", "Asia/Tokyo"))}),
    column([None if t is None else t.astimezone(BERLIN) for t in AWARE]),
]
DURATIONS = [None if t is None else t - TIMES[0] for t in TIMES]
DURATION_TABLES = [
    pd.DataFrame({"t": pd.to_timedelta(DURATIONS)}),
    pd.DataFrame({"t": pd.Series(DURATIONS, dtype=object)}),
    pd.DataFrame({"t": DURATIONS}, dtype=pd.ArrowDtype(pa.duration("s"))),
    pl.DataFrame({"t": DURATIONS}),
    np.array(DURATIONS, dtype="m8[h]")[:, None],
    column(DURATIONS),
    column(np.array(DURATIONS, dtype="m8[h]")),
]


@pytest.mark.parametrize(
    ("table", "kind"),
    [(table, "datetimes") for table in NAIVE_TABLES]
    + [(table, "datetimes with time zone") for table in AWARE_TABLES]
    + [(table, "durations") for table in DURATION_TABLES],
)
def test_times_of_any_type(table, kind):
    preprocessor = PartyPreprocessor(dtype="float64").fit(table)
    assert preprocessor.kinds_ == [kind]
    assert_allclose(preprocessor.transform(table)[:, 0], STANDARD_DAYS, rtol=1e-14)


@pytest.mark.parametrize("tables", [NAIVE_TABLES, AWARE_TABLES, DURATION_TABLES])
@pytest.mark.filterwarnings("ignore:X (does not have valid|has) feature names")
def test_times_of_one_kind_can_replace_each_other(tables):
    fitted = PartyPreprocessor().fit(tables[0])
    expected = fitted.transform(tables[0])
    for table in tables[1:]:
        assert_array_equal(fitted.transform(table), expected)


def test_local_times_count_as_instants():
    X = pd.DataFrame(
        {"t": pd.date_range("2020-03-29", periods=6, freq="h", tz="Europe/Berlin")}
    )
    assert X["t"].dt.hour.tolist() == [0, 1, 3, 4, 5, 6]
    assert_allclose(fit_transform(X), standardise(np.arange(6.0)[:, None]), rtol=1e-14)


@pytest.mark.parametrize("start", ["2024-05-17T08:30:00", "1901-01-01", "2200-12-31"])
def test_nanoseconds_within_a_millisecond_are_kept(start):
    steps = np.array([0, 1, 2, 999_999])
    X = (np.datetime64(start, "ns") + steps)[:, None]
    assert_allclose(fit_transform(X)[:, 0], standardise(steps[:, None])[:, 0])


def test_dates_of_all_ages():
    years = np.array([1, 1500, 2020, 9999])
    X = np.array([f"{year:04}-01-01" for year in years], dtype="M8[D]")[:, None]
    days = X.astype(np.int64).astype(float)
    assert_allclose(fit_transform(X), standardise(days), rtol=1e-12)


def test_mixed_time_zones_and_none_are_refused():
    naive = datetime(2020, 1, 1)
    with pytest.raises(InvalidColumnError, match=r"'x0' .* mixes datetimes and"):
        PartyPreprocessor().fit(column([naive, naive.replace(tzinfo=UTC)]))


# Unsupported columns


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (pd.Series([["secret"], ["b"]]), "list"),
        (pd.Series([{"secret": 1}, {}]), "dict"),
        (pd.Series([b"secret", b"b"]), "bytes"),
        (pd.Series([1j, 2j]), "Complex data not supported"),
        (pd.Series([1j, 2j], dtype=object), "complex"),
        (pd.Series(pd.period_range("2020-01", periods=2, freq="M")), "Period"),
        (
            pd.Series([["secret"], ["b"]], dtype=pd.ArrowDtype(pa.list_(pa.string()))),
            "",
        ),
        (np.array([1, 2], dtype="m8[M]"), "timedelta64"),
        (pl.Series([["secret"], ["b"]]), "list|array"),
        (pl.Series([{"secret": 1}, {"secret": 2}]), ""),
        (pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2)), "list"),
        (pl.Series([datetime(2020, 1, 1).time()] * 2), "time"),
        (pl.Series([b"secret", b"b"]), "bytes"),
    ],
)
def test_unsupported_columns_are_refused_by_name_and_type(values, word):
    if isinstance(values, pl.Series):
        X = pl.DataFrame({"a": ["u", "v"], "y": values})
    elif isinstance(values, pd.Series):
        X = pd.DataFrame({"a": ["u", "v"], "y": values})
    else:
        X = np.column_stack([values, values])
    name = r"column ('y' \(position 1\)|'x0' \(position 0\)) .*"
    with pytest.raises(InvalidColumnError, match=name + f"({word})") as info:
        PartyPreprocessor().fit(X)
    assert "secret" not in str(info.value)


def test_complex_array_is_refused():
    with pytest.raises(ValueError, match="Complex data not supported"):
        PartyPreprocessor().fit(np.array([[1j], [2j]]))


def test_unsupported_cell_is_also_a_type_error():
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        PartyPreprocessor().fit(column([{"a": 1}, 2]))


@pytest.mark.parametrize("shape", [(0, 2), (2, 0)])
@pytest.mark.parametrize("container", [np.asarray, pd.DataFrame, pl.DataFrame])
def test_empty_table_is_refused(shape, container):
    with pytest.raises(ValueError, match=r"0 (sample|feature)\(s\)"):
        PartyPreprocessor().fit(container(np.empty(shape)))


# Columns without any value


EMPTY_TABLES = [
    np.array([[1.0, NAN], [2.0, NAN]]),
    np.array([[1, None], [2, None]], dtype=object),
    np.array([["a", None], ["b", NAN]], dtype=object),
    np.array([["2020", "NaT"], ["2021", "NaT"]], dtype="M8[D]"),
    pd.DataFrame({"a": [1, 2], "x1": pd.array([None, None], dtype="Int64")}),
    pd.DataFrame({"a": [1, 2], "x1": pd.Series([None, None], dtype="str")}),
    pd.DataFrame({"a": [1, 2], "x1": pd.Categorical([None, None])}),
    pd.DataFrame({"a": [1, 2], "x1": pd.to_datetime([None, None])}),
    pl.DataFrame({"a": [1, 2], "x1": [None, None]}),
    pl.DataFrame({"a": [1, 2], "x1": [None, None]}, schema_overrides={"x1": pl.String}),
    sparse.csr_array([[1.0, NAN], [2.0, NAN]]),
]


@pytest.mark.parametrize("X", EMPTY_TABLES)
def test_column_without_any_value_warns_and_becomes_zero(X):
    message = r"column 'x1' \(position 1\) has no value at all: it becomes a constant 0"
    preprocessor = PartyPreprocessor()
    with pytest.warns(UserWarning, match=message) as record:
        preprocessor.fit(X)
    assert record[0].filename == __file__
    assert len(record) == 1
    assert preprocessor.kinds_[1] == "no values"
    out = preprocessor.transform(X)
    out = out.toarray() if sparse.issparse(out) else out
    assert_array_equal(out[:, -1], [0, 0])
    assert len(preprocessor.get_feature_names_out()) == out.shape[1]


@pytest.mark.parametrize(
    "later",
    [
        np.array([[1.0, 5.0], [2.0, NAN]]),
        np.array([[1, "a"], [2, None]], dtype=object),
        np.array([[1, datetime(2020, 1, 1)], [2, None]], dtype=object),
    ],
)
def test_column_without_any_value_stays_zero_whatever_comes(later):
    with pytest.warns(UserWarning, match="x1"):
        fitted = PartyPreprocessor().fit(EMPTY_TABLES[0])
    assert_array_equal(fitted.transform(later), [[-1, 0], [1, 0]])


@pytest.mark.parametrize("dtype", [float, object])
def test_infinite_value_in_a_column_without_any_value_is_refused(dtype):
    with pytest.warns(UserWarning, match="x1"):
        fitted = PartyPreprocessor().fit(EMPTY_TABLES[0])
    with pytest.raises(InvalidColumnError, match=r"'x1' .* infinite"):
        fitted.transform(np.array([[1.0, np.inf]], dtype=dtype))


def test_sparse_column_without_any_value_stays_zero():
    with pytest.warns(UserWarning, match="x1"):
        fitted = PartyPreprocessor().fit(EMPTY_TABLES[-1])
    later = fitted.transform(sparse.csr_array([[0.0, 5.0]]))
    assert_array_equal(later.toarray(), [[0, 0]])


@pytest.mark.parametrize(
    "empty",
    [np.full((2, 3), NAN), np.full((2, 3), None), np.full((2, 3), "NaT", "M8[s]")],
)
def test_column_of_any_kind_may_come_without_values(empty):
    X = np.array(
        [[1.0, "a", TIMES[0]], [3.0, "b", TIMES[1]], [2.0, None, TIMES[1]]],
        dtype=object,
    )
    fitted = PartyPreprocessor().fit(X)
    missing = fitted.transform(np.array([[None, None, None]], dtype=object))
    assert_array_equal(fitted.transform(empty), np.repeat(missing, 2, axis=0))
    assert_array_equal(missing[0, 1:4], [0, 0, 1])


# Changes between fit and transform


KINDS = {
    "numbers": [1.0, 2.0],
    "strings": ["secret", "b"],
    "datetimes": TIMES[:2],
    "datetimes with time zone": AWARE[:2],
    "durations": DURATIONS[:2],
}


@pytest.mark.parametrize("then", KINDS)
@pytest.mark.parametrize("now", KINDS)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_changed_kind_is_refused(then, now, frame):
    fitted = PartyPreprocessor().fit(frame({"a": [*"uv"], "y": KINDS[then]}))
    later = frame({"a": [*"uv"], "y": KINDS[now]})
    if then == now:
        assert np.isfinite(fitted.transform(later)).all()
        return
    message = rf"column 'y' \(position 1\) held {then} in fit and holds {now} now"
    with pytest.raises(InvalidColumnError, match=message) as info:
        fitted.transform(later)
    assert "secret" not in str(info.value)


@pytest.mark.parametrize("kind", ["strings", "datetimes", "durations"])
def test_array_of_numbers_for_another_kind_is_refused(kind):
    fitted = PartyPreprocessor().fit(column(KINDS[kind]))
    with pytest.raises(InvalidColumnError, match=rf"'x0' \(position 0\) held {kind}"):
        fitted.transform(np.array([[0.0]]))


def test_wrong_number_or_order_of_columns_is_refused():
    X = pd.DataFrame({"a": [1, 2], "b": [3, 4]})
    fitted = PartyPreprocessor().fit(X)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.transform(X[["b", "a"]])
    with pytest.raises(ValueError, match="2 features as input"):
        PartyPreprocessor().fit(X.to_numpy()).transform(np.ones((2, 3)))


def test_unfitted():
    for method in ("transform", "get_feature_names_out"):
        with pytest.raises(NotFittedError):
            getattr(PartyPreprocessor(), method)([[1.0]])


def test_failed_fit_leaves_an_unfitted_transformer():
    preprocessor = PartyPreprocessor()
    with pytest.raises(InvalidColumnError):
        preprocessor.fit([[np.inf]])
    with pytest.raises(NotFittedError):
        preprocessor.transform([[1.0]])


@pytest.mark.parametrize(
    "params", [{"max_categories": 1}, {"max_categories": None}, {"dtype": "int64"}]
)
def test_invalid_parameters(params):
    for method in ("fit", "fit_transform"):
        with pytest.raises(ValueError, match=next(iter(params))):
            getattr(PartyPreprocessor(**params), method)([[1.0]])


# Sparse input


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_matrix])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
def test_sparse_input_is_scaled_and_stays_sparse(make, dtype):
    dense = np.array([[0, 1], [2, 0], [0, 0], [5, 0]], dtype=dtype)
    X = make(dense)
    out = PartyPreprocessor().fit_transform(X)
    assert out.format == X.format
    assert type(out) is type(X)
    assert out.dtype == np.float32
    assert out.nnz == X.nnz
    expected = dense / dense.astype(float).std(axis=0)
    assert_allclose(out.toarray(), expected, rtol=1e-6)
    assert_array_equal(X.toarray(), dense)


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_array])
def test_stored_missing_values_are_imputed(make):
    dense = np.array([[0, 1.0], [2, NAN], [4, 3], [NAN, 3]])
    X = make(dense)
    expected = SimpleImputer(strategy="median").fit_transform(dense)
    expected /= expected.std(axis=0)
    assert_allclose(fit_transform(X).toarray(), expected, rtol=1e-14)


def test_missing_value_seen_only_later_in_sparse_input():
    fitted = PartyPreprocessor().fit(sparse.csr_array([[1.0], [2.0], [6.0]]))
    later = fitted.transform(sparse.csr_array([[NAN], [2.0]])).toarray()
    assert later[0] == later[1]


@pytest.mark.parametrize(
    ("fitted_on", "given"), [(np.asarray, "sparse"), (sparse.csr_array, "dense")]
)
def test_sparse_and_dense_are_not_mixed(fitted_on, given):
    X = np.array([[1.0], [2.0]])
    fitted = PartyPreprocessor().fit(fitted_on(X))
    other = sparse.csr_array(X) if given == "sparse" else X
    with pytest.raises(ValueError, match=f"X is {given}, but .* fitted on a"):
        fitted.transform(other)


# Containers, output and state


MIXED = {
    "age": [20, None, 40, 60],
    "job": ["clerk", None, "nurse", "clerk"],
    "member": [True, False, None, True],
    "since": TIMES,
}


def test_pandas_polars_arrow_and_numpy_agree():
    tables = [
        pd.DataFrame(MIXED),
        pd.DataFrame(MIXED).convert_dtypes(),
        pd.DataFrame(MIXED).convert_dtypes(dtype_backend="pyarrow"),
        pd.DataFrame(MIXED, dtype=object),
        pl.DataFrame(MIXED),
        pa.table(MIXED),
        np.array(list(MIXED.values()), dtype=object).T,
        [list(row) for row in zip(*MIXED.values(), strict=True)],
    ]
    expected = fit_transform(tables[0])
    assert expected.shape == (4, 6)
    for table in tables[1:]:
        assert_array_equal(fit_transform(table), expected)


def test_row_by_row_gives_the_same_output():
    X = pd.DataFrame(MIXED)
    fitted = PartyPreprocessor().fit(X)
    rows = [fitted.transform(X.iloc[[i]]) for i in range(len(X))]
    assert_array_equal(np.vstack(rows), fitted.transform(X))


@pytest.mark.parametrize(
    "X", [np.arange(12.0).reshape(4, 3), pd.DataFrame(MIXED), sparse.eye_array(4)]
)
def test_fit_transform_is_fit_then_transform(X):
    fitted = PartyPreprocessor().fit(X)
    first, second = PartyPreprocessor().fit_transform(X), fitted.transform(X)
    if sparse.issparse(first):
        first, second = first.toarray(), second.toarray()
    assert_array_equal(first, second)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_input_is_not_changed(make):
    X = make({"a": [3.0, NAN, 1.0, 2.0]})
    before = pickle.loads(pickle.dumps(X))
    fit_transform(X)
    assert X.equals(before)
    array = np.array([[3.0], [NAN], [1.0]], order="F")
    fit_transform(array)
    assert_array_equal(array, [[3.0], [NAN], [1.0]])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_set_output(make):
    X = make(MIXED)
    plain = PartyPreprocessor().fit(X)
    framed = clone(plain).set_output(transform="pandas")
    for out in (framed.fit_transform(X), framed.transform(X)):
        assert isinstance(out, pd.DataFrame)
        assert_array_equal(out.columns, plain.get_feature_names_out())
        assert_array_equal(out.to_numpy(), plain.transform(X))


def test_set_output_keeps_the_index():
    X = pd.DataFrame({"a": [1.0, 2.0]}, index=["u", "v"])
    out = PartyPreprocessor().set_output(transform="pandas").fit_transform(X)
    assert out.index.tolist() == ["u", "v"]


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_global_output_configuration(output):
    X = pd.DataFrame(MIXED)
    expected = PartyPreprocessor().fit_transform(X)
    with sklearn.config_context(transform_output=output):
        out = PartyPreprocessor().fit_transform(X)
        sparse_fit = PartyPreprocessor().fit(sparse.csr_array([[1.0, NAN], [2.0, 1.0]]))
    assert_array_equal(out.to_numpy(), expected)
    assert sparse_fit.kinds_ == ["numbers", "numbers"]


def test_feature_names_out_of_given_names():
    fitted = PartyPreprocessor().fit(np.array([["a", 1], ["b", 2]], dtype=object))
    assert_array_equal(
        fitted.get_feature_names_out(["job", "age"]), ["job_a", "job_b", "age"]
    )


def test_frame_without_string_names():
    fitted = PartyPreprocessor().fit(pd.DataFrame([["a", 1], ["b", 2]]))
    assert_array_equal(fitted.get_feature_names_out(), ["x0_a", "x0_b", "x1"])


@pytest.mark.filterwarnings("ignore:.*looks like an identifier")
def test_no_training_row_is_kept():
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((400, 4))
    X = pd.DataFrame(numbers, columns=[*"abcd"])
    X["id"] = [f"customer {i} of the canary" for i in range(400)]
    dumped = pickle.dumps(PartyPreprocessor(max_categories=5).fit(X))
    assert numbers[7].tobytes() not in dumped
    assert dumped.count(b"of the canary") == 4
    assert len(dumped) < 3000


def test_pickle_and_refit():
    X = pd.DataFrame(MIXED)
    fitted = PartyPreprocessor().fit(X)
    loaded = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(loaded.transform(X), fitted.transform(X))
    refitted = fitted.fit(np.array([[1.0], [3.0]]))
    assert_array_equal(refitted.transform(np.array([[3.0]])), [[1.0]])
    assert not hasattr(refitted, "feature_names_in_")


def test_public_attributes_show_no_values():
    fitted = PartyPreprocessor().fit(pd.DataFrame(MIXED))
    public = {name for name in vars(fitted) if not name.startswith("_")}
    assert public == {
        "dtype",
        "max_categories",
        "kinds_",
        "n_features_in_",
        "feature_names_in_",
    }


def test_neither_pandas_nor_polars_is_needed():
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['pandas', 'polars', 'pyarrow']))\n"
        "import numpy as np\n"
        "from skvfl.partition._preprocessing import PartyPreprocessor\n"
        "X = np.array([[1, 'a'], [None, None]], dtype=object)\n"
        "print(PartyPreprocessor().fit_transform(X).shape)"
    )
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True).stdout == "(2, 3)\n"


# Speed and memory


def test_numbers_are_not_slower_than_scikit_learn():
    X = np.random.default_rng(0).standard_normal((40_000, 54))
    ours = PartyPreprocessor(dtype="float64")
    theirs = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())

    def seconds(method):
        times = []
        for _ in range(3):
            start = time.process_time()
            method(X)
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(ours.fit_transform) < seconds(theirs.fit_transform)
    assert seconds(ours.transform) < seconds(theirs.transform)


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 0.8), ("float64", 1.3)])
def test_memory_for_numbers(dtype, bound):
    X = np.random.default_rng(0).standard_normal((40_000, 54))
    tracemalloc.start()
    PartyPreprocessor(dtype=dtype).fit_transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < bound * X.nbytes


# Real data


def test_adult(data_home):
    X = pd.read_csv(data_home / "adult.csv.gz").drop(columns="income")
    train, test = X[:30_000], X[30_000:]
    fitted = PartyPreprocessor(dtype="float64").fit(train)
    strings = train.select_dtypes(exclude="number").columns
    assert fitted.kinds_ == ["strings" if c in strings else "numbers" for c in X]
    out = pd.DataFrame(fitted.transform(test), columns=fitted.get_feature_names_out())

    numbers = train.columns.difference(strings)
    scaler = StandardScaler().fit(train[numbers])
    assert_allclose(out[numbers], scaler.transform(test[numbers]), rtol=1e-9, atol=1e-9)
    encoder = OneHotEncoder(
        sparse_output=False, handle_unknown="infrequent_if_exist", max_categories=100
    ).fit(train[strings])
    names = encoder.get_feature_names_out()
    assert_array_equal(out[names], encoder.transform(test[strings]))
    assert out.shape[1] == len(names) + len(numbers)
    assert_array_equal(
        PartyPreprocessor(dtype="float64").fit(pl.from_pandas(train)).transform(test),
        out,
    )


def test_output_names_are_unique_whatever_the_categories_are_called():
    X = np.array([["nan"], [None], ["infrequent_sklearn"], ["a"], ["a"]], dtype=object)
    names = PartyPreprocessor(max_categories=4).fit(X).get_feature_names_out()
    assert len(set(names)) == len(names) == 4
