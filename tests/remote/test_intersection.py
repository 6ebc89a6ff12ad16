"""Ids of organisations that do not show them to each other."""

import dataclasses
import pickle
import time
from contextlib import contextmanager

import numpy as np
import pandas as pd
import polars as pl
import pytest
from _bank_and_telecom import make_folders, telecom_table
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from skvfl.alignment import align, match
from skvfl.exceptions import AlignmentError, PartyError
from skvfl.federation import CommunicationLog, Holding, LocalTransport, Member, _wire
from skvfl.federation import _transport as transports
from skvfl.remote import _intersection
from skvfl.remote._config import PartyConfig
from skvfl.remote._intersection import (
    Ids,
    IdsParty,
    count_shared,
    intersect,
    match_privately,
)
from skvfl.remote._organisation import Organisation

BANK = [f"customer {i}" for i in (7, 3, 12, 9, 1, 30)]
SHOP = [f"customer {i}" for i in (9, 100, 3, 101, 7)]
TELCO = [f"customer {i}" for i in (200, 3, 9, 201)]


@contextmanager
def session_of(log=None, **ids):
    members = [
        Member(name, Holding(np.zeros((len(own), 1))), ids=own)
        for name, own in ids.items()
    ]
    log = CommunicationLog() if log is None else log
    with LocalTransport().connect(members, log, "bank") as session:
        each = {name: {"role": "ids.keeper", "settings": {}} for name in ids}
        session.open(each)
        yield session


def lists(elements):
    return st.lists(elements, min_size=1, max_size=8, unique=True)


@settings(max_examples=25, deadline=None)
@given(
    st.one_of(
        *(
            st.tuples(lists(each), lists(each), lists(each))
            for each in (st.integers(-3, 9), st.text("ab\ud800é", max_size=2))
        )
    )
)
def test_the_same_rows_are_found_as_in_the_clear(ids):
    ids = dict(zip(("bank", "shop", "telco"), ids, strict=True))
    expected = match(ids, "bank")
    if all((rows >= 0).any() for rows in expected.values()):
        found = match_privately(ids, "bank")
        assert list(found) == list(expected)
        for name, rows in expected.items():
            assert_array_equal(found[name], rows)
    else:
        with pytest.raises(AlignmentError, match="have no id in common"):
            match_privately(ids, "bank")


@pytest.mark.parametrize("keep", ["active", "intersection"])
@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas])
def test_tables_are_aligned_as_in_the_clear(convert, keep):
    tables = {
        "bank": convert(pd.DataFrame({"id": BANK, "age": range(6)})),
        "shop": convert(pd.DataFrame({"id": SHOP, "spend": range(5)})),
        "telco": convert(pd.DataFrame({"id": TELCO, "calls": range(4)})),
    }
    clear = align(tables, on="id", keep=keep)
    private = align(tables, on="id", keep=keep, private=True)
    assert private.table.equals(clear.table)
    assert private.ids == clear.ids
    assert private.parties == clear.parties
    for name, held in clear.held.items():
        assert_array_equal(private.held[name], held)


@pytest.mark.parametrize("keep", ["active", "intersection"])
def test_one_list_of_positions_names_rows_of_everybody(keep):
    with session_of(shop=SHOP, telco=TELCO) as session:
        agreed = intersect(session, BANK, ["shop", "telco"], keep)
    in_all = {"customer 3", "customer 9"}
    listed = [each for each in BANK if keep == "active" or each in in_all]
    assert [each for each, row in zip(BANK, agreed.rows, strict=True) if row >= 0] == (
        listed
    )
    for name, own in {"shop": SHOP, "telco": TELCO}.items():
        assert_array_equal(agreed.held[name], [each in own for each in BANK])
        # Its table may be in another order by then.
        again = own[::-1]
        rows = Ids(again).find(session.parties[name].agreed)
        assert len(rows) == len(listed)
        for i, each in enumerate(BANK):
            if agreed.rows[i] >= 0:
                row = rows[agreed.rows[i]]
                assert (again[row] == each) if row >= 0 else (each not in own)


