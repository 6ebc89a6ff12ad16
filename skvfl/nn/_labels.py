"""Labels as networks learn them, and outputs as users read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import softmax

from skvfl._targets import Standard, lie_probability
from skvfl.nn._explicit import CrossEntropy, SquaredError
from skvfl.nn._steps import TINY, check_held_out, take, tensor


class Codec:
    """Codes of classes, or a standardised target; it stays with the active party.

    Parameters
    ----------
    labels : Labels
        Of all rows that are learnt from.
    label_epsilon : float or None, default=None
        Budget within which the classes were drawn that are learnt.

    Attributes
    ----------
    n_outputs : int
        Number of outputs of a network that predicts.
    row_loss : CrossEntropy or SquaredError
        Loss of every row.
    """

    # How likely every wrong class was drawn.
    _lies = 0.0

    def __init__(self, labels, label_epsilon=None):
        self.n_outputs = labels.n_outputs
        if label_epsilon is not None:
            self._lies = lie_probability(labels.n_classes, label_epsilon)
        self._classifies = labels.n_classes is not None
        self.row_loss = CrossEntropy() if self._classifies else SquaredError()
        if not self._classifies:
            self._standard = Standard(labels.values)

    def going_on(self, earlier):
        """Take the units of an earlier fit, in which its networks answer."""
        if not self._classifies:
            self._standard = earlier._standard
        return self

    @property
    def units(self):
        """Mean and scale of a target."""
        return self._standard.units

    @units.setter
    def units(self, units):
        self._standard.units = units

    def encode(self, values):
        """What a network learns: codes as int64, or the target as float32."""
        if self._classifies:
            return values
        return self._standard.encode(values).astype(np.float32)

    def decode(self, outputs):
        """Answers in double precision: probabilities, or a column in its own units."""
        # scikit-learn's scores ask whether probabilities add up to one, which they do
        # not quite in single precision.
        outputs = np.asarray(outputs).astype(np.float64)
        if self._classifies:
            return self._of_true(softmax(outputs, axis=1))
        return self._standard.decode(outputs)

    def _of_true(self, drawn):
        """Probabilities of true classes, from those of classes as they were drawn."""
        if not self._lies:
            return drawn
        # What is less likely than a lie is less likely than nothing.
        true = np.maximum(drawn - self._lies, 0)
        total = true.sum(axis=1, keepdims=True)
        # With next to no budget all classes may be as likely as a lie.
        return np.divide(true, total, out=drawn, where=total > 0)


@dataclass
class Lessons:
    """Labels and weights of the rows of a run, in the order in which they are asked.

    Parameters
    ----------
    codec : Codec
        How labels are written.
    labels : torch.Tensor
        Encoded.
    weights : torch.Tensor or None
        Weights of the rows.
    """

    codec: Codec
    labels: torch.Tensor
    weights: torch.Tensor | None

    @classmethod
    def of(cls, codec, labels, order):
        """The labels of a run in the public order of its rows."""
        # Sorted once, so that rows held out are a slice, as they are at all parties.
        encoded = torch.from_numpy(codec.encode(labels.values))[order]
        weights = labels.weights
        return cls(codec, encoded, None if weights is None else tensor(weights)[order])

    def check_held_out(self, n_train):
        """Refuse rows from ``n_train`` on whose weights are all zero."""
        if self.weights is not None and n_train < len(self.labels):
            check_held_out(self.weights[n_train:].sum())

    def mean_loss(self, outputs, rows):
        """Mean loss of some rows, by their weights."""
        losses = self.codec.row_loss(outputs, self.labels[rows])
        if self.weights is None:
            return losses.mean()
        # Divided by what these rows weigh, so that a step is no larger in a batch of
        # heavy rows. The bound is for batches in which no row weighs anything.
        weights = self.weights[rows]
        # A batch may have rows of weight zero only, and then has no loss.
        return (losses * weights).sum() / weights.sum().clamp_min(TINY)

    def learn(self, outputs, rows):
        """What a batch teaches.

        Parameters
        ----------
        outputs : torch.Tensor
            Of the network.
        rows : ndarray of int
            Which they belong to.

        Returns
        -------
        report : dict
            What the others may know of the step: its mean ``loss``, and ``weight``,
            what its rows weigh.
        gradient : torch.Tensor
            Of the mean loss with respect to the outputs.
        """
        labels, weights = take(self.labels, rows), self.weights
        if weights is not None:
            weights = take(weights, rows)
        return teach(self.codec.row_loss, outputs, labels, weights)


def teach(row_loss, outputs, labels, weights):
    """What a batch teaches, as :meth:`Lessons.learn` says it.

    Parameters
    ----------
    row_loss : CrossEntropy or SquaredError
        Loss of every row.
    outputs : torch.Tensor
        Of the network.
    labels : torch.Tensor
        Encoded.
    weights : torch.Tensor or None
        Weights of the rows.

    Returns
    -------
    report : dict
    gradient : torch.Tensor
    """
    if weights is None:
        weight = labels.shape[0]
        factors = torch.full((weight,), 1 / weight)
        losses, gradient = row_loss.with_gradient(outputs, labels, factors=factors)
        loss = losses.mean()
    else:
        total = weights.sum()
        size = total.clamp_min(TINY)
        factors = weights * (1 / size)
        losses, gradient = row_loss.with_gradient(outputs, labels, factors=factors)
        loss, weight = (losses * weights).sum() / size, total.item()
    return {"loss": loss.item(), "weight": weight}, gradient
