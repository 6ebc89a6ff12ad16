"""Lower bounds on ε from attacks: below what is claimed, unless something is broken."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import beta
from torch import nn

from skvfl.nn import _noise, _private
from skvfl.nn._private import PrivateSGD, PrivateSteps
from skvfl.privacy import SampledGaussian, account_privacy

DELTA = 1e-5
LEVEL = 0.05
N_ROWS = 20


def linear_loss(outputs, targets):
    return -outputs[:, 0] * targets


def table(present):
    """Rows without the last column, and one that has nothing else, or nothing at all.

    A row of zeros has no gradient: it is as good as absent.
    """
    X = np.random.default_rng(0).standard_normal((N_ROWS, 4)).astype(np.float32)
    X[:, -1] = 0
    X[0] = [0, 0, 0, 50 * present]
    y = X[:, 0].copy()
    y[0] = 20 * present
    return torch.from_numpy(X), torch.from_numpy(y)


def weights_of_the_canary(run, repetitions, present):
    """The weight that only the canary moves, after each of many trainings."""
    X, y = table(present)
    module = nn.Linear(4, 1, bias=False)
    steps = [
        PrivateSteps(run, N_ROWS, sequence)
        for sequence in np.random.SeedSequence([1, present]).spawn(repetitions)
    ]
    options = {"max_grad_norm": 1.0, "lr": 1.0}
    sgd = PrivateSGD(module, linear_loss, steps[0], [X.shape[1:]], **options)
    found = np.empty(repetitions)
    for i, sgd._steps in enumerate(steps):
        nn.init.zeros_(module.weight)
        for _ in range(run.steps):
            rows = sgd._steps.draw()
            sgd.step([X[rows]], [y[rows]])
        found[i] = module.weight[0, -1].item()
    return found


def lower_bound(present, absent):
    """ε that the attack refutes at the level, with a threshold from half the runs."""

    def bound(threshold, present, absent, level):
        hits, alarms = np.sum(present > threshold), np.sum(absent > threshold)
        seen = beta.ppf(level / 2, hits, len(present) - hits + 1) if hits else 0.0
        false = beta.ppf(1 - level / 2, alarms + 1, max(len(absent) - alarms, 1e-9))
        return math.log(max(seen - DELTA, 1e-12) / false)

    thresholds = np.quantile(
        np.concatenate([present, absent])[::2], np.linspace(0, 1, 99)
    )
    best = max(thresholds, key=lambda t: bound(t, present[::2], absent[::2], LEVEL))
    return bound(best, present[1::2], absent[1::2], LEVEL)


def audit(run, repetitions):
    present, absent = (
        weights_of_the_canary(run, repetitions, present) for present in (True, False)
    )
    return lower_bound(present, absent)


RUN = SampledGaussian(0.8, 2, ("bank",), noise_multiplier=1.5)


def test_training_keeps_what_it_claims():
    claimed = account_privacy([RUN], DELTA, accountant="pld").epsilon
    assert 0.3 < audit(RUN, 2000) < claimed < 5


@pytest.mark.parametrize("broken", ["noise", "clipping"])
def test_audit_finds_what_is_broken(monkeypatch, broken):
    claimed = account_privacy([RUN], DELTA).epsilon
    if broken == "noise":
        normal = _noise.Noise.normal
        monkeypatch.setattr(
            _noise.Noise, "normal", lambda self, size, _: normal(self, size, 1e-3)
        )
    else:
        monkeypatch.setattr(
            _private, "_factors", lambda squares, _: np.ones_like(squares)
        )
    assert audit(RUN, 1000) > claimed
