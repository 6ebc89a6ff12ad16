"""Whatever is not on the list is refused, in words, and counted over restarts."""

import contextlib
import copy
import threading
import time

import numpy as np
import pytest
from _bank_and_telecom import ALLOW, COLUMNS, make_folders

from skvfl import NoiseAsTargetsEncoder
from skvfl.exceptions import ConfigurationError, RefusedError
from skvfl.federation._settings import in_words, settings_of
from skvfl.remote import _counts
from skvfl.remote._config import METHODS, PartyConfig
from skvfl.remote._policy import OPERATIONS, Policy

ENCODER = {"name": "NoiseAsTargetsEncoder", "params": {"dict": {"n_components": 8}}}
SPLIT = {"bottom": [64], "cut_width": 32, "lr": 0.001}
ONCE = {"local_encoder": ENCODER, "representation_noise": 0.0, "lr": 0.001}
RUN = {"sampling_rate": 0.1, "steps": 100, "parties": {"tuple": ["telecom"]}}
GOOD = {
    "rap.party": {"projection": None},
    "splitnn.passive": SPLIT,
    "fedonce.guest": ONCE,
    "apc.passive": {
        "local_encoder": {
            "name": "AutoencoderTransformer",
            "params": {"dict": {"n_components": 16}},
        }
    },
    "vfedsec.passive": {"cut_width": 32, "masked": True, "bottom": [64]},
    "tabvfl.guest": {"n_d": 8, "n_a": 8, "n_steps": 3, "design": "local"},
    "boosting.passive": {"max_bins": 255, "min_samples_leaf": 20, "max_iter": 100},
}


@pytest.fixture
def make(tmp_path):
    """``make(**rules)`` gives the telecom's policy with other rules than usual."""
    path = make_folders(tmp_path)
    text = path.read_text()

    def policy(**rules):
        from _bank_and_telecom import in_toml

        allow = {"methods": [*METHODS], **rules}
        head = text.partition("[peers.bank.allow]\n")[0]
        body = in_toml({**ALLOW, "fits_per_day": 1000, **allow})
        path.write_text(f"{head}[peers.bank.allow]\n{body}")
        return Policy(PartyConfig.load(path))

    return policy


def ask(policy, role="splitnn.passive", peer="bank", columns=COLUMNS, n=20, **other):
    settings = {**copy.deepcopy(GOOD[role]), **other}
    policy.check_opening(peer, role.partition(".")[0], role, settings, columns, n)


@pytest.mark.parametrize("role", GOOD)
def test_what_is_on_the_list_may_be_had(make, role):
    ask(make(), role)


def scaler(**params):
    return in_words(_named("sklearn.preprocessing", "StandardScaler", **params))


def _named(module, name, **params):
    from importlib import import_module

    return getattr(import_module(module), name)(**params)


def _chain(*steps):
    named = [{"tuple": [str(i), step]} for i, step in enumerate(steps)]
    return {"name": "Pipeline", "params": {"dict": {"steps": named}}}


