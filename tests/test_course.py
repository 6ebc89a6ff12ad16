"""What callbacks learn of a fit while it runs, and what an interrupt leaves."""

import signal
from functools import wraps
from importlib import import_module

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.callback import ScoringMonitor
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skvfl import (
    APCVFLClassifier,
    FedOnceClassifier,
    FedOnceRegressor,
    LossCurveDisplay,
    NoiseAsTargetsEncoder,
    RandomProjectionVFL,
    SplitNNClassifier,
    SplitNNRegressor,
    TabVFLClassifier,
    TabVFLRegressor,
    VFedSecClassifier,
    VFedSecRegressor,
    VFLBoostingClassifier,
    VFLBoostingRegressor,
)
from skvfl.exceptions import InterruptedFitWarning, PartyError
from skvfl.federation import Party

X, y = load_breast_cancer(return_X_y=True)
X, y = X[:200, :12], y[:200]
NUMBERS = [each[:200] for each in load_diabetes(return_X_y=True)]
QUICK = {"parties": 2, "max_epochs": 4, "batch_size": 50, "random_state": 0}
GUEST = {"local_encoder": NoiseAsTargetsEncoder(max_epochs=2)}
TABNET = {"n_steps": 1, "pretraining_epochs": 1}
TREES = {"parties": 2, "max_iter": 4, "max_leaf_nodes": 6, "random_state": 0}
# Each, and the number of scores: an epoch whose model predicts has one.
METHODS = {
    "RAP": (RandomProjectionVFL(LogisticRegression(), random_state=0), 1),
    "SplitNN": (SplitNNClassifier(**QUICK), 4),
    "vFedSec": (VFedSecClassifier(**QUICK), 4),
    "FedOnce": (FedOnceClassifier(**QUICK, n_split_epochs=2), 6),
    "FedOnce, private": (FedOnceClassifier(**QUICK, epsilon=8), 4),
    "APC-VFL": (APCVFLClassifier(**QUICK), 1),
    "Boosting": (VFLBoostingClassifier(**TREES), 4),
    "TabVFL": (TabVFLClassifier(**QUICK, **TABNET), 4),
}
ROUNDS = {
    "SplitNN": SplitNNClassifier(**QUICK),
    "SplitNN, early stopping": SplitNNClassifier(**QUICK, early_stopping=True),
    "SplitNN, regression": SplitNNRegressor(**QUICK),
    "vFedSec": VFedSecClassifier(**QUICK),
    "vFedSec, regression": VFedSecRegressor(**QUICK),
    "FedOnce": FedOnceClassifier(**QUICK, **GUEST),
    "FedOnce, regression": FedOnceRegressor(**QUICK, **GUEST, n_split_epochs=2),
    "Boosting": VFLBoostingClassifier(**TREES),
    "Boosting, early stopping": VFLBoostingRegressor(**TREES, early_stopping=True),
    "TabVFL": TabVFLClassifier(**QUICK, **TABNET),
    "TabVFL, regression": TabVFLRegressor(**QUICK, **TABNET),
}


def data_of(estimator):
    return (X, y) if hasattr(estimator, "predict_proba") else NUMBERS


class Interrupting:
    """Interrupts a fit at the end of an epoch, by a signal or an error."""

    def __init__(self, epoch, *, raises=False, times=1):
        self.epoch, self.raises, self.times, self.seen = epoch, raises, times, 0

    def setup(self, estimator, context):
        self.seen = 0

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        if context.task_name.endswith(("epoch", "iteration")):
            self.seen += 1

    def on_fit_task_end(self, estimator, context):
        if (
            not context.task_name.endswith(("epoch", "iteration"))
            or self.seen != self.epoch
        ):
            return
        if self.raises:
            raise KeyboardInterrupt
        for _ in range(self.times):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(("estimator", "n_scores"), METHODS.values(), ids=METHODS)
