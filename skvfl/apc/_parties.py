"""APC-VFL: parties that encode their own columns, and the active one, which learns."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeCV
from sklearn.pipeline import Pipeline

from skvfl._rows import explained, rows_without_values
from skvfl.exceptions import ShareableError
from skvfl.federation import Party, operation
from skvfl.federation._party import run
from skvfl.partition._preprocessing import PartyPreprocessor

_PENALTIES = np.logspace(0, 3, 7)


class EncoderParty(Party):
    """A party of APC-VFL: an encoder of its own columns.

    It holds ``block``, its columns of the rows it has, and ``aligned``, which of these
    rows every party has.

    Parameters
    ----------
    name : str
        Name of the party.
    transformer : transformer
        Unfitted; prepares the party's columns.
    encoder : transformer
        Unfitted; learns a representation of the prepared columns.
    """

    def __init__(self, name, transformer, encoder):
        super().__init__(name)
        self._transformer = transformer
        self._encoder = encoder

    @operation
    def encode(self):
        """Train the encoder on all rows held; representation of the aligned ones."""
        self._held["inputs"] = run(self._transformer.fit_transform, self._held["block"])
        with explained(self._encoder, self._held["inputs"]):
            self._encoder.fit(self._held["inputs"])
        return self._send(self._held["inputs"][self._held["aligned"]])

    @operation
    def represent(self):
        """Representation of rows to be served, all of which this party must hold."""
        block = self._held["block"]
        n_missing = int(rows_without_values(block).sum())
        if n_missing:
            raise ShareableError(
                f"it has no cell of {n_missing} of {block.shape[0]} rows, and "
                'inference="joint" needs every party; inference="active" does without'
            )
        return self._send(run(self._transformer.transform, block))

    def _send(self, inputs):
        sent = _represent(self._encoder, inputs, "local_encoder")
        return sent.astype(np.float32, copy=False)


class ActiveParty(EncoderParty):
    """The active party of APC-VFL, which has the labels.

    It also holds ``labels``, one for each row, ``labelled``, which of them are known,
    and ``weights``.

    Parameters
    ----------
    name, transformer, encoder
        As for :class:`EncoderParty`.
    joint_encoder : transformer
        Unfitted; learns a representation of what all parties sent.
    active_encoder : transformer
        Unfitted; learns the representation that serves this party alone.
    model : classifier or regressor
        Unfitted; learns the labels from a representation.
    teacher : classifier, regressor or None
        Unfitted; learns the labels from the joint representation.
    distillation : {"representation", "prediction", None}
        What the party that is to predict alone learns from the joint representation.
    inference : {"active", "joint"}
        Whether the model serves this party's rows or the joint representation.

    Attributes
    ----------
    estimator : Pipeline
        From this party's columns to predictions, if it predicts alone; else from the
        joint representation.
    """

    def __init__(
        self,
        name,
        transformer,
        encoder,
        joint_encoder,
        active_encoder,
        model,
        teacher,
        distillation,
        inference,
    ):
        super().__init__(name, transformer, encoder)
        self._joint_encoder = joint_encoder
        self._active_encoder = active_encoder
        self._model = model
        self._teacher = teacher
        self._distillation = distillation
        self._inference = inference

    @operation
    def learn(self, received=None):
        """Steps 2 to 4 of the method, with what all parties sent of aligned rows."""
        joint = None
        if received is not None:
            received = np.hstack(list(received.values()))
            self._joint_encoder.fit(received)
            joint = _represent(self._joint_encoder, received, "joint_encoder")
        if self._inference == "joint":
            self.estimator = self._fit_model(self._model, joint, self._held["aligned"])
        else:
            self.estimator = self._fit_alone(joint)

    @operation
    def join(self, received):
        """Joint representation of rows to be served."""
        received = np.hstack(list(received.values()))
        return _represent(self._joint_encoder, received, "joint_encoder")

    def _fit_alone(self, joint):
        """Pipeline from this party's columns to predictions."""
        aligned = self._held["aligned"]
        if joint is None:
            inputs = run(self._transformer.fit_transform, self._held["block"])
        else:
            inputs = self._held["inputs"]
        target, guessed = {}, None
        if self._distillation == "representation":
            target = self._target(joint, aligned)
        elif self._distillation == "prediction":
            guessed = self._guess(joint, aligned)
        with explained(self._active_encoder, inputs):
            self._active_encoder.fit(inputs, **target)
        enriched = _represent(self._active_encoder, inputs, "active_encoder")
        model = self._fit_model(self._model, enriched, slice(None), guessed)
        steps = [
            ("prepare", self._transformer),
            ("encode", self._active_encoder),
            *model.steps,
        ]
        for _, step in steps:
            # Who cannot be told in which container to answer has none but its own.
            with suppress(AttributeError, ValueError):
                step.set_output(transform="default")
        return Pipeline(steps)

    def _target(self, joint, aligned):
        """What the encoder is to imitate, and in which rows it is known."""
        width = getattr(self._active_encoder, "n_components", joint.shape[1])
        if width != joint.shape[1]:
            raise ShareableError(
                f"active_encoder has n_components={width} and cannot imitate the joint "
                f"representation, which has {joint.shape[1]}"
            )
        target = np.zeros((len(aligned), width), np.float32)
        target[aligned] = joint
        return {"latent_target": target, "has_target": aligned}

    def _guess(self, joint, aligned):
        """Labels of the unlabelled aligned rows, as a teacher on all columns sees them.

        Returns
        -------
        guessed : tuple of ndarray, or None
            Rows, their labels, and the weights of these: one entry for each row, or for
            each row and class. None where every aligned row has a label.
        """
        labelled = self._held["labelled"]
        rows = np.flatnonzero(aligned & ~labelled)
        if not len(rows):
            return None
        classifies = is_classifier(self._model)
        known = self._held["labels"][aligned & labelled]
        if len(np.unique(known) if classifies else known) < 2:
            raise ShareableError(
                f"of the rows that every party holds, {len(known)} have a label, which "
                'is too few to teach by; distillation="prediction" needs some of '
                f"{'at least two classes' if classifies else 'them, two at least'}"
            )
        if self._teacher is not None:
            teacher = clone(self._teacher)
        else:
            teacher = _default_teacher(known) if classifies else RidgeCV(_PENALTIES)
        teacher = self._fit_model(teacher, joint, aligned)
        shown = joint[~labelled[aligned]]
        if not classifies:
            return rows, teacher.predict(shown), None
        probabilities = teacher.predict_proba(shown)
        classes = teacher.classes_
        return (
            np.repeat(rows, len(classes)),
            np.tile(classes, len(rows)),
            probabilities.ravel(),
        )

    def _fit_model(self, model, representation, rows, guessed=None):
        """Standardise a representation of some rows; learn from those with a label."""
        held = self._held
        labelled = held["labelled"][rows]
        labels = held["labels"][rows][labelled]
        weights = None if held["weights"] is None else held["weights"][rows][labelled]
        if not np.isfinite(representation).all():
            raise ShareableError(
                "the representation of its rows holds values that are not finite: "
                "lower the learning rate of the encoders, or look at what they return"
            )
        scale = PartyPreprocessor(dtype="float64").fit(representation)
        features = run(scale.transform, representation)
        known = features[labelled]
        if guessed is not None:
            among, more, confidence = guessed
            known = np.vstack([known, features[among]])
            if weights is not None or confidence is not None:
                own = np.ones(len(labels)) if weights is None else weights
                added = np.ones(len(more)) if confidence is None else confidence
                weights = np.concatenate([own, own.mean() * added])
            labels = np.concatenate([labels, more])
        settings = {} if weights is None else {"sample_weight": weights}
        model.fit(known, labels, **settings)
        return Pipeline([("scale", scale), ("model", model)])


def _represent(encoder, inputs, name):
    """Output of a fitted encoder, which the estimator's parameter of this name gave."""
    return run(encoder.transform, inputs, f"its {name} {type(encoder).__name__}")


def _default_teacher(labels):
    """Logistic regression, its penalty chosen by cross-validation where that can be."""
    folds = min(5, np.unique(labels, return_counts=True)[1].min())
    if folds < 2:
        return LogisticRegression(C=0.1, max_iter=1000)
    return LogisticRegressionCV(
        Cs=1 / _PENALTIES,
        l1_ratios=(0,),
        cv=int(folds),
        scoring="neg_log_loss",
        max_iter=1000,
        use_legacy_attributes=False,
    )
