"""Which attacks suit which method, and who can carry them out.

The one place that says so: reports, scorers in examples, benchmarks and tests take it
from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_regressor

from skvfl._methods import method_of
from skvfl.privacy import attacks
from skvfl.privacy._measure import clients_of, labels_of, prepared
from skvfl.privacy.attacks import Attack
from skvfl.rap._projection import GaussianProjection

# Parties that are attacked, and parties that attack: those with the most columns.
MOST_PARTIES = 3
# Of a column with so many values it can be asked who has which.
MOST_VALUES = 20


class Rule(NamedTuple):
    """An attack that suits a role of a method.

    Attributes
    ----------
    attack : str
        Name of the class; empty where labels are sent as they are.
    secret : str
        What it goes for: ``"columns"`` of another party, an ``"attribute"`` (the column
        of few values that is hardest to guess), its ``"equal rows"``, whether its
        ``"masked numbers"`` hold anything, the ``"labels"`` or ``"pairs of aliases"``
        that stand for them, or a numerical ``"target"``.
    knows : str
        Side knowledge in words; ``{n}`` is the number of rows.
    rows : int or float, default=None
        Number of known rows; a float is that by the number of columns attacked.
    params : dict
        Of the attack.
    applies : callable, default=None
        ``applies(estimator)`` says whether it suits these settings.
    most_columns : int, default=None
        Above so many columns the attack takes too long.
    """

    attack: str
    secret: str
    knows: str = ""
    rows: float | None = None
    params: dict[str, Any] = {}
    applies: Callable[[Any], bool] | None = None
    most_columns: int | None = None


class Trial(NamedTuple):
    """An attack, and who tries it on whom.

    Attributes
    ----------
    attack : Attack
        Its side knowledge may be a number, and is then drawn from the truth.
    roles : tuple of str
        Who attacks; several work together.
    party : str or None
        Whose columns; None for other secrets.
    secret : str
        What is attacked, in words.
    knows : str
        What the attacker knows besides, in words; empty for nothing.
    truth : ndarray or None
        The secret, where it is not the party's columns or the labels.
    """

    attack: Any
    roles: tuple[str, ...]
    party: str | None
    secret: str
    knows: str
    truth: Any = None

    @property
    def name(self):
        """What the attack is called."""
        if isinstance(self.attack, LabelsSent):
            return AS_SENT
        return type(self.attack).__name__


class LabelsSent(Attack):
    """No attack: some methods send labels to whoever trains."""

    target: ClassVar = "labels"

    def fit(self, view):
        """Look for labels.

        Parameters
        ----------
        view : View
            Of whoever trains.

        Returns
        -------
        self : LabelsSent
        """
        self.labels_ = view.matrix(place="labels").values[:, 0]
        return self

    def reconstruct(self):
        """The labels.

        Returns
        -------
        labels : ndarray of shape (n_rows,)
        """
        return self.labels_


EQUAL_ROWS = "equal rows"
# One row fewer than there are columns.
FEWER = 0.0
PAIRS = "pairs of aliases"
CONTENT = "masked numbers"
# Secrets that say nothing by themselves of what is in columns or labels.
LESSER = (EQUAL_ROWS, PAIRS, CONTENT)
SAMPLE = "a sample of half of its rows, but not which they are"
SPREAD = "how each of its columns is distributed"
AS_SENT = "no attack: it is sent them"
KNOWN = "{n} of its rows"
REPRESENTATIONS = (
    Rule("InversionAttack", "columns", KNOWN, 100),
    Rule("AttributeInferenceAttack", "attribute", KNOWN, 100),
    Rule("EqualRowsAttack", EQUAL_ROWS),
)
LABELLED = "the labels of {n} rows"
GRADIENTS = (
    Rule("GradientDirectionAttack", "labels", LABELLED, 10, applies=is_classifier),
    Rule("GradientNormAttack", "labels", LABELLED, 50, applies=is_classifier),
    Rule("ModelCompletionAttack", "labels", LABELLED, 40, applies=is_classifier),
    Rule(
        "InversionAttack", "target", "the target of {n} rows", 100, applies=is_regressor
    ),
)
SENT = Rule("", "labels", applies=is_classifier)


def _labels_open(estimator):
    return is_classifier(estimator) and not estimator.label_protection


def _in_bins(estimator):
    known = estimator.projection is None
    return not (known or isinstance(estimator.projection, GaussianProjection))


def _has_clusters(estimator):
    return bool(estimator.clients)


def _pretrains(estimator):
    return estimator.pretrain


def _labels_hidden(estimator):
    return is_classifier(estimator) and estimator.label_protection


# By method and by whose knowledge it is; see Claim.about.
SUITES = {
    "RAP": {
        "centre": (
            Rule(
                "KnownRowsAttack", "columns", f"{KNOWN}, one fewer than columns", FEWER
            ),
            Rule(
                "KnownRowsAttack", "columns", f"{KNOWN}, twice as many as columns", 2.0
            ),
            Rule("KnownRowsAttack", "columns", f"{KNOWN}, ten times as many", 10.0),
            Rule(
                "KnownRowsAttack",
                "columns",
                f"{KNOWN}, one fewer than columns, but not which they are",
                FEWER,
                {"matched": False},
            ),
            Rule(
                "KnownRowsAttack",
                "columns",
                f"{KNOWN}, twice as many as columns, but not which they are",
                2.0,
                {"matched": False},
            ),
            Rule(
                "MomentsAttack",
                "columns",
                "means, correlations and skewness of its columns",
                params={"moments": True},
                most_columns=30,
            ),
            Rule(
                "IndependentComponentsAttack",
                "columns",
                SAMPLE,
                params={"shadow": True},
                most_columns=30,
            ),
            Rule("FrequencyAttack", "columns", SAMPLE, params={"shadow": True}),
            Rule(
                "RankAttack",
                "columns",
                SPREAD,
                params={"marginals": True},
                applies=_in_bins,
            ),
            Rule("EqualRowsAttack", EQUAL_ROWS),
            Rule("AliasAttack", PAIRS, applies=_labels_hidden),
            Rule("AliasAttack", "labels", LABELLED, 100, applies=_labels_hidden),
            SENT._replace(applies=_labels_open),
        )
    },
    "SplitNN": {"centre": REPRESENTATIONS, "passive": GRADIENTS},
    "vFedSec": {
        "centre": (
            SENT,
            Rule("UniformityAttack", CONTENT),
            Rule("RoundDifferenceAttack", CONTENT),
            Rule("CollusionAttack", "columns", KNOWN, 200),
            Rule("ClusterGradientAttack", "columns", applies=_has_clusters),
        ),
        "coalition": (Rule("CollusionAttack", "columns", KNOWN, 200),),
        "passive": GRADIENTS,
    },
    "FedOnce": {"centre": REPRESENTATIONS, "passive": GRADIENTS},
    "APC-VFL": {"centre": REPRESENTATIONS},
    "TabVFL": {
        "centre": (
            *REPRESENTATIONS,
            Rule("HyperplaneAttack", "columns", KNOWN, 20, applies=_pretrains),
            Rule(
                "HyperplaneAttack",
                "columns",
                SPREAD,
                params={"marginals": True},
                applies=_pretrains,
            ),
        ),
        "passive": GRADIENTS,
    },
    "Boosting": {
        "centre": (
            Rule("BinSumsAttack", "columns", KNOWN, 100),
            Rule("BinSumsAttack", "columns", SPREAD, params={"marginals": True}),
            Rule("SplitSidesAttack", "columns", KNOWN, 100),
        ),
        "passive": (
            Rule("NodeRowsAttack", "columns", KNOWN, 100),
            Rule("GradientSignAttack", "labels", applies=is_classifier),
            Rule(
                "GradientTargetAttack",
                "target",
                "the target of {n} rows",
                10,
                applies=is_regressor,
            ),
        ),
    },
}


def about_role(estimator, views, members):
    """Which part a role plays.

    Parameters
    ----------
    estimator : estimator
        Fitted federated one.
    views : Views
        Of its fit.
    members : sequence of str
        Name of the role, or those of several.

    Returns
    -------
    part : str
        In words.
    about : str
        As :attr:`Claim.about`.
    """
    if len(members) > 1:
        return "working together", "coalition"
    (name,) = members
    if name == "server":
        return "server", "centre"
    if name != estimator._active:
        return "party without labels", "passive"
    if "server" in views.roles:
        return "label owner", "owner"
    return "active party, which trains", "centre"


def receives_numbers(views, roles):
    """Whether anything is sent to some roles in the fit after the opening but words.

    Parameters
    ----------
    views : Views
        Of a fit.
    roles : sequence of str
        Their names.

    Returns
    -------
    receives : bool
    """
    messages = views.coalition(*roles).fit.messages
    return any(next(m.arrays(), None) is not None for m in messages if not m.opening)


def tables(estimator, views):
    """Prepared columns of every party that has some.

    Parameters
    ----------
    estimator : estimator
        Fitted federated one.
    views : Views
        Of its fit.

    Returns
    -------
    columns : dict of str to ndarray
    """
    blocks = {name: views[name].blocks.get(name) for name in views.roles}
    here = {n for n, block in blocks.items() if block is not None and block.shape[1]}
    # The clients of a cluster are one party, whose columns they have.
    clusters = getattr(estimator, "clusters_", {n: [n] for n in views.roles})
    return {
        party: prepared(estimator, party, views)
        for party, clients in clusters.items()
        if here.issuperset(clients)
    }


def suite(estimator, views):
    """All attacks that suit a fit.

    Parameters
    ----------
    estimator : estimator
        Fitted federated one.
    views : Views
        Of its fit, with all tables.

    Returns
    -------
    trials : list of Trial
    """
    method = method_of(estimator)
    rules = {} if method is None else SUITES[method.name]
    columns = tables(estimator, views)
    largest = sorted(columns, key=lambda name: -columns[name].shape[1])
    trials, labels = [], labels_of(estimator, views, None)
    for roles, about in _attackers(estimator, views, largest):
        if not receives_numbers(views, roles):
            continue
        victims = [
            name for name in largest if not {*clients_of(estimator, name)} & {*roles}
        ][:MOST_PARTIES]
        clusters = [n for n in victims if len(clients_of(estimator, n)) > 1]
        for rule in rules.get(about, ()):
            if rule.applies is None or rule.applies(estimator):
                # The gradient of a single client is no sum that could be taken apart.
                of_clusters = rule.attack == "ClusterGradientAttack"
                whose = clusters if of_clusters else victims
                trials += _trials(rule, roles, whose, columns, views, labels)
    return trials


def _attackers(estimator, views, largest):
    """Who attacks, and which part they play."""
    passive = [name for name in largest if name != estimator._active][:MOST_PARTIES]
    clients = [name for party in passive for name in clients_of(estimator, party)]
    for name in views.roles:
        _, about = about_role(estimator, views, [name])
        if about != "passive" or name in clients:
            yield (name,), about
    # All but one party against this one, which is the worst case of a coalition.
    victim = clients_of(estimator, passive[0]) if passive else []
    yield tuple(name for name in views.roles if name not in victim), "coalition"


def _trials(rule, roles, victims, columns, views, labels):
    """The attack of a rule on each that it can be tried on."""
    if rule.secret in ("labels", "target", PAIRS):
        truth = labels.reshape(-1, 1) if rule.secret == "target" else None
        yield _trial(rule, roles, None, rule.secret, len(labels), truth=truth)
        return
    for party in victims:
        if rule.most_columns and columns[party].shape[1] > rule.most_columns:
            continue
        width, truth = columns[party].shape[1], None
        if rule.secret == "attribute":
            found = _attribute(views[party].blocks[party])
            if found is None:
                continue
            column, truth = found
            secret = f"{column} of {party}"
        else:
            secret = f"{rule.secret} of {party}"
        yield _trial(rule, roles, party, secret, len(labels), width, truth)


def _trial(rule, roles, party, secret, n_rows, width=0, truth=None):
    n, params = rule.rows, dict(rule.params)
    if n is not None:
        # Whoever knows most rows has little left to find out.
        if isinstance(n, float):
            n = width - 1 if n == FEWER else int(n * width)
        n = max(min(n, n_rows // 2), 1)
        params["known_rows"] = n
    kind = getattr(attacks, rule.attack) if rule.attack else LabelsSent
    attack = kind(**params)
    return Trial(attack, roles, party, secret, rule.knows.format(n=n), truth)


def _attribute(block):
    """Name and codes of the column with few values that is hardest to guess."""
    best, least = None, 1.0
    names = getattr(block, "columns", range(block.shape[1]))
    for i, name in enumerate(names):
        column = block.iloc[:, i] if hasattr(block, "iloc") else block[:, i]
        values, codes = np.unique(np.asarray(column).astype(str), return_inverse=True)
        most = np.bincount(codes).max() / len(codes)
        if 1 < len(values) <= MOST_VALUES and most < least:
            best, least = (name, codes), most
    return best
