"""What a session may ask of members when it opens, and what they may answer."""

import copy
import pickle

import numpy as np
import pytest
from _role_views import walk
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skvfl import (
    APCVFLClassifier,
    FedOnceClassifier,
    GaussianProjection,
    LocalTransport,
    NoiseAsTargetsEncoder,
    RandomProjectionVFL,
    SplitNNClassifier,
    TabVFLClassifier,
    VerticalPartitioner,
    VFedSecClassifier,
    VFLBoostingClassifier,
)
from skvfl._random import deal, spawn_named, without_seeds
from skvfl.exceptions import PartyError, SettingsError
from skvfl.federation import Federation, Handle, Holding, Labels, Member, register
from skvfl.federation._settings import NotInWordsError, from_words, in_words
from skvfl.federation._transport import _LocalSession
from skvfl.privacy import KeyRing

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 6))
Y = np.arange(60) % 2
PARTIES = {"bank": [0, 1, 2], "shop": [3, 4, 5]}
METHODS = {
    "rap": (RandomProjectionVFL, {"estimator": LogisticRegression()}),
    "splitnn": (SplitNNClassifier, {"max_epochs": 1}),
    "fedonce": (FedOnceClassifier, {"max_epochs": 1, "n_split_epochs": 1}),
    "apc": (APCVFLClassifier, {"max_epochs": 1, "inference": "joint"}),
    "tabvfl": (TabVFLClassifier, {"max_epochs": 1}),
    "vfedsec": (VFedSecClassifier, {"max_epochs": 1}),
    "boosting": (VFLBoostingClassifier, {"max_iter": 1}),
}
each_method = pytest.mark.parametrize("method", METHODS)


def make(method, **params):
    kind, given = METHODS[method]
    return kind(**{"parties": PARTIES, "random_state": 0, **given, **params})


class Listening(LocalTransport):
    """Remembers how members were asked to open, and what they held."""

    def __init__(self):
        self.asked = []

    def connect(self, parties, log, centre="server"):
        holdings = {party.name: copy.deepcopy(party.holding) for party in parties}
        own = {party.name: copy.copy(party.own) for party in parties}
        session = super().connect(parties, log, centre)
        open_it = session.open

        def listen(each, **params):
            for name, opening in each.items():
                self.asked.append((name, opening, holdings[name], own[name]))
            return open_it(each, **params)

        session.open = listen
        return session

    def __deepcopy__(self, memo):
        return self


def openings(method, **params):
    transport = Listening()
    make(method, transport=transport, **params).fit(X, Y)
    return transport.asked


def shop(**params):
    return Member("shop", Holding(np.arange(12.0).reshape(6, 2)), **params)


SPLIT = {"bottom": [4], "cut_width": 3, "lr": 0.1}


def ask(member, rows=None, role="splitnn.passive", **settings):
    opening = {"role": role, "settings": {**SPLIT, **settings}}
    return member.perform("open", opening | ({} if rows is None else {"rows": rows}))


# --- words --------------------------------------------------------------------------


def named(name, **params):
    return {"name": name, "params": {"dict": params}}


def nested(step):
    columns = {"tuple": ["one", step, [0]]}
    inside = named("ColumnTransformer", transformers=[columns])
    return named("Pipeline", steps=[{"tuple": ["all", inside]}])


CACHED = named("Pipeline", steps=[{"tuple": ["pca", named("PCA")]}], memory="here")
called = []


def record(*args, **kwargs):
    called.append((args, kwargs))


