"""Attacks on RAP's projected columns, each with a control in which it must fail."""

import pickle

import numpy as np
import pytest
from _leakage import SEEDS, assert_nothing, changed, noise, permuted
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import NotFittedError

from skvfl import GaussianProjection, PartyPreprocessor, RandomProjectionVFL
from skvfl.privacy import record_views
from skvfl.privacy.attacks import (
    FrequencyAttack,
    IndependentComponentsAttack,
    KnownRowsAttack,
    MomentsAttack,
)
from skvfl.privacy.attacks._statistics import MOST_CUBED

F = 6
KINDS = ("orthogonal", "conditioned", "gaussian")
CONTROLS = {"noise": noise, "permuted rows": permuted}


def skewed(n_rows, seed=0):
    """Independent columns of different shapes and sizes, none of them symmetric."""
    rng = np.random.default_rng(seed)
    two = np.where(rng.random(n_rows) < 0.7, 0, 3) + 0.3 * rng.normal(size=n_rows)
    columns = [rng.gamma(0.5, size=n_rows), -rng.gamma(3, size=n_rows), two]
    columns += [
        rng.random(n_rows) < 0.2,
        rng.beta(1, 6, n_rows),
        rng.random(n_rows) ** 0.3,
    ]
    return np.column_stack(columns) * np.arange(1, F + 1)


def sent(columns, kind="orthogonal", seed=0, y=None):
    """The server's view of a party with these columns, and what it has prepared."""
    X = np.column_stack(
        [np.random.default_rng(99).normal(size=(len(columns), 2)), columns]
    )
    regression = y is not None
    y = np.arange(len(X)) % 2 if y is None else y
    vfl = RandomProjectionVFL(
        DummyRegressor() if regression else DummyClassifier(),
        parties={"owner": [0, 1], "other": range(2, X.shape[1])},
        active="owner",
        projection=GaussianProjection(kind=kind),
        random_state=seed,
    )
    with record_views() as views:
        vfl.fit(X, y)
    return views["server"], PartyPreprocessor().fit_transform(X[:, 2:])


def score(attack, view, truth, seed=0):
    attack = attack.informed(truth, random_state=seed)
    if "random_state" in attack.get_params():
        attack.set_params(random_state=seed)
    return attack.fit(view).score(truth)


def known(n, **params):
    return KnownRowsAttack(known_rows=n, sender="other", **params)


# Known rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [F, 2 * F, 10 * F])
def test_as_many_known_rows_as_columns_give_everything(kind, n):
    columns = skewed(300)
    # A binary column is the same in so few rows as often as not.
    columns[:, 3] = np.random.default_rng(5).lognormal(0, 0.5, 300)
    view, truth = sent(columns, kind)
    assert np.min([score(known(n), view, truth, s) for s in range(3)]) >= 0.99


@pytest.mark.parametrize("kind", ["conditioned", "gaussian"])
def test_exactly_as_many_known_rows_as_columns_are_enough_whichever_they_are(kind):
    """No equation is left over by which the attacker could check what it has found."""
    columns = skewed(300)
    columns[:, 3] = np.random.default_rng(5).lognormal(0, 0.5, 300)
    view, truth = sent(columns, kind)
    scores = [score(known(F), view, truth, s) for s in range(20)]
    assert np.mean(np.array(scores) >= 0.99) >= 0.95


def test_no_known_row_gives_nothing_and_fewer_than_columns_give_a_part():
    view, truth = sent(skewed(300))
    assert score(known(0), view, truth) == pytest.approx(0, abs=1e-6)
    assert 0.5 < np.mean([score(known(F - 1), view, truth, s) for s in range(5)]) < 0.95


@pytest.mark.parametrize("kind", ["conditioned", "gaussian"])
@pytest.mark.parametrize("n", [F - 1, 10 * F])
def test_rows_that_are_not_matched_give_nothing_under_other_matrices(kind, n):
    view, truth = sent(skewed(300), kind)
    scores = [score(known(n, matched=False), view, truth, s) for s in SEEDS]
    assert np.max(scores) <= 0.02


def test_lengths_match_rows_under_an_orthogonal_matrix():
    """What the paper says of matching rows holds for its matrix, not for this one."""
    view, truth = sent(skewed(300))
    assert score(known(F, matched=False), view, truth) >= 0.99
    assert score(known(F - 1, matched=False), view, truth) > 0.5


