import itertools
import pickle
import struct

import numpy as np
import pytest
from _secure import (
    LEVEL,
    agree,
    distinguishability,
    key_stream,
    make_rings,
    uniformity,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from skvfl.federation import _wire
from skvfl.privacy import (
    MASK_FORWARD,
    MASK_GRADIENT,
    Aggregator,
    FixedPoint,
    FixedPointRangeError,
    KeyRing,
    Masker,
    SecureAggregationError,
)
from skvfl.privacy._masks import _tag

relaxed = settings(deadline=None, max_examples=60)
BITS = pytest.mark.parametrize("bits", [32, 64])
CLIENTS = ["bank", "shop", "telco"]
CHUNK_WORDS = (1 << 16) // 4


def known_ring(key=bytes(32)):
    """A shop's key ring with one key for everything."""
    ring = make_rings("shop", "bank")["shop"]
    ring._confirmed.key = lambda peer, purpose, sender=None: key
    return ring


class Sum:
    """All clients and the server of one sum."""

    def __init__(self, clients=CLIENTS, *, bound=100, bits=32, rings=None, **options):
        self.clients = list(clients)
        self.rings = rings or make_rings(*clients)
        self.numbers = FixedPoint(len(self.clients), bound=bound, bits=bits)
        self.maskers = {
            name: Masker(self.rings[name], self.clients, self.numbers, **options)
            for name in self.clients
        }
        self.server = Aggregator(
            self.rings["server"], self.clients, self.numbers, **options
        )

    def messages(self, values, round_id=0, tensor_id=0):
        return {
            name: masker.mask(values[name], round_id=round_id, tensor_id=tensor_id)
            for name, masker in self.maskers.items()
        }


def table(seed, shape=(64, 64), scale=1.0, clients=CLIENTS):
    rng = np.random.default_rng(seed)
    return {name: scale * rng.normal(size=shape) for name in clients}


def refused(masked_sum, messages, match, **moment):
    with pytest.raises(SecureAggregationError, match=match) as caught:
        masked_sum.server.total(messages, **(moment or {"round_id": 0}))
    return caught.value.party


# Correctness


@pytest.fixture(scope="module")
def many_rings():
    return make_rings(*(f"client {i}" for i in range(25)))


ROUND = itertools.count()


@relaxed
@given(
    n_clients=st.integers(2, 25),
    bits=st.sampled_from([32, 64]),
    shape=st.sampled_from([(), (0,), (1,), (3, 0), (5, 7), (2, 3, 4), (130, 127)]),
    seed=st.integers(0, 2**32 - 1),
    bound=st.floats(1e-3, 1e5),
)
def test_masks_cancel_exactly(many_rings, n_clients, bits, shape, seed, bound):
    rng = np.random.default_rng(seed)
    clients = [f"client {i}" for i in rng.permutation(25)[:n_clients]]
    masked_sum = Sum(clients, bound=bound, bits=bits, rings=many_rings)
    values = {name: rng.uniform(-bound, bound, shape) for name in clients}
    round_id = next(ROUND)
    messages = masked_sum.messages(values, round_id)
    found = masked_sum.server.total(messages, round_id=round_id)
    plain = [masked_sum.numbers.encode(values[name]) for name in clients]
    total = np.sum(plain, axis=0, dtype=masked_sum.numbers.dtype)
    assert_array_equal(found, masked_sum.numbers.decode(np.asarray(total)))
    assert found.shape == shape
    allowed = masked_sum.numbers.error_bound + n_clients * bound * 2.0**-50
    assert np.all(np.abs(found - sum(values.values())) <= allowed)


@BITS
def test_masks_are_those_of_equation_3(bits):
    masked_sum = Sum(bits=bits)
    values = table(0)
    messages = masked_sum.messages(values, 5, 2)
    dtype, ring = masked_sum.numbers.dtype, masked_sum.rings["shop"]
    where = {"shape": (64, 64), "dtype": dtype, "round_id": 5, "tensor_id": 2}
    expected = (
        masked_sum.numbers.encode(values["shop"])
        - key_stream(ring, "bank", **where)
        + key_stream(ring, "telco", **where)
    )
    assert_array_equal(messages["shop"]["masked"], expected)


@pytest.mark.parametrize(
    "size", [CHUNK_WORDS - 1, CHUNK_WORDS, CHUNK_WORDS + 1, 5 * CHUNK_WORDS // 2]
)
@BITS
def test_long_arrays_are_masked_by_one_key_stream(size, bits):
    rings = make_rings("a", "b")
    numbers = FixedPoint(2, bound=1, bits=bits)
    masked = Masker(rings["a"], ["a", "b"], numbers).mask(np.zeros(size), round_id=7)
    expected = key_stream(rings["a"], "b", (size,), numbers.dtype, round_id=7)
    assert_array_equal(masked["masked"], expected)


@pytest.mark.parametrize(
    ("round_id", "block"),
    [
        (0, "dc95c078a2408989ad48a21492842087"),
        (2**31, "ddc6bf790c15760d8d9aeb6f9a75fd4e"),
    ],
)
@BITS
def test_known_answers_of_aes_256(round_id, block, bits):
    """Zero key; the first block encrypts the round and tensor number."""
    numbers = FixedPoint(2, bound=1, bits=bits)
    for clients, sign in ((["shop", "bank"], 1), (["bank", "shop"], -1)):
        masker = Masker(known_ring(), clients, numbers)
        masked = masker.mask(np.zeros(16 // numbers.dtype.itemsize), round_id=round_id)
        stream = np.frombuffer(bytes.fromhex(block), numbers.dtype)
        assert_array_equal(masked["masked"], stream if sign > 0 else -stream)


def test_tag_is_that_of_aes_gcm():
    key = bytes(range(32))
    masker = Masker(known_ring(key), ["shop", "bank"], FixedPoint(2, bound=1))
    message = masker.mask(np.full((2, 3), 0.25), round_id=9, tensor_id=4)
    nonce = bytes.fromhex("000000000000000900000004")
    shape = struct.pack("<2Q", 2, 3)
    sealed = AESGCM(key).encrypt(nonce, shape, message["masked"].tobytes())
    tag = sealed[len(shape) :]
    assert message["tag"].tobytes() == tag


@pytest.mark.parametrize("dtype", ["?", "u1", "<f4", ">f4", "f2", "g"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3)])
@pytest.mark.parametrize("layout", [np.asarray, np.transpose])
def test_every_array_has_a_tag_of_its_bytes(dtype, shape, layout):
    array = layout(np.arange(np.prod(shape)).astype(dtype).reshape(shape))
    key, nonce = bytes(range(32)), bytes(8)
    shape = struct.pack(f"<{array.ndim}Q", *array.shape)
    sealed = AESGCM(key).encrypt(bytes(12), shape, array.tobytes())
    assert _tag(AESGCM(key), nonce, array).tobytes() == sealed[len(shape) :]


def test_values_are_not_changed():
    masked_sum = Sum()
    values = table(0)
    before = {name: value.copy() for name, value in values.items()}
    messages = masked_sum.messages(values)
    masked = {name: m["masked"].copy() for name, m in messages.items()}
    masked_sum.server.total(messages, round_id=0)
    for name in CLIENTS:
        assert_array_equal(values[name], before[name])
        assert_array_equal(messages[name]["masked"], masked[name])


def test_messages_survive_the_wire_and_weigh_little_more_than_float32():
    masked_sum = Sum()
    messages = masked_sum.messages(table(0, (256, 64)))
    packed = {name: _wire.pack(message) for name, message in messages.items()}
    assert max(map(len, packed.values())) <= 256 * 64 * 4 + 250
    unpacked = {name: _wire.unpack(message) for name, message in packed.items()}
    plain = masked_sum.server.total(messages, round_id=0)
    agree(masked_sum.rings, session="another", epoch=0)
    with pytest.raises(SecureAggregationError, match="fails authentication"):
        masked_sum.server.total(unpacked, round_id=0)
    messages = masked_sum.messages(table(0, (256, 64)))
    unpacked = {
        name: _wire.unpack(_wire.pack(message)) for name, message in messages.items()
    }
    assert_array_equal(masked_sum.server.total(unpacked, round_id=0), plain)


def test_overflow_names_the_client_and_sends_nothing():
    masked_sum = Sum(bound=10)
    masker = masked_sum.maskers["bank"]
    said = r"values of 'bank': 1 of 1 .* bound of 10;"
    with pytest.raises(FixedPointRangeError, match=said) as caught:
        masker.mask(np.array([12.5]), round_id=0)
    assert "12.5" not in str(caught.value)
    with pytest.raises(FixedPointRangeError, match=r"gradient of 'bank'.* NaN"):
        masker.mask(np.array([np.nan]), round_id=0, what="gradient of 'bank'")


# Secrecy


@BITS
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 20.0])
def test_every_masked_array_is_uniform_and_no_plain_one_is(bits, scale):
    masked_sum = Sum(bits=bits)
    values = table(0, (256, 64), scale)
    for name, message in masked_sum.messages(values).items():
        assert uniformity(message["masked"]) > LEVEL
        assert uniformity(masked_sum.numbers.encode(values[name])) < LEVEL


@BITS
def test_views_of_different_tables_are_alike_and_the_plain_ones_are_not(bits):
    masked_sum = Sum(bits=bits)
    tables = table(0, (256, 64), 0.01), table(1, (256, 64), 20.0)
    views = [masked_sum.messages(each, i) for i, each in enumerate(tables)]
    for name in CLIENTS:
        one, other = (view[name]["masked"] for view in views)
        assert distinguishability(one, other) > LEVEL
        one, other = (masked_sum.numbers.encode(each[name]) for each in tables)
        assert distinguishability(one, other) < LEVEL


@BITS
def test_masked_arrays_are_independent_of_the_values(bits):
    """The masked bytes are equally uniform where the value is large and small."""
    masked_sum = Sum(bits=bits)
    values = table(3, (256, 128))
    messages = masked_sum.messages(values)
    for name in CLIENTS:
        positive = values[name] > 0
        masked, plain = (
            messages[name]["masked"],
            masked_sum.numbers.encode(values[name]),
        )
        assert distinguishability(masked[positive], masked[~positive]) > LEVEL
        assert distinguishability(plain[positive], plain[~positive]) < LEVEL


@BITS
def test_all_but_two_colluders_and_the_server_learn_only_the_others_sum(bits):
    clients = ["a", "b", "c", "d", "e"]
    masked_sum = Sum(clients, bits=bits)
    values = table(0, (256, 64), clients=clients)
    messages = masked_sum.messages(values)
    dtype = masked_sum.numbers.dtype

    def stripped(name, colluders):
        """A message less all masks that the colluders know."""
        left = messages[name]["masked"].copy()
        for peer in colluders:
            ring = masked_sum.rings[peer]
            known = key_stream(ring, name, left.shape, dtype, round_id=0)
            left += known if clients.index(peer) < clients.index(name) else -known
        return left

    encoded = {name: masked_sum.numbers.encode(values[name]) for name in clients}
    for honest in itertools.combinations(clients, 2):
        colluders = [name for name in clients if name not in honest]
        one, other = (stripped(name, colluders) for name in honest)
        assert uniformity(one) > LEVEL
        assert uniformity(other) > LEVEL
        assert_array_equal(one + other, encoded[honest[0]] + encoded[honest[1]])


@BITS
def test_all_but_one_colluders_learn_the_last_value_as_from_any_sum(bits):
    clients = ["a", "b", "c", "d"]
    masked_sum = Sum(clients, bits=bits)
    values = table(0, clients=clients)
    total = masked_sum.server.total(masked_sum.messages(values), round_id=0)
    numbers = masked_sum.numbers
    others = sum(numbers.decode(numbers.encode(values[name])) for name in clients[1:])
    last = numbers.decode(numbers.encode(values["a"]))
    np.testing.assert_allclose(total - others, last, rtol=0, atol=1e-13)


@BITS
@pytest.mark.parametrize("keeper", CLIENTS)
def test_sum_that_only_who_has_the_key_can_read(bits, keeper):
    """With values up to the bound, so that the masked sum wraps."""
    masked_sum = Sum(bits=bits, rings=SHARED.rings)
    values = {name: np.sign(each) * 100.0 for name, each in table(0).items()}
    moment, key = {"round_id": next(ROUND)}, bytes(range(32))
    messages = {
        name: masker.mask(
            values[name], **moment, **({"key": key} if name == keeper else {})
        )
        for name, masker in masked_sum.maskers.items()
    }
    left = masked_sum.server.add_up(messages, **moment)
    before = left.copy()
    plain = sum(masked_sum.numbers.encode(value) for value in values.values())
    assert uniformity(left) > LEVEL
    assert uniformity(plain) < LEVEL
    for masker in masked_sum.maskers.values():
        found = masker.unmask(left, key, **moment)
        assert_array_equal(found, sum(values.values()))
    assert_array_equal(left, before)
    other = masker.unmask(left, bytes(32), **moment)
    later = masker.unmask(left, key, round_id=moment["round_id"] + 1)
    for wrong in (other, later):
        assert abs(np.corrcoef(wrong.ravel(), found.ravel())[0, 1]) < 0.1


@BITS
def test_messages_of_a_sum_with_a_mask_left_on_are_uniform_together(bits):
    """Not only each alone: no combination with signs is less than uniform."""
    masked_sum = Sum(bits=bits, rings=SHARED.rings)
    values = table(0, (256, 64))
    for key in (bytes(32), None):
        round_id = next(ROUND)
        messages = [
            masker.mask(
                values[name],
                round_id=round_id,
                **({"key": key} if name == "shop" else {}),
            )["masked"]
            for name, masker in masked_sum.maskers.items()
        ]
        worst = min(
            uniformity(sum(s * m for s, m in zip(signs, messages, strict=True)))
            for signs in itertools.product(
                np.array([0, 1, -1]).astype(messages[0].dtype), repeat=3
            )
            if any(signs)
        )
        assert (worst > LEVEL) == (key is not None)


def test_purposes_say_what_they_are_for():
    for purpose in (MASK_FORWARD, MASK_GRADIENT):
        assert "What a secure sum is for" in type(purpose).__doc__
    assert (f"{MASK_FORWARD}", MASK_GRADIENT) == ("mask forward", "mask gradient")


def test_masks_never_repeat():
    """Over rounds, tensors, purposes, key epochs, sessions and pairs."""
    rings = {name: KeyRing(name) for name in (*CLIENTS, "server")}
    numbers = FixedPoint(2, bound=1, bits=64)
    seen, drawn = set(), 0
    for session, epoch in (
        ("fit", 0),
        ("fit", 1),
        ("predict", 0),
        ("predict again", 0),
    ):
        agree(rings, session=session, epoch=epoch)
        for pair in itertools.combinations(CLIENTS, 2):
            for purpose in ("mask forward", f"{MASK_GRADIENT} {pair}"):
                first = Masker(
                    rings[pair[0]], pair, numbers, purpose=f"{pair}{purpose}"
                )
                for round_id, tensor_id in itertools.product((0, 1, 2**32 - 1), (0, 1)):
                    moment = {"round_id": round_id, "tensor_id": tensor_id}
                    mask = first.mask(np.zeros(8), **moment)["masked"]
                    seen.update(mask.tolist())
                    drawn += mask.size
    assert drawn == 4 * 3 * 2 * 6 * 8
    assert len(seen) == drawn


def test_both_members_of_a_pair_know_the_mask_and_nobody_else():
    rings = make_rings(*CLIENTS)
    keys = {
        frozenset((a, b)): rings[a].key(b, "mask forward")
        for a, b in itertools.permutations([*CLIENTS, "server"], 2)
    }
    assert len(set(keys.values())) == len(keys) == 6


def test_reused_round_is_refused_and_named():
    masked_sum = Sum()
    masker = masked_sum.maskers["shop"]
    masker.mask(np.zeros(3), round_id=4, tensor_id=1)
    for round_id, tensor_id in ((4, 1), (4, 0), (3, 7)):
        said = (
            f"round {round_id}, tensor {tensor_id} is not newer than round 4, tensor 1"
        )
        with pytest.raises(SecureAggregationError, match=said) as caught:
            masker.mask(np.zeros(3), round_id=round_id, tensor_id=tensor_id)
        assert caught.value.party == "shop"
    masker.mask(np.zeros(3), round_id=4, tensor_id=2)


def test_second_masker_cannot_reuse_a_round_either():
    masked_sum = Sum()
    masked_sum.maskers["shop"].mask(np.zeros(3), round_id=0)
    second = Masker(masked_sum.rings["shop"], CLIENTS, masked_sum.numbers)
    with pytest.raises(SecureAggregationError, match="not newer"):
        second.mask(np.zeros(3), round_id=0)


def test_pickled_masker_cannot_go_on_under_the_same_keys():
    masked_sum = Sum()
    masker = pickle.loads(pickle.dumps(masked_sum.maskers["shop"]))
    with pytest.raises(SecureAggregationError, match="no confirmed keys"):
        masker.mask(np.zeros(3), round_id=1)


def test_maskers_follow_new_keys():
    masked_sum = Sum()
    values = table(0)
    first = masked_sum.messages(values)
    expected = masked_sum.server.total(first, round_id=0)
    agree(masked_sum.rings, epoch=1)
    second = masked_sum.messages(values)
    assert second["bank"]["epoch"] == 1
    assert_array_equal(masked_sum.server.total(second, round_id=0), expected)
    assert (first["bank"]["masked"] != second["bank"]["masked"]).all()


# What goes wrong on the way


@relaxed
@given(data=st.data())
def test_flipped_bit_is_detected_and_named(data):
    masked_sum = SHARED
    round_id = next(ROUND)
    messages = masked_sum.messages(table(0, (4, 3)), round_id, 1)
    name = data.draw(st.sampled_from(CLIENTS))
    message = messages[name] = {**messages[name]}
    field = data.draw(st.sampled_from(sorted(message)))
    if field in ("masked", "tag"):
        raw = bytearray(message[field].tobytes())
        bit = data.draw(st.integers(0, 8 * len(raw) - 1))
        raw[bit // 8] ^= 1 << bit % 8
        changed = np.frombuffer(bytes(raw), message[field].dtype)
        message[field] = changed.reshape(message[field].shape)
    else:
        message[field] ^= 1 << data.draw(st.integers(0, 31))
    match = "fails authentication|is for epoch"
    assert refused(masked_sum, messages, match, round_id=round_id, tensor_id=1) == name


SHARED = Sum()


def test_replayed_reordered_and_late_messages_are_named():
    masked_sum = Sum()
    rounds = [
        masked_sum.messages(table(i), round_id, tensor_id)
        for i, (round_id, tensor_id) in enumerate([(0, 0), (0, 1), (1, 0)])
    ]
    masked_sum.server.total(rounds[0], round_id=0)
    for stale, due in ((0, (0, 1)), (2, (0, 1)), (1, (1, 0))):
        mixed = {
            **rounds[[(0, 0), (0, 1), (1, 0)].index(due)],
            "shop": rounds[stale]["shop"],
        }
        moment = dict(zip(("round_id", "tensor_id"), due, strict=True))
        assert refused(masked_sum, mixed, "replayed, reordered", **moment) == "shop"
    agree(masked_sum.rings, epoch=1)
    assert refused(masked_sum, rounds[0], "is for epoch 0") == "bank"


def test_renamed_old_message_fails_authentication():
    masked_sum = Sum()
    old = masked_sum.messages(table(0), 0)
    new = masked_sum.messages(table(1), 1)
    new["shop"] = {**old["shop"], "round": 1}
    assert refused(masked_sum, new, "fails authentication", round_id=1) == "shop"


def test_second_sum_of_one_round_is_refused():
    masked_sum = Sum()
    messages = masked_sum.messages(table(0))
    masked_sum.server.total(messages, round_id=0)
    assert refused(masked_sum, messages, "not newer") == "server"


def test_two_sums_of_different_clients_may_have_one_purpose_and_round():
    rings = make_rings("a", "b", "c", "d")
    for i, clients in enumerate((["a", "b"], ["c", "d"])):
        masked_sum = Sum(clients, rings=rings, purpose=MASK_GRADIENT)
        values = dict.fromkeys(clients, np.full(3, i + 1.0))
        total = masked_sum.server.total(masked_sum.messages(values), round_id=0)
        assert_array_equal(total, np.full(3, 2 * i + 2.0))


def test_message_of_another_client_is_named():
    masked_sum = Sum()
    messages = masked_sum.messages(table(0))
    messages["telco"] = messages["bank"]
    assert refused(masked_sum, messages, "fails authentication") == "telco"


def test_missing_and_foreign_clients_are_named():
    masked_sum = Sum()
    messages = masked_sum.messages(table(0))
    some = {name: messages[name] for name in ("bank", "telco")}
    assert refused(masked_sum, some, "'shop': its masked message did not") == "shop"
    some = {"telco": messages["telco"]}
    assert refused(masked_sum, some, r"\(and those of \['shop'\]\)") == "bank"
    more = {**messages, "mole": messages["bank"]}
    assert refused(masked_sum, more, "no client of this sum") == "mole"
    masked_sum.server.total(messages, round_id=0)


def test_other_shape_is_named():
    masked_sum = Sum()
    values = {**table(0, (4, 3)), "shop": np.zeros((3, 4))}
    messages = masked_sum.messages(values)
    assert (
        refused(masked_sum, messages, r"\(3, 4\) where 'bank' sent \(4, 3\)") == "shop"
    )
    messages["telco"] = {**messages["telco"]}
    messages["telco"]["masked"] = messages["telco"]["masked"].reshape(2, 6)
    assert refused(masked_sum, messages, "fails authentication") == "telco"


@pytest.mark.parametrize(
    ("clients", "numbers", "purpose"),
    [
        (["shop", "bank", "telco"], FixedPoint(3, bound=100), "mask forward"),
        (["bank", "shop"], FixedPoint(3, bound=100), "mask forward"),
        (CLIENTS, FixedPoint(3, bound=400), "mask forward"),
        (CLIENTS, FixedPoint(3, bound=100), "mask gradient"),
    ],
)
def test_client_that_agreed_on_something_else_is_named(clients, numbers, purpose):
    masked_sum = Sum()
    ring = masked_sum.rings["shop"]
    masked_sum.maskers["shop"] = Masker(ring, clients, numbers, purpose=purpose)
    messages = masked_sum.messages(table(0))
    assert refused(masked_sum, messages, "fails authentication") == "shop"


@pytest.mark.parametrize(
    "change",
    [
        lambda message: None,
        lambda message: {},
        lambda message: {**message, "more": 1},
        lambda message: {**message, "round": np.zeros(2)},
        lambda message: {**message, "round": 0.0},
        lambda message: {**message, "masked": message["masked"].tolist()},
        lambda message: {**message, "masked": message["masked"].astype("<u8")},
        lambda message: {**message, "tag": message["tag"][:8]},
        lambda message: {**message, "tag": message["tag"].astype(int)},
        lambda message: {**message, "tag": "tag"},
    ],
)
def test_malformed_messages_are_named(change):
    masked_sum = Sum()
    messages = masked_sum.messages(table(0))
    messages["shop"] = change(messages["shop"])
    assert refused(masked_sum, messages, "did not send a masked array") == "shop"


@pytest.mark.parametrize("bad", [-1, 2**32, 0.5, "0"])
def test_round_and_tensor_numbers_are_checked(bad):
    masker = SHARED.maskers["bank"]
    for moment in ({"round_id": bad}, {"round_id": 2**31, "tensor_id": bad}):
        with pytest.raises(ValueError, match="integers from 0 to"):
            masker.mask(np.zeros(1), **moment)


def test_numpy_numbers_are_accepted_as_rounds():
    masked_sum = Sum()
    values = table(0, (2,))
    messages = masked_sum.messages(values, np.int64(3), np.int32(1))
    packed = {name: _wire.unpack(_wire.pack(m)) for name, m in messages.items()}
    masked_sum.server.total(packed, round_id=np.int64(3), tensor_id=np.int64(1))


@pytest.mark.parametrize("clients", [[], ["bank"], ["bank", "bank"]])
def test_sum_needs_two_different_clients(clients):
    rings, numbers = SHARED.rings, SHARED.numbers
    for make in (
        lambda: Masker(rings["bank"], clients, numbers),
        lambda: Aggregator(rings["server"], clients, numbers),
    ):
        with pytest.raises(ValueError, match="at least two clients, once each"):
            make()


def test_sum_needs_numbers_for_all_clients():
    with pytest.raises(ValueError, match="too small for a sum over 3 clients"):
        Masker(SHARED.rings["bank"], CLIENTS, FixedPoint(2, bound=1))


def test_masker_needs_its_own_place():
    with pytest.raises(ValueError, match="'bank' is not among the clients"):
        Masker(SHARED.rings["bank"], ["shop", "telco"], SHARED.numbers)
