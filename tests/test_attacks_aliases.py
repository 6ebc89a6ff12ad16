"""The attack on RAP's aliases, with controls in which it must fail."""

import numpy as np
import pytest
from _leakage import SEEDS, assert_nothing, permuted
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.dummy import DummyClassifier

from skvfl import RandomProjectionVFL
from skvfl.privacy import record_views
from skvfl.privacy.attacks import AliasAttack
from skvfl.privacy.attacks._aliases import pair


def sent(X, y, *seeds, **params):
    """The server's view of a fit for every seed."""
    with record_views() as views:
        for seed in seeds:
            RandomProjectionVFL(
                DummyClassifier(), parties=2, random_state=seed, **params
            ).fit(X, y)
    return views["server"]


@pytest.mark.parametrize("load", [load_wine, load_iris])
def test_means_of_rows_pair_the_aliases_of_one_fit(load):
    X, y = load(return_X_y=True)
    scores = [AliasAttack().fit(sent(X, y, s)).score(y) for s in SEEDS]
    assert np.mean(scores) >= 0.9


def test_means_of_rows_say_nothing_of_labels_that_do_not_follow_from_them():
    X, y = (each[:600] for each in load_digits(return_X_y=True))
    rng = np.random.default_rng(0)
    scores = []
    for seed in SEEDS:
        shuffled = rng.permutation(y)
        scores.append(AliasAttack().fit(sent(X, shuffled, seed)).score(shuffled))
    assert_nothing(scores, slack=0.03)
    assert AliasAttack().fit(sent(X, y, 0)).score(y) >= 0.9


def test_a_second_fit_pairs_aliases_whatever_the_columns():
    X, y = load_wine(return_X_y=True)
    y = np.random.default_rng(0).permutation(y)
    for seed in range(3):
        assert AliasAttack().fit(sent(X, y, seed, 50 + seed)).score(y) == 1


def test_a_second_fit_on_other_rows_says_nothing():
    X, y = load_wine(return_X_y=True)
    y = np.random.default_rng(0).permutation(y)
    scores = [
        AliasAttack().fit(permuted(sent(X, y, s, 50 + s), s)).score(y) for s in SEEDS
    ]
    assert_nothing(scores)


def test_few_known_labels_name_the_pairs():
    X, y = load_wine(return_X_y=True)
    attack = AliasAttack(known_rows=20, random_state=0).informed(y, random_state=0)
    attack.fit(sent(X, y, 0))
    assert attack.score(y) >= 0.99
    assert set(attack.reconstruct()) == set(y)


def test_known_labels_of_other_rows_name_nothing():
    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    scores = []
    for seed in SEEDS:
        shuffled = rng.permutation(y)
        attack = AliasAttack(known_rows=20, random_state=0).informed(shuffled, seed)
        scores.append(attack.fit(sent(X, y, seed)).score(shuffled))
    assert_nothing(scores)


def test_without_aliases_there_is_nothing_to_pair():
    X, y = load_wine(return_X_y=True)
    attack = AliasAttack().fit(sent(X, y, 0))
    assert len(attack.partners_) == 6
    two = y > 0
    assert AliasAttack().fit(sent(X, two, 0, label_protection=False)).score(two) == 0


def test_pairs_are_of_the_least_total_distance():
    points = np.array([0.0, 1.0, 1.1, 2.1])
    # The nearest two first would leave the others far apart: 0.1 + 2.1 > 1 + 1.
    distances = abs(points[:, None] - points) ** 2
    assert pair(distances).tolist() == [1, 0, 3, 2]
    assert pair(np.zeros((0, 0))).tolist() == []
