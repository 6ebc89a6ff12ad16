import copy
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.callback import ProgressBar
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    StandardScaler,
)
from sklearn.utils import get_tags

from skvfl import (
    Contiguous,
    GaussianProjection,
    ImportanceSplit,
    PartyPreprocessor,
    RandomProjectionVFL,
    RoundRobin,
    VerticalPartitioner,
)
from skvfl.exceptions import PartyError
from skvfl.partition._names import party_name
from skvfl.partition._partitioner import as_partition

NAMES = ["age", "city", "spend", "visits"]
PARTIES = {"bank": ["age", "city"], "shop": ["spend", "visits"]}
NUMBERS = np.random.default_rng(0).normal(size=(20, 6))


def table():
    """Four columns of numbers, strings, categories and nullable integers."""
    frame = pd.DataFrame(
        {
            "age": [30, 40, 50, 60],
            "city": ["Rome", "Oslo", "Rome", "Bern"],
            "spend": pd.Categorical(["low", "high", "low", "low"]),
            "visits": pd.array([1, None, 3, 4], dtype="Int64"),
        }
    )
    return frame.set_axis([3, 0, 1, 2])


def numbers_frame():
    return pd.DataFrame(NUMBERS, columns=list("abcdef"))


def held(partition):
    return {name: columns.tolist() for name, columns in partition.parties_.items()}


def passthrough(parties, **params):
    return VerticalPartitioner("passthrough", parties=parties, **params)


# Who holds which columns


@pytest.mark.parametrize(
    "parties",
    [
        PARTIES,
        {"bank": [0, 1], "shop": [2, 3]},
        {"bank": [-4, -3], "shop": [-2, -1]},
        {"bank": slice(0, 2), "shop": slice(2, None)},
        {"bank": slice("age", "city"), "shop": slice("spend", "visits")},
        {"bank": [True, True, False, False], "shop": np.array([0, 0, 1, 1], bool)},
        {"bank": make_column_selector("age|city"), "shop": lambda X: X.columns[2:]},
        [("bank", "passthrough", ["age", "city"]), ("shop", "passthrough", [2, 3])],
    ],
    ids=[
        "names",
        "positions",
        "negative",
        "slices",
        "named slices",
        "masks",
        "selectors",
        "triples",
    ],
)
def test_ways_to_say_who_holds_what(parties):
    partition = passthrough(parties).fit(table())
    assert held(partition) == {"bank": [0, 1], "shop": [2, 3]}
    blocks = partition.split(table())
    assert list(blocks) == ["bank", "shop"]
    pd.testing.assert_frame_equal(blocks["bank"], table()[["age", "city"]])
    pd.testing.assert_frame_equal(blocks["shop"], table()[["spend", "visits"]])
    assert not hasattr(partition, "splitter_")


def test_one_column_needs_no_list():
    partition = passthrough({"a": "age", "b": ["city", "spend"], "c": 3})
    assert held(partition.fit(table())) == {"a": [0], "b": [1, 2], "c": [3]}


def test_a_number_of_parties_deals_the_columns_in_turn():
    partition = passthrough(4).fit(NUMBERS)
    expected = {"party0": [0, 4], "party1": [1, 5], "party2": [2], "party3": [3]}
    assert held(partition) == expected
    assert isinstance(partition.splitter_, RoundRobin)


def test_a_splitter_deals_the_columns_and_keeps_what_it_measured():
    y = np.arange(20) % 2
    splitter = ImportanceSplit(3, random_state=0)
    partition = passthrough(splitter).fit(NUMBERS, y)
    expected = clone(splitter).split_columns(NUMBERS, y)
    assert held(partition) == {k: v.tolist() for k, v in expected.items()}
    assert partition.splitter_.importances_.shape == (6,)
    assert not hasattr(splitter, "importances_")
    assert not hasattr(partition.set_params(parties=PARTIES).fit(table()), "splitter_")


def test_the_order_of_a_partys_columns_is_kept():
    partition = passthrough({"bank": ["city", "age"], "shop": [3, 2]}).fit(table())
    assert held(partition) == {"bank": [1, 0], "shop": [3, 2]}
    assert list(partition.split(table())["bank"].columns) == ["city", "age"]
    names = ["bank__city", "bank__age", "shop__visits", "shop__spend"]
    assert list(partition.get_feature_names_out()) == names


@given(
    owners=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=50, deadline=None)
def test_blocks_put_back_give_the_table(owners, seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(owners))
    X = rng.normal(size=(3, len(owners)))
    parties = {
        f"p{owner}": [int(i) for i in order if owners[i] == owner]
        for owner in set(owners)
    }
    partition = passthrough(parties).fit(X)
    again = np.full_like(X, np.nan)
    for name, block in partition.split(X).items():
        again[:, partition.parties_[name]] = block
    assert_array_equal(again, X)
    out = partition.transform(X)
    assert_array_equal(out, X[:, np.concatenate(list(partition.parties_.values()))])
    for name, place in partition.output_slices_.items():
        assert_array_equal(out[:, place], X[:, partition.parties_[name]])