def test_a_row_that_is_gone_is_counted():
    with session_of(shop=SHOP) as session:
        intersect(session, BANK, ["shop"])
    agreed = session.parties["shop"].agreed
    with pytest.raises(AlignmentError, match="2 of the 3 ids that were agreed on"):
        Ids(["customer 9", "x"]).find(agreed)


def test_only_the_size_is_learnt():
    with session_of(shop=SHOP) as session:
        assert count_shared(session, BANK, "shop") == 3
        with pytest.raises(PartyError, match="no positions of its masked ids"):
            session.tell("agree_on_ids", to=["shop"], positions=np.array([0]))
    with session_of(shop=["nobody"]) as session:
        assert count_shared(session, BANK, "shop") == 0


def test_it_is_a_part_of_opening_and_every_byte_is_counted():
    log = CommunicationLog()
    with session_of(log, shop=SHOP) as session:
        intersect(session, BANK, ["shop"])
    assert log.n_rounds == log.n_messages == 0
    crossed = 32 * (len(BANK) + len(BANK) + len(SHOP)) + 8 * 3
    assert crossed < log.n_bytes < crossed + 1200


# What is refused


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "no rows"),
        (["a", None, float("nan"), pd.NA, pd.NaT], "4 of its 5 ids are missing"),
        (["sue", "bob", "sue", "sue"], "2 of its 4 ids repeat an earlier one"),
        ([1, 1.0], "1 of its 2 ids repeat"),
        (["sue", 5], "are 1 text, 1 whole numbers"),
        ([1.5, 2.5], "are 2 of type float"),
        ([True, False], "are 2 of type bool"),
        (pd.to_datetime(["2020-01-01"]), "are 1 of type Timestamp"),
        ([2.0**53, 1.0], "1 of its ids are floats too large"),
    ],
)
def test_ids_that_cannot_be_compared_are_refused_before_anything_is_masked(
    ids, message, monkeypatch
):
    monkeypatch.setattr(_intersection, "Secret", None)
    with pytest.raises(AlignmentError, match=message) as own:
        intersect(None, ids, ["shop"])
    with pytest.raises(PartyError, match=message) as theirs, session_of(shop=ids):
        pass
    for error in (own.value, theirs.value):
        assert "sue" not in str(error)
        assert "2020" not in str(error)


@pytest.mark.parametrize("ids", [pd.Series(BANK), pl.Series(BANK), np.array(BANK)])
def test_columns_of_every_library_are_ids(ids):
    assert Ids(ids).values == BANK
    assert Ids(ids).kind == "text"
    assert Ids(np.arange(3, dtype=np.uint8)).values == [0, 1, 2]
    assert Ids(pd.Series([1, 2], dtype="Int64")).kind == "whole numbers"
    assert Ids([1.0, 2.0]).values == [1, 2]


def test_different_kinds_are_refused_before_anything_is_masked(monkeypatch):
    monkeypatch.setattr(_intersection, "Secret", None)
    message = "of the active party are text, and those of 'shop' are whole numbers"
    with session_of(shop=[1, 2, 3]) as session:
        with pytest.raises(AlignmentError, match=message):
            intersect(session, BANK, ["shop"])
        with pytest.raises(AlignmentError, match=message):
            count_shared(session, BANK, "shop")


def test_nothing_in_common_is_an_error_without_ids():
    for keep in ("active", "intersection"):
        with (
            session_of(shop=SHOP, telco=["nobody"]) as session,
            pytest.raises(AlignmentError, match="and 'telco' have no id in") as error,
        ):
            intersect(session, BANK, ["shop", "telco"], keep)
        assert "customer" not in str(error.value)
    with (
        session_of(shop=BANK[:2], telco=BANK[2:]) as session,
        pytest.raises(AlignmentError, match="no id is in the tables of all parties"),
    ):
        intersect(session, BANK, ["shop", "telco"])


def test_a_member_without_ids_says_so():
    member = Member("shop", Holding(np.zeros((3, 1))))
    with pytest.raises(PartyError, match="party 'shop': its table has no column of id"):
        member.perform("open", {"role": "ids.keeper", "settings": {}})


