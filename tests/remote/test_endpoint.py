"""One organisation's side of a session, without any connection."""

import contextlib

import numpy as np
import pandas as pd
import pytest
from _partners import PLENTY, exchange_keys, partner_config
from sklearn.preprocessing import OneHotEncoder

import skvfl
from skvfl.exceptions import PartyError, PartyValueError, RefusedError
from skvfl.federation import Holding, Member, _wire
from skvfl.federation._replies import NOTHING, NUMBER
from skvfl.remote._audit import Audit
from skvfl.remote._endpoint import (
    PROTOCOL,
    Endpoint,
    pack_hello,
    pack_request,
    read_reply,
)
from skvfl.remote._intersection import Ids, Secret
from skvfl.remote._organisation import Organisation
from skvfl.remote._session import _BYTES_PER_SECOND, RemoteSession, _Partner

SETTINGS = {"bottom": [4], "cut_width": 3, "lr": 0.1}
N_ROWS = 40
OPENING = {
    "role": "splitnn.passive",
    "settings": SETTINGS,
    "rows": np.arange(N_ROWS),
}


class Plain(Organisation):
    """Without ids, so that rows are named by their positions."""

    def member(self, peer):
        member = super().member(peer)
        return Member(member.name, member.holding)


@pytest.fixture
def shop(tmp_path):
    return make_shop(tmp_path)


def make_shop(tmp_path, kind=Plain, allow=None):
    exchange_keys(tmp_path, ["bank", "shop"])
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "customer": np.arange(N_ROWS),
            "spend": rng.normal(size=N_ROWS),
            "plan": rng.choice(["basic", "family"], N_ROWS),
        }
    )
    config = partner_config(tmp_path, "shop", ["spend", "plan"], allow=allow)
    return kind(config, table)


class Talk:
    """Asks an endpoint, as a session would."""

    def __init__(self, shop, peer="bank"):
        self.endpoint, self.peer, self.number = shop.endpoint(peer), peer, 0

    def frame(self, frame, operation="?"):
        reply = self.endpoint.answer(self.peer, frame)
        return read_reply("shop", reply, self.number, operation)

    def hello(self):
        return self.frame(pack_hello(self.number))

    def ask(self, operation, **arguments):
        self.number += 1
        return self.frame(pack_request(self.number, operation, **arguments), operation)


def fitted(shop):
    talk = Talk(shop)
    talk.hello()
    talk.ask("open", **OPENING)
    talk.ask("prepare", seed=0)
    return talk.ask("keep")


def test_a_session_is_a_sequence_and_leaves_a_model(shop):
    model = fitted(shop)
    talk = Talk(shop)
    assert talk.hello()["terms"]["fits left today"] == PLENTY["fits_per_day"] - 1
    held = talk.ask("open", role=None, model=model, rows=np.arange(3))
    assert held == {"n_columns": 2, "n_rows": 3, "n_empty": 0}
    assert talk.ask("represent", start=0, stop=3).shape == (3, 3)
    events = [line.split('"event": "')[1].split('"')[0] for line in audit(shop)]
    assert events == ["fit", "keep", "predict"]
    talk.endpoint.close("bank")
    assert '"event": "end"' in audit(shop)[-1]


def audit(shop):
    return shop.config.audit.read_text().splitlines()


@pytest.mark.parametrize(
    "operation", ["prepare", "begin_epoch", "backward", "remember", "recall", "keep"]
)
def test_predictions_offer_no_training(shop, operation):
    talk = Talk(shop)
    talk.hello()
    talk.ask("open", role=None, model=fitted(shop), rows=np.arange(3))
    with pytest.raises(PartyError, match=r"for predictions|of a prediction"):
        talk.ask(operation)


def test_another_peer_has_no_such_model(shop):
    model = fitted(shop)
    peers = dict(shop.config.peers)
    peers["rival"] = peers["bank"]
    object.__setattr__(shop.config, "peers", peers)
    shop.policy._rules["rival"] = peers["bank"].allow
    talk = Talk(shop, "rival")
    talk.hello()
    with pytest.raises(PartyValueError, match="no such model of an earlier fit"):
        talk.ask("open", role=None, model=model, rows=np.arange(3))


