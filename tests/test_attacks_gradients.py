"""Attacks on labels find them in gradients, and nothing where nothing is."""

from functools import cache

import numpy as np
import pytest
from _made_views import is_nothing, scores, scores_of_permuted, view_of

import skvfl
from skvfl.privacy import record_views
from skvfl.privacy.attacks import (
    GradientDirectionAttack,
    GradientNormAttack,
    ModelCompletionAttack,
)

N_ROWS = 400
PARTIES = {"a": [0, 1], "b": list(range(2, 10))}
METHODS = {
    "SplitNN": (skvfl.SplitNNClassifier(max_epochs=4), 20, 0.99),
    "FedOnce": (skvfl.FedOnceClassifier(max_epochs=2, n_split_epochs=4), 20, 0.99),
    "TabVFL": (skvfl.TabVFLClassifier(max_epochs=10, pretrain=False), 150, 0.3),
    "TabVFL, local": (
        skvfl.TabVFLClassifier(max_epochs=4, pretrain=False, design="local"),
        20,
        0.99,
    ),
    "vFedSec": (skvfl.VFedSecClassifier(max_epochs=4), 20, 0.99),
}


# One method shows that it is done right, the others what it finds of them.
each_method = pytest.mark.parametrize(
    "name",
    [
        name if name == "SplitNN" else pytest.param(name, marks=pytest.mark.slow)
        for name in METHODS
    ],
)


@cache
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 10))
    return X, (X.sum(axis=1) + 2 * rng.normal(size=N_ROWS) > 2).astype(int)


@cache
def seen_by_passive(name, **options):
    estimator = METHODS[name][0]
    given = {"parties": PARTIES, "random_state": 0, **options}
    estimator = type(estimator)(**estimator.get_params(deep=False) | given)
    X, y = table()
    with record_views() as views:
        estimator.fit(X, y)
    return views["b"]


def gradients(direct=True, seed=0, n_epochs=3):
    """What a linear top model sends: (p - y) times its weights."""
    _, y = table()
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=8) if direct else rng.normal(size=(N_ROWS, 8))
    weights = weights / np.linalg.norm(weights, axis=-1, keepdims=True)
    spread = rng.uniform(0.9, 1.1, (N_ROWS, 1))
    sent = spread * (y.mean() - y)[:, None] * weights
    return view_of({("a", "backward"): [sent] * n_epochs}, N_ROWS)


def noise(seed=0):
    rng = np.random.default_rng(seed)
    epochs = [rng.normal(size=(N_ROWS, 8)) for _ in range(3)]
    return view_of({("a", "backward"): epochs}, N_ROWS)


ATTACKS = {
    "few": GradientDirectionAttack(),
    "many": GradientDirectionAttack(known_rows=100),
    "norm": GradientNormAttack(),
}


@pytest.mark.parametrize("known", [20, 100])
def test_directions_of_a_linear_top_model_are_labels(known):
    attack = GradientDirectionAttack(known_rows=known)
    assert scores(attack, gradients(), table()[1]).min() == 1


def test_norms_are_labels_where_one_class_is_rare():
    # Not their directions, which are another one for every row.
    view = gradients(direct=False)
    assert scores(GradientNormAttack(), view, table()[1]).min() > 0.99
    assert is_nothing(scores(GradientDirectionAttack(), view, table()[1]))


@each_method
def test_labels_are_found_in_every_methods_gradients(name):
    _, known, bound = METHODS[name]
    attack = GradientDirectionAttack(known_rows=known)
    found = scores(attack, seen_by_passive(name), table()[1], range(3))
    assert found.mean() > bound


def test_labels_of_several_classes_are_found():
    X, _ = table()
    y = np.digitize(X.sum(axis=1), [-2, 2])
    with record_views() as views:
        split = skvfl.SplitNNClassifier(parties=PARTIES, max_epochs=4, random_state=0)
        split.fit(X, np.array(["few", "some", "many"])[y])
    # Labels as the attacker writes them.
    attack = GradientDirectionAttack(known_rows=100)
    assert scores(attack, views["b"], np.array([5, 7, 9])[y], range(3)).min() > 0.8


def test_norms_of_split_learning_say_something():
    attack = GradientNormAttack(known_rows=150)
    view = seen_by_passive("SplitNN", max_epochs=8)
    assert scores(attack, view, table()[1], range(3)).mean() > 0.6


def test_a_rare_class_is_found_by_few_known_rows():
    X, _ = table()
    y = (X.sum(axis=1) > 4).astype(int)
    with record_views() as views:
        split = skvfl.SplitNNClassifier(parties=PARTIES, max_epochs=8, random_state=0)
        split.fit(X, y)
    # Six of them are of the class that one row in twelve is of.
    rows = np.concatenate([np.flatnonzero(y)[:6], np.flatnonzero(y == 0)[:60]])
    attack = GradientDirectionAttack(known_rows=(rows, y[rows]))
    assert attack.fit(views["b"]).score(y) > 0.99


@pytest.mark.parametrize(
    "name", ["few", pytest.param("many", marks=pytest.mark.slow), "norm"]
)
def test_nothing_is_found_in_noise_or_in_other_rows(name):
    _, y = table()
    attack = ATTACKS[name]
    assert is_nothing(
        np.concatenate([scores(attack, noise(seed), y, [seed]) for seed in range(10)])
    )
    assert is_nothing(scores_of_permuted(attack, gradients(), y))
    assert is_nothing(scores_of_permuted(attack, seen_by_passive("SplitNN"), y))


def test_nothing_is_found_where_no_gradient_crosses():
    X, y = table()
    with record_views() as views:
        skvfl.FedOnceClassifier(parties=PARTIES, max_epochs=2).fit(X, y)
    for attack in (*ATTACKS.values(), ModelCompletionAttack()):
        found = scores(attack, views["b"], y, [0])
        assert found == 0 or isinstance(attack, ModelCompletionAttack)


@cache
def wide():
    """Columns so many that a few labelled rows do not say which ones matter."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 61))
    return X, (X[:, 1:] @ rng.normal(size=60) > 0).astype(int)


def test_a_bottom_model_is_completed():
    X, y = wide()
    parties = {"a": [0], "b": list(range(1, 61))}
    split = skvfl.SplitNNClassifier(parties=parties, max_epochs=15, random_state=0)
    with record_views() as views:
        split.fit(X, y)
    attack = ModelCompletionAttack(known_rows=60)
    assert scores(attack, views["b"], y, range(3)).min() > 0.5
    assert is_nothing(scores_of_permuted(attack, views["b"], y))


def test_a_bottom_model_that_learnt_nothing_adds_nothing_to_its_columns():
    X, y = wide()
    rng = np.random.default_rng(1)
    sent = {("a", "forward"): [X[:, 1:] @ rng.normal(size=(60, 16))]}
    view = view_of({}, len(y), sent=sent, block=X[:, 1:])
    assert is_nothing(scores(ModelCompletionAttack(known_rows=60), view, y))
    # Neither do columns that say everything: that is no leak of a federation.
    easy = view_of({}, len(y), sent=sent, block=y[:, None] + 0.0)
    found = ModelCompletionAttack(known_rows=60).informed(y, 0).fit(easy)
    assert (found.reconstruct() == y).all()
    assert found.score(y) == 0


def test_known_rows_are_needed():
    for attack in (GradientDirectionAttack, GradientNormAttack, ModelCompletionAttack):
        with pytest.raises(ValueError, match="learns from known rows"):
            attack(known_rows=None).fit(gradients())
        with pytest.raises(ValueError, match="only counts rows"):
            attack().fit(gradients())
