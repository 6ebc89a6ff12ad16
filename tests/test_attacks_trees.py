"""Attacks on boosted trees, with views in which they succeed, and in which not."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine

from skvfl import SplitNNClassifier, VFLBoostingClassifier
from skvfl.privacy import record_views
from skvfl.privacy.attacks import GradientSignAttack, SplitSidesAttack

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
