"""What the RAP paper claims, as bounds on real data with the margin stated."""

import numpy as np
import pytest
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler

from skvfl import GaussianProjection, RandomProjectionVFL, RoundRobin
from skvfl.datasets import load

pytestmark = [
    pytest.mark.slow,
    # Epochs are fixed on purpose.
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
SEEDS = range(3)


def scores(name, data_home, n_rows, epochs, **settings):
    """Mean accuracy of centralised training and of RAP, over paired seeds."""
    bunch = load(name, data_home=data_home, n_rows=n_rows)
    X, y = bunch.data.to_numpy(dtype=float), np.asarray(bunch.target)
    pairs = []
    for seed in SEEDS:
        split = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
        X_train, X_test, y_train, y_test = split
        model = MLPClassifier(
            (128,), max_iter=epochs, n_iter_no_change=epochs, random_state=seed
        )
        scaler = StandardScaler().fit(X_train)
        central = model.fit(scaler.transform(X_train), y_train)
        vfl = RandomProjectionVFL(
            model,
            parties=RoundRobin(4, shuffle=True, random_state=seed),
            random_state=seed,
            **settings,
        ).fit(X_train, y_train)
        pairs.append(
            [
                central.score(scaler.transform(X_test), y_test),
                vfl.score(X_test, y_test),
            ]
        )
    return np.mean(pairs, axis=0)


@pytest.mark.parametrize("name", ["susy", "higgs", "covtype"])
def test_accuracy_matches_centralised_training(data_home, name):
    """Table 3: within 0.03 points in the paper, within 1 point of 3 short runs here."""
    central, rap = scores(name, data_home, 8000, 15, label_protection=False)
    assert central > 0.6
    assert abs(central - rap) < 0.010


def test_aliases_cost_little(data_home):
    """0.03 points in the paper; half a point in our longest runs, bounded by 2 here."""
    central, rap = scores("covtype", data_home, 8000, 15)
    assert central - rap < 0.020


def test_the_papers_matrix_trains_too(data_home):
    """The square Gaussian matrix is badly conditioned; bounded by 4 points here."""
    central, rap = scores(
        "susy",
        data_home,
        8000,
        15,
        label_protection=False,
        projection=GaussianProjection(kind="gaussian"),
    )
    assert central - rap < 0.040


def test_regression_error_matches_centralised_training(data_home):
    """Table 3: RMSE within 0.15 in the paper, within 5 % here."""
    bunch = load("california_housing", data_home=data_home, n_rows=8000)
    X, y = bunch.data.to_numpy(dtype=float), np.asarray(bunch.target, dtype=float)
    errors = []
    for seed in SEEDS:
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, test_size=0.3, random_state=seed
        )
        model = MLPRegressor(hidden_layer_sizes=(128,), max_iter=30, random_state=seed)
        scaler = StandardScaler().fit(X_train)
        mean, scale = y_train.mean(), y_train.std()
        central = model.fit(scaler.transform(X_train), (y_train - mean) / scale)
        predicted = central.predict(scaler.transform(X_test)) * scale + mean
        vfl = RandomProjectionVFL(model, parties=4, random_state=seed)
        vfl.fit(X_train, y_train)
        errors.append(
            [
                np.sqrt(np.mean((predicted - y_test) ** 2)),
                np.sqrt(np.mean((vfl.predict(X_test) - y_test) ** 2)),
            ]
        )
    central, rap = np.mean(errors, axis=0)
    assert rap < 1.05 * central


def test_one_feature_clients_are_harmless(data_home):
    """Figures 6 and 7: five of ten parties hold a single column; within 1.5 points."""
    bunch = load("susy", data_home=data_home, n_rows=8000)
    X, y = bunch.data.to_numpy(dtype=float), np.asarray(bunch.target)
    parties = {f"single{i}": [i] for i in range(5)}
    parties |= {f"party{i}": range(5 + i, 18, 5) for i in range(5)}
    split = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    X_train, X_test, y_train, y_test = split
    model = MLPClassifier((128,), max_iter=15, n_iter_no_change=15, random_state=0)
    scaler = StandardScaler().fit(X_train)
    central = model.fit(scaler.transform(X_train), y_train)
    vfl = RandomProjectionVFL(
        model, parties=parties, label_protection=False, random_state=0
    ).fit(X_train, y_train)
    assert vfl.transform(X_test).shape[1] == 18 + 5
    difference = central.score(scaler.transform(X_test), y_test) - vfl.score(
        X_test, y_test
    )
    assert difference < 0.015
