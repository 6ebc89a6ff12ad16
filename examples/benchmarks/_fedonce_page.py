"""The page that sets FedOnce's recorded tables beside the paper's."""

from collections import defaultdict

import numpy as np
from _fedonce import (
    ACCOUNTED,
    BUDGET_PLANS,
    BUDGETS,
    CHANNELS,
    COMBINE,
    COUNTS,
    FEWEST,
    FIXED,
    ITERATIONS,
    KNOWN,
    L1,
    LINEAR,
    MORE_EPOCHS,
    NAIVE,
    NARROW,
    NO_NOISE,
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
    ROUNDS,
    SAME_BYTES,
    SHARES,
    SIZES,
    SOLO,
    SPLIT,
    SPLIT_EPOCHS,
    TREES,
    UNTRAINED,
    WITH_PCA,
)
from _page import MINUS, listing, met, number, rows_of, signed, write
from _record import select
from _seeds import half_interval, standard_error

# FedOnce-L0 and FedOnce-PCA; "4 or 9" stands for gisette.
PAPER_TABLE_7 = {
    "gisette": ("4 or 9", 96.51, 94.10),
    "phishing": ("phishing", 92.78, 92.41),
    "MNIST": ("mnist", 98.05, 25.98),
    "KMNIST": ("kmnist", 91.73, 25.59),
}
# Minutes of SplitNN and of FedOnce-L0.
PAPER_TABLE_4 = {
    "phishing": (4.07, 1.63),
    "superconduct": (16.55, 7.54),
    "covtype": (171.12, 52.33),
    "ujiindoorloc": (23.15, 8.96),
    "mnist": (53.58, 24.17),
    "kmnist": (56.47, 24.13),
    "fashion_mnist": (54.58, 23.00),
}
# Solo, and FedOnce-L0 by the deviation of the noise.
PAPER_TABLE_8 = {
    "NUS-WIDE, accuracy %": ("80.71", "84.76", "84.64", "82.75", "81.45", "81.05"),
    "MovieLens, RMSE": ("0.9835", "0.9373", "0.9578", "0.9690", "0.9679", "0.9969"),
}
INFINITE = None
MISSING = "not measured"
N_PARTIES = {"digits": 4, "mnist": 4, "kmnist": 4, "fashion_mnist": 4, "mfeat": 6}
TRAFFIC = (ONCE, SAME_BYTES, SPLIT)
TABLE_7 = ("L0", "PCA")


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
superconduct | 2 | 16.68 16.67 17.83 13.73 | 10.80 10.43 10.59 11.10
superconduct | 4 | 12.53 13.87 13.48 12.46 | 10.71 10.03 10.09 10.52
superconduct | 6 | 11.73 12.56 12.99 12.30 |  9.85 10.01  9.84  9.73
superconduct | 8 | 11.25 11.40 13.08 11.48 | 10.20 10.75  9.85  9.56
superconduct | ∞ |                         |  8.32  8.33  8.41  8.01
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
        self.mean = float(np.mean(values)) if self.n else np.nan
        self.error = self.half = np.nan
        if self.n > 1:
            self.error, self.half = standard_error(values), half_interval(values)

    def __str__(self):
        if self.n < 2:
            return number(self.mean) if self.n else MISSING
        return f"{number(self.mean)} ± {number(self.error)}"

    @property
    def spread(self):
        """Mean ± half the 95 % interval, which one seed has not."""
        return str(self) if self.n < 2 else f"{number(self.mean)} ± {number(self.half)}"

    @property
    def interval(self):
        """Mean ± half the 95 % interval."""
        if self.n < 2:
            return f"{signed(self.mean)} (one seed)" if self.n else MISSING
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
    shared = [seed for seed in over if seed in under]
    if not shared:
        return Sample([])
    sign = 1 if what_is({"": over})["metric"] == "accuracy" else -1
    means = [{s: np.mean(x["scores"]) for s, x in by.items()} for by in (over, under)]
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
    for name, runs in collect(lines, "network").items():
        what = f"{name}, convolutional networks: {ONCE} {MINUS} {COMBINE}"
        yield bar_row(what, -1.5, gain(runs[ONCE], runs[COMBINE]))
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
    if not by_seed:
        return Sample([])
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
    hosts, wide = collect(lines, "hosts"), collect(lines, "parties", "parties")
    rows = []
    for theirs, (ours, *paper) in PAPER_TABLE_7.items():
        runs = hosts.get(ours) or {m: wide[ours][m, FEWEST] for m in (ONCE, WITH_PCA)}
        seen = [runs[method] for method in (ONCE, WITH_PCA)]
        cells = [spread(by_seed) for by_seed in seen]
        apart = [
            gain_on_paper(*pair).interval for pair in zip(seen, paper, strict=True)
        ]
        more = gain(*seen).interval, len(seen[0])
        what = theirs if ours in hosts else f"{theirs}, ours {ours}"
        rows.append((what, *map(number, paper), *cells, *apart, *more))
    header = (
        "Data set",
        *(f"{whose}: {method}" for whose in ("Paper", "Ours") for method in TABLE_7),
        *(f"{method}: ours {MINUS} paper's" for method in TABLE_7),
        "Ours: L0 better than PCA by",
        "Seeds",
    )
    title = "The paper's table 7 beside ours, accuracy %: mean ± half the 95 % interval"
    return listing(title, header, rows)


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
        pairs = [
            (runs[method, epsilon], score)
            for method, score in zip(ours, theirs, strict=False)
            if score is not None
        ]
        apart = [gain_on_paper(*pair).interval for pair in pairs]
        theirs = ["" if score is None else number(score) for score in theirs]
        apart += [""] * (2 - len(apart))
        rows.append((epsilon or "∞ (no noise, no clipping)", *cells, *theirs, *apart))
    whose = (f"Paper: {L1}", f"Paper: {NAIVE}")
    apart = (f"{method} better than the paper's by" for method in (L1, NAIVE))
    header = ("ε", L1, NAIVE, NARROW, OURS, *whose, *apart)
    title = (
        f"{name}, {line['rows']:,} rows (paper: {PAPER_ROWS[name]:,}), {metric(line)}: "
        f"mean ± half the 95 % interval; seeds: {len(runs[L1, 2])}"
    )
    return listing(title, header, rows)


