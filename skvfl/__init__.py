"""Vertical federated learning as scikit-learn estimators."""

from difflib import get_close_matches
from importlib import import_module

from skvfl.evaluation import ComparisonDisplay, LossCurveDisplay, compare
from skvfl.federation import (
    CommunicationLog,
    LocalTransport,
    ProcessTransport,
    record_communication,
)
from skvfl.fedonce._random_features import RandomFeaturesEncoder
from skvfl.partition._partitioner import VerticalPartitioner
from skvfl.partition._preprocessing import PartyPreprocessor
from skvfl.partition._splitters import (
    Contiguous,
    CorrelationSplit,
    ImageTiles,
    ImportanceSplit,
    RoundRobin,
)
from skvfl.rap._estimator import RandomProjectionVFL
from skvfl.rap._projection import GaussianProjection

__version__ = "0.1.0.dev0"

# What needs torch or gRPC is imported when it is first asked for.
_LAZY = {
    "APCVFLClassifier": "skvfl.apc._estimator",
    "APCVFLRegressor": "skvfl.apc._estimator",
    "AutoencoderTransformer": "skvfl.apc._autoencoder",
    "ClientFailures": "skvfl.tabvfl._protocol",
    "EncoderEvaluationDisplay": "skvfl.apc._autoencoder",
    "FedOnceClassifier": "skvfl.fedonce._estimator",
    "FedOnceRegressor": "skvfl.fedonce._estimator",
    "NoiseAsTargetsEncoder": "skvfl.fedonce._noise_as_targets",
    "SplitNNClassifier": "skvfl.splitnn._estimator",
    "SplitNNRegressor": "skvfl.splitnn._estimator",
    "TabVFLClassifier": "skvfl.tabvfl._estimator",
    "TabVFLRegressor": "skvfl.tabvfl._regressor",
    "VFLBoostingClassifier": "skvfl.boosting._estimator",
    "VFLBoostingRegressor": "skvfl.boosting._estimator",
    "VFedSecClassifier": "skvfl.vfedsec._estimator",
    "VFedSecRegressor": "skvfl.vfedsec._regressor",
    "connect": "skvfl.remote._connect",
}

__all__ = [
    "APCVFLClassifier",
    "APCVFLRegressor",
    "AutoencoderTransformer",
    "ClientFailures",
    "CommunicationLog",
    "ComparisonDisplay",
    "Contiguous",
    "CorrelationSplit",
    "EncoderEvaluationDisplay",
    "FedOnceClassifier",
    "FedOnceRegressor",
    "GaussianProjection",
    "ImageTiles",
    "ImportanceSplit",
    "LocalTransport",
    "LossCurveDisplay",
    "NoiseAsTargetsEncoder",
    "PartyPreprocessor",
    "ProcessTransport",
    "RandomFeaturesEncoder",
    "RandomProjectionVFL",
    "RoundRobin",
    "SplitNNClassifier",
    "SplitNNRegressor",
    "TabVFLClassifier",
    "TabVFLRegressor",
    "VFLBoostingClassifier",
    "VFLBoostingRegressor",
    "VFedSecClassifier",
    "VFedSecRegressor",
    "VerticalPartitioner",
    "compare",
    "connect",
    "record_communication",
]


def __getattr__(name):
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    near = get_close_matches(name, __all__, 1)
    hint = f"; it has {near[0]!r}" if near else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
