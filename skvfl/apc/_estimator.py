"""APC-VFL: one exchange, limited overlap, and the active party predicts alone."""

from __future__ import annotations

from numbers import Integral, Real

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.base import (
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
    is_classifier,
    is_regressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    check_is_fitted,
    has_fit_parameter,
    validate_data,
)

from skvfl._base import (
    VFLClassifierMixin,
    VFLEstimator,
    VFLRegressorMixin,
    check_answers,
)
from skvfl._random import seed_missing, seed_party, seed_sequence, spawn_named
from skvfl._rows import rows_without_values
from skvfl._sklearn import (
    HasMethods,
    Interval,
    StrOptions,
    _fit_context,
    _num_samples,
    _safe_indexing,
)
from skvfl._targets import check_total, read_column
from skvfl.apc._autoencoder import AutoencoderTransformer
from skvfl.apc._parties import ActiveParty, EncoderParty
from skvfl.federation import CommunicationLog
from skvfl.federation._party import run, shielded
from skvfl.federation._replies import OWN_WIDTH, Rows, rows_of
from skvfl.federation._transport import check_rows
from skvfl.nn._autoencoder import DISTANCES
from skvfl.partition._columns import (
    column_labels,
    column_names,
    look_alike,
    refuse_masked,
)
from skvfl.partition._partitioner import _check_table, _take_columns
from skvfl.partition._transformers import require_transformer

_ENCODER = [HasMethods(["fit", "transform"]), None]


def _hide(y, rows):
    """Labels without those of some rows, for who measures columns by them."""
    if y.dtype.kind in "biuf":
        return np.where(rows, np.nan, y)
    shown = y.astype(object)
    shown[rows] = None
    return shown


def _model_has(method):
    return lambda self: hasattr(self._model, method)


