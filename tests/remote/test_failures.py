"""Partners that are gone, stand still, refuse, or come back."""

import re
import signal
import threading
import time

import numpy as np
import pytest
from _partners import Process, bank_file, exchange_keys, free_port, split_table
from sklearn.datasets import load_breast_cancer

from skvfl import (
    FedOnceClassifier,
    SplitNNClassifier,
    TabVFLClassifier,
    connect,
)
from skvfl.exceptions import MissingPartyWarning, PartyError, RefusedError

FOREVER = 5_000
# Waiting for threads of a busy machine comes on top of what is promised.
SLACK = 2.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("apart")
    exchange_keys(folder, ["bank", "shop"])
    return folder


@pytest.fixture(scope="module")
def tables():
    X, y = load_breast_cancer(return_X_y=True)
    return *split_table(X, 4), y


@pytest.fixture
def shop(folder, tables):
    with Process(folder, "shop", tables[1]) as process:
        yield process


@pytest.fixture
def link(folder, shop):
    return connect(bank_file(folder, ["shop"], {"shop": shop.port}), timeout=60)


def endless(link, **params):
    """A fit that is still under way when its partner fails."""
    return SplitNNClassifier(parties=link, max_epochs=FOREVER, **params)


def fails(fit):
    """Run a fit in a thread; a function that gives its error, and when it came."""
    came = []

    def run():
        try:
            fit()
        except Exception as exc:
            came.append((exc, time.monotonic()))

    thread = threading.Thread(target=run)
    thread.start()

    def error():
        thread.join(60)
        return came[0]

    return error


@pytest.mark.slow
def test_a_partner_that_dies_is_named_at_once_and_serves_again_after_its_restart(
    tables, shop, link
):
    bank, _, y = tables
    split = SplitNNClassifier(parties=link, max_epochs=1).fit(bank, y)
    expected = split.predict_proba(bank)
    error = fails(lambda: endless(link).fit(bank, y))
    time.sleep(1.0)
    shop.kill()
    start = time.monotonic()
    exc, when = error()
    assert isinstance(exc, PartyError)
    assert str(exc).startswith("party 'shop': its connection was lost")
    assert when - start < 1 + SLACK
    start = time.monotonic()
    with pytest.raises(PartyError, match="party 'shop': nobody listens at its address"):
        split.predict(bank)
    assert time.monotonic() - start < 1 + SLACK
    shop.start()
    start = time.monotonic()
    np.testing.assert_array_equal(split.predict_proba(bank), expected)
    assert time.monotonic() - start < 2 + SLACK


def test_a_partner_that_stands_still_is_named_at_the_deadline(tables, shop, link):
    bank, _, y = tables
    link.agree(bank["customer"])
    hasty = connect(link.path, timeout=1.0)
    error = fails(lambda: endless(hasty).fit(bank, y))
    time.sleep(1.0)
    shop.signal(signal.SIGSTOP)
    start = time.monotonic()
    exc, when = error()
    shop.signal(signal.SIGCONT)
    assert re.match(r"party 'shop': no reply to '\w+' within 1", str(exc))
    assert when - start < 1 + SLACK


class Pause:
    """Lets a partner stand still for some epochs."""

    def __init__(self, shop, start, stop):
        self.shop, self.start, self.stop = shop, start, stop

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        n_epochs = len(getattr(estimator, "loss_curve_", ()))
        if n_epochs == self.start:
            self.shop.signal(signal.SIGSTOP)
        if n_epochs == self.stop:
            self.shop.signal(signal.SIGCONT)
            # It has to catch up before it is asked again.
            time.sleep(1.0)

    def on_fit_task_end(self, estimator, context):
        return False

    def teardown(self, estimator, context):
        pass


@pytest.mark.slow
def test_methods_go_on_as_their_parameters_say(tables, shop, link):
    bank, _, y = tables
    link.agree(bank["customer"])
    guest = FedOnceClassifier(parties=link, max_epochs=1).fit(bank, y)
    vfl = TabVFLClassifier(
        parties=connect(link.path, timeout=0.5),
        max_epochs=12,
        pretrain=False,
        missing_party="cache",
    )
    pause = Pause(shop, 3, 8)
    vfl.set_callbacks(pause).fit(bank, y)
    assert vfl.n_iter_ == 12
    missed = {epoch for _, epoch, name in vfl.failures_ if name == "shop"}
    assert {5, 6, 7} <= missed
    assert 12 not in missed
    shop.kill()
    with pytest.raises(PartyError, match="nobody listens"):
        guest.predict(bank)
    with pytest.warns(MissingPartyWarning, match="nobody listens"):
        guest.set_params(missing_party="zero").predict(bank)


def test_a_refusal_is_fast_and_never_taken_for_absence(folder, tables):
    bank, table, y = tables
    allow = {"methods": ["fedonce"], "min_rows": 400, "max_width": 2}
    with Process(folder, "shop", table, allow=allow) as shop:
        link = connect(bank_file(folder, ["shop"], {"shop": shop.port}))
        link.agree(bank["customer"])
        few = bank[:300], y[:300]
        for missing_party in "raise", "zero":
            fedonce = FedOnceClassifier(
                parties=link, max_epochs=1, missing_party=missing_party
            )
            start = time.monotonic()
            with pytest.raises(
                RefusedError, match="party 'shop': refused: 300 rows are"
            ):
                fedonce.fit(*few)
            assert time.monotonic() - start < 0.1 + SLACK
            with pytest.raises(RefusedError, match="n_components=3 is wider than"):
                fedonce.fit(bank, y)
        with pytest.raises(RefusedError, match=r"refused: .*splitnn"):
            SplitNNClassifier(parties=link).fit(bank, y)


def test_certificates_that_were_not_exchanged_are_refused(folder, tables, tmp_path):
    bank, table, y = tables
    with Process(folder, "shop", table) as shop:
        exchange_keys(tmp_path, ["bank", "shop"])
        pem = (folder / "shop" / "shop.pem").read_bytes()
        own = (tmp_path / "bank" / "shop.pem").read_bytes()
        for certificate in (pem, own):
            # The bank that the shop does not know; and, the second time, a shop that
            # the bank does not know.
            (tmp_path / "bank" / "shop.pem").write_bytes(certificate)
            path = bank_file(tmp_path, ["shop"], {"shop": shop.port})
            fedonce = FedOnceClassifier(parties=connect(path), missing_party="zero")
            with pytest.raises(
                RefusedError, match="party 'shop': no secure connection"
            ):
                fedonce.fit(bank, y)


@pytest.mark.slow
def test_a_partner_may_call_instead_of_listening(folder, tables):
    bank, table, y = tables
    port = free_port()
    path = bank_file(folder, ["shop"], listen=f"localhost:{port}")
    with Process(folder, "shop", table, dial=port) as shop:
        split = SplitNNClassifier(parties=connect(path, timeout=20), max_epochs=1)
        split.fit(bank, y)
        expected = split.predict_proba(bank)
        shop.kill()
        shop.start()
        np.testing.assert_array_equal(split.predict_proba(bank), expected)
