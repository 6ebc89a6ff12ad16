import sys
from itertools import chain
from math import isnan

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skvfl import (
    APCVFLClassifier,
    ComparisonDisplay,
    CorrelationSplit,
    RandomProjectionVFL,
    SplitNNClassifier,
    VerticalPartitioner,
    compare,
)

PARTIES = {"bank": [0, 1, 2], "shop": [3, 4], "telco": slice(5, None)}
MODEL = LogisticRegression()
TRAFFIC = ["rounds", "messages", "bytes", "transfer_seconds"]


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:, :10], y


@pytest.fixture(scope="module")
def rap():
    return RandomProjectionVFL(MODEL)


@pytest.fixture(scope="module")
def frame(cancer, rap):
    rows = {"RAP": rap, "open": clone(rap).set_params(label_protection=False)}
    return compare(
        rows, *cancer, parties=PARTIES, active="shop", baseline=MODEL, random_state=0
    )


@pytest.fixture(autouse=True)
def agg():
    with mpl.rc_context({"backend": "Agg"}):
        yield
        plt.close("all")


class Witness(RegressorMixin, BaseEstimator):
    """Stands for a federated estimator and remembers what reaches it."""

    seen = []
    n_rounds, n_messages, n_bytes = 2, 3, 100

    def __init__(self, parties=2, active=0, random_state=None):
        self.parties = parties
        self.active = active
        self.random_state = random_state

    @property
    def communication_(self):
        return self

    @property
    def epsilon_spent_(self):
        return float(self.n_rows_)

    def transfer_time(self, *, bandwidth, latency):
        return bandwidth + latency * self.n_rows_

    def fit(self, X, y):
        self.n_rows_ = len(X)
        self.seen.append((self, X[:, 0].tolist()))
        return self

    def predict(self, X):
        return X[:, 0]


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setattr(Witness, "seen", [])
    return Witness.seen


def test_compare_has_a_row_for_every_way_to_learn(frame):
    assert frame["shares"].to_dict() == {
        "centralised": "raw columns",
        "bank alone": "raw labels",
        "shop alone": "nothing",
        "telco alone": "raw labels",
        "RAP": "messages",
        "open": "messages",
    }
    assert list(frame) == [
        *("model", "shares", "score", "score_std"),
        *("gain", "gain_low", "gain_high", "verdict"),
        *("rounds", "messages", "bytes", "fit_seconds", "transfer_seconds"),
        *("epsilon", "who_sees_what", "error"),
    ]
    words = ["model", "shares", "verdict", "who_sees_what", "error"]
    numbers = frame.drop(columns=words)
    assert all(pd.api.types.is_float_dtype(numbers[name]) for name in numbers)
    assert (frame["error"] == "").all()


def test_compare_centralised_is_the_pipeline_on_all_columns(cancer, frame):
    pipeline = make_pipeline(VerticalPartitioner(parties=PARTIES), MODEL)
    scores = cross_val_score(pipeline, *cancer)
    assert frame.loc["centralised", "score"] == scores.mean()
    assert frame.loc["centralised", "score_std"] == scores.std()


@pytest.mark.parametrize("party", PARTIES)
def test_compare_party_alone_is_the_pipeline_on_its_columns(cancer, frame, party):
    X, y = cancer
    pipeline = make_pipeline(VerticalPartitioner(parties=1), MODEL)
    scores = cross_val_score(pipeline, X[:, PARTIES[party]], y)
    assert frame.loc[f"{party} alone", "score"] == scores.mean()


def test_compare_method_is_cross_validated_on_the_given_parties(cancer, frame, rap):
    rap = clone(rap).set_params(parties=PARTIES, active="shop", random_state=0)
    rap.set_params(estimator__random_state=0)
    scores = cross_val_score(rap, *cancer)
    assert frame.loc["RAP", "score"] == scores.mean()


def test_compare_counts_what_a_fit_sends(cancer, rap):
    X, y = cancer
    split = [(np.arange(0, 400), np.arange(400, len(X)))]
    row = compare(
        {"RAP": rap},
        X,
        y,
        parties=PARTIES,
        baseline=MODEL,
        cv=split,
        bandwidth=1e6,
        latency=0.5,
    ).loc["RAP"]
    log = clone(rap).set_params(parties=PARTIES).fit(X[:400], y[:400]).communication_
    assert row["bytes"] == log.n_bytes
    assert (row["rounds"], row["messages"]) == (log.n_rounds, log.n_messages) == (1, 4)
    assert row["transfer_seconds"] == 8 * log.n_bytes / 1e6 + 2 * 0.5
    assert isnan(row["epsilon"])


