from itertools import pairwise

import numpy as np
import pytest

from skvfl import GaussianProjection
from skvfl._random import int_seed, one_way, seed_party

WORD = 0xFFFFFFFF
FIRST, FIRST_STEP = 0x43B0D7E5, 0x931E8875
LAST, LAST_STEP = 0x8B51F9DD, 0x58F38DED
MIX_LEFT, MIX_RIGHT = 0xCA01F9DD, 0x4973F715


def invert(number):
    return pow(number, -1, 2**32)


def unshift(value):
    return value ^ (value >> 16)


def unmix(result, other):
    return ((unshift(result) + MIX_RIGHT * other) * invert(MIX_LEFT)) & WORD


def root_entropy(words, spawn_key):
    """Entropy of the root of a stream of which four words are known."""
    constant, pool = LAST, []
    for word in words:
        before, constant = constant, constant * LAST_STEP & WORD
        pool.append((unshift(int(word)) * invert(constant) & WORD) ^ before)
    constants = [FIRST]
    for _ in range(16 + 4 * len(spawn_key)):
        constants.append(constants[-1] * FIRST_STEP & WORD)
    pairs = list(pairwise(constants))

    def hashed(value, pair):
        value = ((value ^ pair[0]) * pair[1]) & WORD
        return value ^ (value >> 16)

    crossed = [(s, d) for s in range(4) for d in range(4) if s != d]
    keyed = [(key, d) for key in spawn_key for d in range(4)]
    for (key, d), pair in reversed(list(zip(keyed, pairs[16:], strict=True))):
        pool[d] = unmix(pool[d], hashed(key, pair))
    for (s, d), pair in reversed(list(zip(crossed, pairs[4:16], strict=True))):
        pool[d] = unmix(pool[d], hashed(pool[s], pair))
    entropy = [
        (unshift(value) * invert(pair[1]) & WORD) ^ pair[0]
        for value, pair in zip(pool, pairs[:4], strict=True)
    ]
    return sum(word << (32 * i) for i, word in enumerate(entropy))


@pytest.mark.parametrize("entropy", [2**127 + 12345, 0xDEADBEEF << 90 | 7])
def test_numpys_streams_give_away_their_root_and_ours_do_not(entropy):
    root = np.random.SeedSequence(entropy)
    child = root.spawn(6)[4].spawn(2)[1]
    assert root_entropy(child.generate_state(4), (4, 1)) == entropy
    words = one_way(child).generate_state(4)
    assert root_entropy(words, (4, 1)) != entropy
    assert one_way(child).entropy != entropy


def test_streams_are_reproducible_and_different():
    children = np.random.SeedSequence(3).spawn(100)
    again = np.random.SeedSequence(3).spawn(100)
    seeds = [int_seed(child) for child in children]
    assert seeds == [int_seed(child) for child in again]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize("random_state", [None, 5])
def test_what_a_party_is_given_does_not_hold_the_root(random_state):
    root = np.random.SeedSequence(2**100 + 1)
    projection = GaussianProjection(random_state=random_state)
    seeded = seed_party(projection, root.spawn(2)[1])
    assert seeded.random_state is None
    given = seeded._sequence
    assert given.entropy not in (root.entropy, random_state)
    assert given.spawn_key == ()
