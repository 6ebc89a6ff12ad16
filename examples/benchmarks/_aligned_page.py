"""The part of APC-VFL's page on the paper's Table II, which has a record of its own."""

import textwrap
from collections import defaultdict

import numpy as np
from _page import MINUS, listing, rows_of, signed
from _record import one, select
from _seeds import half_interval

# Micro, macro and weighted F1 on MIMIC-III, and the rounds of training.
PAPER_TABLE_2 = """
10000 | SplitNN | 0.8263 0.8146 0.8237 | 4,290 ± 641
10000 | APC-VFL, joint | 0.7468 0.7002 0.7280 | 1
7500 | SplitNN | 0.7704 0.7341 0.7652 | 3,146 ± 470
7500 | APC-VFL, joint | 0.7468 0.6895 0.7350 | 1
5000 | SplitNN | 0.7232 0.6885 0.7201 | 634 ± 124
5000 | APC-VFL, joint | 0.7416 0.6921 0.7290 | 1
2500 | SplitNN | 0.6976 0.6258 0.6703 | 563 ± 143
2500 | APC-VFL, joint | 0.7280 0.6714 0.7095 | 1
"""
# A rival of ours, whose networks are no smaller than APC-VFL's.
LARGE = "SplitNN, networks as large as APC-VFL's (ours)"


def papers(text):
    """Return the cells of one of the paper's tables by aligned rows and method."""
    return {(int(n), method): more for n, method, *more in rows_of(text)}


def by_method(lines, n_aligned, average):
    """Return the scores of Table II by method and seed."""
    found = defaultdict(dict)
    for line in select(lines, table="aligned", aligned=n_aligned):
        found[line["method"]][line["seed"]] = line[average]
    return found


def over_seeds(values, form="{:.1f}"):
    """Write the mean of some seeds, with its interval if there are several."""
    mean = form.format(np.mean(values)).replace("-", MINUS)
    return mean + (f" ± {half_interval(values):.1f}" if len(values) > 1 else "")


def aligned_counts(lines):
    """Return the numbers of aligned rows of Table II that are recorded."""
    return sorted({line["aligned"] for line in select(lines, table="aligned")})


def aligned_table(lines):
    """Return Table II: F1 scores by aligned rows, on covtype."""
    rows = []
    for n in aligned_counts(lines):
        scores = {a: by_method(lines, n, a) for a in ("micro", "macro", "weighted")}
        for method, values in scores["micro"].items():
            cells = [over_seeds([*of[method].values()]) for of in scores.values()]
            line = select(lines, table="aligned", aligned=n, method=method)[0]
            sent = f"{line['messages']:,}" if line["messages"] else ""
            rows.append([f"{n:,}", method, *cells, sent, len(values)])
    return listing(
        "covtype: F1 in %, mean ± half of the 95 % interval over the seeds",
        ["Aligned rows", "Method", "Micro", "Macro", "Weighted", "Messages", "Seeds"],
        rows,
    )


def gap_table(lines):
    """Return what APC-VFL is ahead of SplitNN by, here and in the paper."""
    paper, rows = papers(PAPER_TABLE_2), []
    for n in aligned_counts(lines):
        found = {
            average: by_method(lines, n, average) for average in ("micro", "macro")
        }
        for method in found["micro"]:
            if not (method.startswith("APC-VFL") or method == LARGE):
                continue
            cells = []
            for place, of in enumerate(found.values()):
                gaps = [x - of["SplitNN"][seed] for seed, x in of[method].items()]
                cells.append(over_seeds(gaps, "{:+.1f}"))
                theirs = ""
                if (n, method) in paper:
                    sides = (paper[n, m][0].split() for m in (method, "SplitNN"))
                    joint, split = (100 * float(side[place]) for side in sides)
                    theirs = signed(joint - split, 1)
                cells.append(theirs)
            rows.append([f"{n:,}", method, *cells, len(gaps)])
    return listing(
        "Ahead of SplitNN by points of F1: mean ± half of the 95 % interval, by seed",
        ["Aligned rows", "Method", "Micro", "Paper's", "Macro", "Paper's", "Seeds"],
        rows,
    )


def gap_verdict(lines, rival):
    """Say how far a rival is ahead with the most rows of several seeds."""
    n = max(x for x in aligned_counts(lines) if len(seeds_of(lines, x)) > 1)
    found = by_method(lines, n, "micro")
    gaps = {
        method: over_seeds([found[rival][seed] - x for seed, x in of.items()])
        for method, of in found.items()
        if method.startswith("APC-VFL")
    }
    listed = ", ".join(f"{gap} over *{method}*" for method, gap in gaps.items())
    said = f"With {n:,} aligned rows *{rival}* is ahead by so many points "
    said += f"(below zero: behind): {listed}."
    return textwrap.fill(said, 86, break_on_hyphens=False)


def seeds_of(lines, n_aligned):
    """Return the seeds that are recorded for SplitNN."""
    return by_method(lines, n_aligned, "micro")["SplitNN"]


def alone_table(lines):
    """Return the active party's F1 scores where it predicts alone, on covtype."""
    shown = select(lines, table="alone")
    found = {average: defaultdict(dict) for average in ("micro", "macro", "weighted")}
    for line in shown:
        for average, of in found.items():
            of[line["method"]][line["seed"]] = line[average]
    ablation, rows = found["micro"]["Ablation"], []
    for method, scores in found["micro"].items():
        cells = [over_seeds([*of[method].values()]) for of in found.values()]
        gains = [x - ablation[seed] for seed, x in scores.items()]
        cells.append("" if method == "Ablation" else over_seeds(gains, "{:+.1f}"))
        rows.append([method, *cells])
    about = shown[0]
    return listing(
        f"covtype, {about['rows']:,} rows, {about['aligned']:,} of them aligned: F1 in "
        f"%, mean ± half of the 95 % interval over {len(ablation)} seeds",
        ["Method", "Micro", "Macro", "Weighted", "Micro to ablation"],
        rows,
    )


def aligned_fields(lines):
    """Return what the page says of Table II, which has a record of its own."""
    where = one(lines, table="machine")
    return {
        "aligned": aligned_table(lines),
        "gaps": gap_table(lines),
        "gap_verdict": gap_verdict(lines, "SplitNN"),
        "large_verdict": gap_verdict(lines, LARGE),
        "alone": alone_table(lines),
        "aligned_test": where["test"],
        "aligned_training": where["training"],
        "aligned_streams": where["streams"],
    }
