import copy
import hashlib
import json
import pickle
import sys
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.preprocessing import scale
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

sys.path.append(str(Path(__file__).parent / "privacy"))

from _secure import LEVEL, distinguishability, uniformity

from skvfl import (
    FedOnceClassifier,
    GaussianProjection,
    LocalTransport,
    SplitNNClassifier,
    TabVFLClassifier,
    VerticalPartitioner,
    VFedSecClassifier,
    VFedSecRegressor,
    record_communication,
)
from skvfl._random import branch, seed_sequence
from skvfl.exceptions import PartyError
from skvfl.federation import Federation, Holding, Labels, Member, Transport
from skvfl.federation._party import SealedParty
from skvfl.federation._settings import in_words
from skvfl.nn._steps import batch_bounds, tensor
from skvfl.privacy import (
    FixedPoint,
    KeyRing,
    SecureAggregationError,
    _rings,
    sealed_length,
)
from skvfl.privacy._draw import Draw
from skvfl.vfedsec import _agreement, _protocol
from skvfl.vfedsec._active import ActiveClient, Selection
from skvfl.vfedsec._dealing import labels_of
from skvfl.vfedsec._parties import SecureClient, _drop_last_bias
from skvfl.vfedsec._protocol import SecureServer

PARTIES = {"bank": range(10), "telco": range(10, 20), "shop": range(20, 30)}
SMALL = {"bottom": (8,), "top": (8,), "cut_width": 4, "lr": 0.01, "random_state": 0}


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y


def as_they_are(parties=PARTIES):
    """Parties that do not prepare their columns, so that clusters prepare alike."""
    return VerticalPartitioner("passthrough", parties=parties)


# The active party refuses while a run is opened; nothing has been answered by it.
OPENING = ["open", "say_rows"]


def asked_of(wire):
    return [asked for asked, _, _ in wire.seen]


def states(vfl):
    models = {
        name: (party.open() if isinstance(party, SealedParty) else party)._bottom
        for name, party in vfl._parties.items()
    }
    models["server"] = vfl._server._top
    return {
        (name, key): value
        for name, model in models.items()
        for key, value in model.state_dict().items()
    }


def same_states(one, other):
    one, other = states(one), states(other)
    return one.keys() == other.keys() and all(
        torch.equal(one[k], other[k]) for k in one
    )


def normalised(n_inputs, n_outputs):
    return nn.Sequential(nn.BatchNorm1d(n_inputs), nn.Linear(n_inputs, n_outputs))


class Watched(Transport):
    """A local transport in whose lines somebody sits."""

    def __init__(self, meddle=None):
        self.meddle = meddle
        self.seen = []

    def connect(self, parties, log, centre="server"):
        session = LocalTransport().connect(parties, log, centre)
        exchange = session._exchange

        def watched(requests, *args):
            requests = {name: copy.deepcopy(r) for name, r in requests.items()}
            if self.meddle is not None:
                self.meddle("request", requests)
            exchanged = exchange(requests, *args)
            replies = {name: reply for name, (reply, *_) in exchanged.items()}
            asked = next(iter(requests.values()))[0]
            answers = {name: [asked, reply] for name, reply in replies.items()}
            if self.meddle is not None:
                self.meddle("reply", answers)
            self.seen.append((asked, requests, answers))
            return {
                name: (answer[1], *exchanged[name][1:])
                for name, answer in answers.items()
            }

        session._exchange = watched
        return session


# --- the same numbers, masked or not ------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"clients": {"telco": 2}},
        {"clients": {"telco": 2, "shop": 3}, "early_stopping": True, "bits": 64},
    ],
)
def test_masks_change_nothing(cancer, settings):
    X, y = cancer
    settings = {"parties": as_they_are(), "max_epochs": 3} | settings
    masked = VFedSecClassifier(**SMALL, **settings).fit(X, y)
    plain = VFedSecClassifier(**SMALL, **settings, masked=False).fit(X, y)
    assert same_states(masked, plain)
    assert masked.loss_curve_ == plain.loss_curve_
    assert masked.validation_loss_curve_ == plain.validation_loss_curve_
    assert_array_equal(masked.predict_proba(X), plain.predict_proba(X))
    assert_array_equal(masked.transform(X), plain.transform(X))


def test_masks_change_nothing_in_a_regression():
    X, y = load_diabetes(return_X_y=True)
    settings = {"parties": 3, "max_epochs": 3, "clients": {"party1": 2}, **SMALL}
    settings["parties"] = as_they_are(3)
    masked = VFedSecRegressor(**settings).fit(X, y)
    plain = VFedSecRegressor(**settings, masked=False).fit(X, y)
    assert same_states(masked, plain)
    assert_array_equal(masked.predict(X), plain.predict(X))


class Joint:
    """The same networks and rows in one autograd graph of floating-point numbers."""

    def __init__(self, vfl, X, y, absent=None, owners=None):
        self.absent = absent or {}
        vfl = clone(vfl).set_params(clients=None)
        root = seed_sequence(vfl.random_state)
        labels = vfl._read_classes(X, y, None, None)
        X = vfl._fit_partition(X, y, branch(root, 0))
        dealt = vfl._deal(len(y), np.random.default_rng(0))
        own = labels_of(labels, owners, vfl._choosers)
        members = vfl._make_members(X, root, own, dealt).home
        clients = {each.name: vfl._settings(each.name).make(each) for each in members}
        server = vfl._make_server(root)
        self.inputs = [
            tensor(clients[each.name]._transformer.fit_transform(each.holding.block))
            for each in members
        ]
        self.names, self.bottoms = list(clients), []
        for client, inputs in zip(clients.values(), self.inputs, strict=True):
            bottom = client._build_bottom(inputs.shape[1], client._generator)
            if client.name != vfl._active:
                _drop_last_bias(bottom)
            self.bottoms.append(bottom)
        self.top = server._top
        self.optimizers = [
            client._optimize(list(model.parameters()))
            for client, model in zip(
                [*clients.values(), clients[vfl._active]],
                [*self.bottoms, self.top],
                strict=True,
            )
        ]
        self.shuffle = np.random.default_rng(clients[vfl._active]._to_order)
        self.order = self.shuffle.permutation(np.arange(len(y)))
        self.orders = {
            name: np.random.default_rng(clients[name]._to_order).permutation
            for name in vfl._choosers
        }
        self.labels = torch.from_numpy(np.unique(y, return_inverse=True)[1])

    def contributions(self, rows):
        parts = [b(x[rows]) for b, x in zip(self.bottoms, self.inputs, strict=True)]
        for name, absent in self.absent.items():
            held = torch.from_numpy(~absent)[rows, None]
            parts[self.names.index(name)] *= held
        return parts

    def train(self, max_epochs, batch_size):
        for _ in range(max_epochs):
            self.order = self.shuffle.permutation(self.order)
            for start, stop in batch_bounds(len(self.order), batch_size):
                self.learn(self.order[start:stop])

    def learn(self, rows):
        rows = torch.from_numpy(rows)
        outputs = self.top(sum(self.contributions(rows)))
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        nn.functional.cross_entropy(outputs, self.labels[rows]).backward()
        for optimizer in self.optimizers:
            optimizer.step()


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("clients", [None, {"telco": 3}])
def test_first_batch_is_within_the_error_bound(cancer, monkeypatch, clients, bits):
    X, y = cancer
    vfl = VFedSecClassifier(
        parties=as_they_are(),
        clients=clients,
        bits=bits,
        max_epochs=1,
        batch_size=100,
        random_state=0,
    )
    joint = Joint(vfl, X, y)
    rows = torch.from_numpy(joint.shuffle.permutation(joint.order)[:100])
    with torch.inference_mode():
        expected = sum(part.double() for part in joint.contributions(rows)).numpy()
    sums = []
    learn = SecureServer.learn

    def spy(self, total, labels, weights):
        sums.append(total)
        return learn(self, total, labels, weights)

    monkeypatch.setattr(SecureServer, "learn", spy)
    vfl.fit(X, y)
    numbers = FixedPoint(len(vfl._parties), bound=vfl.bound, bits=bits)
    single = 4e-7  # of the forward pass and the sum in single precision
    assert numbers.error_bound < (2e-5 if bits == 32 else single)
    error = np.abs(sums[0] - expected).max()
    assert error <= numbers.error_bound + single
    assert bits == 64 or error > single


@pytest.mark.parametrize("clients", [None, {"telco": 2, "shop": 3}])
def test_training_is_that_of_the_joint_network(cancer, clients):
    """However many clients share the rows of a party."""
    X, y = cancer
    vfl = VFedSecClassifier(
        parties=as_they_are(),
        clients=clients,
        bits=64,
        optimizer=torch.optim.SGD,
        lr=0.1,
        max_epochs=3,
        random_state=0,
    ).fit(X, y)
    joint = Joint(vfl, X, y)
    before = copy.deepcopy(joint.bottoms)
    joint.train(3, vfl.batch_size)
    for cluster, bottom, first in zip(
        vfl.clusters_.values(), joint.bottoms, before, strict=True
    ):
        for name, value in bottom.state_dict().items():
            trained = vfl._parties[cluster[0]]._bottom.state_dict()[name]
            assert_allclose(trained, value, atol=2e-6)
            assert not torch.allclose(first.state_dict()[name], value, atol=1e-3)
    for name, value in joint.top.state_dict().items():
        assert_allclose(vfl._server._top.state_dict()[name], value, atol=2e-6)


# --- several active parties ---------------------------------------------------------


BOTH = ["bank", "shop"]
# Whose labels are whose: 400 and 169 rows, dealt without an order.
HOLDERS = np.where(np.random.default_rng(3).permutation(569) < 400, *BOTH)
SEVERAL = {"parties": PARTIES, "active": BOTH, "max_epochs": 1, **SMALL}


def test_batches_of_several_active_parties_are_those_of_the_joint_network(cancer):
    X, y = cancer
    several = {"active": BOTH, "bits": 64, "optimizer": torch.optim.SGD, "lr": 0.1}
    vfl = VFedSecClassifier(
        parties=as_they_are(), max_epochs=3, random_state=0, **several
    ).fit(X, y, label_holders=HOLDERS)
    joint = Joint(vfl, X, y, owners=(HOLDERS == "shop").astype(int))
    orders = {
        name: shuffle(np.flatnonzero(np.equal(HOLDERS, name)))
        for name, shuffle in joint.orders.items()
    }
    for _ in range(3):
        orders = {name: joint.orders[name](each) for name, each in orders.items()}
        # Four batches of one and two of the other, spread over the epoch.
        parts = {"bank": [0, 128, 256, 384, 400], "shop": [0, 128, 169]}
        turns = [("bank", 0), ("shop", 0), ("bank", 1), ("bank", 2), ("shop", 1)]
        for name, i in [*turns, ("bank", 3)]:
            joint.learn(orders[name][slice(*parts[name][i : i + 2])])
    for name, value in joint.top.state_dict().items():
        assert_allclose(vfl._server._top.state_dict()[name], value, atol=2e-6)
    for name, bottom in zip(joint.names, joint.bottoms, strict=True):
        for key, value in bottom.state_dict().items():
            trained = vfl._parties[name]._bottom.state_dict()[key]
            assert_allclose(trained, value, atol=2e-6)


