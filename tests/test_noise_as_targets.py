"""Noise as targets: what the paper says, and guests that are trained together."""

import pickle
from itertools import permutations

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale
from skorch.callbacks import Callback, EpochTimer
from torch import nn

import skvfl.fedonce._noise_as_targets
from skvfl import NoiseAsTargetsEncoder
from skvfl._sklearn import CallbackSupportMixin
from skvfl.exceptions import ShareableError
from skvfl.fedonce._targets import NoiseTargets, exchange
from skvfl.nn import ConvolutionalBottom

X = np.random.default_rng(0).normal(size=(121, 6)).astype(np.float32)
BRIEF = {"max_epochs": 6, "batch_size": 20, "lr": 0.01, "random_state": 0}


def encoder(**parameters):
    return NoiseAsTargetsEncoder(**{**BRIEF, **parameters})


def targets(n_rows=121, update_every=1, seed=0):
    return NoiseTargets(n_rows, 3, update_every, np.random.SeedSequence(seed))


def parameters(fitted):
    return torch.cat([p.detach().ravel() for p in fitted.module_.parameters()]).numpy()


@pytest.fixture
def watched(monkeypatch):
    """The targets that the next fit uses, with a copy of them after every epoch."""
    made = []

    class Watched(NoiseTargets):
        def __init__(self, *args, **settings):
            super().__init__(*args, **settings)
            made.append(self)
            self.epochs = [self.targets.clone()]

        def begin_epoch(self, epoch):
            super().begin_epoch(epoch)
            if epoch > 1:
                self.epochs.append(self.targets.clone())

    monkeypatch.setattr(skvfl.fedonce._noise_as_targets, "NoiseTargets", Watched)
    return made


def test_targets_are_uniform_on_the_unit_sphere():
    points = targets(20_000).targets.numpy().astype(np.float64)
    assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-6)
    assert_allclose(points.mean(axis=0), 0, atol=0.02)
    assert_allclose(points.T @ points / 20_000, np.eye(3) / 3, atol=0.01)


