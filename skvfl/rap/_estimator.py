"""RAP: one round of random projections, then any model on the server."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
from sklearn.base import TransformerMixin, clone, is_classifier, is_regressor
from sklearn.decomposition import PCA
from sklearn.metrics import accuracy_score, r2_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skvfl._base import (
    VFLEstimator,
    check_answers,
    check_kind,
    read_truth,
)
from skvfl._course import Course
from skvfl._random import branch, seed_missing, seed_sequence
from skvfl._sklearn import (
    HasMethods,
    StrOptions,
    _fit_context,
    _num_samples,
)
from skvfl._warnings import warn
from skvfl.exceptions import PrivacyLeakWarning
from skvfl.federation import CommunicationLog
from skvfl.federation._log import current_log
from skvfl.federation._replies import Count, Fields, Maybe, Rows, Vector, rows_of
from skvfl.federation._transport import check_rows
from skvfl.partition._partitioner import as_partition
from skvfl.partition._tables import _check_table
from skvfl.partition._transformers import require_transformer
from skvfl.rap._parties import ALIASES, OwnerSettings, PartySettings
from skvfl.rap._server_model import (
    fit_model,
    precision_of,
    predict_labels,
    predict_targets,
    score_labels,
)

_DEFAULT_MODELS = {
    "classifier": MLPClassifier(hidden_layer_sizes=(128,)),
    "regressor": MLPRegressor(hidden_layer_sizes=(128,)),
}


def _model_has(method):
    return lambda self: hasattr(self._model, method)


def _only_decision_function(self):
    return hasattr(self._model, "decision_function") and not hasattr(
        self._model, "predict_proba"
    )


class RandomProjectionVFL(TransformerMixin, VFLEstimator):
    """One-round vertical federated learning by random projection (RAP).

    Every party multiplies its prepared columns by a private random matrix and sends the
    product to a server once; the label owner sends protected labels; the server trains
    any scikit-learn model on what it received. It is a classifier or a regressor, as
    ``estimator`` is.

    Read more in the :ref:`User Guide <rap>`.

    Parameters
    ----------
    estimator : {"classifier", "regressor"} or estimator, default="classifier"
        The server's model. ``"classifier"`` and ``"regressor"`` are the paper's
        perceptron with one hidden layer of 128 units, trained by Adam (scikit-learn's
        ``MLPClassifier`` and ``MLPRegressor``); any classifier, regressor or skorch net
        will do. A skorch net needs two output units per class when labels are
        protected, and draws from a stream of its own.
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`; a partitioner also
        says how parties prepare their columns before projecting.
    active : str or int, default=0
        Name or position of the label owner. It may hold no columns.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all: an error that names the party and counts them, or they are imputed
        like other missing values. Later they are imputed, and a
        :class:`~skvfl.exceptions.MissingRowsWarning` counts them.
    projection : transformer, dict of str to transformer or None, default=None
        What each party applies to its prepared columns, or each by name; a
        :class:`GaussianProjection` by default. Every party gets a clone with a seed of
        its own. The default's orthogonal matrix keeps lengths of rows, by which a
        server finds people that it knows; ``kind="conditioned"`` does not.
    label_protection : bool, default=True
        Whether the server sees two aliases per class, drawn anew for every row, instead
        of the classes, or a secret mixture of the target and a pseudo target instead of
        the target. Predictions are sent to the label owner, who decodes them. The
        server can pair the aliases, see Notes.
    whiten : bool, default=False
        Whether the server decorrelates and rescales the received columns before it
        trains (principal components of unit variance, numerical rank kept). Repairs
        the conditioning of ``GaussianProjection(kind="gaussian")``.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn; the label owner turns them into
        weights of rows. With protected labels this tells the server which aliases may
        belong together.
    transport : {"local", "process"} or Transport, default="local"
        How the parties are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of one random stream per party and of the server model's, where that has no
        seed of its own. ``None`` takes fresh entropy from the operating system. A known
        seed is a known secret.

    Attributes
    ----------
    estimator_ : estimator or list of estimator
        The server's fitted model; two of them for a protected target that the model
        cannot learn as two outputs at once.
    classes_ : ndarray of shape (n_classes,)
        Class labels, if this is a classifier.
    partition_ : VerticalPartitioner
        Who holds which columns; it can ``split`` a table. The fitted transformers stay
        with the parties.
    communication_ : CommunicationLog
        What crossed in ``fit``: one message of columns from every party that has some,
        and one of labels.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    GaussianProjection : One party's projection.
    VerticalPartitioner : Parties with any transformer.

    Notes
    -----
    *Who sees what, in short.* The server sees every row, rotated by secret matrices,
    and aliases of the labels, which it can pair; parties see nothing of each other.

    *Who learns what.* The server sees every party's projected columns, the number of
    rows and columns, and protected labels; when predicting it sees the projected row
    and its own prediction in terms of aliases. The label owner sees the predictions.
    Parties see nothing of each other. Projection hides values from those who know
    nothing else; it is neither encryption nor differential privacy: see
    :class:`GaussianProjection` and :ref:`the privacy page <rap_privacy>` for what known
    rows, known distributions and few distinct values give away. The aliases of a class
    are statistically alike, so the server can pair them: by the means of the rows
    behind them it did in 20 of 20 fits on adult. They protect labels from being read,
    not from being inferred. The label owner draws them once, and refuses to be asked
    again; fitting again on the same rows, as cross-validation does, is a second draw,
    which shows the pairs as well. Weights of rows are sent as they are.

    Every party draws its matrix, and the label owner its aliases, at home. After a
    simulation the fitted estimator has the halves of all parties, these secrets
    included, and so does its pickle: do not give it to the server. ``keep_halves([])``
    is the same model without them.

    Do not stop a model for protected labels by held-out accuracy, as
    ``MLPClassifier(early_stopping=True)`` does: aliases of a class cannot be told
    apart, so that accuracy is below one half and noisy.

    *Precision.* The default preparation sends single precision. Networks
    (``MLPClassifier``, ``MLPRegressor``, skorch nets) train on what arrived, all other
    models in double precision; predictions are computed in double precision.

    *Deviations from the paper.* Columns are standardised inside each party first,
    which accuracy needs. ``predict_proba`` sums a class's aliases and ``predict``
    follows it, where the paper takes the best single alias. Where the model supports
    it, a protected target takes one model with two outputs instead of two models. A
    target is standardised by the label owner, and the pseudo target is drawn at that
    scale.

    References
    ----------
    .. [1] Q. Zhang, X. Yan, Y. Ding, F. Fu, C. Hu, Q. Xu, X. Chen, J. Jiang, "RAP:
       Random Projection is What You Need for Vertical Federated Learning".

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> from skvfl import RandomProjectionVFL
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> vfl = RandomProjectionVFL(LogisticRegression(), parties=3, random_state=0)
    >>> print(f"{cross_val_score(vfl, X, y).mean():.2f}")
    0.98
    >>> vfl.fit(X, y).communication_.n_rounds
    1
    """

    _streams = {"prepare": (1, 0), "project": (1, 1), "protect": (1, 2)}
    _roles = (PartySettings, OwnerSettings)
    _by_party = ("projection",)
    _one_round = True

    _parameter_constraints = {
        **VFLEstimator._parameter_constraints,
        "estimator": [StrOptions(set(_DEFAULT_MODELS)), HasMethods(["fit", "predict"])],
        "projection": [HasMethods(["fit_transform", "transform"]), dict, None],
        "label_protection": ["boolean"],
        "whiten": ["boolean"],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        estimator="classifier",
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        projection=None,
        label_protection=True,
        whiten=False,
        class_weight=None,
        transport="local",
        random_state=None,
    ):
        self.estimator = estimator
        self.parties = parties
        self.active = active
        self.missing_rows = missing_rows
        self.projection = projection
        self.label_protection = label_protection
        self.whiten = whiten
        self.class_weight = class_weight
        self.transport = transport
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Let the parties project once and train the server's model.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The label owner's labels or target.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, which the label owner sends to the server.

        Returns
        -------
        self : RandomProjectionVFL

        Raises
        ------
        ValueError
            If the labels do not suit the estimator, or if the parties and the columns
            do not match; the message names both.
        PartyError
            If a party fails; the message names it.
        """
        root = seed_sequence(self.random_state)
        labels = self._read_labels(X, y, sample_weight)
        X = self._fit_partition(X, y, branch(root, 0))
        members = self._make_members(X, root, labels)
        with Course(self, X, y, 2) as course:
            task = course.begin("project and send")
            self.communication_ = CommunicationLog()
            # The session ends before the model trains: the server has all that it
            # needs, and parties in processes of their own need not wait.
            with self._open(members, self.communication_) as session:
                received, sent = self._gather(session, len(labels.values))
            course.end(task)
            self._parties = session.parties
            # Here, where no other name keeps what arrived in another precision, and
            # only now, when the parties' tables are gone.
            received = received.astype(self._learns_from or received.dtype, copy=False)
            self._train(received, sent, branch(root, 2), course)
        return self

    def _settings(self, name):
        said = super()._settings(name)
        if said.projection is not None:
            require_transformer(f"projection of party {name!r}", said.projection)
        return said

    def _gather(self, session, n_rows):
        """The paper's Algorithm 1, steps 1 and 2: everybody transforms and sends."""
        session.begin_round()
        projected = session.call(
            "fit_transform", to=self._holders, reply=self._any_rows(n_rows)
        )
        labels = session.ask(
            self._active, "protect_labels", reply=self._protected_labels(n_rows)
        )
        matrices = check_rows(projected, n_rows)
        # Served rows must have these widths: the model takes columns by position.
        self._widths = {name: sent.shape[1] for name, sent in projected.items()}
        return np.hstack(matrices), labels

    @property
    def _learns_from(self):
        """Data type that the server puts what it received into."""
        # The whitening divides by small variances, and the covariance squares the
        # condition number; single precision has no digits left for that.
        return np.float64 if self.whiten else precision_of(self._model)

    def _protected_labels(self, n_rows):
        """What is expected of the label owner."""
        if is_classifier(self):
            # The reply is bound to the classes that there are: an owner cannot have the
            # server build a model of any size.
            n_labels = len(self.classes_) * (ALIASES if self.label_protection else 1)
            labels = Vector(n_rows, n_labels)
        else:
            n_labels = 2 if self.label_protection else 1
            labels = Rows(n_rows, n_labels)
        return Fields(
            {
                "labels": labels,
                "weights": Maybe(Vector(n_rows)),
                "n_labels": Count(n_labels, n_labels),
            }
        )

    def _train(self, received, sent, sequence, course):
        """The paper's Algorithm 1, step 3: the server trains alone."""
        # No party has this stream: the model is the server's, and its draws are no
        # secret from the server.
        model = seed_missing(clone(self._model), sequence)
        nested = hasattr(model, "set_callbacks")
        # Not by ``Course.begin``: callbacks that the model takes over hear of this task
        # from the model.
        task = course.context.subcontext(task_name="train the server's model")
        with task.propagate_callback_context(model) if nested else nullcontext():
            task.call_on_fit_task_begin(**course.rows)
            self._whitener = None
            if self.whiten:
                self._whitener = _whitener(received)
                received = self._whitener.transform(received)
            self.estimator_ = fit_model(
                model,
                received,
                sent["labels"],
                sent["weights"],
                sent["n_labels"],
                sequence.spawn(1)[0],
            )
            task.call_on_fit_task_end(**course.rows, reconstruction_attributes=dict)

    def _collect(self, session, X):
        """What the server receives for rows to be served."""
        session.begin_round()
        n_rows = _num_samples(X)
        projected = session.call(
            "transform", to=self._holders, reply=rows_of(self._widths, n_rows)
        )
        return np.hstack(check_rows(projected, n_rows, self._widths))

    def _serve(self, X, ask, operation):
        """The paper's Algorithm 1, step 4: the label owner's decoded answer."""
        with self._reopen(X, current_log()) as session:
            # As most models have learnt; nets turn it back into what they take.
            received = self._collect(session, X).astype(np.float64)
            if self._whitener is not None:
                received = self._whitener.transform(received)
            answer = ask(self.estimator_, received)
            # Only the label owner can decode, and the answer stays with it: the server
            # must not see which aliases are one class.
            session.begin_round()
            decoded = session.ask(
                self._active,
                operation,
                reply_to=self._active,
                reply=self._recovered(operation, len(received)),
                **answer,
            )
            return check_answers(decoded)

    def _recovered(self, operation, n_rows):
        """What is expected of the label owner's decoded answer."""
        if operation == "recover_target":
            return Vector(n_rows)
        n_classes = len(self.classes_)
        if operation == "recover_codes":
            return Vector(n_rows, n_classes)
        return Rows(n_rows, n_classes)

    def _score_classes(self, X, method, operation):
        def ask(model, received):
            scores, aliases = score_labels(model, method, received)
            return {"scores": scores, "aliases": aliases}

        return self._serve(X, ask, operation)

    def predict(self, X):
        """Predict labels or targets, decoded by the label owner.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Of the data type of ``classes_`` for a classifier, float64 for a regressor.
        """
        check_is_fitted(self)
        if not hasattr(self, "classes_"):
            return self._serve(
                X, lambda *args: {"answer": predict_targets(*args)}, "recover_target"
            )
        # The likeliest alias need not be of the likeliest class, so probabilities are
        # summed over aliases first, where the model has them.
        if hasattr(self.estimator_, "predict_proba"):
            scores = self._score_classes(X, "predict_proba", "recover_scores")
            codes = scores.argmax(axis=1)
        else:
            codes = self._serve(
                X, lambda *args: {"answer": predict_labels(*args)}, "recover_codes"
            )
        return self.classes_[codes]

    @available_if(_model_has("predict_proba"))
    def predict_proba(self, X):
        """Probability of each class: the sum over its aliases.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes), dtype float64
            Columns in the order of ``classes_``.
        """
        return self._score_classes(X, "predict_proba", "recover_scores")

    @available_if(_only_decision_function)
    def decision_function(self, X):
        """Score of each class, for models without probabilities.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes) or (n_samples,)
            The better of a class's aliases; for two classes half the difference, which
            is positive where the second is predicted.
        """
        scores = self._score_classes(X, "decision_function", "recover_best")
        # scikit-learn's decision functions have one column for two classes.
        if len(self.classes_) == 2:
            return (scores[:, 1] - scores[:, 0]) / 2
        return scores

    def transform(self, X):
        """Project rows: what the server sees of them.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        projected : ndarray of shape (n_samples, n_outputs), dtype float32 or float64
            Every party's projection, side by side.
        """
        check_is_fitted(self)
        with self._reopen(X, current_log(), names=self._holders) as session:
            return self._collect(session, X)

    def score(self, X, y, sample_weight=None):
        """Accuracy of a classifier, R² of a regressor.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.
        y : array-like of shape (n_samples,)
            True labels or targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
        """
        # Looked at before the parties are asked: a bad y costs no round.
        classifies = is_classifier(self)
        y, weights = read_truth(
            y, sample_weight, _num_samples(_check_table(X)), classifies=classifies
        )
        if classifies:
            check_is_fitted(self)
            check_kind(y, self.classes_)
        metric = accuracy_score if classifies else r2_score
        return metric(y, self.predict(X), sample_weight=weights)

    def get_feature_names_out(self, input_features=None):
        """Names of the projected columns: ``party__projection0`` and so on.

        Parameters
        ----------
        input_features : None
            Ignored.

        Returns
        -------
        names : ndarray of str
        """
        check_is_fitted(self)
        return np.array(
            [
                f"{party}__projection{i}"
                for party, width in self._widths.items()
                for i in range(width)
            ],
            dtype=object,
        )

    @property
    def _model(self):
        if isinstance(self.estimator, str):
            return _DEFAULT_MODELS[self.estimator]
        return self.estimator

    def _read_labels(self, X, y, sample_weight):
        """What the label owner has; the server's model says of which kind it is."""
        classifies = is_classifier(self)
        if not (classifies or is_regressor(self)):
            raise ValueError(
                f"{type(self._model).__name__} is neither a classifier nor a "
                "regressor; for clustering and outlier detection put "
                "VerticalPartitioner(GaussianProjection()) in front of it"
            )
        # The server would find out only after the parties had sent their columns.
        weighted = sample_weight is not None or self.class_weight is not None
        if weighted and not has_fit_parameter(self._model, "sample_weight"):
            raise ValueError(
                f"{type(self._model).__name__} does not support sample_weight, which "
                "weights of rows and classes need"
            )
        if not classifies:
            if self.class_weight is not None:
                raise ValueError("class_weight is for classifiers only")
            return self._read_targets(X, y, sample_weight)
        labels = self._read_classes(X, y, sample_weight, self.class_weight)
        if self.class_weight is not None and self.label_protection:
            warn(
                "class_weight gives the rows of a class one weight, which shows the "
                "server which aliases may belong together",
                PrivacyLeakWarning,
            )
        return labels

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        model = get_tags(self._model)
        tags.estimator_type = model.estimator_type
        tags.classifier_tags = model.classifier_tags
        tags.regressor_tags = model.regressor_tags
        # The label owner has one column of labels, whatever the model could take.
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_label = False
        tags.target_tags.required = True
        partition = get_tags(as_partition(self.parties))
        tags.transformer_tags.preserves_dtype = (
            partition.transformer_tags.preserves_dtype
        )
        return tags


def _whitener(received):
    """Principal components of unit variance, as many as the numerical rank."""
    # Squared, because eigenvalues of the covariance are squares of singular values.
    # Parties send single precision, so its epsilon is the noise.
    tolerance = (received.shape[1] * np.finfo(np.float32).eps) ** 2
    covariance = np.atleast_2d(np.cov(received, rowvar=False))
    rank = np.linalg.matrix_rank(covariance, rtol=tolerance, hermitian=True)
    if rank == 0:
        raise ValueError(
            "whiten=True: every column that the server received is constant"
        )
    return PCA(rank, whiten=True, svd_solver="covariance_eigh").fit(received)
