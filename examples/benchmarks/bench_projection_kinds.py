"""What each kind of projection costs in accuracy and gives to an attacker.

Prints one JSON object per line. A full run also records the lines in
``docs/benchmarks/projection_kinds.jsonl``. Needs the data sets in the folder that the
environment variable SKVFL_DATA names.

    python bench_projection_kinds.py [--quick] [attacks | distances | accuracy ...]

The attacker is the server. It holds one party's projected block and tries to
reconstruct the standardised columns behind it. A reconstruction is scored by the
squared correlation of each guessed column with the true one, averaged over the columns
(``value``), and by the share of columns where it is at least 0.9 (``recovered``). Where
the attacker has to find order and signs itself, a guess with the wrong sign scores 0.
Lines with ``"matched": true`` pick the best order and sign with the truth in hand: they
say what lies open, not what an attacker can name. Single columns are scored up to sign.
"""

import json
import warnings
from collections import defaultdict
from contextlib import contextmanager
from functools import cache
from itertools import product
from unittest import mock

import numpy as np
import pandas as pd
from _data import halves
from _measure import machine
from _record import command, run
from _seeds import standard_error
from scipy.optimize import linear_sum_assignment
from scipy.stats import kurtosis
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA, FastICA
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from skvfl import GaussianProjection
from skvfl.datasets import available, load
from skvfl.rap import _projection

PARTS = ("attacks", "distances", "accuracy")
N_PARTIES = 4
LEARNING_RATES = (0.001, 0.003, 0.01)

# kind of the matrix, and the condition number that bounds a "conditioned" one
KINDS = {
    "orthogonal": ("orthogonal", None),
    "conditioned 2": ("conditioned", 2.0),
    "conditioned 4": ("conditioned", 4.0),
    "conditioned 16": ("conditioned", 16.0),
    "gaussian": ("gaussian", None),
}
SEARCHED = ("none", "orthogonal", "conditioned 4", "gaussian")
WHITENED = ("orthogonal", "gaussian")

# data set: rows, epochs of the MLP, seeds
ACCURACY = {
    "breast_cancer": (None, 100, 10),
    "digits": (None, 50, 6),
    "susy": (None, 20, 6),
    "higgs": (None, 20, 6),
    "covtype": (30_000, 40, 3),
}
ADULT_COLUMNS = ["age", "educational-num", "capital-gain", "hours-per-week"]
ADULT_COLUMNS += ["gender", "race"]
COVTYPE_NUMBERS = [
    "Elevation",
    "Aspect",
    "Slope",
    "Horizontal_Distance_To_Hydrology",
    "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways",
    "Hillshade_9am",
    "Hillshade_Noon",
    "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
]


def line(measurement, dataset, kind, values, **more):
    """One line: the mean over seeds, and the spread."""
    values = np.asarray(values, dtype=float)
    return {
        "measurement": measurement,
        "dataset": dataset,
        "kind": kind,
        "seeds": len(values),
        "value": round(values.mean(), 4),
        "sd": round(values.std(), 4),
        **more,
    }


def reconstructed(measurement, dataset, kind, scores, **more):
    """One line for reconstructions: a row of scores per seed."""
    scores = np.asarray(scores)
    more = {"recovered": round(float((scores >= 0.9).mean()), 3), **more}
    return line(measurement, dataset, kind, scores.mean(axis=1), **more)


@cache
def table(name, n_rows=None):
    """Columns and target, or None with a line that says so."""
    if name in available():
        data = load(name)
        rows = slice(None)
        if n_rows is not None and n_rows < len(data.data):
            rows = np.random.default_rng(0).choice(len(data.data), n_rows, False)
        return data.data.iloc[rows], data.target.iloc[rows]
    print(json.dumps({"dataset": name, "skipped": "not in $SKVFL_DATA"}), flush=True)
    return None


@contextmanager
def bounded(kind):
    """The projection's settings for a kind, whose matrix it bounds."""
    matrix_kind, bound = KINDS[kind]
    with mock.patch.object(_projection, "CONDITION_NUMBER", bound):
        yield matrix_kind


def projected(X, kind, seed):
    """One party's block as the server sees it."""
    with bounded(kind) as matrix_kind:
        return GaussianProjection(kind=matrix_kind, random_state=seed).fit_transform(X)


def deal(n_columns, seed):
    """Deal the permuted columns to the parties."""
    columns = np.random.default_rng(seed).permutation(n_columns)
    return [columns[party::N_PARTIES] for party in range(N_PARTIES)]


# --- Accuracy --------------------------------------------------------------------


