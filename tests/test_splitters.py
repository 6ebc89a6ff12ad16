import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_wine,
)
from sklearn.utils import check_random_state

from skvfl.exceptions import InvalidColumnError
from skvfl.partition import _splitters
from skvfl.partition._splitters import (
    Contiguous,
    CorrelationSplit,
    ImageTiles,
    ImportanceSplit,
    RoundRobin,
)

SPLITTERS = [
    RoundRobin(),
    RoundRobin(shuffle=True, random_state=0),
    Contiguous(),
    ImportanceSplit(random_state=0),
    CorrelationSplit(random_state=0),
]
MEASURING = [ImportanceSplit(random_state=0), CorrelationSplit(random_state=0)]


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True)


def identify(splitter):
    return repr(splitter)


def assert_partition(columns, n_columns, n_parties):
    assert list(columns) == [f"party{i}" for i in range(n_parties)]
    assert all(len(held) > 0 for held in columns.values())
    assert all((np.diff(held) > 0).all() for held in columns.values())
    together = np.concatenate(list(columns.values()))
    assert together.dtype.kind == "i"
    assert_array_equal(np.sort(together), np.arange(n_columns))


def assert_same_split(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert_array_equal(left[name], right[name])


def global_generator_state():
    _, key, position, *_ = check_random_state(None).get_state()
    return key.tobytes(), position


def mixed_frame(n=60):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": np.where(np.arange(n) % 7 == 0, np.nan, rng.normal(size=n)),
            "town": pd.array([["a", "b", None][i % 3] for i in range(n)], "string"),
            "kind": pd.Categorical([["x", "y"][i % 2] for i in range(n)]),
            "yes": rng.random(n) < 0.5,
            "maybe": pd.array(
                [[True, None, False][i % 3] for i in range(n)], "boolean"
            ),
            "count": pd.array([None if i % 5 == 0 else i for i in range(n)], "Int64"),
            "when": pd.date_range("2020-01-01", periods=n, tz="UTC"),
            "empty": [None] * n,
            "same": np.ones(n),
        }
    )


# What every splitter owes


@given(
    splitter=st.sampled_from(SPLITTERS),
    n_columns=st.integers(1, 12),
    n_parties=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_every_column_has_one_party(splitter, n_columns, n_parties, seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 5, (30, n_columns)).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    y = rng.integers(0, 2, 30)
    splitter = clone(splitter).set_params(n_parties=n_parties)
    if n_columns < n_parties:
        with pytest.raises(ValueError, match=f"n_features={n_columns} columns"):
            splitter.split_columns(X, y)
    else:
        assert_partition(splitter.split_columns(X, y), n_columns, n_parties)


@pytest.mark.parametrize("splitter", SPLITTERS, ids=identify)
def test_seed_decides_and_global_generator_is_untouched(splitter, cancer):
    before = global_generator_state()
    first = clone(splitter).split_columns(*cancer)
    second = clone(splitter).split_columns(*cancer)
    assert_same_split(first, second)
    assert global_generator_state() == before


@pytest.mark.parametrize(
    "splitter",
    [
        RoundRobin(shuffle=True),
        ImportanceSplit(),
        CorrelationSplit(level=0.5),
    ],
    ids=identify,
)
def test_other_seeds_give_other_splits(splitter, cancer):
    splits = {
        tuple(splitter.set_params(random_state=seed).split_columns(*cancer)["party0"])
        for seed in range(5)
    }
    assert len(splits) > 1


@pytest.mark.parametrize("splitter", SPLITTERS, ids=identify)
def test_containers_of_the_same_table_agree(splitter, cancer):
    X, y = cancer
    X = X * (np.median(X, axis=0) < X)
    expected = splitter.split_columns(X, y)
    for other in (
        pd.DataFrame(X),
        pl.DataFrame(X),
        X.tolist(),
        sparse.csr_matrix(X),
        sparse.csc_array(X),
        sparse.coo_array(X),
    ):
        assert_same_split(splitter.split_columns(other, y), expected)
    for labels in (pd.Series(y), pl.Series(y), y.astype(str), y.tolist()):
        assert_same_split(splitter.split_columns(X, labels), expected)


@pytest.mark.parametrize("splitter", SPLITTERS, ids=identify)
def test_mixed_columns(splitter):
    frame = mixed_frame()
    y = np.arange(len(frame)) % 2
    expected = splitter.split_columns(frame, y)
    assert_partition(expected, frame.shape[1], 2)
    assert_same_split(splitter.split_columns(pl.from_pandas(frame), y), expected)
    as_objects = frame.to_numpy(dtype=object)
    assert_same_split(splitter.split_columns(as_objects, y), expected)


@pytest.mark.parametrize("splitter", SPLITTERS, ids=identify)
def test_one_dimensional_table_is_refused(splitter):
    with pytest.raises(ValueError, match="reshape X"):
        splitter.split_columns(np.zeros(4), np.zeros(4))


@pytest.mark.parametrize("splitter", MEASURING, ids=identify)
def test_measuring_needs_rows(splitter):
    with pytest.raises(ValueError, match="n_samples=0"):
        splitter.split_columns(np.zeros((0, 4)), np.zeros(0))


@pytest.mark.parametrize("splitter", MEASURING, ids=identify)
@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame])
def test_cells_with_several_values_are_refused(splitter, container):
    cells = [np.array([31337, i]) for i in range(6)]
    X = container({"plain": range(6), "several": cells})
    with pytest.raises(InvalidColumnError, match=r"'several' \(position 1\)") as info:
        splitter.split_columns(X, np.arange(6) % 2)
    assert "31337" not in str(info.value)


