import copy
import os
import signal
import time
from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from torch.nn import functional

from skvfl import (
    ClientFailures,
    LocalTransport,
    ProcessTransport,
    TabVFLClassifier,
    TabVFLRegressor,
    record_communication,
)
from skvfl._random import branch, deal, int_seed, seed_sequence
from skvfl.exceptions import PartyError
from skvfl.federation import Holding, Labels, Member
from skvfl.nn._labels import Lessons
from skvfl.nn._steps import batch_bounds, public_order
from skvfl.nn._tabnet import negative_entropy, reconstruction_loss
from skvfl.splitnn._parties import Epoch, Inputs
from skvfl.tabvfl._host import Decoding, HostSettings
from skvfl.tabvfl._parties import GuestSettings, Rebuilding

DESIGNS = ["joint", "local_encoder", "local"]
SMALL = {"n_d": 6, "n_a": 3, "n_steps": 2, "n_independent": 1, "n_shared": 1}
TWO_GUESTS = {"bank": [], "lab": range(15), "shop": range(15, 30)}


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True)


def classifier(**settings):
    usual = {"max_epochs": 2, "random_state": 0, "missing_party": "cache"}
    return TabVFLClassifier(**{**SMALL, **usual, "parties": 2, **settings})


def states(estimator, part="_bottom"):
    return {
        name: getattr(party, part).state_dict()
        for name, party in estimator._parties.items()
        if hasattr(party, part)
    }