def received(train, others, parties, kind, seed):
    """Projected columns of all parties, for the training rows and for other rows."""
    if kind == "none":
        return [train, *others]
    blocks = []
    with bounded(kind) as matrix_kind:
        for party, columns in enumerate(parties):
            projection = GaussianProjection(
                kind=matrix_kind, random_state=100 * seed + party
            )
            projection.fit(train[:, columns])
            every = (train, *others)
            blocks.append([projection.transform(X[:, columns]) for X in every])
    return [np.hstack(parts) for parts in zip(*blocks, strict=True)]


def whitened(train, *others):
    pca = PCA(n_components=np.linalg.matrix_rank(train), whiten=True).fit(train)
    return [pca.transform(X) for X in (train, *others)]


def fitted_accuracies(train, valid, test, kind, epochs, seed):
    """Test accuracy of the models, and the passes of logistic regression."""
    logistic = LogisticRegression(max_iter=1000).fit(*train)
    accuracies = {
        "logistic": logistic.score(*test),
        "logistic_iterations": int(logistic.n_iter_[0]),
    }
    rates = LEARNING_RATES if kind in SEARCHED else LEARNING_RATES[:1]
    mlps = [
        MLPClassifier(
            (128,), learning_rate_init=rate, max_iter=epochs, random_state=seed
        ).fit(*train)
        for rate in rates
    ]
    accuracies["mlp"] = mlps[0].score(*test)
    if kind in SEARCHED:
        best = max(mlps, key=lambda mlp: mlp.score(*valid))
        accuracies["mlp_rate_searched"] = best.score(*test)
    return accuracies


def measure_accuracy(name, n_rows, epochs, n_seeds):
    """Accuracy on the projected columns, and the difference to the columns."""
    data = table(name, n_rows)
    if data is None:
        return
    X, y = data[0].to_numpy(dtype=float), data[1].to_numpy()
    results = []
    for seed in range(n_seeds):
        parties = deal(X.shape[1], seed)
        rest, X_test, y_rest, y_test = halves(X, y, seed, 0.2)
        X_train, X_valid, y_train, y_valid = halves(rest, y_rest, seed, 0.125)
        scaler = StandardScaler().fit(X_train)
        X_train, *others = map(scaler.transform, (X_train, X_valid, X_test))
        views = {
            kind: received(X_train, others, parties, kind, seed)
            for kind in ("none", *KINDS)
        }
        for kind in WHITENED:
            views[f"{kind} + whitening"] = whitened(*views[kind])
        targets = (y_train, y_valid, y_test)
        parts = {k: zip(view, targets, strict=True) for k, view in views.items()}
        results.append(
            {k: fitted_accuracies(*each, k, epochs, seed) for k, each in parts.items()}
        )
    for kind, first in results[0].items():
        for model in first:
            values = np.array([result[kind][model] for result in results])
            plain = np.array([result["none"].get(model, np.nan) for result in results])
            difference = values - plain
            yield line(
                f"accuracy_{model}",
                name,
                kind,
                values,
                difference=round(difference.mean(), 4),
                difference_se=round(standard_error(difference), 4),
            )


# --- Attacks on one block ---------------------------------------------------------


def blocks():
    """Real blocks of one party: numbers, and numbers with categories."""
    wanted = {
        "california_housing": None,
        "breast_cancer": None,
        "covtype": COVTYPE_NUMBERS,
        "adult": ADULT_COLUMNS,
    }
    for name, columns in wanted.items():
        data = table(name, 10_000 if name != "breast_cancer" else None)
        if data is not None:
            frame = data[0] if columns is None else data[0][columns]
            if name == "breast_cancer":
                frame = frame.iloc[:, :10]
            yield name, StandardScaler().fit_transform(pd.get_dummies(frame))


def squared_correlations(X, guess):
    """Between each column of X (rows) and each guessed column."""
    X = X - X.mean(axis=0)
    guess = guess - guess.mean(axis=0)
    X = X / np.linalg.norm(X, axis=0)
    guess = guess / np.maximum(np.linalg.norm(guess, axis=0), 1e-12)
    correlations = X.T @ guess
    return correlations * np.abs(correlations)


def score(X, guess):
    return np.clip(np.diag(squared_correlations(X, guess)), 0, None)


def matched_score(X, guess):
    scores = np.abs(squared_correlations(X, guess))
    rows, columns = linear_sum_assignment(-scores)
    result = np.zeros(X.shape[1])
    result[rows] = scores[rows, columns]
    return result


def principal(X):
    """Standard deviations and axes of the principal components, as far as any."""
    _, lengths, axes = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    keep = lengths > 1e-9 * lengths[0]
    return lengths[keep] / np.sqrt(len(X)), axes[keep].T


