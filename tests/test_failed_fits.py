"""A fit that fails leaves its object as it was, whatever fails, and wherever."""

import copy
import io
import os
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    AutoencoderTransformer,
    Contiguous,
    CorrelationSplit,
    FedOnceClassifier,
    FedOnceRegressor,
    GaussianProjection,
    ImageTiles,
    ImportanceSplit,
    LocalTransport,
    NoiseAsTargetsEncoder,
    PartyPreprocessor,
    ProcessTransport,
    RandomFeaturesEncoder,
    RandomProjectionVFL,
    RoundRobin,
    SplitNNClassifier,
    SplitNNRegressor,
    TabVFLClassifier,
    TabVFLRegressor,
    VerticalPartitioner,
    VFedSecClassifier,
    VFedSecRegressor,
    VFLBoostingClassifier,
    VFLBoostingRegressor,
)
from skvfl.exceptions import PartyError

PARTIES = {"a": ["a0", "a1"], "b": ["b0", "b1"], "c": ["c0", "c1"]}
SETTINGS = {"parties": PARTIES, "random_state": 0}
QUICK = {**SETTINGS, "max_epochs": 2, "batch_size": 8}
TREES = {"parties": PARTIES, "random_state": 0, "max_iter": 2, "min_samples_leaf": 2}
TABNET = {**QUICK, "n_steps": 2, "pretraining_epochs": 1}
ESTIMATORS = [
    RandomProjectionVFL(LogisticRegression(), **SETTINGS),
    RandomProjectionVFL(Ridge(), whiten=True, **SETTINGS),
    APCVFLClassifier(**QUICK),
    APCVFLRegressor(**QUICK),
    FedOnceClassifier(**QUICK),
    FedOnceRegressor(n_split_epochs=2, **QUICK),
    FedOnceClassifier(epsilon=4.0, delta=1e-3, **QUICK),
    SplitNNClassifier(early_stopping=True, **QUICK),
    SplitNNRegressor(**QUICK),
    TabVFLClassifier(**TABNET),
    TabVFLRegressor(early_stopping=True, **TABNET),
    VFedSecClassifier(clients={"b": 2}, record_server_view=True, **QUICK),
    VFedSecRegressor(**QUICK),
    VFLBoostingClassifier(**TREES),
    VFLBoostingRegressor(**TREES),
]
TRANSFORMERS = [
    NoiseAsTargetsEncoder(max_epochs=2, random_state=0),
    AutoencoderTransformer(4, max_epochs=2, random_state=0),
    RandomFeaturesEncoder(3, random_state=0),
    GaussianProjection(random_state=0),
    PartyPreprocessor(),
    VerticalPartitioner(parties=PARTIES, random_state=0),
]
SPLITTERS = [
    RoundRobin(),
    Contiguous(),
    ImageTiles((2, 3), (1, 2)),
    ImportanceSplit(random_state=0),
    CorrelationSplit(random_state=0),
]


def _name(each):
    kind = type(each).__name__
    if isinstance(each, RandomProjectionVFL):
        return f"{kind}-{type(each.estimator).__name__}"
    return f"{kind}-private" if getattr(each, "epsilon", None) else kind


each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=_name)
each_transformer = pytest.mark.parametrize("transformer", TRANSFORMERS, ids=_name)


def table(estimator, n=24, seed=0):
    rng = np.random.default_rng(seed)
    columns = [column for held in PARTIES.values() for column in held]
    X = pd.DataFrame(rng.normal(size=(n, 6)), columns=columns)
    y = X["a0"].to_numpy() + X["b0"].to_numpy()
    return X, (y > np.median(y)).astype(int) if is_classifier(estimator) else y


class Frozen(pickle.Pickler):
    """Writes the numbers of tensors, and not where they are in memory."""

    def reducer_override(self, obj):
        if isinstance(obj, torch.Generator):
            obj = obj.get_state()
        if isinstance(obj, torch.Tensor):
            return bytes, (obj.detach().numpy().tobytes(),)
        return NotImplemented


def everything(fitted):
    """All that an object holds, public or not, in a form that can be compared."""
    contents = {}
    for name, value in vars(fitted).items():
        stream = io.BytesIO()
        Frozen(stream).dump(value)
        contents[name] = stream.getvalue()
    return contents


def assert_unchanged(now, before):
    """The very same objects under the same names."""
    assert now.keys() == before.keys()
    assert not [name for name in before if now[name] is not before[name]]


class Interrupting(TransformerMixin, BaseEstimator):
    """Raises in its n-th call of ``fit``."""

    calls = 0

    def __init__(self, error=KeyboardInterrupt, at=2):
        self.error = error
        self.at = at

    def fit(self, X, y=None):
        type(self).calls += 1
        if type(self).calls == self.at:
            raise self.error
        return self

    def transform(self, X):
        return np.asarray(X, dtype=np.float32)


class InterruptedSteps(torch.optim.SGD):
    """Ctrl-C while the parties train, in the second epoch."""

    steps = 0

    def step(self, closure=None):
        type(self).steps += 1
        if type(self).steps > 4:
            raise KeyboardInterrupt
        return super().step(closure)


