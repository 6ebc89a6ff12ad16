"""Data sets from scikit-learn and from a local folder, as frames with a split."""

from __future__ import annotations

import os
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sklearn.datasets
from sklearn.utils import Bunch, resample

from skvfl.datasets._openml import FETCHED, fetch


class _Dataset(NamedTuple):
    """Where a data set lies and who holds what.

    ``parties`` maps a party to its columns, or to how many of the columns that the
    parties before it left; ``file`` is None for what scikit-learn ships.
    """

    file: str | None
    target: str
    task: str
    parties: dict[str, int | list[str]]
    descr: str
    drop: tuple[str, ...] = ()
    missing: str | None = None


def _equal_blocks(n_columns: int, n_parties: int) -> dict[str, int | list[str]]:
    edges = [i * n_columns // n_parties for i in range(n_parties + 1)]
    return {f"party_{i}": edges[i + 1] - edges[i] for i in range(n_parties)}


def _quadrants(side: int) -> dict[str, int | list[str]]:
    half = side // 2
    return {
        f"{vertical}_{horizontal}": [
            f"pixel_{row}_{column}"
            for row in range(top, top + half)
            for column in range(left, left + half)
        ]
        for vertical, top in (("top", 0), ("bottom", half))
        for horizontal, left in (("left", 0), ("right", half))
    }


# The splits are the published ones where a paper or its code has one, so that results
# can be compared with theirs.
_UCI = "UCI Machine Learning Repository, CC BY 4.0"

_DATASETS = {
    "breast_cancer": _Dataset(
        file=None,
        target="target",
        task="classification",
        parties={"mean": 10, "error": 10, "worst": 10},
        descr=(
            "Breast Cancer Wisconsin (Diagnostic), as scikit-learn ships it.\n"
            "Target: 0 malignant, 1 benign.\n"
            "Parties: the mean, the standard error and the worst of ten measurements."
        ),
    ),
    "digits": _Dataset(
        file=None,
        target="target",
        task="classification",
        parties=_quadrants(8),
        descr=(
            "Handwritten digits of 8 x 8 pixels, as scikit-learn ships them.\n"
            "Parties: the four quadrants of the image."
        ),
    ),
    "adult": _Dataset(
        file="adult.csv.gz",
        target="income",
        task="classification",
        parties={
            "active": [
                "workclass",
                "occupation",
                "capital-gain",
                "capital-loss",
                "hours-per-week",
            ],
            "passive_group_1": [
                "marital-status",
                "relationship",
                "race",
                "gender",
                "native-country",
                "age",
            ],
            "passive_group_2": ["educational-num"],
        },
        drop=("fnlwgt", "education"),
        missing="?",
        descr=(
            f"Adult (Becker and Kohavi 1996), train and test together; {_UCI}.\n"
            "Parties: as in the vFedSec paper's code, which leaves out fnlwgt and\n"
            "education. Missing values ('?' in the file) are NaN."
        ),
    ),
    "bank_marketing": _Dataset(
        file="bank_marketing.csv.gz",
        target="y",
        task="classification",
        parties={
            "active": [
                "housing",
                "loan",
                "contact",
                "day",
                "month",
                "campaign",
                "pdays",
                "previous",
                "poutcome",
            ],
            "passive_group_1": ["default", "balance"],
            "passive_group_2": ["age", "job", "marital", "education"],
        },
        drop=("duration",),
        descr=(
            f"Bank Marketing (Moro, Rita and Cortez 2014); {_UCI}.\n"
            "Parties: as in the vFedSec paper's code, which leaves out duration: it\n"
            "is known only after the call. 'unknown' is a category."
        ),
    ),
    "phishing": _Dataset(
        file="phishing_websites.csv.gz",
        target="Result",
        task="classification",
        parties=_equal_blocks(30, 10),
        descr=(
            f"Phishing Websites (Mohammad and McCluskey 2015); {_UCI}.\n"
            "Target: -1 or 1. The columns are codes -1, 0, 1; about half of the rows\n"
            "occur more than once.\n"
            "Parties: ten equal blocks of columns, as in the FedOnce paper's code."
        ),
    ),
    "covtype": _Dataset(
        file="covtype_full.csv.gz",
        target="Cover_Type",
        task="classification",
        parties=_equal_blocks(54, 10),
        descr=(
            f"Covertype (Jock A. Blackard and Colorado State University); {_UCI}.\n"
            "Parties: ten equal blocks of columns, as in the FedOnce paper's code\n"
            "(which predicts class 2 against the rest)."
        ),
    ),
    "higgs": _Dataset(
        file="higgs_11k.csv.gz",
        target="label",
        task="classification",
        parties={"low_level": 21, "high_level": 7},
        descr=(
            f"HIGGS (Whiteson 2014), 10,984 of 11,000,000 rows; {_UCI}.\n"
            "Parties: what the detector measures, and what physicists derive from it."
        ),
    ),
    "susy": _Dataset(
        file="susy_10k.csv.gz",
        target="SUSY",
        task="classification",
        parties={"low_level": 8, "high_level": 10},
        descr=(
            f"SUSY (Whiteson 2014), 10,000 of 5,000,000 rows; {_UCI}.\n"
            "Parties: what the detector measures, and what physicists derive from it."
        ),
    ),
    "superconduct": _Dataset(
        file="superconduct_4k.csv.gz",
        target="critical_temp",
        task="regression",
        parties=_equal_blocks(81, 10),
        descr=(
            "Superconductivity (Hamidieh 2018), a random 4,252 of 21,263 rows;\n"
            f"{_UCI}.\n"
            "Parties: ten equal blocks of columns, as in the FedOnce paper's code."
        ),
    ),
    "california_housing": _Dataset(
        file="california_housing.csv.gz",
        target="MedHouseVal",
        task="regression",
        parties={
            "census": ["MedInc", "Population", "AveOccup"],
            "buildings": ["HouseAge", "AveRooms", "AveBedrms"],
            "map": ["Latitude", "Longitude"],
        },
        descr=(
            "California housing (Pace and Barry 1997), StatLib.\n"
            "Parties: by what the columns are about."
        ),
    ),
    "yearprediction": _Dataset(
        file="yearprediction_1k.csv.gz",
        target="year",
        task="regression",
        parties={"timbre_average": 12, "timbre_covariance": 78},
        descr=(
            f"YearPredictionMSD (Bertin-Mahieux 2011); {_UCI}.\n"
            "1,176 of 515,345 rows, not a random sample: for smoke tests only.\n"
            "Parties: averages and covariances of the timbre."
        ),
    ),
    "default_credit": _Dataset(
        file="default_credit.csv.gz",
        target="default",
        task="classification",
        parties={
            "guest": [
                "PAY_6",
                *(f"BILL_AMT{i}" for i in range(1, 7)),
                *(f"PAY_AMT{i}" for i in range(1, 7)),
            ],
            "host": [
                "LIMIT_BAL",
                "SEX",
                "EDUCATION",
                "MARRIAGE",
                "AGE",
                "PAY_0",
                *(f"PAY_{i}" for i in range(2, 6)),
            ],
        },
        drop=("ID",),
        descr=(
            f"Default of Credit Card Clients (Yeh 2009); {_UCI}.\n"
            "Parties: FATE's two-party example; the guest holds the labels."
        ),
    ),
    "mfeat": _Dataset(
        file="mfeat_6views.csv.gz",
        target="digit",
        task="classification",
        parties={"fou": 76, "fac": 216, "kar": 64, "pix": 240, "zer": 47, "mor": 6},
        descr=(
            f"Multiple Features (Duin), digits on Dutch utility maps; {_UCI}.\n"
            "Parties: the six published feature sets of the same digits."
        ),
    ),
    "fashion_mnist": _Dataset(
        file="fashion_mnist_30k.npz",
        target="label",
        task="classification",
        parties={"active": 196, "passive_1": 196, "passive_2": 196, "passive_3": 196},
        descr=(
            "Fashion-MNIST (Xiao, Rasul and Vollgraf 2017), Zalando SE, MIT licence:\n"
            "30,000 of 70,000 images of 28 x 28 pixels; first 20,000 of the training\n"
            "part, then the whole test part.\n"
            "Parties: four slices of 7 x 28 pixels from top to bottom, as in the\n"
            "vFedSec paper."
        ),
    ),
}


def load(
    name,
    *,
    data_home=None,
    download_if_missing=False,
    n_rows=None,
    random_state=0,
):
    """Load a data set together with a vertical split of its columns.

    Two data sets come with scikit-learn; the others are read from a local folder, and
    some can be downloaded. Nothing is unless it is asked for.

    Parameters
    ----------
    name : str
        ``"breast_cancer"`` and ``"digits"`` (from scikit-learn); ``"adult"``,
        ``"bank_marketing"``, ``"phishing"``, ``"covtype"``, ``"higgs"``, ``"susy"``,
        ``"default_credit"``, ``"mfeat"`` and ``"fashion_mnist"`` (classification, from
        the folder);
        ``"superconduct"``, ``"california_housing"`` and ``"yearprediction"``
        (regression, from the folder).
    data_home : str or path-like, default=None
        The folder. By default the one that the environment variable ``SKVFL_DATA``
        names.
    download_if_missing : bool, default=False
        Whether to fetch a data set that is in no folder from OpenML, into
        scikit-learn's cache: ``"adult"``, ``"bank_marketing"``, ``"phishing"``,
        ``"covtype"``, ``"default_credit"`` and, from where scikit-learn has it,
        ``"california_housing"``. Of the others the folder has samples.
    n_rows : int, default=None
        Take a random sample of this many rows, stratified by class in
        classification. All rows by default.
    random_state : int, RandomState instance or None, default=0
        Chooses the sample.

    Returns
    -------
    dataset : :class:`sklearn.utils.Bunch`
        ``data`` (DataFrame) and ``target`` (Series), both in the order of the file and
        indexed by its row numbers; ``feature_names`` (list of str); ``parties`` (dict
        from a party's name to its columns: the published split where there is one,
        every column in exactly one party); ``task`` (``"classification"`` or
        ``"regression"``); ``DESCR`` (where the data come from).

    Raises
    ------
    FileNotFoundError
        If the folder is not given, or does not hold the file.
    ConnectionError
        If it cannot be downloaded.
    ValueError
        If there is no such data set, its file has other columns than the published
        one, or it has fewer than `n_rows` rows.
    ImportError
        If pandas is missing.

    See Also
    --------
    available : Names of the data sets that can be loaded here.

    Examples
    --------
    >>> from skvfl.datasets import load
    >>> cancer = load("breast_cancer")
    >>> cancer.data.shape
    (569, 30)
    >>> {party: len(columns) for party, columns in cancer.parties.items()}
    {'mean': 10, 'error': 10, 'worst': 10}
    """
    if name not in _DATASETS:
        raise ValueError(f"There is no data set {name!r}; choose from {[*_DATASETS]}.")
    dataset = _DATASETS[name]
    frame = _read(name, dataset, data_home, download_if_missing)
    # Before the target is taken off, because the sample is stratified by it.
    if n_rows is not None:
        frame = _sample(frame, name, dataset, n_rows, random_state)
    target = frame.pop(dataset.target)
    # A copy, because pandas would warn whoever writes into a part of the file's frame.
    # Not every source has columns that are left out.
    data = frame.drop(columns=list(dataset.drop), errors="ignore").copy()
    features = data.columns.tolist()
    return Bunch(
        data=data,
        target=target,
        feature_names=features,
        parties=_split(name, features, dataset.parties),
        task=dataset.task,
        DESCR=dataset.descr,
    )


def available(data_home=None):
    """Names of the data sets that :func:`load` finds here.

    Parameters
    ----------
    data_home : str or path-like, default=None
        The folder. By default the one that the environment variable ``SKVFL_DATA``
        names.

    Returns
    -------
    names : list of str
        What scikit-learn ships, and what has its file in the folder.

    See Also
    --------
    load : Load one of them.

    Examples
    --------
    >>> from skvfl.datasets import available
    >>> available("no-such-folder")
    ['breast_cancer', 'digits']
    """
    folder = _folder(data_home)
    return [
        name
        for name, dataset in _DATASETS.items()
        if dataset.file is None or (folder and (folder / dataset.file).is_file())
    ]


def _folder(data_home):
    # Read on every call: whoever sets it after the import is heard too.
    data_home = data_home or os.environ.get("SKVFL_DATA")
    return Path(data_home).expanduser() if data_home else None


def _read(name, dataset, data_home, downloads):
    try:
        # Imported here, because pandas is an extra that the estimators do without.
        import pandas
    except ImportError as error:
        message = "skvfl.datasets needs pandas: pip install 'skvfl[frames]'."
        raise ImportError(message) from error
    if dataset.file is None:
        return getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame
    folder = _folder(data_home)
    if downloads and not (folder and (folder / dataset.file).is_file()):
        if name not in FETCHED:
            raise ValueError(
                f"{name!r} cannot be downloaded, because its file is a sample of what "
                f"is public; those that can are {[*FETCHED]}."
            )
        return fetch(name, dataset.target)
    cure = (
        f"Set the environment variable SKVFL_DATA to a folder that holds "
        f"{dataset.file}, or pass that folder as data_home."
    )
    if name in FETCHED:
        cure += " Or set download_if_missing=True, which fetches it."
    if folder is None:
        raise FileNotFoundError(f"No folder to read {name!r} from. {cure}")
    if not (folder / dataset.file).is_file():
        raise FileNotFoundError(f"{folder} does not hold {dataset.file}. {cure}")
    # An archive of arrays is read without pickle, which numpy leaves off by default.
    if dataset.file.endswith(".npz"):
        return pandas.DataFrame(_read_images(folder / dataset.file, dataset.target))
    return pandas.read_csv(folder / dataset.file, na_values=dataset.missing)


def _read_images(path, target):
    """Every pixel's values by its name, and the labels."""
    with np.load(path) as arrays:
        images = np.concatenate([arrays["x_train"], arrays["x_test"]])
        labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    return {
        f"pixel_{row}_{column}": images[:, row, column]
        for row, column in np.ndindex(images.shape[1:])
    } | {target: labels}


def _sample(frame, name, dataset, n_rows, random_state):
    if not 1 <= n_rows <= len(frame):
        raise ValueError(
            f"n_rows must be between 1 and {len(frame)}, the number of rows of "
            f"{name!r}; got {n_rows}."
        )
    rows = resample(
        range(len(frame)),
        replace=False,
        n_samples=n_rows,
        stratify=frame[dataset.target] if dataset.task == "classification" else None,
        random_state=random_state,
    )
    # The order of the file stays: equal samples are equal tables, whoever draws them.
    return frame.iloc[sorted(rows)]


def _split(name, features, parties):
    columns = iter(features)
    split = {
        party: list(islice(columns, held)) if isinstance(held, int) else held[:]
        for party, held in parties.items()
    }
    # Blocks of columns are counted off, so that a file with one column more would shift
    # all that follow into the next party.
    if sorted(chain.from_iterable(split.values())) != sorted(features):
        raise ValueError(f"The file of {name!r} has other columns than the published.")
    return split
