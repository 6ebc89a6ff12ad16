"""What each role of a fit saw and can work out, in one report."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn.base import clone

from skvfl._methods import method_of, who_sees_what
from skvfl._sklearn import _num_samples, _safe_indexing
from skvfl.evaluation._gain import LEVEL
from skvfl.evaluation._import import optional
from skvfl.federation import Federation, record_communication
from skvfl.privacy import _report_text
from skvfl.privacy._claims import claims_of, guarantee, released_guarantee
from skvfl.privacy._measure import fitted_federated, play, truth_of, view_of
from skvfl.privacy._recording import record_views
from skvfl.privacy._suite import LESSER, about_role, receives_numbers, suite, tables
from skvfl.privacy._views import Views
from skvfl.privacy.attacks import LossThresholdAttack
from skvfl.privacy.attacks._secure import of_party

# Least score that is worth a word.
FOUND = 0.1
KINDS = {"f": "numbers", "u": "numbers in fixed point", "i": "whole numbers"}


class Received(NamedTuple):
    """Messages of one kind, or all that hold no numbers together.

    Attributes
    ----------
    when : {"fit", "predict"}
        In which run.
    sender, operation : str
        Who sent them, and in answer to what or asking what; empty for what holds no
        numbers.
    what : str
        What was in them, in words.
    messages, bytes : int
        How many, and how long altogether.
    """

    when: str
    sender: str
    operation: str
    what: str
    messages: int
    bytes: int


class Outcome(NamedTuple):
    """How well one attack did.

    Attributes
    ----------
    attack : str
        Name of its class.
    secret : str
        What it went for, in words.
    knows : str
        Side knowledge that it had, in words; empty for none.
    score, low, high : float
        Mean over draws of the side knowledge, and its 95 % interval. NaN where the
        attack could not be carried out.
    why_not : str
        Why it could not; empty where it could.
    """

    attack: str
    secret: str
    knows: str
    score: float
    low: float
    high: float
    why_not: str = ""


@dataclass
class Role:
    """What one role, or several together, saw and can work out.

    Attributes
    ----------
    name : str
        Its name; those of a coalition are joined by ``+``.
    part : str
        Which part it plays, in words.
    received : list of Received
        What it was sent.
    outcomes : list of Outcome
        What it can work out, the most successful attack first.
    claims : list of str
        What the method's paper says of such a role.
    guarantee : str
        What is guaranteed against it, and how far.
    """

    name: str
    part: str
    received: list[Received]
    outcomes: list[Outcome]
    claims: list[str]
    guarantee: str

    @property
    def best(self):
        """The most successful attack, or None."""
        tried = [each for each in self.outcomes if not each.why_not]
        return tried[0] if tried else None


@dataclass(repr=False)
class PrivacyReport:
    """What each role of a fit saw and can work out; made by :func:`privacy_report`.

    Parameters
    ----------
    estimator : str
        Name of the estimator's class.
    method : str
        Name of the method.
    sees : str
        Who sees what, in a sentence.
    n_rows : int
        Rows of the fit.
    columns : dict of str to int
        Number of prepared columns of each party whose table was here.
    roles : list of Role
        Everybody who took part, and coalitions that were looked at.
    seconds : float
        CPU time of the attacks.

    Attributes
    ----------
    worst : tuple of (Role, Outcome) or None
        The most successful attack of all, and whose it is.

    See Also
    --------
    privacy_report : Makes it.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy import privacy_report
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> vfl = RandomProjectionVFL(LogisticRegression(), random_state=0)
    >>> report = privacy_report(vfl, X[:200, :4], y[:200], n_repeats=2)
    >>> [role.name for role in report.roles if role.outcomes]
    ['server', 'anybody']
    >>> print(report.to_text()[:19])
    Privacy report: RAP
    """

    estimator: str
    method: str
    sees: str
    n_rows: int
    columns: dict[str, int]
    roles: list[Role] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def worst(self):
        """The most successful attack of all, and whose it is.

        Returns
        -------
        worst : tuple of (Role, Outcome) or None
            None where no attack could be carried out. That equal rows show is the worst
            only where nothing else is found.
        """
        found = [(each, each.best) for each in self.roles if each.best is not None]
        return min(found, key=lambda pair: _rank(pair[1]), default=None)

    def to_frame(self):
        """Every attack as a row.

        Returns
        -------
        frame : pandas.DataFrame
            Columns ``role``, ``part``, ``attack``, ``secret``, ``knows``, ``score``,
            ``low``, ``high`` and ``why_not``.
        """
        pandas = optional("pandas", "PrivacyReport.to_frame", "frames")
        columns = ["role", "part", *Outcome._fields]
        rows = [
            [role.name, role.part, *each]
            for role in self.roles
            for each in role.outcomes
        ]
        return pandas.DataFrame(rows, columns=columns)

    def to_text(self):
        """The report as text, one part for each role.

        Returns
        -------
        text : str
        """
        return _report_text.as_text(self)

    def to_html(self):
        """The report as tables in HTML, to be put into a page.

        Returns
        -------
        html : str
        """
        return _report_text.as_html(self)

    def to_page(self):
        """A page of its own for readers who are no data scientists.

        Returns
        -------
        html : str
            A whole document in plain sentences.
        """
        return _report_text.as_page(self)

    def _repr_html_(self):
        return self.to_html()

    def __str__(self):
        return self.to_text()

    def __repr__(self):
        worst = self.worst
        said = "no attack" if worst is None else f"worst {worst[1].score:.2f}"
        return f"<PrivacyReport of {self.estimator}: {said}>"


def privacy_report(
    estimator,
    X,
    y,
    *,
    views=None,
    membership=True,
    n_repeats=3,
    random_state=0,
    time_limit=None,
):
    """Say what each role of a fit sees, and measure what it can work out.

    Every attack of ``skvfl.privacy.attacks`` that suits the method is let loose on
    what each role really received.

    Parameters
    ----------
    estimator : estimator
        A federated one, fitted or not. What crossed in an earlier fit was not kept, so
        a clone is fitted, unless `views` has the fit.
    X, y : array-like
        Table, and labels or target. All parties' columns must be here: only a
        simulation can say how well they were guessed.
    views : Views, default=None
        Of ``record_views``, in which this estimator was fitted on these rows.
    membership : bool, default=True
        Whether it is measured, too, how well somebody who may ask the finished model
        tells who was in the fit. That takes three fits on halves of the rows.
    n_repeats : int, default=3
        How often side knowledge is drawn for each attack.
    random_state : int, default=0
        Of the side knowledge and the attacks.
    time_limit : float, default=None
        CPU seconds after which no further attack begins. The report lists those that
        are left out.

    Returns
    -------
    report : PrivacyReport

    Raises
    ------
    ValueError
        If the estimator is not federated, or its parties are elsewhere.

    See Also
    --------
    make_leakage_scorer : One attack in a search.
    skvfl.compare : The worst number of every method, with ``leakage=True``.

    Notes
    -----
    Scores are 0 for the best guess from the side knowledge alone and 1 for an exact
    reconstruction. The interval is over draws of the side knowledge on one fit. A low
    score says that these attacks fail, and not that all do.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy import privacy_report
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> vfl = RandomProjectionVFL(LogisticRegression(), random_state=0)
    >>> report = privacy_report(vfl, X[:300, :6], y[:300])
    >>> role, attack = report.worst
    >>> role.name, round(attack.score, 1)
    ('server', 1.0)
    """
    _check_options(estimator, n_repeats, random_state, time_limit)
    if views is None:
        with record_views() as views, record_communication() as asked:
            estimator = clone(estimator).fit(X, y)
            estimator.predict(X)
        logs = [fitted_federated(estimator).communication_, asked]
    else:
        logs = [fitted_federated(estimator).communication_]
        _check_views(views, fitted_federated(estimator), _num_samples(X))
    federated = fitted_federated(estimator)
    started = time.process_time()
    trials = suite(federated, views)
    outcomes = defaultdict(list)
    for trial in trials:
        late = time_limit is not None and time.process_time() - started > time_limit
        found = _carry_out(trial, federated, views, y, n_repeats, random_state, late)
        outcomes["+".join(trial.roles)].append(found)
    method = method_of(federated)
    names = [*views.roles, *(name for name in outcomes if name not in views.roles)]
    report = PrivacyReport(
        type(federated).__name__,
        "unknown" if method is None else method.name,
        who_sees_what(federated),
        next(iter(views.values())).fit.n_rows,
        {name: table.shape[1] for name, table in tables(federated, views).items()},
    )
    for name in names:
        report.roles.append(_role(name, federated, views, logs, outcomes[name]))
    if membership:
        report.roles.append(_released(estimator, federated, X, y, random_state))
    report.seconds = time.process_time() - started
    return report


def _check_options(estimator, n_repeats, random_state, time_limit):
    """Refuse what would fail only after a fit."""
    # In a pipeline or a search, too.
    inside = estimator.get_params() if hasattr(estimator, "get_params") else {}
    if any(isinstance(each, Federation) for each in inside.values()):
        raise ValueError(
            "the parties' tables are elsewhere, so that nobody here can say how well "
            "they were guessed: report on a simulation with columns like theirs"
        )
    if not isinstance(n_repeats, Integral) or n_repeats < 2:
        raise ValueError(
            f"n_repeats={n_repeats!r} is no number of draws: an interval takes 2 draws "
            "at least"
        )
    if not isinstance(random_state, Integral) or not 0 <= int(random_state) < 2**32:
        raise ValueError(
            f"random_state={random_state!r} is no seed: give a whole number from 0, "
            "which draws the same side knowledge again"
        )
    if time_limit is not None and not isinstance(time_limit, Real):
        raise ValueError(f"time_limit={time_limit!r} is no number of seconds, nor None")


def _check_views(views, federated, n_rows):
    """Refuse views of something else, whose attacks would be told as this one's."""
    if not isinstance(views, Views):
        raise ValueError("views are not those that record_views yields")
    runs = next(iter(views.values())).brought if views.roles else {}
    first = next(iter(runs.values()), None)
    if first is None or not first.fitting:
        raise ValueError(
            "views do not begin with a fit: call fit, and nothing before it, inside "
            "record_views"
        )
    took_part = {name for name in views.roles if name != "server"}
    # Clients of one organisation are named after it.
    others = [
        name
        for name in took_part
        if not any(of_party(name, each) for each in federated._names)
    ]
    absent = [
        name
        for name in federated._names
        if not any(of_party(each, name) for each in took_part)
    ]
    if others or absent or first.n_rows != n_rows:
        raise ValueError(
            f"views are of another fit: of {sorted(took_part)} with {first.n_rows} "
            f"rows, and not of {federated._names} with {n_rows}"
        )


