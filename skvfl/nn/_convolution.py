"""A bottom model for image tiles."""

from __future__ import annotations

from sklearn.base import BaseEstimator
from torch import nn


class ConvolutionalBottom(BaseEstimator):
    """Build a small convolutional network for one party's tile of an image.

    Two convolutions (3 × 3, then 1 × 1), each followed by batch normalisation, ReLU and
    pooling by two where the tile is large enough, and a linear layer to the cut: the
    local module of the vFedSec paper [1]_, appendix A.1.

    Parameters
    ----------
    shape : tuple of int
        Height and width of the tile, and its number of channels if that is not 1, as
        :class:`ImageTiles` deals them.
    channels : tuple of int, default=(32, 64)
        Number of channels of the two convolutions.

    See Also
    --------
    SplitNNClassifier : Takes it as ``bottom``.

    References
    ----------
    .. [1] "vFedSec: Efficient Secure Aggregation for Vertical Federated Learning via
       Secure Layer", appendix A.1.

    Examples
    --------
    >>> from skvfl.nn import ConvolutionalBottom
    >>> bottom = ConvolutionalBottom((14, 14))
    >>> sum(p.numel() for p in bottom(196, 32).parameters())
    21088
    """

    def __init__(self, shape, channels=(32, 64)):
        self.shape = shape
        self.channels = channels

    def __call__(self, n_inputs, n_outputs):
        """Build the network.

        Parameters
        ----------
        n_inputs : int
            Number of pixels, times channels.
        n_outputs : int
            Width of the cut layer.

        Returns
        -------
        network : torch.nn.Module
        """
        height, width, *depth = self.shape
        depth = depth[0] if depth else 1
        if height * width * depth != n_inputs:
            raise ValueError(f"tiles of shape {self.shape} have not {n_inputs} values")
        layers = [nn.Unflatten(1, (height, width, depth)), _ChannelsFirst()]
        for kernel, channels in zip((3, 1), self.channels, strict=True):
            layers += [
                nn.Conv2d(depth, channels, kernel, padding=kernel // 2),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
            ]
            depth = channels
            if min(height, width) > 1:
                layers.append(nn.MaxPool2d(2))
                height, width = height // 2, width // 2
        return nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(depth * height * width, n_outputs)
        )


class _ChannelsFirst(nn.Module):
    def forward(self, images):
        return images.movedim(3, 1)