class _BaseAPCVFL(ClassNamePrefixFeaturesOutMixin, TransformerMixin, VFLEstimator):
    """Who holds which rows, the four steps, and serving."""

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
        self.transport = transport
        self.random_state = random_state

    def _fit(self, X, y, sample_weight, labelled, aligned):
        to_split, to_parties = seed_sequence(self.random_state).spawn(2)
        y, labelled = self._read_labels(y, labelled)
        X = self._fit_partition(X, _hide(y, ~labelled), to_split)
        self.__dict__.pop("active_estimator_", None)
        self._check_settings(sample_weight)
        weights = self._row_weights(X, sample_weight)
        active = self._active
        blocks = self.partition_.split(X)
        held = self._rows_held(blocks, labelled, aligned)
        everywhere = np.logical_and.reduce(list(held.values()))
        if self.inference == "joint":
            labelled = labelled & everywhere
        labels = self._fill_labels(y, labelled)
        if weights is not None:
            check_total(weights[labelled], "sample_weight of the rows with a label")
        parties = []
        for party in self._make_parties(to_parties):
            rows = held[party.name]
            data = {
                "block": _safe_indexing(blocks.pop(party.name), np.flatnonzero(rows)),
                "aligned": everywhere[rows],
            }
            if party.name == active:
                data["labels"] = labels[rows]
                data["labelled"] = labelled[rows]
                data["weights"] = None if weights is None else weights[rows]
            parties.append(party.holding(**data))
        context = self._init_callback_context(max_subtasks=2)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        self.communication_ = CommunicationLog()
        with self._connect(parties, self.communication_, active) as session:
            task = context.subcontext(task_name="encode and send")
            task.call_on_fit_task_begin(estimator=self)
            received = None
            if self._federates:
                received = self._gather(session, "encode", int(everywhere.sum()))
            task.call_on_fit_task_end(estimator=self)
            task = context.subcontext(task_name="distil and learn")
            task.call_on_fit_task_begin(estimator=self)
            session.tell("learn", to=[active], received=received)
            task.call_on_fit_task_end(estimator=self)
        self._parties = session.parties
        if self.inference == "active":
            self.active_estimator_ = self._parties[active].estimator
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _gather(self, session, operation, n_rows):
        """The one exchange: every party's representation of the same rows."""
        session.begin_round()
        first = operation == "encode"
        expected = self._any_rows(n_rows) if first else rows_of(self._widths, n_rows)
        received = session.call(operation, reply=expected)
        check_rows(received, n_rows)
        if first:
            self._widths = {name: sent.shape[1] for name, sent in received.items()}
        return received

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

    def _fill_labels(self, y, labelled):
        """Checked labels; those of other rows are never looked at."""
        if not labelled.any():
            among = " of a row that every party holds" * (self.inference == "joint")
            raise ValueError(f"y holds no label{among}")
        known = self._check_labels(y[labelled])
        labels = np.full(len(y), known[0], dtype=known.dtype)
        labels[labelled] = known
        return labels

    def _check_settings(self, sample_weight):
        active = self._active
        if active not in self._holders:
            raise ValueError(
                f"party {active!r} holds no column; the active party of APC-VFL "
                "predicts from its own columns: give it some"
            )
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
        if sample_weight is not None:
            _check_able("sample_weight", self._model)
        teaches = self.inference == "active" and self.distillation == "prediction"
        if teaches and is_classifier(self):
            _check_able("sample_weight", self._model)
            if self.teacher is not None:
                _check_able("predict_proba", self.teacher)
        if teaches and self.teacher is not None and sample_weight is not None:
            _check_able("sample_weight", self.teacher)

    def _rows_held(self, blocks, labelled, aligned):
        """Which rows each party holds."""
        n_rows, active = len(labelled), self._active
        held = {name: ~rows_without_values(blocks[name]) for name in self._holders}
        for name, mask in self._read_aligned(aligned).items():
            held[name] = _as_mask(mask, n_rows, f"aligned, party {name!r},")
        held[active] = held[active] | labelled
        counts = {name: int(rows.sum()) for name, rows in held.items()}
        for name, count in counts.items():
            if not count and (self._federates or name == active):
                raise ValueError(f"party {name!r} holds none of the {n_rows} rows")
        if self._federates and not np.logical_and.reduce(list(held.values())).any():
            raise ValueError(
                f"no row is held by every party: of {n_rows} rows the parties hold "
                f"{counts}; leave out a party, or set distillation=None"
            )
        return held

    def _read_aligned(self, aligned):
        """Given masks by party."""
        if aligned is None:
            return {}
        frame = nw.from_native(aligned, eager_only=True, pass_through=True)
        if isinstance(frame, nw.DataFrame):
            aligned = {name: frame[name].to_numpy() for name in frame.columns}
        if not isinstance(aligned, dict):
            return {name: aligned for name in self._holders if name != self._active}
        unknown = sorted(set(aligned).difference(self._holders))
        if unknown:
            raise ValueError(
                f"aligned names {unknown}, and the parties with columns are "
                f"{self._holders}"
            )
        return aligned

    @property
    def _federates(self):
        """Whether anything is asked of the passive parties."""
        return self.inference == "joint" or self.distillation is not None

    def _make_parties(self, sequence):
        active = self._active
        asked = self._holders if self._federates else [active]
        to_prepare, to_local, *streams = sequence.spawn(6)
        to_joint, to_active, to_model, to_teacher = streams
        prepare = self.partition_._make_transformers(to_prepare)
        children = spawn_named(to_local, self._holders)
        parties = []
        for name in asked:
            encoder = seed_party(self._local_encoder(name), children[name])
            if name != active:
                parties.append(EncoderParty(name, prepare[name], encoder))
                continue
            final = self._network(self.active_encoder, 256, 256)
            teacher = self.teacher
            if teacher is not None:
                teacher = seed_missing(clone(teacher), to_teacher)
            parties.append(
                ActiveParty(
                    name,
                    prepare[name],
                    encoder,
                    seed_party(self._network(self.joint_encoder, 256, 256), to_joint),
                    seed_party(final, to_active),
                    seed_missing(clone(self._model), to_model),
                    teacher,
                    self.distillation,
                    self.inference,
                )
            )
        return parties

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
            return clone(encoder)
        return AutoencoderTransformer(
            n_components,
            hidden_layer_sizes=(hidden,),
            distillation_loss=self.distillation_loss,
            distillation_weight=self.distillation_weight,
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            lr=self.lr,
        )

    def _answer(self, X, method):
        check_is_fitted(self)
        estimator = self._parties[self._active].estimator
        if hasattr(self, "active_estimator_"):
            rows, estimator = self._alone(X, estimator[:-1]), estimator[-1]
        else:
            rows = self._join(X)
        ask = getattr(estimator, method)
        return check_answers(shielded(self._active, method, ask, rows))

    def _alone(self, X, steps):
        """What these steps of the active party's own estimator make of its columns."""
        block = self._active_block(X)
        self._check_rows_held(self._active, block)
        return shielded(self._active, "transform", run, steps.transform, block)

    def _unexplained(self, name, empty, fitting):
        """For joint predictions parties refuse such rows themselves."""
        return empty & (self.inference == "active")

    def _join(self, X):
        """Joint representation, for which every party is asked."""
        active = self._active
        with self._connect_fitted(X, active) as session:
            received = self._gather(session, "represent", _num_samples(X))
            own = Rows(_num_samples(X), OWN_WIDTH, exact=False)
            return session.ask(active, "join", reply=own, received=received)

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
        check_is_fitted(self)
        if hasattr(self, "active_estimator_"):
            return self._alone(X, self.active_estimator_[:2])
        return self._join(X)

    @property
    def _n_features_out(self):
        return self._parties[self._active].estimator["scale"].n_features_in_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


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


