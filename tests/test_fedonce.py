import json
import os
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

from skvfl import (
    Contiguous,
    CorrelationSplit,
    FedOnceClassifier,
    FedOnceRegressor,
    ImportanceSplit,
    LocalTransport,
    NoiseAsTargetsEncoder,
    ProcessTransport,
    RandomFeaturesEncoder,
    VerticalPartitioner,
    compare,
    record_communication,
)
from skvfl._random import int_seed, seed_sequence
from skvfl.exceptions import (
    MissingPartyWarning,
    MissingRowsWarning,
    PartyError,
    PartyValueError,
    PrivacyBudgetError,
    PrivacyLeakWarning,
    SettingsError,
)
from skvfl.federation import CommunicationLog, Federation, Holding, Labels, Member
from skvfl.fedonce._budget import uncovered_guests
from skvfl.fedonce._parties import Drawn, GuestParty, GuestSettings, keyed_noise
from skvfl.fedonce._targets import NoiseTargets
from skvfl.nn._steps import batch_bounds, infer, public_order, tensor
from skvfl.privacy import SampledGaussian, account_privacy

PARTIES = {"bank": range(10), "shop": range(10, 18), "lab": range(18, 30)}
FAST = {"parties": PARTIES, "max_epochs": 3, "random_state": 0}


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True)


@pytest.fixture(scope="module")
def once(cancer):
    return FedOnceClassifier(**FAST).fit(*cancer)


class Recording(LocalTransport):
    """A local transport that notes every request and every reply."""

    notes = []

    def connect(self, parties, log, centre="server"):
        session = super().connect(parties, log, centre)
        exchange = session._exchange

        def noted(requests, *args):
            replies = exchange(requests, *args)
            for name, (operation, arguments) in requests.items():
                self.notes.append((name, operation, arguments, replies[name][0]))
            return replies

        session._exchange = noted
        return session


@pytest.fixture
def recording():
    Recording.notes.clear()
    yield Recording()
    Recording.notes.clear()


def of(notes, operation):
    return [(name, sent, reply) for name, op, sent, reply in notes if op == operation]


def test_one_message_from_every_guest_in_one_round(once, cancer):
    frame = once.communication_.to_frame()
    carrying = frame[frame["data_bearing"]]
    assert list(carrying["sender"]) == ["shop", "lab"]
    assert set(carrying["receiver"]) == {"bank"}
    crossing = frame[frame["sender"] != frame["receiver"]]
    assert list(crossing["operation"]) == 2 * (["open"] * 2 + ["learn"] * 2)
    assert (once.communication_.n_rounds, once.communication_.n_messages) == (1, 2)
    payload = 2 * len(cancer[0]) * 3 * 4
    n_opening = crossing[crossing["round"] == 0]["bytes"].sum()
    assert payload < once.communication_.n_bytes - n_opening < payload + 400
    assert 0 < n_opening < 2000


def test_guests_are_told_nothing(cancer, recording):
    """No label, no gradient, and nothing of each other: requests are bare words."""
    once = FedOnceClassifier(**FAST, transport=recording).fit(*cancer)
    once.predict(cancer[0])
    notes = [note for note in recording.notes if note[0] != "bank"]
    asked = [(op, sent) for _, op, sent, _ in notes if op != "open"]
    assert asked == [("learn", {})] * 2 + [("encode", {})] * 2
    shop, lab, *again = [sent for _, op, sent, _ in notes if op == "open"]
    assert shop == lab == json.loads(json.dumps(shop))
    assert again == [{"role": None}] * 2
    # The control: what the host is asked has arrays in it.
    assert any("received" in sent for name, _, sent, _ in recording.notes)


def test_joint_representation_is_the_hosts_then_the_guests(cancer):
    X, y = cancer
    parties = VerticalPartitioner("passthrough", parties=PARTIES)
    X = StandardScaler().fit_transform(X)
    once = FedOnceClassifier(
        local_encoder={"shop": PCA(2), "lab": FunctionTransformer(np.tanh)},
        **{**FAST, "parties": parties, "active": "bank"},
        cut_width=5,
    ).fit(X, y)
    joint = once.transform(X)
    assert joint.shape == (len(X), 5 + 2 + 12)
    shop, lab = (X[:, list(PARTIES[name])] for name in ("shop", "lab"))
    sent = np.hstack([PCA(2).fit_transform(shop), np.tanh(lab)])
    assert_allclose(joint[:, 5:], StandardScaler().fit_transform(sent), atol=1e-5)
    assert list(once.get_feature_names_out()) == [
        f"fedonceclassifier{i}" for i in range(19)
    ]


def test_what_is_sent_in_fit_is_what_is_sent_later(cancer, recording):
    once = FedOnceClassifier(**FAST, representation_noise=0.5, transport=recording).fit(
        *cancer
    )
    once.predict(cancer[0])
    for (_, _, learnt), (_, _, encoded) in zip(
        of(recording.notes, "learn"), of(recording.notes, "encode"), strict=True
    ):
        assert_array_equal(learnt, encoded)


def test_default_guests_train_as_the_estimator_says(once, cancer):
    settings = {"max_epochs": 4, "batch_size": 50, "lr": 0.01, "weight_decay": 0.1}
    once = FedOnceClassifier(**{**FAST, **settings}).fit(*cancer)
    for name in ("shop", "lab"):
        params = once._parties[name]._encoder.get_params()
        assert {key: params[key] for key in settings} == settings
    seeds = {once._parties[name]._encoder.random_state for name in ("shop", "lab")}
    assert len(seeds) == 2


@pytest.mark.parametrize(
    ("guest", "message"),
    [
        ({"shop": PCA(2)}, r"lacks \['lab'\]"),
        (
            {"shop": PCA(2), "lab": PCA(2), "spa": PCA(2)},
            r"local_encoder names \['spa'\]",
        ),
    ],
)
def test_guests_by_name_must_be_the_guests(cancer, guest, message):
    with pytest.raises(ValueError, match=message):
        FedOnceClassifier(**FAST, local_encoder=guest).fit(*cancer)


def test_prediction_is_one_round(once, cancer):
    with record_communication() as log:
        once.predict_proba(cancer[0])
    assert (log.n_rounds, log.n_messages) == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [{}, {"epsilon": 5.0, "representation_noise": 0.1}])
def test_processes_give_the_same_bits(cancer, budget):
    X, y = cancer
    local, apart = (
        FedOnceClassifier(
            parties=2,
            max_epochs=2,
            n_split_epochs=1,
            n_jobs=2,
            transport=way,
            random_state=0,
            **budget,
        ).fit(X, y)
        for way in ("local", "process")
    )
    assert local.communication_.messages == apart.communication_.messages
    if budget:
        assert local.epsilon_spent_ == apart.epsilon_spent_
    assert_array_equal(local.predict_proba(X), apart.predict_proba(X))


def test_guests_at_the_same_time_give_the_same_bits(once, cancer):
    X, y = cancer
    threads = FedOnceClassifier(**FAST, n_jobs=2).fit(X, y)
    assert_array_equal(threads.predict_proba(X), once.predict_proba(X))
    assert threads.communication_.messages == once.communication_.messages


def test_scores_on_several_tasks(cancer):
    once = FedOnceClassifier(parties=4, random_state=0).fit(*cancer)
    assert once.score(*cancer) > 0.97
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    iris = FedOnceClassifier(batch_size=16, random_state=0).fit(X, names)
    assert iris.score(X, names) > 0.95
    assert_allclose(iris.predict_proba(X).sum(axis=1), 1)
    X, y = load_diabetes(return_X_y=True)
    diabetes = FedOnceRegressor(parties=3, random_state=0).fit(X, y)
    assert diabetes.score(X, y) > 0.5
    assert diabetes.predict(X).mean() == pytest.approx(y.mean(), rel=0.05)


