"""What an organisation brings to one run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse

from skvfl._rows import take_or_missing
from skvfl._sklearn import _num_samples, _safe_indexing


@dataclass
class Labels:
    """What the active party learns from; it never leaves it.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        Codes of classes, or targets in their own units.
    n_classes : int or None, default=None
        Number of classes; None for a numerical target.
    weights : ndarray of shape (n_rows,) or None, default=None
        Weights of the rows.
    known : ndarray of bool of shape (n_rows,) or None, default=None
        Which rows have a label; all of them by default.

    See Also
    --------
    Holding : What an organisation brings to a run, labels among it.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl.federation import Labels
    >>> labels = Labels(np.array([0, 1, 1]), n_classes=2)
    >>> labels.take(np.array([2, 0])).values, labels.n_outputs
    (array([1, 0]), 2)
    """

    values: np.ndarray
    n_classes: int | None = None
    weights: np.ndarray | None = None
    known: np.ndarray | None = None

    @property
    def n_outputs(self) -> int:
        """Number of outputs of a network that predicts."""
        return 1 if self.n_classes is None else self.n_classes

    def take(self, rows: np.ndarray) -> Labels:
        """Labels of some rows, by their positions.

        Parameters
        ----------
        rows : ndarray of int
            Positions.

        Returns
        -------
        labels : Labels
        """
        weights, known = (
            None if each is None else each[rows] for each in (self.weights, self.known)
        )
        return Labels(self.values[rows], self.n_classes, weights, known)


@dataclass
class Holding:
    """What an organisation brings to one run.

    Parameters
    ----------
    block : DataFrame, ndarray or sparse matrix
        Its columns.
    rows : ndarray of int or None, default=None
        Which rows of the run the block has; all, in their order, by default.
    labels : Labels or None, default=None
        At the active party, of the block's rows.

    See Also
    --------
    Member : Has one as its table.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl.federation import Holding
    >>> holding = Holding(np.ones((4, 3)))
    >>> holding.size, holding.take(np.array([0, 2])).size
    ((4, 3), (2, 3))
    """

    after: ClassVar = "open"
    block: Any
    rows: np.ndarray | None = None
    labels: Labels | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows that are held."""
        return int(_num_samples(self.block))

    @property
    def n_columns(self) -> int:
        """Number of columns that are held."""
        return int(self.block.shape[1])

    @property
    def size(self) -> tuple[int, int]:
        """Number of rows, and of columns."""
        return self.n_rows, self.n_columns

    def digest(self) -> bytes:
        """Hash of all cells and labels, by which two tables are told apart."""
        found = hashlib.sha256()
        for column in _columns(self.block):
            found.update(_bytes(column))
        for each in vars(self.labels).values() if self.labels is not None else ():
            found.update(_bytes(np.asarray(each)))
        return found.digest()

    def take(self, rows: np.ndarray) -> Holding:
        """What is held of some rows, by their positions in the block.

        All cells are missing of a row at -1, which is no row of the block.

        Parameters
        ----------
        rows : ndarray of int
            Positions.

        Returns
        -------
        holding : Holding
        """
        if rows.size and rows.min() < 0:
            return Holding(take_or_missing(self.block, rows))
        block = _safe_indexing(self.block, rows)
        own = None if self.rows is None else self.rows[rows]
        labels = None if self.labels is None else self.labels.take(rows)
        return Holding(block, own, labels)


def _columns(block: Any) -> list[Any]:
    frame = nw.from_native(block, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return [column.to_list() for column in frame.iter_columns()]
    if sparse.issparse(block):
        held = block.tocsc()
        return [held.indptr, held.indices, held.data]
    return [*np.asarray(block).T]


def _bytes(column: Any) -> bytes:
    try:
        # One number has the same bytes, whatever kind of table it stands in.
        return np.asarray(column, dtype=np.float64).tobytes()
    except (TypeError, ValueError):
        return repr(list(column)).encode()