def spread(by_seed):
    """Write the mean over hosts and seeds ± half its 95 % interval."""
    return scores(by_seed).spread


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
            # A run that was stopped has not all of them.
            if not (solo and first and split):
                continue
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


def times_table(lines):
    """Return the paper's table 4 beside ours."""
    rows = []
    for name, runs in collect(lines, "hosts").items():
        both = [seed for seed in runs[SPLIT] if seed in runs[ONCE]]
        if not both:
            continue
        split = np.array([runs[SPLIT][seed]["seconds"] for seed in both])
        guests = np.array([runs[ONCE][seed]["guest_seconds"] for seed in both])
        hosts = np.array([runs[ONCE][seed]["seconds"] for seed in both])
        n_parties = N_PARTIES.get(name.split(",")[0], 10)
        cells = [number(np.mean(x), 1) for x in (split, guests, hosts)]
        whole = Sample(split / (guests + hosts)).spread
        at_once = Sample(split / (guests / n_parties + hosts)).spread
        theirs = [""] * 3
        if paper := PAPER_TABLE_4.get(name):
            theirs = [number(x) for x in (*paper, paper[0] / paper[1])]
        rows.append((name, *cells, whole, at_once, len(both), *theirs))
    ratio = "SplitNN ÷ FedOnce-L0"
    ours = ("SplitNN, s", "All guests, s", "Host, s", ratio)
    paper = ("Paper: SplitNN, min", "FedOnce-L0, min", ratio)
    more = ("The same, guests side by side", "Seeds")
    title = "CPU seconds of one training, the paper's minutes"
    return listing(title, ("Data set", *ours, *more, *paper), rows)


def curve_points(by_seed):
    """Return the points of a curve of figure 6 by epochs: bytes, and scores by seed."""
    found = {}
    for seed, line in by_seed.items():
        for n, sent, score in line["points"]:
            found.setdefault(n, (sent, {}))[1][seed] = {
                "scores": [score],
                "metric": line["metric"],
            }
    return found


def curve_table(lines):
    """Return figure 6: scores and bytes by epochs."""
    every = sorted({*MORE_EPOCHS, *SPLIT_EPOCHS, *ITERATIONS})
    rows = []
    for name, runs in collect(lines, "curve").items():
        for method in (ROUNDS, SPLIT, TREES):
            if method not in runs:
                continue
            points = curve_points(runs[method])
            cells = [
                f"{spread(points[n][1])}; {number(points[n][0] / 1e6, 1)} MB"
                if n in points
                else ""
                for n in every
            ]
            what = f"{name}, {metric(what_is(runs))}"
            rows.append((what, method, *cells, len(runs[method])))
    header = ("Data set, metric", "Method", *every, "Seeds")
    title = (
        "Ours, by epochs of split learning or trees: mean ± half the 95 % interval; "
        "what had crossed by then"
    )
    return listing(title, header, rows)


