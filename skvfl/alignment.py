"""Tables with ids → one table in which every row is one entity."""

from __future__ import annotations

from collections import Counter
from itertools import compress
from numbers import Integral
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np

from skvfl._rows import take_or_missing
from skvfl._sklearn import StrOptions, validate_params
from skvfl.exceptions import AlignmentError
from skvfl.partition._columns import column_names, look_alike
from skvfl.partition._names import party_name

__all__ = ["Alignment", "align", "match"]

N_EXAMPLES = 3
BYTE_ORDER_MARK = "\ufeff"


class Alignment(NamedTuple):
    """What :func:`align` returns.

    Parameters
    ----------
    table : DataFrame
        Every party's columns side by side, without the ids, of the kind that was given.
        Where a party does not hold a row, its cells are missing.
    parties : dict of str to list of str
        The columns of each party: the ``parties`` parameter of every estimator.
    ids : list
        Id of each row.
    held : dict of str to ndarray of bool
        Which rows each party holds. As ``fit(..., aligned=held)`` it also tells rows
        that a party holds without a single value from rows that it does not hold.

    See Also
    --------
    align : Makes one of tables with ids.

    Examples
    --------
    >>> from skvfl.alignment import align
    >>> from skvfl.datasets import make_two_companies
    >>> companies = make_two_companies(n_samples=100, random_state=0)
    >>> table, parties, ids, held = align(companies.tables, on="customer")
    >>> table.shape, held["shop"].sum()
    ((100, 11), np.int64(80))
    """

    table: Any
    parties: dict
    ids: list
    held: dict


