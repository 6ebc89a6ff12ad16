"""Leakage as a scorer of scikit-learn."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, clone

from skvfl.privacy._measure import (
    attackable,
    fitted_federated,
    play,
    truth_of,
    view_of,
)
from skvfl.privacy._recording import record_views


def make_leakage_scorer(
    attack,
    *,
    role,
    party=None,
    column=None,
    when="fit",
    n_repeats=1,
    greater_is_better=False,
    random_state=0,
):
    """Make a scorer of what a role can work out, for searches and cross-validation.

    Beside a scorer of what a model is worth, it makes utility and leakage two columns
    of one search: ``scoring={"score": "accuracy", "leakage": make_leakage_scorer(…)},
    refit="score"``.

    Parameters
    ----------
    attack : Attack
        What the role does. Side knowledge that is given as a number is drawn from the
        rows that are scored.
    role : str or list of str
        Who attacks: ``"server"``, the name of a party, or several that work together.
    party : str, default=None
        Whose columns are attacked. Attacks on labels need none.
    column : str or int, default=None
        Which of the party's columns an ``AttributeInferenceAttack`` goes for, by name
        or position. Without it, such an attack goes for the labels.
    when : {"fit", "predict"}, default="fit"
        What is attacked. A fit cannot be looked at afterwards, so with ``"fit"`` a
        clone is fitted again, on the rows that are scored; with ``"predict"`` the
        fitted estimator predicts them.
    n_repeats : int, default=1
        How often side knowledge is drawn; the score is the mean.
    greater_is_better : bool, default=False
        Whether the score is negated, so that the greatest is the one that leaks least,
        as a search that refits by it needs. By default a higher score is more leakage.
    random_state : int or None, default=0
        Of the side knowledge, which by default is the same for all candidates.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y)``, which can be pickled. 0 is no better than the best
        guess from the side knowledge alone, and 1 is exact.

    Raises
    ------
    ValueError
        When it is called, if nobody of the role's name takes part, or if the columns
        of `party` are not here.

    See Also
    --------
    PrivacyUtilityDisplay : Draws both columns.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy import make_leakage_scorer
    >>> from skvfl.privacy.attacks import KnownRowsAttack
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> vfl = RandomProjectionVFL(LogisticRegression(), parties=3, random_state=0)
    >>> knows_20 = KnownRowsAttack(known_rows=20)
    >>> scorer = make_leakage_scorer(knows_20, role="server", party="party1")
    >>> print(f"{scorer(vfl.fit(X, y), X, y):.2f}")
    1.00
    """
    if when not in ("fit", "predict"):
        raise ValueError(f"when={when!r} is neither 'fit' nor 'predict'")
    if isinstance(attack, type) or not hasattr(attack, "informed"):
        raise ValueError(
            f"attack={attack!r} is no attack: give an instance, such as "
            "skvfl.privacy.attacks.KnownRowsAttack(known_rows=20)"
        )
    if not isinstance(n_repeats, Integral) or n_repeats < 1:
        raise ValueError(f"n_repeats={n_repeats!r} is no whole number of at least 1")
    if random_state is not None and not isinstance(random_state, Integral):
        raise ValueError(f"random_state={random_state!r} is no whole number, nor None")
    if not isinstance(role, str | list | tuple):
        raise ValueError(f"role={role!r} is no name, and no list of names")
    return LeakageScorer(
        attack, role, party, column, when, n_repeats, greater_is_better, random_state
    )


class LeakageScorer(BaseEstimator):
    """What :func:`make_leakage_scorer` makes; its parameters are those.

    An estimator for its parameters' sake alone: it prints and pickles.
    """

    def __init__(
        self,
        attack,
        role,
        party=None,
        column=None,
        when="fit",
        n_repeats=1,
        greater_is_better=False,
        random_state=0,
    ):
        self.attack = attack
        self.role = role
        self.party = party
        self.column = column
        self.when = when
        self.n_repeats = n_repeats
        self.greater_is_better = greater_is_better
        self.random_state = random_state

    def __call__(self, estimator, X, y=None):
        """Leakage of an estimator on some rows.

        Parameters
        ----------
        estimator : estimator
            Fitted. What a search has chosen stands for the search.
        X, y : array-like
            Table, and labels or target.

        Returns
        -------
        score : float
        """
        # Candidates that lost are not what is scored, and a search would be fitted
        # many times over.
        estimator = getattr(estimator, "best_estimator_", estimator)
        with record_views() as views:
            if self.when == "fit":
                estimator = clone(estimator).fit(X, y)
            else:
                estimator.predict(X)
        federated = fitted_federated(estimator)
        what = {"party": self.party, "estimator": federated, "column": self.column}
        view = attackable(view_of(views, self.role), self.attack, **what)
        truth = truth_of(self.attack, views=views, y=y, **what)
        rng = np.random.RandomState(self.random_state)
        seeds = rng.randint(2**31 - 1, size=self.n_repeats)
        score = np.mean(
            [play(self.attack, view, truth, self.party, int(seed)) for seed in seeds]
        )
        return float(-score if self.greater_is_better else score)
