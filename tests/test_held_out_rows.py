"""Held-out rows of early stopping: nothing of them reaches training, in any method."""

import copy
from functools import cache, partial

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import FunctionTransformer
from torch import nn

from skvfl import (
    FedOnceClassifier,
    LocalTransport,
    SplitNNClassifier,
    TabVFLClassifier,
    VerticalPartitioner,
    VFedSecClassifier,
    VFLBoostingClassifier,
)
from skvfl.federation import Member

N_ROWS, N_HELD_OUT = 20, 4
SETTINGS = {
    "parties": VerticalPartitioner("passthrough", parties=2),
    "early_stopping": True,
    "validation_fraction": 0.2,
    "n_iter_no_change": 50,
    "max_epochs": 2,
    "batch_size": 8,
    "random_state": 0,
}


def trees(*, max_epochs=2, **params):
    """Boosting, whose epochs are iterations."""
    own = {"max_iter": max_epochs, "min_samples_leaf": 2, "learning_rate": 0.5}
    others = ("max_epochs", "batch_size")
    shared = {k: v for k, v in SETTINGS.items() if k not in others}
    return VFLBoostingClassifier(**shared, **own, **params)


MAKE = {
    "splitnn": partial(SplitNNClassifier, **SETTINGS),
    "vfedsec": partial(VFedSecClassifier, **SETTINGS, masked=False),
    "tabvfl": partial(
        TabVFLClassifier, **SETTINGS, pretrain=False, n_d=4, n_a=4, n_steps=2
    ),
    "boosting": trees,
    "fedonce": partial(
        FedOnceClassifier, **SETTINGS, local_encoder=FunctionTransformer()
    ),
}


@cache
def table():
    """Columns and labels that have nothing to do with each other."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:N_ROWS, :6], y[:N_ROWS].copy()
    y[::2] = 1 - y[::2]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X.astype(np.float32), y


@cache
def fit(name):
    """The fit of all rows, and which of them are held out: whose label is not seen."""
    X, y = table()
    fitted = MAKE[name]().fit(X, y)
    held_out = []
    for i in range(N_ROWS):
        other = y.copy()
        other[i] = 1 - other[i]
        if MAKE[name]().fit(X, other).loss_curve_ == fitted.loss_curve_:
            held_out.append(i)
    return fitted, held_out


@pytest.fixture
def rows():
    return table()


@pytest.fixture(params=sorted(MAKE))
def method(request):
    return request.param, *fit(request.param)


def test_labels_of_held_out_rows_never_reach_training(method):
    _, _, held_out = method
    assert len(held_out) == N_HELD_OUT


def test_columns_of_held_out_rows_never_reach_training(method, rows):
    name, fitted, held_out = method
    if name == "fedonce":
        pytest.skip("the host standardises by all rows that arrive")
    X, y = rows
    for i, same in ((held_out[0], True), (min({*range(6)} - {*held_out}), False)):
        other = X.copy()
        other[i] += 1
        curve = MAKE[name]().fit(other, y).loss_curve_
        assert (curve == fitted.loss_curve_) is same


def test_weights_of_held_out_rows_count_in_their_loss_and_nowhere_else(method, rows):
    name, _, held_out = method
    X, y = rows
    plain, weighted = np.ones(N_ROWS), np.ones(N_ROWS)
    weighted[held_out[1]] = 5
    before, after = (MAKE[name]().fit(X, y, each) for each in (plain, weighted))
    assert after.loss_curve_ == before.loss_curve_
    assert after.validation_loss_curve_ != before.validation_loss_curve_


def test_their_loss_is_the_weighted_mean_in_evaluation_mode(method, rows):
    name, _, held_out = method
    X, y = rows
    weights = np.random.default_rng(0).uniform(0.1, 3, N_ROWS)
    fitted = MAKE[name](max_epochs=1).fit(X, y, weights)
    chosen = fitted.predict_proba(X)[held_out, y[held_out]]
    expected = np.average(-np.log(chosen), weights=weights[held_out])
    assert fitted.validation_loss_curve_ == pytest.approx([expected], rel=1e-4)


@pytest.mark.parametrize("design", ["joint", "local_encoder", "local"])
def test_columns_of_held_out_rows_never_reach_pretraining(design, rows):
    X, y = rows
    make = partial(MAKE["tabvfl"], pretrain=True, design=design, max_epochs=1)
    curve = make().fit(X, y).pretraining_loss_curve_
    _, held_out = fit("tabvfl")
    for moved in (held_out, [min({*range(6)} - {*held_out})]):
        other = X.copy()
        other[moved] += 1
        same = make().fit(other, y).pretraining_loss_curve_ == curve
        assert same is (moved is held_out)


class Normed(nn.Sequential):
    """Counts its steps, as its running statistics do."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__(
            nn.Linear(n_inputs, 4), nn.BatchNorm1d(4), nn.Linear(4, n_outputs)
        )