@pytest.mark.parametrize(
    "settings", [{}, {"clients": {"telco": 2}, "early_stopping": True}]
)
def test_masks_change_nothing_where_several_are_active(cancer, settings):
    X, y = cancer
    several = {**SEVERAL, "parties": as_they_are(), **settings}
    masked, plain = (
        VFedSecClassifier(masked=each, **several).fit(X, y, label_holders=HOLDERS)
        for each in (True, False)
    )
    assert same_states(masked, plain)
    assert masked.validation_loss_curve_ == plain.validation_loss_curve_
    assert_array_equal(masked.predict_proba(X), plain.predict_proba(X))


def test_nobody_else_has_an_active_partys_labels(cancer, monkeypatch):
    X, y = cancer
    found = {}
    begin = ActiveClient.begin_training

    def spy(self):
        found[self.name] = self.held(Holding).labels.values
        return begin(self)

    spy.__skvfl_operation__ = True
    monkeypatch.setattr(ActiveClient, "begin_training", spy)
    sent = {}
    select = ActiveClient.select

    def listen(self, **batch):
        chosen = select(self, **batch)
        rows = self.held(Selection).batch
        sent.setdefault(self.name, []).extend(zip(rows, chosen["labels"], strict=True))
        return chosen

    listen.__skvfl_operation__ = True
    monkeypatch.setattr(ActiveClient, "select", listen)

    VFedSecClassifier(**SEVERAL).fit(X, y, label_holders=HOLDERS)
    for name in BOTH:
        own = np.equal(HOLDERS, name)
        assert_array_equal(found[name][own], y[own])
        assert not found[name][~own].any()
        assert y[~own].any()
        rows, labels = zip(*sorted(sent[name]), strict=True)
        assert_array_equal(rows, np.flatnonzero(own))
        assert_array_equal(labels, y[own])
    # One who holds all has them all.
    VFedSecClassifier(**{**SEVERAL, "active": "bank"}).fit(X, y)
    assert_array_equal(found["bank"], y)


def test_targets_of_several_active_parties_are_in_one_unit(cancer):
    X, _ = cancer
    # Each holds another range of the target, of which it would make another scale.
    target = 100 * X[:, 0]
    holders = np.where(target < 0, *BOTH)
    several = {**SEVERAL, "max_epochs": 30}
    vfl = VFedSecRegressor(**several).fit(X, target, label_holders=holders)
    assert vfl.score(X, target) > 0.9
    told = [m for m in vfl.communication_.messages if m.operation == "say_units"]
    # The server, which asks for them, does not receive them.
    assert {(m.sender, m.receiver) for m in told} == {
        ("server", "bank"),
        ("bank", "shop"),
    }


@pytest.mark.parametrize("spread", [0.0, 1e-6])
def test_targets_are_not_learnt_in_units_of_a_constant(cancer, spread):
    X, _ = cancer
    # The answers would all be that constant, however well the others' are learnt.
    target = np.where(HOLDERS == "bank", 5 + spread * X[:, 0], X[:, 0])
    vfl = VFedSecRegressor(**SEVERAL)
    with pytest.raises(PartyError, match="'shop': its targets lie beyond 1000"):
        vfl.fit(X, target, label_holders=HOLDERS)
    vfl.set_params(active=BOTH[::-1]).fit(X, target, label_holders=HOLDERS)
    assert np.ptp(vfl.predict(X)) > 0
    same = vfl.set_params(active=BOTH).fit(X, np.ones(569), label_holders=HOLDERS)
    assert_array_equal(same.predict(X), np.ones(569))


@pytest.mark.parametrize(
    ("chooser", "message"),
    [
        ("telco", "'server': rows are chosen by .* and it says by 'telco'"),
        ("shop", "'shop': the row ids that 'telco' received from it .* do not open"),
    ],
)
def test_who_selects_cannot_be_said_wrongly(cancer, chooser, message):
    def meddle(way, messages):
        for name, sent in messages.items():
            if way == "request" and sent[0] == "forward" and name == "telco":
                assert sent[1]["chooser"] in BOTH
                sent[1]["chooser"] = chooser

    vfl = VFedSecClassifier(**SEVERAL, transport=Watched(meddle))
    with pytest.raises(PartyError, match=message):
        vfl.fit(*cancer, label_holders=HOLDERS)


def test_labels_are_dealt_where_nobody_says_whose_they_are(cancer):
    wire = Watched()
    first = VFedSecClassifier(**SEVERAL, transport=wire).fit(*cancer)
    again = VFedSecClassifier(**SEVERAL).fit(*cancer)
    assert same_states(first, again)
    asked = [r for asked, r, _ in wire.seen if asked == "begin_epoch"]
    sizes = {name: told["n_train"] for name, (_, told) in asked[0].items()}
    assert sizes == {"bank": 285, "shop": 284}


def test_label_holders_go_by_the_rows_of_a_split(cancer):
    X, y = cancer
    scores = cross_validate(
        VFedSecClassifier(**{**SEVERAL, "max_epochs": 5}),
        X,
        y,
        cv=2,
        params={"label_holders": HOLDERS},
    )
    assert scores["test_score"].min() > 0.9


@pytest.mark.parametrize(
    ("params", "holders", "message"),
    [
        ({"active": ["bank"]}, None, "give one name, or several of them"),
        ({"active": ["bank", 0]}, None, "names a party twice"),
        ({"active": ["bank", "zoo"]}, None, "active='zoo' is not one of the parties"),
        ({}, np.full(569, "bank"), "'shop' holds the label of none of the 569 rows"),
        ({}, np.where(HOLDERS == "bank", "bank", "zoo"), "169 rows whose label none"),
        ({"active": "bank"}, HOLDERS, "169 rows whose label none of the active"),
        ({}, HOLDERS[1:], "label_holders has 568 entries for the 569 rows"),
        ({}, np.tile(HOLDERS[:, None], 2), "label_holders should be a 1d array"),
        ({}, [None, *HOLDERS[1:]], "label_holders is missing .* in 1 of 569 rows"),
        (
            {},
            np.ma.masked_array(HOLDERS, np.arange(569) < 2),
            "label_holders is missing .* in 2 of 569 rows",
        ),
        ({}, [BOTH, *HOLDERS[1:]], "label_holders has 1 rows whose label none"),
        ({"clients": {"shop": 2}}, None, "'shop' is not one of the passive"),
        (
            {"parties": {**PARTIES, "lender": []}, "active": ["bank", "lender"]},
            None,
            "lender",
        ),
        (
            {"early_stopping": True},
            np.where(np.arange(569), *BOTH),
            "holds out all 1 rows whose labels 'shop' holds",
        ),
    ],
)
def test_wrong_active_parties_are_refused(cancer, params, holders, message):
    vfl = VFedSecClassifier(**{**SEVERAL, **params})
    with pytest.raises(ValueError, match=message):
        vfl.fit(*cancer, label_holders=holders)


def test_a_warm_start_needs_the_same_active_parties(cancer):
    vfl = VFedSecClassifier(**SEVERAL, warm_start=True)
    vfl.fit(*cancer, label_holders=HOLDERS)
    assert vfl.fit(*cancer, label_holders=HOLDERS[::-1]).n_iter_ == 2
    with pytest.raises(ValueError, match=r"active was \['bank', 'shop'\]: set warm"):
        vfl.set_params(active="bank").fit(*cancer)
    with pytest.raises(ValueError, match="active was 'bank': set warm"):
        vfl.set_params(active=["telco", "shop"]).fit(*cancer)


# --- clusters -----------------------------------------------------------------------


def test_clients_of_a_cluster_keep_equal_weights(cancer):
    X, y = cancer
    owner = np.where(np.arange(len(y)) < 40, 1, 0)
    vfl = VFedSecClassifier(
        parties=as_they_are(),
        clients={"telco": 3, "shop": owner},
        max_epochs=3,
        batch_size=16,
        early_stopping=True,
        **SMALL,
    ).fit(X, y)
    assert vfl.clusters_ == {
        "bank": ["bank"],
        "telco": ["telco.0", "telco.1", "telco.2"],
        "shop": ["shop.0", "shop.1"],
    }
    found = states(vfl)
    for first, *others in vfl.clusters_.values():
        for (name, key), value in found.items():
            if name == first:
                assert all(torch.equal(value, found[other, key]) for other in others)


def test_rows_that_are_not_held_contribute_zero(cancer):
    X, y = cancer
    vfl = VFedSecClassifier(
        parties=as_they_are(),
        clients={"telco": 2},
        max_epochs=1,
        masked=False,
        record_server_view=True,
        **SMALL | {"bottom": ()},
    ).fit(X, y)
    ids, sums = {}, {}
    for record in vfl.server_view_:
        kept = {"row ids": ids, "secure layer": sums}.get(record.what, {})
        kept[record.round, record.client] = record.array
    met = []
    for (round_id, client), held in ids.items():
        is_zero = (sums[round_id, client] == 0).all(axis=1)
        assert_array_equal(is_zero, held == -1)
        if client.startswith("telco"):
            met.extend(held[held != -1])
    assert sorted(met) == list(range(len(y)))


def test_answers_do_not_depend_on_how_rows_are_dealt(cancer):
    X, y = cancer
    settings = {"parties": as_they_are(), "bits": 64, "max_epochs": 2, **SMALL}
    vfl = VFedSecClassifier(clients={"telco": 2}, **settings).fit(X, y)
    shifted = np.roll(vfl.transform(np.roll(X, 1, axis=0)), -1, axis=0)
    assert_allclose(shifted, vfl.transform(X), atol=1e-6)
    assert_allclose(vfl.transform(X[:1]), vfl.transform(X)[:1], atol=1e-6)


