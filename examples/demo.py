"""What ``make demo`` shows: random projection against pooling and against one party.

Breast cancer comes with scikit-learn. Adult and covtype are read from the folder that
SKVFL_DATA names, or from ../shared/data beside this repository.
"""

import os
from pathlib import Path

from sklearn.model_selection import ShuffleSplit
from sklearn.neural_network import MLPClassifier

from skvfl import RandomProjectionVFL, compare
from skvfl.datasets import available, load

N_PARTIES = 4
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
ONE_SPLIT = ShuffleSplit(1, test_size=0.3, random_state=0)
NETWORK = {"hidden_layer_sizes": (128,), "learning_rate_init": 0.003}
SMALL = MLPClassifier(**NETWORK, tol=1e-3, batch_size=32, max_iter=500)
LARGE = MLPClassifier(**NETWORK, tol=3e-3, n_iter_no_change=5)
RUNS = {
    "breast_cancer": {"n_rows": None, "cv": 5, "model": SMALL},
    "adult": {"n_rows": None, "cv": ONE_SPLIT, "model": LARGE},
    "covtype": {"n_rows": 50_000, "cv": ONE_SPLIT, "model": LARGE},
}
INTRODUCTION = f"""\
The columns of each table are dealt to {N_PARTIES} parties, the first of which holds the
labels. The same network (one hidden layer of 128 units) learns in three ways:
  centralised        on all columns, pooled in one place
  best single party  on the columns of one party, if it were given the labels
  RAP                in one round: every party sends its columns multiplied by a secret
                     random matrix, and labels go as secret aliases of the classes
                     (which the server can pair: it did in 20 of 20 fits on adult)
Accuracy is on rows held out, and another random seed moves it by about a point;
seconds are those of one fit on this machine."""


def main():
    home = os.environ.get("SKVFL_DATA") or BESIDE
    print(INTRODUCTION)
    found = available(home)
    for name, run in RUNS.items():
        if name in found:
            dataset = load(name, data_home=home, n_rows=run["n_rows"])
            show(name, dataset, run["cv"], run["model"])
    missing = [name for name in RUNS if name not in found]
    if missing:
        print(
            f"\nNot shown: {' and '.join(missing)}. Set SKVFL_DATA to a folder that\n"
            "holds adult.csv.gz and covtype_full.csv.gz: Adult and Covertype of the\n"
            "UCI Machine Learning Repository (archive.ics.uci.edu), each as one CSV\n"
            "file with a line of column names."
        )


def show(name, dataset, cv, model):
    n_rows, n_columns = dataset.data.shape
    how = "one split, 30% held out" if cv is ONE_SPLIT else f"mean of {cv} folds"
    print(f"\n{name}: {n_rows:,} rows, {n_columns} columns; {how}")
    frame = compare(
        {"RAP": RandomProjectionVFL(model)},
        dataset.data,
        dataset.target,
        parties=N_PARTIES,
        baseline=model,
        cv=cv,
        random_state=2,
    )
    alone = frame[frame["shares"].isin(["nothing", "raw labels"])]
    best = alone["score"].idxmax()
    lines = {
        "centralised": frame.loc["centralised"],
        f"best single party ({best.removesuffix(' alone')})": frame.loc[best],
        "RAP, labels protected": frame.loc["RAP"],
    }
    print(f"{'':28}{'accuracy':>10}{'seconds':>10}{'rounds':>10}{'sent':>10}")
    for label, row in lines.items():
        federated = row["shares"] == "messages"
        rounds = f"{row['rounds']:.0f}" if federated else "-"
        sent = in_words(row["bytes"]) if federated else "-"
        print(
            f"  {label:26}{row['score']:10.1%}{row['fit_seconds']:10.1f}"
            f"{rounds:>10}{sent:>10}"
        )


def in_words(n_bytes):
    for unit in ("B", "kB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} MB"


if __name__ == "__main__":
    main()
