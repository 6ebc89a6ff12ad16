"""Boosted trees over parties: those of pooled columns, and who sees what of them."""

import pickle

import numpy as np
import pandas as pd
import pytest
from _role_views import Watch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr
from sklearn.base import clone, is_classifier
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_wine,
    make_regression,
)
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer

from skvfl import (
    VerticalPartitioner,
    VFLBoostingClassifier,
    VFLBoostingRegressor,
)
from skvfl.boosting import _histograms, _lessons
from skvfl.boosting._histograms import Bundled, Histograms
from skvfl.boosting._parties import PassiveSettings
from skvfl.boosting._splits import Columns
from skvfl.exceptions import ColumnWarning, PartyError, TrainingError
from skvfl.federation import Holding, Member
from skvfl.privacy import record_views
from skvfl.privacy.attacks import BinSumsAttack

pytestmark = pytest.mark.filterwarnings("ignore::skvfl.exceptions.MissingRowsWarning")
QUICK = {"max_iter": 8, "random_state": 0}


def in_turn(n_columns, names=("bank", "shop", "telco")):
    """Columns shared out so that all of them in order are the table's."""
    parts = np.array_split(np.arange(n_columns), len(names))
    return {name: part.tolist() for name, part in zip(names, parts, strict=True)}


def pooled(estimator):
    """scikit-learn's own for all columns, with the same settings."""
    kinds = HistGradientBoostingRegressor, HistGradientBoostingClassifier
    kind = kinds[is_classifier(estimator)]
    own = estimator.get_params(deep=False)
    return kind(**{k: v for k, v in own.items() if k in kind().get_params()})


def answers(estimator, X):
    ask = estimator.predict_proba if is_classifier(estimator) else estimator.predict
    return ask(X)


def both(estimator, X, y, **fit):
    """Answers over parties, and of pooled columns."""
    shared = clone(estimator).set_params(parties=in_turn(X.shape[1])).fit(X, y, **fit)
    return answers(shared, X), answers(pooled(estimator).fit(X, y, **fit), X)


def with_gaps(load):
    X, y = load(return_X_y=True)
    X[np.random.default_rng(0).random(X.shape) < 0.15] = np.nan
    return X, y


def with_few_values(load):
    X, y = load(return_X_y=True)
    X = np.floor(2 * (X - X.mean(axis=0)) / X.std(axis=0)).clip(-1, 1)
    X[:, ::2] = X[:, ::2] > 0
    X[np.random.default_rng(0).random(len(X)) < 0.2, ::5] = np.nan
    return X, y


