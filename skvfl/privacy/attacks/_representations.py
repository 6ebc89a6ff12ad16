"""Attacks on representations: what rows look like that crossed as activations."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvfl.privacy.attacks._base import Attack
from skvfl.privacy.attacks._guess import (
    guess_classes,
    guess_columns,
    standardised,
    surely_less,
)

# Epochs of one operation that are looked at together. More say hardly more, and their
# columns take memory.
MOST_EPOCHS = 12
MOST_PAIRS = 20_000


class _OfRepresentations(Attack):
    """What attacks on representations have in common: which ones they look at."""

    def _features(self, view):
        """Everything numerical that was seen of each row, side by side."""
        view = view.fit
        found = {}
        for matrix in view.matrices(sender=self.sender, operation=self.operation):
            kind = matrix.sender, matrix.operation, matrix.place
            found.setdefault(kind, []).append(matrix.values)
        if self.epochs not in ("last", "all"):
            raise ValueError(f"epochs must be 'last' or 'all', got {self.epochs!r}")
        n_epochs = MOST_EPOCHS if self.epochs == "all" else 1
        parts = [
            values for epochs in found.values() for values in _some(epochs, n_epochs)
        ]
        return np.hstack([np.zeros((view.n_rows, 0)), *parts])


class InversionAttack(_OfRepresentations):
    """Columns from representations, by a model that goes back.

    The attacker knows some rows of the secret table, learns from them how
    representations become columns, and applies it to all others. It is the attack of
    He, Zhang and Lee [1]_ with known pairs. Without ``estimator`` it takes, for each
    column, the best of linear and Gaussian kernel ridge regression on left-out rows,
    and the prior guess where none is certainly better.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=100
        Rows whose secret columns are known.
    sender : str, default=None
        Whose representations to look at; by default everybody's together.
    operation : str, default=None
        Sent by which operation; by default all that have a line for each row.
    epochs : {"last", "all"}, default="last"
        Whether to look at the last epoch of each operation, or at several together.
    estimator : regressor, default=None
        The inverse model, such as scikit-learn's ``MLPRegressor``, in place of
        the kernels.

    References
    ----------
    .. [1] Z. He, T. Zhang, R. B. Lee, "Model Inversion Attacks Against Collaborative
       Inference", ACSAC 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import SplitNNClassifier
    >>> from skvfl.privacy import record_views
    >>> from skvfl.privacy.attacks import InversionAttack
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> with record_views() as views:
    ...     split = SplitNNClassifier(max_epochs=2, random_state=0).fit(X, y)
    >>> secret = X[:, 1::2]
    >>> attack = InversionAttack(known_rows=100).informed(secret, random_state=0)
    >>> attack = attack.fit(views["party0"])
    >>> attack.score(secret) > 0.9
    True
    """

    target: ClassVar = "columns"

    def __init__(
        self,
        *,
        known_rows=100,
        sender=None,
        operation=None,
        epochs="last",
        estimator=None,
    ):
        self.known_rows = known_rows
        self.sender = sender
        self.operation = operation
        self.epochs = epochs
        self.estimator = estimator

    def fit(self, view):
        """Learn the way back from the known rows.

        Parameters
        ----------
        view : View
            Of who receives the representations.

        Returns
        -------
        self : InversionAttack
        """
        known, values = _given(self)
        values = values.reshape(len(values), -1).astype(float)
        features = self._features(view)
        if self.estimator is None:
            self.guess_ = guess_columns(features, known, values)
        else:
            self.guess_ = self._by_estimator(features, known, values)
        return self

    def reconstruct(self):
        """The secret columns.

        Returns
        -------
        columns : ndarray of shape (n_rows, n_columns)
        """
        check_is_fitted(self)
        return self.guess_

    def _by_estimator(self, features, known, values):
        prior = np.tile(values.mean(axis=0), (len(features), 1))
        features = standardised(features)
        if len(known) < 10 or not features.shape[1]:
            return prior
        scale = np.where(values.std(axis=0) > 0, values.std(axis=0), 1)
        targets = (values - values.mean(axis=0)) / scale
        # Rows come in any order, so that parts of them are shuffled; always in the same
        # way, so that the same view gives the same guess.
        parts = KFold(5, shuffle=True, random_state=0)
        flat = targets[:, 0] if targets.shape[1] == 1 else targets
        model = clone(self.estimator)
        left_out = cross_val_predict(model, features[known], flat, cv=parts)
        errors = (left_out.reshape(targets.shape) - targets) ** 2
        better = surely_less(errors, targets**2)
        guess = model.fit(features[known], flat).predict(features)
        guess = guess.reshape(prior.shape) * scale + values.mean(axis=0)
        return np.where(better, guess, prior)


class AttributeInferenceAttack(_OfRepresentations):
    """A column with few values from representations.

    The attacker knows the attribute of some rows, such as a diagnosis, and learns to
    tell it from what crossed; after Song and Shmatikov [1]_. Part of what it finds it
    might have guessed from columns of its own, which the score does not take off.

    Parameters
    ----------
    known_rows : tuple (positions, values) or int, default=100
        Rows whose attribute is known.
    sender, operation, epochs
        As for :class:`InversionAttack`.

    References
    ----------
    .. [1] C. Song, V. Shmatikov, "Overlearning Reveals Sensitive Attributes", ICLR
       2020.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import SplitNNClassifier
    >>> from skvfl.privacy import record_views
    >>> from skvfl.privacy.attacks import AttributeInferenceAttack
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> with record_views() as views:
    ...     split = SplitNNClassifier(max_epochs=2, random_state=0).fit(X, y)
    >>> attribute = X[:, 1] > 20
    >>> attack = AttributeInferenceAttack().informed(attribute, random_state=0)
    >>> attack.fit(views["party0"]).score(attribute) > 0.5
    True
    """

    target: ClassVar = "labels"

    def __init__(self, *, known_rows=100, sender=None, operation=None, epochs="last"):
        self.known_rows = known_rows
        self.sender = sender
        self.operation = operation
        self.epochs = epochs

    def fit(self, view):
        """Learn the attribute from the known rows.

        Parameters
        ----------
        view : View
            Of who receives the representations.

        Returns
        -------
        self : AttributeInferenceAttack
        """
        known, values = _given(self)
        self.guess_, _ = guess_classes(self._features(view), known, np.ravel(values))
        return self

    def reconstruct(self):
        """The attribute of every row.

        Returns
        -------
        values : ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        return self.guess_


