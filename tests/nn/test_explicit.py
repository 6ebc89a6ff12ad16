import numpy as np
import pytest
import torch
from torch import nn

from skvfl.fedonce._targets import NoiseTargets
from skvfl.nn import _training
from skvfl.nn._apart import JointNetwork
from skvfl.nn._autoencoder import Autoencoder, AutoencoderLoss, ExplicitAutoencoder
from skvfl.nn._build import Build, Optimize
from skvfl.nn._explicit import (
    CrossEntropy,
    Explicit,
    ExplicitJoint,
    ExplicitModule,
    Recorded,
    SquaredError,
    links_of,
    loss_and_gradient,
    loss_gradient,
    trainer,
)
from skvfl.nn._mlp import perceptron
from skvfl.nn._training import passes_of, train

N_ROWS, N_COLUMNS = 121, 7
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N_ROWS, N_COLUMNS)).astype(np.float32)
CLASSES = RNG.integers(0, 3, N_ROWS)
TARGETS = RNG.standard_normal((N_ROWS, 1)).astype(np.float32)
LATENT = RNG.standard_normal((N_ROWS, 5)).astype(np.float32)
HAS_TARGET = RNG.random(N_ROWS) < 0.5
WEIGHTS = np.linspace(0, 2, N_ROWS, dtype=np.float32)


def stream():
    return torch.Generator().manual_seed(0)


def squashed(generator):
    return nn.Sequential(perceptron([N_COLUMNS, 9, 5], generator), nn.Tanh())


def half_distance(outputs, targets):
    return (outputs - targets).square().sum(dim=1) / 2


NETWORKS = {
    "classes": (lambda g: perceptron([N_COLUMNS, 9, 3], g), CLASSES, CrossEntropy()),
    "numbers": (lambda g: perceptron([N_COLUMNS, 1], g), TARGETS, SquaredError()),
    "loss without a gradient": (squashed, LATENT, half_distance),
}


def train_both(monkeypatch, build, targets, loss, inputs=X, **options):
    """Train twice from the same start: without a graph, and with one."""
    found = []
    for passes in (passes_of, lambda *_: None):
        monkeypatch.setattr(_training, "passes_of", passes)
        module, sequence = build(stream()), np.random.SeedSequence(0)
        options |= {"max_epochs": 3, "batch_size": 20, "lr": 0.01}
        net = train(module, inputs, targets, loss=loss, sequence=sequence, **options)
        found.append((module.state_dict(), net.history[:, "train_loss"]))
    return found


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "options",
    [{}, {"weights": WEIGHTS}, {"weight_decay": 0.01}, {"early_stopping": True}],
    ids=["plain", "weights", "decay", "early stopping"],
)
def test_bits_are_those_of_a_graph(monkeypatch, network, options):
    build, targets, loss = NETWORKS[network]
    assert type(passes_of(build(stream()), 0.01, 0.0)) is ExplicitModule
    (ours, losses), (graph, others) = train_both(
        monkeypatch, build, targets, loss, **options
    )
    assert all(torch.equal(value, graph[name]) for name, value in ours.items())
    assert losses == others


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("options", [{}, {"weights": WEIGHTS, "weight_decay": 0.01}])
def test_bits_of_a_local_network_and_a_head_are_those_of_a_graph(
    monkeypatch, local, options
):
    def build(generator):
        below = perceptron([N_COLUMNS, 6, 4], generator) if local else None
        width = 4 if local else N_COLUMNS
        head = perceptron([width + LATENT.shape[1], 9, 3], generator)
        return JointNetwork(below, head)

    assert type(passes_of(build(stream()), 0.01, 0.0)) is ExplicitJoint
    (ours, losses), (graph, others) = train_both(
        monkeypatch, build, CLASSES, CrossEntropy(), inputs=(X, LATENT), **options
    )
    assert all(torch.equal(value, graph[name]) for name, value in ours.items())
    assert losses == others
    start = build(stream()).state_dict()
    assert not any(torch.equal(value, start[name]) for name, value in ours.items())