def test_regression_does_not_depend_on_the_targets_units():
    X, y = load_diabetes(return_X_y=True)
    plain, scaled = (
        FedOnceRegressor(max_epochs=3, random_state=0).fit(X, target).predict(X)
        for target in (y, 1e6 * y - 3e8)
    )
    assert_allclose(1e6 * plain - 3e8, scaled, rtol=1e-4)


def test_guests_contribute_what_the_host_lacks():
    X, y = load_digits(return_X_y=True)
    settings = {"batch_size": 32, "lr": 0.01, "max_epochs": 15, "random_state": 0}
    parties = {"host": range(16), "guest": range(16, 64)}
    both = FedOnceClassifier(parties=parties, local_encoder=PCA(16), **settings).fit(
        X, y
    )
    alone = FedOnceClassifier(parties={"host": range(16)}, **settings)
    assert both.score(X, y) > 0.95
    assert alone.fit(X[:, :16], y).score(X[:, :16], y) < 0.85


def test_host_may_hold_no_column(cancer):
    X, y = cancer
    parties = {"bank": [], "lab": range(15), "shop": range(15, 30)}
    once = FedOnceClassifier(
        parties=parties, active="bank", local_encoder=PCA(3), lr=0.01, random_state=0
    ).fit(X, y)
    assert once.score(X, y) > 0.93
    assert once.transform(X).shape == (len(X), 6)
    for settings in ({}, {"epsilon": 20.0}):
        more = FedOnceClassifier(
            parties=parties, max_epochs=10, n_split_epochs=5, random_state=0, **settings
        ).fit(X, y)
        assert more.score(X, y) > 0.8


def test_weights_of_rows_and_classes(cancer):
    X, y = cancer
    settings = {**FAST, "max_epochs": 5, "batch_size": 600, "local_encoder": PCA(2)}
    plain = FedOnceClassifier(**settings).fit(X, y).predict_proba(X)
    ones = FedOnceClassifier(**settings).fit(X, y, np.full(len(y), 3.0))
    assert_allclose(ones.predict_proba(X), plain, atol=1e-5)
    heavy = FedOnceClassifier(class_weight={0: 9, 1: 1}, **settings).fit(X, y)
    rows = FedOnceClassifier(**settings).fit(X, y, np.where(y == 0, 9.0, 1.0))
    assert_array_equal(heavy.predict_proba(X), rows.predict_proba(X))
    assert heavy.predict_proba(X)[:, 0].mean() > plain[:, 0].mean() + 0.02


def test_tables_of_every_kind_give_the_same_model(once, cancer):
    X, y = cancer
    names = [f"c{i}" for i in range(30)]
    frame = pd.DataFrame(X, columns=names)
    parties = {party: [names[i] for i in held] for party, held in PARTIES.items()}
    for table in (frame, pl.DataFrame(X, schema=names)):
        other = FedOnceClassifier(**{**FAST, "parties": parties}).fit(table, y)
        assert_array_equal(other.predict_proba(table), once.predict_proba(X))
    out = other.set_output(transform="pandas").transform(frame)
    assert list(out.columns) == list(once.get_feature_names_out())


def test_pipelines_and_searches(cancer):
    X, y = cancer
    model = make_pipeline(StandardScaler(), FedOnceClassifier(max_epochs=10))
    model.set_params(fedonceclassifier__random_state=0)
    assert cross_val_score(model, X, y, cv=2).mean() > 0.9
    grid = {"local_encoder__n_components": [1, 3], "max_epochs": [2]}
    once = FedOnceClassifier(
        local_encoder=NoiseAsTargetsEncoder(max_epochs=2), random_state=0
    )
    search = GridSearchCV(once, grid, cv=2)
    assert search.fit(X, y).best_params_["local_encoder__n_components"] in (1, 3)
    assert (
        search.best_estimator_.transform(X).shape[1]
        == 32 + search.best_params_["local_encoder__n_components"]
    )


def test_no_row_and_no_seed_is_left_in_a_fitted_estimator(cancer):
    X, y = cancer
    once = FedOnceClassifier(
        **{**FAST, "random_state": None}, epsilon=5.0, n_split_epochs=1
    ).fit(X, y)
    assert all(not party._states for party in once._parties.values())
    pickled = pickle.dumps(once)
    assert b"SeedSequence" not in pickled
    assert X[7, :10].tobytes() not in pickled
    assert_array_equal(pickle.loads(pickled).predict(X), once.predict(X))


class Recorder:
    def __init__(self):
        self.tasks = []

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.tasks.append(context.task_name)
        return self.tasks.count("split epoch") == 2

    def teardown(self, estimator, context):
        pass


def test_callbacks_see_the_round_and_the_epochs_and_may_stop(cancer):
    recorder = Recorder()
    once = FedOnceClassifier(**FAST, n_split_epochs=5).set_callbacks(recorder)
    once.fit(*cancer)
    epochs = ["epoch"] * 3 + ["split epoch"] * 2
    assert recorder.tasks == ["one round", *epochs, "fit"]
    assert (once.n_iter_, len(once.loss_curve_), len(once.bytes_curve_)) == (3, 5, 3)


def test_early_stopping_holds_rows_out(cancer):
    once = FedOnceClassifier(
        **{**FAST, "max_epochs": 60, "lr": 0.05},
        local_encoder=PCA(2),
        early_stopping=True,
        n_iter_no_change=3,
    ).fit(*cancer)
    curve = once.validation_loss_curve_
    assert once.n_iter_ == len(curve) == len(once.loss_curve_) < 60
    assert len(curve) - 1 - int(np.argmin(curve)) == 3


class Dropping(nn.Sequential):
    def __init__(self, n_inputs, n_outputs):
        super().__init__(
            nn.Linear(n_inputs, 16),
            nn.BatchNorm1d(16),
            nn.Dropout(),
            nn.Linear(16, n_outputs),
        )


def test_own_modules_draw_from_the_parties_streams(cancer, rng_guard):
    X, y = cancer
    settings = {
        **FAST,
        "bottom": Dropping,
        "top": Dropping,
        "local_encoder": NoiseAsTargetsEncoder(
            hidden_layer_sizes=Dropping, max_epochs=2
        ),
        "batch_size": 71,
        "n_split_epochs": 2,
    }
    first, second = (FedOnceClassifier(**settings).fit(X, y) for _ in range(2))
    assert_array_equal(first.predict_proba(X), second.predict_proba(X))


def test_own_modules_of_guests_that_work_at_the_same_time(cancer, rng_guard):
    X, y = cancer
    guest = NoiseAsTargetsEncoder(
        hidden_layer_sizes=Dropping, max_epochs=4, batch_size=20
    )
    settings = {
        "parties": 6,
        "local_encoder": guest,
        "max_epochs": 1,
        "random_state": 0,
    }
    alone, together = (
        FedOnceClassifier(**settings, n_jobs=n_jobs).fit(X, y) for n_jobs in (None, 5)
    )
    assert_array_equal(together.predict_proba(X), alone.predict_proba(X))


def test_budgets_can_be_compared(cancer):
    models = {"private": FedOnceClassifier(max_epochs=1, epsilon=5.0)}
    frame = compare(
        models, *cancer, parties=PARTIES, active="bank", cv=2, random_state=0
    )
    assert 2.5 <= frame.loc["private", "epsilon"] <= 5


def test_a_loss_that_is_not_finite_raises(cancer):
    once = FedOnceClassifier(
        **FAST, lr=1e30, optimizer=torch.optim.SGD, local_encoder=PCA(2)
    )
    with pytest.raises(PartyValueError, match="not finite"):
        once.fit(*cancer)


# What arrives is standardised


