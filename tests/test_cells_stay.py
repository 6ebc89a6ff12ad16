"""No error says what is in a cell: not its message, its notes, nor what caused it."""

import logging
import traceback
from datetime import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import check_array

from skvfl import (
    APCVFLClassifier,
    AutoencoderTransformer,
    CorrelationSplit,
    FedOnceClassifier,
    GaussianProjection,
    ImportanceSplit,
    NoiseAsTargetsEncoder,
    PartyPreprocessor,
    RandomFeaturesEncoder,
    RandomProjectionVFL,
    SplitNNClassifier,
    TabVFLClassifier,
    VerticalPartitioner,
    VFedSecClassifier,
    VFLBoostingClassifier,
)
from skvfl.alignment import align
from skvfl.exceptions import PartyError
from skvfl.privacy import FixedPointRangeError

pytestmark = pytest.mark.filterwarnings("ignore")
CANARIES = "CANARY", "8675309", "8.675309", "1986"


class Wrapped:
    """An object that shows what it holds."""

    def __repr__(self):
        return "CANARY"


CELLS = {
    "text": "CANARY",
    "text like a number": "8675309,25",
    "bytes": b"CANARY",
    "complex": 8675309 + 1j,
    "huge": 8.675309e300,
    "a huge whole number": 8675309**60,
    "infinity": float("inf"),
    "a date": datetime(1986, 7, 5),
    "a decimal": Decimal("8675309.5"),
    "an infinite decimal": Decimal("Infinity"),
    "a list": ["CANARY"],
    "a dict": {"CANARY": 1},
    "a tuple": ("CANARY",),
    "a set": {"CANARY"},
    "an object": Wrapped(),
}
PARTIES = {"bank": ["a", "b"], "shop": ["c", "d"]}
QUICK = {"max_epochs": 1, "random_state": 0}
ESTIMATORS = [
    RandomProjectionVFL(LogisticRegression(), random_state=0),
    SplitNNClassifier(**QUICK),
    VFedSecClassifier(**QUICK),
    FedOnceClassifier(**QUICK),
    APCVFLClassifier(**QUICK),
    TabVFLClassifier(**QUICK),
    VFLBoostingClassifier(max_iter=1, random_state=0),
]
TRANSFORMERS = [
    GaussianProjection(random_state=0),
    AutoencoderTransformer(2, max_epochs=1),
    NoiseAsTargetsEncoder(2, max_epochs=1),
    RandomFeaturesEncoder(2),
    PartyPreprocessor(),
]


def _name(value):
    return type(value).__name__


def table(n=12):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    return X, np.arange(n) % 2


def spoilt(cell):
    X, y = table()
    X = X.astype({"c": object})
    X.at[5, "c"] = cell
    return X, y


def everything_said(error):
    """All that an error and whatever led to it say."""
    said, todo = [], [error]
    while todo:
        each = todo.pop()
        if each is not None:
            notes = getattr(each, "__notes__", [])
            said += [str(each), repr(each), repr(each.args), *notes]
            todo += [each.__cause__, each.__context__]
    return "\n".join([*said, *traceback.format_exception(error)])


def assert_tells_nothing(call, *args, **kwargs):
    """Whether it works or not, and if not, whether that is the party's name."""
    try:
        call(*args, **kwargs)
    except Exception as error:
        said = everything_said(error)
        # The sources of this file are quoted by a traceback, and hold no cell.
        assert not [canary for canary in CANARIES if canary in said], said
        return error


def test_the_search_finds_cells():
    X, _ = spoilt("CANARY")
    found = []
    for call in (
        lambda: StandardScaler().fit(X),
        lambda: VerticalPartitioner(StandardScaler(), parties=PARTIES).fit(X),
        lambda: check_array(np.array([[8675309 + 1j]])),
    ):
        with pytest.raises(ValueError, match=r"convert|Complex") as info:
            call()
        found.append(everything_said(info.value))

    def hide():
        try:
            raise KeyError("CANARY")
        except KeyError:
            raise ValueError("no cell") from None

    with pytest.raises(ValueError, match="no cell") as info:
        hide()
    found.append(everything_said(info.value))
    assert [any(canary in said for canary in CANARIES) for said in found] == [True] * 4


