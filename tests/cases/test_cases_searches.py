"""Failures reported for similar libraries: searches, routing, files, processes."""

import copy
import os
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from _support import CLASSIFIERS, data, each, each_classifier, each_net
from numpy.testing import assert_array_equal
from scipy.stats import loguniform, randint
from sklearn import config_context
from sklearn.ensemble import StackingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GroupKFold,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_validate,
)

from skvfl import RandomProjectionVFL


@each(CLASSIFIERS, without=["RAP-perceptron"])
def test_halving_search_on_few_rows(make):
    """The first rounds of a halving search have few rows, some without all classes.

    Source: scikit-learn/scikit-learn#20775 (also aeon-toolkit/aeon#3608),
    https://github.com/scikit-learn/scikit-learn/issues/20775
    """
    X, y = data(90)
    name = next(iter(make.grid))
    search = HalvingGridSearchCV(
        make(), {name: [1, 2]}, cv=2, min_resources="smallest", random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, np.where(y == 1, "yes", "no"))
    assert set(search.predict(X)) <= {"yes", "no"}


@each_classifier
def test_permutation_importance_of_mixed_columns(make):
    """Permutation importance failed for named labels and columns of categories.

    Source: alteryx/evalml#3012 (also TeamHG-Memex/eli5#351),
    https://github.com/alteryx/evalml/issues/3012
    """
    X, y = data(60)
    levels = np.where(X.b0 > 0, "high", "low")
    X["b0"] = pd.Categorical(levels, categories=["low", "mid", "high"])
    X["c0"] = X.c0 > 0
    y = np.where(y == 1, "yes", "no")
    fitted = make().fit(X, y)
    found = permutation_importance(fitted, X, y, n_repeats=1, random_state=0)
    assert np.isfinite(found.importances_mean).all()


@each(CLASSIFIERS, "APC-VFL", "FedOnce", "SplitNN", "TabVFL", "vFedSec")
def test_random_search_draws_numpy_numbers(make):
    """A random search over a wrapped network failed on numbers of numpy's types.

    Source: keras-team/keras#16143,
    https://github.com/keras-team/keras/issues/16143
    """
    X, y = data(60)
    draws = {
        "max_epochs": randint(1, 3),
        "batch_size": randint(8, 20),
        "lr": loguniform(1e-4, 1e-2),
    }
    search = RandomizedSearchCV(
        make(), draws, n_iter=2, cv=2, random_state=0, error_score="raise"
    )
    best = search.fit(X, y).best_estimator_
    assert_array_equal(pickle.loads(pickle.dumps(best)).predict(X), search.predict(X))


@each_classifier
def test_weights_and_groups_are_routed(make):
    """Weights and groups did not reach models inside stacking and nested validation.

    Source: scikit-learn/scikit-learn#29454 (also #28696, #7646),
    https://github.com/scikit-learn/scikit-learn/issues/29454
    """
    X, y = data(60)
    weights, groups = np.linspace(0.1, 2, len(y)), np.arange(len(y)) % 6
    with config_context(enable_metadata_routing=True):
        asking = make().set_fit_request(sample_weight=True)
        asking.set_score_request(sample_weight=True)
        scores = cross_validate(
            asking,
            X,
            y,
            cv=GroupKFold(3),
            error_score="raise",
            params={"sample_weight": weights, "groups": groups},
        )["test_score"]
        assert len(scores) == 3
        final = LogisticRegression().set_fit_request(sample_weight=True)
        stack = StackingClassifier([("vfl", asking)], final, cv=2)
        stack.fit(X, y, sample_weight=weights)
        assert stack.predict(X).shape == y.shape


@each_classifier
def test_model_mapped_from_a_file(make, tmp_path):
    """A model that joblib maps from a file is read-only, and predicting failed.

    Source: scikit-learn/scikit-learn#25584 (also bentoml/BentoML#1219),
    https://github.com/scikit-learn/scikit-learn/issues/25584
    """
    X, y = data(60)
    estimator = make().fit(X, y)
    joblib.dump(estimator, tmp_path / "model")
    loaded = joblib.load(tmp_path / "model", mmap_mode="r")
    assert_array_equal(loaded.predict_proba(X), estimator.predict_proba(X))
    assert_array_equal(copy.deepcopy(loaded).predict(X), estimator.predict(X))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.slow
def test_processes_leave_no_files_open():
    """Every run left pipes open until the machine refused to open more.

    Source: sbi-dev/sbi#197 (also lava-nc/lava#642),
    https://github.com/sbi-dev/sbi/issues/197
    """
    X, y = data(60)
    rap = RandomProjectionVFL(LogisticRegression(), transport="process")
    rap.fit(X, y)
    before = len(os.listdir("/proc/self/fd"))
    rap.fit(X, y)
    rap.predict(X)
    assert len(os.listdir("/proc/self/fd")) <= before


@each_net
def test_rare_class_and_early_stopping(make):
    """The held-out rows took all rows of a rare class, and training failed.

    Source: scikit-learn/scikit-learn#13164 (also #12983, #24713),
    https://github.com/scikit-learn/scikit-learn/pull/13164
    """
    X, _ = data(120)
    rare = np.zeros(120, int)
    rare[-2:] = 1
    estimator = make(early_stopping=True).fit(X, rare)
    assert estimator.predict_proba(X).shape == (120, 2)
    few = make(early_stopping=True).fit(X[:4], [0, 1, 0, 1])
    assert np.isfinite(few.predict_proba(X)).all()