ABSENT = np.arange(569) % 7 < 2
ABSENT[256:390] = True
HALVES = np.where(ABSENT, -1, np.arange(569) // 3 % 2)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("owner", [np.minimum(HALVES, 0), HALVES], ids=["one", "two"])
def test_rows_that_nobody_holds_are_trained_with_the_papers_indicator(
    cancer, owner, optimizer
):
    """Also batches without any row of the party, in which momentum goes on."""
    X, y = cancer
    vfl = VFedSecClassifier(
        parties=as_they_are(),
        clients={"telco": owner},
        bits=64,
        optimizer=optimizer,
        lr=0.01,
        batch_size=4,
        max_epochs=1,
        random_state=0,
    ).fit(X, y)
    expected = ["telco"] if owner.max() == 0 else ["telco.0", "telco.1"]
    assert vfl.clusters_["telco"] == expected
    joint = Joint(vfl, X, y, {"telco": ABSENT})
    joint.train(1, vfl.batch_size)
    for cluster, bottom in zip(vfl.clusters_.values(), joint.bottoms, strict=True):
        for name, value in bottom.state_dict().items():
            trained = vfl._parties[cluster[0]]._bottom.state_dict()[name]
            assert_allclose(trained, value, atol=2e-5)
    imputed = Joint(vfl, X, y)
    imputed.train(1, vfl.batch_size)
    trained = vfl._parties[expected[0]]._bottom.state_dict()["0.weight"]
    held = imputed.bottoms[imputed.names.index("telco")].state_dict()["0.weight"]
    assert not np.allclose(trained, held, atol=1e-3)


@pytest.mark.parametrize("owner", [np.minimum(HALVES, 0), HALVES], ids=["one", "two"])
def test_rows_that_nobody_holds_contribute_zero(cancer, owner):
    X, y = cancer
    settings = {
        "parties": PARTIES if owner.max() == 0 else as_they_are(),
        "clients": {"telco": owner},
        "max_epochs": 2,
        **SMALL,
    }
    plain = VFedSecClassifier(masked=False, record_server_view=True, **settings).fit(
        X, y
    )
    ids, sums = {}, {}
    for record in plain.server_view_:
        kept = {"row ids": ids, "secure layer": sums}.get(record.what, {})
        kept[record.round, record.client] = record.array
    batches = {r: held for (r, client), held in ids.items() if client == "shop"}
    telco = plain.clusters_["telco"]
    for round_id, rows in batches.items():
        total = sum(sums[round_id, client] for client in telco)
        assert_array_equal((total == 0).all(axis=1), ABSENT[rows])
        held = np.max([ids[round_id, client] for client in telco], axis=0)
        assert_array_equal(held == -1, ABSENT[rows])
    other = X.copy()
    other[np.ix_(ABSENT, range(10, 20))] = np.nan
    masked = VFedSecClassifier(**settings).fit(other, y)
    assert same_states(masked, plain)


@pytest.mark.parametrize("clients", [None, {"telco": 2}, {"telco": HALVES}])
def test_rows_without_any_cell_of_a_party_contribute_zero_to_predictions(
    cancer, clients
):
    X, y = cancer
    vfl = VFedSecClassifier(
        parties=as_they_are(), clients=clients, bits=64, max_epochs=1, **SMALL
    ).fit(X, y)
    table = X[:20].copy()
    table[3:7, 10:20] = table[9, 20:] = np.nan
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = vfl.transform(table)
    said = sorted(str(each.message) for each in warned)
    assert said[0].startswith("party 'shop': it holds no value of 1 of 20 rows")
    assert said[1].startswith("party 'telco': it holds no value of 4 of 20 rows")
    assert len(said) == 2
    parts = {}
    with torch.inference_mode():
        for name, cluster in vfl.clusters_.items():
            block = np.nan_to_num(table[:, list(PARTIES[name])])
            parts[name] = vfl._parties[cluster[0]]._bottom(tensor(block))
        parts["telco"][3:7] = parts["shop"][9] = 0
    assert_allclose(found, sum(parts.values()), atol=1e-6)
    with pytest.warns(UserWarning, match="'telco': it holds no value of 4 of 4 rows"):
        assert_allclose(vfl.transform(table[3:7]), found[3:7], atol=1e-6)


def test_a_gap_is_no_missing_row(cancer, recwarn):
    """Some cells of many, and the cell of a party with one column."""
    X, y = cancer
    X = X[:, :21].copy()
    X[::2, 10:15] = X[1::2, 20] = np.nan
    parties = {"bank": range(10), "telco": range(10, 20), "shop": [20]}
    vfl = VFedSecClassifier(parties=parties, max_epochs=1, **SMALL).fit(X, y)
    vfl.predict(X)
    vfl.predict(X[1:2])
    assert not recwarn


def test_single_column_that_nobody_holds_of_some_rows(cancer):
    X, y = cancer[0][:, :21], cancer[1]
    parties = {"bank": range(10), "telco": range(10, 20), "shop": [20]}
    vfl = VFedSecClassifier(
        parties=parties,
        clients={"shop": np.minimum(HALVES, 0)},
        max_epochs=1,
        bits=64,
        **SMALL,
    ).fit(X, y)
    gap = X[:4].copy()
    gap[1, 20] = np.nan
    with pytest.warns(UserWarning, match="'shop': it holds no value of 1 of 4 rows"):
        found = vfl.transform(gap)
    with torch.inference_mode():
        inputs = vfl._parties["shop"]._transformer.transform(X[1:2, 20:21])
        shop = vfl._parties["shop"]._bottom(tensor(inputs)).numpy()
    assert np.abs(shop).max() > 1e-3
    assert_allclose(found[1], vfl.transform(X[:4])[1] - shop[0], atol=1e-6)


def test_rows_that_nobody_holds_in_frames(cancer):
    pl = pytest.importorskip("polars")
    X, y = cancer
    names = [f"c{i}" for i in range(30)]
    table = pl.DataFrame(X, schema=names)
    parties = {"bank": names[:10], "telco": names[10:20], "shop": names[20:]}
    vfl = VFedSecClassifier(parties=parties, max_epochs=1, **SMALL).fit(table, y)
    holes = table[:5].with_columns(
        pl.when(pl.int_range(5) < 3).then(None).otherwise(pl.col(name)).alias(name)
        for name in parties["telco"]
    )
    with pytest.warns(UserWarning, match="'telco': it holds no value of 3 of 5 rows"):
        found = vfl.transform(holes)
    array = X[:5].copy()
    array[:3, 10:20] = np.nan
    vfl = VFedSecClassifier(parties=PARTIES, max_epochs=1, **SMALL).fit(X, y)
    with pytest.warns(UserWarning, match="'telco': it holds no value of 3 of 5 rows"):
        assert_array_equal(vfl.transform(array), found)


# --- a sum needs two contributors ---------------------------------------------------


def shown_to_the_server(parties, clients, X, y):
    """Largest difference between the sum and the only contribution, in the clear."""
    vfl = VFedSecClassifier(
        parties=parties,
        clients=clients,
        max_epochs=1,
        masked=False,
        record_server_view=True,
        **SMALL,
    ).fit(X, y)
    numbers = FixedPoint(len(vfl._parties), bound=vfl.bound)
    first = [r for r in vfl.server_view_ if r.what == "secure layer" and r.round == 0]
    total = numbers.decode(sum(r.array for r in first))
    alone = [numbers.decode(r.array) for r in first if r.client != "owner"]
    return np.abs(total - sum(alone)).max()


@pytest.mark.parametrize("clients", [None, {"bank": 2}])
def test_one_organisation_with_columns_is_refused(cancer, clients):
    X, y = cancer
    parties = VerticalPartitioner(
        "passthrough", parties={"owner": [], "bank": range(30)}
    )
    assert shown_to_the_server(parties, clients, X, y) == 0
    wire = Watched()
    vfl = VFedSecClassifier(parties=parties, clients=clients, transport=wire, **SMALL)
    said = r"569 of 569 rows have columns of fewer than two .* \(569 of 'bank' alone\)"
    with pytest.raises(ValueError, match=said + r".*masked=False"):
        vfl.fit(X, y)
    with pytest.raises(ValueError, match=said):
        VFedSecRegressor(parties=parties, clients=clients, **SMALL).fit(X, y)
    assert asked_of(wire) == OPENING


@pytest.mark.parametrize(
    ("parties", "clients", "said"),
    [
        (
            {"bank": range(15), "telco": range(15, 30)},
            {"telco": HALVES},
            r"of 569 rows .*of 'bank' alone\)",
        ),
        (
            {"owner": [], "telco": range(15), "shop": range(15, 30)},
            {"telco": HALVES},
            r"of 569 rows .*of 'shop' alone\)",
        ),
        (
            {"owner": [], "telco": range(15), "shop": range(15, 30)},
            {"telco": HALVES, "shop": np.minimum(HALVES, 0)},
            r"of 569 rows .*\(\d+ of nobody\)",
        ),
        (
            PARTIES,
            {"telco": np.where(np.arange(569) == 5, -1, 0), "shop": HALVES},
            r"1 of 569 rows .*\(1 of 'bank' alone\)",
        ),
    ],
)
def test_rows_of_one_organisation_are_refused(cancer, parties, clients, said):
    X, y = cancer
    if said.startswith("1 of"):
        shop = HALVES.copy()
        shop[:20] = 0
        shop[5] = -1
        clients = {**clients, "shop": shop}
    settings = {"parties": as_they_are(parties), "clients": clients, **SMALL}
    wire = Watched()
    with pytest.raises(ValueError, match=said):
        VFedSecClassifier(transport=wire, **settings).fit(X, y)
    assert asked_of(wire) == OPENING
    VFedSecClassifier(masked=False, max_epochs=1, **settings).fit(X, y)


@pytest.mark.filterwarnings("ignore::skvfl.exceptions.MissingRowsWarning")
def test_rows_of_one_organisation_are_refused_in_predictions(cancer):
    X, y = cancer
    settings = {"parties": as_they_are(), "max_epochs": 1, **SMALL}
    holes = X[:10].copy()
    holes[:4, 10:] = holes[7, :20] = np.nan
    wire = Watched()
    vfl = VFedSecClassifier(**settings).fit(X, y).set_params(transport=wire)
    said = r"5 of 10 rows .*\(4 of 'bank' alone, 1 of 'shop' alone\)"
    for serve in (vfl.predict, vfl.predict_proba, vfl.transform):
        with pytest.raises(ValueError, match=said):
            serve(holes)
    assert asked_of(wire) == 3 * OPENING
    VFedSecClassifier(masked=False, **settings).fit(X, y).predict(holes[:4])


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (
            {"nobody": 2},
            r"'nobody' is not one of the passive parties \['telco', 'shop'",
        ),
        ({"bank": 2}, "'bank' is not one of the passive parties"),
        ({"telco": 0}, "'telco' cannot have 0 clients"),
        ({"telco": True}, "'telco' needs a number of clients"),
        ({"telco": 570}, "'telco' cannot have 570 clients with n_samples=569"),
        ({"telco": [0, 1]}, "'telco' needs a number of clients, or .* 569 integers"),
        ({"telco": np.full(569, 1)}, "the clients of 'telco' must be 0, 1"),
        ({"telco": np.full(569, -1)}, "0, 1, .* with -1 for rows that nobody holds"),
        ({"telco": np.arange(569) % 3 - 2}, r"'telco' must be 0, 1, .*\[-2, -1, 0\]"),
        ({"telco": np.array([-1, 1] * 284 + [1])}, "'telco' must be 0, 1"),
        ({"telco": np.arange(569) / 2}, "got float64"),
    ],
)
def test_wrong_clients_are_refused(cancer, clients, message):
    with pytest.raises(ValueError, match=message):
        VFedSecClassifier(parties=PARTIES, clients=clients).fit(*cancer)


def test_names_of_clients_must_differ(cancer):
    parties = {"bank": range(10), "shop": range(10, 20), "shop.0": range(20, 30)}
    with pytest.raises(ValueError, match="two clients have one name"):
        VFedSecClassifier(parties=parties, clients={"shop": 2}).fit(*cancer)


