import json
import sys
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import Bunch

from skvfl import VerticalPartitioner
from skvfl.alignment import align
from skvfl.datasets import available, load, make_two_companies
from skvfl.datasets._local import _DATASETS

SHIPPED = ["breast_cancer", "digits"]
COVTYPE = dict(
    enumerate([211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510], start=1)
)
FASHION = dict(enumerate([2935, 3025, 2982, 3011, 2967, 3010, 3068, 3003, 2971, 3028]))
CLASSIFICATION = {
    "adult": (12, {"<=50K": 37_155, ">50K": 11_687}),
    "bank_marketing": (15, {"no": 39_922, "yes": 5_289}),
    "phishing": (30, {1: 6_157, -1: 4_898}),
    "covtype": (54, COVTYPE),
    "default_credit": (23, {0: 23_364, 1: 6_636}),
    "mfeat": (649, dict.fromkeys(range(10), 200)),
    "fashion_mnist": (784, FASHION),
}
SAMPLED = {"higgs": (10_984, 28, 0.530), "susy": (10_000, 18, 0.455)}
REGRESSION = {
    "superconduct": (4_252, 81),
    "california_housing": (20_640, 8),
    "yearprediction": (1_176, 90),
}
PUBLISHED_SPLITS = {
    "adult": "adult",
    "bank_marketing": "bank_marketing",
    "covtype": "covtype_full",
    "default_credit": "default_credit",
    "mfeat": "mfeat_6views",
    "superconduct": "superconduct_4k",
}
LOCAL = [*CLASSIFICATION, *SAMPLED, *REGRESSION]


def assert_sound(dataset):
    assert isinstance(dataset.data, pd.DataFrame)
    assert dataset.data.columns.tolist() == dataset.feature_names
    assert dataset.target.name not in dataset.feature_names
    assert dataset.data.index.equals(dataset.target.index)
    claimed = [column for held in dataset.parties.values() for column in held]
    assert sorted(claimed) == sorted(dataset.feature_names)
    assert all(dataset.parties.values())
    assert "Parties:" in dataset.DESCR


# As OpenML calls columns that have another name here.
OPENML = {
    "adult": {"educational-num": "education-num", "gender": "sex", "income": "class"},
    "bank_marketing": {"y": "Class"},
    "phishing": {},
    "covtype": {"Cover_Type": "class"},
    "default_credit": {"default": "y"},
}
NUMBERED = {"bank_marketing": "V", "default_credit": "x"}


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.delenv("SKVFL_DATA", raising=False)


def test_load_breast_cancer():
    cancer = load("breast_cancer")
    assert_sound(cancer)
    assert cancer.data.shape == (569, 30)
    assert cancer.target.value_counts().to_dict() == {1: 357, 0: 212}
    for party, word in [("mean", "mean"), ("error", "error"), ("worst", "worst")]:
        assert len(cancer.parties[party]) == 10
        assert all(word in column for column in cancer.parties[party])


def test_load_digits_gives_each_party_a_quadrant():
    digits = load("digits")
    assert_sound(digits)
    assert digits.data.shape == (1797, 64)
    images = digits.data.to_numpy().reshape(-1, 8, 8)
    for party, quadrant in {
        "top_left": images[:, :4, :4],
        "top_right": images[:, :4, 4:],
        "bottom_left": images[:, 4:, :4],
        "bottom_right": images[:, 4:, 4:],
    }.items():
        block = digits.data[digits.parties[party]].to_numpy()
        np.testing.assert_array_equal(block.reshape(-1, 4, 4), quadrant)


def test_load_fashion_mnist_gives_each_party_a_slice(data_home):
    dataset = load("fashion_mnist", data_home=data_home)
    with np.load(data_home / "fashion_mnist_30k.npz") as arrays:
        parts = {"x_train": dataset.data[:20_000], "x_test": dataset.data[20_000:]}
        for part, table in parts.items():
            for i, columns in enumerate(dataset.parties.values()):
                slices = table[columns].to_numpy().reshape(-1, 7, 28)
                np.testing.assert_array_equal(
                    slices, arrays[part][:, 7 * i : 7 * (i + 1)]
                )
        assert dataset.target[:20_000].tolist() == arrays["y_train"].tolist()
    assert len(dataset.parties) == 4


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_load_classification_matches_the_published_counts(name, data_home):
    n_features, counts = CLASSIFICATION[name]
    dataset = load(name, data_home=data_home)
    assert_sound(dataset)
    assert dataset.task == "classification"
    assert dataset.data.shape == (sum(counts.values()), n_features)
    assert dataset.target.value_counts().to_dict() == counts


@pytest.mark.parametrize("name", SAMPLED)
def test_load_sample_of_a_large_set(name, data_home):
    n_rows, n_features, positive = SAMPLED[name]
    dataset = load(name, data_home=data_home)
    assert_sound(dataset)
    assert dataset.data.shape == (n_rows, n_features)
    assert dataset.target.mean() == pytest.approx(positive, abs=5e-4)


