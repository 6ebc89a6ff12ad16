"""Shallow autoencoders, and the distillation of a representation into one."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from skvfl.nn._explicit import Explicit
from skvfl.nn._mlp import linear

DISTANCES = {
    "mse": lambda difference: difference.square().sum(dim=1),
    "mae": lambda difference: difference.abs().sum(dim=1),
}
# Their derivatives with respect to the differences.
SLOPES = {"mse": lambda difference: 2 * difference, "mae": torch.sign}


class Autoencoder(nn.Module):
    """Linear layers with a SELU after each but the decoder's last.

    Parameters
    ----------
    sizes : sequence of int
        Number of columns, of every hidden layer of the encoder, and of the latent
        vector; the decoder has the same in reverse.
    generator : torch.Generator
        The party's private stream.
    """

    def __init__(self, sizes, generator):
        super().__init__()
        self.encoder = _layers(sizes, generator)
        self.decoder = _layers(sizes[::-1], generator)[:-1]

    def forward(self, inputs):
        """Latent vectors and reconstructions."""
        latent = self.encoder(inputs)
        return latent, self.decoder(latent)


class ExplicitAutoencoder:
    """An autoencoder that is trained without a graph.

    Parameters
    ----------
    module : Autoencoder
        Trained in place.
    lr, weight_decay : float
        Of Adam.
    """

    def __init__(self, module, lr, weight_decay):
        halves = {"encoder": module.encoder, "decoder": module.decoder}
        self._passes = Explicit(halves, lr, weight_decay)
        self.step = self._passes.step

    def forward(self, inputs):
        """Outputs, and what the way back needs."""
        latent, first = self._passes.forward("encoder", inputs)
        reconstruction, second = self._passes.forward("decoder", latent, further=True)
        return (latent, reconstruction), (first, second)

    def backward(self, tape, gradients):
        """Write the gradients, from those of the latent vectors and the outputs."""
        (first, second), (of_latent, of_outputs) = tape, gradients
        gradient = self._passes.backward(second, of_outputs)
        if of_latent is not None:
            gradient = gradient + of_latent
        self._passes.backward(first, gradient)


def _layers(sizes, generator):
    layers = []
    for n_inputs, n_outputs in pairwise(sizes):
        layers += [linear(n_inputs, n_outputs, generator), nn.SELU()]
    return nn.Sequential(*layers)


class AutoencoderLoss:
    """Equation 9 of the APC-VFL paper, for each row.

    Squared error of the reconstruction, plus ``weight`` times the distance of the
    latent vector from its target where there is one, both summed over dimensions.

    Parameters
    ----------
    distance : {"mse", "mae"}
        Distance of latent vectors: squared or absolute error.
    weight : float
        The paper's λ.
    """

    def __init__(self, distance, weight):
        self.distance = distance
        self.weight = weight

    def __call__(self, outputs, inputs, latent_target=None, has_target=None):
        """Loss of each row of a batch."""
        latent, reconstruction = outputs
        loss = DISTANCES["mse"](reconstruction - inputs)
        if latent_target is None:
            return loss
        distance = DISTANCES[self.distance](latent - latent_target)
        return loss + self.weight * has_target * distance

    def with_gradient(
        self, outputs, inputs, latent_target=None, has_target=None, *, factors
    ):
        """Losses, and the gradients of their sum, each times its factor."""
        latent, reconstruction = outputs
        away = reconstruction - inputs
        losses = DISTANCES["mse"](away)
        # In place, as these are as many numbers as the inputs.
        of_outputs = away.mul_((2 * factors)[:, None])
        if latent_target is None:
            return losses, (None, of_outputs)
        counts, away = self.weight * has_target, latent - latent_target
        losses = losses + counts * DISTANCES[self.distance](away)
        of_latent = SLOPES[self.distance](away) * (factors * counts)[:, None]
        return losses, (of_latent, of_outputs)