@given(n_columns=st.integers(1, 9), n_parties=st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_every_simulated_party_gets_columns(n_columns, n_parties):
    X = np.zeros((2, n_columns))
    partition = passthrough(n_parties)
    if n_parties > n_columns:
        with pytest.raises(ValueError, match=f"n_features={n_columns} columns"):
            partition.fit(X)
    else:
        sizes = [len(columns) for columns in held(partition.fit(X)).values()]
        assert len(sizes) == n_parties
        assert sum(sizes) == n_columns
        assert max(sizes) - min(sizes) <= 1


# Columns that nobody or several parties claim


def test_unclaimed_columns_are_an_error_that_names_them():
    message = (
        r"2 column\(s\) belong to no party: column 'spend' \(position 2\), "
        r"column 'visits' \(position 3\); give them to a party, or set remainder"
    )
    with pytest.raises(ValueError, match=message):
        passthrough({"bank": ["age", "city"]}).fit(table())
    with pytest.raises(ValueError, match=r"4 column.* the column at position 2, .*"):
        passthrough({"bank": [0, 1]}).fit(NUMBERS)


def test_a_long_list_of_unclaimed_columns_is_cut():
    with pytest.raises(ValueError, match=r"9 column.*\(position 5\), …; give"):
        passthrough({"a": 0}).fit(pd.DataFrame(np.zeros((1, 10))).add_prefix("x"))


def test_unclaimed_columns_may_be_dropped():
    partition = passthrough({"bank": ["city"]}, remainder="drop")
    out = partition.set_output(transform="pandas").fit_transform(table())
    assert list(out.columns) == ["bank__city"]
    assert partition.n_features_in_ == 4


def test_unclaimed_columns_may_go_to_a_party():
    parties = {"shop": ["visits"], "bank": ["city"]}
    partition = passthrough(parties, remainder="shop").fit(table())
    assert held(partition) == {"shop": [3, 0, 2], "bank": [1]}
    none_left = passthrough(PARTIES, remainder="shop").fit(table())
    assert held(none_left) == {"bank": [0, 1], "shop": [2, 3]}
    all_left = passthrough({"bank": [], "shop": "age"}, remainder="bank").fit(table())
    assert held(all_left) == {"bank": [1, 2, 3], "shop": [0]}


def test_remainder_names_no_party():
    message = r"remainder='bnak' is neither .* nor one of the parties \['bank', 'shop'"
    with pytest.raises(ValueError, match=message):
        passthrough(PARTIES, remainder="bnak").fit(table())


def test_overlap_only_when_asked_for():
    parties = {"bank": ["age", "city"], "shop": ["city", "spend", "visits"]}
    message = (
        r"column 'city' \(position 1\) is held by both 'bank' and 'shop'; "
        "set allow_overlap=True"
    )
    with pytest.raises(ValueError, match=message):
        passthrough(parties).fit(table())
    partition = passthrough(parties, allow_overlap=True).fit(table())
    assert held(partition) == {"bank": [0, 1], "shop": [1, 2, 3]}
    blocks = partition.split(table())
    assert_array_equal(blocks["bank"]["city"], blocks["shop"]["city"])


# Parties that are refused


@pytest.mark.parametrize("remainder", ["raise", "drop", "shop"])
def test_a_party_without_columns_is_named(remainder):
    parties = {"bank": [], "shop": [0, 1, 2, 3]}
    with pytest.raises(ValueError, match="party 'bank' holds no column; only the"):
        passthrough(parties, remainder=remainder).fit(table())


def test_only_the_label_owner_may_hold_no_column():
    parties = {"bank": [], "shop": [0, 1, 2, 3]}
    partition = passthrough(parties)
    for owner in ("bank", 0, -2):
        partition._fit_columns(table(), label_owner=owner)
        assert held(partition) == parties
        assert partition.split(table())["bank"].shape == (4, 0)
        assert list(partition._make_transformers()) == ["shop"]
    with pytest.raises(ValueError, match="party 'bank' holds no column"):
        partition._fit_columns(table(), label_owner="shop")


@pytest.mark.parametrize(
    ("parties", "message"),
    [
        ({}, "parties is empty"),
        ([], "parties is empty"),
        ({3: slice(None)}, "name of a party must be a string, got 3 of type int"),
        ([(None, "auto", slice(None))], "must be a string, got None of type NoneType"),
        ([(["a"], "auto", slice(None))], r"must be a string, got \['a'\] of type list"),
        ({"": slice(None)}, "party name '' is not allowed"),
        ({"a__b": slice(None)}, "party name 'a__b' is not allowed: .* double under"),
        ({"server": slice(None)}, "party name 'server' is not allowed"),
        ({"raise": slice(None)}, "party name 'raise' is not allowed"),
        ({"drop": 0}, "party name 'drop' is not allowed"),
        ([("transformer", "auto", slice(None))], "'transformer'.* are parameters of"),
        (
            [("a", "auto", [0]), ("a", "auto", [1, 2, 3])],
            r"duplicate party names \['a'\]",
        ),
        ([("a", [0])], "a list of parties holds .name, transformer, columns. tuples"),
        (["a", "b"], "tuples, got a str"),
        ([("a", "scale", slice(None))], "transformer 'scale' is neither 'auto' nor"),
        ({"bank": ["age", "town"]}, "party 'bank': column 'town' is missing"),
        ({"bank": [7]}, "party 'bank': there is no column at position 7"),
    ],
    ids=str,
)
def test_parties_that_cannot_be_are_refused(parties, message):
    partition = VerticalPartitioner(parties=parties, remainder="drop")
    with pytest.raises(ValueError, match=message):
        partition.fit(table())


@pytest.mark.parametrize(
    "params",
    [
        {"transformer": "scale"},
        {"transformer": LogisticRegression()},
        {"parties": 0},
        {"parties": "bank"},
        {"remainder": None},
        {"allow_overlap": "yes"},
        {"n_jobs": "all"},
    ],
    ids=str,
)
def test_parameters_are_validated(params):
    [name] = params
    with pytest.raises(ValueError, match=f"The '{name}' parameter of VerticalPartit"):
        VerticalPartitioner(**params).fit(NUMBERS)


def test_repeated_column_names_are_refused():
    frame = table().set_axis(["age", "city", "age", "visits"], axis=1)
    message = r"duplicate column names \['age'\]"
    with pytest.raises(ValueError, match=message):
        VerticalPartitioner().fit(frame)
    partition = VerticalPartitioner().fit(table())
    for method in (partition.transform, partition.split):
        with pytest.raises(ValueError, match=message):
            method(frame)


@pytest.mark.parametrize("name", ["bank", 0, -2])
def test_active_party_by_name_or_position(name):
    assert party_name({"bank": [], "shop": []}, name) == "bank"


@pytest.mark.parametrize("name", ["telco", 2, -3])
def test_active_party_that_is_none(name):
    with pytest.raises(ValueError, match=rf"{name!r} is not one of .*'bank', 'shop'"):
        party_name({"bank": [], "shop": []}, name)


# Tables given later


def frames(frame):
    return [frame, pl.from_pandas(frame)]


@pytest.mark.parametrize("frame", frames(table()), ids=["pandas", "polars"])
def test_columns_are_found_by_name(frame):
    partition = VerticalPartitioner(parties=PARTIES).fit(frame)
    permuted = frame[["visits", "city", "age", "spend"]]
    assert_array_equal(partition.transform(permuted), partition.transform(frame))
    blocks, expected = partition.split(permuted), partition.split(frame)
    for name in PARTIES:
        assert list(blocks[name].columns) == PARTIES[name]
        assert blocks[name].equals(expected[name])


@given(order=st.permutations(range(6)), splitter=st.sampled_from([2, 3, 5]))
@settings(max_examples=20, deadline=None)
def test_any_order_of_columns_gives_the_same_answer(order, splitter):
    frame = numbers_frame()
    partition = VerticalPartitioner(parties=splitter).fit(frame)
    permuted = frame.iloc[:, order]
    assert_array_equal(partition.transform(permuted), partition.transform(frame))


@pytest.mark.parametrize("method", ["transform", "split"])
@pytest.mark.parametrize("frame", frames(table()), ids=["pandas", "polars"])
def test_a_missing_column_is_named_with_its_party(frame, method):
    partition = VerticalPartitioner(parties=PARTIES).fit(frame)
    without = frame[["age", "city", "visits"]]
    renamed = table().rename(columns={"spend": "Spend"})
    for other in (without, renamed):
        with pytest.raises(ValueError, match="party 'shop': column 'spend' is missing"):
            getattr(partition, method)(other)


@pytest.mark.parametrize("remainder", ["raise", "bank"])
@pytest.mark.parametrize("method", ["transform", "split"])
def test_unknown_columns_are_an_error(remainder, method):
    partition = VerticalPartitioner(parties=PARTIES, remainder=remainder).fit(table())
    more = table().assign(debt=1, email="x")
    with pytest.raises(ValueError, match=r"columns \['debt', 'email'\] were not seen"):
        getattr(partition, method)(more)


@pytest.mark.parametrize("frame", frames(table()), ids=["pandas", "polars"])
def test_unknown_columns_are_dropped_where_the_remainder_is(frame):
    parties = {"bank": ["age"], "shop": ["visits", "spend"]}
    partition = VerticalPartitioner(parties=parties, remainder="drop").fit(frame)
    expected = partition.transform(frame)
    more = table().assign(debt=1)[["debt", "spend", "visits", "age"]]
    if isinstance(frame, pl.DataFrame):
        more = pl.from_pandas(more)
    assert_array_equal(partition.transform(more), expected)
    assert list(partition.split(more)["shop"].columns) == ["visits", "spend"]


@pytest.mark.parametrize("method", ["transform", "split"])
def test_tables_without_names_are_counted(method):
    partition = VerticalPartitioner().fit(NUMBERS)
    with pytest.raises(ValueError, match="X has 5 features, but VerticalPartitioner"):
        getattr(partition, method)(NUMBERS[:, :5])


def test_names_that_appear_or_vanish_are_a_warning():
    frame = numbers_frame()
    named = VerticalPartitioner().fit(frame)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        out = named.transform(NUMBERS)
    assert_array_equal(out, named.transform(frame))
    unnamed = VerticalPartitioner().fit(NUMBERS)
    with pytest.warns(UserWarning, match="X has feature names, but"):
        unnamed.transform(frame)


def test_refit_forgets_names_and_parties():
    partition = VerticalPartitioner(parties=PARTIES).fit(table())
    assert list(partition.feature_names_in_) == NAMES
    partition.set_params(parties=3).fit(NUMBERS)
    assert not hasattr(partition, "feature_names_in_")
    assert partition.n_features_in_ == 6
    assert list(partition.transformers_) == ["party0", "party1", "party2"]


@pytest.mark.parametrize("method", ["transform", "split"])
def test_unfitted(method):
    with pytest.raises(NotFittedError):
        getattr(VerticalPartitioner(), method)(NUMBERS)
    with pytest.raises(NotFittedError):
        VerticalPartitioner().get_feature_names_out()


# Kinds of tables


def test_frames_and_arrays_of_the_same_table_agree():
    frame = numbers_frame()
    expected = VerticalPartitioner(parties=3).fit_transform(NUMBERS)
    for same in (frame, pl.from_pandas(frame), NUMBERS.tolist()):
        out = VerticalPartitioner(parties=3).fit_transform(same)
        assert isinstance(out, np.ndarray)
        assert_array_equal(out, expected)


def test_pandas_and_polars_agree_on_columns_of_any_kind():
    out = VerticalPartitioner(parties=PARTIES).fit_transform(table())
    same = VerticalPartitioner(parties=PARTIES).fit_transform(pl.from_pandas(table()))
    assert_array_equal(out, same)
    assert out.shape == (4, 1 + 3 + 2 + 1)


def test_a_list_of_rows_keeps_its_numbers():
    partition = VerticalPartitioner().fit([[1.5, "Rome"], [2.5, "Oslo"]])
    kinds = {name: each.kinds_ for name, each in partition.transformers_.items()}
    assert kinds == {"party0": ["numbers"], "party1": ["strings"]}


@pytest.mark.parametrize(
    "container",
    [sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array, sparse.coo_array],
)
def test_sparse_tables_stay_sparse_as_far_as_the_transformers_do(container):
    X = np.where(NUMBERS > 0, NUMBERS, 0)
    table = container(X)
    order = [0, 2, 4, 1, 3, 5]
    out = passthrough(2).fit_transform(table)
    assert sparse.issparse(out)
    assert_array_equal(out.toarray(), X[:, order])
    blocks = passthrough(2).fit(table).split(table)
    for block, columns in zip(blocks.values(), ([0, 2, 4], [1, 3, 5]), strict=True):
        assert sparse.issparse(block)
        assert_array_equal(block.toarray(), X[:, columns])
    scaled = VerticalPartitioner().fit_transform(table)
    assert sparse.issparse(scaled)
    assert_array_equal(scaled.toarray() != 0, X[:, order] != 0)
    projection = GaussianProjection(random_state=0)
    projected = VerticalPartitioner(projection).fit_transform(table)
    dense = VerticalPartitioner(projection).fit_transform(X)
    assert isinstance(projected, np.ndarray)
    assert_allclose(projected, dense)


def test_one_sparse_party_makes_the_output_sparse():
    parties = [("bank", OneHotEncoder(), ["city"]), ("shop", StandardScaler(), ["age"])]
    partition = VerticalPartitioner(parties=parties, remainder="drop")
    out = partition.fit_transform(table())
    assert sparse.issparse(out)
    assert out.format == "csr"
    scaled = StandardScaler().fit_transform(table()[["age"]])
    assert_allclose(out.toarray()[:, 3:], scaled)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (NUMBERS[0], r"Expected 2D array, got 1D array instead. Reshape your data"),
        (NUMBERS[:, :, None], "Expected 2D array, got 3D array"),
        (np.float64(1.5), "Expected 2D array, got 0D array"),
        (pd.Series([1.5, 2.5]), "Expected 2D array, got 1D array"),
        (NUMBERS[:0], r"0 sample\(s\)"),
        (table().iloc[:0], r"0 sample\(s\) \(shape=\(0, 4\)\)"),
        (table()[[]], r"0 feature\(s\) \(shape=\(4, 0\)\)"),
    ],
    ids=str,
)
def test_what_is_not_a_table_is_refused(X, message):
    with pytest.raises(ValueError, match=message) as refused:
        VerticalPartitioner().fit(X)
    assert "1.5" not in str(refused.value)


