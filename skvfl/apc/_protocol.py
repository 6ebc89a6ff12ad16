"""APC-VFL: who holds which rows, the paper's four steps, and serving."""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.base import (
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    is_classifier,
    is_regressor,
)
from sklearn.utils.validation import (
    check_is_fitted,
    has_fit_parameter,
    validate_data,
)

from skvfl._base import VFLEstimator, check_answers
from skvfl._course import Course
from skvfl._random import branch, seed_sequence
from skvfl._sklearn import HasMethods, Interval, StrOptions, _num_samples
from skvfl._targets import check_total, read_column, weights_of_classes
from skvfl.apc._autoencoder import AutoencoderTransformer
from skvfl.apc._parties import ActiveParty, ActiveSettings, PassiveSettings
from skvfl.federation import CommunicationLog, Holding, Labels
from skvfl.federation._log import current_log
from skvfl.federation._replies import OWN_WIDTH, Count, Rows, Vector, rows_of
from skvfl.federation._transport import check_rows
from skvfl.nn._autoencoder import DISTANCES
from skvfl.partition._columns import (
    column_labels,
    column_names,
    look_alike,
    refuse_masked,
)
from skvfl.partition._tables import _check_table, _take_columns
from skvfl.partition._transformers import require_transformer

_ENCODER = [HasMethods(["fit", "transform"]), None]