POINTS = np.frombuffer(
    b"".join(
        ec.generate_private_key(ec.SECP256R1())
        .public_key()
        .public_numbers()
        .x.to_bytes(32)
        for _ in range(3)
    ),
    np.uint8,
).reshape(3, 32)
# No point has this first coordinate, which is beyond the field.
OFF = np.full((1, 32), 255, np.uint8)


@pytest.mark.parametrize(
    ("masked", "message"),
    [
        (OFF, "are no masked ids"),
        (np.zeros((1, 31), np.uint8), "are no masked ids"),
        (np.zeros((0, 32), np.uint8), "are no masked ids"),
        (np.zeros((2, 32), np.int64), "are no masked ids"),
        (np.zeros(32, np.uint8), "are no masked ids"),
        ("points", "are no masked ids"),
        (POINTS[[0, 1, 0]], "a masked id twice"),
    ],
)
def test_what_is_no_masked_id_is_refused(masked, message):
    party = IdsParty("shop", SHOP)
    asked = {"kind": "text", "masked": masked, "only_size": False}
    with pytest.raises(PartyError, match=f"party 'shop': .*{message}"):
        party.perform("mask_ids", asked)


def test_ids_are_compared_once_and_rows_agreed_on_once():
    party = IdsParty("shop", SHOP)
    asked = {"kind": "text", "masked": POINTS, "only_size": False}
    with pytest.raises(PartyError, match="'mask_ids' comes first"):
        party.perform("agree_on_ids", {"positions": np.array([0])})
    with pytest.raises(PartyError, match="those that it was sent are whole numbers"):
        party.perform("mask_ids", asked | {"kind": "whole numbers"})
    party.perform("mask_ids", asked)
    with pytest.raises(PartyError, match="were compared already"):
        party.perform("mask_ids", asked)
    for wrong in ([5], [-2], [0.0], [[0]], [True]):
        with pytest.raises(PartyError, match="no positions of its masked ids"):
            party.perform("agree_on_ids", {"positions": np.array(wrong)})
    with pytest.raises(PartyError, match="a position twice"):
        party.perform("agree_on_ids", {"positions": np.array([1, -1, 1])})
    # Two messages may be days apart: what is due for the second is kept.
    party.release()
    party = pickle.loads(pickle.dumps(party)).again()
    party.perform("agree_on_ids", {"positions": np.array([1, -1, 0])})
    assert party.agreed[1] is None
    assert {party.agreed[0], party.agreed[2]} < {*SHOP}
    for operation, arguments in (
        ("mask_ids", asked),
        ("agree_on_ids", {"positions": np.array([0])}),
    ):
        with pytest.raises(PartyError, match="already"):
            party.perform(operation, arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda answer: {"again": answer["again"]}, "does not have the entries"),
        (lambda answer: answer | {"again": answer["again"][1:]}, "where 6 are due"),
        (lambda answer: answer | {"masked": answer["masked"][1:]}, "where 5 are due"),
        (lambda answer: answer | {"masked": POINTS[[0, 0, 1, 1, 2]]}, "id twice"),
        (lambda answer: answer | {"masked": 3}, "no masked ids"),
        (
            lambda answer: answer | {"masked": np.vstack([answer["masked"][1:], OFF])},
            "party 'shop': what it sent are no masked ids",
        ),
        # The asker's own ids are no answer: nothing is shared by them.
        (lambda answer: answer | {"masked": answer["again"][:5]}, "no id in common"),
    ],
)
def test_an_answer_that_was_made_up_is_refused(change, message, monkeypatch):
    whole = IdsParty.mask_ids

    def mask_ids(self, **asked):
        return change(whole(self, **asked))

    mask_ids.__skvfl_operation__ = True
    monkeypatch.setattr(IdsParty, "mask_ids", mask_ids)
    with (
        session_of(shop=SHOP) as session,
        pytest.raises((PartyError, AlignmentError), match=message),
    ):
        intersect(session, BANK, ["shop"])


