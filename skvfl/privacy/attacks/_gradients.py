"""Attacks on labels, by passive parties that are sent gradients."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.utils.validation import check_is_fitted

from skvfl.partition._preprocessing import PartyPreprocessor
from skvfl.privacy.attacks._base import Attack
from skvfl.privacy.attacks._guess import (
    guess_classes,
    kernels,
    standardised,
    surely_more,
)
from skvfl.privacy.attacks._representations import _given, _some

# How the gradients of a loss arrive, whatever the method; those of pretraining have
# another name and depend on no label.
GRADIENTS = ("backward", "backward_rows")
# What a party sends that its own models made.
ACTIVATIONS = ("forward", "forward_rows", "learn", "encode")
# Of clusters on a sphere. Noise in many dimensions has a silhouette near 0.
CLEAR = 0.25
# How often clusters may go together with known labels by chance.
CHANCE = 0.02
N_PERMUTATIONS = 199
MOST_EPOCHS = 12
MOST_LOOKED_AT = 1000


class _OfLabels(Attack):
    """What attacks on labels by a passive party have in common.

    The party has columns of its own. What they say with the same known rows, without
    any federation, is the guess that an attack starts from and is scored against.
    """

    target: ClassVar = "labels"

    def _start(self, view):
        """View of the fit, known rows, their labels, and which of them are right."""
        known, labels = _given(self)
        labels, view = np.ravel(labels), view.fit
        self.alone_, right = guess_classes(_own_columns(view), known, labels)
        self.guess_ = self.alone_
        return view, known, labels, right

    def _take(self, guess, right, before):
        """Take a guess that has more known rows right than the one before, or all."""
        if right.sum() > before.sum() or right.all():
            self.guess_ = guess
            return right
        return before

    def reconstruct(self):
        """The label of every row.

        Returns
        -------
        labels : ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        return self.guess_

    def score(self, truth):
        """How much more is right than without a federation.

        Parameters
        ----------
        truth : array-like of shape (n_rows,)
            The labels.

        Returns
        -------
        score : float
            1 if all are, 0 if as many as by the party's own columns and the known rows
            alone, below if fewer.
        """
        check_is_fitted(self)
        truth = np.asarray(truth)
        unknown = np.ones(len(truth), bool)
        unknown[self._known()[0]] = False
        hits, alone = (
            float((guess == truth)[unknown].mean())
            for guess in (self.guess_, self.alone_)
        )
        return (hits - alone) / (1 - alone) if alone < 1 else 0.0


class GradientDirectionAttack(_OfLabels):
    """Labels from the directions of gradients.

    The gradient of a row's loss at the cut layer points one way for one class and the
    other way for the other, whatever the model; after Li et al. [1]_. Known rows say
    which way is which, by the cosines over all epochs. Few of them are enough where
    directions fall into clear clusters, but not fewer than show that clusters and
    classes go together.

    Parameters
    ----------
    known_rows : tuple (positions, labels) or int, default=20
        Rows whose labels are known.

    References
    ----------
    .. [1] O. Li et al., "Label Leakage and Protection in Two-party Split Learning",
       ICLR 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import SplitNNClassifier
    >>> from skvfl.privacy import record_views
    >>> from skvfl.privacy.attacks import GradientDirectionAttack
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> with record_views() as views:
    ...     split = SplitNNClassifier(max_epochs=5, random_state=0).fit(X, y)
    >>> attack = GradientDirectionAttack().informed(y, random_state=0)
    >>> attack.fit(views["party1"]).score(y) > 0.9
    True
    """

    def __init__(self, *, known_rows=20):
        self.known_rows = known_rows

    def fit(self, view):
        """Look at gradients.

        Parameters
        ----------
        view : View
            Of a party that is sent some.

        Returns
        -------
        self : GradientDirectionAttack
        """
        view, known, labels, right = self._start(view)
        gradients = _gradients(view)
        directions = [_directions(each) for each in gradients]
        seen = np.hstack([np.full((view.n_rows, 1), np.nan), *gradients])
        own = standardised(_own_columns(view))
        axes = _along_axes(gradients, len(np.unique(labels)))

        def similarities(_, rows):
            if not directions:
                return
            yield from kernels(axes, rows)
            cosines = sum(each @ each[rows].T for each in directions) / len(directions)
            yield cosines
            # Where the direction depends on the row itself, among rows like it.
            for similar in kernels(own, rows):
                yield cosines * similar

        guess = guess_classes(seen, known, labels, similarities)
        right = self._take(*guess, right)
        some = _some(directions, MOST_EPOCHS)
        clusters = _clusters(np.hstack(some), labels) if some else None
        if clusters is not None and _no_chance(clusters, known, labels):
            named = _named(clusters, known, labels)
            self._take(named, named[known] == labels, right)
        return self


