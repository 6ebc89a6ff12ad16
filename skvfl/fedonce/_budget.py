"""FedOnce within a budget: the noisy steps of all parties, and what they spent."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import NamedTuple

from skvfl._warnings import warn
from skvfl.exceptions import PartyError, PrivacyBudgetError, PrivacyLeakWarning
from skvfl.federation._replies import NUMBER, Count, Fields, Maybe
from skvfl.fedonce._noise_as_targets import NoiseAsTargetsEncoder
from skvfl.fedonce._random_features import RandomFeaturesEncoder
from skvfl.partition._splitters import Contiguous, ImageTiles, RoundRobin
from skvfl.privacy import SampledGaussian, account_privacy, calibrate_noise

# They look at the number of columns alone.
_BLIND_SPLITTERS = (RoundRobin, Contiguous, ImageTiles)
_MOST_STEPS = 2**53
# What a guest says of its own noisy steps.
SPENT = Maybe(
    Fields(
        {
            "sampling_rate": NUMBER,
            "steps": Count(0, _MOST_STEPS),
            "noise_multiplier": NUMBER,
        }
    )
)


class Plan(NamedTuple):
    """Who is told to take how many noisy steps.

    Parameters
    ----------
    guests : dict of str to SampledGaussian
        Guests that learn by noisy steps of their own.
    host : SampledGaussian
        The host's own.
    split : SampledGaussian or None
        Everybody's in split learning, if there is any.
    per_epoch : int
        How many of the host's steps are an epoch.
    """

    guests: dict[str, SampledGaussian]
    host: SampledGaussian
    split: SampledGaussian | None
    per_epoch: int


def make_plan(once, encoders, n_rows):
    """Steps of every party's private training, with noise within the budget.

    Parameters
    ----------
    once : estimator
        With its parameters.
    encoders : dict of str to transformer
        What every guest is told to encode with.
    n_rows : int
        Number of rows.

    Returns
    -------
    plan : Plan or None
        None without a budget.
    """
    if once.epsilon is None:
        return None
    _question_delta(once.delta, n_rows)
    if once.warm_start:
        raise ValueError(
            "warm_start cannot be used with a budget: a second fit on the same rows "
            "spends again, and its account would not have the first one"
        )
    # Noise by the longest gradient would let one row move the noise of all others.
    forbidden = ["early_stopping", "weight_decay", "gradient_noise", "callbacks"]
    require_plain_steps("the host", once, forbidden)

    learning = [
        name
        for name, encoder in encoders.items()
        if isinstance(encoder, NoiseAsTargetsEncoder) and encoder.max_epochs
    ]
    runs = [
        _run((name,), encoders[name], encoders[name].max_epochs, n_rows)
        for name in learning
    ]
    runs.append(_run((once._active,), once, once.max_epochs, n_rows))
    # One run of all parties: they draw the same rows, whose gradients are released by
    # each of them, which costs more than runs of their own would.
    if once.n_split_epochs:
        everybody = (once._active, *encoders)
        runs.append(_run(everybody, once, once.n_split_epochs, n_rows))
    noisy = calibrate_noise(
        runs,
        once.epsilon,
        once.delta,
        accountant=once.accountant,
        division=once.division,
    )
    return Plan(
        dict(zip(learning, noisy, strict=False)),
        noisy[len(learning)],
        noisy[-1] if once.n_split_epochs else None,
        ceil(n_rows / once.batch_size),
    )


def _question_delta(delta, n_rows):
    if delta >= 1 / n_rows:
        warn(
            f"delta={delta:g} allows a model that gives away one of the {n_rows} rows: "
            f"take a delta well below {1 / n_rows:.1g}",
            PrivacyLeakWarning,
        )


def _run(parties, settings, n_epochs, n_rows):
    """Steps of so many epochs on rows that are drawn anew for each."""
    per_epoch = ceil(n_rows / settings.batch_size)
    # A batch may be larger than the table.
    rate = min(1.0, settings.batch_size / n_rows)
    return SampledGaussian(rate, n_epochs * per_epoch, parties)


def require_plain_steps(who, settings, forbidden):
    """Refuse settings that private training has no use for."""
    if getattr(settings, "device", "cpu") != "cpu":
        raise ValueError(
            f"device of {who} cannot be used with a budget: private training runs on "
            "the CPU; leave it at its default"
        )
    for name in ["optimizer", *forbidden]:
        if getattr(settings, name):
            raise ValueError(
                f"{name} of {who} cannot be used with a budget: private training takes "
                "plain gradient steps and looks at no loss; leave it at its default"
            )


def account(once, encoders, said_once, said_split):
    """What was spent, and what the guarantee does not cover.

    Guests account for their own steps, because nobody else knows what they did. For the
    host's steps, and for a guest that did not answer, the plan stands: a callback that
    ends training before its last step may have looked at the model when it did so.

    Parameters
    ----------
    once : estimator
        That was fitted with a budget.
    encoders : dict of str to transformer
        What every guest was told to encode with.
    said_once, said_split : dict of str to (dict or None)
        What guests said of the one round, and of split learning.

    Returns
    -------
    spent : PrivacySpent

    Raises
    ------
    PartyError
        If a guest says that it took no noisy step where it was told to.
    PrivacyBudgetError
        If guests took other steps than they were told to, and spent more.
    """
    plan = once._plan
    # What a guest says stands in the place of what it was told.
    own = plan.guests | {
        name: _run_of_guest(name, said, plan.guests.get(name))
        for name, said in said_once.items()
    }
    runs = [own[name] for name in encoders if own.get(name) is not None]
    # A network that learnt from another's noisy network depends on its rows, too.
    learnt = [once._active] * bool(runs)
    runs.append(plan.host)
    if plan.split is not None:
        learnt = [once._active, *encoders]
        runs.append(_run_of_all(plan.split, said_split))
    spent = account_privacy(
        runs,
        once.delta,
        accountant=once.accountant,
        division=once.division,
        not_covered=_uncovered(once, encoders),
    )
    _check_budget(once, runs, spent.epsilon)
    learnt = dict.fromkeys(learnt, spent.epsilon)
    return replace(spent, parties=spent.parties | learnt)


def _check_budget(once, runs, epsilon):
    """Refuse what guests spent beyond the budget."""
    planned = {*once._plan.guests.values(), once._plan.host, once._plan.split}
    # Runs as planned are within the budget but for rounding; only others are a breach.
    if epsilon > once.epsilon and set(runs) - planned:
        raise PrivacyBudgetError(
            f"by what guests say of their own steps, epsilon is {epsilon:g} and not "
            f"{once.epsilon:g}: they took other steps than they were told to"
        )


def _run_of_guest(name, said, planned):
    """The noisy steps that a guest says it took; None for none."""
    if said is None:
        if planned is not None:
            raise PartyError(name, "it took no noisy step where it was told to")
        return None
    # In this name alone: a guest cannot account for others.
    try:
        return SampledGaussian(**said, parties=(name,))
    except ValueError:
        raise PartyError(
            name, "what it says of its noisy steps is no sampled Gaussian"
        ) from None


def _run_of_all(planned, said):
    """The steps of split learning: what one party did worse, it did for all.

    They draw the same rows, so that everybody's release tells of everybody's rows.
    """
    runs = [_run_of_guest(name, each, planned) for name, each in said.items()]
    return replace(
        planned,
        sampling_rate=max(run.sampling_rate for run in [planned, *runs]),
        steps=max(run.steps for run in [planned, *runs]),
        noise_multiplier=min(run.noise_multiplier for run in [planned, *runs]),
    )


def _uncovered(once, encoders):
    """Sentences about what the guarantee does not cover."""
    yield (
        "How every party scales, imputes and encodes its own columns, and the "
        "representation of every row that is sent to the host."
    )
    yield from once._uncovered_labels()
    splitter = getattr(once.partition_, "splitter_", None)
    if splitter is not None and type(splitter) not in _BLIND_SPLITTERS:
        yield (
            f"Who holds which columns: the {type(splitter).__name__} may have looked "
            "at rows."
        )
    yield from uncovered_guests(encoders)
    yield from _readable_columns(once, encoders)
    if once._plan.split is not None:
        yield (
            "The sizes of messages in communication_ and bytes_curve_, which tell how "
            "many rows were drawn in each step."
        )
    if once.random_state is not None and once._deals_secrets:
        yield (
            "Whatever else is trained with the same random_state: its noise is the "
            "same, and the difference of two models has none."
        )


def _readable_columns(once, encoders):
    """Sentences about guests whose columns the host can compute from what is sent.

    Random directions are no secret, and as many of them as there are columns, or more,
    can be inverted; the host can also fit the inverse on as many rows that it knows.
    """
    for name in once.answered_:
        n_columns, encoder = once._n_columns[name], encoders[name]
        if (
            isinstance(encoder, RandomFeaturesEncoder)
            and n_columns <= encoder.n_components
        ):
            yield (
                f"The columns of {name!r}: there are {n_columns} of them, and the "
                f"representation of a row has {encoder.n_components} numbers, so "
                "that the host can compute every prepared cell from it, unless "
                "preparation makes more columns than numbers."
            )


def uncovered_guests(encoders):
    """Sentences about guests whose guarantee does not hold, or that have none.

    Parameters
    ----------
    encoders : dict of str to transformer
        What every guest encodes with.

    Yields
    ------
    sentence : str
    """
    known = (RandomFeaturesEncoder, NoiseAsTargetsEncoder)
    for name, encoder in encoders.items():
        kind = type(encoder).__name__
        if not isinstance(encoder, known):
            sentence = f"The {kind} of guest {name!r}, which is fitted without noise."
            warn(sentence, PrivacyLeakWarning)
            yield sentence
            continue
        # A class of the user's own may look at rows where that which it is derived from
        # does not, and nothing here can tell.
        if type(encoder) not in known:
            yield (
                f"Whatever the {kind} of guest {name!r} does differently from the "
                f"{type(encoder).__mro__[1].__name__} that it is derived from."
            )
        if (
            isinstance(encoder, NoiseAsTargetsEncoder)
            and encoder.max_epochs
            and encoder.targets == "noise"
            and encoder.update_every is not None
        ):
            yield (
                f"The assignment of targets at guest {name!r}: it makes the gradients "
                "of the rows of a batch depend on each other and on earlier batches, "
                "which clipping does not bound."
            )
