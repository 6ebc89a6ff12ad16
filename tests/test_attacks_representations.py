"""Attacks on representations find what is there, and nothing where nothing is."""

from functools import cache

import numpy as np
import pytest
from _made_views import is_nothing, scores, scores_of_permuted, view_of
from sklearn.linear_model import Ridge

import skvfl
from skvfl.privacy import record_views
from skvfl.privacy.attacks import (
    AttributeInferenceAttack,
    EqualRowsAttack,
    InversionAttack,
)

N_ROWS = 400
METHODS = {
    "SplitNN": (skvfl.SplitNNClassifier(max_epochs=3), 0.9),
    "FedOnce": (skvfl.FedOnceClassifier(max_epochs=3), 0.5),
    "APC-VFL": (skvfl.APCVFLClassifier(max_epochs=3), 0.9),
    "TabVFL": (skvfl.TabVFLClassifier(max_epochs=2, pretrain=False), 0.85),
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
    X = rng.normal(size=(N_ROWS, 8))
    # Columns of a kind that people have: skewed, of two values, of three.
    X[:, 1] = np.exp(X[:, 1])
    X[:, 3] = X[:, 3] > 0.5
    X[:, 5] = rng.integers(3, size=N_ROWS)
    return X, (X.sum(axis=1) + rng.normal(size=N_ROWS) > 4).astype(int)


SECRET = {"b": [1, 3, 5, 7]}


@cache
def seen_by_active(name):
    X, y = table()
    estimator = METHODS[name][0]
    estimator = type(estimator)(
        **estimator.get_params(deep=False)
        | {"parties": {"a": [0, 2, 4, 6], **SECRET}, "random_state": 0}
    )
    with record_views() as views:
        estimator.fit(X, y)
    return views["a"]


def secret():
    return table()[0][:, SECRET["b"]]


def mixed(seed=0, width=12):
    """A linear representation, which least squares undo."""
    matrix = np.random.default_rng(seed).normal(size=(4, width))
    return view_of({("b", "encode"): [secret() @ matrix + 3]}, N_ROWS)


def random(seed=0):
    noise = np.random.default_rng(seed).normal(size=(N_ROWS, 12))
    return view_of({("b", "encode"): [noise]}, N_ROWS)


def test_columns_come_back_from_a_linear_representation():
    for estimator in (None, Ridge(1e-6)):
        attack = InversionAttack(known_rows=40, estimator=estimator)
        assert scores(attack, mixed(), secret()).min() > 0.99


@each_method
def test_columns_come_back_from_every_methods_representation(name):
    attack = InversionAttack(known_rows=150, sender="b")
    found = scores(attack, seen_by_active(name), secret(), range(3))
    assert found.min() > METHODS[name][1]


@pytest.mark.parametrize("estimator", [None, Ridge()])
def test_nothing_comes_back_from_noise_or_other_rows(estimator):
    attack = InversionAttack(known_rows=60, estimator=estimator)
    assert is_nothing(scores(attack, random(), secret()))
    assert is_nothing(scores_of_permuted(attack, mixed(), secret()))


def test_nothing_comes_back_from_masked_numbers():
    X, y = table()
    vfl = skvfl.VFedSecClassifier(
        parties={"a": [0, 2, 4, 6], **SECRET}, max_epochs=2, random_state=0
    )
    with record_views() as views:
        vfl.fit(X, y)
    attack = InversionAttack(known_rows=100, sender="b")
    assert is_nothing(scores(attack, views["server"], secret()), tolerance=0.01)
    attribute = AttributeInferenceAttack(sender="b")
    found = scores(attribute, views["server"], secret()[:, 1])
    assert is_nothing(found, tolerance=0.01)


def test_a_view_without_rows_gives_the_prior_guess():
    for attack in (InversionAttack(), AttributeInferenceAttack()):
        truth = secret() if attack.target == "columns" else secret()[:, 1]
        assert scores(attack, view_of({}, N_ROWS), truth, [0]) == 0


def test_more_epochs_show_more():
    rng = np.random.default_rng(1)
    # A narrow cut that is another one in every epoch.
    epochs = [secret() @ rng.normal(size=(4, 2)) for _ in range(6)]
    view = view_of({("b", "forward"): epochs}, N_ROWS)
    last, together = (
        scores(InversionAttack(epochs=which), view, secret(), [0])[0]
        for which in ("last", "all")
    )
    assert together > 0.99
    assert last < 0.9
    with pytest.raises(ValueError, match="epochs must be 'last' or 'all'"):
        scores(InversionAttack(epochs="first"), view, secret(), [0])


def test_rows_that_nothing_was_seen_of_get_the_prior_guess():
    rows = secret() @ np.random.default_rng(0).normal(size=(4, 12))
    rows[300:] = np.nan
    view = view_of({("b", "encode"): [rows]}, N_ROWS)
    attack = InversionAttack(known_rows=(np.arange(60), secret()[:60])).fit(view)
    guess = attack.reconstruct()
    np.testing.assert_allclose(guess[300:] - secret()[:60].mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(guess[60:300], secret()[60:300], atol=0.1)


def test_an_attribute_is_told_from_a_representation_and_not_from_noise():
    for column, view in ((1, mixed()), (1, seen_by_active("SplitNN"))):
        attribute = secret()[:, column]
        attack = AttributeInferenceAttack(known_rows=150)
        assert scores(attack, view, attribute, range(3)).min() > 0.95
        assert is_nothing(scores_of_permuted(attack, view, attribute))
    assert is_nothing(scores(attack, random(), secret()[:, 1]))


def test_an_attribute_may_be_text():
    attribute = np.array(["no", "yes"])[secret()[:, 1].astype(int)]
    attack = AttributeInferenceAttack(known_rows=100)
    assert scores(attack, mixed(), attribute, [0])[0] > 0.95


@cache
def few_values():
    rng = np.random.default_rng(0)
    X = rng.integers(3, size=(N_ROWS, 6)).astype(float)
    return X, (X.sum(axis=1) > 6).astype(int)


def equality(estimator, seed=0):
    X, y = few_values()
    parties = {"a": [0, 1, 2], "b": [3, 4, 5]}
    with record_views() as views:
        estimator.set_params(parties=parties, random_state=seed).fit(X, y)
    return views["a"]


def test_equal_rows_show_as_equal_representations():
    X, _ = few_values()
    for estimator in (
        skvfl.FedOnceClassifier(max_epochs=2),
        # Its noise is a function of the row, so equal rows stay equal.
        skvfl.FedOnceClassifier(max_epochs=2, representation_noise=3.0),
        skvfl.APCVFLClassifier(max_epochs=2),
    ):
        attack = EqualRowsAttack(sender="b", random_state=0).fit(equality(estimator))
        assert attack.score(X[:, 3:]) > 0.99
        assert len(np.unique(attack.reconstruct())) == 27


def test_equal_rows_are_not_told_from_others_in_noise():
    X, _ = few_values()
    view = equality(skvfl.FedOnceClassifier(max_epochs=2))
    found = []
    for seed in range(10):
        permuted = np.random.default_rng(seed).permutation(N_ROWS)
        attack = EqualRowsAttack(random_state=seed).fit(view)
        found.append(attack.score(X[permuted, 3:]))
    assert is_nothing(found)
    noisy = [EqualRowsAttack(random_state=s).fit(random(s)) for s in range(10)]
    assert is_nothing([attack.score(X[:, 3:]) for attack in noisy])
    for unseen in ({}, {("b", "encode"): [np.full((N_ROWS, 2), np.nan)]}):
        attack = EqualRowsAttack(random_state=0).fit(view_of(unseen, N_ROWS))
        assert attack.score(X[:, 3:]) == 0
        assert (attack.reconstruct() == -1).all()
    # A single row of each kind, and one kind alone, leave nothing to find out.
    assert noisy[0].score(np.arange(N_ROWS)) == 0
    assert noisy[0].score(np.zeros(N_ROWS)) == 0


def test_known_rows_are_needed():
    for attack in (InversionAttack, AttributeInferenceAttack):
        with pytest.raises(ValueError, match="learns from known rows"):
            attack(known_rows=None).fit(mixed())
