"""Sparse attention: sparsemax and 1.5-entmax of the rows of a matrix.

Both subtract a threshold from the scores of a row and cut off what is negative, so that
the rest (for 1.5-entmax the squares of the halved rest) sums to one. Newton's method
finds the threshold without sorting. The sum is convex and decreasing in the threshold,
so that steps from its left never overshoot; for sparsemax, where it is piecewise
linear, they end at the exact solution.
"""

from __future__ import annotations

import torch
from torch.autograd.function import once_differentiable


class _Sparsemax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores):
        n_columns = scores.shape[1]
        scores = scores - scores.amax(dim=1, keepdim=True)
        mean = (scores.sum(dim=1, keepdim=True) - 1) / n_columns
        threshold = mean.clamp_min_(-1)
        last = None
        for _ in range(n_columns):
            output = (scores - threshold).clamp_min_(0)
            excess = output.sum(dim=1, keepdim=True) - 1
            size = output.sign_().sum(dim=1, keepdim=True).clamp_min_(1)
            if last is not None and torch.equal(size, last):
                break
            threshold, last = threshold + excess / size, size
        output = (scores - threshold).clamp_min_(0)
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx, gradient):
        (output,) = ctx.saved_tensors
        return _centred(gradient, output.sign())


class _Entmax15(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores):
        scores = (scores - scores.amax(dim=1, keepdim=True)) / 2
        threshold = scores.new_full((len(scores), 1), -1)
        tolerance = 4 * torch.finfo(scores.dtype).eps
        for _ in range(50):
            root = (scores - threshold).clamp_min_(0)
            step = root.square().sum(dim=1, keepdim=True) - 1
            step /= 2 * root.sum(dim=1, keepdim=True)
            threshold = threshold + step
            if step.max() <= tolerance:
                break
        root = (scores - threshold).clamp_min_(0)
        ctx.save_for_backward(root)
        return root.square()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        (root,) = ctx.saved_tensors
        return _centred(gradient, root)


def _centred(gradient, weights):
    """Weighted gradient without its weighted mean: the Jacobian of both maps."""
    gradient = gradient * weights
    mean = gradient.sum(dim=1, keepdim=True) / weights.sum(dim=1, keepdim=True)
    return gradient.addcmul_(weights, mean, value=-1)


def sparsemax(scores):
    """Euclidean projection of each row onto the probability simplex.

    Parameters
    ----------
    scores : torch.Tensor of shape (n_rows, n_columns)
        Any finite numbers.

    Returns
    -------
    weights : torch.Tensor of shape (n_rows, n_columns)
        Not negative; rows sum to one, and most entries of wide rows are zero.
    """
    return _Sparsemax.apply(scores)


def entmax15(scores):
    """Weights between those of sparsemax and of softmax, for each row.

    Parameters
    ----------
    scores : torch.Tensor of shape (n_rows, n_columns)
        Any finite numbers.

    Returns
    -------
    weights : torch.Tensor of shape (n_rows, n_columns)
        Not negative; rows sum to one.
    """
    return _Entmax15.apply(scores)