def test_loss_is_that_of_equation_1():
    noise = targets(update_every=None)
    outputs, rows = torch.randn(5, 3), torch.tensor([3, 9, 4, 0, 120])
    squares = np.linalg.norm(outputs.numpy() - noise.targets[rows].numpy()) ** 2
    assert_allclose(noise(outputs, rows).mean().item(), squares / (2 * 5), rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    n_rows=st.integers(1, 6),
    n_distinct=st.integers(1, 6),
    size=st.sampled_from([0.0, 1e-3, 1.0, 30.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_exchange_is_the_one_of_least_loss(n_rows, n_distinct, size, seed):
    rng = np.random.default_rng(seed)
    outputs = (
        size * rng.normal(size=(n_distinct, 3))[rng.integers(n_distinct, size=n_rows)]
    )
    points = targets(n_rows, seed=seed).targets
    outputs = torch.from_numpy(outputs.astype(np.float32))
    (given_,) = exchange(outputs[None], points[None])
    assert sorted(given_.tolist()) == sorted(points.tolist())

    def loss(points):
        return float((outputs.double() - points.double()).square().sum()) / 2

    least = min(loss(points[list(order)]) for order in permutations(range(n_rows)))
    assert_allclose(loss(given_), least, rtol=1e-6, atol=1e-6)


def test_exchange_of_one_guest_is_its_own():
    outputs, points = torch.randn(4, 9, 3), torch.randn(4, 9, 3)
    alone = [
        exchange(o[None], p[None])[0] for o, p in zip(outputs, points, strict=True)
    ]
    assert_array_equal(exchange(outputs, points), torch.stack(alone))


def test_exchanged_targets_are_kept():
    noise = targets()
    first = noise.targets.clone()
    rows = torch.arange(10, 30)
    outputs = torch.randn(20, 3)
    before = first[rows]
    loss = noise(outputs, rows)
    (expected,) = exchange(outputs[None], before[None])
    assert_array_equal(noise.targets[rows], expected)
    assert_allclose(loss, (outputs - expected).square().sum(dim=1) / 2)
    others = np.setdiff1d(np.arange(121), rows)
    assert_array_equal(noise.targets[others], first[others])
    assert not torch.equal(expected, before)


def test_loss_has_no_gradient_through_the_exchange():
    noise, rows = targets(), torch.arange(20)
    outputs = torch.randn(20, 3, requires_grad=True)
    noise(outputs, rows).sum().backward()
    assert_allclose(outputs.grad, (outputs - noise.targets[rows]).detach())


@pytest.mark.parametrize(
    ("update_every", "exchanging"), [(1, [1, 2, 3, 4, 5, 6]), (3, [3, 6]), (None, [])]
)
def test_targets_move_every_so_many_epochs_and_stay_the_same_points(
    watched, update_every, exchanging
):
    encoder(update_every=update_every).fit(X)
    (noise,) = watched
    moved = [
        epoch
        for epoch, (before, after) in enumerate(
            zip(noise.epochs, noise.epochs[1:], strict=False), start=1
        )
        if not torch.equal(before, after)
    ]
    assert moved == exchanging
    points = [sorted(epoch.tolist()) for epoch in noise.epochs]
    assert points == [points[0]] * 7


def test_exchange_finds_nearer_targets_than_the_first():
    kept, moved = (encoder(update_every=every).fit(X) for every in (None, 1))
    assert moved.loss_curve_[-1] < 0.5 * kept.loss_curve_[-1]


def test_untrained_encoder_is_the_network_as_drawn():
    fitted = encoder(max_epochs=0).fit(X)
    assert fitted.loss_curve_ == []
    assert fitted.n_iter_ == 0
    assert fitted.transform(X).shape == (121, 3)
    assert np.any(parameters(fitted) != parameters(encoder(max_epochs=1).fit(X)))


@pytest.mark.parametrize("activation", ["tanh", "identity"])
def test_representation_is_the_network_in_evaluation_mode(activation):
    def module(n_inputs, n_outputs):
        return nn.Sequential(
            nn.BatchNorm1d(n_inputs), nn.Dropout(0.5), nn.Linear(n_inputs, n_outputs)
        )

    fitted = encoder(hidden_layer_sizes=module, output_activation=activation).fit(X)
    assert not any(each.training for each in fitted.module_.modules())
    with torch.inference_mode():
        expected = fitted.module_(torch.from_numpy(X)).numpy()
    assert_allclose(fitted.transform(X), expected, rtol=1e-4, atol=1e-6)
    assert_array_equal(fitted.transform(X)[5:6], fitted.transform(X[5:6]))
    has_tanh = any(isinstance(each, nn.Tanh) for each in fitted.module_.modules())
    assert has_tanh == (activation == "tanh")


def test_image_tiles_have_a_convolutional_network():
    tiles = np.random.default_rng(0).normal(size=(41, 36)).astype(np.float32)
    fitted = encoder(hidden_layer_sizes=ConvolutionalBottom((6, 6)), max_epochs=1).fit(
        tiles
    )
    assert fitted.transform(tiles).shape == (41, 3)
    assert any(isinstance(each, nn.Conv2d) for each in fitted.module_.modules())


@pytest.mark.parametrize(
    "module", [(8,), lambda n, m: nn.Sequential(nn.Dropout(0.3), nn.Linear(n, m))]
)
def test_same_seed_same_bytes(module, rng_guard):
    first, second, other = (
        encoder(hidden_layer_sizes=module, random_state=seed).fit_transform(X)
        for seed in (0, 0, 1)
    )
    assert first.tobytes() == second.tobytes()
    assert first.tobytes() != other.tobytes()


def test_fitted_encoder_pickles_without_rows_or_targets(watched):
    fitted = encoder().fit(X)
    pickled = pickle.dumps(fitted)
    assert X[7].tobytes() not in pickled
    assert watched[0].targets[7].numpy().tobytes() not in pickled
    assert_array_equal(pickle.loads(pickled).transform(X), fitted.transform(X))
    assert clone(fitted).get_params() == fitted.get_params()


def test_frames_in_and_frames_out():
    frame = pl.DataFrame(X, schema=list("abcdef"))
    fitted = encoder().set_output(transform="polars")
    out = fitted.fit_transform(frame)
    assert out.columns == [f"noiseastargetsencoder{i}" for i in range(3)]
    assert_array_equal(out.to_numpy(), encoder().fit_transform(X))


def test_skorch_callbacks_are_called():
    class Count(Callback):
        n_batches = 0

        def on_batch_end(self, net, **kwargs):
            self.n_batches += 1

    count = Count()
    watched = encoder(callbacks=[count, EpochTimer()]).fit(X)
    assert count.n_batches == 6 * 6
    assert_array_equal(parameters(watched), parameters(encoder().fit(X)))


def test_scikit_learn_callbacks_see_every_epoch_and_can_stop():
    class Stop:
        n_epochs = 0

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context, **kwargs):
            pass

        def on_fit_task_end(self, estimator, context, **kwargs):
            if context.task_name == "epoch":
                self.n_epochs += 1
                return self.n_epochs == 4
            return False

    stop = Stop()
    fitted = encoder()
    assert isinstance(fitted, CallbackSupportMixin)
    fitted.set_callbacks(stop).fit(X)
    assert fitted.n_iter_ == len(fitted.loss_curve_) == stop.n_epochs == 4


def test_columns_too_large_to_train_on_are_refused():
    with pytest.raises(
        ValueError, match="not finite: standardise the columns"
    ) as error:
        encoder(output_activation="identity", lr=1e30, weight_decay=1.0).fit(X)
    assert isinstance(error.value, ShareableError)


def test_few_components_tell_more_of_digits_than_untrained_ones():
    digits, labels = load_digits(return_X_y=True)
    digits = scale(digits)
    accuracy = {}
    for max_epochs in (0, 40):
        fitted = NoiseAsTargetsEncoder(max_epochs=max_epochs, random_state=0)
        represented = scale(fitted.fit_transform(digits).astype(np.float64))
        model = LogisticRegression().fit(represented[:1200], labels[:1200])
        accuracy[max_epochs] = model.score(represented[1200:], labels[1200:])
    assert accuracy[40] > accuracy[0] + 0.15


@pytest.mark.parametrize("common", [{}, {"update_every": 2}, {"weight_decay": 0.1}])
@pytest.mark.parametrize("widths", [(6, 6, 6), (6, 4, 1)])
def test_guests_trained_together_are_those_trained_alone(widths, common, rng_guard):
    blocks = [X[:, :width] + i for i, width in enumerate(widths)]
    alone = [
        encoder(random_state=i, **common).fit(block) for i, block in enumerate(blocks)
    ]
    together = [encoder(random_state=i, **common) for i in range(3)]
    assert NoiseAsTargetsEncoder.fit_together(together, blocks) == together
    for one, other, block in zip(alone, together, blocks, strict=True):
        assert_allclose(parameters(other), parameters(one), atol=1e-5)
        assert_allclose(other.transform(block), one.transform(block), atol=1e-5)
        assert_allclose(other.loss_curve_, one.loss_curve_, rtol=1e-5)
        assert other.n_iter_ == one.n_iter_ == 6
        assert other.n_features_in_ == block.shape[1]
        assert not other.module_.training


def test_guests_trained_together_may_be_left_untrained():
    (together,) = NoiseAsTargetsEncoder.fit_together([encoder(max_epochs=0)], [X])
    assert together.loss_curve_ == []
    assert_array_equal(parameters(together), parameters(encoder(max_epochs=0).fit(X)))


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"lr": 0.1}, "the same parameters"),
        ({"hidden_layer_sizes": (3,)}, "the same parameters"),
        ({"hidden_layer_sizes": nn.Linear}, "hidden layers of a perceptron"),
        ({"optimizer": torch.optim.SGD}, "no optimizer"),
        ({"max_epochs": -1}, "'max_epochs' parameter"),
    ],
)
def test_guests_that_differ_are_not_trained_together(others, message):
    with pytest.raises(ValueError, match=message):
        NoiseAsTargetsEncoder.fit_together([encoder(), encoder(**others)], [X, X])


