"""The loop of everything that a party trains alone."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from skorch.callbacks import Callback, EarlyStopping, LRScheduler
from torch import nn
from torch.nn import functional

from skvfl import AutoencoderTransformer, NoiseAsTargetsEncoder, SplitNNClassifier
from skvfl.exceptions import ShareableError, TrainingError
from skvfl.nn._mlp import perceptron
from skvfl.nn._training import train

cross_entropy = partial(functional.cross_entropy, reduction="none")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(203, 5)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
SETTINGS = {"max_epochs": 3, "batch_size": 20, "lr": 0.01}


def squared_error(outputs, targets):
    return (outputs - targets).square().sum(dim=1)


def network(seed=0, n_outputs=2):
    return perceptron([5, 8, n_outputs], torch.Generator().manual_seed(seed))


def fit(module=None, inputs=X, targets=Y, loss=cross_entropy, **settings):
    settings = {"sequence": np.random.SeedSequence(0), **SETTINGS, **settings}
    return train(module or network(), inputs, targets, loss=loss, **settings)


def parameters(module):
    return torch.cat([p.detach().ravel() for p in module.parameters()]).numpy()


class Recorder(nn.Module):
    """Notes the first column of the batches it is given, and in which mode."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.seen, self.modes = [], []

    def forward(self, rows):
        self.seen.append(rows[:, 0].tolist())
        self.modes.append(self.training)
        return self.layer(rows)


def record(n_rows, **settings):
    recorder = Recorder()
    rows = np.arange(n_rows, dtype=np.float32)[:, None] / n_rows
    net = fit(recorder, rows, rows, squared_error, **settings)
    return recorder, net


def test_steps_are_those_of_a_plain_loop_in_torch():
    ours, theirs, order = network(), network(), []
    positions = {row.tobytes(): i for i, row in enumerate(X)}
    watch = ours.register_forward_pre_hook(
        lambda module, args: order.append(
            [positions[row.tobytes()] for row in args[0].numpy()]
        )
    )
    fit(ours, weight_decay=0.1)
    watch.remove()
    optimizer = torch.optim.Adam(
        theirs.parameters(), lr=0.01, weight_decay=0.1, fused=True
    )
    for rows in order:
        optimizer.zero_grad()
        outputs = theirs(torch.from_numpy(X[rows]))
        functional.cross_entropy(outputs, torch.from_numpy(Y[rows])).backward()
        optimizer.step()
    assert len(order) == 3 * 11
    assert_array_equal(parameters(ours), parameters(theirs))


@pytest.mark.parametrize(
    ("n_rows", "sizes"),
    [(1, [1]), (7, [7]), (40, [20, 20]), (41, [20, 21]), (42, [20, 20, 2])],
)
def test_every_row_is_in_one_batch_and_none_has_one_row_of_many(n_rows, sizes):
    recorder, _ = record(n_rows, max_epochs=2)
    assert list(map(len, recorder.seen)) == 2 * sizes
    epochs = recorder.seen[: len(sizes)], recorder.seen[len(sizes) :]
    rows = [[row for batch in epoch for row in batch] for epoch in epochs]
    every = (np.arange(n_rows, dtype=np.float32) / n_rows).tolist()
    assert sorted(rows[0]) == sorted(rows[1]) == every
    assert n_rows < 3 or rows[0] != rows[1]


def test_batch_norm_never_meets_a_batch_of_one_row():
    normed = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    fit(normed, X[:41], Y[:41])
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        normed.train()(torch.from_numpy(X[:1]))


def test_weighted_mean_of_the_rows_is_minimised():
    weights = RNG.uniform(0.5, 2, len(X))
    settings = {"optimizer": torch.optim.SGD, "batch_size": len(X), "max_epochs": 1}
    module = network()
    fit(module, weights=weights, **settings)
    expected = network()
    losses = cross_entropy(expected(torch.from_numpy(X)), torch.from_numpy(Y))
    mean = (losses * torch.from_numpy(weights)).sum() / weights.sum()
    mean.backward()
    with torch.no_grad():
        for parameter in expected.parameters():
            parameter -= 0.01 * parameter.grad
    assert_allclose(parameters(module), parameters(expected), rtol=1e-5)


@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2, len(X))])
def test_loss_of_an_epoch_is_the_mean_over_its_rows(weights):
    frozen = {"optimizer": torch.optim.SGD, "lr": 1e-30, "weights": weights}
    outputs = network()(torch.from_numpy(X))
    losses = cross_entropy(outputs, torch.from_numpy(Y)).detach().numpy()
    expected = np.average(losses, weights=weights)
    reported = []
    net = fit(report=lambda *args: reported.append(args), **frozen)
    assert_allclose(net.history[:, "train_loss"], expected, rtol=1e-6)
    assert [epoch for epoch, _ in reported] == [1, 2, 3]
    assert_allclose([loss["train_loss"] for _, loss in reported], expected, rtol=1e-6)


def test_several_inputs_and_no_targets():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(1))

        def forward(self, a, b):
            return a + self.factor * b

    module = Sum()
    settings = {"lr": 0.1, "optimizer": torch.optim.SGD, "max_epochs": 60}
    fit(module, (X, X), None, lambda outputs: outputs.square().mean(dim=1), **settings)
    assert_allclose(module.factor.item(), -1, atol=1e-3)