def moments(X):
    """Covariance of the columns, and their skewness."""
    return np.cov(X, rowvar=False, bias=True), (X**3).mean(axis=0)


def from_covariance(Z, covariance, skewness, rescale=False):
    """Match principal components by variance, then signs by the columns' skewness.

    With ``rescale`` the components get the known variances, as any reconstruction with
    the right covariance has; without, the matrix is taken to be orthogonal.
    """
    scale, axes = principal(Z)
    components = (Z - Z.mean(axis=0)) @ axes
    rank = len(scale)
    variances, known_axes = np.linalg.eigh(covariance)
    known_axes = known_axes[:, ::-1][:, :rank]
    if rescale:
        components *= np.sqrt(np.clip(variances[::-1][:rank], 0, None)) / scale
    pairs = (components[:, :, None] * components[:, None, :]).reshape(len(Z), -1)
    third = (components.T @ pairs / len(Z)).reshape(rank, rank, rank)
    signs = np.array(list(product([1.0, -1.0], repeat=rank)))
    mixed = signs[:, None, :] * known_axes
    guessed = np.einsum(
        "sji,sjk,sjl,ikl->sj", mixed, mixed, mixed, third, optimize=True
    )
    errors = ((np.cbrt(guessed) - np.cbrt(skewness)) ** 2).sum(axis=1)
    return components @ mixed[errors.argmin()].T


def third_moment_axes(X):
    """Coordinates of the rows that any invertible matrix before them leaves alone.

    Whitening leaves an unknown rotation, and rotates the third moments with it: their
    trace is a vector, and their product with it a symmetric matrix, whose eigenvectors
    are the coordinates.
    """
    scale, axes = principal(X)
    white = (X - X.mean(axis=0)) @ axes / scale
    trace = (white * (white**2).sum(axis=1)[:, None]).mean(axis=0)
    matrix = (white * (white @ trace)[:, None]).T @ white / len(X)
    _, rotation = np.linalg.eigh(matrix)
    rotation *= np.sign(trace @ rotation)
    return white @ rotation, rotation.T @ (axes * scale).T


def from_third_moments(Z, statistics):
    """Undo any invertible matrix with the covariance and all third moments."""
    coordinates, _ = third_moment_axes(Z)
    known, mixing = third_moment_axes(statistics)
    rank = min(coordinates.shape[1], known.shape[1])
    return coordinates[:, :rank] @ mixing[:rank]


def independent_components(X, seed):
    """Sources of unit variance, and the matrix that mixes them into the columns."""
    ica = FastICA(len(principal(X)[0]), max_iter=300, random_state=seed)
    sources = ica.fit_transform(X)
    return sources, ica.mixing_.T


def from_sources(Z, known, mixing, seed):
    """Match the independent components with known sources by their quantiles.

    With the components of another sample of the same population as ``known``, and the
    matrix that mixes them into the columns there: both tables have the same components
    up to order and sign. With the columns themselves as ``known`` and no mixing, the
    attacker takes each component for the column whose histogram it resembles.
    """
    levels = np.linspace(0.01, 0.99, 99)
    known_quantiles = np.quantile(known, levels, axis=0).T
    best_cost, best_guess = np.inf, None
    for start in range(3):
        sources, _ = independent_components(Z, 10 * seed + start)
        quantiles = np.quantile(sources, levels, axis=0).T
        costs = np.stack(
            [
                ((known_quantiles[:, None] - candidate) ** 2).mean(axis=2)
                for candidate in (quantiles, -quantiles[:, ::-1])
            ]
        )
        signs = 1 - 2 * costs.argmin(axis=0)
        costs = costs.min(axis=0)
        rows, columns = linear_sum_assignment(costs)
        if costs[rows, columns].sum() < best_cost:
            best_cost = costs[rows, columns].sum()
            best_guess = (sources[:, columns] * signs[rows, columns]) @ mixing[rows]
    return best_guess


def from_histogram(Z, sample):
    """The direction of two received columns whose values are spread as the sample's."""
    scale, axes = principal(Z)
    white = (Z - Z.mean(axis=0)) @ axes / scale
    angles = np.linspace(0, 2 * np.pi, 180, endpoint=False)
    directions = np.array([np.cos(angles), np.sin(angles)])
    levels = np.linspace(0.01, 0.99, 99)
    quantiles = np.quantile(white[:2000] @ directions, levels, axis=0)
    errors = ((quantiles - np.quantile(sample, levels)[:, None]) ** 2).sum(axis=0)
    return white @ directions[:, [errors.argmin()]]


