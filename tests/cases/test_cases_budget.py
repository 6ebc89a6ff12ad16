"""Failures reported for similar libraries: budgets of differential privacy."""

import pytest
from _support import PARTIES, check_probabilities, data

from skvfl import FedOnceClassifier, NoiseAsTargetsEncoder

SETTINGS = {"parties": PARTIES, "active": "a", "random_state": 0, "delta": 1e-3}
GUESTS = {
    "public guests": {"max_epochs": 2, "batch_size": 16},
    "private guests": {
        "local_encoder": NoiseAsTargetsEncoder(max_epochs=2, batch_size=16),
        "max_epochs": 2,
        "batch_size": 16,
    },
    "multi-round": {"n_split_epochs": 1, "max_epochs": 2, "batch_size": 16},
}


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("settings", GUESTS.values(), ids=GUESTS)
def test_p29_budget_is_not_overshot(settings, epsilon):
    """P29: the search for the noise level stopped on the wrong side of the budget.

    Source: meta-pytorch/opacus#346,
    https://github.com/meta-pytorch/opacus/issues/346
    """
    X, y = data(n=60)
    est = FedOnceClassifier(**SETTINGS, **settings, epsilon=epsilon).fit(X, y)
    assert 0.5 * epsilon <= est.epsilon_spent_.epsilon <= epsilon
    check_probabilities(est.predict_proba(X), 60, 2)


@pytest.mark.parametrize("batch_size", [60, 500])
@pytest.mark.parametrize("n_split_epochs", [0, 1])
def test_p29b_budget_with_full_batch(batch_size, n_split_epochs):
    """P29b: a batch of all rows was a math domain error in the accountant.

    Source: meta-pytorch/opacus#74,
    https://github.com/meta-pytorch/opacus/issues/74
    """
    X, y = data(n=60)
    settings = {"batch_size": batch_size, "n_split_epochs": n_split_epochs}
    est = FedOnceClassifier(**SETTINGS, **settings, max_epochs=2, epsilon=2.0)
    assert 1 <= est.fit(X, y).epsilon_spent_.epsilon <= 2
    assert {run.sampling_rate for run in est.epsilon_spent_.runs} == {1.0}
