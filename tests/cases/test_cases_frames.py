"""Failures reported for similar libraries: frames, names, who owns which column."""

import numpy as np
import pandas as pd
import pytest
from _support import PARTIES, check_probabilities, data, each_classifier
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skvfl import VerticalPartitioner


@each_classifier
@pytest.mark.parametrize("parties", [PARTIES, 3], ids=["names", "round-robin"])
def test_p06_columns_permuted_at_predict(make, parties):
    """P06: the same columns in another order gave wrong answers and no error.

    Source: scikit-learn/scikit-learn#7242 (the same wish in FATE#1586),
    https://github.com/scikit-learn/scikit-learn/issues/7242
    """
    X, y = data()
    est = make(parties=parties, active=0).fit(X, y)
    permuted = est.predict_proba(X[X.columns[::-1]])
    assert_allclose(permuted, est.predict_proba(X), atol=1e-5)


@each_classifier
def test_p07_duplicate_column_names(make):
    """P07: a repeated column name failed deep inside with an unrelated message.

    Source: skrub-data/skrub#636,
    https://github.com/skrub-data/skrub/issues/636
    """
    X, y = data()
    X = X.set_axis(["a0", "a1", "b0", "b0", "c0", "c1"], axis=1)
    parties = {"a": ["a0", "a1"], "b": ["b0"], "c": ["c0", "c1"]}
    message = r"duplicate column names \['b0'\]"
    with pytest.raises(ValueError, match=message):
        make(parties=parties).fit(X, y)
    with pytest.raises(ValueError, match=message):
        VerticalPartitioner(StandardScaler(), parties=parties).fit(X)


@each_classifier
def test_p08_integer_column_labels(make):
    """P08: integer labels of columns were taken for positions, or the reverse.

    Source: scikit-learn/scikit-learn#30983,
    https://github.com/scikit-learn/scikit-learn/issues/30983
    """
    X, y = data()
    labelled = X.set_axis([30, 10, 50, 20, 60, 40], axis=1)
    plain = X.to_numpy()
    by_position = make(parties=3, active=0)
    assert_allclose(
        by_position.fit(labelled, y).predict_proba(labelled),
        by_position.fit(plain, y).predict_proba(plain),
        atol=1e-5,
    )
    by_label = make(parties={"a": [30, 10], "b": [50, 20], "c": [60, 40]})
    with pytest.raises(ValueError, match="'a' is given integers"):
        by_label.fit(labelled, y)


@each_classifier
def test_p09_nullable_dtypes(make):
    """P09: nullable columns became objects in a column-wise meta-estimator.

    Source: scikit-learn/scikit-learn#27482 (autogluon#3238 for torch),
    https://github.com/scikit-learn/scikit-learn/issues/27482
    """
    X, y = data()
    X["a0"], X["b0"] = np.rint(X["a0"] * 3), (X["b0"] > 0).astype(float)
    dtypes = {"a0": "Int64", "a1": "Float64", "b0": "boolean", "b1": "Float64"}
    nullable = X.astype(dtypes)
    assert_allclose(
        make().fit(nullable, y).predict_proba(nullable),
        make().fit(X, y).predict_proba(X),
        atol=1e-5,
    )


def test_p10_unseen_category_in_partitioner():
    """P10: a category not seen in training ended in an index out of range.

    Source: dreamquark-ai/tabnet#359 (also #529),
    https://github.com/dreamquark-ai/tabnet/issues/359
    """
    X, y = data()
    X["b0"] = np.where(X["b0"] > 0, "red", "blue")
    new = X.copy()
    new.loc[0, "b0"] = "green"
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    pipeline = make_pipeline(
        VerticalPartitioner(encoder, parties={"b": ["b0"]}, remainder="drop"),
        LogisticRegression(),
    ).fit(X, y)
    check_probabilities(pipeline.predict_proba(new), len(new), 2)
    encoded = pipeline[0].transform(new)
    assert encoded.shape == pipeline[0].transform(X).shape == (len(X), 2)
    assert_array_equal(encoded[0], 0)


@each_classifier
def test_p10b_unseen_category_given_to_classifier(make):
    """P10b: the same report, with a text column given to the classifier."""
    X, y = data()
    X["b0"] = np.where(X["b0"] > 0, "red", "blue")
    new = X.copy()
    new.loc[0, "b0"] = "green"
    check_probabilities(make().fit(X, y).predict_proba(new), len(new), 2)


@each_classifier
def test_p11_active_party_owns_only_the_label(make):
    """P11: a side that holds only the label was not supported.

    Source: secretflow/secretflow#256 (also scikit-learn#25487),
    https://github.com/secretflow/secretflow/issues/256
    """
    X, y = data()
    parties = {"label_owner": [], "b": ["a0", "a1", "b0"], "c": ["b1", "c0", "c1"]}
    est = make(parties=parties, active="label_owner")
    try:
        est.fit(X, y)
    except ValueError as exc:
        assert "party 'label_owner' holds no column" in str(exc)  # noqa: PT017
    else:
        check_probabilities(est.predict_proba(X), len(X), 2)
    with pytest.raises(ValueError, match="party 'label_owner' holds no column"):
        est.set_params(active="b").fit(X, y)


@each_classifier
def test_p12_shuffled_index(make):
    """P12: pieces of a frame were glued by index: rows vanished or were mixed.

    Source: scikit-learn/scikit-learn#26210 (also MAPIE#150),
    https://github.com/scikit-learn/scikit-learn/issues/26210
    """
    X, y = data()
    rng = np.random.default_rng(0)
    index = rng.permutation(1000)[: len(X)]
    shuffled = X.set_axis(index)
    labels = pd.Series(y, index=rng.permutation(index))
    assert_allclose(
        make().fit(shuffled, labels).predict_proba(shuffled),
        make().fit(X, y).predict_proba(X),
        atol=1e-5,
    )


def test_p12b_partitioner_output_keeps_the_index():
    """P12b: the same report, for pandas output."""
    X, _ = data()
    index = np.random.default_rng(0).permutation(1000)[: len(X)]
    partition = VerticalPartitioner(StandardScaler(), parties=PARTIES)
    plain = partition.fit_transform(X)
    framed = partition.set_output(transform="pandas").fit_transform(X.set_axis(index))
    assert_array_equal(framed.index, index)
    assert_allclose(framed.to_numpy(), plain, atol=1e-9)