@pytest.mark.parametrize("distance", ["mse", "mae"])
@pytest.mark.parametrize("targets", [X, (X, LATENT, HAS_TARGET)])
@pytest.mark.parametrize("sizes", [[N_COLUMNS, 5], [N_COLUMNS, 11, 5]])
def test_autoencoders_agree_but_for_the_last_bits(
    monkeypatch, distance, targets, sizes
):
    def build(generator):
        return Autoencoder(sizes, generator)

    assert type(passes_of(build(stream()), 0.01, 0.0)) is ExplicitAutoencoder
    loss = AutoencoderLoss(distance, 0.3)
    (ours, _), (graph, _) = train_both(monkeypatch, build, targets, loss)
    start = build(stream()).state_dict()
    for name, value in ours.items():
        torch.testing.assert_close(value, graph[name], rtol=1e-5, atol=1e-6)
        assert (value - start[name]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", [nn.ReLU, nn.Tanh, nn.SELU])
@pytest.mark.parametrize("first", [False, True])
def test_gradients_of_activations(kind, first):
    network = nn.Sequential(
        *([kind()] if first else []), nn.Linear(4, 3), kind(), nn.Linear(3, 2)
    )
    entered = torch.randn(6, 4, generator=stream()).requires_grad_()
    before, of_left = entered.detach().clone(), torch.ones(6, 2)
    network(entered).backward(of_left)
    passes = Explicit({"a": network}, 0.1)
    outputs, tape = passes.forward("a", entered.detach(), further=True)
    torch.testing.assert_close(passes.backward(tape, of_left), entered.grad)
    torch.testing.assert_close(outputs, network(entered).detach())
    assert torch.equal(entered, before)
    # Written over only where nobody else needs it.
    entered = before.clone()
    again, tape = passes.forward("a", entered, further=True, spare=True)
    assert torch.equal(again, outputs)
    assert torch.equal(entered, before) is not first


@pytest.mark.parametrize("kind", [nn.ReLU, nn.Tanh, nn.SELU])
def test_a_gradient_that_is_given_stays_as_it_is(kind):
    passes = Explicit({"a": nn.Sequential(nn.Linear(4, 3), kind())}, 0.1)
    entered, of_left = torch.randn(6, 4, generator=stream()), torch.ones(6, 3)
    _, tape = passes.forward("a", entered)
    passes.backward(tape, of_left)
    assert of_left.eq(1).all()
    assert passes.take().any()


@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError()])
def test_losses_know_their_gradients(loss):
    outputs = torch.randn(6, 3 if type(loss) is CrossEntropy else 1, generator=stream())
    targets = torch.arange(6) % 3 if outputs.shape[1] == 3 else outputs.flip(0)
    factors = torch.linspace(0, 1, 6)
    with_one = loss_and_gradient(loss, outputs, [targets], factors)
    graph = loss_and_gradient(lambda *both: loss(*both), outputs, [targets], factors)
    assert all(map(torch.equal, with_one, graph))
    for given in (factors, None):
        alone = loss_gradient(loss, outputs, [targets], given)
        ones = torch.ones(6) if given is None else given
        expected = loss_and_gradient(loss, outputs, [targets], ones)[1]
        torch.testing.assert_close(alone, expected)
    # Of a loss of the user's own, a graph gives it.
    torch.testing.assert_close(
        loss_gradient(lambda *both: loss(*both), outputs, [targets], factors), graph[1]
    )


def test_who_needs_no_graph():
    sizes, own = Build((8,), 2), Build(nn.Linear, 2)
    default = Optimize(None, 0.1)
    of_sizes, of_own = ({"a": build(3, stream())} for build in (sizes, own))
    assert type(trainer(of_sizes, default)) is Explicit
    assert type(trainer(of_own, default)) is Recorded
    assert type(trainer({**of_sizes, "b": of_own["a"]}, default)) is Recorded
    assert type(trainer(of_sizes, Optimize(torch.optim.SGD, 0.1))) is Recorded
    assert type(trainer(of_sizes, Optimize(None, 0.1, max_grad_norm=1))) is Recorded
    assert links_of(nn.Sequential(nn.Linear(2, 2), nn.Dropout())) is None


def test_a_hooked_network_keeps_its_graph():
    network, seen = perceptron([N_COLUMNS, 3], stream()), []
    network[0].register_forward_hook(lambda *_: seen.append(1))
    train(
        network,
        X,
        CLASSES,
        loss=CrossEntropy(),
        max_epochs=1,
        batch_size=50,
        lr=0.01,
        sequence=np.random.SeedSequence(0),
    )
    assert seen


@pytest.mark.parametrize("update_every", [None, 1])
def test_noise_as_targets_has_the_gradient_of_its_losses(update_every):
    found = []
    outputs = torch.tensor(LATENT)
    rows, factors = torch.arange(N_ROWS).flip(0), torch.tensor(WEIGHTS)
    for graph in (True, False):
        noise = NoiseTargets(N_ROWS, 5, update_every, np.random.SeedSequence(0))
        before = noise.targets.clone()
        if graph:
            at = outputs.clone().requires_grad_()
            losses = noise(at, rows)
            (gradient,) = torch.autograd.grad(losses, at, factors)
        else:
            losses, gradient = noise.with_gradient(outputs, rows, factors=factors)
        assert torch.equal(noise.targets, before) == (update_every is None)
        found.append((losses.detach(), gradient, noise.targets))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("optimizer", [None, torch.optim.Adam])
def test_gradients_can_be_taken_out_and_put_back(optimizer):
    network = perceptron([N_COLUMNS, 9, 3], stream())
    own = trainer({"module": network}, Optimize(optimizer, 0.01))
    assert type(own) is (Explicit if optimizer is None else Recorded)
    outputs, tape = own.forward("module", torch.tensor(X))
    own.backward(tape, torch.ones_like(outputs))
    expected = torch.autograd.grad(network(torch.tensor(X)).sum(), network.parameters())
    expected = torch.cat([each.ravel() for each in expected])
    taken = own.take()
    assert torch.equal(taken, expected)
    own.rest()
    assert not own.take().any()
    own.put(taken)
    before = nn.utils.parameters_to_vector(network.parameters()).detach().clone()
    own.step()
    moved = nn.utils.parameters_to_vector(network.parameters()).detach() - before
    torch.testing.assert_close(moved, -0.01 * expected.sign(), rtol=0, atol=1e-4)
