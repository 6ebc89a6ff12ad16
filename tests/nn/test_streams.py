import numpy as np
import pytest
import torch
from scipy import stats

from skvfl.nn._streams import private_generator


def stream(seed=0):
    return np.random.SeedSequence(seed)


def test_the_whole_state_is_the_streams():
    """Drawn from what numpy's Mersenne Twister draws from the same words."""
    twister = np.random.MT19937()
    words = stream(5).generate_state(624)
    twister.state = {
        "bit_generator": "MT19937",
        "state": {"key": words, "pos": 624},
    }
    drawn = torch.randint(2**31, (2000,), generator=private_generator(stream(5)))
    # torch takes two words for each number, and the second one counts least.
    assert (drawn.numpy() == twister.random_raw(4000)[1::2] % 2**31).all()


def test_streams_differ_in_more_than_32_bits():
    seeds = [1, 1 + 2**32, 1 + 2**64, 1 + 2**120]
    draws = {torch.rand(4, generator=private_generator(stream(s))) for s in seeds}
    assert len({tuple(draw.tolist()) for draw in draws}) == len(seeds)


def test_draws_are_normal_and_repeat():
    first, second = (
        torch.randn(20_000, generator=private_generator(stream())) for _ in range(2)
    )
    assert torch.equal(first, second)
    assert stats.kstest(first.numpy(), "norm").pvalue > 0.01
    assert first.mean().item() == pytest.approx(0, abs=0.03)
