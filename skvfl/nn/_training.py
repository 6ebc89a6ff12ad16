"""The training loop of everything that a party trains alone.

skorch holds the module, the optimiser, the callbacks and the history; batches are
slices of tensors, so that a small network does not wait for its data.
"""

from __future__ import annotations

import copy
from functools import partial
from math import ceil, inf

import numpy as np
import torch
from skorch.utils import TeeGenerator
from torch import nn
from torch.utils.data import TensorDataset

from skvfl._random import int_seed
from skvfl.exceptions import TrainingError
from skvfl.nn._apart import JointNetwork, is_apart, is_plain
from skvfl.nn._autoencoder import Autoencoder, ExplicitAutoencoder
from skvfl.nn._build import FusedAdam
from skvfl.nn._device import check_device
from skvfl.nn._explicit import (
    ExplicitJoint,
    ExplicitModule,
    links_of,
    loss_and_gradient,
)
from skvfl.nn._steps import (
    TINY,
    batch_bounds,
    check_held_out,
    check_parameters,
    shared,
    tensor,
)
from skvfl.nn._watched import PlainNet


def train(module, inputs, targets=None, *, max_epochs, report=None, **settings):
    """Train a module on the rows of one party, in one go.

    Parameters
    ----------
    module, inputs, targets, max_epochs, **settings
        As for :class:`Training`.
    report : callable or None, default=None
        ``report(epoch, losses)`` is called after every epoch, with its number from 1
        and a dict of its ``"train_loss"`` and, with early stopping, ``"valid_loss"``.
        Training stops where it returns True.

    Returns
    -------
    net : skorch.NeuralNet
        Holds ``module_``, ``optimizer_`` and ``history``, and no rows.

    Raises
    ------
    TrainingError
        If there is no row or no epoch to train on, or a loss is not finite.
    """
    training = Training(module, inputs, targets, max_epochs=max_epochs, **settings)
    for epoch in range(1, max_epochs + 1):
        losses = training.run_epoch()
        stops = report is not None and bool(report(epoch, losses))
        if stops or training.stops:
            break
    return training.finish()


