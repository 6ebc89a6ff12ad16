"""Attacks on boosted trees: labels from derivatives, and columns from splits."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvfl.privacy.attacks._base import Attack
from skvfl.privacy.attacks._evidence import held_against
from skvfl.privacy.attacks._guess import guess_columns, surely_more

# More splits say hardly more of a column, and take memory.
MOST_SPLITS = 2_000
# Of numbers in single precision that were one number.
SAME_RATIO = 1e-3


class GradientSignAttack(Attack):
    """Labels from the signs of the derivatives that trees are grown on.

    The derivative of the loss with respect to what the model says is the predicted
    probability of a class minus one for the rows of that class, and the probability
    itself for all others: its sign is the label. It needs no side knowledge, which is
    why others encrypt derivatives [1]_. Numbers that are no derivatives of that loss
    are not believed. Labels that were drawn at random before training are, unless known
    labels say that they are wrong.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=None
        Rows whose classes are known, by their positions: signs are held against them.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows,)
        What :meth:`reconstruct` returns.

    References
    ----------
    .. [1] K. Cheng et al., "SecureBoost: A Lossless Federated Learning Framework", IEEE
       Intelligent Systems 36, 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import VFLBoostingClassifier
    >>> from skvfl.privacy import record_views
    >>> from skvfl.privacy.attacks import GradientSignAttack
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> with record_views() as views:
    ...     vfl = VFLBoostingClassifier(max_iter=2, random_state=0).fit(X, y)
    >>> GradientSignAttack().fit(views["party1"]).score(y)
    1.0
    """

    target: ClassVar = "labels"

    def __init__(self, *, known_rows=None):
        self.known_rows = known_rows

    def fit(self, view):
        """Look at the derivatives of the first iteration.

        Parameters
        ----------
        view : View
            Of a party that is sent some.

        Returns
        -------
        self : GradientSignAttack
        """
        view, known = view.fit, self._known()
        self.guess_ = np.full(view.n_rows, np.nan)
        slopes, seconds = _first_derivatives(view)
        if slopes is None or seconds is None:
            return self
        # Rows that are held out have no derivatives, and rows without weight neither.
        learnt = np.flatnonzero((seconds > 0).all(axis=0))
        if not are_of_two_kinds(slopes[:, learnt], seconds[:, learnt]):
            return self
        # Of the outputs, the row's own class is the one that pulls down.
        named = slopes.argmin(axis=0) if len(slopes) > 1 else slopes[0] < 0
        self.guess_[learnt] = named[learnt]
        if known is not None:
            there = np.isin(known[0], learnt)
            hits = self.guess_[known[0][there]] == known[1][there]
            prior = known[1][there] == self._most_frequent(known[1])
            if not surely_more(hits, prior):
                self.guess_[:] = np.nan
        return self

    def reconstruct(self):
        """The position of every row's class.

        Returns
        -------
        labels : ndarray of shape (n_rows,)
            NaN where nothing is known beside what was known before.
        """
        check_is_fitted(self)
        return self.guess_


def are_of_two_kinds(slopes, seconds):
    """Whether derivatives are those of the log loss at one probability for all rows.

    The first one divided by the second one, which undoes a row's weight, is one number
    for the rows of a class, and another one for all others.

    Parameters
    ----------
    slopes, seconds : ndarray of shape (n_outputs, n_rows)
    """
    ratios = slopes / seconds
    for ratio in ratios:
        for side in (ratio[ratio < 0], ratio[ratio >= 0]):
            if side.size and np.ptp(side) > SAME_RATIO * abs(side).max():
                return False
    return ratios.size > 0


class GradientTargetAttack(Attack):
    """A target from the derivatives that trees are grown on.

    The first derivatives of half the squared error are the distances of all targets
    from one number, in some unit. A few known targets say which, if rows have no
    weights.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=10
        Rows whose target is known. Fewer than six prove nothing.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows, 1)
        What :meth:`reconstruct` returns.

    See Also
    --------
    GradientSignAttack : The same for classes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvfl import VFLBoostingRegressor
    >>> from skvfl.privacy import record_views
    >>> from skvfl.privacy.attacks import GradientTargetAttack
    >>> X, y = load_diabetes(return_X_y=True)
    >>> with record_views() as views:
    ...     vfl = VFLBoostingRegressor(max_iter=2, random_state=0).fit(X, y)
    >>> attack = GradientTargetAttack(known_rows=10).informed(y, random_state=0)
    >>> print(f"{attack.fit(views['party1']).score(y):.3f}")
    1.000
    """

    target: ClassVar = "columns"

    def __init__(self, *, known_rows=10):
        self.known_rows = known_rows

    def fit(self, view):
        """Look at the derivatives of the first iteration.

        Parameters
        ----------
        view : View
            Of a party that is sent some.

        Returns
        -------
        self : GradientTargetAttack
        """
        view = view.fit
        known = self._known()
        if known is None:
            raise ValueError("GradientTargetAttack learns from known rows: give some")
        rows, values = known[0], known[1].reshape(len(known[1]), -1).astype(float)
        self.guess_ = np.full((view.n_rows, 1), np.nan)
        slopes, _ = _first_derivatives(view)
        if slopes is not None:
            line = np.column_stack([slopes[0], np.ones(view.n_rows)]).astype(float)
            weights = np.linalg.lstsq(line[rows], values, rcond=None)[0]
            self.guess_ = held_against(line @ weights, (rows, values))
        return self

    def reconstruct(self):
        """The target of every row.

        Returns
        -------
        target : ndarray of shape (n_rows, 1)
            NaN where nothing is known beside what was known before.
        """
        check_is_fitted(self)
        return self.guess_


class SplitSidesAttack(Attack):
    """Columns from which rows go left at a party's splits.

    Whoever grows the trees is told, for each split, which rows lie on which side, and
    so is whoever predicts with them.
    Splits of one column put its rows in order, coarsely, and known rows say what the
    order means.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=100
        Rows whose columns are known.
    sender : str, default=None
        Whose splits to look at; by default everybody's together.

    Attributes
    ----------
    guess_ : ndarray of shape (n_rows, n_columns)
        What :meth:`reconstruct` returns.

    See Also
    --------
    RankAttack : Columns of which all ranks are sent.

    Examples
    --------
    >>> from skvfl.privacy.attacks import SplitSidesAttack
    >>> SplitSidesAttack(known_rows=100, sender="shop")
    SplitSidesAttack(sender='shop')
    """

    target: ClassVar = "columns"

    def __init__(self, *, known_rows=100, sender=None):
        self.known_rows = known_rows
        self.sender = sender

    def fit(self, view):
        """Put rows in order by the sides that they take.

        Parameters
        ----------
        view : View
            Of whoever grows the trees.

        Returns
        -------
        self : SplitSidesAttack
        """
        view = view.fit
        known = self._known()
        if known is None:
            raise ValueError("SplitSidesAttack learns from known rows: give known_rows")
        sides = [
            np.unpackbits(seen.content, axis=1, count=view.n_rows)
            for seen in view.messages
            if seen.operation in ("split", "route")
            and self.sender in (None, seen.sender)
            and isinstance(seen.content, np.ndarray)
        ]
        sides = np.vstack([np.zeros((0, view.n_rows)), *sides])[:MOST_SPLITS]
        values = known[1].reshape(len(known[1]), -1).astype(float)
        self.guess_ = guess_columns(sides.T, known[0], values)
        return self

    def reconstruct(self):
        """The secret columns.

        Returns
        -------
        columns : ndarray of shape (n_rows, n_columns)
        """
        check_is_fitted(self)
        return self.guess_


def _first_derivatives(view):
    """First and second derivatives of the first iteration, a line for each output.

    None for both where none were sent, and for the second ones where they are one.
    """
    for seen in view.messages:
        if seen.operation == "begin_trees" and isinstance(seen.content, dict):
            slopes = np.asarray(seen.content.get("gradients", ()), dtype=float)
            seconds = seen.content.get("hessians")
            if slopes.ndim == 2 and slopes.shape[1] == view.n_rows:
                return slopes, None if seconds is None else np.asarray(seconds, float)
    return None, None