def affine(factor, offset):
    return FunctionTransformer(lambda rows: np.tanh(rows[:, :2]) * factor + offset)


@pytest.mark.parametrize("n_split_epochs", [0, 1])
def test_every_number_that_arrives_is_standardised(cancer, n_split_epochs):
    """By its mean and deviation over the rows of the one round, for good."""
    X, y = cancer
    settings = {**FAST, "n_split_epochs": n_split_epochs, "lr": 1e-12}
    joint = FedOnceClassifier(**settings).fit(X, y).transform(X)[:, 32:]
    assert joint.dtype == np.float32
    assert_allclose(joint.mean(axis=0, dtype=float), np.zeros(6), atol=1e-5)
    assert_allclose(joint.std(axis=0, dtype=float), np.ones(6), atol=1e-5)


def test_rows_to_be_served_are_standardised_as_those_of_the_round(once, cancer):
    X, _ = cancer
    assert_array_equal(once.transform(X[:7]), once.transform(X)[:7])
    assert np.abs(once.transform(X[:7])[:, 32:].mean(axis=0)).max() > 0.1


@pytest.mark.parametrize(("factor", "offset"), [(1e4, 0), (1e-4, 0), (1, 50)])
@pytest.mark.parametrize(
    "estimator", [FedOnceClassifier, FedOnceRegressor], ids=["classes", "numbers"]
)
def test_units_of_a_representation_do_not_matter(cancer, estimator, factor, offset):
    X, y = cancer
    plain, other = (
        estimator(**FAST, local_encoder=affine(*units)).fit(X, y)
        for units in ((1, 0), (factor, offset))
    )
    assert_allclose(other.transform(X), plain.transform(X), atol=1e-3)
    assert_allclose(other.loss_curve_, plain.loss_curve_, rtol=1e-3)


def test_the_mean_stands_for_a_missing_guest_wherever_its_zero_is(cancer):
    X, y = cancer
    gone = X.copy()
    gone[:, list(PARTIES["lab"])] = np.nan
    seen = []
    for offset in (0, 50):
        once = FedOnceClassifier(
            **FAST, local_encoder=affine(1, offset), missing_party="zero"
        )
        with pytest.warns(MissingPartyWarning):
            seen.append(once.fit(X, y).transform(gone))
    assert_allclose(seen[1], seen[0], atol=1e-3)
    assert_array_equal(seen[1][:, -2:], 0)
    assert np.abs(seen[1][:, -4:-2]).max() > 1


def test_a_missing_guest_next_to_a_host_without_columns(cancer):
    X, y = cancer
    parties = {"bank": [], "lab": range(15), "shop": range(15, 30)}
    once = FedOnceClassifier(**{**FAST, "parties": parties}, missing_party="zero")
    with pytest.warns(MissingPartyWarning, match="2 of 2"):
        joint = once.fit(X, y).transform(np.full_like(X[:4], np.nan))
    assert_array_equal(joint, np.zeros((4, 6)))


def test_numbers_that_hardly_differ_are_not_blown_up(cancer):
    X, y = cancer
    rounding = np.where(np.arange(len(X)) % 2, 1, 1 + 2.0**-23).astype(np.float32)

    def degenerate(rows):
        ones = np.ones(len(rows), np.float32)
        return np.c_[0 * ones, 7 * ones, rounding[: len(rows)], 1e-42 * rounding]

    once = FedOnceClassifier(**FAST, local_encoder=FunctionTransformer(degenerate)).fit(
        X, y
    )
    assert np.abs(once.transform(X)[:, 32:]).max() < 1e-6
    assert np.isfinite(once.predict_proba(X)).all()


def test_weights_have_no_part_in_it(cancer):
    """Parties do not know them, and scale their own columns without them, too."""
    X, y = cancer
    settings = {**FAST, "local_encoder": PCA(2)}
    weights = np.where(y == 0, 9.0, 0.1)
    plain, weighted = (
        FedOnceClassifier(**settings).fit(X, y, each).transform(X)[:, 32:]
        for each in (None, weights)
    )
    assert_array_equal(weighted, plain)


def test_noise_on_representations_comes_first(cancer, recording):
    once = FedOnceClassifier(
        **FAST, local_encoder=PCA(2), representation_noise=3.0, transport=recording
    ).fit(*cancer)
    sent = np.hstack([reply for *_, reply in of(recording.notes, "learn")])
    joint = once.transform(cancer[0])[:, 32:]
    assert_allclose(joint, StandardScaler().fit_transform(sent), atol=1e-5)


@pytest.mark.parametrize("n_split_epochs", [0, 1])
def test_with_a_budget_nothing_at_the_host_depends_on_rows_without_noise(
    cancer, recording, n_split_epochs
):
    """Means of what arrived would be a release: they are kept without a budget only."""
    X, y = cancer
    settings = {**FAST, "n_split_epochs": n_split_epochs, "transport": recording}
    for epsilon in (None, 5.0):
        recording.notes.clear()
        once = FedOnceClassifier(**settings, epsilon=epsilon).fit(X, y)
        learnt = of(recording.notes, "learn")
        sent = [reply for name, _, reply in learnt if name != "bank"]
        pickled = pickle.dumps(once._parties["bank"])
        means = [each.mean(axis=0, dtype=float) for each in sent]
        found = [mean.astype(np.float32).tobytes() in pickled for mean in means]
        assert found == [epsilon is None] * 2
        if epsilon is not None and not n_split_epochs:
            assert_array_equal(once.transform(X)[:, 32:], np.hstack(sent))


@pytest.mark.slow
def test_accuracy_on_digits_of_eight_parties():
    """85.6 % in the mean before what arrives was standardised, 87.2 % since."""
    X, y = load_digits(return_X_y=True)
    scores = []
    for seed in range(3):
        train, test, y_train, y_test = train_test_split(X, y, random_state=seed)
        once = FedOnceClassifier(parties=8, max_epochs=20, random_state=seed)
        scores.append(once.fit(train, y_train).score(test, y_test))
    assert np.mean(scores) > 0.86


# Multi-round


def joint_epoch(once, X, y, optimizer, lr):
    """One epoch of the unsplit network of a fitted model, in one place."""
    to_rows = seed_sequence(once.random_state).spawn(6)[4]
    to_table, to_epochs = to_rows.spawn(2)
    order = public_order(int_seed(to_table), len(X))
    host, *guests = once._parties.values()
    blocks = once.partition_.split(X)
    inputs = [
        tensor(party._transformer.transform(blocks[party.name]))
        for party in (host, *guests)
    ]
    sent = [
        infer(guest._encoder.module_, held).float().numpy()
        for guest, held in zip(guests, inputs[1:], strict=True)
    ]
    means, deviations = (
        [tensor(f(each, axis=0, dtype=np.float64)) for each in sent]
        for f in (np.mean, np.std)
    )
    inputs = [held[order] for held in inputs]
    labels = torch.from_numpy(y)[order]
    networks = [host._bottom, *(guest._encoder.module_ for guest in guests)]
    parameters = [p for m in (*networks, host._top) for p in m.parameters()]
    steps = optimizer(parameters, lr=lr)
    for module in (*networks, host._top):
        module.train()
    shuffled = public_order(int_seed(to_epochs.spawn(1)[0]), len(X))
    for start, stop in batch_bounds(len(X), once.batch_size):
        rows = shuffled[start:stop]
        steps.zero_grad()
        cuts = [m(x[rows]) for m, x in zip(networks, inputs, strict=True)]
        cuts[1:] = [
            (cut - mean) / deviation
            for cut, mean, deviation in zip(cuts[1:], means, deviations, strict=True)
        ]
        outputs = host._top(torch.cat(cuts, dim=1))
        nn.functional.cross_entropy(outputs, labels[rows]).backward()
        steps.step()
    return networks, host._top