register("openings.record", record)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (CACHED, "memory of Pipeline is not for others"),
        (nested(CACHED), "memory of Pipeline is not for others"),
        ({**CACHED, "extra": 1}, "Pipeline is not in words"),
        ({"name": "Pipeline", "keywords": CACHED["params"]}, "memory of Pipeline"),
        (named("FeatureUnion", transformer_list=[], n_jobs=99), "n_jobs of Feature"),
        (named("StandardScaler", copy=False), "copy of StandardScaler"),
        (nested(named("MinMaxScaler", copy=0)), "copy of MinMaxScaler"),
        (named("NoiseAsTargetsEncoder", callbacks=[]), "callbacks of Noise"),
        (nested(named("FunctionTransformer")), "no building block 'FunctionTransf"),
        (named("os.system", command="true"), "no building block 'os.system'"),
        ({"name": ["PCA"]}, "no building block"),
        ({"name": {"name": "PCA"}}, "no building block"),
        ({}, "no building block None"),
        ({"eval": "1"}, "no building block None"),
        ({"name": "PCA", "params": 5}, "parameters of PCA are not in words"),
        ({"name": "PCA", "params": {"name": "PCA"}}, "of PCA are not in words"),
        (named("PCA", nothing=1), "PCA does not have these parameters"),
        (named("SGD", lr=1.0), "said of SGD is not in words"),
        (named("openings.record", path="x"), "record is not in words"),
        (named("OneHotEncoder", dtype={"dtype": "object"}), "no data type of num"),
        (named("OneHotEncoder", dtype={"dtype": "U9999999"}), "no data type of num"),
        (named("OneHotEncoder", dtype={"dtype": ["f4"]}), "no data type of num"),
        ({"dict": 5}, "no building block None"),
        ({"tuple": 5}, "no building block None"),
    ],
)
def test_words_make_building_blocks_and_do_nothing_else(words, message, tmp_path):
    member = shop()
    with pytest.raises(PartyError, match=f"party 'shop': .*{message}"):
        ask(member, transformer=words)
    assert member.party is None
    assert not called


def test_what_is_refused_would_have_kept_cells_elsewhere(tmp_path):
    """Controls: these parameters do what they are refused for."""
    cached = make_pipeline(StandardScaler(), PCA(), memory=str(tmp_path))
    cached.fit(np.array(X))
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert any(
        StandardScaler().fit_transform(X).tobytes() in f.read_bytes() for f in files
    )
    table = np.array(X)
    StandardScaler(copy=False).fit_transform(table)
    assert not np.array_equal(table, X)
    for said in (cached, StandardScaler(copy=False), OneHotEncoder(dtype=np.object_)):
        with pytest.raises(NotInWordsError):
            in_words(said)
    columns = ColumnTransformer([("one", OneHotEncoder(dtype=np.int8), [0])])
    said = Pipeline([("all", columns), ("pca", PCA(2))])
    assert repr(from_words(in_words(said))) == repr(said)


PLAIN = {"name": "PCA", "params": {"dict": {}}}
APC = dict.fromkeys(
    ("local_encoder", "joint_encoder", "active_encoder", "model"), PLAIN
)
APC |= {"teacher": None, "distillation": None, "inference": "active"}


