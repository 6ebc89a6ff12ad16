import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvfl.privacy import FixedPointRangeError, SecureAggregationError, SecureAggregator


def secure_sum(arrays, **options):
    aggregator = SecureAggregator(n_parties=len(arrays), **options)
    messages = {
        party: aggregator.mask(party, array, round_id=0)
        for party, array in enumerate(arrays)
    }
    return aggregator.aggregate(messages, round_id=0)


@pytest.mark.parametrize("n_parties", [2, 4, 25])
@pytest.mark.parametrize("options", [{}, {"bits": 32, "bound": 3}])
def test_sum_of_many_parties(n_parties, options):
    """Reported elsewhere: with four nodes the sum of 32-bit values ran over."""
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-3, 3, size=(5, 4)) for _ in range(n_parties)]
    total = secure_sum(arrays, **options)
    assert_allclose(total, np.sum(arrays, axis=0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("big", [9.0, 500.0, 1e6])
def test_large_values_are_right(big):
    """Reported elsewhere: values over the default range were clipped silently."""
    arrays = [np.array([[big, -big, 0.5]]), np.array([[0.25, 0.25, 0.25]])]
    assert_allclose(secure_sum(arrays), arrays[0] + arrays[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"bits": 32, "bound": 500.0}])
def test_larger_values_are_refused_in_words(options):
    arrays = [np.array([2e9, 0.5]), np.array([0.25, 0.25])]
    with pytest.raises(
        FixedPointRangeError, match="values of party 0: 1 of 2 are over"
    ):
        secure_sum(arrays, **options)


def test_large_and_small_values_together():
    """Reported elsewhere: numbers with different exponents gave a wrong sum."""
    a, b = np.array([[57454.75, -0.004]]), np.array([[70.8125, 0.001]])
    assert_allclose(secure_sum([a, b]), a + b, rtol=0, atol=1e-6)


def test_several_rounds():
    aggregator = SecureAggregator(3)
    for round_id in (0, 1, 5):
        messages = {
            party: aggregator.mask(party, [party, round_id], round_id=round_id)
            for party in range(3)
        }
        total = aggregator.aggregate(messages, round_id=round_id)
        assert_allclose(total, [3, 3 * round_id], rtol=0, atol=1e-6)


def test_errors_name_the_party():
    aggregator = SecureAggregator(3)
    messages = {i: aggregator.mask(i, [1.0], round_id=0) for i in range(3)}
    with pytest.raises(SecureAggregationError, match="'1': its masked message did not"):
        aggregator.aggregate({0: messages[0], 2: messages[2]}, round_id=0)
    with pytest.raises(SecureAggregationError, match=r"'2'.*not newer"):
        aggregator.mask(2, [1.0], round_id=0)
    for party in (3, -1, "0"):
        with pytest.raises(ValueError, match="there is no party"):
            aggregator.mask(party, [1.0], round_id=1)


@pytest.mark.parametrize("n_parties", [0, 1])
def test_one_party_is_not_enough(n_parties):
    with pytest.raises(ValueError, match="at least"):
        SecureAggregator(n_parties)