def test_a_model_of_another_method_is_not_gone_on_from(shop):
    talk = Talk(shop)
    talk.hello()
    opening = {"role": "fedonce.split", "settings": {}, "rows": np.arange(N_ROWS)}
    with pytest.raises(PartyValueError, match="of another method"):
        talk.ask("open", model=fitted(shop), **opening)


@pytest.mark.parametrize("model", ["x", "../bank", None, 3, "0" * 32])
def test_names_of_models_are_no_paths(shop, model):
    talk = Talk(shop)
    talk.hello()
    with pytest.raises(PartyValueError, match="no such model"):
        talk.ask("open", role=None, model=model, rows=np.arange(3))


def test_another_version_is_told_both(shop):
    talk = Talk(shop)
    said = {"protocol": PROTOCOL + 1, "version": "9.9"}
    both = (
        rf"protocol {PROTOCOL} \(skvfl {skvfl.__version__}\).*protocol {PROTOCOL + 1} "
    )
    with pytest.raises(PartyError, match=both + r"\(skvfl 9.9\)"):
        talk.frame(pack_request(0, "hello", **said))


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        (["hello", "open", "keep_epoch"], "of 32 digits"),
        (["open"], "a session begins with 'hello'"),
        (["hello", "hello"], "greeted already"),
        (["hello", "prepare"], "before 'open'"),
        (["hello", "keep"], "before 'open'"),
        (["hello", "open", "open"], "open already"),
        (["hello", "open", "dismiss"], "'dismiss' is not allowed"),
        (["hello", "open", "perform"], "'perform' is not allowed"),
        (["hello", "open", "keep", "prepare"], "is over"),
    ],
)
def test_what_is_out_of_order_ends_the_session(shop, operations, message):
    talk = Talk(shop)
    hello = {"protocol": PROTOCOL, "version": "1"}
    arguments = {"hello": hello, "open": OPENING}
    for operation in operations[:-1]:
        talk.ask(operation, **arguments.get(operation, {}))
    last = operations[-1]
    with pytest.raises(PartyError, match=message):
        talk.ask(last, **arguments.get(last, {}))
    with pytest.raises(PartyError, match="is over"):
        talk.ask("prepare", seed=0)


def test_rows_are_named_by_an_agreed_list_where_there_are_ids(shop):
    endpoint = Endpoint(
        Organisation.member(shop, "bank"), shop.policy, shop.store, shop.audit
    )
    talk = Talk(shop)
    talk.endpoint = endpoint
    talk.hello()
    with pytest.raises(RefusedError, match="compare the ids first"):
        talk.ask("open", **OPENING)


def opened(shop, **opening):
    talk = Talk(shop)
    talk.hello()
    talk.ask("open", **{**OPENING, **opening})
    return talk


def test_secrets_of_a_fit_are_drawn_once(shop):
    talk = opened(shop)
    talk.ask("prepare", seed=0)
    with pytest.raises(RefusedError, match="'prepare' was asked for already"):
        talk.ask("prepare", seed=0)


@pytest.mark.parametrize("n_train", [-1, N_ROWS + 1, 10**12, True, 2.0, "many", None])
def test_no_memory_is_taken_for_rows_that_the_run_does_not_have(shop, n_train):
    talk = opened(shop)
    talk.ask("prepare", seed=0)
    with pytest.raises(PartyValueError, match="no number of the run's 40 rows"):
        talk.ask("begin_epoch", seed=0, n_train=n_train)
    talk = opened(shop)
    talk.ask("prepare", seed=0)
    talk.ask("begin_epoch", seed=0, n_train=N_ROWS)


def encoding(shop, told):
    name, params = "AutoencoderTransformer", {"max_epochs": 1, "n_components": 2}
    encoder = {"name": name, "params": {"dict": params}}
    talk = opened(shop, role="apc.passive", settings={"local_encoder": encoder})
    talk.ask("say_rows", told=told)
    talk.ask("agree_on_rows", aligned=np.ones(N_ROWS, bool))
    return talk.ask("encode")


