"""What is done to activations and gradients before they cross."""

import pytest
import torch

from skvfl.nn._cut import blurred, shorten, through_shortening


@pytest.fixture
def rows():
    return torch.randn(50, 4, generator=torch.Generator().manual_seed(0))


def test_rows_are_shortened_and_keep_their_direction(rows):
    short, factors = shorten(rows, 1.5)
    lengths = rows.norm(dim=1)
    assert 10 < (lengths > 1.5).sum() < 40
    torch.testing.assert_close(short.norm(dim=1), lengths.clamp_max(1.5))
    torch.testing.assert_close(short, factors * rows)
    assert (factors <= 1).all()


def test_a_row_of_zeros_stays_as_it_is():
    short, factors = shorten(torch.zeros(2, 3), 1.0)
    assert (short == 0).all()
    assert (factors == 1).all()
    assert through_shortening(torch.ones(2, 3), short, factors).isfinite().all()


def test_gradients_go_back_through_shortening_as_by_autograd(rows):
    rows.requires_grad_()
    lengths = rows.norm(dim=1, keepdim=True)
    automatic = rows * torch.where(lengths > 1.5, 1.5 / lengths, 1.0)
    gradient = torch.linspace(-1, 1, rows.numel()).view_as(rows)
    automatic.backward(gradient)
    ours = through_shortening(gradient, *shorten(rows.detach(), 1.5))
    torch.testing.assert_close(ours, rows.grad)


def test_noise_on_gradients_goes_by_the_longest(rows):
    wide = torch.cat([rows] * 50, dim=1)
    for size in (1e-6, 1.0):
        noise = (
            blurred(size * wide, 3.0, torch.Generator().manual_seed(1)) - size * wide
        )
        expected = 3 * size * wide.norm(dim=1).max()
        torch.testing.assert_close(
            noise.norm(dim=1).mean(), expected, rtol=0.05, atol=0.0
        )
