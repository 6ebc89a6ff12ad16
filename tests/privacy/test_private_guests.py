"""What a budget does not bound: the host reads a default guest's columns.

These tests do what the guide and ``epsilon_spent_.not_covered`` say can be done, so
that the sentences stay true; a guest that sends fewer numbers is the control.
"""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from skvfl import FedOnceClassifier, PartyPreprocessor, RandomFeaturesEncoder

COLUMNS = [*range(10, 20), 21, 24]
PARTIES = {"host": range(10), "guest": COLUMNS}


@pytest.fixture(scope="module")
def tables():
    X, y = load_breast_cancer(return_X_y=True)
    prepared = PartyPreprocessor().fit_transform(X[:, COLUMNS])
    return X, y, np.asarray(prepared, dtype=float)


def fit(tables, n_components):
    X, y, _ = tables
    return FedOnceClassifier(
        parties={**PARTIES, "nobody": [20, 22, 23, *range(25, 30)]},
        local_encoder={
            "guest": RandomFeaturesEncoder(n_components),
            "nobody": RandomFeaturesEncoder(1),
        },
        max_epochs=1,
        epsilon=4.0,
        random_state=0,
    ).fit(X, y)


def sent(once, X, n_components):
    """What the host receives from the guest, without the tanh."""
    representation = once.transform(X)[:, 32 : 32 + n_components].astype(float)
    return np.arctanh(np.clip(representation, -1 + 1e-7, 1 - 1e-7))


def explained(found, columns):
    return 1 - ((found - columns) ** 2).mean(axis=0) / columns.var(axis=0)


@pytest.mark.parametrize(("n_components", "read"), [(32, True), (4, False)])
def test_a_host_that_knows_some_rows_reads_the_others(tables, n_components, read):
    X, _, columns = tables
    once = fit(tables, n_components)
    design = np.column_stack([sent(once, X, n_components), np.ones(len(X))])
    known = 50
    weights = np.linalg.lstsq(design[:known], columns[:known], rcond=1e-6)[0]
    found = explained(design[known:] @ weights, columns[known:])
    assert (found > 0.99).all() if read else (found < 0.99).all()
    said = [s for s in once.epsilon_spent_.not_covered if "columns of 'guest'" in s]
    assert len(said) == read


@pytest.mark.parametrize(("n_components", "read"), [(32, True), (4, False)])
def test_a_host_that_knows_the_directions_reads_every_cell(tables, n_components, read):
    X, _, columns = tables
    once = fit(tables, n_components)
    directions = once._parties["guest"]._encoder.components_
    found = sent(once, X, n_components) @ np.linalg.pinv(directions)
    error = np.median(np.abs(found - columns))
    assert error < 1e-5 if read else error > 0.1
