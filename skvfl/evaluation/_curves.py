"""Losses of a training, epoch by epoch."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvfl.evaluation._import import optional

# In the order in which they come about. RAP's and APC-VFL's are of a model inside.
CURVES = {
    "pretraining_loss_curve_": "pretraining",
    "pretraining_validation_loss_curve_": "pretraining, held out",
    "loss_curve_": "training",
    "validation_loss_curve_": "training, held out",
}


class LossCurveDisplay:
    """Losses of every epoch of a fit.

    Parameters
    ----------
    curves : dict of str to sequence of float
        Losses by the name of the curve.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where :meth:`plot` drew.
    figure_ : matplotlib Figure
        The figure of ``ax_``.

    See Also
    --------
    ComparisonDisplay : Score against cost.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import LossCurveDisplay, SplitNNClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> split = SplitNNClassifier(max_epochs=3, early_stopping=True, random_state=0)
    >>> display = LossCurveDisplay.from_estimator(split.fit(X, y))
    >>> [line.get_label() for line in display.ax_.lines]
    ['training', 'training, held out']
    """

    def __init__(self, curves):
        self.curves = curves

    @classmethod
    def from_estimator(cls, estimator, *, ax=None):
        """Draw the losses of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted. Of :class:`RandomProjectionVFL` the server's model is looked at, and
            of APC-VFL the steps of ``active_estimator_``.
        ax : matplotlib Axes, default=None
            Where to draw; new axes by default.

        Returns
        -------
        display : LossCurveDisplay

        Raises
        ------
        ValueError
            If nothing was trained in epochs.
        """
        check_is_fitted(estimator)
        for name, each in _trained(estimator):
            found = {
                label: losses
                for attribute, label in CURVES.items()
                if (losses := getattr(each, attribute, None)) is not None
                and len(losses)
            }
            if found:
                curves = {name.format(label): x for label, x in found.items()}
                return cls(curves).plot(ax=ax)
        raise ValueError(
            f"{type(estimator).__name__} has no losses of epochs: none of its models "
            "was trained in epochs, or a budget of privacy forbids to show them"
        )

    def plot(self, *, ax=None):
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; new axes by default.

        Returns
        -------
        self : LossCurveDisplay

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        plt = optional("matplotlib.pyplot", "LossCurveDisplay", "plot")
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        for label, losses in self.curves.items():
            # One epoch is a point, which a line alone would not show.
            style = "o-" if len(losses) == 1 else "-"
            ax.plot(np.arange(1, len(losses) + 1), losses, style, label=label)
        ax.set(xlabel="epoch", ylabel="loss")
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _trained(estimator):
    """What may have losses, and how its curves are called."""
    yield "{}", estimator
    yield "{}, server's model", getattr(estimator, "estimator_", None)
    alone = getattr(estimator, "active_estimator_", None)
    for name, step in reversed(getattr(alone, "steps", [])):
        yield "{}, " + name, step