def test_a_sum_over_one_client_is_refused(cancer):
    with pytest.raises(ValueError, match="'party0' is alone"):
        VFedSecClassifier(parties=1).fit(*cancer)


def test_clients_that_prepare_differently_are_refused(cancer):
    X, y = cancer
    X = X.astype(object)
    X[:, 10] = np.where(np.arange(len(y)) == 7, "canary", "common")
    vfl = VFedSecClassifier(parties=PARTIES, clients={"telco": 2}, random_state=0)
    with pytest.raises(PartyError, match=r"'telco.1': its prepared columns") as info:
        vfl.fit(X, y)
    assert "canary" not in str(info.value)


@pytest.mark.parametrize(
    ("bottom", "message"),
    [
        (lambda n, m: nn.Sequential(nn.Linear(n, m), nn.BatchNorm1d(m)), "LayerNorm"),
        (lambda n, m: nn.Linear(n, m + 1), r"\(3, 33\) for 3 rows, where \(3, 32\)"),
    ],
)
def test_unfit_local_modules_are_refused(cancer, bottom, message):
    vfl = VFedSecClassifier(parties=PARTIES, clients={"telco": 2}, bottom=bottom)
    with pytest.raises(PartyError, match=message):
        vfl.fit(*cancer)


# --- what the server sees -----------------------------------------------------------


def view_of(vfl, what, client):
    arrays = [
        record.array
        for record in vfl.server_view_
        if record.what == what and record.client == client
    ]
    return np.concatenate([array.ravel() for array in arrays])


@pytest.mark.parametrize("bits", [32, 64])
def test_every_masked_array_is_uniform(cancer, bits):
    settings = {
        "parties": as_they_are(),
        "clients": {"telco": 2},
        "bits": bits,
        "max_epochs": 3,
        "record_server_view": True,
    }
    masked = VFedSecClassifier(**SMALL, **settings).fit(*cancer)
    plain = VFedSecClassifier(**SMALL, **settings, masked=False).fit(*cancer)
    clients = ["bank", "telco.0", "telco.1", "shop"]
    seen = [("secure layer", c) for c in clients]
    seen += [("gradient", c) for c in ("telco.0", "telco.1")]
    for what, client in seen:
        assert uniformity(view_of(masked, what, client)) > LEVEL
        assert uniformity(view_of(plain, what, client)) < LEVEL
    for client in clients[1:]:
        sealed = view_of(masked, "row ids", client)
        assert uniformity(sealed) > LEVEL
    assert uniformity(view_of(masked, "key of a mask", "telco.1")) > LEVEL
    counts = Counter((r.what, r.client) for r in masked.server_view_)
    rounds = 3 * 5
    assert counts == dict.fromkeys(seen, rounds) | {
        ("row ids", c): rounds for c in clients[1:]
    } | {("key of a mask", "telco.1"): rounds}
    sums = {
        vfl: view_of(vfl, "gradient", "telco.0") + view_of(vfl, "gradient", "telco.1")
        for vfl in (masked, plain)
    }
    assert uniformity(sums[masked]) > LEVEL
    assert uniformity(sums[plain]) < LEVEL


class Reader:
    """A server that searches all that it has received and computed for raw cells.

    From the gradients of the secure layer, which it computes itself, a linear local
    module's gradient gives the rows of a batch that is not larger than the layer. Tried
    are all arrays of 64-bit numbers, their sums, what every string of 32 bytes would
    make of those if it were the key of a mask, and all floats.
    """

    def __init__(self, wire, n_columns, width):
        self.guesses = []
        learnt = {}
        for asked, requests, answers in wire.seen:
            received = {name: reply for name, (_, reply) in answers.items()}
            if asked == "backward":
                learnt = {"gradient": next(iter(requests.values()))[1]["gradient"]}
                learnt["messages"] = [r for r in received.values() if r is not None]
            elif asked == "update":
                sent = next(iter(requests.values()))[1]
                found = self._candidates(learnt["messages"], sent)
                self.guesses.append(
                    [self._rows(learnt["gradient"], w, width, n_columns) for w in found]
                )

    def _candidates(self, messages, sent):
        arrays = [m["masked"] for m in messages]
        arrays.append(sum(arrays[1:], arrays[0]))
        for array in [*arrays, sent["gradient"]]:
            if array.dtype.kind == "f":
                yield array.astype(float)
                continue
            numbers = FixedPoint(2, bound=64e3, bits=64)
            yield numbers.decode(array)
            for key in self._keys(messages):
                cipher = Cipher(algorithms.AES256(key), modes.CTR(self._nonce(sent)))
                mask = cipher.encryptor().update(bytes(array.nbytes))
                yield numbers.decode(array - np.frombuffer(mask, array.dtype))

    @staticmethod
    def _nonce(sent):
        return sent["round_id"].to_bytes(4, "big") + bytes(12)

    @staticmethod
    def _keys(messages):
        for message in messages:
            for sealed in message.get("keys", ()):
                raw = sealed.tobytes()
                yield from (raw[i : i + 32] for i in range(len(raw) - 31))

    @staticmethod
    def _rows(gradient, weights, width, n_columns):
        weights = weights.reshape(width, n_columns)
        return np.linalg.lstsq(gradient.T.astype(float), weights, rcond=1e-7)[0]

    def found(self, X, batches):
        """Squared correlation with the raw cells of the best kind of guess."""
        scores = [
            [squared_correlation(rows, X[batch]) for rows in guesses]
            for guesses, batch in zip(self.guesses, batches, strict=True)
        ]
        return np.median(scores, axis=0).max()


def squared_correlation(guess, true):
    if not guess.any():
        return 0.0
    return np.corrcoef(guess.ravel(), true.ravel())[0, 1] ** 2


def batches_of(vfl):
    """Row ids of every batch, of a run in the clear, which others repeat."""
    ids = {
        r.round: r.array
        for r in vfl.server_view_
        if r.client == "shop" and (r.what == "row ids")
    }
    return list(ids.values())


@pytest.mark.parametrize("n_clients", [2, 3])
def test_server_cannot_read_rows_from_the_gradients_of_a_cluster(
    cancer, monkeypatch, n_clients
):
    X, y = (each[:160] for each in cancer)
    settings = {
        "parties": as_they_are(),
        "clients": {"telco": n_clients},
        "bottom": (),
        "cut_width": 32,
        "batch_size": 16,
        "max_epochs": 1,
        "random_state": 0,
    }

    def read(masked):
        wire = Watched()
        vfl = VFedSecClassifier(
            masked=masked, transport=wire, record_server_view=True, **settings
        ).fit(X, y)
        return vfl, Reader(wire, 10, 32)

    plain, in_the_clear = read(masked=False)
    batches, telco = batches_of(plain), X[:, 10:20]
    assert in_the_clear.found(telco, batches) > 0.999
    masked, behind_masks = read(masked=True)
    assert same_states(masked, plain)
    assert behind_masks.found(telco, batches) < 0.1

    def in_an_envelope(ring, receiver, key, *, round_id):
        return np.frombuffer(bytes(7) + key + bytes(9), np.uint8)

    def out_of_it(ring, sender, sealed, *, round_id):
        return sealed.tobytes()[7:39]

    monkeypatch.setattr(_agreement, "seal_key", in_an_envelope)
    monkeypatch.setattr(_agreement, "open_key", out_of_it)
    _, keys_not_sealed = read(masked=True)
    assert keys_not_sealed.found(telco, batches) > 0.999


def test_clients_of_a_cluster_can_read_each_others_rows(cancer, monkeypatch):
    """What the user guide says of them: they know the key of the mask."""
    X, y = (each[:160] for each in cancer)
    read = []
    unmask = _agreement._ClusterMasker.unmask

    def spy(self, total, sealed, *, round_id):
        summed = unmask(self, total, sealed, round_id=round_id)
        if self._ring.name == "telco.1":
            read.append(summed.reshape(32, 10))
        return summed

    monkeypatch.setattr(_agreement._ClusterMasker, "unmask", spy)
    wire = Watched()
    settings = {"bottom": (), "batch_size": 16, "max_epochs": 1, "random_state": 0}
    vfl = VFedSecClassifier(
        parties=as_they_are(),
        clients={"telco": 2},
        transport=wire,
        **settings,
    ).fit(X, y)
    vfl.set_params(masked=False, transport="local", record_server_view=True)
    batches = batches_of(vfl.fit(X, y))
    gradients = [
        requests["telco.1"][1]["gradient"]
        for asked, requests, _ in wire.seen
        if asked == "backward"
    ]
    for gradient, summed, batch in zip(gradients, read, batches, strict=True):
        rows = np.linalg.lstsq(gradient.T.astype(float), summed, rcond=1e-7)[0]
        assert squared_correlation(rows, X[batch, 10:20]) > 0.999


@pytest.mark.parametrize("masked", [True, False])
def test_hidden_layers_do_not_show_rows_to_the_server_either(cancer, masked):
    """A unit that only one row of a batch activates shows that row to who can read."""
    X, y = (each[:200] for each in cancer)
    vfl = VFedSecClassifier(
        parties=as_they_are(),
        clients={"telco": 2},
        batch_size=8,
        max_epochs=1,
        masked=masked,
        record_server_view=True,
        random_state=0,
    ).fit(X, y)
    numbers = FixedPoint(2, bound=64e3, bits=64)
    telco, shown = X[:, 10:20], set()
    by_round = {}
    for record in vfl.server_view_:
        if record.what == "gradient":
            by_round.setdefault(record.round, []).append(record.array)
    for one, other in by_round.values():
        for array in (one, other, one + other):
            gradient = numbers.decode(array)
            weights, bias = gradient[:640].reshape(64, 10), gradient[640:704]
            for row in weights[np.abs(bias) > 1e-6] / bias[np.abs(bias) > 1e-6, None]:
                distance = np.abs(telco - row).max(axis=1)
                if distance.min() < 1e-3:
                    shown.add(int(distance.argmin()))
    assert (len(shown) == 0) if masked else (len(shown) > 40)


def test_two_tables_give_the_same_view(cancer):
    X, y = cancer
    views = {}
    for masked in (True, False):
        views[masked] = [
            VFedSecClassifier(
                parties=as_they_are(),
                max_epochs=3,
                masked=masked,
                record_server_view=True,
                **SMALL,
            ).fit(table, y)
            for table in (X, 3 * X[::-1])
        ]
    for client in ("bank", "telco", "shop"):
        one, other = (view_of(v, "secure layer", client) for v in views[True])
        assert distinguishability(one, other) > LEVEL
        one, other = (view_of(v, "secure layer", client) for v in views[False])
        assert distinguishability(one, other) < LEVEL