def test_same_seed_same_bytes_and_another_seed_others(rng_guard):
    first, second, third = network(), network(), network()
    fit(first)
    fit(second)
    fit(third, sequence=np.random.SeedSequence(1))
    assert_array_equal(parameters(first), parameters(second))
    assert np.any(parameters(first) != parameters(third))


def test_module_is_trained_in_place_and_left_in_evaluation_mode():
    module = network()
    before = parameters(module)
    net = fit(module)
    assert net.module_ is module
    assert not module.training
    assert np.any(parameters(module) != before)


def test_early_stopping_goes_back_to_the_best_epoch():
    valid, states = [], []
    module = network(n_outputs=1)
    noise = RNG.normal(size=(len(X), 1)).astype(np.float32)

    def report(epoch, losses):
        valid.append(losses["valid_loss"])
        states.append(parameters(module))

    settings = {"early_stopping": True, "n_iter_no_change": 4, "max_epochs": 200}
    net = fit(module, X, noise, squared_error, report=report, **settings)
    best = int(np.argmin(valid))
    assert len(valid) == best + 5 < 200
    assert_array_equal(parameters(module), states[best])
    assert net.history[:, "valid_loss"] == valid


def test_held_out_rows_are_a_fraction_that_is_never_trained_on():
    recorder, _ = record(50, early_stopping=True, validation_fraction=0.21)
    trained, held_out = set(), set()
    for rows, training in zip(recorder.seen, recorder.modes, strict=True):
        (trained if training else held_out).update(rows)
    assert len(held_out) == 11
    assert len(trained) == 39
    assert not trained & held_out


def test_report_and_callbacks_can_stop_training():
    assert len(fit(report=lambda epoch, losses: epoch == 2).history) == 2
    stopping = EarlyStopping("train_loss", patience=1, threshold=100, sink=lambda _: 0)
    assert len(fit(callbacks=[stopping], max_epochs=9).history) == 2


def test_keyboard_interrupt_is_not_swallowed():
    def interrupt(outputs, labels):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(loss=interrupt)


class Events(Callback):
    def __init__(self):
        self.events = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return lambda net, **kwargs: self.events.append((name, sorted(kwargs)))
        return super().__getattribute__(name)


def test_callbacks_see_what_skorch_shows_them():
    seen = Events()
    net = fit(callbacks=[seen], batch_size=150, max_epochs=1)
    batch = [
        ("on_batch_begin", ["batch", "training"]),
        ("on_grad_computed", ["batch", "named_parameters", "training"]),
        ("on_batch_end", ["batch", "loss", "training", "y_pred"]),
    ]
    datasets = ["dataset_train", "dataset_valid"]
    assert seen.events == [
        ("on_train_begin", ["X", "y"]),
        ("on_epoch_begin", datasets),
        *batch,
        *batch,
        ("on_epoch_end", datasets),
        ("on_train_end", ["X", "y"]),
    ]
    assert net.history[0, "batches", :, "train_batch_size"] == [150, 53]
    losses = net.history[0, "batches", :, "train_loss"]
    assert_allclose(
        np.average(losses, weights=[150, 53]), net.history[0, "train_loss"], rtol=1e-6
    )


def test_callbacks_change_nothing_by_being_there():
    watched, unwatched = network(), network()
    fit(watched, callbacks=[Callback()], weight_decay=0.1)
    fit(unwatched, weight_decay=0.1)
    assert_array_equal(parameters(watched), parameters(unwatched))


def test_learning_rate_schedules_work():
    net = fit(callbacks=[LRScheduler("StepLR", step_size=1, gamma=0.5)])
    assert net.optimizer_.param_groups[0]["lr"] == 0.01 * 0.5**3


@pytest.mark.parametrize(
    ("n_rows", "settings"),
    [(0, {}), (9, {"max_epochs": 0}), (1, {"early_stopping": True})],
)
def test_no_step_is_an_error(n_rows, settings):
    with pytest.raises(TrainingError, match=f"no optimiser step .* {n_rows} rows"):
        fit(None, X[:n_rows], Y[:n_rows], **settings)


def test_loss_that_is_not_finite_is_an_error_that_may_be_read_by_others():
    targets = X.copy()
    targets[7] = np.inf
    with pytest.raises(TrainingError, match=r"epoch 1 .*not finite.* lr=0.01") as error:
        fit(network(n_outputs=5), X, targets, squared_error)
    assert isinstance(error.value, ShareableError)


def test_net_holds_no_rows_and_can_be_pickled():
    secret = X.copy()
    secret[:, 0] = 1234.5678
    net = fit(None, secret, Y, callbacks=[Callback()])
    pickled = pickle.dumps(net)
    assert secret[3].tobytes() not in pickled
    assert np.float32(1234.5678).tobytes() not in pickled
    assert_array_equal(
        parameters(pickle.loads(pickled).module_), parameters(net.module_)
    )


@pytest.mark.parametrize("size", [0, -1, 2.5])
@pytest.mark.parametrize(
    "make",
    [
        lambda size: SplitNNClassifier(bottom=(size,), max_epochs=1),
        lambda size: SplitNNClassifier(top=(size,), max_epochs=1),
        lambda size: AutoencoderTransformer(2, hidden_layer_sizes=(size,)),
        lambda size: NoiseAsTargetsEncoder(hidden_layer_sizes=(size,)),
    ],
    ids=["bottom", "top", "autoencoder", "guest"],
)
def test_layers_have_units(make, size):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 4))
    with pytest.raises(ValueError, match="a positive whole number"):
        make(size).fit(rows, np.arange(20) % 2)
