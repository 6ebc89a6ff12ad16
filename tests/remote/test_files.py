"""Methods of one round between organisations that exchange files."""

import pickle
import threading
import time
import warnings
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from _bank_and_telecom import ALLOW, make_folders
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.callback import ScoringMonitor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score

from skvfl import (
    APCVFLClassifier,
    AutoencoderTransformer,
    FedOnceClassifier,
    FedOnceRegressor,
    NoiseAsTargetsEncoder,
    RandomProjectionVFL,
    SplitNNClassifier,
    TabVFLClassifier,
    VFedSecClassifier,
    VFLBoostingClassifier,
)
from skvfl._random import branch, deal
from skvfl.alignment import align
from skvfl.exceptions import (
    AlignmentError,
    PartyError,
    PartyValueError,
    RefusedError,
    WaitingError,
)
from skvfl.federation import _wire
from skvfl.remote import _sealing
from skvfl.remote._config import PartyConfig
from skvfl.remote._connect import connect
from skvfl.remote._endpoint import pack_hello, pack_request
from skvfl.remote._keys import make_keys
from skvfl.remote._mailbox import Desk, as_arrays
from skvfl.remote._organisation import Organisation
from skvfl.remote._plans import answer_plan, show_plan

RULES = ALLOW | {
    "methods": ["rap", "fedonce", "apc"],
    "max_width": 300,
    "fits_per_day": 100,
    "rows_per_day": 10_000,
    "alignments_per_day": 100,
}
N_BANK, N_TELECOM, N_SHARED = 60, 70, 45


def tables():
    rng = np.random.default_rng(1)
    telecom = pd.DataFrame(
        {
            "customer": rng.permutation(500)[:N_TELECOM],
            "minutes": rng.normal(size=N_TELECOM),
            "plan": rng.choice(["prepaidplan", "familyplan"], N_TELECOM),
            "calls": rng.integers(1000, 2000, N_TELECOM) + 0.123456789,
            "secret": rng.normal(size=N_TELECOM),
        }
    )
    shared = telecom["customer"].to_numpy()[:N_SHARED]
    own = np.concatenate([shared, np.arange(900, 900 + N_BANK - N_SHARED)])
    bank = pd.DataFrame(
        {
            "customer": rng.permutation(own),
            "age": rng.normal(size=N_BANK),
            "income": rng.normal(size=N_BANK),
        }
    )
    y = pd.Series((bank["age"] + rng.normal(size=N_BANK) > 0).astype(int))
    return bank, telecom, y


class Companies:
    """Bank and telecom with a folder each, and one for the files between them."""

    def __init__(self, folder, streams=None, allow=RULES, table=None):
        make_folders(folder, allow=allow)
        self.bank_file = folder / "bank" / "bank.toml"
        self.config = PartyConfig.load(folder / "telecom" / "telecom.toml")
        self.mail = folder / "mail"
        self.bank, self.telecom, self.y = tables()
        self.streams = streams
        self.shared = np.isin(self.bank["customer"], self.telecom["customer"])
        self.sent = []

    def files(self):
        link = connect(self.bank_file, folder=self.mail)
        # Bits of the whole are compared where the partner is dealt its part.
        link.deals_secrets = self.streams is not None
        return link

    def endpoint(self, peer):
        endpoint = Organisation(self.config, self.telecom).endpoint(peer)
        endpoint._member.streams = self.streams
        return endpoint

    def answer(self, plan):
        return answer_plan(plan, self.config, self.endpoint)

    def due(self, ask):
        """The plans that a call of the bank's writes."""
        with pytest.raises(WaitingError) as waiting:
            ask()
        return waiting.value.plans

    def settle(self, ask, n_waits):
        """What a call gives in the end, after so many plans for the telecom."""
        for _ in range(n_waits):
            (plan,) = self.due(ask)
            self.sent += [plan, self.answer(plan)]
        return ask()


def desk_of(path):
    return Desk.of(PartyConfig.load(path))


@contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