@pytest.mark.parametrize("name", REGRESSION)
def test_load_regression(name, data_home):
    dataset = load(name, data_home=data_home)
    assert_sound(dataset)
    assert dataset.task == "regression"
    assert dataset.data.shape == REGRESSION[name]
    assert pd.api.types.is_numeric_dtype(dataset.target)


@pytest.mark.parametrize("name", PUBLISHED_SPLITS)
def test_parties_are_the_published_ones(name, data_home):
    published = json.loads((data_home / "splits.json").read_text())
    published = published[PUBLISHED_SPLITS[name]]
    dataset = load(name, data_home=data_home)
    assert dataset.target.name == published["target"]
    assert dataset.parties == {
        party: columns
        for party, columns in published.items()
        if isinstance(columns, list) and party != "unused"
    }


def test_adult_has_strings_numbers_and_missing_values(data_home):
    adult = load("adult", data_home=data_home)
    missing = adult.data.isna().sum()
    assert missing[missing > 0].index.tolist() == [
        "workclass",
        "occupation",
        "native-country",
    ]
    assert not (adult.data == "?").any(axis=None)
    assert adult.data["occupation"].map(type).isin([str, float]).all()
    assert pd.api.types.is_integer_dtype(adult.data["age"])


def test_available_lists_what_can_be_loaded(data_home):
    assert set(available(data_home)) == {*SHIPPED, *LOCAL}


def test_available_reads_the_environment(tmp_path, monkeypatch):
    (tmp_path / "susy_10k.csv.gz").touch()
    monkeypatch.setenv("SKVFL_DATA", str(tmp_path))
    assert available() == [*SHIPPED, "susy"]


def test_available_without_a_folder(no_folder):
    assert available() == SHIPPED


def write_housing(folder, columns):
    table = pd.DataFrame([range(len(columns)), range(len(columns))], columns=columns)
    table.to_csv(folder / "california_housing.csv.gz", index=False)


HOUSING = [
    "MedInc",
    "HouseAge",
    "AveRooms",
    "AveBedrms",
    "Population",
    "AveOccup",
    "Latitude",
    "Longitude",
    "MedHouseVal",
]


def test_load_reads_the_environment(tmp_path, monkeypatch):
    write_housing(tmp_path, HOUSING)
    monkeypatch.setenv("SKVFL_DATA", str(tmp_path))
    housing = load("california_housing")
    assert_sound(housing)
    assert housing.data.shape == (2, 8)
    assert housing.target.tolist() == [8, 8]


@pytest.mark.parametrize("columns", [HOUSING[1:], ["Price", *HOUSING]])
def test_load_refuses_a_file_with_other_columns(columns, tmp_path):
    write_housing(tmp_path, columns)
    with pytest.raises(ValueError, match="'california_housing' has other columns"):
        load("california_housing", data_home=tmp_path)


@pytest.mark.parametrize("n_rows", [1, 2, 100, 568, 569])
def test_n_rows_takes_rows_of_the_whole_table_in_order(n_rows):
    whole = load("breast_cancer")
    sample = load("breast_cancer", n_rows=n_rows)
    assert_sound(sample)
    assert len(sample.data) == n_rows
    assert sample.data.index.is_monotonic_increasing
    assert sample.data.index.is_unique
    pd.testing.assert_frame_equal(sample.data, whole.data.loc[sample.data.index])
    pd.testing.assert_series_equal(sample.target, whole.target[sample.data.index])


def test_n_rows_is_stratified():
    target = load("digits", n_rows=180).target
    expected = load("digits").target.value_counts() * 180 / 1797
    assert (target.value_counts() - expected).abs().max() <= 1


def test_n_rows_depends_on_random_state_alone():
    first = load("digits", n_rows=50).data.index
    assert first.equals(load("digits", n_rows=50, random_state=0).data.index)
    assert not first.equals(load("digits", n_rows=50, random_state=1).data.index)


def test_n_rows_of_a_regression_set_is_not_stratified(data_home):
    dataset = load("california_housing", data_home=data_home, n_rows=500)
    assert dataset.data.shape == (500, 8)


@pytest.mark.parametrize("n_rows", [0, -1, 570, 0.5])
def test_n_rows_out_of_range(n_rows):
    with pytest.raises(ValueError, match="n_rows must be between 1 and 569"):
        load("breast_cancer", n_rows=n_rows)


def test_sampling_leaves_the_global_random_state_alone(rng_guard):
    load("digits", n_rows=50)


def test_parties_can_be_changed_without_changing_the_next_load():
    load("digits").parties["top_left"].clear()
    assert len(load("digits").parties["top_left"]) == 16


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no data set 'mnist'.*'breast_cancer'"):
        load("mnist")


def test_no_folder_says_how_to_name_one(no_folder):
    with pytest.raises(FileNotFoundError, match=r"SKVFL_DATA .*adult\.csv\.gz"):
        load("adult")


def test_missing_file_names_folder_and_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"does not hold adult\.csv\.gz.*SKVFL"):
        load("adult", data_home=tmp_path)


