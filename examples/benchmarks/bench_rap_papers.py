"""The RAP paper's Tables 3 and 4 and figures 4 to 7 on the data at hand.

Prints one JSON object per line. A full run also records the lines in
``docs/benchmarks/rap_papers.jsonl`` and writes the page of the benchmarks that shows
them. Needs the data sets in the folder that the environment variable SKVFL_DATA names.

    python bench_rap_papers.py [--quick | --write-docs]
"""

import warnings
from collections import defaultdict
from functools import partial
from typing import NamedTuple

import numpy as np
from _data import draw
from _measure import machine, timed
from _page import listing, met, number, rows_of, signed, table, write
from _record import command, one, run, select
from _seeds import standard_error
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, root_mean_squared_error
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvfl import CommunicationLog, GaussianProjection, RandomProjectionVFL, RoundRobin
from skvfl.datasets import available, load

CLIENTS = 4
RAP = {
    "RAP, labels unprotected": ("orthogonal", False),
    "RAP": ("orthogonal", True),
    'RAP, kind="gaussian", labels unprotected': ("gaussian", False),
}
METHODS = ("Centralised", "Single", *RAP)
NETWORKS = {
    "10 Gbit/s, 0.1 ms": {"bandwidth": 10e9, "latency": 0.0001},
    "100 Mbit/s, 20 ms": {"bandwidth": 100e6, "latency": 0.02},
}


class Model(NamedTuple):
    """One of the paper's two models; logistic regression has no hidden layer.

    The linear model takes larger steps and more of them, and needs fewer seeds.
    """

    hidden: tuple
    rates: tuple
    max_seeds: int
    epochs_factor: int = 1
    max_epochs: int = 100

    def epochs(self, plan):
        """Return the cap on epochs."""
        return min(plan.epochs * self.epochs_factor, self.max_epochs)


MODELS = {
    "MLP": Model((128,), (0.001, 0.003, 0.01, 0.03), max_seeds=30),
    "LR": Model((), (0.003, 0.01, 0.03), max_seeds=5, epochs_factor=2, max_epochs=80),
}


class Plan(NamedTuple):
    """How much is run on one data set."""

    rows: int | None
    epochs: int
    seeds: int
    searched: int
    single: int = 3
    figures: int = 0


PLANS = {
    "covtype": Plan(50_000, epochs=100, seeds=5, searched=2),
    "susy": Plan(None, epochs=20, seeds=20, searched=5, figures=5),
    "higgs": Plan(None, epochs=20, seeds=20, searched=5),
    "digits": Plan(None, epochs=30, seeds=30, searched=5),
    "superconduct": Plan(None, epochs=40, seeds=8, searched=2, figures=3),
    "california_housing": Plan(None, epochs=30, seeds=15, searched=3),
    "yearprediction": Plan(None, epochs=20, seeds=10, searched=3),
}
SKEWED = {"california_housing": ["Population", "AveRooms", "AveBedrms", "AveOccup"]}
QUICK = Plan(2000, epochs=5, seeds=2, searched=1, single=2, figures=2)


class Parts(NamedTuple):
    """One split of a data set: 70 % to train on, 10 % to choose by, 20 % to test on."""

    train: tuple
    valid: tuple
    test: tuple
    classes: bool


def split(bunch, seed):
    """Draw the three parts, stratified by class.

    Float32 is what RAP's server trains on, so that all methods compute alike.
    """
    X, y = bunch.data.to_numpy(dtype=np.float32), np.asarray(bunch.target)
    classes = bunch.task == "classification"
    rest, test = draw(np.arange(len(y)), y, 0.2, seed, classes)
    train, valid = draw(rest, y, 1 / 8, seed, classes)
    return Parts(*((X[part], y[part]) for part in (train, valid, test)), classes)


