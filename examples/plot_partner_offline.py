"""
A partner that is offline
=========================

Contracts end and lines fail. What happens to predictions when one of the partners does
not answer? It depends on the method, and on whether it was told to go on.
"""

# %%
# A clinic has the diagnoses. A laboratory and an imaging company hold ten columns each.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvfl import APCVFLClassifier, FedOnceClassifier, SplitNNClassifier
from skvfl.exceptions import MissingPartyWarning, MissingRowsWarning

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
parties = {
    "clinic": list(X.columns[10:14]),
    "lab": list(X.columns[:10]),
    "imaging": list(X.columns[20:]),
}
X = X[[column for columns in parties.values() for column in columns]]
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)


def without(*names):
    """The test table when these parties are offline: they hold no value of it."""
    table = X_test.copy()
    for name in names:
        table[parties[name]] = np.nan
    return table


# %%
# FedOnce goes on with zeros if it is told to, APC-VFL needs nobody, and SplitNN takes
# rows of which a party holds nothing as if they were average. All of them say so.

options = {"parties": parties, "max_epochs": 30, "random_state": 0}
methods = {
    "FedOnce": FedOnceClassifier(missing_party="zero", **options),
    "APC-VFL": APCVFLClassifier(**options),
    "SplitNN": SplitNNClassifier(**options),
}
tables = {
    "all answer": without(),
    "lab offline": without("lab"),
    "both offline": without("lab", "imaging"),
}
scores = {}
for name, vfl in methods.items():
    vfl.fit(X_train, y_train)
    scores[name] = []
    for table in tables.values():
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            scores[name].append(vfl.score(table, y_test))
        kinds = {each.category for each in said}
        assert kinds <= {MissingPartyWarning, MissingRowsWarning}

alone = make_pipeline(StandardScaler(), LogisticRegression())
alone.fit(X_train[parties["clinic"]], y_train)
floor = alone.score(X_test[parties["clinic"]], y_test)

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
places = np.arange(len(tables))
for i, (name, values) in enumerate(scores.items()):
    ax.bar(places + 0.25 * (i - 1), values, 0.25, label=name)
ax.axhline(floor, color="black", linestyle=":", label="a model of the clinic's own")
ax.set(ylabel="accuracy on the test rows", ylim=(0.5, 1), xticks=places)
ax.set_xticklabels(tables)
figure.legend(loc="outside upper center", ncols=4)

# %%
# With every partner gone, a joint model can do worse than a model that never knew the
# partners. Keep one of your own for that day, or take APC-VFL, whose answers do not
# change.
