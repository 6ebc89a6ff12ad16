"""Peers that send what nobody waits for, or call without end."""

import contextlib
import dataclasses
import json
import socket
import threading
import time

import numpy as np
import pandas as pd
import pytest
from _partners import bank_file, exchange_keys, free_port, partner_config

from skvfl.exceptions import PartyError, RefusedError
from skvfl.remote import _grpc, _pieces
from skvfl.remote._config import PartyConfig
from skvfl.remote._endpoint import pack_hello, pack_request, read_reply
from skvfl.remote._grpc import CALL, Line, Server, dial
from skvfl.remote._organisation import Organisation
from skvfl.remote._pieces import PIECE

TABLE = pd.DataFrame({"customer": np.arange(9), "spend": np.arange(9.0)})


@pytest.fixture
def folder(tmp_path):
    exchange_keys(tmp_path, ["bank", "shop"])
    return tmp_path


def shop(folder, **peer):
    return Organisation(partner_config(folder, "shop", ["spend"], **peer), TABLE)


def endless(taken, n_bytes=1 << 20):
    for number in range(10_000):
        taken.append(number)
        yield bytes(n_bytes)


def test_what_nobody_has_asked_for_ends_the_line():
    line, taken = Line("shop"), []
    line.send(b"question")
    line.listen(endless(taken, 1))
    assert line.receive(0) == b"\0"
    for _ in range(2):
        with pytest.raises(PartyError, match="'shop': it sent what nobody has asked"):
            line.receive(0)
    assert len(taken) == 2


def test_whoever_asks_too_much_at_once_has_to_wait():
    line, taken = Line("bank", asks=False), []
    listener = threading.Thread(target=line.listen, args=(endless(taken),), daemon=True)
    listener.start()
    most = _grpc._MOST_WAITING // (1 << 20)
    deadline = time.monotonic() + 10
    while len(taken) <= most and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    assert len(taken) == most + 1
    for _ in range(3):
        line.receive(1)
    time.sleep(0.2)
    assert len(taken) == most + 4
    line.close()
    listener.join(20)
    assert not listener.is_alive()
    # Nothing is kept of what comes after the end.
    assert line._in.qsize() <= most + 1


def test_whoever_answers_is_not_called(folder):
    organisation = shop(folder)
    with Server(organisation.config, organisation) as server:
        bank = PartyConfig.load(bank_file(folder, ["shop"], {"shop": server.port}))
        line = dial(bank, "shop", CALL)
        with pytest.raises(RefusedError, match="asks nobody over calls"):
            line.receive(10)
        line.close()
    assert "over calls" in organisation.config.audit.read_text()


@pytest.fixture
def calling(folder, monkeypatch):
    """A bank that is called by a shop, which has room for two sessions."""
    port, stop = free_port(), threading.Event()
    path = bank_file(folder, ["shop"], listen=f"localhost:{port}")
    organisation = shop(folder, dial=True, address=f"localhost:{port}")
    with Server(PartyConfig.load(path)) as server:
        answers = threading.Thread(target=_grpc.run, args=(organisation, stop))
        with monkeypatch.context() as few:
            few.setattr(_grpc, "_MOST_SESSIONS", 2)
            answers.start()
            # The bank itself would let in more.
            line = server.take("shop", 10)
            server._called["shop"].put(line)
        yield server
        stop.set()
        answers.join(10)


def test_a_partner_that_calls_has_no_more_sessions_than_one_that_listens(calling):
    with contextlib.ExitStack() as open_lines:
        lines = [greeted(calling, open_lines) for _ in range(2)]
        with pytest.raises(PartyError, match="has not called within 1 seconds"):
            calling.take("shop", 1)
        lines[0].close()
        greeted(calling, open_lines)


def greeted(server, open_lines):
    line = server.take("shop", 10)
    open_lines.callback(line.close)
    line.send(pack_hello(0))
    assert read_reply("shop", line.receive(10), 0, "hello")["name"] == "shop"
    return line


def test_lines_that_were_lost_before_anybody_took_them_are_forgotten(folder):
    port = free_port()
    bank = PartyConfig.load(bank_file(folder, ["shop"], listen=f"localhost:{port}"))
    organisation = shop(folder, dial=True, address=f"localhost:{port}")
    with Server(bank) as server:
        for _ in range(5):
            line = dial(organisation.config, "bank", CALL)
            deadline = time.monotonic() + 10
            while not waiting(server) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert len(waiting(server)) == 1
            line.close()
            while waiting(server) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert not waiting(server)
            assert server._called["shop"].qsize() == 1


def waiting(server):
    """Lines on which somebody has called."""
    called, found = server._called["shop"], []
    for _ in range(called.qsize()):
        line = called.get_nowait()
        called.put(line)
        found += [] if line.is_lost else [line]
    return found


