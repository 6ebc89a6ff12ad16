"""The pieces that all networks of all parties are trained with, by themselves.

The tests of estimators take some of them for their own references.
"""

import numpy as np
import pytest
import torch
from torch import nn

from skvfl.exceptions import TrainingError
from skvfl.nn._steps import (
    batch_bounds,
    check_held_out,
    check_parameters,
    epoch_loss,
    infer,
    public_order,
    tensor,
)
from skvfl.splitnn._active import AGGREGATIONS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("concat", [[1, 5, 3, -2]]),
        ("sum", [[4, 3]]),
        ("mean", [[2, 1.5]]),
        ("max", [[3, 5]]),
    ],
)
def test_aggregations(name, expected):
    cuts = [torch.tensor([[1.0, 5.0]]), torch.tensor([[3.0, -2.0]])]
    assert AGGREGATIONS[name](cuts).tolist() == expected


@pytest.mark.parametrize(
    ("n_rows", "batch_size", "expected"),
    [
        (6, 3, [(0, 3), (3, 6)]),
        (8, 3, [(0, 3), (3, 6), (6, 8)]),
        (7, 3, [(0, 3), (3, 7)]),
        (3, 3, [(0, 3)]),
        (2, 3, [(0, 2)]),
        (1, 3, [(0, 1)]),
        (3, 1, [(0, 1), (1, 3)]),
    ],
)
def test_a_last_batch_of_one_row_joins_its_predecessor(n_rows, batch_size, expected):
    assert batch_bounds(n_rows, batch_size) == expected


def test_a_public_order_has_every_row_once_and_hangs_on_the_seed():
    orders = [public_order(seed, 50).tolist() for seed in (3, 3, 4)]
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != list(range(50))
    assert sorted(orders[0]) == sorted(orders[2]) == list(range(50))


def test_inference_is_in_double_precision_and_leaves_the_network_alone():
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Dropout(0.9)).train()
    before = [value.clone() for value in network.state_dict().values()]
    inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    outputs = infer(network, inputs)
    assert outputs.dtype == torch.float64
    assert not outputs.requires_grad
    linear = network[0]
    exact = inputs.double() @ linear.weight.double().T + linear.bias.double()
    torch.testing.assert_close(outputs, (exact / (1 + 1e-5) ** 0.5).detach())
    assert network.training
    after = network.state_dict().values()
    assert all(map(torch.equal, before, after))
    assert [value.dtype for value in before] == [value.dtype for value in after]


def test_the_loss_of_an_epoch_is_the_mean_over_rows():
    batches = [{"loss": 1.0, "weight": 3.0}, {"loss": 5.0, "weight": 1.0}]
    assert epoch_loss(batches) == 2
    assert epoch_loss([{"loss": 7.0, "weight": 0.0}]) == 0


def test_held_out_rows_must_weigh_something():
    check_held_out(1e-30)
    with pytest.raises(TrainingError, match="raise validation_fraction"):
        check_held_out(0.0)


@pytest.mark.parametrize("spoilt", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("position", [0, 5])
def test_a_single_spoilt_parameter_is_noticed(spoilt, position):
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))
    check_parameters(network)
    with torch.no_grad():
        network[1].weight.view(-1)[position] = spoilt
    with pytest.raises(TrainingError, match="not finite after training"):
        check_parameters(network)


def test_tensors_are_single_and_of_the_arrays_own_memory_where_they_may_be():
    array = np.arange(3, dtype=np.float32)
    tensor(array)[0] = 7
    assert array[0] == 7
    array.flags.writeable = False
    tensor(array)[0] = 9
    assert array[0] == 7
    backwards = np.arange(6, dtype=np.float32).reshape(3, 2)[::-1, ::-1]
    assert tensor(backwards).tolist() == backwards.tolist()
    assert tensor(np.arange(3)).dtype == tensor([1.5]).dtype == torch.float32