def test_guests_trained_together_have_the_same_rows_and_finite_losses():
    with pytest.raises(ValueError, match="different numbers of rows"):
        NoiseAsTargetsEncoder.fit_together([encoder(), encoder()], [X, X[1:]])
    wild = [encoder(output_activation="identity", lr=1e30, weight_decay=1.0)] * 2
    with pytest.raises(ValueError, match="not finite"):
        NoiseAsTargetsEncoder.fit_together(wild, [X, X])


def test_targets_of_a_rows_own_do_not_depend_on_the_others():
    rows = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    encoder = NoiseAsTargetsEncoder(targets="projection", random_state=0)
    _, noise, _ = encoder._start(rows)
    _, alone, _ = encoder._start(rows[[5]])
    assert not noise.exchanges
    assert_allclose(noise.targets[[5]], alone.targets, atol=1e-6)
    assert_allclose(np.linalg.norm(noise.targets, axis=1), 1, rtol=1e-6)
    _, longer, _ = encoder._start(7 * rows)
    assert_allclose(noise.targets, longer.targets, atol=1e-6)


def test_targets_of_a_rows_own_are_learnt():
    rows = np.random.default_rng(0).normal(size=(300, 4))
    encoder = NoiseAsTargetsEncoder(
        targets="projection", output_activation="identity", lr=0.01, random_state=0
    ).fit(rows)
    assert encoder.loss_curve_[-1] < 0.1 * encoder.loss_curve_[0]


def test_secret_targets_do_not_follow_from_a_seed_of_31_bits(monkeypatch):
    """Who tries all such seeds finds the targets of a guest without a budget."""
    streams = [np.random.SeedSequence(seed) for seed in (1, 2)]
    monkeypatch.setattr("skvfl.fedonce._targets.int_seed", lambda sequence: 5)
    first, second = (NoiseTargets(9, 3, None, stream).targets for stream in streams)
    assert torch.equal(first, second)
    first, second = (
        NoiseTargets(9, 3, None, stream, secret=True).targets for stream in streams
    )
    assert not torch.isclose(first, second).all(dim=1).any()


def test_targets_under_a_budget_are_secret(monkeypatch):
    found = []
    start = NoiseTargets.__init__

    def watched(noise, *args, secret=False, **settings):
        found.append(secret)
        start(noise, *args, secret=secret, **settings)

    monkeypatch.setattr(NoiseTargets, "__init__", watched)
    encoder(max_epochs=1).fit(X)
    assert found == [False]
    settings = {"epsilon": 5.0, "delta": 1e-3, "max_epochs": 1, "batch_size": 50}
    guest = NoiseAsTargetsEncoder(max_epochs=1, batch_size=50, update_every=None)
    skvfl.FedOnceClassifier(local_encoder=guest, **settings).fit(X, X[:, 0] > 0)
    assert found == [False, True]
