"""Failures reported for similar libraries: labels."""

import numpy as np
import pandas as pd
import pytest
from _support import check_probabilities, data, each_classifier
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import accuracy_score
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score
from sklearn.utils.multiclass import type_of_target


@each_classifier
@pytest.mark.parametrize("labels", [(5, 7), (-1, 1), (10, 20, 30)], ids=str)
def test_p01_labels_not_0_to_k(make, labels):
    """P01: raw labels used as class indices crash or train on wrong targets.

    Source: OpenTabular/DeepTab#409,
    https://github.com/OpenTabular/DeepTab/issues/409
    """
    X, y = data(k=len(labels))
    names = np.asarray(labels)
    reference = make().fit(X, y)
    est = make().fit(X, names[y])
    assert_array_equal(est.classes_, np.sort(names))
    assert_allclose(est.predict_proba(X), reference.predict_proba(X), atol=1e-5)
    assert_array_equal(est.predict(X), names[reference.predict(X)])


@each_classifier
@pytest.mark.parametrize("kind", ["int64", "str", "object", "category"])
def test_p02_predict_keeps_label_type(make, kind):
    """P02: predictions of another dtype than the labels, which scorers refuse.

    Source: google-research/tabfm#28,
    https://github.com/google-research/tabfm/pull/28
    """
    X, y = data(k=3)
    text = np.array(["low", "mid", "top"])[y]
    target = {
        "int64": y.astype("int64"),
        "str": text,
        "object": text.astype(object),
        "category": pd.Series(text, dtype="category"),
    }[kind]
    est = make().fit(X, target)
    predicted = est.predict(X)
    assert predicted.dtype == est.classes_.dtype
    assert type_of_target(predicted) in ("binary", "multiclass")
    assert set(predicted) <= set(np.asarray(target))
    assert 0 <= accuracy_score(np.asarray(target), predicted) <= 1
    scores = cross_val_score(make(), X, target, cv=2, error_score="raise")
    assert np.isfinite(scores).all()


@each_classifier
@pytest.mark.parametrize("shape", ["column", "frame", "list"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_p03_y_as_column_vector(make, shape):
    """P03: labels of shape (n, 1) were broadcast to an all-pairs loss.

    Source: OpenTabular/DeepTab#441,
    https://github.com/OpenTabular/DeepTab/issues/441
    """
    X, y = data()
    other = {
        "column": y.reshape(-1, 1),
        "frame": pd.DataFrame({"label": y}),
        "list": y.tolist(),
    }[shape]
    reference = make().fit(X, y).predict_proba(X)
    est = make().fit(X, other)
    assert est.predict(X).shape == (len(X),)
    assert_allclose(est.predict_proba(X), reference, atol=1e-5)


@each_classifier
@pytest.mark.filterwarnings("ignore:Number of classes in training fold")
def test_p04_class_absent_from_a_training_fold(make):
    """P04: probabilities of cross_val_predict broke where a fold lacked a class.

    Source: scikit-learn/scikit-learn#7889,
    https://github.com/scikit-learn/scikit-learn/pull/7889
    """
    X, _ = data(n=48)
    y = np.r_[np.tile([0, 1], 16), np.tile([2, 0], 8)]
    folds = KFold(3)
    probabilities = cross_val_predict(make(), X, y, cv=folds, method="predict_proba")
    check_probabilities(probabilities, 48, 3)
    assert_array_equal(probabilities[32:, 2], 0)
    est = make().fit(X[:32], y[:32])
    assert_array_equal(est.classes_, [0, 1])
    check_probabilities(est.predict_proba(X[32:]), 16, 2)


@each_classifier
def test_p05_only_one_class(make):
    """P05: labels of one class gave another exception in every classifier.

    Source: scikit-learn/scikit-learn#5804,
    https://github.com/scikit-learn/scikit-learn/issues/5804
    """
    X, _ = data()
    with pytest.raises(ValueError, match="one class"):
        make().fit(X, np.array(["yes"] * len(X)))
