import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.compose import make_column_selector

from skvfl import VerticalPartitioner
from skvfl.partition._columns import column_names, describe, resolve

NAMES = ["age", "city", "spend", "visits"]
FRAME = pd.DataFrame(np.zeros((2, 4)), columns=NAMES)
ARRAY = FRAME.to_numpy()


def in_words(value):
    """A test's name without addresses: workers must agree on it."""
    return re.sub(" at 0x[0-9a-f]+", "", str(value))


def positions_in_frame(columns, frame=FRAME):
    return resolve(columns, frame, column_names(frame), "bank").tolist()


def positions_in_array(columns):
    return resolve(columns, ARRAY, None, "bank").tolist()


# Names of columns


@pytest.mark.parametrize("frame", [FRAME, pl.from_pandas(FRAME)], ids=["pandas", "pl"])
def test_names_of_a_frame(frame):
    assert list(column_names(frame)) == NAMES


@pytest.mark.parametrize(
    "table",
    [
        ARRAY,
        sparse.csr_array(ARRAY),
        FRAME.set_axis([3, 2, 1, 0], axis=1),
    ],
    ids=["array", "sparse", "integers"],
)
def test_a_table_without_text_names_has_none(table):
    assert column_names(table) is None


@pytest.mark.parametrize("names", [["b", "a", "b", "a"], [2, 1, 2, 1]], ids=str)
def test_repeated_names_are_all_named(names):
    repeated = re.escape(str(sorted(map(str, set(names)))))
    with pytest.raises(ValueError, match=f"duplicate column names {repeated}: rename"):
        column_names(FRAME.set_axis(names, axis=1))


def test_names_and_numbers_together_are_refused():
    with pytest.raises(TypeError, match="all input features have string names"):
        column_names(FRAME.set_axis(["age", "city", "spend", 3], axis=1))


# Ways to say which columns


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("city", [1]),
        (["city"], [1]),
        (["visits", "age"], [3, 0]),
        (("visits", "age"), [3, 0]),
        (pd.Index(["visits", "age"]), [3, 0]),
        (np.array(["visits", "age"]), [3, 0]),
        (["visits", 0, -2], [3, 0, 2]),
        (slice("city", "spend"), [1, 2]),
        (slice("city", None), [1, 2, 3]),
        (slice(None, "city"), [0, 1]),
        (slice("city", 2), [1]),
        (make_column_selector("city|age"), [0, 1]),
        (lambda table: table.columns[:2], [0, 1]),
    ],
    ids=in_words,
)
def test_columns_by_name(columns, expected):
    assert positions_in_frame(columns) == expected


@pytest.mark.parametrize("positions_in", [positions_in_frame, positions_in_array])
@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (2, [2]),
        (np.int8(2), [2]),
        (-1, [3]),
        (-4, [0]),
        ([3, 1], [3, 1]),
        (np.array([3, 1], dtype=np.uint8), [3, 1]),
        (range(1, 3), [1, 2]),
        ([], []),
        (np.array([]), []),
        (slice(None), [0, 1, 2, 3]),
        (slice(1, -1), [1, 2]),
        (slice(None, None, -2), [3, 1]),
        (slice(2, 100), [2, 3]),
        ([True, False, False, True], [0, 3]),
        (np.array([False, True, False, True]), [1, 3]),
        ([False] * 4, []),
        (lambda table: [table.shape[1] - 1], [3]),
        (lambda table: table.shape[1] - 1, [3]),
        (lambda table: slice(1, None), [1, 2, 3]),
    ],
    ids=in_words,
)
def test_columns_by_position(positions_in, columns, expected):
    assert positions_in(columns) == expected


def test_selector_by_data_type():
    frame = FRAME.assign(city=["Rome", "Oslo"])
    selector = make_column_selector(dtype_include="number")
    assert positions_in_frame(selector, frame) == [0, 2, 3]


def test_positions_are_integers_even_for_no_column():
    assert resolve([], ARRAY, None, "bank").dtype.kind == "i"