GUEST = NoiseAsTargetsEncoder(6, max_epochs=2)
SHORT = {"max_epochs": 2}
NETWORK = AutoencoderTransformer(8, hidden_layer_sizes=(8,), max_epochs=1)
APC = dict.fromkeys(("local_encoder", "joint_encoder", "active_encoder"), NETWORK)
METHODS = {
    "RAP": RandomProjectionVFL(LogisticRegression()),
    "RAP, targets": RandomProjectionVFL(Ridge()),
    "FedOnce": FedOnceClassifier(local_encoder=GUEST, **SHORT),
    "FedOnce, targets": FedOnceRegressor(local_encoder=GUEST, **SHORT),
    "FedOnce, budget": FedOnceClassifier(epsilon=5.0, delta=1e-3, **SHORT),
    "FedOnce, budget of guests": FedOnceClassifier(
        local_encoder=GUEST, epsilon=5.0, delta=1e-3, **SHORT
    ),
}


def streams_of(estimator):
    root = np.random.SeedSequence(0)
    roots = {what: branch(root, *path) for what, path in estimator._streams.items()}
    return deal(roots, ["telecom"])["telecom"]


def together(companies, keep):
    """The simulation's table: what `align` makes of both."""
    columns = ["customer", *companies.config.peer("bank").allow.columns]
    given = {"bank": companies.bank, "telecom": companies.telecom[columns]}
    return align(given, on="customer", keep=keep)


@pytest.mark.parametrize("name", METHODS)
def test_by_files_as_in_the_simulation(name, tmp_path):
    method = clone(METHODS[name]).set_params(random_state=0, active="bank")
    one = Companies(tmp_path, streams_of(method))
    aligned = together(one, "intersection")
    own, y = one.bank[one.shared], one.y[one.shared]
    simulated = clone(method).set_params(parties=aligned.parties)
    simulated.fit(aligned.table, y)
    by_files = clone(method).set_params(parties=one.files())
    # One wait for the ids, and one for the fit.
    one.settle(lambda: by_files.fit(own, y), 2)
    assert by_files.communication_.n_messages == simulated.communication_.n_messages
    assert by_files.communication_.n_rounds == simulated.communication_.n_rounds
    assert by_files.halves_ == ["bank"]
    # Every byte of the second plan and its reply is in the log.
    frames = [len(frame) for path in one.sent[2:] for frame in frames_in(one, path)]
    assert crossed(by_files.communication_) == sum(frames)
    some = [3, 1, 1, 20]
    ask = "predict" if "targets" in name else "predict_proba"
    expected = getattr(simulated, ask)(aligned.table.iloc[some])
    # Ids are not compared again, in a new process neither.
    saved = pickle.loads(pickle.dumps(by_files))
    found = one.settle(lambda: getattr(saved, ask)(own.iloc[some]), 1)
    assert_array_equal(found, expected)
    # All is there already, so nothing is written and nobody waits.
    before = sorted(one.mail.iterdir())
    again = clone(method).set_params(parties=one.files()).fit(own, y)
    assert_array_equal(getattr(again, ask)(own.iloc[some]), expected)
    assert sorted(one.mail.iterdir()) == before


def frames_in(one, path):
    reader = one.config.path if path.suffix == ".plan" else one.bank_file
    _, content = desk_of(reader).read(path, path.suffix[1:])
    return [frame.tobytes() for frame in content["frames"]]


def crossed(log):
    return sum(each.bytes for each in log.messages if "telecom" in each[1:3])


@pytest.mark.parametrize("inference", ["active", "joint"])
def test_apc_by_files_takes_rows_that_the_other_lacks(inference, tmp_path):
    method = APCVFLClassifier(inference=inference, active="bank", random_state=0, **APC)
    one = Companies(tmp_path, streams_of(method))
    aligned = together(one, "active")
    simulated = clone(method).set_params(parties=aligned.parties)
    simulated.fit(aligned.table, one.y)
    by_files = clone(method).set_params(parties=one.files())
    one.settle(lambda: by_files.fit(one.bank, one.y), 2)
    rows = np.flatnonzero(one.shared)[:7]
    expected = simulated.predict_proba(aligned.table.iloc[rows])
    n_waits = int(inference == "joint")
    ask = partial(by_files.predict_proba, one.bank.iloc[rows])
    assert_array_equal(one.settle(ask, n_waits), expected)