def test_a_split_epoch_equals_joint_training_bit_for_bit(cancer):
    X, y = cancer
    settings = {**FAST, "optimizer": torch.optim.SGD, "lr": 0.1}
    joint = FedOnceClassifier(**settings).fit(X, y)
    networks, top = joint_epoch(joint, X, y, torch.optim.SGD, 0.1)
    split = FedOnceClassifier(**settings, n_split_epochs=1).fit(X, y)
    host, *guests = split._parties.values()
    trained = [host._bottom, *(g._encoder.module_ for g in guests), host._top]
    for ours, theirs in zip(trained, (*networks, top), strict=True):
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(mine, other)


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("activation", ["tanh", "identity"])
def test_split_learning_begins_where_the_one_round_ended(
    cancer, recording, noise, activation
):
    """The same networks with the same last activation, on the same rows."""
    X, y = cancer
    guest = NoiseAsTargetsEncoder(output_activation=activation, max_epochs=3)
    FedOnceClassifier(
        **FAST,
        local_encoder=guest,
        n_split_epochs=1,
        batch_size=len(X),
        representation_noise=noise,
        transport=recording,
    ).fit(X, y)
    learnt = {name: reply for name, _, reply in of(recording.notes, "learn")}
    forward = of(recording.notes, "forward")
    assert {name for name, *_ in forward} == {"shop", "lab"}
    for name, _, reply in forward:
        first = np.sort(learnt[name], axis=0)
        assert_allclose(np.sort(reply, axis=0), first, atol=1e-6)


def test_split_epochs_cost_what_split_learning_costs(cancer):
    """Equation 10 of the APC-VFL paper, after one message per guest."""
    X, y = cancer
    log = (
        FedOnceClassifier(**FAST, batch_size=100, n_split_epochs=2)
        .fit(X, y)
        .communication_
    )
    steps = 2 * 6
    assert log.n_messages == 2 + 2 * steps * 2
    crossing = [m for m in log.messages if m.sender != m.receiver]
    assert {m.operation for m in crossing if m.round == 1} == {"learn"}
    later = {m.operation for m in log.messages if m.round > 1 and m.data_bearing}
    assert later == {"forward", "backward"}


def test_a_learning_curve_needs_one_seed(once, cancer):
    X, y = cancer
    curve = [once] + [
        FedOnceClassifier(**FAST, n_split_epochs=n).fit(X, y) for n in (1, 2)
    ]
    longest = curve[-1]
    assert len(longest.bytes_curve_) == 3
    for n, fitted in enumerate(curve):
        assert fitted.bytes_curve_ == longest.bytes_curve_[: n + 1]
        assert fitted.loss_curve_ == longest.loss_curve_[: 3 + n]
        assert fitted.bytes_curve_[-1] == fitted.communication_.n_bytes
    assert longest.loss_curve_[-1] < longest.loss_curve_[2]


def test_weights_count_in_split_epochs_too(cancer):
    X, y = cancer
    settings = {**FAST, "n_split_epochs": 2, "batch_size": 600, "lr": 0.01}
    plain = FedOnceClassifier(**settings).fit(X, y).predict_proba(X)
    ones = FedOnceClassifier(**settings).fit(X, y, np.full(len(y), 3.0))
    assert_allclose(ones.predict_proba(X), plain, atol=1e-5)
    first = {**settings, "n_split_epochs": 0}
    once, more = (
        FedOnceClassifier(class_weight={0: 9, 1: 1}, **each).fit(X, y)
        for each in (first, settings)
    )
    heavy = nn.CrossEntropyLoss(torch.tensor([9.0, 1.0]))
    outputs = torch.from_numpy(np.log(once.predict_proba(X)))
    expected = heavy(outputs.float(), torch.from_numpy(y)).item()
    assert more.loss_curve_[3] == pytest.approx(expected, rel=1e-3)


def test_guests_without_a_network_cannot_go_on(cancer):
    guest = {"shop": NoiseAsTargetsEncoder(max_epochs=1), "lab": PCA(2)}
    with pytest.raises(ValueError, match="PCA of guest 'lab' has none"):
        FedOnceClassifier(**FAST, local_encoder=guest, n_split_epochs=1).fit(*cancer)


# Parties that do not answer


class Absent(TransformerMixin, BaseEstimator):
    """Fails in one of its methods."""

    def __init__(self, fails="fit", error=RuntimeError):
        self.fails = fails
        self.error = error

    def fit(self, X, y=None):
        if self.fails == "fit":
            raise self.error("no answer")
        return self

    def transform(self, X):
        if self.fails == "die":
            os._exit(3)
        return np.tanh(X[:, :2])

    def fit_transform(self, X, y=None):
        return np.tanh(self.fit(X).transform(X)) if self.fails == "fit" else X[:, :2]


def guests(**settings):
    return {"shop": Absent(**settings), "lab": PCA(2)}


def test_a_missing_guest_raises_and_the_message_names_the_cure(cancer):
    once = FedOnceClassifier(**FAST, local_encoder=guests())
    with pytest.raises(PartyError, match=r"'shop'.*missing_party='zero'"):
        once.fit(*cancer)


