"""What split learning's noise and norms do to what crosses, and to nothing else."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer

import skvfl
from skvfl._targets import drawn_classes
from skvfl.exceptions import PartyError
from skvfl.federation import Holding, Member
from skvfl.nn._steps import public_order
from skvfl.privacy import record_views
from skvfl.privacy._claims import guarantee

SPLIT = skvfl.SplitNNClassifier(parties=3, max_epochs=2, random_state=0)


@pytest.fixture(scope="module")
def table():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:200], y[:200]


def fit(table, estimator=SPLIT, **params):
    estimator = clone(estimator).set_params(**params)
    with record_views() as views:
        estimator.fit(*table)
    return estimator, views


def sent(views, operation="forward", epoch=0):
    """What a passive party sent, or was sent, of every row."""
    name, sender = ("party0", "party1") if operation != "backward" else ("party1", None)
    return views[name].matrix(sender=sender, operation=operation, epoch=epoch).values


def test_activations_are_shortened(table):
    _, plain = fit(table)
    _, short = fit(table, max_representation_norm=0.3)
    lengths = np.linalg.norm(sent(plain)[:, :], axis=1)
    assert lengths.min() > 0.3
    np.testing.assert_allclose(np.linalg.norm(sent(short), axis=1), 0.3, rtol=1e-5)
    # A norm that nothing reaches changes nothing at all.
    _, same = fit(table, max_representation_norm=1e6)
    np.testing.assert_array_equal(sent(same, epoch=1), sent(plain, epoch=1))


def test_noise_is_added_to_what_leaves_and_is_fresh_in_every_epoch(table):
    _, plain = fit(table, lr=1e-9)
    _, noisy = fit(table, lr=1e-9, representation_noise=0.5)
    noise = [sent(noisy, epoch=i) - sent(plain, epoch=i) for i in (0, 1)]
    for each in noise:
        assert each.std() == pytest.approx(0.5, rel=0.05)
    assert abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 0.05
    _, again = fit(table, lr=1e-9, representation_noise=0.5)
    np.testing.assert_array_equal(sent(again), sent(noisy))


def test_parties_add_other_noise(table):
    noise = []
    for name in ("party1", "party2"):
        both = [fit(table, lr=1e-9, representation_noise=s)[1] for s in (0.0, 0.5)]
        one, other = (
            v["party0"].matrix(sender=name, operation="forward", epoch=0).values
            for v in both
        )
        noise.append((other - one).ravel())
    assert abs(np.corrcoef(*noise)[0, 1]) < 0.05


def test_a_row_that_is_served_has_the_same_noise_whenever_it_is_asked_for(table):
    X, _ = table
    plain, _ = fit(table, lr=1e-9)
    noisy, _ = fit(table, lr=1e-9, representation_noise=0.5)
    width = SPLIT.cut_width
    first, again = noisy.transform(X), noisy.transform(X[::-1])[::-1]
    np.testing.assert_allclose(again, first, atol=1e-6)
    noise = (first - plain.transform(X))[:, width:]
    assert noise.std() == pytest.approx(0.5, rel=0.05)
    # The active party's own activations do not leave.
    own = (first - plain.transform(X))[:, :width]
    np.testing.assert_allclose(own, 0, atol=1e-4)


def test_held_out_rows_have_fresh_noise(table):
    params = {"early_stopping": True, "lr": 1e-9, "representation_noise": 0.5}
    _, views = fit(table, **params)
    first, second = (sent(views, "represent", epoch=i) for i in (0, 1))
    assert np.nanstd(second - first) == pytest.approx(0.5 * 2**0.5, rel=0.1)


def noisy_member(X, fitted=None, noise=1.0, lr=1e-9):
    """A passive party that somebody asks for what no estimator asks for."""
    purposes = ("prepare", "models", "noise")
    streams = {each: np.random.SeedSequence(len(each)) for each in purposes}
    # What is drawn in a later fit is another key.
    streams["noise"] = np.random.SeedSequence(fitted is None)
    member = Member("shop", Holding(X), streams=streams, fitted=fitted)
    settings = {"bottom": [8], "cut_width": 8, "lr": lr}
    settings |= {"representation_noise": noise, "max_representation_norm": 1.0}
    member.perform("open", {"role": "splitnn.passive", "settings": settings})
    member.perform("prepare", {"seed": 1})
    member.perform("begin_epoch", {"seed": 2, "n_train": len(X)})
    return member


def test_asking_again_for_the_same_model_averages_nothing_away(table):
    X, _ = table
    n_rows = len(X)
    rows = {"start": 0, "stop": n_rows}
    true = noisy_member(X, noise=0.0).perform("represent", rows)

    def error(answers):
        return np.sqrt(np.mean((np.mean(answers, axis=0) - true) ** 2))

    member = noisy_member(X)
    first = member.perform("represent", rows)
    assert error([first]) == pytest.approx(1.0, rel=0.1)
    assert error([member.perform("represent", rows) for _ in range(9)]) > 0.9
    by_step = []
    for _ in range(9):
        sent = member.perform("forward", rows)
        with pytest.raises(PartyError, match="whose gradient has not come"):
            member.perform("forward", rows)
        # Without a gradient the model stays what it was, and so does its noise.
        member.perform("backward", {"gradient": np.zeros_like(sent)})
        by_step.append(member.perform("represent", rows))
    assert error(by_step) > 0.9
    fitted = member.dismiss()
    # Served, and gone on from, it is the same model still.
    serving = Member("shop", Holding(X), fitted=fitted)
    serving.perform("open", {"role": None})
    order = public_order(1, n_rows)
    served = serving.perform("represent", rows)[order]
    np.testing.assert_array_equal(served, by_step[-1])
    again = noisy_member(X, fitted)
    np.testing.assert_array_equal(again.perform("represent", rows), by_step[-1])


@pytest.mark.parametrize("way", ["two fits", "recall"])
def test_noise_does_not_cancel_between_models_of_as_many_steps(table, way):
    X, _ = table
    rows = {"start": 0, "stop": len(X)}
    first = noisy_member(X, lr=1e-3)
    fitted = first.dismiss() if way == "two fits" else first.perform("remember", {})
    answers = []
    for sign in (1.0, -1.0):
        if way == "two fits":
            first = noisy_member(X, fitted, lr=1e-3)
        sent = first.perform("forward", rows)
        first.perform("backward", {"gradient": np.full_like(sent, sign)})
        answers.append(first.perform("represent", rows))
        if way == "recall":
            first.perform("recall", {})
    # What is left is the noise of both, and not the difference of what it hides.
    assert np.std(answers[0] - answers[1]) == pytest.approx(2**0.5, rel=0.1)


@pytest.mark.parametrize(
    ("estimator", "params"),
    [
        (SPLIT, {"lr": 1e-9}),
        (skvfl.FedOnceClassifier(max_epochs=1, n_split_epochs=1), {"lr": 1e-9}),
        (skvfl.TabVFLClassifier(max_epochs=1, pretrain=False), {}),
    ],
)
def test_gradients_that_are_sent_are_noisy(table, estimator, params):
    told = {"parties": 3, "random_state": 0, "batch_size": 200, **params}
    _, plain = fit(table, estimator, **told)
    _, noisy = fit(table, estimator, gradient_noise=10.0, **told)
    gradient, other = sent(plain, "backward"), sent(noisy, "backward")
    if isinstance(estimator, skvfl.FedOnceClassifier):
        # Sent as the guest's representation is scaled, and noisy before that.
        scale = sent(plain, "learn").std(axis=0)
        gradient, other = gradient * scale, other * scale
    longest = np.linalg.norm(gradient, axis=1).max()
    noise = np.sqrt(((other - gradient) ** 2).sum(axis=1).mean())
    assert noise == pytest.approx(10 * longest, rel=0.1)


def test_gradient_noise_moves_no_model_of_the_active_party(table):
    # In one batch of one epoch: later ones are of activations that have been moved.
    told = {"max_epochs": 1, "batch_size": 200}
    plain, _ = fit(table, **told)
    noisy, _ = fit(table, gradient_noise=10.0, **told)
    X, _ = table
    width = SPLIT.cut_width
    ours, theirs = (
        [m.transform(X)[:, part] for m in (plain, noisy)]
        for part in (slice(width), slice(width, None))
    )
    np.testing.assert_array_equal(*ours)
    assert not np.array_equal(*theirs)


def test_noise_without_effect_is_refused(table):
    once = skvfl.FedOnceClassifier(gradient_noise=1.0, max_epochs=1)
    with pytest.raises(ValueError, match="n_split_epochs=0"):
        once.fit(*table)
    private = skvfl.FedOnceClassifier(gradient_noise=1.0, n_split_epochs=1, epsilon=1.0)
    with pytest.raises(ValueError, match="gradient_noise of the host cannot"):
        private.fit(*table)


PRIVATE = {
    "SplitNN": skvfl.SplitNNClassifier(
        early_stopping=True, n_iter_no_change=2, max_epochs=6, lr=0.01
    ),
    "TabVFL": skvfl.TabVFLClassifier(max_epochs=3, early_stopping=True),
}


def received(table, y, estimator):
    _, views = fit((table[0], y), estimator, parties=3, random_state=0)
    messages = [seen for name in ("party1", "party2") for seen in views[name].messages]
    return [
        (seen.operation, place, array.tobytes())
        for seen in messages
        for place, array in seen.arrays()
    ]


@pytest.mark.parametrize(
    "name", ["SplitNN", pytest.param("TabVFL", marks=pytest.mark.slow)]
)
def test_all_that_others_see_follows_from_the_labels_that_were_drawn(
    name, table, monkeypatch
):
    _, y = table
    others = np.random.default_rng(1).permutation(y)
    drawn = np.random.default_rng(2).permutation(y).astype(np.int64)
    monkeypatch.setattr("skvfl.splitnn._active.drawn_classes", lambda *_: drawn)
    private = clone(PRIVATE[name]).set_params(label_epsilon=1.0)
    assert received(table, y, private) == received(table, others, private)
    open_one = private.set_params(label_epsilon=None)
    assert received(table, y, open_one) != received(table, others, open_one)


def test_labels_of_other_rows_are_drawn_anew_with_the_same_seed(table, monkeypatch):
    X, y = table
    lies = []

    def spy(codes, *rest):
        shown = drawn_classes(codes, *rest)
        lies.append(shown != codes)
        return shown

    monkeypatch.setattr("skvfl.splitnn._active.drawn_classes", spy)
    # Of one class, so that labels alone would not tell the fits apart, as where rows
    # are sorted by class.
    order = np.argsort(y, kind="stable")
    blocks = [X[order[:150]], X[order[:150]], X[order[1:151]]]
    target = np.repeat([0, 1], 75)
    for block in blocks:
        fit((block, target), label_epsilon=0.5, max_epochs=1)
    # Whoever knew one label would know whether the others at its place are true.
    np.testing.assert_array_equal(lies[0], lies[1])
    assert 0.35 < np.mean(lies[0] == lies[2]) < 0.7


@pytest.mark.slow
def test_gradients_tell_the_labels_that_were_drawn_and_no_more(table):
    _, y = table
    right = []
    for seed in range(8):
        params = {"label_epsilon": 1.0, "max_epochs": 1, "random_state": seed}
        _, views = fit(table, lr=1e-9, top=(), batch_size=200, **params)
        # Without a hidden layer all gradients point one way or the other, apart from
        # units that are not active.
        gradient = sent(views, "backward")
        along = gradient @ np.linalg.svd(gradient)[2][0]
        share = np.mean((along > 0) == y)
        right.append(max(share, 1 - share))
    assert np.mean(right) == pytest.approx(np.e / (np.e + 1), abs=0.03)


def test_probabilities_under_a_budget_are_of_true_classes(table):
    X, _ = table
    # A rule that the columns tell, so that only the draw makes labels uncertain.
    y = np.where(X[:, 0] > np.median(X[:, 0]), "large", "small")
    private, _ = fit((X, y), max_epochs=30, label_epsilon=1.5)
    assert private.label_epsilon_ == 1.5
    assert private.score(X, y) > 0.85
    probabilities = private.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (probabilities.max(axis=1) > 0.99).mean() > 0.3
    again = private.set_params(label_epsilon=None, max_epochs=1).fit(X, y)
    assert not hasattr(again, "label_epsilon_")


def test_a_budget_of_labels_takes_columns_that_are_called_by_numbers():
    table = np.random.default_rng(0).normal(size=(60, 4))
    labels = (table[:, 0] > 0).astype(int)
    private = skvfl.SplitNNClassifier(label_epsilon=2.0, max_epochs=1, random_state=0)
    named = private.fit(pd.DataFrame(table), labels).predict_proba(table)
    assert np.array_equal(named, private.fit(table, labels).predict_proba(table))


@pytest.mark.parametrize("name", PRIVATE)
def test_a_budget_counts_in_every_fit_that_goes_on(name, table):
    X, y = table
    private = clone(PRIVATE[name]).set_params(
        parties=2, max_epochs=1, early_stopping=False, warm_start=True
    )
    spent = []
    for budget in (1.0, 0.5, None, 2.0):
        private.set_params(label_epsilon=budget).fit(X, y)
        spent.append(getattr(private, "label_epsilon_", None))
        lies = private._parties["party0"]._codec._lies
        assert lies == (budget and pytest.approx(1 / (1 + np.exp(budget)))) or not lies
        assert bool(lies) == bool(budget)
    assert spent == [1.0, 1.5, None, np.inf]
    # The report says no more than that.
    assert "None" in guarantee(name, private, "passive", True)
    private.set_params(warm_start=False).fit(X, y)
    assert private.label_epsilon_ == 2.0
    said = guarantee(name, private, "passive", True)
    assert said == "ε = 2 limits what it learns of each label."


def test_a_budget_of_next_to_nothing_gives_answers_all_the_same(table):
    for budget in (1e-300, 1e300):
        private, _ = fit(table, label_epsilon=budget, max_epochs=1)
        assert np.isfinite(private.predict_proba(table[0])).all()


def test_weights_of_classes_are_refused_with_a_budget(table):
    for estimator in PRIVATE.values():
        weighted = clone(estimator).set_params(
            label_epsilon=1.0, class_weight="balanced"
        )
        with pytest.raises(ValueError, match="class_weight cannot be used with label"):
            weighted.fit(*table)


class Failing:
    """Fails when an epoch ends."""

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        raise RuntimeError("the machine is switched off")

    def teardown(self, estimator, context):
        pass


ALL = {**PRIVATE, "Boosting": skvfl.VFLBoostingClassifier(max_iter=2)}


@pytest.mark.parametrize("name", ALL)
def test_what_a_failed_fit_has_spent_on_labels_is_counted(name, table):
    X, y = table
    private = clone(ALL[name]).set_params(parties=2, label_epsilon=0.5)
    for lost in (0.5, 1.0):
        with pytest.raises(RuntimeError, match="switched off") as info:
            private.set_callbacks(Failing()).fit(X, y)
        assert "has spent label_epsilon=0.5" in info.value.__notes__[0]
        assert private.label_epsilon_lost_ == lost
        assert not hasattr(private, "label_epsilon_")
    # Nothing of the budget is spent before others can have seen anything.
    with pytest.raises(ValueError, match="y"):
        private.fit(X, y[:-1])
    assert private.label_epsilon_lost_ == 1.0
    private.set_callbacks().fit(X, y)
    assert (private.label_epsilon_, private.label_epsilon_lost_) == (0.5, 1.0)
    assert guarantee(name, private, "passive", True).startswith("ε = 1.5 limits")
    # Boosted trees with a budget are not gone on from.
    if name != "Boosting":
        private.set_params(warm_start=True).fit(X, y)
        assert private.label_epsilon_ == 2.0
        assert not hasattr(private, "label_epsilon_lost_")
    with pytest.raises(RuntimeError):
        private.set_params(label_epsilon=None).set_callbacks(Failing()).fit(X, y)
    assert getattr(private, "label_epsilon_lost_", 1.0) == 1.0
