"""
From two CSV files to a decision
================================

A bank and a shop have a file each, about some of the same customers. The bank wants to
know who will default. Should the two sign a contract? This is the whole way from the
files to an answer.
"""

# %%
# Two files
# ---------
# They are generated here, so that anybody can run this. Both have numbers, words, truth
# values, dates and empty cells, and each has its own order of rows.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline

from skvfl import (
    FedOnceClassifier,
    PartyPreprocessor,
    RandomProjectionVFL,
    SplitNNClassifier,
    compare,
)
from skvfl.alignment import align
from skvfl.datasets import make_two_companies

folder = Path(tempfile.mkdtemp())
companies = make_two_companies(n_samples=3000, overlap=0.7, random_state=0)
bank = companies.tables["bank"].merge(companies.target, on="customer")
bank.to_csv(folder / "bank.csv", index=False)
companies.tables["shop"].to_csv(folder / "shop.csv", index=False)

for name in ("bank", "shop"):
    lines = (folder / f"{name}.csv").read_text().splitlines()
    print(f"{name}.csv, {len(lines) - 1:,} customers", *lines[:4], "", sep="\n")

# %%
# One table
# ---------
# Labels are no column to learn from, so they come out first. ``align`` finds the
# customers that both know.

bank = pd.read_csv(folder / "bank.csv")
shop = pd.read_csv(folder / "shop.csv")
defaulted = bank.set_index("customer")["defaulted"]
tables = {"bank": bank.drop(columns="defaulted"), "shop": shop}
aligned = align(tables, on="customer", keep="intersection")
X, y = aligned.table, defaulted[aligned.ids].to_numpy()
print(f"{len(X):,} customers of both, {y.mean():.0%} of whom defaulted")

# %%
# What would it gain?
# -------------------
# Three methods, and what the bank reaches alone. Nobody has encoded a word or parsed a
# date: each party prepares its own columns, by what it finds in them. Folds are
# repeated, because the question is whether a gain is more than noise.

methods = {
    "RAP": RandomProjectionVFL(LogisticRegression(max_iter=1000)),
    "FedOnce": FedOnceClassifier(max_epochs=15),
    "SplitNN": SplitNNClassifier(early_stopping=True, n_iter_no_change=3),
}
folds = RepeatedStratifiedKFold(n_splits=4, n_repeats=2, random_state=0)
frame = compare(
    methods,
    X,
    y,
    parties=aligned.parties,
    baseline=LogisticRegression(max_iter=1000),
    cv=folds,
    random_state=0,
)
frame[["score", "gain", "gain_low", "gain_high", "bytes", "rounds"]].round(3)

# %%
# A gain counts if its interval lies to the right of zero.

found = frame.loc[[name for name in frame.index if name != "shop alone"]].iloc[::-1]
places = np.arange(len(found))
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
low, high = found["gain"] - found["gain_low"], found["gain_high"] - found["gain"]
ax.errorbar(100 * found["gain"], places, xerr=100 * np.array([low, high]), fmt="o")
ax.axvline(0, color="grey", lw=1)
ax.axvline(100 * companies.gain, color="grey", ls=":", label="no model gains more")
ax.set_yticks(places, found.index)
ax.set_ylim(-0.5, len(found) - 0.5)
ax.set(xlabel="points of accuracy more than the bank alone, with 95 % intervals")
ax.legend(loc="upper left")

# %%
# The decision
# ------------
# Accuracy does not say what a model is worth. Say that a default that is foreseen saves
# 1,000, and turning down somebody who would have paid costs 600. What would each model
# have earned on customers that it had not seen?


def earned(model, table):
    """Per customer, if all are turned down for whom that pays on average."""
    risk = cross_val_predict(model, table, y, cv=4, method="predict_proba")[:, 1]
    turned_down = 1000 * risk > 600 * (1 - risk)
    return np.mean(turned_down * np.where(y, 1000, -600))


model = LogisticRegression(max_iter=1000)
alone = earned(make_pipeline(PartyPreprocessor(), model), X[aligned.parties["bank"]])
rap = RandomProjectionVFL(model, parties=aligned.parties, random_state=0)
together = earned(rap, X)
print(f"the bank alone earns {alone:.0f} per customer, with the shop {together:.0f}")

# %%
# So the two should talk, about the difference for every customer that both know, and
# about the other column of the table: who sees what.

print(frame.loc["RAP", "who_sees_what"])

# %%
# After the contract
# ------------------
# Between two companies the same estimator is given ``parties=connect("bank.toml")`` and
# the bank's own table; :ref:`between_organisations` says what each of them does. Here
# each half goes into a file of its own, which is all that its company keeps.

rap.fit(X, y)
for name in rap.halves_:
    rap.save_half(name, folder / f"{name}.half")
print(*sorted(path.name for path in folder.glob("*.half")))
