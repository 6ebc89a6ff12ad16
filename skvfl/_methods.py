"""The methods in one table: what each is for, how often it talks, and who sees what.

README, user guide, docstrings and :func:`skvfl.compare` say it in these words, so that
a claim about privacy is changed in one place; a test compares them.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Method(NamedTuple):
    """A row of the table.

    Attributes
    ----------
    name : str
        What people call it.
    classes : tuple of str
        The estimators of this package.
    question : str
        Which question it answers.
    rounds : str
        How often the parties talk.
    sees : str
        Who sees what, in short.
    more : str
        What else to know about that.
    unless : tuple of (str, object, str)
        Parameter, value of it, and who sees what with that setting instead.
    """

    name: str
    classes: tuple[str, ...]
    question: str
    rounds: str
    sees: str
    more: str = ""
    unless: tuple[tuple[str, Any, str], ...] = ()

    @property
    def leaks(self) -> str:
        """Who sees what, with everything to know about it."""
        return f"{self.sees} {self.more}".strip()


METHODS = (
    Method(
        "RAP",
        ("RandomProjectionVFL",),
        "Would a federation help at all, with any model, for one upload of the "
        "columns' size?",
        "1 to train, 2 per prediction",
        "The server sees every row, rotated by secret matrices, and aliases of the "
        "labels, which it can pair; parties see nothing of each other.",
        "Equal rows, frequencies and distances show, and a few known rows or a known "
        "distribution can undo the rotation. Aliases cannot be read as labels, but the "
        "server paired all of them rightly in 20 of 20 fits.",
        (
            (
                "label_protection",
                False,
                "The server sees every row, rotated by secret matrices, and the "
                "labels; parties see nothing of each other.",
            ),
        ),
    ),
    Method(
        "SplitNN",
        ("SplitNNClassifier", "SplitNNRegressor"),
        "What does joint training reach, whatever it sends?",
        "2 per batch, 1 per prediction",
        "The active party sees every row's activations of every epoch, from which "
        "columns can be reconstructed; the others see gradients, from which labels can "
        "be inferred.",
    ),
    Method(
        "vFedSec",
        ("VFedSecClassifier", "VFedSecRegressor"),
        "The same without showing anybody's activations?",
        "3 per batch to train and 1 more for each cluster of clients, 2 per batch to "
        "predict, 3 more whenever keys are renewed (so one row takes 5)",
        "The server sees labels and the sum of all contributions; every client sees "
        "the gradient of that sum, from which labels can be inferred.",
        "Masks do not hide what the sum says: a server that knew 200 rows worked out "
        "44 to 99 % of the variance of the columns of 7 out of 9 parties. "
        "Clients that share columns get the sum of their gradients, from which each "
        "other's rows can be computed. All but one client together with the server "
        "learn the last one's contribution, so whoever runs the server should hold no "
        "columns.",
        (
            (
                "masked",
                False,
                "The server sees labels and every client's contributions; every client "
                "sees a gradient, from which labels can be inferred.",
            ),
        ),
    ),
    Method(
        "FedOnce",
        ("FedOnceClassifier", "FedOnceRegressor"),
        "What does one upload of small representations reach, and at which ε of "
        "differential privacy?",
        "1 to train, 1 per prediction",
        "The host sees every row's representation at every guest; guests see nothing, "
        "except gradients in split epochs, from which labels can be inferred.",
        "With `epsilon`, ε limits what finished models reveal, not what the host "
        "reads: from default guests it can compute the columns where a guest has 32 or "
        "fewer.",
    ),
    Method(
        "APC-VFL",
        ("APCVFLClassifier", "APCVFLRegressor"),
        "What does the active party gain that predicts alone, once the partners have "
        "left?",
        "1 to train, none per prediction",
        "The active party sees which rows the others hold, and latent representations "
        "of the rows that all hold; the others see which rows those are.",
        "",
        (
            (
                "inference",
                "joint",
                "The active party sees latent representations of the rows that all "
                "hold, and of every row that it predicts; the others see which rows "
                "are aligned.",
            ),
            ("distillation", None, "Nobody sees anything: the others are not asked."),
        ),
    ),
    Method(
        "TabVFL",
        ("TabVFLClassifier", "TabVFLRegressor"),
        "What does one TabNet with attention over everybody's columns reach, also "
        "where parties are offline in some epochs?",
        "3 per batch to pretrain, 2 per batch to train, 1 per prediction",
        "The active party sees linear mixtures of every party's columns in every "
        "epoch; the others see gradients, from which labels can be inferred, and "
        "numbers that depend on all parties' columns.",
        "In pretraining the active party can work out most cells.",
    ),
    Method(
        "Boosting",
        ("VFLBoostingClassifier", "VFLBoostingRegressor"),
        "What do the trees reach that are grown on pooled columns?",
        "1 per tree and 2 per split to train, or 2 per level where leaves are not "
        "limited; 1 per prediction",
        "Passive parties see every row's gradients, from which labels can be read, and "
        "which rows every node holds; the active party sees sums of gradients by bin, "
        "from which the bin of every cell can be computed.",
        "With `label_epsilon`, ε limits what passive parties learn of labels.",
    ),
)


def method_of(estimator):
    """The method that an estimator is an instance of.

    Parameters
    ----------
    estimator : estimator
        A federated one, of this package or of another.

    Returns
    -------
    method : Method or None
    """
    names = {cls.__name__ for cls in type(estimator).__mro__}
    return next((each for each in METHODS if names.intersection(each.classes)), None)


def who_sees_what(estimator):
    """Who sees what when this estimator is fitted and used, in short.

    Parameters
    ----------
    estimator : estimator
        A federated one, of this package or of another.

    Returns
    -------
    sentence : str
    """
    method = method_of(estimator)
    if method is None:
        return "Not known here: see what its own documentation says."
    for parameter, value, sentence in method.unless:
        if getattr(estimator, parameter) == value:
            return sentence
    return method.sees


def as_markdown():
    """The table, for the README."""
    lines = [
        "| method | which question it answers | rounds | who sees what |",
        "|---|---|---|---|",
    ]
    for each in METHODS:
        names = ", ".join(f"`{name}`" for name in each.classes)
        cells = (f"{each.name}: {names}", each.question, each.rounds, each.leaks)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def as_rst():
    """The table, for the user guide."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 12 28 20 40", ""]
    rows = [("method", "which question it answers", "rounds", "who sees what")]
    for each in METHODS:
        names = ", ".join(f":class:`~skvfl.{name}`" for name in each.classes)
        leaks = each.leaks.replace("`", "``")
        rows.append((f"{each.name}: {names}", each.question, each.rounds, leaks))
    for row in rows:
        for i, cell in enumerate(row):
            lines.append(f"   {'*' if not i else ' '} - {cell}")
    return "\n".join(lines)
