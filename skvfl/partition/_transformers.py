"""What a party does with its columns: words for it, and what is no transformer."""

from __future__ import annotations

from sklearn.base import clone
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from skvfl.partition._preprocessing import PartyPreprocessor


def resolve_transformer(transformer):
    """A transformer of a party's own: a word for one, or a clone."""
    if isinstance(transformer, str):
        if transformer == "auto":
            return PartyPreprocessor()
        if transformer == "passthrough":
            return FunctionTransformer(
                accept_sparse=True, feature_names_out="one-to-one"
            )
    elif hasattr(transformer, "fit_transform"):
        require_transformer("transformer", transformer)
        return clone(transformer)
    raise ValueError(
        f"transformer {transformer!r} is neither 'auto' nor 'passthrough' nor a "
        "transformer; in a list of parties the order is (name, transformer, columns)"
    )


def require_transformer(name, value, methods=("fit_transform", "transform")):
    """Refuse what cannot be cloned and fitted, such as a class."""
    if isinstance(value, type):
        raise ValueError(
            f"{name} is the class {value.__name__}: give an instance, such as "
            f"{value.__name__}()"
        )
    lacking = [method for method in methods if not hasattr(value, method)]
    if lacking:
        raise ValueError(
            f"{name} is a {type(value).__name__} without {' and '.join(lacking)}: give "
            "a transformer"
        )
    for step in (value, *(step for _, step in getattr(value, "steps", ()))):
        if step in (None, "passthrough") or isinstance(step, type):
            continue
        if not hasattr(step, "transform"):
            raise ValueError(
                f"{name} has the step {type(step).__name__}, which has no transform: "
                "leave it out; samplers change rows, which must stay aligned over the "
                "parties"
            )
        if hasattr(step, "__sklearn_tags__") and get_tags(step).target_tags.required:
            raise ValueError(
                f"{name}: {type(step).__name__} needs y, which parties do not have: "
                "choose a transformer that learns from columns alone"
            )