def test_scores_of_epochs(estimator, n_scores):
    monitored = clone(estimator)
    monitor = ScoringMonitor(scoring="neg_log_loss")
    monitored.set_callbacks(monitor).fit(X, y)
    scores = [
        row["neg_log_loss"]
        for row in monitor.get_logs().data
        if row["task_id_path"][1:]
    ]
    plain = clone(estimator).fit(X, y)
    # A score changes nothing, and the last one is that of the fitted model.
    assert (monitored.predict_proba(X) == plain.predict_proba(X)).all()
    assert monitored.communication_.messages == plain.communication_.messages
    assert len(scores) == n_scores
    last = -np.log(plain.predict_proba(X)[np.arange(len(y)), y]).mean()
    assert scores[-1] == pytest.approx(-last)
    assert len(set(scores)) == n_scores


@pytest.mark.slow
def test_scores_of_epochs_over_processes():
    estimator = SplitNNClassifier(**{**QUICK, "max_epochs": 2}, transport="process")
    monitor = ScoringMonitor(scoring="accuracy")
    estimator.set_callbacks(monitor).fit(X, y)
    scores = [each["accuracy"] for each in monitor.get_logs().data]
    assert scores[-1] == estimator.score(X, y)
    assert len(scores) == 3


@pytest.mark.parametrize("raises", [False, True], ids=["signal", "error"])
@pytest.mark.parametrize("estimator", ROUNDS.values(), ids=ROUNDS)
def test_an_interrupted_fit_is_that_of_its_last_epoch(estimator, raises):
    data = data_of(estimator)
    interrupted = clone(estimator)
    # Epochs of pretraining have no model that predicts.
    n_before = 1 if hasattr(estimator, "pretrain") else 0
    interrupted.set_callbacks(Interrupting(n_before + 2, raises=raises))
    with pytest.warns(InterruptedFitWarning, match="n_iter_=2 epochs"):
        interrupted.fit(*data)
    assert interrupted.n_iter_ == 2
    n_epochs = "max_iter" if "Boosting" in repr(estimator) else "max_epochs"
    short = clone(estimator).set_params(**{n_epochs: 2})
    short.set_params(**({"n_split_epochs": 0} if "FedOnce" in repr(short) else {}))
    if n_before:
        short.set_params(pretraining_epochs=1)
    short.fit(*data)
    assert interrupted.loss_curve_ == short.loss_curve_[:2]
    answer = "predict_proba" if hasattr(short, "predict_proba") else "predict"
    ours, theirs = (getattr(each, answer)(data[0]) for each in (interrupted, short))
    assert (ours == theirs).all()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("estimator", [ROUNDS["SplitNN"], ROUNDS["vFedSec"]])
def test_an_earlier_fit_survives_an_interrupted_one(estimator):
    fitted = clone(estimator).fit(X, y)
    before = fitted.predict_proba(X)
    fitted.set_callbacks(Interrupting(2))
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X[:, ::-1], y)
    assert (fitted.predict_proba(X) == before).all()
    assert fitted.n_iter_ == 4


def test_who_interrupts_twice_does_not_wait():
    estimator = clone(ROUNDS["SplitNN"]).set_callbacks(Interrupting(2, times=2))
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X, y)
    assert not hasattr(estimator, "classes_")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_pretraining_that_is_interrupted_leaves_nothing():
    estimator = clone(ROUNDS["TabVFL"]).set_callbacks(Interrupting(1))
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X, y)
    assert not hasattr(estimator, "loss_curve_")


WARM = [name for name in ROUNDS if "warm_start" in ROUNDS[name].get_params()]


