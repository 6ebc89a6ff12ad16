"""The page that sets FedOnce's recorded tables beside the paper's."""

from collections import defaultdict

import numpy as np
from _fedonce import (
    BUDGET_PLANS,
    BUDGETS,
    COMBINE,
    FIXED,
    L1,
    LINEAR,
    NAIVE,
    NARROW,
    NO_NOISE,
    NORMS,
    ONCE,
    OURS,
    OURS_NO_NOISE,
    PARTIES,
    PLANS,
    PRIVATE_METHODS,
    RATES,
    SAME_BYTES,
    SHARES,
    SIZES,
    SOLO,
    SPLIT,
    TREES,
    UNTRAINED,
    WITH_PCA,
)
from _page import MINUS, listing, met, number, rows_of, signed, write
from _record import select
from _seeds import half_interval, standard_error

PAPER_TABLE_7 = {
    "gisette": ("", "96.51", "94.10"),
    "phishing": ("phishing", "92.78", "92.41"),
    "MNIST": ("mnist", "98.05", "25.98"),
    "KMNIST": ("kmnist", "91.73", "25.59"),
}
INFINITE = None
N_PARTIES = {"digits": 4, "mnist": 4, "kmnist": 4, "fashion_mnist": 4, "mfeat": 6}
TRAFFIC = (ONCE, SAME_BYTES, SPLIT)


# Data set, ε, and what Priv-Baseline and FedOnce-L1 score with each of four hosts.
PAPER_TABLE_6 = """
phishing | 2 | 87.69 87.22 83.98 83.64 | 90.10 89.36 87.78 88.95
phishing | 4 | 89.43 87.49 88.79 87.92 | 91.10 90.24 90.90 91.16
phishing | 6 | 90.31 89.51 89.55 89.29 | 91.56 90.65 90.36 90.16
phishing | 8 | 90.89 90.76 89.69 90.51 | 90.78 91.12 90.63 91.30
phishing | ∞ |                         | 91.95 91.28 91.21 90.90
covtype | 2 | 74.60 65.88 60.19 66.53 | 76.88 70.74 70.11 71.56
covtype | 4 | 75.89 69.14 69.88 68.70 | 77.80 73.33 73.71 72.15
covtype | 6 | 78.27 73.75 73.46 73.87 | 79.23 74.18 73.66 73.98
covtype | 8 | 79.25 73.96 73.40 74.04 | 80.49 75.04 74.74 74.80
covtype | ∞ |                         | 82.24 74.48 74.29 74.06
ujiindoorloc | 2 | 23.26 22.75 22.92 25.01 | 10.66 11.02 10.87 14.89
ujiindoorloc | 4 | 14.87 15.78 20.62 19.43 |  7.69  8.11  8.43 13.62
ujiindoorloc | 6 | 10.53 12.24 14.75 19.14 |  7.14  7.46  6.64 12.23
ujiindoorloc | 8 | 10.51 11.98 14.09 13.45 |  5.42  6.14  6.78  7.30
ujiindoorloc | ∞ |                         |  3.55  3.69  4.02  3.59
mnist | 2 | 45.29 39.98 50.28 44.49 | 82.13 82.57 83.30 81.43
mnist | 4 | 70.07 76.70 78.00 75.23 | 87.01 87.51 87.91 87.02
mnist | 6 | 83.64 82.92 84.00 82.60 | 88.05 89.03 88.24 87.91
mnist | 8 | 85.40 86.33 86.21 85.28 | 90.52 90.63 89.61 89.32
mnist | ∞ |                         | 92.05 92.97 93.11 91.74
"""


def paper_table_6():
    """Means over the paper's hosts by data set, method and ε."""
    means = defaultdict(dict)
    for name, epsilon, *cells in rows_of(PAPER_TABLE_6):
        epsilon = INFINITE if epsilon == "∞" else int(epsilon)
        for method, scores in zip((NAIVE, L1), cells, strict=True):
            if scores:
                means[name][method, epsilon] = np.mean([*map(float, scores.split())])
    return means


PAPER_ROWS = {"phishing": 11_055, "covtype": 581_012, "ujiindoorloc": 21_048}
PAPER_ROWS |= dict.fromkeys(("mnist", "kmnist", "fashion_mnist"), 60_000)
PAPER_ROWS |= {"superconduct": 21_263}