def assert_same_state(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def train_in_one_graph(estimator, X, codes):
    """Pretrain and finetune the joint design in one autograd graph."""
    root = seed_sequence(estimator.random_state)
    estimator.classes_ = np.unique(codes)
    X = estimator._fit_partition(X, codes, branch(root, 0))
    parties = {}
    for member in estimator._make_members(X, root, Labels(codes, 2)).home:
        settings = estimator._settings(member.name)
        member.open(settings.role, settings.pack())
        parties[member.name] = member.party
    guests = [parties[name] for name in estimator._holders]
    host = parties[estimator._active]
    to_table, *to_phases = branch(root, 2).spawn(3)
    seed = int_seed(to_table)
    sizes = map(len, np.array_split(range(estimator.n_d), len(guests)))
    shares = {guest.name: n for guest, n in zip(guests, sizes, strict=True)}
    widths = {guest.name: guest.prepare(seed, shares[guest.name]) for guest in guests}
    host.prepare_top(seed, sum(widths.values()), len(X), shares)
    labels = host.held(Lessons).labels
    for guest in guests:
        guest.begin_pretraining(len(X))
    host.begin_decoding(widths)

    def epochs(sequence, n_epochs):
        to_epochs, _ = sequence.spawn(2)
        for to_epoch in to_epochs.spawn(n_epochs):
            order = public_order(int_seed(to_epoch), len(X))
            for start, stop in batch_bounds(len(X), estimator.batch_size):
                yield order[start:stop]

    def update():
        for guest in guests:
            guest._update()
        host._update_top()

    for module in (host._top, host._mapping, *(guest._bottom for guest in guests)):
        module.train()
    for rows in epochs(to_phases[0], estimator.max_epochs):
        inputs = [guest.held(Inputs).values[rows] for guest in guests]
        drawn = [g._obfuscate(x) for g, x in zip(guests, inputs, strict=True)]
        sent = [g._bottom(x) for g, (x, _) in zip(guests, drawn, strict=True)]
        hidden = [each for _, each in drawn]
        decisions = host._top.decide(torch.cat(sent, 1), torch.cat(hidden, 1))
        decoded = host.held(Decoding).decoder(decisions)
        parts = decoded.split(list(shares.values()), dim=1)
        sum(
            reconstruction_loss(guest.held(Rebuilding).layer(part), x, h.float())
            for guest, part, x, h in zip(guests, parts, inputs, hidden, strict=True)
        ).backward()
        update()
    for guest in guests:
        guest.begin_finetuning()
    host.begin_learning(widths)
    for rows in epochs(to_phases[1], estimator.max_epochs):
        sent = [guest._bottom(guest.held(Inputs).values[rows]) for guest in guests]
        decisions, weights = host._top.encoder(torch.cat(sent, dim=1))
        loss = functional.cross_entropy(host._mapping(sum(decisions)), labels[rows])
        (loss - estimator.lambda_sparse * negative_entropy(weights)).backward()
        update()
    return parties


@pytest.mark.parametrize("parties", [3, TWO_GUESTS])
def test_parameters_equal_those_of_one_graph(cancer, parties):
    X, y = cancer
    # Small steps, and not those of Adam, which rounding decides where a gradient is
    # nearly zero: then rounding stays rounding.
    estimator = classifier(
        parties=parties,
        lambda_sparse=0.05,
        batch_size=100,
        optimizer=torch.optim.SGD,
        lr=0.003,
    )
    jointly = train_in_one_graph(clone(estimator), X, y)
    estimator.fit(X, y)
    for name, party in jointly.items():
        fitted = estimator._parties[name]
        for part in ("_bottom", "_top", "_mapping"):
            if hasattr(party, part):
                ours = getattr(fitted, part).state_dict()
                for key, value in getattr(party, part).state_dict().items():
                    assert_allclose(ours[key], value, rtol=0, atol=3e-5)
    weight = jointly["party1" if parties == 3 else "lab"]._bottom.norm.weight
    assert (weight - 1).abs().max() > 5e-4


def test_the_log_shows_the_arrows_of_both_phases(cancer):
    log = classifier(parties=TWO_GUESTS, active="bank", batch_size=100)
    frame = log.fit(*cancer).communication_.to_frame()
    frame = frame[frame["data_bearing"]]
    n_batches, n_epochs, n_guests = 6, 2, 2
    counts = frame["operation"].value_counts().to_dict()
    per_guest = n_batches * n_epochs * n_guests
    assert counts == {
        "hide": per_guest,
        "rebuild": 2 * per_guest,
        "adapt": per_guest,
        "forward": per_guest,
        "backward": per_guest,
    }
    up = frame[frame["operation"].isin(["hide", "forward"])]
    down = frame[frame["operation"].isin(["adapt", "backward"])]
    assert set(up["receiver"]) == set(down["sender"]) == {"bank"}
    both = frame[frame["operation"] == "rebuild"]
    assert (both["sender"] == "bank").sum() == (both["receiver"] == "bank").sum()


def test_what_the_other_designs_send(cancer):
    def data(design, **settings):
        settings = {"parties": TWO_GUESTS, "active": "bank", **settings}
        estimator = classifier(design=design, batch_size=569, max_epochs=1, **settings)
        frame = estimator.fit(*cancer).communication_.to_frame()
        frame = frame[frame["data_bearing"]]
        return {
            operation: rows["bytes"].sum()
            for operation, rows in frame.groupby("operation")
        }

    n = len(cancer[1])
    sent = data("local")
    assert set(sent) == {"forward", "backward"}
    assert sent["forward"] == pytest.approx(n * 6 * 4, rel=0.02)
    sent = data("local_encoder")
    assert sent["hide"] == pytest.approx(n * 2 * (2 * 6) * 4, rel=0.02)
    assert sent["forward"] == pytest.approx(n * 2 * 6 * 4, rel=0.02)
    sent = data("joint")
    assert sent["hide"] == pytest.approx(n * 30 * (4 + 1), rel=0.02)
    assert sent["rebuild"] == pytest.approx(n * 6 * 4 * 2, rel=0.05)
    assert "hide" not in data("joint", pretrain=False)


def member(name, block, labels=None, **settings):
    """One organisation, whose secrets are those that a simulation would deal."""
    root = np.random.SeedSequence(0)
    paths = TabVFLClassifier._streams.items()
    streams = deal({what: branch(root, *path) for what, path in paths}, [name])[name]
    kind = GuestSettings if labels is None else HostSettings
    asked = {each.name for each in fields(kind)}
    said = {k: v for k, v in classifier().get_params().items() if k in asked}
    own = Member(name, Holding(block, labels=labels), streams)
    settings = kind(**{**said, **settings}).pack()
    own.perform("open", {"role": kind.role, "settings": settings})
    return own


def pretraining_guest(cancer, name):
    """A guest that is about to pretrain on its columns of the data."""
    X, _ = cancer
    guest = member(name, X[:, TWO_GUESTS[name]])
    guest.perform("prepare", {"seed": 0, "share": 3})
    guest.perform("begin_pretraining", {"n_train": len(X)})
    guest.perform("begin_epoch", {"seed": 0, "n_train": len(X)})
    return guest.party


def test_guests_of_equal_width_draw_their_own_masks_and_weights(cancer):
    masks, weights = [], []
    for name in ("lab", "shop"):
        guest = pretraining_guest(cancer, name)
        masks.append(guest.hide(0, 100)["hidden"])
        weights.append(guest._bottom.mix.weight)
    assert masks[0].shape == masks[1].shape
    assert (masks[0] == masks[1]).mean() == pytest.approx(0.5, abs=0.05)
    assert not torch.isclose(*weights).any()


def test_the_mask_hides_cells_from_the_host(cancer):
    """What is sent does not depend on the cells that are hidden."""
    guest = pretraining_guest(cancer, "lab")
    state = guest._obfuscate.generator.get_state()
    sent = guest.hide(0, 50)
    assert sent["hidden"].mean() == pytest.approx(0.5, abs=0.06)
    rows = guest.held(Epoch).order[:50]
    inputs = guest.held(Inputs).values
    inputs[rows] = inputs[rows].masked_fill(torch.tensor(sent["hidden"]), 7.0)
    guest._obfuscate.generator.set_state(state)
    again = guest.hide(0, 50)
    assert_array_equal(again["hidden"], sent["hidden"])
    assert_array_equal(again["outputs"], sent["outputs"])
    inputs[rows] += 1.0
    guest._obfuscate.generator.set_state(state)
    assert (guest.hide(0, 50)["outputs"] != sent["outputs"]).any()


def test_masks_tell_nothing_of_weights(cancer):
    """Masks are sent, and a generator can be found out from what it draws."""
    guest = pretraining_guest(cancer, "lab")
    state = guest._generator.get_state()
    guest.hide(0, 50)
    assert torch.equal(guest._generator.get_state(), state)
    assert not torch.equal(guest._obfuscate.generator.get_state(), state)


def test_pretraining_undoes_the_mixture(cancer):
    """The host finds every column that a guest mixed, from one batch and its masks.

    A hidden cell has one value in the whole batch. The rows in which a column is
    hidden therefore lie in a hyperplane, whose normal is what undoes the mixture.
    """
    guest = pretraining_guest(cancer, "lab")
    sent = guest.hide(0, 256)
    received = np.column_stack([sent["outputs"].astype(float), np.ones(256)])
    columns = guest.held(Inputs).values[guest.held(Epoch).order[:256]].numpy()
    for column, hidden in zip(columns.T, sent["hidden"].T, strict=True):
        normal = np.linalg.svd(received[hidden])[2][-1]
        found = received[~hidden] @ normal
        assert abs(np.corrcoef(found, column[~hidden])[0, 1]) > 0.9999


def test_a_guests_share_depends_on_the_columns_of_all(cancer):
    X, y = cancer
    estimator = classifier(parties=TWO_GUESTS, active="bank", max_epochs=1)
    shares = []
    for columns in (X, np.hstack([X[:, :15], X[::-1, 15:]])):
        transport = _Noting()
        clone(estimator).set_params(transport=transport).fit(columns, y)
        shares.append(transport.shares)
    assert shares[0].shape == shares[1].shape
    assert (shares[0] != shares[1]).any(axis=1).all()


class _Noting(LocalTransport):
    """Notes the first share that the laboratory is sent."""

    shares = None

    def connect(self, parties, log, centre="server"):
        session = super().connect(parties, log, centre)
        exchange = session._exchange

        def note(requests, *args):
            operation, arguments = requests.get("lab", (None, None))
            if operation == "rebuild" and self.shares is None:
                self.shares = np.array(arguments["partition"])
            return exchange(requests, *args)

        session._exchange = note
        return session


@pytest.mark.parametrize(
    "design",
    [DESIGNS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in DESIGNS[1:])],
)
def test_scores_and_losses(cancer, design):
    X, y = cancer
    estimator = classifier(design=design, parties=3, max_epochs=15, batch_size=64)
    estimator.fit(X, y)
    assert estimator.score(X, y) > 0.95
    assert estimator.loss_curve_[-1] < 0.5 * estimator.loss_curve_[0]
    curve = estimator.pretraining_loss_curve_
    assert 0 < curve[-1] < 0.6 * curve[0]
    assert {type(loss) for loss in curve + estimator.loss_curve_} == {float}
    assert estimator.n_iter_ == len(curve) == 15
    latent = estimator.transform(X)
    assert latent.shape == (len(X), 6)
    assert latent.min() >= 0
    assert list(estimator.get_feature_names_out()) == [
        f"tabvflclassifier{i}" for i in range(6)
    ]
    mapping = estimator._parties["party0"]._mapping.weight.detach().numpy()
    assert_allclose(
        estimator.predict_proba(X), softmax(latent @ mapping.T, axis=1), atol=1e-4
    )