def test_a_guest_missing_in_fit_has_no_part_in_the_model(cancer):
    X, y = cancer
    once = FedOnceClassifier(**FAST, local_encoder=guests(), missing_party="zero")
    with pytest.warns(MissingPartyWarning, match="1 of 2 guests .*'shop'"):
        once.fit(X, y)
    assert once.answered_ == ["lab"]
    assert once.transform(X).shape == (len(X), 32 + 2)
    everybody = FedOnceClassifier(**FAST, local_encoder=PCA(2)).fit(X, y)
    assert everybody.answered_ == ["shop", "lab"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        once.predict(X)


def test_zeros_stand_for_a_guest_that_holds_nothing_later(cancer):
    X, y = cancer
    once = FedOnceClassifier(**FAST, local_encoder=PCA(2)).fit(X, y)
    joint = once.transform(X)
    gone = X.copy()
    gone[:, list(PARTIES["lab"])] = np.nan
    with pytest.raises(PartyError, match="'lab': it holds no value of any row"):
        once.predict(gone)
    once.set_params(missing_party="zero")
    with pytest.warns(MissingPartyWarning, match="'lab'"):
        without = once.transform(gone)
    assert_array_equal(without[:, :-2], joint[:, :-2])
    assert_array_equal(without[:, -2:], 0)
    with pytest.warns(MissingPartyWarning, match="'lab'"):
        probabilities = once.predict_proba(gone)
    assert_allclose(probabilities.sum(axis=1), 1)
    assert once.answered_ == ["shop", "lab"]


def test_a_guest_that_holds_some_rows_answers(once, cancer):
    X = cancer[0].copy()
    X[1:, list(PARTIES["lab"])] = np.nan
    with pytest.warns(MissingRowsWarning, match="'lab': it holds no value of 568 of"):
        assert np.isfinite(once.predict_proba(X)).all()


@pytest.mark.slow
def test_a_dead_process_is_a_missing_guest(cancer):
    X, y = cancer
    once = FedOnceClassifier(
        **{**FAST, "parties": {"bank": range(15), "shop": range(15, 30)}},
        local_encoder=Absent(fails="die"),
        missing_party="zero",
    )
    once.fit(X, y).set_params(transport=ProcessTransport(timeout=100))
    with pytest.warns(MissingPartyWarning, match="'shop': its process ended"):
        once.predict(X)


def test_a_guest_that_refuses_its_input_is_an_error_in_any_case(cancer):
    once = FedOnceClassifier(
        **FAST, local_encoder=guests(error=ValueError), missing_party="zero"
    )
    with pytest.raises(PartyValueError, match="'shop'"):
        once.fit(*cancer)


@pytest.mark.filterwarnings("ignore::skvfl.exceptions.MissingPartyWarning")
def test_somebody_has_to_hold_something(cancer):
    once = FedOnceClassifier(
        parties={"bank": [], "shop": range(30)},
        local_encoder=Absent(),
        missing_party="zero",
    )
    with pytest.raises(ValueError, match="no guest answered, and the host 'bank'"):
        once.fit(*cancer)


@pytest.mark.filterwarnings("ignore::skvfl.exceptions.MissingPartyWarning")
def test_split_learning_goes_on_without_a_missing_guest(cancer):
    X, y = cancer
    X = X.copy()
    X[:, list(PARTIES["shop"])] = np.nan
    once = FedOnceClassifier(**FAST, missing_party="zero", n_split_epochs=1).fit(X, y)
    assert once.answered_ == ["lab"]
    frame = once.communication_.to_frame()
    shop = frame[(frame["sender"] == "shop") | (frame["receiver"] == "shop")]
    assert list(shop["operation"]) == ["open"] * 2
    assert set(frame[frame["round"] == 0]["operation"]) == {"open"}
    assert (frame["receiver"] == "lab").sum() > 10


# Noise on representations


def test_noise_has_the_deviation_asked_for_and_differs_between_guests(
    cancer, recording
):
    for noise in (0.0, 0.7):
        FedOnceClassifier(
            **FAST,
            local_encoder=PCA(3),
            representation_noise=noise,
            transport=recording,
        ).fit(*cancer)
    sent = [reply for *_, reply in of(recording.notes, "learn")]
    noise = np.hstack(sent[2:]) - np.hstack(sent[:2])
    assert noise.std(axis=0) == pytest.approx([0.7] * 6, rel=0.1)
    assert np.abs(np.corrcoef(noise.T) - np.eye(6)).max() < 0.15


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_keyed_noise_is_finite_whatever_the_digest(byte, monkeypatch):
    class Constant:
        def __init__(self, _):
            pass

        def digest(self, n_bytes):
            return byte * n_bytes

    monkeypatch.setattr("hashlib.shake_256", Constant)
    noise = keyed_noise(b"k" * 32, np.eye(2), 3)
    assert np.isfinite(noise).all()
    assert (abs(noise) > 8).all()


def test_noise_is_a_secret_function_of_the_row():
    rows = np.random.default_rng(0).normal(size=(4000, 3)).astype(np.float32)
    noise = keyed_noise(b"k" * 32, rows, 5)
    assert noise.shape == (4000, 5)
    assert_array_equal(keyed_noise(b"k" * 32, rows[[7, 7, 9]], 5), noise[[7, 7, 9]])
    both = np.hstack([noise, keyed_noise(b"j" * 32, rows, 5)])
    assert np.abs(np.corrcoef(both.T) - np.eye(10)).max() < 0.07
    assert_allclose(both.mean(axis=0), 0, atol=0.06)
    assert_allclose(both.std(axis=0), 1, atol=0.05)


def test_noise_is_the_same_for_both_zeros():
    """They are equal, so that noise must not tell them apart."""
    zeros, key = np.zeros((1, 2)), bytes(32)
    assert_array_equal(keyed_noise(key, zeros, 3), keyed_noise(key, -zeros, 3))


# A budget of differential privacy


@pytest.mark.parametrize(
    ("accountant", "division", "batch_size"),
    [("rdp", "moments", 50), ("rdp", "naive", 50), ("pld", "moments", 600)],
)
def test_a_budget_is_a_ceiling(cancer, accountant, division, batch_size):
    guest = NoiseAsTargetsEncoder(max_epochs=1, batch_size=batch_size, lr=0.5)
    once = FedOnceClassifier(
        **FAST,
        local_encoder=guest,
        batch_size=batch_size,
        epsilon=3.0,
        delta=1e-4,
        accountant=accountant,
        division=division,
    ).fit(*cancer)
    spent = once.epsilon_spent_
    assert 1.5 <= spent.epsilon <= 3
    assert (spent.delta, spent.accountant, spent.division) == (
        1e-4,
        accountant,
        division,
    )
    again = account_privacy(spent.runs, 1e-4, accountant=accountant, division=division)
    assert again.epsilon == spent.epsilon
    assert list(spent.parties) == ["shop", "lab", "bank"]


def test_steps_and_rates_are_those_of_every_party(cancer):
    guest = NoiseAsTargetsEncoder(max_epochs=2, batch_size=50)
    once = FedOnceClassifier(**FAST, local_encoder=guest, batch_size=100, epsilon=3.0)
    runs = once.fit(*cancer).epsilon_spent_.runs
    shape = [(run.parties, run.steps, run.sampling_rate) for run in runs]
    assert shape == [
        (("shop",), 2 * 12, 50 / 569),
        (("lab",), 2 * 12, 50 / 569),
        (("bank",), 3 * 6, 100 / 569),
    ]


def test_guests_that_learn_nothing_leave_the_budget_to_the_host(cancer):
    once = FedOnceClassifier(**FAST, epsilon=2.0).fit(*cancer)
    spent = once.epsilon_spent_
    assert list(spent.parties) == ["bank"]
    assert spent.epsilon == pytest.approx(2, rel=0.01)
    encoders = [once._parties[name]._encoder for name in ("shop", "lab")]
    assert all(isinstance(each, RandomFeaturesEncoder) for each in encoders)
    scaling, _, shop, _, _ = spent.not_covered
    assert "the representation of every row that is sent to the host" in scaling
    assert shop.startswith("The columns of 'shop': there are 8 of them")
    assert "not covered: The columns of 'lab'" in repr(spent)
    narrow = FedOnceClassifier(
        **FAST, local_encoder=RandomFeaturesEncoder(7), epsilon=2.0
    )
    spent = narrow.fit(*cancer).epsilon_spent_
    assert not any("columns of" in sentence for sentence in spent.not_covered)


def test_a_private_model_learns(cancer):
    once = FedOnceClassifier(parties=PARTIES, epsilon=8.0, random_state=0)
    assert once.fit(*cancer).score(*cancer) > 0.94
    X, y = load_diabetes(return_X_y=True)
    diabetes = FedOnceRegressor(parties=3, epsilon=8.0, lr=0.1, random_state=0)
    assert diabetes.fit(X, y).score(X, y) > 0.3


def test_what_the_guarantee_does_not_cover_is_said(cancer):
    guest = {"shop": PCA(2), "lab": NoiseAsTargetsEncoder(max_epochs=1)}
    once = FedOnceClassifier(
        **FAST, local_encoder=guest, class_weight="balanced", epsilon=3.0
    )
    with pytest.warns(PrivacyLeakWarning, match="The PCA of guest 'shop'"):
        once.fit(*cancer)
    *others, seed = once.epsilon_spent_.not_covered
    scaling, classes, weights, pca, assignment = others
    assert "scales" in scaling
    assert classes == "The list of classes."
    assert weights == "The weights of the classes."
    assert pca == "The PCA of guest 'shop', which is fitted without noise."
    assert assignment.startswith("The assignment of targets at guest 'lab'")
    assert "the same random_state" in seed
    unseeded = FedOnceClassifier(parties=PARTIES, max_epochs=1, epsilon=3.0)
    spent = unseeded.fit(*cancer).epsilon_spent_
    assert not any("random_state" in sentence for sentence in spent.not_covered)


@pytest.mark.parametrize(
    "encoder",
    [
        RandomFeaturesEncoder(),
        NoiseAsTargetsEncoder(update_every=None),
        NoiseAsTargetsEncoder(targets="projection"),
        NoiseAsTargetsEncoder(max_epochs=0),
    ],
    ids=["public", "fixed targets", "own targets", "untrained"],
)
def test_guests_whose_bound_holds(encoder):
    assert list(uncovered_guests({"lab": encoder})) == []


class Derived(NoiseAsTargetsEncoder):
    pass


@pytest.mark.parametrize(
    ("parties", "told"),
    [
        (PARTIES, False),
        (3, False),
        (Contiguous(3), False),
        (ImportanceSplit(3), True),
        (CorrelationSplit(3), True),
    ],
)
def test_columns_that_were_dealt_by_looking_at_rows_are_not_covered(
    cancer, parties, told
):
    once = FedOnceClassifier(parties=parties, max_epochs=1, epsilon=2.0).fit(*cancer)
    sentences = once.epsilon_spent_.not_covered
    assert any("Who holds which columns" in each for each in sentences) == told


def test_an_encoder_of_ones_own_is_not_covered():
    (sentence,) = uncovered_guests({"lab": Derived(max_epochs=0)})
    assert "the Derived of guest 'lab' does differently" in sentence


def convolutional(n_inputs, n_outputs):
    return nn.Sequential(
        nn.Unflatten(1, (1, n_inputs)),
        nn.Conv1d(1, 2, 3),
        nn.Flatten(),
        nn.Linear(2 * (n_inputs - 2), n_outputs),
    )


@pytest.mark.parametrize("module", [(5,), convolutional])
def test_private_guests_exchange_their_targets(cancer, module, monkeypatch):
    seen = []
    exchange = NoiseTargets.exchange

    def watched(noise, outputs, rows):
        before = noise.targets.clone()
        exchange(noise, outputs, rows)
        seen.append(bool((noise.targets != before).any()))

    monkeypatch.setattr(NoiseTargets, "exchange", watched)
    encoder = NoiseAsTargetsEncoder(
        hidden_layer_sizes=module, max_epochs=4, update_every=2
    )
    guests = {"shop": encoder, "lab": RandomFeaturesEncoder()}
    FedOnceClassifier(**FAST, local_encoder=guests, epsilon=5.0).fit(*cancer)
    assert len(seen) == 2 * 6
    assert all(seen)


def test_a_target_has_statistics():
    X, y = load_diabetes(return_X_y=True)
    once = FedOnceRegressor(max_epochs=1, epsilon=3.0).fit(X, y)
    assert any("deviation of the target" in s for s in once.epsilon_spent_.not_covered)


def test_shared_rows_take_the_stricter_composition(cancer):
    once = FedOnceClassifier(**FAST, epsilon=5.0, n_split_epochs=2).fit(*cancer)
    alone, shared = once.epsilon_spent_.runs
    assert alone.parties == ("bank",)
    assert shared == SampledGaussian(
        128 / 569, 2 * 5, ("bank", "shop", "lab"), alone.noise_multiplier
    )
    apart = [
        SampledGaussian(128 / 569, 2 * 5, (name,), alone.noise_multiplier)
        for name in shared.parties
    ]
    milder = account_privacy([alone, *apart], 1e-5).epsilon
    assert once.epsilon_spent_.epsilon <= 5
    assert once.epsilon_spent_.epsilon > 1.05 * milder


def test_all_parties_take_the_rows_that_were_drawn(cancer, recording):
    FedOnceClassifier(
        **FAST,
        local_encoder=FIXED,
        epsilon=5.0,
        n_split_epochs=6,
        batch_size=40,
        transport=recording,
    ).fit(*cancer)
    drawn = [reply for _, _, reply in of(recording.notes, "draw")]
    shop, lab = (
        [reply for who, _, reply in of(recording.notes, "forward_rows") if who == name]
        for name in ("shop", "lab")
    )
    assert [len(reply) for reply in shop] == [len(reply) for reply in lab] == drawn
    assert len(drawn) == 6 * 15
    assert np.mean(drawn) == pytest.approx(40, abs=2)
    assert np.var(drawn) == pytest.approx(40 * (1 - 40 / 569), rel=0.4)
    for _, sent, _ in of(recording.notes, "join_privately"):
        assert set(sent) == {"seed", "shared", "run", "max_grad_norm", "lr"}


FIXED = NoiseAsTargetsEncoder(max_epochs=0)


def test_rows_drawn_together_are_the_same_rows(cancer, recording):
    """Guests with the same columns and weights send the same activations."""
    X, y = cancer
    X = np.hstack([X[:, :10], X[:, 10:15], X[:, 10:15]])
    FedOnceClassifier(
        parties={"bank": range(10), "shop": range(10, 15), "lab": range(15, 20)},
        local_encoder=FunctionOfColumns(),
        max_epochs=1,
        epsilon=5.0,
        n_split_epochs=1,
        lr=1e-30,
        transport=recording,
        random_state=0,
    ).fit(X, y)
    sent = of(recording.notes, "forward_rows")
    for (_, _, shop), (_, _, lab) in zip(sent[::2], sent[1::2], strict=True):
        assert_allclose(shop, lab, atol=1e-6)


class FirstColumns(nn.Module):
    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.linear = nn.Linear(n_inputs, n_outputs, bias=False)
        with torch.no_grad():
            self.linear.weight.copy_(torch.eye(n_outputs, n_inputs))

    def forward(self, inputs):
        return self.linear(inputs)


class FunctionOfColumns(NoiseAsTargetsEncoder):
    def __init__(self, n_components=3, *, random_state=None):
        super().__init__(
            n_components,
            hidden_layer_sizes=FirstColumns,
            max_epochs=0,
            random_state=random_state,
        )


def opened(settings, role, **member):
    """A member that has opened a session, with a stream for each of its purposes."""
    streams = ("prepare", "models", "keys", "guests", "once", "afterwards")
    streams = {what: np.random.SeedSequence(0) for what in streams}
    member = Member("bank", streams=streams, **member)
    member.perform("open", {"role": role, "settings": settings})
    return member


HOST = {"transformer": "passthrough", "cut_width": 4, "max_epochs": 1, "lr": 0.6}


def linear(n_inputs, _):
    return nn.Linear(n_inputs, 4)


def two_layers(n_inputs, _):
    return nn.Sequential(nn.Linear(n_inputs, 5), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize("weights", [None, np.arange(1, 7) / 3])
def test_gradients_of_private_split_learning_are_those_of_every_row(weights):
    rng = np.random.default_rng(0)
    block, sent = (rng.normal(size=(6, k)).astype(np.float32) for k in (2, 3))
    labels = rng.integers(0, 3, 6)
    holding = Holding(block, labels=Labels(labels, 3, weights))
    run = {"sampling_rate": 1.0, "steps": 1, "parties": ["bank"], "noise_multiplier": 0}
    private = {"run": {"dict": run}, "max_grad_norm": 0.1, "batch_size": 6}
    own = {"bottom": linear, "top": two_layers}
    settings = {**HOST, **private, **{name: {"own": name} for name in own}}
    host = opened(settings, "fedonce.host", holding=holding, own=own)
    host.perform("receive", {"received": {"shop": sent}})
    host = opened({}, "fedonce.split", holding=holding, fitted=host.dismiss()).party
    host.join_privately(seed=1, shared=[1], run=run, max_grad_norm=0.1, lr=0.6)
    assert host.draw() == 6
    order = public_order(1, 6)
    rows = order[host.held(Drawn).rows]
    network = host._joint_network()
    parameters = list(network.parameters())
    expected = [torch.zeros_like(p) for p in parameters]
    cuts = []
    loss = nn.CrossEntropyLoss(reduction="none")
    for row in rows:
        cut = torch.from_numpy(sent[[row]]).requires_grad_()
        outputs = network(torch.from_numpy(block[[row]]), cut)
        one = loss(outputs, torch.from_numpy(labels[[row]])).sum()
        one *= 1 if weights is None else weights[row]
        *gradients, down = torch.autograd.grad(one, [*parameters, cut])
        norm = torch.sqrt(sum(g.square().sum() for g in gradients))
        cuts.append(down)
        for total, gradient in zip(expected, gradients, strict=True):
            total += gradient * min(1, 0.1 / norm)
    before = [p.detach().clone() for p in parameters]
    answer = host.learn_rows({"shop": sent[rows]})
    assert_allclose(answer["shop"], torch.cat(cuts), atol=1e-6)
    for old, new, total in zip(before, parameters, expected, strict=True):
        assert_allclose(new.detach(), old - 0.6 / 6 * total, atol=1e-6)


def test_a_step_on_no_row_is_a_step(cancer):
    X, y = cancer
    once = FedOnceClassifier(
        **FAST, local_encoder=FIXED, batch_size=1, epsilon=5.0, n_split_epochs=1
    ).fit(X[:20], y[:20])
    assert np.isfinite(once.predict_proba(X)).all()
    assert once.epsilon_spent_.runs[1].steps == 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"early_stopping": True}, "early_stopping of the host"),
        ({"weight_decay": 0.1}, "weight_decay of the host"),
        ({"optimizer": torch.optim.Adam}, "optimizer of the host"),
        (
            {"local_encoder": NoiseAsTargetsEncoder(optimizer=torch.optim.Adam)},
            "optimizer of guest 'shop'",
        ),
        ({"division": "naive", "n_split_epochs": 1}, "division='moments'"),
    ],
)
def test_what_a_budget_does_not_allow(cancer, settings, message):
    with pytest.raises(ValueError, match=message):
        FedOnceClassifier(**FAST, epsilon=1.0, **settings).fit(*cancer)


