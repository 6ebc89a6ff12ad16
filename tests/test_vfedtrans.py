"""What the benchmarks of APC-VFL compare it with: VFedTrans, and a tuned encoder."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "examples" / "benchmarks"
PARTIES = {"own": ["a", "b"], "other": ["c", "d", "e"]}
TRAINING = {"max_epochs": 30, "batch_size": 16}


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    """The folder of the benchmarks is where Python looks for modules."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def table(rng):
    """Columns of two parties, which have two factors in common."""
    columns = rng.standard_normal((80, 2)) @ rng.standard_normal((2, 5))
    columns += 0.1 * rng.standard_normal(columns.shape)
    return pd.DataFrame(columns, columns=list("abcde"))


@pytest.fixture
def rng():
    """Numbers of the test's own."""
    return np.random.default_rng(0)


@pytest.mark.parametrize("n_rows", [40, 3])
def test_masks_leave_the_singular_vectors_as_they_are(rng, n_rows):
    from _vfedtrans import bytes_sent, federated_svd

    blocks = [rng.standard_normal((n_rows, width)) for width in (2, 4)]
    left, sent = federated_svd(blocks, rng)
    plain = np.linalg.svd(np.hstack(blocks), full_matrices=False)[0]
    np.testing.assert_allclose(np.abs(left), np.abs(plain), atol=1e-12)
    assert sent == bytes_sent(n_rows, (2, 4))


def fitted(table, weight):
    from _vfedtrans import VFedTrans

    aligned = np.arange(80) < 50
    return VFedTrans(PARTIES, weight, 0, **TRAINING).fit(table, aligned=aligned)


def test_latent_vectors_come_nearer_to_the_singular_vectors_with_more_weight(table):
    own = table[PARTIES["own"]]
    plain = fitted(table, 0.0)
    target = plain.target_[:50]
    away = {
        weight: np.abs(fitted(table, weight).transform(own)[:50, 2:] - target).mean()
        for weight in (0.0, 1.0)
    }
    assert away[1.0] < 0.8 * away[0.0]


def test_the_active_party_is_alone_with_its_rows_and_columns(table):
    first = fitted(table, 1.0).transform(table[PARTIES["own"]])
    table.loc[50:, PARTIES["other"]] = np.nan
    np.testing.assert_array_equal(fitted(table, 1.0).transform(table), first)


def test_a_tuned_encoder_classifies_and_leaves_the_shared_one_as_it_was(rng):
    from bench_apc_aligned import Autoencoder, TunedEncoder

    X = rng.standard_normal((120, 6)).astype(np.float32)
    # No linear model tells these apart from the columns.
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    shared = Autoencoder(16, hidden_layer_sizes=(32,), random_state=0, **TRAINING)
    before = {k: v.clone() for k, v in shared.fit(X).module_.state_dict().items()}
    again = {"max_epochs": 200, "batch_size": 16, "random_state": 0}
    latent = TunedEncoder(shared, y, **again).fit(X).transform(X)
    after = shared.fit(X).module_.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)

    def share_of_variance(represented):
        apart = represented - represented.mean(0)
        means = [apart[y == k].mean(0) for k in (0, 1)]
        return np.square(means).sum() / np.square(apart).sum(1).mean()

    assert share_of_variance(latent) > 3 * share_of_variance(shared.transform(X))
