"""Parties, networks and tables of the wrong kind: an error that names the parameter."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from torch import nn

from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    AutoencoderTransformer,
    Contiguous,
    FedOnceClassifier,
    FedOnceRegressor,
    LocalTransport,
    NoiseAsTargetsEncoder,
    RandomProjectionVFL,
    RoundRobin,
    SplitNNClassifier,
    SplitNNRegressor,
    TabVFLClassifier,
    TabVFLRegressor,
    VerticalPartitioner,
    VFedSecClassifier,
    VFedSecRegressor,
    VFLBoostingClassifier,
    VFLBoostingRegressor,
    compare,
)
from skvfl.alignment import align
from skvfl.exceptions import PartyError

N = 24
PARTIES = {"a": ["a0", "a1"], "b": ["b0", "b1"], "c": ["c0", "c1"]}
QUICK = {"parties": PARTIES, "random_state": 0, "max_epochs": 1, "batch_size": 8}
TREES = {"parties": PARTIES, "random_state": 0, "max_iter": 2, "min_samples_leaf": 2}
ESTIMATORS = [
    RandomProjectionVFL(LogisticRegression(), parties=PARTIES, random_state=0),
    RandomProjectionVFL(Ridge(), parties=PARTIES, random_state=0),
    APCVFLClassifier(**QUICK),
    APCVFLRegressor(**QUICK),
    FedOnceClassifier(**QUICK),
    FedOnceRegressor(**QUICK),
    SplitNNClassifier(**QUICK),
    SplitNNRegressor(**QUICK),
    TabVFLClassifier(**QUICK),
    TabVFLRegressor(**QUICK),
    VFedSecClassifier(**QUICK),
    VFedSecRegressor(**QUICK),
    VFLBoostingClassifier(**TREES),
    VFLBoostingRegressor(**TREES),
]
RNG = np.random.default_rng(0)
COLUMNS = [column for held in PARTIES.values() for column in held]
X = pd.DataFrame(RNG.normal(size=(N, 6)), columns=COLUMNS)
TARGET = (X["a0"] + X["b0"]).to_numpy()
LABELS = (np.median(TARGET) < TARGET).astype(int)


def _name(each):
    inner = each.get_params(deep=False).get("estimator")
    kind = type(each).__name__
    return kind if inner is None else f"{kind}-{type(inner).__name__}"


each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=_name)


def fit(estimator, table=X, /, **params):
    y = LABELS if is_classifier(estimator) else TARGET
    return clone(estimator).set_params(**params).fit(table, y)


MISTAKEN_PARTIES = {
    "set of names": ({"a": {"a0", "a1"}, "b": ["b0"]}, "'a' .* a set, .* no order"),
    "frozenset": ({"a": frozenset(["a0"]), "b": ["b0"]}, "'a' .* a frozenset"),
    "dict of names": ({"a": {"a0": 1}, "b": ["b0"]}, "'a' .* a dict, .* no order"),
    "key of a number": ({1: ["a0"], "b": ["b0"]}, "name of a party must be a string"),
    "True": (True, "'parties' parameter .* is True"),
    "False": (False, "'parties' parameter .* is False"),
    "nested True": (VerticalPartitioner(parties=True), "'parties' parameter .* True"),
    "zero": (0, "'parties' parameter"),
    "fraction": (2.0, "'parties' parameter"),
    "class of splitter": (RoundRobin, "'parties' .* the class RoundRobin"),
    "class of partitioner": (VerticalPartitioner, "'parties' .* the class Vertical"),
    "nested class": (VerticalPartitioner(parties=Contiguous), "the class Contiguous"),
    "class of transformer": (
        VerticalPartitioner(StandardScaler),
        "the class StandardScaler: give an instance",
    ),
    "class in a triple": ([("a", StandardScaler, ["a0"])], "the class StandardScaler"),
    "tuple": (("a", "b"), "'parties' parameter"),
    "names": ({"a", "b"}, "'parties' parameter"),
    "unknown column": ({"a": ["zz"]}, "'a': column 'zz' is missing"),
}


@pytest.mark.parametrize(
    ("parties", "message"), MISTAKEN_PARTIES.values(), ids=MISTAKEN_PARTIES
)
@each_estimator
def test_parties(estimator, parties, message):
    mistaken = clone(estimator)
    mistaken.parties = parties
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        mistaken.fit(X, LABELS if is_classifier(estimator) else TARGET)
    assert not isinstance(caught.value, PartyError)


def test_columns_that_can_be_read_only_once():
    columns = {"a": (name for name in ["a0", "a1"]), "b": ["b0", "b1", "c0", "c1"]}
    with pytest.raises(ValueError, match=r"'a' .* a generator, .* give a list"):
        SplitNNClassifier(parties=columns).fit(X, LABELS)


@pytest.mark.parametrize("columns", [X.columns[:2], {"a0": 0, "a1": 0}.keys()])
def test_columns_in_an_order(columns):
    parties = {**PARTIES, "a": columns}
    expected = fit(ESTIMATORS[6]).predict_proba(X)
    assert (fit(ESTIMATORS[6], parties=parties).predict_proba(X) == expected).all()


@each_estimator
@pytest.mark.parametrize("active", [True, np.True_, "zz", 7, 1.0, None])
def test_active(estimator, active):
    with pytest.raises(ValueError, match="active"):
        fit(estimator, active=active)


@each_estimator
@pytest.mark.parametrize(
    "random_state", [np.random.default_rng(0), True, -1, "0", np.random.RandomState]
)
def test_random_state(estimator, random_state):
    with pytest.raises(ValueError, match="'random_state' parameter"):
        fit(estimator, random_state=random_state)


@each_estimator
def test_classes_and_truths_in_every_parameter(estimator):
    """No number is taken from a bool, and no object from its class."""
    for name, value in estimator.get_params(deep=False).items():
        allowed = estimator._parameter_constraints[name]
        if "boolean" not in allowed:
            with pytest.raises(ValueError, match=f"'{name}' parameter .* is True"):
                fit(estimator, **{name: True})
        # Callbacks are looked at one by one, when networks are made.
        if callable not in allowed and name != "callbacks":
            mistaken = clone(estimator)
            setattr(mistaken, name, type(value))
            with pytest.raises(ValueError, match=f"'{name}' parameter .* the class"):
                mistaken.fit(X, LABELS)


def test_transports_and_models_are_instances():
    mistaken = [
        ({"transport": LocalTransport}, ESTIMATORS[6]),
        ({"local_encoder": PCA}, ESTIMATORS[4]),
        ({"local_encoder": {"b": PCA, "c": PCA(1)}}, ESTIMATORS[4]),
        ({"local_encoder": {"a": PCA, "b": PCA(1), "c": PCA(1)}}, ESTIMATORS[2]),
        ({"estimator": LogisticRegression}, ESTIMATORS[2]),
        ({"estimator": LogisticRegression}, ESTIMATORS[0]),
        ({"projection": PCA}, ESTIMATORS[0]),
    ]
    for params, estimator in mistaken:
        made = clone(estimator)
        for name, value in params.items():
            setattr(made, name, value)
        with pytest.raises(ValueError, match=f"'{next(iter(params))}' .* the class"):
            made.fit(X, LABELS)
    with pytest.raises(ValueError, match="local_encoder of party 'b' is a str without"):
        fit(ESTIMATORS[4], local_encoder={"b": "PCA", "c": PCA(1)})
    with pytest.raises(ValueError, match="local_encoder of party 'b' is a str"):
        fit(ESTIMATORS[2], local_encoder={"a": None, "b": "PCA", "c": None})
    with pytest.raises(ValueError, match="is the class SplitNNClassifier"):
        compare({"split": SplitNNClassifier}, X, LABELS)
    instance = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(ValueError, match="'optimizer' parameter"):
        fit(ESTIMATORS[6], optimizer=instance)


@each_estimator
def test_several_tables(estimator):
    tables = {name: X[held] for name, held in PARTIES.items()}
    several = [tables, list(tables.values()), tuple(tables.values())]
    several.append([table.to_numpy() for table in tables.values()])
    fitted = fit(estimator)
    for table in several:
        with pytest.raises(TypeError, match=r"skvfl\.alignment\.align"):
            fit(estimator, table)
        with pytest.raises(TypeError, match=r"skvfl\.alignment\.align"):
            fitted.predict(table)
    aligned = align({n: table.reset_index() for n, table in tables.items()}, on="index")
    with pytest.raises(TypeError, match=r"\.table"):
        fit(estimator, aligned)


@each_estimator
def test_tables_of_arrow(estimator):
    expected = fit(estimator)
    table = pa.Table.from_pandas(X)
    fitted = fit(estimator, table)
    for given in (table, table.select(COLUMNS[::-1])):
        assert_array_equal(fitted.predict(given), expected.predict(X))


@pytest.mark.parametrize("table", [[X, X], {"a": X}], ids=["list", "dict"])
def test_several_tables_of_a_partitioner(table):
    with pytest.raises(TypeError, match=r"skvfl\.alignment\.align"):
        VerticalPartitioner().fit(table)


class Output(nn.Module):
    """A network with an output of any kind."""

    def __init__(self, give, n_inputs):
        super().__init__()
        self.layer = nn.Linear(n_inputs, 2)
        self.give = give

    def forward(self, inputs):
        return self.give(self.layer(inputs))


WRONG_NETWORKS = {
    "wider": (lambda i, o: nn.Linear(i, o + 1), r"\(3, \d+\) for 3 rows, where \(3, "),
    "other inputs": (lambda i, o: nn.Linear(i + 1, o), "fails on 3 rows of .* columns"),
    "flat": (lambda i, o: Output(lambda z: z[:, 0], i), r"shape \(3,\) for 3 rows"),
    "rows": (lambda i, o: nn.Sequential(nn.Linear(i, o), Rows()), r"\(2, \d+\) for 3"),
    "deep": (lambda i, o: Output(lambda z: z[None], i), r"\(1, 3, 2\) for 3 rows"),
    "tuple": (lambda i, o: Output(lambda z: (z, z), i), "output is .*tuple.* floats"),
    "doubles": (lambda i, o: Output(lambda z: z.double(), i), "float64 .*float32"),
    "integers": (lambda i, o: Output(lambda z: z.long(), i), "output is torch.int64"),
    "nothing": (lambda i, o: None, "gave a NoneType where a torch.nn.Module is due"),
    "class": (lambda i, o: nn.Linear, "gave the class Linear where"),
    "function": (lambda i, o: torch.tanh, "gave a builtin_function_or_method where"),
}
NETWORKS = [
    (SplitNNClassifier, "bottom"),
    (SplitNNRegressor, "top"),
    (FedOnceClassifier, "bottom"),
    (FedOnceRegressor, "top"),
    (VFedSecClassifier, "bottom"),
    (VFedSecRegressor, "top"),
]


class Rows(nn.Module):
    def forward(self, inputs):
        return inputs[1:]


def wrong(estimator, name, network, message):
    with pytest.raises((ValueError, PartyError), match=message) as caught:
        fit(estimator(**QUICK), **{name: network})
    return str(caught.value)


@pytest.mark.parametrize(
    ("network", "message"), WRONG_NETWORKS.values(), ids=WRONG_NETWORKS
)
@pytest.mark.parametrize(("estimator", "name"), NETWORKS)
def test_networks(estimator, name, network, message):
    said = wrong(estimator, name, network, message)
    assert f"{name}(n_inputs=" in said
    # A server's network is made where the protocol runs, all others at their party.
    assert ("party '" in said) == ((estimator, name) != (VFedSecRegressor, "top"))


@pytest.mark.parametrize(("estimator", "name"), NETWORKS)
def test_networks_are_made_by_functions(estimator, name):
    wrong(estimator, name, nn.Linear(2, 32), f"{name} is a Linear, a network, where")
    for sizes in ({64, 1}, [True], [0], [[64]], np.ones((2, 2), int), [64.0]):
        wrong(estimator, name, sizes, rf"(?s){name}=.* a positive whole number")


@pytest.mark.parametrize(
    "estimator", [SplitNNClassifier, VFedSecClassifier, VFedSecRegressor]
)
def test_networks_with_nothing_to_train(estimator):
    def identity(n_inputs, n_outputs):
        return nn.Identity()

    frozen = lambda i, o: nn.Linear(i, o).requires_grad_(False)  # noqa: E731
    wide = {"a": COLUMNS[:3], "b": COLUMNS[3:]}
    for network in (identity, frozen):
        with pytest.raises((ValueError, PartyError), match="without a parameter"):
            fit(estimator(**QUICK), parties=wide, cut_width=3, bottom=network)


def test_a_top_model_that_only_adds():
    """What needs no parameters may have none, with any optimiser."""
    fitted = fit(
        SplitNNRegressor(**{**QUICK, "parties": {**PARTIES, "owner": []}}),
        active="owner",
        top=lambda *_: nn.Identity(),
        optimizer=torch.optim.SGD,
        aggregation="sum",
        cut_width=1,
    )
    assert np.isfinite(fitted.predict(X)).all()


@pytest.mark.parametrize(
    ("network", "message"), WRONG_NETWORKS.values(), ids=WRONG_NETWORKS
)
def test_networks_of_guests(network, message):
    with pytest.raises(ValueError, match=message):
        NoiseAsTargetsEncoder(hidden_layer_sizes=network).fit(X)
    guest = NoiseAsTargetsEncoder(hidden_layer_sizes=network)
    with pytest.raises(
        PartyError, match=rf"'b': hidden_layer_sizes\(n_inputs=2.*{message}"
    ):
        fit(FedOnceClassifier(**QUICK), local_encoder=guest)
    with pytest.raises(ValueError, match=r"hidden_layer_sizes=.* positive whole"):
        AutoencoderTransformer(hidden_layer_sizes=[True]).fit(X)


class Encoder(TransformerMixin, BaseEstimator):
    """An encoder whose output is of any kind."""

    def __init__(self, give):
        self.give = give

    def fit(self, X, y=None, latent_target=None, has_target=None):
        return self

    def transform(self, X):
        return self.give(np.asarray(X))


WRONG_OUTPUTS = {
    "fewer rows": (lambda rows: rows[1:], "Encoder gave 23 rows for 24"),
    "flat": (lambda rows: rows[:, 0], "Encoder's output is not a table.* 1 dimension"),
    "text": (
        lambda rows: rows.astype(str),
        "Encoder gave values of type <U.* where numbers",
    ),
}


@pytest.mark.parametrize("name", ["local_encoder", "joint_encoder", "active_encoder"])
@pytest.mark.parametrize(("give", "message"), WRONG_OUTPUTS.values(), ids=WRONG_OUTPUTS)
def test_encoders(name, give, message):
    for estimator in ESTIMATORS[2:4]:
        with pytest.raises(PartyError, match=f"{name} {message}"):
            fit(estimator, **{name: Encoder(give)})


def test_a_student_of_another_width():
    with pytest.raises(PartyError, match=r"active_encoder has n_components=3 .* 256"):
        fit(ESTIMATORS[2], active_encoder=AutoencoderTransformer(3, max_epochs=1))


class TwoOutputs(Ridge):
    """A model that learns one number and predicts two."""

    def predict(self, X):
        return np.c_[super().predict(X), super().predict(X)]


def test_a_model_with_other_outputs_than_targets():
    for protect in (True, False):
        with pytest.raises(ValueError, match=r"TwoOutputs predicts \d numbers .* due"):
            fit(ESTIMATORS[1], estimator=TwoOutputs(), label_protection=protect)
