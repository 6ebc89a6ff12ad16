"""
Random projection in one round
==============================

Four organisations each see one quarter of the same 1,797 handwritten digits. One of
them knows which digit each image shows. Together they train one model, and nobody hands
over a pixel: this is :class:`~skvfl.RandomProjectionVFL`.
"""

# %%
# Who holds which columns
# -----------------------
# A data set comes with its split: a name for every party and the columns it holds. The
# first party, ``top_left``, is the one with the labels.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skvfl import (
    GaussianProjection,
    PartyPreprocessor,
    RandomProjectionVFL,
    VerticalPartitioner,
)
from skvfl.datasets import load

digits = load("digits")
for party, columns in digits.parties.items():
    print(f"{party:13} {len(columns)} columns: {columns[0]} ... {columns[-1]}")

X_train, X_test, y_train, y_test = train_test_split(
    digits.data, digits.target, random_state=0
)

# %%
# Fit and predict
# ---------------
# Every party standardises its columns, multiplies them by a random matrix that it keeps
# to itself, and sends the product to a server once. The server trains any scikit-learn
# model on what arrives. Of the labels it sees aliases, two for every class, which only
# their owner can read. The server can find out which two belong together: by the means
# of the rows behind them it did so in 20 of 20 fits on these digits.

model = LogisticRegression(max_iter=1000)
vfl = RandomProjectionVFL(model, parties=digits.parties, random_state=0)
vfl.fit(X_train, y_train)
print(vfl.predict(X_test[:10]))
print(y_test[:10].to_numpy())

# %%
# The same model on all columns in one place is what to compare with. The same model on
# the columns of one party is what that party could do with the labels and no others.

centralised = make_pipeline(VerticalPartitioner(parties=digits.parties), model)
print(f"centralised   {centralised.fit(X_train, y_train).score(X_test, y_test):.3f}")
print(f"RAP           {vfl.score(X_test, y_test):.3f}")
for party, columns in digits.parties.items():
    single = VerticalPartitioner(parties={party: columns}, remainder="drop")
    alone = make_pipeline(single, model).fit(X_train, y_train)
    print(f"{party:13} {alone.score(X_test, y_test):.3f}")

# %%
# What crossed
# ------------
# Every message is counted: one round, in which each party sends its projection and the
# label owner its aliases.

print(vfl.communication_)
vfl.communication_.plot()
plt.tight_layout()

# %%
# What the server sees
# --------------------
# ``transform`` gives exactly that. Here are three digits, and below them the numbers
# that arrived, drawn in the quarters they came from.


def assemble(row):
    """Put the four parties' numbers back where their pixels were."""
    top_left, top_right, bottom_left, bottom_right = row.reshape(4, 4, 4)
    return np.block([[top_left, top_right], [bottom_left, bottom_right]])


received = vfl.transform(X_test)
figure, axes = plt.subplots(2, 3, layout="constrained")
for i, (image, projection) in enumerate(axes.T):
    image.imshow(X_test.to_numpy()[i].reshape(8, 8), cmap="gray_r")
    projection.imshow(assemble(received[i]), cmap="gray_r")
    image.set_title(f"digit {y_test.iloc[i]}")
axes[0, 0].set_ylabel("pixels")
axes[1, 0].set_ylabel("received")
for ax in axes.flat:
    ax.set(xticks=[], yticks=[])

# %%
# A picture that cannot be read is no proof of secrecy. What a random projection hides,
# and from whom it does not, is on :ref:`the privacy page <rap_privacy>`.
#
# Other applications
# ------------------
# The parties' side works by itself, in front of any scikit-learn estimator. The default
# projection keeps distances, so clusters of projected rows are those of the rows:

cluster = KMeans(10, n_init=3, random_state=0)
plain = make_pipeline(VerticalPartitioner(parties=digits.parties), cluster)
hidden = make_pipeline(
    VerticalPartitioner(
        make_pipeline(PartyPreprocessor(), GaussianProjection()),
        parties=digits.parties,
        random_state=0,
    ),
    cluster,
)
agreement = adjusted_rand_score(
    plain.fit_predict(digits.data), hidden.fit_predict(digits.data)
)
print(f"agreement of the clusters (adjusted Rand index): {agreement:.3f}")
