"""What lets skorch's callbacks hear of steps that several parties take together.

A party of split learning has no loop of its own: others say when a batch and an epoch
begin. Its networks and their optimiser are put into a net of skorch's, so that
schedulers, checkpoints and loggers find them where they look for them.
"""

from __future__ import annotations

from skorch import NeuralNet
from skorch.utils import TeeGenerator
from torch import nn


class PlainNet(NeuralNet):
    """skorch's net without the callbacks that it brings itself."""

    # They print and time what nobody reads.
    @property
    def _default_callbacks(self):
        return []

    def record_loss(self, name, loss):
        """Write a loss of the epoch into the history, and whether it is the best."""
        before = [row[name] for row in self.history[:-1] if name in row]
        self.history.record(name, loss)
        # Under the name that skorch gives it: checkpoints look for it by default.
        self.history.record(f"{name}_best", not before or loss < min(before))

    def end_epoch(self, **datasets):
        """Tell the callbacks that an epoch ends; whether one of them ends training."""
        try:
            self.notify("on_epoch_end", **datasets)
        # skorch's callbacks end training by this exception.
        except KeyboardInterrupt:
            return True
        return False


class Watched:
    """A party's networks, as its callbacks see them.

    Parameters
    ----------
    networks : dict of str to torch.nn.Module
        What the party trains.
    optimize : Optimize
        How it optimises.
    callbacks : list of skorch.callbacks.Callback
        The party's own, which begin anew.
    device : str
        Where the networks are trained.

    Attributes
    ----------
    optimizer : torch.optim.Optimizer
        Of all networks.
    """

    def __init__(self, networks, optimize, callbacks, device):
        self._net = PlainNet(
            nn.ModuleDict(networks),
            nn.Identity,
            optimizer=lambda groups, lr: optimize.plain(groups[0]["params"]),
            lr=optimize.lr,
            callbacks=list(callbacks),
            train_split=None,
            device=device,
            verbose=1,
        ).initialize()
        self.optimizer = self._net.optimizer_
        self._begun = self._ended = False
        self._net.notify("on_train_begin", X=None, y=None)

    def begin_epoch(self):
        """End the epoch before, if any, and begin one."""
        self.end_epoch()
        self._net.notify("on_epoch_begin")
        self._begun = True

    def begin_step(self):
        """Tell the callbacks that gradients are there and a step is about to come."""
        net = self._net
        net.notify("on_batch_begin", batch=None, training=True)
        net.notify(
            "on_grad_computed",
            named_parameters=TeeGenerator(net.get_all_learnable_params()),
            batch=None,
            training=True,
        )

    def end_step(self):
        """Tell the callbacks that a step was taken."""
        self._net.notify("on_batch_end", batch=None, training=True)

    def end_epoch(self, losses=()):
        """End the epoch, if one has begun; whether a callback ends training.

        Parameters
        ----------
        losses : dict of str to float, default=()
            Those of the epoch, where the party knows them.
        """
        if not self._begun:
            return False
        self._begun = False
        for name in losses:
            self._net.record_loss(name, losses[name])
        return self._net.end_epoch()

    def finish(self):
        """Tell the callbacks that training ends; once."""
        if self._ended:
            return
        self._ended = True
        self.end_epoch()
        self._net.notify("on_train_end", X=None, y=None)