def test_compare_traffic_is_zero_only_where_nothing_is_shared(frame):
    assert frame.loc["shop alone", TRAFFIC].tolist() == [0, 0, 0, 0]
    others = ["centralised", "bank alone", "telco alone"]
    assert frame.loc[others, TRAFFIC].isna().all(axis=None)
    assert frame["epsilon"].isna().all()


def test_compare_averages_over_folds_and_keeps_the_largest_epsilon(seen):
    X = np.arange(20.0).reshape(10, 2)
    split = [(np.arange(6), np.arange(6, 10)), (np.arange(8), np.arange(8, 10))]
    row = compare(
        {"w": Witness()}, X, X[:, 0], baseline=Ridge(), cv=split, bandwidth=1, latency=2
    ).loc["w"]
    assert row[TRAFFIC].tolist() == [2, 3, 100, 1 + 2 * 7]
    assert (row["score"], row["score_std"], row["epsilon"]) == (1, 0, 8)


def test_compare_gives_every_row_the_same_folds_of_a_random_splitter(seen):
    X = np.random.default_rng(0).normal(size=(30, 4))
    rows = {"first": Witness(), "second": Witness()}
    compare(rows, X, X[:, 0], baseline=Ridge(), cv=KFold(3, shuffle=True))
    folds = [rows for _, rows in seen]
    assert folds[:3] == folds[3:]
    assert folds[0] != folds[1]
    assert sorted(folds[0] + folds[1] + folds[2]) == sorted([*X[:, 0]] * 2)


def test_compare_stratifies_the_folds_of_a_classification(cancer):
    X, y = cancer
    order = np.argsort(y, kind="stable")
    options = {"baseline": MODEL, "random_state": 0}
    rap = RandomProjectionVFL(MODEL)
    by_number = compare(rap, X[order], y[order], cv=3, **options)
    by_folds = compare(rap, X[order], y[order], cv=StratifiedKFold(3), **options)
    pd.testing.assert_series_equal(by_number["score"], by_folds["score"])


def test_compare_deals_the_columns_once_for_all_rows_and_folds(seen):
    X = np.random.default_rng(0).normal(size=(40, 8))
    rows = {"first": Witness(), "second": Witness()}
    split = CorrelationSplit(n_parties=3)
    compare(rows, X, X[:, 0], parties=split, active=1, baseline=Ridge(), cv=2)
    dealt = [
        {name: held.tolist() for name, held in estimator.parties.parties.items()}
        for estimator, _ in seen
    ]
    assert len(dealt) == 4
    assert all(each == dealt[0] for each in dealt)
    assert sorted(chain(*dealt[0].values())) == [*range(8)]
    assert {estimator.active for estimator, _ in seen} == {list(dealt[0])[1]}


def test_compare_takes_parties_with_transformers_of_their_own(cancer, rap):
    X, y = StandardScaler().fit_transform(cancer[0]), cancer[1]
    triples = [
        ("owner", "passthrough", []),
        ("bank", StandardScaler(), [0, 1]),
        ("shop", PCA(2), slice(2, 6)),
    ]
    partition = VerticalPartitioner(parties=triples, remainder="drop")
    options = {"active": "owner", "baseline": MODEL, "random_state": 0}
    frame = compare(rap, X, y, parties=partition, **options)
    assert [*frame.index[:-1]] == ["centralised", "bank alone", "shop alone"]
    pipeline = make_pipeline(PCA(2), MODEL)
    expected = cross_val_score(pipeline, X[:, 2:6], y).mean()
    assert frame.loc["shop alone", "score"] == expected
    named = pd.DataFrame(X).add_prefix("c")
    again = compare(rap, named, y, parties=partition, **options)
    pd.testing.assert_series_equal(again["score"], frame["score"])