def test_rows_of_one_length_are_told_apart_by_angles():
    """Where columns are categories, many rows have one length."""
    rng = np.random.default_rng(0)
    columns = np.hstack([np.eye(5)[rng.integers(5, size=(400, 3))].reshape(400, -1)])
    view, truth = sent(columns)
    assert len(np.unique(np.linalg.norm(truth, axis=1).round(6))) < 300
    assert score(known(40, matched=False), view, truth) >= 0.99
    attack = known(40, matched=False)
    assert_nothing([score(attack, noise(view, s), truth, s) for s in SEEDS])


def test_a_row_that_known_ones_do_not_span_is_not_guessed_wrong():
    """A rare category scored far below 0, where nearly all rows were exact."""
    rng = np.random.default_rng(0)
    code = rng.choice(12, 1000, p=[0.485, 0.485, *[0.003] * 10])
    view, truth = sent(np.column_stack([np.eye(12)[code], skewed(1000)]), "gaussian")
    assert min(score(known(60), view, truth, s) for s in range(6)) > 0.4


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize(
    "n", [F, *(pytest.param(n, marks=pytest.mark.slow) for n in (F - 1, 2 * F))]
)
def test_known_rows_say_nothing_of_a_view_without_information(control, n):
    view, truth = sent(skewed(300))
    views = [CONTROLS[control](view, seed) for seed in SEEDS]
    assert_nothing([score(known(n), v, truth, s) for s, v in enumerate(views)])


def test_rows_that_are_not_matched_say_nothing_of_noise():
    view, truth = sent(skewed(300))
    attack = known(2 * F, matched=False)
    assert_nothing([score(attack, noise(view, s), truth, s) for s in SEEDS])


def test_an_attack_without_side_knowledge_has_no_guess():
    view, truth = sent(skewed(60))
    for attack in (known(None), MomentsAttack(), IndependentComponentsAttack()):
        guess = attack.fit(view).reconstruct()
        assert np.isnan(guess).all()
        assert attack.score(truth) == pytest.approx(0)


def test_a_sender_who_sent_nothing_has_no_columns():
    view, truth = sent(skewed(60))
    attack = KnownRowsAttack(known_rows=F, sender="nobody").informed(truth)
    assert np.isnan(attack.fit(view).reconstruct()).all()


def test_columns_that_are_all_the_same_say_nothing():
    view, truth = sent(skewed(100))
    same = changed(view, lambda seen, place, array: np.zeros_like(array))
    shadow = (truth, None)
    for attack in (
        known(2 * F),
        MomentsAttack(moments=True),
        IndependentComponentsAttack(marginals=True),
        IndependentComponentsAttack(shadow=shadow),
        FrequencyAttack(shadow=shadow),
    ):
        assert score(attack, same, truth) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    "attack",
    [
        known(5),
        MomentsAttack(moments=True),
        IndependentComponentsAttack(marginals=True),
    ],
)
def test_attacks_are_estimators_whose_side_knowledge_is_a_parameter(attack):
    view, truth = sent(skewed(60))
    informed = attack.informed(truth, random_state=0)
    assert str(attack.get_params()) == str(clone(attack).get_params())
    assert str(attack.get_params()) != str(informed.get_params())
    again = pickle.loads(pickle.dumps(informed.set_params(random_state=0).fit(view)))
    np.testing.assert_array_equal(again.reconstruct(), informed.reconstruct())
    with pytest.raises(NotFittedError):
        attack.reconstruct()


# Statistics


def test_moments_undo_an_orthogonal_matrix():
    view, truth = sent(skewed(600))
    attack = MomentsAttack(moments=True, sender="other")
    assert score(attack, view, truth) >= 0.99


def test_moments_undo_a_wide_orthogonal_matrix():
    columns = np.hstack([skewed(600, seed)[:, :5] for seed in range(4)])
    assert columns.shape[1] > MOST_CUBED
    # Columns with something in common have components of different variance.
    columns += np.outer(skewed(600, 9)[:, 0], np.arange(20) % 4)
    view, truth = sent(columns)
    assert score(MomentsAttack(moments=True, sender="other"), view, truth) >= 0.99
    attack = MomentsAttack(moments=True, sender="other")
    assert_nothing([score(attack, noise(view, s), truth, s) for s in SEEDS])


def test_categories_that_are_as_rare_as_each_other_hide_no_other_column():
    """Moments do not tell them apart, and their skewness is the largest."""
    columns = skewed(400)
    columns[:8] = columns[0]
    view, truth = sent(np.hstack([columns, np.eye(400)[:, :8]]))
    attack = MomentsAttack(moments=True, sender="other").informed(truth)
    guess = attack.fit(view).reconstruct()
    left = ((guess - truth)[:, :F] ** 2).mean(axis=0) / truth[:, :F].var(axis=0)
    assert left.max() < 0.01