@pytest.mark.parametrize("name", WARM)
def test_a_warm_start_goes_on(name):
    estimator = clone(ROUNDS[name]).set_params(warm_start=True)
    data = data_of(estimator)
    estimator.fit(*data)
    first, fitted = list(estimator.loss_curve_), dict(vars(estimator))
    cold = clone(estimator).fit(*data)
    n_iter = estimator.fit(*data).n_iter_
    # Split epochs are in the curve, too.
    assert n_iter == 8
    assert len(estimator.loss_curve_) == 2 * len(first)
    assert estimator.loss_curve_[: len(first)] == first
    # It begins where the first fit has ended, and not where a new model would.
    assert max(estimator.loss_curve_[len(first) :]) < first[0]
    assert min(estimator.loss_curve_[len(first) :]) < first[-1]
    # The first fit's models are untouched, whatever the second did.
    vars(estimator).update(fitted)
    answer = "predict_proba" if hasattr(cold, "predict_proba") else "predict"
    ours, theirs = (getattr(each, answer)(data[0]) for each in (estimator, cold))
    assert (ours == theirs).all()


@pytest.mark.slow
def test_a_warm_start_over_processes_gives_the_same_bits():
    options = {**QUICK, "max_epochs": 2, "warm_start": True}
    local, apart = (
        SplitNNClassifier(**options, transport=how).fit(X, y).fit(X, y)
        for how in ("local", "process")
    )
    assert local.loss_curve_ == apart.loss_curve_
    assert (local.predict_proba(X) == apart.predict_proba(X)).all()


def test_a_warm_start_needs_the_same_columns_and_classes():
    estimator = clone(ROUNDS["SplitNN"]).set_params(warm_start=True).fit(X, y)
    before = estimator.predict_proba(X)
    with pytest.raises(ValueError, match="other columns than in it: set warm_start"):
        estimator.fit(X[:, :10], y)
    swapped = {"party0": range(6), "party1": range(6, 12)}
    with pytest.raises(ValueError, match="other columns than in it: set warm_start"):
        clone(estimator).set_params(parties=2).fit(X, y).set_params(
            parties=swapped
        ).fit(X, y)
    with pytest.raises(ValueError, match="other classes: set warm_start=False"):
        estimator.fit(X, y + 1)
    with pytest.raises(ValueError, match="active was 'party0': set warm_start=False"):
        clone(estimator).fit(X, y).set_params(active=1).fit(X, y)
    assert (estimator.predict_proba(X) == before).all()


def test_an_interrupted_fit_goes_on_with_a_warm_start():
    estimator = clone(ROUNDS["SplitNN"]).set_params(warm_start=True)
    estimator.set_callbacks(Interrupting(2))
    with pytest.warns(InterruptedFitWarning):
        estimator.fit(X, y)
    assert estimator.set_callbacks().fit(X, y).n_iter_ == 6


@pytest.mark.parametrize(
    ("name", "labels"),
    {
        "SplitNN": ["training"],
        "vFedSec": ["training"],
        "FedOnce": ["training"],
        "APC-VFL": ["training, encode"],
        "TabVFL": ["pretraining", "training"],
        "Boosting": ["training"],
    }.items(),
)
def test_losses_are_drawn(name, labels):
    pytest.importorskip("matplotlib").use("agg")
    fitted = clone(METHODS[name][0]).fit(X, y)
    display = LossCurveDisplay.from_estimator(fitted)
    assert [line.get_label() for line in display.ax_.lines] == labels
    if hasattr(fitted, "loss_curve_"):
        assert list(display.ax_.lines[-1].get_ydata()) == fitted.loss_curve_


def test_losses_of_a_servers_model_or_of_none():
    pytest.importorskip("matplotlib").use("agg")
    model = MLPClassifier((4,), max_iter=300, tol=1e-2)
    fitted = RandomProjectionVFL(model, random_state=0).fit(X, y)
    display = LossCurveDisplay.from_estimator(fitted)
    losses = {"training, server's model": fitted.estimator_.loss_curve_}
    assert display.curves == losses
    for nothing in ("RAP", "FedOnce, private"):
        with pytest.raises(ValueError, match="no losses of epochs"):
            LossCurveDisplay.from_estimator(clone(METHODS[nothing][0]).fit(X, y))


