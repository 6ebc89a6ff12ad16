"""
What the server sees
====================

In split learning every party sends the outputs of its bottom model, and whoever
receives them can read them. :class:`~skvfl.VFedSecClassifier` puts masks on them that
cancel in the sum. Here are the same numbers plain and masked, side by side, and then
what an attacker can make of them.
"""

# %%
# The same training twice
# -----------------------
# Four parties hold a quarter each of 1,797 handwritten digits. We train twice with the
# same ``random_state``, once without masks, and keep what the server receives. Both
# runs give the same model, to the last bit: masks cost no accuracy.

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import chisquare
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from skvfl import VFedSecClassifier
from skvfl.datasets import load
from skvfl.privacy import FixedPoint

digits = load("digits")
fitted = {
    name: VFedSecClassifier(
        parties=digits.parties,
        masked=name == "masked",
        max_epochs=10,
        record_server_view=True,
        random_state=0,
    ).fit(digits.data, digits.target)
    for name in ("plain", "masked")
}
masked = fitted["masked"]
same = np.array_equal(*(model.transform(digits.data) for model in fitted.values()))
print(f"the same model: {same}, score {masked.score(digits.data, digits.target):.3f}")

# %%
# One message
# -----------
# The party ``bottom_left`` sends 32 activations for each row of a batch, as integers
# modulo 2\ :sup:`32`. Without masks (left) they are its activations, as fixed-point
# numbers; negative ones are at the upper end. With masks (right) every one of the
# 2\ :sup:`32` integers is equally likely, whatever the activation was.

numbers = FixedPoint(len(digits.parties), bound=masked.bound)


def received(model, what, client):
    """Return what the server got from a client, batch after batch."""
    return [
        record.array
        for record in model.server_view_
        if (record.what, record.client) == (what, client)
    ]


messages = {
    name: received(model, "secure layer", "bottom_left")[-15]
    for name, model in fitted.items()
}
figure, axes = plt.subplots(2, 2, figsize=(8, 6), layout="constrained")
for (name, message), (image, histogram) in zip(messages.items(), axes.T, strict=True):
    image.imshow(message.astype(np.int32)[:64], cmap="RdBu", aspect="auto")
    image.set(title=name, xlabel="unit", ylabel="row of the batch")
    histogram.hist(message.ravel(), bins=64, range=(0, 2**32))
    histogram.set(xlabel="number on the wire", ylabel="count")

# %%
# Are they uniform? A chi-squared test of all numbers that the party sent, byte by byte
# from the lowest to the highest. Masked numbers pass: their p-values are themselves
# uniform between 0 and 1, and others whenever this page is built. Of the plain ones,
# only a byte of low digits looks random.

for name, model in fitted.items():
    sent = np.concatenate(received(model, "secure layer", "bottom_left"))
    octets = sent.astype("<u4").view(np.uint8).reshape(-1, 4)
    counts = np.stack([np.bincount(octet, minlength=256) for octet in octets.T])
    p_values = [chisquare(count).pvalue for count in counts]
    print(f"{name:7}", " ".join(f"{p:.3f}" for p in p_values))

# %%
# The sum
# -------
# What the server needs is the sum over all parties, and there the masks cancel exactly.
# It is the output of the secure layer, which goes into the rest of the network.

sums = {
    name: sum(received(model, "secure layer", party)[-15] for party in digits.parties)
    for name, model in fitted.items()
}
print("equal sums:", np.array_equal(sums["plain"], sums["masked"]))
print("the first row:", numbers.decode(sums["masked"])[0, :5].round(2))

# %%
# Which rows are in a batch is for the parties alone. The server passes on a sealed list
# of ids, of the same length whatever is in it:

for name, model in fitted.items():
    ids = received(model, "row ids", "bottom_left")[0]
    print(f"{name:7} {len(ids)} numbers: {ids[:8]} …")

# %%
# An attack
# ---------
# Suppose that the server knew the pixels of half of the images, and which row is which.
# It could train a model that turns messages back into pixels, and read the other half.
# We play that server, with the row ids of the plain run, which the masked run repeats:
# from each party's messages of the last epoch it reconstructs that party's quarter.

n_batches = len(received(masked, "secure layer", "bottom_left")) // 10
order = np.concatenate(received(fitted["plain"], "row ids", "bottom_left")[-n_batches:])
pixels = digits.data.iloc[order]
known = np.arange(len(order)) % 2 == 0


def last_epoch(model, party):
    """Return what the server got from a party in the last epoch."""
    return np.concatenate(received(model, "secure layer", party)[-n_batches:])


def attack(view, quarter):
    """Return the quarter of the unknown images, reconstructed from the view."""
    values = numbers.decode(view)
    scaled = values / values.std()
    return Ridge().fit(scaled[known], quarter[known]).predict(scaled[~known])


def assemble(quarters):
    """Put the quarters of every image back where they were."""
    a, b, c, d = (quarter.reshape(-1, 4, 4) for quarter in quarters)
    return np.block([[a, b], [c, d]])


total = sum(last_epoch(masked, party) for party in digits.parties)
views = {
    "plain messages": lambda party: last_epoch(fitted["plain"], party),
    "masked messages": lambda party: last_epoch(masked, party),
    "their sum": lambda party: total,
}
quarters = [pixels[columns].to_numpy() for columns in digits.parties.values()]
images = {"true pixels": [quarter[~known] for quarter in quarters]}
for name, view in views.items():
    images[name] = [
        attack(view(party), quarter)
        for party, quarter in zip(digits.parties, quarters, strict=True)
    ]
    r2 = r2_score(
        np.hstack(images["true pixels"]),
        np.hstack(images[name]),
        multioutput="variance_weighted",
    )
    print(f"{name:16} R² of the reconstructed pixels: {r2:5.2f}")

# %%
# Plain messages give the images away. Masked ones give nothing, the mean image at best.

figure, axes = plt.subplots(4, 6, figsize=(8, 6), layout="constrained")
for row, (name, parts) in zip(axes, images.items(), strict=True):
    for ax, image in zip(row, assemble(parts), strict=False):
        ax.imshow(image, cmap="gray_r", vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)

# %%
# What stays visible
# ------------------
# The last row is what the protocol does show: the digits can be read. Masks hide who
# contributed what; they do not hide the sum, on which the server trains, and 32 units
# say a lot about 64 pixels. The server also has the labels. What it lacks for this
# attack are the row ids and the known pixels.
#
# And masks hide a party only among others. If all other parties tell the server what
# they sent, the rest of the sum is the last party's contribution.