class Training:
    """Training of a module on the rows of one party, one epoch after another.

    Parameters
    ----------
    module : torch.nn.Module
        Trained in place, and left in evaluation mode on the CPU. A network of the
        user's own comes from :class:`skvfl.nn._build.Build`, which gives its dropout a
        private stream.
    inputs : ndarray or Joined, or tuple of them, of shape (n_samples, ...)
        What the module is called with, as float32.
    targets : ndarray or Joined, tuple of them or None, default=None
        What the loss is called with beside the outputs, of their own data types; of
        those that are inputs, too, float32.
    loss : callable
        ``loss(outputs, *targets)`` gives a loss for each row, whose weighted mean over
        a batch is minimised.
    max_epochs : int
        Number of passes over the rows.
    batch_size : int
        Rows per step. A last batch of one row joins its predecessor.
    lr : float
        Learning rate.
    sequence : numpy.random.SeedSequence
        Stream of the order of the rows, and of which of them are held out.
    optimizer : callable or None, default=None
        Class from ``torch.optim``; Adam in its fused form by default.
    weight_decay : float, default=0.0
        Of the optimiser: for Adam, half the weight of the squared parameters.
    weights : ndarray of shape (n_samples,) or None, default=None
        Weights of the rows in the loss.
    early_stopping : bool, default=False
        Whether to hold out rows, stop when their loss no longer improves, and go back
        to the parameters that were best on them.
    validation_fraction : float, default=0.1
        Fraction of the rows held out.
    n_iter_no_change : int, default=10
        Epochs without improvement before stopping.
    callbacks : list of skorch.callbacks.Callback or None, default=None
        Called at the beginning and end of training, epochs and batches. With any, the
        history also has the loss of every batch, which a device otherwise need not
        wait for.
    device : str, default="cpu"
        Where to train.

    Attributes
    ----------
    stops : bool
        Whether callbacks or held-out rows say that the last epoch was the last one.

    Raises
    ------
    TrainingError
        If there is no row or no epoch to train on.
    """

    def __init__(
        self,
        module,
        inputs,
        targets=None,
        *,
        loss,
        max_epochs,
        batch_size,
        lr,
        sequence,
        optimizer=None,
        weight_decay=0.0,
        weights=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        callbacks=None,
        device="cpu",
    ):
        check_device(device)
        inputs, targets = _tuple(inputs), _tuple(targets)
        data = _tensors(inputs, targets)
        if weights is not None:
            data.append(tensor(weights))
        # Of its own, so that torch's global generator is left as it was.
        self._generator = torch.Generator().manual_seed(int_seed(sequence))
        self._rows, self._held_out = self._divide(
            [each.to(device) for each in data],
            max_epochs,
            validation_fraction if early_stopping else 0.0,
            weights is not None,
        )
        self._patience = n_iter_no_change
        self._net = PlainNet(
            module,
            _MeanLoss(loss, len(inputs), weights is not None),
            optimizer=partial(
                _make_optimizer, optimizer, weight_decay, bool(callbacks)
            ),
            lr=lr,
            batch_size=batch_size,
            max_epochs=max_epochs,
            callbacks=callbacks,
            train_split=None,
            device=device,
            # Without it ``PrintLog`` prints nothing; nothing else prints by default.
            verbose=1,
        ).initialize()
        self._passes = None
        if optimizer is None and not callbacks and device == "cpu":
            self._passes = passes_of(self._net.module_, lr, weight_decay)
        self._net.notify("on_train_begin", X=self._rows, y=None)
        self._epoch, self.stops = 0, False
        self._best, self._best_epoch, self._best_state = inf, 0, None

    def _divide(self, data, max_epochs, fraction, weighted):
        """Rows that are trained on, and those that are held out, or None."""
        n_rows = len(data[0])
        n_held_out = ceil(fraction * n_rows)
        if min(n_rows - n_held_out, max_epochs) < 1:
            raise TrainingError(
                f"no optimiser step is taken with max_epochs={max_epochs} and {n_rows} "
                f"rows, of which {n_held_out} are held out: give more of what is "
                "missing"
            )
        rows = _Rows(*data)
        if not fraction:
            return rows, None
        shuffled = torch.randperm(n_rows, generator=self._generator)
        held_out = _Rows(*rows.take(shuffled[:n_held_out]))
        if weighted:
            check_held_out(held_out.tensors[-1].sum())
        return _Rows(*rows.take(shuffled[n_held_out:])), held_out

    def run_epoch(self):
        """Pass over the rows once.

        Returns
        -------
        losses : dict of str to float
            ``"train_loss"`` and, with early stopping, ``"valid_loss"``.

        Raises
        ------
        TrainingError
            If one of them is not finite.
        """
        net, rows, held_out = self._net, self._rows, self._held_out
        self._epoch += 1
        datasets = {"dataset_train": rows, "dataset_valid": held_out}
        net.notify("on_epoch_begin", **datasets)
        order = torch.randperm(len(rows), generator=self._generator).to(net.device)
        losses = {"train_loss": _run_epoch(net, rows, order, "train", self._passes)}
        if held_out is not None:
            order = torch.arange(len(held_out), device=net.device)
            with torch.inference_mode():
                losses["valid_loss"] = _run_epoch(net, held_out, order, "valid")
        # Before callbacks hear of the epoch, because they may keep what it has spoilt.
        check_finite(list(losses.values()), self._epoch, net.lr)
        for name, mean in losses.items():
            net.record_loss(name, mean)
        self.stops = net.end_epoch(**datasets)
        if held_out is not None:
            self._compare(losses["valid_loss"])
        return losses

    def _compare(self, loss):
        """Keep the parameters that are best on held-out rows."""
        if loss < self._best:
            self._best, self._best_epoch = loss, self._epoch
            # A copy, because the optimiser writes into the parameters themselves.
            self._best_state = copy.deepcopy(self._net.module_.state_dict())
        self.stops |= self._epoch - self._best_epoch >= self._patience

    def finish(self):
        """Go back to the best parameters, and refuse what training has spoilt.

        Returns
        -------
        net : skorch.NeuralNet
            Holds ``module_``, ``optimizer_`` and ``history``, and no rows.
        """
        net = self._net
        # First, so that callbacks see the parameters that stay.
        if self._best_state is not None:
            net.module_.load_state_dict(self._best_state)
        net.notify("on_train_end", X=self._rows, y=None)
        net.module_.cpu().eval()
        check_parameters(net.module_)
        return net


def passes_of(module, lr, weight_decay):
    """What trains a module without a graph, or None if that takes one.

    Parameters
    ----------
    module : torch.nn.Module
        Any module; linear layers and activations in sequence, and autoencoders and
        joint networks of them, need no graph.
    lr, weight_decay : float
        Of Adam.

    Returns
    -------
    passes : ExplicitModule, ExplicitAutoencoder, ExplicitJoint or None
    """
    if type(module) is Autoencoder and is_plain(module):
        parts, passes = module.children(), ExplicitAutoencoder
    elif type(module) is JointNetwork and is_plain(module):
        parts, passes = module.children(), ExplicitJoint
    else:
        parts, passes = [module], ExplicitModule
    if all(is_apart(part) and links_of(part) for part in parts):
        return passes(module, lr, weight_decay)
    return None


class _Rows(TensorDataset):
    """What is known of every row, of which some are taken at a time."""

    def take(self, rows):
        """What is known of these rows, whose numbers are a tensor."""
        # What is an input and a target as well, as of autoencoders, is taken once. A
        # row is copied as a whole, in a fifth of the time of general indexing.
        taken = {}
        for each in self.tensors:
            if id(each) not in taken:
                taken[id(each)] = each.index_select(0, rows)
        return tuple(taken[id(each)] for each in self.tensors)


