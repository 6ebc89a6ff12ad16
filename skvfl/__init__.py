"""Vertical federated learning as scikit-learn estimators."""

from skvfl._partition import VerticalPartitioner
from skvfl._preprocessing import PartyPreprocessor
from skvfl._projection import GaussianProjection
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

__all__ = [
    "CommunicationLog",
    "ComparisonDisplay",
    "Contiguous",
    "CorrelationSplit",
    "GaussianProjection",
    "ImageTiles",
    "ImportanceSplit",
    "LocalTransport",
    "PartyPreprocessor",
    "ProcessTransport",
    "RandomProjectionVFL",
    "RoundRobin",
    "VerticalPartitioner",
    "compare",
    "record_communication",
]