NORMED = {
    "splitnn": {"bottom": Normed, "top": Normed},
    "vfedsec": {"bottom": Normed, "top": Normed},
    "fedonce": {"bottom": Normed, "top": Normed},
}


class Watched(LocalTransport):
    """Notes the networks of all parties around every operation."""

    seen = []

    def connect(self, parties, log, centre="server"):
        session = super().connect(parties, log, centre)
        exchange = session._exchange

        def watched(requests, *args):
            operations = {operation for operation, _ in requests.values()}
            before = self.networks(session._present.values())
            replies = exchange(requests, *args)
            after = self.networks(session._present.values())
            self.seen.append((operations, before, after))
            return replies

        session._exchange = watched
        return session

    @staticmethod
    def networks(parties):
        parties = [p.party if isinstance(p, Member) else p for p in parties]
        held = [
            x
            for p in parties
            if p is not None
            for each in (p, *p._states.values())
            for x in vars(each).values()
        ]
        return [copy.deepcopy(x.state_dict()) for x in held if isinstance(x, nn.Module)]


@pytest.mark.parametrize(
    ("name", "settings", "n_looks"),
    [
        ("splitnn", NORMED["splitnn"], 2),
        ("vfedsec", NORMED["vfedsec"], 2),
        ("tabvfl", {"pretrain": True}, 5),
        ("tabvfl", {"pretrain": True, "design": "local_encoder"}, 5),
        ("tabvfl", {"pretrain": True, "design": "local"}, 3),
    ],
    ids=["splitnn", "vfedsec", "joint", "local encoder", "local"],
)
def test_looking_at_held_out_rows_leaves_all_networks_as_they_are(
    name, settings, n_looks, rows
):
    """From the last step of an epoch to the copies of the best networks."""
    Watched.seen.clear()
    MAKE[name](**settings, max_epochs=1, transport=Watched()).fit(*rows)
    looks = []
    for operations, before, after in Watched.seen:
        same = len(before) == len(after) and all(
            torch.equal(old[key], new[key])
            for old, new in zip(before, after, strict=True)
            for key in old
        )
        looks.append(same)
        if operations & {"backward", "catch_up", "adapt", "pretrain_alone"}:
            assert not same
            looks.clear()
        if "remember" in operations:
            *looks, _ = looks
            assert all(looks)
            n_looks -= len(looks)
            looks.clear()
    assert n_looks == 0
    Watched.seen.clear()


@pytest.mark.parametrize("name", ["splitnn", "vfedsec", "fedonce"])
def test_held_out_rows_do_not_move_running_statistics(name, rows):
    """Steps that the statistics have seen are those of training."""
    fitted = MAKE[name](**NORMED[name], max_epochs=1).fit(*rows)
    parties = [*fitted._parties.values(), getattr(fitted, "_server", None)]
    norms = [
        module
        for party in parties
        for network in getattr(party, "__dict__", {}).values()
        if isinstance(network, nn.Module)
        for module in network.modules()
        if isinstance(module, nn.BatchNorm1d)
    ]
    assert len(norms) == (2 if name == "fedonce" else 3)
    n_steps = (N_ROWS - N_HELD_OUT) // SETTINGS["batch_size"]
    assert {norm.num_batches_tracked.item() for norm in norms} == {n_steps}
