"""
Boosted trees over parties
==========================

A bank and a shop grow boosted trees together: every split is made by the owner of its
column, and the trees are those of pooled columns. What labels give away, and what it
costs to limit that, is the second half.
"""

# %%
# The bank has the labels. Both curves are log losses on rows that were not trained on:
# over parties, and on all columns in one place.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skvfl import VFLBoostingClassifier

X, y = make_classification(
    2_000, 16, n_informative=10, class_sep=0.8, flip_y=0.05, random_state=0
)
parties = {"bank": slice(0, 6), "shop": slice(6, 16)}
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)


def loss(model):
    """Log loss on the rows that were held back."""
    return log_loss(y_test, model.fit(X_train, y_train).predict_proba(X_test))


numbers = [5, 10, 20, 40]
shared = [loss(VFLBoostingClassifier(parties=parties, max_iter=n)) for n in numbers]
pooled = [loss(HistGradientBoostingClassifier(max_iter=n)) for n in numbers]
alone = HistGradientBoostingClassifier(max_iter=40).fit(X_train[:, :6], y_train)

figure, ax = plt.subplots(layout="constrained")
ax.plot(numbers, pooled, "o", markersize=11, mfc="none", label="all columns pooled")
ax.plot(numbers, shared, "x-", label="bank and shop")
ax.axhline(
    log_loss(y_test, alone.predict_proba(X_test[:, :6])),
    color="grey",
    linestyle=":",
    label="the bank alone",
)
ax.set(xlabel="iterations", ylabel="log loss")
ax.legend()

# %%
# Fewer rounds
# ------------
# The best node first is two rounds for every split. Where the number of leaves is not
# limited, all nodes of a level are split at once.

first = VFLBoostingClassifier(parties=parties, max_iter=20, max_leaf_nodes=8)
level = VFLBoostingClassifier(
    parties=parties, max_iter=20, max_leaf_nodes=None, max_depth=3
)
for name, model in {"best first": first, "by level": level}.items():
    log = model.fit(X_train, y_train).communication_
    print(
        f"{name:10}  {log.n_rounds:5,} rounds, {log.n_bytes / 1e6:5.1f} MB, "
        f"accuracy {model.score(X_test, y_test):.3f}"
    )

# %%
# A budget for labels
# -------------------
# Gradients tell the shop every label. With ``label_epsilon`` the bank draws each label
# at random before anything else, so that the shop reads it rightly with probability
# :math:`e^ε / (e^ε + 1)` at most. Leaves are filled by the true labels, at the bank.

for epsilon in (0.5, 1.0, 2.0, None):
    model = VFLBoostingClassifier(
        parties=parties, max_iter=40, label_epsilon=epsilon, random_state=0
    )
    accuracy = model.fit(X_train, y_train).score(X_test, y_test)
    read = 1.0 if epsilon is None else np.exp(epsilon) / (1 + np.exp(epsilon))
    print(f"ε = {epsilon!s:4}  accuracy {accuracy:.3f}, labels read {read:.0%}")

# %%
# The bank learns something as well: sums, from which it can compute in which bin each
# of the shop's cells lies. :ref:`boosting_privacy` says how well.
