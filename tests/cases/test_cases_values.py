"""Failures reported for similar libraries: awkward values and widths."""

import numpy as np
import pytest
from _support import BY_POSITION, PARTIES, check_probabilities, data, each_classifier
from numpy.testing import assert_allclose
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression

from skvfl import RandomProjectionVFL, VerticalPartitioner


@pytest.mark.filterwarnings("ignore:Skipping features without any observed values")
@pytest.mark.parametrize("empty", [["b1"], ["b0", "b1"]], ids=["column", "party"])
def test_p13_all_nan_column_and_output_names(empty):
    """P13: an imputer drops an all-NaN column, and counts of columns are off by one.

    Source: scikit-learn/scikit-learn#16426,
    https://github.com/scikit-learn/scikit-learn/issues/16426
    """
    X, _ = data()
    X[empty] = np.nan
    partition = VerticalPartitioner(SimpleImputer(), parties=PARTIES).fit(X)
    out = partition.transform(X)
    names = list(partition.get_feature_names_out())
    assert out.shape == (len(X), 6 - len(empty))
    assert np.isfinite(out).all()
    assert names == [
        f"{party}__{column}"
        for party, columns in PARTIES.items()
        for column in columns
        if column not in empty
    ]
    assert partition.output_slices_["c"] == slice(4 - len(empty), 6 - len(empty))


@each_classifier
@pytest.mark.filterwarnings("ignore:.*holds no cell of:UserWarning")
def test_p28b_rows_not_held_elsewhere_are_survived(make):
    """P28b: a party that holds very few of the rows broke batch arithmetic.

    Source: secretflow/secretflow#1757,
    https://github.com/secretflow/secretflow/issues/1757
    """
    X, y = data(n=60)
    X.loc[3:, ["b0", "b1"]] = np.nan
    check_probabilities(make().fit(X, y).predict_proba(X), 60, 2)


@each_classifier
@pytest.mark.filterwarnings("ignore:.*has no value at all:UserWarning")
def test_p13b_all_nan_column_in_classifier(make):
    """P13b: an all-NaN column slipped past the filter of constant columns.

    Source: PriorLabs/TabPFN#1061,
    https://github.com/PriorLabs/TabPFN/pull/1061
    """
    X, y = data()
    X["b1"] = np.nan
    est = make().fit(X, y)
    check_probabilities(est.predict_proba(X), len(X), 2)
    assert est.n_features_in_ == 6


@each_classifier
@pytest.mark.parametrize("columns", [["b0"], ["b0", "b1"]], ids=["column", "party"])
def test_p14_constant_columns(make, columns):
    """P14: division by a standard deviation of zero, and a NaN loss in epoch 0.

    Source: autogluon/autogluon#4508 (tabnet#232, #515),
    https://github.com/autogluon/autogluon/issues/4508
    """
    X, y = data()
    X[columns] = 7.0
    est = make().fit(X, y)
    check_probabilities(est.predict_proba(X), len(X), 2)
    moved = X.copy()
    moved[columns] = 9.0
    check_probabilities(est.predict_proba(moved), len(X), 2)


@each_classifier
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32"])
def test_p15_numeric_dtypes_agree(make, dtype):
    """P15: the same numbers in another dtype, "expected Float but found Double".

    Source: csinva/imodelsX#8 (skorch#758, #518),
    https://github.com/csinva/imodelsX/issues/8
    """
    X, y = data()
    X = np.rint(X.to_numpy() * 8)
    reference = make(parties=BY_POSITION).fit(X, y).predict_proba(X)
    converted = X.astype(dtype)
    est = make(parties=BY_POSITION).fit(converted, y)
    probabilities = est.predict_proba(converted)
    check_probabilities(probabilities, len(X), 2)
    assert_allclose(probabilities, reference, atol=1e-4)


@pytest.mark.parametrize("n", [8, 60])
def test_p16_random_projection_default_on_narrow_party(n):
    """P16: a default number of components asks for more columns than there are.

    Source: scikit-learn/scikit-learn#5719,
    https://github.com/scikit-learn/scikit-learn/issues/5719
    """
    X, y = data(n=n)
    parties = {"a": ["a0"], "b": ["a1", "b0"], "c": ["b1", "c0", "c1"]}
    rap = RandomProjectionVFL(LogisticRegression(), parties=parties, random_state=0)
    out = rap.fit(X, y).transform(X)
    assert out.shape == (n, 2 + 2 + 3)
    assert np.isfinite(out).all()