# Output


@pytest.mark.parametrize(
    ("parties", "names"),
    [
        (2, ["party0__x0", "party0__x2", "party1__x1", "party1__x3"]),
        ({"b": [3, 0], "a": [1, 2]}, ["b__x3", "b__x0", "a__x1", "a__x2"]),
    ],
    ids=str,
)
def test_output_names_of_a_table_without_names(parties, names):
    partition = passthrough(parties).fit(NUMBERS[:, :4])
    assert list(partition.get_feature_names_out()) == names
    given_later = partition.get_feature_names_out(NAMES)
    position = [int(name[-1]) for name in names]
    assert [name.split("__")[1] for name in given_later] == [NAMES[i] for i in position]


def test_output_names_are_those_of_the_parties_transformers():
    partition = VerticalPartitioner(parties=PARTIES).fit(table())
    assert list(partition.get_feature_names_out()) == [
        "bank__age",
        "bank__city_Bern",
        "bank__city_Oslo",
        "bank__city_Rome",
        "shop__spend_high",
        "shop__spend_low",
        "shop__visits",
    ]
    assert partition.output_slices_ == {"bank": slice(0, 4), "shop": slice(4, 7)}
    with pytest.raises(
        ValueError, match="input_features is not equal to feature_names"
    ):
        partition.get_feature_names_out(list("abcd"))


