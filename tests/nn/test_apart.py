"""Networks under a budget: no row has a part in what is computed of another."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn.functional import cross_entropy, dropout

from skvfl import FedOnceClassifier, NoiseAsTargetsEncoder
from skvfl.exceptions import PartyValueError, TrainingError
from skvfl.nn._apart import JointNetwork, RowByRow, is_apart, keep_apart
from skvfl.nn._build import Build, Seeded
from skvfl.nn._private import PrivateSGD, PrivateSteps
from skvfl.privacy import SampledGaussian

WIDTH = 6
RARE = 4.0


def rare_mean(rows):
    """A mean over the batch that is zero unless a value is out of the ordinary."""
    return (rows > RARE).to(rows).mean(dim=0)


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, 2)


class AboveEightRows(Own):
    def forward(self, x):
        return self.layer(x - x.mean(dim=0) if len(x) > 8 else x)


class AboveEightRowsByShape(Own):
    def forward(self, x):
        return self.layer(x - x.mean(dim=0) if x.shape[0] > 8 else x)


class ForRareValues(Own):
    def forward(self, x):
        return self.layer(x - rare_mean(x))


class RareBranch(Own):
    def forward(self, x):
        return self.layer(x - x.mean(dim=0) if (x > RARE).any() else x)


class RunningMean(Own):
    """Keeps in an attribute what it saw, once that is out of the ordinary."""

    def __init__(self):
        super().__init__()
        self.mean = 0.0

    def forward(self, x):
        outputs = self.layer(x - self.mean)
        self.mean = self.mean + rare_mean(x.detach())
        return outputs


class RareBuffer(Own):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        with torch.no_grad():
            self.mean += rare_mean(x).to(self.mean)
        return self.layer(x - self.mean)


SEEN = []


class Outside(Own):
    """Keeps what it saw where no copy of the network reaches."""

    def forward(self, x):
        SEEN.append(rare_mean(x.detach()))
        return self.layer(x - sum(SEEN[:-1], torch.zeros(())).to(x.dtype))


class MixedBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient + (x.abs() > RARE).any() * gradient.sum(dim=0)


class OwnFunction(Own):
    def forward(self, x):
        return MixedBackward.apply(self.layer(x))


class OwnVmap(torch.autograd.Function):
    """Its rule for vmap sees all rows."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient

    @staticmethod
    def vmap(info, in_dims, x):
        return x + rare_mean(x), 0


class OwnVmapRule(Own):
    def forward(self, x):
        return self.layer(OwnVmap.apply(x))


class TensorHook(Own):
    def forward(self, x):
        outputs = self.layer(x)
        if outputs.requires_grad:
            outputs.register_hook(lambda gradient: gradient + gradient.sum(dim=0))
        return outputs


class OwnLinear(nn.Linear):
    def forward(self, x):
        return super().forward(x - rare_mean(x))


class OwnSequential(nn.Sequential):
    def forward(self, x):
        return super().forward(x - rare_mean(x))


class OwnParameter(nn.Parameter):
    pass


def overridden():
    layer = nn.Linear(WIDTH, 2)
    layer.forward = lambda x: nn.functional.linear(
        x - rare_mean(x), layer.weight, layer.bias
    )
    return nn.Sequential(layer)


def overridden_sequence():
    network = nn.Sequential(nn.Linear(WIDTH, 2))
    network.forward = lambda x: network[0](x - rare_mean(x))
    return network


def hooked(register):
    def build():
        network = nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU(), nn.Linear(4, 2))
        register(network)
        return network

    return build


def tied():
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second)


def own_parameter():
    layer = nn.Linear(WIDTH, 2)
    layer.weight = OwnParameter(layer.weight.detach())
    return layer


class Residual(Own):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.layer(x + torch.relu(self.inner(x)))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.inner(torch.tanh(self.inner(x)))[:, :2]


