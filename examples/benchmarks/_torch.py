"""Networks and a training loop as a user would write them in torch."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import cross_entropy


def perceptron(sizes, activation=nn.ReLU):
    """Return linear layers with an activation between each two."""
    layers = [nn.Linear(*pair) for pair in pairwise(sizes)]
    more = (module for layer in layers[1:] for module in (activation(), layer))
    return nn.Sequential(layers[0], *more)


def train(network, optimizer, inputs, labels, batch_size, epochs):
    """Train a classifier of one or more tensors, with slices of them."""
    for _ in range(epochs):
        # What the loss adds up to is not needed, but a user's loop would watch it.
        total = 0.0
        for rows in torch.randperm(len(labels)).split(batch_size):
            optimizer.zero_grad()
            outputs = network(*[x[rows] for x in inputs])
            loss = cross_entropy(outputs, labels[rows])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
