"""Gradient-boosted trees across parties: a seventh method in the house's style.

The active party sends every row's gradients, each party adds them up by its columns'
bins, and the active party picks the split that gains most; its owner says which rows go
right. That is SecureBoost without its cipher: gradients give labels away, so this is a
method for tests. Lines marked "house" are those that any method has to repeat.
"""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from scipy.special import softmax

from skvfl._base import VFLClassifierMixin, VFLEstimator
from skvfl._sklearn import Interval, _fit_context, _num_samples
from skvfl.federation import Holding, Party, Settings, operation
from skvfl.federation._party import run

PENALTY = 1.0
LEAST_GAIN = 1e-6


# The parties


@dataclass
class Bins:
    """For every row and column the bin in which the value lies."""

    after: ClassVar = "prepare"
    values: np.ndarray


@dataclass
class Scores:
    """What the trees so far say of every row and class."""

    after: ClassVar = "start"
    values: np.ndarray


@dataclass(frozen=True, kw_only=True)  # house
class TreeSettings(Settings, role="boosting.party"):  # house
    """What a party is told; the estimator's parameters of these names."""

    max_bins: int
    learning_rate: float

    def make(self, member):  # house
        """A party that splits rows by its columns, and scores them if it has labels."""
        kind = TreeParty if member.holding.labels is None else ActiveTreeParty
        return kind(member.name, member.transformer(self.transformer), self)  # house


class TreeParty(Party):
    """A party that knows the thresholds of the splits that it has made."""

    made_by: ClassVar = {"_edges": "prepare"}

    def __init__(self, name, transformer, settings):
        super().__init__(name)  # house
        self._transformer = transformer  # house
        self._said = settings
        self._splits = []

    @operation
    def prepare(self):
        """Cut every column at its quantiles."""
        inputs = run(self._transformer.fit_transform, self.held(Holding).block)
        shares = np.linspace(0, 1, self._said.max_bins + 1)[1:-1]
        self._edges = [np.unique(np.quantile(column, shares)) for column in inputs.T]
        self.hold(Bins(self._bin(inputs)))

    @operation
    def histograms(self, node, n_nodes, gradients):
        """Sums of gradients by column, node, bin and order of the derivative."""
        bins = self.held(Bins).values
        sums = np.empty((bins.shape[1], n_nodes, self._said.max_bins, 2))
        for each, column in zip(sums, bins.T, strict=True):
            cells = node * self._said.max_bins + column
            for order in range(2):
                counted = np.bincount(cells, gradients[:, order], each[..., 0].size)
                each[..., order] = counted.reshape(n_nodes, -1)
        return sums

    @operation
    def split(self, column, threshold):
        """Keep a split; its number, and which rows go right."""
        right = self.held(Bins).values[:, column] > threshold
        self._splits.append((column, threshold))
        return {"split": len(self._splits) - 1, "right": right}

    @operation
    def route(self):
        """Which rows go right, at every split that was kept."""
        bins = self._bin(run(self._transformer.transform, self.held(Holding).block))
        right = [bins[:, column] > threshold for column, threshold in self._splits]
        return np.array(right, bool).reshape(len(right), len(bins)).T

    def _bin(self, inputs):
        edges = zip(self._edges, inputs.T, strict=True)
        return np.column_stack(
            [np.searchsorted(edge, column) for edge, column in edges]
        )


