"""What the reported failures share: data, and the classifiers they are tried on."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skvfl import (
    APCVFLClassifier,
    FedOnceClassifier,
    RandomProjectionVFL,
    SplitNNClassifier,
    TabVFLClassifier,
    VFedSecClassifier,
)

COLUMNS = ["a0", "a1", "b0", "b1", "c0", "c1"]
PARTIES = {"a": ["a0", "a1"], "b": ["b0", "b1"], "c": ["c0", "c1"]}
BY_POSITION = {"a": [0, 1], "b": [2, 3], "c": [4, 5]}


@dataclass(frozen=True)
class Classifier:
    """One classifier, quick to fit, in the configuration that the cases use.

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
    build: Callable[..., ClassifierMixin]
    grid: dict[str, list]

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


def _splitnn(**params):
    return SplitNNClassifier(**{"max_epochs": 2, **params})


def _fedonce(**params):
    return FedOnceClassifier(**{"max_epochs": 2, **params})


def _apc(**params):
    return APCVFLClassifier(**{"max_epochs": 2, **params})


def _tabvfl(**params):
    return TabVFLClassifier(**{"max_epochs": 2, "n_steps": 2, **params})


def _vfedsec(**params):
    return VFedSecClassifier(**{"max_epochs": 2, **params})


CLASSIFIERS = [
    Classifier("APC-VFL", _apc, {"max_epochs": [1, 2], "batch_size": [8]}),
    Classifier("FedOnce", _fedonce, {"max_epochs": [1, 2], "batch_size": [8]}),
    Classifier("SplitNN", _splitnn, {"max_epochs": [1, 2], "batch_size": [8]}),
    Classifier("TabVFL", _tabvfl, {"max_epochs": [1, 2], "batch_size": [8]}),
    Classifier("vFedSec", _vfedsec, {"max_epochs": [1, 2], "batch_size": [8]}),
    Classifier(
        "RAP-perceptron",
        _rap_with_perceptron,
        {"estimator__n_iter_no_change": [1, 2], "estimator__batch_size": [8]},
    ),
    Classifier(
        "RAP-logistic-unprotected",
        _rap_with_logistic_regression,
        {"estimator__C": [0.1, 10.0]},
    ),
]
each_classifier = pytest.mark.parametrize(
    "make", CLASSIFIERS, ids=lambda classifier: classifier.name
)


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


def check_probabilities(probabilities, n, k):
    assert probabilities.shape == (n, k)
    assert np.isfinite(probabilities).all()
    assert (probabilities >= 0).all()
    assert (probabilities <= 1 + 1e-6).all()
    assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
