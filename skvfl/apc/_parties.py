"""APC-VFL: parties that encode their own columns, and the active one, which learns."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeCV
from sklearn.pipeline import Pipeline

from skvfl._random import seed_missing
from skvfl._rows import explained, rows_without_values
from skvfl._sklearn import _safe_indexing
from skvfl.apc._autoencoder import AutoencoderTransformer, represent
from skvfl.apc._regression import begins_near, fit_from_near
from skvfl.exceptions import InvalidOutputError, SettingsError, ShareableError
from skvfl.federation import Holding, Party, Settings, operation, serving
from skvfl.federation._party import bare, giving, run
from skvfl.nn._steps import PIECE, Joined
from skvfl.partition._preprocessing import PartyPreprocessor

_PENALTIES = np.logspace(0, 3, 7)
# Classes that a row may be guessed to have: it is given to the model once for each, so
# all of 1,000 would make a table of 1,000 times the rows.
LIKELY = 20
# scikit-learn's own, of the largest slope at which logistic regression stops.
ROUGH_TOLERANCE = 1e-4


# What parties hold


@dataclass
class Present:
    """Which of the run's rows the party holds."""

    after: ClassVar = "say_rows"
    rows: np.ndarray


@dataclass
class OwnTable:
    """The party's columns of the rows that it holds, and which of these all hold."""

    after: ClassVar = "agree_on_rows"
    block: Any
    aligned: np.ndarray


@dataclass
class Lessons:
    """Labels of the rows that the active party holds, where they are known."""

    after: ClassVar = "agree_on_rows"
    labels: np.ndarray
    labelled: np.ndarray
    weights: np.ndarray | None


@dataclass
class Inputs:
    """Prepared columns of the rows that the party holds."""

    after: ClassVar = "encode"
    values: np.ndarray


@dataclass
class Received:
    """What all parties sent of the aligned rows."""

    after: ClassVar = "receive"
    parts: list[np.ndarray]


# What parties are told


@dataclass(frozen=True, kw_only=True)
class PassiveSettings(Settings, role="apc.passive"):
    """What a passive party is told: its encoder."""

    local_encoder: Any = field(metadata={"stream": "local"})

    def make(self, member):
        """A party with an encoder of its own."""
        return EncoderParty(
            member.name,
            member.transformer(self.transformer),
            member.lend(self.local_encoder),
        )


@dataclass(frozen=True, kw_only=True)
class ActiveSettings(PassiveSettings, role="apc.active"):
    """What the active party is told; the estimator's parameters of these names.

    Parameters
    ----------
    model : classifier or regressor
        The estimator's own ``estimator``, or what stands for it.
    """

    joint_encoder: Any = field(metadata={"stream": "joint"})
    active_encoder: Any = field(metadata={"stream": "active"})
    model: Any
    teacher: Any
    distillation: str | None
    inference: str

    def make(self, member):
        """The party that has the labels."""
        if member.labels.known is None:
            raise SettingsError("it has not said which of its rows have a label")
        # A seed that the user gave the model is kept as it is, unlike an encoder's:
        # there is one model only, and it never leaves the organisation that gave it.
        model, teacher = (
            each and seed_missing(clone(each), member.stream(purpose))
            for purpose, each in {"model": self.model, "teacher": self.teacher}.items()
        )
        return ActiveParty(
            member.name,
            member.transformer(self.transformer),
            member.lend(self.local_encoder),
            member.lend(self.joint_encoder),
            member.lend(self.active_encoder),
            model,
            teacher,
            self.distillation,
            self.inference,
        )


