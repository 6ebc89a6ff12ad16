"""APC-VFL: one exchange, limited overlap, and the active party predicts alone."""

from __future__ import annotations

from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.metaestimators import available_if

from skvfl._base import VFLClassifierMixin, VFLRegressorMixin
from skvfl._renamed import renamed
from skvfl._sklearn import HasMethods, StrOptions, _fit_context
from skvfl.apc._protocol import _BaseAPCVFL
from skvfl.federation._replies import OWN_WIDTH, Rows, Vector


def _model_has(method):
    return lambda self: hasattr(self._model, method)


class APCVFLClassifier(VFLClassifierMixin, _BaseAPCVFL):
    """Active-party-centric learning: one exchange, then the active party is alone.

    Every party trains an autoencoder on the rows it has. The passive ones send their
    representation of the *aligned* rows, which all parties have, once. The active party
    trains a joint encoder on what arrived, distils it into an encoder of its own
    columns, and trains any classifier on that: it predicts without anybody else.

    Read more in the :ref:`User Guide <apc>`.

    Parameters
    ----------
    estimator : classifier or None, default=None
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
    optimizer : class or None, default=None
        From ``torch.optim``, for all default encoders; Adam by default.
    weight_decay : float, default=0.0
        Of the optimiser of all default encoders.
    callbacks : list of skorch callbacks, dict of str to list or None, default=None
        Schedulers, checkpoints and loggers of the active party's encoders; a dict gives
        each party its own by name. An encoder that is given has its own.
    device : str or dict of str to str, default="cpu"
        Where networks are trained, as torch names it, such as ``"cuda"``; a dict says
        it for each party by name. An organisation elsewhere says it in its own file.
        Fitted networks are on the CPU.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in the final model, as in scikit-learn, on top of those
        that it has itself.
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
        Not with ``inference="joint"``, nor where the active party's half is not here.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``: one message of representations from every passive
        party. Which rows each party holds crosses before, as a part of opening the run
        (round 0): it counts in bytes, not in ``n_messages`` and ``n_rounds``.
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

    *Who sees what, in short.* The active party sees which rows the others hold, and
    latent representations of the rows that all hold; the others see which rows those
    are.

    *Who learns what.* The active party sees every passive party's representation of the
    aligned rows, from which columns can be inferred by whoever knows some rows. The
    passive parties receive nothing else than which rows are aligned, and nothing at all
    in prediction with ``inference="active"``. The active party learns which rows
    each of the others holds.

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
        "estimator": [HasMethods(["fit", "predict"]), None],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    @renamed(classifier="estimator", regressor="estimator")
    def __init__(
        self,
        estimator=None,
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
        class_weight=None,
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
            optimizer=optimizer,
            weight_decay=weight_decay,
            callbacks=callbacks,
            device=device,
            transport=transport,
            random_state=random_state,
        )
        self.estimator = estimator
        self.class_weight = class_weight

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
        codes = self._serve(
            X, "predict", lambda n_rows: Vector(n_rows, len(self.classes_))
        )
        return self.classes_[codes]

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
        return self._serve(
            X, "predict_proba", lambda n_rows: Rows(n_rows, len(self.classes_))
        )

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
        scores = self._serve(
            X, "decision_function", lambda n_rows: Rows(n_rows, OWN_WIDTH, exact=False)
        )
        # scikit-learn gives one score for two classes; parties send matrices only.
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _check_labels(self, y):
        # Labels and not codes: scikit-learn's models learn them as they are, and those
        # of a fitted pipeline are then the user's own.
        codes = self._encode_classes(y)
        return self.classes_[codes]

    @property
    def _model(self):
        if self.estimator is None:
            return LogisticRegression(C=0.1, max_iter=1000)
        return self.estimator


class APCVFLRegressor(VFLRegressorMixin, _BaseAPCVFL):
    """APC-VFL for a numerical target; see :class:`APCVFLClassifier`.

    Read more in the :ref:`User Guide <apc>`.

    Parameters
    ----------
    estimator : regressor or None, default=None
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
    optimizer : class or None, default=None
        From ``torch.optim``, for all default encoders; Adam by default.
    weight_decay : float, default=0.0
        Of the optimiser of all default encoders.
    callbacks : list of skorch callbacks, dict of str to list or None, default=None
        Schedulers, checkpoints and loggers of the active party's encoders; a dict gives
        each party its own by name. An encoder that is given has its own.
    device : str or dict of str to str, default="cpu"
        Where networks are trained, as torch names it, such as ``"cuda"``; a dict says
        it for each party by name. An organisation elsewhere says it in its own file.
        Fitted networks are on the CPU.
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
        Not with ``inference="joint"``, nor where the active party's half is not here.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``: one message of representations from every passive
        party. Which rows each party holds crosses before, as a part of opening the run
        (round 0): it counts in bytes, not in ``n_messages`` and ``n_rounds``.
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

    *Who sees what, in short.* The active party sees which rows the others hold, and
    latent representations of the rows that all hold; the others see which rows those
    are.

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
        "estimator": [HasMethods(["fit", "predict"]), None],
    }

    @renamed(classifier="estimator", regressor="estimator")
    def __init__(
        self,
        estimator=None,
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
            optimizer=optimizer,
            weight_decay=weight_decay,
            callbacks=callbacks,
            device=device,
            transport=transport,
            random_state=random_state,
        )
        self.estimator = estimator

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
        return self._serve(X, "predict", lambda n_rows: Rows(n_rows, 1))[:, 0]

    def _check_labels(self, y):
        return self._encode_target(y)

    @property
    def _model(self):
        return Ridge(alpha=10) if self.estimator is None else self.estimator
