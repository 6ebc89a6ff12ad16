"""The one place that imports private or experimental scikit-learn names."""

import functools

from sklearn.base import _fit_context as _sklearn_fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    Options,
    StrOptions,
    validate_params,
)
from sklearn.utils._repr_html.estimator import _VisualBlock
from sklearn.utils._set_output import (
    _get_container_adapter,
    _get_output_config,
    _safe_set_output,
)
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.validation import (
    _check_feature_names_in,
    _get_feature_names,
    _num_samples,
)

__all__ = [
    "CallbackSupportMixin",
    "HasMethods",
    "Interval",
    "Options",
    "StrOptions",
    "_BaseComposition",
    "_VisualBlock",
    "_check_feature_names_in",
    "_fit_context",
    "_get_container_adapter",
    "_get_feature_names",
    "_get_output_config",
    "_num_samples",
    "_safe_indexing",
    "_safe_set_output",
    "validate_params",
    "whole_or_unchanged",
]


def whole_or_unchanged(fit):
    """Decorator: a fit that fails, or is interrupted, leaves the object as it was.

    Without it a refit that fails half way leaves new labels beside old networks, and
    the next prediction is wrong without a word. A shallow copy of the attributes is
    enough, because every fit makes its fitted objects anew and none changes the old
    ones in place.
    """

    @functools.wraps(fit)
    def wrapper(self, *args, **kwargs):
        before = dict(vars(self))
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            # One assignment, so that a second interrupt finds all or nothing.
            self.__dict__ = before
            raise

    return wrapper


def _fit_context(*, prefer_skip_nested_validation):
    """scikit-learn's context of a fit, and no half-fitted object after a failure."""
    context = _sklearn_fit_context(
        prefer_skip_nested_validation=prefer_skip_nested_validation
    )
    return lambda fit: whole_or_unchanged(context(fit))