def test_a_fit_is_on_no_fewer_rows_than_it_was_opened_with(tmp_path):
    shop = make_shop(tmp_path, allow={"min_rows": 30})
    told = np.arange(N_ROWS) < 30
    assert encoding(shop, told).shape == (30, 2)
    with pytest.raises(RefusedError, match="29 rows are asked for"):
        encoding(shop, np.arange(N_ROWS) < 29)
    for other in (told[:30], told.astype(int), "all"):
        with pytest.raises(PartyValueError, match="no rows of the run"):
            encoding(shop, other)


def test_what_comes_after_the_end_does_not_fill_the_log(shop):
    talk = Talk(shop)
    for _ in range(5):
        with pytest.raises(PartyError):
            talk.frame(b"nothing")
    assert len(audit(shop)) == 1


def compare(shop, n_asked, positions):
    """Compare ids, of which the first three are shared, and keep a list."""
    talk = Talk(shop)
    talk.hello()
    talk.ask("open", role="ids.keeper", settings={})
    masked, _ = Secret().mask(Ids([*range(n_asked)]))
    talk.ask("mask_ids", kind="whole numbers", masked=masked, only_size=False)
    talk.ask("agree_on_ids", positions=np.array(positions))
    return talk.ask("keep")


def test_no_more_rows_are_named_than_ids_were_compared(tmp_path):
    shop = make_shop(tmp_path, Organisation)
    talk = Talk(shop)
    talk.hello()
    talk.ask("open", role="ids.keeper", settings={})
    masked, _ = Secret().mask(Ids([*range(5)]))
    talk.ask("mask_ids", kind="whole numbers", masked=masked, only_size=False)
    # Without ``agree_on_ids``, as by files: every row of the shop's is on the list.
    listed = talk.ask("keep")
    model = fit_listed(shop, listed)
    for rows in (np.arange(6), np.array([0, 1, 2, 7, 8, 9])):
        with pytest.raises(RefusedError, match="than the 5 ids that were compared"):
            opened(shop, rows=rows, agreed=listed)
    # What is refused counts for nothing, and all runs count together.
    opened(shop, role=None, model=model, rows=np.array([0, 3, 4]), agreed=listed)
    for place in (0, 4):
        opened(shop, rows=np.array([place]), agreed=listed)
    for place in (5, 39):
        with pytest.raises(RefusedError, match="than the 5 ids that were compared"):
            opened(shop, rows=np.array([place]), agreed=listed)
    # A list that was agreed on is no longer than what was compared.
    agreed = compare(shop, 3, [0, 1, 2])
    for place in range(3):
        opened(shop, rows=np.array([place]), agreed=agreed)
    with pytest.raises(PartyValueError, match="rows that are not among its 3"):
        opened(shop, rows=np.array([3]), agreed=agreed)


def test_compared_ids_add_up_over_a_day(tmp_path):
    shop = make_shop(tmp_path, Organisation, allow={"ids_per_day": 8})
    compare(shop, 3, [0, 1, 2])
    compare(shop, 5, [0, 1, 2])
    with pytest.raises(RefusedError, match="3 compared ids are asked for and 0 of 8"):
        compare(shop, 3, [0, 1, 2])
    assert shop.policy.terms("bank")["alignments left today"] == 998


def test_a_fit_takes_its_rows_so_often_and_no_more(tmp_path):
    shop = make_shop(tmp_path, allow={"max_epochs": 3})
    talk = opened(shop)
    talk.ask("prepare", seed=0)
    # Whether it says so or not.
    talk.ask("begin_epoch", seed=0, n_train=N_ROWS)
    for _ in range(3):
        for start in (0, 20):
            sent = talk.ask("forward", start=start, stop=start + 20)
            talk.ask("backward", gradient=np.zeros_like(sent))
        talk.ask("keep_epoch", model=f"{talk.number:032x}")
    with pytest.raises(RefusedError, match="takes its rows 3 times at most"):
        talk.ask("forward", start=0, stop=20)
    # What held-out rows are asked by counts as well.
    talk = opened(shop)
    talk.ask("prepare", seed=0)
    for _ in range(3):
        talk.ask("represent", start=0, stop=N_ROWS)
    with pytest.raises(RefusedError, match="takes its rows 3 times at most"):
        talk.ask("represent", start=0, stop=N_ROWS)