def test_regression_in_the_targets_units():
    X, y = load_diabetes(return_X_y=True)
    estimator = TabVFLRegressor(
        **SMALL, parties=3, max_epochs=20, batch_size=64, random_state=0
    ).fit(X, y)
    assert estimator.score(X, y) > 0.4
    assert estimator.predict(X).mean() == pytest.approx(y.mean(), rel=0.1)


def test_one_party_is_a_tabnet_without_the_square_layer(cancer):
    estimator = classifier(parties=1).fit(*cancer)
    party = estimator._parties["party0"]
    assert isinstance(party._bottom.mix, torch.nn.Identity)
    assert estimator.communication_.n_messages == 0
    two = classifier(parties=2).fit(*cancer)._parties
    assert isinstance(two["party1"]._bottom.mix, torch.nn.Linear)


@pytest.mark.parametrize("design", DESIGNS)
def test_explanations(cancer, design):
    X, y = cancer
    X = X.copy()
    estimator = classifier(design=design, parties=TWO_GUESTS, active="bank").fit(X, y)
    with record_communication() as log:
        weights = estimator.explain(X)
    assert {name: each.shape for name, each in weights.items()} == {
        "lab": (569, 15),
        "shop": (569, 15),
    }
    together = np.hstack(list(weights.values()))
    assert together.min() >= 0
    total = together.sum(axis=1)
    assert_allclose(total[total > 0], 1, atol=1e-6)
    assert (total > 0).mean() > 0.9
    assert log.n_messages == 2


def test_joint_explanations_weigh_what_is_sent(cancer):
    """The published sum of masks, from the modules themselves."""
    X, y = cancer
    estimator = classifier(parties=1).fit(X, y)
    party = estimator._parties["party0"]
    inputs = torch.from_numpy(party._transformer.transform(X)).double()
    bottom, encoder = party._bottom.double().eval(), party._top.encoder.double().eval()
    decisions, masks = encoder(bottom(inputs))
    expected = sum(
        decided.sum(dim=1, keepdim=True) * mask
        for decided, mask in zip(decisions, masks, strict=True)
    ).detach()
    total = expected.sum(dim=1, keepdim=True)
    expected = torch.where(total > 0, expected / total, expected)
    assert_allclose(estimator.explain(X)["party0"], expected, atol=1e-4)


