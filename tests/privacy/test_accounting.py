"""What is spent: the paper's figure, other accountants, mathematics, and budgets."""

import json
import math
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant
from opacus.accountants.analysis import rdp as opacus_rdp
from scipy.optimize import brentq
from scipy.stats import norm

from skvfl.exceptions import PrivacyBudgetError
from skvfl.privacy import (
    PrivacySpent,
    SampledGaussian,
    account_privacy,
    calibrate_noise,
)

# The setting of the FedOnce paper's figure 10.
N_ROWS, BATCH, EPOCHS, DELTA = 60_000, 128, 50, 1e-5
RATE, STEPS = BATCH / N_ROWS, EPOCHS * N_ROWS // BATCH
ORDERS = [1.25, 1.5, 1.75, 2, 2.25, 2.5, 3, 3.5, 4, 4.5, *range(5, 64), 128, 256, 512]

rates = st.floats(1e-4, 1)
step_counts = st.integers(1, 2000)


def separate(n_parties, **changes):
    plan = {"sampling_rate": RATE, "steps": STEPS, **changes}
    return [SampledGaussian(parties=(f"party{i}",), **plan) for i in range(n_parties)]


def together(n_parties, **changes):
    names = tuple(f"party{i}" for i in range(n_parties))
    plan = {"sampling_rate": RATE, "steps": STEPS, **changes}
    return [SampledGaussian(parties=names, **plan)]


@pytest.mark.parametrize(
    ("n_parties", "rdp", "pld", "naive"),
    [
        (1, 1.880, 1.719, 1.880),
        (2, 2.734, 2.513, 3.907),
        (4, 4.014, 3.703, 8.105),
        (10, 6.776, 6.282, 21.21),
        (100, 28.40, 26.73, 235.4),
    ],
)
def test_figure_10(n_parties, rdp, pld, naive):
    runs = separate(n_parties)
    assert account_privacy(runs, DELTA).epsilon == pytest.approx(rdp, rel=5e-4)
    spent = account_privacy(runs, DELTA, division="naive")
    assert spent.epsilon == pytest.approx(naive, rel=5e-4)
    merged = separate(1, steps=n_parties * STEPS)
    spent = account_privacy(merged, DELTA, accountant="pld")
    assert spent.epsilon == pytest.approx(pld, rel=5e-4)


def test_papers_88_9_percent_comes_from_its_conversion():
    def classic(n_parties, delta):
        losses = n_parties * opacus_rdp.compute_rdp(
            q=RATE, noise_multiplier=1, steps=STEPS + 1, orders=ORDERS
        )
        return np.min(losses - math.log(delta) / (np.array(ORDERS) - 1))

    simple, moments = 100 * classic(1, DELTA / 100), classic(100, DELTA)
    assert simple == pytest.approx(268.9, abs=0.05)
    assert moments == pytest.approx(29.84, abs=0.005)
    assert 1 - moments / simple == pytest.approx(0.889, abs=5e-4)
    runs = separate(100)
    simple = account_privacy(runs, DELTA, division="naive").epsilon
    moments = account_privacy(runs, DELTA).epsilon
    assert 1 - moments / simple == pytest.approx(0.879, abs=5e-4)


@pytest.mark.parametrize(
    ("n_parties", "shared", "separately"),
    [(2, 4.36, 2.73), (4, 15.4, 4.01), (10, 110, 6.78)],
)
def test_parties_on_the_same_rows_spend_more(n_parties, shared, separately):
    spent = account_privacy(together(n_parties), DELTA)
    assert spent.epsilon == pytest.approx(shared, rel=5e-3)
    apart = account_privacy(separate(n_parties), DELTA)
    assert apart.epsilon == pytest.approx(separately, rel=5e-3)
    assert spent.parties == apart.parties
    # With an integer for the noise, the library would silently count one Gaussian.
    gaussians = ComposedDpEvent([GaussianDpEvent(1.0)] * n_parties)
    step = PoissonSampledDpEvent(RATE, gaussians)
    event = SelfComposedDpEvent(step, STEPS)
    expected = RdpAccountant().compose(event).get_epsilon(DELTA)
    assert spent.epsilon == pytest.approx(expected, rel=1e-9)


