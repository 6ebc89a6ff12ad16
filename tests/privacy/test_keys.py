import copy
import hashlib
import hmac
import pickle

import numpy as np
import pytest
from _secure import agree, announce, deliver, make_rings
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from skvfl.federation import _wire
from skvfl.privacy import KeyRing, SecureAggregationError
from skvfl.privacy._keys import context, fingerprint


def run(rings, *, change_keys=None, change_proofs=None, session="session", epoch=0):
    """One agreement in which whoever relays the messages may change them."""
    keys = announce(rings, session=session, epoch=epoch)
    if change_keys:
        change_keys(keys)
    proofs = {name: ring.agree(deliver(keys, name)) for name, ring in rings.items()}
    if change_proofs:
        change_proofs(proofs)
    for name, ring in rings.items():
        ring.confirm(deliver(proofs, name))


def assert_holds_no_keys(ring, peer):
    assert ring.epoch is None
    with pytest.raises(SecureAggregationError, match="no confirmed keys") as caught:
        ring.key(peer, "purpose")
    assert caught.value.party == ring.name


def reference_hkdf(secret, salt, info, length):
    """RFC 5869 from its text."""
    pseudo_random_key = hmac.digest(salt, secret, "sha256")
    block, output = b"", b""
    while len(output) < length:
        counter = bytes([len(output) // 32 + 1])
        block = hmac.digest(pseudo_random_key, block + info + counter, "sha256")
        output += block
    return output[:length]


def with_identity(name, private_key):
    ring = KeyRing.__new__(KeyRing)
    ring.__setstate__({"name": name, "pinned": {}, "identity": private_key})
    return ring


def test_key_derivation_follows_rfc_5869():
    secret, salt = bytes([0x0B] * 22), bytes(range(13))
    info = bytes(range(0xF0, 0xFA))
    expected = bytes.fromhex(
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
        "34007208d5b887185865"
    )
    assert reference_hkdf(secret, salt, info, 42) == expected
    assert HKDF(hashes.SHA256(), 42, salt=salt, info=info).derive(secret) == expected


def test_key_exchange_follows_rfc_7748():
    alice = with_identity(
        "alice",
        bytes.fromhex(
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
        ),
    )
    bob = with_identity(
        "bob",
        bytes.fromhex(
            "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
        ),
    )
    public = bytes.fromhex(
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    )
    shared = bytes.fromhex(
        "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    )
    agree({"alice": alice, "bob": bob})
    assert alice.fingerprint == hashlib.sha256(public).hexdigest()
    assert alice._confirmed.secrets["bob"][32:] == shared
    assert bob._confirmed.secrets["alice"][32:] == shared


def test_key_is_derived_from_both_secrets_and_the_whole_context():
    rings = make_rings("bank", "shop", session="fit 1", epoch=4)
    epoch = rings["bank"]._confirmed
    secret, binding = epoch.secrets["shop"], epoch.bindings["shop"]
    assert len(secret) == 64
    assert secret[:32] != secret[32:]
    assert binding == rings["shop"]._confirmed.bindings["bank"]
    for field in ("bank", "shop", "4", "fit 1"):
        assert context(field) in binding
    for name in ("bank", "shop"):
        assert rings[name]._public_identity in binding
    assert binding.startswith(context("skvfl secure layer 1"))
    info = binding + context("row ids", "bank")
    expected = reference_hkdf(secret, bytes(32), info, 32)
    assert rings["bank"].key("shop", "row ids", sender="bank") == expected


def test_every_epoch_needs_the_private_keys_of_that_epoch():
    """Identities alone do not give away the keys of an epoch that is over."""
    a, b, secrets = KeyRing("a"), KeyRing("b"), set()
    for epoch in range(2):
        to_b = a.public_keys(["b"], session="fit", epoch=epoch)
        to_a = b.public_keys(["a"], session="fit", epoch=epoch)
        private = a._offered.private
        public = X25519PublicKey.from_public_bytes(to_a["a"][32:].tobytes())
        proof = b.agree({"a": to_b["b"]})
        a.agree({"b": to_a["a"]})
        a.confirm({"b": proof["a"]})
        assert a._confirmed.secrets["b"][:32] == private.exchange(public)
        assert not hasattr(a._confirmed, "private")
        secrets.add(a._confirmed.secrets["b"][:32])
    assert len(secrets) == 2


def test_context_tells_its_fields_apart():
    samples = [("ab", "c"), ("a", "bc"), ("abc",), ("", "abc"), ("ab", "", "c")]
    assert len({context(*fields) for fields in samples}) == len(samples)


def test_peers_share_keys_and_every_use_has_its_own():
    names = ("a", "b", "c", "server")
    rings = {name: KeyRing(name) for name in names}
    seen = set()
    moments = [("fit", 0), ("fit", 1), ("fit", 7), ("predict", 0)]
    uses = [("forward", None), ("gradient", None), ("ids", "first"), ("ids", "second")]
    for session, epoch in moments:
        agree(rings, session=session, epoch=epoch)
        assert {ring.epoch for ring in rings.values()} == {epoch}
        for i, first in enumerate(names):
            for second in names[i + 1 :]:
                for purpose, sender in uses:
                    sender = {None: None, "first": first, "second": second}[sender]
                    key = rings[first].key(second, purpose, sender=sender)
                    assert key == rings[second].key(first, purpose, sender=sender)
                    assert len(key) == 32
                    seen.add(key)
    assert len(seen) == len(moments) * 6 * len(uses)


def test_each_epoch_has_a_public_key_of_its_own():
    ring = KeyRing("bank")
    seen = set()
    for epoch in range(3):
        keys = ring.public_keys(["shop", "telco"], session="fit", epoch=epoch)
        assert {key[:32].tobytes() for key in keys.values()} == {ring._public_identity}
        (key,) = {key[32:].tobytes() for key in keys.values()}
        seen.add(key)
    assert len(seen) == 3


@pytest.mark.usefixtures("rng_guard")
def test_keys_come_from_the_operating_system():
    state, secrets = np.random.get_state(), set()  # noqa: NPY002
    for _ in range(2):
        np.random.set_state(state)  # noqa: NPY002
        secrets.add(make_rings("a", "b")["a"].key("b", "purpose"))
    assert len(secrets) == 2


def test_everything_that_crosses_survives_the_wire():
    rings = {name: KeyRing(name) for name in ("a", "b", "server")}
    keys = _wire.unpack(_wire.pack(announce(rings)))
    proofs = {name: ring.agree(deliver(keys, name)) for name, ring in rings.items()}
    proofs = _wire.unpack(_wire.pack(proofs))
    for name, ring in rings.items():
        ring.confirm(deliver(proofs, name))
    assert rings["a"].key("b", "p") == rings["b"].key("a", "p")


# Authentication of public keys


def test_pinned_fingerprints_are_accepted_in_any_writing():
    rings = {name: KeyRing(name) for name in ("a", "server")}
    written = rings["a"].fingerprint.upper()
    pin = " ".join(written[i : i + 4] for i in range(0, 64, 4))
    rings["b"] = KeyRing("b", pinned={"a": pin})
    agree(rings)
    assert rings["a"].key("b", "p") == rings["b"].key("a", "p")


def test_server_in_the_middle_is_found_by_pinned_fingerprints():
    alice, mallory = KeyRing("alice"), KeyRing("alice")
    bob = KeyRing("bob", pinned={"alice": alice.fingerprint})
    alice.public_keys(["bob"], session="fit", epoch=0)
    bob.public_keys(["alice"], session="fit", epoch=0)
    false = mallory.public_keys(["bob"], session="fit", epoch=0)
    with pytest.raises(SecureAggregationError) as caught:
        bob.agree({"alice": false["bob"]})
    assert caught.value.party == "alice"
    message = str(caught.value)
    assert "'bob' has pinned" in message
    for ring in (alice, mallory):
        assert " ".join(ring.fingerprint[i : i + 4] for i in (0, 4, 8, 12)) in message
    assert_holds_no_keys(bob, "alice")


def test_server_with_the_pinned_identity_but_its_own_key_is_found():
    rings = {"alice": KeyRing("alice")}
    rings["bob"] = KeyRing("bob", pinned={"alice": rings["alice"].fingerprint})
    mallory = KeyRing("alice").public_keys(["bob"], session="session", epoch=0)

    def replace(keys):
        keys["alice"]["bob"][32:] = mallory["bob"][32:]

    with pytest.raises(SecureAggregationError, match="do not hold the same key") as e:
        run(rings, change_keys=replace)
    assert "'alice'" in str(e.value)
    assert "'bob'" in str(e.value)


def test_knowing_an_ephemeral_secret_does_not_replace_an_identity():
    """Without Alice's identity her peers' proofs cannot be made."""
    alice, mallory = KeyRing("alice"), KeyRing("alice")
    bob = KeyRing("bob", pinned={"alice": alice.fingerprint})
    false = mallory.public_keys(["bob"], session="fit", epoch=0)["bob"]
    false[:32] = alice.public_keys(["bob"], session="fit", epoch=0)["bob"][:32]
    to_alice = bob.public_keys(["alice"], session="fit", epoch=0)["alice"]
    bob.agree({"alice": false})
    proof = mallory.agree({"bob": to_alice})["bob"]
    with pytest.raises(SecureAggregationError, match="do not hold the same key"):
        bob.confirm({"alice": proof})


@pytest.mark.parametrize("same_session", [True, False])
def test_identity_is_trusted_on_first_use_within_a_session(same_session):
    rings = make_rings("a", "b", session="fit")
    rings["a"] = KeyRing("a")
    session = "fit" if same_session else "predict"
    if not same_session:
        agree(rings, session=session, epoch=1)
        assert rings["a"].key("b", "p") == rings["b"].key("a", "p")
        return
    with pytest.raises(
        SecureAggregationError, match="has changed in this session"
    ) as e:
        agree(rings, session=session, epoch=1)
    assert e.value.party == "a"
    assert "'b' finds" in str(e.value)


@pytest.mark.parametrize("pin", ["", "ab" * 31, "zz" * 32])
def test_pins_are_checked(pin):
    with pytest.raises(ValueError, match=r"pinned for 'shop' is not one.*64"):
        KeyRing("bank", pinned={"shop": pin})


def test_pin_for_nobody_is_refused():
    ring = KeyRing("bank", pinned={"shpo": "ab" * 32})
    with pytest.raises(ValueError, match="'shpo', which is no peer of 'bank'"):
        ring.public_keys(["shop"], session="fit", epoch=0)


def test_fingerprint():
    assert fingerprint(b"abc") == hashlib.sha256(b"abc").hexdigest()


# What goes wrong on the way


@pytest.mark.parametrize("what", ["keys", "proofs"])
def test_flipped_bit_names_the_pair(what):
    rings = {name: KeyRing(name) for name in ("a", "b", "c")}

    def flip(sent):
        sent["a"]["b"][-1] ^= 1

    with pytest.raises(SecureAggregationError, match="do not hold the same key") as e:
        run(rings, **{f"change_{what}": flip})
    assert e.value.party in ("a", "b")
    assert "'a'" in str(e.value)
    assert "'b'" in str(e.value)
    assert "'c'" not in str(e.value)


def test_replayed_public_key_names_the_pair():
    rings = {name: KeyRing(name) for name in ("a", "b")}
    old = announce(rings, epoch=0)

    def replay(keys):
        keys["a"]["b"][:] = old["a"]["b"]

    with pytest.raises(SecureAggregationError, match="do not hold the same key"):
        run(rings, change_keys=replay, epoch=1)


@pytest.mark.parametrize(("session", "epoch"), [("fit", 1), ("other", 0)])
def test_different_epochs_or_sessions_do_not_agree(session, epoch):
    a, b = KeyRing("a"), KeyRing("b")
    to_b = a.public_keys(["b"], session="fit", epoch=0)
    to_a = b.public_keys(["a"], session=session, epoch=epoch)
    proof = a.agree({"b": to_a["a"]})["b"]
    b.agree({"a": to_b["b"]})
    with pytest.raises(SecureAggregationError, match="do not hold the same key"):
        b.confirm({"a": proof})
    assert_holds_no_keys(b, "a")


def test_reflected_keys_and_proofs_are_refused():
    a, b = KeyRing("a"), KeyRing("b")
    own = a.public_keys(["b"], session="fit", epoch=0)["b"]
    with pytest.raises(SecureAggregationError, match="its own identity") as caught:
        a.agree({"b": own})
    assert caught.value.party == "b"
    a.public_keys(["b"], session="fit", epoch=1)
    proof = a.agree({"b": b.public_keys(["a"], session="fit", epoch=1)["a"]})["b"]
    with pytest.raises(SecureAggregationError, match="do not hold the same key"):
        a.confirm({"b": proof})


@pytest.mark.parametrize("half", [slice(None, 32), slice(32, None)])
def test_points_of_low_order_are_refused(half):
    a, b = KeyRing("a"), KeyRing("b")
    a.public_keys(["b"], session="fit", epoch=0)
    keys = b.public_keys(["a"], session="fit", epoch=0)["a"]
    keys[half] = 0
    with pytest.raises(SecureAggregationError, match="unusable public keys") as caught:
        a.agree({"b": keys})
    assert caught.value.party == "b"


@pytest.mark.parametrize("step", ["agree", "confirm"])
@pytest.mark.parametrize(
    ("change", "party", "message"),
    [
        (lambda sent: sent.pop("c"), "c", "did not arrive"),
        (lambda sent: sent.update(x=sent["b"]), "x", "is no peer"),
        (lambda sent: sent.update(b=sent["b"][:-1]), "b", "bytes"),
        (lambda sent: sent.update(b=sent["b"].astype(int)), "b", "bytes"),
        (lambda sent: sent.update(b="no array"), "b", "bytes"),
    ],
)
def test_missing_and_malformed_messages_name_the_peer(step, change, party, message):
    rings = {name: KeyRing(name) for name in ("a", "b", "c")}
    received = deliver(announce(rings), "a")
    if step == "confirm":
        received = rings["a"].agree(received)
    change(received)
    with pytest.raises(SecureAggregationError, match=message) as caught:
        getattr(rings["a"], step)(received)
    assert caught.value.party == party
    assert_holds_no_keys(rings["a"], "b")


def test_keys_are_not_used_before_they_are_confirmed():
    rings = make_rings("a", "b")
    assert rings["a"].epoch == 0
    keys = announce(rings, epoch=1)
    assert_holds_no_keys(rings["a"], "b")
    rings["a"].agree(deliver(keys, "a"))
    assert_holds_no_keys(rings["a"], "b")


def test_calls_come_in_order():
    ring = KeyRing("a")
    with pytest.raises(ValueError, match="call public_keys first"):
        ring.agree({})
    ring.public_keys(["b"], session="fit", epoch=0)
    with pytest.raises(ValueError, match="call agree first"):
        ring.confirm({})


def test_key_epochs_go_upwards():
    ring = KeyRing("a")
    ring.public_keys(["b"], session="fit", epoch=3)
    for epoch in (3, 2):
        with pytest.raises(ValueError, match=f"key epoch {epoch} is not newer than 3"):
            ring.public_keys(["b"], session="fit", epoch=epoch)
    ring.public_keys(["b"], session="predict", epoch=0)


@pytest.mark.parametrize("peers", [["a", "b"], ["b", "b"]])
def test_peers_are_others_once_each(peers):
    with pytest.raises(ValueError, match="other organisations, once each"):
        KeyRing("a").public_keys(peers, session="fit", epoch=0)


# Copies, pickles, and what can be read


@pytest.mark.parametrize(
    "copier", [copy.copy, copy.deepcopy, lambda ring: pickle.loads(pickle.dumps(ring))]
)
def test_copies_keep_the_identity_and_no_key_of_an_epoch(copier):
    rings = make_rings("a", "b")
    original = rings["a"]
    rings["a"] = copier(original)
    assert rings["a"].fingerprint == original.fingerprint
    assert original.epoch == 0
    assert_holds_no_keys(rings["a"], "b")
    agree(rings, epoch=1)
    assert rings["a"].key("b", "p") == rings["b"].key("a", "p")


def test_pins_survive_pickling():
    pins = {"b": KeyRing("b").fingerprint}
    ring = pickle.loads(pickle.dumps(KeyRing("a", pinned=pins)))
    false = KeyRing("b").public_keys(["a"], session="fit", epoch=0)
    ring.public_keys(["b"], session="fit", epoch=0)
    with pytest.raises(SecureAggregationError, match="pinned"):
        ring.agree({"b": false["a"]})


def test_no_secret_is_in_the_repr_and_no_key_of_an_epoch_in_the_pickle():
    ring = make_rings("a", "b")["a"]
    key = ring.key("b", "purpose")
    identity = ring._identity.private_bytes_raw()
    secrets = [key, *(ring._confirmed.secrets.values()), *ring._static_secrets.values()]
    pickled = pickle.dumps(ring)
    assert identity in pickled
    for secret in secrets:
        assert secret not in pickled
    for secret in [identity, *secrets]:
        assert secret.hex() not in repr(ring)
        assert repr(secret) not in repr(ring)
    assert repr(ring).startswith("KeyRing('a', fingerprint=")


def test_a_wrong_proof_cannot_be_followed_by_the_right_one():
    a, b = KeyRing("a"), KeyRing("b")
    to_b = a.public_keys(["b"], session="fit", epoch=0)["b"]
    to_a = b.public_keys(["a"], session="fit", epoch=0)["a"]
    a.agree({"b": to_a})
    right = b.agree({"a": to_b})["a"]
    wrong = right.copy()
    wrong[0] ^= 1
    with pytest.raises(SecureAggregationError, match="do not hold the same key"):
        a.confirm({"b": wrong})
    with pytest.raises(ValueError, match="call agree first"):
        a.confirm({"b": right})
    assert_holds_no_keys(a, "b")


def test_a_second_confirmation_needs_a_second_agreement():
    a, b = KeyRing("a"), KeyRing("b")
    to_b = a.public_keys(["b"], session="fit", epoch=0)["b"]
    to_a = b.public_keys(["a"], session="fit", epoch=0)["a"]
    a.agree({"b": to_a})
    right = b.agree({"a": to_b})["a"]
    a.confirm({"b": right})
    assert a.key("b", "purpose")
    with pytest.raises(ValueError, match="call agree first"):
        a.confirm({"b": right})
    assert_holds_no_keys(a, "b")


def test_forget_drops_the_keys():
    ring = make_rings("a", "b")["a"]
    ring.forget()
    assert_holds_no_keys(ring, "b")


def test_claims_go_upwards_for_each_purpose():
    ring = make_rings("a", "b")["a"]
    for moment in ((0, 0), (0, 2), (3, 0), (3, 1)):
        ring.claim("forward", *moment)
    ring.claim("gradient", 0, 0)
    for moment in ((3, 1), (3, 0), (2, 9)):
        with pytest.raises(SecureAggregationError) as caught:
            ring.claim("forward", *moment)
        assert caught.value.party == "a"
        said = f"forward: round {moment[0]}, tensor {moment[1]} is not newer than "
        assert said + "round 3, tensor 1" in str(caught.value)
    ring.claim("forward", 3, 2)


def test_no_peer_of_an_iterator_is_left_without_a_stream():
    rings = make_rings("bank", "clinic", "lab")
    peers, nonce = ["clinic", "lab"], bytes(8)
    one_by_one = [rings["bank"].stream(peer, "masks", nonce) for peer in peers]
    expected = [stream.update(bytes(4)) for stream in one_by_one]
    streams = rings["bank"].streams(iter(peers), "masks", nonce)
    assert [stream.update(bytes(4)) for stream in streams] == expected