def test_cells_without_a_common_order_are_compared_as_text():
    mixed = pd.DataFrame({"mixed": [1, "a"] * 20, "constant": 0})
    y = np.arange(40) % 2
    splitter = ImportanceSplit(random_state=0)
    splitter.split_columns(mixed, y)
    expected = ImportanceSplit(random_state=0)
    expected.split_columns(mixed.astype(str), y)
    assert splitter.importances_[0] > 0.6
    assert_array_equal(splitter.importances_, expected.importances_)


@pytest.mark.parametrize("splitter", MEASURING, ids=identify)
def test_infinite_cells_rank_last(splitter, cancer):
    X, y = cancer
    infinite = X.copy()
    infinite[X[:, 0].argmax(), 0] = np.inf
    assert_same_split(splitter.split_columns(infinite, y), splitter.split_columns(X, y))


@pytest.mark.parametrize(
    ("splitter", "message"),
    [
        (RoundRobin(0), "'n_parties' parameter of RoundRobin"),
        (RoundRobin(shuffle="yes"), "'shuffle' parameter of RoundRobin"),
        (RoundRobin(random_state="x"), "'random_state' parameter of RoundRobin"),
        (Contiguous(1.5), "'n_parties' parameter of Contiguous"),
        (ImportanceSplit(concentration=0), "'concentration' parameter of Importance"),
        (CorrelationSplit(level=1.1), "'level' parameter of CorrelationSplit"),
        (ImageTiles(shape=784), "'shape' parameter of ImageTiles"),
    ],
    ids=lambda value: repr(value) if not isinstance(value, str) else "",
)
def test_parameters_are_validated(splitter, message, cancer):
    with pytest.raises(ValueError, match=message):
        splitter.split_columns(*cancer)


# RoundRobin and Contiguous


def test_round_robin_deals_in_turn():
    columns = RoundRobin(3).split_columns(np.zeros((2, 8)))
    assert_array_equal(columns["party0"], [0, 3, 6])
    assert_array_equal(columns["party1"], [1, 4, 7])
    assert_array_equal(columns["party2"], [2, 5])


def test_shuffled_round_robin_keeps_sizes_and_reaches_every_split():
    splits = set()
    for seed in range(200):
        columns = RoundRobin(2, shuffle=True, random_state=seed).split_columns(
            np.zeros((1, 5))
        )
        assert len(columns["party0"]) == 3
        splits.add(tuple(columns["party0"]))
    assert splits == set(itertools.combinations(range(5), 3))


@given(k=st.integers(1, 20), extra=st.integers(0, 40))
def test_contiguous_follows_published_boundaries(k, extra):
    d = k + extra
    columns = Contiguous(k).split_columns(np.zeros((1, d)))
    for i in range(k):
        expected = np.arange(i * d // k, (i + 1) * d // k)
        assert_array_equal(columns[f"party{i}"], expected)


# ImportanceSplit


def test_importance_of_known_columns():
    n = 400
    y = np.arange(n) % 2
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "label": y,
            "noise": rng.normal(size=n),
            "constant": np.ones(n),
            "identifier": [f"row {i}" for i in rng.permutation(n)],
            "missing tells": np.where(y == 1, np.nan, 3.0),
            "empty": np.full(n, np.nan),
        }
    )
    splitter = ImportanceSplit(random_state=0)
    splitter.split_columns(X, y)
    label, noise, constant, identifier, missing, empty = splitter.importances_
    assert label == pytest.approx(np.log(2), abs=2 / n)
    assert missing == label
    assert constant == empty == 0
    assert identifier == pytest.approx(0, abs=1e-9)
    assert 0 <= noise < 0.02


