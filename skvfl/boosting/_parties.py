"""Boosted trees: every party splits rows by its own columns, the active one chooses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from skvfl.boosting._columns import Bins, TreeColumns
from skvfl.boosting._growing import Growing
from skvfl.boosting._histograms import Bundled, Histograms
from skvfl.boosting._lessons import Lessons
from skvfl.boosting._splits import Columns
from skvfl.boosting._trees import Forest
from skvfl.exceptions import SettingsError
from skvfl.federation import Holding, Party, Settings, operation, serving
from skvfl.federation._party import giving


@dataclass
class Binned:
    """The bin of each of the party's cells, and what is learnt from.

    ``rows`` are positions of those that trees learn from.
    """

    after: ClassVar = "prepare"
    bins: np.ndarray
    bundled: Bundled
    rows: np.ndarray


@dataclass
class Slopes:
    """What adds up the derivatives of each output of the iteration under way."""

    after: ClassVar = "begin_trees"
    histograms: list[Histograms]


@dataclass(frozen=True, kw_only=True)
class PassiveSettings(Settings, role="boosting.passive"):
    """What a passive party is told; the estimator's parameters of these names."""

    max_bins: int
    min_samples_leaf: int
    max_iter: int

    def make(self, member):
        """A party that splits rows by its columns."""
        return TreeParty(**self._parts(member))

    def _parts(self, member):
        # Trees need neither scales nor imputed values, which "auto" gives to networks.
        if self.transformer == "auto" and member.n_columns:
            transformer = TreeColumns(max_categories=self.max_bins)
        else:
            transformer = member.transformer(self.transformer)
        bins = None
        if transformer is not None:
            bins = Bins(transformer, self.max_bins, member.stream("bins"))
        return {"name": member.name, "bins": bins, "least": self.min_samples_leaf}


@dataclass(frozen=True, kw_only=True)
class ActiveSettings(PassiveSettings, role="boosting.active"):
    """What the active party is told; the estimator's parameters of these names."""

    learning_rate: float
    max_leaf_nodes: int | None
    max_depth: int | None
    l2_regularization: float
    early_stopping: bool
    validation_fraction: float
    label_epsilon: float | None = None
    target_range: Any = None
    loss: str = "squared_error"
    quantile: float | None = None

    def make(self, member):
        """The party that has the labels."""
        member.labels  # noqa: B018  (refuses an organisation that has none)
        streams = {what: member.stream(what) for what in ("held_out", "labels")}
        return ActiveTreeParty(**self._parts(member), said=self, streams=streams)


@dataclass(frozen=True)
class Split:
    """A split of a party's own.

    Parameters
    ----------
    column : int
        Among its prepared columns.
    bin : int
        The last one that goes left.
    missing_left : bool
        Whether missing values go left.
    categories : ndarray of uint8 or None
        In a column of categories, which bins go left, in bits.
    """

    column: int
    bin: int
    missing_left: bool
    categories: np.ndarray | None

    def left(self, bins, missing):
        """Which rows go left."""
        column = bins[:, self.column]
        if self.categories is None:
            left = column <= self.bin
            return left | (column == missing) if self.missing_left else left
        goes = np.unpackbits(self.categories, count=256).view(bool)
        # Later rows may miss values where those of fit had all.
        goes[missing] = self.missing_left
        return goes[column]


# So many cells of rows by splits are looked at together.
_CELLS = 2**15


def _left(splits, bins, missing):
    """Which rows go left at each of some splits."""
    if len(splits) == 1:
        return splits[0].left(bins, missing)[None]
    columns = bins.T[[split.column for split in splits]]
    last = np.array([split.bin for split in splits])
    missing_left = np.array([split.missing_left for split in splits])
    left = columns <= last[:, None]
    left |= (columns == missing) & missing_left[:, None]
    for i, split in enumerate(splits):
        if split.categories is not None:
            left[i] = split.left(bins, missing)
    return left