@pytest.mark.parametrize(
    ("opening", "message"),
    [
        ({"role": "splitnn.passive", "settings": [1]}, "its settings are not a dict"),
        ({"role": "splitnn.passive", "settings": {}}, "needs the settings"),
        ({"role": 5}, "no role 5 here"),
        ({"role": ["rap.party"]}, "no role"),
        ({"role": "key_ring"}, "no role 'key_ring' here"),
        ({"role": "bottom"}, "no role 'bottom' here"),
        ({"role": None, "model": ["x"]}, "no such model"),
        ({"role": "rap.party", "model": "x"}, "no such model"),
        (
            {"role": "rap.party", "settings": {"projection": {"own": "bottom"}}},
            "speaks",
        ),
        ({"role": "rap.party", "settings": {"projection": {"own": []}}}, "speaks"),
        (
            {"role": "rap.party", "settings": {"projection": {"own": "key_ring"}}},
            "speaks",
        ),
        ({"role": "rap.owner", "settings": {"label_protection": True}}, "no labels"),
        ({"role": "splitnn.active", "settings": {**SPLIT, "top": []}}, "no labels"),
        ({"role": "apc.active", "settings": APC}, "no labels"),
    ],
)
def test_openings_speak_of_what_is_theirs(opening, message):
    own = {"bottom": record, "key_ring": KeyRing("shop")}
    with pytest.raises(PartyError, match=f"party 'shop': .*{message}"):
        shop(own=own).perform("open", opening)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("open", {"name": "x", "operation": "y", "function": "z"}),
        ("open", {"role": "rap.party", "self": 1}),
        ("open", 5),
        (["open"], {}),
        (np.arange(3), {}),
        ("prepare", {"name": "x", "operation": "y", "function": "z", "seed": 0}),
        ("prepare", 5),
        (["prepare"], {}),
        ("__init__", {"name": "x"}),
        ("hold", {"state": 1}),
        ("protect_labels", {}),
        ("learn", {"start": 0, "stop": 1, "received": {}}),
    ],
)
def test_whatever_is_asked_ends_in_an_error_of_the_party(operation, arguments):
    for opened in (False, True):
        member = shop()
        if opened:
            ask(member)
        with pytest.raises(PartyError, match="party 'shop'"):
            member.perform(operation, arguments)
    with pytest.raises(PartyError, match="party 'shop'"):
        member.party.perform(operation, arguments)


def test_a_member_may_look_at_what_it_is_told():
    def agree(settings):
        if getattr(settings, "projection", None) is not None:
            raise SettingsError("it sends its columns through no projection of others")

    clear = {"projection": in_words(StandardScaler()), "transformer": "passthrough"}
    opening = {"role": "rap.party", "settings": clear}
    member = shop()
    member.perform("open", opening)
    sent = member.perform("fit_transform", {})
    table = member.holding.block
    assert np.allclose(sent, (table - table.mean(axis=0)) / table.std(axis=0))
    with pytest.raises(PartyError, match="through no projection of others"):
        shop(agree=agree).perform("open", opening)
    shop(agree=agree).perform("open", {"role": "rap.party"})


# --- rows ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, -1], "not among its 6"),
        ([0, 6], "not among its 6"),
        (np.array([2**64 - 1], np.uint64), "not among its 6"),
        (np.array([0, 2**63 - 1]), "not among its 6"),
        ([0.0, 1.0], "no positions"),
        ([np.nan], "no positions"),
        ([True] * 6, "no positions"),
        ([[0, 1]], "no positions"),
        (np.array(3), "no positions"),
        ("all", "no positions"),
        ([2, 2], "learn from a row twice"),
    ],
)
def test_rows_are_positions_in_the_table(rows, message):
    member = shop()
    rows = rows if isinstance(rows, str) else np.asarray(rows)
    with pytest.raises(PartyError, match=message):
        ask(member, rows)
    assert ask(shop(), np.array([3, 1]))["n_rows"] == 2


def test_rows_to_be_served_may_repeat():
    member = shop()
    ask(member)
    member.perform("prepare", {"seed": 0})
    serving = shop(fitted=member.dismiss())
    rows = np.array([4, 1, 1], np.uint8)
    assert serving.perform("open", {"role": None, "rows": rows})["n_rows"] == 3
    sent = serving.perform("represent", {"start": 0, "stop": 3})
    assert np.array_equal(sent[1], sent[2])
    assert not np.array_equal(sent[0], sent[1])


def test_labels_go_with_the_rows():
    labels = Labels(np.arange(6.0), None, np.arange(6.0) + 1, np.arange(6) > 2)
    member = Member("bank", Holding(X[:6], np.arange(6) * 10, labels))
    opening = {"role": "rap.owner", "settings": {"label_protection": False}}
    member.perform("open", {**opening, "rows": np.array([5, 2])})
    held = member.party.held(Holding)
    assert held.labels.values.tolist() == [5, 2]
    assert held.labels.weights.tolist() == [6, 3]
    assert held.labels.known.tolist() == [True, False]
    assert held.rows.tolist() == [50, 20]


