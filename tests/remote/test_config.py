"""What an organisation's file says, and what it may not say."""

import json
import os
import ssl

import pytest
from _bank_and_telecom import ALLOW, COLUMNS, make_folders

from skvfl.exceptions import ConfigurationError, RefusedError
from skvfl.remote import _audit, _keys
from skvfl.remote._audit import Audit
from skvfl.remote._config import PartyConfig


@pytest.fixture
def path(tmp_path):
    return make_folders(tmp_path)


def test_a_file_says_what_an_organisation_has_decided(path):
    config = PartyConfig.load(path)
    assert (config.name, config.ids, config.listen) == (
        *("telecom", "customer", "localhost:18443"),
    )
    assert config.key == path.parent / "telecom.key"
    assert config.store == path.parent / "store"
    assert config.audit == path.parent / "audit.jsonl"
    assert not config.active
    assert config.table.file == path.parent / "telecom.csv"
    rule = config.peers["bank"].allow
    assert rule.columns == tuple(COLUMNS)
    assert rule.transformers == ("auto",)
    bank = PartyConfig.load(path.parent.parent / "bank" / "bank.toml")
    assert bank.active
    assert bank.table is None
    assert bank.peers["telecom"].allow is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "telecom"', "", "name is missing"),
        ('name = "telecom"', 'name = "tele com"', "name must be letters, digits"),
        ('name = "telecom"', 'name = "bank"', "is this organisation itself"),
        ('name = "telecom"', "name = telecom", "is no TOML"),
        ("ids =", "id =", "id is not known here: did you mean 'ids'"),
        ('"localhost:18443"', '"localhost"', 'listen must be "host:port"'),
        ('"localhost:18443"', '"localhost:99999"', 'listen must be "host:port"'),
        ('"localhost:18443"', "8443", "listen must be text"),
        ("[table]", "active = 1\n[table]", "active must be true or false"),
        ("[table]", "[tables]", "tables is not known here: did you mean 'table'"),
        ('[table]\nfile = "telecom.csv"', "", r"there is no \[table\] to answer from"),
        ('file = "telecom.csv"', "", "one of file, query and callable"),
        ('file = "telecom.csv"', 'query = "a"', "query and database together"),
        (
            'file = "telecom.csv"',
            'file = "telecom.csv"\ncallable = "a:b"',
            "one of file, query and callable",
        ),
        ("[peers.bank]", "[peers.bank]\ndial = true", "address is missing"),
        (
            "[peers.bank]",
            '[peers.bank]\naddress = "b:1"\nproxy = "socks5://a:1"',
            "peers.bank.proxy must be",
        ),
        ("min_rows = 20", "", "peers.bank.allow.min_rows is missing"),
        ("min_rows = 20", "min_rows = 0", "min_rows must be a whole number of 1"),
        ("min_rows = 20", "min_rows = true", "min_rows must be a whole number"),
        ("min_rows = 20", "min_rows = 2.5", "min_rows must be a whole number"),
        ("max_width", "max_widths", "did you mean 'max_width'"),
        ("'splitnn'", "'split'", "and 'split' is none"),
        ("['fedonce', 'splitnn']", "'fedonce'", "methods must be a list of names"),
        ("'calls'", "'calls', 'calls'", "nothing is named twice"),
        ("'calls'", "'customer'", "names rows and is no feature"),
        ("min_rows = 20", "min_rows = 20\nmin_noise = nan", "min_noise must be a num"),
        ("min_rows = 20", "min_rows = 20\nmax_epsilon = 0", "max_epsilon must be"),
        ("min_rows = 20", "min_rows = 20\ndelta = 1", "delta must be .* below 1"),
        ("min_rows = 20", "min_rows = 20\nmin_noise = 0.1", r"leave \['splitnn'\] out"),
        ("min_rows = 20", "min_rows = 20\nmax_epsilon = 1", r"leave \['splitnn'\] out"),
        ("min_rows = 20", "min_rows = 20\nmax_norm = 0", "max_norm must be a number"),
    ],
)
def test_what_has_no_meaning_is_named(path, old, new, message):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigurationError, match=message) as caught:
        PartyConfig.load(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        PartyConfig.load(tmp_path / "nobody.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="is no TOML"):
        PartyConfig.load(tmp_path / "bytes.toml")


def test_a_certificate_speaks_for_its_owner_alone(path):
    config = PartyConfig.load(path)
    own, bank = (config.certificate.read_bytes(), config.peers["bank"].certificate)
    assert _keys.belong_together(config.key, own)
    assert not _keys.belong_together(config.key, bank.read_bytes())
    assert _keys.name_in(own) == "telecom"
    assert _keys.signs_itself(own)
    assert 364 < _keys.days_left(own) < 365
    # A secret that others can read is none.
    assert config.key.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in own


def test_only_exchanged_certificates_are_let_in_whatever_name_they_have(path):
    config = PartyConfig.load(path)
    bank = path.parent / "bank.pem"
    assert config.peer_of(bank.read_bytes()) == "bank"
    stranger = path.parent / "stranger.pem"
    _keys.make_keys("bank", path.parent / "stranger.key", stranger)
    with pytest.raises(RefusedError, match="not one of those it has exchanged"):
        config.peer_of(stranger.read_bytes())
    # While a certificate is renewed both are good, without a restart.
    bank.write_bytes(bank.read_bytes() + stranger.read_bytes())
    assert config.peer_of(stranger.read_bytes()) == "bank"
    assert config.roots().count(b"BEGIN CERTIFICATE") == 2
    with pytest.raises(RefusedError, match="'shop' is no peer"):
        config.peer("shop")


def test_pinned_certificates_make_a_mutual_connection_and_strangers_none(path):
    """What gRPC does with them, by Python's own TLS in memory."""
    config = PartyConfig.load(path)
    folder = path.parent.parent / "bank"
    stranger = path.parent / "stranger.pem"
    _keys.make_keys("bank", path.parent / "stranger.key", stranger)
    _shake_hands(config, folder / "bank.pem", folder / "bank.key", "telecom")
    with pytest.raises(ssl.SSLError, match=r"self.signed certificate"):
        _shake_hands(config, stranger, path.parent / "stranger.key", "telecom")
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        _shake_hands(config, folder / "bank.pem", folder / "bank.key", "shop")


def _shake_hands(config, certificate, key, expected):
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(config.certificate, config.key)
    server.load_verify_locations(cadata=config.roots().decode())
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_cert_chain(certificate, key)
    client.load_verify_locations(config.certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=expected),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done = set()
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                pass
    assert len(done) == 2


def test_keys_for_files_are_in_the_certificate(path):
    config = PartyConfig.load(path)
    pem = config.certificate.read_bytes()
    verify, seal = _keys.public_keys(pem)
    signature = _keys.signing_key(config.key).sign(b"plan")
    verify.verify(signature, b"plan")
    own = _keys.opening_key(config.key)
    assert own.public_key().public_bytes_raw() == seal.public_bytes_raw()
    secrets = [
        own.private_bytes_raw(),
        _keys.signing_key(config.key).private_bytes_raw(),
    ]
    assert len({*secrets, _keys.opening_key(config.key).private_bytes_raw()}) == 2


def test_nothing_is_overwritten_and_a_key_can_be_kept(path):
    config = PartyConfig.load(path)
    before = config.key.read_bytes()
    with pytest.raises(ConfigurationError, match="is there already"):
        _keys.make_keys("telecom", config.key, config.certificate)
    renewed = path.parent / "renewed.pem"
    _keys.make_keys("telecom", config.key, renewed)
    assert config.key.read_bytes() == before
    assert _keys.belong_together(config.key, renewed.read_bytes())


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----"])
def test_files_that_are_no_certificates_or_keys(tmp_path, content):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="file"):
        _keys.certificates_in(path)
    with pytest.raises(ConfigurationError, match="file"):
        _keys.private_key(path)


def test_the_audit_log_has_one_line_for_each_event(tmp_path):
    audit = Audit(tmp_path / "audit.jsonl")
    audit.record("fit", "bank", method="splitnn", rows=500, columns=COLUMNS)
    audit.record("refused", "bank\n{}", why='a "quoted"\nline' + "x" * 1000)
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines)
    assert first["event"] == "fit"
    assert first["columns"] == COLUMNS
    assert second["peer"] == "bank\n{}"
    assert len(second["why"]) == 500
    assert os.stat(tmp_path / "audit.jsonl").st_mode & 0o777 == 0o600