class EncoderParty(Party):
    """A party of APC-VFL: an encoder of its own columns.

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
    def say_rows(self, told=None):
        """Which of the run's rows this party holds, as 1 and 0.

        Parameters
        ----------
        told : ndarray of bool or None, default=None
            Where the tables were aligned, what came of it; by default the rows of
            which the party has a cell.

        Returns
        -------
        rows : ndarray of shape (n_rows,), dtype uint8
        """
        rows = told
        if rows is None:
            rows = ~rows_without_values(self.held(Holding).block)
        self.hold(Present(self._with_own_rows(rows)))
        # Whole numbers are what the receiver can check as codes.
        return self.held(Present).rows.astype(np.uint8)

    @operation
    def agree_on_rows(self, aligned):
        """Take the rows that are held, of which all parties hold the aligned ones.

        Parameters
        ----------
        aligned : ndarray of bool
            Of the run's rows.
        """
        rows = self.held(Present).rows
        block = self.held(Holding).block
        # Taken once, so that nothing later sees a row which the party is not to hold.
        if not rows.all():
            block = _safe_indexing(block, np.flatnonzero(rows))
        self.hold(OwnTable(bare(block), aligned[rows]))

    @giving
    def encode(self):
        """Train the encoder on all rows held; representation of the aligned ones."""
        table = self.held(OwnTable)
        inputs = run(self._transformer.fit_transform, table.block)
        # Every row that is held, aligned or not: encoders need no label and no partner.
        with explained(self._encoder, inputs):
            self._encoder.fit(inputs)
        self._keep(inputs)
        return self._send(inputs[table.aligned], _learnt)

    @serving
    def represent(self):
        """Representation of rows to be served, all of which this party must hold."""
        block = self.held(Holding).block
        n_missing = int(rows_without_values(block).sum())
        if n_missing:
            raise ShareableError(
                f"it has no cell of {n_missing} of {block.shape[0]} rows, and "
                'inference="joint" needs every party; inference="active" does without'
            )
        return self._send(run(self._transformer.transform, block), _represent)

    def _with_own_rows(self, rows):
        """Rows that the party holds, whatever its cells say."""
        return rows

    def _keep(self, inputs):
        """Keep the prepared columns for later, if there is anything to do later."""

    def _send(self, inputs, encode):
        sent = encode(self._encoder, inputs, "local_encoder")
        # Encoders of the user's own may compute in double precision, and twice the
        # bytes would tell the receiver nothing. They may keep what they return, too.
        return sent.astype(np.float32, copy=not _is_ours(self._encoder))


class ActiveParty(EncoderParty):
    """The active party of APC-VFL, which has the labels.

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

    made_by: ClassVar = {"estimator": "learn", "_classes": "learn"}

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

    def _with_own_rows(self, rows):
        """A row with a label is held, even where no cell of it is known."""
        return rows | self.held(Holding).labels.known

    def _keep(self, inputs):
        self.hold(Inputs(inputs))

    @operation
    def agree_on_rows(self, aligned):
        """As for :class:`EncoderParty`; takes the labels of these rows, too."""
        super().agree_on_rows(aligned)
        rows, labels = self.held(Present).rows, self.held(Holding).labels
        known = labels.known
        # There is no joint representation of the other rows to learn their labels from.
        if self._inference == "joint":
            known = known & aligned
        weights = None if labels.weights is None else labels.weights[rows]
        self.hold(Lessons(labels.values[rows], known[rows], weights))

    @operation
    def receive(self, sent):
        """Take what one party sent of the aligned rows; the parties come in order."""
        if not self.holds(Received):
            self.hold(Received([]))
        self.held(Received).parts.append(sent)

    @operation
    def learn(self):
        """Steps 2 to 4 of the method, with what was received, if anybody was asked.

        Returns
        -------
        width : int
            Number of columns of the representation that the model is given.
        """
        lessons = self.held(Lessons)
        # Of the rows that are learnt from, as are the ``classes_`` by which codes are
        # read.
        if is_classifier(self._model):
            self._classes = np.unique(lessons.labels[lessons.labelled])
        if self._inference == "joint":
            aligned = self.held(OwnTable).aligned
            self.estimator = self._fit_model(self._model, self._join(), aligned)
        else:
            self.estimator = self._fit_alone()
        return self.estimator["scale"].n_features_in_

    @serving
    def transform(self, received=None):
        """Representation of rows to be served that the model is given.

        Parameters
        ----------
        received : dict of str to ndarray or None, default=None
            What all parties sent of these rows; None where this one serves alone.

        Returns
        -------
        representation : ndarray of shape (n_rows, width)
        """
        if received is None:
            return run(self.estimator[:2].transform, self.held(Holding).block)
        received = np.hstack(list(received.values()))
        return _represent(self._joint_encoder, received, "joint_encoder")

    @serving
    def predict(self, received=None):
        """Positions of the classes, or targets as a column; see :meth:`transform`."""
        answers = self._answer("predict", received)
        if not is_classifier(self._model):
            return answers.reshape(len(answers), -1)
        # Names of classes do not cross as arrays of numbers do.
        codes = np.searchsorted(self._classes, answers)
        codes = np.minimum(codes, len(self._classes) - 1)
        if not np.array_equal(self._classes[codes], answers):
            raise InvalidOutputError("its model predicted what is none of the classes")
        return codes

    @serving
    def predict_proba(self, received=None):
        """Probability of each class; see :meth:`transform`."""
        return self._answer("predict_proba", received)

    @serving
    def decision_function(self, received=None):
        """Score of each class, or one column of scores; see :meth:`transform`."""
        answers = self._answer("decision_function", received)
        return answers.reshape(len(answers), -1)

    def _answer(self, method, received):
        """What the model says of rows to be served."""
        if received is None:
            shown, steps = self.held(Holding).block, self.estimator[:-1]
        else:
            shown, steps = self.transform(received), self.estimator[:1]
        features = run(steps.transform, shown)
        return np.asarray(getattr(self.estimator[-1], method)(features))

    def _join(self):
        """Fit the joint encoder; the joint representation of the aligned rows."""
        encoder, received = self._joint_encoder, self.held(Received).parts
        # The largest arrays of a fit: nobody keeps them for longer than this.
        self.drop(Received)
        if _is_ours(encoder) and not _is_watched(encoder):
            # Nor are they copied: a batch is joined when it is taken.
            received = Joined(received)
            encoder.fit(received)
            # Nobody else has what was sent: see ``_send``.
            return represent(encoder, received, spent=True)
        received = np.hstack(received)
        # On aligned rows only: of others the joint representation does not exist.
        encoder.fit(received)
        return _learnt(encoder, received, "joint_encoder")

    def _fit_alone(self):
        """Pipeline from this party's columns to predictions."""
        table = self.held(OwnTable)
        joint = self._join() if self.holds(Received) else None
        # Where the party has sent something, its transformer is fitted already.
        if joint is None:
            inputs = run(self._transformer.fit_transform, table.block)
        else:
            inputs = self.held(Inputs).values
        target, guessed = {}, None
        if self._distillation == "representation":
            target = self._target(joint, table.aligned)
        elif self._distillation == "prediction":
            guessed = self._guess(joint, table.aligned)
        del joint
        with explained(self._active_encoder, inputs):
            self._active_encoder.fit(inputs, **target)
        target.clear()
        enriched = _learnt(self._active_encoder, inputs, "active_encoder")
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
        # An encoder of the user's own may not say its width; its own fit then finds the
        # mismatch.
        width = getattr(self._active_encoder, "n_components", joint.shape[1])
        if width != joint.shape[1]:
            raise ShareableError(
                f"active_encoder has n_components={width} and cannot imitate the joint "
                f"representation, which has {joint.shape[1]}"
            )
        if aligned.all():
            return {"latent_target": joint, "has_target": aligned}
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
        lessons = self.held(Lessons)
        labelled = lessons.labelled
        rows = np.flatnonzero(aligned & ~labelled)
        if not len(rows):
            return None
        classifies = is_classifier(self._model)
        known = lessons.labels[aligned & labelled]
        if len(np.unique(known) if classifies else known) < 2:
            raise ShareableError(
                f"of the rows that every party holds, {len(known)} have a label, which "
                'is too few to teach by; distillation="prediction" needs some of '
                f"{'at least two classes' if classifies else 'them, two at least'}"
            )
        # A clone: the fitted teacher may keep rows, and is of no use after this.
        if self._teacher is not None:
            teacher = clone(self._teacher)
        else:
            teacher = _default_teacher(known) if classifies else RidgeCV(_PENALTIES)
        teacher = self._fit_model(teacher, joint, aligned)
        shown = joint[~labelled[aligned]]
        if not classifies:
            return rows, teacher.predict(shown), None
        probabilities = teacher.predict_proba(shown)
        classes = np.tile(teacher.classes_, (len(rows), 1))
        if classes.shape[1] > LIKELY:
            likely = np.argsort(-probabilities, axis=1, kind="stable")[:, :LIKELY]
            classes = np.take_along_axis(classes, likely, axis=1)
            probabilities = np.take_along_axis(probabilities, likely, axis=1)
            probabilities /= probabilities.sum(axis=1, keepdims=True)
        # Models take one label for each row, so a row is given once for every class,
        # weighted by its probability.
        return (
            np.repeat(rows, classes.shape[1]),
            classes.ravel(),
            probabilities.ravel(),
        )

    def _fit_model(self, model, representation, rows, guessed=None):
        """Standardise a representation of some rows; learn from those with a label."""
        lessons = self.held(Lessons)
        labelled = lessons.labelled[rows]
        labels = lessons.labels[rows][labelled]
        weights = None if lessons.weights is None else lessons.weights[rows][labelled]
        if not np.isfinite(representation).all():
            raise ShareableError(
                "the representation of its rows holds values that are not finite: "
                "lower the learning rate of the encoders, or look at what they return"
            )
        # Representations have no unit, and a linear model's penalty depends on it.
        scale = PartyPreprocessor(dtype="float64").fit(representation)
        # Only of rows that are learnt from, of which this may be a second table.
        dtype = np.float32 if _stops_early(model) else np.float64
        scaled = partial(_scaled, scale, dtype=dtype)
        known = scaled(representation if labelled.all() else representation[labelled])
        if guessed is not None:
            among, more, confidence = guessed
            known = np.vstack([known, scaled(representation[among])])
            if weights is not None or confidence is not None:
                own = np.ones(len(labels)) if weights is None else weights
                added = np.ones(len(more)) if confidence is None else confidence
                # A guessed row weighs as much as a labelled one does on average.
                weights = np.concatenate([own, own.mean() * added])
            labels = np.concatenate([labels, more])
        # Left out where there are none, because not every model takes weights.
        settings = {} if weights is None else {"sample_weight": weights}
        n_classes = len(np.unique(labels)) if is_classifier(model) else 0
        if dtype is np.float32 and begins_near(model, n_classes):
            fit_from_near(model, known, labels, weights)
        else:
            model.fit(known, labels, **settings)
        return Pipeline([("scale", scale), ("model", model)])