def test_integers_are_refused_where_they_could_be_labels_or_positions():
    with pytest.raises(ValueError, match=r"'bank' is given integers.*strings"):
        positions_in_frame([0, 1], FRAME.set_axis([3, 2, 1, 0], axis=1))
    assert positions_in_frame([0, 1], FRAME.set_axis([0, 1, 2, 3], axis=1)) == [0, 1]


@given(data=st.data(), n_columns=st.integers(1, 8))
def test_mask_names_positions_and_their_negatives_agree(data, n_columns):
    mask = data.draw(st.lists(st.booleans(), min_size=n_columns, max_size=n_columns))
    names = np.array([f"column {i}" for i in range(n_columns)], dtype=object)
    table = np.zeros((1, n_columns))
    expected = [i for i in range(n_columns) if mask[i]]
    for columns in (
        mask,
        np.array(mask),
        expected,
        [i - n_columns for i in expected],
        names[expected],
    ):
        assert_array_equal(resolve(columns, table, names, "bank"), expected)


# What is refused


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("town", "party 'bank': column 'town' is missing from the table"),
        (["age", "town"], "party 'bank': column 'town' is missing from the table"),
        (slice("town", None), "party 'bank': column 'town' is missing"),
        (slice("age", "town"), "party 'bank': column 'town' is missing"),
        (4, "party 'bank': there is no column at position 4 in a table of 4 columns"),
        ([0, -5], "party 'bank': there is no column at position -5 in a table of 4"),
        (["age", "age"], r"party 'bank' lists column 'age' \(position 0\) more than"),
        (["age", 0], r"party 'bank' lists column 'age' \(position 0\) more than once"),
        ([3, -1], r"party 'bank' lists column 'visits' \(position 3\) more than once"),
        ([True, False], "party 'bank': its boolean mask has 2 entries for 4 columns"),
        (True, "party 'bank': its boolean mask has 1 entries for 4 columns"),
        ([True, 0], "party 'bank': columns are names or positions, got a bool"),
        (None, "party 'bank': columns are names or positions, got a NoneType"),
        (1.0, "party 'bank': columns are names or positions, got a float"),
        ([0, 1.0], "party 'bank': columns are names or positions, got a float"),
        ([["age"]], "party 'bank': columns are names or positions, got a list"),
        (lambda table: None, "party 'bank': columns are names or positions, got a No"),
    ],
    ids=in_words,
)
def test_columns_that_cannot_be_found_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        positions_in_frame(columns)


@pytest.mark.parametrize("columns", ["age", ["age"], slice("age", None)], ids=str)
def test_names_need_a_table_with_names(columns):
    message = "party 'bank': column 'age' is given by name, but the table has no column"
    with pytest.raises(ValueError, match=message):
        positions_in_array(columns)


def test_repeated_positions_need_no_names():
    message = "party 'bank' lists the column at position 1 more than once"
    with pytest.raises(ValueError, match=message):
        positions_in_array([1, 0, 1])


def test_a_column_in_words():
    assert describe(1, np.array(NAMES)) == "column 'city' (position 1)"
    assert describe(1, None) == "the column at position 1"


@pytest.mark.parametrize("name", ["\ufeffage", " age", "AGE", "a ge"])
def test_a_name_that_reads_like_the_missing_one_is_shown(name):
    table = pd.DataFrame({name: [1.0, 2.0], "city": [3.0, 4.0]})
    parties = {"bank": ["age"], "shop": ["city"]}
    message = re.escape(
        f"party 'bank': column 'age' is missing from the table, which has {name!a}"
    )
    with pytest.raises(ValueError, match=message):
        VerticalPartitioner(parties=parties).fit(table)
    fitted = VerticalPartitioner(parties=parties).fit(
        table.set_axis(["age", "city"], axis=1)
    )
    with pytest.raises(ValueError, match=message):
        fitted.transform(table)