def test_the_audit_log_does_not_fill_a_disk_and_counts_what_it_deletes(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(_audit, "_MOST_BYTES", 1000)
    monkeypatch.setattr(_audit, "_MOST_FILES", 4)
    path, n_refused = tmp_path / "audit.jsonl", 200
    for i in range(n_refused):
        # Two processes write to one file.
        Audit(path).record("refused", "bank", why=f"for the time {i}")
    files = sorted(tmp_path.glob("audit.jsonl*"))
    assert [each.name for each in files[1:]] == [f"audit.jsonl.{i}" for i in (1, 2, 3)]
    assert all(each.stat().st_size < 1200 for each in files)
    first, *lines = map(json.loads, path.read_text().splitlines())
    assert (first["event"], first["earlier"]) == ("new file", "audit.jsonl.1")
    assert lines[-1]["why"] == "for the time 199"
    kept = sum(each.read_text().count('"refused"') for each in files)
    assert kept + first["refusals deleted"] == n_refused
    assert first["lines deleted"] > first["refusals deleted"] > 100


@pytest.mark.parametrize("fact", [b"cell", [1.5], {"a": 1}, object()])
def test_the_audit_log_takes_no_values(tmp_path, fact):
    with pytest.raises(TypeError, match="rows is a"):
        Audit(tmp_path / "audit.jsonl").record("fit", "bank", rows=fact)
    assert not (tmp_path / "audit.jsonl").exists()
    Audit(None).record("fit", "bank")


def test_every_required_rule_is_in_the_tests_own_file():
    from dataclasses import MISSING, fields

    from skvfl.remote._config import Allowance

    assert {f.name for f in fields(Allowance) if f.default is MISSING} == {*ALLOW}
