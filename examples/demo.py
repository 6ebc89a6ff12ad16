"""What ``make demo`` shows: what a federation would gain, and what it would cost.

Two generated companies need no file; breast cancer comes with scikit-learn. Adult and
covtype are read from the folder that SKVFL_DATA names, or from ../shared/data beside
this repository.
"""

import os
from pathlib import Path

from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier

from skvfl import (
    FedOnceClassifier,
    RandomProjectionVFL,
    SplitNNClassifier,
    VFLBoostingClassifier,
    compare,
)
from skvfl.alignment import align
from skvfl.datasets import available, load, make_two_companies

N_PARTIES = 4
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
# None is all rows.
N_ROWS = {"breast_cancer": None, "adult": 5_000, "covtype": 5_000}
# A penalty keeps the perceptron from learning the training rows by heart.
PERCEPTRON = MLPClassifier((128,), alpha=1.0, tol=1e-3, n_iter_no_change=5)
STOPPING = {"early_stopping": True, "n_iter_no_change": 5}
METHODS = {
    "RAP": RandomProjectionVFL(PERCEPTRON),
    "SplitNN": SplitNNClassifier(**STOPPING),
    "FedOnce": FedOnceClassifier(max_epochs=20, **STOPPING),
    "Boosting": VFLBoostingClassifier(max_iter=40, max_leaf_nodes=None, max_depth=4),
}
INTRODUCTION = """\
Several parties hold different columns about the same rows, and one of them holds the
labels. Is a federation worth it? Every line is one way to learn:
  alone        the party with the labels, on its own columns
  centralised  all columns pooled in one place, which the parties cannot do
  RAP          in one round: every party sends its columns multiplied by a secret
               matrix, and labels go as secret aliases of the classes (which the server
               can pair: it did in 20 of 20 fits on adult)
  SplitNN      joint training, with two messages per party and batch
  FedOnce      one upload of representations that are learnt without labels
  Boosting     the trees of pooled columns, split by split; gradients tell labels, and
               sums tell the bins of cells
"gain" is the difference to the best "alone", fold by fold, with its 95% interval in
points (corrected for folds that share rows); seconds are those of one fit on this
machine, and of its messages on a network of 100 Mbit/s and 20 ms."""


def main():
    home = os.environ.get("SKVFL_DATA") or BESIDE
    print(INTRODUCTION)
    companies = make_two_companies(n_samples=4000, random_state=0)
    aligned = align(companies.tables, on=companies.on, keep="intersection")
    target = companies.target[aligned.ids]
    show("two generated companies", aligned.table, target, aligned.parties)
    print(f"  (no model can gain more than {companies.gain:.1%} on these two)")
    found = available(home)
    for name, n_rows in N_ROWS.items():
        if name in found:
            dataset = load(name, data_home=home, n_rows=n_rows)
            show(name, dataset.data, dataset.target, N_PARTIES)
    missing = [name for name in N_ROWS if name not in found]
    if missing:
        print(
            f"\nNot shown: {' and '.join(missing)}. Set SKVFL_DATA to a folder that\n"
            "holds adult.csv.gz and covtype_full.csv.gz: Adult and Covertype of the\n"
            "UCI Machine Learning Repository (archive.ics.uci.edu), each as one CSV\n"
            "file with a line of column names."
        )


def show(name, X, y, parties):
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    frame = compare(METHODS, X, y, parties=parties, cv=folds, random_state=2)
    n_parties = parties if isinstance(parties, int) else len(parties)
    n_rows, n_columns = X.shape
    print(f"\n{name}: {n_rows:,} rows, {n_columns} columns, {n_parties} parties")
    print(
        f"  {'':26}{'accuracy':>9}  {'gain':>6} {'(95% interval)':16}"
        f"{'seconds':>8}{'network':>8}{'rounds':>7}{'sent':>9}"
    )
    # Other parties could learn alone only if they were given the labels.
    for label, row in frame[frame["shares"] != "raw labels"].iterrows():
        print(f"  {shorter(label):26}{row['score']:9.1%}  {gain(row)}{costs(row)}")
    verdicts = frame.loc[[*METHODS], "verdict"]
    for verdict in verdicts.unique():
        names = [label for label in METHODS if verdicts[label] == verdict]
        print(f"  {', '.join(names)}: {shorter(verdict)}")


def shorter(words):
    return words.replace("MLPClassifier", "perceptron")


def gain(row):
    if row["verdict"].startswith("what gains"):
        return f"{'-':>6} {'':16}"
    low, high = 100 * row["gain_low"], 100 * row["gain_high"]
    return f"{100 * row['gain']:+6.1f} {f'({low:+.1f} to {high:+.1f})':16}"


def costs(row):
    line = f"{row['fit_seconds']:8.1f}"
    if row["shares"] != "messages":
        return line
    return (
        f"{line}{row['transfer_seconds']:8.1f}{row['rounds']:7.0f}"
        f"{in_words(row['bytes']):>9}"
    )


def in_words(n_bytes):
    for unit in ("B", "kB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} MB"


if __name__ == "__main__":
    main()
