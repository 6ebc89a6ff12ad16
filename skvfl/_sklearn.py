"""The one place that imports private or experimental scikit-learn names."""

from sklearn.base import _fit_context
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
    _check_sample_weight,
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
    "_check_sample_weight",
    "_fit_context",
    "_get_container_adapter",
    "_get_feature_names",
    "_get_output_config",
    "_num_samples",
    "_safe_indexing",
    "_safe_set_output",
    "validate_params",
]
