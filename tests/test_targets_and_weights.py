"""Labels, targets and weights that cannot be used have an error of their own."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LogisticRegression, Ridge

from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    AutoencoderTransformer,
    FedOnceClassifier,
    FedOnceRegressor,
    GaussianProjection,
    ImportanceSplit,
    NoiseAsTargetsEncoder,
    PartyPreprocessor,
    RandomFeaturesEncoder,
    RandomProjectionVFL,
    SplitNNClassifier,
    SplitNNRegressor,
    TabVFLClassifier,
    TabVFLRegressor,
    VerticalPartitioner,
    VFedSecClassifier,
    VFedSecRegressor,
    VFLBoostingClassifier,
    VFLBoostingRegressor,
    compare,
)
from skvfl._targets import mean_and_scale, read_column, settle
from skvfl.exceptions import PartyError

N = 24
PARTIES = {"a": ["a0", "a1"], "b": ["b0", "b1"], "c": ["c0", "c1"]}
SETTINGS = {"parties": PARTIES, "random_state": 0}
QUICK = {**SETTINGS, "max_epochs": 1, "batch_size": 8}
TREES = {"parties": PARTIES, "random_state": 0, "max_iter": 2, "min_samples_leaf": 2}
TABNET = {**QUICK, "n_steps": 1, "pretrain": False}
CLASSIFIERS = [
    RandomProjectionVFL(LogisticRegression(), **SETTINGS),
    APCVFLClassifier(**QUICK),
    FedOnceClassifier(**QUICK),
    SplitNNClassifier(**QUICK),
    TabVFLClassifier(**TABNET),
    VFedSecClassifier(**QUICK),
    VFLBoostingClassifier(**TREES),
]
REGRESSORS = [
    RandomProjectionVFL(Ridge(), **SETTINGS),
    APCVFLRegressor(**QUICK),
    FedOnceRegressor(**QUICK),
    SplitNNRegressor(**QUICK),
    TabVFLRegressor(**TABNET),
    VFedSecRegressor(**QUICK),
    VFLBoostingRegressor(**TREES),
]
WEIGHTED = [each for each in CLASSIFIERS if "class_weight" in each.get_params()]
RNG = np.random.default_rng(0)
COLUMNS = [column for held in PARTIES.values() for column in held]
X = pd.DataFrame(RNG.normal(size=(N, 6)), columns=COLUMNS)
TARGET = 10 * (X["a0"] + X["b0"]).to_numpy()
LABELS = (np.median(TARGET) < TARGET).astype(int)
FIRST = np.arange(N) < 3
MISSING = r"y is missing .* 3 of 24 rows|y holds dates"


def _name(each):
    kind = type(each).__name__
    inner = each.get_params(deep=False).get("estimator")
    return kind if inner is None else f"{kind}-{type(inner).__name__}"


def each(estimators):
    return pytest.mark.parametrize("estimator", estimators, ids=_name)


def gone(values, missing):
    """The same as a list without the first three."""
    return [missing if no else value for no, value in zip(FIRST, values, strict=True)]


def truth(estimator):
    return LABELS if is_classifier(estimator) else TARGET


def refused(estimator, y, message, **fit_params):
    """Error of the label owner's own, which quotes none of its numbers."""
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        clone(estimator).fit(X, y, **fit_params)
    assert not isinstance(caught.value, PartyError)
    said = str(caught.value)
    assert not [number for number in TARGET if f"{number:.4f}"[:6] in said]
    return said


