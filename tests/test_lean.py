"""What is computed in pieces or by other means is what it was in one go."""

import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch import nn

from skvfl import PartyPreprocessor, SplitNNClassifier, TabVFLClassifier
from skvfl.nn._steps import PIECE, epoch_loss, infer
from skvfl.partition._preprocessing import SAMPLE
from skvfl.rap._projection import GaussianProjection, random_matrix
from skvfl.splitnn import _estimator as splitnn
from skvfl.tabvfl import _protocol as tabvfl

LONG = 4 * SAMPLE + 3


@pytest.mark.parametrize("n_rows", [1, PIECE, PIECE + 1, 2 * PIECE + 5])
def test_rows_in_pieces_are_the_rows_in_one_go(n_rows):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 16), nn.SELU(), nn.Linear(16, 3))
    rows = torch.randn(n_rows, 5)
    with torch.no_grad():
        whole = copy.deepcopy(network).double()(rows.double())
    assert infer(network, rows).dtype == torch.float64
    torch.testing.assert_close(infer(network, rows), whole, rtol=1e-13, atol=1e-13)
    assert torch.equal(infer(network, rows, torch.float32), whole.float())


@pytest.mark.parametrize("n_rows", [1, 2, 7, LONG - 1, LONG, 3 * LONG])
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.standard_normal(n),
        lambda rng, n: rng.standard_cauchy(n),
        lambda rng, n: rng.integers(0, 3, n).astype(float),
        lambda rng, n: np.zeros(n),
        lambda rng, n: np.arange(n, dtype=float)[::-1],
        # What a sample of every so manieth row sees is nothing like the rest.
        lambda rng, n: np.where(np.arange(n) % max(1, n // SAMPLE), 1.0, -1e9),
    ],
)
def test_missing_cells_take_the_median(draw, n_rows):
    values = draw(np.random.default_rng(n_rows), n_rows)
    fitted = PartyPreprocessor(dtype="float64").fit(values[:, None])
    median, other = np.median(values), np.median(values) + 1
    shown = fitted.transform(np.array([[np.nan], [median], [other]]))
    assert shown[0] == shown[1] != shown[2]


@pytest.mark.parametrize("n", [2, 3, 40, 150])
def test_rotations_are_the_factors_of_a_decomposition(n):
    gaussian = np.random.default_rng(n)
    while True:
        q, r = np.linalg.qr(gaussian.standard_normal((n, n)) / np.sqrt(n))
        q = q * np.sign(np.diag(r))
        if np.abs(q).max() <= 0.9:
            break
    found = random_matrix("orthogonal", n, np.random.default_rng(n))
    np.testing.assert_allclose(found, q, rtol=0, atol=1e-13)


def test_projection_in_pieces_is_the_product():
    X = np.random.default_rng(0).standard_normal((20_000, 3))
    projection = GaussianProjection(random_state=0).fit(X)
    whole = X @ projection._matrix
    np.testing.assert_allclose(projection.transform(X), whole, rtol=0, atol=1e-13)
    single = projection.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    assert_array_equal(projection.transform(X[:7]), projection.transform(X)[:7])


@pytest.mark.parametrize(
    ("kind", "protocol"), [(SplitNNClassifier, splitnn), (TabVFLClassifier, tabvfl)]
)
def test_no_epoch_keeps_its_gradients(kind, protocol, monkeypatch):
    kept = []

    def noted(steps):
        kept.extend(steps)
        return epoch_loss(steps)

    monkeypatch.setattr(protocol, "epoch_loss", noted)
    X = np.random.default_rng(0).standard_normal((64, 6))
    kind(parties=2, max_epochs=1, random_state=0).fit(X, X[:, 0] > 0)
    assert kept
    assert all(set(step) == {"loss", "weight"} for step in kept)