def test_masks_never_repeat(cancer, monkeypatch):
    """Over rounds, epochs, fits and predictions of one estimator with one seed."""
    monkeypatch.setattr(_protocol, "_SERVED_AT_ONCE", 128)
    X, y = cancer
    arrays = {}
    for masked in (True, False):
        wire = Watched()
        vfl = VFedSecClassifier(
            parties=as_they_are(),
            clients={"telco": 2},
            max_epochs=2,
            rotate_every=3,
            masked=masked,
            transport=wire,
            **SMALL,
        )
        vfl.fit(X, y)
        vfl.fit(X, y)
        vfl.predict(X)
        vfl.predict(X)
        arrays[masked] = [
            (name, asked, answer["masked"])
            for asked, _, answers in wire.seen
            for name, (_, answer) in answers.items()
            if isinstance(answer, dict) and "masked" in answer
        ]
    masks = {}
    for (name, asked, with_mask), (name_2, asked_2, without) in zip(
        arrays[True], arrays[False], strict=True
    ):
        assert (name, asked) == (name_2, asked_2)
        mask = with_mask - without
        words = np.frombuffer(mask.tobytes(), dtype="V16")
        masks.setdefault(name, []).append(words)
    for name, words in masks.items():
        assert len(words) == (50 if "telco" in name else 30)
        words = np.concatenate(words)
        assert len(set(words.tolist())) == len(words)


def test_ids_are_sealed_in_one_length(cancer):
    X, y = cancer
    owner = np.where(np.arange(len(y)) < 3, 1, 0)
    vfl = VFedSecClassifier(
        parties=as_they_are(),
        clients={"telco": owner},
        max_epochs=2,
        batch_size=64,
        record_server_view=True,
        **SMALL,
    ).fit(X, y)
    sizes = [64] * 8 + [57]
    lengths = {}
    for record in vfl.server_view_:
        if record.what == "row ids":
            lengths.setdefault(record.client, []).append(len(record.array))
    expected = [sealed_length(size) for size in sizes] * 2
    assert lengths == dict.fromkeys(["telco.0", "telco.1", "shop"], expected)


def test_ids_go_to_their_client_alone_and_nobody_else_opens_them(cancer):
    def swap(way, parcels):
        if way == "request" and parcels.get("shop", [""])[0] == "forward":
            shop, telco = (parcels[name][1] for name in ("shop", "telco"))
            shop["ids"], telco["ids"] = telco["ids"], shop["ids"]

    wire = Watched()
    vfl = VFedSecClassifier(
        parties=PARTIES,
        transport=wire,
        max_epochs=1,
        record_server_view=True,
        **SMALL,
    ).fit(*cancer)
    sealed = {
        (record.round, record.client): record.array
        for record in vfl.server_view_
        if record.what == "row ids"
    }
    forwards = [requests for asked, requests, _ in wire.seen if asked == "forward"]
    for round_id, requests in enumerate(forwards):
        assert "ids" not in requests["bank"][1]
        for name in ("telco", "shop"):
            assert_array_equal(requests[name][1]["ids"], sealed[round_id, name])
        assert not np.array_equal(sealed[round_id, "telco"], sealed[round_id, "shop"])
    with pytest.raises(PartyError, match=r"'(shop|telco)'.*do not open"):
        VFedSecClassifier(parties=PARTIES, transport=Watched(swap), **SMALL).fit(
            *cancer
        )


def test_what_carries_data(cancer):
    vfl = VFedSecClassifier(
        parties=as_they_are(), clients={"telco": 2}, max_epochs=1, **SMALL
    ).fit(*cancer)
    frame = vfl.communication_.to_frame()
    # Which rows the clients of a cluster hold is told to the active party alone.
    opening = frame[frame["data_bearing"] & (frame["round"] == 0)]
    told = ["telco.0", "telco.1", "server"]
    assert opening["sender"].tolist() == told
    assert set(opening["receiver"]) == {"bank"}
    carrying = frame[frame["data_bearing"] & (frame["round"] > 0)]
    up = carrying[carrying["receiver"] == "server"]
    down = carrying[carrying["sender"] == "server"]
    assert len(up) + len(down) == len(carrying)
    assert set(up["operation"]) == {
        *("offer_keys", "agree_keys", "sign_columns"),
        *("select", "forward", "backward"),
    }
    assert set(up.loc[up["operation"] == "select", "sender"]) == {"bank"}
    assert set(up.loc[up["operation"] == "backward", "sender"]) == {
        "telco.0",
        "telco.1",
    }
    assert set(down["operation"]) == {
        *("agree_keys", "confirm_keys", "check_columns"),
        *("forward", "backward", "update"),
    }


def test_clients_offer_nothing_else():
    """What a client offers to do is what the server could ask it for."""

    def offered(kind):
        return {
            name
            for name in dir(kind)
            if getattr(getattr(kind, name), "__skvfl_operation__", False)
        }

    both = {
        *("commit", "reveal", "draw_graph"),
        *("offer_keys", "agree_keys", "confirm_keys", "prepare"),
        *("sign_columns", "check_columns", "forward", "backward", "update"),
        *("remember", "recall", "say_rows"),
    }
    assert offered(SecureClient) == both
    assert offered(ActiveClient) == both | {
        *("take_rows", "begin_training", "begin_epoch", "select", "answer"),
        *("say_units", "take_units"),
    }
    assert offered(SecureServer) == set()


def test_a_fitted_estimator_holds_no_rows_and_no_keys(cancer):
    X, y = cancer
    vfl = VFedSecClassifier(parties=PARTIES, max_epochs=1, **SMALL).fit(X, y)
    pickled = pickle.dumps(vfl)
    before = [{**vars(party)} for party in (*vfl._parties.values(), vfl._server)]
    pins = [copy.copy(each["_ring"].pinned) for each in before]
    vfl.predict(X)
    assert before == [vars(p) for p in (*vfl._parties.values(), vfl._server)]
    assert pins == [each["_ring"].pinned for each in before]
    assert not vfl._server._top.training
    for party in vfl._parties.values():
        assert not party._bottom.training
        assert party._states == {}
        assert party._ring.epoch is None
    assert vfl._server._ring.epoch is None
    assert vfl._server._states == {}
    assert np.float32(X[7, :10]).tobytes() not in pickled
    assert X[7, :10].tobytes() not in pickled
    assert not hasattr(vfl, "server_view_")
    again = pickle.loads(pickled)
    assert_array_equal(again.predict_proba(X), vfl.predict_proba(X))


# --- made at home -------------------------------------------------------------------

TOLD = {
    "clusters": in_words({"bank": ["bank"], "shop": ["shop"]}),
    "active": "bank",
    "cut_width": 4,
    "bound": 1000.0,
    "bits": 32,
    "masked": False,
    "lr": 0.01,
    "bottom": [8],
}


def opened(name="shop", role="vfedsec.passive", own=None, **holding):
    held = Holding(np.random.default_rng(0).normal(size=(5, 2)), **holding)
    member = Member(name, held, own=own or {})
    member.perform("open", {"role": role, "settings": TOLD})
    return member


@pytest.mark.parametrize(
    "transport", ["local", pytest.param("process", marks=pytest.mark.slow)]
)
def test_fingerprints_are_those_of_the_identities_that_were_used(cancer, transport):
    X, y = (each[:60] for each in cancer)
    given = {"bank": KeyRing("bank"), "server": KeyRing("server")}
    offers = []
    agree = KeyRing.agree

    def listen(ring, public_keys):
        if ring.name == "server":
            offers.append({n: keys.tobytes()[:32] for n, keys in public_keys.items()})
        return agree(ring, public_keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeyRing, "agree", listen)
        vfl = VFedSecClassifier(
            parties=PARTIES,
            key_rings=given,
            max_epochs=1,
            transport=transport,
            **SMALL,
        ).fit(X, y)
    assert set(vfl.fingerprints_) == {"bank", "telco", "shop", "server"}
    for name, ring in given.items():
        assert vfl.fingerprints_[name] == ring.fingerprint
    for name, identity in offers[0].items():
        assert vfl.fingerprints_[name] == hashlib.sha256(identity).hexdigest()
    vfl.set_params(masked=False, transport="local")
    assert vfl.fit(X, y).fingerprints_ == {}


def test_a_member_uses_the_key_ring_that_it_has():
    ring = KeyRing("shop", pinned={"bank": "0" * 64})
    party = opened(own={"key_ring": ring}).party
    assert party._ring is not ring
    assert party._ring.fingerprint == ring.fingerprint
    assert party._ring.pinned == ring.pinned
    assert opened().party._ring.fingerprint != opened().party._ring.fingerprint
    with pytest.raises(PartyError, match="'shop': its own key ring is that of 'bank'"):
        opened(own={"key_ring": KeyRing("bank")})


@pytest.mark.parametrize(
    ("operation", "arguments", "first"),
    [
        ("prepare", {}, "say_rows"),
        ("forward", {"training": True}, "say_rows"),
        ("backward", {"gradient": np.zeros((2, 4), np.float32)}, "forward"),
        ("recall", {}, "remember"),
        ("remember", {}, "prepare"),
    ],
)
def test_operations_out_of_order_say_what_comes_first(operation, arguments, first):
    member = opened()
    if operation == "forward":
        arguments = {"ids": np.array([1, -1]), "n_rows": 2, **arguments}
    if operation in ("forward", "backward"):
        arguments = {"round_id": 0, **arguments}
    if operation == "recall":
        member.perform("say_rows", {"n_rows": 5, "fitting": True, "imputes": False})
        member.perform("prepare", {})
    with pytest.raises(PartyError, match=f"'shop': .*{first!r} comes first"):
        member.perform(operation, arguments)


@pytest.mark.parametrize("n_rows", [1, 3, -1, 10**9, None])
def test_the_active_client_contributes_to_the_batch_that_it_chose(n_rows):
    labels = Labels(np.array([0, 1, 1, 0, 1]), 2)
    bank = opened("bank", "vfedsec.active", labels=labels)
    run = {"n_rows": 5, "fitting": True, "imputes": False}
    bank.perform("take_rows", {**run, "rows": {"shop": None}})
    bank.perform("prepare", {})
    bank.perform("select", {"round_id": 0, "start": 0, "stop": 2})
    forward = {"round_id": 0, "training": False}
    with pytest.raises(PartyError, match=f"asks for {n_rows} rows of a batch of 2"):
        bank.perform("forward", {**forward, "n_rows": n_rows})
    assert len(bank.perform("forward", {**forward, "n_rows": 2})["masked"]) == 2


def test_the_active_client_selects_once_it_knows_who_holds_what():
    labels = Labels(np.array([0, 1, 1, 0, 1]), 2)
    bank = opened("bank", "vfedsec.active", labels=labels)
    run = {"n_rows": 5, "fitting": True, "imputes": False}
    batch = {"round_id": 0, "start": 0, "stop": 2}
    for operation, arguments, first in (
        ("select", batch, "say_rows"),
        ("take_rows", {**run, "rows": {"shop": None}}, None),
        ("begin_epoch", {"n_train": 3}, "begin_training"),
        ("select", batch, None),
        ("begin_training", {}, None),
        ("begin_epoch", {"n_train": 3}, None),
    ):
        if first is None:
            bank.perform(operation, arguments)
        else:
            with pytest.raises(PartyError, match=f"'bank': .*{first!r} comes first"):
                bank.perform(operation, arguments)


