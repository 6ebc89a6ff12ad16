"""Organisations that make their own parties, wherever they are."""

import contextlib
import pickle

import numpy as np
import pytest
from _apart import Apart, Elsewhere
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import skvfl
from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    FedOnceClassifier,
    FedOnceRegressor,
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
from skvfl.exceptions import PartyError, PartyValueError, SettingsError
from skvfl.federation import Handle, Holding, Labels, Member

N_OWN = 4
CLASSIFIERS = {
    "RAP": (RandomProjectionVFL, {"estimator": LogisticRegression(max_iter=500)}),
    "SplitNN": (SplitNNClassifier, {"max_epochs": 2}),
    "FedOnce": (FedOnceClassifier, {"max_epochs": 2, "n_split_epochs": 1}),
    "FedOnce, budget": (FedOnceClassifier, {"max_epochs": 2, "epsilon": 4.0}),
    "APC-VFL": (APCVFLClassifier, {"max_epochs": 2}),
    "TabVFL": (TabVFLClassifier, {"max_epochs": 2}),
    "vFedSec": (VFedSecClassifier, {"max_epochs": 2}),
    "Boosting": (VFLBoostingClassifier, {"max_iter": 2, "max_leaf_nodes": 6}),
}
REGRESSORS = {
    "RAP": (RandomProjectionVFL, {"estimator": Ridge()}),
    "SplitNN": (SplitNNRegressor, {"max_epochs": 2}),
    "FedOnce": (FedOnceRegressor, {"max_epochs": 2}),
    "APC-VFL": (APCVFLRegressor, {"max_epochs": 2}),
    "TabVFL": (TabVFLRegressor, {"max_epochs": 2}),
    "vFedSec": (VFedSecRegressor, {"max_epochs": 2}),
    "Boosting": (VFLBoostingRegressor, {"max_iter": 2, "max_leaf_nodes": 6}),
}
CASES = {
    **{name: (*each, load_breast_cancer) for name, each in CLASSIFIERS.items()},
    **{f"{name}, targets": (*each, load_diabetes) for name, each in REGRESSORS.items()},
}


STREAMS = {kind.__module__.split(".")[1]: kind._streams for kind, *_ in CASES.values()}


@pytest.fixture(scope="module")
def shops():
    """A process of the shop for each table, which takes part in fits of all methods."""
    with contextlib.ExitStack() as running:
        yield {
            load: running.enter_context(
                Elsewhere("shop", load(return_X_y=True)[0][:, N_OWN:], STREAMS, seed=0)
            )
            for load in (load_breast_cancer, load_diabetes)
        }


@pytest.mark.parametrize("name", CASES)
def test_a_party_elsewhere_with_its_own_table_gives_what_the_simulation_gives(
    name, shops
):
    kind, params, load = CASES[name]
    X, y = load(return_X_y=True)
    parties = {"bank": slice(0, N_OWN), "shop": slice(N_OWN, None)}
    together = kind(**params, parties=parties, random_state=0).fit(X, y)
    there = Apart(["bank", "shop"], "shop", shops[load].address)
    own = np.column_stack([np.arange(len(X)), X[:, :N_OWN]])
    apart = kind(**params, parties=there, active="bank", random_state=0).fit(own, y)
    assert apart.n_features_in_ == 1 + N_OWN
    assert apart.communication_.n_rounds == together.communication_.n_rounds
    assert apart.halves_ == ["bank"]
    assert isinstance(apart._parties["shop"], Handle)
    some = [40, 3, 3, 17]
    ask = "predict_proba" if hasattr(apart, "predict_proba") else "predict"
    expected = getattr(together, ask)(X[some])
    np.testing.assert_array_equal(getattr(apart, ask)(own[some]), expected)
    # What is kept says nothing of the other's table, and is enough to predict.
    again = pickle.loads(pickle.dumps(apart))
    np.testing.assert_array_equal(getattr(again, ask)(own[some]), expected)


def test_a_party_elsewhere_draws_secrets_of_its_own(shops):
    X, y = load_breast_cancer(return_X_y=True)
    own = np.column_stack([np.arange(len(X)), X[:, :N_OWN]])
    curves = []
    with Elsewhere("shop", X[:, N_OWN:], STREAMS) as without_a_seed:
        for shop in (shops[load_breast_cancer], without_a_seed):
            there = Apart(["bank", "shop"], "shop", shop.address)
            split = SplitNNClassifier(parties=there, max_epochs=1, random_state=0)
            curves += [split.fit(own, y).loss_curve_[0] for _ in range(2)]
    assert curves[0] == curves[1]
    assert len(set(curves)) == 3


def _twice(x):
    return 2 * x


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"bottom": lambda n_inputs, n_outputs: None}, "bottom"),
        ({"optimizer": lambda parameters, lr: None}, "optimizer"),
    ],
)
def test_what_cannot_be_said_is_refused_before_anything_runs(params, named):
    X, y = load_breast_cancer(return_X_y=True)
    own = np.column_stack([np.arange(len(X)), X[:, :N_OWN]])
    there = Apart(["bank", "shop"], "shop", "nobody listens")
    split = SplitNNClassifier(parties=there, max_epochs=1, **params)
    message = f"{named} cannot be told to party 'shop', because it holds a function"
    with pytest.raises(SettingsError, match=message):
        split.fit(own, y)


