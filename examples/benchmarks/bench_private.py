"""What a differentially private step costs, what it keeps, what an assignment breaks.

Prints one JSON object per line. Speed: the sides of a ratio are measured in turns in
this process, in CPU seconds with one thread, after a warm-up; the figure is the median
of the ratios of the repetitions. Audit: a row planted for the purpose, many trainings
with and without it, and the lower bound on ε that the best threshold between the two
gives with 99 % confidence; it must be below the ε claimed, and with a third of the
noise it is above. Sensitivity: the sum of clipped gradients of a batch with one row
replaced, in units of the clipping norm; it moves by at most 2 where every row's target
is its own. A full run also records the lines in ``docs/benchmarks/private.jsonl``.

    python bench_private.py [--quick]
"""

import math
import warnings
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np
import torch
from _measure import interleave, machine, ratio
from _record import command, run
from _torch import perceptron
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy.optimize import linear_sum_assignment
from scipy.stats import beta
from torch import nn
from torch.nn.functional import cross_entropy

from skvfl.nn._explicit import CrossEntropy
from skvfl.nn._private import PrivateSGD, PrivateSteps, train_privately
from skvfl.privacy import SampledGaussian, calibrate_noise

N_ROWS, BATCH, LR, NORM, NOISE = 16_000, 256, 0.1, 1.0, 1.0
N_CLASSES = 3


def convolution():
    """Return a small network for tiles of 14 × 14."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 14, 14)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 9, N_CLASSES),
    )


# Network, its columns, and the bars of private ÷ plain and private ÷ opacus.
NETWORKS = {
    "30-64-32-3": (partial(perceptron, [30, 64, 32, N_CLASSES]), 30, 1.0, 0.25),
    "convolution 14 × 14": (convolution, 196, None, None),
}


def plain_step(network, X, y):
    """Return a step as a user's loop in torch takes it."""
    optimizer = torch.optim.SGD(network.parameters(), lr=LR)

    def step():
        rows = torch.randint(N_ROWS, (BATCH,))
        optimizer.zero_grad()
        cross_entropy(network(X[rows]), y[rows]).backward()
        optimizer.step()

    return step


def opacus_step(network, X, y):
    """Return a step with hooks that keep the gradients of single rows."""
    network = GradSampleModule(network)
    optimizer = DPOptimizer(
        torch.optim.SGD(network.parameters(), lr=LR),
        noise_multiplier=NOISE,
        max_grad_norm=NORM,
        expected_batch_size=BATCH,
    )

    def step():
        rows = torch.randint(N_ROWS, (BATCH,))
        optimizer.zero_grad()
        cross_entropy(network(X[rows]), y[rows]).backward()
        optimizer.step()

    return step


def private_step(network, X, y):
    """Return our step: sampled rows, clipped gradients, noise."""
    run = SampledGaussian(BATCH / N_ROWS, 10**9, ("bank",), noise_multiplier=NOISE)
    steps = PrivateSteps(run, N_ROWS, np.random.SeedSequence())
    options = {"max_grad_norm": NORM, "lr": LR}
    sgd = PrivateSGD(network, CrossEntropy(), steps, [X.shape[1:]], **options)

    def step():
        rows = steps.draw()
        sgd.step([X.index_select(0, rows)], [y.index_select(0, rows)])

    return step


SIDES = {"private": private_step, "plain": plain_step, "opacus": opacus_step}


def speed(repetitions, n_steps):
    """Ratios of CPU seconds per step."""
    for name, (build, n_columns, *bars) in NETWORKS.items():
        X, y = torch.randn(N_ROWS, n_columns), torch.randint(N_CLASSES, (N_ROWS,))
        steps = {side: make(build(), X, y) for side, make in SIDES.items()}
        calls = dict.fromkeys(steps, n_steps)
        seconds = interleave(repetitions, steps, calls, collect=False)
        for against, bar in zip(("plain", "opacus"), bars, strict=True):
            yield {
                "what": "speed",
                "network": name,
                "against": against,
                **ratio(seconds["private"], seconds[against]),
                "bar": bar,
                "private_us": round(1e6 * median(seconds["private"]), 1),
                "other_us": round(1e6 * median(seconds[against]), 1),
                "repetitions": repetitions,
                "steps": n_steps,
            }


def assign(outputs, targets):
    """Return the targets in the order that fits the outputs best."""
    with torch.inference_mode():
        _, places = linear_sum_assignment(-(outputs @ targets.T).numpy())
    return targets[places]