def _represent(encoder, inputs, name):
    """Output of a fitted encoder, which the estimator's parameter of this name gave."""
    return run(encoder.transform, inputs, f"its {name} {type(encoder).__name__}")


def _learnt(encoder, inputs, name):
    """The same of rows that are learnt from, where our own encoder can do with less."""
    if _is_ours(encoder):
        return represent(encoder, inputs)
    return _represent(encoder, inputs, name)


def _is_ours(encoder):
    """Whether an encoder does what ours does, and not what a subclass may."""
    return type(encoder) is AutoencoderTransformer


def _is_watched(encoder):
    """Whether callbacks are told of the rows that our own encoder learns from."""
    return bool(encoder.callbacks) or hasattr(encoder, "_skl_callbacks")


def _stops_early(model):
    """Whether a model ends so far from its optimum that single precision suffices."""
    ours = type(model) in (LogisticRegression, LogisticRegressionCV)
    return ours and model.solver == "lbfgs" and model.tol >= ROUGH_TOLERANCE


def _scaled(scale, representation, dtype):
    """A scaled representation, in pieces, because they come in double precision."""
    scaled = np.empty(representation.shape, dtype)
    for start in range(0, len(scaled), PIECE):
        rows = slice(start, start + PIECE)
        scaled[rows] = run(scale.transform, representation[rows])
    return scaled


def _default_teacher(labels):
    """Logistic regression, its penalty chosen by cross-validation where that can be."""
    # Every fold needs a row of every class.
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