@pytest.mark.parametrize(
    "settings",
    [
        {"bottom": Dropping},
        {
            "local_encoder": NoiseAsTargetsEncoder(
                hidden_layer_sizes=Dropping, max_epochs=1
            )
        },
    ],
    ids=["host", "guest"],
)
def test_batch_normalisation_is_refused_with_a_budget(cancer, settings):
    with pytest.raises(PartyValueError, match="BatchNorm1d"):
        FedOnceClassifier(**FAST, epsilon=1.0, **settings).fit(*cancer)


@pytest.mark.parametrize("epsilon", [1e-9, 1e30])
def test_a_budget_that_cannot_be_kept_or_spent_raises(cancer, epsilon):
    with pytest.raises(PrivacyBudgetError):
        FedOnceClassifier(**FAST, epsilon=epsilon).fit(*cancer)


def test_refitting_without_a_budget_forgets_it(cancer):
    once = FedOnceClassifier(**FAST, epsilon=5.0).fit(*cancer)
    assert once.epsilon_spent_.epsilon > 2.5
    once.set_params(epsilon=None).fit(*cancer)
    assert not hasattr(once, "epsilon_spent_")


def test_representations_are_computed_in_double_precision(once, cancer):
    guest = once._parties["shop"]
    inputs = guest._transformer.transform(once.partition_.split(cancer[0])["shop"])
    sent = infer(guest._encoder.module_, tensor(inputs)).float().numpy()
    with once._reopen(cancer[0], CommunicationLog(), "bank") as session:
        assert_array_equal(session.ask("shop", "encode"), sent)


