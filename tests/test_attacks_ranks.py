"""The attack on rank-binned columns, with controls in which it must fail."""

import numpy as np
import pytest
from _leakage import SEEDS, assert_nothing, changed, noise, permuted
from sklearn.dummy import DummyClassifier
from sklearn.preprocessing import KBinsDiscretizer

from skvfl import PartyPreprocessor, RandomProjectionVFL
from skvfl.privacy import record_views
from skvfl.privacy.attacks import RankAttack
from skvfl.privacy.attacks._ranks import from_ranks


def binned(n_bins, n_rows=600):
    """The server's view of columns in bins of equal numbers of rows."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(n_rows, 3)), rng.gamma(2, size=(n_rows, 2))])
    bins = KBinsDiscretizer(
        n_bins, encode="ordinal", quantile_method="averaged_inverted_cdf"
    )
    vfl = RandomProjectionVFL(
        DummyClassifier(),
        parties={"owner": [0, 1], "other": [2, 3, 4]},
        projection=bins,
        random_state=0,
    )
    with record_views() as views:
        vfl.fit(X, np.arange(n_rows) % 2)
    return views["server"], PartyPreprocessor().fit_transform(X[:, 2:])


def score(attack, view, truth, seed=0):
    return attack.informed(truth, random_state=seed).fit(view).score(truth)


@pytest.mark.parametrize(
    ("n_bins", "bounds"), [(4, (0.6, 0.9)), (32, (0.95, 0.995)), (128, (0.99, 1.0))]
)
def test_quantiles_turn_bins_into_values(n_bins, bounds):
    view, truth = binned(n_bins)
    found = score(RankAttack(marginals=True, sender="other"), view, truth)
    assert bounds[0] <= found <= bounds[1]


def test_a_sample_of_the_values_is_nearly_as_good():
    view, truth = binned(128)
    sample = binned(128, n_rows=400)[1]
    assert score(RankAttack(marginals=sample, sender="other"), view, truth) > 0.95


def test_known_rows_refute_bins_that_have_nothing_to_do_with_values():
    view, truth = binned(32)
    attack = RankAttack(marginals=True, known_rows=20, sender="other")
    assert score(attack, view, truth) > 0.95
    assert_nothing([score(attack, permuted(view, s), truth, s) for s in SEEDS])


def test_numbers_that_are_no_bins_say_nothing():
    view, truth = binned(32)
    attack = RankAttack(marginals=True, sender="other")
    assert_nothing([score(attack, noise(view, s), truth, s) for s in SEEDS])


def test_one_bin_says_nothing():
    view, truth = binned(32)
    same = changed(view, lambda seen, place, array: np.zeros_like(array))
    attack = RankAttack(marginals=True, sender="other")
    assert score(attack, same, truth) == pytest.approx(0, abs=1e-6)


def test_a_bin_stands_for_the_mean_of_its_quantiles():
    sample = np.arange(100.0)
    found = from_ranks(np.repeat([3, 7], 50), sample)
    assert found[0] == pytest.approx(24.75, abs=0.5)
    assert found[-1] == pytest.approx(74.25, abs=0.5)
