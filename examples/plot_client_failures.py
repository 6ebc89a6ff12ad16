"""
Training with parties that fail
===============================

:class:`~skvfl.TabVFLClassifier` trains one TabNet across parties. What happens to it
when a party is offline in a third, or in half, of all epochs?
"""

# %%
# One host and two guests
# -----------------------
# The insurer knows who is ill and holds no measurements. A laboratory and a clinic hold
# fifteen columns each. A guest that fails is offline for a whole epoch, never in the
# first one.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from skvfl import ClientFailures, TabVFLClassifier

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
parties = {"insurer": [], "lab": X.columns[:15], "clinic": X.columns[15:]}


def fit(probability=0.0, missing_party="cache", seed=0):
    """Train with failures."""
    return TabVFLClassifier(
        parties=parties,
        active="insurer",
        max_epochs=15,
        batch_size=64,
        failure=ClientFailures(probability, random_state=seed),
        missing_party=missing_party,
        random_state=seed,
    ).fit(X_train, y_train)


reliable = fit()
print(f"without failures {reliable.score(X_test, y_test):.3f}")
print(reliable.communication_)

# %%
# Cache or zeros
# --------------
# The host goes on with what the guest sent last for each row, or with zeros.

probabilities = [0.2, 0.35, 0.5]
figure, axes = plt.subplots(layout="constrained")
for missing_party, marker in (("cache", "o"), ("zero", "s")):
    scores = [
        np.mean(
            [
                fit(probability, missing_party, seed).score(X_test, y_test)
                for seed in range(3)
            ]
        )
        for probability in probabilities
    ]
    axes.plot(probabilities, scores, marker=marker, label=missing_party)
axes.axhline(
    reliable.score(X_test, y_test), color="grey", ls="--", label="no failures, one seed"
)
axes.set(xlabel="probability of a failure", ylabel="accuracy on the test rows")
axes.legend()

# %%
# ``failures_`` says who was offline when, and the loss shows it.

failing = fit(0.5, "zero")
print(failing.failures_[:4])
figure, axes = plt.subplots(layout="constrained")
axes.plot(reliable.loss_curve_, label="no failures")
axes.plot(failing.loss_curve_, label="zeros, probability 0.5")
axes.plot(fit(0.5).loss_curve_, label="cache, probability 0.5")
axes.set(xlabel="epoch of finetuning", ylabel="loss")
axes.legend()

# %%
# Where the network looks
# -----------------------
# The attention over what the two guests send. The columns of a guest are mixed before
# they leave it, so that only its total says something.

weights = reliable.explain(X_test)
for name, each in weights.items():
    print(f"{name:8} {each.sum(axis=1).mean():.2f}")