def test_noise_cannot_be_gone_around(cancer):
    """No operation of a guest gives a representation without the noise."""
    once = FedOnceClassifier(
        **FAST,
        local_encoder=NoiseAsTargetsEncoder(max_epochs=1),
        representation_noise=100.0,
    ).fit(*cancer)
    X, _ = cancer
    with once._reopen(X, CommunicationLog(), "bank") as session:
        noisy = session.ask("shop", "encode")
        assert noisy.std() > 50
    for operation in ("prepare", "represent", "remember", "recall"):
        with (
            once._reopen(X, CommunicationLog(), "bank") as session,
            pytest.raises(PartyError, match="offers no operation"),
        ):
            session.ask("shop", operation)


def test_targets_of_private_guests_do_not_follow_from_what_is_released(
    cancer, monkeypatch
):
    """Targets go by position: who knew them would see which rows there are."""
    seen = []
    exchanged = NoiseTargets.half_squares

    def watched(noise, outputs, rows):
        seen.append(noise.targets)
        return exchanged(noise, outputs, rows)

    monkeypatch.setattr(NoiseTargets, "half_squares", watched)
    guest = NoiseAsTargetsEncoder(max_epochs=1, update_every=None)
    once = FedOnceClassifier(
        parties={"bank": range(10), "shop": range(10, 30)},
        local_encoder=guest,
        max_epochs=1,
        epsilon=5.0,
    ).fit(*cancer)
    encoder = once._parties["shop"]._encoder
    _, again, _ = encoder._start(
        once._parties["shop"]._transformer.transform(cancer[0][:, 10:])
    )
    assert not torch.equal(again.targets, seen[0])


@pytest.mark.parametrize(
    "settings",
    [
        {"max_epochs": 1, "batch_size": 1000, "lr": 1e38},
        {
            "max_epochs": 1,
            "batch_size": 1000,
            "epsilon": 5.0,
            "n_split_epochs": 1,
            "lr": 1e38,
        },
    ],
    ids=["one round", "private split epoch"],
)
def test_a_model_spoilt_by_the_last_step_raises(cancer, settings):
    once = FedOnceClassifier(
        parties=PARTIES,
        local_encoder=NoiseAsTargetsEncoder(max_epochs=0),
        random_state=0,
        **settings,
    )
    with pytest.raises(ValueError, match="not finite"):
        once.fit(*cancer)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_components": 0},
        {"lr": -1.0},
        {"targets": "foo"},
        {"batch_size": 0},
        {"max_epochs": -1},
        {"update_every": 0},
    ],
    ids=lambda parameters: next(iter(parameters)),
)
def test_parameters_of_private_guests_are_checked(cancer, parameters):
    guest = NoiseAsTargetsEncoder(**parameters)
    once = FedOnceClassifier(
        **FAST, local_encoder=guest, epsilon=5.0, missing_party="zero"
    )
    with pytest.raises(ValueError, match=f"The '{next(iter(parameters))}' parameter"):
        once.fit(*cancer)


def test_private_split_epochs_without_guests(cancer):
    settings = {"epsilon": 5.0, "n_split_epochs": 1, "max_epochs": 1}
    once = FedOnceClassifier(parties=1, random_state=0, **settings).fit(*cancer)
    assert np.isfinite(once.predict_proba(cancer[0])).all()


def test_a_party_that_learnt_from_noisy_networks_spends_what_all_spend(cancer):
    guests = {
        "shop": NoiseAsTargetsEncoder(max_epochs=1),
        "lab": RandomFeaturesEncoder(),
    }
    spent = FedOnceClassifier(**FAST, local_encoder=guests, epsilon=5.0).fit(*cancer)
    parties = spent.epsilon_spent_.parties
    assert parties["bank"] == spent.epsilon_spent_.epsilon
    assert parties["shop"] < parties["bank"]
    shared = FedOnceClassifier(**FAST, epsilon=5.0, n_split_epochs=1).fit(*cancer)
    assert set(shared.epsilon_spent_.parties.values()) == {
        shared.epsilon_spent_.epsilon
    }
    assert any("sizes of messages" in s for s in shared.epsilon_spent_.not_covered)


LEARNING = {
    "shop": NoiseAsTargetsEncoder(max_epochs=1),
    "lab": RandomFeaturesEncoder(),
}


def saying(monkeypatch, *said):
    """Guests that say something else of their noisy steps than what they took."""
    told, truth = [], GuestParty.spent

    def spent(guest):
        told.append(truth(guest))
        if told[-1] is None or not isinstance(said[0], dict):
            return told[-1] if told[-1] is None else said[0]
        return {**told[-1], **said[0]}

    spent.__skvfl_operation__ = True
    monkeypatch.setattr(GuestParty, "spent", spent)
    return told


