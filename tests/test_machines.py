"""What a party's own machine brings: a device, and callbacks of skorch's."""

import io
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.callback import ProgressBar
from sklearn.datasets import load_breast_cancer
from skorch.callbacks import Callback, Checkpoint, EarlyStopping, LRScheduler, PrintLog

from skvfl import (
    APCVFLClassifier,
    AutoencoderTransformer,
    FedOnceClassifier,
    NoiseAsTargetsEncoder,
    SplitNNClassifier,
    SplitNNRegressor,
    TabVFLClassifier,
    VFedSecClassifier,
)
from skvfl.federation import Member
from skvfl.federation._settings import NotInWordsError, in_words
from skvfl.remote._config import Allowance, PartyConfig, PeerConfig
from skvfl.remote._keys import make_keys
from skvfl.remote._organisation import Organisation

X, y = load_breast_cancer(return_X_y=True)
X, y = X[:120, :12], y[:120]
QUICK = {"parties": {"bank": range(6), "shop": range(6, 12)}, "max_epochs": 3}
QUICK |= {"batch_size": 40, "random_state": 0}
TABNET = {"n_steps": 1, "pretraining_epochs": 1}
METHODS = {
    "SplitNN": partial(SplitNNClassifier, **QUICK),
    "SplitNN, regression": partial(SplitNNRegressor, early_stopping=True, **QUICK),
    "vFedSec": partial(VFedSecClassifier, **QUICK),
    "vFedSec, cluster": partial(VFedSecClassifier, clients={"shop": 2}, **QUICK),
    "FedOnce": partial(FedOnceClassifier, n_split_epochs=2, **QUICK),
    "APC-VFL": partial(APCVFLClassifier, **QUICK),
    "TabVFL": partial(TabVFLClassifier, **QUICK, **TABNET),
    "TabVFL, local": partial(TabVFLClassifier, design="local", **QUICK, **TABNET),
}
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no GPU")
methods = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def answers(estimator):
    return getattr(estimator, "predict_proba", estimator.predict)(X)


def tensors(estimator):
    """Every tensor in what a fitted estimator holds."""
    found = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if isinstance(value, torch.Tensor):
                found.append(value)
            return None

    Pickler(io.BytesIO()).dump(estimator)
    return found


class Heard(Callback):
    """Keeps what it is told."""

    def initialize(self):
        self.log, self.rates, self.losses = [], [], []
        return self

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        self.log.append("begin")

    def on_epoch_end(self, net, **kwargs):
        self.log.append("epoch")
        self.rates.append(net.optimizer_.param_groups[0]["lr"])
        self.losses.append(net.history[-1].get("train_loss"))

    def on_train_end(self, net, X=None, y=None, **kwargs):
        self.log.append("end")


@methods
def test_the_path_of_a_device_computes_the_same(method):
    # A CPU under another name takes the path that a GPU takes.
    plain, there = method().fit(X, y), method(device="cpu:0").fit(X, y)
    np.testing.assert_allclose(answers(there), answers(plain), atol=1e-3)
    assert there.communication_.messages == plain.communication_.messages


@on_gpu
@methods
def test_training_on_a_gpu(method):
    fitted = method(device="cuda").fit(X, y)
    np.testing.assert_allclose(answers(fitted), answers(method().fit(X, y)), atol=0.1)
    # So that it loads where there is no GPU.
    assert {each.device.type for each in tensors(fitted)} == {"cpu"}
    kept = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(answers(kept), answers(fitted))


@on_gpu
@pytest.mark.parametrize("kind", [AutoencoderTransformer, NoiseAsTargetsEncoder])
def test_encoders_on_a_gpu(kind):
    encoder = kind(4, max_epochs=1, device="cuda").fit(X)
    assert {each.device.type for each in tensors(encoder)} == {"cpu"}


@methods
@pytest.mark.skipif(torch.cuda.is_available(), reason="torch has a GPU")
def test_a_device_that_is_not_there(method):
    message = "device='cuda' cannot be used on this machine, .* set device=\"cpu\""
    for device in ("cuda", {"shop": "cuda"}):
        with pytest.raises(ValueError, match=message):
            method(device=device).fit(X, y)
    with pytest.raises(ValueError, match="device='abacus' cannot be used"):
        method(device="abacus").fit(X, y)


@methods
def test_settings_of_machines_name_parties(method):
    for name in ("device", "callbacks"):
        with pytest.raises(ValueError, match=rf"{name} names \['spa'\], where"):
            method(**{name: {"spa": None}}).fit(X, y)
    with pytest.raises(ValueError, match=r"ProgressBar, .* go to set_callbacks"):
        method(callbacks=[ProgressBar()]).fit(X, y)


def test_a_budget_is_for_the_cpu_and_looks_at_no_loss():
    once = partial(FedOnceClassifier, epsilon=5.0, **QUICK)
    with pytest.raises(ValueError, match="device of the host cannot be used with a b"):
        once(device="cpu:0").fit(X, y)
    with pytest.raises(ValueError, match="callbacks of the host cannot be used with a"):
        once(callbacks=[Heard()]).fit(X, y)


def test_no_setting_that_is_sent_speaks_of_a_machine():
    with pytest.raises(NotInWordsError, match="device, which others decide"):
        in_words(NoiseAsTargetsEncoder(device="cuda"))
    split = SplitNNClassifier(device="cpu:0", callbacks=[Heard()], **QUICK).fit(X, y)
    for name in ("bank", "shop"):
        assert not {"device", "callbacks"} & split._settings(name).pack().keys()
    member = Member("shop", None, device="cuda:1")
    assert member.lend(NoiseAsTargetsEncoder()).device == "cuda:1"
    # What is said of one encoder is kept.
    assert member.lend(NoiseAsTargetsEncoder(device="cuda:0")).device == "cuda:0"


