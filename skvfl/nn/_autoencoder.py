"""Shallow autoencoders, and the distillation of a representation into one."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from skvfl.nn._mlp import linear

DISTANCES = {
    "mse": lambda difference: difference.square().sum(dim=1),
    "mae": lambda difference: difference.abs().sum(dim=1),
}


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
