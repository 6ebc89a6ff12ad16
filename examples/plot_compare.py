"""
Is federation worth it?
=======================

A federated model costs messages and privacy. Whether it pays depends on a model that
needs neither: the one that the label owner trains alone. :func:`~skvfl.compare` fits
all of them on the same folds and says what is gained.
"""

# %%
# A bank wants to know which customers will default, and a shop knows many of them, too.
# Their tables are generated, so that it is known how much the bank can gain at most;
# they have ids, numbers, words, dates and missing cells.

import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from skvfl import (
    ComparisonDisplay,
    FedOnceClassifier,
    RandomProjectionVFL,
    SplitNNClassifier,
    compare,
)
from skvfl.alignment import align
from skvfl.datasets import make_two_companies

companies = make_two_companies(n_samples=4000, random_state=0)
aligned = align(companies.tables, on="customer", keep="intersection")
y = companies.target[aligned.ids]
print(f"{len(y):,} customers of both; at most {companies.gain:.3f} to gain")

# %%
# Random projection competes with protected labels and with open ones, split learning
# with a width that is chosen by a search, and FedOnce with two budgets of differential
# privacy.

model = LogisticRegression(max_iter=1000)
split = SplitNNClassifier(early_stopping=True, n_iter_no_change=3)
methods = {
    "RAP": RandomProjectionVFL(model),
    "RAP, open labels": RandomProjectionVFL(model, label_protection=False),
    "SplitNN, tuned": GridSearchCV(split, {"cut_width": [4, 32]}, cv=2),
    "FedOnce, ε = 1": FedOnceClassifier(epsilon=1.0, max_epochs=10),
    "FedOnce, ε = 8": FedOnceClassifier(epsilon=8.0, max_epochs=10),
}
frame = compare(
    methods, aligned.table, y, parties=aligned.parties, cv=4, random_state=0
)
frame[["score", "gain", "gain_low", "gain_high", "verdict"]].round(3)

# %%
# "bank alone" is what federation has to beat. Its better baseline is what gains are
# measured from, fold by fold; the interval is corrected for folds that share rows. The
# shop could only learn alone if it were given the labels.
#
# What does a gain cost, and who sees what?

frame.loc[[*methods], ["rounds", "bytes", "transfer_seconds", "epsilon"]].round(2)

# %%

for name in methods:
    print(f"{name}: {frame.loc[name, 'who_sees_what']}")

# %%
# Points that would cover each other are drawn side by side.

display = ComparisonDisplay(frame).plot()

# %%
# The budget of differential privacy is a cost, too. Only methods that have one are
# drawn.

display.plot("epsilon")

# %%
# Two networks
# ------------
# How long a method's messages take depends on the network: bytes cost bandwidth, rounds
# cost latency. ``transfer_seconds`` is for one network, 100 Mbit/s with 20 ms unless
# told otherwise; the counts give it for any other, by the formula of
# :meth:`~skvfl.CommunicationLog.transfer_time`.

networks = {
    "data centre, 10 Gbit/s, 0.1 ms": (10e9, 0.0001),
    "internet, 100 Mbit/s, 20 ms": (100e6, 0.02),
}
for name in ("RAP", "SplitNN, tuned"):
    costs = frame.loc[name]
    for network, (bandwidth, latency) in networks.items():
        sending = 8 * costs["bytes"] / bandwidth
        waiting = 2 * latency * costs["rounds"]
        print(f"{name:15} {network:31} {sending:7.3f} s + {waiting:7.3f} s waiting")

# %%
# A single round waits once, and hundreds of rounds wait hundreds of times.
#
# Other costs can be drawn as well:

figure, axes = plt.subplots(1, 2, figsize=(12, 4), sharey=True, layout="constrained")
for cost, ax in zip(["transfer_seconds", "fit_seconds"], axes, strict=True):
    display.plot(cost, ax=ax)
axes[0].get_legend().remove()
