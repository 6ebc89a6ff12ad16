"""A fit whose partner is lost leaves its last epoch, and goes on from there."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest
from _partners import (
    Process,
    bank_file,
    exchange_keys,
    partners,
    seeded,
    split_table,
)
from sklearn.base import clone
from sklearn.callback import ScoringMonitor
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import NotFittedError
from test_members import STREAMS

from skvfl import (
    FedOnceClassifier,
    SplitNNClassifier,
    TabVFLClassifier,
    VFedSecClassifier,
    VFLBoostingClassifier,
    _course,
    connect,
)
from skvfl.exceptions import PartyError, RefusedError
from skvfl.federation import _wire
from skvfl.remote._endpoint import Endpoint

N_OWN, N_EPOCHS, REACHED = 4, 5, 3
X, Y = load_breast_cancer(return_X_y=True)
BANK, TABLE = split_table(X, N_OWN)
TOGETHER = {"bank": slice(0, N_OWN), "shop": slice(N_OWN, None)}
METHODS = {
    "SplitNN": SplitNNClassifier(random_state=0),
    "vFedSec": VFedSecClassifier(random_state=0),
    "TabVFL": TabVFLClassifier(
        random_state=0, pretraining_epochs=1, n_steps=2, missing_party="raise"
    ),
}
METHODS["Boosting"] = VFLBoostingClassifier(max_leaf_nodes=4)
each_method = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "Boosting" else name
        for name in METHODS
    ],
)
first_method = pytest.mark.parametrize(
    "name",
    [
        name if name == "SplitNN" else pytest.param(name, marks=pytest.mark.slow)
        for name in METHODS
    ],
)


@pytest.fixture(autouse=True)
def every_epoch(monkeypatch):
    """Epochs here are so short that most would not be kept."""
    monkeypatch.setattr(_course, "LEAST_SECONDS", 0)


class Losing:
    """Loses a partner in an epoch, once all have kept the one before it."""

    def __init__(self, lose, epoch, seconds=0.3):
        self.lose, self.epoch, self.seconds = lose, epoch, seconds

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        if len(getattr(estimator, "loss_curve_", ())) == self.epoch and self.lose:
            time.sleep(self.seconds)
            lose, self.lose = self.lose, None
            lose()

    def on_fit_task_end(self, estimator, context):
        return False

    def teardown(self, estimator, context):
        pass


def lasts(estimator, n_epochs):
    """So many epochs, or iterations."""
    counts = "max_iter" if hasattr(estimator, "max_iter") else "max_epochs"
    return estimator.set_params(**{counts: n_epochs})


def expected(estimator, *n_epochs):
    """What a simulation gives that trains for so many epochs, one fit after another."""
    together = clone(estimator).set_params(parties=TOGETHER, warm_start=True)
    for n in n_epochs:
        lasts(together, n).fit(X, Y)
    return together.predict_proba(X)


def models(folder):
    return len([*(Path(folder) / "shop" / "store").rglob("*.model")])


@pytest.fixture
def lost(monkeypatch):
    """Lets a partner break its connections from now on; undone by ``back``."""
    answer = Endpoint.answer

    class Lost:
        def __call__(self):
            monkeypatch.setattr(Endpoint, "answer", None)

        def back(self):
            monkeypatch.setattr(Endpoint, "answer", answer)

    return Lost()


@each_method
def test_a_fit_goes_on_from_the_last_epoch_that_all_have_kept(name, lost, tmp_path):
    estimator = clone(METHODS[name])
    there = {"streams": STREAMS, "seed": 0}
    with partners(tmp_path, {"shop": TABLE}, **there) as path:
        link = seeded(connect(path))
        link.agree(BANK["customer"])
        lasts(estimator, N_EPOCHS).set_params(parties=link)
        fit = estimator.set_callbacks(Losing(lost, REACHED)).fit
        with pytest.raises(PartyError, match="'shop': its connection was lost") as info:
            fit(BANK, Y)
        assert f"n_iter_={REACHED} epochs" in info.value.__notes__[0]
        lost.back()
        # It has the models of the last epoch, as after an interrupt.
        assert estimator.n_iter_ == len(estimator.loss_curve_) == REACHED
        assert estimator.halves_ == ["bank"]
        before = expected(METHODS[name], REACHED)
        np.testing.assert_array_equal(estimator.predict_proba(BANK), before)
        # A list of ids, and two epochs.
        assert models(tmp_path) == 3
        estimator.set_callbacks().set_params(warm_start=True)
        lasts(estimator, N_EPOCHS - REACHED).fit(BANK, Y)
        assert estimator.n_iter_ == N_EPOCHS
        after = expected(METHODS[name], REACHED, N_EPOCHS - REACHED)
        np.testing.assert_array_equal(estimator.predict_proba(BANK), after)
        # What it went on from has been dropped, and its own epochs with it.
        assert models(tmp_path) == 2
        assert (after != before).any()


def test_split_epochs_of_fedonce_go_on_too(lost, tmp_path):
    params = {"max_epochs": 2, "n_split_epochs": 4, "random_state": 0}
    local = FedOnceClassifier(parties=TOGETHER, **params)
    with partners(tmp_path, {"shop": TABLE}, streams=STREAMS, seed=0) as path:
        apart = clone(local).set_params(parties=seeded(connect(path)))
        apart.parties.agree(BANK["customer"])
        with pytest.raises(PartyError, match="'shop': its connection was lost"):
            apart.set_callbacks(Losing(lost, 4)).fit(BANK, Y)
        lost.back()
        local.set_params(n_split_epochs=2).fit(X, Y)
        assert apart.loss_curve_ == local.loss_curve_
        before = local.predict_proba(X)
        np.testing.assert_array_equal(apart.predict_proba(BANK), before)
        apart.set_callbacks().set_params(warm_start=True, n_split_epochs=1)
        local.set_params(warm_start=True, n_split_epochs=1).fit(X, Y)
        answers = apart.fit(BANK, Y).predict_proba(BANK)
        np.testing.assert_array_equal(answers, local.predict_proba(X))


def test_a_fit_with_a_budget_leaves_nothing(lost, monkeypatch, tmp_path):
    """What was spent until then would have to be found out from all."""
    params = {"n_split_epochs": 3, "epsilon": 8.0, "delta": 1e-3, "max_epochs": 1}
    with partners(tmp_path, {"shop": TABLE}) as path:
        apart = FedOnceClassifier(parties=connect(path), **params)
        apart.parties.agree(BANK["customer"])

        def lose_in_split_epochs(*_):
            lost()
            return 0

        # The first split epoch goes well, and the partner is lost after it.
        monkeypatch.setattr(FedOnceClassifier, "_private_step", lose_in_split_epochs)
        with pytest.raises(PartyError) as info:
            apart.fit(BANK, Y)
        assert not hasattr(info.value, "__notes__")
        assert not hasattr(apart, "n_iter_")


def test_the_epochs_of_a_fit_that_completes_are_dropped(tmp_path):
    with partners(tmp_path, {"shop": TABLE}) as path:
        estimator = clone(METHODS["SplitNN"]).set_params(parties=connect(path))
        estimator.set_params(max_epochs=3).fit(BANK, Y)
        assert models(tmp_path) == 2
        operations = [each.operation for each in estimator.communication_.messages]
        assert operations.count("keep_epoch") == 2 * 3


def test_short_epochs_are_not_all_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(_course, "LEAST_SECONDS", 3600)
    with partners(tmp_path, {"shop": TABLE}) as path:
        estimator = clone(METHODS["SplitNN"]).set_params(parties=connect(path))
        estimator.set_params(max_epochs=3).fit(BANK, Y)
        operations = [each.operation for each in estimator.communication_.messages]
        assert operations.count("keep_epoch") == 2


def test_epochs_that_others_may_go_on_without_are_all_kept(tmp_path, monkeypatch):
    """The half that a partner kept last is its part of the model when it is gone."""
    monkeypatch.setattr(_course, "LEAST_SECONDS", 3600)
    with partners(tmp_path, {"shop": TABLE}) as path:
        estimator = clone(METHODS["TabVFL"]).set_params(parties=connect(path))
        estimator.set_params(max_epochs=3, missing_party="cache").fit(BANK, Y)
        operations = [each.operation for each in estimator.communication_.messages]
        assert operations.count("keep_epoch") == 2 * 3


def test_a_fit_that_is_lost_in_its_first_epoch_leaves_nothing(lost, tmp_path):
    with partners(tmp_path, {"shop": TABLE}) as path:
        estimator = clone(METHODS["SplitNN"]).set_params(parties=connect(path))
        estimator.parties.agree(BANK["customer"])
        with pytest.raises(PartyError) as info:
            estimator.set_callbacks(Losing(lost, 0)).fit(BANK, Y)
        assert not hasattr(info.value, "__notes__")
        with pytest.raises(NotFittedError):
            estimator.predict(BANK)
        assert not hasattr(estimator, "loss_curve_")


def test_an_earlier_fit_survives_a_refit_that_is_lost(lost, tmp_path):
    with partners(tmp_path, {"shop": TABLE}) as path:
        estimator = clone(METHODS["SplitNN"]).set_params(parties=connect(path))
        estimator.set_params(max_epochs=2).fit(BANK, Y)
        before = estimator.predict_proba(BANK)
        again = estimator.set_params(max_epochs=9).set_callbacks(Losing(lost, 3))
        with pytest.raises(PartyError) as info:
            again.fit(BANK, Y)
        assert not hasattr(info.value, "__notes__")
        lost.back()
        np.testing.assert_array_equal(estimator.predict_proba(BANK), before)
        assert estimator.n_iter_ == 2


@first_method
def test_scores_of_every_epoch(name, tmp_path):
    with partners(tmp_path, {"shop": TABLE}, streams=STREAMS, seed=0) as path:
        scores = {}
        for parties, table in ((seeded(connect(path)), BANK), (TOGETHER, X)):
            monitor = ScoringMonitor(scoring="neg_log_loss")
            estimator = lasts(clone(METHODS[name]), 3).set_params(parties=parties)
            estimator.set_callbacks(monitor).fit(table, Y)
            scores[len(scores)] = [
                each["neg_log_loss"] for each in monitor.get_logs().data
            ]
        assert len(set(scores[0])) == 3
        assert scores[0] == scores[1]


def test_scores_are_predictions_which_a_partner_counts(tmp_path):
    allow = {"rows_per_day": 2 * len(Y)}
    with partners(tmp_path, {"shop": TABLE}, allow=allow) as path:
        estimator = clone(METHODS["SplitNN"]).set_params(parties=connect(path))
        estimator.set_callbacks(ScoringMonitor(scoring="accuracy"))
        with pytest.raises(RefusedError, match="predicted rows are asked for and 0 of"):
            estimator.set_params(max_epochs=5).fit(BANK, Y)


def test_tabvfl_goes_on_without_a_partner_that_is_gone(lost, tmp_path):
    with partners(tmp_path, {"shop": TABLE}, streams=STREAMS, seed=0) as path:
        link = seeded(connect(path))
        link.agree(BANK["customer"])
        estimator = clone(METHODS["TabVFL"]).set_params(parties=link)
        estimator.set_params(max_epochs=N_EPOCHS, missing_party="cache")
        estimator.set_callbacks(Losing(lost, REACHED)).fit(BANK, Y)
        lost.back()
        gone = [epoch for _, epoch, _ in estimator.failures_]
        assert set(gone) == {REACHED + 1, N_EPOCHS}
        assert estimator.n_iter_ == N_EPOCHS
        # Its half is that of the last epoch that it has kept, from which nothing moved.
        before = clone(estimator).set_params(max_epochs=REACHED).set_callbacks()
        before.fit(BANK, Y)
        ours, theirs = (
            _state_of(tmp_path, each._parties["shop"].model)
            for each in (estimator, before)
        )
        assert len(ours) > 2
        assert ours == theirs
        assert estimator.predict(BANK).shape == Y.shape
        # And it is there when the fit goes on.
        estimator.set_callbacks().set_params(warm_start=True).fit(BANK, Y)
        assert estimator.n_iter_ == 2 * N_EPOCHS


def _state_of(folder, model):
    """Bytes of all tensors in a model."""
    (path,) = (folder / "shop" / "store").rglob(f"{model}.model")
    nodes = _wire.unpack(path.read_bytes())["state"]["nodes"]
    return [each[2].tobytes() for each in nodes if each[0] == "tensor"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "params", [{"missing_party": "raise"}, {"early_stopping": True, "max_epochs": 3}]
)
def test_tabvfl_ends_where_it_needs_a_partner_that_is_gone(params, lost, tmp_path):
    with partners(tmp_path, {"shop": TABLE}) as path:
        link = connect(path)
        link.agree(BANK["customer"])
        estimator = clone(METHODS["TabVFL"]).set_params(parties=link, **params)
        with pytest.raises(PartyError, match=r"'shop': .*(lost|offline)"):
            estimator.set_callbacks(Losing(lost, 2)).fit(BANK, Y)
        assert estimator.n_iter_ == 2


@pytest.mark.slow
@each_method
def test_a_partner_that_is_killed_goes_on_after_its_restart(name, tmp_path):
    exchange_keys(tmp_path, ["bank", "shop"])
    there = {"streams": STREAMS, "seed": 0}
    with Process(tmp_path, "shop", TABLE, **there) as shop:
        link = seeded(connect(bank_file(tmp_path, ["shop"], {"shop": shop.port})))
        link.agree(BANK["customer"])
        estimator = lasts(clone(METHODS[name]), N_EPOCHS).set_params(
            parties=link, warm_start=True
        )
        kill = Losing(lambda: shop.signal(signal.SIGKILL), REACHED, seconds=2)
        with pytest.raises(PartyError, match="'shop': its connection was lost"):
            estimator.set_callbacks(kill).fit(BANK, Y)
        assert estimator.n_iter_ == REACHED
        shop.kill()
        with pytest.raises(PartyError, match="nobody listens"):
            estimator.predict(BANK)
        shop.start()
        lasts(estimator, N_EPOCHS - REACHED).set_callbacks()
        answers = estimator.fit(BANK, Y).predict_proba(BANK)
    after = expected(METHODS[name], REACHED, N_EPOCHS - REACHED)
    np.testing.assert_array_equal(answers, after)
