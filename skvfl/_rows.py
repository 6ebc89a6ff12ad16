"""The rows of a party's table: which hold no value, and whether outputs keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from skvfl.exceptions import InvalidOutputError, ShareableError
from skvfl.partition._kinds import missing_objects


def rows_without_values(block: Any) -> np.ndarray:
    """Rows of which every cell is missing.

    Columns are looked at one after the other, and only while a row is left that may
    hold nothing: a table whose first column is complete costs one look at it.

    Parameters
    ----------
    block : DataFrame, ndarray or sparse matrix
        A party's columns. Cells that a sparse matrix does not store are zeros.

    Returns
    -------
    empty : ndarray of bool
    """
    n_rows, n_columns = block.shape
    if not n_columns:
        return np.zeros(n_rows, dtype=bool)
    if sparse.issparse(block):
        # Stored cells alone can be missing; a dense copy could be many times the
        # memory.
        stored = block.tocoo()
        n_missing = np.bincount(stored.row[np.isnan(stored.data)], minlength=n_rows)
        return n_missing == n_columns
    if not isinstance(block, np.ndarray):
        frame = nw.from_native(block, eager_only=True, pass_through=True)
        if isinstance(frame, nw.DataFrame):
            return _empty_in_frame(frame)
        block = np.asarray(block)
    empty = np.ones(n_rows, dtype=bool)
    for column in block.T:
        rows = np.flatnonzero(empty)
        empty[rows] = _missing_values(column[rows])
        if not empty.any():
            break
    return empty


def take_or_missing(block: Any, positions: np.ndarray) -> Any:
    """Rows of a table at these positions; missing cells where a position is -1.

    Parameters
    ----------
    block : DataFrame or ndarray
        A party's columns.
    positions : ndarray of int

    Returns
    -------
    rows : DataFrame or ndarray
    """
    held = positions >= 0
    if isinstance(block, np.ndarray):
        rows = block[positions.clip(0)]
        if not held.all():
            kind = rows.dtype.kind
            # Whole numbers and truth values have no cell that is missing.
            rows = rows.astype(
                float if kind in "biu" else rows.dtype if kind == "f" else object
            )
            rows[~held] = np.nan
        return rows
    frame = nw.from_native(block, eager_only=True)
    rows = nw.maybe_reset_index(frame[positions.clip(0).tolist()])
    if held.all():
        return rows.to_native()
    flags = nw.new_series("held", held, backend=nw.get_native_namespace(rows))
    return rows.select(
        (nw.when(flags).then(nw.col(c))).alias(c) for c in rows.columns
    ).to_native()


def _empty_in_frame(frame: Any) -> np.ndarray:
    empty = np.ones(len(frame), dtype=bool)
    for column in frame.iter_columns():
        missing = column.is_null().to_numpy()
        # Frames tell NaN apart from null, and columns of objects from either; to a
        # party all of them are missing cells.
        if column.dtype.is_float() or column.dtype == nw.Object:
            missing = missing | _missing_values(column.to_numpy())
        empty &= missing.astype(bool)
        if not empty.any():
            break
    return empty


def _missing_values(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "fcmM":
        missing: np.ndarray = np.isnan(values)
    elif values.dtype.kind in "OT":
        try:
            missing = missing_objects(values.astype(object))
        except ValueError:  # a cell is an array itself, which preparation refuses
            missing = np.zeros(len(values), dtype=bool)
    else:
        missing = np.zeros(len(values), dtype=bool)
    return missing


def apply(
    method: Callable[[Any], Any],
    block: Any,
    what: str = "its transformer",
    *,
    explain: bool = False,
) -> Any:
    """Output of a transformer's method, one row for each of the block's in their order.

    A pipeline is taken step by step, because a later step would drop the index that
    shows what an earlier one did. Not seen are rows that changed their places inside a
    ``ColumnTransformer`` or ``FeatureUnion``, or behind a fresh index, an array, or a
    frame without an index.

    Parameters
    ----------
    method : callable
        Bound to a transformer: its ``fit_transform`` or ``transform``.
    block : table
        What it is given.
    what : str, default="its transformer"
        The transformer in the party's words, for the message.
    explain : bool, default=False
        Whether an error of the transformer's own is replaced, see :func:`explained`.

    Returns
    -------
    output : table
        As the transformer gave it.

    Raises
    ------
    InvalidOutputError
        If the output is no table, or has other rows than the block.
    """
    steps = _steps(method)
    if steps is not None:
        for step in steps:
            block = apply(step, block, what, explain=explain)
        return block
    # An error in words of the step would be of no use if it were the pipeline's.
    step = getattr(method, "__self__", method)
    with explained(step, block) if explain else nullcontext():
        output = method(block)
    if isinstance(output, np.ma.MaskedArray):
        raise InvalidOutputError(
            f"{what} gave a masked array, whose masked cells would be used; "
            "let it fill them"
        )
    if isinstance(output, np.matrix):  # scikit-learn's own steps refuse it
        output = np.asarray(output)
    if len(getattr(output, "shape", ())) != 2:
        raise InvalidOutputError(
            f"{what}'s output is not a table: let it give a frame, or an array of rows "
            f"and columns, instead of {_kind(output)}"
        )
    if output.shape[0] != block.shape[0]:
        raise InvalidOutputError(
            f"{what} gave {output.shape[0]} rows for {block.shape[0]}; rows "
            "must stay aligned over the parties: let it give one row for each"
        )
    if not _has_same_order(output, block):
        raise InvalidOutputError(
            f"{what} gave {output.shape[0]} rows in another order, as their "
            "index shows; rows must stay aligned over the parties: let it keep their "
            "order and their index"
        )
    return output


@contextmanager
def explained(step: Any, table: Any) -> Iterator[None]:
    """Say what is the matter with a table on which a step of somebody's fails.

    Its own error stays with the party, because it may quote cells. If the table is one
    that many steps do not take, the error raised instead says so.

    Parameters
    ----------
    step : estimator
        What works on the table.
    table : table
        What it is given.

    Raises
    ------
    InvalidOutputError
        In place of the step's error, if the table is the likely reason.
    """
    try:
        yield
    except (ShareableError, NotFittedError, Warning):
        # Warnings get here where the user made them errors.
        raise
    except Exception as exc:
        reason = _unusual(table)
        if reason is None:
            raise
        raise InvalidOutputError(
            f"{type(step).__name__} failed on a table with {reason}; let the "
            "transformer before it impute, encode and name columns, as "
            'transformer="auto" does'
        ) from exc


def _unusual(table: Any) -> str | None:
    """What many transformers do not take in a table, in words."""
    if not table.shape[1]:
        return "no column"
    if getattr(getattr(table, "columns", None), "has_duplicates", False):
        return "two columns of one name"
    # Types are asked before cells: text would fail in the conversion to numbers, with a
    # message that quotes a cell.
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        if not all(dtype.is_numeric() for dtype in frame.schema.values()):
            return "columns that are not numbers"
        table = frame.to_numpy()
    values = table.data if sparse.issparse(table) else np.asarray(table)
    if values.dtype.kind not in "biuf":
        return "columns that are not numbers"
    return None if np.isfinite(values).all() else "missing or infinite values"


def _steps(method: Any) -> list[Any] | None:
    """The same method of every step, where a pipeline would call nothing else."""
    pipeline: Any = getattr(method, "__self__", None)
    # A subclass, a cache, printed times, metadata or callbacks do more than call each
    # step, and would be skipped if the steps were called one by one.
    if type(pipeline) is not Pipeline:
        return None
    if pipeline.memory is not None or pipeline.verbose:
        return None
    if pipeline.transform_input is not None or hasattr(pipeline, "_skl_callbacks"):
        return None
    steps = [step for _, step in pipeline.steps if step not in (None, "passthrough")]
    if not all(hasattr(step, method.__name__) for step in steps):
        return None
    return [getattr(step, method.__name__) for step in steps]


def _kind(output: Any) -> str:
    shape = getattr(output, "shape", None)
    dimensions = "" if shape is None else f" of {len(shape)} dimension(s)"
    return f"a {type(output).__name__}{dimensions}"


def _has_same_order(output: Any, block: Any) -> bool:
    """Whether a returned index is the block's own, or a fresh one that says nothing."""
    if not hasattr(output, "iloc"):
        return True
    index = output.index
    # The type is compared by name, because pandas need not be installed.
    if type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1):
        return True
    if hasattr(block, "iloc"):
        return bool(index.equals(block.index))
    return bool(index.tolist() == list(range(len(index))))