@pytest.mark.parametrize("asked_by", ["forward", "represent"])
def test_a_row_is_not_taken_more_often_than_all_rows(tmp_path, asked_by):
    noise = {"min_noise": 0.1, "max_norm": 1.0, "methods": ["splitnn"]}
    shop = make_shop(tmp_path, allow={**noise, "max_epochs": 3})
    blurred = {"representation_noise": 0.1, "max_representation_norm": 1.0}
    talk = opened(shop, settings={**SETTINGS, **blurred})
    talk.ask("prepare", seed=0)

    def answers():
        for i in range(3 * N_ROWS):
            # One row's noise is drawn again for every step, of a model that stays.
            talk.ask("begin_epoch", seed=0, n_train=1)
            row = talk.ask("forward", start=0, stop=1)
            talk.ask("backward", gradient=np.zeros_like(row))
            if asked_by == "represent":
                row = talk.ask("represent", start=i + 1, stop=i + 2)
            sent.append(row)

    sent = []
    with pytest.raises(RefusedError, match="takes its rows 3 times at most"):
        answers()
    assert len(sent) == 3
    assert len(np.unique(sent, axis=0)) == 3


def test_a_reply_is_waited_for_as_long_as_what_was_put_off_takes():
    class Line:
        sent = 0

        def send(self, *frames):
            self.sent += sum(map(len, frames))

    partner = _Partner("shop", Line())
    partner.ask("backward", NOTHING, gradient=np.zeros(int(_BYTES_PER_SECOND)))
    assert not partner.line.sent
    partner.ask("forward", NUMBER, start=0, stop=1)
    assert partner.line.sent > 8 * _BYTES_PER_SECOND
    assert partner.owed[0].extra_seconds > 8


def test_one_comparison_counts_as_one(tmp_path):
    shop = make_shop(tmp_path, Organisation, allow={"alignments_per_day": 1})
    compare(shop, 3, [0, 1, 2])
    with pytest.raises(RefusedError, match="1 alignments are asked for and 0 of 1"):
        compare(shop, 3, [0, 1, 2])


def test_rows_that_nobody_holds_do_not_fill_memory(tmp_path):
    shop = make_shop(tmp_path, Organisation, allow={"max_ids": 10})
    with pytest.raises(PartyValueError, match="no positions of its masked ids"):
        compare(shop, 3, [0, 1, 2, -1])
    agreed = compare(shop, 4, [0, 1, 2, -1])
    for role in ("splitnn.passive", None):
        for n, fault in ((7, None), (8, "11 rows are named at once")):
            rows = np.array([0, 1, 2, *[-1] * n], np.int8)
            model = None if role else fit_listed(shop, agreed)
            with contextlib.ExitStack() as expected:
                if fault:
                    expected.enter_context(pytest.raises(RefusedError, match=fault))
                opened(shop, role=role, model=model, rows=rows, agreed=agreed)


def fit_listed(shop, agreed):
    talk = opened(shop, rows=np.arange(3), agreed=agreed)
    talk.ask("prepare", seed=0)
    return talk.ask("keep")


def test_what_it_keeps_is_plain_and_forgotten(shop):
    shelf = shop.store.shelf("bank")
    model = fitted(shop)
    (path,) = shop.store.folder.rglob("*.model")
    assert b"pickle" not in path.read_bytes()
    assert shelf.about(model)["settings"] == SETTINGS
    assert path.stat().st_mode & 0o077 == 0
    shop.store.most_bytes = int(2.5 * path.stat().st_size)
    models = [model, *(fitted(shop) for _ in range(5))]
    assert len([*shop.store.folder.rglob("*.model")]) == 2
    assert shelf.about(models[-1]) is not None
    shop.store.keep_days = 0
    assert shop.store.shelf("bank").get(models[-1]) is None
    shop.store.tidy()
    assert not [*shop.store.folder.rglob("*.model")]


