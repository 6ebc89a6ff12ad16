"""The one place that imports private or experimental scikit-learn names."""

import functools

import numpy as np
from sklearn.base import _fit_context as _sklearn_fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
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

try:
    from sklearn.ensemble._hist_gradient_boosting.histogram import HistogramBuilder
    from sklearn.utils._openmp_helpers import (
        _openmp_effective_n_threads as n_threads,
    )
except ImportError:  # compiled code that no version promises; numpy does it, too
    HistogramBuilder = n_threads = None

__all__ = [
    "CallbackSupportMixin",
    "HasMethods",
    "HistogramBuilder",
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
    "check_instances",
    "n_threads",
    "validate_params",
    "whole_or_unchanged",
]


def whole_or_unchanged(fit):
    """Decorator: a fit that fails, or is interrupted, leaves the object as it was.

    Without it a refit that fails half way leaves new labels beside old networks, and
    the next prediction is wrong without a word. A shallow copy of the attributes is
    enough, because every fit makes its fitted objects anew and none changes the old
    ones in place. A fit may leave attributes in ``_left`` that belong together all the
    same; the object then has those.

    What a fit says in ``_spending`` has been spent on labels, whether it ends well or
    not: where nothing else of it is left, it is added to ``label_epsilon_lost_``.
    """

    @functools.wraps(fit)
    def wrapper(self, *args, **kwargs):
        before = dict(vars(self))
        try:
            fitted = fit(self, *args, **kwargs)
        except BaseException as exc:
            left = vars(self).pop("_left", None)
            spent = vars(self).pop("_spending", 0.0)
            now = before if left is None else {**vars(self), **left}
            if spent and left is None:
                lost = before.get("label_epsilon_lost_", 0.0) + spent
                now = {**before, "label_epsilon_lost_": lost}
                exc.add_note(
                    f"This fit has spent label_epsilon={spent:g} on the labels, though "
                    f"it has not ended; label_epsilon_lost_={lost:g} counts such fits."
                )
            # One assignment, so that a second interrupt finds all or nothing.
            self.__dict__ = now
            raise
        vars(self).pop("_spending", None)
        return fitted

    return wrapper


def check_instances(estimator):
    """Refuse what scikit-learn's checks of parameters let pass.

    To them a class has the methods of its instances, and True is the number 1.

    Parameters
    ----------
    estimator : estimator
        With ``_parameter_constraints``.

    Raises
    ------
    InvalidParameterError
        If a parameter is a class where an instance is due, or a bool where a number is.
    """
    for name, value in estimator.get_params(deep=False).items():
        allowed = estimator._parameter_constraints.get(name, ())
        if isinstance(value, bool | np.bool_) and "boolean" not in allowed:
            raise InvalidParameterError(
                f"The {name!r} parameter of {type(estimator).__name__} is {value}, "
                "which is neither a number nor a name"
            )
        if callable in allowed or name == "callbacks":
            continue
        for kind in _classes_in(value):
            raise InvalidParameterError(
                f"The {name!r} parameter of {type(estimator).__name__} holds the class "
                f"{kind.__name__}: give an instance, such as {kind.__name__}()"
            )


def _classes_in(value):
    """Classes that a parameter is, or holds for a party."""
    if isinstance(value, dict):
        value = list(value.values())
    for each in value if isinstance(value, list) else [value]:
        for entry in each if isinstance(each, tuple) else [each]:
            if isinstance(entry, type):
                yield entry


def _fit_context(*, prefer_skip_nested_validation):
    """scikit-learn's context of a fit, and no half-fitted object after a failure."""
    context = _sklearn_fit_context(
        prefer_skip_nested_validation=prefer_skip_nested_validation
    )

    def decorator(fit):
        inner = context(fit)

        @whole_or_unchanged
        @functools.wraps(fit)
        def wrapper(self, *args, **kwargs):
            check_instances(self)
            return inner(self, *args, **kwargs)

        return wrapper

    return decorator
