"""What each role of each method can work out, and whether the papers are right.

Prints one JSON object per line: what each role received, how every attack did that
suits it, what is guaranteed, what a report costs, and what defences cost and bring. A
full run also records the lines in ``docs/benchmarks/privacy.jsonl``, and may be stopped
and started again; then it writes the pages "What the others can learn". Needs adult and
bank marketing in the folder that the environment variable SKVFL_DATA names.

    python bench_privacy.py [--quick | --write-docs]

Every seed is a fit with other secrets, whose attackers know other rows. An interval is
over the seeds.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from _measure import machine, timed
from _privacy_page import write_pages
from _record import command, resume
from _seeds import half_interval
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedShuffleSplit, cross_validate
from sklearn.preprocessing import KBinsDiscretizer

from skvfl import (
    FedOnceClassifier,
    GaussianProjection,
    RandomProjectionVFL,
    SplitNNClassifier,
    TabVFLClassifier,
    VFedSecClassifier,
    VFLBoostingClassifier,
)
from skvfl._methods import method_of
from skvfl.datasets import load
from skvfl.evaluation import all_methods
from skvfl.exceptions import ColumnWarning
from skvfl.privacy import make_leakage_scorer, privacy_report
from skvfl.privacy._suite import AS_SENT, LabelsSent
from skvfl.privacy.attacks import (
    AliasAttack,
    BinSumsAttack,
    GradientDirectionAttack,
    GradientSignAttack,
    InversionAttack,
    MomentsAttack,
    RankAttack,
)

ROWS = 1_000
COST_ROWS = 5_000
DATA = ("adult", "bank_marketing", "breast_cancer")
SEEDS = 3
SHORT = {"max_epochs": 10}


def settings(data):
    """Estimators by what is special about them: all methods, and what changes views."""
    methods = all_methods()
    if data == "breast_cancer":
        # Clients of a cluster prepare their own rows alike where all columns are
        # numbers. Without masks the gradient of so few rows in a batch gives them away.
        methods["vFedSec, clusters"] = VFedSecClassifier(
            clients={"worst": 2}, bottom=(), batch_size=16, cut_width=64, max_epochs=3
        )
    tabvfl = methods.pop("TabVFL").set_params(max_epochs=10)
    split = FedOnceClassifier(max_epochs=10, n_split_epochs=5)
    return {
        **methods,
        "RAP, gaussian": RandomProjectionVFL(
            methods["RAP"].estimator, projection=GaussianProjection(kind="gaussian")
        ),
        "FedOnce, split epochs": split,
        "FedOnce, ε = 4": FedOnceClassifier(epsilon=4.0, max_epochs=10),
        "TabVFL": tabvfl,
        "TabVFL, pretraining": TabVFLClassifier(pretraining_epochs=5, max_epochs=5),
    }


class Defence(NamedTuple):
    """Something that is meant to make an attack harder.

    Attributes
    ----------
    name : str
        In words.
    values : tuple
        From none to much of it.
    make : callable
        ``make(value)`` is the estimator.
    attack : Attack or callable
        What it defends against; ``attack(value)`` where that depends on the value.
    role : {"centre", "passive", "server"}
        Who attacks.
    data : str, default="adult"
        What it is measured on.
    """

    name: str
    values: tuple
    make: Callable
    attack: Any
    role: str
    data: str = "adult"


def blurred(noise):
    """Split learning with shortened and blurred activations."""
    norm = None if noise is None else 1.0
    noise = noise or 0.0
    return SplitNNClassifier(
        representation_noise=noise, max_representation_norm=norm, **SHORT
    )


def projected(kind):
    """RAP with a kind of matrix."""
    model = all_methods()["RAP"].estimator
    return RandomProjectionVFL(model, projection=GaussianProjection(kind=kind))


def aliased(protected):
    """RAP with aliases of the labels, or without."""
    model = all_methods()["RAP"].estimator
    return RandomProjectionVFL(model, label_protection=protected)


def binned(n_bins):
    """Trees in one round: every party sends its columns as ranks in so many bins."""
    bins = KBinsDiscretizer(
        n_bins, encode="ordinal", quantile_method="averaged_inverted_cdf"
    )
    return RandomProjectionVFL(
        HistGradientBoostingClassifier(max_iter=50, random_state=0), projection=bins
    )


INVERT = InversionAttack(known_rows=100)
DIRECTION = GradientDirectionAttack(known_rows=10)
NOISE = (0.0, 0.1, 0.5, 1.0, 1.5)
DEFENCES = (
    Defence(
        "kind of the matrix",
        ("orthogonal", "conditioned", "gaussian"),
        projected,
        MomentsAttack(moments=True),
        "server",
    ),
    Defence(
        "aliases of labels",
        (False, True),
        aliased,
        lambda protected: AliasAttack(known_rows=100) if protected else LabelsSent(),
        "server",
    ),
    Defence(
        "ranks in so many bins, without a matrix",
        (64, 16, 4),
        binned,
        RankAttack(marginals=True),
        "server",
        "breast_cancer",
    ),
    Defence(
        "bins of a column",
        (255, 32, 8),
        lambda n: VFLBoostingClassifier(max_bins=n, max_iter=50),
        BinSumsAttack(known_rows=100),
        "centre",
        "breast_cancer",
    ),
    Defence(
        "budget of labels",
        (None, 4.0, 1.0, 0.25),
        lambda epsilon: VFLBoostingClassifier(label_epsilon=epsilon, max_iter=50),
        GradientSignAttack(),
        "passive",
    ),
    Defence(
        "width of the cut layer",
        (1, 4, 16, 64),
        lambda width: SplitNNClassifier(cut_width=width, **SHORT),
        INVERT,
        "centre",
    ),
    Defence(
        "activations of length 1, with noise",
        (None, 0.0, 0.1, 0.3, 1.0),
        blurred,
        INVERT,
        "centre",
    ),
    Defence(
        "noise on gradients",
        (0.0, 0.5, 2.0, 8.0),
        lambda noise: SplitNNClassifier(gradient_noise=noise, **SHORT),
        DIRECTION,
        "passive",
    ),
    Defence(
        "noise on representations, the paper's",
        NOISE,
        lambda noise: FedOnceClassifier(representation_noise=noise, **SHORT),
        INVERT,
        "centre",
    ),
    Defence(
        "where attention is computed",
        ("joint", "local"),
        lambda design: TabVFLClassifier(design=design, pretrain=False, max_epochs=10),
        INVERT,
        "centre",
    ),
    Defence(
        "masks on activations",
        (False, True),
        lambda masked: VFedSecClassifier(masked=masked, **SHORT),
        INVERT,
        "server",
    ),
)


def table(name, seed, n_rows=ROWS):
    """Columns, labels and parties; other rows with every seed."""
    data = load(name)
    rows = np.random.default_rng(seed).permutation(len(data.data))[:n_rows]
    return data.data.iloc[rows], data.target.iloc[rows], data.parties


def report_lines(data, name, estimator, seeds):
    """Lines about one setting on one data set, over seeds."""
    found, received, guarantees = {}, {}, {}
    method = method_of(estimator).name
    for seed in range(seeds):
        X, y, parties = table(data, seed)
        estimator.set_params(parties=parties, random_state=seed)
        # Membership takes three fits of its own, and has an interval of its own.
        report = privacy_report(
            estimator, X, y, membership=seed == 0, n_repeats=2, random_state=seed
        )
        for role in report.roles:
            # What pages show of it: each method's own, once.
            if data == DATA[0]:
                guarantees[role.part] = role.guarantee
            if data == DATA[0] and name == method and seed == 0:
                for each in role.received:
                    received.setdefault((role.name, role.part, *each[:4]), each)
            for each in role.outcomes:
                key = role.name, role.part, each.attack, each.secret, each.knows
                found.setdefault(key, []).append(each)
    about = {"data": data, "method": method, "setting": name}
    for (role, part, attack, secret, knows), outcomes in found.items():
        scores = [each.score for each in outcomes if not each.why_not]
        half = outcomes[0].score - outcomes[0].low
        yield {
            "what": "attack",
            **about,
            **{"role": role, "part": part, "attack": attack},
            **{"secret": secret, "knows": knows},
            "score": round(float(np.mean(scores)), 4) if scores else None,
            "half": round(half_interval(scores) if len(scores) > 1 else half, 4),
            "seeds": len(scores),
            "why_not": outcomes[0].why_not,
        }
    for (role, part, when, sender, operation, content), each in received.items():
        yield {
            "what": "received",
            **about,
            **{"role": role, "part": part, "when": when, "sender": sender},
            **{"operation": operation, "content": content},
            **{"messages": each.messages, "bytes": each.bytes},
        }
    for part, sentence in guarantees.items():
        yield {"what": "guarantee", **about, "part": part, "guarantee": sentence}
    # The last line says that the setting is finished.
    yield {"what": "report", **about, "rows": len(X)}


def cost(name, estimator, n_rows):
    """CPU seconds of a report, the fits it makes included."""
    X, y, parties = table("adult", 0, n_rows)
    estimator.set_params(parties=parties, random_state=0)
    _, seconds = timed(privacy_report, estimator, X, y)
    return {
        "what": "cost",
        "data": "adult",
        "setting": name,
        "rows": len(X),
        "seconds": round(seconds, 1),
    }


def scored_defence(defence, data, value, seeds):
    """The line of one value of a defence: what the model is worth, and leakage."""
    X, y, parties = table(data, 0)
    passive = [name for name in parties if name != next(iter(parties))]
    victim = max(passive, key=lambda name: len(parties[name]))
    estimator = defence.make(value).set_params(parties=parties, random_state=0)
    role = {"centre": next(iter(parties)), "passive": victim}.get(
        defence.role, defence.role
    )
    attack = defence.attack(value) if callable(defence.attack) else defence.attack
    by = AS_SENT if isinstance(attack, LabelsSent) else type(attack).__name__
    scorer = make_leakage_scorer(attack, role=role, party=victim, n_repeats=2)
    found = cross_validate(
        estimator,
        X,
        y,
        scoring={"score": "accuracy", "leakage": scorer},
        cv=StratifiedShuffleSplit(seeds, test_size=0.5, random_state=0),
        error_score="raise",
    )
    return {
        "what": "defence",
        "data": data,
        "method": method_of(estimator).name,
        "defence": defence.name,
        "value": str(value),
        "attack": f"{by} by {defence.role}",
        "utility": round(float(np.mean(found["test_score"])), 4),
        "utility_half": round(half_interval(found["test_score"]), 4),
        "score": round(float(np.mean(found["test_leakage"])), 4),
        "half": round(half_interval(found["test_leakage"]), 4),
    }


def measure(quick, done):
    """Yield the lines of a run, but for what is recorded."""
    warnings.simplefilter("ignore", ColumnWarning)
    # A column of two values has no more than two bins.
    warnings.filterwarnings("ignore", "Bins whose width are too small")
    if ("machine", "", "") not in done:
        packages = ("scikit-learn", "torch", "numpy")
        yield {"what": "machine", "machine": machine(quick, *packages)}
    seeds = 2 if quick else SEEDS
    for data in DATA[-1:] if quick else DATA:
        for name, estimator in settings(data).items():
            if ("report", data, name) not in done:
                yield from report_lines(data, name, estimator, seeds)
    for name, estimator in all_methods().items():
        if ("cost", "adult", name) not in done and not quick:
            yield cost(name, estimator, COST_ROWS)
    for defence in DEFENCES:
        data = DATA[-1] if quick else defence.data
        for value in defence.values[:2] if quick else defence.values:
            if ("defence", data, f"{defence.name} {value}") not in done:
                yield scored_defence(defence, data, value, seeds)


def key(line):
    """What tells the lines of finished parts from others."""
    name = line.get("setting", "")
    if line["what"] == "defence":
        name = f"{line['defence']} {line['value']}"
    return line["what"], line.get("data", ""), name


if __name__ == "__main__":
    resume(command(__doc__).parse_args(), "privacy", measure, key, write_pages)