def test_epsilons_of_parties_on_the_same_rows_do_not_add_up():
    added = account_privacy(separate(4), DELTA, division="naive").epsilon
    tight = account_privacy(together(4), DELTA, accountant="pld").epsilon
    assert tight > 1.6 * added
    with pytest.raises(ValueError, match=r"\['party0', 'party1'\] add noise on the"):
        account_privacy(together(2), DELTA, division="naive")
    with pytest.raises(ValueError, match=r"\['party0', 'party1'\] add noise on the"):
        calibrate_noise(together(2), 1, DELTA, division="naive")


def test_an_integer_of_noise_is_a_number_of_noise():
    runs = [replace(run, noise_multiplier=1) for run in together(4)]
    assert account_privacy(runs, DELTA) == account_privacy(together(4), DELTA)


@given(st.integers(1, 9), st.floats(0.5, 20), st.integers(1, 50))
@settings(deadline=None, max_examples=20)
def test_with_all_rows_in_every_step_it_does_not_matter_who_draws(k, noise, steps):
    changes = {"sampling_rate": 1.0, "noise_multiplier": noise, "steps": steps}
    shared = account_privacy(together(k, **changes), DELTA)
    apart = account_privacy(separate(k, **changes), DELTA)
    assert shared.epsilon == pytest.approx(apart.epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("rate", "steps", "noise", "n_parties"),
    [
        (0.001, 5000, 0.7, 1),
        (0.01, 1000, 1.1, 4),
        (0.05, 300, 2.0, 10),
        (1, 10, 9.0, 2),
    ],
)
def test_rdp_agrees_with_opacus(rate, steps, noise, n_parties):
    runs = separate(n_parties, sampling_rate=rate, steps=steps, noise_multiplier=noise)
    orders = RdpAccountant()._orders
    losses = n_parties * opacus_rdp.compute_rdp(
        q=rate, noise_multiplier=noise, steps=steps, orders=orders
    )
    expected, _ = opacus_rdp.get_privacy_spent(orders=orders, rdp=losses, delta=DELTA)
    assert account_privacy(runs, DELTA).epsilon == pytest.approx(expected, rel=1e-6)


def test_different_runs_agree_with_opacus():
    guests = separate(3, sampling_rate=0.01, steps=400, noise_multiplier=1.1)
    host = SampledGaussian(0.05, 90, ("host",), noise_multiplier=1.7)
    orders = RdpAccountant()._orders
    losses = 3 * opacus_rdp.compute_rdp(
        q=0.01, noise_multiplier=1.1, steps=400, orders=orders
    ) + opacus_rdp.compute_rdp(q=0.05, noise_multiplier=1.7, steps=90, orders=orders)
    expected, _ = opacus_rdp.get_privacy_spent(orders=orders, rdp=losses, delta=DELTA)
    spent = account_privacy([*guests, host], DELTA)
    assert spent.epsilon == pytest.approx(expected, rel=1e-6)
    assert [*spent.parties] == ["party0", "party1", "party2", "host"]
    tight = PRVAccountant()
    tight.history = [(1.1, 0.01, 3 * 400), (1.7, 0.05, 90)]
    expected = tight.get_epsilon(DELTA)
    spent = account_privacy([*guests, host], DELTA, accountant="pld")
    assert spent.epsilon == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (4.0, 9), (3.0, 25)])
def test_tight_accountant_is_exact_for_the_gaussian_mechanism(noise, steps):
    shift = math.sqrt(steps) / noise

    def excess(epsilon):
        above = norm.cdf(shift / 2 - epsilon / shift)
        below = math.exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift)
        return above - below - DELTA

    exact = brentq(excess, 1e-6, 50)
    runs = separate(1, sampling_rate=1.0, steps=steps, noise_multiplier=noise)
    spent = account_privacy(runs, DELTA, accountant="pld").epsilon
    assert spent == pytest.approx(exact, rel=1e-3)
    assert exact <= account_privacy(runs, DELTA).epsilon < 1.2 * exact


