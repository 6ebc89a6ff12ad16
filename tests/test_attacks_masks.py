"""Attacks on TabVFL's pretraining and on vFedSec, with controls in which they fail."""

from dataclasses import replace

import numpy as np
import pytest
from _leakage import SEEDS, assert_nothing, changed, noise, permuted
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from skvfl import TabVFLClassifier, VerticalPartitioner, VFedSecClassifier
from skvfl.privacy import record_views
from skvfl.privacy.attacks import (
    ClusterGradientAttack,
    CollusionAttack,
    HyperplaneAttack,
    RoundDifferenceAttack,
    UniformityAttack,
)
from skvfl.privacy.attacks._masks import join

PARTIES = {"bank": range(4), "telco": range(4, 8), "shop": range(8, 12)}
PREPARED = VerticalPartitioner("passthrough", parties=PARTIES)
SHOP = slice(8, 12)


@pytest.fixture(scope="module")
def table():
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X[:300, :12]), y[:300]


def score(attack, view, truth, seed=0):
    return attack.informed(truth, random_state=seed).fit(view).score(truth)


# Hyperplanes


@pytest.fixture(scope="module")
def pretrained(table):
    vfl = TabVFLClassifier(
        parties=PREPARED,
        active="bank",
        n_steps=1,
        pretraining_epochs=12,
        max_epochs=1,
        batch_size=100,
        random_state=0,
    )
    with record_views() as views:
        vfl.fit(*table)
    return views["bank"], table[0][:, SHOP]


@pytest.mark.parametrize("side", [{"known_rows": 10}, {"marginals": True}])
def test_hyperplanes_undo_the_mixture(pretrained, side):
    assert score(HyperplaneAttack(sender="shop", **side), *pretrained) >= 0.99


def test_hyperplanes_need_no_side_knowledge_where_columns_are_skewed(pretrained):
    assert score(HyperplaneAttack(sender="shop"), *pretrained) >= 0.99


@pytest.mark.parametrize("control", [noise, permuted])
def test_mixtures_without_the_right_masks_lie_in_no_hyperplane(pretrained, control):
    view, truth = pretrained

    def wrong(seed):
        rng = np.random.default_rng(seed)
        if control is noise:
            return noise(view, seed)
        return changed(
            view, lambda m, place, a: rng.permutation(a) if "hidden" in place else a
        )

    attack = HyperplaneAttack(sender="shop", known_rows=10)
    assert_nothing([score(attack, wrong(s), truth, s) for s in SEEDS])


def test_it_is_said_that_several_parties_pretrain(pretrained):
    with pytest.raises(ValueError, match="sender="):
        HyperplaneAttack().fit(pretrained[0])


def test_pieces_are_put_on_one_scale_by_the_rows_that_they_share():
    true = np.random.default_rng(0).normal(size=40)
    first, last = np.arange(25), np.arange(15, 40)
    pieces = [(first, 2 * true[first] + 1), None, (last, -3 * true[last])]
    assert abs(np.corrcoef(join(pieces, 40), true)[0, 1]) == pytest.approx(1)
    apart = join([(first, true[first]), (np.arange(25, 40), true[25:])], 40)
    assert np.isnan(apart[25:]).all()


# Secure sums


def secure(table, parties=PREPARED, **params):
    X, y = table
    vfl = VFedSecClassifier(
        parties=parties,
        active="bank",
        bottom=(),
        cut_width=16,
        random_state=0,
        **{"max_epochs": 1, **params},
    )
    with record_views() as views:
        vfl.fit(X, y).predict(X)
    return views


@pytest.fixture(scope="module")
def masked(table):
    return secure(table, batch_size=10, clients={"telco": 2}, max_epochs=3)


@pytest.fixture(scope="module")
def bare(table):
    return secure(table, batch_size=10, clients={"telco": 2}, masked=False)


each_test = pytest.mark.parametrize("kind", [UniformityAttack, RoundDifferenceAttack])