@pytest.mark.parametrize("name", ["SplitNN", "vFedSec", "FedOnce", "TabVFL"])
def test_halves_of_an_earlier_fit_do_not_stay(name):
    def parties_in(estimator):
        """Names of the parties anywhere among an estimator's attributes."""
        nested = [each for each in vars(estimator).values() if isinstance(each, dict)]
        return {
            party.name
            for each in [vars(estimator), *nested]
            for party in each.values()
            if isinstance(party, Party) and party.name != "server"
        }

    estimator = clone(ROUNDS[name]).set_params(warm_start=True).fit(X, y).fit(X, y)
    assert parties_in(estimator) == {"party0", "party1"}
    alone = estimator.keep_halves(["party0"])
    assert parties_in(alone) == {"party0"}
    # The search would find them.
    alone._left = {"party1": estimator._parties["party1"]}
    assert parties_in(alone) == {"party0", "party1"}
    with pytest.raises(PartyError, match=r"'party1': .* not here to go on from"):
        alone.fit(X, y)


def test_a_warm_start_of_fedonce_sends_the_same_again():
    """A second message with other noise would tell what the first one hides."""
    options = {**QUICK, **GUEST, "representation_noise": 0.5, "warm_start": True}
    once = FedOnceClassifier(**options).fit(X, y)
    first = once.transform(X)[:, 32:]
    assert (once.fit(X, y).transform(X)[:, 32:] == first).all()
    # A new fit does not.
    assert (
        FedOnceClassifier(**options | {"random_state": 1})
        .fit(X, y)
        .transform(X)[:, 32:]
        != first
    ).any()
    once.set_params(representation_noise=0.7)
    with pytest.raises(PartyError, match="representation_noise must be that of the l"):
        once.fit(X, y)
    with pytest.raises(ValueError, match="warm_start cannot be used with a budget"):
        FedOnceClassifier(epsilon=5.0, **options).fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "kind", "operation"),
    [
        (SplitNNClassifier, "skvfl.splitnn._active.TopParty", "evaluate"),
        (SplitNNClassifier, "skvfl.splitnn._parties.BottomParty", "represent"),
        (SplitNNClassifier, "skvfl.splitnn._active.TopParty", "remember"),
        (SplitNNClassifier, "skvfl.splitnn._active.TopParty", "recall"),
        (VFedSecClassifier, "skvfl.vfedsec._protocol.SecureServer", "evaluate"),
        (TabVFLClassifier, "skvfl.tabvfl._host.HostParty", "evaluate"),
        (FedOnceClassifier, "skvfl.fedonce._host.HostParty", "end_training"),
    ],
)
def test_an_interrupt_between_epochs_is_one_within(
    monkeypatch, estimator, kind, operation
):
    module, _, name = kind.rpartition(".")
    owner = getattr(import_module(module), name)
    original, calls = getattr(owner, operation), []

    @wraps(original)
    def interrupted(self, *args, **kwargs):
        calls.append(operation)
        # In the second epoch, or in what is done once.
        if len(calls) == (1 if operation in ("recall", "end_training") else 2):
            signal.raise_signal(signal.SIGINT)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(owner, operation, interrupted)
    tabnet = {**TABNET, "pretrain": False} if estimator is TabVFLClassifier else {}
    fitted = estimator(early_stopping=True, **QUICK, **tabnet)
    with pytest.warns(InterruptedFitWarning, match=r"n_iter_=\d epochs"):
        fitted.fit(X, y)
    assert fitted.n_iter_ == (4 if operation in ("recall", "end_training") else 2)
    assert len(fitted.predict(X)) == len(X)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # Not in a refit, which is not worth losing the earlier fit for.
    calls.clear()
    before = fitted.predict_proba(X)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X, y)
    monkeypatch.undo()
    assert (fitted.predict_proba(X) == before).all()


def test_an_interrupted_warm_start_keeps_what_it_added():
    estimator = clone(ROUNDS["SplitNN"]).set_params(warm_start=True).fit(X, y)
    estimator.set_callbacks(Interrupting(2))
    with pytest.warns(InterruptedFitWarning, match="n_iter_=6 epochs"):
        estimator.fit(X, y)