# --- one opening for each run -------------------------------------------------------


def secrets(party):
    """Everything that a party keeps, as bytes."""
    party.release()
    return pickle.dumps(party)


@each_method
def test_a_run_is_opened_once(method):
    for name, opening, holding, own in openings(method):
        if opening["role"] in (None, "fedonce.split"):
            continue
        drawn = []
        for _ in range(2):
            member = Member(name, copy.deepcopy(holding), own=own)
            member.perform("open", opening)
            party = member.party
            for again in (opening, {"role": None}, {**opening, "role": "rap.party"}):
                with pytest.raises(PartyError, match=f"'{name}': .*open already"):
                    member.perform("open", again)
            assert member.party is party
            drawn.append(secrets(copy.copy(party)))
        # A second party would have had other secrets.
        assert drawn[0] != drawn[1]


def test_a_guest_learns_once_for_what_it_spends():
    params = {"epsilon": 4.0, "n_split_epochs": 0}
    asked = openings("fedonce", **params)
    (opening,) = (each for name, each, *_ in asked if name == "shop")
    member = Member("shop", Holding(X[:, 3:]))
    member.perform("open", opening)
    member.perform("learn", {})
    with pytest.raises(PartyError, match="has learnt in this run already"):
        member.perform("learn", {})


# --- streams ------------------------------------------------------------------------


def test_members_that_were_given_one_stream_do_not_count_together():
    dealt = deal({"prepare": np.random.SeedSequence(1)}, ["shop"])["shop"]
    dealt["models"] = dealt["prepare"]
    settings = {"transformer": in_words(make_pipeline(PCA(2), GaussianProjection()))}
    sent = []
    for _ in range(2):
        member = shop(streams=dealt)
        ask(member, **settings)
        member.perform("prepare", {"seed": 0})
        sent.append(member.perform("represent", {"start": 0, "stop": 6}))
    assert np.array_equal(*sent)
    assert dealt["prepare"].n_children_spawned == 0
    member = shop(streams={"prepare": dealt["prepare"]})
    with pytest.raises(PartyError, match="no stream for 'models'"):
        ask(member)


def test_own_objects_draw_anew_in_every_run():
    own = {"projection": GaussianProjection()}
    sent = []
    for _ in range(2):
        member = shop(own=dict(own))
        words = {"projection": {"own": "projection"}, "transformer": "passthrough"}
        member.perform("open", {"role": "rap.party", "settings": words})
        sent.append(member.perform("fit_transform", {}))
    assert not np.allclose(*sent)
    assert not hasattr(own["projection"], "_sequence")


def test_streams_that_are_dealt_are_one_way():
    root = np.random.SeedSequence(5)
    dealt = deal({"prepare": root}, ["shop"])["shop"]["prepare"]
    assert dealt.entropy != root.entropy
    # A child of the root, as numpy makes it, has the root's entropy.
    assert spawn_named(root, ["shop"])["shop"].entropy == root.entropy


SEED = 987654321


def seeded(depth):
    step = GaussianProjection(random_state=SEED)
    for i in range(depth):
        step = (
            ColumnTransformer([("one", step, [0, 1, 2])])
            if i
            else Pipeline([("p", step)])
        )
    return step


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("field", ["transformer", "projection", "partitioner"])
def test_a_users_seed_of_all_is_not_handed_over(field, depth):
    params = {"projection": seeded(depth)}
    if field == "transformer":
        params = {"parties": VerticalPartitioner(seeded(depth), parties=PARTIES)}
    if field == "partitioner":
        partitioner = VerticalPartitioner(PCA(3), parties=PARTIES, random_state=SEED)
        params = {"parties": partitioner}

    def found(thing):
        return any(type(each) is int and each == SEED for each in walk(thing))

    assert found(params)
    for _, opening, holding, own in openings("rap", **params):
        assert not found([opening, holding, own])
    fitted = make("rap", **params).fit(X, Y)
    assert found(fitted)
    assert not found(fitted._parties)
    assert not found(fitted.keep_halves(["bank"]))