@pytest.mark.parametrize("transformer", ["auto", StandardScaler()], ids=_name)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=_name)
def test_cells_of_a_table(estimator, transformer):
    parties = VerticalPartitioner(transformer, parties=PARTIES)
    estimator = clone(estimator).set_params(parties=parties)
    X, y = table()
    fitted = clone(estimator).fit(X, y)
    failed = 0
    for cell in CELLS.values():
        bad, _ = spoilt(cell)
        # Trees have nothing to transform.
        transform = getattr(fitted, "transform", fitted.predict)
        for call in (clone(estimator).fit, fitted.predict, transform):
            args = (bad, y) if call.__name__ == "fit" else (bad,)
            failed += assert_tells_nothing(call, *args) is not None
            if not isinstance(cell, list | dict | tuple | set):
                args = (bad.to_numpy(), *args[1:])
                assert_tells_nothing(call, *args)
    assert failed > 10


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=_name)
def test_complex_arrays(estimator):
    X, y = table()
    estimator = clone(estimator).set_params(parties=PARTIES)
    fitted = clone(estimator).set_params(parties=2).fit(X.to_numpy(), y)
    bad = np.full((12, 4), 8675309 + 1j)
    for error in (
        assert_tells_nothing(clone(fitted).fit, bad, y),
        assert_tells_nothing(clone(fitted).fit, bad.tolist(), y),
        assert_tells_nothing(fitted.predict, bad),
        assert_tells_nothing(estimator.fit, X.assign(c=bad[:, 0]), y),
        assert_tells_nothing(estimator.fit, X, bad[:, 0]),
        assert_tells_nothing(estimator.fit, X, y, sample_weight=bad[:, 0]),
    ):
        assert isinstance(error, ValueError | TypeError)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=_name)
def test_labels_and_weights(estimator):
    X, y = table()
    estimator = clone(estimator).set_params(parties=PARTIES)
    for cell in CELLS.values():
        labels = np.array([*y[:-1], None], dtype=object)
        labels[-1] = cell
        assert_tells_nothing(estimator.fit, X, labels)
        assert_tells_nothing(estimator.fit, X, y, sample_weight=labels)
        assert_tells_nothing(estimator.fit, X, y, sample_weight=list(labels))


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=_name)
def test_transformers(transformer):
    X, _ = table()
    fitted = clone(transformer).fit(X)
    complex_numbers = np.full((12, 4), 8675309 + 1j)
    for cell in CELLS.values():
        bad, _ = spoilt(cell)
        assert_tells_nothing(clone(transformer).fit, bad)
        assert_tells_nothing(fitted.transform, bad)
    for bad in (
        complex_numbers,
        complex_numbers.tolist(),
        pd.DataFrame(complex_numbers),
    ):
        error = assert_tells_nothing(clone(transformer).fit, bad)
        assert isinstance(error, ValueError | TypeError)


@pytest.mark.parametrize("each", ESTIMATORS + TRANSFORMERS, ids=_name)
def test_what_is_no_table(each):
    bad = np.full(12, 8675309.0)
    for X in (bad, bad.tolist(), {"a": bad}, 8675309.0, pd.Series(bad)):
        error = assert_tells_nothing(clone(each).fit, X, np.arange(12) % 2)
        assert isinstance(error, ValueError | TypeError)


@pytest.mark.parametrize(
    "splitter", [ImportanceSplit(random_state=0), CorrelationSplit(random_state=0)]
)
def test_splitters(splitter):
    for cell in CELLS.values():
        X, y = spoilt(cell)
        labels = np.array([*y[:-1], None], dtype=object)
        labels[-1] = cell
        for args in ((X, y), (table()[0], labels)):
            assert_tells_nothing(splitter.split_columns, *args)
            estimator = RandomProjectionVFL(LogisticRegression(), parties=splitter)
            assert_tells_nothing(estimator.fit, *args)