def test_importance_does_not_depend_on_monotone_scale(cancer):
    X, y = cancer
    plain, scaled = ImportanceSplit(random_state=0), ImportanceSplit(random_state=0)
    plain.split_columns(X, y)
    scaled.split_columns(np.exp(X / X.max(axis=0)), y)
    assert_array_equal(plain.importances_, scaled.importances_)


def test_importance_for_numeric_label_finds_the_known_columns():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    splitter = ImportanceSplit(random_state=0)
    splitter.split_columns(X, y)
    best = X.columns[np.argsort(-splitter.importances_)[:2]]
    assert set(best) == {"bmi", "s5"}
    correlation = [abs(spearmanr(X[name], y)[0]) for name in X]
    assert spearmanr(splitter.importances_, correlation)[0] > 0.7


def test_shares_are_those_of_the_columns(cancer):
    splitter = ImportanceSplit(3, random_state=4)
    columns = splitter.split_columns(*cancer)
    total = splitter.importances_.sum()
    for name, held in columns.items():
        expected = splitter.importances_[held].sum() / total
        assert splitter.shares_[name] == pytest.approx(expected)
    a, b, c = splitter.shares_.values()
    expected = (abs(a - b) + abs(a - c) + abs(b - c)) / 2
    assert splitter.concentration_ == pytest.approx(expected)


@pytest.mark.parametrize("n_parties", [2, 4])
@pytest.mark.parametrize("load", [load_breast_cancer, load_digits])
def test_achieved_shares_approach_the_draw(load, n_parties, monkeypatch):
    wanted = []
    deal = _splitters._deal

    def spy(importances, shares):
        wanted.append(shares)
        return deal(importances, shares)

    monkeypatch.setattr(_splitters, "_deal", spy)
    for seed in range(10):
        splitter = ImportanceSplit(n_parties, random_state=seed)
        splitter.split_columns(*load(return_X_y=True))
        achieved = np.array(list(splitter.shares_.values()))
        assert np.abs(achieved - wanted[-1]).max() < 0.02


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
@pytest.mark.parametrize("n_parties", [2, 3])
def test_concentration_falls_as_the_parameter_grows(load, n_parties):
    X, y = load(return_X_y=True)
    means = []
    for concentration in (0.05, 0.5, 5, 500):
        measured = []
        for seed in range(12):
            splitter = ImportanceSplit(
                n_parties, concentration=concentration, random_state=seed
            )
            splitter.split_columns(X, y)
            measured.append(splitter.concentration_)
        means.append(np.mean(measured))
    assert (np.diff(means) < -0.05).all()
    assert means[0] > 0.75
    assert means[-1] < 0.06


@pytest.mark.parametrize("concentration", [1e-300, 1e-3, 1e300])
def test_extreme_concentrations(concentration, cancer):
    splitter = ImportanceSplit(4, concentration=concentration, random_state=0)
    assert_partition(splitter.split_columns(*cancer), 30, 4)
    expected = 0 if concentration > 1 else 1
    assert splitter.concentration_ == pytest.approx(expected, abs=0.02)


def test_single_party_is_not_uneven(cancer):
    splitter = ImportanceSplit(1, random_state=0)
    splitter.split_columns(*cancer)
    assert splitter.shares_ == {"party0": 1.0}
    assert splitter.concentration_ == 0


def test_no_importance_anywhere():
    splitter = ImportanceSplit(3, concentration=0.01, random_state=0)
    columns = splitter.split_columns(np.ones((10, 7)), np.arange(10) % 2)
    assert sorted(len(held) for held in columns.values()) == [2, 2, 3]
    assert splitter.shares_ == dict.fromkeys(columns, 1 / 3)
    assert splitter.concentration_ == 0


