"""The server's model: any scikit-learn model or skorch net, on what parties sent."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import numpy as np
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.utils import get_tags

from skvfl._random import int_seed


def precision_of(model):
    """Data type that a model learns from; None for that which arrives.

    Parameters
    ----------
    model : estimator
        The server's.

    Returns
    -------
    dtype : type or None
    """
    # torch wants single precision. scikit-learn's perceptrons train well on what
    # arrived; other models solve systems that lose too many digits by it.
    if _nets(model):
        return np.float32
    return None if isinstance(model, MLPClassifier | MLPRegressor) else np.float64


def fit_model(model, received, labels, weights, n_labels, sequence):
    """Fit the server's model, or one per target column where it learns only one.

    Parameters
    ----------
    model : estimator
        Unfitted.
    received : ndarray of shape (n_samples, n_columns)
        What the parties sent.
    labels : ndarray of shape (n_samples,) or (n_samples, n_targets)
        Label codes, or target columns.
    weights : ndarray of shape (n_samples,) or None
        Weights of the rows.
    n_labels : int
        Number of label codes that can occur.
    sequence : numpy.random.SeedSequence
        Root of torch's stream, which a skorch net draws from.

    Returns
    -------
    model : estimator or list of estimator
    """
    # Not every model takes weights, so without any the word itself is left out.
    params = {} if weights is None else {"sample_weight": weights}
    nets = _nets(model)
    received = received.astype(precision_of(model) or received.dtype, copy=False)
    with _torch_stream(sequence) if nets else nullcontext():
        if labels.ndim == 1:
            if nets:
                labels = _labels_for_net(nets, labels, n_labels)
            model.fit(received, labels, **params)
            if nets:
                _check_outputs(model, received, n_labels)
            return model
        labels = labels.astype(received.dtype, copy=False)
        # A net's loss would spread a vector against a column without an error, so
        # columns stay two-dimensional; other models warn of just that.
        if nets:
            columns = np.split(labels, labels.shape[1], axis=1)
        elif labels.shape[1] > 1 and _learns_two_outputs(model):
            columns = [labels]
        else:
            columns = list(labels.T)
        models = [clone(model).fit(received, column, **params) for column in columns]
        for each, column in zip(models, columns, strict=True):
            _check_targets(each, received, column)
    return models[0] if len(models) == 1 else models


def predict_targets(model, received):
    """Predicted target columns, of shape (n_samples, n_targets)."""
    if isinstance(model, list):
        return np.column_stack([predict_targets(each, received) for each in model])
    return np.asarray(_ask(model, "predict", received)).reshape(len(received), -1)


def predict_labels(model, received):
    """Predicted label codes, of shape (n_samples,)."""
    return np.asarray(_ask(model, "predict", received))


def score_labels(model, method, received):
    """Scores of label codes, and which code each column is.

    Parameters
    ----------
    model : estimator
        Fitted.
    method : {"predict_proba", "decision_function"}
        What to ask for.
    received : ndarray of shape (n_samples, n_columns)
        What the parties sent.

    Returns
    -------
    scores : ndarray of shape (n_samples, n_seen)
    codes : ndarray of shape (n_seen,), dtype int64

    Raises
    ------
    ValueError
        If the model does not give one score per code.
    """
    scores = np.asarray(_ask(model, method, received))
    # A net has an output for every code; scikit-learn has one for what it has seen.
    codes = np.arange(scores.shape[1]) if _nets(model) else model.classes_
    if scores.ndim == 1:
        scores = np.column_stack([-scores, scores])
    pairs = getattr(model, "decision_function_shape", None) == "ovo" and len(codes) > 2
    if (method == "decision_function" and pairs) or scores.shape[1] != len(codes):
        raise ValueError(
            f"{type(model).__name__}.{method} does not give one score per class; an "
            "SVC does with decision_function_shape='ovr'"
        )
    return scores, np.asarray(codes, dtype=np.int64)


def _ask(model, method, received):
    if not _nets(model):
        return getattr(model, method)(received)
    with _torch_stream():
        return getattr(model, method)(received.astype(np.float32))


def _learns_two_outputs(model):
    """Whether one fit takes both target columns; MLPRegressor's tag denies it."""
    return get_tags(model).target_tags.multi_output or isinstance(model, MLPRegressor)


def _nets(model):
    """Names of the skorch classes of every net inside a model."""
    # By name, so that skorch and torch are not imported where nobody has a net; nested
    # ones count, because pipelines and searches hide them.
    inner = [model, *model.get_params(deep=True).values()]
    return {
        kind.__name__
        for each in inner
        for kind in type(each).__mro__
        if kind.__module__.startswith("skorch.") and kind.__name__.startswith("Neural")
    }


def _labels_for_net(nets, labels, n_labels):
    if "NeuralNetBinaryClassifier" not in nets:
        return labels
    if n_labels != 2:
        raise ValueError(
            "NeuralNetBinaryClassifier learns two labels, and the server's model must "
            f"learn {n_labels}; use NeuralNetClassifier, or label_protection=False"
        )
    # Its loss compares with one output per row.
    return labels.astype(np.float32)


def _check_outputs(model, received, n_labels):
    n_outputs = np.shape(model.predict_proba(received[:1]))[1]
    if n_outputs != n_labels:
        raise ValueError(
            f"the net has {n_outputs} outputs and needs {n_labels}: one per class, "
            "or two where labels are protected"
        )


def _check_targets(model, received, column):
    """Refuse a model whose predictions are not of the shape of what it learnt."""
    n_due = column.shape[1] if column.ndim == 2 else 1
    n_outputs = np.size(model.predict(received[:1]))
    if n_outputs != n_due:
        raise ValueError(
            f"the server's {type(model).__name__} predicts {n_outputs} numbers for a "
            f"row, where {n_due} is due: let it have {n_due} output(s)"
        )


@contextmanager
def _torch_stream(sequence=None):
    """Seed torch's global generator, and put it back as it was afterwards."""
    import torch

    # skorch has no generator of its own. The fork puts the user's generator back; GPUs
    # are left out, because forking them starts each of them.
    with torch.random.fork_rng(devices=[]):
        if sequence is not None:
            torch.default_generator.manual_seed(int_seed(sequence))
        yield
