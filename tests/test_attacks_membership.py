"""Attacks on membership tell members of a model that remembers, and of no other."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from _made_views import is_nothing
from sklearn.base import clone
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier

from skvfl import RandomProjectionVFL
from skvfl.privacy.attacks import LossThresholdAttack, ShadowModelAttack


@cache
def people():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(600, 6)), columns=[*"abcdef"])
    total = X.sum(axis=1).to_numpy() + 3 * rng.normal(size=600)
    return X, total


def classes(total):
    return np.where(total > 0, "yes", "no")


MEMBER = np.arange(200) % 2 == 0
FOREST = RandomProjectionVFL(DecisionTreeClassifier(random_state=0), random_state=0)


@cache
def fitted():
    """A tree that has learnt half of the first 200 by heart."""
    X, total = people()
    return clone(FOREST).fit(X[:200][MEMBER], classes(total[:200])[MEMBER])


def candidates():
    X, total = people()
    return X[:200], classes(total[:200])


def test_exact_answers_give_members_away():
    X, total = people()
    exact = RandomProjectionVFL(KNeighborsRegressor(1), random_state=0)
    exact.fit(X[:200][MEMBER], total[:200][MEMBER])
    attack = LossThresholdAttack().asking(exact, X[:200], total[:200])
    assert attack.fit().score(MEMBER) > 0.99
    shadow = X[200:], total[200:]
    judge = ShadowModelAttack(estimator=exact, shadow=shadow, random_state=0)
    assert judge.asking(exact, X[:200], total[:200]).fit().score(MEMBER) > 0.99


def test_members_of_a_tree_are_told_by_loss_and_by_shadow_models():
    X, total = people()
    by_loss = LossThresholdAttack().asking(fitted(), *candidates()).fit()
    shadow = X[200:], classes(total[200:])
    judge = ShadowModelAttack(estimator=FOREST, shadow=shadow, random_state=0)
    by_shadow = judge.asking(fitted(), *candidates()).fit()
    # It is right of all members, and wrong of about a third of the others.
    assert by_loss.score(MEMBER) > 0.25
    assert by_shadow.score(MEMBER) > 0.25


def attacks(seed):
    X, total = people()
    # Whose halves have nothing to do with the fit.
    shadow = X[400:], classes(total[400:])
    yield LossThresholdAttack()
    yield ShadowModelAttack(
        estimator=FOREST, shadow=shadow, n_shadows=1, random_state=seed
    )


@pytest.mark.parametrize("which", [0, 1])
def test_nobody_is_told_who_is_no_member(which):
    X, total = people()
    outside = X[200:400], classes(total[200:400])
    found = []
    for seed in range(10):
        attack = [*attacks(seed)][which].asking(fitted(), *outside).fit()
        found.append(attack.score(np.random.default_rng(seed).random(200) < 0.5))
    assert is_nothing(found)


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_members_are_not_told_by_another_models_answers(which):
    found = []
    X, total = people()
    for seed in range(10):
        rows = np.random.default_rng(seed).permutation(np.arange(200, 400))[:100]
        other = clone(FOREST).fit(X.iloc[rows], classes(total)[rows])
        attack = [*attacks(seed)][which].asking(other, *candidates()).fit()
        found.append(attack.score(MEMBER))
    assert is_nothing(found)


def test_what_is_missing_is_said():
    with pytest.raises(ValueError, match="call asking"):
        LossThresholdAttack().fit()
    judge = ShadowModelAttack().asking(fitted(), *candidates())
    with pytest.raises(ValueError, match="give estimator and shadow"):
        judge.fit()