def test_clients_say_which_rows_they_hold():
    holding = np.array([[1.0, np.nan], [np.nan, np.nan], [0, 1]])
    member = Member("shop", Holding(holding, np.array([4, 0, 2])))
    member.perform("open", {"role": "vfedsec.passive", "settings": TOLD})
    run = {"n_rows": 6, "fitting": False, "imputes": False}
    assert_array_equal(member.perform("say_rows", run), [1, 0, 2, 0, 2, 0])
    everything = {"n_rows": 5, "fitting": True, "imputes": False}
    assert opened().perform("say_rows", everything) is None
    with pytest.raises(PartyError, match="its rows are not among the 4 of the run"):
        member.perform("say_rows", {**run, "n_rows": 4})


def told_before_the_first_round(vfl, X, y):
    """Who is told by whom, while runs of training and of prediction are opened."""
    with record_communication() as log:
        vfl.fit(X, y).predict(X)
    messages = [*vfl.communication_.messages, *log.messages]
    return {(m.sender, m.receiver) for m in messages if m.round == 0}


def test_the_server_is_not_told_how_many_rows_a_client_holds(cancer, monkeypatch):
    X, y = cancer
    vfl = VFedSecClassifier(
        parties=as_they_are(), clients={"telco": 2}, max_epochs=1, **SMALL
    )
    passive = {"telco.0", "telco.1", "shop"}
    told = told_before_the_first_round(vfl, X, y)
    # The active party answers that it has taken note.
    assert {one for one, other in told if other == "server"} == {"bank"}
    assert {one for one, other in told if other == "bank"} >= passive
    monkeypatch.setattr(type(vfl), "_is_told", None)
    told = told_before_the_first_round(vfl, X, y)
    assert {one for one, other in told if other == "server"} == {"bank"} | passive


def test_settings_are_words_and_numbers(cancer):
    wire = Watched()
    VFedSecClassifier(
        parties=PARTIES,
        key_rings={"shop": KeyRing("shop")},
        max_epochs=1,
        transport=wire,
        **SMALL,
    ).fit(*cancer)
    asked, requests, _ = wire.seen[0]
    assert asked == "open"
    for name, (_, arguments) in requests.items():
        assert json.loads(json.dumps(arguments)) == arguments
        said = {"role", "settings"}
        assert set(arguments) == said
        role = "vfedsec.active" if name == "bank" else "vfedsec.passive"
        assert arguments["role"] == role


@pytest.mark.parametrize("seed", [None, 3])
def test_clients_of_a_cluster_draw_alike_and_parties_do_not(cancer, seed):
    X, y = cancer
    vfl = VFedSecClassifier(
        parties=VerticalPartitioner(
            GaussianProjection(random_state=seed), parties=PARTIES
        ),
        clients={"telco": 2},
        max_epochs=1,
        **SMALL,
    ).fit(X, y)
    rows = np.eye(10)
    one, other, shop = (
        vfl._parties[name]._transformer.transform(rows)
        for name in ("telco.0", "telco.1", "shop")
    )
    assert_array_equal(one, other)
    assert not np.allclose(one, shop)


def test_answers_are_read_by_the_active_party():
    X, y = load_diabetes(return_X_y=True)
    wire = Watched()
    vfl = VFedSecRegressor(parties=3, max_epochs=3, transport=wire, **SMALL).fit(X, y)
    wire.seen.clear()
    with record_communication() as log:
        answers = vfl.predict(X[:20])
    asked, requests, _ = wire.seen[-1]
    assert asked == "answer"
    assert list(requests) == [vfl._active]
    outputs = requests[vfl._active][1]["outputs"]
    assert_allclose(answers, outputs[:, 0] * y.std() + y.mean(), rtol=1e-6)
    last = [m for m in log.messages if m.operation == "answer"]
    assert [(m.sender, m.receiver) for m in last] == [
        ("server", vfl._active),
        (vfl._active, vfl._active),
    ]
    assert not {"_mean", "_scale"} & set(vars(vfl))


class Elsewhere(Federation):
    """Members who are never reached."""

    names = ("bank", "shop")

    def connect(self, parties, log, centre="server", *, names=None):
        raise AssertionError("they were asked")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"clients": {"shop": 2}}, "a federation have tables of their own"),
        ({"key_rings": {"shop": KeyRing("shop")}}, "'shop' has its identity at home"),
        ({"bottom": normalised}, "bottom cannot be told to party 'shop'"),
    ],
)
def test_what_only_a_simulation_can_give_is_refused(cancer, params, message):
    vfl = VFedSecClassifier(parties=Elsewhere(), active="bank", **{**SMALL, **params})
    with pytest.raises(ValueError, match=message):
        vfl.fit(*cancer)


def test_halves_are_those_of_the_clients(cancer, tmp_path):
    X, y = cancer
    vfl = VFedSecClassifier(
        parties=as_they_are(), clients={"telco": 2}, max_epochs=1, **SMALL
    ).fit(X, y)
    assert vfl.halves_ == ["bank", "telco.0", "telco.1", "shop"]
    vfl.save_half("telco.1", tmp_path / "half")
    others = vfl.keep_halves(["bank", "telco.0", "shop"])
    with pytest.raises(PartyError, match=r"'telco\.1'.*load_half"):
        others.predict(X)
    others.load_half(tmp_path / "half")
    assert_array_equal(others.predict_proba(X), vfl.predict_proba(X))


# --- what goes wrong is named -------------------------------------------------------


def flip(array):
    array.reshape(-1).view(np.uint8)[0] ^= 1


def meddle_once(way, operation, party, change, skip=1):
    """Change one message, the first that is met after ``skip`` of them."""
    left = [skip]

    def meddle(direction, parcels):
        if direction != way or party not in parcels or parcels[party][0] != operation:
            return
        left[0] -= 1
        if left[0] == -1:
            change(parcels, party)

    return meddle


def flip_in(*path):
    def change(parcels, party):
        node = parcels[party][1]
        for step in path:
            node = node[step]
        flip(node)

    return change


def replace(name, value):
    def change(parcels, party):
        parcels[party][1][name] = value

    return change


def swap(other):
    def change(parcels, party):
        parcels[party], parcels[other] = parcels[other], parcels[party]

    return change


def drop(parcels, party):
    del parcels[party]


def drop_tag(parcels, party):
    del parcels[party][1]["tag"]


@pytest.mark.parametrize(
    ("meddle", "message"),
    [
        (
            meddle_once("reply", "forward", "shop", flip_in("masked")),
            "'shop': its message for .*round 1.* fails authentication",
        ),
        (
            meddle_once("reply", "backward", "telco.1", flip_in("masked")),
            r"'telco\.1': its message for .* fails authentication",
        ),
        (
            meddle_once("reply", "forward", "shop", replace("round", 0)),
            "'shop'.*a replayed, reordered or late message",
        ),
        (
            meddle_once("reply", "forward", "shop", drop),
            "'shop': its masked message did not arrive",
        ),
        (
            meddle_once("reply", "forward", "shop", drop_tag),
            "'shop': it did not send a masked array",
        ),
        (
            meddle_once("request", "forward", "telco.0", flip_in("ids")),
            r"'telco\.0'.*'bank'.*do not open",
        ),
        (
            meddle_once("request", "forward", "shop", replace("round_id", 0)),
            "'shop'.*'bank'.*do not open",
        ),
        (
            meddle_once("reply", "select", "bank", flip_in("labels")),
            "'bank': the labels that 'server' received .* fails authentication",
        ),
        (
            meddle_once("reply", "select", "bank", replace("tag of labels", None)),
            "'bank': the labels that 'server' received .* fails authentication",
        ),
        (
            meddle_once("reply", "select", "bank", replace("labels", np.zeros(3))),
            "'bank': its labels are not an array for the 128 rows",
        ),
        (
            meddle_once("reply", "select", "bank", replace("ids", np.zeros((2, 9)))),
            "'bank': it did not send row ids for each of the 3 clients",
        ),
        (
            meddle_once("request", "backward", "shop", flip_in("gradient")),
            "'shop'.*'server': the gradient of the secure layer .* fails auth",
        ),
        (
            meddle_once("request", "update", "telco.0", flip_in("gradient")),
            r"'telco\.0'.*'server': the gradient of the cluster .* fails auth",
        ),
        (
            meddle_once("reply", "backward", "telco.0", flip_in("masked")),
            r"'telco\.0': its message for .* fails authentication",
        ),
        (
            meddle_once("reply", "backward", "telco.0", drop),
            r"'telco\.0': it did not send 48 bytes to each of \['telco\.1'\]",
        ),
        (
            meddle_once("reply", "backward", "telco.1", drop),
            r"'telco\.1': its masked message did not arrive",
        ),
        (
            meddle_once("reply", "backward", "telco.0", swap("telco.1")),
            r"'telco\.0': it did not send 48 bytes to each of \['telco\.1'\]",
        ),
        (
            meddle_once("reply", "backward", "telco.0", replace("keys", np.zeros(48))),
            r"'telco\.0': it did not send 48 bytes to each of \['telco\.1'\]",
        ),
        (
            meddle_once("reply", "backward", "telco.0", flip_in("keys")),
            r"'telco\.1'.*'telco\.0': the key of a mask that 'telco\.1' received .* not"
            " open",
        ),
        (
            meddle_once("request", "update", "telco.1", replace("key", None)),
            r"'telco\.1'.*'telco\.0': the key of a mask .* does not open",
        ),
        (
            meddle_once("reply", "offer_keys", "shop", flip_in(), skip=0),
            "'bank'.*'shop'|'shop'.*'bank'",
        ),
        (
            meddle_once("reply", "offer_keys", "shop", drop),
            "'shop': it did not send 64 bytes to each of the others",
        ),
        (
            meddle_once("reply", "agree_keys", "shop", flip_in(), skip=0),
            "'bank'.*'shop': it and 'bank' do not hold the same key",
        ),
        (
            meddle_once("request", "confirm_keys", "shop", flip_in("parcels")),
            "'shop'.*'bank': it and 'shop' do not hold the same key in key epoch 1",
        ),
    ],
)
def test_meddling_is_named(cancer, meddle, message):
    vfl = VFedSecClassifier(
        parties=as_they_are(),
        clients={"telco": 2},
        max_epochs=2,
        transport=Watched(meddle),
        **SMALL,
    )
    with pytest.raises(PartyError, match=message):
        vfl.fit(*cancer)
    assert not vfl.__sklearn_is_fitted__()


def test_replayed_key_of_a_mask_is_named(cancer):
    kept = []

    def replay(way, parcels):
        if (
            way == "reply"
            and "telco.0" in parcels
            and parcels["telco.0"][0] == ("backward")
        ):
            message = parcels["telco.0"][1]
            kept.append(message["keys"].copy())
            message["keys"] = kept[0]

    vfl = VFedSecClassifier(
        parties=as_they_are(), clients={"telco": 2}, transport=Watched(replay), **SMALL
    )
    with pytest.raises(PartyError, match=r"'telco\.0'.* round 1 does not open"):
        vfl.fit(*cancer)


