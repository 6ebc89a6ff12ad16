"""The names of all parameters and curves, as a page of the contributor's guide.

Usage: python docs/vocabulary.py

Writes ``docs/development/vocabulary.rst`` from the constructors themselves; a test
compares the two, and holds the constructors to what is said here.
"""

import inspect
import re
from collections import Counter
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

from sklearn.base import BaseEstimator

import skvfl

PAGE = Path(__file__).parent / "development" / "vocabulary.rst"
ATTRIBUTES = (
    "loss_curve_",
    "validation_loss_curve_",
    "n_iter_",
    "classes_",
    "communication_",
    "partition_",
    "epsilon_spent_",
)
HEAD = """.. _vocabulary:

Vocabulary
==========

..
   Written by docs/vocabulary.py from the constructors; a test compares them.

The same thing has the same name, default and place in every constructor. Parameters
come in this order; those that a family has alone stand where they belong. Whatever is
random has a ``random_state``, never a ``seed``. Where "by party" is said, a dict gives
the setting for each party by its name: ``bottom={"bank": (64,), "shop": (16,)}``.
"""
# Defaults that differ on purpose, and why.
DIFFERENT = {
    ("batch_size", "NoiseAsTargetsEncoder"): (
        "the paper's, and the exchange of targets takes the cube of it"
    ),
    ("batch_size", "TabVFL"): "batch norm of TabNet needs larger batches",
    ("estimator", "RandomProjectionVFL"): (
        "one class for both kinds, so that its model must say which it is"
    ),
    ("hidden_layer_sizes", "NoiseAsTargetsEncoder"): "the paper's",
    ("lr", "FedOnce"): "None is 1e-3, and 0.5 for the plain steps of a budget",
    ("lr", "TabVFL"): "that of TabNet's authors",
    ("missing_party", "TabVFL"): (
        "the paper's system goes on with what a lost party sent last"
    ),
    ("n_components", "NoiseAsTargetsEncoder"): "the paper's",
    ("n_components", "RandomFeaturesEncoder"): "as wide as a cut layer",
}
# What a name means where that is not the same thing everywhere, or is one on purpose.
MEANT = {
    "early_stopping": "where a loss of labels can be held out",
    "active": "the party with the labels: FedOnce's and TabVFL's host, RAP's owner",
    "bottom": "a party's own network; at FedOnce the host's, since guests encode",
    "cut_width": "what ``bottom`` puts out",
    "estimator": "the scikit-learn model that learns the labels",
    "hidden_layer_sizes": "of a transformer that is one network",
    "local_encoder": "what a party's columns go through before they are sent",
    "max_grad_norm": "of a step (TabVFL), or of each row, with a budget (FedOnce)",
    "missing_party": "what stands for a party that is absent; the others need all",
    "missing_rows": "not at APC-VFL, which learns from rows that some parties lack",
    "top": "the network above; ReLU comes first where parties' outputs are summed",
    "warm_start": (
        "more epochs, or trees; not at RAP and APC-VFL, where a fit is one exchange"
    ),
}


def families():
    """Estimators by family: a classifier and its regressor are one."""
    found = {}
    for name in skvfl.__all__:
        kind = getattr(skvfl, name)
        if inspect.isclass(kind) and issubclass(kind, BaseEstimator):
            family = re.sub(r"(Classifier|Regressor)$", "", name)
            found.setdefault(family, []).append(kind)
    return found


def parameters():
    """Defaults of every parameter, by family: ``{parameter: {family: default}}``."""
    table = {}
    for family, kinds in families().items():
        for kind in kinds:
            for each in inspect.signature(kind).parameters.values():
                defaults = table.setdefault(each.name, {})
                if defaults.setdefault(family, each.default) != each.default:
                    raise ValueError(f"{each.name} has two defaults in {family}")
    return table


def shared():
    """Parameters of several families, in the one order that all of them keep."""
    table = parameters()
    common = [name for name, where in table.items() if len(where) > 1]
    # Lists, because the order of a set is another one in every process.
    before = {name: [] for name in common}
    for kinds in families().values():
        for kind in kinds:
            own = [n for n in inspect.signature(kind).parameters if n in before]
            for first, second in pairwise(own):
                before[second].append(first)
    return {name: table[name] for name in TopologicalSorter(before).static_order()}


def usual(defaults):
    """The default that most families have, and those that have another one."""
    counts = Counter(map(repr, defaults.values()))
    most, _ = counts.most_common(1)[0]
    others = {family: x for family, x in defaults.items() if repr(x) != most}
    return most, others


def page():
    """Text of the page."""
    rows = []
    for name, defaults in shared().items():
        default, others = usual(defaults)
        said = [MEANT[name]] if name in MEANT else []
        if by_party := [f for f in sorted(defaults) if name in _by_party(f)]:
            said.append(f"by party at {' and '.join(by_party)}")
        for family, other in others.items():
            why = DIFFERENT.get((name, family), "?")
            said.append(f"{family} has ``{other!r}``: {why}")
        where = ", ".join(sorted(defaults))
        rows.append((f"``{name}``", f"``{default}``", where, "; ".join(said)))
    own = {family: [] for family in families()}
    for name, where in parameters().items():
        if len(where) == 1:
            own[next(iter(where))].append(f"``{name}``")
    alone = [(family, ", ".join(names)) for family, names in own.items() if names]
    curves = [(f"``{name}``", ", ".join(documented(name))) for name in ATTRIBUTES]
    parts = [
        HEAD,
        _table(("Name", "Default", "Where", "What to know"), rows),
        "Parameters of one family alone:\n",
        _table(("Family", "Names"), alone),
        "Fitted attributes that several have:\n",
        _table(("Name", "Where"), curves),
    ]
    return "\n".join(parts)


def _by_party(family):
    return getattr(families()[family][0], "_by_party", ())


def documented(attribute):
    """Families whose docstring has an attribute."""
    entry = re.compile(rf"^    {attribute} :", re.MULTILINE)
    found = {}
    for family, kinds in families().items():
        if any(entry.search(kind.__doc__) for kind in kinds):
            found[family] = None
    return sorted(found)


def _table(head, rows):
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (head, *rows):
        for i, cell in enumerate(row):
            lines.append(f"   {'* -' if i == 0 else '  -'} {cell}".rstrip())
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page())
