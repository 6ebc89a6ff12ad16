"""Trees as the active party grows and keeps them; the splits are with their owners."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from skvfl.boosting._losses import answers_of
from skvfl.boosting._splits import LEAST_HESSIAN, TINY

LEAF = -1
# Up to so many rows are walked one by one, which saves work on every node of a tree.
_FEW_ROWS = 32


@dataclass
class Tree:
    """Nodes of a tree; children come after their parent.

    Attributes
    ----------
    owners : list of int
        Position of the party that splits each node, or LEAF.
    splits : list of int
        Which of that party's splits it is.
    children : list of tuple of int
        Left and right child.
    values : list of float
        What each leaf adds to a score.
    """

    owners: list[int] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)
    children: list[tuple[int, int]] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self):
        """A new node, a leaf so far; its number."""
        self.owners.append(LEAF)
        self.splits.append(0)
        self.children.append((0, 0))
        self.values.append(0.0)
        return len(self.owners) - 1

    def add_to(self, scores, sides):
        """Add what the tree says of rows to their scores.

        Parameters
        ----------
        scores : ndarray of shape (n_rows,)
            Changed in place.
        sides : list of ndarray of uint8
            For each party, which rows go left at each of its splits, in bits.
        """
        n_rows = len(scores)
        if n_rows <= _FEW_ROWS:
            scores += [self.values[self._leaf(row, sides)] for row in range(n_rows)]
            return
        at = {0: np.arange(n_rows)}
        for node, owner in enumerate(self.owners):
            rows = at.pop(node)
            if owner == LEAF:
                scores[rows] += self.values[node]
                continue
            left = unpack(sides[owner][self.splits[node]], n_rows).take(rows)
            for child, goes in zip(self.children[node], (left, ~left), strict=True):
                at[child] = rows.compress(goes)

    def _leaf(self, row, sides):
        """In which leaf a row ends."""
        node = 0
        while (owner := self.owners[node]) != LEAF:
            # Bits are in the order of the rows, the first of eight the highest.
            eight = sides[owner].item(self.splits[node], row >> 3)
            left = eight >> (7 - (row & 7)) & 1
            node = self.children[node][1 - left]
        return node


@dataclass
class Forest:
    """The trees of a model, with its owners of splits by their positions.

    Parameters
    ----------
    names : list of str
        Parties with columns.
    n_classes : int or None
        Number of classes; None for a target.
    start : ndarray of shape (n_outputs,)
        What every row is scored before there is a tree.
    unit : float
        What scores of a target are numbers of.

    Attributes
    ----------
    trees : list of list of Tree
        Of every iteration, for each output.
    """

    names: list[str]
    n_classes: int | None
    start: np.ndarray
    unit: float
    loss: str = "squared_error"
    trees: list[list[Tree]] = field(default_factory=list)

    def n_splits(self):
        """How many splits each party has."""
        owners = [n for grown in self.trees for tree in grown for n in tree.owners]
        return {name: owners.count(i) for i, name in enumerate(self.names)}

    def express(self, unit):
        """Give scores in another unit; both are powers of two."""
        ratio = self.unit / unit
        self.unit, self.start = unit, self.start * ratio
        for tree in (tree for grown in self.trees for tree in grown):
            tree.values = [value * ratio for value in tree.values]

    def answer(self, sides, n_rows):
        """What is predicted, see :meth:`ActiveTreeParty.predict`."""
        scores = self.scores(sides, n_rows)
        return answers_of(self.n_classes, self.loss)(scores * self.unit)

    def scores(self, sides, n_rows):
        """Sums of what the trees say of rows, a line for each output."""
        scores = np.repeat(self.start[:, None], n_rows, axis=1)
        sides = [sides.get(name) for name in self.names]
        for grown in self.trees:
            for score, tree in zip(scores, grown, strict=True):
                tree.add_to(score, sides)
        return scores


def unpack(bits, n_rows):
    """Which rows some bits speak of, as bool."""
    return np.unpackbits(bits, count=n_rows).view(bool)


class Node:
    """A node while its tree grows.

    Parameters
    ----------
    number : int
        In the tree.
    depth : int
        Number of splits above it.
    rows : ndarray of int
        Rows that trees learn from and that are in it.
    held_out : ndarray of int
        Rows that are held out and in it.
    totals : tuple
        Sums of first and second derivatives, and number of rows.
    value : float
        What it would add to a score as a leaf, but for the learning rate.
    """

    __slots__ = (
        "best",
        "depth",
        "held_out",
        "is_leaf",
        "number",
        "rows",
        "sums",
        "totals",
        "value",
    )

    def __init__(self, number, depth, rows, held_out, totals, value):
        self.number, self.depth = number, depth
        self.rows, self.held_out = rows, held_out
        self.totals, self.value = totals, value
        self.sums = self.best = None
        self.is_leaf = False


class Growth:
    """One tree while it grows, best node first.

    Parameters
    ----------
    rows, held_out : ndarray of int
        Rows that are learnt from, and those that are held out.
    limits : Limits
        How far trees grow.
    """

    def __init__(self, rows, held_out, limits):
        self.tree = Tree()
        self.leaves = []
        self._limits = limits
        # Of negative gain, number and node.
        self._heap = []
        self._n_pushed = 0
        self.root = Node(self.tree.add(), 0, rows, held_out, None, 0.0)

    def push(self, node, best):
        """Keep a node with its best split; a leaf if it has none."""
        if best.gain <= 0:
            self.finish(node)
            return
        node.best = best
        # In the order in which they came where gains are equal.
        heapq.heappush(self._heap, (-best.gain, self._n_pushed, node))
        self._n_pushed += 1

    def finish(self, node):
        """Make a node a leaf."""
        node.sums, node.is_leaf = None, True
        self.leaves.append(node)

    def pop(self):
        """Nodes that are to be split next."""
        if self._limits.max_leaf_nodes is None:
            # All of them will be split, in whatever order, so all at once.
            taken = [node for _, _, node in sorted(self._heap)]
            self._heap = []
            return taken
        return [heapq.heappop(self._heap)[2]] if self._heap else []

    def divide(self, node, owner, split, left):
        """Give a node two children, and finish those that are not split again.

        Parameters
        ----------
        node : Node
            Popped.
        owner, split : int
            Who splits it, and by which of its splits.
        left : ndarray of bool
            Which of all rows go left.

        Returns
        -------
        children : list of Node
        """
        limits, tree, best = self._limits, self.tree, node.best
        numbers = tree.add(), tree.add()
        tree.owners[node.number], tree.splits[node.number] = owner, split
        tree.children[node.number] = numbers
        others = tuple(a - b for a, b in zip(node.totals, best.left, strict=True))
        goes, held_out_goes = left.take(node.rows), left.take(node.held_out)
        children = [
            Node(
                number,
                node.depth + 1,
                # Several times as fast as an index of booleans.
                node.rows.compress(those),
                node.held_out.compress(held_out),
                totals,
                limits.value(totals),
            )
            for number, those, held_out, totals in (
                (numbers[0], goes, held_out_goes, best.left),
                (numbers[1], ~goes, ~held_out_goes, others),
            )
        ]
        if len(self.leaves) + len(self._heap) + 2 == limits.max_leaf_nodes:
            for each in (*children, *(waiting for _, _, waiting in self._heap)):
                self.finish(each)
            self._heap = []
            return children
        for child in children:
            if limits.ends(child):
                self.finish(child)
        return children


@dataclass(frozen=True)
class Limits:
    """How far trees grow; the estimator's parameters of these names."""

    max_leaf_nodes: int | None
    max_depth: int | None
    min_samples_leaf: int
    l2_regularization: float

    def value(self, totals):
        """What a leaf with these sums says, but for the learning rate."""
        return -totals[0] / (totals[1] + self.l2_regularization + TINY)

    def ends(self, node):
        """Whether a node cannot be split again."""
        few = node.totals[2] < 2 * self.min_samples_leaf
        return few or node.depth == self.max_depth

    def ends_at_root(self, node):
        """Whether a whole tree is one leaf."""
        return self.ends(node) or node.totals[1] < LEAST_HESSIAN