@validate_params(
    {
        "tables": [dict],
        "on": [str, dict],
        "active": [str, Integral],
        "keep": [StrOptions({"active", "intersection"})],
        "duplicates": [StrOptions({"raise", "first", "last"})],
        "private": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def align(tables, on, *, active=0, keep="active", duplicates="raise", private=False):
    """Align the parties' tables by id.

    Whoever calls this has all tables, and sees all ids. Between organisations it is for
    rehearsals, or for ids that everybody may know.

    Read more in the :ref:`User Guide <alignment>`.

    Parameters
    ----------
    tables : dict of str to DataFrame
        The table of each party, all of one kind (pandas, polars, …).
    on : str or dict of str to str
        Name of the column of ids, or each party's own name for it.
    active : str or int, default=0
        Name or position of the party whose rows give the order.
    keep : {"active", "intersection"}, default="active"
        Whether to keep every row of the active party, or only those that all parties
        hold. Rows that the active party does not hold are always left out.
    duplicates : {"raise", "first", "last"}, default="raise"
        What happens if an id occurs more than once in a table: an error, or only its
        first or its last row is kept.
    private : bool, default=False
        Whether the ids are compared as organisations compare them that do not show
        them, by private set intersection. The result is the same; it takes about 0.2 ms
        for each id of a party, and ids must be text or whole numbers.

    Returns
    -------
    alignment : Alignment
        A named tuple ``(table, parties, ids, held)``.

    Raises
    ------
    AlignmentError
        If ids are missing, repeated, or of different kinds, or if a party shares no id
        with the active one. The message has counts, and examples of ids.

    See Also
    --------
    skvfl.APCVFLClassifier : Learns from rows that only some parties hold.

    Examples
    --------
    >>> import pandas as pd
    >>> from skvfl.alignment import align
    >>> bank = pd.DataFrame({"id": [3, 1, 2], "age": [30, 40, 50]})
    >>> shop = pd.DataFrame({"id": [2, 3, 9], "spend": [0.2, 0.3, 0.9]})
    >>> aligned = align({"bank": bank, "shop": shop}, on="id")
    >>> aligned.table
       age  spend
    0   30    0.3
    1   40    NaN
    2   50    0.2
    >>> aligned.parties
    {'bank': ['age'], 'shop': ['spend']}
    >>> aligned.ids
    [3, 1, 2]
    """
    if not tables:
        raise AlignmentError("tables is empty: give every party's table")
    active = party_name(tables, active)
    keyed = {
        name: _Keyed.read(name, table, on, duplicates) for name, table in tables.items()
    }
    # Tables, columns and kinds of ids are checked before ids are compared, because each
    # of them would otherwise show up as parties that share no id.
    _check_one_library(keyed)
    _check_columns(keyed, active)
    _check_kinds(keyed, active)
    compare = match
    if private:
        # What organisations on machines of their own use is imported where it is due.
        from skvfl.remote._intersection import match_privately as compare
    positions = compare({name: each.ids for name, each in keyed.items()}, active)
    held = {name: found >= 0 for name, found in positions.items()}
    everywhere = np.logical_and.reduce(list(held.values()))
    _check_overlap(keyed, active, held, everywhere, keep)
    # Rows that the active party lacks have no label, and its order is the order of y:
    # so its rows lead, whatever is kept.
    kept = everywhere if keep == "intersection" else held[active]
    blocks = [
        # The active party may hold labels alone; a frame without columns has no rows
        # either, and could not stand beside the others.
        each.take(positions[name][kept])
        for name, each in keyed.items()
        if each.columns
    ]
    return Alignment(
        nw.concat(blocks, how="horizontal").to_native(),
        {name: each.columns for name, each in keyed.items()},
        list(compress(keyed[active].ids, kept)),
        {name: rows[kept] for name, rows in held.items()},
    )


def match(ids, active):
    """Where each row of the active party is in every party's table.

    The only step that compares ids of different parties: a private set intersection
    takes its place where they must not be shown.

    Parameters
    ----------
    ids : dict of str to list
        Every party's ids, each once.
    active : str
        The party whose rows give the order.

    Returns
    -------
    positions : dict of str to ndarray of int
        One for each row of the active party; -1 where a party does not hold it.

    See Also
    --------
    align : Brings tables together by such positions.

    Examples
    --------
    >>> from skvfl.alignment import match
    >>> match({"bank": [3, 1, 2], "shop": [2, 3, 9]}, "bank")["shop"]
    array([ 1, -1,  0])
    """
    positions = {}
    for name, own in ids.items():
        place = {each: i for i, each in enumerate(own)}
        positions[name] = np.array([place.get(each, -1) for each in ids[active]], int)
    return positions


class _Keyed(NamedTuple):
    """One party's table, its ids taken apart and each kept once."""

    name: str
    key: str
    frame: Any
    ids: list
    kind: str

    @classmethod
    def read(cls, name, table, on, duplicates):
        try:
            # narwhals refuses such names too, but does not say whose table it is.
            if not hasattr(table, "collect"):  # a lazy frame would work out its names
                column_names(table)
        except (TypeError, ValueError) as exc:  # names that repeat, or are no strings
            raise type(exc)(f"party {name!r}: {exc}") from None
        frame = nw.from_native(table, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            raise TypeError(
                f"party {name!r}: its table is a {type(table).__name__}; give a data "
                "frame, whose columns have names (a lazy one after its collect())"
            )
        frame = _without_mark(frame)
        key = on if isinstance(on, str) else on.get(name)
        if key not in frame.columns:
            raise AlignmentError(
                f"party {name!r}: its table has no column {key!r} of ids"
                f"{look_alike(key, frame.columns)}; name the column in on, as "
                "{party: column} where the names differ"
            )
        column = frame[key]
        ids = column.to_list()
        # Nulls and NaN differ in some frames; NaN is never equal to itself, so that a
        # row with it would match nobody without a word.
        missing = sum(
            is_null or each != each
            for is_null, each in zip(column.is_null(), ids, strict=True)
        )
        if missing:
            raise AlignmentError(
                f"party {name!r}: {missing} of {len(ids)} ids in column {key!r} are "
                "missing; leave those rows out"
            )
        if not ids:
            raise AlignmentError(f"party {name!r}: its table has no rows")
        ids, kind = _read_ids(name, key, ids)
        rows = _each_once(name, key, ids, duplicates)
        return cls(name, key, frame.drop(key)[rows], [ids[i] for i in rows], kind)

    @property
    def columns(self):
        return self.frame.columns

    def take(self, positions):
        """Rows at these positions; cells are missing where a position is -1."""
        return nw.from_native(take_or_missing(self.frame.to_native(), positions))

    def describe(self):
        """Number, kind and examples of the ids."""
        return (
            f"{self.name!r} has {len(self.ids)} ids that are {self.kind} "
            f"({_examples(self.ids)})"
        )


def _without_mark(frame):
    """Drop the byte order mark that spreadsheets put before the first name."""
    first = frame.columns[0] if frame.columns else None
    if not isinstance(first, str) or not first.startswith(BYTE_ORDER_MARK):
        return frame
    name = first.removeprefix(BYTE_ORDER_MARK)
    return frame if name in frame.columns else frame.rename({first: name})


def _examples(ids):
    shown = ", ".join(map(repr, ids[:N_EXAMPLES]))
    return f"{shown}, …" if len(ids) > N_EXAMPLES else shown


def _read_ids(name, key, ids):
    """Ids as plain values of one kind, and that kind."""
    # From 2**53 on, neighbouring whole numbers are the same float: two entities would
    # be taken for one.
    vague = [each for each in ids if isinstance(each, float) and abs(each) >= 2**53]
    if vague:
        raise AlignmentError(
            f"party {name!r}: {len(vague)} ids in column {key!r} are floats too large "
            f"to be told apart ({_examples(vague)}); read the column as integers or "
            "text"
        )
    ids = [_plain(each) for each in ids]
    # Within one table too, 7 never equals "7": part of the rows would go unmatched in
    # silence.
    kinds = Counter(map(_kind, ids))
    if len(kinds) > 1:
        found = ", ".join(
            f"{count} {kind} ({_examples([i for i in ids if _kind(i) == kind])})"
            for kind, count in sorted(kinds.items())
        )
        raise AlignmentError(
            f"party {name!r}: the ids in column {key!r} are of different kinds: "
            f"{found}; convert them to one of them"
        )
    return ids, kinds.popitem()[0]


def _plain(value):
    """A whole number as an int, whatever its type."""
    # A column that once had a missing id was read as floats, so that 7 arrives as 7.0.
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


def _kind(value):
    if isinstance(value, str):
        return "text"
    # True equals 1 in Python, but is nobody's id.
    if isinstance(value, Integral) and not isinstance(value, bool):
        return "whole numbers"
    return f"of type {type(value).__name__}"


def _each_once(name, key, ids, duplicates):
    """Positions at which to take each id once, in the order of the table."""
    counts = Counter(ids)
    if duplicates == "raise":
        repeated = [each for each, count in counts.items() if count > 1]
        if repeated:
            n_rows = sum(counts[each] for each in repeated)
            raise AlignmentError(
                f"party {name!r}: {len(repeated)} duplicate ids in column {key!r}, in "
                f"{n_rows} rows ({_examples(repeated)}); make them unique, or keep one "
                'row of each by duplicates="first" or "last"'
            )
    # The later of two entries stays in a dictionary, hence the reversed order for the
    # first.
    steps = range(len(ids))
    place = {ids[i]: i for i in (reversed(steps) if duplicates == "first" else steps)}
    return sorted(place.values())


def _check_one_library(keyed):
    libraries = {
        name: nw.get_native_namespace(each.frame).__name__
        for name, each in keyed.items()
    }
    if len(set(libraries.values())) > 1:
        raise TypeError(
            f"the tables are of different libraries: {libraries}; convert them to one"
        )


def _check_columns(keyed, active):
    owner = {}
    for name, each in keyed.items():
        if not each.columns and name != active:
            raise AlignmentError(f"party {name!r}: its table holds nothing but ids")
        for column in each.columns:
            if column in owner:
                raise AlignmentError(
                    f"column {column!r} is in the tables of {owner[column]!r} and of "
                    f"{name!r}; rename one of them"
                )
            owner[column] = name


def _check_kinds(keyed, active):
    for each in keyed.values():
        if each.kind != keyed[active].kind:
            raise AlignmentError(
                "ids of different kinds can never be equal: "
                f"{keyed[active].describe()} in column {keyed[active].key!r}, and "
                f"{each.describe()} in column {each.key!r}; convert one to the other "
                "(text like '007' loses its zeros as a number)"
            )


def _check_overlap(keyed, active, held, everywhere, keep):
    for name, rows in held.items():
        if not rows.any():
            raise AlignmentError(
                f"{active!r} and {name!r} have no id in common: "
                f"{keyed[active].describe()}, and {keyed[name].describe()}; write them "
                "in one way, or name the right columns in on"
            )
    if keep == "intersection" and not everywhere.any():
        counts = {name: int(rows.sum()) for name, rows in held.items()}
        raise AlignmentError(
            f"no id is in the tables of all parties; of the {len(everywhere)} ids of "
            f'{active!r} they hold {counts}; keep="active" keeps them'
        )
