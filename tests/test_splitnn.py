import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.model_selection import GridSearchCV
from torch import nn

from skvfl import (
    ImageTiles,
    SplitNNClassifier,
    SplitNNRegressor,
    VerticalPartitioner,
    record_communication,
)
from skvfl._random import branch, int_seed, seed_sequence
from skvfl.exceptions import PartyError
from skvfl.federation import Labels
from skvfl.nn import ConvolutionalBottom
from skvfl.nn._build import FusedAdam
from skvfl.nn._steps import batch_bounds, public_order, tensor
from skvfl.splitnn._active import AGGREGATIONS


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True)


def test_fused_step_is_adams():
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (
        [nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.zeros(5))] for _ in range(2)
    )
    adam = torch.optim.Adam(theirs, lr=0.02, fused=True)
    fused = FusedAdam(ours, 0.02)
    for _ in range(5):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            other.grad = mine.grad.clone()
        adam.step()
        fused.step()
        fused.zero_grad()
        assert all(map(torch.equal, ours, theirs))
        assert ours[0].grad is None


class JointNetwork(nn.Module):
    """The same bottoms and top in one autograd graph."""

    def __init__(self, bottoms, top, aggregation):
        super().__init__()
        self.bottoms = nn.ModuleList(bottoms)
        self.top = top
        self.combine = AGGREGATIONS[aggregation]

    def forward(self, blocks):
        cuts = [bottom(x) for bottom, x in zip(self.bottoms, blocks, strict=True)]
        return self.top(self.combine(cuts))


def train_jointly(split, X, codes, weights=None):
    """Train the unsplit network in one place, as a plain torch loop would."""
    root = seed_sequence(split.random_state)
    split.classes_ = np.unique(codes)
    X = split._fit_partition(X, codes, branch(root, 0))
    weights = np.ones(len(X)) if weights is None else weights
    roster = split._make_members(X, root, Labels(codes, len(split.classes_)))
    parties = [split._settings(each.name).make(each) for each in roster.home]
    to_table, to_epochs = branch(root, 2).spawn(2)
    order = public_order(int_seed(to_table), len(X))
    blocks, bottoms = [], []
    for party in parties:
        if party._transformer is None:
            continue
        block = split.partition_.split(X)[party.name]
        inputs = tensor(party._transformer.fit_transform(block))[order]
        blocks.append(inputs)
        bottoms.append(party._build_bottom(inputs.shape[1], party._generator))
    labels, weights = torch.from_numpy(codes)[order], tensor(weights)[order]
    owner = next(party for party in parties if party.name == split._active)
    width = split.cut_width * (len(bottoms) if split.aggregation == "concat" else 1)
    top = owner._build_top(width, owner._generator)
    joint = JointNetwork(bottoms, top, split.aggregation)
    optimizer = owner._optimize(list(joint.parameters()))
    for to_epoch in to_epochs.spawn(split.max_epochs):
        shuffled = public_order(int_seed(to_epoch), len(X))
        for start, stop in batch_bounds(len(X), split.batch_size):
            rows = shuffled[start:stop]
            optimizer.zero_grad()
            outputs = joint([x[rows] for x in blocks])
            loss = nn.functional.cross_entropy(outputs, labels[rows], reduction="none")
            size = weights[rows].sum().clamp_min(1e-38)
            (loss @ weights[rows] / size).backward()
            optimizer.step()
    return joint


@pytest.mark.parametrize("aggregation", ["concat", "sum", "mean", "max"])
@pytest.mark.parametrize("optimizer", [None, torch.optim.Adam, torch.optim.SGD])
def test_parameters_equal_the_joint_networks_bit_for_bit(
    cancer, aggregation, optimizer
):
    X, y = cancer
    split = SplitNNClassifier(
        parties=3,
        aggregation=aggregation,
        optimizer=optimizer,
        max_epochs=3,
        random_state=0,
    )
    joint = train_jointly(split, X, y)
    assert_same_bits(split.fit(X, y), joint)