@pytest.mark.parametrize("transformer", ["auto", "passthrough", PCA(2)])
def test_compare_baselines_keep_the_partitions_transformer(cancer, rap, transformer):
    X, y = cancer
    parties = {"a": [0, 1, 2], "b": [3, 4, 5]}
    frame = compare(
        rap,
        X,
        y,
        parties=VerticalPartitioner(transformer, parties=parties, remainder="drop"),
        baseline=MODEL,
        scoring="neg_log_loss",
        cv=2,
        random_state=0,
    )
    prepare = VerticalPartitioner(transformer, parties={"b": [0, 1, 2]})
    alone = make_pipeline(prepare, MODEL)
    expected = cross_val_score(alone, X[:, 3:6], y, cv=2, scoring="neg_log_loss").mean()
    assert frame.loc["b alone", "score"] == pytest.approx(expected, rel=1e-6)
    together = make_pipeline(VerticalPartitioner(transformer, parties=parties), MODEL)
    expected = cross_val_score(together, X[:, :6], y, cv=2, scoring="neg_log_loss")
    assert frame.loc["centralised", "score"] == pytest.approx(expected.mean(), rel=1e-6)


def test_compare_gives_the_remainder_to_its_party(cancer, rap):
    X, y = cancer
    partition = VerticalPartitioner(parties={"a": [0], "b": [1]}, remainder="b")
    frame = compare(rap, X, y, parties=partition, baseline=MODEL)
    pipeline = make_pipeline(StandardScaler(), MODEL)
    expected = cross_val_score(pipeline, X[:, 1:], y).mean()
    assert frame.loc["b alone", "score"] == pytest.approx(expected, abs=0.005)


def test_compare_names_a_single_estimator_by_its_class(cancer, rap):
    split = ShuffleSplit(1, test_size=0.3, random_state=0)
    frame = compare(rap, *cancer, baseline=MODEL, cv=split)
    assert frame.index[-1] == "RandomProjectionVFL"
    assert (frame["score_std"] == 0).all()


def test_compare_leaves_the_callers_objects_unchanged(cancer):
    rap, baseline = RandomProjectionVFL(MODEL), LogisticRegression()
    partition = VerticalPartitioner(make_pipeline(StandardScaler(), PCA()))
    objects = [rap, baseline, partition, MODEL]
    before = [(repr(each.get_params()), set(vars(each))) for each in objects]
    split = ShuffleSplit(1, random_state=0)
    compare(
        rap, *cancer, parties=partition, baseline=baseline, cv=split, random_state=0
    )
    after = [(repr(each.get_params()), set(vars(each))) for each in objects]
    assert after == before


def test_compare_seeds_what_has_no_seed(seen, rng_guard):
    X = np.random.default_rng(0).normal(size=(20, 4))
    options = {"baseline": Ridge(), "cv": 2}
    rows = {"free": Witness(), "fixed": Witness(random_state=5)}
    compare(rows, X, X[:, 0], random_state=3, **options)
    compare(rows, X, X[:, 0], **options)
    assert [each.random_state for each, _ in seen] == [3, 3, 5, 5, None, None, 5, 5]


def test_compare_is_reproducible_and_independent_of_n_jobs(cancer):
    rap = RandomProjectionVFL(DummyClassifier(strategy="stratified"))
    options = {"baseline": rap.estimator, "random_state": 0, "cv": 3}
    alone = compare(rap, *cancer, **options).drop(columns="fit_seconds")
    parallel = compare(rap, *cancer, n_jobs=2, **options).drop(columns="fit_seconds")
    pd.testing.assert_frame_equal(alone, parallel)
    other = compare(rap, *cancer, **{**options, "random_state": 1})
    assert (other["score"] != alone["score"]).all()


@pytest.mark.parametrize("scoring", ["roc_auc", lambda model, X, y: len(X)])
def test_compare_scores_by_the_given_scorer(cancer, rap, scoring):
    split = ShuffleSplit(1, test_size=100, random_state=0)
    options = {"baseline": MODEL, "cv": split, "scoring": scoring}
    frame = compare(rap, *cancer, parties=PARTIES, **options)
    pipeline = make_pipeline(VerticalPartitioner(parties=PARTIES), MODEL)
    [expected] = cross_val_score(pipeline, *cancer, cv=split, scoring=scoring)
    assert frame.loc["centralised", "score"] == expected
    if callable(scoring):
        assert (frame["score"] == 100).all()


