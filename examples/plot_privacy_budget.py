"""
Accuracy for a budget of differential privacy
=============================================

FedOnce keeps the networks that it releases within a budget ε. What does it cost, and
what does ε not say?
"""

# %%
# Three companies, of which the first has the labels. The guests' encoders are random
# features, which look at no row and spend nothing, so that the host has the whole
# budget.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvfl import FedOnceClassifier, RandomFeaturesEncoder

X, y = load_breast_cancer(return_X_y=True)
parties = {"clinic": range(6), "lab": range(6, 18), "imaging": range(18, 30)}


def private(epsilon):
    """FedOnce within a budget; None is without one."""
    return FedOnceClassifier(
        parties=parties,
        local_encoder=RandomFeaturesEncoder(),
        max_epochs=20,
        epsilon=epsilon,
        random_state=0,
    )


budgets = [0.5, 1, 2, 4, 8, 16]
scores = np.array([cross_val_score(private(e), X, y, cv=3) for e in budgets])
open_score = cross_val_score(private(None), X, y, cv=3).mean()
alone = make_pipeline(StandardScaler(), LogisticRegression())
floor = cross_val_score(alone, X[:, :6], y, cv=3).mean()

figure, ax = plt.subplots(layout="constrained")
ax.errorbar(budgets, scores.mean(axis=1), scores.std(axis=1), fmt="o-", label="FedOnce")
ax.set_xscale("log", base=2)
ax.axhline(open_score, color="grey", label="without a budget")
ax.axhline(floor, color="grey", ls=":", label="the clinic alone, without a budget")
ax.set(xlabel="ε of the released networks (δ = 1e-5)", ylabel="accuracy, 3 folds")
ax.set_xticks(budgets, budgets)
ax.legend(loc="lower right")

# %%
# 569 rows are few for differential privacy: a row more or less must not matter, and of
# these rows each one does. With ten times the rows the curve moves left.
#
# What the number means
# ---------------------
# A guess at even odds whether a person was among the rows is right at most so often:

for epsilon in budgets:
    odds = np.exp(epsilon)
    print(f"ε = {epsilon:4}: {odds / (1 + odds):.1%}")

# %%
# And what it does not cover
# --------------------------
# ε is about the finished networks. The host has seen a representation of every row:

print(private(4).fit(X, y).epsilon_spent_)