@pytest.mark.parametrize("kind", ["conditioned", "gaussian"])
def test_moments_do_not_undo_other_matrices(kind):
    view, truth = sent(skewed(600), kind)
    assert score(MomentsAttack(moments=True, sender="other"), view, truth) < 0.5


def test_moments_say_nothing_of_noise():
    view, truth = sent(skewed(300))
    attack = MomentsAttack(moments=True, sender="other")
    assert_nothing([score(attack, noise(view, s), truth, s) for s in SEEDS])


def test_known_rows_refute_moments_of_permuted_rows():
    view, truth = sent(skewed(300))
    attack = MomentsAttack(moments=True, known_rows=30, sender="other")
    assert score(attack, view, truth) >= 0.99
    assert_nothing([score(attack, permuted(view, s), truth, s) for s in SEEDS])


@pytest.mark.parametrize("kind", KINDS)
def test_independent_components_undo_every_matrix(kind):
    columns, others = skewed(3000)[:, :4], skewed(3000, seed=1)[:, :4]
    view, truth = sent(columns, kind)
    sample = PartyPreprocessor().fit(columns).transform(others)
    for side in ({"shadow": (sample, None)}, {"marginals": True}):
        attack = IndependentComponentsAttack(sender="other", **side)
        assert score(attack, view, truth) >= 0.95


@pytest.mark.slow
def test_independent_components_of_noise_have_no_known_histogram():
    view, truth = sent(skewed(300)[:, :4])
    attack = IndependentComponentsAttack(marginals=True, sender="other")
    assert_nothing([score(attack, noise(view, s), truth, s) for s in SEEDS])


@pytest.mark.slow
def test_independent_components_of_noise_are_not_those_of_a_sample():
    view, truth = sent(skewed(300)[:, :4])
    attack = IndependentComponentsAttack(shadow=(truth, None), sender="other")
    assert_nothing([score(attack, noise(view, s), truth, s) for s in SEEDS])


@pytest.mark.parametrize("kind", KINDS)
def test_the_histogram_of_a_single_column_is_found(kind):
    view, truth = sent(skewed(2000)[:, [1]], kind)
    attack = IndependentComponentsAttack(marginals=True, sender="other")
    assert score(attack, view, truth) >= 0.9


def test_the_histogram_of_a_target_is_found_beside_its_pseudo_target():
    target = np.random.default_rng(1).gamma(1.0, size=2000)
    view, _ = sent(skewed(2000), y=target)
    attack = IndependentComponentsAttack(
        marginals=True, sender="owner", operation="protect_labels"
    )
    truth = (target - target.mean()) / target.std()
    assert score(attack, view, truth) >= 0.9
    assert_nothing([score(attack, noise(view, s), truth, s) for s in SEEDS])


# Frequencies


def jobs(n_rows, seed=0):
    """Rows of five kinds, each with a frequency of its own."""
    rng = np.random.default_rng(seed)
    code = rng.choice(5, n_rows, p=[0.4, 0.27, 0.17, 0.11, 0.05])
    return np.eye(5)[code]


@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_give_few_kinds_away(kind):
    view, truth = sent(jobs(800), kind)
    exact = FrequencyAttack(shadow=(np.random.default_rng(1).permutation(truth), None))
    assert score(exact.set_params(sender="other"), view, truth) >= 0.99
    sample = PartyPreprocessor().fit(jobs(800)).transform(jobs(800, seed=1))
    sampled = FrequencyAttack(shadow=(sample, None), sender="other")
    assert score(sampled, view, truth) >= 0.9


def test_frequencies_of_a_single_column():
    column = np.random.default_rng(0).geometric(0.4, 500).clip(max=6)[:, None]
    view, truth = sent(column.astype(float))
    attack = FrequencyAttack(marginals=True, sender="other")
    assert score(attack, view, truth) >= 0.99
    with pytest.raises(ValueError, match="shadow"):
        score(attack, *sent(jobs(100)))


def test_frequencies_say_nothing_where_rows_are_not_equal():
    view, truth = sent(jobs(800))
    attack = FrequencyAttack(shadow=(truth, None), sender="other")
    assert_nothing([score(attack, noise(view, s), truth, s) for s in SEEDS])
    attack.set_params(known_rows=20)
    assert_nothing([score(attack, permuted(view, s), truth, s) for s in SEEDS])