def _carry_out(trial, estimator, views, y, n_repeats, random_state, late):
    """One attack, as often as its side knowledge is drawn."""
    attack = trial.attack
    kept = trial.name, trial.secret, trial.knows
    if late:
        return Outcome(*kept, np.nan, np.nan, np.nan, "there was no time left for it")
    try:
        view = view_of(views, trial.roles).fit
        truth = trial.truth
        if truth is None:
            truth = truth_of(attack, estimator, views, trial.party, y)
        rng = np.random.RandomState(random_state)
        seeds = [int(each) for each in rng.randint(2**31 - 1, size=n_repeats)]
        scores = [play(attack, view, truth, trial.party, seed) for seed in seeds]
    except Exception as exc:
        # An attack that asks for what this fit did not send says so. Whatever else
        # happens to one must not keep the others' scores from the reader.
        return Outcome(*kept, np.nan, np.nan, np.nan, _why(exc))
    if not np.isfinite(scores).all():
        return Outcome(*kept, np.nan, np.nan, np.nan, "its score is no number")
    return Outcome(*kept, *interval(scores))


def _why(exc):
    """An error in words; one that is not about values says what it is."""
    return str(exc) if isinstance(exc, ValueError) else f"{type(exc).__name__}: {exc}"


def interval(scores):
    """Mean of scores and its interval (Student's t).

    Parameters
    ----------
    scores : sequence of float
        Two or more.

    Returns
    -------
    mean, low, high : float
    """
    scores = np.asarray(scores, dtype=float)
    spread = scores.std(ddof=1) / np.sqrt(len(scores))
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(scores) - 1) * spread)
    mean = float(scores.mean())
    # No score is above 1, so no interval need be.
    return mean, mean - half, min(mean + half, 1.0)


