import os

import numpy as np
import pytest
from _secure import agree, make_rings

from skvfl.privacy import SecureAggregationError
from skvfl.privacy._sealed_keys import SEALED_KEY, open_key, seal_key


@pytest.fixture
def rings():
    return make_rings("bank", "shop", "telco")


def refused(ring, sender, sealed, round_id):
    with pytest.raises(SecureAggregationError, match="does not open") as caught:
        open_key(ring, sender, sealed, round_id=round_id)
    assert repr(ring.name) in str(caught.value)
    return caught.value.party


def test_only_the_receiver_opens_a_key(rings):
    key = os.urandom(32)
    sealed = seal_key(rings["bank"], "shop", key, round_id=3)
    assert sealed.shape == (SEALED_KEY,)
    for name in ("telco", "server"):
        assert refused(rings[name], "bank", sealed, 3) == "bank"
    assert open_key(rings["shop"], "bank", sealed, round_id=3) == key


def test_what_was_altered_or_belongs_elsewhere_is_named(rings):
    sealed = seal_key(rings["bank"], "shop", bytes(32), round_id=3)
    shop = rings["shop"]
    for place in range(SEALED_KEY):
        other = sealed.copy()
        other[place] ^= 1
        assert refused(shop, "bank", other, 3) == "bank"
    for malformed in (None, sealed[:-1], sealed[:3], sealed.tobytes(), 7):
        assert refused(shop, "bank", malformed, 3) == "bank"
    assert refused(shop, "bank", sealed, 4) == "bank"
    assert refused(shop, "telco", sealed, 3) == "telco"
    agree(rings, epoch=1)
    assert refused(shop, "bank", sealed, 3) == "bank"


def test_no_round_is_used_twice(rings):
    """The round is the nonce: two keys under one would tell their difference."""
    first = seal_key(rings["bank"], "shop", bytes(32), round_id=3)
    for round_id in (3, 2):
        with pytest.raises(SecureAggregationError, match="not newer"):
            seal_key(rings["bank"], "shop", bytes(32), round_id=round_id)
    open_key(rings["shop"], "bank", first, round_id=3)
    with pytest.raises(SecureAggregationError, match="not newer"):
        open_key(rings["shop"], "bank", first, round_id=3)
    second = seal_key(rings["bank"], "shop", bytes(32), round_id=4)
    assert not np.array_equal(first, second)