def idle_host(cache, n_rows):
    """A host that is about to learn from two guests."""
    labels = Labels(np.zeros(n_rows, int), 2)
    host = member("host", np.empty((n_rows, 0)), labels, cache=cache)
    shares = {"a": 1, "b": 2}
    order = {"seed": 0, "n_train": n_rows}
    host.perform("prepare_top", {**order, "n_columns": 3, "shares": shares})
    host.perform("begin_learning", {"widths": shares})
    return host.party


class _BeforeFinetuning(LocalTransport):
    """Notes the guests' models at the end of pretraining."""

    def connect(self, parties, log, centre="server"):
        session = super().connect(parties, log, centre)
        exchange = session._exchange

        def note(requests, *args):
            if "begin_finetuning" in {operation for operation, _ in requests.values()}:
                models = {n: session._present[n].party._bottom for n in requests}
                self.states = copy.deepcopy(
                    {name: model.state_dict() for name, model in models.items()}
                )
            return exchange(requests, *args)

        session._exchange = note
        return session


def models_before_finetuning(cancer, **settings):
    transport = _BeforeFinetuning()
    classifier(transport=transport, **settings).fit(*cancer)
    return transport.states


class TestFailures:
    def test_draws(self):
        failures = ClientFailures(0.3, random_state=1)
        names = ["a", "b"]
        drawn = failures._draw(np.random.SeedSequence(5), 2000, names)
        assert drawn[0] == []
        for name in names:
            assert np.mean([name in each for each in drawn]) == pytest.approx(
                0.3, abs=0.05
            )
        assert drawn == failures._draw(np.random.SeedSequence(6), 2000, names)
        shorter = failures._draw(np.random.SeedSequence(5), 30, names)
        assert drawn[:30] == shorter
        unseeded = ClientFailures(0.3)
        sequences = map(np.random.SeedSequence, (5, 6))
        first, second = (unseeded._draw(each, 50, names) for each in sequences)
        assert first != second

    @pytest.mark.parametrize("seed", [-1, 1.5])
    def test_a_seed_is_a_count(self, seed):
        with pytest.raises(ValueError, match="random_state must be an int"):
            ClientFailures(0.3, random_state=seed)

    @pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan"), "0.3"])
    def test_a_probability_is_one(self, probability):
        with pytest.raises(ValueError, match="probability"):
            ClientFailures(probability)

    def test_what_failed_is_listed(self, cancer):
        estimator = classifier(parties=TWO_GUESTS, active="bank", max_epochs=2)
        estimator.set_params(failure=ClientFailures(1.0)).fit(*cancer)
        assert estimator.failures_ == [
            ("pretraining", 2, "lab"),
            ("pretraining", 2, "shop"),
            ("finetuning", 2, "lab"),
            ("finetuning", 2, "shop"),
        ]
        assert classifier().fit(*cancer).failures_ == []

    def test_pretraining_losses_stay_comparable(self, cancer):
        """Who is offline counts with its last loss, in training and held out."""
        estimator = classifier(parties=TWO_GUESTS, active="bank", max_epochs=3)
        estimator.set_params(early_stopping=True, failure=ClientFailures(1.0))
        estimator.fit(*cancer)
        first, *later = estimator.pretraining_validation_loss_curve_
        assert later == [first] * len(later)
        assert min(estimator.pretraining_loss_curve_) > 1

    def test_the_label_owner_does_not_fail(self, cancer):
        estimator = classifier(parties=2, failure=ClientFailures(1.0)).fit(*cancer)
        assert {name for _, _, name in estimator.failures_} == {"party1"}

    @pytest.mark.parametrize("missing_party", ["cache", "zero"])
    @pytest.mark.parametrize("design", DESIGNS)
    def test_offline_parties_do_not_move_and_send_nothing(
        self, cancer, design, missing_party
    ):
        settings = {
            "parties": TWO_GUESTS,
            "active": "bank",
            "design": design,
            "pretrain": False,
            "missing_party": missing_party,
        }
        once = classifier(max_epochs=1, **settings).fit(*cancer)
        often = classifier(max_epochs=3, failure=ClientFailures(1.0), **settings)
        often.fit(*cancer)
        for name, state in states(once).items():
            assert_same_state(state, states(often)[name])
        frame = often.communication_.to_frame()
        crossed = frame[(frame["operation"] == "forward") & frame["data_bearing"]]
        assert len(crossed) == 2 * 3
        top = [each._parties["bank"]._mapping.weight for each in (once, often)]
        assert not torch.equal(*top)

    @pytest.mark.parametrize("design", DESIGNS)
    def test_offline_parties_do_not_move_while_pretraining(self, cancer, design):
        settings = {"parties": TWO_GUESTS, "active": "bank", "max_epochs": 1}
        once, often, always = (
            models_before_finetuning(
                cancer, design=design, pretraining_epochs=n, failure=failure, **settings
            )
            for n, failure in ((1, None), (3, ClientFailures(1.0)), (3, None))
        )
        for name, state in once.items():
            assert_same_state(state, often[name])
            moved = [not torch.equal(v, always[name][k]) for k, v in state.items()]
            assert any(moved)

    def test_cached_values_are_those_of_the_same_rows(self):
        host = idle_host(cache=True, n_rows=6)
        a, b = np.arange(6.0)[:, None], np.arange(6.0)[:, None] + [[10, 20]]
        first = torch.tensor([3, 0, 5, 1, 4, 2])
        for rows in first.split(2):
            sent = {"a": a[rows], "b": b[rows]}
            joined = host._join("outputs", rows, sent)
            assert_array_equal(joined, np.hstack([a, b])[rows])
        rows = torch.tensor([1, 3, 4])
        joined = host._join("outputs", rows, {"a": -a[rows]})
        assert_array_equal(joined, np.hstack([-a, b])[rows])
        joined = host._join("outputs", rows, {"b": 2 * b[rows]})
        assert_array_equal(joined, np.hstack([-a, 2 * b])[rows])
        joined = host._join("outputs", torch.arange(6), {})
        expected = np.hstack([a, b])
        expected[rows] = np.hstack([-a, 2 * b])[rows]
        assert_array_equal(joined, expected)

    def test_zeros_stand_for_what_is_missing(self):
        host = idle_host(cache=False, n_rows=2)
        joined = host._join("hidden", torch.arange(2), {"a": np.ones((2, 1), bool)})
        assert joined.tolist() == [[True, False, False]] * 2

    def test_raise_names_party_and_epoch(self, cancer):
        estimator = classifier(
            parties=TWO_GUESTS,
            active="bank",
            failure=ClientFailures(1.0),
            missing_party="raise",
        )
        with pytest.raises(PartyError, match=r"'lab'.*epoch 2 of pretraining"):
            estimator.fit(*cancer)

    def test_no_failure_changes_nothing(self, cancer):
        X, y = cancer
        plain, guarded = (
            classifier(failure=failure).fit(X, y).predict_proba(X)
            for failure in (None, ClientFailures(0.0))
        )
        assert_array_equal(plain, guarded)

    def test_early_stopping_goes_back_with_parties_that_were_offline(self, cancer):
        X, y = cancer
        settings = {
            "parties": TWO_GUESTS,
            "active": "bank",
            "pretrain": False,
            "early_stopping": True,
            "n_iter_no_change": 3,
            "batch_size": 64,
            "failure": ClientFailures(0.6, random_state=0),
        }
        estimator = classifier(max_epochs=40, **settings).fit(X, y)
        curve = estimator.validation_loss_curve_
        best = int(np.argmin(curve))
        assert estimator.n_iter_ == best + 1 + 3 < 40
        assert {epoch > best + 1 for _, epoch, _ in estimator.failures_} == {
            True,
            False,
        }
        short = classifier(max_epochs=best + 1, **settings).fit(X, y)
        assert_array_equal(short.predict_proba(X), estimator.predict_proba(X))


