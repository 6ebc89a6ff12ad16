"""The order in which parties are written makes no difference."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    ClientFailures,
    FedOnceClassifier,
    FedOnceRegressor,
    GaussianProjection,
    NoiseAsTargetsEncoder,
    RandomProjectionVFL,
    SplitNNClassifier,
    SplitNNRegressor,
    TabVFLClassifier,
    TabVFLRegressor,
    VerticalPartitioner,
    VFedSecClassifier,
    VFedSecRegressor,
    VFLBoostingClassifier,
    VFLBoostingRegressor,
)
from skvfl._random import spawn_named

PARTIES = {
    "shop2": [0, 1, 2],
    "telco": [3, 4],
    "bank": [5, 6],
    "shop10": [7, 8, 9],
}
OTHER_WAY = {name: PARTIES[name] for name in ("bank", "shop10", "telco", "shop2")}
CANONICAL = ["shop2", "telco", "bank", "shop10"]
SHORT = {"max_epochs": 2, "batch_size": 32}
TABNET = {"n_steps": 2, "n_a": 4, "n_d": 8, "pretraining_epochs": 2, **SHORT}
PRIVATE = {"epsilon": 5.0, "delta": 1e-3, **SHORT}
ESTIMATORS = {
    "RAP": RandomProjectionVFL(LogisticRegression()),
    "RAP, open labels": RandomProjectionVFL(
        LogisticRegression(), label_protection=False, whiten=True
    ),
    "RAP, regression": RandomProjectionVFL(Ridge()),
    "RAP, default": RandomProjectionVFL(
        projection=GaussianProjection(kind="conditioned", random_state=3)
    ),
    "SplitNN": SplitNNClassifier(**SHORT),
    "SplitNN, sum": SplitNNClassifier(aggregation="sum", early_stopping=True, **SHORT),
    "SplitNN, regression": SplitNNRegressor(**SHORT),
    "Boosting": VFLBoostingClassifier(max_iter=3, min_samples_leaf=5),
    "Boosting, private": VFLBoostingRegressor(
        max_iter=3, label_epsilon=2.0, target_range=(-9, 9), early_stopping=True
    ),
    "vFedSec": VFedSecClassifier(clients={"shop2": 2, "bank": 3}, **SHORT),
    "vFedSec, regression": VFedSecRegressor(**SHORT),
    "FedOnce": FedOnceClassifier(n_split_epochs=1, **SHORT),
    "FedOnce, private": FedOnceClassifier(**PRIVATE),
    "FedOnce, private guests": FedOnceClassifier(
        local_encoder=NoiseAsTargetsEncoder(3, max_epochs=1),
        n_split_epochs=1,
        **PRIVATE,
    ),
    "FedOnce, regression": FedOnceRegressor(representation_noise=0.1, **SHORT),
    "APC-VFL": APCVFLClassifier(**SHORT),
    "APC-VFL, joint": APCVFLClassifier(inference="joint", **SHORT),
    "APC-VFL, regression": APCVFLRegressor(**SHORT),
    "TabVFL": TabVFLClassifier(
        failure=ClientFailures(0.4, random_state=0), missing_party="cache", **TABNET
    ),
    "TabVFL, local": TabVFLClassifier(design="local", **TABNET),
    "TabVFL, local encoder": TabVFLRegressor(design="local_encoder", **TABNET),
}
each_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def table(classifies, n_rows=90):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 10))
    target = X.sum(axis=1) + rng.normal(size=n_rows)
    return X, (target > 0).astype(int) if classifies else target


def fitted(name, parties, **params):
    estimator = ESTIMATORS[name]
    params = {"active": "telco", "random_state": 7, **params}
    if name == "vFedSec":
        # Clients of a cluster would prepare their columns each in its own way.
        parties = VerticalPartitioner("passthrough", parties=parties)
    estimator = type(estimator)(**estimator.get_params(deep=False) | params)
    X, y = table(is_classifier(estimator))
    return estimator.set_params(parties=parties).fit(X, y), X


def answers(estimator, X):
    methods = ["predict", "predict_proba", "transform"]
    return [getattr(estimator, m)(X) for m in methods if hasattr(estimator, m)]


@pytest.mark.filterwarnings("ignore::skvfl.exceptions.PrivacyLeakWarning")
@each_estimator
def test_same_seed_same_bytes_whichever_way_parties_are_written(name):
    first, X = fitted(name, PARTIES)
    second, _ = fitted(name, OTHER_WAY)
    for one, other in zip(answers(first, X), answers(second, X), strict=True):
        assert_array_equal(one, other)
    assert list(first.partition_.parties_) == CANONICAL
    assert list(second.partition_.parties_) == CANONICAL
    log, other_log = first.communication_.by_party(), second.communication_.by_party()
    assert log == other_log


def test_a_list_of_triples_may_be_written_either_way():
    def triples(parties):
        project = make_pipeline(StandardScaler(), GaussianProjection())
        return [(name, project, columns) for name, columns in parties.items()]

    first, X = fitted("SplitNN", triples(PARTIES))
    second, _ = fitted("SplitNN", triples(OTHER_WAY))
    assert_array_equal(first.predict_proba(X), second.predict_proba(X))


def test_a_position_of_the_active_party_counts_as_written():
    first, X = fitted("SplitNN", PARTIES, active=0)
    second, _ = fitted("SplitNN", OTHER_WAY, active=-1)
    by_name, _ = fitted("SplitNN", OTHER_WAY, active="shop2")
    assert_array_equal(first.predict_proba(X), by_name.predict_proba(X))
    assert_array_equal(second.predict_proba(X), by_name.predict_proba(X))
    other, _ = fitted("SplitNN", OTHER_WAY, active=0)
    assert np.abs(other.predict_proba(X) - first.predict_proba(X)).max() > 1e-6


def test_parties_of_the_same_columns_stand_by_name():
    X, y = table(True)
    columns = {"p10": [0, 1], "p9": [1, 0], "p": [0], "p09": slice(0, 2)}
    parties = VerticalPartitioner(parties=columns, allow_overlap=True, remainder="p")
    vfl = RandomProjectionVFL(LogisticRegression(), parties=parties).fit(X, y)
    assert list(vfl.partition_.parties_) == ["p", "p09", "p9", "p10"]


def test_a_label_owner_without_columns_comes_first():
    parties = {**PARTIES, "owner": []}
    vfl, _ = fitted("RAP", parties, active="owner")
    assert list(vfl.partition_.parties_) == ["owner", *CANONICAL]


def test_simulated_parties_keep_their_numerical_order():
    X, y = np.random.default_rng(0).normal(size=(40, 12)), np.arange(40) % 2
    vfl = RandomProjectionVFL(LogisticRegression(), parties=12, random_state=0)
    names = list(vfl.fit(X, y).partition_.parties_)
    assert names == [f"party{i}" for i in range(12)]


def test_a_partitioner_alone_keeps_the_written_order_and_each_partys_output():
    X, _ = table(True)
    first, second = (
        VerticalPartitioner(
            make_pipeline(StandardScaler(), GaussianProjection()),
            parties=parties,
            random_state=0,
        ).fit(X)
        for parties in (PARTIES, OTHER_WAY)
    )
    assert list(first.parties_) == list(first.output_slices_) == list(PARTIES)
    assert list(second.parties_) == list(second.output_slices_) == list(OTHER_WAY)
    one, other = first.transform(X), second.transform(X)
    for name in PARTIES:
        assert_array_equal(
            one[:, first.output_slices_[name]], other[:, second.output_slices_[name]]
        )
    names = [name.split("__")[0] for name in second.get_feature_names_out()]
    assert list(dict.fromkeys(names)) == list(OTHER_WAY)


SECRETS = {
    "RAP": lambda party: party._transformer[-1]._matrix,
    "SplitNN": lambda party: party._bottom[0].weight.detach().numpy(),
    "FedOnce": lambda party: party._encoder.random_state,
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_partys_secrets_do_not_depend_on_who_else_takes_part(name):
    changes = {} if name == "RAP" else {"lr": 1e-30}
    drawn = []
    for others in (["telco", "bank", "shop10"], ["telco"]):
        parties = {each: PARTIES[each] for each in ["shop2", *others]}
        parties = VerticalPartitioner(parties=parties, remainder="drop")
        vfl, _ = fitted(name, parties, **changes)
        drawn.append(SECRETS[name](vfl._parties["shop2"]))
    assert_array_equal(*drawn)


def test_a_projection_inside_another_transformer_keeps_its_partys_stream():
    """A ColumnTransformer fits clones of what it is given."""
    X, _ = table(True)
    inside = ColumnTransformer([("project", GaussianProjection(), list(range(5)))])
    parties = {"a": slice(0, 5), "b": slice(5, 10)}
    partition = VerticalPartitioner(inside, parties=parties, random_state=0)
    first, second = (clone(partition).fit(X).transform(X) for _ in range(2))
    assert_array_equal(first, second)
    matrices = [
        each.named_transformers_["project"]._matrix
        for each in partition.fit(X).transformers_.values()
    ]
    assert np.abs(matrices[0] - matrices[1]).max() > 0.01


def test_named_children_depend_on_the_name_and_on_the_parent():
    root = np.random.SeedSequence(1).spawn(3)[2]
    children = spawn_named(root, ["a", "b"])
    again = spawn_named(root, ["c", "b", "a"])
    for name in "ab":
        assert_array_equal(
            children[name].generate_state(4), again[name].generate_state(4)
        )
    everyone = [
        *again.values(),
        *spawn_named(np.random.SeedSequence(1), "abc").values(),
    ]
    words = {each.generate_state(4).tobytes() for each in everyone}
    assert len(words) == 6
    assert root.n_children_spawned == 0
