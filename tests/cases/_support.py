"""What the reported failures share: data, and the estimators they are tried on."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier

from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    FedOnceClassifier,
    FedOnceRegressor,
    RandomProjectionVFL,
    SplitNNClassifier,
    SplitNNRegressor,
    TabVFLClassifier,
    TabVFLRegressor,
    VFedSecClassifier,
    VFedSecRegressor,
    VFLBoostingClassifier,
    VFLBoostingRegressor,
)

COLUMNS = ["a0", "a1", "b0", "b1", "c0", "c1"]
PARTIES = {"a": ["a0", "a1"], "b": ["b0", "b1"], "c": ["c0", "c1"]}
BY_POSITION = {"a": [0, 1], "b": [2, 3], "c": [4, 5]}


@dataclass(frozen=True)
class Candidate:
    """One estimator, quick to fit, in the configuration that the cases use.

    Attributes
    ----------
    name : str
        For the test's identifier.
    build : callable
        Given ``batch_size`` and constructor parameters, returns the estimator.
    grid : dict
        Parameters of its training that a search can reach; no value is the default.
    """

    name: str
    build: Callable[..., BaseEstimator]
    grid: dict[str, list] = field(default_factory=dict)

    def __call__(self, *, batch_size=16, **params):
        params = {"parties": PARTIES, "active": "a", "random_state": 0, **params}
        return self.build(batch_size=batch_size, **params)


def _rap_with_perceptron(*, batch_size, **params):
    four_epochs = MLPClassifier(
        (16,), batch_size=batch_size, tol=10, n_iter_no_change=3
    )
    return RandomProjectionVFL(four_epochs, **params)


def _rap_with_logistic_regression(*, batch_size, **params):
    return RandomProjectionVFL(LogisticRegression(), label_protection=False, **params)


def _rap_with_ridge(*, batch_size, max_epochs=None, **params):
    return RandomProjectionVFL(Ridge(), **params)


def _two_epochs(Estimator, **settings):
    """Build such an estimator, trained for two epochs where nothing else is said."""
    return lambda **params: Estimator(**{"max_epochs": 2, **settings, **params})


def _few_trees(Estimator):
    """Build such an estimator; epochs are iterations, and there are no batches."""

    def make(*, max_epochs=2, batch_size=None, **params):
        return Estimator(**{"max_iter": max_epochs, "min_samples_leaf": 2, **params})

    return make


_NET_GRID = {"max_epochs": [1, 2], "batch_size": [8]}
CLASSIFIERS = [
    Candidate("APC-VFL", _two_epochs(APCVFLClassifier), _NET_GRID),
    Candidate("FedOnce", _two_epochs(FedOnceClassifier), _NET_GRID),
    Candidate("SplitNN", _two_epochs(SplitNNClassifier), _NET_GRID),
    Candidate("TabVFL", _two_epochs(TabVFLClassifier, n_steps=2), _NET_GRID),
    Candidate("vFedSec", _two_epochs(VFedSecClassifier), _NET_GRID),
    Candidate("Boosting", _few_trees(VFLBoostingClassifier), {"max_iter": [1, 2]}),
    Candidate(
        "RAP-perceptron",
        _rap_with_perceptron,
        {"estimator__n_iter_no_change": [1, 2], "estimator__batch_size": [8]},
    ),
    Candidate(
        "RAP-logistic-unprotected",
        _rap_with_logistic_regression,
        {"estimator__C": [0.1, 10.0]},
    ),
]
REGRESSORS = [
    Candidate("APC-VFL", _two_epochs(APCVFLRegressor)),
    Candidate("FedOnce", _two_epochs(FedOnceRegressor)),
    Candidate("SplitNN", _two_epochs(SplitNNRegressor)),
    Candidate("TabVFL", _two_epochs(TabVFLRegressor, n_steps=2)),
    Candidate("vFedSec", _two_epochs(VFedSecRegressor)),
    Candidate("Boosting", _few_trees(VFLBoostingRegressor)),
    Candidate("RAP-ridge", _rap_with_ridge),
]


def each(candidates, *names, without=()):
    """Try a case on these candidates, or on all but some of them."""
    chosen = [
        candidate
        for candidate in candidates
        if candidate.name in (names or [candidate.name])
        and candidate.name not in without
    ]
    return pytest.mark.parametrize("make", chosen, ids=lambda each: each.name)


each_classifier = each(CLASSIFIERS)
each_regressor = each(REGRESSORS)
each_net = each(CLASSIFIERS, "FedOnce", "SplitNN", "TabVFL", "vFedSec")


def data(n=40, k=2, seed=0):
    """Six columns, two for each of the parties, and k classes."""
    X, y = make_classification(
        n_samples=n,
        n_features=6,
        n_informative=4,
        n_redundant=0,
        n_classes=k,
        n_clusters_per_class=1,
        random_state=seed,
    )
    return pd.DataFrame(X, columns=COLUMNS), y


def targets(n=60, seed=0):
    """Six columns, two for each of the parties, and a number to predict."""
    X, y = make_regression(
        n_samples=n, n_features=6, n_informative=4, random_state=seed
    )
    return pd.DataFrame(X, columns=COLUMNS), y


def check_probabilities(probabilities, n, k):
    assert probabilities.shape == (n, k)
    assert np.isfinite(probabilities).all()
    assert (probabilities >= 0).all()
    assert (probabilities <= 1 + 1e-6).all()
    assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