classifier = VFLBoostingClassifier(missing_rows="impute", **QUICK)
regressor = VFLBoostingRegressor(missing_rows="impute", **QUICK)
CASES = {
    "two classes": (classifier, load_breast_cancer(return_X_y=True)),
    "three classes": (classifier, load_wine(return_X_y=True)),
    "target": (regressor, load_diabetes(return_X_y=True)),
    "missing values": (classifier, with_gaps(load_breast_cancer)),
    "missing values, target": (regressor, with_gaps(load_diabetes)),
    "few values": (classifier, with_few_values(load_breast_cancer)),
    "few values, target": (regressor, with_few_values(load_diabetes)),
}
SETTINGS = {
    "default": {},
    "by level": {"max_leaf_nodes": None, "max_depth": 3},
    "small": {"max_bins": 12, "max_leaf_nodes": 5, "min_samples_leaf": 3},
    "careful": {"l2_regularization": 2.0, "learning_rate": 0.5, "max_depth": 4},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", CASES)
def test_the_trees_are_those_of_pooled_columns(name, settings):
    estimator, (X, y) = CASES[name]
    shared, expected = both(clone(estimator).set_params(**SETTINGS[settings]), X, y)
    assert_allclose(shared, expected, rtol=1e-9, atol=1e-12)


def test_and_so_they_are_with_weights():
    X, y = load_breast_cancer(return_X_y=True)
    weights = np.random.default_rng(0).uniform(0.2, 3, len(y))
    X = X.round(1)  # Bins of pooled columns would go by the weights.
    X = X[:, [len(np.unique(column)) <= 255 for column in X.T]]
    for class_weight in (None, "balanced", {0: 3.0}):
        estimator = clone(classifier).set_params(class_weight=class_weight)
        shared, expected = both(estimator, X, y, sample_weight=weights)
        assert_allclose(shared, expected, rtol=1e-9, atol=1e-12)
    shared, expected = both(regressor, X[:, 1:], X[:, 0], sample_weight=weights)
    assert_allclose(shared, expected, rtol=1e-9)


LOSSES = {
    "absolute_error": {},
    "quantile": {"quantile": 0.8},
    "poisson": {},
    "gamma": {},
}


@pytest.mark.parametrize(
    "loss",
    [
        "absolute_error",
        "poisson",
        # Each has the code of a sibling, and another number.
        pytest.param("quantile", marks=pytest.mark.slow),
        pytest.param("gamma", marks=pytest.mark.slow),
    ],
)
def test_every_loss_has_the_trees_of_pooled_columns(loss):
    X, y = load_diabetes(return_X_y=True)
    estimator = clone(regressor).set_params(loss=loss, **LOSSES[loss])
    shared, expected = both(estimator, X, y)
    assert_allclose(shared, expected, rtol=1e-9)
    weights = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    X = X.round(2)  # Bins of pooled columns would go by the weights.
    shared, expected = both(estimator, X, y, sample_weight=weights)
    assert_allclose(shared, expected, rtol=1e-9)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n_rows = 1500
    X = pd.DataFrame(
        {
            "age": rng.normal(size=n_rows),
            "job": rng.choice([*"abcdefgh"], n_rows),
            "town": rng.choice(["x", "y", "zz"], n_rows),
            "kids": rng.integers(0, 9, n_rows),
        }
    )
    y = X.age + 2 * X.job.isin([*"ace"]) - (X.town == "x") + rng.normal(size=n_rows) / 5
    X.loc[rng.random(n_rows) < 0.1, "job"] = None
    return X, y


def test_and_so_they_are_with_categories(people):
    X, y = people
    declared = X.astype({"job": "category", "town": "category"})
    parties = {"bank": ["age", "job"], "shop": ["town", "kids"]}
    shared = clone(regressor).set_params(parties=parties, max_iter=40).fit(X, y)
    expected = HistGradientBoostingRegressor(max_iter=40).fit(declared, y)
    assert_allclose(shared.predict(X), expected.predict(declared), rtol=1e-9)
    # A category that nobody has seen is a missing value, there and here.
    later, declared = X.head(50).copy(), declared.head(50).copy()
    later["job"], declared["job"] = "actor", declared["job"].where(later.kids < -1)
    with pytest.warns(match="holds categories that fit did not see"):
        found = shared.predict(later)
    assert_allclose(found, expected.predict(declared), rtol=1e-9)


class Codes(FunctionTransformer):
    """Says that its columns are codes of categories."""

    def fit(self, X, y=None):
        self.categorical_ = np.ones(X.shape[1], bool)
        return super().fit(X, y)


def test_more_categories_than_bins_are_refused():
    X = np.arange(60.0).reshape(30, 2) % 20
    parties = VerticalPartitioner(
        parties=[("bank", Codes(), [0]), ("shop", "auto", [1])]
    )
    estimator = VFLBoostingRegressor(parties=parties, max_bins=4)
    with pytest.raises(PartyError, match=r"'bank'.*categories than max_bins=4: let"):
        estimator.fit(X, X[:, 0])
    estimator.set_params(max_bins=20).fit(X, X[:, 0])


def test_text_dates_and_booleans_are_read(people):
    X, y = people
    X = X.assign(
        price=[f"{each:.2f} €" for each in X.age],
        day=pd.Timestamp("2024-01-01") + pd.to_timedelta(X.kids, "D"),
        old=X.age > 1,
    )
    X = X.drop(columns=["age", "kids"])
    parties = {"bank": ["price", "job"], "shop": ["day", "town", "old"]}
    shared = clone(regressor).set_params(parties=parties, max_iter=40)
    assert shared.fit(X, y).score(X, y) > 0.9


def test_a_column_without_any_value_is_no_constant_here():
    X, y = load_diabetes(return_X_y=True)
    expected = pooled(regressor).fit(X[:, :9], y).predict(X[:, :9])
    X[:, 9] = np.nan
    with pytest.warns(ColumnWarning, match="no value at all: no tree splits by it"):
        shared = clone(regressor).set_params(parties=in_turn(10)).fit(X, y)
    assert_allclose(shared.predict(X), expected, rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_numpy_adds_up_as_the_compiled_builder_does(name, monkeypatch):
    estimator, (X, y) = CASES[name]
    assert _histograms.HistogramBuilder is not None
    parties = in_turn(X.shape[1])
    compiled = clone(estimator).set_params(parties=parties).fit(X, y)
    monkeypatch.setattr(_histograms, "HistogramBuilder", None)
    plain = clone(estimator).set_params(parties=parties).fit(X, y)
    assert_array_equal(answers(plain, X), answers(compiled, X))
    assert plain.communication_.messages == compiled.communication_.messages


@pytest.mark.parametrize(("missing", "n_bundled"), [(4, 16), (40, 11), (255, 7)])
def test_sums_are_those_of_the_rows_in_each_bin(missing, n_bundled):
    # Columns of few bins are added up together, as many as fit.
    rng = np.random.default_rng(0)
    n_bins = np.minimum([2, 4, 2, 1, 16, 2, 3, 60, 2, 15, 1, 2, 2, 2, 2, 4], missing)
    has_missing = np.arange(len(n_bins)) % 3 == 0
    bins = rng.integers(0, n_bins, (500, len(n_bins))).astype(np.uint8, order="F")
    bins[rng.random(bins.shape) < 0.1 * has_missing] = missing
    bins[0, ::5] = missing  # held out: nobody was told that values are missing
    rows = np.flatnonzero(rng.random(500) < 0.5).astype(np.uint32)
    rows = rows[rows > 0]
    first, second = rng.normal(size=(2, 500)).astype(np.float32)
    columns = Columns(n_bins, has_missing, np.zeros(len(n_bins), bool))
    bundled = Bundled(bins, columns, missing)
    assert bundled.bins.shape[1] == n_bundled
    assert bundled.bins.max() <= missing
    sums = Histograms(bundled, first, second).add_up(rows)
    cells = [
        rows[bins[rows, j] == each]
        for j in range(len(n_bins))
        for each in [*range(n_bins[j]), *[missing] * int(has_missing[j])]
    ]
    assert_array_equal(sums[2], [len(those) for those in cells])
    for found, derivative in zip(sums, (first, second), strict=False):
        expected = [derivative[those].sum(dtype=float) for those in cells]
        assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_columns_added_up_together_share_no_derivative():
    bins = np.zeros((4, 8), np.uint8, "F")
    bins[0] = 1
    columns = Columns(np.full(8, 2), *np.zeros((2, 8), bool))
    bundled = Bundled(bins, columns, 255)
    assert bundled.bins.shape[1] == 1
    first = np.array([np.inf, 1, 1, 1], np.float32)
    sums = Histograms(bundled, first, None).add_up(np.arange(4, dtype=np.uint32))
    assert_array_equal(sums[0], [3, np.inf] * 8)


def test_many_rows_are_cut_at_the_quantiles_of_some():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(230_000, 2))
    y = X[:, 0] + X[:, 1]
    options = {"parties": in_turn(2, ["bank", "shop"]), "max_iter": 2, "max_bins": 16}
    scores = [
        VFLBoostingRegressor(**options, random_state=seed).fit(X, y).score(X, y)
        for seed in (0, 0, 1)
    ]
    assert scores[0] == scores[1] != scores[2]
    assert abs(scores[0] - scores[2]) < 0.01


# Early stopping


def test_early_stopping_goes_back_to_the_best_trees():
    X, y = load_breast_cancer(return_X_y=True)
    options = {"early_stopping": True, "n_iter_no_change": 3, "learning_rate": 0.5}
    shared = VFLBoostingClassifier(parties=3, max_iter=200, random_state=1, **options)
    shared.fit(X, y)
    curve = shared.validation_loss_curve_
    assert shared.n_iter_ == len(curve) == len(shared.loss_curve_) < 200
    best = int(np.argmin(curve))
    assert best < len(curve) - 1
    assert len(shared._parties["party0"]._forest.trees) == best + 1
    # No more is asked for, and no more kept, than these trees have.
    n_splits = {name: len(party._splits) for name, party in shared._parties.items()}
    assert n_splits == shared._n_splits
    brief = clone(shared).set_params(max_iter=best + 1).fit(X, y)
    assert_array_equal(brief.predict_proba(X), shared.predict_proba(X))
    losses = [curve[best] * 57 + shared.loss_curve_[best] * 512]
    assert_allclose(losses[0], 569 * log_loss(y, shared.predict_proba(X)), rtol=1e-9)


@pytest.mark.parametrize(
    "name",
    [
        "three classes",
        pytest.param("two classes", marks=pytest.mark.slow),
        pytest.param("missing values", marks=pytest.mark.slow),
    ],
)
def test_a_warm_start_grows_the_trees_of_a_longer_fit(name):
    estimator, (X, y) = CASES[name]
    whole = clone(estimator).set_params(max_iter=8).fit(X, y)
    parts = clone(estimator).set_params(max_iter=5, warm_start=True).fit(X, y)
    parts.set_params(max_iter=3).fit(X, y)
    assert parts.n_iter_ == 8
    assert_array_equal(answers(parts, X), answers(whole, X))
    # One round more, which says where the rows lie at the splits that there are.
    operations = {m.operation for m in parts.communication_.messages}
    assert operations - {m.operation for m in whole.communication_.messages} == {
        "route"
    }


def test_a_warm_start_goes_on_with_other_rows_and_units():
    X, y = load_diabetes(return_X_y=True)
    parts = VFLBoostingRegressor(parties=2, warm_start=True, **QUICK)
    first = parts.fit(X[:300], y[:300]).predict(X)
    # Hardly a step, so that the first trees say what they said.
    parts.set_params(learning_rate=1e-12, max_iter=1).fit(X[100:], 1000 * y[100:])
    assert_allclose(parts.predict(X), first)
    parts.set_params(learning_rate=0.1, max_iter=40).fit(X[100:], 1000 * y[100:])
    assert parts.score(X[100:], 1000 * y[100:]) > 0.7


def test_what_a_warm_start_cannot_go_on_with_is_said():
    X, y = load_diabetes(return_X_y=True)
    parts = VFLBoostingRegressor(parties=2, warm_start=True, max_iter=1).fit(X, y)
    before = parts.predict(X)
    for name, value in (("max_bins", 9), ("loss", "gamma")):
        with pytest.raises(PartyError, match=f"{name} must be that of the last fit"):
            clone(parts).fit(X, y).set_params(**{name: value}).fit(X, y)
    private = {"label_epsilon": 1.0, "target_range": (0, 400)}
    with pytest.raises(ValueError, match="warm_start cannot be used with label_eps"):
        parts.set_params(**private).fit(X, y)
    assert_array_equal(parts.predict(X), before)


def test_losses_are_those_of_the_model():
    for name in ("two classes", "three classes", "target"):
        estimator, (X, y) = CASES[name]
        shared = clone(estimator).set_params(parties=3).fit(X, y)
        if is_classifier(shared):
            expected = log_loss(y, shared.predict_proba(X))
        else:
            expected = ((y - shared.predict(X)) ** 2).mean() / 2
        assert_allclose(shared.loss_curve_[-1], expected, rtol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_of_a_target_are_those_of_the_model(loss):
    X, y = load_diabetes(return_X_y=True)
    options = {"parties": 2, "loss": loss, **LOSSES[loss], **QUICK}
    fitted = VFLBoostingRegressor(**options).fit(X, y)
    told = fitted.predict(X)
    expected = {
        "absolute_error": abs(y - told),
        "quantile": np.maximum(0.8 * (y - told), 0.2 * (told - y)),
        "poisson": told - y * np.log(told),
        "gamma": np.log(told) + y / told,
    }
    assert_allclose(fitted.loss_curve_[-1], expected[loss].mean(), rtol=1e-9)


def test_targets_that_a_loss_does_not_have_are_refused():
    X, y = load_diabetes(return_X_y=True)
    vfl = VFLBoostingRegressor(parties=2, loss="poisson", max_iter=1)
    for targets in (-y, 0 * y):
        with pytest.raises(ValueError, match="'poisson' needs targets in y that are"):
            vfl.fit(X, targets)
    with pytest.raises(ValueError, match="'gamma' needs targets in y that are all pos"):
        vfl.set_params(loss="gamma").fit(X, y - y.min())
    private = {"label_epsilon": 1.0, "target_range": (0, 400)}
    with pytest.raises(ValueError, match="target_range: loss='gamma' needs a lowest"):
        vfl.set_params(**private).fit(X, y)
    for loss, quantile in (("quantile", None), ("squared_error", 0.5)):
        with pytest.raises(ValueError, match="give quantile="):
            vfl.set_params(loss=loss, quantile=quantile).fit(X, y)


def test_noise_leaves_targets_that_a_loss_has():
    X, y = load_diabetes(return_X_y=True)
    private = VFLBoostingRegressor(loss="gamma", target_range=(25, 346), **QUICK)
    private.set_params(label_epsilon=0.5).fit(X, y)
    assert (private.predict(X) > 0).all()


def test_nothing_to_learn_from_is_said():
    X, y = load_breast_cancer(return_X_y=True)
    stopping = clone(classifier).set_params(early_stopping=True)
    weights = np.zeros(len(y))
    weights[0] = 1
    with pytest.raises((TrainingError, PartyError), match="weight"):
        stopping.fit(X, y, weights)
    with pytest.raises((TrainingError, PartyError), match="lower validation_fraction"):
        stopping.set_params(validation_fraction=0.9999).fit(X, y)
    with pytest.raises(TrainingError, match="lower the learning rate"):
        clone(regressor).set_params(learning_rate=1e300).fit(X, 1e10 * y)


def test_few_rows_are_one_leaf():
    X, y = load_diabetes(return_X_y=True)
    shared = VFLBoostingRegressor(parties=2, max_iter=3).fit(X[:30], y[:30])
    assert_allclose(shared.predict(X), y[:30].mean())
    assert shared.communication_.n_rounds == 1
    assert not shared._n_splits["party1"]


# What crosses


def test_a_step_is_two_rounds_and_a_prediction_one():
    X, y = load_breast_cancer(return_X_y=True)
    parties = in_turn(30) | {"clinic": []}
    level = clone(classifier).set_params(
        parties=parties, active="clinic", max_leaf_nodes=None, max_depth=2
    )
    level.fit(X, y)
    # All nodes of a level at once: derivatives, then twice the splits and the sums, of
    # which there are none below the last ones.
    assert level.communication_.n_rounds == 1 + 8 * (1 + 2 + 1)
    from skvfl import record_communication

    with record_communication() as log:
        level.predict(X[:17])
    assert log.n_rounds == 1
    routed = [each for each in log.messages if each.operation == "route"]
    # A party without a split is not asked.
    assert len(routed) == 2 * sum(n > 0 for n in level._n_splits.values())
    several = clone(level).set_params(max_leaf_nodes=31, max_depth=None)
    X, y = load_wine(return_X_y=True)
    several.set_params(parties=in_turn(13) | {"clinic": []}, max_iter=2).fit(X, y)
    n_leaves = [
        tree.owners.count(-1)
        for grown in several._parties["clinic"]._forest.trees
        for tree in grown
    ]
    # Trees of all classes grow side by side.
    assert several.communication_.n_rounds <= 1 + sum(
        1 + 2 * (max(n_leaves[i : i + 3]) - 1) for i in (0, 3)
    )


@pytest.mark.slow
def test_processes_give_the_same_bits_and_so_do_copies():
    for name in ("missing values", "three classes", "target"):
        estimator, (X, y) = CASES[name]
        estimator = clone(estimator).set_params(
            parties=in_turn(X.shape[1]),
            early_stopping=True,
            max_iter=2,
            max_leaf_nodes=6,
        )
        local, process = (
            clone(estimator).set_params(transport=each).fit(X, y)
            for each in ("local", "process")
        )
        assert local.communication_.messages == process.communication_.messages
        for each in (process, pickle.loads(pickle.dumps(local))):
            assert_array_equal(answers(each, X), answers(local, X))


def test_a_half_predicts_with_the_others(tmp_path):
    estimator, (X, y) = CASES["two classes"]
    fitted = clone(estimator).set_params(parties=in_turn(30)).fit(X, y)
    expected = fitted.predict_proba(X)
    for name in ("shop", "telco"):
        fitted.save_half(name, tmp_path / name)
    alone = pickle.loads(pickle.dumps(fitted.keep_halves(["bank"])))
    with pytest.raises(PartyError, match="load_half"):
        alone.predict(X)
    for name in ("shop", "telco"):
        alone.load_half(tmp_path / name)
    assert_array_equal(alone.predict_proba(X), expected)
    # The active party's half has no threshold of anybody else's.
    cuts = {
        name: np.concatenate(party._bins._cuts)
        for name, party in fitted._parties.items()
    }
    half = pickle.dumps(fitted._parties["bank"])
    some = np.setdiff1d(cuts["shop"], [0.0, *cuts["bank"]])[::50]
    sample = [cut.tobytes() for cut in some]
    assert not any(each in half for each in sample)
    assert all(each in pickle.dumps(fitted._parties["shop"]) for each in sample)


# Labels


def overheard(estimator, X, y):
    """What a passive party is sent in a fit, in order."""
    watch = Watch(lambda parties: None)
    params = estimator.get_params(deep=False) | {
        "transport": watch,
        "parties": in_turn(X.shape[1]),
    }
    type(estimator)(**params).fit(X, y)
    return [
        (operation, content)
        for receiver, operation, _, content, _ in watch.received
        if receiver == "shop" and operation != "open"
    ]


def guessed(messages, *, classes):
    """Labels of all rows by the gradients of the first iteration, as anybody would."""
    (first, *_) = (c["gradients"] for o, c in messages if o == "begin_trees")
    if not classes:
        # In a unit that is a power of two, which no digit gives away.
        return -first[0].astype(float) * 512
    return first.argmin(axis=0) if len(first) > 1 else (first[0] < 0).astype(int)


def test_passive_parties_read_every_label_from_gradients():
    for name in ("two classes", "three classes"):
        estimator, (X, y) = CASES[name]
        assert (guessed(overheard(estimator, X, y), classes=True) == y).all()
    estimator, (X, y) = CASES["target"]
    found = guessed(overheard(estimator, X, y), classes=False)
    assert_allclose(found, y - y.mean(), rtol=1e-5, atol=1e-4)


def test_a_budget_of_labels_is_what_can_be_read_of_them():
    for name, epsilon, n_fits in (("two classes", 1.0, 8), ("three classes", 2.0, 20)):
        estimator, (X, y) = CASES[name]
        private = clone(estimator).set_params(label_epsilon=epsilon, max_iter=1)
        right = []
        for seed in range(n_fits):
            seen = overheard(private.set_params(random_state=seed), X, y)
            right.append(guessed(seen, classes=True) == y)
        expected = np.exp(epsilon) / (np.exp(epsilon) + y.max())
        assert abs(np.mean(right) - expected) < 0.03
    estimator, (X, y) = CASES["target"]
    private = clone(estimator).set_params(label_epsilon=1.0, target_range=(25, 346))
    found = guessed(overheard(private, X, y), classes=False)
    expected = y.std() / np.hypot(y.std(), np.sqrt(2) * 321)
    assert abs(np.corrcoef(found, y)[0, 1] - expected) < 0.1


@pytest.mark.parametrize(
    "name", ["two classes", "three classes", "target", "target, absolute"]
)
def test_what_others_see_follows_from_the_labels_that_were_drawn(name, monkeypatch):
    """So that their budget covers all of it, whatever is computed from them later."""
    estimator, (X, y) = CASES[name.split(",")[0]]
    private = clone(estimator).set_params(
        label_epsilon=1.0, early_stopping=True, n_iter_no_change=2, max_iter=6
    )
    if is_classifier(estimator):
        private.set_params(class_weight="balanced")
    else:
        private.set_params(target_range=(25, 346))
    if "absolute" in name:
        private.set_params(loss="absolute_error")
    others = np.random.default_rng(1).permutation(y)
    drawn = np.random.default_rng(2).permutation(y).astype(y.dtype)

    def same(estimator):
        seen = [overheard(estimator, X, labels) for labels in (y, others)]
        return len(seen[0]) == len(seen[1]) and all(
            a[0] == b[0]
            and a[1].keys() == b[1].keys()
            and all(np.array_equal(a[1][k], b[1][k]) for k in a[1] if k != "reply")
            for a, b in zip(*seen, strict=True)
        )

    monkeypatch.setattr(_lessons, "_noisy", lambda *_: drawn)
    assert same(private)
    assert not same(private.set_params(label_epsilon=None))


def test_a_loss_of_true_targets_stops_nothing_that_others_see(monkeypatch):
    X, y = load_diabetes(return_X_y=True)
    monkeypatch.setattr(_lessons, "_noisy", lambda *_: y)
    private = VFLBoostingRegressor(parties=2, max_iter=4, learning_rate=1e10)
    private.set_params(label_epsilon=1.0, target_range=(0, 400), random_state=0)

    def operations(targets):
        with record_views() as views:
            try:
                private.fit(X, targets)
            except TrainingError:
                refused.append(targets)
        return [seen.operation for seen in views["party1"].messages]

    refused = []
    assert operations(y) == operations(y * 1e140)
    assert len(refused) == 1


def test_noise_of_two_fits_with_one_seed_does_not_cancel():
    estimator, (X, y) = CASES["target"]
    private = clone(estimator).set_params(
        label_epsilon=0.5, target_range=(25, 346), max_iter=1, random_state=0
    )

    def noise(rows):
        found = guessed(overheard(private, X[rows], y[rows]), classes=False)
        return found + y[rows].mean() - y[rows]

    rows, others = np.arange(300), np.arange(100, 400)
    first = noise(rows)
    assert_array_equal(noise(rows), first)
    assert abs(np.corrcoef(noise(others), first)[0, 1]) < 0.3


def test_a_model_under_a_budget_learns_all_the_same():
    X, y = load_breast_cancer(return_X_y=True)
    train, test = np.arange(len(y)) % 3 > 0, np.arange(len(y)) % 3 == 0
    private = VFLBoostingClassifier(parties=3, label_epsilon=0.5, max_iter=40)
    private.fit(X[train], y[train])
    assert private.label_epsilon_ == 0.5
    assert private.score(X[test], y[test]) > 0.9
    assert not hasattr(
        private.set_params(label_epsilon=None).fit(X, y), "label_epsilon_"
    )


def test_a_range_is_public_and_is_checked():
    X, y = load_diabetes(return_X_y=True)
    private = VFLBoostingRegressor(parties=2, label_epsilon=1.0, max_iter=1)
    with pytest.raises(ValueError, match="label_epsilon needs target_range"):
        private.fit(X, y)
    for mistaken in ((1, 0), (0, np.inf), (0,), ("a", "b"), (0, 1, 2)):
        with pytest.raises(ValueError, match="target_range"):
            private.set_params(target_range=mistaken).fit(X, y)


# Columns


def bins_worked_out(n_iter):
    """Share of a passive party's cells whose bin the active party computes."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:150], y[:150]
    options = {"max_iter": n_iter, "min_samples_leaf": 5}
    fitted = VFLBoostingClassifier(parties=in_turn(30), **options)
    with record_views() as views:
        fitted.fit(X, y)
    shop, secret = fitted._parties["shop"], X[:, in_turn(30)["shop"]]
    attack = BinSumsAttack(marginals=True, sender="shop").informed(secret)
    return np.mean(attack.fit(views["bank"]).bins_ == shop._bins.look_up(secret))


def test_the_active_party_works_out_bins_from_many_sums():
    assert bins_worked_out(1) < 0.1
    assert bins_worked_out(40) > 0.9


@pytest.mark.parametrize("regresses", [False, True])
def test_trees_in_one_round_are_those_of_pooled_bins(regresses):
    X, y = load_breast_cancer(return_X_y=True)
    if regresses:
        X, y = make_regression(400, 9, n_informative=4, noise=5.0, random_state=0)
    bins = KBinsDiscretizer(
        32, encode="ordinal", quantile_method="averaged_inverted_cdf"
    )
    kinds = HistGradientBoostingClassifier, HistGradientBoostingRegressor
    model = kinds[regresses](max_iter=8)
    parties = in_turn(X.shape[1])
    partition = VerticalPartitioner(bins, parties=parties)
    once = make_pipeline(partition, model).fit(X, y)
    pooled = make_pipeline(clone(bins), clone(model)).fit(X, y)
    assert_array_equal(answers(once, X), answers(pooled, X))
    # What arrives is the rank of every cell, as far as bins go.
    sent = clone(partition).fit(X).transform(X)
    told = [spearmanr(*pair).statistic for pair in zip(sent.T, X.T, strict=True)]
    other = [spearmanr(*pair).statistic for pair in zip(sent.T, X[::-1].T, strict=True)]
    assert min(told) > 0.98
    assert np.abs(other).max() < 0.3


def member(n_rows=40, **said):
    block = np.random.default_rng(0).normal(size=(n_rows, 2))
    settings = {"max_bins": 8, "min_samples_leaf": 5, "max_iter": 3} | said
    made = Member("shop", Holding(block))
    words = PassiveSettings(**settings).pack()
    made.perform("open", {"role": "boosting.passive", "settings": words})
    return made


def test_a_party_adds_up_no_fewer_rows_than_a_leaf_has():
    shop, ones = member(), np.ones((1, 40), np.float32)
    with pytest.raises(PartyError, match="'prepare' comes first"):
        shop.perform("begin_trees", {"gradients": ones})
    shop.perform("prepare", {})
    with pytest.raises(PartyError, match="'begin_trees' comes first"):
        shop.perform("add_up", {"trees": [0], "rows": np.arange(5), "ends": [5]})
    shop.perform("begin_trees", {"gradients": ones})

    def add_up(rows):
        rows = np.array(rows, np.uint32)
        asked = {"trees": [0], "rows": rows, "ends": [len(rows)]}
        return shop.perform("add_up", asked)

    assert add_up(range(5)).shape == (1, 2 * 16)
    with pytest.raises(PartyError, match="sums of 4 rows, and a leaf has"):
        add_up(range(4))
    few = member()
    few.perform("prepare", {"rows": np.zeros(1, np.uint32)})
    with pytest.raises(PartyError, match="sums of 1 rows"):
        few.perform("begin_trees", {"gradients": ones})
    # Compiled code would read memory beyond the table.
    for rows in ([0, 1, 2, 3, 40], [0, 0, 1, 2, 3], [5, 4, 3, 2, 1], []):
        with pytest.raises(PartyError, match="not positions in rising order"):
            add_up(rows)
    for wrong in (ones[:, :7], ones.astype(float)):
        with pytest.raises(PartyError, match="not one number for each row"):
            shop.perform("begin_trees", {"gradients": wrong})


def gradients_first(change):
    """Sums of which only those of first derivatives are changed."""

    def changed(sums):
        third = sums.shape[1] // 3
        return np.hstack([change(sums[:, :third].copy()), sums[:, third:]])

    return changed


def cancels(sums):
    sums[:, :2] += [[1e300, -1e300]]
    return sums


def shifts(sums):
    # A column's bins add up to the same, and its splits to something else.
    sums[:, [100, 200]] += [[50.0, -50.0]]
    return sums


NO_SUMS = "'shop'.* its sums are not those of the rows"
WRONG = [
    ("add_up", lambda sums: sums * np.nan, "'shop'.* not finite"),
    ("add_up", lambda sums: sums * 0, NO_SUMS),
    ("add_up", gradients_first(lambda sums: sums * 10), NO_SUMS),
    ("begin_trees", lambda sums: sums[:, :-1], "'shop'.* columns where"),
    ("begin_trees", lambda sums: -sums, NO_SUMS),
    ("begin_trees", lambda sums: sums * 1e300, NO_SUMS),
    ("begin_trees", gradients_first(lambda sums: sums + 0.01), NO_SUMS),
    ("begin_trees", gradients_first(cancels), NO_SUMS),
    ("begin_trees", gradients_first(shifts), "'shop'.* not those it added up"),
    ("split", lambda bits: ~bits, "'shop'.* not those it added up"),
    (
        "prepare",
        lambda columns: columns | {"n_bins": columns["n_bins"] + 255},
        "'shop'.* not 1 to 255 bins",
    ),
]


# Totals of a tree are read from the first party's sums.
@pytest.mark.parametrize("names", [("bank", "shop", "telco"), ("shop", "bank")])
@pytest.mark.parametrize(("operation", "change", "message"), WRONG)
def test_replies_that_cannot_be_are_refused(
    operation, change, message, names, monkeypatch
):
    from skvfl.boosting._parties import TreeParty

    asked = getattr(TreeParty, operation)

    def reply(self, **arguments):
        answer = asked(self, **arguments)
        return change(answer) if self.name == "shop" else answer

    reply.__skvfl_operation__ = True
    monkeypatch.setattr(TreeParty, operation, reply)
    X, y = load_breast_cancer(return_X_y=True)
    with pytest.raises(PartyError, match=message):
        clone(classifier).set_params(parties=in_turn(30, names), active="bank").fit(
            X, y
        )