def test_replayed_round_is_named(cancer):
    kept = {}

    def replay(way, parcels):
        if way == "reply" and parcels.get("shop", [""])[0] == "forward":
            if kept:
                parcels["shop"][1] = kept["message"]
            kept["message"] = copy.deepcopy(parcels["shop"][1])

    vfl = VFedSecClassifier(parties=PARTIES, transport=Watched(replay), **SMALL)
    with pytest.raises(SecureAggregationError, match=r"'shop'.*replayed"):
        vfl.fit(*cancer)


def test_meddling_with_a_prediction_is_named(cancer):
    X, y = cancer
    vfl = VFedSecClassifier(parties=PARTIES, max_epochs=1, **SMALL).fit(X, y)
    meddle = meddle_once("reply", "forward", "telco", flip_in("masked"), skip=0)
    vfl.set_params(transport=Watched(meddle))
    with pytest.raises(SecureAggregationError, match=r"'telco'.*fails authentication"):
        vfl.predict(X)
    vfl.set_params(transport="local").predict(X)


def test_contribution_over_the_bound_is_named(cancer):
    vfl = VFedSecClassifier(parties=PARTIES, bound=0.5, random_state=0)
    with pytest.raises(PartyError) as info:
        vfl.fit(*cancer)
    assert "its contribution to the secure layer: " in str(info.value)
    assert "over the declared bound of 0.5; declare a larger bound" in str(info.value)
    assert info.value.party in PARTIES
    vfl.set_params(bound=50, max_epochs=1).fit(*cancer)
    with pytest.raises(ValueError, match=r"'bank': its contribution .* bound of 50"):
        vfl.predict(np.where(np.arange(30) < 10, 1e5, 0.0)[None] * cancer[0])


def test_divergence_is_named(cancer):
    vfl = VFedSecClassifier(
        parties=PARTIES, optimizer=torch.optim.SGD, lr=1e30, random_state=0
    )
    with pytest.raises(PartyError, match=r"lower the learning rate|larger bound"):
        vfl.fit(*cancer)


def test_bound_that_leaves_no_bits_is_refused(cancer):
    with pytest.raises(ValueError, match="use bits=64"):
        VFedSecClassifier(parties=PARTIES, bound=1e9).fit(*cancer)


# --- keys ---------------------------------------------------------------------------


@pytest.mark.parametrize("rotate_every", [1, 4, 5, 100])
def test_keys_are_renewed(cancer, monkeypatch, rotate_every):
    X, y = cancer
    wire = Watched()
    vfl = VFedSecClassifier(
        parties=PARTIES,
        max_epochs=2,
        early_stopping=True,
        rotate_every=rotate_every,
        transport=wire,
        **SMALL,
    )
    monkeypatch.setattr(_protocol, "_SERVED_AT_ONCE", 128)
    runs = [(vfl.fit, (X, y), 2 * (4 + 1)), (vfl.predict, (X,), 5)]
    public = []
    for run, arguments, n_rounds in runs:
        wire.seen.clear()
        run(*arguments)
        epochs = [
            answers["shop"][1]["epoch"]
            for asked, _, answers in wire.seen
            if asked == "forward"
        ]
        assert epochs == [i // rotate_every for i in range(n_rounds)]
        offers = [answers for asked, _, answers in wire.seen if asked == "offer_keys"]
        assert len(offers) == epochs[-1] + 1
        public += [
            {key.tobytes()[32:] for key in keys}
            for answers in offers
            for _, keys in answers.values()
        ]
    assert all(len(keys) == 1 for keys in public)
    assert len(set.union(*public)) == len(public)


# --- many clients -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (VFedSecClassifier, SMALL),
        (SplitNNClassifier, {}),
        (FedOnceClassifier, {}),
        (TabVFLClassifier, {"pretraining_epochs": 1}),
    ],
)
def test_rounds_of_a_prediction_do_not_depend_on_trainings_batches(
    cancer, method, params
):
    X, y = cancer
    rounds = []
    for batch_size in (16, 569):
        common = {"parties": PARTIES, "max_epochs": 1, "batch_size": batch_size}
        model = method(**common, **params).fit(X[:64], y[:64])
        with record_communication() as log:
            model.predict(X)
        rounds.append(log.n_rounds)
    assert rounds[0] == rounds[1] <= 5


FEW, MANY = 19, 24


def many(cancer, n_parties=MANY, **settings):
    settings = {"max_epochs": 1, "batch_size": 300, **SMALL, **settings}
    return VFedSecClassifier(parties=as_they_are(n_parties), **settings).fit(*cancer)


def test_clients_of_a_simulation_hold_one_list_of_all(cancer):
    """With one for each, what a simulation holds would grow as their square."""
    parties = many(cancer)._parties.values()
    assert len({id(party._agreement) for party in parties}) == 1
    other = many(cancer, bound=500.0)._parties["party0"]
    assert other._agreement.bound == 500
    assert {party._agreement.bound for party in parties} == {1000}


def operations(vfl):
    return {m.operation for m in vfl.communication_.messages}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"clients": {"party3": 22, "party4": 2}, "rotate_every": 1},
        pytest.param(
            {"active": ["party7", "party1", "party9"]}, marks=pytest.mark.slow
        ),
    ],
)
def test_masks_along_a_graph_change_nothing(cancer, settings):
    masked, plain = (many(cancer, masked=each, **settings) for each in (True, False))
    assert operations(masked) - operations(plain) >= {"commit", "reveal", "draw_graph"}
    assert same_states(masked, plain)
    X, _ = cancer
    assert_array_equal(masked.predict_proba(X), plain.predict_proba(X))


def test_few_clients_draw_no_graph(cancer):
    assert not {"commit", "reveal", "draw_graph"} & operations(many(cancer, FEW))


def offered(wire):
    """How many public keys each client has offered, by key epoch."""
    return [
        {name: len(keys) for name, (_, keys) in answers.items()}
        for asked, _, answers in wire.seen
        if asked == "offer_keys"
    ]


def test_keys_are_agreed_on_along_the_graph_of_the_run(cancer):
    wire = Watched()
    vfl = many(cancer, 30, transport=wire, rotate_every=1)
    for _ in range(3):
        vfl.predict(cancer[0])
    fit, again, *others = offered(wire)
    # The active client seals ids for all, and has keys with all and the server.
    assert {each.pop("party0") for each in (fit, again, *others)} == {30}
    assert fit == again
    assert 18 < np.mean([*fit.values()]) < 26
    assert all(each != fit for each in others)
    assert len(offered(wire)) == 5


def test_masked_arrays_of_many_are_uniform(cancer):
    for masked in (True, False):
        vfl = many(cancer, masked=masked, record_server_view=True, batch_size=569)
        found = [
            uniformity(each.array)
            for each in vfl.server_view_
            if each.what == "secure layer"
        ]
        assert len(found) == MANY
        assert (min(found) > LEVEL) == masked


def test_an_impostor_is_found_who_is_no_neighbour(cancer):
    vfl = many(cancer)
    for name in ("party5", "party17"):
        vfl._parties["party9"]._ring.pinned[name] = KeyRing(name).fingerprint
        with pytest.raises(PartyError, match=f"'{name}': its identity .*'party9' has"):
            vfl.predict(cancer[0])
        vfl._parties["party9"]._ring.pinned.pop(name)
    vfl.predict(cancer[0])


@pytest.mark.parametrize(
    ("meddle", "message"),
    [
        (
            meddle_once("reply", "commit", "party7", drop, skip=0),
            "'party7': its commitment are not 32 bytes",
        ),
        (
            meddle_once("reply", "reveal", "party7", flip_in(), skip=0),
            "'party7': its contribution to the draw is not the one it has bound",
        ),
        (
            meddle_once("reply", "reveal", "party7", drop, skip=0),
            "'party7': its contribution to the draw are not 64 bytes",
        ),
        (
            meddle_once("request", "reveal", "party7", flip_in("bound"), skip=0),
            "'server': 'party7' finds that the contributions to the draw are not those",
        ),
        (
            meddle_once("request", "draw_graph", "party7", flip_in("contributions"), 0),
            "'server': 'party7' finds that the contributions to the draw are not those",
        ),
    ],
)
def test_meddling_with_the_draw_is_named(cancer, meddle, message):
    with pytest.raises(PartyError, match=message):
        many(cancer, transport=Watched(meddle))


def test_a_client_that_is_led_to_another_graph_has_no_keys(cancer):
    """A relay that tells one client of another contribution than it tells the others.

    The client cannot see it, but has a seed of its own then, to which keys are bound.
    """
    made = {}

    def meddle(way, parcels):
        asked, sent = parcels.get("party7", ["", None])
        if (way, asked) == ("request", "commit"):
            names = [f"party{i}" for i in range(MANY)]
            made["own"] = Draw(KeyRing("party3"), names, sent["session"], "server")
            made["relay"] = Draw(KeyRing("server"), names, sent["session"], "server")
        elif (way, asked) == ("reply", "commit"):
            told = {name: reply for name, (_, reply) in parcels.items()}
            made["bound"] = made["relay"].bind(told | {"party3": made["own"].commit()})
        elif (way, asked) == ("request", "reveal"):
            sent["bound"] = made["bound"]
        elif (way, asked) == ("request", "draw_graph"):
            told = sent["contributions"].reshape(MANY, -1).copy()
            told[3] = made["own"].reveal(made["bound"])
            sent["contributions"] = told.reshape(-1)

    with pytest.raises(
        PartyError, match=r"'party7': it did not send 64|same key|pinned"
    ):
        many(cancer, transport=Watched(meddle))


def test_a_client_takes_part_in_one_draw_of_a_run(cancer):
    vfl = many(cancer)
    client = vfl._parties["party7"].again()
    with pytest.raises(PartyError, match="'draw_graph' comes first"):
        client.perform("offer_keys", {"session": "run", "epoch": 0})
    with pytest.raises(PartyError, match="'commit' comes first"):
        client.perform("reveal", {"bound": np.zeros(32, np.uint8)})
    client.perform("commit", {"session": "run"})
    with pytest.raises(PartyError, match="asks 'party7' for a second draw"):
        client.perform("commit", {"session": "run"})
    client.perform("reveal", {"bound": np.zeros(32, np.uint8)})
    with pytest.raises(PartyError, match="asks twice"):
        client.perform("reveal", {"bound": np.ones(32, np.uint8)})
    with pytest.raises(PartyError, match="second draw"):
        client.perform("commit", {"session": "run"})


@pytest.mark.parametrize("rings", [True, False])
def test_keys_do_not_grow_with_the_number_of_pairs(cancer, monkeypatch, rings):
    if not rings:
        for module in (_agreement, _rings):
            monkeypatch.setattr(module, "count_rings", lambda n: 0)
    X, y = cancer
    sizes = []
    for n in (30, 60):
        log = many((np.hstack([X, X]), y), n).communication_.messages
        sizes.append(sum(m.bytes for m in log if m.operation.endswith("_keys")))
    exponent = np.log2(sizes[1] / sizes[0])
    assert exponent < 1.5 if rings else exponent > 1.9


