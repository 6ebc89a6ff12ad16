"""The FedOnce paper's accuracy tables on the data at hand.

Prints one JSON object per line. A full run also appends the lines to
``docs/benchmarks/fedonce_papers.jsonl`` and measures only what that record lacks, so
that a run may be stopped and started again, and lines that a change has made wrong may
be deleted; it ends by writing the page of the benchmarks that shows the record. Needs
the data sets in the folder that the environment variable SKVFL_DATA names.

    python bench_fedonce_papers.py [--quick | --write-docs]
"""

import warnings
from collections import Counter
from functools import cache, partial
from itertools import product
from operator import itemgetter
from statistics import mean

import numpy as np
import torch
from _fedonce import (
    ACCOUNTED,
    BIASED_PLANS,
    BUDGET_PLANS,
    BUDGETS,
    COMBINE,
    COUNTS,
    CURVE_PLANS,
    DELTA,
    FEWEST,
    FIXED,
    ITERATIONS,
    KNOWN,
    L1,
    LINEAR,
    MORE_EPOCHS,
    NAIVE,
    NARROW,
    NETWORK_PLANS,
    NO_NOISE,
    NOISE_PLANS,
    NOISES,
    NORMS,
    ONCE,
    OURS,
    OURS_NO_NOISE,
    PARTIES,
    PLAIN,
    PLANS,
    PRIVATE_METHODS,
    RATES,
    RATES_WITHOUT_NOISE,
    ROUNDS,
    SAME_BYTES,
    SHARES,
    SIZES,
    SOLO,
    SPLIT,
    SPLIT_EPOCHS,
    TREES,
    UNTRAINED,
    WIDE_PLANS,
    WIDTH_PLANS,
    WIDTHS,
    WITH_PCA,
    WITH_TREES,
    alone,
    better,
    blocks_of,
    boosted,
    convolutional,
    encoder,
    fit_and_score,
    linear,
    load_table,
    n_classes,
    once,
    pca_guests,
    same_bytes,
    score_of,
    split,
    split_learning,
    split_network,
    trained_guests,
    who_holds,
    with_guests,
)
from _fedonce_page import write_page
from _measure import machine
from _record import command, read, resume, select
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import MinMaxScaler

from skvfl import Contiguous, ImageTiles, RandomFeaturesEncoder, VerticalPartitioner
from skvfl.exceptions import TrainingError
from skvfl.privacy import SampledGaussian, account_privacy, record_views
from skvfl.privacy.attacks import InversionAttack

RECORD = "fedonce_papers"


def federated(parts, plan, seed, parties, hosts, guests=None, **settings):
    """Measure FedOnce with these hosts; guests are trained here if none are given."""
    seconds = 0.0
    if guests is None:
        guests, seconds = trained_guests(parts, plan, seed, parties, **settings)
    runs = [with_guests(parts, plan, seed, parties, guests, host) for host in hosts]
    return runs, {"guest_seconds": round(seconds, 2), "guests": len(guests)}


def by_host(name, plan, seed):
    """Figure 5 and table 7: every method, with every party as the host."""
    table = load_table(name)
    parties = table.parties
    parts = split(table, seed, plan.rows)
    held = who_holds(parts, parties)
    hosts = list(held)[plan.hosts]
    about = parts, plan, seed, parties
    training = {ONCE: {}, UNTRAINED: {"max_epochs": 0}, FIXED: {"update_every": None}}
    for method, settings in training.items():
        yield method, {}, partial(federated, *about, hosts, **settings)
    yield WITH_PCA, {}, partial(federated, *about, hosts, pca_guests(plan, held))
    yield SOLO, {}, lambda: [alone(parts, plan, seed, held[host]) for host in hosts]
    yield COMBINE, {}, lambda: [alone(parts, plan, seed)]
    yield LINEAR, {}, lambda: [linear(parts)]
    yield SAME_BYTES, {}, lambda: [same_bytes(parts, plan, seed, parties)]
    yield SPLIT, {}, lambda: [split_learning(parts, plan, seed, parties)]
    if name in WITH_TREES:
        yield TREES, {}, lambda: [boosted(parts, parties)]


