"""Which active client selects which batch, and when."""

from __future__ import annotations

from typing import NamedTuple

from skvfl.nn._steps import batch_bounds, n_held_out


class Turns(NamedTuple):
    """Batches of an epoch, and of the rows that are held out.

    A batch is of one active client. Where there are several, their turns are spread
    evenly over the epoch. The last rows of a client's order are held out, so that two
    numbers name a batch of either kind.

    Attributes
    ----------
    sizes : dict of str to dict
        Number of rows that each client's batches of an epoch have, as ``n_train``.
    batches, held_out : list of tuple
        Bounds of each batch, and who selects it.
    """

    sizes: dict
    batches: list
    held_out: list

    @classmethod
    def of(cls, estimator, n_labels):
        """Turns of clients of which each holds the labels of so many rows.

        Parameters
        ----------
        estimator : estimator
            Says how many rows a batch has, and how many are held out.
        n_labels : dict of str to int
            By name of the client.
        """
        sizes, placed, held_out = {}, [], []
        for name, n_rows in n_labels.items():
            n_train = n_rows - n_held_out(estimator, n_rows)
            if not n_train:
                whose = f" whose labels {name!r} holds" if len(n_labels) > 1 else ""
                raise ValueError(
                    f"early stopping holds out all {n_rows} rows{whose}: lower "
                    "validation_fraction, or give more rows"
                )
            sizes[name] = {"n_train": n_train}
            bounds = batch_bounds(n_train, estimator.batch_size)
            for i, (start, stop) in enumerate(bounds):
                placed.append(((i + 0.5) / len(bounds), (start, stop, name)))
            if n_rows > n_train:
                bounds = batch_bounds(n_rows - n_train, estimator.batch_size)
                held_out += [(n_train + a, n_train + b, name) for a, b in bounds]
        placed.sort(key=lambda pair: pair[0])
        return cls(sizes, [batch for _, batch in placed], held_out)
