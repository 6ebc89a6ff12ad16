"""What trees learn: losses, their derivatives, and where training starts from.

They are those of scikit-learn's histogram boosting. Scores have a line for each output,
so that what belongs to one tree lies together.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit, softmax

_EPSILON = np.finfo(np.float64).eps


class SquaredError:
    """Half the squared error of a target.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        Targets.
    weights : ndarray of shape (n_rows,) or None
        Of the rows.
    """

    # Second derivatives are one, but for the weights of rows.
    constant = True

    def __init__(self, values, weights):
        # A power of two, so that nothing is rounded: derivatives cross in single
        # precision, which very large and very small targets leave.
        self.unit = 2.0 ** np.frexp(np.abs(values).max(initial=0) or 1.0)[1]
        self.values, self.weights = values / self.unit, weights

    def start(self, rows):
        """What every row is scored before there is a tree, from some rows."""
        return np.array([np.average(self.values[rows], weights=self._of(rows))])

    def slopes(self, scores):
        """First and second derivatives for each output, or None if these are one."""
        gradients = scores - self.values
        return self._weigh(gradients, None if self.weights is None else 1.0)

    def mean(self, scores, rows):
        """Mean loss of some rows."""
        errors = (scores[0, rows] - self.values[rows]) * self.unit
        losses = 0.5 * errors**2
        return float(np.average(losses, weights=self._of(rows)))

    @staticmethod
    def answers(scores):
        """What is predicted: targets in their own units."""
        return scores.T

    def _of(self, rows):
        return None if self.weights is None else self.weights[rows]

    def _weigh(self, gradients, hessians):
        if self.weights is not None:
            gradients, hessians = gradients * self.weights, hessians * self.weights
        single = np.empty(gradients.shape, np.float32)
        single[:] = gradients
        if hessians is None:
            return single, None
        second = np.empty(gradients.shape, np.float32)
        second[:] = hessians
        return single, second


class LogLoss(SquaredError):
    """The log loss of two classes; one output."""

    constant = False
    unit = 1.0

    def __init__(self, values, weights):
        self.values, self.weights = values, weights

    def start(self, rows):
        """The logit of how often the second class comes."""
        share = np.average(self.values[rows], weights=self._of(rows))
        return np.array([logit(np.clip(share, _EPSILON, 1 - _EPSILON))])

    def slopes(self, scores):
        """First and second derivatives."""
        y = self.values
        # Far beyond this the derivatives are 0 and 1 to the last digit.
        small = np.exp(-np.maximum(scores, -300.0))
        gradients = ((1 - y) - y * small) / (1 + small)
        return self._weigh(gradients, small / (1 + small) ** 2)

    def mean(self, scores, rows):
        """Mean loss of some rows."""
        score = scores[0, rows]
        # By the smaller of two exponentials, as logaddexp does in three times the time.
        losses = np.log1p(np.exp(-np.abs(score))) + np.maximum(score, 0)
        losses -= self.values[rows] * score
        return float(np.average(losses, weights=self._of(rows)))

    @staticmethod
    def answers(scores):
        """Probabilities of both classes."""
        second = expit(scores[0])
        return np.column_stack([1 - second, second])


class MultinomialLoss(LogLoss):
    """The log loss of several classes; one output for each.

    Parameters
    ----------
    values, weights
        As for :class:`SquaredError`; codes of classes.
    n_classes : int
        How many there are.
    """

    def __init__(self, values, weights, n_classes):
        super().__init__(values, weights)
        self._n_classes = n_classes

    def start(self, rows):
        """Logarithms of how often classes come, around their mean."""
        weights = self._of(rows)
        counts = np.bincount(self.values[rows], weights, self._n_classes)
        shares = np.clip(counts / counts.sum(), _EPSILON, 1 - _EPSILON)
        return np.log(shares) - np.log(shares).mean()

    def slopes(self, scores):
        """First and second derivatives for each class."""
        chances = softmax(scores, axis=0)
        hessians = chances * (1 - chances)
        chances[self.values, np.arange(len(self.values))] -= 1
        return self._weigh(chances, hessians)

    def mean(self, scores, rows):
        """Mean loss of some rows."""
        scores = scores[:, rows]
        whole = np.logaddexp.reduce(scores, axis=0)
        losses = whole - scores[self.values[rows], np.arange(scores.shape[1])]
        return float(np.average(losses, weights=self._of(rows)))

    @staticmethod
    def answers(scores):
        """Probabilities of the classes."""
        return softmax(scores, axis=0).T


def answers_of(n_classes):
    """What turns scores into answers, for so many classes or for a target."""
    if n_classes is None:
        return SquaredError.answers
    return LogLoss.answers if n_classes == 2 else MultinomialLoss.answers


def loss_of(values, n_classes, weights):
    """The loss of a target, or of so many classes."""
    if n_classes is None:
        return SquaredError(values, weights)
    if n_classes == 2:
        return LogLoss(values, weights)
    return MultinomialLoss(values, weights, n_classes)