@each_test
def test_masked_messages_look_like_uniform_numbers(masked, kind):
    view = masked["server"]
    # Every seed looks at messages of its own: masks are drawn by the operating system.
    size = len(view.messages) // len(SEEDS)
    parts = [
        replace(view, messages=view.messages[s * size : (s + 1) * size]) for s in SEEDS
    ]
    scores = [kind(random_state=s).fit(part).score() for s, part in enumerate(parts)]
    assert_nothing(scores, slack=0.06)


@each_test
def test_numbers_in_the_clear_do_not(bare, kind):
    assert kind(random_state=0).fit(bare["server"]).score() >= 0.99


def test_a_mask_that_is_used_twice_shows_in_differences_alone(bare):
    masks = {}

    def under_one_mask(seen, place, array):
        if "masked" not in place:
            return array
        key = seen.sender, seen.operation, array.shape
        if key not in masks:
            rng = np.random.default_rng(len(masks))
            most = np.iinfo(array.dtype).max
            masks[key] = rng.integers(0, most, array.shape, array.dtype, endpoint=True)
        return array + masks[key]

    view = changed(bare["server"], under_one_mask)
    assert RoundDifferenceAttack(random_state=0).fit(view).score() >= 0.99
    scores = [UniformityAttack(random_state=s).fit(view).score() for s in SEEDS]
    assert np.mean(scores) < 0.3


@each_test
def test_a_view_without_masked_messages_says_nothing(pretrained, kind):
    assert kind().fit(pretrained[0]).score() == 0


def test_everybody_but_one_finds_its_columns_in_the_sum(masked, table):
    view = masked.coalition("server", "bank", "telco.0", "telco.1")
    attack = CollusionAttack(known_rows=40, random_state=0)
    assert score(attack, view, table[0][:, SHOP]) >= 0.99


def test_the_server_alone_finds_them_if_the_layer_is_wide(masked, table):
    attack = CollusionAttack(known_rows=40, random_state=0)
    assert score(attack, masked["server"], table[0][:, SHOP]) >= 0.99


def test_one_contributor_is_the_sum(table, monkeypatch):
    monkeypatch.setattr(
        "skvfl.vfedsec._active.check_contributors", lambda filled, n_rows: None
    )
    alone = {"bank": [], "shop": range(4)}
    parties = VerticalPartitioner("passthrough", parties=alone)
    X, y = table[0][:, SHOP], table[1]
    view = secure((X, y), parties)["server"]
    attack = CollusionAttack(known_rows=6, random_state=0)
    assert score(attack, view, X) >= 0.99


@pytest.mark.slow
def test_a_sum_in_which_one_message_is_missing_says_nothing(masked, table):
    view = masked["server"]
    view = replace(view, messages=[m for m in view.messages if m.sender != "shop"])
    attack = CollusionAttack(known_rows=40, random_state=0)
    truth = table[0][:, SHOP]
    assert_nothing([score(attack, view, truth, s) for s in SEEDS])
    views = [permuted(masked["server"], s) for s in SEEDS]
    assert_nothing([score(attack, v, truth, s) for s, v in enumerate(views)])


# Clusters


def test_a_clusters_gradient_in_the_clear_gives_its_rows(bare, table):
    attack = ClusterGradientAttack(sender="telco")
    assert score(attack, bare["server"], table[0][:, 4:8]) >= 0.99


def test_a_clusters_masked_gradient_does_not(masked, bare, table):
    truth = table[0][:, 4:8]
    attack = ClusterGradientAttack(sender="telco")
    assert score(attack, masked["server"], truth) == 0
    view = bare["server"]
    assert_nothing([score(attack, noise(view, s), truth) for s in SEEDS])


def test_without_the_gradient_of_the_layer_there_are_no_equations(bare, table):
    view, truth = replace(bare["server"], given=[]), table[0][:, 4:8]
    assert score(ClusterGradientAttack(sender="telco"), view, truth) == 0
