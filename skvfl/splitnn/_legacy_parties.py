"""Split learning: bottom models at the parties, the top model at the active party.

No autograd graph crosses a party's boundary: activations go up as numbers, and the
gradients of the loss with respect to them come down as numbers.
"""

from __future__ import annotations

import copy

import numpy as np
import torch

from skvfl.exceptions import TrainingError
from skvfl.federation import Party, operation
from skvfl.federation._party import run
from skvfl.nn._streams import private_generator

TINY = torch.finfo(torch.float32).tiny
AGGREGATIONS = {
    "concat": lambda cuts: torch.cat(cuts, dim=1),
    "sum": sum,
    "mean": lambda cuts: sum(cuts) / len(cuts),
    "max": lambda cuts: torch.stack(cuts).max(dim=0).values,
}


class SplitParty(Party):
    """A party's part in the steps of split learning, on a bottom model of its own.

    Parameters
    ----------
    name : str
        Name of the party.
    transformer : transformer or None
        Unfitted; prepares the party's columns. None at a party without columns.
    build_bottom : callable
        ``build_bottom(n_inputs, generator)`` gives the bottom model.
    optimize : callable
        ``optimize(parameters)`` gives the party's own optimiser.
    stream : SeedSequence
        The party's private one.
    """

    def __init__(self, name, transformer, build_bottom, optimize, stream):
        super().__init__(name)
        self._transformer = transformer
        self._build_bottom = build_bottom
        self._optimize = optimize
        self._generator = private_generator(stream)

    @operation
    def begin_epoch(self, seed, n_train):
        """Shuffle the rows that are trained on.

        Parameters
        ----------
        seed : int
            The same at every party, so that all take the same rows for a batch.
        n_train : int
            Number of rows that are trained on; the others are held out.
        """
        self._held["order"] = public_order(seed, n_train)
        if self._transformer is not None:
            self._bottom.train()

    @operation
    def forward(self, start, stop):
        """Activations of one batch, and nothing of how they came about."""
        self._held["activations"] = self._activate(start, stop)
        return self._held["activations"].detach().numpy()

    @operation
    def backward(self, gradient):
        """Update the bottom model from the gradient of the batch's activations."""
        self._held.pop("activations").backward(tensor(gradient))
        self._update()

    @operation
    def finish(self):
        """Refuse models that training has spoilt."""
        for model in self._models().values():
            check_parameters(model)

    def _models(self):
        return {} if self._transformer is None else {"_bottom": self._bottom}

    def _update(self):
        self._held["optimizer"].step()
        self._held["optimizer"].zero_grad()

    def _activate(self, start, stop):
        rows = self._held["order"][start:stop]
        return self._bottom(self._held["inputs"].index_select(0, rows))


class BottomParty(SplitParty):
    """A party of split learning that builds, keeps and serves its bottom model.

    Parameters
    ----------
    name, transformer, build_bottom, optimize, stream
        As for :class:`SplitParty`.
    """

    @operation
    def prepare(self, seed):
        """Prepare the columns and build the bottom model; its number of outputs.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.

        Returns
        -------
        n_outputs : int
        """
        inputs = run(self._transformer.fit_transform, self._held["block"])
        self._held["inputs"] = tensor(inputs)[public_order(seed, len(inputs))]
        self._bottom = self._build_bottom(inputs.shape[1], self._generator)
        self._held["optimizer"] = self._optimize(list(self._bottom.parameters()))
        with torch.inference_mode():
            return self._bottom.eval()(self._held["inputs"][:1]).shape[1]

    @operation
    def represent(self, start, stop):
        """Activations of rows in their first order, in evaluation mode."""
        return infer(self._bottom, self._rows(start, stop)).float().numpy()

    @operation
    def remember(self):
        """Keep a copy of the bottom model as it is."""
        self._best = copy.deepcopy(self._models())

    @operation
    def recall(self):
        """Go back to the copy that was kept last."""
        for name, state in self.__dict__.pop("_best").items():
            setattr(self, name, state)

    def _rows(self, start, stop):
        if "inputs" not in self._held:
            self._held["inputs"] = tensor(
                run(self._transformer.transform, self._held["block"])
            )
        return self._held["inputs"][start:stop]


