"""Failures reported for similar libraries: a fit that fails after one that did not."""

import numpy as np
import pytest
from _support import data, each_classifier, each_regressor, targets
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError


def stands_or_is_unfitted(estimator, X, before):
    """After a failed fit: the old answers, or NotFittedError; never a mixture."""
    try:
        after = estimator.predict(X)
    except NotFittedError:
        return
    assert_array_equal(after, before)


@each_classifier
@pytest.mark.parametrize("failure", ["one class", "sparse table"])
def test_failed_refit_of_a_classifier(make, failure):
    """A failed fit left the new labels beside the old model, and answers were wrong.

    Source: earth-chris/elapid#47 (also NVIDIA/cuml#8546),
    https://github.com/earth-chris/elapid/issues/47
    """
    X, y = data(60)
    estimator = make().fit(X, y)
    before = estimator.predict(X)
    table, labels = X, np.zeros(len(X), int)
    if failure == "sparse table":
        table, labels = sparse.csr_array(X.to_numpy()), np.where(y == 1, "yes", "no")
    with pytest.raises((TypeError, ValueError)):
        estimator.fit(table, labels)
    stands_or_is_unfitted(estimator, X, before)


@each_regressor
def test_failed_refit_of_a_regressor(make):
    """A model that was half fitted answered in the units of another target.

    Source: NVIDIA/cuml#8546,
    https://github.com/NVIDIA/cuml/pull/8546
    """
    X, y = targets()
    estimator = make().fit(X, y)
    before = estimator.predict(X)
    with pytest.raises((TypeError, ValueError)):
        estimator.fit(sparse.csr_array(X.to_numpy()), 1000 * y + 1e6)
    stands_or_is_unfitted(estimator, X, before)
