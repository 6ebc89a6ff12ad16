"""Attacks on what roles of a run have seen, each with its side knowledge."""

from skvfl.privacy.attacks._aliases import AliasAttack
from skvfl.privacy.attacks._base import Attack
from skvfl.privacy.attacks._gradients import (
    GradientDirectionAttack,
    GradientNormAttack,
    ModelCompletionAttack,
)
from skvfl.privacy.attacks._masks import HyperplaneAttack
from skvfl.privacy.attacks._membership import LossThresholdAttack, ShadowModelAttack
from skvfl.privacy.attacks._projection import (
    FrequencyAttack,
    IndependentComponentsAttack,
    KnownRowsAttack,
    MomentsAttack,
)
from skvfl.privacy.attacks._ranks import RankAttack
from skvfl.privacy.attacks._representations import (
    AttributeInferenceAttack,
    EqualRowsAttack,
    InversionAttack,
)
from skvfl.privacy.attacks._secure import (
    ClusterGradientAttack,
    CollusionAttack,
    RoundDifferenceAttack,
    UniformityAttack,
)
from skvfl.privacy.attacks._sums import BinSumsAttack, NodeRowsAttack
from skvfl.privacy.attacks._trees import (
    GradientSignAttack,
    GradientTargetAttack,
    SplitSidesAttack,
)

__all__ = [
    "AliasAttack",
    "Attack",
    "AttributeInferenceAttack",
    "BinSumsAttack",
    "ClusterGradientAttack",
    "CollusionAttack",
    "EqualRowsAttack",
    "FrequencyAttack",
    "GradientDirectionAttack",
    "GradientNormAttack",
    "GradientSignAttack",
    "GradientTargetAttack",
    "HyperplaneAttack",
    "IndependentComponentsAttack",
    "InversionAttack",
    "KnownRowsAttack",
    "LossThresholdAttack",
    "ModelCompletionAttack",
    "MomentsAttack",
    "NodeRowsAttack",
    "RankAttack",
    "RoundDifferenceAttack",
    "ShadowModelAttack",
    "SplitSidesAttack",
    "UniformityAttack",
]
