"""One iteration after another at the active party: derivatives, splits, leaves."""

from __future__ import annotations

from itertools import accumulate
from typing import ClassVar

import numpy as np

from skvfl.boosting._checks import Checks
from skvfl.boosting._splits import Search
from skvfl.boosting._trees import Growth, Limits, unpack


class Growing:
    """What the active party holds while it trains.

    Parameters
    ----------
    lessons : Lessons
        What it learns from.
    columns : dict of str to Columns
        Of every party that has some, in their order.
    said : ActiveSettings
        What it was told.
    forest : Forest
        Trees that there are before.
    sides : dict of str to ndarray
        Which rows go left at their splits, in bits.
    """

    after: ClassVar = "start"

    def __init__(self, lessons, columns, said, forest, sides):
        self._lessons, self._said = lessons, said
        self._names = list(columns)
        self._n_cells = {name: each.n_cells for name, each in columns.items()}
        self._constant = lessons.shown.constant and lessons.shown.weights is None
        self._n_parts = 2 if self._constant else 3
        widths = [len(each.n_bins) for each in columns.values()]
        # Of a column among all: whose it is, and which of theirs.
        self._owners = np.repeat(np.arange(len(widths)), widths)
        self._places = np.concatenate([np.arange(width) for width in widths])
        self._first_bins = int(next(iter(columns.values())).n_bins[0])
        self._limits = Limits(
            said.max_leaf_nodes,
            said.max_depth,
            said.min_samples_leaf,
            said.l2_regularization,
        )
        leaves = (said.min_samples_leaf, said.l2_regularization)
        self._search = Search([*columns.values()], self._constant, *leaves)
        self._checks = Checks(columns, self._constant)
        n_rows = len(lessons.own.values)
        self._own = self._shown = forest.scores(sides, n_rows)
        if lessons.are_private:
            self._shown = np.repeat(lessons.shown_start[:, None], n_rows, axis=1)
        self.n_before, self._n_splits = len(forest.trees), forest.n_splits()
        self._growths, self._asked, self._chosen = [], [], []
        self._expected = []

    def begin(self):
        """Derivatives for everybody, or None where there is nothing to split."""
        lessons = self._lessons
        self._growths = [
            Growth(lessons.rows, lessons.held_out, self._limits) for _ in self._shown
        ]
        self._asked = [(each, None, each.root, None) for each in self._growths]
        if len(lessons.rows) < 2 * self._said.min_samples_leaf:
            for each in self._growths:
                each.finish(each.root)
            return None
        # What overflows is refused where the protocol runs.
        with np.errstate(over="ignore", invalid="ignore"):
            gradients, hessians = lessons.shown.slopes(self._shown)
        # Nobody adds these up, so nobody need see them.
        for each in (gradients, hessians):
            if each is not None and lessons.held_out.size:
                each[:, lessons.held_out] = 0
        self._checks.begin(gradients, hessians)
        self._expected = [
            self._checks.expected(output, lessons.rows)
            for output in range(len(self._growths))
        ]
        return {"gradients": gradients, "hessians": hessians}

    def find(self, sums):
        """The splits that are to be made next, see :meth:`ActiveTreeParty.find`."""
        if self._asked:
            stacked = self._stack(sums)
            outputs = [self._growths.index(growth) for growth, *_ in self._asked]
            fault = self._checks.faulty(stacked, outputs, self._expected)
            if fault is not None:
                return {"fault": fault}
            self._look(stacked)
        self._asked, self._chosen, self._expected = [], [], []
        asked = {}
        for growth in self._growths:
            for node in growth.pop():
                self._choose(growth, node, asked)
        return {"splits": {name: _in_arrays(rows) for name, rows in asked.items()}}

    def _stack(self, sums):
        """Everybody's sums side by side, and a cell of zeros behind them."""
        n_nodes, n_parts = len(self._asked), self._n_parts
        whole = np.empty((n_nodes, n_parts, self._search.n_cells + 1))
        whole[:, :, -1] = 0
        start = 0
        for name in self._names:
            stop = start + self._n_cells[name]
            whole[:, :, start:stop] = sums[name].reshape(n_nodes, n_parts, -1)
            start = stop
        return whole

    def _look(self, stacked):
        """Look for the best splits of the nodes whose sums have arrived."""
        looked_at = []
        for (growth, parent, node, sibling), summed in zip(
            self._asked, stacked, strict=True
        ):
            whole = None
            if parent is None:
                node.totals = self._totals(summed, len(node.rows))
                if self._limits.ends_at_root(node):
                    growth.finish(node)
            else:
                whole, parent.sums = parent.sums, None
            # What is left of the parent's: no party adds up a row twice.
            for each, less in ((node, None), (sibling, whole)):
                # Those that end here are not looked at.
                if each is not None and not each.is_leaf:
                    looked_at.append((growth, each, summed, less))
        if not looked_at:
            return
        looked_at.sort(key=lambda one: one[1].number)
        sums = np.empty((len(looked_at), *stacked.shape[1:]))
        for own, (_, node, summed, whole) in zip(sums, looked_at, strict=True):
            if whole is None:
                own[:] = summed
            else:
                np.subtract(whole, summed, out=own)
            node.sums = own
        totals = np.array([node.totals for _, node, *_ in looked_at], float)
        values = np.array([node.value for _, node, *_ in looked_at])
        best = self._search.best(sums, totals, values * totals[:, 0])
        for (growth, node, *_), found in zip(looked_at, best, strict=True):
            growth.push(node, found)

    def _totals(self, summed, n_rows):
        """Of all rows, by the bins of the first column, as scikit-learn adds them."""
        width = self._said.max_bins + 1
        table = np.zeros((self._n_parts, width))
        n_bins = self._first_bins
        table[:, :n_bins] = summed[:, :n_bins]
        if self._search.has_missing[0]:
            table[:, -1] = summed[:, n_bins]
        parts = table.sum(axis=1).tolist()
        return parts[0], (n_rows if self._constant else parts[1]), n_rows

    def _choose(self, growth, node, asked):
        """Ask the owner of a node's best split for it."""
        best = node.best
        name = self._names[self._owners[best.column]]
        rows = asked.setdefault(name, [])
        self._chosen.append((growth, node, name, len(rows)))
        bits = np.zeros(256, bool)
        is_set = best.categories is not None
        if is_set:
            bits[best.categories] = True
            bits[self._said.max_bins] = best.missing_left
        place = int(self._places[best.column])
        rows.append((place, best.bin, int(best.missing_left), int(is_set), bits))

    def divide(self, sides):
        """Divide nodes, see :meth:`ActiveTreeParty.divide`."""
        first = dict(self._n_splits)
        for growth, node, name, place in self._chosen:
            left = unpack(sides[name][place], self._shown.shape[1])
            owner, split = self._names.index(name), first[name] + place
            best = node.best
            children = growth.divide(node, owner, split, left)
            self._n_splits[name] = max(self._n_splits[name], split + 1)
            small, large = children
            if not len(small.rows) < len(large.rows):
                small, large = large, small
            output = self._growths.index(growth)
            expected = self._checks.expected(output, small.rows)
            counted = len(children[0].rows) == best.left[2]
            if not counted or not self._checks.agrees(small.totals, output, expected):
                return {"fault": name}
            if all(each.is_leaf for each in children):
                node.sums = None
                continue
            self._asked.append((growth, node, small, large))
            self._expected.append(expected)
        smalls = [small.rows for _, _, small, _ in self._asked]
        trees = [self._growths.index(growth) for growth, *_ in self._asked]
        empty = np.empty(0, np.uint32)
        return {
            "trees": trees,
            "rows": np.concatenate([empty, *smalls]).astype(np.uint32),
            "ends": [*accumulate(len(each) for each in smalls)],
        }

    def end(self):
        """The trees, and the losses of the model with them."""
        # A loss that overflows is refused where the protocol runs, with a cure.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._end()

    def _end(self):
        lessons, rate = self._lessons, self._said.learning_rate
        own_slopes = None
        if lessons.are_private:
            own_slopes = lessons.own.slopes(self._own)
        for output, growth in enumerate(self._growths):
            for leaf in growth.leaves:
                value = rate * self._shown_value(output, leaf)
                for rows in (leaf.rows, leaf.held_out):
                    self._shown[output, rows] += value
                if own_slopes is not None:
                    # The model's own leaves are learnt from true labels: they stay
                    # here, and nothing that others see follows from them.
                    value = rate * self._own_value(own_slopes, output, leaf.rows)
                    for rows in (leaf.rows, leaf.held_out):
                        self._own[output, rows] += value
                growth.tree.values[leaf.number] = value
        trees = [growth.tree for growth in self._growths]
        self._growths = []
        losses = {"loss": lessons.own.mean(self._own, lessons.rows)}
        if lessons.held_out.size:
            # Of shown labels, because others see when training stops.
            held_out = lessons.held_out
            losses["validation"] = lessons.shown.mean(self._shown, held_out)
        return trees, losses

    def _shown_value(self, output, leaf):
        loss = self._lessons.shown
        if not loss.refills:
            return leaf.value
        return loss.fill(leaf.rows, self._shown[output, leaf.rows])

    def _own_value(self, slopes, output, rows):
        loss, (first, second) = self._lessons.own, slopes
        if loss.refills:
            return loss.fill(rows, self._own[output, rows])
        total = float(first[output, rows].sum(dtype=np.float64))
        if second is None:
            return self._limits.value((total, len(rows)))
        return self._limits.value(
            (total, float(second[output, rows].sum(dtype=np.float64)))
        )


def _in_arrays(asked):
    """What a party is told of the splits that it is asked for."""
    splits = {"splits": np.array([each[:4] for each in asked])}
    if any(is_set for _, _, _, is_set, _ in asked):
        splits["categories"] = np.packbits([bits for *_, bits in asked], axis=1)
    return splits