def test_apc_asks_again_where_a_row_that_is_shared_has_no_cell(tmp_path):
    one = Companies(tmp_path)
    row = one.telecom.index[one.telecom["customer"].isin(one.bank["customer"])][0]
    one.telecom["calls"] = one.telecom["calls"].astype(float)
    one.telecom.loc[row, ["minutes", "plan", "calls"]] = None
    method = APCVFLClassifier(parties=one.files(), active="bank", **APC)
    one.settle(lambda: method.fit(one.bank, one.y), 3)
    assert sum(each.suffix == ".plan" for each in one.mail.iterdir()) == 3


def test_rows_that_are_shared_are_known_once_ids_were_compared(tmp_path):
    one = Companies(tmp_path)
    held = one.settle(lambda: one.files().held(one.bank), 1)
    assert_array_equal(held["telecom"], one.shared)
    # Of some of them as well, and of none beyond.
    assert_array_equal(
        one.files().held(one.bank.iloc[10:5:-1])["telecom"], one.shared[10:5:-1]
    )
    more = one.bank.assign(customer=one.bank["customer"] + 10_000)
    (plan,) = one.due(lambda: one.files().held(more))
    one.answer(plan)
    with pytest.raises(AlignmentError, match="'telecom' have no id in common"):
        one.files().held(more)


def test_the_secret_of_a_comparison_is_kept_until_its_reply_is_read(tmp_path):
    one = Companies(tmp_path)

    def secrets():
        folder = tmp_path / "bank" / "store" / "compared" / "with" / "telecom"
        (path,) = folder.iterdir()
        assert path.stat().st_mode & 0o077 == 0
        return "secret" in _wire.unpack(path.read_bytes())

    (plan,) = one.due(lambda: one.files().held(one.bank))
    assert secrets()
    one.answer(plan)
    one.files().held(one.bank)
    assert not secrets()


def test_numbers_alone_are_not_learnt_by_files(tmp_path):
    one = Companies(tmp_path)
    with pytest.raises(ValueError, match="is counted over connections"):
        one.files().count_shared(one.bank)
    assert not one.mail.exists()


@pytest.fixture
def three(tmp_path):
    """Bank and telecom, and a shop that has what the telecom has, but for two rows."""
    one = Companies(tmp_path)
    shop = tmp_path / "shop"
    shop.mkdir()
    make_keys("shop", shop / "shop.key", shop / "shop.pem")
    (one.bank_file.parent / "shop.pem").write_bytes((shop / "shop.pem").read_bytes())
    with one.bank_file.open("a") as file:
        file.write('[peers.shop]\ncertificate = "shop.pem"\n')
    said = one.config.path.read_text().replace("telecom", "shop")
    said = said.replace('"bank.pem"', '"../telecom/bank.pem"')
    (shop / "shop.toml").write_text(said)
    config = PartyConfig.load(shop / "shop.toml")
    table = one.telecom.iloc[2:].rename(columns=str)
    return one, Organisation(config, table)


def answer_all(one, shop, plans):
    for plan in plans:
        if plan.name.startswith("shop"):
            answer_plan(plan, shop.config, shop.endpoint)
        else:
            one.answer(plan)


@pytest.mark.parametrize("name", ["RAP", "FedOnce", "APC-VFL"])
def test_several_partners_are_asked_at_once(name, three):
    one, shop = three
    methods = {**METHODS, "APC-VFL": APCVFLClassifier(**APC)}
    method = clone(methods[name]).set_params(parties=one.files(), active="bank")
    if name == "FedOnce":
        # Whose answer is under way is not missing.
        method.set_params(missing_party="zero")
    plans = one.due(lambda: one.files().held(one.bank))
    assert [each.name.partition("-")[0] for each in plans] == ["shop", "telecom"]
    answer_all(one, shop, plans)
    held = one.files().held(one.bank)
    assert held["telecom"].sum() == held["shop"].sum() + 2 == N_SHARED
    rows = np.flatnonzero(held["telecom"] & held["shop"])
    ask = partial(method.fit, one.bank.iloc[rows], one.y.iloc[rows])
    plans = one.due(ask)
    assert len(plans) == 2
    # Of one reply nothing comes yet.
    answer_all(one, shop, plans[:1])
    assert one.due(ask) == plans[1:]
    answer_all(one, shop, plans[1:])
    ask()
    assert method.communication_.n_rounds == 1


