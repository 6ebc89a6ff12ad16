"""Whatever bytes a party's process sends, and whenever: an error with its name."""

import contextlib
import json
import os
import struct
import subprocess
import threading
import time
import tracemalloc
from multiprocessing import Pipe

import numpy as np
import pytest

from skvfl import CommunicationLog
from skvfl.exceptions import PartyError, PartyValueError
from skvfl.federation import _process, _wire
from skvfl.federation._replies import Rows

SECONDS = 0.5
PATIENCE = 60  # for answers that do come, however busy the machine is
RIGHT = ["ok", np.arange(8.0).reshape(4, 2)]
LONG = struct.Struct("!iQ")


@pytest.fixture
def line():
    """A session with a party, and the far end of its channel in the test's hands."""
    session = _process._ProcessSession([], CommunicationLog(), "server", SECONDS)
    near, far = Pipe()
    reader, writer = os.pipe()
    _process.limit_blocking(near, SECONDS)
    session.names = ["bank"]
    session._owed["bank"] = []
    session._channels["bank"] = near
    session._lifelines["bank"] = writer
    session._processes["bank"] = subprocess.Popen(
        ["sleep", "60"], start_new_session=True
    )
    yield session, far
    session._abort()
    far.close()
    os.close(reader)


def answering(far, misbehave):
    """Let the far end answer one request in its own way."""

    def answer():
        # Whoever is found out is hung up on.
        with contextlib.suppress(OSError, TypeError):
            request = far.recv_bytes()
            misbehave(far, request[-_process._NUMBER_BYTES :])

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return thread


def framed(message):
    return lambda far, number: far.send_bytes(message + number)


def headed(header, body=b""):
    text = header if isinstance(header, str) else json.dumps(header)
    length = struct.pack("<I", len(text))
    return framed(_wire.MAGIC + length + text.encode("utf-8", "replace") + body)


def packed(payload):
    return framed(_wire.pack(payload))


def test_right_answer_arrives(line):
    session, far = line
    session._timeout = PATIENCE
    answering(far, packed(RIGHT))
    assert np.array_equal(session.ask("bank", "mean", reply=Rows(4, 2)), RIGHT[1])


def _drip(far, number):
    frame = struct.pack("!i", 100) + bytes(100)
    for i in range(100):
        os.write(far.fileno(), frame[i : i + 1])
        time.sleep(SECONDS / 5)


def _half(far, number):
    os.write(far.fileno(), struct.pack("!i", 100) + bytes(50))


def _flood(far, number):
    os.write(far.fileno(), LONG.pack(-1, 1 << 40))
    os.set_blocking(far.fileno(), False)
    for _ in range(50):
        try:
            os.write(far.fileno(), bytes(1 << 16))
        except OSError:
            time.sleep(0.01)