def test_pandas_output_keeps_index_and_data_types():
    frame = table().assign(
        when=pd.date_range("2020-01-01", periods=4, tz="UTC"), small=np.float32(1)
    )
    parties = {"shop": ["visits", "when", "city"], "bank": ["age", "small", "spend"]}
    partition = passthrough(parties).set_output(transform="pandas")
    for out in (partition.fit_transform(frame), partition.transform(frame)):
        columns = parties["shop"] + parties["bank"]
        prefixes = ["shop__"] * 3 + ["bank__"] * 3
        expected = frame[columns].set_axis(
            [prefix + column for prefix, column in zip(prefixes, columns, strict=True)],
            axis=1,
        )
        pd.testing.assert_frame_equal(out, expected)
    assert list(frame.columns) == [*NAMES, "when", "small"]


def test_polars_output_keeps_data_types():
    frame = pl.from_pandas(table())
    partition = passthrough(PARTIES).set_output(transform="polars")
    out = partition.fit_transform(frame)
    names = ["bank__age", "bank__city", "shop__spend", "shop__visits"]
    assert out.equals(frame.rename(dict(zip(NAMES, names, strict=True))))
    assert out.dtypes == frame.dtypes


@pytest.mark.parametrize("frame", frames(table()), ids=["pandas", "polars"])
def test_data_types_are_kept_beside_a_party_of_numbers(frame):
    parts = [
        ("bank", "passthrough", ["city", "visits"]),
        ("shop", StandardScaler(), ["age"]),
    ]
    partition = VerticalPartitioner(parties=parts, remainder="drop")
    partition.set_output(transform="pandas" if hasattr(frame, "iloc") else "polars")
    for out in (partition.fit_transform(frame), partition.transform(frame)):
        for column in ("city", "visits"):
            assert out[f"bank__{column}"].dtype == frame[column].dtype
        assert out["shop__age"].dtype in ("float64", pl.Float64)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(
    "X", [NUMBERS, numbers_frame(), pl.from_pandas(numbers_frame())], ids=type
)
def test_output_of_parties_whose_transformers_give_the_same_names(library, X):
    partition = VerticalPartitioner(GaussianProjection(random_state=0), parties=3)
    expected = partition.fit_transform(X)
    out = clone(partition).set_output(transform=library).fit_transform(X)
    assert type(out).__module__.startswith(library)
    assert list(out.columns) == list(partition.get_feature_names_out())
    assert_array_equal(out.to_numpy(), expected)
    with config_context(transform_output=library):
        by_configuration = clone(partition).fit_transform(X)
    assert by_configuration.equals(out)


def test_plain_output_where_frames_are_configured_elsewhere():
    partition = passthrough(PARTIES).set_output(transform="default")
    with config_context(transform_output="pandas"):
        assert isinstance(partition.fit_transform(table()), np.ndarray)


def test_rows_are_glued_by_position_and_not_by_index():
    resets = FunctionTransformer(
        lambda X: X.reset_index(drop=True), feature_names_out="one-to-one"
    )
    parties = [("bank", resets, ["age"]), ("shop", "passthrough", ["city"])]
    partition = VerticalPartitioner(parties=parties, remainder="drop")
    out = partition.set_output(transform="pandas").fit_transform(table())
    assert_array_equal(out.index, table().index)
    assert_array_equal(out["bank__age"], table()["age"])
    assert_array_equal(out["shop__city"], table()["city"])


@pytest.mark.parametrize("X", [table(), pl.from_pandas(table())], ids=type)
def test_same_work_as_column_transformer(X):
    parts = [
        ("bank", OneHotEncoder(sparse_output=False), ["city", "spend"]),
        ("shop", StandardScaler(), ["age"]),
    ]
    ours = VerticalPartitioner(parties=parts, remainder="drop")
    theirs = ColumnTransformer(parts)
    for library in ("pandas", "polars"):
        out = ours.set_output(transform=library).fit_transform(X)
        expected = theirs.set_output(transform=library).fit_transform(X)
        assert out.equals(expected)
        assert list(out.columns) == list(theirs.get_feature_names_out())


def test_same_numbers_as_column_transformer():
    parts = [("a", StandardScaler(), [0, 3]), ("b", MinMaxScaler(), [5, 1, 2, 4])]
    ours = VerticalPartitioner(parties=parts).fit(NUMBERS[:10])
    theirs = ColumnTransformer(parts).fit(NUMBERS[:10])
    assert_array_equal(ours.transform(NUMBERS), theirs.transform(NUMBERS))
    assert ours.output_slices_["a"] == theirs.output_indices_["a"]


