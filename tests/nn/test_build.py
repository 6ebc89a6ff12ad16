import pytest
import torch
from torch import nn

from skvfl.nn._build import Optimize


@pytest.mark.parametrize(
    ("max_grad_norm", "moves"), [(None, 5.0), (7.0, 5.0), (2.0, 2.0)]
)
def test_long_gradients_are_scaled_down_together(max_grad_norm, moves):
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    optimizer = Optimize(torch.optim.SGD, 1.0, max_grad_norm)(parameters)
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 0]), torch.tensor([4.0])
    optimizer.step()
    moved = torch.cat([p.detach() for p in parameters])
    expected = torch.tensor([-0.6, 0.0, -0.8]) * moves
    torch.testing.assert_close(moved, expected)
    optimizer.zero_grad()
    assert all(p.grad is None for p in parameters)