@methods
def test_callbacks_of_each_party(method):
    heard = {"bank": Heard(), "shop": Heard()}
    if method.func is VFedSecClassifier:
        heard["server"] = Heard()
    fitted = method(callbacks={n: [each] for n, each in heard.items()}).fit(X, y)
    n_messages = method().fit(X, y).communication_.n_messages
    if method.func is not VFedSecClassifier:
        assert fitted.communication_.n_messages == n_messages
    if "clients" in method.keywords:
        del heard["shop"]  # each client of a cluster has a copy
    n_epochs = 2 if method.func is FedOnceClassifier else 3
    for each in heard.values():
        assert each.log == ["begin", *["epoch"] * n_epochs, "end"]
    if hasattr(fitted, "loss_curve_"):
        knows = heard.get("server", heard["bank"])
        assert knows.losses == fitted.loss_curve_[-n_epochs:]
    # Whoever is given the model is given no callback of the parties, which may know
    # their networks.
    assert b"Heard" in pickle.dumps(fitted)
    assert b"Heard" not in pickle.dumps(fitted.keep_halves(["bank"]))
    assert b"Heard" not in pickle.dumps(fitted.set_params(callbacks=None))


@methods
def test_schedules_change_what_a_party_learns(method):
    halving = [LRScheduler("StepLR", step_size=1, gamma=0.1)]
    plain = method().fit(X, y)
    for name in ("bank", "shop"):
        heard = Heard()
        scheduled = method(callbacks={name: [*halving, heard]}).fit(X, y)
        assert (answers(scheduled) != answers(plain)).any()
        if "clients" not in method.keywords:
            # The scheduler comes first, so the rate is that of the next epoch.
            ratios = np.divide(heard.rates[1:], heard.rates[:-1])
            np.testing.assert_allclose(ratios, 0.1)


@pytest.mark.parametrize(
    "method", [each for name, each in METHODS.items() if name != "APC-VFL"]
)
def test_stopping_and_logging(method, capsys):
    lines = []
    stop = EarlyStopping("train_loss", patience=1, threshold=10.0, sink=lines.append)
    fitted = method(callbacks=[stop, PrintLog(sink=lines.append)], max_epochs=9)
    assert fitted.fit(X, y).n_iter_ == 2
    assert sum("train_loss" in line for line in lines) > 0


def test_a_list_is_of_whoever_knows_the_loss():
    heard = Heard()
    split = SplitNNClassifier(callbacks=[heard], **QUICK).fit(X, y)
    assert heard.losses == split.loss_curve_


def test_checkpoints_of_the_best_epoch(tmp_path):
    keep = Checkpoint(dirname=tmp_path, monitor="valid_loss_best", f_optimizer=None)
    split = SplitNNClassifier(
        callbacks=[keep], early_stopping=True, n_iter_no_change=9, **QUICK
    ).fit(X, y)
    state = torch.load(tmp_path / "params.pt")
    own = split._parties["bank"]
    for name in ("_bottom", "_top"):
        for key, value in getattr(own, name).state_dict().items():
            assert_array_equal(state[f"{name}.{key}"], value)


def test_weights_decay_as_in_torch():
    adam = partial(torch.optim.Adam, weight_decay=0.3)
    ours = SplitNNClassifier(weight_decay=0.3, **QUICK).fit(X, y)
    torchs = SplitNNClassifier(optimizer=adam, **QUICK).fit(X, y)
    np.testing.assert_allclose(answers(ours), answers(torchs), atol=1e-4)
    assert (answers(ours) != answers(SplitNNClassifier(**QUICK).fit(X, y))).any()


@pytest.mark.slow
def test_callbacks_and_devices_in_processes():
    options = {**QUICK, "max_epochs": 9, "device": "cpu:0"}
    options["callbacks"] = [EarlyStopping("train_loss", patience=1, threshold=10.0)]
    local, apart = (
        SplitNNClassifier(transport=how, **options).fit(X, y)
        for how in ("local", "process")
    )
    assert local.n_iter_ == apart.n_iter_ == 2
    assert_array_equal(answers(local), answers(apart))


def test_searches_and_refits_begin_anew():
    callbacks = [LRScheduler("StepLR", step_size=1, gamma=0.5)]
    split = SplitNNClassifier(callbacks=callbacks, **QUICK)
    first, again = (answers(clone(split).fit(X, y)) for _ in range(2))
    assert_array_equal(first, again)
    assert_array_equal(answers(split.fit(X, y)), answers(split.fit(X, y)))


def test_a_partner_chooses_its_own_device(tmp_path):
    make_keys("shop", tmp_path / "key", tmp_path / "pem")
    make_keys("bank", tmp_path / "bank.key", tmp_path / "bank")
    config = PartyConfig(
        name="shop",
        ids="id",
        key=tmp_path / "key",
        certificate=tmp_path / "pem",
        peers={
            "bank": PeerConfig(
                name="bank",
                certificate=tmp_path / "bank",
                allow=Allowance(
                    methods=("splitnn",),
                    columns=("a",),
                    min_rows=1,
                    max_width=9,
                    fits_per_day=1,
                    rows_per_day=1,
                ),
            )
        },
        store=tmp_path / "store",
        device="cpu:0",
        path=tmp_path / "shop.toml",
    )
    table = pd.DataFrame({"id": [1, 2], "a": [0.0, 1.0]})
    assert Organisation(config, table).member("bank").device == "cpu:0"
    with pytest.raises(ValueError, match=r"shop\.toml: device='abacus' cannot be used"):
        Organisation(replace(config, device="abacus"), table)