EVIL = {
    "garbage": framed(b"hello"),
    "nothing": lambda far, number: far.send_bytes(b""),
    "a number alone": framed(b""),
    "cut short": framed(_wire.pack(RIGHT)[:-7]),
    "drawn out": framed(_wire.pack(RIGHT) + bytes(3)),
    "no number": lambda far, number: far.send_bytes(_wire.pack(RIGHT)),
    "another number": lambda far, number: far.send_bytes(
        _wire.pack(RIGHT) + number[::-1]
    ),
    "a dict": packed({"a": 1}),
    "an empty list": packed([]),
    "an int": packed(7),
    "no value": packed(["ok"]),
    "two values": packed(["ok", 1, 2]),
    "an array for a word": packed([np.zeros(3), RIGHT[1]]),
    "no word": packed([None, RIGHT[1]]),
    "another word": packed(["fine", RIGHT[1]]),
    "unknown kind of error": packed(["error", "SystemExit", "x"]),
    "error without a message": packed(["error"]),
    "message of another type": packed(["error", "PartyError", {}]),
    "kind of another type": packed(["error", ["PartyError"], "x"]),
    "half a header": headed('["ok",'),
    "deep": headed("[" * 200_000 + "]" * 200_000),
    "deep arrays": headed('{"dict":[["a",' * 5_000 + "1" + "]]}" * 5_000),
    "a huge number": headed('["ok",' + "9" * 5_000 + "]"),
    "no rows": headed('["ok",{"array":"<f8","shape":[0,1000000000000000000]}]'),
    "a shape that overflows": headed(
        '["ok",{"array":"<f8","shape":[0,4611686018427387904,4611686018427387904]}]'
    ),
    "negative shape": headed('["ok",{"array":"<f8","shape":[-4,-2]}]', bytes(64)),
    "shape of bools": headed('["ok",{"array":"<f8","shape":[true,true]}]', bytes(8)),
    "shape of text": headed('["ok",{"array":"<f8","shape":"ab"}]'),
    "no shape": headed('["ok",{"array":"<f8"}]'),
    "objects": headed('["ok",{"array":"O","shape":[1]}]', bytes(8)),
    "a list of types": headed('["ok",{"array":[],"shape":[1]}]', bytes(8)),
    "a key twice": headed('["ok",{"dict":[["a",1],["a",2]]}]'),
    "a key that is no text": headed('["ok",{"dict":[[1,1]]}]'),
    "a list as a key": headed('["ok",{"dict":[[["x"],1]]}]'),
    "half a surrogate": headed('["ok","\\ud800"]'),
    "other rows": packed(["ok", np.zeros((5, 2))]),
    "other columns": packed(["ok", np.zeros((4, 3))]),
    "no matrix": packed(["ok", {"loss": 1.0}]),
    "wide": packed(["ok", np.zeros((4, 200_000))]),
    "a long header": headed("[" + "0," * 700_000 + "0]"),
    "a trillion bytes": lambda far, number: os.write(
        far.fileno(), LONG.pack(-1, 1 << 40)
    ),
    "more bytes than there are": lambda far, number: os.write(
        far.fileno(), LONG.pack(-1, 1 << 62)
    ),
    "a negative length": lambda far, number: os.write(
        far.fileno(), struct.pack("!i", -5)
    ),
    "a flood": _flood,
    "half of it": _half,
    "drop by drop": _drip,
    "nothing at all": lambda far, number: None,
    "the end": lambda far, number: far.close(),
}


@pytest.mark.parametrize("kind", EVIL)
def test_whatever_arrives_is_an_error_with_the_partys_name(line, kind):
    session, far = line
    answering(far, EVIL[kind])
    start = time.monotonic()
    tracemalloc.start()
    try:
        with pytest.raises(PartyError) as info:
            session.ask("bank", "mean", reply=Rows(4, 2))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert info.value.party == "bank"
    assert "'mean'" in str(info.value)
    assert time.monotonic() - start < 20 * SECONDS
    # Reading a header takes a small multiple of its own length, which is bounded.
    assert peak < 64 * 2**20


def test_an_error_of_the_party_arrives_with_a_bounded_message(line):
    session, far = line
    session._timeout = PATIENCE
    answering(far, packed(["error", "PartyValueError", "x" * 100_000]))
    with pytest.raises(PartyValueError) as info:
        session.ask("bank", "mean")
    assert len(str(info.value)) < 5_000


def test_a_reply_that_comes_twice_is_not_taken_for_the_next(line):
    session, far = line
    session._timeout = PATIENCE

    def twice(far, number):
        for _ in range(2):
            far.send_bytes(_wire.pack(RIGHT) + number)

    answering(far, twice)
    assert session.ask("bank", "mean", reply=Rows(4, 2)).shape == (4, 2)
    with pytest.raises(PartyError, match=r"not to 'mean'.* it came twice"):
        session.ask("bank", "mean", reply=Rows(4, 2))


def test_a_reply_that_comes_too_early_is_not_taken_for_an_answer(line):
    session, far = line
    far.send_bytes(_wire.pack(RIGHT) + bytes(_process._NUMBER_BYTES))
    with pytest.raises(PartyError, match="not to 'mean'"):
        session.ask("bank", "mean", reply=Rows(4, 2))


def test_numbers_of_requests_do_not_repeat(line):
    session, far = line
    session._timeout = PATIENCE
    numbers = set()

    def note(far, number):
        numbers.add(number)
        packed(RIGHT)(far, number)

    for _ in range(20):
        answering(far, note)
        session.ask("bank", "mean")
    assert len(numbers) == 20