class _BaseAPCVFL(ClassNamePrefixFeaturesOutMixin, TransformerMixin, VFLEstimator):
    """Training and serving; the subclasses say what the labels are."""

    # What a member draws: its columns' preparation and its encoder; at the active party
    # also the other encoders, the model and the teacher.
    _streams = {
        "prepare": (1, 0),
        "local": (1, 1),
        "joint": (1, 2),
        "active": (1, 3),
        "model": (1, 4),
        "teacher": (1, 5),
    }

    _by_party = ("local_encoder",)
    _one_round = True

    _parameter_constraints = {
        **VFLEstimator._parameter_constraints,
        "teacher": [HasMethods(["fit", "predict"]), None],
        "distillation": [StrOptions({"representation", "prediction"}), None],
        "inference": [StrOptions({"active", "joint"})],
        "local_encoder": [*_ENCODER, dict],
        "joint_encoder": _ENCODER,
        "active_encoder": _ENCODER,
        "distillation_loss": [StrOptions(set(DISTANCES))],
        "distillation_weight": [Interval(Real, 0, None, closed="left")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "optimizer": [callable, None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "callbacks": [list, dict, None],
        "device": [str, dict],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        distillation="representation",
        teacher=None,
        inference="active",
        local_encoder=None,
        joint_encoder=None,
        active_encoder=None,
        distillation_loss="mse",
        distillation_weight=0.01,
        max_epochs=50,
        batch_size=128,
        lr=1e-3,
        optimizer=None,
        weight_decay=0.0,
        callbacks=None,
        device="cpu",
        transport="local",
        random_state=None,
    ):
        self.parties = parties
        self.active = active
        self.distillation = distillation
        self.teacher = teacher
        self.inference = inference
        self.local_encoder = local_encoder
        self.joint_encoder = joint_encoder
        self.active_encoder = active_encoder
        self.distillation_loss = distillation_loss
        self.distillation_weight = distillation_weight
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.callbacks = callbacks
        self.device = device
        self.transport = transport
        self.random_state = random_state

    def _fit(self, X, y, sample_weight, labelled, aligned):
        # Not by ``_training``, which asks everybody, and looks at all labels.
        root = seed_sequence(self.random_state)
        y, labelled = self._read_labels(y, labelled)
        X = self._fit_partition(X, _hide(y, ~labelled), branch(root, 0))
        active = self._active
        self._check_settings(sample_weight)
        labels = self._make_labels(X, y, labelled, sample_weight)
        told = self._read_aligned(aligned, len(labelled))
        members = self._make_members(X, root, labels)
        # Without distillation nobody else has anything to do, and nothing should cross.
        asked = self._names if self._federates else [active]
        self.communication_ = log = CommunicationLog()
        with Course(self, X, y, 2) as course:
            with self._open(members, log, active, names=asked) as session:
                course.session = session
                # Before anything is trained: a mask that does not fit would otherwise
                # show after the encoders have run for hours.
                aligned = self._agree_on_rows(session, told, len(labelled))
                if self.inference == "joint":
                    self._check_aligned_labels(labels, aligned)
                self._learn(session, int(aligned.sum()), course)
            self._parties = session.parties
            # Kept from fit, because a parameter may be set to something else later.
            self._serves_alone = self.inference == "active"
        return self

    def _learn(self, session, n_aligned, course):
        """The paper's four steps: encode, send once, join, and learn to be alone."""
        task = course.begin("encode and send")
        if self._federates:
            received = self._gather(session, "encode", n_aligned)
            self._widths = {name: sent.shape[1] for name, sent in received.items()}
            # One after the other, so that no two copies of all of them are in memory.
            for name in self._widths:
                sent = received.pop(name)
                session.tell("receive", to=[self._active], sent=sent)
                del sent
        course.end(task)
        task = course.begin("distil and learn")
        width = Count(1, OWN_WIDTH)
        self._width = session.ask(self._active, "learn", reply=width)
        course.end(task, partial(self._so_far, session))

    def _so_far(self, session):
        alone = self.inference == "active"
        return {"_parties": session.halves(), "_serves_alone": alone}

    def _gather(self, session, operation, n_rows):
        """The one exchange: every party's representation of the same rows."""
        session.begin_round()
        # Before the first exchange nobody has said how many columns will come.
        fitting = operation == "encode"
        expected = self._any_rows(n_rows) if fitting else rows_of(self._widths, n_rows)
        received = session.call(operation, to=self._holders, reply=expected)
        check_rows(received, n_rows)
        return received

    def _agree_on_rows(self, session, told, n_rows):
        """Which rows all parties hold, by what they say; nothing is trained yet."""
        active = self._active
        if active not in self._holders:
            raise ValueError(
                f"party {active!r} holds no column; the active party of APC-VFL "
                "predicts from its own columns: give it some"
            )
        each = {name: {"told": mask} for name, mask in told.items()}
        # A part of opening the run and no round: the paper's one exchange is of
        # representations.
        asked = {"to": self._holders, "opening": True}
        said = session.call("say_rows", each=each, reply=Vector(n_rows, 2), **asked)
        counts = {name: int(np.count_nonzero(rows)) for name, rows in said.items()}
        for name, count in counts.items():
            if not count:
                raise ValueError(
                    f"party {name!r} holds none of the {n_rows} rows: leave it out, or "
                    "look at the ids by which the tables were aligned"
                )
        aligned = np.logical_and.reduce(list(said.values()))
        if not aligned.any():
            raise ValueError(
                f"no row is held by every party: of {n_rows} rows the parties hold "
                f"{counts}; leave out a party, or set distillation=None"
            )
        session.tell("agree_on_rows", aligned=aligned, **asked)
        return aligned

    def _read_labels(self, y, labelled):
        """Labels of rows, and which of them are known."""
        if y is None:
            validate_data(self, y=None)
        y, missing = read_column(y, "y")
        if labelled is None:
            return y, ~missing
        labelled = _as_mask(labelled, len(y), "labelled")
        n_missing = int((labelled & missing).sum())
        if n_missing:
            raise ValueError(
                f"labelled says that {n_missing} rows have a label which is missing "
                "from y"
            )
        return y, labelled

    def _make_labels(self, X, y, labelled, sample_weight):
        """What the active party learns from; other labels are never looked at."""
        weights = self._row_weights(X, sample_weight)
        if not labelled.any():
            raise ValueError("y holds no label")
        known = self._check_labels(y[labelled])
        # Filled with a label that exists, as a missing one would change the data type.
        # Nobody reads it, because ``labelled`` goes along.
        values = np.full(len(y), known[0], dtype=known.dtype)
        values[labelled] = known
        n_classes = len(self.classes_) if is_classifier(self) else None
        self._check_weights(weights, labelled)
        if getattr(self, "class_weight", None) is not None:
            weights = np.ones(len(y)) if weights is None else weights.copy()
            codes = np.searchsorted(self.classes_, known)
            # Of the rows with a label alone: the others have no class.
            weights[labelled] *= weights_of_classes(
                self.class_weight, self.classes_, codes
            )
            check_total(weights[labelled], "class_weight")
        return Labels(values, n_classes, weights, labelled)

    def _check_aligned_labels(self, labels, aligned):
        """Refuse labels of aligned rows that are too few; sets ``classes_`` by them."""
        known = labels.known & aligned
        if not known.any():
            raise ValueError("y holds no label of a row that every party holds")
        self._check_labels(labels.values[known])
        self._check_weights(labels.weights, known)

    def _check_weights(self, weights, known):
        if weights is not None:
            check_total(weights[known], "sample_weight of the rows with a label")

    def _check_settings(self, sample_weight):
        wanted = is_classifier if is_classifier(self) else is_regressor
        for name, model in {"model": self._model, "teacher": self.teacher}.items():
            if model is not None and not wanted(model):
                raise ValueError(
                    f"the {name} {type(model).__name__} is no "
                    f"{'classifier' if is_classifier(self) else 'regressor'}, which "
                    f"{type(self).__name__} needs"
                )
        imitates = self.inference == "active" and self.distillation == "representation"
        final = self.active_encoder or AutoencoderTransformer()
        if imitates and not has_fit_parameter(final, "latent_target"):
            raise ValueError(
                f"active_encoder {type(final).__name__} takes no latent_target in fit "
                "and cannot imitate a representation: choose AutoencoderTransformer, "
                'distillation="prediction" or None'
            )
        weighs = sample_weight is not None
        weighs |= getattr(self, "class_weight", None) is not None
        if weighs:
            _check_able("sample_weight", self._model)
        teaches = self.inference == "active" and self.distillation == "prediction"
        if teaches and is_classifier(self):
            _check_able("sample_weight", self._model)
            if self.teacher is not None:
                _check_able("predict_proba", self.teacher)
        if teaches and self.teacher is not None and weighs:
            _check_able("sample_weight", self.teacher)

    def _read_aligned(self, aligned, n_rows):
        """Given masks by party; the others say themselves which rows they hold."""
        if aligned is None:
            return {}
        frame = nw.from_native(aligned, eager_only=True, pass_through=True)
        if isinstance(frame, nw.DataFrame):
            aligned = {name: frame[name].to_numpy() for name in frame.columns}
        if not isinstance(aligned, dict):
            passive = [name for name in self._names if name != self._active]
            aligned = dict.fromkeys(passive, aligned)
        unknown = sorted(set(aligned).difference(self._names))
        if unknown:
            raise ValueError(
                f"aligned names {unknown}, and the parties are {self._names}"
            )
        return {
            name: _as_mask(mask, n_rows, f"aligned, party {name!r},")
            for name, mask in aligned.items()
        }

    @property
    def _federates(self):
        """Whether anything is asked of the passive parties."""
        return self.inference == "joint" or self.distillation is not None

    def _settings(self, name):
        # Not by ``_roles``: encoders and the model have defaults that depend on the
        # party and on what is predicted.
        said = {
            "transformer": self._transformer(name),
            "local_encoder": self._local_encoder(name),
        }
        if name != self._active:
            return PassiveSettings(**said)
        return ActiveSettings(
            **said,
            joint_encoder=self._network(self.joint_encoder, 256, 256),
            active_encoder=self._network(self.active_encoder, 256, 256),
            model=self._model,
            teacher=self.teacher,
            distillation=self.distillation,
            inference=self.inference,
        )

    def _local_encoder(self, name):
        """The paper's Table I by default."""
        encoder = self.local_encoder
        if isinstance(encoder, dict):
            if name not in encoder:
                raise ValueError(
                    f"local_encoder has none for party {name!r}; it names "
                    f"{sorted(encoder)}: give one for every party that is asked"
                )
            encoder = encoder[name]
            if encoder is not None:
                where = f"local_encoder of party {name!r}"
                require_transformer(where, encoder, ("fit", "transform"))
        sizes = (64, 128) if name == self._active else (128, 256)
        return self._network(encoder, *sizes)

    def _network(self, encoder, hidden, n_components):
        if encoder is not None:
            return encoder
        return AutoencoderTransformer(
            n_components,
            hidden_layer_sizes=(hidden,),
            distillation_loss=self.distillation_loss,
            distillation_weight=self.distillation_weight,
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            optimizer=self.optimizer,
            weight_decay=self.weight_decay,
        )

    def _serve(self, X, operation, expect):
        """What the active party answers for rows to be served.

        ``expect`` gives the expected reply for a number of rows.
        """
        check_is_fitted(self)
        active = self._active
        # Nobody else is told that anything is predicted.
        asked = [active] if self._serves_alone else self._names
        with self._reopen(X, current_log(), active, names=asked) as session:
            n_rows, received = _num_samples(X), None
            if not self._serves_alone:
                received = self._gather(session, "represent", n_rows)
            answers = session.ask(
                active, operation, reply=expect(n_rows), received=received
            )
        return check_answers(answers)

    def _holdings(self, X):
        """Where the active party predicts alone, no other column is looked at."""
        if self._serves_alone:
            return {self._active: Holding(self._active_block(X))}
        return super()._holdings(X)

    def _n_unexplained(self, name, n_empty, n_rows, fitting):
        """In ``fit`` rows may be lacking; for joint predictions parties refuse them."""
        return 0 if fitting or not self._serves_alone else n_empty

    def _active_block(self, X):
        """The active party's columns; no other is looked at."""
        X = _check_table(X)
        column_names(X)
        held = self.partition_.parties_[self._active]
        expected, labels = self.partition_._labels, column_labels(X)
        if expected is not None and labels is not None:
            place = {label: i for i, label in enumerate(labels)}
            for i in held:
                if expected[i] not in place:
                    raise ValueError(
                        f"party {self._active!r}: column {expected[i]!r} is missing "
                        f"from the table{look_alike(expected[i], labels)}"
                    )
            return _take_columns(X, np.array([place[expected[i]] for i in held]))
        # A table of the active party's own columns, as it has them once the contract
        # ended.
        if X.shape[1] == len(held) < self.n_features_in_:
            return X
        validate_data(self, X, reset=False, skip_check_array=True)
        return _take_columns(X, held)

    def transform(self, X):
        """Representation that the model is given.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            With the columns of ``fit``, or at least the active party's; all of them
            with ``inference="joint"``.

        Returns
        -------
        representation : ndarray of shape (n_samples, n_components), dtype float32
            The paper's enriched representation of the active party's columns, or the
            joint one.
        """
        return self._serve(X, "transform", lambda n_rows: Rows(n_rows, self._width))

    @property
    def active_estimator_(self):
        """What the active party predicts with; see the class."""
        check_is_fitted(self)
        # The pipeline belongs to the active party, so it is there as long as its half.
        own = self._parties.get(self._active)
        if not self._serves_alone or not isinstance(own, ActiveParty):
            raise AttributeError(
                f"this {type(self).__name__} has no active_estimator_: the active "
                "party does not predict alone, or its half of the model is not here"
            )
        return own.estimator

    @property
    def _n_features_out(self):
        return self._width

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _hide(y, rows):
    """Labels without those of some rows, for who measures columns by them."""
    if y.dtype.kind in "biuf":
        return np.where(rows, np.nan, y)
    shown = y.astype(object)
    shown[rows] = None
    return shown


def _check_able(what, model):
    if not (has_fit_parameter(model, what) or hasattr(model, what)):
        raise ValueError(
            f"{type(model).__name__} has no {what}, which weights of rows or "
            'distillation="prediction" need'
        )


def _as_mask(mask, n_rows, what):
    refuse_masked(mask, what)
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != (n_rows,):
        raise ValueError(
            f"{what} must be one bool for each of the {n_rows} rows, got "
            f"{mask.dtype} of shape {mask.shape}"
        )
    return mask
