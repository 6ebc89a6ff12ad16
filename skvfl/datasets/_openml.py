"""The public data sets as OpenML has them, for whoever has no folder of them."""

from __future__ import annotations

from typing import NamedTuple

import sklearn.datasets

_BILLS = [f"{what}{i}" for what in ("BILL_AMT", "PAY_AMT") for i in range(1, 7)]
_CREDIT = ["LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", "PAY_0"]
_CREDIT += [*(f"PAY_{i}" for i in range(2, 7)), *_BILLS]
_CALLS = ["age", "job", "marital", "education", "default", "balance", "housing"]
_CALLS += ["loan", "contact", "day", "month", "duration", "campaign", "pdays"]
_CALLS += ["previous", "poutcome"]


class _Source(NamedTuple):
    """Where a data set lies at OpenML, and how its columns are called there."""

    data_id: int
    names: dict[str, str]
    labels: dict[str, str] | None = None


# Two of them have numbers in place of names there.
_SOURCES = {
    "adult": _Source(
        1590, {"education-num": "educational-num", "sex": "gender", "class": "income"}
    ),
    "bank_marketing": _Source(
        1461,
        {**{f"V{i}": name for i, name in enumerate(_CALLS, 1)}, "Class": "y"},
        {"1": "no", "2": "yes"},
    ),
    "phishing": _Source(4534, {}),
    "covtype": _Source(1596, {"class": "Cover_Type"}),
    "default_credit": _Source(
        42477, {**{f"x{i}": name for i, name in enumerate(_CREDIT, 1)}, "y": "default"}
    ),
}
FETCHED = (*_SOURCES, "california_housing")


def fetch(name, target):
    """A data set as a frame with the columns of its file.

    Parameters
    ----------
    name : str
        One of ``FETCHED``.
    target : str
        Its column with the labels.

    Returns
    -------
    frame : pandas.DataFrame

    Raises
    ------
    ConnectionError
        If it is not in scikit-learn's cache and cannot be downloaded.
    """
    try:
        if name not in _SOURCES:
            return sklearn.datasets.fetch_california_housing(as_frame=True).frame
        source = _SOURCES[name]
        fetched = sklearn.datasets.fetch_openml(
            data_id=source.data_id, as_frame=True, parser="pandas"
        ).frame
    # URLError and timeouts among them; a wrong answer is an error of another kind.
    except OSError as error:
        raise ConnectionError(
            f"{name!r} could not be downloaded ({type(error).__name__}): try again "
            "with a connection to openml.org, or set SKVFL_DATA to a folder that has "
            "its file"
        ) from error
    frame = fetched.rename(columns=source.names)
    for column in frame.columns:
        frame[column] = _plain(frame[column])
    if source.labels is not None:
        frame[target] = frame[target].astype(str).map(source.labels)
    return frame


def _plain(column):
    """A column as a CSV file is read: numbers where all cells are, else text."""
    if column.dtype.kind in "biuf":
        return column
    text = column.astype(object)
    try:
        return text.astype("int64")
    except (TypeError, ValueError):
        return text