def batch_size(n_rows):
    """One per cent of the training rows, at least 32."""
    return max(n_rows // 100, 32)


def network(parts, model, rate, plan, seed):
    """Return the paper's perceptron, or the same without its hidden layer."""
    kind = MLPClassifier if parts.classes else MLPRegressor
    return kind(
        hidden_layer_sizes=MODELS[model].hidden,
        learning_rate_init=rate,
        batch_size=batch_size(len(parts.train[0])),
        max_iter=MODELS[model].epochs(plan),
        tol=1e-4,
        n_iter_no_change=5,
        random_state=seed,
    )


def fit_and_score(estimator, parts, columns=slice(None)):
    """Fit once; score on the validation and the test part, and count the cost."""
    _, seconds = timed(estimator.fit, parts.train[0][:, columns], parts.train[1])
    score = accuracy_score if parts.classes else root_mean_squared_error
    unit = 100 if parts.classes else 1
    valid, test = (
        unit * score(y, estimator.predict(X[:, columns]))
        for X, y in (parts.valid, parts.test)
    )
    return {
        "valid": valid,
        "test": test,
        "seconds": seconds,
        "epochs": fitted_network(estimator).n_iter_,
        "log": getattr(estimator, "communication_", CommunicationLog()),
    }


def fitted_network(estimator):
    """Return the network inside whatever was fitted."""
    if isinstance(estimator, RandomProjectionVFL):
        return estimator.estimator_
    return getattr(estimator, "regressor_", estimator)[-1]


def plain(parts, net):
    """Return the network for columns, and a target, in their own units."""
    pipeline = make_pipeline(StandardScaler(), net)
    if parts.classes:
        return pipeline
    return TransformedTargetRegressor(pipeline, transformer=StandardScaler())


def dealt(n_parties, seed):
    """Deal the permuted columns round-robin, as the paper does."""
    return RoundRobin(n_parties, shuffle=True, random_state=seed)


def better(run, parts, part):
    """Return a figure of which more is better."""
    return run[part] if parts.classes else -run[part]


def single(parts, net, seed):
    """Return the client that is best on the test part, as the paper reports it."""
    runs = [
        fit_and_score(plain(parts, net), parts, columns)
        for columns in dealt(CLIENTS, seed).split_columns(parts.train[0]).values()
    ]
    return max(runs, key=lambda run: better(run, parts, "test"))


def rap(net, parties, seed, method="RAP"):
    """Return the federated estimator."""
    kind, label_protection = RAP[method]
    return RandomProjectionVFL(
        net,
        parties=parties,
        projection=GaussianProjection(kind=kind),
        label_protection=label_protection,
        random_state=seed,
    )


def fit_method(method, parts, net, seed):
    """Fit and measure one method."""
    if method == "Centralised":
        return fit_and_score(plain(parts, net), parts)
    if method == "Single":
        return single(parts, net, seed)
    return fit_and_score(rap(net, dealt(CLIENTS, seed), seed, method), parts)


def main_table(splits, model, plan, rates):
    """Tables 3 and 4: every method at the learning rate that suits it best.

    Returns the chosen rates, and the runs at them by method.
    """
    runs, chosen = {}, {}
    for seed, parts in enumerate(splits):
        methods = [m for m in METHODS if m != "Single" or seed < plan.single]
        for method in methods:
            for rate in [chosen[method]] if chosen else rates:
                net = network(parts, model, rate, plan, seed)
                runs[method, seed, rate] = fit_method(method, parts, net, seed)
        if seed == plan.searched - 1:
            chosen = {
                method: search(runs, method, splits[: plan.searched], rates)
                for method in METHODS
            }
    at_chosen = {method: [] for method in METHODS}
    for (method, _, rate), figures in runs.items():
        if rate == chosen[method]:
            at_chosen[method].append(figures)
    return chosen, at_chosen


def search(runs, method, splits, rates):
    """Choose the learning rate of the best mean on the validation parts."""

    def mean(rate):
        return np.mean(
            [
                better(runs[method, seed, rate], parts, "valid")
                for seed, parts in enumerate(splits)
                if (method, seed, rate) in runs
            ]
        )

    return max(rates, key=mean)


def with_one_feature_clients(n_single, n_parties, n_columns, seed):
    """Give `n_single` clients one column each and deal the others in turn."""
    order = np.random.default_rng(seed).permutation(n_columns)
    n_others = n_parties - n_single
    held = [order[i : i + 1] for i in range(n_single)]
    held += [order[n_single + i :: n_others] for i in range(n_others)]
    return {f"client{i}": columns for i, columns in enumerate(held)}


def by_clients(splits, model, plan, rate):
    """Figures 4 to 7: RAP by the number of clients and of one-feature clients."""
    n_columns = splits[0].train[0].shape[1]
    alone = "one-feature clients"
    settings = [
        ({"table": "clients", "clients": n}, partial(dealt, n))
        for n in (2, 4, 6, 8, 10)
    ] + [
        (
            {"table": alone, "clients": 10, "one_feature": k},
            partial(with_one_feature_clients, k, 10, n_columns),
        )
        for k in (1, 2, 3, 4, 5)
    ]
    for what, parties in settings:
        runs = []
        for seed, parts in enumerate(splits):
            net = network(parts, model, rate, plan, seed)
            runs.append(fit_and_score(rap(net, parties(seed), seed), parts))
        yield what, runs


def summary(runs, baseline, classes):
    """Mean, spread and cost over seeds, and the paired difference to centralised.

    The difference is in points of accuracy, or in per cent of the centralised RMSE.
    """
    scores = np.array([run["test"] for run in runs])
    paired = np.array([run["test"] for run in baseline[: len(runs)]])
    difference = scores - paired if classes else 100 * (scores - paired) / paired.mean()
    seconds = [run["seconds"] for run in runs]
    logs = [run["log"] for run in runs]
    return {
        "seeds": len(runs),
        "metric": "accuracy %" if classes else "RMSE",
        "mean": round(scores.mean(), 4),
        "std": round(scores.std(ddof=1), 4),
        "difference": round(difference.mean(), 4),
        "standard_error": round(standard_error(difference), 4),
        "seconds": round(np.mean(seconds), 4),
        "seconds_std": round(np.std(seconds, ddof=1), 4),
        "epochs": round(np.mean([run["epochs"] for run in runs]), 1),
        "rounds": logs[0].n_rounds,
        "bytes": round(np.mean([log.n_bytes for log in logs])),
    }


def splitnn_epoch(n_rows, widths, size):
    """Return the traffic of one epoch of SplitNN.

    In every mini-batch each client sends activations, one float32 per column it holds,
    and receives as large a gradient; the two are one request and reply.
    """
    log = CommunicationLog()
    for start in range(0, n_rows, size):
        log.begin_round()
        rows = min(size, n_rows - start)
        for client, width in enumerate(widths):
            log.record(f"client{client}", "server", "forward", 4 * rows * width, True)
            log.record("server", f"client{client}", "backward", 4 * rows * width, True)
    return log


def transfer(parts, central, federated, log):
    """SplitNN's estimated training time against RAP's.

    Both are seconds of computing plus seconds of transfer; SplitNN computes, and
    repeats its epochs, as the centralised model did.
    """
    n_rows, n_columns = parts.train[0].shape
    widths = [len(range(i, n_columns, CLIENTS)) for i in range(CLIENTS)]
    epoch = splitnn_epoch(n_rows, widths, batch_size(n_rows))
    for name, link in NETWORKS.items():
        slow = central["epochs"] * epoch.transfer_time(**link)
        fast = log.transfer_time(**link)
        ratio = (central["seconds"] + slow) / (federated["seconds"] + fast)
        yield {
            "network": name,
            "splitnn_rounds": round(central["epochs"] * epoch.n_rounds),
            "splitnn_bytes": round(central["epochs"] * epoch.n_bytes),
            "splitnn_transfer": round(slow, 4),
            "rap_rounds": log.n_rounds,
            "rap_bytes": log.n_bytes,
            "rap_transfer": round(fast, 4),
            "speed_up": round(ratio, 1),
        }


def sized(name, quick):
    """Return the data set and its plan; a quick run takes little of both.

    Columns whose few huge values would decide the error on the test rows are logged.
    """
    plan = PLANS[name]
    if quick:
        plan = QUICK._replace(figures=min(plan.figures, QUICK.figures))
    bunch = load(name)
    if plan.rows and plan.rows < len(bunch.data):
        bunch = load(name, n_rows=plan.rows)
    for column in SKEWED.get(name, ()):
        bunch.data[column] = np.log(bunch.data[column])
    return bunch, plan


def measure(quick):
    """Yield every line."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    names = [name for name in PLANS if name in available()]
    yield {
        "table": "machine",
        **machine(quick, "numpy", "scikit-learn", "skvfl"),
        "clients": CLIENTS,
        "models": {name: model._asdict() for name, model in MODELS.items()},
        "plans": {name: (QUICK if quick else PLANS[name])._asdict() for name in names},
    }
    for name in names:
        bunch, plan = sized(name, quick)
        splits = [split(bunch, seed) for seed in range(plan.seeds)]
        shape = {"rows": len(bunch.data), "columns": bunch.data.shape[1]}
        for model, (_, rates, max_seeds, *_) in MODELS.items():
            context = {"dataset": name, **shape, "model": model}
            rates = rates[1:3] if quick else rates
            yield from measure_all(splits[:max_seeds], model, plan, rates, context)


def measure_all(splits, model, plan, rates, context):
    """Yield the lines of one data set and model."""
    classes = splits[0].classes
    chosen, runs = main_table(splits, model, plan, rates)
    lines = {m: summary(runs[m], runs["Centralised"], classes) for m in METHODS}
    for method, line in lines.items():
        yield {
            "table": "main",
            **context,
            "method": method,
            "max_epochs": MODELS[model].epochs(plan),
            "batch_size": batch_size(len(splits[0].train[0])),
            "rate": chosen[method],
            **line,
        }
    log = runs["RAP"][0]["log"]
    for line in transfer(splits[0], lines["Centralised"], lines["RAP"], log):
        yield {"table": "transfer", **context, **line}
    if plan.figures:
        rate = chosen["RAP"]
        about = {**context, "method": "RAP", "rate": rate}
        for what, group in by_clients(splits[: plan.figures], model, plan, rate):
            yield {**what, **about, **summary(group, runs["Centralised"], classes)}


# The paper's tables: its set, ours, and figures of the methods.
PAPER_TABLE_3 = """
CO | covtype | 87.67 ± 0.11 | 70.59 ± 0.21 | 87.62 ± 0.24 | 87.65 ± 0.19
SU | susy | 80.36 ± 0.25 | 78.54 ± 0.05 | 80.30 ± 0.19 | 80.33 ± 0.08
HI | higgs | 74.12 ± 0.13 | 65.81 ± 0.29 | 73.96 ± 0.23 | 74.10 ± 0.15
YP | yearprediction | 8.83 ± 0.23 | 9.61 ± 0.23 | 8.91 ± 0.24 | 8.87 ± 0.18
HP | not identified | 0.08 ± 0.02 | 75.24 ± 0.27 | 0.11 ± 0.03 | 0.10 ± 0.2
WO | not found | 98.27 ± 0.15 | 208.93 ± 0.19 | 98.95 ± 0.21 | 98.42 ± 0.12
"""
PAPER_TABLE_4 = [
    ("CO", "covtype", 111, 97, 55_000, 128),
    ("SU", "susy", 107, 87, 80_000, 124),
    ("HI", "higgs", 188, 146, 85_000, 255),
    ("YP", "yearprediction", 75, 65, 56_000, 90),
    ("HP", "not identified", 94, 82, 50_000, 107),
    ("WO", "not found", 11, 9, 7_000, 11),
]
PAPER_HEADER = ("Paper's set", "Ours", "Centralised", "Single", "SplitNN", "RAP")
PARTS = {
    "covtype": "CO, 0.6 million rows, 54 columns",
    "susy": "SU, 1 million rows, 18 columns",
    "higgs": "HI, 1 million rows, 28 columns",
    "digits": "none",
    "superconduct": "none; in place of YP in the figures",
    "california_housing": "stands in for HP, 0.5 million rows, 11 columns",
    "yearprediction": "YP, 0.5 million rows, 90 columns",
}
CLASSIFIED = ("covtype", "susy", "higgs", "digits")
REGRESSED = ("superconduct", "california_housing")
BARS = [
    ("RAP, labels unprotected", CLASSIFIED, -0.3, "0.3 points"),
    ("RAP", CLASSIFIED, -1.2, "1.2 points"),
    ('RAP, kind="gaussian", labels unprotected', CLASSIFIED, -1.5, "1.5 points"),
    ("RAP, labels unprotected", REGRESSED, 3, "3 %"),
    ("RAP", REGRESSED, 3, "3 %"),
]


def literal(name):
    """Return a method or data set as the page writes it."""
    return name.replace('kind="gaussian"', '``kind="gaussian"``')


def score(line):
    """Write mean ± standard deviation."""
    digits = 3 if line["mean"] < 2 else 2
    return f"{number(line['mean'], digits)} ± {number(line['std'], digits)}"


def difference(line):
    """Write the paired difference to centralised ± its standard error."""
    unit = "" if line["metric"] == "accuracy %" else " %"
    return f"{signed(line['difference'])} ± {number(line['standard_error'])}{unit}"


def verdict(line, bar):
    """Say whether the mean meets a bar, and whether the seeds can tell."""
    margin = line["difference"] - bar if bar < 0 else bar - line["difference"]
    near = abs(margin) <= 2 * line["standard_error"]
    return met(margin >= 0, near, no="no")


def bars_table(main):
    """Return what was asked for and what was seen."""
    rows = []
    for method, datasets, bar, words in BARS:
        for name in datasets:
            line = main["MLP"][name][method]
            seen = difference(line), line["seeds"], verdict(line, bar)
            rows.append((literal(method), name, f"within {words}", *seen))
    header = ("Method", "Data set", "Bar", "Seen", "Seeds", "Met")
    return listing("MLP, difference to centralised ± standard error", header, rows)


def score_table(lines_of, title):
    """Return our side of Table 3 for one model."""
    rows = []
    for name, lines in lines_of.items():
        central = lines["Centralised"]
        others = [lines[method] for method in METHODS[1:]]
        cells = [f"{score(line)} ({difference(line)})" for line in others]
        what = f"{name}, {central['metric']}"
        rows.append((what, central["seeds"], score(central), *cells))
    header = ("Data set", "Seeds", *map(literal, METHODS))
    return listing(title, header, rows)


def seconds_table(lines_of, title):
    """Return our side of Table 4 for one model."""
    rows = []
    cell = "{seconds:,.2f} ± {seconds_std:,.2f}; {epochs:g}; {rate:g}"
    for name, lines in lines_of.items():
        ratio = lines["RAP"]["seconds"] / lines["Centralised"]["seconds"]
        rows.append((name, *map(cell.format_map, lines.values()), number(ratio)))
    header = ("Data set", *map(literal, METHODS), "RAP ÷ Centralised")
    return listing(title, header, rows)


def paper_seconds_table():
    """Return the paper's Table 4, with the ratios that follow from it."""
    rows = []
    for *names, central, single, splitnn, rap in PAPER_TABLE_4:
        seconds = [f"{each:,}" for each in (central, single, splitnn, rap)]
        rows.append((*names, *seconds, number(rap / central), f"{splitnn / rap:.0f}"))
    header = (*PAPER_HEADER, "RAP ÷ Centralised", "SplitNN ÷ RAP")
    return listing("The paper's Table 4, seconds (its numbers)", header, rows)


def transfer_table(lines):
    """Return SplitNN's estimated training time against RAP's."""
    paper = {
        name: f"{splitnn / rap:.0f}" for _, name, *_, splitnn, rap in PAPER_TABLE_4
    }
    groups = defaultdict(list)
    for line in lines:
        groups[line["dataset"], line["model"]].append(line)
    rows = []
    for (name, model), group in groups.items():
        first = group[0]
        links = "{splitnn_transfer:,.1f} s, {rap_transfer:,.2f} s; {speed_up:,.1f}"
        rows.append(
            (
                f"{name}, {model}",
                f"{first['splitnn_rounds']:,}",
                f"{number(first['splitnn_bytes'] / 1e6, 1)} MB",
                f"{number(first['rap_bytes'] / 1e6, 1)} MB",
                *map(links.format_map, group),
                paper.get(name, "") if model == "MLP" else "",
            )
        )
    counts = ("SplitNN's rounds", "SplitNN's bytes", "RAP's bytes")
    header = ("Data set, model", *counts, *NETWORKS, "The paper's speed-up")
    title = "Transfer of SplitNN, of RAP; training time of SplitNN ÷ RAP (estimates)"
    return listing(title, header, rows)


def clients_table(lines, column, heading, title):
    """Return what figures 4 to 7 draw."""
    columns = {
        "Data set, model": "{dataset}, {model}",
        heading: f"{{{column}}}",
        "Metric": "{metric}",
        "RAP": score,
        "To centralised": difference,
        "CPU seconds": "{seconds:,.2f} ± {seconds_std:,.2f}",
        "Seeds": "{seeds}",
    }
    return table(title, lines, columns)


def write_page(lines):
    """Write the page of the benchmarks."""
    machine = one(lines, table="machine")
    main = {model: defaultdict(dict) for model in MODELS}
    for line in select(lines, table="main"):
        main[line["model"]][line["dataset"]][line["method"]] = line
    sizes = {
        "Ours": "{dataset}",
        "Rows": "{rows:,}",
        "Columns": "{columns}",
        "The paper's": lambda line: PARTS[line["dataset"]],
    }
    rates = {
        name: ", ".join(f"{rate:g}" for rate in model["rates"])
        for name, model in machine["models"].items()
    }
    scored = "mean ± standard deviation (to centralised)"
    spent = "CPU seconds of fit; epochs; learning rate"
    write(
        "rap_benchmarks",
        machine=machine,
        single=max(plan["single"] for plan in machine["plans"].values()),
        mlp_rates=rates["MLP"],
        lr_rates=rates["LR"],
        sizes=table(
            "The data",
            select(lines, table="main", model="MLP", method="Centralised"),
            sizes,
        ),
        bars=bars_table(main),
        mlp=score_table(main["MLP"], f"Ours, MLP: {scored}"),
        lr=score_table(main["LR"], f"Ours, LR: {scored}"),
        paper_scores=listing(
            "The paper's Table 3 (its numbers)", PAPER_HEADER, rows_of(PAPER_TABLE_3)
        ),
        mlp_seconds=seconds_table(main["MLP"], f"Ours, MLP: {spent}"),
        lr_seconds=seconds_table(main["LR"], f"Ours, LR: {spent}"),
        paper_seconds=paper_seconds_table(),
        transfer=transfer_table(select(lines, table="transfer")),
        by_clients=clients_table(
            select(lines, table="clients"),
            "clients",
            "Clients",
            "Ours, 2 to 10 clients",
        ),
        by_one_feature=clients_table(
            select(lines, table="one-feature clients"),
            "one_feature",
            "One-feature clients",
            "Ours, 1 to 5 of 10 clients with one column",
        ),
    )


if __name__ == "__main__":
    run(command(__doc__).parse_args(), "rap_papers", measure, write_page)