def test_unimportant_columns_go_where_columns_are_few():
    n = 300
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, n)
    X = np.c_[y, np.ones((n, 8)), y, y]
    splitter = ImportanceSplit(2, concentration=0.001, random_state=0)
    columns = splitter.split_columns(X, y)
    assert splitter.concentration_ == pytest.approx(1)
    assert sorted(len(held) for held in columns.values()) == [5, 6]


def test_importance_needs_the_label(cancer):
    X, y = cancer
    with pytest.raises(ValueError, match=r"pass y, as in split_columns\(X, y\)"):
        ImportanceSplit().split_columns(X)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ImportanceSplit().split_columns(X, y[:-1])
    with pytest.raises(ValueError, match="1d array"):
        ImportanceSplit().split_columns(X, np.c_[y, y])
    with pytest.raises(ValueError, match="holds no label"):
        ImportanceSplit().split_columns(X, np.full(len(y), np.nan))


@pytest.mark.parametrize("missing", [np.nan, None])
def test_importance_leaves_rows_without_a_label_out(cancer, missing):
    X, y = cancer
    known = np.arange(len(y)) % 3 > 0
    labels = y.astype(float if missing is not None else object)
    labels[~known] = missing
    splitter, expected = (
        ImportanceSplit(random_state=0),
        ImportanceSplit(random_state=0),
    )
    splitter.split_columns(X, labels)
    expected.split_columns(X[known], y[known])
    np.testing.assert_allclose(
        splitter.importances_, expected.importances_, rtol=0, atol=1e-12
    )


def test_importance_on_a_sample_of_the_rows(monkeypatch):
    X, y = load_digits(return_X_y=True)
    whole, sampled = ImportanceSplit(random_state=0), ImportanceSplit(random_state=0)
    whole.split_columns(X, y)
    monkeypatch.setattr(_splitters, "MAX_ROWS", 600)
    sampled.split_columns(X, y)
    assert not np.array_equal(whole.importances_, sampled.importances_)
    assert np.corrcoef(whole.importances_, sampled.importances_)[0, 1] > 0.98


# CorrelationSplit


def mean_correlations(X, columns):
    """The definition, pair by pair."""
    r = np.abs(spearmanr(X)[0])
    party = {j: name for name, held in columns.items() for j in held}
    within, between = [], []
    for i, j in itertools.combinations(range(X.shape[1]), 2):
        (within if party[i] == party[j] else between).append(r[i, j])
    return np.mean(within), np.mean(between)


@pytest.mark.parametrize("level", [0, 0.4, 1])
@pytest.mark.parametrize("n_parties", [2, 4])
def test_reported_correlations_follow_the_definition(level, n_parties, cancer):
    X, _ = cancer
    splitter = CorrelationSplit(n_parties, level=level, random_state=0)
    within, between = mean_correlations(X, splitter.split_columns(X))
    assert splitter.within_correlation_ == pytest.approx(within)
    assert splitter.between_correlation_ == pytest.approx(between)
    assert splitter.correlation_ == pytest.approx(within - between)


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine, load_digits])
@pytest.mark.parametrize("n_parties", [2, 3, 5])
def test_correlation_rises_with_level(load, n_parties):
    X = load().data
    within, correlation = [], []
    for level in (0, 0.25, 0.5, 0.75, 1):
        splitter = CorrelationSplit(n_parties, level=level, random_state=0)
        columns = splitter.split_columns(X)
        sizes = [len(held) for held in columns.values()]
        assert max(sizes) - min(sizes) <= 1
        within.append(splitter.within_correlation_)
        correlation.append(splitter.correlation_)
    reached = (np.array(within) - within[0]) / (within[-1] - within[0])
    assert reached == pytest.approx([0, 0.25, 0.5, 0.75, 1], abs=0.05)
    assert correlation[0] < 0 < correlation[-1]
    assert (np.diff(correlation) > 0).all()


def test_extremes_are_the_best_of_all_splits():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 8)) @ rng.normal(size=(8, 8))
    every = [
        mean_correlations(X, {"a": half, "b": sorted(set(range(8)) - set(half))})[0]
        for half in itertools.combinations(range(8), 4)
    ]
    for level, expected in ((0, min(every)), (1, max(every))):
        splitter = CorrelationSplit(2, level=level, random_state=0)
        splitter.split_columns(X)
        assert splitter.within_correlation_ == pytest.approx(expected)


