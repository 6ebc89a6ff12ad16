"""Attacks on boosted trees, with views in which they succeed, and in which not."""

import numpy as np
import pytest
from _leakage import SEEDS, assert_nothing, changed, noise
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from skvfl import SplitNNClassifier, VFLBoostingClassifier, VFLBoostingRegressor
from skvfl.privacy import privacy_report, record_views
from skvfl.privacy.attacks import (
    BinSumsAttack,
    GradientSignAttack,
    GradientTargetAttack,
    NodeRowsAttack,
    SplitSidesAttack,
)

PARTIES = {"bank": [0, 1, 2], "shop": [3, 4, 5]}


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:, :6], y


def recorded(X, y, **options):
    vfl = VFLBoostingClassifier(parties=PARTIES, max_iter=5, random_state=0, **options)
    with record_views() as views:
        vfl.fit(X, y)
    return views


def test_signs_of_derivatives_are_the_labels(cancer):
    X, y = cancer
    views = recorded(X, y)
    assert GradientSignAttack().fit(views["shop"]).score(y) == 1
    wine = load_wine()
    views = recorded(wine.data[:, :6], wine.target)
    assert GradientSignAttack().fit(views["shop"]).score(wine.target) == 1


def test_a_budget_and_a_view_without_derivatives_hide_labels(cancer):
    X, y = cancer
    loose = GradientSignAttack().fit(recorded(X, y, label_epsilon=4.0)["shop"])
    tight = GradientSignAttack().fit(recorded(X, y, label_epsilon=0.1)["shop"])
    assert tight.score(y) < 0.2 < loose.score(y) < 1
    with record_views() as views:
        SplitNNClassifier(parties=PARTIES, max_epochs=1, random_state=0).fit(X, y)
    assert GradientSignAttack().fit(views["shop"]).score(y) == 0


def test_signs_are_believed_if_they_are_of_derivatives(cancer):
    X, y = cancer
    view = recorded(X, y)["shop"].fit
    assert_nothing([GradientSignAttack().fit(noise(view, s)).score(y) for s in SEEDS])
    attack = GradientSignAttack(known_rows=30)
    scores = []
    for seed in SEEDS:
        others = np.random.default_rng(seed).permutation(y)
        knows = attack.informed(others, random_state=seed)
        scores.append(knows.fit(view).score(others))
    assert_nothing(scores)
    assert attack.informed(y, random_state=0).fit(view).score(y) == 1
    # Whoever believes labels that were drawn at random does worse than by no label.
    private = recorded(X, y, label_epsilon=0.1)["shop"]
    assert attack.informed(y, random_state=0).fit(private).score(y) == 0


def test_weights_and_held_out_rows_hide_no_signs(cancer):
    X, y = cancer
    weights = np.random.default_rng(0).uniform(0.5, 2, len(y))
    vfl = VFLBoostingClassifier(
        parties=PARTIES, max_iter=2, early_stopping=True, random_state=0
    )
    with record_views() as views:
        vfl.fit(X, y, sample_weight=weights)
    attack = GradientSignAttack().fit(views["shop"])
    # A tenth of the rows is held out, and gets no derivative.
    guess = attack.reconstruct()
    assert 0.05 < np.isnan(guess).mean() < 0.15
    seen = ~np.isnan(guess)
    np.testing.assert_array_equal(guess[seen], y[seen])
    assert attack.score(y) > 0.8


def regressed(X, y, **options):
    vfl = VFLBoostingRegressor(parties=2, max_iter=2, random_state=0, **options)
    with record_views() as views:
        vfl.fit(X, y)
    return vfl, views


def test_derivatives_of_the_squared_error_are_the_target():
    X, y = load_diabetes(return_X_y=True)
    vfl, views = regressed(X, y)
    attack = GradientTargetAttack(known_rows=10)
    knows = attack.informed(y, random_state=0)
    assert knows.fit(views["party1"]).score(y) > 0.9999
    # With a budget, noise of ten times the target's range hides it.
    hidden = regressed(X, y, label_epsilon=0.1, target_range=(0, 400))[1]["party1"]
    scores = []
    for seed in range(10):
        shuffled = np.random.default_rng(seed).permutation(y)
        others = attack.informed(shuffled, random_state=seed).fit(views["party1"])
        scores.append(others.score(shuffled))
        noisy = attack.informed(y, random_state=seed).fit(hidden)
        assert noisy.score(y) < 0.1
    assert np.mean(scores) < 0.02
    with pytest.raises(ValueError, match="give some"):
        GradientTargetAttack(known_rows=None).fit(views["party1"])
    found = privacy_report(vfl, X, y, views=views, membership=False, n_repeats=2)
    role, outcome = found.worst
    assert (role.name, outcome.attack) == ("party1", "GradientTargetAttack")