# What each side sees


class Views:
    """Everything that crosses, as bytes, and what each side has afterwards."""

    def __init__(self, monkeypatch):
        self.shop, self.bank = [], []
        deliver = _wire.deliver

        def recorded(payload, *, copy=True):
            # A reply begins with "ok", a request with what is asked for.
            view = self.bank if payload[0] == "ok" else self.shop
            view.append(_wire.pack(payload))
            return deliver(payload, copy=copy)

        monkeypatch.setattr(transports._wire, "deliver", recorded)
        self.secrets = []
        make = _intersection.Secret.__init__

        def kept(secret, number=None):
            make(secret, number)
            self.secrets.append(secret)

        monkeypatch.setattr(_intersection.Secret, "__init__", kept)

    def compare(self, ask):
        with session_of(shop=SHOP) as session:
            asked = ask(session)
        self.bank.append(pickle.dumps(asked))
        self.shop.append(pickle.dumps(session.parties["shop"]))
        return self


def found(view, ids, secret):
    """Which ids a view gives away: as they are, hashed, or masked by a secret."""
    seen = b"".join(view)
    points = [next(iter(_intersection._points_of(Ids([each])))) for each in ids]
    marks = {
        each: (
            each.encode(),
            point.public_numbers().x.to_bytes(32),
            secret._key.exchange(ec.ECDH(), point),
        )
        for each, point in zip(ids, points, strict=True)
    }
    return {each for each, own in marks.items() if any(mark in seen for mark in own)}


ASKED = {
    "rows": lambda session: intersect(session, BANK, ["shop"]),
    "size": lambda session: count_shared(session, BANK, "shop"),
}
SHARED = {*BANK} & {*SHOP}


@pytest.mark.parametrize("asked", ASKED)
def test_nobody_sees_ids_of_the_other(asked, monkeypatch):
    views = Views(monkeypatch).compare(ASKED[asked])
    of_bank, of_shop = views.secrets
    # Each searches by everything that it can compute of ids which it guesses.
    assert found(views.bank, {*SHOP} - SHARED, of_bank) == set()
    assert found(views.shop, {*BANK} - SHARED, of_shop) == set()
    # The shop keeps its own ids of the rows that were agreed on.
    own = {each for each in SHOP if each.encode() in b"".join(views.shop)}
    assert own == (SHARED if asked == "rows" else set())
    # The search finds ids which are masked by a secret that the searcher has.
    assert found(views.bank, SHOP, of_shop) == {*SHOP}
    assert found(views.shop, BANK, of_bank) == {*BANK}


class _NoSecret(_intersection.Secret):
    def __init__(self, number=None):
        super().__init__(1)


def test_without_secrets_the_search_finds_all_ids(monkeypatch):
    monkeypatch.setattr(_intersection, "Secret", _NoSecret)
    views = Views(monkeypatch).compare(ASKED["rows"])
    assert found(views.bank, SHOP, _NoSecret()) == {*SHOP}
    assert found(views.shop, BANK, _NoSecret()) == {*BANK}


def _linked(asked, monkeypatch):
    """Ids of the bank's that it finds at the place of their masked ones."""
    views = Views(monkeypatch).compare(ASKED[asked])
    of_bank, _ = views.secrets
    _, answer = next(
        reply
        for reply in map(_wire.unpack, views.bank[:-1])
        if isinstance(reply[1], dict) and "again" in reply[1]
    )
    theirs = set(of_bank.mask_again(answer["masked"]))
    _, order = of_bank.mask(Ids(BANK))
    again = [each.tobytes() for each in answer["again"]]
    return {BANK[i] for i, each in zip(order, again, strict=True) if each in theirs}


def test_the_size_does_not_say_which(monkeypatch):
    # By chance the two orders may agree, so often enough is what counts.
    wrong = sum(_linked("size", monkeypatch) != SHARED for _ in range(20))
    assert wrong > 10
    assert all(_linked("rows", monkeypatch) == SHARED for _ in range(5))