def test_a_wrong_reply_is_not_taken_for_none(three):
    one, shop = three
    answer_all(one, shop, one.due(lambda: one.files().held(one.bank)))
    rows = np.flatnonzero(np.logical_and(*one.files().held(one.bank).values()))
    method = FedOnceClassifier(
        parties=one.files(), active="bank", missing_party="zero", **SHORT
    )
    ask = partial(method.fit, one.bank.iloc[rows], one.y.iloc[rows])
    plans = one.due(ask)
    answer_all(one, shop, plans)
    reply = plans[0].with_suffix(".reply")
    reply.write_bytes(reply.read_bytes()[:-1])
    with pytest.raises(PartyValueError, match="party 'shop': its file was changed"):
        ask()


def test_all_folds_of_a_cross_validation_are_asked_for_at_once(tmp_path):
    one = Companies(tmp_path)
    one.settle(lambda: one.files().held(one.bank), 1)
    method = RandomProjectionVFL(
        LogisticRegression(), parties=one.files(), active="bank", random_state=0
    )
    own, y = one.bank[one.shared], one.y[one.shared]
    ask = partial(cross_val_score, method, own, y, cv=3)
    with pytest.raises(ValueError, match="WaitingError"), quiet():
        ask()
    answer_three(one)
    # scikit-learn takes what cannot be predicted yet for a score that is missing.
    with pytest.warns(UserWarning, match="WaitingError"):
        assert np.isnan(ask()).all()
    answer_three(one)
    assert np.isfinite(ask()).all()


def answer_three(one):
    due = [p for p in one.mail.glob("*.plan") if not p.with_suffix(".reply").exists()]
    assert len(due) == 3
    for plan in due:
        one.answer(plan)


# What is refused


MANY_ROUNDS = {
    "SplitNN": SplitNNClassifier(**SHORT),
    "vFedSec": VFedSecClassifier(**SHORT),
    "TabVFL": TabVFLClassifier(**SHORT),
    "FedOnce": FedOnceClassifier(n_split_epochs=1, **SHORT),
    "Boosting": VFLBoostingClassifier(max_iter=2),
}


@pytest.mark.parametrize("name", MANY_ROUNDS)
def test_many_rounds_are_refused_before_a_file_is_written(name, tmp_path):
    one = Companies(tmp_path)
    method = clone(MANY_ROUNDS[name]).set_params(parties=one.files(), active="bank")
    with pytest.raises(ValueError, match=r"asks the parties again and again.* RAP"):
        method.fit(one.bank[one.shared], one.y[one.shared])
    assert not one.mail.exists()
    assert not (tmp_path / "bank" / "store").exists()


def test_a_question_that_no_plan_has_is_refused(tmp_path, monkeypatch):
    one = Companies(tmp_path)
    one.settle(lambda: one.files().held(one.bank), 1)
    before = sorted(one.mail.iterdir())
    monkeypatch.setattr(SplitNNClassifier, "_one_round", True)
    method = SplitNNClassifier(parties=one.files(), active="bank", **SHORT)
    with pytest.raises(PartyValueError, match=r"party 'telecom': a plan has no 'prep"):
        method.fit(one.bank[one.shared], one.y[one.shared])
    assert sorted(one.mail.iterdir()) == before


def rap(one, rows=None):
    rows = one.shared if rows is None else rows
    method = RandomProjectionVFL(
        LogisticRegression(), parties=one.files(), active="bank", random_state=0
    )
    return lambda: method.fit(one.bank.iloc[rows], one.y.iloc[rows])