def test_sides_of_splits_give_columns(cancer):
    X, y = cancer
    views = recorded(X, y)
    attack = SplitSidesAttack(known_rows=100, sender="shop")
    secret = X[:, 3:]
    assert (
        attack.informed(secret, random_state=0).fit(views["bank"]).score(secret) > 0.3
    )
    scores = []
    for seed in range(10):
        others = np.random.default_rng(seed).permutation(secret)
        known = attack.informed(others, random_state=seed).fit(views["bank"])
        scores.append(known.score(others))
    error = np.std(scores, ddof=1) / np.sqrt(len(scores))
    assert abs(np.mean(scores)) <= 2.3 * error + 1e-9
    with pytest.raises(ValueError, match="give known_rows"):
        SplitSidesAttack(known_rows=None).fit(views["bank"])


@pytest.mark.parametrize("way", ["sums", pytest.param("sides", marks=pytest.mark.slow)])
def test_sums_by_bin_give_columns(cancer, monkeypatch, way):
    X, y = cancer[0][:300], cancer[1][:300]
    if way == "sides":
        monkeypatch.setattr("skvfl.privacy.attacks._sums.MOST_ROWS", 0)
    vfl = VFLBoostingClassifier(parties=PARTIES, max_iter=20, random_state=0)
    with record_views() as views:
        vfl.fit(X, y)
    view, secret = views["bank"].fit, X[:, 3:]
    known = BinSumsAttack(known_rows=50, sender="shop")
    spread = BinSumsAttack(marginals=True, sender="shop")
    for attack in (known, spread):
        found = attack.informed(secret, random_state=0).fit(view)
        assert found.score(secret) > 0.8
    if way == "sums":
        bins = vfl._parties["shop"]._bins.look_up(secret)
        assert np.mean(found.bins_ == bins) > 0.8

    def drawn(seed):
        rng = np.random.default_rng(seed)

        def change(seen, place, array):
            if seen.operation in ("begin_trees", "add_up"):
                return rng.standard_normal(array.shape)
            if seen.operation == "split":
                return rng.integers(0, 255, array.shape, np.uint8)
            return array

        return changed(view, change)

    for attack in (known, spread):
        scores = []
        for seed in SEEDS:
            knows = attack.informed(secret, random_state=seed)
            scores.append(knows.fit(drawn(seed)).score(secret))
        assert_nothing(scores)


def test_sums_by_bin_say_nothing_of_other_people(cancer):
    X, y = cancer
    view = recorded(X, y)["bank"].fit
    scores = []
    for seed in SEEDS:
        others = np.random.default_rng(seed).permutation(X[:, 3:])
        attack = BinSumsAttack(known_rows=50, sender="shop")
        attack = attack.informed(others, random_state=seed)
        scores.append(attack.fit(view).score(others))
    assert_nothing(scores)


def test_sums_by_bin_take_side_knowledge_that_fits(cancer):
    view, secret = recorded(*cancer)["bank"], cancer[0][:, 3:]
    with pytest.raises(ValueError, match="known_rows, or marginals"):
        BinSumsAttack().fit(view)
    with pytest.raises(ValueError, match="3 columns are in bins"):
        BinSumsAttack(marginals=secret[:, :2]).fit(view)
    nobody = BinSumsAttack(known_rows=50, sender="nobody").informed(secret)
    assert nobody.fit(view).score(secret) == pytest.approx(0, abs=1e-9)


def test_rows_of_nodes_tell_a_passive_party_of_others_columns(cancer):
    X, y = cancer
    parties = {"bank": [0], "shop": [3, 4, 5], "clinic": [1, 2]}
    vfl = VFLBoostingClassifier(parties=parties, max_iter=5, random_state=0)
    with record_views() as views:
        vfl.fit(X, y)
    secret, view = X[:, 3:], views["clinic"]
    attack = NodeRowsAttack(known_rows=100)
    knows = attack.informed(secret, random_state=0)
    assert knows.fit(view).score(secret) > 0.3
    scores = []
    for seed in SEEDS:
        others = np.random.default_rng(seed).permutation(secret)
        knows = attack.informed(others, random_state=seed)
        scores.append(knows.fit(view).score(others))
    assert_nothing(scores)
    with pytest.raises(ValueError, match="give known_rows"):
        NodeRowsAttack(known_rows=None).fit(view)
    found = privacy_report(vfl, X, y, views=views, membership=False, n_repeats=2)
    rows = [
        (role.name, each.attack, each.secret)
        for role in found.roles
        for each in role.outcomes
        if each.score > 0.3
    ]
    assert ("bank", "BinSumsAttack", "columns of shop") in rows
    assert ("clinic", "NodeRowsAttack", "columns of shop") in rows
