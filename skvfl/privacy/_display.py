"""Pictures of what a model is worth, and what it gives away."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import cross_validate

from skvfl.evaluation._display import MARKERS, STEP, _shift
from skvfl.evaluation._import import optional

# Points nearer than this share of both axes cover each other.
NEAR = 0.03


class PrivacyUtilityDisplay:
    """Utility against leakage, a point for each setting, and the best trade-offs.

    The line joins settings that no other one beats: none leaks less and is worth as
    much.

    Parameters
    ----------
    names : list of str
        What each point is.
    utility, leakage : array-like of float of shape (n_points,)
        What it is worth, more being better, and what it gives away.
    utility_std, leakage_std : array-like of float of shape (n_points,), default=None
        Their standard deviations, drawn as bars.
    utility_name, leakage_name : str
        Labels of the axes.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where :meth:`plot` drew.
    figure_ : matplotlib Figure
        The figure of ``ax_``.
    frontier_ : list of str
        Names of the points that no other one beats, from the least leakage on.

    See Also
    --------
    make_leakage_scorer : Measures leakage in a search.
    skvfl.ComparisonDisplay : Utility against other costs.

    Examples
    --------
    >>> from skvfl.privacy import PrivacyUtilityDisplay
    >>> display = PrivacyUtilityDisplay(
    ...     ["plain", "noise", "noise, badly tuned"], [0.9, 0.85, 0.8], [1.0, 0.4, 0.5]
    ... ).plot()
    >>> display.frontier_
    ['noise', 'plain']
    """

    def __init__(
        self,
        names,
        utility,
        leakage,
        *,
        utility_std=None,
        leakage_std=None,
        utility_name="score",
        leakage_name="leakage",
    ):
        self.names = names
        self.utility = utility
        self.leakage = leakage
        self.utility_std = utility_std
        self.leakage_std = leakage_std
        self.utility_name = utility_name
        self.leakage_name = leakage_name

    @classmethod
    def from_cv_results(
        cls, cv_results, *, utility="score", leakage="leakage", negated=False, ax=None
    ):
        """Draw what a search found.

        Parameters
        ----------
        cv_results : dict or DataFrame
            ``cv_results_`` of a search with several scorers.
        utility, leakage : str
            Names of the two scorers.
        negated : bool, default=False
            Whether the leakage scorer was made with ``greater_is_better=True``.
        ax : matplotlib Axes, default=None
            As for :meth:`plot`.

        Returns
        -------
        display : PrivacyUtilityDisplay

        Raises
        ------
        ValueError
            If a scorer is not among the results, or if nothing was measured.
        """
        columns = {}
        for name in (utility, leakage):
            for what in ("mean", "std"):
                key = f"{what}_test_{name}"
                if key not in cv_results:
                    known = [str(each).partition("mean_test_") for each in cv_results]
                    known = [end for start, met, end in known if met and not start]
                    raise ValueError(
                        f"the results have no scorer {name!r}, only {known}: search "
                        "with several scorers, such as scoring={'score': 'accuracy', "
                        "'leakage': make_leakage_scorer(…)}, refit='score'"
                    )
                columns[what, name] = np.asarray(cv_results[key], dtype=float)
        sign = -1.0 if negated else 1.0
        return cls(
            _names_of([*cv_results["params"]]) if "params" in cv_results else None,
            columns["mean", utility],
            sign * columns["mean", leakage],
            utility_std=columns["std", utility],
            leakage_std=columns["std", leakage],
            utility_name=utility,
            leakage_name=leakage,
        ).plot(ax=ax)

    @classmethod
    def from_estimators(
        cls, estimators, X, y, *, leakage, utility=None, cv=3, n_jobs=None, ax=None
    ):
        """Cross-validate estimators and draw them.

        Parameters
        ----------
        estimators : dict of str to estimator
            Unfitted, by the name of their point.
        X, y : array-like
            Table, and labels or target.
        leakage : callable
            What they give away, from :func:`make_leakage_scorer` with
            ``greater_is_better=False``.
        utility : str or callable, default=None
            A scorer of what they are worth; accuracy or R² by default.
        cv : int, cross-validation generator or iterable, default=3
            The folds.
        n_jobs : int, default=None
            Number of folds that are fitted at the same time.
        ax : matplotlib Axes, default=None
            As for :meth:`plot`.

        Returns
        -------
        display : PrivacyUtilityDisplay
        """
        if not isinstance(estimators, dict):
            raise ValueError(
                "estimators is no dict: give each a name, such as "
                '{"plain": SplitNNClassifier()}'
            )
        found = {"score": [], "leakage": []}
        scoring = {"score": utility or _own_score, "leakage": leakage}
        for estimator in estimators.values():
            kept = cross_validate(
                estimator, X, y, scoring=scoring, cv=cv, n_jobs=n_jobs
            )
            for name, values in found.items():
                values.append(kept[f"test_{name}"])
        return cls(
            [*estimators],
            [values.mean() for values in found["score"]],
            [values.mean() for values in found["leakage"]],
            utility_std=[values.std() for values in found["score"]],
            leakage_std=[values.std() for values in found["leakage"]],
            utility_name=utility if isinstance(utility, str) else "score",
        ).plot(ax=ax)

    def plot(self, *, ax=None):
        """Draw the points and the line of the best trade-offs.

        Points that would cover each other are drawn side by side, and each has a marker
        of its own; those that were not measured are left out.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Returns
        -------
        display : PrivacyUtilityDisplay

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is nothing to draw.
        """
        plt = optional("matplotlib.pyplot", "PrivacyUtilityDisplay.plot", "plot")
        names, points, bars = self._points()
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        leakage, utility = points.T
        best = _frontier(points)
        self.frontier_ = [names[i] for i in best]
        # Drawn as steps: what lies between two settings was not measured.
        ax.step(leakage[best], utility[best], where="post", color="0.7", zorder=0)
        _limit(ax.set_xlim, leakage, bars[:, 0], least=0.0)
        _limit(ax.set_ylim, utility, bars[:, 1])
        for i, place in enumerate(_places(points)):
            # Moved on the paper alone: the data keep their values.
            ax.errorbar(
                leakage[i],
                utility[i],
                xerr=bars[i, 0],
                yerr=bars[i, 1],
                label=names[i],
                color=f"C{i % 10}",
                fmt=MARKERS[i % len(MARKERS)],
                capsize=3,
                transform=ax.transData + _shift(ax, STEP * place),
            )
        ax.set(
            xlabel=f"{self.leakage_name} (0: no better than guessing, 1: exact)",
            ylabel=self.utility_name,
        )
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
        self.ax_ = ax
        self.figure_ = ax.figure
        return self

    def _points(self):
        """Names, leakage and utility, and their bars, of what was measured."""
        points = np.column_stack([self.leakage, self.utility]).astype(float)
        if not len(points):
            raise ValueError("nothing to draw: there is no setting, give at least one")
        names = self.names or [f"setting {i}" for i in range(len(points))]
        if len(names) != len(points):
            raise ValueError(
                f"there are {len(names)} names and {len(points)} points: each point "
                "has one name"
            )
        measured = np.isfinite(points).all(axis=1)
        if not measured.any():
            raise ValueError(
                f"nothing to draw: no setting has both {self.utility_name!r} and "
                f"{self.leakage_name!r}; a fit or an attack failed for each, and "
                'error_score="raise" shows why'
            )
        stds = [
            np.zeros(len(points)) if each is None else each
            for each in (self.leakage_std, self.utility_std)
        ]
        bars = np.nan_to_num(np.column_stack(stds).astype(float))
        kept = np.flatnonzero(measured)
        return [str(names[i]) for i in kept], points[kept], bars[kept]


def _own_score(estimator, X, y):
    return estimator.score(X, y)


def _names_of(settings):
    """Names of a search's candidates, by what differs between them."""
    # Lists of grids give candidates with different parameters.
    keys = {key: None for each in settings for key in each}
    varied = [k for k in keys if len({repr(s.get(k)) for s in settings}) > 1]
    varied = varied or [*keys]
    return [
        ", ".join(f"{key.rpartition('__')[2]}={s[key]}" for key in varied if key in s)
        or "as it is"
        for s in settings
    ]


def _frontier(points):
    """Positions of the points that no other one beats, from the least leakage on."""
    best = []
    # At equal leakage the more useful comes first.
    for i in np.lexsort((-points[:, 1], points[:, 0])):
        if not best or points[i, 1] > points[best[-1], 1]:
            best.append(int(i))
    return best


def _limit(set_limits, values, bars, least=None):
    low, high = (values - bars).min(), (values + bars).max()
    if least is not None:
        low = min(low, least)
    margin = 0.07 * ((high - low) or 1.0)
    set_limits(low - margin, high + margin)


def _places(points):
    """How many steps each point is moved: 0, 1, -1, 2, … among those at one place."""
    scale = np.ptp(points, axis=0)
    scaled = points / np.where(scale > 0, scale, 1.0)
    places = []
    for i, point in enumerate(scaled):
        near = (np.abs(scaled[:i] - point) < NEAR).all(axis=1)
        taken = {places[j] for j in np.flatnonzero(near)}
        place = 0
        while place in taken:
            place = -place if place > 0 else 1 - place
        places.append(place)
    return places
