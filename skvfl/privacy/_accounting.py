"""What differential privacy costs: runs of noisy steps, their ε, and their noise."""

from __future__ import annotations

import logging
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from scipy.optimize import brentq

from skvfl.exceptions import PrivacyBudgetError

ADJACENCY = "add or remove one row of the table"
MECHANISM = "Gaussian noise on clipped sums over Poisson-sampled rows (DP-SGD)"
ACCOUNTANTS = {
    "rdp": "Rényi differential privacy, summed over steps and parties",
    "pld": "privacy loss distributions, convolved over steps and parties",
}
DIVISIONS = ("moments", "naive")

# Of the logarithm of the noise: a ten-thousandth more noise than is needed.
_TOLERANCE = 1e-4
# Noise a million times the largest gradient: beyond it nothing is learnt.
_LOG_LARGEST = 14.0


@dataclass(frozen=True)
class SampledGaussian:
    """Steps that add Gaussian noise to clipped sums over randomly sampled rows.

    Every step draws rows anew, each with the same probability and independently of
    the others (Poisson sampling). Every party named here sums its own clipped
    gradients of *these* rows and adds its own noise. To whoever sees all of them,
    ``k`` parties on the same rows are like one with ``1 / sqrt(k)`` of the noise.
    Parties that draw rows for themselves are several runs instead, which costs less.

    Parameters
    ----------
    sampling_rate : float
        Probability of every row to be in a step, ``0 < sampling_rate <= 1``.
    steps : int
        Number of steps.
    parties : tuple of str
        Who adds noise to a sum over the sampled rows in every step.
    noise_multiplier : float, default=1.0
        Standard deviation of the noise as a multiple of how far one row can move the
        sum: the largest norm of its gradient, and what rounding adds. What is counted
        is a real sum with real noise; a function of it, such as rounding, costs
        nothing.

    See Also
    --------
    account_privacy : What runs spend.
    calibrate_noise : The noise of runs that may spend so much.

    Examples
    --------
    >>> from skvfl.privacy import SampledGaussian
    >>> SampledGaussian(sampling_rate=0.01, steps=500, parties=("bank",))
    SampledGaussian(sampling_rate=0.01, steps=500, parties=('bank',),
                    noise_multiplier=1.0)
    """

    sampling_rate: float
    steps: int
    parties: tuple[str, ...]
    noise_multiplier: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(
                f"sampling_rate must be in (0, 1], got {self.sampling_rate!r}"
            )
        if operator.index(self.steps) < 0:
            raise ValueError(f"steps must not be negative, got {self.steps}")
        if isinstance(self.parties, str) or not self.parties:
            raise ValueError(
                f"parties must be a tuple of names, not empty, got {self.parties!r}"
            )
        if len(set(self.parties)) < len(self.parties):
            raise ValueError(f"a party is named twice: {self.parties!r}")
        if not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(
                "noise_multiplier must be finite and not negative, got "
                f"{self.noise_multiplier!r}"
            )


