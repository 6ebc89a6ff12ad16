"""Categories of one column as one-hot columns."""

from __future__ import annotations

import unicodedata
from collections import Counter
from itertools import repeat
from typing import NamedTuple

import numpy as np

NOT_FOUND = -2  # a category, in place of its output column
# Warnings about a column speak of shares, which few rows do not give.
ENOUGH_LATER_ROWS = 10
UNUSUAL = 0.2  # share of unknown categories, of what is not rare in fit
UNKNOWN = (
    "holds categories that fit did not see in {} of {} rows; they count as unknown: "
    "look for another spelling or another coding"
)
OTHER_CASE = (
    "holds categories that differ from those of fit only by upper and lower case in "
    "{} of {} rows; they count as unknown"
)
OTHER_BLANKS = (
    "holds categories that differ from those of fit only by blanks, or by how accents "
    "are encoded, in {} of {} rows; that is ignored"
)


class Encoding(NamedTuple):
    """One-hot columns of one feature.

    Attributes
    ----------
    codes : dict of {str or None: int}
        Output column of every category that has one of its own.
    unknown : int
        Output column of all other categories, or -1 if there is none.
    labels : list of str
        Names of the output columns.
    rare : float
        Share of the rows of fit whose category has no column of its own.
    tidy : bool
        Whether no category of fit had blanks too many.
    """

    codes: dict[str | None, int]
    unknown: int
    labels: list[str]
    rare: float
    tidy: bool

    def write(self, values, out):
        """Set the ones of ``values`` in a block of zeros.

        Returns
        -------
        remark : str or None
            What users should be told about the column.
        """
        codes, remark = self.read(values)
        rows = np.flatnonzero(codes >= 0)
        out[rows, codes[rows]] = 1
        return remark

    def read(self, values):
        """Output column of every value, or -1 where there is none.

        Returns
        -------
        codes : ndarray of int of shape (n_rows,)
        remark : str or None
            What users should be told about the column.
        """
        found = map(self.codes.get, values, repeat(NOT_FOUND))
        codes = np.fromiter(found, np.intp, len(values))
        # Most cells are written as in fit, so only the others are tidied.
        strange = np.flatnonzero(codes == NOT_FOUND)
        remark = None
        if strange.size:
            others = values[strange]
            tidied = {
                text: self.codes.get(_tidy(text), NOT_FOUND) for text in set(others)
            }
            codes[strange] = [tidied[text] for text in others]
            remark = self._remark(values, others, tidied)
            codes[codes == NOT_FOUND] = self.unknown
        return codes, remark

    def _remark(self, values, others, tidied):
        """Why so many categories are not those of fit, if that is out of the common."""
        counts = Counter(others)
        del counts[None]
        unknown = {text: n for text, n in counts.items() if tidied[text] == NOT_FOUND}
        n_unknown = sum(unknown.values())
        # Compared cell by cell, which `is` would not do.
        n_present = len(values) - np.count_nonzero(values == None)  # noqa: E711
        # With a bucket the names that fit met are not all known here.
        if self.unknown < 0 and unknown:
            known = {label.casefold() for label in self.codes if label is not None}
            n_case = sum(
                n for text, n in unknown.items() if _tidy(text).casefold() in known
            )
            if n_case:
                return OTHER_CASE.format(n_case, n_present)
        usual = self.rare + UNUSUAL * (1 - self.rare)
        if n_present >= ENOUGH_LATER_ROWS and n_unknown > usual * n_present:
            return UNKNOWN.format(n_unknown, n_present)
        n_blanks = counts.total() - n_unknown
        if self.tidy and n_blanks:
            return OTHER_BLANKS.format(n_blanks, n_present)
        return None


def _tidy(label):
    """A category without blanks around it, single ones inside, accents composed."""
    if label is None:
        return None
    return unicodedata.normalize("NFC", " ".join(label.split()))


def encode(counts, missing, max_categories):
    """Choose categories as OneHotEncoder does; forget the infrequent ones."""
    tidied = Counter()
    for label, count in counts.items():
        tidied[_tidy(label)] += count
    is_tidy = all(label in counts for label in tidied)
    counts = tidied
    if missing:
        counts[None] = missing
    categories = sorted(counts, key=lambda label: (label is None, label or ""))
    unknown = -1
    rare = 0.0
    if len(categories) >= max_categories:
        unknown = max_categories - 1
        # Of equal counts the later names stay, as in OneHotEncoder.
        kept = set(sorted(categories, key=counts.get)[-unknown:])
        categories = [label for label in categories if label in kept]
        rare = 1 - sum(counts[label] for label in kept) / counts.total()
    missing = _unused("nan", counts)
    labels = [missing if label is None else label for label in categories]
    if unknown >= 0:
        labels.append(_unused("infrequent_sklearn", counts))
    codes = {label: code for code, label in enumerate(categories)}
    return Encoding(codes, unknown, labels, rare, is_tidy)


def _unused(name, taken):
    """A name that is not a category already."""
    while name in taken:
        name += "_"
    return name