def test_rows_that_the_other_lacks_are_refused_before_a_plan_is_written(tmp_path):
    one = Companies(tmp_path)
    (plan,) = one.due(rap(one, slice(None)))
    one.answer(plan)
    before = sorted(one.mail.iterdir())
    with pytest.raises(PartyValueError, match="it holds no value of 15 of 60 rows"):
        rap(one, slice(None))()
    assert sorted(one.mail.iterdir()) == before


def test_a_table_without_the_column_of_ids_is_refused(tmp_path):
    one = Companies(tmp_path)
    method = RandomProjectionVFL(parties=one.files(), active="bank")
    with pytest.raises(ValueError, match="X has no column 'customer', which nam"):
        method.fit(one.bank[["age", "income"]], one.y)


def test_a_column_that_is_gone_is_an_error_at_the_other_one(tmp_path):
    one = Companies(tmp_path)
    (plan,) = one.due(rap(one))
    one.answer(plan)
    (plan,) = one.due(rap(one))
    one.telecom["calls"] = "text"
    one.telecom["minutes"] = np.inf
    with pytest.raises(PartyError, match=r"party 'telecom': among its own .*'minutes'"):
        one.answer(plan)
    assert [each.suffix for each in one.mail.glob("*.reply")] == [".reply"]
    # It was no answer, so it may be tried again.
    one.telecom = tables()[1]
    one.answer(plan)
    rap(one)()


def test_a_row_that_is_gone_is_an_error_at_the_other_one(tmp_path):
    one = Companies(tmp_path)
    (plan,) = one.due(rap(one))
    one.answer(plan)
    (plan,) = one.due(rap(one))
    one.telecom = one.telecom.iloc[3:]
    message = "3 of the 70 ids that were agreed on are no longer"
    with pytest.raises(PartyError, match=message) as error:
        one.answer(plan)
    assert "bank" not in str(error.value)
    assert len([*one.mail.glob("*.reply")]) == 1


def test_what_is_not_allowed_is_refused_in_words(tmp_path):
    one = Companies(tmp_path, allow=RULES | {"methods": ["fedonce"]})
    (plan,) = one.due(rap(one))
    one.answer(plan)
    (plan,) = one.due(rap(one))
    with pytest.raises(RefusedError, match="method 'rap' is not allowed"):
        one.answer(plan)
    assert len([*one.mail.glob("*.reply")]) == 1


def test_nothing_is_answered_twice_and_nothing_overwritten(tmp_path):
    one = Companies(tmp_path)
    (plan,) = one.due(rap(one))
    reply = one.answer(plan)
    kept = reply.read_bytes()
    with pytest.raises(FileExistsError, match="is there already: send it"):
        one.answer(plan)
    assert reply.read_bytes() == kept
    reply.unlink()
    renamed = plan.with_name("other.plan")
    plan.rename(renamed)
    with pytest.raises(ValueError, match="was answered before: send that reply again"):
        one.answer(renamed)
    assert not [*one.mail.glob("*.reply")]
    assert not [*one.mail.glob("*.part")]


def test_two_who_answer_at_once_give_one_answer(tmp_path):
    one = Companies(tmp_path)
    (plan,) = one.due(rap(one))
    began, go_on = threading.Event(), threading.Event()

    def slowly(sender):
        began.set()
        assert go_on.wait(20)
        return one.endpoint(sender)

    first = threading.Thread(target=answer_plan, args=(plan, one.config, slowly))
    first.start()
    assert began.wait(20)
    with pytest.raises(ValueError, match="is being answered by somebody else"):
        one.answer(plan)
    go_on.set()
    first.join(20)
    with pytest.raises(FileExistsError):
        one.answer(plan)
    assert len([*one.mail.glob("*.reply")]) == 1


