"""Attacks on what a role of a run has seen, each with its side knowledge."""

from skvfl.privacy.attacks._aliases import AliasAttack
from skvfl.privacy.attacks._base import Attack
from skvfl.privacy.attacks._masks import HyperplaneAttack
from skvfl.privacy.attacks._projection import (
    FrequencyAttack,
    IndependentComponentsAttack,
    KnownRowsAttack,
    MomentsAttack,
)
from skvfl.privacy.attacks._ranks import RankAttack
from skvfl.privacy.attacks._secure import (
    ClusterGradientAttack,
    CollusionAttack,
    RoundDifferenceAttack,
    UniformityAttack,
)

__all__ = [
    "AliasAttack",
    "Attack",
    "ClusterGradientAttack",
    "CollusionAttack",
    "FrequencyAttack",
    "HyperplaneAttack",
    "IndependentComponentsAttack",
    "KnownRowsAttack",
    "MomentsAttack",
    "RankAttack",
    "RoundDifferenceAttack",
    "UniformityAttack",
]