def from_rows(Z, rows, values):
    """Minimum-norm least squares on rows whose values the attacker knows."""
    return Z @ np.linalg.lstsq(Z[rows], values, rcond=1e-9)[0]


def standardised_lengths(X):
    """Length of each row after whitening: the same under any invertible matrix."""
    scale, axes = principal(X)
    return np.linalg.norm((X - X.mean(axis=0)) @ axes / scale, axis=1)


def find_rows(lengths, known_lengths):
    """For each known row, the received row of the most similar length."""
    return np.abs(lengths[:, None] - known_lengths).argmin(axis=0)


def measure_attacks(name, X, n_seeds):
    n_columns = X.shape[1]
    rank = len(principal(X)[0])
    about = {"matched": False, "columns": n_columns, "rank": rank}
    order = np.random.default_rng(1).permutation(len(X))
    half, other = X[order[::2]], X[order[1::2]]
    known, estimated = moments(X), moments(other)
    rounded = [statistic.round(2) for statistic in known]
    sources_of_other = independent_components(other, 0)
    for kind in KINDS:
        scores = defaultdict(list)

        def add(attack, result, scores=scores):
            scores[attack].append(result)

        for seed in range(n_seeds):
            Z = projected(X, kind, seed)
            add("received_columns", matched_score(X, Z))
            for knows, guess in (
                ("covariance", from_covariance(Z, *known)),
                ("covariance_rescaled", from_covariance(Z, *known, rescale=True)),
                ("covariance_two_decimals", from_covariance(Z, *rounded)),
                ("third_moments", from_third_moments(Z, X)),
            ):
                add(knows, score(X, guess))
            sources, _ = independent_components(Z, seed)
            add("independent_components", matched_score(X, sources))
            Z_half = projected(half, kind, seed)
            guess = from_covariance(Z_half, *estimated)
            add("covariance_of_a_sample", score(half, guess))
            guess = from_third_moments(Z_half, other)
            add("third_moments_of_a_sample", score(half, guess))
            guess = from_sources(Z_half, other, np.eye(n_columns), seed)
            add("histograms", score(half, guess))
            add("sample", score(half, from_sources(Z_half, *sources_of_other, seed)))

            chosen = np.random.default_rng(seed).permutation(len(X))[: 2 * n_columns]
            hidden = np.delete(np.arange(len(X)), chosen)
            counts = {"half_of_F": n_columns // 2, "F_minus_1": n_columns - 1}
            counts |= {"F": n_columns, "2F": 2 * n_columns}
            for known_rows, n in counts.items():
                guess = from_rows(Z, chosen[:n], X[chosen[:n]])
                add(f"rows_{known_rows}", score(X[hidden], guess[hidden]))
            lengths = np.linalg.norm(Z, axis=1), np.linalg.norm(X[chosen], axis=1)
            guess = from_rows(Z, find_rows(*lengths), X[chosen])
            add("rows_without_identity", score(X, guess))
            lengths = standardised_lengths(Z), standardised_lengths(X)[chosen]
            guess = from_rows(Z, find_rows(*lengths), X[chosen])
            add("rows_without_identity_and_covariance", score(X, guess))
        for attack, values in scores.items():
            about["matched"] = attack in ("received_columns", "independent_components")
            yield reconstructed(f"attack_{attack}", name, kind, values, **about)


def categories(frame):
    return frame.astype(str).agg(" ".join, axis=1)


def measure_frequencies(n_seeds):
    """Share of rows whose category the order of the frequencies gives away."""
    several = ["marital-status", "race", "gender"]
    cases = [
        ("bank_marketing", "job", ["job"]),
        ("adult", " x ".join(several), several),
        ("adult", "age (single column)", ["age"]),
    ]
    for name, label, columns in cases:
        data = table(name)
        if data is None:
            continue
        half, other = train_test_split(data[0], test_size=0.5, random_state=0)
        X = StandardScaler().fit_transform(pd.get_dummies(half[columns]))
        truth = categories(half[columns])
        for knows, source in (("these rows", half), ("a sample", other)):
            ranking = categories(source[columns]).value_counts().index
            more = {"frequencies_of": knows}
            for kind in KINDS:
                values = []
                for seed in range(n_seeds):
                    guess, more["distinct"] = by_rank(projected(X, kind, seed), ranking)
                    values.append(np.mean(guess == truth.array))
                label_of = f"{name}: {label}"
                yield line("attack_frequencies", label_of, kind, values, **more)


def by_rank(Z, ranking):
    """Guess categories: the most frequent row is the first; the number of rows."""
    _, groups, counts = np.unique(
        Z.round(6), axis=0, return_inverse=True, return_counts=True
    )
    place = np.empty(len(counts), dtype=int)
    place[np.argsort(-counts)] = np.arange(len(counts))
    return ranking[np.minimum(place[groups], len(ranking) - 1)], len(counts)


def measure_single_columns(n_seeds):
    """A single column beside its pseudo column."""
    wanted = [
        ("california_housing", "MedInc"),
        ("california_housing", "HouseAge"),
        ("covtype", "Elevation"),
        ("adult", "age"),
        ("breast_cancer", "mean radius"),
    ]
    columns = {"normal numbers": np.random.default_rng(0).standard_normal(10_000)}
    for name, column in wanted:
        data = table(name, 10_000 if name != "breast_cancer" else None)
        if data is not None:
            columns[f"{name}: {column}"] = data[0][column].to_numpy(dtype=float)
    for label, column in columns.items():
        X = StandardScaler().fit_transform(column[:, None])
        X = np.random.default_rng(0).permutation(X)
        X, sample = X[::2], X[1::2]
        for kind in KINDS:
            scores = defaultdict(list)
            for seed in range(n_seeds):
                Z = projected(X, kind, seed)
                sources, _ = independent_components(Z, seed)
                least_normal = np.argmax(np.abs(kurtosis(sources)))
                guesses = {
                    "first_received": (Z[:, :1], False),
                    "first_principal": (PCA(1).fit_transform(Z), False),
                    "best_received": (Z, True),
                    "least_normal_component": (sources[:, [least_normal]], False),
                    "independent_components": (sources, True),
                    "histogram": (from_histogram(Z, sample), False),
                }
                for attack, (guess, matched) in guesses.items():
                    scores[attack, matched].append(matched_score(X, guess))
            for (attack, matched), values in scores.items():
                yield reconstructed(
                    f"single_{attack}", label, kind, values, matched=matched
                )


# --- Distances --------------------------------------------------------------------


def measure_distances(n_seeds):
    """Clusters, neighbours and outliers on projected columns against the columns."""
    data = table("covtype", 10_000)
    if data is None:
        return
    X = StandardScaler().fit_transform(data[0][COVTYPE_NUMBERS])

    def clusters(X, seed):
        return KMeans(7, n_init=3, random_state=seed).fit_predict(X)

    def neighbours(X, seed):
        return NearestNeighbors(n_neighbors=10).fit(X).kneighbors(return_distance=False)

    def outliers(scores):
        return set(np.argsort(scores)[: len(X) // 100])

    def isolated(X, seed):
        return outliers(IsolationForest(random_state=seed).fit(X).score_samples(X))

    def sparse_places(X, seed):
        return outliers(LocalOutlierFactor().fit(X).negative_outlier_factor_)

    def recall(expected, found):
        pairs = zip(expected, found, strict=True)
        return np.mean([len(np.intersect1d(*pair)) / 10 for pair in pairs])

    def overlap(expected, found):
        return len(expected & found) / len(expected)

    measures = {
        "kmeans_ari": (clusters, adjusted_rand_score),
        "neighbours_recall": (neighbours, recall),
        "isolation_forest_overlap": (isolated, overlap),
        "local_outlier_overlap": (sparse_places, overlap),
    }
    plain = {measure: find(X, 0) for measure, (find, _) in measures.items()}
    for kind in ("none, other seed", *KINDS):
        values = defaultdict(list)
        for seed in range(n_seeds):
            Z, model_seed = X, seed + 1
            if kind in KINDS:
                (Z,) = received(X, [], deal(X.shape[1], seed), kind, seed)
                model_seed = 0
            for measure, (find, compare) in measures.items():
                seen = compare(plain[measure], find(Z, model_seed))
                values[measure].append(seen)
        for measure, numbers in values.items():
            yield line(measure, "covtype", kind, numbers)


def measure(quick, parts=PARTS):
    """Yield the lines of some parts, or of all."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    yield {"measurement": "machine", **machine(quick, "numpy", "scikit-learn")}
    if "attacks" in parts:
        for name, X in blocks():
            yield from measure_attacks(name, X, 2 if quick else 6)
        yield from measure_frequencies(2 if quick else 5)
        yield from measure_single_columns(5 if quick else 20)
    if "distances" in parts:
        yield from measure_distances(2 if quick else 5)
    if "accuracy" in parts:
        for name, (n_rows, epochs, n_seeds) in ACCURACY.items():
            if quick:
                n_rows, epochs, n_seeds = n_rows and 5_000, epochs // 2, 2
            yield from measure_accuracy(name, n_rows, epochs, n_seeds)


if __name__ == "__main__":
    options = command(__doc__, page=False, parts=PARTS).parse_args()
    run(options, "projection_kinds", measure)