def private(method, parts, plan, seed, parties, host, epsilon, settings):
    """Measure one private method, or its twin without noise."""
    settings = dict(settings)
    if method in (L1, NAIVE, NO_NOISE):
        settings["local_encoder"] = encoder(
            plan,
            n_classes(parts),
            batch_size=128,
            lr=settings["lr"],
            optimizer=torch.optim.SGD if method == NO_NOISE else None,
        )
    if method in (NO_NOISE, OURS_NO_NOISE):
        del settings["max_grad_norm"]
        settings.setdefault("local_encoder", RandomFeaturesEncoder(8))
        settings["optimizer"] = torch.optim.SGD
    else:
        if method in (NARROW, OURS):
            n_features = 8 if method == NARROW else 32
            settings["local_encoder"] = RandomFeaturesEncoder(n_features)
        settings |= {
            "epsilon": epsilon,
            "delta": DELTA,
            "division": "naive" if method == NAIVE else "moments",
        }
    estimator = once(
        parts,
        plan,
        seed,
        parties=VerticalPartitioner(MinMaxScaler(), parties=parties),
        active=host,
        **settings,
    )
    run = fit_and_score(estimator, parts)
    if hasattr(estimator, "epsilon_spent_"):
        run["epsilon_spent"] = estimator.epsilon_spent_.epsilon
    return run


def grid(method):
    """Yield the settings that are searched."""
    noisy = method not in (NO_NOISE, OURS_NO_NOISE)
    for lr, norm, size in product(
        RATES if noisy else RATES_WITHOUT_NOISE, NORMS if noisy else [None], SIZES
    ):
        yield {"lr": lr, "max_grad_norm": norm, "batch_size": size}


def search(method, parts, plan, seed, parties, host):
    """Choose the settings of the best score on held-out training rows, at ε = 4."""
    inner = parts.validation()
    found = []
    for settings in grid(method):
        try:
            run = private(method, inner, plan, seed, parties, host, 4, settings)
        except TrainingError:
            continue
        found.append((better(run["score"], parts.classes), settings))
    return max(found, key=itemgetter(0))[1]


@cache
def chosen_settings(name, plan, method):
    """Search once for each data set and method, on the first split.

    A full run that goes on takes what was found from the record.
    """
    if plan == BUDGET_PLANS[name]:
        where = {"part": "privacy", "dataset": name, "method": method}
        for line in select(read(RECORD), **where):
            return line["settings"]
    parts = split(load_table(name), 0, plan.rows)
    return search(method, parts, plan, 0, four_parties(name), 0)


def four_parties(name):
    """Return the split of the paper's private experiments."""
    return ImageTiles((28, 28)) if name == "mnist" else Contiguous(4)


def with_budget(name, plan, seed):
    """Table 6: accuracy by ε. The host is another party in every split."""
    parts = split(load_table(name), seed, plan.rows)
    parties, host = four_parties(name), seed % 4

    def run(method, epsilon):
        settings = chosen_settings(name, plan, method)
        run = private(method, parts, plan, seed, parties, host, epsilon, settings)
        spent = {k: run[k] for k in ("epsilon_spent",) if k in run}
        return [run], {**spent, "settings": settings}

    for method in PRIVATE_METHODS:
        noisy = method not in (NO_NOISE, OURS_NO_NOISE)
        for epsilon in BUDGETS if noisy else [None]:
            yield method, {"epsilon": epsilon}, partial(run, method, epsilon)


def importances(parts):
    """Return the importance of columns for boosted trees."""
    kind = GradientBoostingClassifier if parts.classes else GradientBoostingRegressor
    trees = kind(n_estimators=50, subsample=0.5, max_features="sqrt", random_state=0)
    return trees.fit(parts.X, parts.y).feature_importances_


