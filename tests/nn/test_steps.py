"""Copies in double precision, and what users find in fitted networks."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from skvfl import NoiseAsTargetsEncoder, SplitNNClassifier
from skvfl.nn._steps import in_double, infer


class Recurrent(nn.Module):
    """Holds parameters where a copy of the registered ones does not reach them."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(4, 3, batch_first=True)

    def forward(self, inputs):
        """Last state of a sequence of one."""
        return self.cell(inputs[:, None])[0][:, 0]


def hooked():
    """Return a layer whose outputs a hook doubles."""
    layer = nn.Linear(4, 3)
    layer.register_forward_hook(lambda layer, inputs, outputs: 2 * outputs)
    return layer


def patched():
    """Return a layer that computes something of a user's own."""
    layer = nn.Linear(4, 3)
    layer.forward = lambda inputs: (
        -nn.functional.linear(inputs, layer.weight.to(inputs.dtype))
    )
    return layer


def parametrized():
    """Return a layer whose weight is computed of others."""
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))


def shared():
    """Return a network that goes through one layer twice."""
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.BatchNorm1d(4), nn.Dropout(0.5))


@pytest.mark.parametrize("make", [Recurrent, hooked, patched, shared, parametrized])
def test_a_copy_in_double_precision_computes_what_a_general_copy_does(make):
    torch.manual_seed(0)
    network, inputs = make(), torch.randn(5, 4)
    network(inputs)
    before = pickle.dumps([*network.state_dict().values()])
    expected = copy.deepcopy(network).double().eval()(inputs.double())
    assert torch.equal(infer(network, inputs), expected)
    assert network.training
    assert pickle.dumps([*network.state_dict().values()]) == before


def test_a_copy_in_double_precision_shares_no_parameter():
    network = shared()
    twin = in_double(network)
    assert twin[0] is twin[2]
    assert all(p.dtype == torch.float64 for p in twin.parameters())
    twin[0].weight.zero_()
    assert network[0].weight.any()


def networks():
    """Yield fitted networks of methods that train them without a graph."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 6)), np.arange(60) % 2
    yield NoiseAsTargetsEncoder(max_epochs=2, random_state=0).fit(X).module_
    split = SplitNNClassifier(parties=2, max_epochs=2, random_state=0).fit(X, y)
    for party in split._parties.values():
        yield from party._models().values()


def test_fitted_networks_are_ordinary_modules():
    for network in networks():
        parameters = list(network.parameters())
        assert all(type(p) is nn.Parameter and p.requires_grad for p in parameters)
        # Every parameter has memory of its own, and so a pickle has it alone.
        for p in parameters:
            assert p.untyped_storage().nbytes() == p.nbytes
        again = pickle.loads(pickle.dumps(network))
        inputs = torch.randn(5, parameters[0].shape[1])
        assert torch.equal(again(inputs), network(inputs))
        network(inputs).sum().backward()
        assert all(p.grad is not None for p in parameters)
        torch.optim.SGD(parameters, lr=0.1).step()
        assert not torch.equal(again(inputs), network(inputs))
        moved = copy.deepcopy(network).to("meta")
        assert all(p.device.type == "meta" for p in moved.parameters())
