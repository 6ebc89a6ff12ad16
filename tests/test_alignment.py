from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from skvfl.alignment import align, match
from skvfl.exceptions import AlignmentError

BANK = pd.DataFrame({"id": [3, 1, 2], "age": [30, 40, 50]}, index=[9, 9, 8])
SHOP = pd.DataFrame({"id": [2, 3, 9], "spend": [0.2, 0.3, 0.9]})


def with_ids(*ids):
    return pd.DataFrame({"id": ids, "spend": range(len(ids))})


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas])
def test_every_row_of_the_active_party_is_kept_in_its_order(convert):
    tables = {"bank": convert(BANK), "shop": convert(SHOP)}
    table, parties, ids, held = align(tables, on="id")
    assert type(table) is type(tables["bank"])
    assert list(table.columns) == ["age", "spend"]
    assert parties == {"bank": ["age"], "shop": ["spend"]}
    assert ids == [3, 1, 2]
    assert table["age"].to_list() == [30, 40, 50]
    spend = table["spend"].to_list()
    assert spend[0] == 0.3
    assert spend[2] == 0.2
    assert pd.isna(spend[1])
    assert_array_equal(held["bank"], [True, True, True])
    assert_array_equal(held["shop"], [True, False, True])


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas])
def test_intersection_in_the_order_of_another_party(convert):
    tables = {"bank": convert(BANK), "shop": convert(SHOP)}
    aligned = align(tables, on="id", active="shop", keep="intersection")
    assert aligned.ids == [2, 3]
    assert aligned.table["age"].to_list() == [50, 30]
    assert aligned.table["spend"].to_list() == [0.2, 0.3]
    assert all(rows.all() for rows in aligned.held.values())


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas])
def test_cells_of_every_kind_are_missing_where_a_row_is_not_held(convert):
    other = pd.DataFrame(
        {
            "id": [1],
            "text": ["a"],
            "whole": [7],
            "real": [0.5],
            "truth": [True],
            "time": [datetime(2020, 1, 1)],
            "kind": pd.Categorical(["x"]),
        }
    )
    table = align({"bank": convert(BANK), "shop": convert(other)}, on="id").table
    for column in other.columns[1:]:
        values = table[column].to_list()
        assert values[1] == other[column][0]
        assert pd.isna(values[0])
        assert pd.isna(values[2])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(-5, 5), min_size=1, unique=True),
    st.lists(st.integers(-5, 5), min_size=1, unique=True),
    st.sampled_from(["active", "intersection"]),
)
def test_rows_are_those_of_their_ids(first, second, keep):
    a = pd.DataFrame({"id": first, "x": first})
    b = pd.DataFrame({"id": second, "y": second})
    expected = [i for i in first if keep == "active" or i in second]
    if not set(first) & set(second):
        with pytest.raises(AlignmentError, match="no id in common"):
            align({"a": a, "b": b}, on="id", keep=keep)
        return
    table, _, ids, held = align({"a": a, "b": b}, on="id", keep=keep)
    assert ids == table["x"].to_list() == expected
    assert_array_equal(held["b"], [i in second for i in expected])
    assert_array_equal(table["y"].isna(), ~held["b"])
    assert table["y"][held["b"]].to_list() == [i for i in expected if i in second]


def test_match_gives_positions():
    found = match({"a": [5, 6, 7], "b": [7, 5]}, "a")
    assert_array_equal(found["a"], [0, 1, 2])
    assert_array_equal(found["b"], [1, -1, 0])


def test_whole_numbers_are_equal_whatever_their_type():
    table = align({"bank": BANK, "shop": with_ids(2.0, 1.0)}, on="id").table
    assert_array_equal(table["spend"], [np.nan, 1, 0])


@pytest.mark.parametrize(("duplicates", "kept"), [("first", 0), ("last", 2)])
def test_one_row_of_each_duplicate_is_kept_on_demand(duplicates, kept):
    tables = {"bank": BANK, "shop": with_ids(3, 1, 3)}
    table = align(tables, on="id", duplicates=duplicates).table
    assert table["spend"].to_list()[:2] == [kept, 1]
    active = align(tables, on="id", active="shop", duplicates=duplicates)
    assert sorted(active.ids) == [1, 3]
    assert set(active.table["spend"]) == {kept, 1}


def test_column_of_ids_may_have_a_name_per_party():
    shop = SHOP.rename(columns={"id": "customer"})
    on = {"bank": "id", "shop": "customer"}
    assert align({"bank": BANK, "shop": shop}, on=on).ids == [3, 1, 2]


def test_active_party_may_hold_nothing_but_ids():
    aligned = align({"owner": BANK[["id"]], "shop": SHOP}, on="id")
    assert aligned.parties == {"owner": [], "shop": ["spend"]}
    assert_array_equal(aligned.table["spend"], [0.3, np.nan, 0.2])