MIXING = {
    "above eight rows": AboveEightRows,
    "above eight rows, by shape": AboveEightRowsByShape,
    "for rare values": ForRareValues,
    "a branch for rare values": RareBranch,
    "an attribute": RunningMean,
    "a buffer": RareBuffer,
    "a list outside": Outside,
    "a backward of its own": OwnFunction,
    "a rule for vmap of its own": OwnVmapRule,
    "a hook on a tensor": TensorHook,
    "a subclass of Linear": lambda: nn.Sequential(OwnLinear(WIDTH, 2)),
    "a subclass of Sequential": lambda: OwnSequential(nn.Linear(WIDTH, 2)),
    "an overridden layer": overridden,
    "an overridden sequence": overridden_sequence,
    "a hook on a layer": hooked(
        lambda net: net[0].register_forward_hook(
            lambda m, i, o: o + rare_mean(i[0])[:4]
        )
    ),
    "a hook before a layer": hooked(
        lambda net: net[0].register_forward_pre_hook(
            lambda m, i: (i[0] - rare_mean(i[0]),)
        )
    ),
    "a hook on the sequence": hooked(
        lambda net: net.register_forward_hook(lambda m, i, o: o - rare_mean(i[0])[:2])
    ),
    "a hook on a gradient": hooked(
        lambda net: net[2].register_full_backward_hook(
            lambda m, i, o: tuple(g + g.sum(dim=0) for g in i)
        )
    ),
    "a softmax over rows": lambda: nn.Sequential(nn.Linear(WIDTH, 2), nn.Softmax(0)),
    "normalisation over rows": lambda: nn.Sequential(
        nn.LayerNorm((40, WIDTH)), nn.Linear(WIDTH, 2)
    ),
    "rows as channels": lambda: nn.Sequential(
        nn.Conv1d(40, 40, 3, padding=1), nn.Linear(WIDTH, 2)
    ),
}
HONEST = {
    "residual": Residual,
    "a layer twice": Twice,
    "tied weights": tied,
    "softmax": lambda: nn.Sequential(nn.Linear(WIDTH, 2), nn.Softmax(1)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)),
        nn.Conv1d(1, 2, 3),
        nn.GroupNorm(1, 2),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(4, 2),
    ),
}


def make(build):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()


def rows(n_rows=40):
    X = torch.randn(n_rows, WIDTH, generator=torch.Generator().manual_seed(1))
    X[3] = 3 * RARE
    return X, torch.arange(n_rows) % 2


def row_loss(outputs, targets):
    return cross_entropy(outputs, targets, reduction="none")


def moves(module, X, y, bound=0.3):
    """The clipped sum of a step without noise, as it moves the parameters."""
    run = SampledGaussian(1.0, 1, ("a",), noise_multiplier=0.0)
    steps = PrivateSteps(run, len(X), np.random.SeedSequence(0))
    sgd = PrivateSGD(
        module, row_loss, steps, [X.shape[1:]], max_grad_norm=bound, lr=float(len(X))
    )
    before = [p.detach().clone() for p in module.parameters()]
    steps.draw()
    sgd.step([X], [y])
    after = [p.detach() for p in module.parameters()]
    return [old - new for old, new in zip(before, after, strict=True)]


def sum_of_single_rows(module, X, y, bound=0.3):
    """The same from a copy for every row, which sees that row and no other."""
    total = [torch.zeros_like(p) for p in module.parameters()]
    for i in range(len(X)):
        alone = copy.deepcopy(module)
        gradients = torch.autograd.grad(
            row_loss(alone(X[i : i + 1]), y[i : i + 1]).sum(),
            list(alone.parameters()),
            allow_unused=True,
            materialize_grads=True,
        )
        norm = torch.sqrt(sum(each.square().sum() for each in gradients))
        for each, gradient in zip(total, gradients, strict=True):
            each += gradient * (bound / norm).clamp(max=1)
    return total


@pytest.mark.parametrize("name", MIXING)
def test_rows_that_could_mix_are_kept_apart_or_refused(name):
    SEEN.clear()
    module = make(MIXING[name])
    X, y = rows()
    try:
        found = moves(module, X, y)
    except TrainingError:
        return
    SEEN.clear()
    expected = sum_of_single_rows(make(MIXING[name]), X, y)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    outputs = [keep_apart(module, [X.shape[1:]]).eval()(each) for each in (X, X[4:])]
    torch.testing.assert_close(outputs[0][4:], outputs[1])


@pytest.mark.parametrize("name", MIXING)
def test_together_rows_would_mix(name):
    """The control: one row changes what is computed of others, or their gradients."""
    X, y = rows()
    run = vmap if name == "a rule for vmap of its own" else lambda function: function
    without = X.clone()
    without[3] = 0
    seen = []
    for table in (X, without):
        SEEN.clear()
        module = make(MIXING[name])
        module(table)
        inputs = table.clone().requires_grad_()
        outputs = run(module)(inputs)
        (gradient,) = torch.autograd.grad(row_loss(outputs, y).sum(), inputs)
        seen.append(torch.cat([outputs, gradient], dim=1)[4:].detach())
    assert (seen[0] - seen[1]).abs().max() > 1e-3


@pytest.mark.parametrize("name", HONEST)
def test_honest_networks_are_trained(name):
    module = make(HONEST[name])
    X, y = rows()
    expected = sum_of_single_rows(make(HONEST[name]), X, y)
    torch.testing.assert_close(moves(module, X, y), expected, rtol=1e-4, atol=1e-5)
    kept = keep_apart(make(HONEST[name]), [X.shape[1:]]).eval()
    torch.testing.assert_close(kept(X), make(HONEST[name]).eval()(X))
    again = pickle.loads(pickle.dumps(kept))
    torch.testing.assert_close(
        copy.deepcopy(again).double()(X.double()).float(), kept(X)
    )
    assert kept(X[:0]).shape == (0, kept(X).shape[1])