@pytest.mark.parametrize(
    ("role", "other", "why"),
    [
        ("splitnn.passive", {"peer": "shop"}, "'shop' may ask for nothing"),
        ("splitnn.passive", {"columns": ["secret"]}, r"columns \['secret'\] are not"),
        ("splitnn.passive", {"columns": ["customer"]}, r"columns \['customer'\]"),
        ("splitnn.passive", {"n": 19}, "19 rows .* 20 is the smallest"),
        ("splitnn.passive", {"cut_width": 33}, "cut_width=33 is wider .* 32"),
        ("splitnn.passive", {"cut_width": float("nan")}, "cut_width=nan is more"),
        ("splitnn.passive", {"bottom": [64, 10**9]}, "bottom=1000000000 is more"),
        ("splitnn.passive", {"bottom": [8] * 17}, "bottom has more than 16 layers"),
        (
            "splitnn.passive",
            {"bottom": {"name": "mine", "keywords": {"dict": {"bottom": 10**9}}}},
            "bottom=1000000000 is more",
        ),
        (
            "splitnn.passive",
            {"transformer": "passthrough"},
            "by .*passthrough",
        ),
        ("splitnn.passive", {"transformer": scaler()}, "prepared by .*StandardScaler"),
        ("splitnn.passive", {"transformer": {"own": "transformer"}}, "has no name"),
        ("splitnn.passive", {"transformer": None}, "has no name"),
        ("rap.party", {"transformer": "passthrough"}, "prepared by"),
        # A scaler in the projection's place would send the columns as they are.
        ("rap.party", {"projection": scaler()}, "StandardScaler.* does not leave"),
        (
            "fedonce.guest",
            {"local_encoder": scaler()},
            "StandardScaler.* does not leave",
        ),
        ("fedonce.guest", {"local_encoder": None}, "None.* does not leave"),
        ("fedonce.guest", {"local_encoder": "NoiseAsTargetsEncoder"}, "does not leave"),
        (
            "fedonce.guest",
            {"local_encoder": {"own": "local_encoder"}},
            "does not leave",
        ),
        (
            "fedonce.guest",
            {"local_encoder": _chain(ENCODER, scaler())},
            "does not leave",
        ),
        ("fedonce.guest", {"local_encoder": _chain(scaler())}, "does not leave"),
        ("apc.passive", {"local_encoder": scaler()}, "StandardScaler.* does not leave"),
        (
            "fedonce.guest",
            {"local_encoder": {**ENCODER, "params": {"dict": {"n_components": 64}}}},
            "n_components=64 is wider",
        ),
        (
            "fedonce.guest",
            {"local_encoder": {**ENCODER, "params": {"dict": {"max_epochs": 10**9}}}},
            "max_epochs=1000000000 is more than the allowed 1000",
        ),
        ("vfedsec.passive", {"masked": False}, "without masks is not allowed"),
        ("vfedsec.passive", {"masked": 1}, "without masks is not allowed"),
        ("tabvfl.guest", {"n_d": 64}, "n_d=64 is wider"),
        ("tabvfl.guest", {"n_steps": 10**6}, "n_steps=1000000 is more"),
        ("boosting.passive", {"max_iter": 10**6}, "max_iter=1000000 is more"),
    ],
)
def test_what_is_not_on_the_list_is_refused_in_words(make, role, other, why):
    policy = make()
    began = time.perf_counter()
    with pytest.raises(RefusedError, match=rf"party 'telecom': refused: .*{why}"):
        ask(policy, role, **other)
    assert time.perf_counter() - began < 0.1
    # A refusal counts for nothing.
    assert policy.terms("bank")["fits left today"] == 1000


@pytest.mark.parametrize("method", METHODS)
def test_methods_and_parts_that_are_not_on_the_list(make, method):
    others = [each for each in METHODS if each != method]
    policy = make(methods=others)
    role = next(role for role in GOOD if role.startswith(f"{method}."))
    with pytest.raises(RefusedError, match=rf"method '{method}' is not allowed"):
        ask(policy, role)
    operation = sorted(OPERATIONS[method])[0]
    with pytest.raises(RefusedError, match=rf"method '{method}' is not allowed"):
        policy.check_operation("bank", method, operation)
    for active in ("rap.owner", "fedonce.host", f"{method}.active", "no role"):
        for allowed in others:
            with pytest.raises(RefusedError, match="it plays no part"):
                policy.check_opening("bank", allowed, active, {}, COLUMNS, 20)


def test_settings_that_are_objects_are_looked_at_too(make):
    kind = settings_of("fedonce.guest")
    encoder = NoiseAsTargetsEncoder(n_components=64)
    settings = kind(local_encoder=encoder, representation_noise=0.0, lr=0.1)
    given = ("bank", "fedonce", "fedonce.guest")
    with pytest.raises(RefusedError, match="n_components=64 is wider"):
        make().check_opening(*given, settings, COLUMNS, 20)
    with pytest.raises(RefusedError, match="not in words"):
        make().check_opening(*given, [1], COLUMNS, 20)


def test_own_decisions_widen_the_list(make):
    policy = make(
        encoders=["PCA", "Pipeline", "StandardScaler"],
        transformers=["auto", "passthrough", "RobustScaler"],
        unmasked=True,
    )
    ask(policy, "fedonce.guest", local_encoder=_chain(scaler()))
    ask(policy, "rap.party", transformer="passthrough")
    robust = in_words(_named("sklearn.preprocessing", "RobustScaler"))
    ask(policy, "splitnn.passive", transformer=robust)
    ask(policy, "vfedsec.passive", masked=False)
    with pytest.raises(RefusedError, match="NoiseAsTargetsEncoder"):
        ask(policy, "fedonce.guest")