def test_alignment():
    for cell in CELLS.values():
        X, _ = spoilt(cell)
        X["id"] = range(len(X))
        tables = {"bank": X[["id", "a", "b"]], "shop": X[["id", "c", "d"]]}
        assert_tells_nothing(align, tables, on="id")
        twice = {**tables, "shop": X[["id", "c", "d"]].iloc[[0, 0]]}
        assert_tells_nothing(align, twice, on="id")


def test_what_a_client_contributes():
    X, y = table()
    X["c"] *= 8675309
    raw = VerticalPartitioner(FunctionTransformer(), parties=PARTIES)
    vfl = VFedSecClassifier(parties=raw, bottom=(), bound=10.0, **QUICK)
    error = assert_tells_nothing(vfl.fit, X, y)
    assert isinstance(error, PartyError)
    assert "are over the declared bound of 10" in str(error)
    with pytest.raises(FixedPointRangeError) as info:
        raise FixedPointRangeError("too large", 8675309.0)
    assert info.value.maximum == 8675309


class Spiteful(TransformerMixin, BaseEstimator):
    """A transformer that quotes a cell."""

    def fit(self, X, y=None):
        raise ValueError("CAN" + "ARY")

    def transform(self, X):
        return X


def test_who_simulates_can_have_the_partys_traceback(caplog):
    X, y = table()
    vfl = RandomProjectionVFL(parties=VerticalPartitioner(Spiteful(), parties=PARTIES))
    assert_tells_nothing(vfl.fit, X, y)
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, logger="skvfl.parties"):
        error = assert_tells_nothing(vfl.fit, X, y)
    assert isinstance(error, PartyError)
    assert "CANARY" in caplog.text
    assert "party 'bank' failed in 'fit_transform'" in caplog.text


class Panic(BaseException):
    """What Rust's libraries raise: no Exception."""


class Panicking(Spiteful):
    """A transformer whose library gives up with a cell in its last words."""

    kind = Panic

    def fit(self, X, y=None):
        raise self.kind("CAN" + "ARY")


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=_name)
def test_a_panic_tells_no_cell(estimator):
    X, y = table()
    partition = VerticalPartitioner(Panicking(), parties=PARTIES)
    with pytest.raises(Panic, match="CANARY"):
        partition.fit(X)
    error = assert_tells_nothing(
        clone(estimator).set_params(parties=partition).fit, X, y
    )
    assert isinstance(error, PartyError)
    assert error.party in PARTIES


def test_who_stops_a_fit_is_not_taken_for_a_failing_party(monkeypatch):
    monkeypatch.setattr(Panicking, "kind", KeyboardInterrupt)
    X, y = table()
    partition = VerticalPartitioner(Panicking(), parties=PARTIES)
    with pytest.raises(KeyboardInterrupt):
        SplitNNClassifier(parties=partition, **QUICK).fit(X, y)


# --- what a party is handed -------------------------------------------------------


class Looking(TransformerMixin, BaseEstimator):
    """A transformer that keeps all that a table says beside its cells."""

    def fit(self, X, y=None):
        self.seen_ = [list(X.index), dict(X.attrs), list(X.columns.names)]
        return self

    def transform(self, X):
        return np.asarray(X)

    def get_feature_names_out(self, input_features=None):
        return np.asarray(input_features, dtype=object)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=_name)
def test_a_block_has_no_index_and_no_attributes(estimator):
    X, y = table()
    X.index = [f"patient {i}" for i in range(len(X))]
    X.attrs["source"] = "CANARY"
    X.columns.name = "CANARY"
    partition = VerticalPartitioner(Looking(), parties=PARTIES)
    # The table itself has them, and whoever splits it.
    assert partition.fit(X).transformers_["bank"].seen_[0] == list(X.index)
    assert partition.split(X)["bank"].attrs == {"source": "CANARY"}
    before = X.copy()
    vfl = clone(estimator).set_params(parties=partition).fit(X, y)
    vfl.predict(X)
    for name in PARTIES:
        steps = vfl._parties[name]._transformer
        looking = steps if isinstance(steps, Looking) else steps[0]
        assert looking.seen_ == [list(range(len(X))), {}, [None]]
    pd.testing.assert_frame_equal(X, before)
    assert X.attrs == before.attrs
    assert X.columns.name == "CANARY"