def test_groups_of_copies_are_recovered_and_spread():
    rng = np.random.default_rng(0)
    source = rng.normal(size=(500, 3))
    group = np.array([2, 0, 1, 1, 0, 2, 0, 2, 1])
    X = source[:, group]
    together = CorrelationSplit(3, level=1, random_state=0)
    for held in together.split_columns(X).values():
        assert len(set(group[held])) == 1
    assert together.within_correlation_ == pytest.approx(1)
    apart = CorrelationSplit(3, level=0, random_state=0)
    for held in apart.split_columns(X).values():
        assert len(set(group[held])) == 3
    assert apart.within_correlation_ < 0.15


def test_constant_empty_and_text_columns():
    n = 90
    number = np.arange(n, dtype=float)
    X = pd.DataFrame(
        {
            "number": number,
            "word": [f"{i:03}" for i in range(n)],
            "constant": "same",
            "empty": np.nan,
        }
    )
    splitter = CorrelationSplit(2, random_state=0)
    columns = splitter.split_columns(X)
    assert {tuple(held) for held in columns.values()} == {(0, 1), (2, 3)}
    assert splitter.within_correlation_ == pytest.approx(0.5)
    assert splitter.between_correlation_ == 0


def test_missing_cells_count_as_the_middle():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(301, 2))
    holes = X.copy()
    holes[:100, 0] = np.nan
    filled = X.copy()
    filled[:100, 0] = np.median(X[100:, 0])
    splitter = CorrelationSplit(1, random_state=0)
    splitter.split_columns(holes)
    assert splitter.within_correlation_ == pytest.approx(
        abs(spearmanr(filled)[0]), abs=0.01
    )


def test_correlations_of_pairs_that_do_not_exist():
    X = load_wine().data
    alone = CorrelationSplit(13, random_state=0)
    alone.split_columns(X)
    assert np.isnan(alone.within_correlation_)
    assert alone.between_correlation_ > 0
    one = CorrelationSplit(1, random_state=0)
    one.split_columns(X)
    assert one.within_correlation_ == pytest.approx(alone.between_correlation_)
    assert np.isnan(one.between_correlation_)


# ImageTiles


def test_tiles_are_rectangles_of_pixels():
    columns = ImageTiles((3, 5), (2, 2)).split_columns(np.zeros((1, 15)))
    assert_array_equal(columns["party0"], [0, 1])
    assert_array_equal(columns["party1"], [2, 3, 4])
    assert_array_equal(columns["party2"], [5, 6, 10, 11])
    assert_array_equal(columns["party3"], [7, 8, 9, 12, 13, 14])


def test_channels_stay_with_their_pixel():
    image = np.arange(4 * 4 * 3).reshape(4, 4, 3)
    columns = ImageTiles((4, 4, 3), (2, 2)).split_columns(image.reshape(1, -1))
    assert_array_equal(columns["party1"], image[:2, 2:].ravel())
    assert_array_equal(columns["party2"], image[2:, :2].ravel())


@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    channels=st.sampled_from([(), (1,), (3,)]),
    data=st.data(),
)
def test_tiles_partition_every_image(shape, channels, data):
    tiles = tuple(data.draw(st.integers(1, side)) for side in shape)
    X = sparse.csr_array((1, int(np.prod(shape + channels))))
    columns = ImageTiles(shape + channels, list(tiles)).split_columns(X)
    assert_partition(columns, X.shape[1], tiles[0] * tiles[1])
    images = np.arange(X.shape[1]).reshape(shape + channels)
    for held in columns.values():
        row, column = np.unravel_index(held, images.shape)[:2]
        box = (np.ptp(row) + 1) * (np.ptp(column) + 1) * int(np.prod(channels))
        assert len(held) == box


@pytest.mark.parametrize(
    ("shape", "tiles", "message"),
    [
        ((28, 28), (2, 2), "784 pixels, but X has n_features=64 columns"),
        ((8, 8), (9, 1), "ask for fewer tiles"),
        ((8, 8), (1, 9), "ask for fewer tiles"),
        ((64,), (1, 1), "shape must be 2 or 3 positive integers"),
        ((8, 8.0), (1, 1), "shape must be 2 or 3 positive integers"),
        ((8, 8), (2, 2, 2), "tiles must be 2 positive integers"),
        ((8, 8), (0, 2), "tiles must be 2 positive integers"),
    ],
)
def test_image_errors(shape, tiles, message):
    with pytest.raises(ValueError, match=message):
        ImageTiles(shape, tiles).split_columns(np.zeros((1, 64)))