class TreeParty(Party):
    """A party that knows the thresholds of the splits of its own columns.

    Parameters
    ----------
    name : str
        Name of the party.
    bins : Bins or None
        Unfitted; None at a party without columns.
    least : int
        Fewest rows whose derivatives it adds up.
    """

    def __init__(self, name, bins, least):
        super().__init__(name)
        self._bins = bins
        self._transformer = None if bins is None else bins.transformer
        self._least = least
        self._splits = []

    @operation
    def prepare(self, rows=None):
        """Cut every column into bins.

        Parameters
        ----------
        rows : ndarray of uint32 or None, default=None
            Those that trees learn from; all of them by default.

        Returns
        -------
        columns : dict of str to ndarray
            As in :class:`~skvfl.boosting._splits.Columns`.
        """
        block, some = self.held(Holding), slice(None)
        if rows is None:
            rows = np.arange(block.n_rows, dtype=np.uint32)
        else:
            some = rows
        self._check_node(rows, block.n_rows)
        max_bins = self._bins.missing
        goes_on = self.take_over("_bins", "_splits")
        if self._bins.missing != max_bins:
            raise SettingsError("max_bins must be that of the last fit: warm_start")
        fit = self._bins.look_up if goes_on else partial(self._bins.fit, rows=some)
        bins = fit(block.block)
        # A transformer of the party's own may number more, and compiled code would
        # write them behind its table.
        if self._bins.n_bins.max() > max_bins:
            raise SettingsError(
                f"a column has more categories than max_bins={max_bins}: let its "
                "transformer merge the rarest, or allow more bins"
            )
        missing = (bins[some] == self._bins.missing).any(axis=0)
        columns = Columns(self._bins.n_bins, missing, self._bins.categorical)
        self.hold(Binned(bins, Bundled(bins, columns, self._bins.missing), rows))
        return columns._asdict()

    @giving
    def begin_trees(self, gradients, hessians=None):
        """Take the derivatives of an iteration, and add them up over all rows.

        Parameters
        ----------
        gradients : ndarray of float32 of shape (n_outputs, n_rows)
            First derivatives of the loss.
        hessians : ndarray of float32 of shape (n_outputs, n_rows) or None
            Second derivatives; None where they are one.

        Returns
        -------
        sums : ndarray of shape (n_outputs, n_parts * n_cells)
        """
        held = self.held(Binned)
        n_rows = len(held.bins)
        seconds = [None] * len(gradients) if hessians is None else hessians
        for each in (*gradients, *(h for h in seconds if h is not None)):
            if each.dtype != np.float32 or each.shape != (n_rows,):
                raise SettingsError("derivatives are not one number for each row")
        histograms = [
            Histograms(held.bundled, *pair)
            for pair in zip(gradients, seconds, strict=True)
        ]
        self.hold(Slopes(histograms))
        self._check_size(held.rows)
        return np.array([each.add_up(held.rows).ravel() for each in histograms])

    @giving
    def add_up(self, trees, rows, ends):
        """Add up derivatives over the rows of some nodes.

        Parameters
        ----------
        trees : list of int
            Of which output of the model the nodes are.
        rows : ndarray of uint32
            Positions of the nodes' rows, in rising order within each node.
        ends : list of int
            Where each node's rows end.

        Returns
        -------
        sums : ndarray of shape (n_nodes, n_parts * n_cells)
            Of first derivatives, of second ones if they are not constant, and numbers
            of rows, each for all bins of the party's columns.
        """
        histograms = self.held(Slopes).histograms
        n_rows = len(self.held(Binned).bins)
        sums = []
        for tree, start, end in zip(trees, [0, *ends[:-1]], ends, strict=True):
            those = rows[start:end]
            self._check_node(those, n_rows)
            self._check_size(those)
            sums.append(histograms[tree].add_up(those).ravel())
        return sums[0][None] if len(sums) == 1 else np.array(sums)

    @staticmethod
    def _check_node(rows, n_rows):
        # Compiled code reads memory at these positions.
        rises = rows.dtype == np.uint32 and (rows[1:] > rows[:-1]).all()
        if not rises or not rows.size or rows[-1] >= n_rows:
            raise SettingsError("a node's rows are not positions in rising order")

    def _check_size(self, rows):
        # Sums over fewer rows than a leaf has tell cells, and no tree needs them.
        if len(rows) < self._least:
            raise SettingsError(
                f"it was asked for the sums of {len(rows)} rows, and a leaf has "
                f"min_samples_leaf={self._least} or more"
            )

    @operation
    def split(self, splits, categories=None):
        """Keep splits, and tell which rows go left.

        Parameters
        ----------
        splits : ndarray of int of shape (n_splits, 4)
            Column, last bin that goes left, whether missing values do, and whether it
            is a column of categories.
        categories : ndarray of uint8 of shape (n_splits, 32), default=None
            Which bins go left, in bits; for columns of categories only.

        Returns
        -------
        left : ndarray of uint8 of shape (n_splits, n_bytes)
            Which of all rows go left, in bits.
        """
        bins = self.held(Binned).bins
        if categories is None:
            categories = [None] * len(splits)
        new = [
            Split(column, last, bool(missing_left), set_ if is_set else None)
            for (column, last, missing_left, is_set), set_ in zip(
                splits.tolist(), categories, strict=True
            )
        ]
        sides = self._sides(new, bins)
        self._splits += new
        return sides

    @operation
    def finish(self, n_splits):
        """Forget the splits of trees that were not kept."""
        del self._splits[n_splits:]

    @serving
    def route(self):
        """Which rows go left at every split of the party's, in bits."""
        return self._sides(self._splits, self._bins.look_up(self.held(Holding).block))

    def _sides(self, splits, bins):
        sides = np.empty((len(splits), -(-len(bins) // 8)), np.uint8)
        # Of few rows many splits at once: a call for each would be most of the time.
        step = 1 + _CELLS // max(1, len(bins))
        for start in range(0, len(splits), step):
            some = splits[start : start + step]
            left = _left(some, bins, self._bins.missing)
            sides[start : start + step] = np.packbits(left, axis=1)
        return sides


class ActiveTreeParty(TreeParty):
    """The party that has the labels, grows the trees, and keeps them.

    Parameters
    ----------
    name, bins, least
        As for :class:`TreeParty`.
    said : ActiveSettings
        What it was told.
    streams : dict of str to SeedSequence
        Its own, which draw held-out rows and wrong labels.
    """

    made_by: ClassVar = {"_forest": "start"}

    def __init__(self, name, bins, least, said, streams):
        super().__init__(name, bins, least)
        self._said = said
        self._streams = streams

    @operation
    def hold_out(self, class_weight=None):
        """Read the labels, and hold rows out if training is to stop by them.

        Parameters
        ----------
        class_weight : ndarray of shape (n_classes,) or "balanced", default=None
            Weights of the classes.

        Returns
        -------
        rows : dict of str to ndarray
            Those that are learnt from, as ``rows``; empty where these are all.
        """
        holding = self.held(Holding)
        lessons = Lessons.of(holding, class_weight, self._said, self._streams)
        self.hold(lessons)
        if not lessons.held_out.size:
            return {}
        return {"rows": lessons.rows.astype(np.uint32)}

    @operation
    def start(self, columns, sides=None):
        """Begin with no tree, or with those of the last fit.

        Parameters
        ----------
        columns : dict of str to dict
            What every party with columns said of them.
        sides : dict of str to ndarray, default=None
            Which rows go left at every split of the last fit, in bits.
        """
        columns = {name: Columns(**each) for name, each in columns.items()}
        lessons = self.held(Lessons)
        n_classes = self.held(Holding).labels.n_classes
        unit, start, loss = lessons.own.unit, lessons.own_start, self._said.loss
        if not self.take_over("_forest"):
            self._forest = Forest(list(columns), n_classes, start, unit, loss)
        elif self._forest.loss != loss:
            raise SettingsError("loss must be that of the last fit: warm_start")
        self._forest.express(unit)
        self.hold(Growing(lessons, columns, self._said, self._forest, sides or {}))

    @operation
    def begin_iteration(self):
        """Derivatives of the loss for everybody; None where no tree can be split."""
        return self.held(Growing).begin()

    @operation
    def find(self, sums):
        """The splits that are to be made next.

        Parameters
        ----------
        sums : dict of str to ndarray
            Of the nodes that were asked about last, by everybody with columns; none if
            nobody was asked.

        Returns
        -------
        found : dict of str to dict
            ``splits``, what each owner of a split is to be told; empty where all trees
            are grown. Or ``fault``, the name of a party whose sums cannot be.
        """
        return self.held(Growing).find(sums)

    @operation
    def divide(self, sides):
        """Divide nodes, as the owners of the splits say.

        Parameters
        ----------
        sides : dict of str to ndarray
            Which rows go left, in bits.

        Returns
        -------
        nodes : dict of str to ndarray
            Over which rows everybody is to add up; no node at the end. Or ``fault``,
            the name of a party whose rows are not those that it has counted.
        """
        return self.held(Growing).divide(sides)

    @operation
    def end_iteration(self):
        """Keep the trees that were grown; losses of the model with them.

        Returns
        -------
        losses : dict of str to float
            Of the rows that were learnt from, and of those held out.
        """
        trees, losses = self.held(Growing).end()
        self._forest.trees.append(trees)
        return losses

    @operation
    def keep(self, n_iter):
        """Keep the trees of the first iterations of this fit, and all before it.

        Returns
        -------
        n_splits : dict of str to int
            How many splits of each party they have.
        """
        del self._forest.trees[self.held(Growing).n_before + n_iter :]
        return self._forest.n_splits()

    @serving
    def predict(self, sides, n_rows):
        """Probabilities of classes, or targets in their own units.

        Parameters
        ----------
        sides : dict of str to ndarray
            Which rows go left at every split of each party that has some, in bits.
        n_rows : int
            Number of rows.
        """
        return self._forest.answer(sides, n_rows)