class _MeanLoss(nn.Module):
    """Weighted mean of a loss over the rows of a batch, and the sum of the weights."""

    def __init__(self, loss, n_inputs, weighted):
        super().__init__()
        self.loss = loss
        self.n_inputs = n_inputs
        self.weighted = weighted

    def forward(self, outputs, batch):
        targets = batch[self.n_inputs :]
        if not self.weighted:
            losses = self.loss(outputs, *targets)
            return losses.mean(), len(losses)
        losses = self.loss(outputs, *targets[:-1])
        # A batch whose rows all have weight 0 has a loss of 0 then, and not NaN.
        size = targets[-1].sum().clamp_min(TINY)
        return (losses * targets[-1]).sum() / size, size

    def with_gradient(self, outputs, batch):
        """The same, and the gradient of the mean."""
        targets = batch[self.n_inputs :]
        if not self.weighted:
            n_rows = len(batch[0])
            factors = torch.full((n_rows,), 1 / n_rows)
            losses, gradient = loss_and_gradient(self.loss, outputs, targets, factors)
            return losses.mean(), n_rows, gradient
        *targets, weights = targets
        size = weights.sum().clamp_min(TINY)
        factors = weights * (1 / size)
        losses, gradient = loss_and_gradient(self.loss, outputs, targets, factors)
        return (losses * weights).sum() / size, size, gradient


def _make_optimizer(optimizer, weight_decay, watched, groups, lr):
    """Optimiser of skorch's parameter groups.

    Callbacks may change what only an optimiser of torch's own has, such as the learning
    rate; the same step without its bookkeeping is for those who have none.
    """
    settings = {"lr": lr}
    if weight_decay:
        settings["weight_decay"] = weight_decay
    if optimizer is not None:
        return optimizer(groups, **settings)
    parameters = groups[0]["params"]
    if watched or parameters[0].device.type != "cpu":
        return torch.optim.Adam(parameters, fused=True, **settings)
    return FusedAdam(parameters, lr, weight_decay)


def _run_epoch(net, rows, order, prefix, passes=None):
    """All batches of an epoch; their mean loss."""
    module, criterion, optimizer = net.module_, net.criterion_, net.optimizer_
    training = prefix == "train"
    watched = bool(net.callbacks_)
    bounds = batch_bounds(len(rows), net.batch_size)
    # One tensor, as small ones that stay would lie scattered between the large ones of
    # every batch, whose memory could then not be used again as a whole. It is where the
    # network is: to read a number makes the device finish first.
    course = torch.empty(2, len(bounds), device=net.device)
    module.train(training)
    for i, (start, stop) in enumerate(bounds):
        batch = rows.take(order[start:stop])
        if watched:
            net.notify("on_batch_begin", batch=batch, training=training)
            # A callback may have used the module in the other mode.
            module.train(training)
        if passes is not None:
            outputs, tape = passes.forward(*batch[: criterion.n_inputs])
            loss, size, gradient = criterion.with_gradient(outputs, batch)
            passes.backward(tape, gradient)
            passes.step()
            course[0, i], course[1, i] = loss, size
            continue
        outputs = module(*batch[: criterion.n_inputs])
        loss, size = criterion(outputs, batch)
        if training:
            optimizer.zero_grad()
            loss.backward()
            if watched:
                parameters = TeeGenerator(net.get_all_learnable_params())
                net.notify(
                    "on_grad_computed",
                    named_parameters=parameters,
                    batch=batch,
                    training=True,
                )
            optimizer.step()
        course[0, i], course[1, i] = loss.detach(), size
        if watched:
            net.history.record_batch(f"{prefix}_loss", loss.item())
            net.history.record_batch(f"{prefix}_batch_size", stop - start)
            step = {"loss": loss, "y_pred": outputs}
            net.notify("on_batch_end", batch=batch, training=training, **step)
    losses, sizes = course.cpu().double()
    return ((losses * sizes).sum() / sizes.sum()).item()


def check_finite(losses, epoch, lr):
    """Refuse to go on where a loss is not finite.

    Parameters
    ----------
    losses : list of float
        Mean losses of an epoch.
    epoch : int
        Its number.
    lr : float
        Learning rate.

    Raises
    ------
    TrainingError
        If one of them is not finite.
    """
    if not np.isfinite(losses).all():
        raise TrainingError(
            f"the loss of epoch {epoch} is not finite: standardise the columns and the "
            f"targets, or lower the learning rate, lr={lr}"
        )


def _tensors(inputs, targets):
    """Tensors of arrays, of those that are inputs and targets one and the same."""
    made = {id(each): tensor(each) for each in inputs}
    return [
        *(made[id(each)] for each in inputs),
        *(made[id(each)] if id(each) in made else shared(each) for each in targets),
    ]


def _tuple(arrays):
    if arrays is None:
        return ()
    return arrays if isinstance(arrays, tuple) else (arrays,)