@pytest.mark.parametrize(
    ("network", "apart"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Dropout())), True),
        (Seeded(nn.Linear(2, 2), torch.Generator()), True),
        (JointNetwork(None, nn.Linear(2, 2)), True),
        (JointNetwork(Residual(), nn.Linear(2, 2)), False),
        (nn.Flatten(), True),
        (nn.Flatten(0), False),
        (nn.Unflatten(0, (1, 2)), False),
        (nn.Softmax(dim=0), False),
        (nn.BatchNorm1d(2), False),
        (OwnLinear(WIDTH, 2), False),
        (own_parameter(), False),
        (overridden(), False),
        (overridden_sequence(), False),
    ],
)
def test_layers_that_are_known_to_keep_rows_apart(network, apart):
    assert is_apart(network) is apart


def test_a_global_hook_is_a_hook():
    handle = nn.modules.module.register_module_forward_hook(lambda m, i, o: o)
    try:
        assert not is_apart(nn.Linear(2, 2))
    finally:
        handle.remove()
    assert is_apart(nn.Linear(2, 2))


def test_dropout_of_ones_own_that_knows_no_mode_is_refused():
    class Dropping(Own):
        def forward(self, x):
            return dropout(self.layer(x), 0.5, self.training)

    with pytest.raises(TrainingError):
        keep_apart(Dropping(), [(WIDTH,)])


def test_a_network_of_ones_own_comes_with_its_parameters_and_a_stream():
    build = Build(lambda n_inputs, n_outputs: make(Residual), 2, check=keep_apart)
    network = build(WIDTH, torch.Generator().manual_seed(0))
    assert isinstance(network.network, RowByRow)
    shapes = {tuple(p.shape) for p in network.parameters()}
    assert shapes == {tuple(p.shape) for p in make(Residual).parameters()}


class Remembering(nn.Module):
    """Keeps every row that it sees, in an attribute and in the open."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.layer = nn.Linear(n_inputs, n_outputs)
        self.rows = []

    def forward(self, x):
        self.rows.append(x)
        SEEN.append(x)
        return self.layer(x - rare_mean(x))


@pytest.mark.parametrize(
    "settings",
    [
        {"bottom": Remembering},
        {"top": Remembering},
        {
            "local_encoder": NoiseAsTargetsEncoder(
                hidden_layer_sizes=Remembering, max_epochs=1, lr=0.1
            )
        },
        {
            "local_encoder": NoiseAsTargetsEncoder(
                hidden_layer_sizes=Remembering, max_epochs=0
            )
        },
        {
            "local_encoder": NoiseAsTargetsEncoder(
                hidden_layer_sizes=Remembering, max_epochs=0
            ),
            "bottom": Remembering,
            "n_split_epochs": 1,
        },
    ],
    ids=["bottom", "top", "guest", "untrained guest", "split epochs"],
)
def test_no_code_of_a_users_own_sees_a_row_under_a_budget(settings):
    SEEN.clear()
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 6)), rng.integers(0, 2, 40)
    once = FedOnceClassifier(
        max_epochs=1, epsilon=5.0, delta=1e-3, random_state=0, **settings
    ).fit(X, y)
    alone = once.predict_proba(X[5:6])
    np.testing.assert_allclose(once.predict_proba(X)[5:6], alone, atol=1e-5)
    data = [each for each in SEEN if type(each) is torch.Tensor]
    for each in data:
        for row in each.detach().numpy().reshape(-1, each.shape[-1]):
            assert not np.isclose(X[:, :3], row[:3], atol=1e-3).all(axis=1).any()
    assert X[7].tobytes() not in pickle.dumps(once)


def test_without_a_budget_the_same_code_sees_the_rows():
    """The control of the test before."""
    SEEN.clear()
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 6)), rng.integers(0, 2, 40)
    FedOnceClassifier(max_epochs=1, bottom=Remembering, random_state=0).fit(X, y)
    assert max(map(len, SEEN)) == 40


@pytest.mark.parametrize("where", ["bottom", "top", "guest"])
def test_refusals_name_the_party(where):
    def build(n_inputs, n_outputs):
        class Branching(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(n_inputs, n_outputs)

            def forward(self, x):
                return self.layer(x - x.mean(dim=0) if len(x) > 8 else x)

        return Branching()

    settings = {where: build}
    if where == "guest":
        settings = {
            "local_encoder": NoiseAsTargetsEncoder(
                hidden_layer_sizes=build, max_epochs=1, lr=0.1
            )
        }
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 6)), rng.integers(0, 2, 40)
    party = "party1" if where == "guest" else "party0"
    once = FedOnceClassifier(max_epochs=1, epsilon=5.0, delta=1e-3, **settings)
    with pytest.raises(PartyValueError, match=f"{party}.*private training"):
        once.fit(X, y)