# --- what members are told, and what they say ---------------------------------------


@each_method
def test_a_passive_party_is_told_nothing_of_others(method):
    """But for vFedSec's, whose clients make keys for each other."""
    asked = openings(method, random_state=SEED)
    told = [opening for name, opening, *_ in asked if name == "shop"]
    assert told
    for each in walk(told):
        assert not (isinstance(each, np.ndarray) and each.size > 4)
        assert not (isinstance(each, int) and each in (SEED, len(X)))
    says = any(isinstance(each, str) and each == "bank" for each in walk(told))
    assert says == (method == "vfedsec")


class Near(Federation):
    """A shop with a table of its own, and lies of its own, in this process."""

    names = ["bank", "shop"]

    def __init__(self, lie=None, table=X[:, 3:], names=("bank", "shop"), empty=False):
        self.lie = lie or {}
        self.table = table
        self.names = list(names)
        self.empty = empty
        self.kept = {}

    def own_columns(self, table):
        return slice(1, 1 if self.empty else None)

    def rows(self, table):
        return table[:, 0].astype(int)

    def connect(self, parties, log, centre="server", *, names=None):
        members = {member.name: member for member in parties}
        if "shop" in names:
            members["shop"] = Member("shop", Holding(self.table), kept=self.kept)
        return _Near(
            [members[n] for n in self.names if n in members], log, centre, self
        )

    def __deepcopy__(self, memo):
        return self


class _Near(_LocalSession):
    def __init__(self, members, log, centre, federation):
        super().__init__(members, log, centre)
        self._federation = federation

    def _exchange(self, requests, skip_late):
        exchanged = super()._exchange(requests, skip_late)
        if any(request[0] == "open" for request in requests.values()):
            exchanged.get("shop", [{}])[0].update(self._federation.lie)
        return exchanged

    def _dismiss(self):
        parties = super()._dismiss()
        if "shop" in parties:
            model = f"model {len(self._federation.kept)}"
            self._federation.kept[model] = parties["shop"]
            parties["shop"] = Handle("shop", model)
        return parties


OWN = np.column_stack([np.arange(60), X[:, :3]])
LIES = [
    {"n_rows": 59},
    {"n_rows": 61},
    {"n_rows": 2**62},
    {"n_rows": True},
    {"n_rows": -60},
    {"n_rows": None},
    {"n_columns": 0},
    {"n_columns": -3},
    {"n_columns": True},
    {"n_columns": 2**40},
    {"n_columns": 3.0},
    {"n_empty": 61},
    {"n_empty": -1},
    {"n_empty": False},
    {"more": 1},
]


@each_method
def test_lies_about_tables_are_errors_that_name_the_party(method):
    params = {"active": "bank"}
    for lie in LIES:
        with pytest.raises(PartyError, match="party 'shop'"):
            make(method, parties=Near(lie), **params).fit(OWN, Y)
    honest = make(method, parties=Near(), **params).fit(OWN, Y)
    expected = honest.predict(OWN[:5])
    for lie in ({"n_rows": 6}, {"n_columns": 4}, {"n_empty": 6}):
        honest.parties.lie = lie
        with pytest.raises(PartyError, match="party 'shop'"):
            honest.predict(OWN[:5])
    honest.parties.lie = {}
    assert np.array_equal(honest.predict(OWN[:5]), expected)


@each_method
def test_members_without_columns(method):
    nothing = np.empty((60, 0))
    with pytest.raises(PartyError, match="party 'shop': it holds no column"):
        make(method, parties=Near(table=nothing), active="bank").fit(OWN, Y)
    alone = Near(names=["bank"], empty=True)
    message = r"no party holds a column|holds no column|needs at least two clients"
    with pytest.raises(ValueError, match=message):
        make(method, parties=alone, active="bank").fit(OWN, Y)
    labels_only = make(method, parties=Near(empty=True), active="bank")
    if method in ("apc", "vfedsec"):
        with pytest.raises(ValueError, match=r"holds no column|fewer than two"):
            labels_only.fit(OWN, Y)
    else:
        labels_only.fit(OWN, Y).predict(OWN[:3])