class Sample:
    """Figures of several seeds: mean, standard error and 95 % interval."""

    def __init__(self, values):
        self.n = len(values)
        self.mean = float(np.mean(values))
        self.error = self.half = np.nan
        if self.n > 1:
            self.error, self.half = standard_error(values), half_interval(values)

    def __str__(self):
        if self.n == 1:
            return number(self.mean)
        return f"{number(self.mean)} ± {number(self.error)}"

    @property
    def interval(self):
        """Mean ± half the 95 % interval."""
        if self.n == 1:
            return f"{signed(self.mean)} (one seed)"
        return f"{signed(self.mean)} ± {number(self.half)}"

    def verdict(self, bar):
        """Say whether the mean is at least the bar, and whether the seeds can tell."""
        near = not abs(self.mean - bar) > self.half
        return met(self.mean >= bar, near, "met", "**not met**")


def collect(lines, part, *keys):
    """Means over hosts by data set, method, further keys, and seed."""
    found = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        if line["part"] == part:
            key = (line["method"], *(line.get(k) for k in keys))
            key = key if keys else key[0]
            found[line["dataset"]][key][line["seed"]] = line
    return found


def scores(by_seed):
    """Return the mean over hosts of every seed."""
    return Sample([np.mean(line["scores"]) for line in by_seed.values()])


def gain(over, under):
    """Paired differences, of which more is better."""
    sign = 1 if what_is({"": over})["metric"] == "accuracy" else -1
    means = [{s: np.mean(x["scores"]) for s, x in by.items()} for by in (over, under)]
    shared = [seed for seed in over if seed in under]
    return Sample([sign * (means[0][seed] - means[1][seed]) for seed in shared])


def what_is(by_method):
    """Return the first line of a data set."""
    return next(iter(next(iter(by_method.values())).values()))


def bars(lines):
    """Return what was asked for, and what was seen."""
    hosts = collect(lines, "hosts")
    wanted = [
        ("phishing", ONCE, COMBINE, -1.0),
        ("phishing", ONCE, UNTRAINED, 8.0),
        ("phishing", ONCE, WITH_PCA, 0.0),
        ("phishing, standardised", ONCE, UNTRAINED, 8.0),
        ("phishing, standardised", ONCE, WITH_PCA, 0.0),
        ("digits", ONCE, COMBINE, -1.5),
        ("mnist", ONCE, COMBINE, -1.5),
        *((name, ONCE, SAME_BYTES, 0.0) for name in PLANS),
    ]
    for name, over, under, bar in wanted:
        if name in hosts:
            seen = gain(hosts[name][over], hosts[name][under])
            yield bar_row(f"{name}: {over} {MINUS} {under}", bar, seen)
    privacy = collect(lines, "privacy", "epsilon")
    if "phishing" in privacy:
        runs = privacy["phishing"]
        what = f"phishing: {L1} at ε = 8 {MINUS} without a budget"
        yield bar_row(what, -2.0, gain(runs[L1, 8], runs[NO_NOISE, None]))


def bar_row(what, bar, seen):
    """Return one row of the bars."""
    asked = f"≥ {number(bar, 1)}" if bar else "≥ 0"
    return what, asked, seen.interval, seen.n, seen.verdict(bar)


def private_bars(lines):
    """Return the bars of private training, for every ε."""
    for name, runs in collect(lines, "privacy", "epsilon").items():
        paper = paper_table_6()[name]
        seen = [gain(runs[L1, e], runs[NAIVE, e]) for e in BUDGETS]
        yield budget_row(f"{name}: {L1} {MINUS} {NAIVE}", seen)
        for method in (NARROW, OURS):
            seen = [gain_on_paper(runs[method, e], paper[L1, e]) for e in BUDGETS]
            what = f"{name}: {method} {MINUS} the paper's {L1}"
            yield budget_row(what, seen)


def budget_row(what, seen):
    """Return one row of the private bars."""
    cells = [f"{sample.interval}, {sample.verdict(0.0)}" for sample in seen]
    return what, *cells, seen[0].n


def gain_on_paper(by_seed, paper):
    """Differences to the mean of the paper's hosts, of which more is better."""
    sign = 1 if what_is({"": by_seed})["metric"] == "accuracy" else -1
    return Sample([sign * (np.mean(x["scores"]) - paper) for x in by_seed.values()])


