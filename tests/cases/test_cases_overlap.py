"""Failures reported for similar libraries: rows that not every party holds, and ids."""

import numpy as np
import pandas as pd
import pytest
from _support import PARTIES, check_probabilities, data, each_classifier
from numpy.testing import assert_allclose

from skvfl import APCVFLClassifier
from skvfl.alignment import align
from skvfl.exceptions import AlignmentError


def apc(**params):
    settings = {"parties": PARTIES, "max_epochs": 2, "batch_size": 16}
    return APCVFLClassifier(**{**settings, "random_state": 0, **params})


@pytest.mark.parametrize("distillation", ["representation", "prediction", None])
def test_p09b_pd_na_means_row_not_held(distillation):
    """P09b: pd.NA in all of a party's cells is what np.nan in all of them is.

    Source: scikit-learn/scikit-learn#27482 (autogluon#3238 for torch),
    https://github.com/scikit-learn/scikit-learn/issues/27482
    """
    X, y = data()
    labels = np.where(np.arange(len(y)) % 2 == 0, y, np.nan)
    X.loc[3:9, ["b0", "b1"]] = np.nan
    nullable = X.astype("Float64")
    assert nullable["b0"].isna().sum() == 7
    expected = apc(distillation=distillation).fit(X, labels)
    given = apc(distillation=distillation).fit(nullable, labels)
    assert_allclose(given.predict_proba(nullable), expected.predict_proba(X), atol=1e-5)
    assert given.communication_.n_bytes == expected.communication_.n_bytes


@pytest.mark.parametrize("held", [1, 3])
def test_p28_party_with_very_few_rows(held):
    """P28: 3,290 rows on one side and 3 on the other broke the arithmetic of batches.

    Source: secretflow/secretflow#1757,
    https://github.com/secretflow/secretflow/issues/1757
    """
    X, y = data(n=60)
    X.loc[held:, ["b0", "b1"]] = np.nan
    est = apc().fit(X, y)
    expected = est.predict_proba(X)
    check_probabilities(expected, 60, 2)
    nobody_asks_b = est.predict_proba(X.iloc[held:])
    assert_allclose(nobody_asks_b, expected[held:], rtol=1e-12)
    check_probabilities(est.predict_proba(X.iloc[:1]), 1, 2)


@each_classifier
@pytest.mark.filterwarnings("ignore::skvfl.exceptions.MissingRowsWarning")
def test_p28b_rows_not_held_elsewhere_are_refused_or_survived(make):
    """P28b: the same report, for every classifier: words, or finite probabilities."""
    X, y = data(n=60)
    X.loc[3:, ["b0", "b1"]] = np.nan
    refusal = None
    try:
        est = make().fit(X, y)
    except ValueError as exc:
        refusal = str(exc)
    if refusal is None:
        check_probabilities(est.predict_proba(X), 60, 2)
    else:
        assert "missing" in refusal or "NaN" in refusal


def test_p31_duplicated_ids():
    """P31: repeated ids on both sides: the row counts of the parties disagreed.

    Source: secretflow/psi#364 (FATE#818),
    https://github.com/secretflow/psi/issues/364
    """
    a = pd.DataFrame({"id": ["u1", "u2", "u2", "u3"], "a0": [1.0, 2.0, 2.5, 3.0]})
    b = pd.DataFrame({"id": ["u3", "u2", "u2", "u1"], "b0": [30.0, 20.0, 25.0, 10.0]})
    with pytest.raises(AlignmentError, match=r"'a': 1 duplicate ids .* \('u2'\)"):
        align({"a": a, "b": b}, on="id")
    once = align({"a": a, "b": b}, on="id", duplicates="first")
    assert once.table.to_numpy().tolist() == [[1, 10], [2, 20], [3, 30]]