# Transformers


def test_every_party_fits_its_own_clone_on_its_own_columns():
    template = StandardScaler()
    partition = VerticalPartitioner(template, parties={"a": [4, 0], "b": [1, 2, 3, 5]})
    partition.fit(NUMBERS)
    assert_array_equal(partition.transformers_["a"].mean_, NUMBERS[:, [4, 0]].mean(0))
    assert partition.transformers_["b"].n_features_in_ == 4
    assert not hasattr(template, "mean_")


def test_names_for_transformers():
    parties = [("a", "auto", ["city"]), ("b", "passthrough", ["age"])]
    partition = VerticalPartitioner(parties=parties, remainder="drop").fit(table())
    assert isinstance(partition.transformers_["a"], PartyPreprocessor)
    assert partition.transform(table())[0].tolist() == [0, 0, 1, 30]


def test_fit_transform_is_fit_and_transform():
    for transformer in ("auto", PCA(1), GaussianProjection(random_state=0)):
        partition = VerticalPartitioner(transformer, parties=3)
        out = clone(partition).fit_transform(NUMBERS)
        assert_allclose(partition.fit(NUMBERS).transform(NUMBERS), out, atol=1e-6)


class Spy(TransformerMixin, BaseEstimator):
    """Keeps what fit was given."""

    def fit(self, X, y=None):
        self.labels_ = y
        return self

    def transform(self, X):
        return X


def test_no_partys_transformer_sees_the_labels():
    y = np.arange(20) % 2
    partition = VerticalPartitioner(Spy(), parties=ImportanceSplit(2, random_state=0))
    partition.fit(NUMBERS, y)
    partition.fit_transform(NUMBERS, y)
    assert [each.labels_ for each in partition.transformers_.values()] == [None, None]


class Changes(TransformerMixin, BaseEstimator):
    """Returns something else after fit than in fit."""

    def __init__(self, in_fit=None, later=None):
        self.in_fit = in_fit
        self.later = later

    def fit_transform(self, X, y=None):
        return X if self.in_fit is None else self.in_fit(X)

    def transform(self, X):
        return X if self.later is None else self.later(X)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda X: X[:-1], "party 'b': its transformer gave 19 rows for 20; rows must"),
        (lambda X: X[:, 0], "party 'b': its transformer's output is not a table"),
        (lambda X: X.tolist(), "party 'b': its transformer's output is not a table"),
    ],
    ids=["rows", "vector", "list"],
)
@pytest.mark.parametrize("when", ["in_fit", "later"])
def test_a_partys_output_must_be_a_table_of_the_same_rows(when, output, message):
    bad = Changes(**{when: output})
    parties = [("a", "passthrough", [0]), ("b", bad, slice(1, None))]
    partition = VerticalPartitioner(parties=parties)
    with pytest.raises(ValueError, match=message) as refused:
        partition.fit(NUMBERS).transform(NUMBERS)
    assert isinstance(refused.value, PartyError)
    assert refused.value.party == "b"


def test_a_partys_output_must_keep_its_width():
    narrower = Changes(later=lambda X: X[:, 1:])
    parties = [("a", "passthrough", [0]), ("b", narrower, slice(1, None))]
    partition = VerticalPartitioner(parties=parties).fit(NUMBERS)
    message = "party 'b': its transformer gave 4 columns after giving 5 in fit"
    with pytest.raises(ValueError, match=message):
        partition.transform(NUMBERS)


def test_an_error_of_the_default_preprocessing_names_party_and_column():
    infinite = table().assign(age=[1.0, 2.0, np.inf, 8231.0])
    message = r"party 'bank': among its own columns, column 'age' \(position 0\) holds"
    with pytest.raises(ValueError, match=message) as refused:
        VerticalPartitioner(parties=PARTIES).fit(infinite)
    assert isinstance(refused.value, PartyError)
    assert "8231" not in str(refused.value)
    lists = table().assign(spend=[[1], [2], [3], [4]])
    with pytest.raises(
        TypeError, match=r"party 'shop': .* column 'spend' \(position 0"
    ):
        VerticalPartitioner(parties=PARTIES).fit(lists)


def test_an_error_of_any_transformer_has_a_note_with_the_party():
    with pytest.raises(ValueError, match="convert string to float") as failed:
        VerticalPartitioner(StandardScaler(), parties=PARTIES).fit(table())
    assert failed.value.__notes__ == ["in the transformer of party 'bank'"]


# Parameters


TRIPLES = [
    ("bank", StandardScaler(), [0, 1, 2]),
    ("shop", make_pipeline(StandardScaler(), PCA(1)), [3, 4, 5]),
]


def test_parameters_of_the_template():
    partition = VerticalPartitioner(PCA(1))
    assert partition.get_params()["transformer__n_components"] == 1
    partition.set_params(transformer__n_components=2, parties=2)
    assert partition.fit_transform(NUMBERS).shape == (20, 4)
    with pytest.raises(ValueError, match="Invalid parameter 'bank'"):
        partition.set_params(bank__n_components=2)


def test_parameters_of_a_splitter():
    partition = VerticalPartitioner(parties=RoundRobin())
    partition.set_params(parties__n_parties=3)
    assert len(held(partition.fit(NUMBERS))) == 3


def test_parameters_of_the_parties_own_transformers():
    partition = VerticalPartitioner(parties=TRIPLES)
    params = partition.get_params()
    assert params["bank"] is TRIPLES[0][1]
    assert params["bank__with_mean"] is True
    assert params["shop__pca__n_components"] == 1
    assert "bank" not in partition.get_params(deep=False)
    twin = clone(partition).set_params(bank__with_mean=False, shop__pca__n_components=2)
    assert twin.get_params()["bank__with_mean"] is False
    assert twin.fit_transform(NUMBERS).shape == (20, 5)
    assert TRIPLES[0][1].with_mean is True
    with pytest.raises(ValueError, match="Invalid parameter 'telco'"):
        twin.set_params(telco__with_mean=True)
    with pytest.raises(ValueError, match="Invalid parameter 'with_meen'"):
        twin.set_params(bank__with_meen=True)