def sizes_table(lines):
    """Return the data sets."""
    rows = []
    for name, runs in collect(lines, "hosts").items():
        line = what_is(runs)
        plan, networks = line["plan"], line["plan"]["networks"]
        short = name.split(",")[0]
        paper = PAPER_ROWS.get(short)
        n_parties, n_hosts = N_PARTIES.get(short, 10), len(runs[ONCE][0]["scores"])
        rows.append(
            (
                name,
                f"{line['rows']:,}",
                f"{paper:,}" if paper else "not in the paper",
                line["columns"],
                f"{n_parties}, {n_hosts}",
                networks["d"],
                layers(networks["guest"]),
                layers(networks["host"]),
                "{guest_epochs}, {host_epochs}, {split_epochs}".format_map(plan),
            )
        )
    shape = ("Rows", "The paper's rows", "Columns", "Parties, hosts measured")
    networks = ("d", "Guest", "Host", "Epochs: guests, host, SplitNN")
    header = ("Data set", *shape, *networks)
    return listing("The data, and the networks", header, rows)


def layers(sizes):
    """Write the sizes of hidden layers as the paper does."""
    return f"FC({'×'.join(map(str, sizes))})"


def joint_table(lines):
    """Return FedOnce beside joint training, one party alone, and split learning."""
    methods = (SOLO, COMBINE, LINEAR, ONCE, SAME_BYTES, SPLIT, TREES)
    rows = []
    for name, runs in collect(lines, "hosts").items():
        cells = [scores(runs[m]) if runs[m] else "not measured" for m in methods]
        rows.append((f"{name}, {metric(what_is(runs))}", cells[0].n, *cells))
    header = ("Data set, metric", "Seeds", *methods)
    return listing("Ours: mean over hosts and seeds ± standard error", header, rows)


def metric(line):
    """Return the metric as the tables write it."""
    return "accuracy %" if line["metric"] == "accuracy" else "RMSE % of the range"


def guests_table(lines):
    """Return what other guests do, against Noise-As-Targets."""
    methods = (WITH_PCA, UNTRAINED, FIXED)
    rows = []
    for name, runs in collect(lines, "hosts").items():
        line = what_is(runs)
        about = line["plan"]["networks"]["d"], metric(line), len(runs[ONCE])
        means = [scores(runs[method]) for method in (ONCE, *methods)]
        gains = [gain(runs[ONCE], runs[method]).interval for method in methods]
        rows.append((name, *about, *means, *gains))
    better = (f"L0 better than {method} by" for method in methods)
    header = ("Data set", "d", "Metric", "Seeds", ONCE, *methods, *better)
    return listing("Ours: the same host with other guests", header, rows)


def host_table(lines):
    """Return the lowest and the highest host."""
    rows = []
    for name, runs in collect(lines, "hosts").items():
        cells = []
        for method in (SOLO, ONCE):
            by_host = np.mean([x["scores"] for x in runs[method].values()], axis=0)
            cells.append(f"{number(by_host.min())} to {number(by_host.max())}")
        rows.append((f"{name}, {metric(what_is(runs))}", len(by_host), *cells))
    header = ("Data set, metric", "Hosts", SOLO, ONCE)
    return listing("Ours: range over host parties (means over seeds)", header, rows)


def bytes_table(lines):
    """Return the traffic of training."""
    rows = []
    for name, runs in collect(lines, "hosts").items():
        sent = [np.mean([x["bytes"] for x in runs[m].values()]) for m in TRAFFIC]
        more = f"{sent[2] / sent[0]:.0f}"
        rows.append((name, *(f"{number(x / 1e6)} MB" for x in sent), more))
    header = ("Data set", *TRAFFIC, "SplitNN ÷ FedOnce-L0")
    return listing("Ours: bytes that cross in one training", header, rows)


def paper_guests_table(lines):
    """Return the paper's table 7 beside ours."""
    hosts = collect(lines, "hosts")
    rows = []
    for theirs, (ours, once_score, pca_score) in PAPER_TABLE_7.items():
        cells = ("not measured", "not measured")
        if ours in hosts:
            cells = [scores(hosts[ours][method]) for method in (ONCE, WITH_PCA)]
        rows.append((theirs, once_score, pca_score, *cells))
    header = ("Data set", "Paper: FedOnce-L0", "Paper: FedOnce-PCA", "Ours: L0", "PCA")
    return listing("The paper's table 7 beside ours, accuracy %", header, rows)