@pytest.mark.slow
@given(
    st.floats(0.05, 20),
    st.sampled_from([1e-8, 1e-5, 1e-3]),
    st.lists(st.tuples(rates, step_counts, st.floats(0.5, 2)), min_size=1, max_size=3),
    st.sampled_from(["moments", "naive"]),
)
@settings(deadline=None, max_examples=10)
def test_budgets_are_spent_and_never_exceeded(epsilon, delta, plans, division):
    runs = [
        SampledGaussian(rate, steps, (f"party{i}",), noise_multiplier=ratio)
        for i, (rate, steps, ratio) in enumerate(plans)
    ]
    try:
        noisy = calibrate_noise(runs, epsilon, delta, division=division)
    except PrivacyBudgetError:
        # What a run spends jumps where delta alone covers its few steps, so that no
        # amount of noise spends between half and all of a small budget.
        spent = [
            account_privacy(
                [replace(run, noise_multiplier=noise) for run in runs],
                delta,
                division=division,
            ).epsilon
            for noise in np.geomspace(1e-3, 1e3, 61)
        ]
        assert not any(0.5 * epsilon <= each <= epsilon for each in spent)
        return
    spent = account_privacy(noisy, delta, division=division)
    assert 0.5 * epsilon <= spent.epsilon <= epsilon
    if division == "moments":
        factors = [
            a.noise_multiplier / b.noise_multiplier
            for a, b in zip(noisy, runs, strict=True)
        ]
        np.testing.assert_allclose(factors, factors[0], rtol=1e-12)
    for before, after in zip(runs, noisy, strict=True):
        assert (before.sampling_rate, before.steps, before.parties) == (
            after.sampling_rate,
            after.steps,
            after.parties,
        )


@pytest.mark.slow
def test_tight_calibration_needs_less_noise():
    epsilon = 1.5
    runs = [*separate(2, steps=500), SampledGaussian(0.02, 100, ("host",))]
    tight = calibrate_noise(runs, epsilon, DELTA, accountant="pld")
    spent = account_privacy(tight, DELTA, accountant="pld").epsilon
    assert 0.99 * epsilon <= spent <= epsilon
    loose = calibrate_noise(runs, epsilon, DELTA)
    assert tight[0].noise_multiplier < loose[0].noise_multiplier
    assert 0.99 * epsilon <= account_privacy(loose, DELTA).epsilon <= epsilon


def test_moments_division_needs_less_noise_than_naive_division():
    runs = [*separate(3, steps=500), SampledGaussian(0.02, 100, ("host",))]
    moments = calibrate_noise(runs, 4, DELTA)
    naive = calibrate_noise(runs, 4, DELTA, division="naive")
    spent = account_privacy(naive, DELTA, division="naive")
    assert all(0.99 <= share <= 1 for share in spent.parties.values())
    ratios = [
        b.noise_multiplier / a.noise_multiplier
        for a, b in zip(moments, naive, strict=True)
    ]
    assert ratios[:3] == [ratios[0]] * 3
    assert min(ratios) > 1.05


def test_a_party_of_several_runs_is_one_party():
    own = SampledGaussian(0.01, 400, ("bank",), noise_multiplier=1.3)
    shared = SampledGaussian(0.02, 300, ("bank", "shop"), noise_multiplier=1.5)
    spent = account_privacy([own, shared], DELTA)
    alone = replace(shared, parties=("bank",))
    bank = account_privacy([own, alone], DELTA).epsilon
    shop = account_privacy([alone], DELTA).epsilon
    assert spent.parties == {"bank": bank, "shop": shop}
    assert spent.epsilon > bank > shop
    naive = account_privacy([own, alone], DELTA, division="naive")
    assert naive.epsilon == bank