@pytest.mark.parametrize(
    ("shop", "message"),
    [
        (
            with_ids(7, 7, 8, 8, 3),
            r"party 'shop': 2 duplicate ids in column 'id', in 4 rows \(7, 8\)",
        ),
        (
            with_ids("001", "002"),
            r"'bank' has 3 ids that are whole numbers \(3, 1, 2\).*"
            r"'shop' has 2 ids that are text \('001', '002'\)",
        ),
        (with_ids("1", 2), r"different kinds: 1 text \('1'\), 1 whole numbers \(2\)"),
        (with_ids(1, None), "party 'shop': 1 of 2 ids in column 'id' are missing"),
        (with_ids(7, 8, 9, 10), r"no id in common: .* \(7, 8, 9, …\)"),
        (with_ids(), "party 'shop': its table has no rows"),
        (with_ids(1)[["id"]], "party 'shop': its table holds nothing but ids"),
        (SHOP.rename(columns={"id": "key"}), "party 'shop': its table has no column"),
        (SHOP.rename(columns={"spend": "age"}), "column 'age' is in the tables of"),
    ],
)
def test_tables_that_cannot_be_aligned(shop, message):
    with pytest.raises(AlignmentError, match=message):
        align({"bank": BANK, "shop": shop}, on="id")


def test_repeated_ids_of_the_active_party_are_refused():
    with pytest.raises(AlignmentError, match="party 'bank': 1 duplicate ids"):
        align({"bank": pd.concat([BANK, BANK[:1]]), "shop": SHOP}, on="id")


def test_empty_intersection_of_three_parties():
    tables = {"bank": BANK, "a": with_ids(1), "b": with_ids(2)}
    tables["b"] = tables["b"].rename(columns={"spend": "cost"})
    assert len(align(tables, on="id").table) == 3
    message = r"of the 3 ids of 'bank' they hold \{'bank': 3, 'a': 1, 'b': 1\}"
    with pytest.raises(AlignmentError, match=message):
        align(tables, on="id", keep="intersection")


@pytest.mark.parametrize(
    ("shop", "message"),
    [
        (pl.from_pandas(SHOP), "different libraries"),
        (SHOP.to_numpy(), "party 'shop': its table is a ndarray"),
        (pl.from_pandas(SHOP).lazy(), "party 'shop': its table is a LazyFrame"),
    ],
)
def test_tables_of_the_wrong_type(shop, message):
    with pytest.raises(TypeError, match=message):
        align({"bank": BANK, "shop": shop}, on="id")


def test_no_table_and_unknown_party():
    with pytest.raises(AlignmentError, match="tables is empty"):
        align({}, on="id")
    with pytest.raises(ValueError, match="active='telco' is not one of the parties"):
        align({"bank": BANK}, on="id", active="telco")


def test_floats_that_cannot_tell_ids_apart_are_refused():
    """pandas makes floats of whole numbers as soon as one is missing."""
    shop = pd.DataFrame({"id": [2.0**53 + 2, 7.0], "spent": [1, 2]})
    bank = pd.DataFrame({"id": [2**53 + 1, 7], "age": [40, 50]})
    with pytest.raises(
        AlignmentError, match="1 ids in column 'id' are floats too large"
    ):
        align({"bank": bank, "shop": shop}, on="id")


def test_a_byte_order_mark_before_the_first_name_is_dropped():
    bank = pd.DataFrame({"\ufeffx": [1, 2], "id": [1, 2]})
    shop = pd.DataFrame({"\ufeffid": [2, 1], "z": [1, 2]})
    aligned = align({"bank": bank, "shop": shop}, on="id")
    assert aligned.parties == {"bank": ["x"], "shop": ["z"]}
    assert aligned.table.to_numpy().tolist() == [[1, 2], [2, 1]]
    spaced = shop.set_axis(["ID ", "z"], axis=1)
    with pytest.raises(AlignmentError, match=r"'shop': its table .* 'id' .*has 'ID '"):
        align({"bank": bank, "shop": spaced}, on="id")


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("lacking", [float("nan"), None])
def test_ids_that_are_no_number_are_missing(convert, lacking):
    """A polars column may hold NaN, which is neither null nor equal to itself."""
    bank = convert({"id": [1.0, lacking, 3.0], "age": [1, 2, 3]})
    shop = convert({"id": [1.0, 3.0], "spend": [1, 2]})
    with pytest.raises(AlignmentError, match=r"'bank': 1 of 3 ids .* are missing"):
        align({"bank": bank, "shop": shop}, "id")


@pytest.mark.parametrize("names", [["id", "q", "q"], ["id", "q", 0]])
def test_names_that_cannot_be_used_are_those_of_a_party(names):
    bank = pd.DataFrame([[1, 2, 3]], columns=names)
    with pytest.raises((TypeError, ValueError), match=r"party 'bank': .*names?"):
        align({"bank": bank, "shop": pd.DataFrame({"id": [1], "z": [1]})}, on="id")
