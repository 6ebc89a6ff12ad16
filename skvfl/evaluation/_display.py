"""Pictures of a comparison."""

from __future__ import annotations

import numpy as np

from skvfl.evaluation._compare import compare
from skvfl.evaluation._import import optional

AXES = {
    "bytes": "bytes sent by one fit",
    "messages": "messages of one fit",
    "rounds": "communication rounds of one fit",
    "transfer_seconds": "estimated seconds to transfer",
    "fit_seconds": "seconds to fit, without transfer",
    "epsilon": "ε spent",
}
CURES = {
    "epsilon": "only a method with a budget spends any, such as FedOnceClassifier("
    "epsilon=2.0)",
}
LINE_STYLES = {"raw columns": "-", "nothing": "--", "raw labels": ":"}
MARKERS = "osD^vP*XhH<>pd"
# Share of an axis's length within which points cover each other, and how many points
# (of 1/72 inch) they are moved apart.
NEAR = 0.03
STEP = 9


class ComparisonDisplay:
    """Score against cost, from the result of :func:`compare`.

    Parameters
    ----------
    frame : pandas.DataFrame
        What :func:`compare` returned.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where :meth:`plot` drew.
    figure_ : matplotlib Figure
        The figure of ``ax_``.

    See Also
    --------
    compare : The table itself.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import ComparisonDisplay, RandomProjectionVFL
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LogisticRegression()
    >>> display = ComparisonDisplay.from_estimators(
    ...     {"RAP": RandomProjectionVFL(model)}, X, y, baseline=model, random_state=0
    ... )
    >>> display.ax_.get_xlabel()
    'bytes sent by one fit'
    """

    def __init__(self, frame):
        self.frame = frame

    @classmethod
    def from_estimators(cls, methods, X, y, *, x="bytes", ax=None, **options):
        """Compare and draw in one go.

        Parameters
        ----------
        methods, X, y
            As for :func:`compare`.
        x : str, default="bytes"
            As for :meth:`plot`.
        ax : matplotlib Axes, default=None
            As for :meth:`plot`.
        **options
            The other parameters of :func:`compare`.

        Returns
        -------
        display : ComparisonDisplay
        """
        return cls(compare(methods, X, y, **options)).plot(x, ax=ax)

    def plot(self, x="bytes", *, ax=None):
        """Draw methods as points, and what is possible without them as lines.

        Points that would cover each other are drawn side by side, and each has a marker
        of its own; methods without this cost, or without a score, are left out.

        Parameters
        ----------
        x : str, default="bytes"
            The cost: ``"bytes"``, ``"messages"``, ``"rounds"``, ``"transfer_seconds"``,
            ``"fit_seconds"`` or ``"epsilon"``.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Returns
        -------
        display : ComparisonDisplay

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If `x` is not one of the costs, or if no method has both this cost and a
            score.
        """
        if x not in AXES:
            raise ValueError(f"x={x!r} is not one of {list(AXES)}")
        plt = optional("matplotlib.pyplot", "ComparisonDisplay.plot", "plot")
        frame = self.frame
        points = frame[(frame["shares"] == "messages") & frame["score"].notna()]
        if points.empty:
            raise ValueError(f"nothing to draw: no method has a score; {_why(frame)}")
        points = points[points[x].notna()]
        if points.empty:
            raise ValueError(
                f"nothing to draw over {x!r}: no method has any; "
                f"{CURES.get(x, 'look at that column of the frame')}"
            )
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        lines = frame[(frame["shares"] != "messages") & frame["score"].notna()]
        for i, (name, row) in enumerate(lines.iterrows()):
            style = LINE_STYLES[row["shares"]]
            ax.axhline(row["score"], label=name, color=f"C{i}", linestyle=style)
        ax.set(xscale="log" if (points[x] > 0).all() else "symlog")
        ax.set(xlabel=_label(frame, x), ylabel="score")
        # A method looks alike in all pictures of one frame, whoever is left out.
        looks = {name: i for i, name in enumerate(frame.index)}
        _draw(ax, points, x, looks)
        # What is moved aside counts for nothing when matplotlib chooses the limits.
        ends = [points["score"] + sign * points["score_std"] for sign in (-1, 1)]
        seen = np.concatenate([*ends, lines["score"]])
        margin = 0.05 * (np.ptp(seen) or 1.0)
        ax.set_ylim(seen.min() - margin, seen.max() + margin)
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
        self.ax_ = ax
        self.figure_ = ax.figure
        return self


def _why(frame):
    """Errors of the rows, in short."""
    failed = frame.loc[frame["error"] != "", "error"]
    return "; ".join(f"{name}: {error}" for name, error in failed.items()) or "no row"


def _label(frame, x):
    network = frame.attrs.get("network")
    if x == "transfer_seconds" and network:
        return f"{AXES[x]} ({network})"
    return AXES[x]


def _draw(ax, points, x, looks):
    """Points with error bars, side by side where they would cover each other."""
    low, high = points[x].min(), points[x].max()
    if low > 0:
        ax.set_xlim(low / 10, high * 10)
    places = _places(points, x)
    for i, (name, row) in enumerate(points.iterrows()):
        # Moved on the paper alone: the data keep their values.
        ax.errorbar(
            row[x],
            row["score"],
            yerr=row["score_std"],
            label=name,
            color=f"C{looks[name] % 10}",
            fmt=MARKERS[looks[name] % len(MARKERS)],
            capsize=4,
            transform=ax.transData + _shift(ax, STEP * places[i]),
        )


def _shift(ax, points):
    from matplotlib.transforms import ScaledTranslation

    return ScaledTranslation(points / 72, 0, ax.figure.dpi_scale_trans)


def _places(points, x):
    """How many steps each point is moved: 0, 1, -1, 2, … among those at one place."""
    costs = np.log10(np.maximum(points[x].to_numpy(float), 1e-12))
    low, high = costs.min(), costs.max()
    # The axis goes a decade beyond the points on either side.
    costs = (costs - low) / (high - low + 2)
    places = []
    for i, cost in enumerate(costs):
        taken = {places[j] for j in range(i) if abs(costs[j] - cost) < NEAR}
        place = 0
        while place in taken:
            place = -place if place > 0 else 1 - place
        places.append(place)
    return places
