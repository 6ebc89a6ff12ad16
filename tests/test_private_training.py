"""Private steps: clipped sums, sampled rows, noise, and what is refused."""

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy import stats
from scipy.special import ndtri
from torch import nn
from torch.nn.functional import cross_entropy, linear

from skvfl.exceptions import TrainingError
from skvfl.nn import _noise, _private
from skvfl.nn._apart import JointNetwork
from skvfl.nn._build import Build
from skvfl.nn._noise import Noise
from skvfl.nn._private import (
    PrivateSGD,
    PrivateSteps,
    _LinearSums,
    _RowSums,
    sensitivity,
    train_privately,
)
from skvfl.privacy import SampledGaussian

N_ROWS = 9
N_COLUMNS = 5


def row_loss(outputs, targets):
    return cross_entropy(outputs, targets, reduction="none")


class Branches(nn.Module):
    """A host: its own columns through a network, beside what it received."""

    def __init__(self):
        super().__init__()
        self.own = nn.Sequential(nn.Linear(N_COLUMNS, 4), nn.Tanh())
        self.head = nn.Sequential(nn.Linear(4 + 3, 6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, own, received):
        return self.head(torch.cat([self.own(own), received], dim=1))


class Twice(nn.Module):
    """A layer that sees every row twice, and one that sees it not at all."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(N_COLUMNS, N_COLUMNS)
        self.idle = nn.Linear(2, 2)
        self.last = nn.Linear(N_COLUMNS, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.shared(torch.tanh(self.shared(x)))))


class Sum(nn.Module):
    """Two layers whose outputs have one gradient tensor between them."""

    def __init__(self):
        super().__init__()
        self.left = nn.Linear(N_COLUMNS, 3)
        self.right = nn.Linear(N_COLUMNS, 3, bias=False)

    def forward(self, x):
        return self.left(x) + self.right(x.relu())


class Tied(nn.Module):
    """A weight used outside of its layer too: only single rows tell its gradient."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(N_COLUMNS, N_COLUMNS)
        self.last = nn.Linear(N_COLUMNS, 3)

    def forward(self, x):
        hidden = self.layer(x).tanh()
        return self.last(linear(hidden, self.layer.weight.T))


class Mixing(nn.Module):
    """Rows influence each other, and no type of layer tells."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(N_COLUMNS, 3)

    def forward(self, x):
        return self.layer(x - x.mean(dim=0))


class Counting(nn.Module):
    """Keeps a statistic of the rows that does not show in its outputs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(N_COLUMNS, 3)
        self.register_buffer("seen", torch.zeros(N_COLUMNS))

    def forward(self, x):
        self.seen += x.detach().sum(dim=0).to(self.seen)
        return self.layer(x)


def perceptron(*sizes):
    layers = []
    for pair in pairwise(sizes):
        layers += [nn.Linear(*pair), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def frozen():
    network = perceptron(N_COLUMNS, 4, 4, 3)
    network[0].weight.requires_grad_(False)
    network[2].bias.requires_grad_(False)
    return network


def host():
    """What FedOnce's host trains: two networks, of which one sees what is received."""
    local = nn.Sequential(perceptron(N_COLUMNS, 4, 4), nn.Tanh())
    return JointNetwork(local, perceptron(4 + 3, 6, 3))


def shared():
    layer = nn.Linear(N_COLUMNS, N_COLUMNS)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(N_COLUMNS, 3))


def sequences():
    """Rows that are sequences: a layer sees a row once per place."""
    return nn.Sequential(
        nn.Unflatten(1, (N_COLUMNS, 1)),
        nn.Linear(1, 4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(4 * N_COLUMNS, 3),
    )


def convolution():
    return nn.Sequential(
        nn.Unflatten(1, (1, N_COLUMNS)),
        nn.Conv1d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(4 * (N_COLUMNS // 2), 3),
    )


def in_place():
    return nn.Sequential(
        nn.Linear(N_COLUMNS, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)
    )


NETWORKS = {
    "perceptron": (lambda: perceptron(N_COLUMNS, 8, 6, 3), _LinearSums),
    "linear": (lambda: nn.Linear(N_COLUMNS, 3, bias=False), _LinearSums),
    "host": (host, _LinearSums),
    "tanh": (
        lambda: nn.Sequential(nn.Linear(N_COLUMNS, 4), nn.Tanh(), nn.Linear(4, 3)),
        _LinearSums,
    ),
    "frozen": (frozen, _LinearSums),
    "in place": (in_place, _LinearSums),
    "branches": (Branches, _RowSums),
    "layer used twice": (Twice, _RowSums),
    "sum": (Sum, _RowSums),
    "sequences": (sequences, _RowSums),
    "tied": (Tied, _RowSums),
    "two names for one layer": (shared, _RowSums),
    "convolution": (convolution, _RowSums),
    "layer norm": (
        lambda: nn.Sequential(nn.LayerNorm(N_COLUMNS), nn.Linear(N_COLUMNS, 3)),
        _RowSums,
    ),
}


def make(factory, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory()


def batch(module, n_rows=N_ROWS, seed=1):
    generator = torch.Generator().manual_seed(seed)
    joins = isinstance(module, (Branches, JointNetwork))
    widths = [N_COLUMNS, 3] if joins else [N_COLUMNS]
    inputs = [torch.randn(n_rows, width, generator=generator) for width in widths]
    targets = torch.randint(3, (n_rows,), generator=generator)
    weights = torch.rand(n_rows, generator=generator) * 3
    return inputs, [targets], weights


def make_steps(noise=0.0, rate=1.0, steps=1, n_rows=N_ROWS, seed=0, **options):
    run = SampledGaussian(rate, steps, ("bank",), noise_multiplier=noise)
    return PrivateSteps(run, n_rows, np.random.SeedSequence(seed), **options)


def make_sgd(module, steps, inputs, loss=row_loss, max_grad_norm=1.0, lr=1.0):
    shapes = [each.shape[1:] for each in inputs]
    return PrivateSGD(module, loss, steps, shapes, max_grad_norm=max_grad_norm, lr=lr)


def row_gradients(module, inputs, targets, weights):
    """Gradient of every row, from a backward pass of its own."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    rows = []
    for i in range(len(inputs[0])):
        row = slice(i, i + 1)
        loss = row_loss(module(*(x[row] for x in inputs)), *(t[row] for t in targets))
        if weights is not None:
            loss = loss * weights[row]
        gradients = torch.autograd.grad(
            loss.sum(), parameters, allow_unused=True, materialize_grads=True
        )
        rows.append(torch.cat([each.flatten() for each in gradients]))
    return torch.stack(rows)


def vector(module):
    return torch.cat(
        [p.detach().flatten() for p in module.parameters() if p.requires_grad]
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_step_is_the_sum_of_clipped_row_gradients(name, weighted):
    factory, way = NETWORKS[name]
    module = make(factory)
    inputs, targets, weights = batch(module)
    weights = weights if weighted else None
    gradients = row_gradients(module, inputs, targets, weights)
    norms = gradients.norm(dim=1)
    bound = norms.median().item()
    assert (norms < bound).any()
    assert (norms > bound).any()
    expected = (gradients * (bound / norms).clamp(max=1)[:, None]).sum(dim=0)

    before = vector(module)
    steps = make_steps()
    sgd = make_sgd(module, steps, inputs, max_grad_norm=bound, lr=0.5)
    assert type(sgd._sums) is way
    steps.draw()
    sgd.step(inputs, targets, weights)
    moved = (before - vector(module)) * N_ROWS / 0.5
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["perceptron", "sequences", "convolution"])
def test_step_agrees_with_opacus(name):
    factory, _ = NETWORKS[name]
    module = make(factory)
    inputs, targets, _ = batch(module)
    reference = GradSampleModule(copy.deepcopy(module))
    optimizer = DPOptimizer(
        torch.optim.SGD(reference.parameters(), lr=0.5),
        noise_multiplier=0.0,
        max_grad_norm=0.7,
        expected_batch_size=N_ROWS,
    )
    steps = make_steps(steps=4)
    sgd = make_sgd(module, steps, inputs, max_grad_norm=0.7, lr=0.5)
    watched = [each.clone().requires_grad_() for each in inputs]
    for _ in range(4):
        steps.draw()
        sgd.step(inputs, targets)
        optimizer.zero_grad()
        row_loss(reference(*watched), *targets).mean().backward()
        optimizer.step()
    torch.testing.assert_close(vector(module), vector(reference), rtol=1e-4, atol=1e-5)


def test_row_gradients_in_chunks_are_the_same(monkeypatch):
    moved = []
    for chunk in (1, 2**24):
        monkeypatch.setattr(_private, "_CHUNK", chunk)
        module = make(convolution)
        inputs, targets, weights = batch(module)
        steps = make_steps()
        sgd = make_sgd(module, steps, inputs)
        steps.draw()
        sgd.step(inputs, targets, weights)
        moved.append(vector(module))
    torch.testing.assert_close(*moved)


@given(
    st.sampled_from(["perceptron", "branches", "layer used twice", "convolution"]),
    st.integers(0, 2**31),
    st.floats(-3, 6),
    st.floats(-3, 6),
)
@settings(deadline=None, max_examples=30)
def test_one_row_moves_the_sum_by_at_most_the_bound(name, seed, scale, weight):
    module = make(NETWORKS[name][0], seed)
    inputs, targets, _ = batch(module, seed=seed)
    for part in inputs:
        part[0] *= 10**scale
    moved = []
    for first in (0, 1):
        copied = copy.deepcopy(module)
        steps = make_steps()
        sgd = make_sgd(copied, steps, inputs, max_grad_norm=0.3)
        steps.draw()
        rows = [[each[first:] for each in part] for part in (inputs, targets)]
        sgd.step(*rows, torch.full((N_ROWS - first,), 10**weight))
        moved.append(vector(copied).double())
    distance = ((moved[0] - moved[1]) * N_ROWS).norm().item()
    assert distance <= 0.3 * (1 + 1e-4)


@pytest.mark.parametrize("name", ["perceptron", "sequences", "convolution"])
def test_a_step_without_rows_is_noise(name):
    module = make(NETWORKS[name][0])
    inputs, targets, _ = batch(module, n_rows=0)
    before = vector(module)
    steps = make_steps(noise=2.0, rate=0.5, n_rows=100)
    sgd = make_sgd(module, steps, inputs, max_grad_norm=3.0, lr=0.1)
    steps.draw()
    sgd.step(inputs, targets)
    noise = (vector(module) - before) / 0.1 * 50
    assert stats.kstest(noise.numpy() / 6, "norm").pvalue > 1e-3


def test_parameters_without_use_get_noise_and_frozen_ones_none():
    module = make(Twice)
    module.last.bias.requires_grad_(False)
    before = copy.deepcopy(module)
    inputs, targets, _ = batch(module)
    steps = make_steps(noise=1.0)
    sgd = make_sgd(module, steps, inputs)
    steps.draw()
    sgd.step(inputs, targets)
    assert (module.idle.weight != before.idle.weight).all()
    assert torch.equal(module.last.bias, before.last.bias)


@pytest.mark.parametrize("rate", [0.02, 0.3, 1.0])
def test_rows_are_poisson_samples(rate):
    n_rows, n_steps = 40, 3000
    steps = make_steps(rate=rate, steps=n_steps, n_rows=n_rows)
    drawn = np.zeros((n_steps, n_rows), dtype=int)
    for step in drawn:
        rows = steps.draw().numpy()
        assert len(set(rows)) == len(rows)
        step[rows] = 1
    per_row = stats.binomtest
    assert all(
        per_row(int(count), n_steps, rate).pvalue > 1e-5 for count in drawn.sum(axis=0)
    )
    sizes = np.bincount(drawn.sum(axis=1), minlength=n_rows + 1)
    expected = n_steps * stats.binom.pmf(np.arange(n_rows + 1), n_rows, rate)
    common = expected > 10
    np.testing.assert_allclose(
        sizes[common], expected[common], atol=5 * np.sqrt(n_steps) / 2
    )
    together = (drawn[:, 0] & drawn[:, 1]).sum()
    assert stats.binomtest(int(together), n_steps, rate**2).pvalue > 1e-5
    if rate == 0.02:
        assert sizes[0] > 1000
    assert steps.spent.steps == n_steps
    with pytest.raises(TrainingError, match="all 3000 steps"):
        steps.draw()


def test_noise_cannot_be_had_without_counting_the_step():
    steps = make_steps(noise=1.0, steps=3)
    with pytest.raises(RuntimeError, match="anew"):
        steps.noise(2)
    steps.draw()
    steps.noise(2)
    with pytest.raises(RuntimeError, match="anew"):
        steps.noise(2)
    assert steps.spent.steps == 1


def test_parties_on_the_same_rows_have_noise_of_their_own():
    shared = np.random.SeedSequence(7)
    one, two = (
        make_steps(noise=1.0, rate=0.3, n_rows=50, steps=5, seed=seed, shared=shared)
        for seed in (1, 2)
    )
    for _ in range(5):
        assert torch.equal(one.draw(), two.draw())
        assert not np.array_equal(one.noise(4), two.noise(4))


def test_noise_is_normal_and_independent():
    noise = Noise(np.random.SeedSequence(0))
    numbers = np.concatenate([noise.normal(501, 2.0**22) for _ in range(800)])
    assert (numbers == np.rint(numbers)).all()
    numbers /= 2.0**22
    assert stats.kstest(numbers, "norm").pvalue > 1e-3
    assert abs(numbers.std() - 1) < 5 / math.sqrt(2 * len(numbers))
    tails = np.sum(np.abs(numbers) > 3)
    assert stats.binomtest(int(tails), len(numbers), 2 * stats.norm.sf(3)).pvalue > 1e-3
    pairs = numbers.reshape(800, 501)
    for lag in (1, 250, 251):
        correlation = np.corrcoef(pairs[:, :-lag].ravel(), pairs[:, lag:].ravel())[0, 1]
        assert abs(correlation) < 5 / math.sqrt(pairs[:, lag:].size)
    assert not np.array_equal(
        Noise(np.random.SeedSequence()).normal(9, 1e6),
        Noise(np.random.SeedSequence()).normal(9, 1e6),
    )


@pytest.mark.parametrize("scale", [0.3, 2.5, 7.0])
def test_noise_has_the_probabilities_of_rounded_normal_numbers(scale):
    """The law that the accountant counts, seen on a grid so coarse that it shows."""
    numbers = Noise(np.random.SeedSequence(1)).normal(400_000, scale)
    values = np.arange(-int(4 * scale) - 1, int(4 * scale) + 2)
    expected = np.diff(
        stats.norm.cdf(np.append(values - 0.5, values[-1] + 0.5), 0, scale)
    )
    found = (numbers[:, None] == values).mean(axis=0) if scale < 3 else None
    if found is None:
        found = np.array([np.mean(numbers == value) for value in values])
    errors = np.sqrt(expected * (1 - expected) / len(numbers))
    assert (abs(found - expected) < 5 * errors + 1e-5).all()


def test_noise_is_rounded_as_exact_arithmetic_rounds_it():
    """What quadratics and double precision settle, long arithmetic settles alike."""
    scale = 1234.5678
    fast, double, slow = (Noise(np.random.SeedSequence(2)) for _ in range(3))
    double._ROUGHLY = slow._ROUGHLY = 1.0
    slow._FARTHEST = 0.0
    numbers = fast.normal(300, scale)
    assert np.array_equal(numbers, double.normal(300, scale))
    assert np.array_equal(numbers, slow.normal(300, scale))
    assert len(set(numbers)) > 200


@pytest.mark.parametrize("scale", [0.5, 2.0**20, 2.0**29, 2.0**33])
def test_quadratics_settle_no_number_otherwise_than_double_precision(scale):
    rough, double = (Noise(np.random.SeedSequence(5)) for _ in range(2))
    double._ROUGHLY = np.inf
    numbers = rough.normal(500_000, scale)
    assert np.array_equal(numbers, double.normal(500_000, scale))


def test_quadratics_are_as_accurate_as_they_are_trusted():
    """In the middle of every piece, at its edges, and between."""
    edges = _noise._FIRST * 2 ** np.arange(0, 8, 1 / 16)[:, None]
    halves = np.concatenate([edges, edges * (1 + np.linspace(1e-9, 1 / 23, 5001))], 1)
    halves = np.floor(halves[halves < 2.0**63] / 2**10) * 2**10
    pieces = halves.view(np.int64) >> 52 - _noise._PIECES_BITS
    second, slope, constant = _noise._quadratics()[:, pieces & _noise._PIECES_MASK]
    found = (second * halves + slope) * halves + constant
    errors = np.abs(found - ndtri(halves * 2.0**-64))
    assert 2.0**-33 < errors.max() < Noise._ROUGHLY


def test_noise_far_out_has_more_bits():
    """Beyond what the first bits can say, numbers go on, and do not end at a wall."""
    noise = Noise(np.random.SeedSequence(3))
    far = [noise._settle(0, 1000.0) for _ in range(20)]
    assert min(far) > 9000
    assert len(set(far)) > 15
    boundary = noise._settle(2**63 - 1, 1000.0)
    assert boundary == 0


@pytest.mark.parametrize("size", [1, 7, 40_000])
def test_noise_is_never_used_twice(size):
    """Numbers that were drawn ahead for one request are not given to another."""
    noise = Noise(np.random.SeedSequence(4))
    seen = [noise.normal(size, 2.0**30) for _ in range(3)]
    seen += [noise.normal(size + 1, 2.0**30), noise.normal(size, 2.0**31) / 2]
    seen += [noise.normal(size, 2.0**30) for _ in range(3)]
    numbers = np.concatenate(seen)
    assert len(np.unique(numbers)) > len(numbers) - 20


def test_noise_is_nothing_where_there_is_none():
    assert not Noise(np.random.SeedSequence(0)).normal(5, 0.0).any()


def table(n_rows=300):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, N_COLUMNS))
    return X, (X[:, 0] + X[:, 1] > 0).astype(np.int64)


def fit(module=None, noise=0.5, seed=0, n_steps=150, **options):
    X, y = table()
    module = module or make(lambda: perceptron(N_COLUMNS, 8, 3))
    steps = make_steps(noise, rate=0.2, steps=n_steps, n_rows=len(X), seed=seed)
    fixed = {"loss": row_loss, "steps": steps, "max_grad_norm": 1.0, "lr": 0.5}
    spent = train_privately(module, X, y, **fixed | options)
    return module, spent, steps


def test_training_learns_counts_and_repeats(rng_guard):
    module, spent, _ = fit()
    again, _, _ = fit()
    other, _, _ = fit(seed=1)
    assert torch.equal(vector(module), vector(again))
    assert not torch.equal(vector(module), vector(other))
    assert spent == SampledGaussian(0.2, 150, ("bank",), noise_multiplier=0.5)
    assert not module.training
    X, y = table()
    with torch.inference_mode():
        predicted = module(torch.from_numpy(X).float()).argmax(dim=1).numpy()
    assert (predicted == y).mean() > 0.9


def test_stopping_early_spends_less():
    seen = []

    def report(step):
        seen.append(step)
        return step == 7

    _, spent, _ = fit(report=report)
    assert seen == [*range(1, 8)]
    assert spent.steps == 7


def test_tables_in_several_parts_and_weights():
    X, y = table()
    module = make(Branches)
    before = vector(module)
    steps = make_steps(rate=0.2, steps=3, n_rows=len(X))
    fixed = {"loss": row_loss, "steps": steps, "max_grad_norm": 1.0, "lr": 0.5}
    weights = np.zeros(len(X))
    train_privately(module, (X, X[:, :3]), (y,), weights=weights, **fixed)
    assert torch.equal(vector(module), before)


def test_networks_of_users_with_dropout(rng_guard):
    for build in (
        lambda n_in, n_out: nn.Sequential(
            nn.Linear(n_in, 8), nn.Dropout(0.5), nn.Linear(8, n_out)
        ),
        lambda n_in, n_out: nn.Sequential(
            nn.LayerNorm(n_in), nn.Dropout(0.5), nn.Linear(n_in, n_out)
        ),
    ):
        trained = [
            vector(
                fit(
                    Build(build, 3)(N_COLUMNS, torch.Generator().manual_seed(0)),
                    n_steps=20,
                )[0]
            )
            for _ in range(2)
        ]
        assert torch.equal(*trained)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            nn.Sequential(nn.Linear(N_COLUMNS, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
            "BatchNorm1d '1' normalises .* use LayerNorm",
        ),
        (Mixing(), "rows of a batch influence each other in Mixing"),
        (Counting(), "buffer 'seen' of Counting changes"),
        (frozen().requires_grad_(False), "no parameter to train"),
    ],
)
def test_modules_that_no_clipping_bounds_are_refused(module, message):
    with pytest.raises(TrainingError, match=message):
        fit(module)


def test_no_steps_other_rows_and_broken_values_are_refused():
    with pytest.raises(TrainingError, match="no private step"):
        fit(n_steps=0)
    with pytest.raises(ValueError, match="300 rows, but steps draw from 9"):
        fit(steps=make_steps())


def test_rows_without_finite_gradient_count_as_rows_without_gradient():
    """Neither an error nor a broken model gives such a row away."""
    X, y = table()
    for module in (lambda: perceptron(N_COLUMNS, 8, 3), convolution):
        moved = []
        for value, weight in ((np.inf, 1.0), (0.0, 0.0)):
            rows = X.copy()
            rows[0] = value
            weights = np.ones(len(X))
            weights[0] = weight
            steps = make_steps(0.5, rate=1.0, n_rows=len(X))
            options = {"max_grad_norm": 1.0, "lr": 0.5, "weights": weights}
            network = make(module)
            train_privately(network, rows, y, loss=row_loss, steps=steps, **options)
            moved.append(vector(network))
        assert torch.equal(*moved)
        assert torch.isfinite(moved[0]).all()


def rounded_sum(module, sgd, inputs, targets, weights):
    """The whole numbers that a step without noise releases."""
    sgd._steps = make_steps(n_rows=sgd._steps.n_rows)
    sgd._steps.draw()
    sgd.step(inputs, targets, weights)
    return sgd._total.numpy().copy()


@pytest.mark.parametrize("name", ["perceptron", "host", "frozen", "convolution"])
@pytest.mark.parametrize("n_rows", [1, 9, 130])
def test_a_row_moves_the_rounded_sum_by_no_more_than_is_accounted_for(name, n_rows):
    """Rows of every size, and a place that is empty: it has weight zero."""
    module = make(NETWORKS[name][0])
    rng = np.random.default_rng(0)
    for trial in range(20):
        inputs, targets, _ = batch(module, n_rows, seed=trial)
        row = rng.integers(n_rows)
        for part in inputs:
            part[row] *= 10.0 ** rng.uniform(-6, 30)
        weights = 10.0 ** torch.from_numpy(rng.uniform(-9, 9, n_rows)).float()
        steps = make_steps(n_rows=n_rows)
        sgd = make_sgd(module, steps, inputs, max_grad_norm=0.7, lr=0.0)
        sums = [rounded_sum(module, sgd, inputs, targets, weights)]
        weights[row] = 0
        sums.append(rounded_sum(module, sgd, inputs, targets, weights))
        assert all((each == np.rint(each)).all() for each in sums)
        assert np.linalg.norm(sums[0] - sums[1]) <= sgd._sensitivity


@pytest.mark.parametrize("name", ["perceptron", "host", "convolution"])
def test_gradients_of_rows_do_not_depend_on_other_rows_by_a_bit(name):
    """A row contributes the same, whatever the other rows of the batch are."""
    module = make(NETWORKS[name][0])
    inputs, targets, _ = batch(module, 64)
    sgd = make_sgd(module, make_steps(n_rows=64), inputs, lr=0.0)
    alone = []
    for others in (1.0, 1e6, 0.0):
        weights = torch.zeros(64)
        weights[17] = 1.0
        changed = [part * others for part in inputs]
        for new, old in zip(changed, inputs, strict=True):
            new[17] = old[17]
        alone.append(rounded_sum(module, sgd, changed, targets, weights))
    assert np.array_equal(alone[0], alone[1])
    assert np.array_equal(alone[0], alone[2])
    assert alone[0].any()


def test_sensitivity_pays_for_rounding_and_for_adding_up():
    unit, few = sensitivity(1.5, 100, 4000)
    assert unit == 2.0**-20
    assert few * unit == pytest.approx(1.5 + 4000**0.5 * unit, rel=1e-9)
    _, many = sensitivity(1.5, 10**6, 4000)
    assert many / few - 1 == pytest.approx(10**12 * 2.0**-52, rel=1e-3)
    assert sensitivity(2.0, 1, 1)[0] == 2 * unit