class GradientNormAttack(_OfLabels):
    """Labels from the lengths of gradients.

    Rows of a rare class are the farther from what a model says of them at first, so
    that their gradients are longer; after Li et al. [1]_. Known rows say how long those
    of a class are, epoch by epoch.

    Parameters
    ----------
    known_rows : tuple (positions, labels) or int, default=50
        Rows whose labels are known.

    References
    ----------
    .. [1] O. Li et al., "Label Leakage and Protection in Two-party Split Learning",
       ICLR 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import SplitNNClassifier
    >>> from skvfl.privacy import record_views
    >>> from skvfl.privacy.attacks import GradientNormAttack
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> parties = {"bank": [*range(9), 10], "shop": [9, 11]}
    >>> split = SplitNNClassifier(parties=parties, max_epochs=20, random_state=0)
    >>> with record_views() as views:
    ...     split = split.fit(X[:, :12], y)
    >>> attack = GradientNormAttack().informed(y, random_state=0)
    >>> attack.fit(views["shop"]).score(y) > 0.3
    True
    """

    def __init__(self, *, known_rows=50):
        self.known_rows = known_rows

    def fit(self, view):
        """Look at gradients.

        Parameters
        ----------
        view : View
            Of a party that is sent some.

        Returns
        -------
        self : GradientNormAttack
        """
        view, known, labels, right = self._start(view)
        lengths = np.full((view.n_rows, 0), 0.0)
        for each in _gradients(view):
            length = np.linalg.norm(each, axis=1, keepdims=True)
            # Logarithms, because batches of other sizes scale all their gradients; a
            # class whose rows weigh nothing has none at all.
            length = np.log(np.where(length > 0, length, np.finfo(np.float32).tiny))
            lengths = np.hstack([lengths, length])
        self._take(*guess_classes(lengths, known, labels), right)
        return self


class ModelCompletionAttack(_OfLabels):
    """Labels by a head for the passive party's own bottom model.

    Training gives the bottom model of a passive party what it needs to tell classes
    apart. With a few labelled rows the party completes it; after Fu et al. [1]_. The
    paper's semi-supervised learning is kernel ridge regression here. What the party's
    own columns say with the same known rows, without any federation, counts as the
    prior guess.

    Parameters
    ----------
    known_rows : tuple (positions, labels) or int, default=40
        Rows whose labels are known.
    operation : str, default=None
        By which operation the party sends what its bottom model says.

    References
    ----------
    .. [1] C. Fu et al., "Label Inference Attacks Against Vertical Federated Learning",
       USENIX Security 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import SplitNNClassifier
    >>> from skvfl.privacy import record_views
    >>> from skvfl.privacy.attacks import ModelCompletionAttack
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> with record_views() as views:
    ...     split = SplitNNClassifier(max_epochs=5, random_state=0).fit(X, y)
    >>> attack = ModelCompletionAttack().informed(y, random_state=0)
    >>> (attack.fit(views["party1"]).reconstruct() == y).mean() > 0.8
    np.True_
    """

    def __init__(self, *, known_rows=40, operation=None):
        self.known_rows = known_rows
        self.operation = operation

    def fit(self, view):
        """Complete the model.

        Parameters
        ----------
        view : View
            Of a passive party.

        Returns
        -------
        self : ModelCompletionAttack
        """
        view, known, labels, right = self._start(view)
        guess, by_model = guess_classes(self._representation(view), known, labels)
        # Activations say what columns say, so that little more is often by chance.
        if surely_more(by_model, right):
            self.guess_ = guess
        return self

    def _representation(self, view):
        """What the party's model says of each row, as it sent it last."""
        found = {}
        for matrix in view.sent.matrices(operation=self.operation):
            if self.operation is not None or matrix.operation in ACTIVATIONS:
                found[matrix.operation, matrix.place] = matrix.values
        return np.hstack([np.zeros((view.n_rows, 0)), *found.values()])