@pytest.mark.parametrize(
    "design",
    [DESIGNS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in DESIGNS[1:])],
)
def test_early_stopping_of_pretraining(cancer, design):
    settings = {"early_stopping": True, "max_epochs": 1, "n_iter_no_change": 2}
    settings |= {"design": design, "batch_size": 64, "lr": 0.1}
    estimator = classifier(pretraining_epochs=60, **settings).fit(*cancer)
    curve = estimator.pretraining_validation_loss_curve_
    best = int(np.argmin(curve))
    assert len(curve) == len(estimator.pretraining_loss_curve_) == best + 1 + 2 < 60
    long, short = (
        models_before_finetuning(cancer, pretraining_epochs=n, **settings)
        for n in (60, best + 1)
    )
    for name, state in long.items():
        assert_same_state(state, short[name])


def test_same_seed_same_bytes(cancer, rng_guard):
    X, y = cancer
    first, second = (
        classifier(failure=ClientFailures(0.5)).fit(X, y) for _ in range(2)
    )
    assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert first.communication_.messages == second.communication_.messages
    other = classifier(random_state=1).fit(X, y)
    assert not np.array_equal(other.predict_proba(X), first.predict_proba(X))


@pytest.mark.parametrize("design", ["joint", "local"])
@pytest.mark.slow
def test_processes_give_the_same_bits(cancer, design):
    X, y = cancer
    local, apart = (
        classifier(
            design=design, early_stopping=True, max_epochs=1, transport=transport
        ).fit(X, y)
        for transport in ("local", "process")
    )
    assert_array_equal(local.predict_proba(X), apart.predict_proba(X))
    assert local.communication_.messages == apart.communication_.messages