def assert_same_bits(split, joint):
    parties = [p for p in split._parties.values() if p._transformer is not None]
    pairs = [(p._bottom, b) for p, b in zip(parties, joint.bottoms, strict=True)]
    for ours, other in [*pairs, (split._parties[split._active]._top, joint.top)]:
        ours, other = ours.state_dict(), other.state_dict()
        assert ours.keys() == other.keys()
        assert all(torch.equal(value, other[name]) for name, value in ours.items())
        # Memory of their own, so that pickles do not grow with what they share.
        assert all(
            value.untyped_storage().nbytes() == 4 * value.numel()
            for value in ours.values()
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"bottom": (), "top": ()},
        {"bottom": (13, 9), "top": (7, 5), "cut_width": 3},
        {"bottom": (1,), "top": (1,), "cut_width": 1, "batch_size": 1},
        {"batch_size": 81},
        {"parties": {"bank": [], "a": range(14), "b": range(14, 30)}},
    ],
    ids=["linear", "odd layers", "single rows and units", "last batch", "no columns"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_bits_of_other_networks_batches_and_weights(cancer, settings, weighted):
    X, y = cancer[0][::7], cancer[1][::7]
    weights = np.linspace(0.0, 3.0, len(X)) if weighted else None
    split = SplitNNClassifier(random_state=0, max_epochs=4).set_params(**settings)
    joint = train_jointly(split, X, y, weights)
    assert_same_bits(split.fit(X, y, weights), joint)


@pytest.mark.parametrize(("n_parties", "batch_size"), [(2, 50), (4, 128), (3, 569)])
def test_messages_follow_equation_10(cancer, n_parties, batch_size):
    """2 (E ⌈M / N⌉) (K - 1), equation 10 of the APC-VFL paper."""
    X, y = cancer
    epochs = 2
    log = (
        SplitNNClassifier(
            parties=n_parties, batch_size=batch_size, max_epochs=epochs, random_state=0
        )
        .fit(X, y)
        .communication_
    )
    steps = epochs * -(-len(X) // batch_size)
    assert log.n_messages == 2 * steps * (n_parties - 1)
    assert log.n_rounds == 1 + 2 * steps
    payload = 2 * epochs * len(X) * (n_parties - 1) * 32 * 4
    assert payload < log.n_bytes < 1.1 * payload + 2000 * steps


def test_only_activations_and_gradients_carry_data(cancer):
    log = SplitNNClassifier(parties=3, max_epochs=1, random_state=0).fit(*cancer)
    frame = log.communication_.to_frame()
    carrying = frame[frame["data_bearing"]]
    assert set(carrying["operation"]) == {"forward", "backward"}
    up, down = (carrying[carrying["operation"] == op] for op in ("forward", "backward"))
    assert set(up["receiver"]) == set(down["sender"]) == {"party0"}


def test_prediction_is_one_round(cancer):
    X, y = cancer
    split = SplitNNClassifier(parties=3, max_epochs=2, random_state=0).fit(X, y)
    with record_communication() as log:
        split.predict_proba(X)
    assert (log.n_rounds, log.n_messages) == (1, 2)


@pytest.mark.slow
def test_processes_give_the_same_bits(cancer):
    X, y = (each[:100] for each in cancer)
    local, apart = (
        SplitNNClassifier(
            parties=2, max_epochs=2, early_stopping=True, transport=way, random_state=0
        ).fit(X, y)
        for way in ("local", "process")
    )
    assert_array_equal(local.predict_proba(X), apart.predict_proba(X))
    assert local.communication_.messages == apart.communication_.messages


def test_scores_on_several_tasks(cancer):
    assert (
        SplitNNClassifier(parties=4, random_state=0).fit(*cancer).score(*cancer) > 0.98
    )
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    iris = SplitNNClassifier(batch_size=16, random_state=0).fit(X, names)
    assert iris.score(X, names) > 0.95
    assert_allclose(iris.predict_proba(X).sum(axis=1), 1)
    X, y = load_diabetes(return_X_y=True)
    diabetes = SplitNNRegressor(parties=3, max_epochs=30, random_state=0).fit(X, y)
    assert diabetes.score(X, y) > 0.5
    assert diabetes.predict(X).mean() == pytest.approx(y.mean(), rel=0.05)


def test_early_stopping_goes_back_to_the_best_models(cancer):
    X, y = cancer
    settings = {"parties": 3, "lr": 0.03, "random_state": 0, "n_iter_no_change": 4}
    split = SplitNNClassifier(early_stopping=True, max_epochs=60, **settings)
    split.fit(X, y)
    curve = split.validation_loss_curve_
    best = int(np.argmin(curve))
    assert split.n_iter_ == len(curve) == best + 1 + 4 < 60
    short = SplitNNClassifier(early_stopping=True, max_epochs=best + 1, **settings)
    short.fit(X, y)
    assert_array_equal(short.predict_proba(X), split.predict_proba(X))


def test_active_party_may_hold_no_column(cancer):
    X, y = cancer
    parties = {"bank": [], "lab": range(15), "shop": range(15, 30)}
    split = SplitNNClassifier(parties=parties, active="bank", random_state=0)
    assert split.fit(X, y).score(X, y) > 0.97
    assert split.transform(X).shape == (len(X), 64)


def test_weights_of_rows_and_classes(cancer):
    X, y = cancer
    settings = {"max_epochs": 15, "batch_size": 600, "random_state": 0}
    plain = SplitNNClassifier(**settings).fit(X, y).predict_proba(X)
    ones = SplitNNClassifier(**settings).fit(X, y, np.full(len(y), 3.0))
    assert_allclose(ones.predict_proba(X), plain, atol=1e-5)
    heavy = SplitNNClassifier(class_weight={0: 9, 1: 1}, **settings).fit(X, y)
    rows = SplitNNClassifier(**settings).fit(X, y, np.where(y == 0, 9.0, 1.0))
    assert_array_equal(heavy.predict_proba(X), rows.predict_proba(X))
    assert heavy.predict_proba(X)[:, 0].mean() > plain[:, 0].mean() + 0.05


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
    first, second = (
        SplitNNClassifier(
            bottom=Dropping, top=Dropping, batch_size=71, max_epochs=8, random_state=0
        ).fit(X, y)
        for _ in range(2)
    )
    assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert first.score(X, y) > 0.9


def test_convolutional_bottoms_on_image_tiles():
    X, y = load_digits(return_X_y=True)
    split = SplitNNClassifier(
        parties=VerticalPartitioner(
            "passthrough", parties=ImageTiles(shape=(8, 8), tiles=(2, 2))
        ),
        bottom=ConvolutionalBottom((4, 4), channels=(8, 16)),
        lr=0.01,
        max_epochs=8,
        random_state=0,
    ).fit(X, y)
    assert split.score(X, y) > 0.95
    with pytest.raises(PartyError, match="party1"):
        split.set_params(bottom__shape=(5, 5)).fit(X, y)


def test_no_row_is_left_in_a_fitted_estimator(cancer):
    split = SplitNNClassifier(parties=2, max_epochs=1, random_state=0).fit(*cancer)
    assert all(party._states == {} for party in split._parties.values())


def test_batches_cover_every_row_once():
    for n_rows in (1, 2, 31, 32, 33, 64, 65):
        batches = batch_bounds(n_rows, 32)
        rows = [i for start, stop in batches for i in range(start, stop)]
        assert rows == list(range(n_rows))
        assert n_rows == 1 or min(stop - start for start, stop in batches) > 1


# Quicker: the workers of RAP's search.
@pytest.mark.slow
def test_grid_search_in_workers(cancer):
    X, y = cancer
    grid = {"aggregation": ["concat", "sum"], "cut_width": [8], "max_epochs": [3]}
    search = GridSearchCV(SplitNNClassifier(random_state=0), grid, cv=2)
    serial = search.fit(X, y).cv_results_["mean_test_score"]
    parallel = search.set_params(n_jobs=2).fit(X, y).cv_results_["mean_test_score"]
    assert_array_equal(serial, parallel)


def test_another_cut_width_of_one_party_is_refused(cancer):
    X, y = cancer

    def uneven(n_inputs, n_outputs):
        return nn.Linear(n_inputs, n_outputs + (n_inputs == 14))

    parties = {"a": range(14), "b": range(14, 30)}
    split = SplitNNClassifier(parties=parties, bottom=uneven, aggregation="sum")
    with pytest.raises(PartyError, match="'a'"):
        split.fit(X, y)


def test_a_model_spoilt_by_the_last_step_raises(cancer):
    split = SplitNNClassifier(max_epochs=1, batch_size=1000, lr=1e38, random_state=0)
    with pytest.raises(ValueError, match="not finite after training"):
        split.fit(*cancer)
