"""
Trees in one round
==================

Trees look only at the order of a column's values. So a party can send, in place of its
columns, the number of the bin that each value lies in; the server then grows the trees
of the pooled, binned columns. Nothing has to be built for it: a partitioner, a
discretiser and any tree model are a pipeline.
"""

# %%
# Four parties share the columns of a generated table. Each cuts its own columns at
# their quantiles and sends the bins' numbers, once.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer

from skvfl import VerticalPartitioner

X, y = make_classification(
    3_000, 20, n_informative=12, n_redundant=4, class_sep=0.8, random_state=0
)
trees = HistGradientBoostingClassifier(max_iter=60, random_state=0)


def ranks(n_bins):
    """Numbers of bins that hold as many rows each, in place of values."""
    return KBinsDiscretizer(
        n_bins, encode="ordinal", strategy="quantile", quantile_method="linear"
    )


def in_bins(n_bins):
    """Trees at the server, which receives the bins of four parties."""
    return make_pipeline(VerticalPartitioner(ranks(n_bins), parties=4), trees)


pooled = cross_val_score(trees, X, y, cv=3).mean()
alone = cross_val_score(trees, X[:, ::4], y, cv=3).mean()
numbers = [4, 8, 16, 32, 128]
scores = [cross_val_score(in_bins(n), X, y, cv=3).mean() for n in numbers]

figure, ax = plt.subplots(layout="constrained")
ax.semilogx(numbers, scores, "o-", base=2, label="bins of four parties")
ax.axhline(pooled, color="grey", label="all columns in one place")
ax.axhline(alone, color="grey", linestyle=":", label="the first party's columns alone")
ax.set(xlabel="bins per column", ylabel="accuracy, 3 folds", xticks=numbers)
ax.set_xticklabels(numbers)
ax.legend()

# %%
# With enough bins the trees score like those of pooled columns. And whatever the number
# of bins, they *are* the trees of pooled bins, to the last bit: nothing was projected,
# masked or noised, and it makes no difference who cut a column.

split = VerticalPartitioner(parties=4).fit(X)
order = np.concatenate([*split.parties_.values()])
one_place = make_pipeline(ranks(32), trees).fit(X[:, order], y)
four_places = in_bins(32).fit(X, y)
(one_place.predict_proba(X[:, order]) == four_places.predict_proba(X)).all()

# %%
# What the bins give away
# -----------------------
# The same property that makes it work gives columns away. Whoever knows how a column is
# distributed, for example from a census, reads a value from its rank. Here the server
# has a sample of 300 similar people and guesses the middle of the bin.

rng = np.random.default_rng(0)
column, sample = X[:, 4], rng.choice(X[:, 4], 300, replace=False)
for n_bins in (4, 32, 128):
    bins = ranks(n_bins).fit_transform(column[:, None])[:, 0]
    guessed = np.quantile(sample, (bins + 0.5) / n_bins)
    error = 1 - ((guessed - column) ** 2).sum() / ((column - column.mean()) ** 2).sum()
    print(f"{n_bins:4} bins: R² of the guessed column {error:.2f}")

# %%
# So this is a way to share data under a contract, with a knob: fewer bins say less and
# score less. It is no protection from a server that knows the distributions.
