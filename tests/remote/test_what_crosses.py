"""What each organisation could find of the other's cells, ids and seeds."""

import pickle

import numpy as np
import pandas as pd
import pytest
from _partners import partners
from sklearn.preprocessing import StandardScaler

from skvfl import (
    APCVFLClassifier,
    FedOnceClassifier,
    RandomProjectionVFL,
    SplitNNClassifier,
    TabVFLClassifier,
    VFedSecClassifier,
    VFLBoostingClassifier,
    connect,
)
from skvfl.remote._endpoint import Endpoint

N_ROWS = 120
SEED = 918273645
PLANTED = 7654321.0625


def tables():
    """Bank and shop, each with a cell, ids and a column that nobody else has."""
    rng = np.random.default_rng(0)
    both = [f"shared-customer-{i}" for i in range(N_ROWS)]
    X = rng.normal(size=(N_ROWS + 30, 4))
    # In the middle, so that it stands out nowhere but here.
    X[10, 2] = PLANTED
    alone = [f"shop-customer-{i}" for i in range(30)]
    bank = pd.DataFrame(X[:N_ROWS, :2], columns=["age", "income"])
    shop = pd.DataFrame(X[:, 2:], columns=["spend", "visits"])
    y = rng.integers(0, 2, N_ROWS)
    return bank.assign(customer=both), shop.assign(customer=[*both, *alone]), y


@pytest.fixture
def frames(monkeypatch):
    """Everything that crosses, in both directions."""
    crossed = []
    answer = Endpoint.answer

    def listen(self, peer, frame):
        reply = answer(self, peer, frame)
        crossed.extend([bytes(frame), reply])
        return reply

    monkeypatch.setattr(Endpoint, "answer", listen)
    return crossed


def written(value):
    """How a number may lie in bytes."""
    kinds = np.float32(value), np.float64(value)
    return [each.tobytes() for each in kinds] + [str(value).encode()]


def found(needles, haystack):
    return [each for each in needles if any(each in content for content in haystack)]


def files(folder):
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        (RandomProjectionVFL, {}),
        (SplitNNClassifier, {"max_epochs": 2}),
        (FedOnceClassifier, {"max_epochs": 2}),
        (VFedSecClassifier, {"max_epochs": 2}),
        (VFLBoostingClassifier, {"max_iter": 2, "max_leaf_nodes": 4}),
        (APCVFLClassifier, {"max_epochs": 2}),
        (TabVFLClassifier, {"max_epochs": 2}),
    ],
)
def test_cells_ids_and_seeds_of_others_are_nowhere(kind, params, frames, tmp_path):
    bank, shop, y = tables()
    with partners(tmp_path, {"shop": shop}) as path:
        vfl = kind(parties=connect(path), random_state=SEED, **params).fit(bank, y)
        vfl.predict(bank)
    ids = [b"shared-customer-", b"shop-customer-"]
    seed = [str(SEED).encode(), SEED.to_bytes(4, "little")]
    assert len(frames) > 10
    assert found([*written(PLANTED), *ids, *seed], frames) == []
    # What is kept at either: models, lists, counts and the audit log.
    at_bank = [*files(tmp_path / "bank"), pickle.dumps(vfl)]
    assert found([*written(PLANTED), b"shop-customer-"], at_bank) == []
    store = files(tmp_path / "shop" / "store")
    cells = [cell.tobytes() for cell in bank["income"].to_numpy()]
    assert found(cells, frames) == []
    assert len(store) >= 2
    assert found([*cells, *seed], store) == []
    log = [(tmp_path / "shop" / "audit.jsonl").read_bytes()]
    assert found([*written(PLANTED), *ids, *seed], log) == []
    # The bank knows its own seed, which a simulation would share.
    assert found(seed, at_bank)
    # The shop's own ids are on its own list, and the bank's on the bank's.
    assert found(ids, store) == ids[:1]
    assert found(ids, at_bank) == ids[:1]


def test_the_search_finds_what_is_sent_as_it_is(frames, tmp_path):
    bank, shop, y = tables()
    plain = StandardScaler(with_mean=False, with_std=False)
    allow = {"encoders": ("StandardScaler",), "transformers": ("passthrough",)}
    with partners(tmp_path, {"shop": shop}, allow=allow) as path:
        vfl = RandomProjectionVFL(parties=connect(path), projection=plain)
        vfl._transformer = lambda name: "passthrough"
        vfl.fit(bank, y)
    assert found(written(PLANTED), frames)
    assert found([b'"passthrough"'], frames)
