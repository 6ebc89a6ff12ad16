"""Vertical federated learning as scikit-learn estimators."""

from importlib import import_module

from skvfl._partition import VerticalPartitioner
from skvfl._preprocessing import PartyPreprocessor
from skvfl._projection import GaussianProjection
from skvfl._random_features import RandomFeaturesEncoder
from skvfl._random_projection import RandomProjectionVFL
from skvfl._splitters import (
    Contiguous,
    CorrelationSplit,
    ImageTiles,
    ImportanceSplit,
    RoundRobin,
)
from skvfl.evaluation import ComparisonDisplay, compare
from skvfl.federation import (
    CommunicationLog,
    LocalTransport,
    ProcessTransport,
    record_communication,
)

__version__ = "0.1.0.dev0"

# What needs torch is imported when it is first asked for.
_LAZY = {
    "APCVFLClassifier": "skvfl._apc",
    "APCVFLRegressor": "skvfl._apc",
    "AutoencoderTransformer": "skvfl._autoencoder",
    "ClientFailures": "skvfl._tabvfl",
    "EncoderEvaluationDisplay": "skvfl._autoencoder",
    "FedOnceClassifier": "skvfl._fedonce",
    "FedOnceRegressor": "skvfl._fedonce",
    "NoiseAsTargetsEncoder": "skvfl._noise_as_targets",
    "SplitNNClassifier": "skvfl._splitnn",
    "SplitNNRegressor": "skvfl._splitnn",
    "TabVFLClassifier": "skvfl._tabvfl",
    "TabVFLRegressor": "skvfl._tabvfl",
    "VFedSecClassifier": "skvfl._vfedsec",
    "VFedSecRegressor": "skvfl._vfedsec",
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
    "VFedSecClassifier",
    "VFedSecRegressor",
    "VerticalPartitioner",
    "compare",
    "record_communication",
]


def __getattr__(name):
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