def test_nothing_crosses_in_the_order_of_a_table(monkeypatch):
    views = Views(monkeypatch).compare(ASKED["rows"])
    payloads = [_wire.unpack(each) for each in views.shop[:-1] + views.bank[:-1]]
    lists = [
        p[1]["masked"] for p in payloads if isinstance(p[1], dict) and "masked" in p[1]
    ]
    assert len(lists) == 2
    for masked in lists:
        rows = [each.tobytes() for each in masked]
        assert rows == sorted(rows)
    # The agreed list is drawn anew each time.
    orders = set()
    for _ in range(8):
        with session_of(shop=SHOP) as session:
            orders.add(tuple(intersect(session, BANK, ["shop"]).rows))
    assert len(orders) > 1


def test_every_comparison_has_secrets_of_its_own(monkeypatch):
    views = Views(monkeypatch)
    with session_of(shop=SHOP, telco=TELCO) as session:
        intersect(session, BANK, ["shop", "telco"])
    numbers = {each._key.private_numbers().private_value for each in views.secrets}
    assert len(numbers) == 4


def test_comparing_takes_little_time():
    n = 1000
    bank, shop = range(n), range(n // 2, n + n // 2)
    start = time.process_time()
    with session_of(shop=shop) as session:
        assert count_shared(session, bank, "shop") == n // 2
    # Both parties, with much room for a slow machine: 0.3 s where it was measured.
    assert time.process_time() - start < 3


# Later runs are about rows of the list


def agree(keep, **tables):
    """Members with their ids and the list in what they keep, and the bank's rows."""
    ids = {name: list(table["id"]) for name, table in tables.items()}
    bank = ids.pop("bank")
    with session_of(**ids) as session:
        agreed = intersect(session, bank, [*ids], keep)
    members = {
        name: Member(
            name,
            Holding(tables[name].drop(columns="id").iloc[::-1]),
            ids=tables[name]["id"].iloc[::-1],
            kept={"list": pickle.loads(pickle.dumps(party))},
        )
        for name, party in session.parties.items()
    }
    return members, agreed


@pytest.mark.parametrize("keep", ["active", "intersection"])
def test_rows_of_a_run_are_positions_in_the_list(keep):
    tables = {
        "bank": pd.DataFrame({"id": BANK, "age": range(6)}),
        "shop": pd.DataFrame(
            {"id": SHOP, "spend": range(5), "city": list("abcde"), "new": [True] * 5}
        ),
    }
    members, agreed = agree(keep, **tables)
    aligned = align(tables, on="id", keep=keep)
    rows = agreed.rows[agreed.rows >= 0]
    opening = {"role": "rap.party", "settings": {}, "rows": rows, "agreed": "list"}
    shop = members["shop"]
    held = shop.perform("open", opening)
    assert held["n_rows"] == len(aligned.ids)
    assert held["n_empty"] == int((~aligned.held["shop"]).sum())
    block = shop.party.held(Holding).block
    pd.testing.assert_frame_equal(block, aligned.table[["spend", "city", "new"]])


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (np.array([[1, 2], [3, 4]]), [[3.0, 4.0], [np.nan, np.nan]]),
        (np.array([[True], [False]]), [[0.0], [np.nan]]),
        (np.array([[1.0], [2.0]], np.float32), [[2.0], [np.nan]]),
    ],
)
def test_rows_that_an_array_lacks_are_missing(block, expected):
    taken = Holding(block).take(np.array([1, -1])).block
    assert_array_equal(taken, expected)
    text = Holding(block.astype(str)).take(np.array([-1, 0])).block
    assert pd.isna(text[0]).all()
    assert text[1, 0] == str(block[0, 0])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"agreed": "x"}, "it has no such list of rows"),
        ({"agreed": ["list"]}, "it has no such list of rows"),
        ({"agreed": "model"}, "it has no such list of rows"),
        ({"agreed": "list", "rows": np.array([3])}, "not among its 3"),
        ({"agreed": "list", "rows": np.array([-2])}, "not among its 3"),
        ({"agreed": "list", "rows": np.array([1, 1])}, "a row twice"),
    ],
)
def test_rows_that_are_not_on_the_list_are_refused(asked, message):
    tables = {
        "bank": pd.DataFrame({"id": BANK}),
        "shop": pd.DataFrame({"id": SHOP, "spend": range(5)}),
    }
    members, _ = agree("intersection", **tables)
    members["shop"].kept["model"] = object()
    with pytest.raises(PartyError, match=f"party 'shop': .*{message}"):
        members["shop"].perform("open", {"role": "rap.party", "settings": {}, **asked})


