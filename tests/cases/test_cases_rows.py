"""Failures reported for similar libraries: whose rows and columns are which."""

import numpy as np
import pandas as pd
import pytest
from _support import CLASSIFIERS, PARTIES, data, each, each_classifier
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import FunctionTransformer

from skvfl import APCVFLClassifier, VerticalPartitioner
from skvfl.alignment import align


class Sorting(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X.sort_values(X.columns[0])


@each_classifier
def test_preparation_that_drops_rows(make):
    """A preparation step dropped rows on one side, and the sides lined up no more.

    Source: secretflow/secretflow#1202,
    https://github.com/secretflow/secretflow/issues/1202
    """
    X, y = data(60)
    drop_last = FunctionTransformer(lambda block: np.asarray(block)[:-1])
    parties = VerticalPartitioner(drop_last, parties=PARTIES)
    with pytest.raises(ValueError, match=r"party '[abc]': .*59 rows for 60"):
        make(parties=parties).fit(X, y)


@each_classifier
def test_preparation_that_reorders_rows(make):
    """The rows of one side came in another order, and people were mixed up.

    Source: OpenMined/PyVertical#41,
    https://github.com/OpenMined/PyVertical/pull/41
    """
    X, y = data(60)
    parties = VerticalPartitioner(Sorting(), parties=PARTIES)
    with pytest.raises(ValueError, match=r"party '[abc]': .*60 rows in another order"):
        make(parties=parties).fit(X, y)


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_byte_order_mark(party):
    """A spreadsheet's export starts with an invisible mark, in the first name.

    Source: awdeorio/mailmerge#93 (also sindresorhus/neat-csv#10),
    https://github.com/awdeorio/mailmerge/issues/93
    """
    tables = {
        "bank": pd.DataFrame({"id": [1, 2], "x": [1, 2]}),
        "shop": pd.DataFrame({"id": [2, 1], "z": [1, 2]}),
    }
    tables[party] = tables[party].rename(columns={"id": "\ufeffid"})
    aligned = align(tables, on="id")
    assert_array_equal(aligned.table["z"], [2, 1])
    assert aligned.parties == {"bank": ["x"], "shop": ["z"]}


@each(CLASSIFIERS, without=["APC-VFL"])
def test_partner_gone_at_prediction(make):
    """One side did not take part in predicting, and nobody could say which.

    Source: FederatedAI/FATE#2738 (also #270),
    https://github.com/FederatedAI/FATE/issues/2738
    """
    X, y = data(60)
    estimator = make().fit(X, y)
    with pytest.raises(ValueError, match=r"'[bc]'.*'[bc][01]'|'[bc][01]'.*'[bc]'"):
        estimator.predict(X[PARTIES["a"]])


@each(CLASSIFIERS, "APC-VFL")
def test_partner_not_needed_at_prediction(make):
    """The same wish: one side predicts without the other."""
    X, y = data(60)
    estimator = make().fit(X, y)
    assert isinstance(estimator, APCVFLClassifier)
    alone = estimator.predict_proba(X[PARTIES["a"]])
    assert_allclose(alone, estimator.predict_proba(X))