@pytest.mark.parametrize(
    "settings",
    [{"local_encoder": LEARNING}, {"n_split_epochs": 1}],
    ids=["one round", "split epochs"],
)
def test_guests_account_for_their_own_steps(cancer, monkeypatch, settings):
    settings = {**FAST, "max_epochs": 1, "epsilon": 5.0, **settings}
    told = saying(monkeypatch, {})
    planned = FedOnceClassifier(**settings).fit(*cancer).epsilon_spent_
    shared = planned.runs[-1] if "n_split_epochs" in settings else planned.runs[0]
    # Every guest is asked after the one round, and again after split epochs.
    asked = [said for said in told if said is not None]
    assert len(asked) == (2 if "n_split_epochs" in settings else 1)
    assert None in told
    for said in asked:
        assert SampledGaussian(**said, parties=shared.parties) == shared
    # Fewer rows in a step are counted where the guest alone draws them.
    saying(monkeypatch, {"sampling_rate": shared.sampling_rate / 2})
    less = FedOnceClassifier(**settings).fit(*cancer).epsilon_spent_
    if "n_split_epochs" in settings:
        assert less == planned
    else:
        assert less.runs[0].sampling_rate == shared.sampling_rate / 2
        assert less.epsilon < planned.epsilon
    saying(monkeypatch, {"noise_multiplier": shared.noise_multiplier / 2})
    with pytest.raises(PrivacyBudgetError, match="guests say of their own steps"):
        FedOnceClassifier(**settings).fit(*cancer)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (None, "'shop': it took no noisy step where it was told to"),
        ({"sampling_rate": 7.0}, "'shop': what it says of its noisy steps"),
        ({"steps": -1}, "'shop': 'steps' in its reply"),
        ({"noise_multiplier": float("nan")}, "'shop': what it says of its noisy steps"),
        ("much", "'shop': its reply does not have the entries"),
    ],
)
def test_what_guests_say_of_their_steps_is_looked_at(
    cancer, monkeypatch, said, message
):
    saying(monkeypatch, said)
    once = FedOnceClassifier(
        **FAST, local_encoder=LEARNING, epsilon=5.0, missing_party="zero"
    )
    with pytest.raises(PartyError, match=message):
        once.fit(*cancer)


def test_a_budget_counts_steps_that_a_callback_left_out(cancer):
    """When to stop may have been decided by looking at the model."""

    class Stop(Recorder):
        def on_fit_task_end(self, estimator, context):
            return True

    settings = {**FAST, "epsilon": 5.0, "n_split_epochs": 2}
    spent = FedOnceClassifier(**settings).fit(*cancer).epsilon_spent_
    stopped = FedOnceClassifier(**settings).set_callbacks(Stop()).fit(*cancer)
    assert (stopped.n_iter_, len(stopped.bytes_curve_)) == (1, 2)
    assert stopped.epsilon_spent_ == spent


# What comes first


GUEST = GuestSettings(local_encoder=FIXED, representation_noise=0.5, lr=0.1).pack()
PLAN = {
    "seed": 0,
    "shared": [1],
    "run": {
        "sampling_rate": 1.0,
        "steps": 1,
        "parties": ["bank"],
        "noise_multiplier": 1.0,
    },
    "max_grad_norm": 1.0,
    "lr": 0.1,
}


@pytest.mark.parametrize(
    ("role", "operation", "arguments", "first"),
    [
        ("guest", "encode", {}, "learn"),
        ("guest", "join", {"seed": 0}, "learn"),
        ("guest", "spent", {}, "learn"),
        ("guest", "begin_epoch", {"seed": 0, "n_train": 5}, "join"),
        ("guest", "finish", {}, "join"),
        ("guest", "forward", {"start": 0, "stop": 2}, "begin_epoch"),
        ("guest", "backward", {"gradient": np.zeros((2, 3))}, "forward"),
        ("guest", "draw", {}, "join_privately"),
        ("guest", "backward_rows", {"gradient": np.zeros((2, 3))}, "draw"),
        ("host", "train_epoch", {}, "receive"),
        ("host", "end_training", {}, "receive"),
        ("host", "join", {"seed": 0}, "receive"),
        ("host", "join_privately", PLAN, "receive"),
        ("host", "draw", {}, "join_privately"),
        ("host", "learn_rows", {"received": {}}, "draw"),
        ("host", "predict", {"start": 0, "stop": 2, "received": {}}, "receive"),
    ],
)
def test_operations_out_of_order_say_what_comes_first(
    role, operation, arguments, first
):
    block = np.random.default_rng(0).normal(size=(5, 2))
    holding = Holding(block, labels=Labels(np.arange(5) % 2, 2))
    host = {**HOST, "bottom": [4], "top": [4], "batch_size": 5}
    settings = {"guest": GUEST, "host": host}[role]
    member = opened(settings, f"fedonce.{role}", holding=holding)
    with pytest.raises(PartyError, match=f"{first!r} comes first"):
        member.perform(operation, arguments)


class Nowhere(Federation):
    """Members that nobody may ask yet."""

    names = ("bank", "shop", "lab")

    def connect(self, *args, **settings):
        raise AssertionError("something ran")


@pytest.mark.parametrize(
    "guest", [FunctionTransformer(np.tanh), PCA(2, random_state=0)]
)
def test_what_one_guest_cannot_be_told_is_refused_before_anything_runs(cancer, guest):
    settings = {"parties": Nowhere(), "active": "bank", "max_epochs": 1}
    once = FedOnceClassifier(local_encoder={"shop": PCA(2), "lab": guest}, **settings)
    with pytest.raises(
        SettingsError, match="local_encoder cannot be told to party 'lab'"
    ):
        once.fit(*cancer)
    with pytest.raises(AssertionError, match="something ran"):
        FedOnceClassifier(**settings).fit(*cancer)


def test_split_learning_needs_a_party_of_the_one_round():
    with pytest.raises(PartyValueError, match="no such model of an earlier fit"):
        opened({}, "fedonce.split", holding=Holding(np.zeros((3, 2))))


def test_secrets_are_drawn_where_they_are_used(cancer):
    """Noise of one guest's own entropy: another root for it changes nobody else."""
    X, y = cancer
    settings = {
        **FAST,
        "local_encoder": FIXED,
        "representation_noise": 0.1,
        "epsilon": 5.0,
    }

    class Other(FedOnceClassifier):
        def _make_members(self, *args):
            roster = super()._make_members(*args)
            (lab,) = (each for each in roster.home if each.name == "lab")
            lab.streams = None  # From the operating system, as in real life.
            return roster

    joint = [
        kind(**settings).fit(X, y).transform(X) for kind in (FedOnceClassifier,) * 2
    ]
    other = Other(**settings).fit(X, y).transform(X)
    assert_array_equal(joint[0], joint[1])
    assert_array_equal(other[:, 32:35], joint[0][:, 32:35])
    assert (other[:, 35:] != joint[0][:, 35:]).mean() > 0.9


def test_a_large_delta_is_no_guarantee(cancer):
    once = FedOnceClassifier(**FAST, epsilon=5.0, delta=0.01)
    with pytest.warns(PrivacyLeakWarning, match="gives away one of the 569 rows"):
        once.fit(*cancer)


def test_a_target_that_is_no_number_is_not_quoted(cancer):
    X, _ = cancer
    with pytest.raises(ValueError, match="y holds values that are not numbers") as info:
        FedOnceRegressor(**FAST).fit(X, ["secret-diagnosis"] * len(X))
    assert "secret" not in str(info.value)