@pytest.mark.parametrize("method", METHODS)
def test_operations_are_those_that_a_partner_offers(make, method):
    """Every operation is allowed on purpose, and none that does not exist."""
    from skvfl.apc._parties import EncoderParty
    from skvfl.boosting._parties import TreeParty
    from skvfl.federation import TransformerParty
    from skvfl.fedonce._parties import GuestParty
    from skvfl.splitnn._parties import BottomParty
    from skvfl.tabvfl._parties import GuestParty as TabParty
    from skvfl.vfedsec._parties import SecureClient

    parties = [TransformerParty, BottomParty, GuestParty]
    parties += [EncoderParty, SecureClient, TabParty, TreeParty]
    kind = dict(zip(METHODS, parties, strict=True))[method]
    offered = {
        name
        for name in dir(kind)
        if getattr(getattr(kind, name), "__skvfl_operation__", False)
    }
    assert OPERATIONS[method] == offered
    policy = make()
    for operation in offered:
        policy.check_operation("bank", method, operation)
    for operation in ("open", "__init__", "holding", "train_epoch"):
        with pytest.raises(RefusedError, match="is not allowed in"):
            policy.check_operation("bank", method, operation)


def test_as_many_values_leave_as_bins_can_be_computed(make):
    policy = make(max_width=len(COLUMNS) - 1)
    with pytest.raises(RefusedError, match="from sums of boosting the bins of"):
        ask(policy, "boosting.passive")
    ask(policy, "boosting.passive", columns=COLUMNS[1:])


def test_sizes_that_come_with_an_operation_are_looked_at(make):
    policy = make()
    policy.check_operation("bank", "tabvfl", "prepare", {"seed": 0, "share": 8})
    for share in (10**9, float("inf"), float("nan")):
        with pytest.raises(RefusedError, match=f"share={share} is more than"):
            policy.check_operation("bank", "tabvfl", "prepare", {"share": share})


# Counts of a day


def test_counts_outlive_a_restart_and_end_with_the_day(make, monkeypatch):
    make(fits_per_day=2)
    for _ in range(2):
        ask(make(fits_per_day=2))
    with pytest.raises(RefusedError, match="1 fits are asked for and 0 of 2 a day"):
        ask(make(fits_per_day=2))
    policy = make(rows_per_day=100)
    policy.check_prediction("bank", 60)
    with pytest.raises(RefusedError, match=r"41 predicted rows .* and 40 of 100 a day"):
        policy.check_prediction("bank", 41)
    make(rows_per_day=100).check_prediction("bank", 40)
    assert policy.terms("bank")["predicted rows left today"] == 0
    monkeypatch.setattr(_counts, "_day", lambda: "2999-01-01")
    ask(make(fits_per_day=2))
    policy.check_prediction("bank", 100)


def test_alignments_are_counted(make):
    policy = make(alignments_per_day=2, max_ids=7)
    with pytest.raises(RefusedError, match="8 ids are more than the 7"):
        policy.check_alignment("bank", 8)
    masked = {"masked": np.zeros((7, 32), np.uint8)}
    for _ in range(2):
        # What is said of the ids before they are compared counts for nothing.
        policy.check_operation("bank", "ids", "describe_ids")
        policy.check_operation("bank", "ids", "mask_ids", masked)
    with pytest.raises(RefusedError, match="0 of 2 a day"):
        policy.check_operation("bank", "ids", "mask_ids", masked)