def test_words_are_enough_for_registered_building_blocks():
    from skvfl.federation._settings import NotInWordsError, from_words, in_words

    for said in (None, True, 3, 0.5, "auto", [1, [2.0]], (1, "a"), {"a": [1]}):
        assert from_words(in_words(said)) == said
    assert from_words(in_words(np.array([64, 32]))) == [64, 32]
    scaler = from_words(in_words(StandardScaler(with_mean=False)))
    assert repr(scaler) == repr(StandardScaler(with_mean=False))
    for refused, why in {
        FunctionTransformer(_twice): "no registered name",
        skvfl.GaussianProjection(random_state=3): "random_state of its own",
    }.items():
        with pytest.raises(NotInWordsError, match=why):
            in_words(refused)


@pytest.mark.parametrize(
    ("opening", "message"),
    [
        ({"role": "os.system", "settings": {}}, "no role 'os.system' here"),
        ({"role": "splitnn.nobody", "settings": {}}, "no role 'splitnn.nobody' here"),
        ({"role": "splitnn.passive", "settings": {"x": 1}}, r"no settings \['x'\]"),
        (
            {"role": "splitnn.passive", "settings": {"transformer": {"name": "eval"}}},
            "no building block 'eval' is registered here",
        ),
        (
            {"role": "splitnn.passive", "settings": {"bottom": {"own": "bottom"}}},
            "it has no bottom of its own",
        ),
        ({"role": None}, "no such model of an earlier fit"),
        ({"role": None, "model": "x"}, "no such model of an earlier fit"),
    ],
)
def test_a_member_refuses_what_it_does_not_know(opening, message):
    member = Member("shop", Holding(np.zeros((3, 2))))
    with pytest.raises(PartyValueError, match=f"party 'shop': .*{message}"):
        member.perform("open", opening)
    with pytest.raises(PartyError, match="before the run was opened"):
        member.perform("prepare", {"seed": 0})


@pytest.mark.parametrize(
    ("operation", "arguments", "first"),
    [
        ("forward", {"start": 0, "stop": 2}, "begin_epoch"),
        ("backward", {"gradient": np.zeros((2, 3))}, "forward"),
        ("recall", {}, "remember"),
    ],
)
def test_operations_out_of_order_say_what_comes_first(operation, arguments, first):
    member = Member("shop", Holding(np.random.default_rng(0).normal(size=(5, 2))))
    settings = {"bottom": [4], "cut_width": 3, "lr": 0.1}
    member.perform("open", {"role": "splitnn.passive", "settings": settings})
    with pytest.raises(PartyError, match="'prepare' comes first"):
        member.perform("finish", {})
    member.perform("prepare", {"seed": 0})
    with pytest.raises(PartyError, match=f"{first!r} comes first"):
        member.perform(operation, arguments)


def test_labels_stay_in_the_member_that_has_them():
    labels = Labels(np.array([0, 1, 1]), 2)
    member = Member("bank", Holding(np.zeros((3, 2)), labels=labels))
    settings = {"bottom": [4], "cut_width": 3, "lr": 0.1, "top": [4]}
    held = member.perform("open", {"role": "splitnn.active", "settings": settings})
    assert held == {"n_columns": 2, "n_rows": 3, "n_empty": 0}
    party = member.dismiss()
    assert b"Labels" not in pickle.dumps(party)


def test_an_organisation_saves_its_own_half_and_loads_it_again(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    split = SplitNNClassifier(max_epochs=1, random_state=0).fit(X, y)
    assert split.halves_ == ["party0", "party1"]
    split.save_half("party1", tmp_path / "half")
    bank = pickle.loads(pickle.dumps(split.keep_halves(["party0"])))
    assert bank.halves_ == ["party0"]
    assert split.halves_ == ["party0", "party1"]
    weights = split._parties["party1"]._bottom[0].weight.detach().numpy().tobytes()
    assert weights in pickle.dumps(split)
    assert weights not in pickle.dumps(bank)
    with pytest.raises(PartyValueError, match=r"party 'party1': its half .* load_half"):
        bank.predict(X)
    bank.load_half(tmp_path / "half")
    np.testing.assert_array_equal(bank.predict_proba(X), split.predict_proba(X))


@pytest.mark.slow
def test_halves_that_do_not_belong_are_refused(tmp_path):
    X, y = (each[:60] for each in load_breast_cancer(return_X_y=True))
    split = SplitNNClassifier(max_epochs=1, random_state=0).fit(X, y)
    names = {"bank": slice(0, 5), "shop": slice(5, 30)}
    other = SplitNNClassifier(parties=names, max_epochs=1, random_state=0).fit(X, y)
    other.save_half("shop", tmp_path / "half")
    with pytest.raises(ValueError, match="has the half of 'shop'"):
        split.load_half(tmp_path / "half")
    (tmp_path / "text").write_text("half")
    with pytest.raises(ValueError, match="not written by save_half"):
        split.load_half(tmp_path / "text")
    with pytest.raises(ValueError, match="has no half of 'shop'"):
        split.save_half("shop", tmp_path / "half")
    with pytest.raises(ValueError, match=r"has no half of \['shop'\]"):
        split.keep_halves(["shop"])