def test_a_row_of_the_active_party_alone_is_one_without_values():
    table = pd.DataFrame({"id": SHOP, "spend": range(5), "calls": range(5)})
    members, _ = agree("intersection", bank=pd.DataFrame({"id": BANK}), shop=table)
    asked = {"agreed": "list", "rows": np.array([-1, 2, -1])}
    opening = {"role": "rap.party", "settings": {}, **asked}
    assert members["shop"].perform("open", opening)["n_empty"] == 2


def test_rows_are_named_by_masked_ids_before_they_are_agreed_on():
    party = IdsParty("shop", SHOP)
    secret = _intersection.Secret()
    masked, order = secret.mask(Ids(BANK))
    asked = {"kind": "text", "masked": masked, "only_size": False}
    answer = party.perform("mask_ids", asked)
    party.release()
    again = _intersection.Secret(secret.number)
    shared = _intersection.find_shared(again, "shop", answer)
    rows = party.find_rows(SHOP)
    assert {BANK[order[i]]: SHOP[rows[j]] for i, j in shared.items()} == {
        each: each for each in SHARED
    }


def test_a_table_without_an_agreed_row_is_named():
    tables = {
        "bank": pd.DataFrame({"id": BANK}),
        "shop": pd.DataFrame({"id": SHOP, "spend": range(5)}),
    }
    members, _ = agree("intersection", **tables)
    members["shop"].ids = ["other", *SHOP[1:]]
    with pytest.raises(PartyError, match=r"1 of the 3 ids .* no longer") as error:
        members["shop"].perform(
            "open", {"role": "rap.party", "settings": {}, "agreed": "list"}
        )
    assert "customer" not in str(error.value)


def compared(ids, only_size=False):
    """What a partner with these ids answers to ids 0 to 4."""
    masked, _ = _intersection.Secret().mask(Ids([*range(5)]))
    party = IdsParty("shop", ids)
    return party.mask_ids("whole numbers", masked, only_size)["masked"]


def test_a_table_is_masked_once_for_a_peer(monkeypatch):
    ids, of_another = Ids([*range(3, 12)]), Ids([*range(3, 12)])
    ids.masking, of_another.masking = _intersection.Masking(), _intersection.Masking()
    sizes = []
    mask = _intersection.Secret.mask
    monkeypatch.setattr(
        _intersection.Secret,
        "mask",
        lambda self, own: sizes.append(len(own)) or mask(self, own),
    )
    first = compared(ids)
    assert np.array_equal(compared(ids), first)
    # The asker's five ids each time, and the partner's nine once.
    assert sizes == [5, 9, 5]
    # Nothing is to be found again in what others are sent, or those who only count.
    rows = {row.tobytes() for row in first}
    others = [compared(of_another), compared(ids, True), compared(Ids(ids.values))]
    for other in others:
        assert not rows & {row.tobytes() for row in other}
    assert np.array_equal(compared(ids), first)


def test_peers_of_an_organisation_are_sent_other_masked_ids(tmp_path):
    config = PartyConfig.load(make_folders(tmp_path))
    peer = config.peers["bank"]
    config.peers["rival"] = dataclasses.replace(peer, name="rival")
    organisation = Organisation(config, telecom_table())
    sent = {
        name: [organisation.member(name).ids.masking for _ in range(2)]
        for name in ("bank", "rival")
    }
    assert sent["bank"][0] is sent["bank"][1] is not sent["rival"][0]
    # A table that is read anew is masked anew.
    again = Organisation(config, telecom_table()).member("bank").ids.masking
    assert again is not sent["bank"][0]