# --- halves -------------------------------------------------------------------------


def parts(party):
    """Arrays and keys of a party that nobody else has, as bytes."""
    found = set()
    for each in walk(party):
        if isinstance(each, np.ndarray) and each.dtype.kind == "f" and each.size > 8:
            found.add(each.tobytes())
        elif isinstance(each, bytes) and len(each) >= 32:
            found.add(each)
        elif isinstance(each, KeyRing):
            found.add(each.__getstate__()["identity"])
    return found


HALVES = {
    "vfedsec": {
        "key_rings": {name: KeyRing(name) for name in ("bank", "shop", "server")},
        "masked": True,
        "record_server_view": True,
    },
    "rap": {"projection": GaussianProjection(random_state=SEED)},
    "fedonce": {"local_encoder": {"shop": NoiseAsTargetsEncoder(max_epochs=1)}},
}


@each_method
def test_a_half_has_nothing_of_another(method, tmp_path):
    fitted = make(method, random_state=SEED, **HALVES.get(method, {})).fit(X, Y)
    other, own = (parts(fitted._parties[name]) for name in ("shop", "bank"))
    other -= own
    everything = pickle.dumps(fitted)
    assert other
    assert any(each in everything for each in other)
    kept = fitted.keep_halves(["bank"])
    half = pickle.dumps(kept)
    assert not any(each in half for each in other)
    seed = pickle.dumps(SEED, protocol=4)[-6:-1]
    assert seed in everything
    assert seed not in half
    assert any(each in half for each in own)
    fitted.save_half("shop", tmp_path / "half")
    saved = (tmp_path / "half").read_bytes()
    assert any(each in saved for each in other)
    assert not any(each in saved for each in own - parts(fitted._parties["shop"]))
    again = pickle.loads(half).load_half(tmp_path / "half")
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    # What was fitted is as it was.
    assert fitted.random_state == SEED


def test_an_open_view_of_the_server_is_not_a_half():
    params = {"masked": False, "record_server_view": True}
    fitted = make("vfedsec", **params).fit(X, Y)
    assert any(record.client == "shop" for record in fitted.server_view_)
    assert not hasattr(fitted.keep_halves(["bank"]), "server_view_")


@each_method
def test_a_fitted_estimator_keeps_no_table_and_no_session(method):
    labels = np.where(Y, "yes, she did", "no, not at all")
    fitted = make(method).fit(X, labels)
    cells = {column.tobytes()[: 8 * 20] for column in np.ascontiguousarray(X.T)}
    rows = {X[i, :3].tobytes() for i in range(60)}
    codes = Y.astype(np.int64).tobytes()
    member = Member("bank", Holding(np.asfortranarray(X[:, :3]), labels=Labels(Y, 2)))
    control = pickle.dumps(member)
    assert any(each in control for each in cells)
    assert codes in control
    for thing in (fitted, *fitted._parties.values()):
        kept = pickle.dumps(thing)
        assert not any(each in kept for each in cells | rows)
        assert codes not in kept
        kinds = {type(each) for each in walk(thing)}
        assert not kinds & {Member, Holding, Labels}
    assert Member in {type(each) for each in walk([member])}


def test_seeds_are_struck_out_everywhere_and_left_where_they_were():
    given = {
        "local_encoder": {"shop": make_pipeline(PCA(random_state=SEED))},
        "steps": [("a", PCA(random_state=SEED), [1])],
        "kind": PCA,
    }
    struck = without_seeds(given)
    assert not any(type(each) is int and each == SEED for each in walk(struck))
    assert any(type(each) is int and each == SEED for each in walk(given))
    assert struck["kind"] is PCA
