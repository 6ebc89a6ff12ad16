from itertools import pairwise

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline

from skvfl import GaussianProjection
from skvfl._random import (
    generator,
    int_seed,
    one_way,
    seed_missing,
    seed_party,
    seed_sequence,
)

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
    assert max(seeds) > 2**30


@pytest.mark.parametrize("random_state", [None, 5])
def test_what_a_party_is_given_does_not_hold_the_root(random_state):
    root = np.random.SeedSequence(2**100 + 1)
    projection = GaussianProjection(random_state=random_state)
    seeded = seed_party(projection, root.spawn(2)[1])
    assert seeded.random_state is None
    given = seeded._sequence
    assert given.entropy not in (root.entropy, random_state)
    assert given.spawn_key == ()


def test_what_is_handed_over_keeps_its_entropy_and_is_no_word_of_its_parent():
    sequence = np.random.SeedSequence(7)
    assert one_way(sequence).entropy.bit_length() > 200
    assert int_seed(sequence) != int(sequence.generate_state(1)[0] >> 1)
    assert int_seed(sequence) < 2**31


def test_where_the_root_comes_from(rng_guard):
    """Fresh entropy, an integer, or words of a RandomState, which goes on."""
    fresh = [seed_sequence(None).entropy for _ in range(2)]
    assert fresh[0] != fresh[1]
    assert min(fresh).bit_length() > 90
    assert seed_sequence(np.int64(5)).entropy == 5
    state, again = np.random.RandomState(3), np.random.RandomState(3)
    first, second = seed_sequence(state).entropy, seed_sequence(state).entropy
    assert first != second
    assert first == seed_sequence(again).entropy
    assert len(first) == 4
    assert max(first) > 2**28


def test_generators_are_those_of_their_seed():
    drawn = [generator(seed).random(3).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0] == np.random.default_rng(1).random(3).tolist()


def nested(outer=None, inner=None):
    return BaggingClassifier(SGDClassifier(random_state=inner), random_state=outer)


def test_only_missing_seeds_are_given():
    def seeds(model, entropy=0):
        seed_missing(model, np.random.SeedSequence(entropy))
        return model.random_state, model.estimator.random_state

    outer, inner = seeds(nested())
    assert outer != inner
    assert seeds(nested()) == (outer, inner)
    assert seeds(nested(), 1) != (outer, inner)
    assert seeds(nested(outer=5)) == (5, inner)
    assert seeds(nested(inner=0)) == (outer, 0)


def test_a_seed_of_the_users_is_the_root_of_every_partys_own():
    def seeds(entropy, **given):
        model = seed_party(nested(**given), np.random.SeedSequence(entropy).spawn(1)[0])
        return model.random_state, model.estimator.random_state

    outer, inner = seeds(0)
    assert outer != inner
    assert seeds(1) != (outer, inner)
    # The fit's own root has no part in what a seeded template draws.
    kept = seeds(0, outer=5, inner=5)
    assert seeds(1, outer=5, inner=5) == kept
    assert 5 not in kept
    assert kept[0] != kept[1]
    assert seeds(0, outer=6, inner=5)[0] != kept[0]
    first, second = (
        seed_party(nested(5, 5), child).random_state
        for child in np.random.SeedSequence(0).spawn(2)
    )
    assert first != second


def test_a_stream_goes_to_the_object_that_draws_secrets():
    """Inside a pipeline, too, and a neighbour that does not gets a seed."""
    model = make_pipeline(GaussianProjection(), nested())
    seed_party(model, np.random.SeedSequence(0).spawn(1)[0])
    projection, bagging = model[0], model[1]
    assert projection._sequence.entropy.bit_length() > 200
    assert projection.random_state is None
    assert not hasattr(bagging, "_sequence")
    assert bagging.random_state != bagging.estimator.random_state
    assert None not in (bagging.random_state, bagging.estimator.random_state)