class EpochWatch:
    """Callback that raises at the end of the second task of a fit."""

    def __init__(self, error=KeyboardInterrupt):
        self.error = error
        self.seen = 0

    def setup(self, estimator, context):
        self.seen = 0

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **kwargs):
        pass

    def on_fit_task_end(self, estimator, context, **kwargs):
        self.seen += 1
        if self.seen == 2:
            raise self.error


def _one_class(estimator, X, y):
    if not is_classifier(estimator):
        pytest.skip("for classifiers")
    estimator.fit(X, np.zeros(len(X), int))


def _sparse_table(estimator, X, y):
    changed = np.where(y == 1, "yes", "no") if is_classifier(estimator) else 1e3 * y
    if isinstance(estimator, RandomProjectionVFL):
        estimator.set_params(parties=VerticalPartitioner(StandardScaler(), parties=3))
    estimator.fit(sparse.csr_matrix(X.to_numpy()), changed)


def _missing_labels(estimator, X, y):
    estimator.fit(X, np.full(len(y), np.nan))


def _infinite_cells(estimator, X, y):
    estimator.fit(X.assign(c1=np.inf), y[::-1])


def _other_lengths(estimator, X, y):
    estimator.fit(X.iloc[:-1], y)


def _weights(estimator, X, y):
    estimator.fit(X, y[::-1], sample_weight=np.full(len(y), -1.0))


def _transformer(estimator, X, y):
    Interrupting.calls = 0
    broken = VerticalPartitioner(Interrupting(ValueError), parties=PARTIES)
    estimator.set_params(parties=broken).fit(X, y[::-1])


def _interrupt(estimator, X, y):
    Interrupting.calls = 0
    broken = VerticalPartitioner(Interrupting(), parties=PARTIES)
    estimator.set_params(parties=broken).fit(X, y[::-1])


def _callback(estimator, X, y):
    estimator.set_callbacks(EpochWatch()).fit(X, y[::-1])


def _optimizer(estimator, X, y):
    if "optimizer" not in estimator.get_params() or getattr(estimator, "epsilon", 0):
        pytest.skip("has no optimiser")
    InterruptedSteps.steps = 0
    estimator.set_params(optimizer=InterruptedSteps, lr=0.01).fit(X, y[::-1])


FAILURES = [
    _one_class,
    _sparse_table,
    _missing_labels,
    _infinite_cells,
    _other_lengths,
    _weights,
    _transformer,
    _interrupt,
    _callback,
    _optimizer,
]
each_failure = pytest.mark.parametrize("fail", FAILURES, ids=lambda f: f.__name__[1:])
MISTAKES = ValueError, TypeError, PartyError, KeyboardInterrupt


@pytest.fixture(scope="module")
def fitted():
    """Every estimator fitted once, and what it says."""
    made = {}
    for estimator in ESTIMATORS:
        X, y = table(estimator)
        one = clone(estimator).fit(X, y)
        made[_name(estimator)] = one, everything(one), one.predict(X)
    return made


def learnt(estimator):
    """What an estimator holds beside its parameters."""
    return {k: v for k, v in vars(estimator).items() if k not in estimator.get_params()}


@each_failure
@each_estimator
@pytest.mark.filterwarnings("ignore")
def test_a_failed_refit_changes_nothing(estimator, fail, fitted):
    X, y = table(estimator)
    before, contents, answers = fitted[_name(estimator)]
    refit = copy.copy(before)
    with pytest.raises(MISTAKES):
        fail(refit, X, y)
    refit.set_callbacks()
    refit.set_params(**before.get_params(deep=False))
    assert_unchanged(learnt(refit), learnt(before))
    # Nor was any of what both hold changed in place.
    assert everything(before) == contents
    assert_array_equal(refit.predict(X), answers)


@pytest.mark.parametrize("fail", [_infinite_cells, _interrupt, _callback])
@each_estimator
@pytest.mark.filterwarnings("ignore")
def test_a_failed_first_fit_leaves_nothing(estimator, fail):
    if fail is _callback and "early_stopping" in estimator.get_params():
        pytest.skip("keeps its last whole epoch, see test_course.py")
    X, y = table(estimator)
    first = clone(estimator)
    with pytest.raises(MISTAKES):
        fail(first, X, y)
    with pytest.raises(NotFittedError):
        first.predict(X)
    first.set_callbacks()
    assert not learnt(first)