def test_lasting_identities_and_pinned_fingerprints(cancer):
    X, y = cancer
    shop = KeyRing("shop")
    bank = KeyRing("bank", pinned={"shop": shop.fingerprint})
    vfl = VFedSecClassifier(
        parties=PARTIES, key_rings={"bank": bank, "shop": shop}, max_epochs=1, **SMALL
    ).fit(X, y)
    assert vfl.fingerprints_["shop"] == shop.fingerprint
    assert set(vfl.fingerprints_) == {"bank", "telco", "shop", "server"}
    first = vfl.fingerprints_
    second = clone(vfl).fit(X, y).fingerprints_
    assert {name for name in first if first[name] == second[name]} == {"bank", "shop"}
    vfl.set_params(key_rings={"bank": bank})
    with pytest.raises(PartyError, match=r"'bank'.*'shop'.*has pinned"):
        vfl.fit(X, y)
    for rings in ({"nobody": bank}, {"telco": bank}, {"telco": "0" * 64}):
        with pytest.raises(ValueError, match="key_rings"):
            vfl.set_params(key_rings=rings).fit(X, y)


def test_identities_met_in_fit_are_expected_in_predictions(cancer):
    X, y = cancer
    vfl = VFedSecClassifier(parties=PARTIES, max_epochs=1, **SMALL).fit(X, y)
    impostor = KeyRing("shop")
    vfl._parties["shop"]._ring = impostor
    with pytest.raises(PartyError, match=r"'shop': its identity .* has pinned"):
        vfl.predict(X)


def test_results_come_from_the_seed_and_keys_do_not(cancer, rng_guard):
    X, y = cancer
    one, other = (
        VFedSecClassifier(
            parties=PARTIES, max_epochs=2, record_server_view=True, **SMALL
        ).fit(X, y)
        for _ in range(2)
    )
    assert same_states(one, other)
    assert_array_equal(one.predict_proba(X), other.predict_proba(X))
    for a, b in zip(one.server_view_, other.server_view_, strict=True):
        assert a[:3] == b[:3]
        assert not np.array_equal(a.array, b.array)


# --- as a model ---------------------------------------------------------------------


@pytest.mark.slow
def test_processes_give_the_same_bits(cancer):
    X, y = cancer
    local, apart = (
        VFedSecClassifier(
            parties=as_they_are(2),
            clients={"party1": 2},
            max_epochs=2,
            early_stopping=True,
            transport=way,
            **SMALL,
        ).fit(X, y)
        for way in ("local", "process")
    )
    assert same_states(local, apart)
    assert local.communication_.messages == apart.communication_.messages
    assert_array_equal(local.predict_proba(X[:50]), apart.predict_proba(X[:50]))


@pytest.mark.slow
def test_processes_tell_what_went_wrong(cancer):
    X, y = (each[:60] for each in cancer)
    vfl = VFedSecClassifier(parties=2, bound=0.5, transport="process", random_state=0)
    with pytest.raises(PartyError, match=r"over the declared bound of 0\.5"):
        vfl.fit(X, y)


def test_score_is_that_of_split_learning(cancer):
    X, y = cancer
    train, test = np.arange(569) % 3 != 0, np.arange(569) % 3 == 0
    settings = {"parties": 4, "max_epochs": 15, "lr": 5e-3}
    pairs = [
        [
            model(**settings, random_state=seed)
            .fit(X[train], y[train])
            .score(X[test], y[test])
            for model in (
                partial(VFedSecClassifier, clients={"party2": 2}),
                partial(SplitNNClassifier, aggregation="sum"),
            )
        ]
        for seed in range(3)
    ]
    secure, split = np.mean(pairs, axis=0)
    assert secure > 0.95
    assert abs(secure - split) < 0.015


def test_several_tasks():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    iris = VFedSecClassifier(batch_size=16, random_state=0).fit(X, names)
    assert iris.score(X, names) > 0.95
    assert_allclose(iris.predict_proba(X).sum(axis=1), 1)
    X, y = load_diabetes(return_X_y=True)
    diabetes = VFedSecRegressor(
        parties=3, clients={"party1": 2}, max_epochs=30, random_state=0
    ).fit(X, y)
    assert diabetes.score(X, y) > 0.5
    assert diabetes.predict(X).mean() == pytest.approx(y.mean(), rel=0.05)
    assert diabetes.transform(X).shape == (len(X), 32)
    assert diabetes.transform(X).dtype == np.float32


def test_the_papers_linear_local_modules(cancer):
    X, y = cancer
    vfl = VFedSecClassifier(
        parties=PARTIES, bottom=(), top=(), cut_width=64, random_state=0
    ).fit(X, y)
    assert vfl.score(X, y) > 0.97
    shapes = {name: tuple(value.shape) for name, value in states(vfl).items()}
    assert shapes == {
        ("bank", "0.weight"): (64, 10),
        ("bank", "0.bias"): (64,),
        ("telco", "0.weight"): (64, 10),
        ("shop", "0.weight"): (64, 10),
        ("server", "1.0.weight"): (2, 64),
        ("server", "1.0.bias"): (2,),
    }


def test_active_party_may_hold_no_column(cancer):
    X, y = cancer
    parties = {"bank": [], "lab": range(15), "clinic": range(15, 30)}
    vfl = VFedSecClassifier(parties=parties, max_epochs=20, random_state=0).fit(X, y)
    assert vfl.score(X, y) > 0.95
    assert (states(vfl)["bank", "bias"] != 0).all()


def test_early_stopping_goes_back_to_the_best_models(cancer):
    X, y = cancer
    settings = SMALL | {"lr": 0.05, "parties": PARTIES, "n_iter_no_change": 3}
    vfl = VFedSecClassifier(early_stopping=True, max_epochs=60, **settings).fit(X, y)
    curve = vfl.validation_loss_curve_
    best = int(np.argmin(curve))
    assert vfl.n_iter_ == len(curve) == best + 1 + 3 < 60
    short = VFedSecClassifier(early_stopping=True, max_epochs=best + 1, **settings)
    short.fit(X, y)
    assert_array_equal(short.predict_proba(X), vfl.predict_proba(X))


def test_weights_of_rows_and_classes(cancer):
    X, y = cancer
    settings = {"max_epochs": 15, "batch_size": 600, "random_state": 0}
    plain = VFedSecClassifier(**settings).fit(X, y).predict_proba(X)
    ones = VFedSecClassifier(**settings).fit(X, y, np.full(len(y), 3.0))
    assert_allclose(ones.predict_proba(X), plain, atol=1e-4)
    heavy = VFedSecClassifier(class_weight={0: 9, 1: 1}, **settings).fit(X, y)
    rows = VFedSecClassifier(**settings).fit(X, y, np.where(y == 0, 9.0, 1.0))
    assert_array_equal(heavy.predict_proba(X), rows.predict_proba(X))
    assert heavy.predict_proba(X)[:, 0].mean() > plain[:, 0].mean() + 0.05


def test_batch_without_weight_changes_nothing(cancer):
    X, y = cancer
    weights = (np.arange(len(y)) < 20).astype(float)
    vfl = VFedSecClassifier(parties=PARTIES, batch_size=8, max_epochs=1, **SMALL)
    assert np.isfinite(vfl.fit(X, y, weights).predict_proba(X)).all()


def test_frames_of_single_precision(cancer):
    X, y = cancer
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X[:, :4].astype(np.float32), columns=list("abcd"))
    vfl = VFedSecClassifier(
        parties=as_they_are(2), clients={"party1": 2}, max_epochs=1, **SMALL
    ).fit(table, y)
    out = vfl.set_output(transform="pandas").transform(table[list("dcba")])
    assert list(out.columns) == [f"vfedsecclassifier{i}" for i in range(4)]
    assert_array_equal(out, vfl.set_output(transform="default").transform(table))


def test_grid_search(cancer):
    X, y = cancer
    grid = {"cut_width": [2, 8], "clients": [None, {"telco": 2}]}
    vfl = VFedSecClassifier(parties=PARTIES, max_epochs=2, random_state=0)
    search = GridSearchCV(vfl, grid, cv=2).fit(X, y)
    assert search.best_score_ > 0.6
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_predictions_at_the_same_time(cancer, monkeypatch):
    monkeypatch.setattr(_protocol, "_SERVED_AT_ONCE", 128)
    """Each run has keys of its own, though identities and models are shared."""
    X, y = cancer
    vfl = VFedSecClassifier(parties=PARTIES, max_epochs=1, **SMALL).fit(X, y)
    expected = vfl.predict_proba(X)
    beside = copy.copy(vfl)
    answers = []

    def meanwhile(way, parcels):
        if way == "reply" and parcels.get("shop", [""])[0] == "forward":
            answers.append(beside.predict_proba(X))

    vfl.set_params(transport=Watched(meanwhile))
    answers.append(vfl.predict_proba(X))
    assert len(answers) == 5 + 1
    for answer in answers:
        assert_array_equal(answer, expected)


def test_own_modules_are_trained_in_training_mode_only(cancer, rng_guard):
    X, y = cancer
    vfl = VFedSecClassifier(
        parties=PARTIES,
        bottom=normalised,
        top=normalised,
        early_stopping=True,
        max_epochs=2,
        random_state=0,
    ).fit(X, y)
    vfl.predict(X)
    counts = {k: v.item() for k, v in states(vfl).items() if "tracked" in k[1]}
    assert len(counts) == 4
    best = int(np.argmin(vfl.validation_loss_curve_)) + 1
    assert set(counts.values()) == {best * 4}


def test_what_security_costs_in_bytes(cancer):
    X, y = cancer
    counts = {}
    for masked in (True, False):
        vfl = VFedSecClassifier(
            parties=as_they_are(),
            clients={"telco": 2, "shop": 2},
            bottom=(),
            top=(),
            cut_width=64,
            batch_size=256,
            max_epochs=2,
            masked=masked,
            random_state=0,
        ).fit(X, y)
        with record_communication() as log:
            vfl.predict(X)
        counts[masked] = vfl.communication_.n_bytes, log.n_bytes
        keys = [m for m in vfl.communication_.messages if "keys" in m.operation]
        assert bool(keys) is masked
    fit, predict = np.divide(counts[True], counts[False])
    assert 1 < fit < 1.25
    assert 1 < predict < 1.4


CHECKED = {"bottom": (8,), "top": (8,), "cut_width": 4, "lr": 0.05, "batch_size": 32}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "estimator",
    [
        VFedSecClassifier(max_epochs=15, bits=64, **CHECKED),
        VFedSecRegressor(max_epochs=15, bits=64, rotate_every=100, **CHECKED),
    ],
    ids=["classifier", "regressor"],
)
@pytest.mark.slow
def test_scikit_learn_checks(estimator):
    found = check_estimator(estimator, on_fail=None)
    failed = [each["check_name"] for each in found if each["status"] == "failed"]
    # A weight is not a repetition: batches are drawn from the rows, and passive
    # parties standardise their columns without the weights.
    assert failed == ["check_sample_weight_equivalence_on_dense_data"]
