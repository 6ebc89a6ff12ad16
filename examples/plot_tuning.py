"""
Tuning a federation
===================

:class:`~sklearn.model_selection.GridSearchCV` searches over the parameters of a
federated estimator, of its parties' preparation, and of its transport's costs at once.
"""

# %%
# What is searched: how wide the cut layer is, and how each party prepares its columns.

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from skvfl import SplitNNClassifier, VerticalPartitioner

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
parties = {"clinic": list(X.columns[:10]), "lab": list(X.columns[10:])}
split = SplitNNClassifier(
    parties=VerticalPartitioner(StandardScaler(), parties=parties),
    max_epochs=10,
    batch_size=64,
    random_state=0,
)
grid = {
    "cut_width": [1, 2, 4, 16],
    "parties__transformer": [StandardScaler(), QuantileTransformer(n_quantiles=50)],
}
search = GridSearchCV(split, grid, cv=3, scoring="neg_log_loss").fit(X, y)
print(search.best_params_)

# %%
# The table of a search is a frame like any other.

found = pd.DataFrame(search.cv_results_)
found["preparation"] = [
    type(each).__name__ for each in found["param_parties__transformer"]
]
found.pivot(
    index="param_cut_width", columns="preparation", values="mean_test_score"
).round(3)

# %%
# What a number more costs
# ------------------------
# The cut layer's width is what crosses for every row, so accuracy has a price in bytes.
# ``communication_`` belongs to a fit; one fit for each width tells.

figure, ax = plt.subplots(layout="constrained")
best = found.loc[found.groupby("param_cut_width")["mean_test_score"].idxmax()]
sent = [
    split.set_params(cut_width=width).fit(X, y).communication_.n_bytes
    for width in best["param_cut_width"]
]
ax.semilogx(sent, best["mean_test_score"], "o-")
for width, x, score in zip(
    best["param_cut_width"], sent, best["mean_test_score"], strict=True
):
    ax.annotate(f"  {width} wide", (x, score), va="top")
ax.set(xlabel="bytes that crossed in fit", ylabel="negative log loss, 3 folds")
ax.margins(x=0.15)

# %%
# A search of eight candidates with three folds and a refit is 25 runs, each of which
# costs its rounds, and shows the same rows again.
