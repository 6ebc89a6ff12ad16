"""
Train with a partner, predict without
=====================================

A clinic has a few cheap columns of many patients, and few diagnoses. A lab has
expensive columns of some of the same patients. They train together once; then the lab
leaves, and the clinic predicts alone with :class:`~skvfl.APCVFLClassifier`.
"""

# %%
# Two tables with ids
# -------------------
# The clinic's five columns are those of the APC-VFL paper. The lab knows 300 of the
# clinic's patients, and some that the clinic does not.

import pickle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvfl import APCVFLClassifier
from skvfl.alignment import align

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
cheap = [
    "worst compactness",
    "concave points error",
    "smoothness error",
    "mean texture",
    "worst fractal dimension",
]
patients = np.random.default_rng(0).permutation(len(X))
known, later = patients[:400], patients[400:]
clinic = X.loc[known, cheap].assign(patient=known)
seen_by_lab = np.concatenate([known[:300], later[:50]])
lab = X.loc[seen_by_lab].drop(columns=cheap).assign(patient=seen_by_lab)
lab = lab.sample(frac=1, random_state=0)

# %%
# :func:`~skvfl.alignment.align` keeps every patient of the clinic. Where the lab does
# not know one, its block is missing.

table, parties, ids, held = align({"clinic": clinic, "lab": lab}, on="patient")
print({name: int(rows.sum()) for name, rows in held.items()}, "of", len(table))

# %%
# One exchange
# ------------
# Only 30 patients have a diagnosis. The teacher on all columns of these predicts the
# other patients that both know, and the clinic's model learns from both.

diagnosis = pd.Series(y[ids].to_numpy(), dtype="Int64")
diagnosis[30:] = pd.NA
vfl = APCVFLClassifier(parties=parties, distillation="prediction", random_state=0)
vfl.fit(table, diagnosis)
print(vfl.communication_)

# %%
# The partner leaves
# ------------------
# What remains is a pipeline over the clinic's columns. It is saved, loaded, and asked
# about patients whom nobody has seen before.

saved = pickle.dumps(vfl.active_estimator_)
del vfl, lab, table
model = pickle.loads(saved)
print(list(model.named_steps))
print(f"accuracy on new patients: {model.score(X.loc[later, cheap], y[later]):.3f}")

# %%
# Was it worth it?
# ----------------
# Once is an anecdote. Ten times, beside the clinic's own logistic regression on the
# same diagnoses, and with none of the lab's help (``distillation=None``):


def scores(seed, n_labels):
    """Accuracy on new patients of the three models."""
    patients = np.random.default_rng(seed).permutation(len(X))
    known, later = patients[:400], patients[400:]
    labelled = np.arange(400) < n_labels
    table, own, new = X.loc[known], X.loc[known, cheap], X.loc[later, cheap]
    local = make_pipeline(StandardScaler(), LogisticRegression())
    yield local.fit(own[labelled], y[known][labelled]).score(new, y[later])
    for distillation in (None, "prediction"):
        vfl = APCVFLClassifier(
            parties=parties, distillation=distillation, max_epochs=20, random_state=seed
        )
        vfl.fit(table, y[known], labelled=labelled, aligned=np.arange(400) < 300)
        yield vfl.score(new, y[later])


counts = [20, 50, 400]
runs = np.array([[list(scores(seed, n)) for seed in range(10)] for n in counts])
names = ["local", "ablation", "prediction"]
print(pd.DataFrame(runs.mean(axis=1), counts, names).round(3))

# %%
# The gain over the local model, with its standard error: it is there where labels are
# few, and gone when every patient has one. What the clinic's columns can say of a
# diagnosis is the ceiling; the lab helps to reach it with fewer diagnoses, not to
# raise it. :ref:`apc_benchmarks` has the careful version.

gain = 100 * (runs[:, :, 1:] - runs[:, :, :1])
figure, ax = plt.subplots()
for i, name in enumerate(names[1:]):
    ax.errorbar(
        np.arange(len(counts)) + 0.1 * i,
        gain[:, :, i].mean(axis=1),
        gain[:, :, i].std(axis=1, ddof=1) / np.sqrt(gain.shape[1]),
        fmt="o",
        capsize=4,
        label=name,
    )
ax.axhline(0, color="grey", linestyle="--")
ax.set(
    xticks=range(len(counts)),
    xticklabels=counts,
    xlabel="diagnoses",
    ylabel="points of accuracy over the local model",
)
ax.legend()
