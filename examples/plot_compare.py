"""
Is federation worth it?
=======================

A federated model costs messages. Whether it pays depends on two models that need none:
the one trained on all columns in one place, and the one that the label owner trains
alone. :func:`~skvfl.compare` fits all of them on the same folds.
"""

# %%
# Three parties hold ten measurements each of the same 569 tumours: the means, the
# standard errors, and the worst values. The party ``error`` knows the diagnoses. Random
# projection competes in three variants: as it comes, without protection of the labels,
# and with two principal components of every party instead of ten columns.

import matplotlib.pyplot as plt
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skvfl import ComparisonDisplay, GaussianProjection, RandomProjectionVFL, compare
from skvfl.datasets import load

cancer = load("breast_cancer")
model = LogisticRegression()
short = make_pipeline(PCA(2), GaussianProjection())
frame = compare(
    {
        "RAP": RandomProjectionVFL(model),
        "RAP, open labels": RandomProjectionVFL(model, label_protection=False),
        "RAP, two components": RandomProjectionVFL(model, projection=short),
    },
    cancer.data,
    cancer.target,
    parties=cancer.parties,
    active="error",
    baseline=model,
    random_state=0,
)
frame[["shares", "score", "score_std", "fit_seconds", "rounds", "bytes"]].round(3)

# %%
# ``shares`` says what each way gives away. The other parties could only learn alone if
# they were given the labels; ``error`` learns alone without giving anything away, and
# is the one that federation has to beat.

display = ComparisonDisplay(frame).plot()

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
rap = frame.loc["RAP"]
for name, (bandwidth, latency) in networks.items():
    sending = 8e3 * rap["bytes"] / bandwidth
    waiting = 2e3 * latency * rap["rounds"]
    print(f"{name:31} {sending:6.2f} ms sending + {waiting:5.1f} ms waiting")

# %%
# A single round waits once. A protocol of a thousand rounds with the same bytes would
# wait a thousand times: 40 seconds on the second network.
#
# Other costs can be drawn as well:

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for cost, ax in zip(["transfer_seconds", "fit_seconds"], axes, strict=True):
    display.plot(cost, ax=ax)
axes[0].get_legend().remove()