def test_the_same_is_asked_anew_where_plan_and_reply_were_deleted(tmp_path):
    one = Companies(tmp_path)
    first = one.settle(rap(one), 2)
    *_, plan, reply = one.sent
    old = plan.read_bytes()
    plan.unlink()
    kept = reply.read_bytes()
    reply.unlink()
    with patch.object(time, "time", lambda: 4e9):
        assert one.due(rap(one)) == [plan]
    assert "answered it before" not in show_plan(plan, one.config)
    assert one.answer(plan) == reply
    assert reply.read_bytes() != kept
    again = rap(one)()
    assert again._parties["telecom"] != first._parties["telecom"]
    reply.unlink()
    plan.write_bytes(old)
    with pytest.raises(ValueError, match="was answered before"):
        one.answer(plan)


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory):
    """Two companies of which the bank has fitted, and its four files."""
    one = Companies(tmp_path_factory.mktemp("exchanged"))
    one.settle(rap(one), 2)
    return one


@pytest.mark.parametrize("where", ["header", "middle", "end", "cut", "longer"])
@pytest.mark.parametrize("which", range(4))
def test_a_file_that_was_changed_is_refused(exchanged, which, where):
    path = exchanged.sent[which]
    whole = path.read_bytes()
    changed = bytearray(whole)
    at = {"header": 30, "middle": len(whole) // 2, "end": -1}.get(where)
    if at is not None:
        changed[at] ^= 1
    changed = {"cut": whole[:-1], "longer": whole + b"0"}.get(where, bytes(changed))
    path.write_bytes(changed)
    before = {each: each.read_bytes() for each in exchanged.mail.iterdir()}
    try:
        read = exchanged.answer
        if path.suffix == ".reply":
            # What came of the ids is remembered, so a fit would not read it again.
            read = partial(desk_of(exchanged.bank_file).read, kind="reply")
        with pytest.raises(ValueError, match=path.name) as error:
            read(path)
        assert before == {each: each.read_bytes() for each in exchanged.mail.iterdir()}
        assert "Traceback" not in str(error.value)
        if which == 3 and where == "middle":
            with pytest.raises(PartyValueError, match="'telecom': its file was chan"):
                rap(exchanged)()
    finally:
        path.write_bytes(whole)


def test_the_reply_to_another_plan_is_refused(tmp_path):
    one = Companies(tmp_path)
    one.settle(rap(one), 2)
    _, _, plan, reply = one.sent
    some = np.flatnonzero(one.shared)[:30]
    (other,) = one.due(rap(one, some))
    taken = other.with_suffix(".reply")
    taken.write_bytes(reply.read_bytes())
    message = f"party 'telecom': its reply answers another plan than {other.name}"
    with pytest.raises(PartyValueError, match=message):
        rap(one, some)()
    # A plan is no reply either, and no reply a plan.
    taken.write_bytes(other.read_bytes())
    with pytest.raises(ValueError, match="it says that it is from 'bank'"):
        rap(one, some)()
    copied = plan.with_name("reply.plan")
    copied.write_bytes(reply.read_bytes())
    with pytest.raises(ValueError, match="it says that it is from 'telecom'"):
        one.answer(copied)


def keys():
    return _sealing.PrivateKeys(
        _sealing.Ed25519PrivateKey.generate(), _sealing.X25519PrivateKey.generate()
    )


BANK, TELECOM, OTHER = keys(), keys(), keys()
KNOWN = {"bank": BANK.public}


def sealed(content=None, keys=BANK, to=TELECOM, **said):
    said = {"kind": "plan", "sender": "bank", "receiver": "telecom"} | said
    return _sealing.seal(content, keys=keys, to=to.public, **said)


def unsealed(file, kind="plan"):
    return _sealing.unseal(
        file, kind=kind, receiver="telecom", keys=TELECOM, known=KNOWN
    )


def test_what_was_sealed_is_unsealed():
    content = {"frames": [np.arange(3)], "made": 3}
    file = sealed(content)
    sender, read = unsealed(file)
    assert sender == "bank"
    assert_array_equal(read["frames"][0], [0, 1, 2])
    assert sealed(content) != file


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (b"", "no file that skvfl has written"),
        (b"PK" * 99, "no file that skvfl has written"),
        (b"skvfl file 2\n" + bytes(99), r"it has format '2', .* reads '1'"),
        (_sealing.MAGIC + bytes(3), "no file that skvfl has written"),
        (_sealing.MAGIC + b"\xff" * 99, "no file that skvfl has written"),
        (sealed(sender="x"), "it says that it is from 'x', of whom there is no certif"),
        (sealed(receiver="x"), "party 'bank': its file is for 'x', and not for 'tele"),
        (sealed(kind="reply"), "party 'bank': its file is a reply, and no plan"),
        (sealed(keys=OTHER), "party 'bank': its file is not signed by the key"),
        (sealed(to=OTHER), "party 'bank': its file was changed on its way, or"),
    ],
)
def test_files_that_do_not_belong_are_refused(file, message):
    with pytest.raises(ValueError, match=message):
        unsealed(file)


