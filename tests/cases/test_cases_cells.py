"""Failures reported for similar libraries: what cells of a table hold."""

import warnings

import numpy as np
import pandas as pd
import pytest
from _support import CLASSIFIERS, data, each, each_classifier
from numpy.testing import assert_allclose

from skvfl import PartyPreprocessor, SplitNNClassifier


@pytest.mark.parametrize("kind", ["thousands", "question mark"])
def test_numbers_written_as_text(kind):
    """Numbers that arrive as text ("12,345", or "?" for missing) became categories.

    Source: skrub-data/skrub#1680 (also vraj-ucsd/ML-Data-Prep-Zoo#7),
    https://github.com/skrub-data/skrub/issues/1680
    """
    rng = np.random.default_rng(0)
    amount = rng.integers(1_000, 900_000, 600)
    y = (amount > np.median(amount)).astype(int)
    if kind == "thousands":
        text = [f"{value:,}" for value in amount]
    else:
        text = [str(value) if i % 50 else "?" for i, value in enumerate(amount)]
    X = pd.DataFrame(
        {"a0": rng.normal(size=600), "a1": rng.normal(size=600), "b0": text}
    )
    parties = {"a": ["a0", "a1"], "b": ["b0"]}
    split = SplitNNClassifier(parties=parties, max_epochs=20, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        score = split.fit(X[:400], y[:400]).score(X[400:], y[400:])
    said = any("b0" in str(warning.message) for warning in caught)
    assert score > 0.9 or said, f"accuracy {score:.2f} and no word about column 'b0'"


def test_every_category_is_unknown():
    """Unknown categories become zeros; in production one wants to be told.

    Two exports differ in a blank, case or spelling, and a whole column is unknown.

    Source: scikit-learn/scikit-learn#28637 (also #16881),
    https://github.com/scikit-learn/scikit-learn/pull/28637
    """
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a0": rng.normal(size=80), "b0": rng.choice(["yes", "no"], 80)})
    y = (X.b0 == "yes").to_numpy().astype(int)
    parties = {"a": ["a0"], "b": ["b0"]}
    split = SplitNNClassifier(parties=parties, max_epochs=5, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="b0"):
        split.predict(X.assign(b0=" " + X.b0))


@each_classifier
def test_one_row_from_json(make):
    """One row with a null, as a web service gets it, is a column of objects.

    Source: mlflow/mlflow#4827 (also bentoml/BentoML#862, alteryx/evalml#3194),
    https://github.com/mlflow/mlflow/issues/4827
    """
    X, y = data(60)
    estimator = make().fit(X, y)
    row = X.iloc[[0]].assign(a1=np.nan)
    as_json = pd.DataFrame([{**X.iloc[0].to_dict(), "a1": None}])
    assert as_json["a1"].dtype == object
    assert_allclose(estimator.predict_proba(as_json), estimator.predict_proba(row))


def test_time_zones_differ():
    """A time with a zone crashed the code for times; two zones are one clock.

    Source: sberbank-ai-lab/LightAutoML#85,
    https://github.com/sberbank-ai-lab/LightAutoML/pull/85
    """
    stamps = pd.date_range("2024-03-01", periods=40, freq="h", tz="UTC")
    X = pd.DataFrame({"t": stamps, "z": np.arange(40.0)})
    fitted = PartyPreprocessor().fit(X)
    moved = X.assign(t=stamps.tz_convert("Asia/Kolkata"))
    assert_allclose(fitted.transform(moved), fitted.transform(X))
    with pytest.raises(ValueError, match="'t'"):
        fitted.transform(X.assign(t=stamps.tz_localize(None)))


@each(CLASSIFIERS, without=["Boosting"])
def test_missing_cells_only_at_prediction(make):
    """Cells that are missing in columns that were complete in training crashed.

    Source: NVIDIA/NVFlare#3336,
    https://github.com/NVIDIA/NVFlare/issues/3336
    """
    X, y = data(60)
    estimator = make().fit(X, y)
    holes = X.copy()
    holes.iloc[::3, 1] = np.nan
    holes.iloc[1::3, 4] = np.nan
    medians = holes.fillna({"a1": X.a1.median(), "c0": X.c0.median()})
    assert_allclose(
        estimator.predict_proba(holes), estimator.predict_proba(medians), atol=1e-5
    )