@dataclass(frozen=True, repr=False)
class PrivacySpent:
    """The differential privacy of a fitted model, and what it does not cover.

    Made by :func:`account_privacy`; estimators have it as ``epsilon_spent_``.

    Parameters
    ----------
    epsilon : float
        Of all released models together.
    delta : float
        The δ it is stated at.
    parties : dict of str to float
        The ε of each party's own noisy steps: of its model, if no other is released
        and it learnt from no other's noisy model. It is stated at the same δ; with
        ``division="naive"`` at that party's share of δ. FedOnce states the ε of all
        for a party that learnt from others' noisy models.
    accountant : {"rdp", "pld"}
        How the losses of the steps are added up.
    division : {"moments", "naive"}
        How the losses of the parties are added up.
    runs : tuple of SampledGaussian
        What was accounted for.
    not_covered : tuple of str, default=()
        Sentences about what depends on the table and has no part in ``epsilon``.
    mechanism : str
        What makes it private.
    adjacency : str
        Which tables are hard to tell apart.

    See Also
    --------
    account_privacy : Makes it.

    Examples
    --------
    >>> from skvfl.privacy import SampledGaussian, account_privacy
    >>> run = SampledGaussian(0.01, 500, ("bank",), noise_multiplier=1.2)
    >>> account_privacy([run], 1e-5, not_covered=["The scaler of 'bank'."])
    epsilon = 1.095 at delta = 1e-05
      'bank' alone: 1.095
      mechanism: Gaussian noise on clipped sums over Poisson-sampled rows (DP-SGD)
      adjacency: add or remove one row of the table
      accountant: Rényi differential privacy, summed over steps and parties
      not covered: The scaler of 'bank'.
    """

    epsilon: float
    delta: float
    parties: dict[str, float]
    accountant: str
    division: str
    runs: tuple[SampledGaussian, ...]
    not_covered: tuple[str, ...] = ()
    mechanism: str = MECHANISM
    adjacency: str = ADJACENCY

    def __float__(self) -> float:
        return self.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, strings, lists and dicts.

        Returns
        -------
        spent : dict
        """
        plain = asdict(self)
        plain["runs"] = [{**run, "parties": [*run["parties"]]} for run in plain["runs"]]
        plain["not_covered"] = [*self.not_covered]
        return plain

    def to_frame(self) -> Any:
        """One row per party: its ε and δ, steps, and noise multipliers.

        Returns
        -------
        spent : pandas.DataFrame
        """
        import pandas as pd

        # With equal shares, each party's ε holds at its own part of δ only.
        shares = len(self.parties) if self.division == "naive" else 1
        own = {name: _runs_of(name, self.runs) for name in self.parties}
        return pd.DataFrame(
            {
                "epsilon": self.parties,
                "delta": dict.fromkeys(own, self.delta / shares),
                "steps": {
                    name: sum(r.steps for r in runs) for name, runs in own.items()
                },
                "noise_multiplier": {
                    # The least noise of a party bounds what any of its steps shows.
                    name: min(r.noise_multiplier for r in runs)
                    for name, runs in own.items()
                },
            }
        ).rename_axis("party")

    def __repr__(self) -> str:
        lines = [f"epsilon = {self.epsilon:.4g} at delta = {self.delta:g}"]
        lines += [
            f"{name!r} alone: {spent:.4g}" for name, spent in self.parties.items()
        ]
        lines += [
            f"mechanism: {self.mechanism}",
            f"adjacency: {self.adjacency}",
            f"accountant: {ACCOUNTANTS[self.accountant]}",
        ]
        if self.division == "naive":
            lines.append(
                "division: every party has an equal share of epsilon and delta"
            )
        lines += [f"not covered: {sentence}" for sentence in self.not_covered]
        return "\n  ".join(lines)


def account_privacy(
    runs: Iterable[SampledGaussian],
    delta: float,
    *,
    accountant: str = "rdp",
    division: str = "moments",
    not_covered: Iterable[str] = (),
) -> PrivacySpent:
    """What runs of noisy steps spend, per party and overall.

    Parameters
    ----------
    runs : iterable of SampledGaussian
        Every run draws its own rows.
    delta : float
        Probability that may be left out of the guarantee; well below one in the
        number of rows.
    accountant : {"rdp", "pld"}, default="rdp"
        Rényi differential privacy, or the tighter and slower privacy loss
        distributions.
    division : {"moments", "naive"}, default="moments"
        Add up the losses of all parties before they become an ε, or give each party
        an equal share of δ and add up their ε. The second is the paper's
        Priv-Baseline, here to compare with.
    not_covered : iterable of str, default=()
        Sentences about what else depends on the table.

    Returns
    -------
    spent : PrivacySpent

    Raises
    ------
    ImportError
        If dp-accounting is not installed.
    ValueError
        If parties share rows and the division is naive: what one party releases then
        tells which rows the others had, and their ε do not add up.

    See Also
    --------
    calibrate_noise : The other way round.

    Examples
    --------
    >>> from skvfl.privacy import SampledGaussian, account_privacy
    >>> bank = SampledGaussian(0.01, 500, ("bank",))
    >>> shop = SampledGaussian(0.01, 500, ("shop",))
    >>> round(account_privacy([bank, shop], 1e-5).epsilon, 2)
    2.1
    >>> round(account_privacy([bank, shop], 1e-5, division="naive").epsilon, 2)
    3.5

    The same number of steps on the same rows costs more:

    >>> both = SampledGaussian(0.01, 500, ("bank", "shop"))
    >>> round(account_privacy([both], 1e-5).epsilon, 2)
    4.25
    """
    # In the order of the runs, so that the parties stand in a report as in the table.
    runs = _check(runs, delta, accountant, division)
    names = list(dict.fromkeys(name for run in runs for name in run.parties))
    # Failures of several guarantees add up, so each may have its part of δ.
    shares = len(names) if division == "naive" else 1
    parties = {
        name: _epsilon(_runs_of(name, runs), delta / shares, accountant)
        for name in names
    }
    return PrivacySpent(
        epsilon=(
            sum(parties.values())
            if division == "naive"
            else _epsilon(runs, delta, accountant)
        ),
        delta=delta,
        parties=parties,
        accountant=accountant,
        division=division,
        runs=tuple(runs),
        not_covered=tuple(not_covered),
    )


def calibrate_noise(
    runs: Iterable[SampledGaussian],
    epsilon: float,
    delta: float,
    *,
    accountant: str = "rdp",
    division: str = "moments",
) -> list[SampledGaussian]:
    """The same runs with the least noise that stays within a budget.

    Parameters
    ----------
    runs : iterable of SampledGaussian
        Their noise multipliers are taken as ratios between the runs: all are scaled
        by one factor (with ``division="naive"``, by one factor per party).
    epsilon : float
        The most that may be spent; at least half of it is.
    delta, accountant, division
        As for :func:`account_privacy`.

    Returns
    -------
    runs : list of SampledGaussian

    Raises
    ------
    PrivacyBudgetError
        If no amount of noise can be shown to spend between half of the budget and all
        of it.

    See Also
    --------
    account_privacy : The other way round.

    Examples
    --------
    >>> from skvfl.privacy import SampledGaussian, account_privacy, calibrate_noise
    >>> runs = [SampledGaussian(0.02, 500, (name,)) for name in ("bank", "shop")]
    >>> runs = calibrate_noise(runs, epsilon=2, delta=1e-5)
    >>> [round(run.noise_multiplier, 2) for run in runs]
    [1.58, 1.58]
    >>> round(account_privacy(runs, delta=1e-5).epsilon, 2)
    2.0
    """
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive and finite, got {epsilon!r}")
    runs = _check(runs, delta, accountant, division)
    if division == "moments":
        return _calibrate(runs, epsilon, delta, accountant)
    names = {name for run in runs for name in run.parties}
    share = len(names)
    # Every party by itself: one factor for all would give the party with the fewest
    # steps less ε than its share.
    scaled = {
        name: iter(
            _calibrate(_runs_of(name, runs), epsilon / share, delta / share, accountant)
        )
        for name in names
    }
    return [next(scaled[run.parties[0]]) for run in runs]


def _check(
    runs: Iterable[SampledGaussian], delta: float, accountant: str, division: str
) -> list[SampledGaussian]:
    runs = list(runs)
    if not runs:
        raise ValueError("there is no run to account for")
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta!r}")
    if accountant not in ACCOUNTANTS:
        raise ValueError(
            f"accountant must be one of {[*ACCOUNTANTS]}, got {accountant!r}"
        )
    if division not in DIVISIONS:
        raise ValueError(f"division must be one of {[*DIVISIONS]}, got {division!r}")
    for run in runs:
        # A row's presence in one party's sum tells that it is in the others' too.
        if division == "naive" and len(run.parties) > 1:
            raise ValueError(
                f"parties {[*run.parties]} add noise on the same rows, so that their "
                "epsilons do not add up: use division='moments'"
            )
    return runs


def _runs_of(party: str, runs: Iterable[SampledGaussian]) -> list[SampledGaussian]:
    return [replace(run, parties=(party,)) for run in runs if party in run.parties]


def _calibrate(
    runs: Sequence[SampledGaussian], epsilon: float, delta: float, accountant: str
) -> list[SampledGaussian]:
    if not any(run.steps and run.noise_multiplier for run in runs):
        raise PrivacyBudgetError("the runs have no noisy step to spend a budget on")

    def scaled(factor: float) -> list[SampledGaussian]:
        return [
            replace(run, noise_multiplier=run.noise_multiplier * factor) for run in runs
        ]

    def spent(factor: float, accountant: str) -> float:
        return _epsilon(scaled(factor), delta, accountant)

    # The quick accountant first. The slow one finds less privacy lost for the same
    # noise, and so looks a little below what the quick one found.
    factor = _least(lambda f: spent(f, "rdp"), epsilon, 1.0, step=2.0, reach=14)
    if accountant == "pld":
        factor = _least(lambda f: spent(f, "pld"), epsilon, factor, step=1.1, reach=0.7)
    return scaled(factor)


def _least(
    spent: Callable[[float], float],
    epsilon: float,
    start: float,
    step: float,
    reach: float,
) -> float:
    """Smallest factor, up to ``_TOLERANCE``, that spends no more than ``epsilon``.

    Below ``start`` it is looked for down to ``start * exp(-reach)``.
    """

    def excess(log_factor: float) -> float:
        # The root is looked for between finite numbers; without noise nothing is
        # finite, and much noise costs nothing.
        ratio = spent(math.exp(log_factor)) / epsilon
        return min(max(math.log(ratio) if ratio else -9.0, -9.0), 9.0)

    # ε falls as noise grows: first noise that is enough, then noise that is not, and
    # the root lies between. It is always the upper end that is returned.
    step = math.log(step)
    high = math.log(start)
    while excess(high) > 0 and high < _LOG_LARGEST:
        high += step
    lowest = high - reach
    low = high - step
    while excess(low) <= 0 and low > lowest:
        high, low, step = low, low - step, 2 * step
    found = high
    if excess(high) <= 0 < excess(low):
        found = brentq(excess, low, high, xtol=_TOLERANCE, rtol=1e-9)
        # The root may lie on the wrong side of the budget by a rounding.
        while excess(found) > 0:
            found += _TOLERANCE
    # Outside the range that an accountant can show, ε jumps, and the noise at the edge
    # would be far more than the budget needs.
    if not math.log(0.5) <= excess(found) <= 0:
        raise PrivacyBudgetError(
            "no amount of noise is shown to spend between half and all of epsilon="
            f"{epsilon:g}: choose another epsilon or delta"
        )
    return math.exp(found)


def _epsilon(runs: Sequence[SampledGaussian], delta: float, accountant: str) -> float:
    steps = Counter[tuple[float, float]]()
    for run in runs:
        # Parties on the same rows count as one step with less noise, and not as steps
        # of their own, because one row is in all of their sums at once.
        noise = run.noise_multiplier / math.sqrt(len(run.parties))
        steps[float(run.sampling_rate), noise] += run.steps
    return _composed(tuple(sorted((+steps).items())), delta, accountant)


# Parties are often alike, and what a fit calibrated it reports in the end.
@lru_cache(maxsize=256)
def _composed(
    steps: tuple[tuple[tuple[float, float], int], ...], delta: float, accountant: str
) -> float:
    events = _import("dp_accounting.dp_event")
    if accountant == "rdp":
        ledger = _import("dp_accounting.rdp").RdpAccountant()
    else:
        ledger = _import("dp_accounting.pld").PLDAccountant()
    # After the imports, so that a missing library is told of with noise and without.
    if any(noise == 0 for (_, noise), _ in steps):
        return math.inf
    with _quiet():
        for (rate, noise), count in steps:
            # The adjacency that this event assumes is the one stated: add or remove a
            # row.
            step = events.PoissonSampledDpEvent(rate, events.GaussianDpEvent(noise))
            ledger.compose(step, count)
        return float(ledger.get_epsilon(delta))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from telling of orders left out, which only make ε larger."""
    logger = logging.getLogger("absl")
    logger.addFilter(_drop)
    try:
        yield
    finally:
        logger.removeFilter(_drop)


def _drop(record: logging.LogRecord) -> bool:
    return False


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            "differential privacy needs dp-accounting: pip install 'skvfl[dp]'"
        ) from error