@each_transformer
def test_transformers_and_splitters_too(transformer):
    X, _ = table(transformer)
    X = X if isinstance(transformer, VerticalPartitioner) else X.to_numpy()
    refit = clone(transformer).fit(X)
    before, expected = dict(vars(refit)), refit.transform(X)
    spoilt = np.array(X, dtype=float)[:, :5]
    spoilt[3, 2] = np.inf
    for method in (refit.fit, refit.fit_transform):
        with pytest.raises(MISTAKES):
            method(spoilt)
        assert_unchanged(vars(refit), before)
    assert_array_equal(refit.transform(X), expected)
    first = clone(transformer)
    with pytest.raises(MISTAKES):
        first.fit(spoilt)
    assert vars(first).keys() == vars(clone(transformer)).keys()


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: NoiseAsTargetsEncoder(max_epochs=3, optimizer=optimizer),
        lambda optimizer: AutoencoderTransformer(2, max_epochs=3, optimizer=optimizer),
    ],
    ids=["noise", "autoencoder"],
)
def test_an_interrupt_in_the_middle_of_an_encoders_training(make):
    X = np.random.default_rng(0).normal(size=(20, 3))
    encoder = make(None).fit(X)
    before, expected = dict(vars(encoder)), encoder.transform(X)
    InterruptedSteps.steps = 3
    with pytest.raises(KeyboardInterrupt):
        encoder.set_params(optimizer=InterruptedSteps).fit(2 * X)
    now = {**vars(encoder), "optimizer": before["optimizer"]}
    assert_unchanged(now, before)
    assert_array_equal(encoder.transform(X), expected)


def test_encoders_fitted_together_stay_as_they_were():
    X = np.random.default_rng(0).normal(size=(20, 3))
    encoders = [NoiseAsTargetsEncoder(max_epochs=1).fit(X) for _ in range(2)]
    before = [dict(vars(encoder)) for encoder in encoders]
    with pytest.raises(ValueError, match="different numbers of rows"):
        NoiseAsTargetsEncoder.fit_together(encoders, [X, X[1:]])
    for encoder, state in zip(encoders, before, strict=True):
        assert_unchanged(vars(encoder), state)


@pytest.mark.parametrize("splitter", SPLITTERS, ids=_name)
def test_a_failed_split_keeps_what_was_measured(splitter):
    X, y = table(splitter)
    splitter = clone(splitter)
    splitter.split_columns(X, y)
    before = dict(vars(splitter))
    with pytest.raises(MISTAKES):
        splitter.split_columns(X.iloc[:, :1], y)
    assert_unchanged(vars(splitter), before)


def test_a_network_that_a_function_returns_again_is_not_trained_further():
    shared = torch.nn.Linear(2, 4)
    X, y = table(ESTIMATORS[2])
    fitted = SplitNNClassifier(bottom=lambda *_: shared, cut_width=4, **QUICK)
    fitted.fit(X, y)
    expected = fitted.predict_proba(X)
    InterruptedSteps.steps = 0
    with pytest.raises(KeyboardInterrupt):
        fitted.set_params(optimizer=InterruptedSteps).fit(X, y[::-1])
    assert_array_equal(fitted.predict_proba(X), expected)


def test_objects_that_the_user_gave_are_as_they_were():
    X, y = table(ESTIMATORS[2])
    Interrupting.calls = 0
    partition = VerticalPartitioner(Interrupting(), parties=ImportanceSplit(3))
    given = [partition, partition.parties, partition.transformer]
    before = [dict(vars(each)) for each in given]
    with pytest.raises(KeyboardInterrupt):
        SplitNNClassifier(**{**QUICK, "parties": partition}).fit(X, y)
    for each, state in zip(given, before, strict=True):
        assert_unchanged(vars(each), state)


class Dying(Interrupting):
    """Ends its process, but for the one that the test runs in."""

    def fit(self, X, y=None):
        os._exit(3)


def test_a_party_that_dies():
    X, y = table(ESTIMATORS[7])
    refit = clone(ESTIMATORS[7]).fit(X, y)
    before, expected = dict(vars(refit)), refit.predict_proba(X)
    dying = [("a", "passthrough", PARTIES["a"]), ("b", Dying(), PARTIES["b"])]
    refit.set_params(
        transport=ProcessTransport(timeout=60),
        parties=VerticalPartitioner(parties=dying, remainder="drop"),
    )
    with pytest.raises(PartyError, match=r"'b'.*exit code 3"):
        refit.fit(X, y[::-1])
    refit.set_params(transport="local", parties=PARTIES)
    assert_unchanged({**vars(refit)}, {**before, "parties": refit.parties})
    assert_array_equal(refit.predict_proba(X), expected)


class Interrupted(LocalTransport):
    """Ctrl-C in the n-th call of a session, or while the parties come home (n = 0)."""

    def __init__(self, at):
        self.at = at

    def connect(self, parties, log, centre="server"):
        session = super().connect(parties, log, centre)
        calls = iter(range(1, 10**6))

        def interrupt(*_):
            raise KeyboardInterrupt

        def exchange(*args, go_on=session._exchange):
            return interrupt() if next(calls) == self.at else go_on(*args)

        session._exchange = exchange
        if not self.at:
            session._dismiss = interrupt
        return session


@each_estimator
@pytest.mark.parametrize("at", [0, 1, 12])
def test_an_interrupt_in_any_call(estimator, at, fitted):
    X, y = table(estimator)
    before, contents, _ = fitted[_name(estimator)]
    refit = copy.copy(before).set_params(transport=Interrupted(at))
    if at > 1 and type(refit).__name__[:3] in ("Ran", "APC", "Fed"):
        pytest.skip("one round, and so few calls")
    with pytest.raises(KeyboardInterrupt):
        refit.fit(X, y[::-1])
    assert_unchanged(learnt(refit), learnt(before))
    assert everything(before) == contents