def curve_gains(lines):
    """Return figure 6 in differences, and what SplitNN's bytes must be."""
    shared = [n for n in MORE_EPOCHS if n in SPLIT_EPOCHS]
    rows = []
    for name, runs in collect(lines, "curve").items():
        if not (runs[ROUNDS] and runs[SPLIT]):
            continue
        rounds, split = (curve_points(runs[method]) for method in (ROUNDS, SPLIT))
        accuracy = what_is(runs)["metric"] == "accuracy"
        sign = 1 if accuracy else -1
        first = sign * scores(rounds[0][1]).mean
        enough = [n for n in split if sign * scores(split[n][1]).mean >= first]
        times = f"more than {split[SPLIT_EPOCHS[-1]][0] / rounds[0][0]:.0f}"
        if enough:
            times = f"{split[enough[0]][0] / rounds[0][0]:.0f} ({enough[0]} epochs)"
        gains = [gain(rounds[n][1], split[n][1]).interval for n in shared]
        one = gain(rounds[0][1], split[SPLIT_EPOCHS[0]][1]).interval
        rows.append((f"{name}, {metric(what_is(runs))}", one, *gains, times))
    header = (
        "Data set, metric",
        f"One round {MINUS} SplitNN after 1 epoch",
        *(f"{n} more epochs {MINUS} SplitNN after {n}" for n in shared),
        "SplitNN's bytes for FedOnce-L0's score ÷ FedOnce-L0's",
    )
    title = "FedOnce better than SplitNN by (± half the 95 % interval)"
    return listing(title, header, rows)


def width_table(lines):
    """Return figure 7: scores by the dimension of representations."""
    rows = []
    for name, runs in collect(lines, "width", "d").items():
        for d in sorted({d for _, d in runs}):
            once, pca = runs[ONCE, d], runs[WITH_PCA, d]
            if not (once and pca):
                continue
            sent = next(iter(once.values()))["bytes"] / 1e6
            cells = spread(once), spread(pca), gain(once, pca).interval
            rows.append((name, d, *cells, number(sent), len(once)))
    methods = (ONCE, WITH_PCA, "L0 better than PCA by")
    header = ("Data set", "d", *methods, "MB", "Seeds")
    title = "Ours, accuracy %: mean over hosts and seeds ± half the 95 % interval"
    return listing(title, header, rows)


def noise_table(lines):
    """Return table 8: scores and leakage by the noise on representations."""
    rows = []
    for name, runs in collect(lines, "noise", "noise").items():
        solo = runs[SOLO, None]
        cells, found = [spread(solo)], [""]
        for noise in NOISES:
            by_seed = runs[ONCE, noise]
            cell = spread(by_seed)
            ahead = gain(by_seed, solo).mean > 0
            cells.append(f"**{cell}**" if ahead else cell)
            leaks = [{"scores": x["leaks"]} for x in by_seed.values()]
            found.append(spread(dict(enumerate(leaks))))
        n_seeds = len(solo)
        rows.append((f"{name}, {metric(what_is(runs))}", *cells, n_seeds))
        rows.append((f"{name}, what an attack finds (0 to 1)", *found, n_seeds))
    rows += [(f"Paper: {name}", *cells, "") for name, cells in PAPER_TABLE_8.items()]
    header = ("Data set", SOLO, *(f"noise {noise:g}" for noise in NOISES), "Seeds")
    title = "Ours: mean ± half the 95 % interval; bold where better than Solo"
    return listing(title, header, rows)


def network_table(lines):
    """Return what convolutional networks do on images."""
    methods = (SOLO, COMBINE, ONCE, PLAIN, WITH_PCA, UNTRAINED)
    rows = []
    for name, runs in collect(lines, "network").items():
        for method in methods:
            apart = (
                "" if method == COMBINE else gain(runs[method], runs[COMBINE]).interval
            )
            rows.append((name, method, spread(runs[method]), apart, len(runs[method])))
    header = ("Data set", "Method", "Accuracy %", f"{MINUS} {COMBINE}", "Seeds")
    title = "Ours, convolutional networks: mean ± half the 95 % interval"
    return listing(title, header, rows)


def accounting_table(lines):
    """Return figure 10: ε by the number of parties."""
    spent = {
        (x["method"], x["parties"]): x["spent"]
        for x in select(lines, part="accounting")
    }
    rows = []
    for n in COUNTS:
        once, naive = spent[L1, n], spent[NAIVE, n]
        paper = "88.9 %" if n == 100 else ""
        less = number(100 * (1 - once / naive), 1)
        rows.append((n, number(once), number(naive), f"{less} %", paper))
    header = ("Parties", f"ε, {L1}", f"ε, {NAIVE}", "Less by", "Paper: less by")
    return listing("ε of all parties together, δ = 1e-5", header, rows)


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
        times=times_table(lines),
        curve=curve_table(lines),
        curve_gains=curve_gains(lines),
        widths=width_table(lines),
        noise=noise_table(lines),
        network=network_table(lines),
        accounting=accounting_table(lines),
        accounted=ACCOUNTED,
        known=KNOWN,
        channels=CHANNELS,
    )