def _role(name, estimator, views, logs, outcomes):
    members = [name] if name in views.roles else name.split("+")
    part, about = about_role(estimator, views, members)
    received = [each for member in members for each in _received(member, views, logs)]
    method = method_of(estimator)
    method = None if method is None else method.name
    outcomes = sorted(outcomes, key=_rank)
    return Role(
        name,
        part,
        received,
        outcomes,
        claims_of(method, about),
        guarantee(method, estimator, about, receives_numbers(views, members)),
    )


def _rank(outcome):
    """The worst is first."""
    # That rows are equal is the worst where nothing else is found. A score that could
    # not be had is last.
    nothing = not outcome.score >= FOUND
    lesser = outcome.secret.startswith(LESSER)
    return bool(outcome.why_not), nothing, lesser, -outcome.score


def _released(estimator, federated, X, y, random_state):
    """What whoever may ask the finished model finds out about who was in the fit."""
    kept = LossThresholdAttack.__name__, "who was in the fit", "everybody's columns"
    scores = []
    try:
        for seed in range(random_state, random_state + 3):
            order = np.random.RandomState(seed % 2**32).permutation(len(y))
            half = np.sort(order[: len(y) // 2])
            some = _safe_indexing(X, half), _safe_indexing(y, half)
            model = clone(estimator).fit(*some)
            attack = LossThresholdAttack().asking(model, X, y)
            scores.append(attack.fit().score(np.isin(np.arange(len(y)), half)))
    except Exception as exc:
        outcome = Outcome(*kept, np.nan, np.nan, np.nan, _why(exc))
    else:
        outcome = Outcome(*kept, *interval(scores))
    method = method_of(federated)
    return Role(
        "anybody",
        "who may ask the finished model",
        [],
        [outcome],
        claims_of(None if method is None else method.name, "released"),
        released_guarantee(federated),
    )


def _received(name, views, logs):
    """Messages to a role, by run, sender and operation."""
    # Once, because a view goes through all messages of all roles.
    view = views[name]
    fits, counted = {*view.fits}, defaultdict(lambda: [0, 0])
    runs = {number: view.run(number) for number in view.runs}
    for when, log in zip(("fit", "predict"), logs, strict=False):
        for message in log.messages:
            if message.receiver == name != message.sender:
                total = counted[when, message.sender, message.operation]
                total[0] += 1
                total[1] += message.bytes
    words = {}
    for seen in view.messages:
        when = "fit" if seen.run in fits else "predict"
        key = when, seen.sender, seen.operation
        words.setdefault(key, {}).update(dict.fromkeys(_contents(seen, runs[seen.run])))
    received, empty = [], {}
    for key, total in counted.items():
        if words.get(key):
            received.append(Received(*key, ", ".join(words[key]), *total))
        else:
            before = empty.get(key[0], (0, 0))
            empty[key[0]] = [a + b for a, b in zip(before, total, strict=True)]
    quiet = "requests and acknowledgements without numbers"
    return received + [Received(when, "", "", quiet, *n) for when, n in empty.items()]


def _contents(seen, view):
    """What is in a message of one run, in words."""
    n_rows = view.n_rows if seen.rows is None else len(seen.rows)
    for place, array in seen.arrays():
        kind = KINDS.get(array.dtype.kind, "yes or no")
        is_byte = array.dtype.kind == "u" and array.itemsize == 1
        if is_byte and array.ndim > 1 and array.shape[-1] == -(-n_rows // 8) > 1:
            yield "yes or no for each row, in bits"
        elif "rows" in place and array.dtype.kind in "iu":
            yield "positions of rows"
        elif len(array) == n_rows or array.shape[-1] == n_rows:
            width = array.size // n_rows
            yield (
                f"{width} {kind} for each row"
                if width > 1
                else f"{kind}, one for each row"
            )
        else:
            yield f"{'bytes' if is_byte else kind} not by row"
