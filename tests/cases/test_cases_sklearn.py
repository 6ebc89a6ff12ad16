"""Failures reported for similar libraries: parameters, copies, searches, output."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from _support import PARTIES, check_probabilities, data, each_classifier
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from skvfl import VerticalPartitioner


@each_classifier
def test_p22_clone_and_init_params_untouched(make):
    """P22: list parameters were rewritten in __init__, so clone() refused.

    Source: dreamquark-ai/tabnet#512 (skorch#434),
    https://github.com/dreamquark-ai/tabnet/issues/512
    """
    X, y = data()
    parties = {name: list(columns) for name, columns in PARTIES.items()}
    est = make(parties=parties)
    assert est.parties is parties
    twin = clone(est)
    est.fit(X, y)
    assert est.parties is parties
    assert parties == PARTIES
    assert list(parties) == list(PARTIES)
    name, values = next(iter(make.grid.items()))
    twin.set_params(**{name: values[0]})
    assert est.get_params()[name] != values[0]
    again = clone(est).fit(X, y)
    assert_allclose(again.predict_proba(X), est.predict_proba(X), atol=1e-6)


@each_classifier
def test_p23_copy_and_pickle_after_search(make):
    """P23: a fitted net inside GridSearchCV could not be deep-copied or saved.

    Source: skorch-dev/skorch#1110 (skada#139),
    https://github.com/skorch-dev/skorch/issues/1110
    """
    X, y = data()
    search = GridSearchCV(make(), make.grid, cv=2, error_score="raise").fit(X, y)
    reference = search.predict_proba(X)
    for other in (copy.deepcopy(search), pickle.loads(pickle.dumps(search))):
        assert_allclose(other.predict_proba(X), reference, atol=1e-6)
        assert_allclose(other.fit(X, y).predict_proba(X), reference, atol=1e-6)


def test_p24_search_over_the_inner_estimator_of_each_party():
    """P24: inner parameters of meta-estimators could not be searched over.

    Source: scikit-learn/scikit-learn#4291,
    https://github.com/scikit-learn/scikit-learn/issues/4291
    """
    X, y = data()
    partition = VerticalPartitioner(PCA(), parties=PARTIES)
    pipeline = Pipeline([("partition", partition), ("clf", LogisticRegression())])
    grid = {
        "partition__transformer__n_components": [1, 2],
        "partition__transformer__whiten": [True],
    }
    assert set(grid) <= set(pipeline.get_params())
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    best = search.best_params_["partition__transformer__n_components"]
    assert search.best_estimator_["partition"].transform(X).shape == (len(X), 3 * best)
    assert not hasattr(partition.transformer, "components_")
    for k in (1, 2):
        pipeline.set_params(partition__transformer__n_components=k).fit(X, y)
        assert partition.transform(X).shape == (len(X), 3 * k)


@each_classifier
def test_p24b_training_arguments_are_searchable(make):
    """P24b: batch size and number of epochs were out of reach for a search.

    Source: dreamquark-ai/tabnet#238,
    https://github.com/dreamquark-ai/tabnet/issues/238
    """
    X, y = data()
    search = GridSearchCV(make(), make.grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_params_.keys() == make.grid.keys()
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@each_classifier
@pytest.mark.parametrize("k", [2, 4])
def test_p25_probabilities_sum_to_one(make, k):
    """P25: "y_pred values do not sum to one".

    Source: sb-ai-lab/LightAutoML#137 (HyperFast#3),
    https://github.com/sb-ai-lab/LightAutoML/issues/137
    """
    X, y = data(n=60, k=k)
    est = make().fit(X, y)
    probabilities = est.predict_proba(X)
    check_probabilities(probabilities, 60, k)
    assert np.isfinite(log_loss(y, probabilities))
    assert_array_equal(est.classes_[probabilities.argmax(axis=1)], est.predict(X))


@each_classifier
def test_p26_refit_forgets_the_first_fit(make):
    """P26: a second fit with other classes met the first fit's output layer.

    Source: scikit-learn/scikit-learn#8035 (#11758),
    https://github.com/scikit-learn/scikit-learn/pull/8035
    """
    X, y = data(n=45, k=3)
    other, codes = data(n=40, k=2, seed=1)
    wide, slim = X.to_numpy(), other.to_numpy()[:, :4]
    labels = np.array(["n", "p"])[codes]
    est = make(parties=2, active=0).fit(wide, y)
    probabilities = est.fit(slim, labels).predict_proba(slim)
    assert list(est.classes_) == ["n", "p"]
    assert est.n_features_in_ == 4
    fresh = make(parties=2, active=0).fit(slim, labels)
    assert_allclose(probabilities, fresh.predict_proba(slim), atol=1e-6)


@each_classifier
def test_p27_global_pandas_output(make):
    """P27: global pandas output reached transformers inside other estimators.

    Source: scikit-learn/scikit-learn#25365 (tabfm#59),
    https://github.com/scikit-learn/scikit-learn/issues/25365
    """
    X, y = data()
    reference = make().fit(X, y).predict_proba(X)
    with config_context(transform_output="pandas"):
        probabilities = make().fit(X, y).predict_proba(X)
        out = VerticalPartitioner(StandardScaler(), parties=PARTIES).fit_transform(X)
    assert_allclose(probabilities, reference, atol=1e-6)
    assert isinstance(out, pd.DataFrame)
    assert out.shape == X.shape
