import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats
from sklearn.metrics.pairwise import euclidean_distances

from skvfl import GaussianProjection
from skvfl.rap._projection import keyed_normal, random_matrix


def table(n=200, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@given(n=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_orthogonal_matrix_is_orthogonal(n, seed):
    matrix = random_matrix("orthogonal", n, np.random.default_rng(seed))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(n), atol=1e-12)


def test_orthogonal_matrices_are_uniform():
    """Haar measure: an entry squared is Beta(1/2, (n-1)/2), and signs are fair.

    At 16 columns hardly any draw is rejected for an entry above 0.9.
    """
    rng = np.random.default_rng(0)
    entries = np.array(
        [random_matrix("orthogonal", 16, rng)[2, 1] for _ in range(2000)]
    )
    assert stats.kstest(entries**2, stats.beta(0.5, 7.5).cdf).pvalue > 1e-3
    assert stats.binomtest(int((entries > 0).sum()), 2000).pvalue > 1e-3


@given(
    kind=st.sampled_from(["orthogonal", "conditioned", "gaussian"]),
    n=st.integers(2, 12),
    seed=st.integers(0, 2**32),
)
def test_no_column_is_nearly_another_one(kind, n, seed):
    matrix = random_matrix(kind, n, np.random.default_rng(seed))
    assert np.abs(matrix / np.linalg.norm(matrix, axis=0)).max() <= 0.9


@given(n=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_conditioned_matrix_has_bounded_singular_values(n, seed):
    matrix = random_matrix("conditioned", n, np.random.default_rng(seed))
    singular = np.linalg.svd(matrix, compute_uv=False)
    assert singular.min() >= 0.5 - 1e-9
    assert singular.max() <= 2 + 1e-9


def test_gaussian_matrix_is_gaussian():
    matrix = random_matrix("gaussian", 60, np.random.default_rng(0))
    assert stats.kstest(matrix.ravel() * np.sqrt(60), stats.norm.cdf).pvalue > 1e-3


def test_gaussian_projection_nearly_preserves_long_distances():
    """Corollary 2 of the RAP paper; 6 standard deviations of sqrt(2 / F)."""
    X = table(20, 2000)
    before = euclidean_distances(X)[np.triu_indices(20, 1)]
    after = GaussianProjection(kind="gaussian", random_state=0).fit_transform(X)
    after = euclidean_distances(after)[np.triu_indices(20, 1)]
    np.testing.assert_allclose((after / before) ** 2, 1, atol=6 * np.sqrt(2 / 2000))


def test_orthogonal_projection_preserves_distances():
    X = table()
    projected = GaussianProjection(random_state=0).fit_transform(X)
    np.testing.assert_allclose(
        euclidean_distances(projected), euclidean_distances(X), atol=1e-9
    )
    assert np.abs(projected - X).max() > 0.5


@pytest.mark.parametrize("kind", ["orthogonal", "conditioned", "gaussian"])
def test_projection_is_linear_and_seeded(kind):
    X = table()
    fit = GaussianProjection(kind=kind, random_state=3).fit(X)
    np.testing.assert_allclose(
        fit.transform(X[:5] + 2 * X[5:10]),
        fit.transform(X[:5]) + 2 * fit.transform(X[5:10]),
        atol=1e-12,
    )
    again = GaussianProjection(kind=kind, random_state=3).fit(X).transform(X)
    np.testing.assert_array_equal(fit.transform(X), again)
    other = GaussianProjection(kind=kind, random_state=4).fit(X).transform(X)
    assert np.abs(other - again).max() > 0.1


def test_no_seed_means_a_fresh_matrix_and_the_global_generator_is_left_alone(rng_guard):
    X = table()
    first, second = (GaussianProjection().fit_transform(X) for _ in range(2))
    assert np.abs(first - second).max() > 0.1


def test_sparse_and_float32_give_the_same_numbers():
    X = table()
    X[X < 0] = 0
    expected = GaussianProjection(random_state=0).fit_transform(X)
    for kind in (sparse.csr_matrix, sparse.csc_array):
        actual = GaussianProjection(random_state=0).fit_transform(kind(X))
        np.testing.assert_allclose(actual, expected, atol=1e-12)
    narrow = GaussianProjection(random_state=0).fit_transform(X.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, expected, atol=1e-5)


def test_single_column_is_joined_by_a_pseudo_column():
    x = np.random.default_rng(0).exponential(3, size=(4000, 1))
    projection = GaussianProjection(random_state=0).fit(x)
    projected = projection.transform(x)
    assert projected.shape == (4000, 2)
    assert projection.get_feature_names_out().shape == (2,)
    real, pseudo = np.linalg.solve(projection._matrix.T, projected.T)
    np.testing.assert_allclose(real, x.ravel(), atol=1e-9)
    assert abs(np.corrcoef(real, pseudo)[0, 1]) < 0.06
    assert stats.kstest(pseudo, stats.norm(x.mean(), x.std()).cdf).pvalue > 1e-3


def test_pseudo_column_is_a_function_of_the_row():
    x = np.array([[1.0], [2.0], [1.0], [-0.0], [0.0]])
    projection = GaussianProjection(random_state=0).fit(x)
    projected = projection.transform(x)
    np.testing.assert_array_equal(projected[0], projected[2])
    np.testing.assert_array_equal(projected[3], projected[4])
    np.testing.assert_array_equal(projection.transform(x[1:2])[0], projected[1])


def test_keyed_normal_needs_its_key():
    values = np.linspace(-1, 1, 5000)
    one, other = keyed_normal(b"a" * 32, values), keyed_normal(b"b" * 32, values)
    np.testing.assert_array_equal(one, keyed_normal(b"a" * 32, values))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.06
    for numbers in (one, other):
        assert stats.kstest(numbers, stats.norm.cdf).pvalue > 1e-3
        assert np.isfinite(numbers).all()


def test_constant_single_column_stays_finite():
    projected = GaussianProjection(random_state=0).fit_transform(np.full((9, 1), 7.0))
    assert np.isfinite(projected).all()
    np.testing.assert_array_equal(projected, projected[:1].repeat(9, axis=0))