def test_whoever_connects_and_says_nothing_is_hung_up_on(folder, monkeypatch):
    limit = "grpc.server_handshake_timeout_ms"
    options = [(k, 300 if k == limit else value) for k, value in _grpc._OPTIONS]
    monkeypatch.setattr(_grpc, "_OPTIONS", options)
    organisation = shop(folder)
    with (
        Server(organisation.config, organisation) as server,
        socket.create_connection(("localhost", server.port)) as connection,
    ):
        connection.settimeout(10)
        while connection.recv(1000):
            pass


def test_what_is_wrong_with_its_files_is_said_at_home(folder):
    organisation = shop(folder)
    with Server(organisation.config, organisation) as server:
        bank = PartyConfig.load(bank_file(folder, ["shop"], {"shop": server.port}))
        (folder / "shop" / "bank.pem").unlink()
        line = dial(bank, "shop")
        line.send(pack_hello(0))
        with pytest.raises(RefusedError, match="cannot read its certif") as error:
            line.receive(10)
        line.close()
    assert str(folder) not in str(error.value)
    assert str(folder) in organisation.config.audit.read_text()


def test_long_frames_cross_in_pieces():
    size = PIECE
    frames = [bytes(n) for n in (0, 1, size - 1, size, size + 1, 3 * size)]
    messages = [*_pieces.in_pieces([each] for each in frames)]
    assert len(messages) == 1 + 1 + 1 + 1 + 2 + 3
    assert [*_pieces.joined("bank", messages, lambda: 3 * size)] == frames
    with pytest.raises(PartyError, match=f"'bank': .* more than {size} bytes"):
        [*_pieces.joined("bank", messages, lambda: size)]


def test_small_frames_travel_together():
    frames = [b"backward", b"forward", b""]
    (message,) = _pieces.in_pieces([frames])
    joined = _pieces.joined("bank", [message, _pieces._LAST + b"next"], lambda: 8)
    assert [*joined] == [*frames, b"next"]
    # Large ones do not, and come in the same order.
    frames = [bytes(PIECE), b"forward"]
    messages = [*_pieces.in_pieces([frames])]
    assert len(messages) == 2
    assert [*_pieces.joined("bank", messages, lambda: PIECE)] == frames


def test_many_frames_in_one_message_take_no_time_that_grows_with_their_square():
    whole = _pieces._WHOLE + _pieces._LENGTH.pack(1) + b"x"
    begun = time.process_time()
    frames = [*_pieces.joined("bank", [whole * 150_000 + _pieces._LAST], lambda: 8)]
    assert time.process_time() - begun < 1
    assert len(frames) == 150_001


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\2", "cut short"),
        (b"\2\4\0\0\0four", "cut short"),
        (b"\2\4\0\0\0fo", "cut short"),
        (b"\2\xff\xff\xff\xfffour\0next", "more than 8 bytes"),
        (b"\2\4\0\0\0four\0" + bytes(9), "more than 8 bytes"),
    ],
)
def test_frames_that_do_not_fit_into_their_message_are_refused(message, why):
    with pytest.raises(PartyError, match=f"'bank': it sent a message .*{why}"):
        [*_pieces.joined("bank", [message], lambda: 8)]


def test_no_message_brings_the_reader_down():
    rng = np.random.default_rng(0)
    good = [*_pieces.in_pieces([[b"one", b"two", b"three"], [b"alone"]])]
    n_read = n_refused = 0
    for _ in range(5000):
        changed = bytearray(good[0])
        for place in rng.integers(0, len(changed), rng.integers(0, 4)):
            changed[place] = rng.integers(0, 256) if rng.random() < 0.5 else 255
        message = bytes(changed[: rng.integers(0, len(changed) + 1)])
        try:
            read = [*_pieces.joined("bank", [message, good[1]], lambda: 64)]
        except PartyError:
            n_refused += 1
            continue
        n_read += 1
        assert sum(map(len, read)) <= len(message) + len(good[1])
    assert n_read > 100
    assert n_refused > 100


@pytest.fixture
def asking(folder):
    """``asking()`` is a line to a shop that listens; and the shop."""
    organisation = shop(folder)
    with Server(organisation.config, organisation) as server:
        bank = PartyConfig.load(bank_file(folder, ["shop"], {"shop": server.port}))
        yield lambda: dial(bank, "shop"), organisation


