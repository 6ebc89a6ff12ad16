"""What the active party learns from, and what of it the others are shown."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from sklearn.utils import compute_class_weight

from skvfl._random import for_data
from skvfl._targets import drawn_classes
from skvfl.boosting._losses import POSITIVE, loss_of
from skvfl.exceptions import TrainingError
from skvfl.nn._steps import check_held_out, n_held_out


class Lessons:
    """Labels of a fit: the true ones, and those whose derivatives others are sent.

    Without a privacy budget they are the same. With one, every label that others see
    something of was drawn at random before anything else, and whatever decides which
    splits are made, and when training stops, follows from these alone.

    Parameters
    ----------
    own, shown : SquaredError or another loss
        Losses of true labels, and of those that are shown.
    rows, held_out : ndarray of int
        Rows that are learnt from, and those that are held out.
    """

    after: ClassVar = "hold_out"

    def __init__(self, own, shown, rows, held_out):
        self.own, self.shown = own, shown
        self.rows, self.held_out = rows, held_out
        self.own_start, self.shown_start = own.start(rows), shown.start(rows)

    @classmethod
    def of(cls, holding, class_weight, said, streams):
        """What a party learns from its labels.

        Parameters
        ----------
        holding : Holding
            With the labels of all rows.
        class_weight : ndarray, "balanced" or None
            Weights of the classes.
        said : ActiveSettings
            What the party was told.
        streams : dict of str to SeedSequence
            ``held_out`` and ``labels``, its own.
        """
        labels = holding.labels
        n_rows = len(labels.values)
        # By chance alone and not by label: which rows are held out is seen by others.
        order = np.random.default_rng(streams["held_out"]).permutation(n_rows)
        n_train = n_rows - n_held_out(said, n_rows)
        rows, held_out = np.sort(order[:n_train]), np.sort(order[n_train:])
        own = _loss(labels.values, labels, class_weight, said)
        shown = own
        if said.label_epsilon is not None:
            # With one seed for fits of other rows, noise would cancel between them.
            rng = np.random.default_rng(for_data(streams["labels"], holding.digest()))
            shown = _loss(_noisy(labels, said, rng), labels, class_weight, said)
        if shown.weights is not None and held_out.size:
            check_held_out(shown.weights[held_out].sum())
        for loss in (own, shown):
            if not rows.size or (
                loss.weights is not None and not loss.weights[rows].sum()
            ):
                raise TrainingError(
                    "no row that has a weight is left to learn from: lower "
                    "validation_fraction, or train without early_stopping"
                )
        return cls(own, shown, rows, held_out)

    @property
    def are_private(self):
        """Whether others are shown other labels than the true ones."""
        return self.own is not self.shown


def _loss(values, labels, class_weight, said):
    """A loss in which rows weigh what they, and the classes of ``values``, weigh."""
    weights = labels.weights
    if class_weight is not None:
        classes = np.arange(labels.n_classes)
        if isinstance(class_weight, str):
            # Of a class that was drawn nowhere there is no row to weigh.
            found = np.unique(values)
            balanced = compute_class_weight(class_weight, classes=found, y=values)
            class_weight = np.ones(len(classes))
            class_weight[found] = balanced
        of_classes = np.asarray(class_weight)[values]
        weights = of_classes if weights is None else weights * of_classes
    return loss_of(values, labels.n_classes, weights, said)


def _noisy(labels, said, rng):
    """Labels of which each is drawn with the budget of ``said.label_epsilon``.

    A target gets Laplace noise of its range divided by epsilon. No label is more than
    ``exp(epsilon)`` times as likely to give what is shown as any other.
    """
    values, epsilon = labels.values, said.label_epsilon
    if labels.n_classes is None:
        low, high = said.target_range
        clipped = np.clip(values, low, high)
        noisy = clipped + rng.laplace(0, (high - low) / epsilon, len(values))
        # A loss with a logarithm has none of what is negative.
        return np.clip(noisy, low, high) if said.loss in POSITIVE else noisy
    return drawn_classes(values, labels.n_classes, epsilon, rng)
