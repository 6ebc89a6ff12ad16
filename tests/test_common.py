"""scikit-learn's own checks over every public estimator."""

import inspect

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.svm import LinearSVC
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import skvfl
from skvfl import (
    APCVFLClassifier,
    APCVFLRegressor,
    AutoencoderTransformer,
    Contiguous,
    CorrelationSplit,
    FedOnceClassifier,
    FedOnceRegressor,
    GaussianProjection,
    ImageTiles,
    ImportanceSplit,
    NoiseAsTargetsEncoder,
    PartyPreprocessor,
    RandomFeaturesEncoder,
    RandomProjectionVFL,
    RoundRobin,
    SplitNNClassifier,
    SplitNNRegressor,
    TabVFLClassifier,
    TabVFLRegressor,
    VerticalPartitioner,
    VFedSecClassifier,
    VFedSecRegressor,
    VFLBoostingClassifier,
    VFLBoostingRegressor,
)
from skvfl._base import VFLEstimator

# As little training as the checks of accuracy let pass: each estimator is fitted some
# two hundred times.
TRAINING = {"max_epochs": 10, "batch_size": 32, "lr": 0.05}
SMALL_TABNET = {
    **TRAINING,
    "max_epochs": 5,
    "pretraining_epochs": 1,
    "lr": 0.1,
    # Few epochs: the running statistics must follow the batches quickly.
    "momentum": 0.5,
    "n_steps": 1,
    "n_a": 4,
    "n_independent": 1,
    "n_shared": 1,
}
LARGER_TABNET = {**SMALL_TABNET, "n_steps": 2, "max_epochs": 11, "lr": 0.06}
FEW_TREES = {"max_iter": 5, "min_samples_leaf": 2, "learning_rate": 0.6}
BRIEF = {**TRAINING, "max_epochs": 6, "lr": 0.1}
ENCODER = AutoencoderTransformer(16, hidden_layer_sizes=(16,), **BRIEF)
ENCODERS = {
    "local_encoder": ENCODER,
    "joint_encoder": ENCODER,
    "active_encoder": ENCODER,
}
# Checks have tables of two columns, too few for a party that predicts from its own.
SHARED = VerticalPartitioner(
    parties={"bank": slice(None), "shop": slice(None)}, allow_overlap=True
)
ESTIMATORS = [
    APCVFLClassifier(parties=SHARED, **ENCODERS),
    APCVFLClassifier(parties=SHARED, distillation="prediction", **ENCODERS),
    APCVFLClassifier(parties=SHARED, inference="joint", **ENCODERS),
    APCVFLRegressor(parties=SHARED, **ENCODERS),
    APCVFLRegressor(parties=SHARED, distillation=None, **TRAINING),
    AutoencoderTransformer(8, hidden_layer_sizes=(16,), **TRAINING),
    AutoencoderTransformer(1, hidden_layer_sizes=(), **TRAINING),
    SplitNNClassifier(**TRAINING),
    SplitNNClassifier(
        aggregation="sum", early_stopping=True, label_epsilon=50.0, **TRAINING
    ),
    SplitNNRegressor(**TRAINING),
    VFedSecClassifier(bits=64, **TRAINING),
    VFedSecClassifier(
        bits=64, masked=False, early_stopping=True, validation_fraction=0.3, **TRAINING
    ),
    VFedSecRegressor(bits=64, masked=False, **TRAINING),
    VFedSecRegressor(bits=64, bottom=(), cut_width=8, **TRAINING),
    SplitNNRegressor(aggregation="max", bottom=(), cut_width=8, **TRAINING),
    TabVFLClassifier(**SMALL_TABNET),
    TabVFLClassifier(
        design="local_encoder",
        early_stopping=True,
        label_epsilon=50.0,
        **SMALL_TABNET,
    ),
    TabVFLRegressor(design="local", pretrain=False, **SMALL_TABNET),
    TabVFLRegressor(mask_type="entmax", **LARGER_TABNET),
    FedOnceClassifier(**TRAINING),
    FedOnceClassifier(
        local_encoder=RandomFeaturesEncoder(), early_stopping=True, n_jobs=2, **TRAINING
    ),
    FedOnceClassifier(epsilon=50.0, delta=0.01, max_epochs=15, batch_size=32),
    FedOnceRegressor(
        n_split_epochs=2,
        representation_noise=0.01,
        **{**TRAINING, "max_epochs": 40, "lr": 0.02},
    ),
    FedOnceRegressor(
        local_encoder=RandomFeaturesEncoder(),
        bottom=(),
        missing_party="zero",
        **TRAINING,
    ),
    VFLBoostingClassifier(**FEW_TREES),
    VFLBoostingClassifier(
        max_leaf_nodes=None, max_depth=3, early_stopping=True, **FEW_TREES
    ),
    VFLBoostingRegressor(**FEW_TREES),
    VFLBoostingRegressor(
        label_epsilon=50.0, target_range=(-1e4, 1e4), max_bins=16, **FEW_TREES
    ),
    NoiseAsTargetsEncoder(**TRAINING),
    NoiseAsTargetsEncoder(
        5,
        hidden_layer_sizes=(),
        output_activation="identity",
        update_every=3,
        **TRAINING,
    ),
    RandomFeaturesEncoder(),
    RandomFeaturesEncoder(3, random_state=0),
    GaussianProjection(),
    GaussianProjection(kind="conditioned"),
    GaussianProjection(kind="gaussian", random_state=0),
    PartyPreprocessor(),
    PartyPreprocessor(max_categories=2, dtype="float64"),
    VerticalPartitioner(),
    VerticalPartitioner(GaussianProjection(), parties=RoundRobin(2, shuffle=True)),
    VerticalPartitioner("passthrough", parties=Contiguous(2)),
    VerticalPartitioner(
        parties=CorrelationSplit(2), remainder="drop", allow_overlap=True
    ),
    RandomProjectionVFL(MLPClassifier((16,), learning_rate_init=0.05, max_iter=60)),
    RandomProjectionVFL("regressor"),
    RandomProjectionVFL(MLPRegressor(hidden_layer_sizes=(16,), solver="lbfgs")),
    RandomProjectionVFL(LogisticRegression(), label_protection=False, whiten=True),
    RandomProjectionVFL(
        LogisticRegression(),
        parties=RoundRobin(2, shuffle=True),
        missing_rows="impute",
        label_protection=False,
    ),
    RandomProjectionVFL(LinearSVC(), projection=GaussianProjection(kind="gaussian")),
    RandomProjectionVFL(Ridge(), projection=GaussianProjection(kind="conditioned")),
    RandomProjectionVFL(
        Ridge(),
        parties=VerticalPartitioner(
            PartyPreprocessor(dtype="float64"), parties=Contiguous(2)
        ),
        active="party1",
        label_protection=False,
    ),
]
SPLITTERS = [
    RoundRobin(),
    RoundRobin(3, shuffle=True, random_state=0),
    Contiguous(),
    Contiguous(3),
    ImportanceSplit(),
    ImportanceSplit(3, concentration=0.1, random_state=0),
    CorrelationSplit(),
    CorrelationSplit(3, level=0, random_state=0),
    ImageTiles(),
    ImageTiles(shape=(8, 8, 3), tiles=(1, 2)),
]
UNWEIGHTED_PARTIES = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a passive party standardises its columns without the weights, which only the "
        "active party holds, and batches are shuffled, so that a weight is not a "
        "repetition"
    ),
}
UNWEIGHTED_LEAVES = {
    "check_sample_weight_equivalence_on_dense_data": (
        "min_samples_leaf counts rows, as scikit-learn's own trees do, so that a row "
        "of weight two is not two rows"
    ),
}
NO_CLASS_WEIGHT = {
    "check_class_weight_classifiers": (
        "a budget of labels refuses class_weight, because rows would weigh what their "
        "true classes weigh, which gradients show"
    ),
}
EXPECTED_FAILURES = {
    APCVFLClassifier: UNWEIGHTED_PARTIES,
    APCVFLRegressor: UNWEIGHTED_PARTIES,
    FedOnceClassifier: UNWEIGHTED_PARTIES,
    FedOnceRegressor: UNWEIGHTED_PARTIES,
    SplitNNClassifier: UNWEIGHTED_PARTIES,
    SplitNNRegressor: UNWEIGHTED_PARTIES,
    TabVFLClassifier: UNWEIGHTED_PARTIES,
    TabVFLRegressor: UNWEIGHTED_PARTIES,
    VFedSecClassifier: UNWEIGHTED_PARTIES,
    VFedSecRegressor: UNWEIGHTED_PARTIES,
    VFLBoostingClassifier: UNWEIGHTED_LEAVES,
    VFLBoostingRegressor: UNWEIGHTED_LEAVES,
    RandomProjectionVFL: {
        "check_sample_weight_equivalence_on_dense_data": (
            "a passive party standardises its columns without the weights, which only "
            "the label owner holds, and the aliases of repeated rows are drawn one by "
            "one"
        ),
        "check_sample_weight_equivalence_on_sparse_data": (
            "predicts for dense rows after a fit on sparse ones, which the parties' "
            "preprocessing refuses because it centres the former and not the latter"
        ),
    },
}
SPLITTER_CHECKS = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_mixin_order,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
]


