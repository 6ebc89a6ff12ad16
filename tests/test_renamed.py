"""Parameters that had another name still work, and say how they are called now."""

import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge

import skvfl

FORMER = [
    (skvfl.FedOnceClassifier, "guest", PCA(2), "local_encoder", PCA(2)),
    (skvfl.FedOnceRegressor, "host", (8,), "top", (8,)),
    (skvfl.FedOnceClassifier, "local", (8,), "bottom", (8,)),
    (skvfl.FedOnceRegressor, "local_width", 4, "cut_width", 4),
    (
        skvfl.APCVFLClassifier,
        "classifier",
        LogisticRegression(C=2),
        "estimator",
        LogisticRegression(C=2),
    ),
    (skvfl.APCVFLRegressor, "regressor", Ridge(2), "estimator", Ridge(2)),
    (skvfl.TabVFLClassifier, "on_failure", "zeros", "missing_party", "zero"),
    (skvfl.TabVFLRegressor, "on_failure", "raise", "missing_party", "raise"),
    (skvfl.NoiseAsTargetsEncoder, "module", (8,), "hidden_layer_sizes", (8,)),
    (skvfl.ClientFailures, "seed", 3, "random_state", 3),
]


@pytest.mark.parametrize(("kind", "old", "value", "new", "became"), FORMER)
def test_a_former_name_works_and_warns(kind, old, value, new, became):
    required = {"probability": 0.3} if kind is skvfl.ClientFailures else {}
    with pytest.warns(FutureWarning, match=f"{old!r} of .* is {new!r} now"):
        made = kind(**{old: value}, **required)
    assert str(getattr(made, new)) == str(became)


def test_both_names_at_once_are_refused():
    with pytest.raises(TypeError, match="'guest' is 'local_encoder' now"):
        skvfl.FedOnceClassifier(guest=PCA(2), local_encoder=PCA(3))


def test_the_signature_has_the_present_names_alone():
    once = clone(skvfl.FedOnceClassifier(local_encoder=PCA(2)))
    assert "local_encoder" in once.get_params()
    assert "guest" not in once.get_params()
