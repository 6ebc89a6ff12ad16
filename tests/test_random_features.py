import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from skvfl import RandomFeaturesEncoder, VerticalPartitioner

X = np.random.default_rng(0).normal(size=(40, 6))


def test_outputs_are_the_squashed_projection():
    encoder = RandomFeaturesEncoder(3, random_state=0).fit(X)
    assert encoder.components_.shape == (6, 3)
    assert_allclose(encoder.transform(X), np.tanh(X @ encoder.components_))


def test_fit_reads_the_number_of_columns_and_nothing_else():
    first, second = (
        RandomFeaturesEncoder(random_state=0).fit(rows) for rows in (X, 5 - X[:7])
    )
    assert pickle.dumps(first) == pickle.dumps(second)


def test_directions_have_the_variance_that_keeps_that_of_the_columns():
    encoder = RandomFeaturesEncoder(4000, random_state=0).fit(X)
    assert encoder.components_.var() * 6 == pytest.approx(1, abs=0.03)


def test_parties_draw_directions_of_their_own():
    partition = VerticalPartitioner(
        RandomFeaturesEncoder(4), parties=2, random_state=0
    ).fit(X)
    first, second = partition.transformers_.values()
    assert not np.isin(first.components_, second.components_).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows_and_data_types(dtype):
    rows = sparse.random_array((20, 6), density=0.3, rng=0, dtype=dtype)
    encoder = RandomFeaturesEncoder(3, random_state=0).fit(rows.tocsr())
    outputs = encoder.transform(rows.tocsr())
    assert outputs.dtype == dtype
    assert_allclose(outputs, encoder.transform(rows.toarray()), rtol=1e-6)