class ActiveTreeParty(TreeParty):
    """The party that has the labels, and keeps the trees."""

    made_by: ClassVar = {"_edges": "prepare", "_trees": "start", "_n_classes": "start"}

    @operation
    def start(self):
        """Begin with no tree."""
        labels = self.held(Holding).labels
        self._n_classes = labels.n_classes
        self.hold(Scores(np.zeros((len(labels.values), labels.n_classes))))
        self._trees = []

    @operation
    def gradients(self):
        """First and second derivative of every row's loss by the next tree's output."""
        label = len(self._trees) % self._n_classes
        chance = softmax(self.held(Scores).values, axis=1)[:, label]
        error = chance - (self.held(Holding).labels.values == label)
        return np.column_stack([error, chance * (1 - chance)])

    @operation
    def choose(self, sums, n_nodes):
        """Owner, column and threshold of every node's best split, if any gains."""
        return [self._best(sums, node) for node in range(n_nodes)]

    def _best(self, sums, node):
        best, most = None, LEAST_GAIN
        for name, each in sums.items():
            left = each[:, node].cumsum(axis=1)
            whole = left[:, -1:]
            gains = _worth(left) + _worth(whole - left) - _worth(whole)
            column, threshold = np.unravel_index(gains.argmax(), gains.shape)
            if gains[column, threshold] > most:
                best = [name, int(column), int(threshold)]
                most = gains[column, threshold]
        return best

    @operation
    def close(self, node, levels, gradients):
        """Keep a tree, with a step of Newton's method in every leaf."""
        first, second = (np.bincount(node, g, 2 ** len(levels)) for g in gradients.T)
        leaves = -self._said.learning_rate * first / (second + PENALTY)
        self.held(Scores).values[:, len(self._trees) % self._n_classes] += leaves[node]
        self._trees.append((levels, leaves))

    @operation
    def predict(self, routes, n_rows):
        """Probabilities of classes for rows that all parties have routed."""
        scores = np.zeros((n_rows, self._n_classes))
        for i, (levels, leaves) in enumerate(self._trees):
            node = np.zeros(n_rows, np.int64)
            for level in levels:
                right = np.zeros(n_rows, bool)
                for each, kept in enumerate(level):
                    if kept is not None:
                        name, split = kept
                        right |= (node == each) & routes[name][:, split]
                node = 2 * node + right
            scores[:, i % self._n_classes] += leaves[node]
        return softmax(scores, axis=1)


def _worth(sums):
    return sums[..., 0] ** 2 / (sums[..., 1] + PENALTY)


# The protocol


class BoostingVFLClassifier(VFLClassifierMixin, VFLEstimator):
    """Gradient-boosted trees of which every party makes its own splits."""

    _roles = (TreeSettings, TreeSettings)  # house

    _parameter_constraints = {  # house
        **VFLEstimator._parameter_constraints,  # house
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "max_depth": [Interval(Integral, 1, 8, closed="both")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_bins": [Interval(Integral, 2, 256, closed="both")],
    }

    def __init__(
        self,
        *,
        parties=2,  # house
        active=0,  # house
        missing_rows="raise",  # house
        n_rounds=20,
        max_depth=3,
        learning_rate=0.3,
        max_bins=32,
        transport="local",  # house
        random_state=None,  # house
    ):
        self.parties = parties  # house
        self.active = active  # house
        self.missing_rows = missing_rows  # house
        self.n_rounds = n_rounds
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.max_bins = max_bins
        self.transport = transport  # house
        self.random_state = random_state  # house

    @_fit_context(prefer_skip_nested_validation=False)  # house
    def fit(self, X, y):
        """Grow one tree for each class in every round."""
        labels = self._read_classes(X, y, None, None)  # house
        n_classes = len(self.classes_)
        with self._training(X, y, labels, self.n_rounds) as (session, course):  # house
            session.begin_round()
            session.tell("prepare", to=self._holders)
            session.tell("start", to=[self._active])
            for _ in course.tasks("round of trees", self.n_rounds):  # house
                for _ in range(n_classes):
                    self._grow(session, len(labels.values))
        return self  # house

    def _grow(self, session, n_rows):
        """One tree: a round of histograms and a round of splits for every level."""
        gradients = session.ask(self._active, "gradients")
        node, levels = np.zeros(n_rows, np.int64), []
        for depth in range(self.max_depth):
            session.begin_round()
            sums = session.call(
                "histograms",
                to=self._holders,
                node=node,
                n_nodes=2**depth,
                gradients=gradients,
            )
            best = session.ask(self._active, "choose", sums=sums, n_nodes=2**depth)
            session.begin_round()
            right, level = self._split(session, node, best)
            levels.append(level)
            node = 2 * node + right
        tree = {"node": node, "levels": levels, "gradients": gradients}
        session.tell("close", to=[self._active], **tree)

    def _split(self, session, node, best):
        """Let the owners make the best splits; who goes right, and what was made."""
        right, level = np.zeros(len(node), bool), []
        for each, found in enumerate(best):
            if found is None:
                level.append(None)
                continue
            name, column, threshold = found
            made = session.ask(name, "split", column=column, threshold=threshold)
            right |= (node == each) & made["right"]
            level.append([name, made["split"]])
        return right, level

    def predict_proba(self, X):
        """Probabilities of classes, in the order of ``classes_``."""
        with self._serving(X) as session:  # house
            session.begin_round()
            asked = {
                "routes": session.call("route", to=self._holders),
                "n_rows": _num_samples(X),
            }
            return session.ask(self._active, "predict", **asked)