def private_table(lines, name):
    """Return one part of table 6, ours beside the paper's."""
    runs = collect(lines, "privacy", "epsilon")[name]
    line, paper = what_is(runs), paper_table_6()[name]
    rows = []
    for epsilon in (*BUDGETS, INFINITE):
        ours = (L1, NAIVE, NARROW, OURS)
        if epsilon is INFINITE:
            ours = (NO_NOISE, None, OURS_NO_NOISE, None)
        cells = [spread(runs[m, epsilon]) if m else "" for m in ours]
        theirs = [paper.get((method, epsilon)) for method in (L1, NAIVE)]
        theirs = ["" if score is None else number(score) for score in theirs]
        rows.append((epsilon or "∞ (no noise, no clipping)", *cells, *theirs))
    header = ("ε", L1, NAIVE, NARROW, OURS, f"Paper: {L1}", f"Paper: {NAIVE}")
    title = (
        f"{name}, {line['rows']:,} rows (paper: {PAPER_ROWS[name]:,}), {metric(line)}: "
        f"mean ± half the 95 % interval; seeds: {len(runs[L1, 2])}"
    )
    return listing(title, header, rows)


def spread(by_seed):
    """Write the mean ± half its 95 % interval."""
    sample = scores(by_seed)
    if sample.n == 1:
        return number(sample.mean)
    return f"{number(sample.mean)} ± {number(sample.half)}"


def settings_table(lines):
    """Return what the search chose."""
    rows = []
    for name, runs in collect(lines, "privacy", "epsilon").items():
        cells = []
        for method in PRIVATE_METHODS:
            epsilon = None if method in (NO_NOISE, OURS_NO_NOISE) else BUDGETS[0]
            chosen = next(iter(runs[method, epsilon].values()))["settings"]
            norm = f", {chosen['max_grad_norm']:g}" if chosen["max_grad_norm"] else ""
            cells.append(f"{chosen['lr']:g}{norm}, {chosen['batch_size']}")
        rows.append((name, *cells))
    title = "What was chosen: learning rate, clipping norm, batch size of the host"
    return listing(title, ("Data set", *PRIVATE_METHODS), rows)


def by_key_table(lines, part, key, values, heading):
    """Return figure 8 or 9."""
    rows = []
    for name, runs in collect(lines, part, key).items():
        for value in values:
            solo, first, split = (runs[m, value] for m in (SOLO, ONCE, SAME_BYTES))
            sent = [next(iter(of.values()))["bytes"] / 1e6 for of in (first, split)]
            rows.append(
                (
                    f"{name}, {metric(what_is(runs))}",
                    f"{value:g}",
                    *map(scores, (solo, first, split, runs[COMBINE, None])),
                    gain(first, solo).interval,
                    *map(number, sent),
                    len(first),
                )
            )
    methods = (SOLO, ONCE, SAME_BYTES, COMBINE, "L0 better than Solo by")
    costs = ("MB, FedOnce", "MB, SplitNN", "Seeds")
    header = ("Data set, metric", heading, *methods, *costs)
    return listing("Ours: mean over seeds ± standard error", header, rows)


def write_page(lines):
    """Write the page of the benchmarks."""
    budgets = collect(lines, "privacy", "epsilon")
    axes = {"learning rate": RATES, "norm": NORMS, "batch size": SIZES}
    grid = {name: " or ".join(f"{x:g}" for x in axis) for name, axis in axes.items()}
    shares = SHARES, "Host's share of the dominant columns"
    write(
        "fedonce_benchmarks",
        machine=select(lines, part="machine")[0],
        bars=listing("Bars", ("What", "Bar", "Seen", "Seeds", "Met"), bars(lines)),
        private_bars=listing(
            "Bars of private training (≥ 0 in every cell)",
            ("What", *(f"ε = {epsilon}" for epsilon in BUDGETS), "Seeds"),
            private_bars(lines),
        ),
        sizes=sizes_table(lines),
        joint=joint_table(lines),
        host_range=host_table(lines),
        traffic=bytes_table(lines),
        guests=guests_table(lines),
        paper_guests=paper_guests_table(lines),
        privacy="\n\n".join(private_table(lines, name) for name in budgets),
        settings=settings_table(lines),
        grid="; ".join(f"{name} {values}" for name, values in grid.items()),
        guest_epochs=", ".join(
            f"{plan.guest_epochs} ({name})" for name, plan in BUDGET_PLANS.items()
        ),
        biased=by_key_table(lines, "biased", "share", *shares),
        parties=by_key_table(lines, "parties", "parties", PARTIES, "Parties"),
    )
