"""
Many rounds or one
==================

:class:`~skvfl.SplitNNClassifier` trains as if all columns lay in one place, and sends
activations and gradients for every batch. :class:`~skvfl.RandomProjectionVFL` sends one
message per party. What do all those rounds buy?
"""

# %%
# Learning curve
# --------------
# Four parties hold a quarter each of 1,797 handwritten digits. With the same
# ``random_state``, training for two epochs begins with what training for one does, so a
# few fits give the score after each number of epochs, and what has crossed by then.

import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from skvfl import RandomProjectionVFL, SplitNNClassifier, VerticalPartitioner
from skvfl.datasets import load

digits = load("digits")
X_train, X_test, y_train, y_test = train_test_split(
    digits.data, digits.target, random_state=0
)


def score_and_log(estimator):
    """Fit; return the score on the test rows and the log of what crossed."""
    estimator.fit(X_train, y_train)
    return estimator.score(X_test, y_test), estimator.communication_


curve = [
    score_and_log(
        SplitNNClassifier(
            parties=digits.parties, batch_size=64, max_epochs=epochs, random_state=0
        )
    )
    for epochs in (1, 2, 3, 5, 8, 12, 20)
]
print(curve[-1][1])

# %%
# The competitors: random projection, whose server trains a perceptron for as long as it
# likes without another message, and the same perceptron on all columns in one place.

model = MLPClassifier((128,), early_stopping=True, random_state=0)
one_round = score_and_log(
    RandomProjectionVFL(model, parties=digits.parties, random_state=0)
)
print(one_round[1])
centralised = make_pipeline(VerticalPartitioner(parties=digits.parties), model)
ceiling = centralised.fit(X_train, y_train).score(X_test, y_test)
print(f"SplitNN      {curve[-1][0]:.3f}")
print(f"RAP          {one_round[0]:.3f}")
print(f"centralised  {ceiling:.3f}")

# %%
# What a point of the curve costs
# -------------------------------
# In bytes, and in estimated transfer time on two networks: on the slow one, rounds cost
# more than bytes.

networks = {
    "10 Gbit/s, 0.1 ms": {"bandwidth": 10e9, "latency": 0.0001},
    "100 Mbit/s, 20 ms": {"bandwidth": 100e6, "latency": 0.02},
}
costs = {
    "bytes": lambda log: log.n_bytes,
    **{
        f"seconds to transfer, {name}": lambda log, network=network: log.transfer_time(
            **network
        )
        for name, network in networks.items()
    },
}
figure, axes = plt.subplots(1, 3, figsize=(11, 4), sharey=True, layout="constrained")
for ax, (label, cost) in zip(axes, costs.items(), strict=True):
    scores, logs = zip(*curve, strict=True)
    ax.semilogx([cost(log) for log in logs], scores, "o-", label="SplitNN, by epoch")
    ax.semilogx(cost(one_round[1]), one_round[0], "s", label="RAP")
    ax.axhline(ceiling, color="grey", linestyle="--", label="centralised")
    ax.set_xlabel(label)
axes[0].set_ylabel("accuracy on the test rows")
axes[0].legend()

# %%
# The gap between the two prices is the reason for one-round methods. The gap between
# the two scores is small on these data; :func:`~skvfl.compare` measures both on yours.
# What each method lets whom learn is another question, which the user guide answers for
# :ref:`SplitNN <splitnn>` and for :ref:`random projection <rap_privacy>`.