def test_a_table_of_words_is_kept_and_read_again(shop):
    from skvfl.remote._state import from_state, to_state

    words = np.array([["b"], ["a"], ["c"]], object)
    encoder = OneHotEncoder(sparse_output=False).fit(words)
    again = from_state(_wire.unpack(_wire.pack(to_state(encoder))))
    np.testing.assert_array_equal(again.transform(words), encoder.transform(words))


class Anything:
    """Allows everything at once; a real policy writes counts to a file."""

    def terms(self, peer):
        return {}

    def allow(self, *asked):
        pass

    check_opening = check_prediction = check_alignment = allow
    check_operation = check_reply = check_rows = check_named = allow


def mutations(frames, n, seed):
    """Frames that were cut, lengthened, or changed in some bytes or words."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        frame = bytearray(frames[rng.integers(len(frames))])
        kind = rng.integers(6)
        if kind == 0:
            frame = frame[: rng.integers(len(frame) + 1)]
        elif kind == 1:
            frame = frame + rng.bytes(rng.integers(1, 40))
        elif kind == 2:
            frame = bytearray(rng.bytes(rng.integers(60)))
        elif kind == 3:
            start, stop = sorted(rng.integers(0, len(frame), 2))
            frame[start:stop] = frame[int(rng.integers(len(frame))) :][: stop - start]
        else:
            # Mostly where words and shapes are.
            size = min(len(frame), 300 if kind == 4 else len(frame))
            for _ in range(rng.integers(1, 5)):
                frame[rng.integers(size)] = rng.integers(256)
        yield bytes(frame)


def test_no_frame_that_arrives_brings_an_organisation_down(shop):
    """4,000 frames to the organisation that is asked."""
    model = fitted(shop)
    shop.policy, shop.audit = Anything(), Audit(None)
    requests = [
        pack_hello(0),
        pack_request(1, "open", **OPENING),
        pack_request(1, "open", role=None, model=model, rows=np.arange(5)),
        pack_request(1, "open", role="ids.keeper", settings={}),
        pack_request(2, "prepare", seed=0),
        pack_request(3, "begin_epoch", seed=0, n_train=10),
        pack_request(4, "forward", start=0, stop=5),
        pack_request(5, "backward", gradient=np.zeros((5, 3), np.float32)),
        pack_request(5, "backward", False, gradient=np.zeros((5, 3), np.float32)),
        pack_request(6, "represent", start=0, stop=5),
        pack_request(7, "keep"),
        pack_request(8, "keep_epoch", model="0" * 32),
    ]
    n_answered = 0
    for i, frame in enumerate(mutations(requests, 4000, seed=0)):
        talk = Talk(shop)
        if i % 3:
            talk.hello()
        if i % 9 == 2:
            talk.ask("open", **OPENING)
        talk.number = 5
        reply = talk.endpoint.answer("bank", frame)
        # Some ask for no answer.
        answer = _wire.unpack(reply) if reply else [0, "ok", None]
        assert answer[1] in ("ok", "error")
        n_answered += answer[1] == "ok"
        talk.endpoint.close("bank")
    # Some mutations leave a request as good as it was.
    assert 0 < n_answered < 2000


class Canned:
    """A line on which whatever is due arrives."""

    def __init__(self, frames):
        self.frames = [*frames]

    def send(self, *frames):
        pass

    def receive(self, seconds):
        return self.frames.pop(0)

    def close(self):
        pass


def test_no_frame_that_arrives_brings_the_asking_side_down():
    """6,500 frames to the organisation that asks."""
    held = {"n_columns": 2, "n_rows": 5, "n_empty": 0}
    hello = _wire.pack([0, "ok", {"name": "shop", "protocol": PROTOCOL}])
    opened = _wire.pack([1, "ok", held])
    replies = [
        hello,
        opened,
        _wire.pack([1, "error", "PartyError", "no"]),
        _wire.pack([1, "ok", np.zeros((5, 3), np.float32)]),
    ]
    n_answered = 0
    for i, frame in enumerate(mutations(replies, 6500, seed=1)):
        frames = [frame, opened] if i % 2 else [hello, frame]
        log = skvfl.CommunicationLog()
        there = Canned(frames)
        reach = {"shop": there}.__getitem__
        session = RemoteSession([], log, "bank", ["shop"], reach, 1.0)
        # Whatever else is raised fails the test.
        with contextlib.suppress(PartyError), session:
            said = session.open({"shop": {"role": None, "model": "x"}})
            assert said["shop"].keys() == held.keys()
            n_answered += 1
    assert 0 < n_answered < 4000


def test_who_waits_for_no_answer_gets_none_but_an_error(shop):
    talk = opened(shop)
    talk.ask("prepare", seed=0)

    def tell(number, n_train):
        said = {"seed": 0, "n_train": n_train}
        return talk.endpoint.answer(
            "bank", pack_request(number, "begin_epoch", False, **said)
        )

    assert tell(3, N_ROWS) == b""
    failed = tell(4, N_ROWS + 1)
    # It answers one of those that were asked for since, and no other.
    with pytest.raises(PartyValueError, match="no number of the run's 40 rows"):
        read_reply("shop", failed, 6, "forward", 3)
    for number, first in ((6, 5), (3, 3), (6, None)):
        with pytest.raises(PartyError, match="is not to 'forward'"):
            read_reply("shop", failed, number, "forward", first)


def test_an_error_that_nobody_waits_for_ends_the_next_call():
    opening = {"shop": {"role": "splitnn.passive", "settings": {}}}
    held = {"n_columns": 2, "n_rows": 5, "n_empty": 0}
    hello = _wire.pack([0, "ok", {"name": "shop", "protocol": PROTOCOL}])
    opened = _wire.pack([1, "ok", held])
    failed = _wire.pack([3, "error", "PartyError", "its disk is full"])
    reach = {"shop": Canned([hello, opened, failed])}.__getitem__
    log = skvfl.CommunicationLog()
    session = RemoteSession([], log, "bank", ["shop"], reach, 1.0)
    session.open(opening)
    for _ in range(3):
        session.tell("finish")
    # What did not cross is not in the log.
    crossed = [(each.operation, each.sender) for each in log.messages]
    assert crossed[4:] == [("finish", "bank")] * 3
    with pytest.raises(PartyError, match="'shop': its disk is full"):
        session.call("forward")


def test_replies_are_no_longer_than_what_is_expected():
    long = np.zeros(1 << 21)
    frames = [_wire.pack([0, "ok", long])]
    reach = {"shop": Canned(frames)}.__getitem__
    session = RemoteSession([], skvfl.CommunicationLog(), "bank", ["shop"], reach, 1.0)
    with (
        pytest.raises(PartyError, match=r"'hello' has \d+ bytes where at most"),
        session,
    ):
        session.open({"shop": {"role": None, "model": "x"}})


def test_sessions_share_one_table(tmp_path):
    shop = make_shop(tmp_path, Organisation)
    one, other = shop.endpoint("bank")._member, shop.endpoint("bank")._member
    assert one.ids is other.ids
    assert one.holding.block is other.holding.block
    before = one.holding.block.copy()
    agreed = compare(shop, 3, [0, 1, 2])
    fit_listed(shop, agreed)
    pd.testing.assert_frame_equal(other.holding.block, before)


def test_what_a_peer_says_does_not_rule_a_terminal():
    frame = _wire.pack([1, "error", "PartyError", "no\x1b[2J\nok: done"])
    with pytest.raises(PartyError, match=r"^party 'shop': no \[2J ok: done$"):
        read_reply("shop", frame, 1, "open")


def test_an_organisation_that_has_no_table_for_a_peer_says_so(shop):
    assert isinstance(shop.member("bank").holding, Holding)
    with pytest.raises(RefusedError, match="is no peer"):
        shop.endpoint("stranger")
