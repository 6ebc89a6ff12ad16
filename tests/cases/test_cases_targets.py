"""Failures reported for similar libraries: targets and weights that are no numbers."""

import warnings

import numpy as np
import pandas as pd
import pytest
from _support import CLASSIFIERS, data, each, each_net, each_regressor, targets
from numpy.testing import assert_allclose

from skvfl import APCVFLRegressor
from skvfl.exceptions import PartyError


@each_regressor
@pytest.mark.parametrize("kind", ["time", "duration"])
def test_missing_time_in_the_target(make, kind):
    """Training went on with targets that were missing; as a number they are huge.

    Source: Nixtla/neuralforecast#186,
    https://github.com/Nixtla/neuralforecast/issues/186
    """
    X, _ = targets()
    y = pd.Series(pd.date_range("2020-01-01", periods=len(X)))
    y = y - y[0] if kind == "duration" else y
    y[3] = pd.NaT
    estimator = make()
    try:
        predicted = estimator.fit(X, y).predict(X)
    except (TypeError, ValueError) as exc:
        assert not isinstance(exc, PartyError)  # noqa: PT017
        return
    # Rows without a label are what APC-VFL is for.
    assert isinstance(estimator, APCVFLRegressor)
    assert (predicted > -1e18).all()


@each_regressor
def test_masked_targets(make):
    """The mask of a masked array was dropped, and what lay under it was fitted.

    Source: sherpa/sherpa#695,
    https://github.com/sherpa/sherpa/issues/695
    """
    X, y = targets()
    y[:5] = 1e9
    masked = np.ma.masked_array(y, mask=np.arange(len(y)) < 5)
    try:
        predicted = make().fit(X, masked).predict(X)
    except (TypeError, ValueError) as exc:
        message = str(exc).lower()
        assert "mask" in message or "missing" in message
    else:
        assert abs(predicted).max() < 1e5


@each_regressor
def test_masked_weights(make):
    """The same report, for weights."""
    X, y = targets()
    first = np.arange(len(y)) < 5
    weights = np.ma.masked_array(np.where(first, 1e6, 1.0), mask=first)
    plain = np.where(first, 0.0, 1.0)
    try:
        got = make().fit(X, y, sample_weight=weights).predict(X)
    except (TypeError, ValueError) as exc:
        message = str(exc).lower()
        assert "mask" in message or "missing" in message
    else:
        assert_allclose(got, make().fit(X, y, sample_weight=plain).predict(X))


@each(CLASSIFIERS, without=["APC-VFL", "RAP-perceptron"])
def test_negative_class_weight(make):
    """Weights that are not positive trained until something else failed.

    Source: Deci-AI/super-gradients#608,
    https://github.com/Deci-AI/super-gradients/pull/608
    """
    X, y = data(60)
    y = np.where(y == 1, "yes", "no")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=r"(?i)negative|class_weight") as caught:
            make(class_weight={"yes": -1, "no": 1}).fit(X, y)
    assert not isinstance(caught.value, PartyError)


@each_net
def test_batches_without_weight(make):
    """A batch whose rows all have weight zero made every parameter NaN.

    Source: cossio/RestrictedBoltzmannMachines.jl#143,
    https://github.com/cossio/RestrictedBoltzmannMachines.jl/issues/143
    """
    X, y = data(120)
    weights = np.zeros(120)
    weights[np.r_[np.flatnonzero(y == 0)[:4], np.flatnonzero(y == 1)[:4]]] = 1
    estimator = make(batch_size=4).fit(X, y, sample_weight=weights)
    assert np.isfinite(estimator.predict_proba(X)).all()


@each_regressor
def test_errors_quote_no_targets(make):
    """An error quoted the record that it could not read, in everybody's logs.

    Source: databricks/spark-xml#593,
    https://github.com/databricks/spark-xml/issues/593
    """
    X, y = targets()
    with pytest.raises((TypeError, ValueError)) as caught:
        make().fit(X, y + 0j)
    assert not [value for value in y if f"{value:.4f}"[:7] in str(caught.value)]


@each_regressor
def test_targets_in_large_units(make):
    """A network predicted nonsense for unscaled targets, or in the wrong unit.

    Source: autogluon/autogluon#1158 (also LAMDA-Tabular/TALENT#89),
    https://github.com/autogluon/autogluon/issues/1158
    """
    X, y = targets(80)
    small = make(max_epochs=10).fit(X, y).predict(X)
    for factor, shift in [(1e9, 1e12), (1e-9, 0.0)]:
        large = make(max_epochs=10).fit(X, y * factor + shift).predict(X)
        assert_allclose((large - shift) / factor, small, rtol=1e-2, atol=0.5)
