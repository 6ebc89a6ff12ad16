import numpy as np
import pytest
from _secure import LEVEL, agree, make_rings, uniformity
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from skvfl.federation import _wire
from skvfl.privacy import SecureAggregationError, open_ids, seal_ids, sealed_length

relaxed = settings(deadline=None, max_examples=100)


@pytest.fixture
def rings():
    return make_rings("active", "bank", "shop")


def seal(rings, ids=(7, -3), positions=(1, 4), client="bank", **options):
    options = {"capacity": 6, "round_id": 3, **options}
    return seal_ids(rings["active"], client, ids, positions, **options)


def refused(rings, sealed, client="bank", **options):
    options = {"capacity": 6, "round_id": 3, **options}
    with pytest.raises(SecureAggregationError) as caught:
        open_ids(rings[client], "active", sealed, **options)
    assert caught.value.party == "active"
    assert repr(client) in str(caught.value)
    return str(caught.value)


@relaxed
@given(data=st.data(), capacity=st.integers(0, 40))
def test_round_trip_and_length(data, capacity):
    if "rings" not in SHARED:
        SHARED["rings"] = make_rings("active", "bank")
    rings, SHARED["round"] = SHARED["rings"], SHARED["round"] + 1
    held = data.draw(st.lists(st.booleans(), min_size=capacity, max_size=capacity))
    positions = np.flatnonzero(held)
    number = st.integers(-(2**63), 2**63 - 1)
    ids = data.draw(st.lists(number, min_size=len(positions), max_size=len(positions)))
    where = {"capacity": capacity, "round_id": SHARED["round"]}
    sealed = seal_ids(rings["active"], "bank", ids, positions, **where)
    assert sealed.dtype == np.uint8
    assert sealed.shape == (sealed_length(capacity),)
    sealed = _wire.unpack(_wire.pack(sealed))
    found_ids, found_positions = open_ids(rings["bank"], "active", sealed, **where)
    assert_array_equal(found_ids, np.array(ids, np.int64))
    assert_array_equal(found_positions, positions)
    assert found_ids.dtype == found_positions.dtype == np.int64


SHARED = {"round": 0}


def test_a_whole_batch_is_opened_to_arrays_of_the_clients_own(rings):
    for round_id in range(2):
        where = {"capacity": 4, "round_id": round_id}
        sealed = seal(rings, ids=[5, 3, 8, 1], positions=range(4), **where)
        opened = open_ids(rings["bank"], "active", sealed, **where)
        assert_array_equal(opened, [[5, 3, 8, 1], range(4)])
        for array in opened:
            array[:] = 0


@pytest.mark.parametrize(("capacity", "length"), [(0, 28), (1, 37), (256, 2108)])
def test_length_depends_on_the_batch_alone(rings, capacity, length):
    assert sealed_length(capacity) == length
    lengths = {
        seal_ids(
            rings["active"],
            client,
            np.arange(n_held),
            np.arange(n_held),
            capacity=capacity,
            round_id=0,
        ).size
        for client in ("bank", "shop")
        for n_held in {0, capacity // 2, capacity}
    }
    assert lengths == {length}


def test_sealed_ids_are_uniform_and_never_the_same(rings):
    sealed = np.stack([seal(rings, [], [], capacity=2000) for _ in range(20)])
    assert uniformity(sealed[:, :16276].copy().view("<u4")) > LEVEL
    assert len({row[:12].tobytes() for row in sealed}) == 20
    assert len({row[12:].tobytes() for row in sealed}) == 20


@relaxed
@given(place=st.integers(0, sealed_length(6) - 1), bit=st.integers(0, 7))
def test_flipped_bit_is_detected(place, bit):
    if "tamper" not in SHARED:
        SHARED["tamper"] = make_rings("active", "bank")
    sealed = seal(SHARED["tamper"]).copy()
    sealed[place] ^= 1 << bit
    assert "do not open" in refused(SHARED["tamper"], sealed)


def test_only_the_client_meant_can_open(rings):
    sealed = seal(rings, client="bank")
    assert "do not open" in refused(rings, sealed, "shop")
    with pytest.raises(SecureAggregationError):
        open_ids(rings["active"], "bank", sealed, capacity=6, round_id=3)
    with pytest.raises(SecureAggregationError):
        open_ids(rings["server"], "active", sealed, capacity=6, round_id=3)
    ids, positions = open_ids(rings["bank"], "active", sealed, capacity=6, round_id=3)
    assert_array_equal(ids, [7, -3])
    assert_array_equal(positions, [1, 4])


def test_sender_does_not_open_its_own_as_if_it_came_back(rings):
    sealed = seal(rings, client="bank")
    reflected = {"capacity": 6, "round_id": 3}
    with pytest.raises(SecureAggregationError, match="do not open"):
        open_ids(rings["active"], "bank", sealed, **reflected)


def test_replays_are_refused(rings):
    first = seal(rings, round_id=3)
    open_ids(rings["bank"], "active", first, capacity=6, round_id=3)
    assert "round 4 do not open" in refused(rings, first, round_id=4)
    with pytest.raises(SecureAggregationError, match="not newer than round 3") as e:
        open_ids(rings["bank"], "active", first, capacity=6, round_id=3)
    assert e.value.party == "bank"
    agree(rings, epoch=1)
    assert "do not open" in refused(rings, first)


@pytest.mark.parametrize("capacity", [5, 7])
def test_other_lengths_are_refused(rings, capacity):
    assert "are not" in refused(rings, seal(rings), capacity=capacity)


@pytest.mark.parametrize(
    "junk", [None, "text", np.zeros(4), np.zeros((2, 3), np.uint8)]
)
def test_other_messages_are_refused(rings, junk):
    assert f"are not {sealed_length(6)} bytes" in refused(rings, junk)


@pytest.mark.parametrize(
    ("ids", "positions", "message"),
    [
        ([1, 2], [0], "one position per id"),
        ([[1, 2]], [[0, 1]], "one position per id"),
        ([1, 2], [1, 0], "must increase"),
        ([1, 2], [1, 1], "must increase"),
        ([*range(6)], [1, 0, 2, 3, 4, 5], "must increase"),
        ([1], [-1], "from 0"),
        ([1], [6], "at most 5"),
    ],
)
def test_positions_are_checked(rings, ids, positions, message):
    with pytest.raises(ValueError, match=message):
        seal(rings, ids, positions)


@pytest.mark.parametrize("ids", [[0.5], ["a"], np.array([1], np.uint64)])
def test_ids_are_integers_of_64_bits(rings, ids):
    with pytest.raises(TypeError, match="ids must be integers of 64 bits"):
        seal(rings, ids, [0])