def clipped_sum(network, X, targets):
    """Return the sum of the gradients of all rows, each clipped to norm 1."""
    before = nn.utils.parameters_to_vector(network.parameters()).detach()
    run = SampledGaussian(1.0, 1, ("bank",), noise_multiplier=0.0)
    steps = PrivateSteps(run, len(X), np.random.SeedSequence())
    options = {"max_grad_norm": 1e-3, "lr": 1.0}
    sgd = PrivateSGD(network, distance, steps, [X.shape[1:]], **options)
    steps.draw()
    sgd.step([X], [targets])
    after = nn.utils.parameters_to_vector(network.parameters()).detach()
    nn.utils.vector_to_parameters(before, network.parameters())
    return (before - after) * len(X) / 1e-3


def distance(outputs, targets):
    """Return the loss of noise as targets."""
    return (outputs - targets).square().sum(dim=1) / 2


def sensitivity(n_trials, n_rows=100, n_components=3):
    """How one replaced row moves the others' targets, and the clipped sum."""
    network = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, n_components))
    changed, moved, own = [], [], []
    for _ in range(n_trials):
        X = torch.randn(n_rows, 10)
        other = X.clone()
        other[0] = 3 * torch.randn(10)
        sphere = nn.functional.normalize(torch.randn(n_rows, n_components))
        pair = [assign(network(rows), sphere) for rows in (X, other)]
        changed.append(int((pair[0] != pair[1]).any(dim=1)[1:].sum()))
        first = clipped_sum(network, X, pair[0])
        for distances, targets in ((moved, pair[1]), (own, pair[0])):
            second = clipped_sum(network, other, targets)
            distances.append(float((first - second).norm()))
    yield {
        "what": "sensitivity",
        "rows": n_rows,
        "components": n_components,
        "trials": n_trials,
        "targets_of_others_changed": middle(changed),
        "sum_moved_with_assignment": middle(moved),
        "sum_moved_with_own_targets": middle(own),
        "bound": 2,
    }


def middle(values):
    """The median of the trials, and the largest."""
    return {"median": round(median(values), 2), "largest": round(max(values), 2)}


def lower_bound(present, absent, delta):
    """Largest ε that a threshold refutes: two intervals of 99 % confidence."""
    best = 0.0
    for threshold in np.quantile(np.r_[present, absent], np.linspace(0.01, 0.99, 60)):
        for hits, alarms in (
            (present > threshold, absent > threshold),
            (absent <= threshold, present <= threshold),
        ):
            n, hits, alarms = len(hits), hits.sum(), alarms.sum()
            if not hits or alarms == n:
                continue
            seen = beta.ppf(0.005, hits, n - hits + 1)
            false = beta.ppf(0.995, alarms + 1, n - alarms)
            if seen > delta:
                best = max(best, math.log((seen - delta) / false))
    return best


def audit(n_trainings, epsilon=1.0, delta=1e-2):
    """Claimed ε and the lower bound of an attack, as it is and with less noise."""
    plan = [SampledGaussian(0.3, 4, ("bank",))]
    (run,) = calibrate_noise(plan, epsilon, delta, accountant="pld")
    others = np.zeros((9, 3), np.float32)
    planted = np.array([[1, 0, 0]], np.float32)

    def weight(present, share):
        module = nn.Linear(3, 1, bias=False)
        nn.init.zeros_(module.weight)
        train_privately(
            module,
            np.r_[others, planted * present],
            np.r_[np.zeros(9), 1e4 * present].astype(np.float32),
            loss=lambda outputs, targets: (outputs[:, 0] - targets).square(),
            steps=PrivateSteps(
                replace(run, noise_multiplier=share * run.noise_multiplier),
                10,
                np.random.SeedSequence(),
            ),
            max_grad_norm=1.0,
            lr=0.1,
        )
        return module.weight[0, 0].item()

    for what, share in (("as it is", 1.0), ("a third of the noise", 1 / 3)):
        present, absent = (
            np.array([weight(there, share) for _ in range(n_trainings)])
            for there in (1, 0)
        )
        yield {
            "what": "audit",
            "noise": what,
            "claimed": epsilon,
            "lower_bound": round(lower_bound(present, absent, delta), 3),
            "trainings": 2 * n_trainings,
        }


def measure(quick):
    """Run every measurement; yield its lines."""
    # opacus' hooks say so in every step when the inputs need no gradient.
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    torch.manual_seed(0)
    yield {"what": "machine", **machine(quick, "torch", "opacus")}
    yield from speed(*((5, 50) if quick else (7, 100)))
    yield from audit(300 if quick else 2500)
    yield from sensitivity(20 if quick else 300)


if __name__ == "__main__":
    run(command(__doc__, page=False).parse_args(), "private", measure)