def test_without_pandas_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"skvfl\[frames\]"):
        load("digits")


def test_two_companies_have_ids_mixed_types_and_missing_cells(rng_guard):
    two = make_two_companies(n_samples=400, overlap=0.5, missing=0.1, random_state=3)
    bank, shop = two.tables["bank"], two.tables["shop"]
    assert len(bank) == len(shop) == 400
    assert bank["customer"].is_unique
    assert shop["customer"].is_unique
    assert len({*bank["customer"]} & {*shop["customer"]}) == 200
    assert two.target.index.tolist() == bank["customer"].tolist()
    for table in (bank, shop):
        columns = table.drop(columns="customer")
        kinds = {dtype.kind for dtype in columns.dtypes}
        assert {"f", "b", "M"} < kinds
        assert 0.05 < columns.isna().to_numpy().mean() < 0.15
    complete = make_two_companies(n_samples=50, missing=0, random_state=0)
    assert not complete.tables["bank"].isna().any(axis=None)


def test_two_companies_are_repeatable():
    first, again = (make_two_companies(n_samples=60, random_state=1) for _ in range(2))
    for name, table in first.tables.items():
        pd.testing.assert_frame_equal(table, again.tables[name])
    pd.testing.assert_series_equal(first.target, again.target)
    other = make_two_companies(n_samples=60, random_state=2)
    assert not other.tables["bank"].equals(first.tables["bank"])
    assert other.gain == first.gain


def test_the_gain_of_two_companies_is_what_it_is_said_to_be():
    """A linear model, which has the right form, comes close to what is possible."""
    two = make_two_companies(n_samples=6000, overlap=1, missing=0, random_state=0)
    aligned = align(two.tables, on=two.on)
    y = two.target[aligned.ids]
    assert two.gain == two.best_together - two.best_alone > 0.05
    scores = {
        name: cross_val_score(
            make_pipeline(
                VerticalPartitioner(parties=parties, remainder="drop"),
                LogisticRegression(max_iter=1000),
            ),
            aligned.table,
            y,
        ).mean()
        for name, parties in [
            ("alone", {"bank": aligned.parties["bank"]}),
            ("together", aligned.parties),
        ]
    }
    assert scores["alone"] == pytest.approx(two.best_alone, abs=0.015)
    assert scores["together"] == pytest.approx(two.best_together, abs=0.015)


def test_two_companies_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"skvfl\[frames\]"):
        make_two_companies(n_samples=20)


def as_openml_has_it(name, data_home):
    """The file's rows as ``fetch_openml`` gives them."""
    path = data_home / _DATASETS[name].file
    frame = pd.read_csv(path, nrows=500, na_values="?")
    frame = frame.drop(columns="ID", errors="ignore")
    names = dict(OPENML[name])
    columns = [each for each in frame.columns if each not in names]
    if name in NUMBERED:
        names |= {each: f"{NUMBERED[name]}{i}" for i, each in enumerate(columns, 1)}
    frame = frame.rename(columns=names)
    if name == "bank_marketing":
        frame["Class"] = frame["Class"].map({"no": "1", "yes": "2"})
    # Codes are categories of text there.
    nominal = [
        column
        for column in frame.columns
        if name == "phishing" or not pd.api.types.is_numeric_dtype(frame[column])
    ]
    for column in {*nominal, frame.columns[-1]}:
        frame[column] = frame[column].astype("category").cat.rename_categories(str)
    return frame


@pytest.mark.parametrize("name", [name for name in OPENML if name != "covtype"])
def test_what_is_downloaded_is_the_file(name, data_home, no_folder, monkeypatch):
    fetched = as_openml_has_it(name, data_home)
    asked = []

    def fetch_openml(**settings):
        asked.append(settings["data_id"])
        return Bunch(frame=fetched)

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    downloaded = load(name, download_if_missing=True)
    local = load(name, data_home=data_home)
    assert_sound(downloaded)
    assert len(asked) == 1
    assert downloaded.parties == local.parties
    for ours, theirs in (
        (downloaded.data.columns.tolist(), local.data.columns.tolist()),
        (downloaded.target[:200].tolist(), local.target[:200].tolist()),
    ):
        assert ours == theirs
    first, second = (
        each.data[:200].astype(object).where(each.data[:200].notna(), None)
        for each in (downloaded, local)
    )
    assert first.to_numpy().tolist() == second.to_numpy().tolist()
    # The folder comes first, where it has the file.
    load(name, data_home=data_home, download_if_missing=True, n_rows=50)
    assert len(asked) == 1


def test_without_a_network_the_cure_is_said(no_folder, monkeypatch):
    def fails(**settings):
        raise URLError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fails)
    with pytest.raises(
        ConnectionError, match=r"connection to openml.org, or set SKVFL"
    ):
        load("adult", download_if_missing=True)
    with pytest.raises(ValueError, match=r"'susy' cannot be downloaded.*'adult'"):
        load("susy", download_if_missing=True)
    with pytest.raises(FileNotFoundError, match="set download_if_missing=True"):
        load("adult")
