import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from skvfl._label_protection import ClassAliases, PseudoTarget

seeds = st.integers(0, 2**32)


@given(n_classes=st.integers(2, 12), seed=seeds, protect=st.booleans())
def test_aliases_are_decoded(n_classes, seed, protect):
    rng = np.random.default_rng(seed)
    aliases = ClassAliases(n_classes, rng, protect)
    codes = rng.integers(n_classes, size=200)
    sent = aliases.protect(codes, rng)
    assert sent.max() < n_classes * (2 if protect else 1)
    np.testing.assert_array_equal(aliases.recover_codes(sent), codes)
    for alias in np.unique(sent):
        assert len(np.unique(codes[sent == alias])) == 1


def test_aliases_of_a_class_are_drawn_with_equal_probability():
    rng = np.random.default_rng(0)
    sent = ClassAliases(3, rng, True).protect(np.full(4000, 1), rng)
    counts = np.unique(sent, return_counts=True)[1]
    assert len(counts) == 2
    assert stats.binomtest(int(counts[0]), 4000).pvalue > 1e-3


def test_which_aliases_belong_together_is_random():
    pairs = {
        tuple(sorted(ClassAliases(2, np.random.default_rng(s), True)._aliases[0]))
        for s in range(200)
    }
    assert len(pairs) == 6


def test_scores_of_unseen_aliases_count_nothing():
    aliases = ClassAliases(2, np.random.default_rng(0), True)
    first, second = aliases._aliases
    scores = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    seen = np.array([first[0], second[0], second[1]])
    expected = [[0.2, 0.8], [0.6, 0.4]]
    np.testing.assert_allclose(aliases.recover_scores(scores, seen), expected)
    best = [[0.2, 0.5], [0.6, 0.3]]
    np.testing.assert_allclose(aliases.recover_best(scores, seen), best)


@given(seed=seeds, protect=st.booleans(), scale=st.floats(1e-3, 1e6))
def test_target_is_recovered(seed, protect, scale):
    rng = np.random.default_rng(seed)
    target = rng.normal(5, 1, 100) * scale
    pseudo = PseudoTarget(target, rng, protect)
    sent = pseudo.protect(target, rng)
    assert sent.shape == (100, 2 if protect else 1)
    np.testing.assert_allclose(pseudo.recover(sent), target, rtol=1e-9)


@given(seed=seeds)
def test_decoding_never_magnifies_the_servers_error(seed):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=50)
    pseudo = PseudoTarget(target, rng, True)
    error = rng.normal(size=(50, 2))
    sent = pseudo.protect(target, rng)
    decoded = (pseudo.recover(sent + error) - pseudo.recover(sent)) / target.std()
    assert np.linalg.norm(decoded) <= np.linalg.norm(error) + 1e-9


def test_constant_target_is_survived():
    rng = np.random.default_rng(0)
    target = np.full(20, 3.0)
    pseudo = PseudoTarget(target, rng, True)
    np.testing.assert_allclose(pseudo.recover(pseudo.protect(target, rng)), target)