def test_a_file_cannot_be_sealed_again_for_somebody_else():
    # Whoever opens a file has what was signed, and seals it under another header.
    suite = _sealing._suite()
    file = sealed({"a": 1}, to=OTHER, receiver="other")
    head, _ = _sealing._read_header(file)
    signed = suite.decrypt(file[len(head) :], OTHER.open, info=head)
    head, _ = _sealing._read_header(sealed())
    forged = head + suite.encrypt(signed, TELECOM.public.seal, info=head)
    with pytest.raises(PartyValueError, match="is not signed by the key"):
        unsealed(forged)


def test_damaged_files_never_crash():
    rng = np.random.default_rng(0)
    file = sealed({"frames": [np.arange(30)], "made": 3})
    for _ in range(2000):
        changed = bytearray(file)
        for _ in range(rng.integers(1, 4)):
            changed[rng.integers(len(file))] = rng.integers(256)
        changed = bytes(
            changed[: rng.integers(len(file)) if rng.random() < 0.2 else None]
        )
        if changed != file:
            with pytest.raises(ValueError, match=r"."):
                unsealed(changed)


# In plain words


def test_a_plan_is_shown_in_plain_words(exchanged):
    ids, fit = (show_plan(exchanged.sent[i], exchanged.config) for i in (0, 2))
    assert ids.startswith("bank asks telecom, by a file of 20")
    assert f"Its {N_SHARED} ids, masked, are compared with all of yours" in ids
    assert (
        f"a fit of RAP, random projections, as its 'party', on {N_SHARED} rows" in fit
    )
    assert "    transformer: 'auto'\n    projection: None\n" in fit
    assert "You keep what came of it" in fit
    assert fit.endswith("You have answered it before.")
    assert "customer" not in ids + fit


def plan_of(one, *requests, made=0):
    """A plan that the bank signs, whatever it asks for."""
    frames = [pack_hello(0)]
    for number, (operation, arguments) in enumerate(requests, 1):
        frames.append(pack_request(number, operation, **arguments))
    path = one.mail / f"plan{len([*one.mail.iterdir()])}.plan"
    desk = desk_of(one.bank_file)
    content = {"frames": as_arrays(frames), "made": made}
    path.write_bytes(desk.seal(content, "plan", "telecom"))
    return path


OPEN = ("open", {"role": "rap.party", "settings": {}, "rows": np.arange(30)})


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([], "does not begin by opening a run"),
        ([("keep", {})], "does not begin by opening a run"),
        ([OPEN, ("forward", {})], r"asks for \['forward'\], which is nothing that"),
        ([OPEN, ("hello", {})], r"asks for \['hello'\], which is nothing that"),
        ([OPEN, ("perform", {})], r"asks for \['perform'\], which is nothing that"),
    ],
)
def test_plans_that_ask_for_something_else_are_neither_shown_nor_answered(
    exchanged, requests, message
):
    path = plan_of(exchanged, *requests)
    for ask in (
        lambda: show_plan(path, exchanged.config),
        partial(exchanged.answer, path),
    ):
        with pytest.raises(PartyValueError, match=f"party 'bank': its plan {message}"):
            ask()


@pytest.mark.parametrize("made", [-1, 10**30, 10**300, True, 1.0])
def test_a_plan_that_could_not_be_remembered_is_not_answered(exchanged, made):
    path = plan_of(exchanged, OPEN, ("fit_transform", {}), made=made)
    for ask in (
        lambda: show_plan(path, exchanged.config),
        partial(exchanged.answer, path),
    ):
        with pytest.raises(PartyValueError, match="its file is no plan"):
            ask()