def test_weights_of_rows_and_classes(cancer):
    X, y = cancer
    plain = classifier(pretrain=False).fit(X, y).predict_proba(X)
    threes = classifier(pretrain=False).fit(X, y, np.full(len(y), 3.0))
    assert_allclose(threes.predict_proba(X), plain, atol=1e-4)
    heavy = classifier(pretrain=False, class_weight={0: 9, 1: 1}).fit(X, y)
    rows = classifier(pretrain=False).fit(X, y, np.where(y == 0, 9.0, 1.0))
    assert_array_equal(heavy.predict_proba(X), rows.predict_proba(X))
    assert heavy.predict_proba(X)[:, 0].mean() > plain[:, 0].mean() + 0.03


def test_a_last_batch_or_virtual_batch_of_one_row(cancer):
    X, y = cancer
    for n_rows in (65, 129, 193):
        estimator = classifier(batch_size=64, virtual_batch_size=9)
        estimator.fit(X[:n_rows], y[:n_rows])
        assert np.isfinite(estimator.predict_proba(X)).all()


def test_constant_columns(cancer):
    X, y = cancer
    X = np.hstack([X, np.full((len(X), 4), 5.0)])
    estimator = classifier(parties=3, max_epochs=3).fit(X, y)
    assert min(estimator.pretraining_loss_curve_) > 0
    assert np.isfinite(estimator.predict_proba(X)).all()


def test_divergence_names_the_cure(cancer):
    estimator = classifier(lr=1e30, max_grad_norm=None, batch_size=64)
    with pytest.raises((ValueError, PartyError), match="lower the learning rate"):
        estimator.fit(*cancer)


def test_loss_curve_is_the_mean_over_weights(cancer):
    X, y = cancer
    weights = (np.arange(len(y)) < 2).astype(float)
    settings = {"pretrain": False, "lr": 1e-12, "max_epochs": 1}
    estimator = classifier(batch_size=16, **settings).fit(X, y, weights)
    assert estimator.loss_curve_[0] > 0.3


def test_a_model_spoilt_by_the_last_step_raises(cancer):
    estimator = classifier(pretrain=False, max_epochs=1, batch_size=1000, lr=1e38)
    with pytest.raises(ValueError, match="not finite after training"):
        estimator.fit(*cancer)


