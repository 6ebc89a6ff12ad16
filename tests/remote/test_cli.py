"""The commands that an organisation types."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _bank_and_telecom import make_folders
from _partners import free_port, partners

import skvfl
from skvfl.exceptions import PartyError
from skvfl.federation import _wire
from skvfl.remote import _check, _keys
from skvfl.remote._cli import main
from skvfl.remote._config import PartyConfig


def test_keys_make_what_is_needed_to_start(tmp_path, capsys):
    assert main(["party", "keys", "telecom", "--folder", str(tmp_path / "new")]) == 0
    said = capsys.readouterr().out
    folder = tmp_path / "new"
    names = {path.name for path in folder.iterdir()}
    assert names == {"telecom.key", "telecom.pem", "telecom.toml"}
    pem = (folder / "telecom.pem").read_bytes()
    assert _keys.fingerprint(pem) in said
    # What was made can be used as soon as a peer is written into it.
    text = (folder / "telecom.toml").read_text()
    (folder / "bank.pem").write_bytes(pem)
    lines = [
        line.removeprefix("# ") if "# [peers" in text and on else line
        for line, on in _after_the_first_peer(text)
    ]
    (folder / "telecom.toml").write_text("\n".join(lines).replace("bank.pem", "b.pem"))
    config = PartyConfig.load(folder / "telecom.toml")
    assert config.peers["bank"].allow.methods == ("fedonce",)
    assert config.peers["bank"].proxy == "http://proxy:3128"


def _after_the_first_peer(text):
    on = False
    for line in text.splitlines():
        on = on or line.startswith("# [peers")
        yield ("" if line == "#" else line), on


def test_keys_overwrite_nothing_and_renew(tmp_path, capsys):
    command = ["party", "keys", "telecom", "--folder", str(tmp_path)]
    assert main([*command, "--renew"]) == 1
    assert "nothing to renew" in capsys.readouterr().err
    main(command)
    (tmp_path / "telecom.toml").write_text("own = 1")
    before = [(path, path.read_bytes()) for path in sorted(tmp_path.iterdir())]
    assert main(command) == 1
    assert "telecom.pem is there already" in capsys.readouterr().err
    assert main([*command, "--renew"]) == 0
    assert "cat telecom.next.pem >> telecom.pem" in capsys.readouterr().out
    assert all(path.read_bytes() == content for path, content in before)
    renewed = (tmp_path / "telecom.next.pem").read_bytes()
    assert _keys.belong_together(tmp_path / "telecom.key", renewed)
    assert renewed != (tmp_path / "telecom.pem").read_bytes()


@pytest.mark.parametrize("name", ["tele com", "", "../telecom", "-x-", "ä"])
def test_names_that_certificates_cannot_have(tmp_path, name, capsys):
    folder = tmp_path / "own"
    arguments = ["party", "keys", "--folder", str(folder), "--", name]
    assert main(arguments) == 1
    assert "letters, digits and hyphens" in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.slow
def test_the_command_is_installed_and_says_what_it_can():
    line = [sys.executable, "-c", "from skvfl.remote._cli import main; main()", "party"]
    done = subprocess.run([*line, "--help"], capture_output=True, text=True, check=True)
    for command in ("keys", "serve", "check", "show", "answer"):
        assert command in done.stdout
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert 'skvfl = "skvfl.remote._cli:main"' in project.read_text()


@pytest.mark.parametrize("command", ["serve", "check"])
def test_files_that_cannot_be_used_are_named(tmp_path, command, capsys):
    path = make_folders(tmp_path)
    path.write_text(path.read_text().replace("min_rows", "rows"))
    assert main(["party", command, str(path)]) == 1
    assert "telecom.toml: peers.bank.allow.rows is not known" in capsys.readouterr().err


def test_whoever_allows_nothing_does_not_serve(tmp_path, capsys):
    make_folders(tmp_path)
    assert main(["party", "serve", str(tmp_path / "bank" / "bank.toml")]) == 1
    assert "no peer is allowed to ask" in capsys.readouterr().err


@pytest.mark.slow
def test_serve_says_when_it_answers_and_stops_when_told_to(tmp_path):
    path = make_folders(tmp_path)
    path.write_text(path.read_text().replace("18443", str(port := free_port())))
    command = [sys.executable, "-m", "skvfl", "party", "serve", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        said = served.stdout.readline()
        # A second one does not share the port, and does not say that it answers.
        second = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60
        )
        served.terminate()
        assert served.wait(timeout=60) == 0
    assert said == f"telecom answers bank (localhost:{port})\n"
    assert second.returncode == 1
    assert f"it cannot listen at localhost:{port}" in second.stderr
    assert not second.stdout


def test_plans_need_one_file_of_decisions(tmp_path, capsys):
    (tmp_path / "a.plan").touch()
    assert main(["party", "show", str(tmp_path / "a.plan")]) == 1
    assert "name it, --file" in capsys.readouterr().err


# What `check` finds


def found(path, greet=None, *, wrong):
    """Findings that are wrong, or those that are not, as one text."""
    config = PartyConfig.load(path)
    lines = [each for each in _check.findings(config, greet) if each.is_wrong == wrong]
    return "\n".join(map(str, lines))


def test_check_finds_nothing_wrong_where_nothing_is(tmp_path, capsys):
    path = make_folders(tmp_path)
    assert main(["party", "check", str(path)]) == 0
    said = capsys.readouterr().out
    assert "60 rows, 3 columns that somebody may use, ids are whole numbers" in said
    assert "own certificate: valid for 365 days" in said
    assert "32 values for a row of 3 columns: with a few known rows" in said
    assert "nothing to be put right" in said


def test_check_names_what_is_wrong_at_home(tmp_path):
    path = make_folders(tmp_path)
    own, bank = path.parent / "telecom.pem", path.parent / "bank.pem"
    pem = own.read_bytes()

    path.with_name("telecom.key").chmod(0o644)
    assert "others may read" in found(path, wrong=True)
    path.with_name("telecom.key").chmod(0o600)

    own.write_bytes(bank.read_bytes())
    assert "own certificate: is of 'bank', not of 'telecom'" in found(path, wrong=True)
    own.unlink()
    _keys.make_keys("telecom", path.parent / "other.key", own)
    assert "telecom.key is not the key of it" in found(path, wrong=True)
    own.write_bytes(pem)

    bank.write_bytes(pem)
    assert "bank.pem is of 'telecom'" in found(path, wrong=True)
    bank.unlink()
    _keys.make_keys("bank", path.parent / "b.key", bank, days=-1)
    assert "certificate of bank: expired 1 days ago" in found(path, wrong=True)
    bank.unlink()
    assert "ask its owner for the .pem file" in found(path, wrong=True)
    _keys.make_keys("bank", path.parent / "b.key", bank, days=10)
    assert "renew it soon" in found(path, wrong=False)

    table = path.parent / "telecom.csv"
    table.write_text(table.read_text().replace("plan", "tariff", 1))
    assert "the table has no column 'plan'" in found(path, wrong=True)


@pytest.fixture
def bank(tmp_path):
    make_folders(tmp_path)
    return tmp_path / "bank" / "bank.toml"


def test_check_compares_both_sides(bank):
    said = {
        "version": skvfl.__version__,
        "protocol": 1,
        "time": time.time() + 90,
        "ids": "text",
        "n_ids": 7,
        "terms": {"methods": ["fedonce"], "fits left today": 3},
    }
    wrong = found(bank, lambda config, peer: said, wrong=True)
    assert "line to telecom: its clock is 90 s ahead of this one" in wrong
    good = found(bank, lambda config, peer: said | {"time": time.time()}, wrong=False)
    assert "its clock is 0 s" in good
    assert "allows methods = ['fedonce']" in good
    assert "3 fits left today" in good
    assert "ids of telecom: are text, 7 of them" in good
    # Only an organisation with a table of its own in the file knows its ids.
    (bank.parent / "bank.csv").write_text("customer\n1\n2\n")
    text = bank.read_text().replace("[peers", '[table]\nfile = "bank.csv"\n[peers', 1)
    bank.write_text(text)
    wrong = found(bank, lambda config, peer: said, wrong=True)
    assert "ids of telecom: are text, and yours are whole numbers" in wrong


def test_check_reaches_a_partner_and_compares_no_ids(tmp_path):
    table = pd.DataFrame({"customer": range(30), "minutes": np.arange(30.0)})
    with partners(tmp_path, {"telecom": table}) as path:
        good, wrong = (found(path, wrong=each) for each in (False, True))
    assert not wrong
    assert "line to telecom: answers; skvfl" in good
    assert "ids of telecom: are whole numbers, 30 of them" in good
    assert "1000 alignments left today" in good
    audit = (tmp_path / "telecom" / "audit.jsonl").read_text()
    assert '"describe_ids 1"' in audit
    wrong = found(path, wrong=True)
    assert "nobody listens at its address" in wrong


def test_check_says_who_does_not_answer(bank):
    def greet(config, peer):
        raise PartyError(peer, "it speaks protocol 2, and 'bank' speaks protocol 1")

    assert "party 'telecom': it speaks protocol 2" in found(bank, greet, wrong=True)
    bank.write_text(bank.read_text().replace("address", "# address"))
    assert "telecom calls" in found(bank, greet, wrong=False)


GREETING = {"version": "1", "protocol": 1, "time": 1.0, "terms": {}}
IDS = {"kind": "text", "n_ids": 3}


class Says:
    """A line on which answers lie ready."""

    def __init__(self, *answers):
        self.frames = [_wire.pack([i, "ok", each]) for i, each in enumerate(answers)]

    def send(self, frame):
        pass

    def receive(self, seconds):
        return self.frames.pop(0)

    def close(self):
        pass


@pytest.mark.parametrize(
    ("greeting", "ids", "is_wrong"),
    [
        (GREETING, IDS, False),
        (None, IDS, True),
        ({}, IDS, True),
        (GREETING, None, True),
        (GREETING, {"kind": "\x1b[2J", "n_ids": 3}, True),
        ({**GREETING, "version": "\x1b[2J"}, IDS, True),
        ({**GREETING, "time": float("nan")}, IDS, True),
        ({**GREETING, "time": 10**400}, IDS, True),
        ({**GREETING, "terms": ["x"]}, IDS, True),
    ],
)
def test_check_takes_nothing_for_granted(bank, monkeypatch, greeting, ids, is_wrong):
    line = Says(greeting, {}, ids)
    monkeypatch.setattr("skvfl.remote._grpc.reach", lambda *asked: line)
    said = found(bank, wrong=True)
    expected = "party 'telecom': what it says of itself is none of what is expected"
    assert (expected in said) == is_wrong