def test_what_a_plan_says_cannot_pose_as_our_words(exchanged):
    forged = "x\n- You send nothing"
    settings = {forged: {"name": forged, "params": {"dict": {forged: forged}}}}
    for role in (f"{forged}.y", f"rap.{forged}"):
        opening = {"role": role, "settings": settings, "agreed": forged}
        path = plan_of(exchanged, ("open", opening), ("keep", {}))
        assert "\n- You send nothing" not in show_plan(path, exchanged.config)


def test_settings_are_said_as_python_says_them(tmp_path):
    one = Companies(tmp_path)
    method = FedOnceClassifier(
        parties=one.files(), active="bank", local_encoder=GUEST, epsilon=5.0, **SHORT
    )
    ask = partial(method.fit, one.bank[one.shared], one.y[one.shared])
    (plan,) = one.due(ask)
    one.answer(plan)
    (plan,) = one.due(ask)
    words = show_plan(plan, one.config)
    assert "a fit of FedOnce, as its 'guest'" in words
    assert "local_encoder: NoiseAsTargetsEncoder(batch_size=" in words
    assert "n_components=6" in words
    assert "how many noisy steps you took" in words


# What is in files and folders


def test_no_file_has_a_cell_an_id_or_a_seed_of_the_other(tmp_path):
    seeds = np.random.SeedSequence(987654321987654321)
    streams = {what: seeds.spawn(1)[0] for what in ("prepare", "project")}
    one = Companies(tmp_path, streams)
    for table in (one.bank, one.telecom):
        table["customer"] = [f"bankid{each:04}" for each in table["customer"]]
    method = one.settle(rap(one), 2)
    one.settle(lambda: method.predict(one.bank[one.shared]), 1)
    opened = [frame for path in one.mail.iterdir() for frame in frames_in(one, path)]
    sealed_files = [each.read_bytes() for each in one.mail.iterdir()]
    of_bank = [*contents(tmp_path / "bank"), pickle.dumps(method)]
    of_telecom = contents(tmp_path / "telecom", but=".csv")
    cells = [
        *(f"{each}".encode() for each in one.telecom["plan"].unique()),
        *(each.tobytes() for each in one.telecom["calls"].to_numpy()),
        *(each.tobytes() for each in one.telecom["minutes"].to_numpy()),
    ]
    secret = (987654321987654321).to_bytes(8, "little")
    only_bank = [each.encode() for each in one.bank["customer"][~one.shared]]
    only_telecom = [
        each.encode()
        for each in set(one.telecom["customer"]) - set(one.bank["customer"])
    ]
    ids = [each.encode() for each in set(one.bank["customer"])]
    everything = [*opened, *sealed_files]
    assert not hits(everything, [*cells, secret, *ids, *only_telecom])
    assert not hits(of_bank, [*cells, secret, *only_telecom])
    assert not hits(of_telecom, only_bank)
    # The search finds what each of them has at home.
    assert hits(of_bank, ids)
    assert hits(of_telecom, only_telecom)
    assert hits([one.telecom.to_csv().encode()], cells)
    assert hits([_wire.pack(one.telecom["calls"].to_numpy())], cells)


def contents(folder, but=None):
    files = [each for each in folder.rglob("*") if each.is_file()]
    return [each.read_bytes() for each in files if each.suffix != but]


def hits(places, patterns):
    whole = b"\0".join(places)
    return {pattern for pattern in patterns if pattern in whole}


def test_scores_of_epochs_are_refused_in_words(tmp_path):
    one = Companies(tmp_path)
    shared = one.bank[one.shared], one.y[one.shared]

    def fit():
        vfl = FedOnceClassifier(parties=one.files(), local_encoder=GUEST, **SHORT)
        monitor = ScoringMonitor(scoring="accuracy")
        vfl.set_callbacks(monitor).fit(*shared)
        return monitor.get_logs()

    with pytest.warns(UserWarning, match="callbacks get no model of some epochs"):
        logs = one.settle(fit, 3)
    # That of the fit itself is a prediction, and the third plan.
    assert len(logs.data) == 1
