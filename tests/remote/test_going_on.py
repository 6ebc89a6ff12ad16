"""A fit whose partner is lost leaves its last epoch, and goes on from there."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest
from _partners import Process, bank_file, exchange_keys, partners, split_table
from sklearn.base import clone
from sklearn.callback import ScoringMonitor
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import NotFittedError
from test_members import STREAMS

from skvfl import (
    SplitNNClassifier,
    TabVFLClassifier,
    VFedSecClassifier,
    connect,
)
from skvfl.exceptions import PartyError, RefusedError
from skvfl.remote._endpoint import Endpoint

N_OWN, N_EPOCHS, REACHED = 4, 5, 3
X, Y = load_breast_cancer(return_X_y=True)
BANK, TABLE = split_table(X, N_OWN)
TOGETHER = {"bank": slice(0, N_OWN), "shop": slice(N_OWN, None)}
METHODS = {
    "SplitNN": SplitNNClassifier(random_state=0),
    "vFedSec": VFedSecClassifier(random_state=0),
    "TabVFL": TabVFLClassifier(random_state=0, pretraining_epochs=1, n_steps=2),
}
each_method = pytest.mark.parametrize("name", METHODS)


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


def expected(estimator, *n_epochs):
    """What a simulation gives that trains for so many epochs, one fit after another."""
    together = clone(estimator).set_params(parties=TOGETHER, warm_start=True)
    for n in n_epochs:
        together.set_params(max_epochs=n).fit(X, Y)
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
        link = connect(path)
        link.agree(BANK["customer"])
        estimator.set_params(parties=link, max_epochs=N_EPOCHS)
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
        estimator.set_params(max_epochs=N_EPOCHS - REACHED).fit(BANK, Y)
        assert estimator.n_iter_ == N_EPOCHS
        after = expected(METHODS[name], REACHED, N_EPOCHS - REACHED)
        np.testing.assert_array_equal(estimator.predict_proba(BANK), after)
        # What it went on from has been dropped, and its own epochs with it.
        assert models(tmp_path) == 2
        assert (after != before).any()


def test_the_epochs_of_a_fit_that_completes_are_dropped(tmp_path):
    with partners(tmp_path, {"shop": TABLE}) as path:
        estimator = clone(METHODS["SplitNN"]).set_params(parties=connect(path))
        estimator.set_params(max_epochs=3).fit(BANK, Y)
        assert models(tmp_path) == 2
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


@each_method
def test_scores_of_every_epoch(name, tmp_path):
    with partners(tmp_path, {"shop": TABLE}, streams=STREAMS, seed=0) as path:
        scores = {}
        for parties, table in ((connect(path), BANK), (TOGETHER, X)):
            monitor = ScoringMonitor(scoring="neg_log_loss")
            estimator = clone(METHODS[name]).set_params(parties=parties, max_epochs=3)
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


@pytest.mark.slow
@each_method
def test_a_partner_that_is_killed_goes_on_after_its_restart(name, tmp_path):
    exchange_keys(tmp_path, ["bank", "shop"])
    there = {"streams": STREAMS, "seed": 0}
    with Process(tmp_path, "shop", TABLE, **there) as shop:
        link = connect(bank_file(tmp_path, ["shop"], {"shop": shop.port}))
        link.agree(BANK["customer"])
        estimator = clone(METHODS[name]).set_params(
            parties=link, max_epochs=N_EPOCHS, warm_start=True
        )
        kill = Losing(lambda: shop.signal(signal.SIGKILL), REACHED, seconds=2)
        with pytest.raises(PartyError, match="'shop': its connection was lost"):
            estimator.set_callbacks(kill).fit(BANK, Y)
        assert estimator.n_iter_ == REACHED
        shop.kill()
        with pytest.raises(PartyError, match="nobody listens"):
            estimator.predict(BANK)
        shop.start()
        estimator.set_callbacks().set_params(max_epochs=N_EPOCHS - REACHED)
        answers = estimator.fit(BANK, Y).predict_proba(BANK)
    after = expected(METHODS[name], REACHED, N_EPOCHS - REACHED)
    np.testing.assert_array_equal(answers, after)
