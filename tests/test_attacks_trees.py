"""Attacks on boosted trees, with views in which they succeed, and in which not."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from skvfl import SplitNNClassifier, VFLBoostingClassifier, VFLBoostingRegressor
from skvfl.privacy import privacy_report, record_views
from skvfl.privacy.attacks import (
    GradientSignAttack,
    GradientTargetAttack,
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
    # One class for all is no better than the most frequent one.
    assert GradientSignAttack().fit(views["shop"]).score(y) <= 0


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
        noise = np.random.default_rng(seed).permutation(secret)
        known = attack.informed(noise, random_state=seed).fit(views["bank"])
        scores.append(known.score(noise))
    error = np.std(scores, ddof=1) / np.sqrt(len(scores))
    assert abs(np.mean(scores)) <= 2.3 * error + 1e-9
    with pytest.raises(ValueError, match="give known_rows"):
        SplitSidesAttack(known_rows=None).fit(views["bank"])