def test_compare_trains_a_linear_model_and_trees_by_default(cancer, rap):
    split = ShuffleSplit(1, test_size=0.3, random_state=0)
    frame = compare(rap, *cancer, cv=split, random_state=4)
    models = {
        "linear": LogisticRegression(max_iter=1000),
        "trees": HistGradientBoostingClassifier(l2_regularization=0.1, random_state=4),
        "LogisticRegression": MODEL,  # RAP's own
    }
    ways = ["centralised", "party0 alone", "party1 alone"]
    rows = [f"{way}, {model}" for way in ways for model in models]
    assert [*frame.index] == [*rows, "RandomProjectionVFL"]
    for name, model in models.items():
        pipeline = make_pipeline(VerticalPartitioner(), model)
        expected = cross_val_score(pipeline, *cancer, cv=split).mean()
        row = frame.loc[f"centralised, {name}"]
        assert (row["score"], row["model"]) == (expected, type(model).__name__)


def test_compare_measures_a_method_against_its_own_servers_model(cancer):
    split = ShuffleSplit(1, test_size=0.3, random_state=0)
    tree, forest = DecisionTreeClassifier(), DecisionTreeClassifier(max_depth=2)
    methods = {
        "a": RandomProjectionVFL(tree),
        "same": RandomProjectionVFL(clone(tree), label_protection=False),
        "b": RandomProjectionVFL(forest),
        "apc": APCVFLClassifier(max_epochs=1),
        "split": SplitNNClassifier(max_epochs=1),
    }
    frame = compare(methods, *cancer, cv=split, baseline=MODEL, random_state=0)
    models = ["LogisticRegression", "DecisionTreeClassifier"]
    models.append("DecisionTreeClassifier of b")
    assert [*frame.index[:3]] == [f"centralised, {name}" for name in models]
    assert len(frame) == 3 * 3 + len(methods)


def test_compare_standardises_the_target_of_a_servers_perceptron():
    X, y = load_diabetes(return_X_y=True)
    y = 1000 * y + 1e6
    split = ShuffleSplit(1, test_size=0.3, random_state=0)
    rap = RandomProjectionVFL("regressor")
    frame = compare(rap, X, y, cv=split, random_state=0)
    network = TransformedTargetRegressor(
        MLPRegressor(hidden_layer_sizes=(128,), random_state=0),
        transformer=StandardScaler(),
    )
    pipeline = make_pipeline(VerticalPartitioner(), network)
    expected = cross_val_score(pipeline, X, y, cv=split).mean()
    row = frame.loc["centralised, MLPRegressor"]
    assert (row["score"], row["model"]) == (expected, "MLPRegressor")
    assert expected > 0.2
    assert "centralised, trees" in frame.index


def test_compare_ridge_regression_is_the_same_over_orthogonal_projections():
    X, y = load_diabetes(return_X_y=True)
    rap = RandomProjectionVFL(Ridge(), label_protection=False)
    frame = compare(rap, X, y, parties=PARTIES, baseline=Ridge(), scoring="r2")
    expected = frame.loc["centralised", "score"]
    assert frame.loc["RandomProjectionVFL", "score"] == pytest.approx(expected)
    assert (frame["score"].iloc[1:4] < expected).all()


def test_compare_takes_lists(cancer, rap):
    X, y = cancer[0][:100], cancer[1][:100]
    options = {"baseline": MODEL, "random_state": 0}
    pd.testing.assert_series_equal(
        compare(rap, X.tolist(), y.tolist(), **options)["score"],
        compare(rap, X, y, **options)["score"],
    )


@pytest.mark.parametrize(
    ("estimators", "options", "message"),
    [
        ({}, {}, "methods is empty"),
        (
            {"tree": DummyClassifier()},
            {},
            "'tree' .DummyClassifier. has no",
        ),
        (
            {"grid": GridSearchCV(Ridge(), {})},
            {},
            "'grid' .GridSearchCV. has no .*'parties'.*baseline",
        ),
        (
            {"centralised": RandomProjectionVFL(MODEL)},
            {"baseline": MODEL},
            r"named \['centralised'\]",
        ),
        (
            {"party1 alone, trees": RandomProjectionVFL()},
            {},
            r"named \['party1 alone, trees'\]",
        ),
        (
            {"a": RandomProjectionVFL(), "b": RandomProjectionVFL("regressor")},
            {},
            r"\['a', .*'the baseline trees'\] classify and \['b'\] do not",
        ),
        (
            RandomProjectionVFL(),
            {"baseline": Ridge()},
            r"\['RandomProjectionVFL'\] classify and \['the baseline Ridge'\] do not",
        ),
        (RandomProjectionVFL(), {"active": "bank"}, "active='bank' is not one of"),
        (RandomProjectionVFL(), {"bandwidth": 0}, "'bandwidth' parameter of compare"),
        (RandomProjectionVFL(), {"latency": -1.0}, "'latency' parameter of compare"),
        (RandomProjectionVFL(), {"baseline": 3}, "'baseline' parameter of compare"),
        (RandomProjectionVFL(), {"random_state": -1}, "'random_state' parameter"),
        (7, {}, "'methods' parameter of compare"),
    ],
)
def test_compare_explains_what_is_wrong_before_fitting(
    cancer, monkeypatch, estimators, options, message
):
    monkeypatch.setattr("skvfl.evaluation._run._fit_and_score", None)
    with pytest.raises(ValueError, match=message):
        compare(estimators, *cancer, **options)