def expected_failures(estimator):
    failures = EXPECTED_FAILURES.get(type(estimator), {})
    if getattr(estimator, "label_epsilon", None) is None:
        return failures
    return {**failures, **NO_CLASS_WEIGHT}


def finds_columns_by_name(estimator):
    return isinstance(estimator, VerticalPartitioner | VFLEstimator)


def repeats(estimator, check):
    """Whether a check does again what a quicker one does with the same class.

    The first configuration of a class is the quick sibling of the others. Some checks
    come up to three times: as they are, with arrays that cannot be written to, and with
    such arrays in single precision; the second is between the two others.
    """
    is_first = estimator is next(e for e in ESTIMATORS if type(e) is type(estimator))
    in_single_too = check.func.__name__.endswith("s_train")
    if check.keywords.get("readonly_memmap"):
        return not is_first or (in_single_too and "X_dtype" not in check.keywords)
    return not is_first


def marked(checks):
    """The same parameters, of which those that repeat others are slow."""
    for each in checks.args[1]:
        values, marks = getattr(each, "values", each), getattr(each, "marks", ())
        slow = [pytest.mark.slow] if repeats(*values) else []
        yield pytest.param(*values, marks=[*marks, *slow])


CHECKS = parametrize_with_checks(
    ESTIMATORS, expected_failed_checks=expected_failures, xfail_strict=True
)