def test_steps_without_noise_have_no_privacy_and_no_steps_spend_nothing():
    run = SampledGaussian(0.01, 100, ("bank",), noise_multiplier=0.0)
    assert account_privacy([run], DELTA).epsilon == math.inf
    assert account_privacy([replace(run, steps=0)], DELTA).epsilon == 0
    for idle in (run, replace(run, steps=0, noise_multiplier=1.0)):
        with pytest.raises(PrivacyBudgetError, match="no noisy step"):
            calibrate_noise([idle], 1, DELTA)


@pytest.mark.parametrize("division", ["moments", "naive"])
def test_noiseless_runs_cannot_be_calibrated_beside_others(division):
    runs = [*separate(1), SampledGaussian(0.01, 9, ("host",), noise_multiplier=0.0)]
    with pytest.raises(PrivacyBudgetError):
        calibrate_noise(runs, 1, DELTA, division=division)


def test_unreachable_budgets_say_what_to_do():
    runs = separate(1, steps=10)
    rare = separate(1, steps=1, sampling_rate=1e-4)
    for args in (
        (runs, 1e-9, 1e-12, "rdp"),
        (runs, 0.002, DELTA, "rdp"),
        (rare, 0.5, 1e-3, "pld"),
    ):
        *args, accountant = args
        with pytest.raises(PrivacyBudgetError, match="choose another epsilon or delta"):
            calibrate_noise(*args, accountant=accountant)


def test_report():
    runs = [*separate(2, steps=90), SampledGaussian(0.02, 70, ("host",))]
    spent = account_privacy(runs, DELTA, not_covered=["The scaler of 'host'."])
    assert isinstance(spent, PrivacySpent)
    assert pickle.loads(pickle.dumps(spent)) == spent
    plain = spent.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["epsilon"] == float(spent) == spent.epsilon
    assert plain["runs"][2]["parties"] == ["host"]
    text = repr(spent)
    for part in (
        f"epsilon = {spent.epsilon:.4g} at delta = 1e-05",
        f"'host' alone: {spent.parties['host']:.4g}",
        "add or remove one row",
        "Rényi",
        "DP-SGD",
        "not covered: The scaler of 'host'.",
    ):
        assert part in text
    frame = spent.to_frame()
    assert frame.index.tolist() == ["party0", "party1", "host"]
    assert frame["epsilon"].to_dict() == spent.parties
    assert frame["steps"].tolist() == [90, 90, 70]
    assert (frame["delta"] == DELTA).all()
    naive = account_privacy(runs, DELTA, division="naive")
    np.testing.assert_allclose(naive.to_frame()["delta"], DELTA / 3)
    assert "equal share" in repr(naive)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"steps": -1}, "steps"),
        ({"parties": ()}, "parties"),
        ({"parties": "bank"}, "parties"),
        ({"parties": ("bank", "bank")}, "named twice"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
    ],
)
def test_runs_are_checked(wrong, message):
    right = {"sampling_rate": 0.1, "steps": 1, "parties": ("bank",)}
    with pytest.raises(ValueError, match=message):
        SampledGaussian(**right | wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delta": 0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"accountant": "prv"}, "accountant"),
        ({"division": "equal"}, "division"),
        ({"runs": []}, "no run"),
    ],
)
def test_arguments_are_checked(arguments, message):
    arguments = {"runs": separate(1), "delta": DELTA} | arguments
    with pytest.raises(ValueError, match=message):
        account_privacy(**arguments)
    with pytest.raises(ValueError, match=message):
        calibrate_noise(epsilon=1, **arguments)


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan])
def test_budget_is_checked(epsilon):
    with pytest.raises(ValueError, match="epsilon must be positive"):
        calibrate_noise(separate(1), epsilon, DELTA)


def test_without_the_library_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'skvfl\[dp\]'"):
        account_privacy(separate(1), delta=0.0123)