def biased_halves(importance, share, seed):
    """Give the host a share of the most important quarter, and half of all columns."""
    n_columns = len(importance)
    rng = np.random.default_rng(seed)
    order = np.argsort(-importance, kind="stable")
    dominant, others = order[: n_columns // 4], order[n_columns // 4 :]
    rng.shuffle(dominant)
    rng.shuffle(others)
    n_dominant = round(share * len(dominant))
    n_others = n_columns // 2 - n_dominant
    return {
        "host": np.r_[dominant[:n_dominant], others[:n_others]],
        "guest": np.r_[dominant[n_dominant:], others[n_others:]],
    }


def by_share(name, plan, seed):
    """Figure 9: two parties, by the host's share of the dominant columns."""
    parts = split(load_table(name), seed, plan.rows)
    importance = importances(parts)
    yield COMBINE, {"share": None}, lambda: [alone(parts, plan, seed)]

    def federated(held):
        guests, _ = trained_guests(parts, plan, seed, {"guest": held["guest"]})
        return [with_guests(parts, plan, seed, held, guests)]

    for share in SHARES:
        what = {"share": share}
        held = biased_halves(importance, share, seed)
        yield SOLO, what, lambda held=held: [alone(parts, plan, seed, held["host"])]
        yield ONCE, what, partial(federated, held)
        yield SAME_BYTES, what, lambda held=held: [same_bytes(parts, plan, seed, held)]


def by_parties(name, plan, seed):
    """Figure 8: a wide table, by the number of parties."""
    parts = split(load_table(name), seed, plan.rows)
    yield COMBINE, {"parties": None}, lambda: [alone(parts, plan, seed)]

    def federated(parties):
        guests, seconds = trained_guests(parts, plan, seed, parties)
        del guests["party0"]
        run = with_guests(parts, plan, seed, parties, guests)
        return [run], {"guest_seconds": seconds}

    def with_pca():
        guests = PCA(plan.networks.d, random_state=0)
        return [with_guests(parts, plan, seed, Contiguous(FEWEST), guests)]

    # The paper's table 7 has the wide table, too.
    yield WITH_PCA, {"parties": FEWEST}, with_pca
    for n in PARTIES:
        dealt, what = Contiguous(n), {"parties": n}
        held = slice(parts.X.shape[1] // n)
        yield ONCE, what, partial(federated, dealt)
        yield SOLO, what, lambda held=held: [alone(parts, plan, seed, held)]
        yield SAME_BYTES, what, lambda of=dealt: [same_bytes(parts, plan, seed, of)]


class Watch:
    """Scores an estimator on the test rows while it is fitted.

    ``wanted`` has the name that a point is to have, by task and number.
    """

    def __init__(self, parts, wanted):
        self.parts, self.wanted = parts, wanted
        self.seen, self.scores = Counter(), {}

    def setup(self, estimator, context):
        """Do nothing."""

    def teardown(self, estimator, context):
        """Do nothing."""

    def on_fit_task_begin(self, estimator, context):
        """Do nothing."""

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        """Count tasks, and score after those that are wanted."""
        task = context.task_name
        self.seen[task] += 1
        point = self.wanted.get((task, self.seen[task]))
        if point is not None:
            self.scores[point] = score_of(fitted_estimator, self.parts)


def by_epochs(name, plan, seed):
    """Figure 6: what the bytes of further rounds buy. The first party is the host."""
    table = load_table(name)
    parties, parts = table.parties, split(table, seed, plan.rows)

    def several_rounds():
        wanted = {("split epoch", n): n for n in MORE_EPOCHS[1:]}
        watch = Watch(parts, {("epoch", plan.host_epochs): 0, **wanted})
        model = once(
            parts,
            plan,
            seed,
            parties=VerticalPartitioner(plan.scaler, parties=parties),
            local_encoder=encoder(plan, n_classes(parts)),
            lr=3e-3,
            batch_size=100,
            n_split_epochs=MORE_EPOCHS[-1],
        ).set_callbacks(watch)
        run = fit_and_score(model, parts)
        sent = model.bytes_curve_
        return [run], {"points": [(n, sent[n], watch.scores[n]) for n in MORE_EPOCHS]}

    def split_epochs():
        watch = Watch(parts, {("epoch", n): n for n in SPLIT_EPOCHS})
        last = SPLIT_EPOCHS[-1]
        model = split_network(parts, plan, seed, parties, max_epochs=last)
        run = fit_and_score(model.set_callbacks(watch), parts)
        # Every epoch sends the same, and the opening hardly anything.
        each = run["bytes"] / last
        points = [(n, round(n * each), watch.scores[n]) for n in SPLIT_EPOCHS]
        return [run], {"points": points}

    def iterations():
        runs = [boosted(parts, parties, n) for n in ITERATIONS]
        points = zip(ITERATIONS, runs, strict=True)
        points = [(n, run["bytes"], run["score"]) for n, run in points]
        return [runs[-1]], {"points": points}

    yield ROUNDS, {}, several_rounds
    yield SPLIT, {}, split_epochs
    if name in WITH_TREES:
        yield TREES, {}, iterations


def by_width(name, plan, seed):
    """Figure 7: by the dimension of representations."""
    table = load_table(name)
    parties, parts = table.parties, split(table, seed, plan.rows)
    held = who_holds(parts, parties)
    for d in WIDTHS[name]:
        other = plan._replace(networks=plan.networks._replace(d=d))
        about = parts, other, seed, parties, list(held)[plan.hosts]
        yield ONCE, {"d": d}, partial(federated, *about)
        yield WITH_PCA, {"d": d}, partial(federated, *about, pca_guests(other, held))


def by_noise(name, plan, seed):
    """Table 8: noise on representations, and what a host then finds of the columns."""
    table = load_table(name)
    parties, parts = table.parties, split(table, seed, plan.rows)
    held = who_holds(parts, parties)
    hosts = list(held)[plan.hosts]
    blocks = blocks_of(parts, plan, seed, parties)
    trained = cache(partial(trained_guests, parts, plan, seed, parties))

    def found(view, guest):
        attack = InversionAttack(known_rows=KNOWN, sender=guest)
        attack = attack.informed(blocks[guest], random_state=seed)
        return attack.fit(view).score(blocks[guest])

    def noisy(noise):
        guests, _ = trained()
        runs, leaks = [], []
        for host in hosts:
            with record_views() as views:
                settings = {"active": host, "representation_noise": noise}
                runs.append(with_guests(*about, guests, **settings))
            leaks.append(mean(found(views[host], x) for x in guests if x != host))
        return runs, {"leaks": leaks}

    about = parts, plan, seed, parties
    yield SOLO, {}, lambda: [alone(parts, plan, seed, held[host]) for host in hosts]
    for noise in NOISES:
        yield ONCE, {"noise": noise}, partial(noisy, noise)


def by_network(name, plan, seed):
    """Images whose guests have a small convolutional network, as in the paper."""
    table = load_table(name)
    parties, parts = table.parties, split(table, seed, plan.rows)
    held = who_holds(parts, parties)
    hosts = list(held)[plan.hosts]
    shifted = partial(convolutional, shifts=True)
    plain = partial(convolutional, shifts=False)
    about = parts, plan, seed, parties
    own = {"bottom": shifted, "batch_size": 50}

    def measured(guests=None, **settings):
        if guests is None:
            guests, _ = trained_guests(*about, **settings)
        return [with_guests(*about, guests, host, **own) for host in hosts]

    def solo(host):
        return alone(parts, plan, seed, held[host], **own)

    yield ONCE, {}, partial(measured, hidden_layer_sizes=shifted)
    yield COMBINE, {}, lambda: [alone(parts, plan, seed, **own)]
    yield WITH_PCA, {}, partial(measured, pca_guests(plan, held))
    yield UNTRAINED, {}, partial(measured, hidden_layer_sizes=plain, max_epochs=0)
    yield SOLO, {}, lambda: [*map(solo, hosts)]
    yield PLAIN, {}, partial(measured, hidden_layer_sizes=plain)


def accounting(done):
    """Figure 10: the ε of so many parties together, either way of adding up."""
    plan = ACCOUNTED
    steps = round(plan["epochs"] * plan["rows"] / plan["batch"])
    for n in COUNTS:
        runs = [
            SampledGaussian(
                plan["batch"] / plan["rows"],
                steps,
                (f"party{i}",),
                noise_multiplier=plan["multiplier"],
            )
            for i in range(n)
        ]
        for method, division in ((L1, "moments"), (NAIVE, "naive")):
            line = {"part": "accounting", "method": method, "parties": n}
            if key(line) not in done:
                spent = account_privacy(runs, DELTA, division=division)
                yield {**line, "spent": round(spent.epsilon, 4), **plan}


PARTS = {
    "hosts": (by_host, PLANS),
    "privacy": (with_budget, BUDGET_PLANS),
    "biased": (by_share, BIASED_PLANS),
    "parties": (by_parties, WIDE_PLANS),
    "curve": (by_epochs, CURVE_PLANS),
    "width": (by_width, WIDTH_PLANS),
    "noise": (by_noise, NOISE_PLANS),
    "network": (by_network, NETWORK_PLANS),
}


def quick_plan(plan):
    """Take few rows and epochs, and one seed."""
    few = {"seeds": 1, "rows": 600, "guest_epochs": 1, "host_epochs": 2}
    if hasattr(plan, "split_epochs"):
        few["split_epochs"] = 1
    return plan._replace(**few)


def measure(quick, done):
    """Yield the lines of every part, seed and data set that are not done."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    where = {"part": "machine"}
    if key(where) not in done:
        yield {**where, **machine(quick, "torch", "scikit-learn")}
    yield from accounting(done)
    for part, (_, plans) in PARTS.items():
        for seed in range(max(plan.seeds for plan in plans.values())):
            for name, plan in plans.items():
                plan = quick_plan(plan) if quick else plan
                if seed < plan.seeds:
                    yield from lines(part, name, plan, seed, done)


def lines(part, name, plan, seed, done):
    """Yield the lines of one part, data set and seed that are not done."""
    table = load_table(name)
    for method, what, run in PARTS[part][0](name, plan, seed):
        about = {"part": part, "dataset": name, "seed": seed}
        line = {**about, "method": method, **what}
        if key(line) in done:
            continue
        runs = run()
        runs, more = runs if isinstance(runs, tuple) else (runs, {})
        networks = plan.networks._asdict()
        yield {
            **line,
            **more,
            "scores": [round(run["score"], 4) for run in runs],
            "bytes": round(np.mean([run["bytes"] for run in runs])),
            "seconds": round(np.mean([run["seconds"] for run in runs]), 2),
            "rows": min(plan.rows or len(table.y), len(table.y)),
            "columns": table.X.shape[1],
            "metric": "accuracy" if table.classes else "RMSE",
            "plan": {**plan._asdict(), "networks": networks, **describe(plan)},
        }


def key(line):
    """Return what tells a line from all others."""
    names = ("part", "dataset", "seed", "method", "epsilon", "share", "parties")
    names += ("d", "noise")
    return tuple(line.get(name) for name in names)


def describe(plan):
    """Return the fields of a plan that are no numbers as text."""
    if not hasattr(plan, "hosts"):
        return {}
    hosts, scaler = plan.hosts, plan.scaler
    return {
        "hosts": [hosts.start, hosts.stop, hosts.step],
        "scaler": scaler if isinstance(scaler, str) else type(scaler).__name__,
    }


if __name__ == "__main__":
    options = command(__doc__).parse_args()
    resume(options, RECORD, measure, key, write_page)
