"""Rows that a party does not hold, and transformers that give other rows."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, TargetEncoder

from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    FedOnceClassifier,
    FedOnceRegressor,
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
from skvfl._rows import apply, rows_without_values
from skvfl.exceptions import (
    InvalidOutputError,
    MissingPartyWarning,
    MissingRowsWarning,
    PartyError,
)

COLUMNS = ["a0", "a1", "b0", "b1", "c0", "c1"]
PARTIES = {"a": ["a0", "a1"], "b": ["b0", "b1"], "c": ["c0", "c1"]}
QUICK = {"parties": PARTIES, "max_epochs": 1, "batch_size": 16, "random_state": 0}
TREES = {"parties": PARTIES, "max_iter": 2, "min_samples_leaf": 5, "random_state": 0}
ESTIMATORS = {
    "RAP": RandomProjectionVFL(LogisticRegression(), parties=PARTIES, random_state=0),
    "RAP regressor": RandomProjectionVFL(Ridge(), parties=PARTIES, random_state=0),
    "SplitNN": SplitNNClassifier(**QUICK),
    "SplitNN regressor": SplitNNRegressor(**QUICK),
    "FedOnce": FedOnceClassifier(**QUICK),
    "FedOnce regressor": FedOnceRegressor(**QUICK),
    "TabVFL": TabVFLClassifier(**QUICK, n_steps=2),
    "TabVFL regressor": TabVFLRegressor(**QUICK, n_steps=2),
    "vFedSec": VFedSecClassifier(**QUICK),
    "vFedSec regressor": VFedSecRegressor(**QUICK),
    "Boosting": VFLBoostingClassifier(**TREES),
    "Boosting regressor": VFLBoostingRegressor(**TREES),
}
APC = {"APC-VFL": APCVFLClassifier(**QUICK), "APC regressor": APCVFLRegressor(**QUICK)}
each = pytest.mark.parametrize("name", ESTIMATORS)
each_with_apc = pytest.mark.parametrize("name", ESTIMATORS | APC)


def build(name, **params):
    return (
        (ESTIMATORS | APC)[name]
        .__class__(**{**(ESTIMATORS | APC)[name].get_params(deep=False)})
        .set_params(**params)
    )


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(60, 6, n_informative=4, random_state=0)
    X = pd.DataFrame(X, columns=COLUMNS)
    lacking = X.copy()
    lacking.loc[3:9, ["b0", "b1"]] = np.nan
    lacking.loc[5, "a0"] = np.nan
    return SimpleNamespace(X=X, y=y, lacking=lacking)


# Which rows hold no value


@pytest.mark.parametrize(
    "block",
    [
        np.array([[1, np.nan], [np.nan, np.nan], [np.nan, 0]]),
        np.array([[1, None], [None, np.nan], ["a", pd.NA]], dtype=object),
        np.array([["2020", "NaT"], ["NaT", "NaT"], ["NaT", "2020"]], "M8[D]"),
        np.array([[1, "NaT"], ["NaT", "NaT"], ["NaT", 2]], "m8[s]"),
        pd.DataFrame({"a": [1, None, None], "b": [None, None, "x"]}),
        pd.DataFrame({"a": [1, pd.NA, pd.NA], "b": [pd.NA, pd.NA, 2]}, dtype="Int64"),
        pd.DataFrame({"a": [1, pd.NA, pd.NA], "b": [pd.NA, pd.NA, 2]}, dtype="Float64"),
        pd.DataFrame(
            {
                "a": pd.Categorical(["x", None, None]),
                "b": pd.array([None, None, "y"], dtype="string"),
                "c": pd.to_datetime(["2020-01-01", None, None]),
                "d": pd.array([True, None, None], dtype="boolean"),
                "e": pd.array([0.5, np.nan, np.nan], dtype="double[pyarrow]"),
            }
        ),
        pd.DataFrame({"a": [1, float("nan"), pd.NaT], "b": ["x", None, 2]}),
        pd.DataFrame({0: [1.0, np.nan, np.nan], 1: [np.nan, np.nan, 2.0]}, [7, 7, 3]),
        pl.DataFrame({"a": [1.0, float("nan"), None], "b": [None, None, "x"]}),
        pl.DataFrame({"a": [float("nan")] * 2 + [1.0], "b": [1, None, 3]}),
        sparse.csr_array([[1, np.nan], [np.nan, np.nan], [np.nan, 0]]),
    ],
)
def test_rows_without_values(block):
    assert rows_without_values(block).tolist() == [False, True, False]


@pytest.mark.parametrize(
    "block",
    [
        np.zeros((2, 3), int),
        np.array([["a"], [""]]),
        np.array([[None, np.arange(2)], [np.arange(2), None]], dtype=object),
        np.empty((2, 0)),
        pd.DataFrame({"a": ["", "nan"], "b": [None, None]}),
        pl.DataFrame({"a": [[1], [2]]}),
        sparse.csc_array((2, 3)),
    ],
)
def test_rows_with_values(block):
    assert rows_without_values(block).tolist() == [False, False]


def test_nobody_looks_further_than_a_complete_column():
    looked_at = []

    class Watched(np.ndarray):
        def __getitem__(self, key):
            looked_at.append(self.shape)
            return np.asarray(super().__getitem__(key))

    table = np.full((4, 500), np.nan)
    table[:, 2] = 1
    assert not rows_without_values(table.view(Watched)).any()
    assert len(looked_at) <= 3


# Rows that a party does not hold


@each
def test_rows_not_held_are_refused_in_fit(name, data):
    message = (
        "party 'b': it holds no value of 7 of 60 rows: .*"
        r'align\(\.\.\., keep="intersection"\).*APC-VFL.*missing_rows="impute"'
    )
    with pytest.raises(ValueError, match=message) as refused:
        build(name).fit(data.lacking, data.y)
    assert isinstance(refused.value, PartyError)
    assert refused.value.party == "b"


@each
def test_rows_not_held_are_imputed_when_asked_for(name, data):
    asked = build(name, missing_rows="impute").fit(data.lacking, data.y)
    with pytest.warns(MissingRowsWarning):
        assert np.isfinite(asked.predict(data.lacking)).all()


def imputing(name):
    """What makes an estimator impute rows to be served; most of them always do."""
    return {"missing_rows": "impute"} if name.startswith("vFedSec") else {}


@each_with_apc
def test_rows_not_held_later_are_counted(name, data):
    fitted = build(name, **imputing(name)).fit(data.X, data.y)
    lacking, message = data.lacking, "party 'b': it holds no value of 7 of 60 rows"
    if name in APC:  # predicts from party a alone
        lacking, message = data.X.copy(), "party 'a': it holds no value of 1 of 60 rows"
        lacking.loc[4, ["a0", "a1"]] = np.nan
    medians = lacking.fillna(data.X.median())
    methods = ["predict", "transform", "predict_proba"]
    methods = [method for method in methods if hasattr(fitted, method)]
    for method in methods:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answer = getattr(fitted, method)(lacking)
        assert [each.category for each in caught] == [MissingRowsWarning]
        assert message in str(caught[0].message)
        # vFedSec's party contributes nothing to them, and trees do not impute.
        if not name.startswith(("vFedSec", "Boosting")):
            assert_allclose(answer, getattr(fitted, method)(medians), atol=1e-5)
    with pytest.warns(MissingRowsWarning, match=message) as caught:
        fitted.score(lacking, data.y)
    assert len(caught) == 1


class Sampler(BaseEstimator):
    """Changes the rows, as samplers for rare classes do."""

    def fit(self, X, y=None):
        return self

    def fit_resample(self, X, y):
        return X[::2], y[::2]


@each_with_apc
@pytest.mark.parametrize(
    ("transformer", "message"),
    [
        (
            make_pipeline(Sampler(), StandardScaler()),
            "step Sampler, which has no trans",
        ),
        (make_pipeline(StandardScaler(), TargetEncoder()), "TargetEncoder needs y"),
    ],
)
def test_steps_that_change_rows_or_need_y_are_named(name, data, transformer, message):
    with pytest.raises(ValueError, match=message):
        build(name, parties=VerticalPartitioner(transformer, parties=PARTIES)).fit(
            data.X, data.y
        )


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_matrix_is_an_array():
    block = np.arange(6.0).reshape(3, 2)
    output = apply(FunctionTransformer(np.asmatrix).fit_transform, block)
    assert type(output) is np.ndarray
    assert_array_equal(output, block)


@each_with_apc
def test_single_missing_cells_are_nothing_to_speak_of(name, data):
    holes = data.X.copy()
    holes.iloc[::2, 2] = np.nan
    holes.iloc[1::2, 3] = np.nan
    build(name).fit(holes, data.y).predict(holes)


@each
def test_a_party_of_one_column_has_missing_cells_only(name, data):
    parties = {"a": COLUMNS[:5], "c": ["c1"]}
    holes = data.X.assign(c1=data.X.c1.where(data.X.c1 > 0))
    build(name, parties=parties).fit(holes, data.y).predict(holes)


@pytest.mark.parametrize("kind", ["array", "objects", "polars", "nullable"])
def test_every_kind_of_table(kind, data):
    tables = {
        "array": data.lacking.to_numpy(),
        "objects": data.lacking.astype(object).where(data.lacking.notna(), None),
        "polars": pl.from_pandas(data.lacking, nan_to_null=False),
        "nullable": data.lacking.astype("Float64"),
    }
    split = SplitNNClassifier(
        parties={"a": [0, 1], "b": [2, 3], "c": [4, 5]}, max_epochs=1, random_state=0
    )
    with pytest.raises(ValueError, match="party 'b': it holds no value of 7 of 60"):
        split.fit(tables[kind], data.y)


def test_the_active_party_is_looked_at_too(data):
    with pytest.raises(ValueError, match="party 'b': it holds no value of 7 of 60"):
        build("SplitNN", active="b").fit(data.lacking, data.y)


def test_apc_trains_on_rows_that_not_everybody_holds(data):
    build("APC-VFL").fit(data.lacking, data.y)


def test_a_guest_without_any_value_speaks_for_itself(data):
    empty = data.X.assign(b0=np.nan, b1=np.nan)
    with pytest.raises(PartyError, match=r"'b': it holds no value of any row .*zero"):
        build("FedOnce").fit(empty, data.y)
    once = build("FedOnce", missing_party="zero")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        once.fit(empty, data.y).predict(data.X)
        everybody = build("FedOnce", missing_party="zero").fit(data.X, data.y)
        everybody.predict(empty)
    assert once.answered_ == ["c"]
    assert [each.category for each in caught] == 2 * [MissingPartyWarning]


def test_a_host_without_any_value_is_refused(data):
    empty = data.X.assign(a0=np.nan, a1=np.nan)
    with pytest.raises(ValueError, match="party 'a': it holds no value of 60 of 60"):
        build("FedOnce").fit(empty, data.y)


@pytest.mark.filterwarnings("default::skvfl.exceptions.MissingRowsWarning")
def test_folds_with_rows_not_held_fail_or_warn(data):
    options = {"cv": 2, "error_score": "raise"}
    with pytest.raises(ValueError, match="party 'b': it holds no value of 7 of 30"):
        cross_validate(build("SplitNN"), data.lacking, data.y, **options)
    frame = compare(build("SplitNN"), data.lacking, data.y, parties=PARTIES, cv=2)
    assert "missing_rows" in frame["error"].iloc[-1]
    asked = build("SplitNN", missing_rows="impute")
    with pytest.warns(MissingRowsWarning, match="'b': it holds no value of 7 of 30"):
        cross_validate(asked, data.lacking, data.y, **options)


# Transformers that give other rows


class Changes(TransformerMixin, BaseEstimator):
    """Changes the rows in ``fit``, or only later."""

    def __init__(self, change, when="in fit"):
        self.change = change
        self.when = when

    def fit(self, X, y=None):
        return self

    def fit_transform(self, X, y=None):
        return self.change(X) if self.when == "in fit" else np.asarray(X)

    def transform(self, X):
        return self.change(X)


def fewer(X):
    return np.asarray(X)[:-1]


def fewer_and_sparse(X):
    return sparse.csr_array(np.asarray(X)[:-1])


def fewer_in_polars(X):
    return pl.from_pandas(X)[:-1]


def more(X):
    return pd.concat([X, X[:1]])


def sorted_by_value(X):
    return X.sort_values(X.columns[0])


def repeated(X):
    return X.iloc[[0, *range(len(X) - 1)]]


CHANGES = {
    fewer: "its transformer gave 59 rows for 60",
    fewer_and_sparse: "its transformer gave 59 rows for 60",
    fewer_in_polars: "its transformer gave 59 rows for 60",
    more: "its transformer gave 61 rows for 60",
    sorted_by_value: "its transformer gave 60 rows in another order",
    repeated: "its transformer gave 60 rows in another order",
}


@pytest.mark.parametrize("when", ["in fit", "later"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@each_with_apc
def test_other_rows_are_refused(name, change, when, data):
    # The active party's transformer is the only one that all methods ask later.
    party = "a" if name in APC and when == "later" else "b"
    own = {party: Changes(change, when)}
    parties = [(p, own.get(p, "passthrough"), held) for p, held in PARTIES.items()]
    estimator = build(name, parties=parties)
    message = f"party '{party}': {CHANGES[change]}"
    if when == "later":
        estimator.fit(data.X, data.y)
        with pytest.raises(PartyError, match=re.escape(message)):
            estimator.predict(data.X)
        if hasattr(estimator, "transform"):
            with pytest.raises(ValueError, match=re.escape(message)):
                estimator.transform(data.X)
        return
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        estimator.fit(data.X, data.y)
    assert refused.value.party == party


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_partitioner_refuses_other_rows(change, data):
    parties = [("a", "passthrough", [0]), ("b", Changes(change), slice(1, None))]
    with pytest.raises(ValueError, match=f"party 'b': {CHANGES[change]}"):
        VerticalPartitioner(parties=parties).fit(data.X)


@pytest.mark.parametrize("name", ["RAP", "SplitNN", "APC-VFL"])
def test_a_step_of_a_pipeline_is_refused_as_well(name, data):
    pipeline = make_pipeline(Changes(sorted_by_value), StandardScaler())
    parties = VerticalPartitioner(pipeline, parties=PARTIES)
    with pytest.raises(ValueError, match="60 rows in another order"):
        build(name, parties=parties).fit(data.X, data.y)


def test_a_guests_encoder_is_refused_as_well(data):
    guest = {"b": Changes(fewer), "c": PCA(1)}
    with pytest.raises(ValueError, match="party 'b': its transformer gave 59 rows"):
        build("FedOnce", local_encoder=guest).fit(data.X, data.y)


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (None, "a NoneType"),
        ([[1.0]] * 60, "a list"),
        (np.zeros(60), r"a ndarray of 1 dimension\(s\)"),
        (np.zeros((60, 1, 1)), r"a ndarray of 3 dimension\(s\)"),
        (pd.Series(np.zeros(60)), r"a Series of 1 dimension\(s\)"),
        (pl.DataFrame({"a": [0.0] * 60}).lazy(), "a LazyFrame"),
    ],
)
@pytest.mark.parametrize("name", ["RAP", "SplitNN", "vFedSec"])
def test_outputs_that_are_no_tables_are_refused(name, output, what, data):
    parties = VerticalPartitioner(Changes(lambda X: output), parties=PARTIES)
    message = f"party '[ab]': its transformer's output is not a table: .* of {what}"
    with pytest.raises(ValueError, match=message):
        build(name, parties=parties).fit(data.X, data.y)


def test_a_masked_output_is_refused():
    table = np.ones((3, 2))
    with pytest.raises(InvalidOutputError, match="masked array"):
        apply(lambda X: np.ma.masked_array(X, X > 0), table)


def test_an_index_that_says_nothing_is_accepted():
    dated = pd.DataFrame({"a": [1, 2, 3]}, index=pd.date_range("2020-01-01", periods=3))
    apply(lambda X: X, dated)
    apply(lambda X: X.reset_index(drop=True), dated)
    apply(lambda X: X.to_numpy(), dated)
    apply(pl.from_pandas, dated)
    apply(pd.DataFrame, dated.to_numpy())
    repeats = pd.DataFrame({"a": [1, 2, 3]}, index=[0, 0, 0])
    apply(lambda X: X + 1, repeats)


def test_an_index_that_shows_another_order_is_refused():
    shuffled = pd.DataFrame({"a": [1, 2, 3]}, index=[2, 0, 1])
    for change in (lambda X: X.sort_index(), lambda X: X[::-1], lambda X: X + 1):
        if change(shuffled).index.equals(shuffled.index):
            apply(change, shuffled)
            continue
        with pytest.raises(InvalidOutputError, match="3 rows in another order"):
            apply(change, shuffled)
    with pytest.raises(InvalidOutputError, match="3 rows in another order"):
        apply(lambda X: pd.DataFrame(X).sort_values(0), np.array([[3], [1], [2]]))


def test_pipelines_give_the_same_step_by_step(data):
    pipeline = make_pipeline(
        StandardScaler().set_output(transform="pandas"), "passthrough", PCA(2)
    )
    expected = pipeline.fit_transform(data.X)
    again = make_pipeline(*[step for _, step in pipeline.steps])
    assert_array_equal(apply(again.fit_transform, data.X), expected)
    assert_array_equal(apply(again.transform, data.X), pipeline.transform(data.X))
    late = make_pipeline(FunctionTransformer(lambda X: np.asarray(X)[:-1]), PCA(1))
    with pytest.raises(InvalidOutputError, match="59 rows for 60"):
        apply(late.fit_transform, data.X)
