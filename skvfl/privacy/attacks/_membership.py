"""Attacks on membership: who was in the fit, by what the finished model says."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvfl.privacy.attacks._base import Attack

# Of a probability: a model that is sure and wrong would have an infinite loss.
LEAST = 1e-12


class _OfMembership(Attack):
    """What attacks on membership have in common: candidates, and a model's answers."""

    target: ClassVar = "membership"

    def asking(self, estimator, X, y):
        """A copy that has asked a fitted model about candidates.

        Parameters
        ----------
        estimator : classifier or regressor
            Fitted.
        X : table of shape (n_candidates, n_features)
            People who may have been in the fit.
        y : array-like of shape (n_candidates,)
            Their labels, which the attacker knows.

        Returns
        -------
        attack : Attack
        """
        # Answers and not the model are kept: an attacker has no more, and what is
        # stored or sent on holds no model.
        predictions, labels = _ask(estimator, X, y)
        return clone(self).set_params(predictions=predictions, labels=labels)

    def _losses(self):
        if self.predictions is None or self.labels is None:
            raise ValueError(
                f"{type(self).__name__} judges by a model's answers: give predictions "
                "and labels of candidates, or call asking(estimator, X, y)"
            )
        return _losses(np.asarray(self.predictions), np.asarray(self.labels))

    def reconstruct(self):
        """How likely every candidate was in the fit.

        Returns
        -------
        scores : ndarray of shape (n_candidates,)
            The larger, the likelier.
        """
        check_is_fitted(self)
        return self.scores_


class LossThresholdAttack(_OfMembership):
    """Who was in the fit: those whose labels the finished model knows well.

    After Yeom et al. [1]_. The attacker asks the finished model about candidates whose
    labels it knows; everybody who is given predictions can do that, whatever else a
    role sees.

    Parameters
    ----------
    predictions : ndarray of shape (n_candidates, n_classes) or (n_candidates,)
        Probabilities of classes, or predicted targets; see :meth:`asking`.
    labels : ndarray of shape (n_candidates,)
        Positions of the candidates' classes, or their targets.

    References
    ----------
    .. [1] S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha, "Privacy Risk in Machine
       Learning: Analyzing the Connection to Overfitting", CSF 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy.attacks import LossThresholdAttack
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> member = np.arange(len(y)) % 2 == 0
    >>> tree = DecisionTreeClassifier(random_state=0)
    >>> vfl = RandomProjectionVFL(tree, random_state=0).fit(X[member], y[member])
    >>> attack = LossThresholdAttack().asking(vfl, X, y).fit()
    >>> attack.score(member) > 0
    True
    """

    def __init__(self, *, predictions=None, labels=None):
        self.predictions = predictions
        self.labels = labels

    def fit(self, view=None):
        """Compute losses.

        Parameters
        ----------
        view : View, default=None
            Not looked at: answers of the finished model are all that is needed.

        Returns
        -------
        self : LossThresholdAttack
        """
        # No threshold is chosen: the score is the area under the curve of all of them.
        self.scores_ = -self._losses()
        return self


class ShadowModelAttack(_OfMembership):
    """Who was in the fit, by models that the attacker has fitted itself.

    After Shokri et al. [1]_. The attacker fits the same kind of model on people like
    the candidates, some of whom it leaves out, and learns how answers about members
    differ from others'.

    Parameters
    ----------
    estimator : estimator
        Of the kind that is attacked.
    shadow : tuple (X, y)
        People who were not in the fit, and are like those who were.
    predictions, labels
        As for :class:`LossThresholdAttack`.
    n_shadows : int, default=4
        Number of models, each fitted on another half of the people.
    random_state : int, RandomState instance or None, default=None
        Which halves.

    References
    ----------
    .. [1] R. Shokri, M. Stronati, C. Song, V. Shmatikov, "Membership Inference Attacks
       Against Machine Learning Models", S&P 2017.
    """

    def __init__(
        self,
        *,
        estimator=None,
        shadow=None,
        predictions=None,
        labels=None,
        n_shadows=4,
        random_state=None,
    ):
        self.estimator = estimator
        self.shadow = shadow
        self.predictions = predictions
        self.labels = labels
        self.n_shadows = n_shadows
        self.random_state = random_state

    def fit(self, view=None):
        """Fit shadow models, and learn what gives members away.

        Parameters
        ----------
        view : View, default=None
            Not looked at: answers of the finished model are all that is needed.

        Returns
        -------
        self : ShadowModelAttack
        """
        losses = self._losses()
        if self.estimator is None or self.shadow is None:
            raise ValueError(
                "ShadowModelAttack fits models of its own: give estimator and shadow"
            )
        X, y = self.shadow
        y = np.asarray(y)
        rng = check_random_state(self.random_state)
        seen, member = [], []
        # One judge for all shadows: a single one would learn that model's own quirks.
        for _ in range(self.n_shadows):
            inside = rng.permutation(len(y)) % 2 == 0
            rows = np.flatnonzero(inside)
            model = clone(self.estimator).fit(_rows(X, rows), y[rows])
            answers, labels = _ask(model, X, y)
            seen.append(_clues(answers, labels))
            member.append(inside)
        # Linear, because a flexible judge learns its own few examples by heart.
        judge = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        judge.fit(np.vstack(seen), np.concatenate(member))
        clues = _clues(np.asarray(self.predictions), np.asarray(self.labels))
        self.scores_ = judge.decision_function(clues)
        # Where no clue tells members from others, all have one score; losses may tell.
        if np.ptp(self.scores_) < LEAST:
            self.scores_ = -losses
        return self


def _ask(estimator, X, y):
    """Answers of a model about candidates, and their labels as it codes them."""
    y = np.asarray(y)
    # Probabilities say more than the class, which is right for most rows in or out.
    if not is_classifier(estimator):
        return np.asarray(estimator.predict(X), dtype=float), y.astype(float)
    labels = np.searchsorted(estimator.classes_, y)
    return np.asarray(estimator.predict_proba(X)), labels


def _losses(predictions, labels):
    if predictions.ndim == 1:
        return (predictions - labels) ** 2
    right = predictions[np.arange(len(labels)), labels]
    return -np.log(np.maximum(right, LEAST))


def _clues(predictions, labels):
    """What a judge looks at: loss, certainty, and both on the scale of logits."""
    losses = _losses(predictions, labels)
    if predictions.ndim == 1:
        # A target is predicted with no certainty to look at.
        return np.column_stack([np.sqrt(losses), np.log(losses + LEAST)])
    right = predictions[np.arange(len(labels)), labels]
    # A model that has seen a row is surer of it, rightly or not.
    clipped = np.clip(predictions, LEAST, 1)
    entropy = -(clipped * np.log(clipped)).sum(axis=1)
    # Losses of well-fitted rows are crowded at zero, and spread out as logits.
    logit = np.log(np.clip(right, 1e-6, 1)) - np.log(np.clip(1 - right, 1e-6, 1))
    return np.column_stack([losses, entropy, logit, np.abs(logit)])


def _rows(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]