@pytest.mark.parametrize("greets", [False, True])
def test_nobody_is_listened_to_at_length_before_a_run_is_opened(asking, greets):
    ask, organisation = asking
    taken = []
    object.__setattr__(organisation.policy._rules["bank"], "max_ids", 1000)

    def in_pieces(groups):
        """More and more of one frame, as long as the shop takes it in."""
        for (frame,) in groups:
            if frame != b"long":
                yield _pieces._LAST + frame
                continue
            while len(taken) < 500:
                taken.append(0)
                yield _pieces._MORE + bytes(PIECE)

    with pytest.MonkeyPatch.context() as patch:
        # The shop's answers, too, which are short.
        patch.setattr(_grpc, "in_pieces", in_pieces)
        line = ask()
        if greets:
            line.send(pack_hello(0))
            assert line.receive(10)
        line.send(b"long")
        # A refusal, which nobody takes for an absence.
        with pytest.raises(
            RefusedError, match=r"more than \d+ bytes, which is too lon"
        ):
            read_reply("shop", line.receive(20), int(greets), "open")
    line.close()
    # What is under way on the connection comes on top of what the shop takes in.
    assert len(taken) < 60
    assert '"why": "refused: it sent a message of more than' in (
        organisation.config.audit.read_text()
    )


def test_who_calls_does_not_listen_at_length_either(calling):
    line = calling.take("shop", 10)
    line.send(bytes(1 << 17))
    with pytest.raises(RefusedError, match="more than 65536 bytes, which is too long"):
        read_reply("shop", line.receive(20), 0, "hello")
    line.close()


def hasty(organisation, seconds):
    """The same organisation, which has less patience with silence."""
    minutes = seconds / 60
    config = dataclasses.replace(organisation.config, idle_minutes=minutes)
    return Organisation(config, TABLE)


def opening(number):
    settings = {"bottom": [4], "cut_width": 2, "lr": 0.1}
    said = {"role": "splitnn.passive", "settings": settings, "rows": np.arange(9)}
    return pack_request(number, "open", **said)


def events(organisation):
    lines = organisation.config.audit.read_text().splitlines()
    return [json.loads(line)["event"] for line in lines]


@pytest.mark.parametrize("dials", [False, True])
def test_a_session_that_is_silent_is_ended_and_its_table_dropped(folder, dials):
    port, stop, made = free_port(), threading.Event(), []
    path = bank_file(folder, ["shop"], {"shop": port})
    there = {}
    if dials:
        path = bank_file(folder, ["shop"], listen=f"localhost:{port}")
        there = {"dial": True, "address": f"localhost:{port}"}
    organisation = hasty(shop(folder, **there), 0.4)
    if not dials:
        config = dataclasses.replace(organisation.config, listen=f"localhost:{port}")
        organisation.config = config
    endpoint = organisation.endpoint
    organisation.endpoint = lambda peer: made.append(endpoint(peer)) or made[-1]
    ready = threading.Event()
    run = threading.Thread(
        target=_grpc.run, args=(organisation, stop, lambda port: ready.set())
    )
    run.start()
    ready.wait(10)
    bank = PartyConfig.load(path)
    line = _grpc.reach(bank, "shop", 10)
    line.send(pack_hello(0))
    read_reply("shop", line.receive(10), 0, "hello")
    (session,) = made
    assert session._member.holding.n_rows == len(TABLE)
    deadline = time.monotonic() + 10
    while not session.is_over and time.monotonic() < deadline:
        time.sleep(0.02)
    assert session.is_over
    assert session._member.holding.n_rows == 0
    assert events(organisation)[-2:] == ["idle", "end"]
    # Whoever comes back soon is told, and later nobody is there.
    line.send(opening(1))
    with pytest.raises(PartyError, match=r"nothing was asked for in .* begin"):
        read_reply("shop", line.receive(10), 1, "open")
    with pytest.raises(PartyError, match=r"lost|ended"):
        line.receive(10)
    assert events(organisation)[-2:] == ["idle", "end"]
    line.close()
    stop.set()
    run.join(10)


def test_who_computes_or_asks_is_not_silent(folder):
    organisation = hasty(shop(folder), 0.2)
    endpoint = organisation.endpoint("bank")
    with organisation.idle.watching(endpoint, "bank", endpoint.close):
        for _ in range(10):
            endpoint._lock.acquire()
            time.sleep(0.06)
            endpoint._heard = time.monotonic()
            endpoint._lock.release()
            time.sleep(0.06)
        assert not endpoint.is_over
        endpoint._heard -= 0.2
        deadline = time.monotonic() + 10
        while not endpoint.is_over and time.monotonic() < deadline:
            time.sleep(0.02)
        assert endpoint.is_over


def test_more_sessions_than_are_let_in_are_refused_in_words(asking, monkeypatch):
    ask, organisation = asking
    monkeypatch.setattr(_grpc, "_MOST_SESSIONS", 2)
    lines = [ask() for _ in range(2)]
    for line in lines:
        line.send(pack_hello(0))
        assert line.receive(10)
    line = ask()
    with pytest.raises(RefusedError, match="more than 2 sessions at once"):
        line.receive(10)
    assert "too many sessions at once" in organisation.config.audit.read_text()
    for each in [*lines, line]:
        each.close()