def test_a_failed_method_is_a_row_with_its_error(cancer, rap):
    X = cancer[0].copy()
    X[3, 4] = np.inf
    options = {"parties": PARTIES, "baseline": MODEL, "active": "bank", "cv": 2}
    frame = compare({"RAP": rap}, X, cancer[1], **options)
    failed = frame.loc["RAP"]
    assert "party 'shop'" in failed["error"]
    assert failed["error"].startswith("PartyValueError: ")
    assert failed["verdict"] == "no score"
    numbers = failed.drop(["model", "shares", "verdict", "who_sees_what", "error"])
    assert numbers.isna().all()
    assert frame.loc[["bank alone", "telco alone"], "score"].notna().all()
    with pytest.raises(ValueError, match=r"no method has a score; .*RAP: PartyValue"):
        ComparisonDisplay(frame).plot()


@pytest.mark.parametrize(
    ("module", "call", "extra"),
    [
        ("pandas", lambda: compare(RandomProjectionVFL(), [[0, 1]], [0]), "frames"),
        ("matplotlib", lambda: ComparisonDisplay(None).plot(), "plot"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, module, call, extra):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"{module}.pyplot", raising=False)
    with pytest.raises(ImportError, match=rf"{module}: pip install 'skvfl\[{extra}\]'"):
        call()


@pytest.mark.parametrize("x", [*TRAFFIC, "fit_seconds"])
def test_display_draws_methods_at_their_cost_and_the_rest_as_lines(frame, x):
    display = ComparisonDisplay(frame).plot(x)
    ax = display.ax_
    assert display.figure_ is ax.figure
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    for name in frame.index[:4]:
        assert [*lines[name]] == [frame.loc[name, "score"]] * 2
    bars = {bar.get_label(): bar for bar in ax.containers}
    assert set(bars) == {"RAP", "open"}
    for name, bar in bars.items():
        [point] = zip(*bar.lines[0].get_data(), strict=True)
        assert point == (frame.loc[name, x], frame.loc[name, "score"])
        low, high = ax.get_xlim()
        assert low < point[0] < high
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == [*frame.index]


def test_display_refuses_a_cost_that_no_method_has(frame):
    with pytest.raises(ValueError, match=r"over 'epsilon': .*FedOnceClassifier"):
        ComparisonDisplay(frame).plot("epsilon")


def test_display_draws_where_it_is_told(frame):
    _, ax = plt.subplots()
    assert ComparisonDisplay(frame).plot(ax=ax).ax_ is ax
    assert ax.get_xlabel() == "bytes sent by one fit"


def test_display_refuses_an_unknown_cost(frame):
    with pytest.raises(ValueError, match="x='score' is not one of"):
        ComparisonDisplay(frame).plot("score")


def test_display_from_estimators_is_compare_and_plot(cancer, rap):
    options = {"parties": PARTIES, "baseline": MODEL, "random_state": 0, "cv": 2}
    _, ax = plt.subplots()
    display = ComparisonDisplay.from_estimators(
        {"RAP": rap}, *cancer, x="rounds", ax=ax, **options
    )
    expected = compare({"RAP": rap}, *cancer, **options)
    pd.testing.assert_frame_equal(
        display.frame.drop(columns="fit_seconds"), expected.drop(columns="fit_seconds")
    )
    assert display.ax_ is ax
    assert ax.get_xlabel() == "communication rounds of one fit"