def arrays_in(value, seen=None):
    """Every array and tensor that can be reached."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, str | type):
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray | torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from arrays_in(each, seen)
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from arrays_in(each, seen)
    elif hasattr(value, "__dict__"):
        yield from arrays_in(vars(value), seen)


def test_no_row_is_left_in_a_fitted_estimator(cancer):
    estimator = classifier(failure=ClientFailures(0.5), early_stopping=True)
    estimator.fit(*cancer)
    lengths = {569, 569 - 57, 57}
    arrays = list(arrays_in(vars(estimator)))
    assert len(arrays) > 50
    for array in arrays:
        assert lengths.isdisjoint(array.shape)
        assert getattr(array, "grad", None) is None


GUEST = {
    "prepare": {"seed": 0, "share": 2},
    "begin_pretraining": {"n_train": 8},
    "begin_epoch": {"seed": 0, "n_train": 8},
    "begin_finetuning": {},
    "hide": {"start": 0, "stop": 4},
    "rebuild": {"partition": np.zeros((4, 2))},
    "adapt": {"gradient": np.zeros((4, 3))},
    "hide_held_out": {},
    "rebuild_held_out": {"start": 8, "stop": 9, "partition": np.zeros((1, 2))},
    "pretrain_alone": {"batch_size": 4, "n_train": 8},
    "evaluate_alone": {"start": 8, "stop": 9},
    "forward": {"start": 0, "stop": 4},
    "backward": {"gradient": np.zeros((4, 3))},
    "recall": {},
    "finish": {},
    "remember": {},
    "explain": {"start": 0, "stop": 4},
}
SENT = {"outputs": {"lab": np.zeros((4, 3), np.float32)}, "hidden": {}}
HOST = {
    "prepare_top": {"seed": 0, "n_columns": 3, "n_train": 8, "shares": {"lab": 6}},
    "begin_decoding": {"widths": {"lab": 3}},
    "begin_learning": {"widths": {"lab": 3}},
    "begin_epoch": {"seed": 0, "n_train": 8},
    "decode": {"start": 0, "stop": 4, **SENT},
    "correct": {"gradients": {"lab": np.zeros((4, 6))}},
    "decode_held_out": {"start": 4, "stop": 8, **SENT},
    "learn": {"start": 0, "stop": 4, "received": SENT["outputs"]},
    "evaluate": {"start": 4, "stop": 8, "received": SENT["outputs"]},
    "embed": {"received": SENT["outputs"]},
    "predict": {"received": SENT["outputs"]},
    "explain_received": {"received": SENT["outputs"]},
    "finish": {},
}


@pytest.mark.parametrize(
    ("done", "operation", "first"),
    [
        *[([], each, "prepare") for each in ("begin_pretraining", "begin_finetuning")],
        *[([], each, "prepare") for each in ("begin_epoch", "finish", "remember")],
        *[([], "explain", "prepare"), ([], "recall", "remember")],
        *[(["prepare"], each, "begin_epoch") for each in ("hide", "forward")],
        (["prepare"], "hide_held_out", "begin_pretraining"),
        (["prepare"], "rebuild_held_out", "begin_pretraining"),
        (["prepare"], "pretrain_alone", "begin_pretraining"),
        (["prepare"], "evaluate_alone", "begin_pretraining"),
        (["prepare", "begin_epoch"], "backward", "forward"),
        (["prepare", "begin_epoch"], "rebuild", "hide"),
        (["prepare", "begin_epoch"], "adapt", "hide"),
        (["prepare", "begin_epoch", "forward", "backward"], "backward", "forward"),
        (["prepare", "begin_epoch", "hide"], "rebuild", "begin_pretraining"),
        (
            ["prepare", "begin_pretraining", "begin_epoch", "hide", "begin_epoch"],
            "rebuild",
            "hide",
        ),
    ],
)
def test_a_guest_says_what_comes_first(done, operation, first):
    design = "local" if operation.endswith("alone") else "joint"
    block = np.random.default_rng(0).normal(size=(9, 3))
    guest = member("lab", block, design=design)
    for each in done:
        guest.perform(each, GUEST[each])
    with pytest.raises(PartyError, match=f"'lab': .*{first!r} comes first"):
        guest.perform(operation, GUEST[operation])


@pytest.mark.parametrize(
    ("done", "operation", "first"),
    [
        *[([], each, "prepare_top") for each in ("begin_decoding", "begin_learning")],
        *[([], each, "prepare_top") for each in ("begin_epoch", "finish", "embed")],
        *[([], each, "prepare_top") for each in ("predict", "explain_received")],
        *[([], each, "begin_epoch") for each in ("decode", "learn")],
        (["prepare_top", "begin_epoch"], "learn", "begin_learning"),
        (["prepare_top"], "evaluate", "begin_learning"),
        (["prepare_top", "begin_learning", "begin_epoch"], "decode", "begin_decoding"),
        (["prepare_top", "begin_learning"], "decode_held_out", "begin_decoding"),
        (["prepare_top", "begin_decoding", "begin_epoch"], "correct", "decode"),
        (
            ["prepare_top", "begin_decoding", "begin_epoch", "decode", "correct"],
            "correct",
            "decode",
        ),
    ],
)
def test_the_host_says_what_comes_first(done, operation, first):
    labels = Labels(np.arange(9) % 2, 2)
    host = member("bank", np.empty((9, 0)), labels)
    for each in done:
        host.perform(each, HOST[each])
    with pytest.raises(PartyError, match=f"'bank': .*{first!r} comes first"):
        host.perform(operation, HOST[operation])


def test_all_settings_can_be_said_in_words(cancer):
    """And parties of the words learn what those of the settings themselves learn."""
    X, y = cancer
    estimator = classifier(
        n_d=np.int64(6), gamma=np.float64(1.5), optimizer=torch.optim.SGD
    )
    estimator.fit(X, y)
    for name in ("party0", "party1", "somebody elsewhere"):
        words = estimator._settings(name).pack()
        assert {type(each) for each in words.values()} <= {*SAYABLE, dict}
        assert words["optimizer"] == {"name": "SGD"}
    assert estimator._settings("party0").role == "tabvfl.host"
    assert estimator._settings("party1").role == "tabvfl.guest"
    plain = classifier(gamma=1.5, optimizer=torch.optim.SGD).fit(X, y)
    assert_array_equal(plain.predict_proba(X), estimator.predict_proba(X))


SAYABLE = {str, int, float, bool, type(None)}


class _Operations(LocalTransport):
    """Notes what the parties are asked for."""

    def __init__(self):
        self.asked = set()

    def connect(self, parties, log, centre="server"):
        session = super().connect(parties, log, centre)
        exchange = session._exchange

        def note(requests, *args):
            self.asked |= {operation for operation, _ in requests.values()}
            return exchange(requests, *args)

        session._exchange = note
        return session


def test_too_many_parties_are_refused_before_anything_is_trained(cancer):
    """How many hold columns is known once all of them have opened the run."""
    transport = _Operations()
    estimator = classifier(n_d=2, parties=3, transport=transport)
    with pytest.raises(ValueError, match="raise n_d"):
        estimator.fit(*cancer)
    assert transport.asked == {"open"}
    estimator.set_params(n_d=3, max_epochs=1).fit(*cancer)
    assert "hide" in transport.asked


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_d": 2, "parties": 3}, "n_d=2 is less .* columns, 3"),
        ({"n_shared": 0, "n_independent": 0}, "leave no layer"),
        ({"early_stopping": True, "validation_fraction": 0.999}, "two rows"),
        ({"design": "central"}, "design"),
        ({"failure": 0.5}, "failure"),
    ],
)
def test_settings_that_cannot_work(cancer, settings, message):
    with pytest.raises(ValueError, match=message):
        classifier(**settings).fit(*cancer)


class _Script(LocalTransport):
    """Parties that do not answer some operations of some epochs in time."""

    timeout = 1.0

    def __init__(self, *late):
        self.late = late

    def connect(self, parties, log, centre="server"):
        session = super().connect(parties, log, centre)
        exchange, epochs, dropped = session._exchange, Counter(), set()

        def late():
            dropped.clear()
            return {name for name, when in self.late if when == epochs["begin_epoch"]}

        def drop_late(requests, skip_late):
            operations = {operation for operation, _ in requests.values()}
            epochs.update(operations & {"begin_epoch"})
            moment = (*operations, epochs["begin_epoch"])
            if skip_late:
                requests = {n: r for n, r in requests.items() if n not in dropped}
            replies = exchange(requests, skip_late)
            if skip_late:
                dropped.update(n for n, when in self.late if when == moment)
            return {n: reply for n, reply in replies.items() if n not in dropped}

        session._exchange, session.late = drop_late, late
        return session


class _Pausing(ProcessTransport):
    """Processes of which one stands still in the second epoch."""

    def connect(self, parties, log, centre="server"):
        session = super().connect(parties, log, centre)
        self.sessions = [*getattr(self, "sessions", []), session]
        return session

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **kwargs):
        pass

    def on_fit_task_end(self, estimator, context, **kwargs):
        session = self.sessions[-1]
        pid = session._processes["lab"].pid
        if len(estimator.loss_curve_) == 1:
            # Long enough for those who go on, also on a busy machine.
            session._timeout = 3
            os.kill(pid, signal.SIGSTOP)
        if len(estimator.loss_curve_) == 2:
            session._timeout = 60
            os.kill(pid, signal.SIGCONT)
            while session.late():
                time.sleep(0.01)

    def teardown(self, estimator, context):
        pass


class TestLateParties:
    SETTINGS = {"parties": TWO_GUESTS, "active": "bank", "max_epochs": 3}

    @pytest.mark.parametrize("missing_party", ["cache", "zero"])
    @pytest.mark.parametrize(
        "operation",
        [
            *["begin_epoch", "hide", "rebuild", "adapt", "remember"],
            *["hide_held_out", "rebuild_held_out"],
        ],
    )
    def test_pretraining_goes_on(self, cancer, operation, missing_party):
        transport = _Script(("lab", (operation, 2)))
        estimator = classifier(
            transport=transport,
            missing_party=missing_party,
            early_stopping=True,
            **self.SETTINGS,
        ).fit(*cancer)
        listed = [] if operation == "remember" else [("pretraining", 2, "lab")]
        assert estimator.failures_ == listed
        assert len(estimator.pretraining_loss_curve_) == 3
        plain = classifier(early_stopping=True, **self.SETTINGS).fit(*cancer)
        same = estimator.pretraining_loss_curve_ == plain.pretraining_loss_curve_
        assert same == (operation == "remember" or "held_out" in operation)

    @pytest.mark.parametrize("operation", ["forward", "backward", "represent"])
    @pytest.mark.parametrize("design", DESIGNS)
    def test_finetuning_goes_on(self, cancer, operation, design):
        estimator = classifier(
            transport=_Script(("lab", (operation, 2)), ("shop", (operation, 2))),
            pretrain=False,
            design=design,
            early_stopping=True,
            **self.SETTINGS,
        ).fit(*cancer)
        assert estimator.failures_ == [
            ("finetuning", 2, "lab"),
            ("finetuning", 2, "shop"),
        ]
        assert estimator.n_iter_ == 3
        assert np.isfinite(estimator.predict_proba(cancer[0])).all()

    def test_who_is_still_late_is_offline_like_who_fails(self, cancer):
        """The same models as after a simulated failure of the same epoch."""
        settings = {**self.SETTINGS, "max_epochs": 2, "pretrain": False}
        late = classifier(transport=_Script(("lab", 1), ("shop", 1)), **settings)
        failing = classifier(failure=ClientFailures(1.0), **settings)
        first, second = (each.fit(*cancer) for each in (late, failing))
        assert first.failures_ == second.failures_ != []
        assert_array_equal(
            first.predict_proba(cancer[0]), second.predict_proba(cancer[0])
        )

    @pytest.mark.parametrize(
        ("missing_party", "late", "message"),
        [
            ("raise", ("lab", 1), "'lab'.*epoch 2 of pretraining"),
            ("cache", ("lab", 0), "'lab'.*epoch 1 of pretraining"),
            ("zero", ("lab", 3), "'lab'.*epoch 1 of finetuning"),
        ],
    )
    def test_what_nothing_stands_for_raises(self, cancer, missing_party, late, message):
        estimator = classifier(
            transport=_Script(late), missing_party=missing_party, **self.SETTINGS
        )
        with pytest.raises(PartyError, match=message):
            estimator.fit(*cancer)

    def test_the_active_party_is_needed(self, cancer):
        estimator = classifier(transport=_Script(("party0", ("hide", 2))))
        with pytest.raises(PartyError, match="'party0': it did not answer in time"):
            estimator.fit(*cancer)

    @pytest.mark.slow
    def test_a_process_that_stands_still(self, cancer):
        """A guest stops for one epoch, and comes back."""
        transport = _Pausing(timeout=60)
        estimator = classifier(
            transport=transport,
            pretrain=False,
            parties=TWO_GUESTS,
            active="bank",
            max_epochs=4,
        )
        estimator.set_callbacks(transport).fit(*cancer)
        assert estimator.failures_ == [("finetuning", 2, "lab")]
        assert estimator.score(*cancer) > 0.5
