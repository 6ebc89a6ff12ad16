"""
Images in tiles
===============

Four cameras see a quarter of an image each. A convolutional network for every tile, a
joint model on top: with which methods, and what is left of it under a budget of
differential privacy?
"""

# %%
# Tiles are columns
# -----------------
# :class:`~skvfl.ImageTiles` says which pixels belong to which party. Pixels need no
# preparation, so columns are passed through.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from skvfl import (
    FedOnceClassifier,
    ImageTiles,
    NoiseAsTargetsEncoder,
    SplitNNClassifier,
    VerticalPartitioner,
    VFedSecClassifier,
)
from skvfl.nn import ConvolutionalBottom

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
tiles = VerticalPartitioner("passthrough", parties=ImageTiles(shape=(8, 8)))
tiles.fit(X_train)

figure, axes = plt.subplots(1, 5, figsize=(9, 2), layout="constrained")
seen = {f"a {y_test[0]}": X_test[:1], **tiles.split(X_test[:1])}
for ax, (name, pixels) in zip(axes, seen.items(), strict=True):
    side = int(np.sqrt(pixels.size))
    ax.imshow(np.reshape(pixels, (side, side)), cmap="gray_r", vmin=0, vmax=1)
    ax.set(title=name, xticks=[], yticks=[])

# %%
# A network for every tile
# ------------------------
# :class:`~skvfl.nn.ConvolutionalBottom` is a function that builds a network for the
# tile's shape. SplitNN and vFedSec take it as ``bottom``. FedOnce's guests take it in
# their encoder, which learns without labels and sends once.

tile = ConvolutionalBottom((4, 4))
options = {"parties": tiles, "max_epochs": 8, "random_state": 0}
methods = {
    "SplitNN, perceptrons": SplitNNClassifier(lr=3e-3, **options),
    "SplitNN": SplitNNClassifier(bottom=tile, lr=3e-3, **options),
    "vFedSec": VFedSecClassifier(bottom=tile, lr=3e-3, **options),
    "FedOnce": FedOnceClassifier(
        local_encoder=NoiseAsTargetsEncoder(16, hidden_layer_sizes=tile),
        bottom=tile,
        **options,
    ),
}

# %%
# Within a budget
# ---------------
# Under ``epsilon`` a network must treat rows one by one, and batch normalisation does
# not. A network of torch's own layers without it takes its place. The default guest
# needs no network: it sends random features of the pixels.


def private_tile(n_inputs, n_outputs):
    """Build a convolution without batch normalisation."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 16, n_outputs),
    )


methods["FedOnce, ε = 8, default guests"] = FedOnceClassifier(epsilon=8, **options)
methods["FedOnce, ε = 8, convolutions"] = FedOnceClassifier(
    local_encoder=NoiseAsTargetsEncoder(
        16, hidden_layer_sizes=private_tile, targets="projection"
    ),
    bottom=private_tile,
    epsilon=8,
    **options,
)
scores = {
    name: model.fit(X_train, y_train).score(X_test, y_test)
    for name, model in methods.items()
}

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
bars = ax.barh([*scores], [*scores.values()])
ax.bar_label(bars, fmt="%.2f", padding=3)
ax.invert_yaxis()
ax.set(xlabel="accuracy on the test images", xlim=(0, 1.1))

# %%
# Convolutions know that neighbouring pixels belong together, also where nobody has more
# than a tile. vFedSec adds up what the tiles' networks say, shows the server this sum
# only, and scores like SplitNN. A budget costs most where the guests' own networks have
# to share it: random features, which spend nothing of it, are ahead. What they send can
# be read by the host, though (:ref:`what_private_guests_send`).