class EqualRowsAttack(_OfRepresentations):
    """Which rows are equal, because their representations are.

    Whoever sees that two rows are equal learns the second person's columns with the
    first's. It needs no side knowledge.

    Parameters
    ----------
    sender, operation, epochs
        As for :class:`InversionAttack`.
    tolerance : float, default=1e-5
        Distance of two rows that counts as none, as a share of the typical one.
    random_state : int, RandomState instance or None, default=None
        Of the pairs by which the attack is scored.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import FedOnceClassifier
    >>> from skvfl.privacy import record_views
    >>> from skvfl.privacy.attacks import EqualRowsAttack
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = np.round(X[:, :4] / X[:, :4].max(axis=0), 1)
    >>> with record_views() as views:
    ...     once = FedOnceClassifier(max_epochs=2, random_state=0).fit(X, y)
    >>> attack = EqualRowsAttack(random_state=0).fit(views["party0"])
    >>> print(f"{attack.score(X[:, 1::2]):.2f}")
    1.00
    """

    target: ClassVar = "equality"

    def __init__(
        self,
        *,
        sender=None,
        operation=None,
        epochs="last",
        tolerance=1e-5,
        random_state=None,
    ):
        self.sender = sender
        self.operation = operation
        self.epochs = epochs
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, view):
        """Look at representations.

        Parameters
        ----------
        view : View
            Of who receives them.

        Returns
        -------
        self : EqualRowsAttack
        """
        features = self._features(view)
        self.representation_ = standardised(features)
        self.seen_ = ~np.isnan(features).all(axis=1)
        return self

    def reconstruct(self):
        """Rows that look equal, by a number that they share.

        Returns
        -------
        groups : ndarray of int of shape (n_rows,)
            -1 for rows of which nothing was seen.
        """
        check_is_fitted(self)
        # Standardised, the typical distance along one column is about 1.
        rounded = np.round(self.representation_ / max(self.tolerance, 1e-12))
        groups = np.unique(rounded, axis=0, return_inverse=True)[1].ravel()
        return np.where(self.seen_, groups, -1)

    def score(self, truth):
        """How well distances tell equal rows from others.

        Parameters
        ----------
        truth : array-like of shape (n_rows,) or (n_rows, n_columns)
            The secret columns, or anything by which rows are equal.

        Returns
        -------
        score : float
            2 AUC - 1 over pairs of equal rows that were seen, and as many of others; 0
            where no two rows are equal, or all are.
        """
        check_is_fitted(self)
        truth = np.asarray(truth)
        rows = truth.reshape(len(truth), -1)[self.seen_]
        seen = self.representation_[self.seen_]
        if not len(rows):
            return 0.0
        groups = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
        rng = check_random_state(self.random_state)
        equal, other = _pairs(groups, rng)
        if not len(equal) or not len(other):
            return 0.0
        pairs = np.vstack([equal, other])
        left, right = (seen[side] for side in pairs.T)
        distances = ((left - right) ** 2).sum(axis=1)
        labels = np.arange(len(pairs)) < len(equal)
        return float(2 * roc_auc_score(labels, -distances) - 1)


def _some(epochs, n_epochs):
    """So many of the epochs, evenly spaced, the last among them."""
    steps = np.linspace(0, len(epochs) - 1, min(n_epochs, len(epochs)))
    if n_epochs == 1:
        steps = [len(epochs) - 1]
    return [epochs[round(i)] for i in steps]


def _given(attack):
    known = attack._known()
    if known is None:
        raise ValueError(
            f"{type(attack).__name__} learns from known rows: give known_rows"
        )
    return known


def _pairs(groups, rng):
    """Pairs of rows of one group, and pairs of rows of two."""
    order = rng.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    # Neighbours in an order by group: every group gives one pair less than it has rows.
    equal = np.column_stack([order[:-1], order[1:]])
    equal = equal[groups[equal[:, 0]] == groups[equal[:, 1]]]
    equal = equal[rng.permutation(len(equal))[:MOST_PAIRS]]
    other = rng.randint(len(groups), size=(4 * max(len(equal), 1), 2))
    other = other[groups[other[:, 0]] != groups[other[:, 1]]]
    return equal, other[: len(equal)]