class APCVFLClassifier(VFLClassifierMixin, _BaseAPCVFL):
    """Active-party-centric learning: one exchange, then the active party is alone.

    Every party trains an autoencoder on the rows it has. The passive ones send their
    representation of the *aligned* rows, which all parties have, once. The active party
    trains a joint encoder on what arrived, distils it into an encoder of its own
    columns, and trains any classifier on that: it predicts without anybody else.

    Read more in the :ref:`User Guide <apc>`.

    Parameters
    ----------
    classifier : classifier or None, default=None
        The final model, on standardised representations;
        ``LogisticRegression(C=0.1, max_iter=1000)`` by default. One whose ``fit``
        takes ``sample_weight`` with ``distillation="prediction"``.
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`.
    active : str or int, default=0
        Name or position of the active party, which holds the labels and columns of its
        own.
    distillation : {"representation", "prediction"} or None, default="representation"
        What the active party learns from the others' columns, to predict alone:

        - ``"representation"``: its encoder imitates the joint representation of the
          aligned rows, as in the paper;
        - ``"prediction"``: a teacher on the joint representation of the labelled
          aligned rows predicts the unlabelled aligned ones, and the model learns from
          both; ours, for few labels and many aligned rows;
        - None: nothing, and nobody is asked; the paper's ablation.
    teacher : estimator or None, default=None
        Learns the labels from the joint representation, for
        ``distillation="prediction"``. By default logistic regression, its
        penalty chosen by cross-validation over the labelled aligned rows.
    inference : {"active", "joint"}, default="active"
        Whether the active party predicts alone, or every party takes part in every
        prediction and the model works on the joint representation (the paper's figure
        5; ``distillation`` has no effect). The model then learns from labels of rows
        that every party holds, and from no others.
    local_encoder : transformer, dict of str to transformer or None, default=None
        What each party learns of its own columns. By default the paper's autoencoders,
        64 hidden and 128 latent units at the active party, 128 and 256 at the others.
    joint_encoder : transformer or None, default=None
        What the active party learns of all parties' representations; an
        :class:`AutoencoderTransformer` by default, 256 and 256 units.
    active_encoder : transformer or None, default=None
        What the active party learns to predict alone; an
        :class:`AutoencoderTransformer` by default, 256 and 256 units. To distil a
        representation it needs as many components as ``joint_encoder`` and takes
        ``latent_target`` and ``has_target`` in ``fit``.
    distillation_loss : {"mse", "mae"}, default="mse"
        Distance of representations, for the default ``active_encoder``.
    distillation_weight : float, default=0.01
        The paper's λ, for the default ``active_encoder``.
    max_epochs : int, default=50
        Number of passes over the rows, for all default encoders.
    batch_size : int, default=128
        Rows per step, for all default encoders.
    lr : float, default=1e-3
        Learning rate, for all default encoders.
    transport : {"local", "process"} or Transport, default="local"
        How the parties are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of one random stream per party and model. ``None`` takes fresh entropy from
        the operating system. A known seed is a known secret.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    active_estimator_ : Pipeline
        What the active party predicts with: preparation, encoder, scaling and model
        over its own columns. A scikit-learn estimator that can be saved and used where
        the other parties do not exist (skvfl and torch must be installed to load it).
        Not with ``inference="joint"``.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``: one message of representations from every passive
        party.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    APCVFLRegressor : The same for numerical targets.
    skvfl.alignment.align : Tables with ids to one table with missing blocks.
    SplitNNClassifier : Joint training with two messages per batch.

    Notes
    -----
    *Which rows.* A party does not hold a row of which all its cells are missing, unless
    ``aligned`` in :meth:`fit` says otherwise; the active party holds every row with a
    label. Rows without a label train the encoders, and only rows with one train the
    classifier.

    *What to expect.* On the paper's own data we could not reproduce that distilling the
    representation beats the ablation; an encoder that imitates shuffled targets does as
    well. What the other parties' columns do give an active party that predicts alone is
    labels: ``distillation="prediction"`` gains where labels are few and unlabelled
    aligned rows are many, and has no effect where all aligned rows have a label. See
    :ref:`apc_benchmarks`.

    *Who learns what.* The active party sees every passive party's representation of the
    aligned rows, from which columns can be inferred by whoever knows some rows. The
    passive parties receive nothing, not even in prediction with
    ``inference="active"``. All parties know which rows are aligned.

    References
    ----------
    .. [1] J. Irureta, J. Imaz, A. Lojo, M. González, I. Perona, "Towards Active
       Participant-Centric Vertical Federated Learning: Some Representations May Be All
       You Need".

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import APCVFLClassifier
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> parties = {"clinic": list(X.columns[:5]), "lab": list(X.columns[5:])}
    >>> X.loc[100:, parties["lab"]] = None  # the lab knows the first 100 only
    >>> vfl = APCVFLClassifier(parties=parties, random_state=0).fit(X, y)
    >>> vfl.communication_.n_messages
    1
    >>> vfl.score(X[parties["clinic"]], y) > 0.9
    True
    >>> vfl.active_estimator_.score(X[parties["clinic"]], y) > 0.9
    True
    """

    _parameter_constraints = {
        **_BaseAPCVFL._parameter_constraints,
        "classifier": [HasMethods(["fit", "predict"]), None],
    }

    def __init__(
        self,
        classifier=None,
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
        transport="local",
        random_state=None,
    ):
        super().__init__(
            parties=parties,
            active=active,
            distillation=distillation,
            teacher=teacher,
            inference=inference,
            local_encoder=local_encoder,
            joint_encoder=joint_encoder,
            active_encoder=active_encoder,
            distillation_loss=distillation_loss,
            distillation_weight=distillation_weight,
            max_epochs=max_epochs,
            batch_size=batch_size,
            lr=lr,
            transport=transport,
            random_state=random_state,
        )
        self.classifier = classifier

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None, *, labelled=None, aligned=None):
        """Encode, exchange once, distil, and train the classifier.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            The table of which every party holds some columns, and some rows.
        y : array-like of shape (n_samples,)
            The active party's labels; None, NaN, NA or masked where there is
            none.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the classifier; they stay with the active party.
        labelled : array-like of bool of shape (n_samples,), default=None
            Which rows have a label, whatever ``y`` says of the others.
        aligned : array-like of bool, dict or DataFrame of bool, default=None
            Rows that all passive parties hold, or which rows each party holds, by its
            name; by default those of which it has a cell. Only an array or a DataFrame
            can be split by cross-validation.

        Returns
        -------
        self : APCVFLClassifier

        Raises
        ------
        ValueError
            If the labels are not classes, if no row is held by every party, or if the
            parties and the columns do not match; the message names both.
        PartyError
            If a party fails; the message names it.
        """
        return self._fit(X, y, sample_weight, labelled, aligned)

    def predict(self, X):
        """Predict classes.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            With the columns of ``fit``, or at least the active party's (an array with
            all columns, or with just these, in the order of
            ``partition_.parties_``); all of them with ``inference="joint"``.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Of the data type of ``classes_``.
        """
        return self._answer(X, "predict")

    @available_if(_model_has("predict_proba"))
    def predict_proba(self, X):
        """Probability of each class.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            With the columns of ``fit``, or at least the active party's (an array with
            all columns, or with just these, in the order of
            ``partition_.parties_``); all of them with ``inference="joint"``.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self._answer(X, "predict_proba")

    @available_if(_model_has("decision_function"))
    def decision_function(self, X):
        """Score of each class, as the classifier gives it.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            With the columns of ``fit``, or at least the active party's (an array with
            all columns, or with just these, in the order of
            ``partition_.parties_``); all of them with ``inference="joint"``.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes) or (n_samples,)
        """
        return self._answer(X, "decision_function")

    def _check_labels(self, y):
        codes = self._encode_classes(y)
        return self.classes_[codes]

    @property
    def _model(self):
        if self.classifier is None:
            return LogisticRegression(C=0.1, max_iter=1000)
        return self.classifier


class APCVFLRegressor(VFLRegressorMixin, _BaseAPCVFL):
    """APC-VFL for a numerical target; see :class:`APCVFLClassifier`.

    Read more in the :ref:`User Guide <apc>`.

    Parameters
    ----------
    regressor : regressor or None, default=None
        The final model, on standardised representations; ``Ridge(alpha=10)`` by
        default.
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`.
    active : str or int, default=0
        Name or position of the active party, which holds the labels and columns of its
        own.
    distillation : {"representation", "prediction"} or None, default="representation"
        What the active party learns from the others' columns, to predict alone:

        - ``"representation"``: its encoder imitates the joint representation of the
          aligned rows, as in the paper;
        - ``"prediction"``: a teacher on the joint representation of the labelled
          aligned rows predicts the unlabelled aligned ones, and the model learns from
          both; ours, for few labels and many aligned rows;
        - None: nothing, and nobody is asked; the paper's ablation.
    teacher : estimator or None, default=None
        Learns the labels from the joint representation, for
        ``distillation="prediction"``. By default ridge regression, its
        penalty chosen by cross-validation over the labelled aligned rows.
    inference : {"active", "joint"}, default="active"
        Whether the active party predicts alone, or every party takes part in every
        prediction and the model works on the joint representation (the paper's figure
        5; ``distillation`` has no effect). The model then learns from labels of rows
        that every party holds, and from no others.
    local_encoder : transformer, dict of str to transformer or None, default=None
        What each party learns of its own columns. By default the paper's autoencoders,
        64 hidden and 128 latent units at the active party, 128 and 256 at the others.
    joint_encoder : transformer or None, default=None
        What the active party learns of all parties' representations; an
        :class:`AutoencoderTransformer` by default, 256 and 256 units.
    active_encoder : transformer or None, default=None
        What the active party learns to predict alone; an
        :class:`AutoencoderTransformer` by default, 256 and 256 units. To distil a
        representation it needs as many components as ``joint_encoder`` and takes
        ``latent_target`` and ``has_target`` in ``fit``.
    distillation_loss : {"mse", "mae"}, default="mse"
        Distance of representations, for the default ``active_encoder``.
    distillation_weight : float, default=0.01
        The paper's λ, for the default ``active_encoder``.
    max_epochs : int, default=50
        Number of passes over the rows, for all default encoders.
    batch_size : int, default=128
        Rows per step, for all default encoders.
    lr : float, default=1e-3
        Learning rate, for all default encoders.
    transport : {"local", "process"} or Transport, default="local"
        How the parties are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of one random stream per party and model. ``None`` takes fresh entropy from
        the operating system. A known seed is a known secret.

    Attributes
    ----------
    active_estimator_ : Pipeline
        What the active party predicts with: preparation, encoder, scaling and model
        over its own columns. A scikit-learn estimator that can be saved and used where
        the other parties do not exist (skvfl and torch must be installed to load it).
        Not with ``inference="joint"``.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``: one message of representations from every passive
        party.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    APCVFLClassifier : The same for classes.
    skvfl.alignment.align : Tables with ids to one table with missing blocks.
    SplitNNClassifier : Joint training with two messages per batch.

    Notes
    -----
    *Which rows.* A party does not hold a row of which all its cells are missing, unless
    ``aligned`` in :meth:`fit` says otherwise; the active party holds every row with a
    target. Rows without a target train the encoders, and only rows with one train the
    regressor.

    *Who learns what.* As for :class:`APCVFLClassifier`.

    References
    ----------
    .. [1] J. Irureta, J. Imaz, A. Lojo, M. González, I. Perona, "Towards Active
       Participant-Centric Vertical Federated Learning: Some Representations May Be All
       You Need".

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvfl import APCVFLRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> vfl = APCVFLRegressor(parties=2, random_state=0).fit(X, y)
    >>> vfl.score(X, y) > 0.4
    True
    """

    _parameter_constraints = {
        **_BaseAPCVFL._parameter_constraints,
        "regressor": [HasMethods(["fit", "predict"]), None],
    }

    def __init__(
        self,
        regressor=None,
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
        transport="local",
        random_state=None,
    ):
        super().__init__(
            parties=parties,
            active=active,
            distillation=distillation,
            teacher=teacher,
            inference=inference,
            local_encoder=local_encoder,
            joint_encoder=joint_encoder,
            active_encoder=active_encoder,
            distillation_loss=distillation_loss,
            distillation_weight=distillation_weight,
            max_epochs=max_epochs,
            batch_size=batch_size,
            lr=lr,
            transport=transport,
            random_state=random_state,
        )
        self.regressor = regressor

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None, *, labelled=None, aligned=None):
        """Encode, exchange once, distil, and train the regressor.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            The table of which every party holds some columns, and some rows.
        y : array-like of shape (n_samples,)
            The active party's target; None, NaN, NA or masked where there is
            none.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the regressor; they stay with the active party.
        labelled : array-like of bool of shape (n_samples,), default=None
            Which rows have a label, whatever ``y`` says of the others.
        aligned : array-like of bool, dict or DataFrame of bool, default=None
            Rows that all passive parties hold, or which rows each party holds, by its
            name; by default those of which it has a cell. Only an array or a DataFrame
            can be split by cross-validation.

        Returns
        -------
        self : APCVFLRegressor

        Raises
        ------
        ValueError
            If the targets are not numbers, if no row is held by every party, or if the
            parties and the columns do not match; the message names both.
        PartyError
            If a party fails; the message names it.
        """
        return self._fit(X, y, sample_weight, labelled, aligned)

    def predict(self, X):
        """Predict targets.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            With the columns of ``fit``, or at least the active party's (an array with
            all columns, or with just these, in the order of
            ``partition_.parties_``); all of them with ``inference="joint"``.

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        return self._answer(X, "predict")

    def _check_labels(self, y):
        return self._encode_target(y)

    @property
    def _model(self):
        return Ridge(alpha=10) if self.regressor is None else self.regressor