def test_a_partys_own_transformer_can_be_replaced():
    partition = VerticalPartitioner(parties=TRIPLES)
    assert partition.set_params(shop=MinMaxScaler(), bank="passthrough") is partition
    out = partition.fit_transform(NUMBERS)
    assert_array_equal(out[:, :3], NUMBERS[:, :3])
    assert_allclose(out[:, 3:].max(axis=0), 1)
    assert partition.parties is not TRIPLES
    assert isinstance(TRIPLES[1][1][1], PCA)
    partition.set_params(bank=StandardScaler(), bank__with_std=False)
    assert partition.get_params()["bank__with_std"] is False
    assert [columns for _, _, columns in partition.parties] == [[0, 1, 2], [3, 4, 5]]


def test_parties_and_their_parameters_can_be_set_at_once():
    partition = VerticalPartitioner()
    partition.set_params(
        parties=[("a", StandardScaler(), [0])], a__with_mean=False, remainder="drop"
    )
    assert partition.parties[0][1].with_mean is False
    assert partition.remainder == "drop"


def test_search_over_replaced_and_nested_transformers():
    y = (NUMBERS[:, 3] > 0).astype(int)
    pipeline = make_pipeline(
        VerticalPartitioner(
            parties=clone(VerticalPartitioner(parties=TRIPLES)).parties
        ),
        LogisticRegression(),
    )
    step = "verticalpartitioner__"
    grid = {
        f"{step}bank": ["passthrough", MinMaxScaler()],
        f"{step}shop__pca__n_components": [1, 3],
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(NUMBERS, y)
    assert len(search.cv_results_["params"]) == 4
    best = search.best_estimator_[0]
    n_components = search.best_params_[f"{step}shop__pca__n_components"]
    assert best.transform(NUMBERS).shape == (20, 3 + n_components)


def test_parameters_through_an_estimators_parties():
    y = (NUMBERS[:, 3] > 0).astype(int)
    parties = [
        ("bank", StandardScaler(), [0, 1, 2]),
        ("shop", PCA(2), [3, 4, 5]),
    ]
    vfl = RandomProjectionVFL(
        LogisticRegression(), parties=VerticalPartitioner(parties=parties)
    )
    assert vfl.get_params()["parties__shop__n_components"] == 2
    grid = {
        "parties__bank__with_mean": [True, False],
        "parties__shop__n_components": [3],
        "parties__remainder": ["drop"],
    }
    search = GridSearchCV(vfl, grid, cv=2, error_score="raise").fit(NUMBERS, y)
    assert search.best_estimator_.transform(NUMBERS).shape == (20, 6)
    assert search.best_estimator_.partition_.remainder == "drop"
    vfl.set_params(parties__shop=MinMaxScaler())
    assert isinstance(vfl.parties.parties[1][1], MinMaxScaler)
    assert isinstance(parties[1][1], PCA)


@pytest.mark.parametrize(
    "parties", [3, RoundRobin(3), PARTIES, TRIPLES, VerticalPartitioner()], ids=type
)
def test_anything_that_says_who_holds_what_becomes_a_partitioner(parties):
    partition = as_partition(parties)
    assert isinstance(partition, VerticalPartitioner)
    assert partition is not parties
    if isinstance(parties, VerticalPartitioner):
        assert repr(partition) == repr(parties)
    else:
        assert partition.parties is parties


def test_constructor_parameters_are_left_as_they_are():
    parties = {"bank": ["age", "city"], "shop": ["spend"]}
    partition = VerticalPartitioner(parties=parties, remainder="shop").fit(table())
    assert partition.parties is parties
    assert parties == {"bank": ["age", "city"], "shop": ["spend"]}


# Random numbers


def shared_columns(transformer, **params):
    """Two parties of the same three columns."""
    return VerticalPartitioner(
        transformer,
        parties={"a": [0, 1, 2], "b": [0, 1, 2]},
        allow_overlap=True,
        remainder="drop",
        **params,
    )


@pytest.mark.parametrize(
    "projection",
    [
        GaussianProjection(),
        GaussianProjection(random_state=0),
        GaussianProjection(random_state=np.random.RandomState(0)),
        make_pipeline(StandardScaler(), GaussianProjection(random_state=0)),
    ],
    ids=["unseeded", "seeded", "generator", "pipeline"],
)
@pytest.mark.parametrize("random_state", [None, 0])
def test_parties_of_equal_width_draw_different_matrices(projection, random_state):
    partition = shared_columns(projection, random_state=random_state)
    out = partition.fit_transform(NUMBERS)
    assert np.abs(out[:, :3] - out[:, 3:]).min() > 1e-9
    seeds = [
        str(each.get_params()[name])
        for each in [projection, *partition.transformers_.values()]
        for name in each.get_params()
        if name.endswith("random_state")
    ]
    shown = {re.sub(" at 0x.*", "", seed) for seed in seeds}
    assert len(shown) == 1, "a derived seed is shown"


@pytest.mark.parametrize(
    "partition",
    [
        shared_columns(GaussianProjection(random_state=0)),
        shared_columns(GaussianProjection(), random_state=0),
        VerticalPartitioner(parties=RoundRobin(2, shuffle=True), random_state=0),
        VerticalPartitioner(parties=RoundRobin(2, shuffle=True, random_state=0)),
    ],
    ids=["template", "partitioner", "splitter by partitioner", "splitter"],
)
def test_a_seed_makes_the_output_reproducible(partition, rng_guard):
    first = clone(partition).fit_transform(NUMBERS)
    assert_array_equal(clone(partition).fit_transform(NUMBERS), first)
    assert_array_equal(partition.fit(NUMBERS).transform(NUMBERS), first)
    assert_array_equal(partition.fit(NUMBERS).transform(NUMBERS), first)


def test_without_a_seed_every_fit_draws_anew():
    partition = shared_columns(GaussianProjection())
    first, second = (partition.fit_transform(NUMBERS) for _ in range(2))
    assert np.abs(first - second).min() > 0
    assert partition.transformer.random_state is None


def test_other_seeds_give_other_numbers():
    outputs = [
        shared_columns(GaussianProjection(), random_state=seed).fit_transform(NUMBERS)
        for seed in (0, 1, np.random.RandomState(0))
    ]
    for first, second in zip(outputs, outputs[1:] + outputs[:1], strict=True):
        assert np.abs(first - second).min() > 0
    partition = passthrough(RoundRobin(2, shuffle=True))
    splits = {
        tuple(partition.set_params(random_state=seed).fit(NUMBERS).parties_["party0"])
        for seed in range(5)
    }
    assert len(splits) > 1


def test_a_seed_of_the_splitter_is_kept():
    splitter = RoundRobin(2, shuffle=True, random_state=3)
    partition = passthrough(splitter, random_state=0).fit(NUMBERS)
    expected = splitter.split_columns(NUMBERS)
    assert held(partition) == {k: v.tolist() for k, v in expected.items()}


def test_a_given_root_seeds_splitter_and_parties_unless_there_is_a_seed():
    def draw(partition, root):
        partition = clone(partition)
        partition._fit_columns(NUMBERS, sequence=np.random.SeedSequence(root))
        made = partition._make_transformers(np.random.SeedSequence(root))
        return (
            partition.splitter_.random_state,
            *(each.fit_transform(NUMBERS)[0, 0] for each in made.values()),
        )

    unseeded = VerticalPartitioner(
        GaussianProjection(), parties=RoundRobin(2, shuffle=True)
    )
    assert draw(unseeded, 1) == draw(unseeded, 1)
    assert len(set(draw(unseeded, 1) + draw(unseeded, 2))) == 6
    seeded = unseeded.set_params(random_state=0)
    assert draw(seeded, 1) == draw(seeded, 2)


def test_columns_with_integer_labels_are_found_by_label():
    frame = pd.DataFrame(NUMBERS)
    partition = VerticalPartitioner("passthrough", parties=2).fit(frame)
    permuted = frame[list(frame.columns[::-1])]
    assert_array_equal(partition.transform(permuted), partition.transform(frame))
    with pytest.raises(ValueError, match="'party1': column 1 is missing"):
        partition.transform(frame.drop(columns=1))


def test_masked_arrays_and_lazy_frames_are_refused():
    masked = np.ma.masked_array(NUMBERS, NUMBERS > 0)
    with pytest.raises(ValueError, match="masked"):
        VerticalPartitioner().fit(masked)
    with pytest.raises(TypeError, match="collect"):
        VerticalPartitioner().fit(pl.from_numpy(NUMBERS).lazy())


def test_a_transformer_that_is_none_is_refused_in_words():
    with pytest.raises(ValueError, match="None is neither 'auto' nor 'passthrough'"):
        VerticalPartitioner(parties=[("a", None, [0])], remainder="drop").fit(NUMBERS)


# Several parties at a time


@pytest.mark.slow
def test_workers_give_the_same_output_and_errors():
    partition = VerticalPartitioner(GaussianProjection(), parties=3, random_state=0)
    alone = partition.fit_transform(NUMBERS)
    together = clone(partition).set_params(n_jobs=2)
    assert_array_equal(together.fit_transform(NUMBERS), alone)
    assert_array_equal(together.transform(NUMBERS), alone)
    framed = clone(together).set_output(transform="pandas").fit_transform(NUMBERS)
    assert_array_equal(framed.to_numpy(), alone)
    infinite = NUMBERS.copy()
    infinite[0, 1] = np.inf
    with pytest.raises(PartyError, match="party 'party1'"):
        clone(together).set_params(transformer="auto").fit(infinite)


# Callbacks


class Recorder:
    """Keeps the order of a fit's tasks."""

    def __init__(self):
        self.events = []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(("begin", context.estimator_name, context.task_name))

    def on_fit_task_end(self, estimator, context):
        self.events.append(("end", context.estimator_name, context.task_name))

    def started(self):
        return [event[1:] for event in self.events if event[0] == "begin"]


class PropagatedRecorder(Recorder):
    max_propagation_depth = None


def test_callbacks_see_one_task_for_each_party():
    recorder = Recorder()
    partition = VerticalPartitioner(parties={"bank": [0, 1, 2], "shop": [3, 4, 5]})
    partition.set_callbacks(recorder).fit(NUMBERS)
    name = "VerticalPartitioner"
    expected = [
        "setup",
        ("begin", name, "fit"),
        ("begin", name, "fit bank"),
        ("end", name, "fit bank"),
        ("begin", name, "fit shop"),
        ("end", name, "fit shop"),
        ("end", name, "fit"),
        "teardown",
    ]
    assert recorder.events == expected
    partition.transform(NUMBERS)
    assert recorder.events == expected


def test_callbacks_reach_the_parties_transformers():
    recorder = PropagatedRecorder()
    partition = VerticalPartitioner(make_pipeline(StandardScaler()), parties=2)
    partition.set_callbacks(recorder).fit(NUMBERS)
    started = [name for name, _ in recorder.started()]
    each_party = ["Pipeline", "StandardScaler"]
    assert [name for name in started if name != "VerticalPartitioner"] == each_party * 2
    for transformer in partition.transformers_.values():
        assert not hasattr(transformer, "_skl_callbacks")


def test_callbacks_are_torn_down_after_an_error():
    recorder = Recorder()
    partition = VerticalPartitioner(parties=2).set_callbacks(recorder)
    with pytest.raises(ValueError, match="party 'party0'"):
        partition.fit(np.full((3, 2), np.inf))
    assert recorder.events[0] == "setup"
    assert recorder.events[-1] == "teardown"


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_progress_bar(n_jobs, capsys):
    pytest.importorskip("rich")
    partition = VerticalPartitioner(parties=3, n_jobs=n_jobs)
    expected = partition.fit_transform(NUMBERS)
    out = partition.set_callbacks(ProgressBar()).fit_transform(NUMBERS)
    assert_array_equal(out, expected)
    printed = capsys.readouterr().out
    assert "VerticalPartitioner - fit" in printed
    assert "100%" in printed


# What can be seen of a partitioner


def secrets():
    """A table whose values are easy to find again, and their texts."""
    frame = pd.DataFrame(
        {
            "age": [8231.25] * 3 + [8231.5],
            "city": ["Quxville"] * 3 + ["Zyzzyx"],
            "seen": pd.Timestamp("2017-03-29"),
        }
    )
    return frame, ["8231", "Quxville", "Zyzzyx", "2017-03-29"]


@pytest.mark.parametrize(
    "parties",
    [
        2,
        RoundRobin(2),
        {"bank": ["age"], "shop": ["city", "seen"]},
        {"bank": lambda X: ["age"], "shop": [False, True, True]},
        [
            ("bank", StandardScaler(), ["age"]),
            ("shop", make_pipeline(PartyPreprocessor(), GaussianProjection()), [1, 2]),
        ],
    ],
    ids=["int", "splitter", "names", "selectors", "triples"],
)
def test_html_shows_the_parties_and_no_value(parties):
    frame, values = secrets()
    transformer = make_pipeline(PartyPreprocessor(), GaussianProjection())
    partition = VerticalPartitioner(transformer, parties=parties)
    unfitted = partition._repr_html_()
    fitted = partition.fit(frame)._repr_html_()
    assert fitted != unfitted
    for name, columns in held(partition).items():
        assert re.search(rf"<div>{name}</div>", fitted)
        assert f"<pre>{columns}</pre>" in fitted
    for value in values:
        assert value not in unfitted
        assert value not in fitted


def test_html_shows_categories_only_as_names_of_output_columns():
    frame, values = secrets()
    partition = VerticalPartitioner(parties={"bank": ["age", "city", "seen"]})
    shown = partition.fit(frame)._repr_html_()
    for name in partition.get_feature_names_out():
        assert f"<td>{name}</td>" in shown
        shown = shown.replace(f"<td>{name}</td>", "")
    for value in values:
        assert value not in shown


def test_html_escapes_names():
    frame = numbers_frame().rename(columns={"a": "<age>"})
    partition = passthrough({"<bank>": ["<age>"], "shop": list("bcdef")})
    for shown in (partition._repr_html_(), partition.fit(frame)._repr_html_()):
        assert "&lt;bank&gt;" in shown
        assert "<bank>" not in shown
        assert "<age>" not in shown


def test_html_of_any_transformer():
    parties = [
        ("bank", "passthrough", [0, 1]),
        ("shop", "auto", [2, 3]),
        ("telco", FunctionTransformer(feature_names_out="one-to-one"), [4]),
        ("post", make_pipeline(PCA(1)), [5]),
    ]
    partition = VerticalPartitioner(parties=parties)
    unfitted = partition._repr_html_()
    assert "FunctionTransformer" in unfitted
    assert "PCA" in unfitted
    fitted = partition.fit(NUMBERS)._repr_html_()
    for text in ("passthrough", "auto", "FunctionTransformer", "Pipeline"):
        assert f"<div>{text}</div>" in fitted


@pytest.mark.parametrize("parties", [3, Contiguous(2), {"a": [1], "b": 2}, TRIPLES])
def test_copies_give_the_same_output(parties):
    partition = VerticalPartitioner(parties=parties, remainder="drop").fit(NUMBERS)
    expected = partition.transform(NUMBERS)
    for twin in (copy.deepcopy(partition), pickle.loads(pickle.dumps(partition))):
        assert_array_equal(twin.transform(NUMBERS), expected)
        assert list(twin.parties_) == list(partition.parties_)
    assert not hasattr(clone(partition), "parties_")
    assert_allclose(clone(partition).fit_transform(NUMBERS), expected)


def test_a_fitted_partitioner_holds_no_row():
    control = Spy().fit(NUMBERS, NUMBERS)
    row = NUMBERS[7].tobytes()
    assert row in pickle.dumps(control)
    single = VerticalPartitioner(parties={"a": slice(None)}).fit(NUMBERS)
    assert row not in pickle.dumps(single)


@pytest.mark.parametrize("n_rows", [1, 511, 512, 513, 1031])
def test_a_block_has_all_rows_however_many_there_are(n_rows):
    """Blocks are copied in pieces; memory that was not written shows as garbage."""
    X = np.random.default_rng(0).normal(size=(n_rows, 3))
    parties = {"bank": [2, 0], "shop": [1]}
    partition = VerticalPartitioner("passthrough", parties=parties).fit(NUMBERS[:, :3])
    for _ in range(3):
        blocks = partition.split(X)
        assert_array_equal(blocks["bank"], X[:, [2, 0]])
        assert_array_equal(blocks["shop"], X[:, [1]])
        assert blocks["bank"].flags.f_contiguous
        assert not np.shares_memory(blocks["bank"], X)


class Plain(TransformerMixin, BaseEstimator):
    """A transformer with the tags that all have."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


def test_tags_are_what_all_transformers_agree_on():
    def tags(*transformers):
        parties = [(f"p{i}", each, [i]) for i, each in enumerate(transformers)]
        return get_tags(VerticalPartitioner(parties=parties))

    same, mixed = tags(MaxAbsScaler(), MaxAbsScaler()), tags(MaxAbsScaler(), Plain())
    assert same.input_tags.sparse
    assert same.input_tags.allow_nan
    assert not mixed.input_tags.sparse
    assert not mixed.input_tags.allow_nan
    for transformers, expected in (
        ([PCA(1), PCA(1)], ["float64", "float32"]),
        ([PCA(1), Plain()], ["float64"]),
    ):
        assert tags(*transformers).transformer_tags.preserves_dtype == expected


@pytest.mark.parametrize(
    ("parties", "takes"),
    [
        (2, True),
        (VerticalPartitioner(), True),
        (VerticalPartitioner(PartyPreprocessor()), True),
        (VerticalPartitioner("passthrough"), False),
        (VerticalPartitioner(parties=[("a", "auto", [0]), ("b", "auto", [1])]), True),
        (VerticalPartitioner(parties=[("a", "auto", [0]), ("b", PCA(), [1])]), False),
    ],
)
def test_missing_values_are_taken_where_every_party_prepares_by_default(parties, takes):
    tags = get_tags(RandomProjectionVFL(parties=parties))
    assert tags.input_tags.allow_nan is takes


@pytest.mark.parametrize("n_bins", [4, 32])
def test_trees_on_binned_parties_are_the_trees_of_pooled_bins(n_bins):
    X, y = make_classification(400, 12, n_informative=8, random_state=0)
    bins = KBinsDiscretizer(
        n_bins, encode="ordinal", strategy="quantile", quantile_method="linear"
    )
    trees = HistGradientBoostingClassifier(max_iter=10, random_state=0)
    partition = VerticalPartitioner(bins, parties=4)
    apart = make_pipeline(partition, trees).fit(X[:300], y[:300])
    order = np.concatenate([*apart[0].parties_.values()])
    pooled = make_pipeline(bins, trees).fit(X[:300, order], y[:300])
    assert_array_equal(
        apart.predict_proba(X[300:]), pooled.predict_proba(X[300:, order])
    )
    unbinned = clone(trees).fit(X[:300, order], y[:300])
    assert (
        apart.predict_proba(X[300:]) != unbinned.predict_proba(X[300:, order])
    ).any()