@pytest.mark.filterwarnings("ignore::skvfl.exceptions.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(CHECKS.args[0], [*marked(CHECKS)], **CHECKS.kwargs)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", SPLITTER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("splitter", SPLITTERS, ids=repr)
def test_scikit_learn_check_of_a_splitter(splitter, check):
    check(type(splitter).__name__, clone(splitter))


@pytest.mark.parametrize(
    "estimator",
    [each for each in ESTIMATORS if not finds_columns_by_name(each)],
    ids=repr,
)
def test_later_column_names_are_compared_with_those_of_fit(estimator):
    estimator_checks.check_dataframe_column_names_consistency(
        type(estimator).__name__, estimator
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator", [each for each in ESTIMATORS if finds_columns_by_name(each)], ids=repr
)
def test_later_columns_are_found_by_name(estimator):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 6)), columns=list("abcdef"))
    y = rng.integers(0, 2, 40) if is_classifier(estimator) else rng.normal(size=40)
    estimator = clone(estimator).set_params(random_state=0).fit(X, y)
    permuted = X[list("fbdeca")]
    assert list(estimator.feature_names_in_) == list("abcdef")
    if hasattr(estimator, "transform"):
        assert_allclose(estimator.transform(permuted), estimator.transform(X))
    if hasattr(estimator, "predict"):
        assert_allclose(estimator.predict(permuted), estimator.predict(X))
    # Trees predict, and have nothing to transform.
    serve = getattr(estimator, "transform", None) or estimator.predict
    with pytest.raises(ValueError, match="column 'e' is missing"):
        serve(X.drop(columns="e"))


def test_every_public_estimator_is_checked_in_two_configurations():
    public = {
        each
        for each in (getattr(skvfl, name) for name in skvfl.__all__)
        if inspect.isclass(each) and issubclass(each, BaseEstimator)
    }
    checked = [type(each) for each in ESTIMATORS + SPLITTERS]
    assert set(checked) == public
    assert min(map(checked.count, public)) >= 2
    for kind in set(map(type, SPLITTERS)):
        assert not hasattr(kind, "fit"), f"{kind.__name__} belongs to ESTIMATORS"


def test_expected_failures_are_those_of_public_estimators_and_argued():
    assert set(EXPECTED_FAILURES) <= set(map(type, ESTIMATORS))
    for checks in EXPECTED_FAILURES.values():
        assert all(hasattr(estimator_checks, check) for check in checks)
        assert all(len(reason.split()) > 8 for reason in checks.values())


@pytest.mark.parametrize(
    "estimator",
    [
        SplitNNClassifier(),
        VFedSecClassifier(),
        TabVFLClassifier(),
        FedOnceClassifier(local_encoder=RandomFeaturesEncoder(2)),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_held_out_rows_without_weight_do_not_tell_when_to_stop(estimator):
    X, y = load_breast_cancer(return_X_y=True)
    weights = np.zeros(len(y))
    weights[:2] = 1
    estimator = clone(estimator).set_params(early_stopping=True, random_state=1)
    with pytest.raises(ValueError, match=r"weight 0, .* raise validation_fraction"):
        estimator.fit(X, y, weights)


@pytest.mark.parametrize(
    "estimator",
    [SplitNNClassifier(), VFedSecClassifier()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_loss_curve_is_the_mean_over_weights(estimator):
    """Batches without weight count for nothing."""
    X, y = load_breast_cancer(return_X_y=True)
    weights = np.zeros(len(y))
    weights[:3] = [1, 2, 3]
    estimator = clone(estimator).set_params(lr=1e-12, batch_size=16, max_epochs=1)
    estimator.set_params(random_state=0).fit(X, y, weights)
    losses = -np.log(estimator.predict_proba(X)[np.arange(len(y)), y])
    expected = np.average(losses, weights=weights)
    assert_allclose(estimator.loss_curve_, expected, rtol=1e-4)