def _gradients(view):
    """What arrived as gradients, epoch by epoch; NaN in rows that had none."""
    return [
        matrix.values
        for operation in GRADIENTS
        for matrix in view.matrices(operation=operation)
    ]


def _along_axes(gradients, n_axes):
    """Gradients of all epochs along the few axes on which they lie.

    Noise is as large along every other axis, and is another in every epoch.
    """
    along = []
    for gradient in gradients:
        gradient = np.nan_to_num(gradient)
        axes = np.linalg.svd(gradient.T @ gradient)[0][:, :n_axes]
        along.append(gradient @ axes)
    if not along:
        return np.zeros((0, 0))
    # Axes come with any sign: what is common to all epochs is their first components.
    along = standardised(np.hstack(along))
    common = np.linalg.svd(along.T @ along)[0][:, :n_axes]
    return standardised(along @ common)


def _directions(gradient):
    """Every row's gradient at length 1; zero where there is none."""
    gradient = np.nan_to_num(gradient)
    length = np.linalg.norm(gradient, axis=1, keepdims=True)
    return gradient / np.where(length > 0, length, 1)


def _own_columns(view):
    """What the roles hold themselves, as numbers."""
    own = [PartyPreprocessor().fit_transform(block) for block in view.blocks.values()]
    # A client of a cluster has some of the rows, and goes by what it was sent.
    own = [columns for columns in own if len(columns) == view.n_rows]
    return np.hstack([np.zeros((view.n_rows, 0)), *own])


def _clusters(directions, labels):
    """Numbers of as many clusters as classes, or None where none are clear."""
    n_clusters = len(np.unique(labels))
    if n_clusters < 2:
        return None
    # One seed, so that the same view gives the same guess.
    found = KMeans(n_clusters, n_init=4, random_state=0).fit_predict(directions)
    step = -(-len(found) // MOST_LOOKED_AT)
    if len(np.unique(found[::step])) < 2:
        return None
    clear = silhouette_score(directions[::step], found[::step]) > CLEAR
    return found if clear else None


def _named(clusters, known, labels):
    """For every row, the class that its cluster stands for by the known rows."""
    values, codes = np.unique(labels, return_inverse=True)
    table = _table(clusters[known], codes, len(values))
    return values[linear_sum_assignment(-table)[1][clusters]]


def _no_chance(clusters, known, labels):
    """Whether known rows of one class are in one cluster, and not by chance."""
    values, codes = np.unique(labels, return_inverse=True)
    rng = np.random.default_rng(0)

    def agree(codes):
        table = _table(clusters[known], codes, len(values))
        return table[linear_sum_assignment(-table)].sum()

    found = agree(codes)
    by_chance = [agree(rng.permutation(codes)) >= found for _ in range(N_PERMUTATIONS)]
    return (1 + sum(by_chance)) / (1 + N_PERMUTATIONS) < CHANCE


def _table(clusters, codes, n):
    """How many rows of each cluster are of each class."""
    table = np.zeros((n, n))
    np.add.at(table, (clusters, codes), 1)
    return table