def test_many_at_once_get_no_more_than_is_allowed(make):
    policy, refused = make(rows_per_day=50), []

    def predict():
        try:
            policy.check_prediction("bank", 10)
        except RefusedError:
            refused.append(1)

    threads = [threading.Thread(target=predict) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(refused) == 3


def test_each_peer_has_counts_of_its_own(tmp_path):
    path = make_folders(tmp_path)
    text = path.read_text()
    second = text[text.index("[peers.bank]") :].replace("bank", "shop")
    (path.parent / "shop.pem").write_bytes((path.parent / "bank.pem").read_bytes())
    path.write_text(text + second)
    policy = Policy(PartyConfig.load(path))
    policy.check_prediction("bank", 100)
    policy.check_prediction("shop", 100)


# Width of what leaves, and noise


def test_answers_that_are_too_wide_do_not_leave(make):
    policy = make(max_width=3)
    for reply in (np.zeros((5, 3)), np.zeros(100), 7, None, [1, "a"], {"n": 1}):
        policy.check_reply("bank", "forward", reply)
    wide = np.zeros((5, 4))
    for reply in (wide, {"rows": wide}, [wide], np.zeros((5, 2, 2))):
        with pytest.raises(RefusedError, match="4 values for one row, and 3 is the"):
            policy.check_reply("bank", "forward", reply)
        policy.check_reply("bank", "update", reply)


def test_split_epochs_do_not_uncover_noise(make):
    quiet, plain = make(methods=["fedonce"], min_noise=0.1), make(methods=["fedonce"])
    opening = "bank", "fedonce", "fedonce.split", {}, COLUMNS, 20
    run = {"run": {**RUN, "noise_multiplier": 1.0}}
    for operation in ("join", "join_privately"):
        plain.check_operation("bank", "fedonce", operation, run)
        with pytest.raises(RefusedError, match="split epochs are not allowed beside"):
            quiet.check_operation("bank", "fedonce", operation, run)
    plain.check_opening(*opening)
    with pytest.raises(RefusedError, match="set n_split_epochs=0"):
        quiet.check_opening(*opening)


def test_noise_is_as_large_as_is_asked_for(make):
    policy = make(methods=["fedonce"], min_noise=0.1)
    ask(policy, "fedonce.guest", representation_noise=0.1)
    for noise in (0.0, 0.09, -1.0, float("nan"), None, "0.2", True):
        with pytest.raises(RefusedError, match="less than the smallest"):
            ask(policy, "fedonce.guest", representation_noise=noise)


def test_split_learning_has_as_much_noise_as_is_asked_for(make):
    policy = make(methods=["splitnn", "fedonce"], min_noise=0.1, max_norm=2.0)
    enough = {"representation_noise": 0.1, "max_representation_norm": 2}
    ask(policy, **enough)
    for noise in (0.0, 0.09, float("nan"), None, "0.2", True):
        with pytest.raises(RefusedError, match=r"less than the smallest.* 0.1"):
            ask(policy, **{**enough, "representation_noise": noise})
    for norm in (2.1, float("inf"), float("nan"), None, "1", False):
        with pytest.raises(RefusedError, match=r"norm=.* is more than .*allowed, 2"):
            ask(policy, **{**enough, "max_representation_norm": norm})
    # By itself the norm asks for no noise.
    ask(make(methods=["splitnn"], max_norm=2.0), max_representation_norm=1.0)


def test_a_model_with_less_noise_than_is_asked_for_now_is_not_served(make):
    fitted = {**SPLIT, "representation_noise": 0.1, "max_representation_norm": 1.0}
    for method in ("splitnn.passive", "fedonce.split", "rap.party"):
        make().check_model("bank", method, fitted)
    policy = make(methods=["splitnn", "fedonce"], min_noise=0.2, max_norm=1.0)
    with pytest.raises(RefusedError, match="less than the smallest"):
        policy.check_model("bank", "splitnn.passive", fitted)
    with pytest.raises(RefusedError, match="split epochs are not allowed"):
        policy.check_model("bank", "fedonce.split", {})
    policy.check_model("bank", "splitnn.passive", {**fitted, "representation_noise": 1})


@pytest.mark.parametrize(
    "guest",
    [
        {"name": "AutoencoderTransformer", "params": {"dict": {"n_components": 8}}},
        {**ENCODER, "params": {"dict": {"output_activation": "identity"}}},
    ],
)
def test_noise_is_not_drowned_by_large_numbers(make, guest):
    ask(make(methods=["fedonce"]), "fedonce.guest", local_encoder=guest)
    policy = make(methods=["fedonce"], min_noise=0.1)
    with pytest.raises(RefusedError, match="numbers of any size"):
        ask(policy, "fedonce.guest", representation_noise=0.1, local_encoder=guest)


@pytest.mark.parametrize("run", [{"steps": 10**12}, {"sampling_rate": 1e-9}])
def test_noisy_steps_take_no_more_time_than_is_allowed(make, run):
    policy = make(methods=["fedonce"], max_epochs=5)
    guest = {**ENCODER, "params": {"dict": {"max_epochs": 5}}}
    ask(policy, "fedonce.guest", local_encoder=guest, **budget(1e6, steps=50))
    many = {"steps": 10**4, **run}
    with pytest.raises(RefusedError, match="noisy steps are more than 5 epochs"):
        ask(policy, "fedonce.guest", local_encoder=guest, **budget(1e6, **many))


def budget(noise, **other):
    run = {**RUN, "noise_multiplier": noise, **other}
    return {"run": {"dict": run}, "max_grad_norm": 1.0}


def test_a_budget_is_kept(make):
    policy = make(methods=["fedonce"], max_epsilon=4.0)
    ask(policy, "fedonce.guest", **budget(2.0))
    blind = {"name": "RandomFeaturesEncoder", "params": {"dict": {}}}
    ask(policy, "fedonce.guest", local_encoder=blind)
    drawn = {**ENCODER, "params": {"dict": {"max_epochs": 0}}}
    ask(policy, "fedonce.guest", local_encoder=drawn)
    # An optimiser's keyword is no parameter of the encoder.
    hidden = {"name": "Adam", "keywords": {"dict": {"max_epochs": 0}}}
    hidden = {**ENCODER, "params": {"dict": {"optimizer": hidden}}}
    for other, why in (
        ({}, "without a budget is not allowed: set epsilon to 4 or less"),
        ({"local_encoder": hidden}, "without a budget"),
        (budget(0.5), "epsilon=.* is more than the allowed 4"),
        (budget(2.0, steps=10**6), "epsilon=.* is more"),
        (budget(2.0, sampling_rate=2), "no sampled Gaussian"),
        (budget("2"), "no sampled Gaussian"),
        ({**budget(2.0), "run": 7}, "no sampled Gaussian"),
        ({**budget(2.0), "max_grad_norm": None}, "without a budget"),
    ):
        with pytest.raises(RefusedError, match=why):
            ask(policy, "fedonce.guest", **other)


def test_split_epochs_are_added_to_what_the_fit_spent(make):
    policy = make(methods=["fedonce"], max_epsilon=4.0)
    with pytest.raises(RefusedError, match="without noise are not allowed"):
        policy.check_operation("bank", "fedonce", "join", {"seed": 0})
    plan = {"run": {**RUN, "noise_multiplier": 3.0, "parties": ["bank", "telecom"]}}
    # By itself it is within the budget.
    policy.check_operation("bank", "fedonce", "join_privately", plan)
    ask(policy, "fedonce.guest", **budget(1.6))
    # And after a restart it is known that it does not come by itself.
    policy = make(methods=["fedonce"], max_epsilon=4.0)
    with pytest.raises(RefusedError, match="is more than the allowed 4"):
        policy.check_operation("bank", "fedonce", "join_privately", plan)
    with pytest.raises(RefusedError, match="no sampled Gaussian"):
        policy.check_operation("bank", "fedonce", "join_privately", {})
    policy.check_operation("bank", "fedonce", "encode")


def test_fits_add_up_to_a_total_that_outlives_the_day(make, monkeypatch):
    policy = make(methods=["fedonce"], max_epsilon=4.0, total_epsilon=4.0)
    day = iter(range(1000))
    monkeypatch.setattr(_counts, "_day", lambda: f"day {next(day)}")
    n_fits = 0
    with contextlib.suppress(RefusedError):
        while n_fits < 20:
            ask(policy, "fedonce.guest", **budget(2.0))
            n_fits += 1
    # Several fits spend more than one, and less than the sum of each alone.
    assert 2 <= n_fits < 20
    with pytest.raises(RefusedError, match="all fits so far, and 4 is allowed"):
        ask(policy, "fedonce.guest", **budget(2.0))
    with pytest.raises(RefusedError, match="all fits so far"):
        policy.check_operation(
            "bank",
            "fedonce",
            "join_privately",
            {"run": {**RUN, "noise_multiplier": 3.0, "parties": ["bank", "telecom"]}},
        )
    # Without a total nothing adds up, and what was spent is known when it is set again.
    other = make(methods=["fedonce"], max_epsilon=4.0)
    ask(other, "fedonce.guest", **budget(2.0))
    other = make(methods=["fedonce"], max_epsilon=4.0, total_epsilon=4.0)
    with pytest.raises(RefusedError, match="all fits so far"):
        ask(other, "fedonce.guest", **budget(2.0))


def test_what_a_total_refuses_counts_as_no_fit(make):
    policy = make(methods=["fedonce"], max_epsilon=4.0, total_epsilon=0.1)
    left = policy.terms("bank")["fits left today"]
    with pytest.raises(RefusedError, match="all fits so far"):
        ask(policy, "fedonce.guest", **budget(2.0))
    assert policy.terms("bank")["fits left today"] == left


def test_a_total_needs_a_budget_of_a_fit(make):
    with pytest.raises(ConfigurationError, match="total_epsilon needs max_epsilon"):
        make(methods=["fedonce"], total_epsilon=5.0)