class TopParty(BottomParty):
    """The active party of split learning: the labels, the top model, and a bottom.

    Parameters
    ----------
    name, transformer, build_bottom, optimize, stream
        As for :class:`BottomParty`.
    build_top : callable
        ``build_top(n_inputs, generator)`` gives the top model.
    aggregation : {"concat", "sum", "mean", "max"}
        How the activations of the parties become the top model's input.
    names : list of str
        Parties with columns, in the order of aggregation.
    loss : callable
        ``loss(outputs, labels)`` gives the loss of each row.
    """

    def __init__(
        self,
        name,
        transformer,
        build_bottom,
        optimize,
        stream,
        build_top,
        aggregation,
        names,
        loss,
    ):
        super().__init__(name, transformer, build_bottom, optimize, stream)
        self._build_top = build_top
        self._aggregation = aggregation
        self._names = names
        self._loss = loss

    @operation
    def prepare_top(self, seed, widths, n_train):
        """Build the top model on the widths of everybody's activations.

        Parameters
        ----------
        seed : int
            Of the public order of the rows, the same at every party.
        widths : dict of str to int
            Number of activations of every passive party.
        n_train : int
            Number of rows that are trained on; the others are held out.
        """
        if self._transformer is not None:
            widths[self.name] = self.prepare(seed)
        n_inputs = sum(widths.values())
        if self._aggregation != "concat":
            if len(set(widths.values())) > 1:
                raise ValueError("activations of different widths cannot be combined")
            n_inputs = widths[self._names[0]]
        self._top = self._build_top(n_inputs, self._generator)
        parameters = [p for m in self._models().values() for p in m.parameters()]
        self._held["optimizer"] = self._optimize(parameters)
        self._sort_labels(seed, n_train)

    @operation
    def learn(self, start, stop, received):
        """One step on a batch: its loss and weight, and gradients of what was sent."""
        rows = self._held["order"][start:stop]
        cuts = {name: tensor(sent).requires_grad_() for name, sent in received.items()}
        own = (
            {}
            if self._transformer is None
            else {self.name: self._activate(start, stop)}
        )
        loss = self._mean_loss(self._top(self._combine(cuts | own)), rows)
        loss.backward()
        self._update()
        gradients = {name: cut.grad.numpy() for name, cut in cuts.items()}
        return {**self._report(loss, rows), "gradients": gradients}

    @operation
    def evaluate(self, start, stop, received):
        """Loss of rows in their first order, in evaluation mode."""
        outputs = infer(self._top, self._cut_layer(start, stop, received))
        return self._mean_loss(outputs.float(), slice(start, stop)).item()

    @operation
    def combine(self, start, stop, received):
        """Cut-layer representation of rows."""
        return self._cut_layer(start, stop, received).numpy()

    @operation
    def predict(self, start, stop, received):
        """Outputs of the top model."""
        return infer(self._top, self._cut_layer(start, stop, received)).numpy()

    @operation
    def begin_epoch(self, seed, n_train):
        """Take the public order of an epoch's rows; see :class:`BottomParty`."""
        BottomParty.begin_epoch(self, seed, n_train)
        self._top.train()

    def _cut_layer(self, start, stop, received):
        cuts = {name: tensor(sent) for name, sent in received.items()}
        if self._transformer is not None:
            own = infer(self._bottom, self._rows(start, stop))
            cuts[self.name] = own.float()
        return self._combine(cuts)

    def _combine(self, cuts):
        return AGGREGATIONS[self._aggregation]([cuts[name] for name in self._names])

    def _mean_loss(self, outputs, rows):
        losses = self._loss(outputs, self._held["labels"][rows])
        if self._held["weights"] is None:
            return losses.mean()
        weights = self._held["weights"][rows]
        return (losses * weights).sum() / weights.sum().clamp_min(TINY)

    def _report(self, loss, rows):
        weights = self._held["weights"]
        weight = len(rows) if weights is None else weights[rows].sum().item()
        return {"loss": loss.item(), "weight": weight}

    def _sort_labels(self, seed, n_train):
        """Bring labels and weights into the public order."""
        order = public_order(seed, len(self._held["labels"]))
        self._held["labels"] = torch.from_numpy(self._held["labels"])[order]
        if self._held["weights"] is not None:
            self._held["weights"] = tensor(self._held["weights"])[order]
            if n_train < len(order):
                check_held_out(self._held["weights"][n_train:].sum())

    def _models(self):
        return {**super()._models(), "_top": self._top}


def epoch_loss(batches):
    """Mean over rows of an epoch's losses.

    Parameters
    ----------
    batches : list of dict
        ``loss``, the mean of a batch, and ``weight``, what its rows weigh together.

    Returns
    -------
    loss : float
        Zero where no row has any weight.
    """
    total = sum(batch["weight"] for batch in batches)
    return sum(batch["loss"] * batch["weight"] for batch in batches) / (total or 1)


def check_held_out(weight):
    """Refuse held-out rows that do not tell when to stop.

    Parameters
    ----------
    weight : float
        Sum of their weights.

    Raises
    ------
    TrainingError
        If it is zero.
    """
    if not weight:
        raise TrainingError(
            "all held-out rows have weight 0, their own or that of their class, so "
            "early stopping has nothing to go by: raise validation_fraction, or train "
            "without early_stopping"
        )


def infer(network, inputs):
    """Outputs in evaluation mode and double precision.

    Rounding then does not depend on which rows are asked for together.
    """
    with torch.inference_mode():
        return copy.deepcopy(network).double().eval()(inputs.double())


def batch_bounds(n_rows, batch_size):
    """Bounds of each batch; a last one of one row joins its predecessor."""
    starts = list(range(0, n_rows, batch_size))
    if len(starts) > 1 and n_rows - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], n_rows], strict=True))


def check_parameters(module):
    """Refuse a network that the last step has spoilt, after its loss was looked at.

    Parameters
    ----------
    module : torch.nn.Module
        After training.

    Raises
    ------
    TrainingError
        If a parameter is not finite, or so large that a product of two is not.
    """
    if not all(bool(p.square().isfinite().all()) for p in module.parameters()):
        raise TrainingError(
            "parameters are not finite after training: standardise the columns and "
            "the targets, or lower the learning rate"
        )


def public_order(seed, n_rows):
    """Order of rows that everybody who knows the seed agrees on."""
    return torch.from_numpy(np.random.default_rng(seed).permutation(n_rows))


def tensor(array):
    """Single-precision tensor; of the array's own memory where it may be written."""
    array = np.asarray(array, dtype=np.float32)
    return torch.from_numpy(array if array.flags.writeable else array.copy())
