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
    # Whether leaves say what suits their rows best, in place of a step by derivatives.
    refills = False

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


class QuantileLoss(SquaredError):
    """The pinball loss of a quantile; twice that of the median is the absolute error.

    Parameters
    ----------
    values, weights
        As for :class:`SquaredError`.
    share : float
        Which quantile.
    scale : float
        What the pinball loss is multiplied by.
    """

    unit = 1.0
    refills = True

    def __init__(self, values, weights, share, scale):
        self.values, self.weights = values, weights
        self._share, self._scale = share, scale

    def start(self, rows):
        """The quantile of some rows."""
        return np.array([self.fill(rows, 0.0)])

    def fill(self, rows, scores):
        """What a leaf adds to the scores of its rows: the quantile of what they lack.

        Second derivatives are zero, so that a step by derivatives has no length.
        """
        lacking = self.values[rows] - scores
        weights = self._of(rows)
        if weights is None:
            return float(np.percentile(lacking, 100 * self._share))
        order = np.argsort(lacking)
        ends = np.cumsum(weights[order])
        # The first one that has a weight, where the quantile is the lowest.
        due = max(self._share * ends[-1], np.nextafter(0, 1))
        at = min(int(np.searchsorted(ends, due)), len(order) - 1)
        return float(lacking[order[at]])

    def slopes(self, scores):
        """First derivatives, which say no more than on which side a row lies."""
        below = np.where(self.values >= scores, -self._share, 1 - self._share)
        return self._weigh(self._scale * below, None if self.weights is None else 1.0)

    def mean(self, scores, rows):
        """Mean loss of some rows."""
        lacking = self.values[rows] - scores[0, rows]
        sides = np.where(lacking >= 0, self._share, self._share - 1)
        losses = self._scale * sides * lacking
        return float(np.average(losses, weights=self._of(rows)))


class PoissonLoss(SquaredError):
    """Half the Poisson deviance, up to a constant; scores are logarithms."""

    constant = False
    unit = 1.0

    def __init__(self, values, weights):
        self.values, self.weights = values, weights

    def start(self, rows):
        """The logarithm of the mean of some rows."""
        mean = np.average(self.values[rows], weights=self._of(rows))
        return np.log([max(mean, 10 * _EPSILON)])

    def slopes(self, scores):
        """First and second derivatives."""
        means = np.exp(scores)
        return self._weigh(means - self.values, means)

    def mean(self, scores, rows):
        """Mean loss of some rows."""
        score = scores[0, rows]
        losses = np.exp(score) - self.values[rows] * score
        return float(np.average(losses, weights=self._of(rows)))

    @staticmethod
    def answers(scores):
        """What is predicted: targets in their own units."""
        return np.exp(scores.T)


class GammaLoss(PoissonLoss):
    """Half the gamma deviance, up to a constant; scores are logarithms."""

    def slopes(self, scores):
        """First and second derivatives."""
        ratios = self.values * np.exp(-scores)
        return self._weigh(1 - ratios, ratios)

    def mean(self, scores, rows):
        """Mean loss of some rows."""
        score = scores[0, rows]
        losses = score + self.values[rows] * np.exp(-score)
        return float(np.average(losses, weights=self._of(rows)))


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


# Of targets, by scikit-learn's words. Those with a logarithm have a least target.
LOSSES = {
    "squared_error": SquaredError,
    "absolute_error": QuantileLoss,
    "quantile": QuantileLoss,
    "poisson": PoissonLoss,
    "gamma": GammaLoss,
}
POSITIVE = {"poisson", "gamma"}


def answers_of(n_classes, loss):
    """What turns scores into answers, for so many classes or for a target."""
    if n_classes is None:
        return LOSSES[loss].answers
    return LogLoss.answers if n_classes == 2 else MultinomialLoss.answers


def loss_of(values, n_classes, weights, said):
    """The loss of a target, or of so many classes, as a party is told it."""
    if n_classes is None:
        more = {"absolute_error": (0.5, 2.0), "quantile": (said.quantile, 1.0)}
        return LOSSES[said.loss](values, weights, *more.get(said.loss, ()))
    if n_classes == 2:
        return LogLoss(values, weights)
    return MultinomialLoss(values, weights, n_classes)
