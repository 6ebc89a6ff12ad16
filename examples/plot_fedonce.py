"""
One round, and what more rounds buy
===================================

:class:`~skvfl.FedOnceClassifier` trains with one message per guest, and can go on with
split learning from there. This is the question of the paper's figure 6: which score is
there for how many bytes?
"""

# %%
# Four quarters of a digit
# ------------------------
# Four parties hold a quarter each of 1,797 handwritten digits. The first has the
# labels: it is the host.

import matplotlib.pyplot as plt
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from skvfl import (
    FedOnceClassifier,
    NoiseAsTargetsEncoder,
    RandomFeaturesEncoder,
    SplitNNClassifier,
    VerticalPartitioner,
)
from skvfl.datasets import load

digits = load("digits")
X_train, X_test, y_train, y_test = train_test_split(
    digits.data, digits.target, random_state=0
)


def fit_and_score(estimator):
    """Fit; return the bytes that crossed, and the score on the test rows."""
    estimator.fit(X_train, y_train)
    return estimator.communication_.n_bytes, estimator.score(X_test, y_test)


# %%
# Who does without whom
# ---------------------
# The host alone, and the same kind of network on all columns in one place.

model = MLPClassifier((64, 64), max_iter=60, early_stopping=True, random_state=0)
bounds = {}
for label, parties in {
    "Solo: the host alone": {"host": next(iter(digits.parties.values()))},
    "Combine: all columns in one place": digits.parties,
}.items():
    partition = VerticalPartitioner(parties=parties, remainder="drop")
    centralised = make_pipeline(partition, model).fit(X_train, y_train)
    bounds[label] = centralised.score(X_test, y_test)
    print(f"{label:35s} {bounds[label]:.3f}")

# %%
# Learning curves
# ---------------
# With the same ``random_state``, two split epochs begin with what one does, so a few
# fits give the score after each of them.

EPOCHS = (0, 1, 3, 8)
guest = NoiseAsTargetsEncoder(
    16, hidden_layer_sizes=(64,), output_activation="identity", max_epochs=30
)
curves = {
    "FedOnce, then split learning": [
        fit_and_score(
            FedOnceClassifier(
                parties=digits.parties,
                local_encoder=guest,
                batch_size=64,
                max_epochs=60,
                n_split_epochs=epochs,
                random_state=0,
            )
        )
        for epochs in EPOCHS
    ],
    "SplitNN": [
        fit_and_score(
            SplitNNClassifier(
                parties=digits.parties,
                cut_width=16,
                batch_size=64,
                max_epochs=epochs,
                random_state=0,
            )
        )
        for epochs in (1, 2, 4, 8, 16)
    ],
}
guests = {"PCA": PCA(16), "random features": RandomFeaturesEncoder(16)}
points = {
    f"FedOnce, {label}": fit_and_score(
        FedOnceClassifier(
            parties=digits.parties,
            local_encoder=guest,
            batch_size=64,
            max_epochs=60,
            random_state=0,
        )
    )
    for label, guest in guests.items()
}

figure, ax = plt.subplots(layout="constrained")
for label, curve in curves.items():
    ax.semilogx(*zip(*curve, strict=True), "o-", label=label)
for (label, point), marker in zip(points.items(), "s^", strict=True):
    ax.semilogx(*point, marker, label=label)
for (label, score), style in zip(bounds.items(), (":", "--"), strict=True):
    ax.axhline(score, color="grey", linestyle=style, label=label)
ax.set(xlabel="bytes that crossed in fit", ylabel="accuracy on the test rows")
ax.legend()

# %%
# The leftmost point of the first curve is the one round. Split learning needs more than
# ten times its bytes, in hundreds of rounds, to get there. The guests' transformer
# matters little here: a quarter of a digit has 16 pixels, so 16 numbers can hold all of
# it, and both 16 principal components and 16 random features do.

# %%
# The same with differential privacy
# ----------------------------------
# Random features learn nothing from the rows, so that the host has the whole budget.

private = FedOnceClassifier(
    parties=digits.parties,
    local_encoder=RandomFeaturesEncoder(16),
    max_epochs=40,
    epsilon=8,
    delta=1e-4,
    random_state=0,
)
_, score = fit_and_score(private)
print(f"accuracy {score:.3f}")
print(private.epsilon_spent_)