WITHOUT = {
    "mask": lambda y: np.ma.masked_array(np.where(FIRST, 9, y), mask=FIRST),
    "mask of objects": lambda y: np.ma.masked_array(y.astype(object), mask=FIRST),
    "NaN": lambda y: np.where(FIRST, np.nan, y),
    "None": lambda y: gone(y.tolist(), None),
    "masked cells": lambda y: gone(y.tolist(), np.ma.masked),
    "NaN among objects": lambda y: np.array(gone(y.tolist(), np.nan), object),
    "pandas.NA": lambda y: pd.Series(gone(y.tolist(), pd.NA)),
    "Float64": lambda y: pd.Series(y, dtype="Float64").where(~FIRST),
    "arrow": lambda y: pd.Series(y).astype("float64[pyarrow]").where(~FIRST),
    "polars": lambda y: pl.Series(gone(y.tolist(), None)),
    "chunks": lambda y: pa.chunked_array([gone(y.tolist(), None)]),
    "frame": lambda y: pd.DataFrame({"y": gone(y.tolist(), np.nan)}),
    "times": lambda y: pd.Series(gone(pd.date_range("2020", periods=N), pd.NaT)),
    "zoned": lambda y: pd.Series(
        gone(pd.date_range("2020", periods=N, tz="UTC"), pd.NaT)
    ),
    "durations": lambda y: pd.Series(gone(pd.to_timedelta(np.arange(N), "h"), pd.NaT)),
    "numpy's times": lambda y: np.where(
        FIRST, np.datetime64("NaT"), np.datetime64("2020-01-01") + np.arange(N)
    ),
}
TEXT = {
    "text": lambda y: gone(y.tolist(), None),
    "text with NaN": lambda y: gone(y.tolist(), np.nan),
    "string": lambda y: pd.Series(y, dtype="string").where(~FIRST),
    "arrow strings": lambda y: pd.Series(y, dtype="string[pyarrow]").where(~FIRST),
    "categories": lambda y: pd.Series(pd.Categorical(gone(y.tolist(), None))),
    "polars text": lambda y: pl.Series(gone(y.tolist(), None)),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize("without", WITHOUT.values(), ids=WITHOUT)
@each([*CLASSIFIERS, *REGRESSORS])
def test_labels_that_are_missing(estimator, without):
    y = without(truth(estimator))
    if "APC" not in _name(estimator):
        refused(estimator, y, MISSING)
        return
    times = str(getattr(y, "dtype", "")).startswith(("datetime", "timedelta"))
    if times:
        refused(estimator, y, "y holds dates")
        return
    # Rows without a label are its subject: they count as such, and as nothing else.
    expected = clone(estimator).fit(X, np.where(FIRST, np.nan, truth(estimator)))
    assert_allclose(
        clone(estimator).fit(X, y).predict(X).astype(float), expected.predict(X)
    )


@pytest.mark.parametrize("without", TEXT.values(), ids=TEXT)
@each(CLASSIFIERS)
def test_text_labels_that_are_missing(estimator, without):
    y = without(np.where(LABELS == 1, "yes", "no"))
    if "APC" not in _name(estimator):
        refused(estimator, y, MISSING)
    else:
        classes = clone(estimator).fit(X, y).classes_
        assert_array_equal(classes, ["no", "yes"])


IMPOSSIBLE = {
    "times": (pd.Series(pd.date_range("2020", periods=N)), "y holds dates"),
    "durations": (pd.to_timedelta(np.arange(N), "h"), "y holds dates"),
    "complex": (TARGET + 1j, "y holds complex numbers"),
    "complex objects": ((TARGET + 1j).astype(object), "y holds complex numbers"),
    "infinite": (np.where(FIRST, np.inf, LABELS), "y holds infinite values in 3 of 24"),
    "sparse": (sparse.csr_matrix(LABELS[:, None]), "y is a sparse matrix"),
    "sparse array": (sparse.coo_array(LABELS), "y is a sparse matrix"),
    "two columns": (np.c_[LABELS, LABELS], "y should be a 1d array"),
    "frame": (pd.DataFrame({"y": LABELS, "z": LABELS}), "y should be a 1d array"),
    "one number": (np.array(1), "y should be a 1d array"),
    "set": ({0, 1}, "y must be a list, an array or a series"),
    "dict": ({0: 1}, "y must be a list, an array or a series"),
    "word": ("yes", "y must be a list, an array or a series"),
    "iterator": (iter(LABELS), "y must be a list, an array or a series"),
    "lists": ([[1], [1, 2]] * 12, "y holds values of type list"),
    "arrays": ([np.arange(2), np.arange(3)] * 12, "y holds a ndarray where one"),
    "mixed": (["yes", 1] * 12, "y mixes text with int"),
    "bytes": (np.array([b"a", b"b"] * 12), "y holds values of type bytes"),
    "periods": (pd.Series(pd.period_range("2020", periods=N)), "of type Period"),
    "huge integers": ([2**70, 1] * 12, "more than 64 bits"),
    "lazy": (pl.LazyFrame({"y": LABELS}), "y is a lazy frame"),
    "short": (LABELS[1:], "y has 23 entries for the 24 rows"),
    "empty": ([], "y holds no|y has 0 entries"),
    "nothing": (None, "requires y to be passed"),
}


@pytest.mark.parametrize(("y", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
@each([*CLASSIFIERS, *REGRESSORS])
def test_labels_that_are_impossible(estimator, y, message):
    if message.startswith("y must") and hasattr(y, "__next__"):
        y = iter(LABELS)
    refused(estimator, y, message)


@each(REGRESSORS)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (TARGET * 1e300, "y holds numbers beyond 1e.150"),
        (np.where(LABELS == 1, "yes", "no"), "y holds values that are not numbers"),
        ([str(number) for number in LABELS], "y holds values that are not numbers"),
    ],
    ids=["beyond", "text", "digits"],
)
def test_targets_that_are_impossible(estimator, y, message):
    refused(estimator, y, message)


@each(REGRESSORS)
@pytest.mark.parametrize("unit", [1e140, 1e-9, 1e-200])
def test_targets_in_any_unit(estimator, unit):
    small = clone(estimator).fit(X, TARGET).predict(X)
    predicted = clone(estimator).fit(X, TARGET * unit).predict(X)
    assert_allclose(predicted / unit, small, rtol=1e-2, atol=1e-2)
    constant = clone(estimator).fit(X, np.full(N, unit)).predict(X)
    assert_allclose(constant, unit, rtol=1e-12)


def test_a_scale_has_no_rounding_of_its_own():
    assert mean_and_scale(TARGET) == (TARGET.mean(), TARGET.std())
    assert mean_and_scale(np.zeros(3)) == (0, 0)
    mean, scale = mean_and_scale(TARGET * 1e-250)
    assert_allclose([mean, scale], [TARGET.mean() * 1e-250, TARGET.std() * 1e-250])


GOOD = {
    "list": LABELS.tolist(),
    "objects": LABELS.astype(object),
    "mask of nothing": np.ma.masked_array(LABELS),
    "Int64": pd.Series(LABELS, dtype="Int64"),
    "arrow": pd.Series(LABELS).astype("int64[pyarrow]"),
    "categories": pd.Series(pd.Categorical(LABELS)),
    "polars": pl.Series(LABELS),
    "chunks": pa.chunked_array([LABELS]),
    "decimals": [Decimal(int(label)) for label in LABELS],
    "floats": LABELS.astype(np.float16),
    "booleans": LABELS == 1,
    "boolean": pd.Series(LABELS == 1, dtype="boolean"),
    "unsigned": LABELS.astype(np.uint8),
}


@pytest.mark.parametrize("y", GOOD.values(), ids=GOOD)
@each([CLASSIFIERS[1], CLASSIFIERS[3], REGRESSORS[0], REGRESSORS[1], REGRESSORS[3]])
def test_labels_of_any_container(estimator, y):
    expected = clone(estimator).fit(X, LABELS).predict(X)
    assert_allclose(clone(estimator).fit(X, y).predict(X).astype(float), expected)


@each([*CLASSIFIERS, *REGRESSORS])
def test_one_column_of_a_table_is_taken_with_a_warning(estimator):
    y = truth(estimator)
    for table in (y[:, None], pd.DataFrame({"y": y})):
        with pytest.warns(DataConversionWarning, match="column-vector y"):
            predicted = clone(estimator).fit(X, table).predict(X)
        assert_array_equal(predicted, clone(estimator).fit(X, y).predict(X))


ONES = np.ones(N)
WEIGHTS = {
    "masked": (np.ma.masked_array(ONES, mask=FIRST), "missing .* in 3 of 24 rows"),
    "NaN": (np.where(FIRST, np.nan, 1), "missing .* in 3 of 24 rows"),
    "None": (gone(ONES, None), "missing .* in 3 of 24 rows"),
    "NA": (pd.Series(gone(ONES, pd.NA)), "missing .* in 3 of 24 rows"),
    "null": (pl.Series(gone(ONES, None)), "missing .* in 3 of 24 rows"),
    "infinite": (np.where(FIRST, np.inf, 1), "infinite values in 3 of 24 rows"),
    "negative": (np.where(FIRST, -1, 1), "negative in 3 of 24 rows"),
    "all zero": (0 * ONES, "weight of every row is zero"),
    "scalar": (-1.0, "negative in 24 of 24 rows"),
    "short": (ONES[1:], "23 entries for the 24 rows"),
    "long": (np.ones(25), "25 entries for the 24 rows"),
    "two columns": (np.c_[ONES, ONES], "should be a 1d array"),
    "a column": (ONES[:, None], "should be a 1d array"),
    "sparse": (sparse.csr_matrix(ONES[:, None]), "is a sparse matrix"),
    "words": (["one"] * N, "not numbers"),
    "digits": (["1"] * N, "not numbers"),
    "complex": (ONES + 1j, "complex numbers"),
    "times": (pd.Series(pd.date_range("2020", periods=N)), "dates or durations"),
    "a word": ("balanced", "must be a list, an array or a series"),
    "a dict": ({0: 1.0}, "must be a list, an array or a series"),
    "too large": (1e200 * ONES, "not between"),
    "too small": (1e-200 * ONES, "not between"),
}


@pytest.mark.parametrize(("weights", "message"), WEIGHTS.values(), ids=WEIGHTS)
@each([*CLASSIFIERS, *REGRESSORS])
def test_weights_that_are_impossible(estimator, weights, message):
    message = f"sample_weight.*{message}"
    refused(estimator, truth(estimator), message, sample_weight=weights)


@each([*CLASSIFIERS, *REGRESSORS])
def test_weights_of_any_container(estimator):
    y, weights = truth(estimator), np.linspace(0, 2, N)
    expected = clone(estimator).fit(X, y, sample_weight=weights).predict(X)
    for same in (
        weights.tolist(),
        weights.astype(object),
        pd.Series(weights, dtype="Float64"),
        pl.Series(weights),
        np.ma.masked_array(weights),
    ):
        got = clone(estimator).fit(X, y, sample_weight=same).predict(X)
        assert_array_equal(got, expected)


@each([CLASSIFIERS[1], REGRESSORS[1]])
def test_weights_of_rows_without_a_label_count_for_nothing(estimator):
    y = np.where(FIRST, truth(estimator), np.nan)
    weights = np.where(FIRST, 0.0, 1.0)
    refused(estimator, y, "rows with a label: the weight", sample_weight=weights)


CLASS_WEIGHTS = {
    "negative": ({0: -1, 1: 1}, "negative, missing or infinite"),
    "NaN": ({0: float("nan"), 1: 1}, "negative, missing or infinite"),
    "infinite": ({0: np.inf}, "negative, missing or infinite"),
    "all zero": ({0: 0, 1: 0}, "weight of every row is zero"),
    "text": ({0: "5"}, "weight of type str"),
    "None": ({0: None}, "weight of type NoneType"),
    "NA": ({0: pd.NA}, "weight of type NAType"),
    "complex": ({0: 1j}, "weight of type complex"),
    "other types": ({"0": 1, "1": 2}, "names 2 labels that y does not hold"),
    "a typing error": ({0: 1, 11: 5}, "names 1 labels that y does not hold"),
    "too large": ({0: 1e300}, "not between"),
    "a word": ("auto", "must be an instance of 'dict'"),
    "a list": ([1, 2], "must be an instance of 'dict'"),
}


@pytest.mark.parametrize(
    ("weight", "message"), CLASS_WEIGHTS.values(), ids=CLASS_WEIGHTS
)
@each(WEIGHTED)
@pytest.mark.filterwarnings("ignore::skvfl.exceptions.PrivacyLeakWarning")
def test_weights_of_classes_that_are_impossible(estimator, weight, message):
    weighted = clone(estimator).set_params(class_weight=weight)
    refused(weighted, LABELS, f"class_weight.*({message})")


@each(WEIGHTED)
@pytest.mark.filterwarnings("ignore::skvfl.exceptions.PrivacyLeakWarning")
def test_weights_of_classes_as_in_scikit_learn(estimator):
    """A class that is not named has weight 1; one that y lacks does no harm."""
    weights = np.where(LABELS == 0, 3.0, 1.0)
    expected = clone(estimator).fit(X, LABELS, sample_weight=weights).predict_proba(X)
    for same in ({0: 3}, {0: 3, 1: 1}, {0: np.float32(3), 1: True, 2: 7}):
        weighted = clone(estimator).set_params(class_weight=same)
        assert_array_equal(weighted.fit(X, LABELS).predict_proba(X), expected)


@each([*CLASSIFIERS, *REGRESSORS])
def test_scores_look_at_what_they_are_given(estimator):
    y = truth(estimator)
    fitted = clone(estimator).fit(X, y)
    assert fitted.score(X, np.ma.masked_array(y)) == fitted.score(X, y.tolist())
    for without in (WITHOUT["mask"], WITHOUT["None"], WITHOUT["times"]):
        with pytest.raises(ValueError, match=r"y is missing .* 3 of 24"):
            fitted.score(X, without(y))
    with pytest.raises(ValueError, match="y has 23 entries"):
        fitted.score(X, y[1:])
    for weights, message in (WEIGHTS[k] for k in ("masked", "negative", "all zero")):
        with pytest.raises(ValueError, match=f"sample_weight.*{message}"):
            fitted.score(X, y, sample_weight=weights)
    with pytest.raises(ValueError, match=r"y holds text|not numbers") as caught:
        fitted.score(X, np.where(LABELS == 1, "yes", "no"))
    assert "yes" not in str(caught.value)


@pytest.mark.parametrize("without", ["mask", "None", "times"])
def test_comparisons_look_at_the_labels(without):
    for estimator in (CLASSIFIERS[0], REGRESSORS[0]):
        y = WITHOUT[without](truth(estimator))
        with pytest.raises(ValueError, match=r"y is missing .* 3 of 24"):
            compare(estimator, X, y, parties=PARTIES)


@pytest.mark.parametrize("without", list(WITHOUT)[:11])
def test_importance_is_measured_on_the_rows_with_a_label(without):
    split = ImportanceSplit(random_state=0)
    split.split_columns(X[~FIRST], LABELS[~FIRST])
    expected = split.importances_
    split.split_columns(X, WITHOUT[without](LABELS))
    assert_allclose(split.importances_, expected)


@pytest.mark.parametrize("kind", ["complex", "sparse", "two columns", "set", "short"])
def test_importance_of_labels_that_are_impossible(kind):
    y, message = IMPOSSIBLE[kind]
    with pytest.raises((ValueError, TypeError), match=message):
        ImportanceSplit().split_columns(X, y)
    with pytest.raises((ValueError, TypeError), match=message):
        VerticalPartitioner(parties=ImportanceSplit()).fit(X, y)


@pytest.mark.parametrize(
    "transformer",
    [
        PartyPreprocessor(),
        GaussianProjection(),
        RandomFeaturesEncoder(),
        NoiseAsTargetsEncoder(max_epochs=1),
        AutoencoderTransformer(2, max_epochs=1),
        VerticalPartitioner(),
    ],
    ids=_name,
)
def test_masked_tables(transformer):
    table = np.ma.masked_array(X.to_numpy(), mask=X.to_numpy() > 1)
    with pytest.raises(ValueError, match="X is a masked array; fill"):
        clone(transformer).fit(table)
    fitted = clone(transformer).fit(table.data)
    with pytest.raises(ValueError, match="X is a masked array; fill"):
        fitted.transform(table)
    with pytest.raises(ValueError, match="X is a masked array; fill"):
        ImportanceSplit().split_columns(table, LABELS)


def test_masked_targets_of_an_autoencoder():
    target = np.ma.masked_array(np.ones((N, 2)), mask=False)
    encoder = AutoencoderTransformer(2, max_epochs=1)
    with pytest.raises(ValueError, match="latent_target is a masked array"):
        encoder.fit(X, latent_target=target)
    known = np.ma.masked_array(np.ones(N, bool), mask=FIRST)
    with pytest.raises(ValueError, match="has_target is a masked array"):
        encoder.fit(X, latent_target=target.data, has_target=known)


@each([CLASSIFIERS[1], REGRESSORS[1]])
def test_masked_masks_of_rows(estimator):
    known = np.ma.masked_array(np.ones(N, bool), mask=FIRST)
    refused(estimator, truth(estimator), "labelled is a masked", labelled=known)
    refused(estimator, truth(estimator), "aligned.* is a masked", aligned=known)


BATCHED = [
    e for e in CLASSIFIERS[2:] + REGRESSORS[2:] if "batch_size" in e.get_params()
]


@each(BATCHED)
def test_batches_without_any_weight(estimator):
    weights = np.zeros(N)
    weights[[0, 1]] = weights[[np.argmax(LABELS), np.argmin(LABELS)]] = 1
    small = clone(estimator).set_params(batch_size=2)
    fitted = small.fit(X, truth(estimator), sample_weight=weights)
    assert np.isfinite(fitted.transform(X)).all()
    assert np.isfinite(fitted.loss_curve_).all()


@each(CLASSIFIERS[2:])
def test_early_stopping_with_a_rare_class(estimator):
    rare = np.zeros(N, int)
    rare[-2:] = 1
    fitted = clone(estimator).set_params(early_stopping=True).fit(X, rare)
    assert fitted.predict_proba(X).shape == (N, 2)


@each(CLASSIFIERS + REGRESSORS)
@pytest.mark.filterwarnings("ignore")
def test_answers_are_finite_or_an_error(estimator):
    fitted = clone(estimator).fit(X, truth(estimator))
    for factor in (1e20, 1e30, 1e38, 1e200):
        try:
            answer = fitted.predict(factor * X)
        except (ValueError, PartyError) as error:
            answer = np.zeros(1)
            said = str(error)
        else:
            said = "finite"
        assert np.isfinite(answer).all()
        assert any(
            word in said for word in ("finite", "too large", "over the declared")
        )


def test_columns_are_read_without_a_guess():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, missing = read_column([1, None, "a"], "y")
    assert_array_equal(missing, [False, True, False])
    assert settle(np.array([1, 2], object), "y").dtype.kind == "i"
    assert settle(np.array([1, 2.5], object), "y").dtype.kind == "f"
    with pytest.raises(ValueError, match="y mixes text with float, int"):
        settle(np.array([1, 2.5, "a"], object), "y")
