"""Whoever carries partners' keys to each other cannot put its own in their place."""

import contextlib

import numpy as np
import pandas as pd
import pytest
from _bank_and_telecom import ALLOW, make_folders
from _partners import Seeded, bank_file, exchange_keys, partner_config

from skvfl import VFedSecClassifier, connect
from skvfl.exceptions import ConfigurationError, PartyError, RefusedError
from skvfl.federation import Holding, Member
from skvfl.remote._check import findings
from skvfl.remote._config import PartyConfig
from skvfl.remote._connect import Link
from skvfl.remote._grpc import Server

N_ROWS = 60
RNG = np.random.default_rng(0)
IDS = np.arange(100, 100 + N_ROWS)
BANK = pd.DataFrame(RNG.normal(size=(N_ROWS, 2)), columns=["age", "income"])
BANK["customer"] = IDS
Y = (BANK["age"] > 0).astype(int)


def table(*columns):
    made = pd.DataFrame(RNG.normal(size=(N_ROWS, len(columns))), columns=columns)
    return made.assign(customer=IDS)


TABLES = {"shop": table("spend", "visits"), "telecom": table("minutes", "calls")}


@contextlib.contextmanager
def listening(folder, pinned):
    """The bank's file, while partners listen who have pinned each other, or not."""
    exchange_keys(folder, ["bank", *TABLES])
    ports = {}
    with contextlib.ExitStack() as running:
        for name, own in TABLES.items():
            others = [each for each in TABLES if each != name] if pinned else []
            columns = [each for each in own.columns if each != "customer"]
            config = partner_config(folder, name, columns, pinned=others)
            server = running.enter_context(Server(config, Seeded(config, own)))
            ports[name] = server.port
        yield bank_file(folder, TABLES, ports)


class Posing(Link):
    """A bank that asks the telecom alone, and plays another partner itself."""

    def __init__(self, path, name):
        super().__init__(path, None, ["telecom"], 60.0)
        self.posing_as = name
        self.names = ["bank", *sorted([name, "telecom"])]

    def __reduce__(self):
        return type(self), (self.path, self.posing_as)

    def ask_for(self, name, rows, log):
        return {} if name == self.posing_as else super().ask_for(name, rows, log)

    def connect(self, parties, log, centre="server", *, names=None):
        parties = [*parties]
        if names is None or self.posing_as in names:
            nothing = Holding(np.ones((N_ROWS, 2)))
            parties.append(Member(self.posing_as, nothing))
        return super().connect(parties, log, centre, names=names)


def fit(parties):
    return VFedSecClassifier(parties=parties, max_epochs=1).fit(BANK, Y)


def test_a_bank_that_plays_a_partner_is_found_out_where_that_is_pinned(tmp_path):
    for pinned in (False, True):
        with listening(tmp_path / str(pinned), pinned) as path:
            posing = Posing(path, "shop")
            if not pinned:
                # It knows every part of the sum but the telecom's, and so that, too.
                assert fit(posing).halves_ == ["bank", "shop"]
                continue
            with pytest.raises(PartyError, match=r"'shop': its identity .* has pinned"):
                fit(posing)
            # Nor does it help to make up a name.
            with pytest.raises(RefusedError, match=r"vFedSec with \['rival'\] is not"):
                fit(Posing(path, "rival"))


def test_partners_who_have_pinned_each_other_fit_and_predict(tmp_path):
    with listening(tmp_path, pinned=True) as path:
        vfl = fit(connect(path))
        assert vfl.predict(BANK).shape == (N_ROWS,)
        known = vfl.fingerprints_
        # An identity lasts, as its key does.
        again = fit(connect(path)).fingerprints_
        assert {n: known[n] == again[n] for n in TABLES} == dict.fromkeys(TABLES, True)


def told(config):
    found = [each.words for each in findings(config, greet=lambda *_: {})]
    return [words for words in found if "vFedSec" in words]


def test_the_check_says_whom_vfedsec_may_bring(tmp_path):
    allow = ALLOW | {"methods": ["vfedsec"], "max_width": 2}
    path = make_folders(tmp_path, allow=allow)
    path.write_text(path.read_text().replace('address = "localhost:18443"', ""))
    (words,) = told(PartyConfig.load(path))
    assert "bank carries the keys of its partners" in words
    pem = (path.parent / "bank.pem").read_bytes()
    (path.parent / "shop.pem").write_bytes(pem)
    partner = '\n[partners.shop]\ncertificate = "shop.pem"\n'
    path.write_text(path.read_text() + partner)
    config = PartyConfig.load(path)
    (words,) = told(config)
    assert words == "vFedSec with shop and nobody else, by their certificates"
    wrong = [each for each in findings(config, greet=lambda *_: {}) if each.is_wrong]
    assert any("shop.pem is of 'bank'" in each.words for each in wrong)
    for said, fault in (
        ("[partners.telecom]\ncertificate='telecom.pem'", "is this organisation"),
        ("[partners.rival]", "partners.rival.certificate is missing"),
        ("[partners.rival]\ncert='x'", "partners.rival.cert is not known here"),
    ):
        path.write_text(path.read_text().partition("\n[partners")[0] + f"\n{said}\n")
        with pytest.raises(ConfigurationError, match=fault):
            PartyConfig.load(path)
