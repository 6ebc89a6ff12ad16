"""FedOnce: guests encode their columns once, the host trains on what it received."""

from __future__ import annotations

from skvfl._base import VFLClassifierMixin, VFLRegressorMixin
from skvfl._renamed import renamed
from skvfl._sklearn import StrOptions, _fit_context
from skvfl.fedonce._protocol import _BaseFedOnce


class FedOnceClassifier(VFLClassifierMixin, _BaseFedOnce):
    """One round of representations, then a network at the host (FedOnce).

    Every guest learns a representation of its columns without labels and sends it once;
    the host trains a network on it and on its own columns [1]_. Multi-round FedOnce
    goes on with split learning from there; FedOnce-L1 keeps the released networks
    within a budget of differential privacy.

    Read more in the :ref:`User Guide <fedonce>`.

    Parameters
    ----------
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`.
    active : str or int, default=0
        Name or position of the host, which holds the labels and trains the
        model. It may hold no columns. All other parties are guests.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all: an error that names the party and counts them, or they are imputed
        like other missing values. Later they are imputed, and a
        :class:`~skvfl.exceptions.MissingRowsWarning` counts them.
    missing_party : {"raise", "zero"}, default="raise"
        What happens when a guest does not answer: its process died, it took too long
        (:class:`ProcessTransport` has a ``timeout``), it failed, or it holds no value
        of any row that it is asked about. Either a
        :class:`~skvfl.exceptions.PartyError`, or a
        :class:`~skvfl.exceptions.MissingPartyWarning` that names it, and zeros in place
        of its standardised representation: the mean of what it sent in ``fit``. A guest
        that refuses its input is an error in any case.
    local_encoder : transformer, dict of str to transformer or None, default=None
        What turns a guest's prepared columns into its representation; a dict says it
        for each guest by name. Every guest gets a clone with a seed of its own. By
        default a :class:`NoiseAsTargetsEncoder` that is trained with this estimator's
        ``max_epochs``, ``batch_size``, ``lr``, ``optimizer`` and ``weight_decay``; with
        a budget, a :class:`RandomFeaturesEncoder` or, for split epochs, an encoder that
        is not trained before them. ``PCA(3)`` is the paper's FedOnce-PCA. An encoder
        that is given brings its own settings; with a budget its ``lr`` is that of plain
        gradient steps, so set it.
    bottom : array-like of int or callable, default=(64,)
        The host's network on its own columns, the paper's local model: sizes of the
        hidden layers of a perceptron, or ``bottom(n_inputs, n_outputs)`` that returns a
        ``torch.nn.Module``. With a budget, that is made of torch's own layers in
        ``nn.Sequential``, or can be traced by ``torch.fx`` without data.
    top : array-like of int or callable, default=(64,)
        The head, given in the same way: the paper's host model. Its inputs are the
        outputs of ``bottom`` and every guest's representation, which the host
        standardises (not with a budget).
    cut_width : int, default=32
        Number of outputs of ``bottom``.
    max_epochs : int, default=50
        Number of passes over the rows.
    batch_size : int, default=128
        Rows per step; with a budget, their expected number. A last batch of one row
        joins its predecessor.
    lr : float or None, default=None
        Learning rate; by default 1e-3, and 0.5 with a budget.
    optimizer : class or None, default=None
        From ``torch.optim``; Adam by default, and plain SGD with a budget, which allows
        no other.
    weight_decay : float, default=0.0
        Of the optimiser; none with a budget, at the guests neither.
    early_stopping : bool, default=False
        Whether the host holds out rows, stops when their loss no longer improves, and
        goes back to the networks that were best on them. Split epochs take all rows.
    validation_fraction : float, default=0.1
        Fraction of the rows held out.
    n_iter_no_change : int, default=10
        Epochs without improvement before stopping.
    warm_start : bool, default=False
        Whether ``fit`` goes on with the host's networks of the last fit, for
        ``max_epochs`` more epochs and with new optimisers, and then with split epochs.
        The guests send what their encoders of the last fit make of the rows, with the
        same noise; what prepares the columns stays as it was. Not with a budget.
    callbacks : list of skorch callbacks, dict of str to list or None, default=None
        Schedulers, checkpoints and loggers of the host's networks; a dict gives each
        party its own by name, and a guest's are those of its encoder. In split epochs
        they see no rows, and guests' no losses.
    device : str or dict of str to str, default="cpu"
        Where networks are trained, as torch names it, such as ``"cuda"``; a dict says
        it for each party by name. An organisation elsewhere says it in its own file.
        Fitted networks are on the CPU, where private training runs, too.
    n_split_epochs : int, default=0
        Epochs of split learning after the one round: multi-round FedOnce. The guests'
        networks, which a :class:`NoiseAsTargetsEncoder` has, go on as they are.
    representation_noise : float, default=0.0
        Standard deviation of the Gaussian noise that guests add to what they send. The
        noise is a secret function of the row, so that asking again does not average it
        away; in split epochs it therefore cancels in the difference of two epochs, and
        a host that sends gradients of its own making uncovers it. It is added before
        the host standardises.
    gradient_noise : float, default=0.0
        Gaussian noise that the host adds to the gradients it sends in split epochs: its
        expected length for a row, in lengths of the batch's longest gradient. It
        averages out over epochs, and has no guarantee; not with a budget.
    epsilon : float or None, default=None
        Budget of differential privacy for the released networks of all parties
        together (FedOnce-L1); a ceiling, of which at least half is spent.
    delta : float, default=1e-5
        Probability that the guarantee leaves out.
    max_grad_norm : float, default=1.0
        Norm to which the gradient of every row is clipped, with a budget.
    division : {"moments", "naive"}, default="moments"
        How the budget is divided among the parties that spend it. ``"naive"`` is the
        paper's Priv-Baseline: an equal share for each.
    accountant : {"rdp", "pld"}, default="rdp"
        See :func:`skvfl.privacy.account_privacy`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in the loss, as in scikit-learn.
    n_jobs : int or None, default=None
        Number of guests that work at the same time, in threads, as in joblib. Worth it
        where they train long or live in processes of their own.
    transport : {"local", "process"} or Transport, default="local"
        How the parties are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of one random stream per party and purpose. ``None`` takes fresh entropy
        from the operating system. Whoever knows the seed knows the noise of private
        training.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    answered_ : list of str
        Guests that answered in ``fit``, in their order. The others have no part in the
        model. A guest that does not answer later is named by the warning.
    loss_curve_ : list of float
        Mean training loss of the host's every epoch, then of every split epoch; empty
        with a budget, which no loss is part of.
    validation_loss_curve_ : list of float
        Loss of the held-out rows after the host's every epoch; empty without early
        stopping.
    n_iter_ : int
        Number of the host's own epochs; those after them are split epochs.
    bytes_curve_ : list of int
        Bytes that had crossed after the one round, and after every split epoch.
    epsilon_spent_ : PrivacySpent
        What was spent, and what the guarantee does not cover; only with a budget.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``. Its first round is the one round: one message of
        representations from every guest.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    FedOnceRegressor : The same for numerical targets.
    NoiseAsTargetsEncoder : What a guest does by default.
    SplitNNClassifier : Two rounds for every batch.

    Notes
    -----
    *Who sees what, in short.* The host sees every row's representation at every guest;
    guests see nothing, except gradients in split epochs, from which labels can be
    inferred.

    *Who learns what.* The host sees the representation of every row of every guest, in
    ``fit`` and whenever it predicts, and can train models that invert it; noise on
    representations makes that harder and proves nothing. Guests see nothing at all in
    one-round training: no label, no gradient, nothing of each other. In split epochs
    they see gradients, from which labels can be inferred. Differential privacy protects
    rows from those who are given the trained networks, not from the host, which can
    compute the columns of a default private guest that has no more of them than 32:
    ``epsilon_spent_`` says what is covered.

    After a simulation the fitted estimator holds every party's networks, so that it can
    predict in one place: ``halves_`` names them.

    *Deviations from the paper.* Every party scales its own columns, and nothing is
    normalised over parties. The host standardises what arrives, each number by its mean
    and deviation over the rows of ``fit``, whatever their weights; with a budget it
    does not, because these would be a release that nobody accounts for. The order of
    the rows in batches is drawn anew in every epoch. Private training draws every batch
    by Poisson sampling, as its accountant assumes. The paper's own guest can be trained
    with a budget, but the assignment of targets makes rows depend on each other, which
    clipping does not bound: see :ref:`the user guide <fedonce_privacy>`.

    References
    ----------
    .. [1] Z. Wu, Q. Li, B. He, "Practical Vertical Federated Learning with Unsupervised
       Representation Learning".

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skvfl import FedOnceClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> once = FedOnceClassifier(parties=3, max_epochs=20, random_state=0).fit(X, y)
    >>> once.score(X, y) > 0.95
    True
    >>> once.communication_.n_rounds, once.communication_.n_messages
    (1, 2)
    """

    _parameter_constraints = {
        **_BaseFedOnce._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    @renamed(guest="local_encoder", local="bottom", local_width="cut_width", host="top")
    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        missing_party="raise",
        local_encoder=None,
        bottom=(64,),
        top=(64,),
        cut_width=32,
        max_epochs=50,
        batch_size=128,
        lr=None,
        optimizer=None,
        weight_decay=0.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        warm_start=False,
        callbacks=None,
        device="cpu",
        n_split_epochs=0,
        representation_noise=0.0,
        gradient_noise=0.0,
        epsilon=None,
        delta=1e-5,
        max_grad_norm=1.0,
        division="moments",
        accountant="rdp",
        class_weight=None,
        n_jobs=None,
        transport="local",
        random_state=None,
    ):
        super().__init__(
            parties=parties,
            active=active,
            missing_rows=missing_rows,
            missing_party=missing_party,
            local_encoder=local_encoder,
            bottom=bottom,
            top=top,
            cut_width=cut_width,
            max_epochs=max_epochs,
            batch_size=batch_size,
            lr=lr,
            optimizer=optimizer,
            weight_decay=weight_decay,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            warm_start=warm_start,
            callbacks=callbacks,
            device=device,
            n_split_epochs=n_split_epochs,
            representation_noise=representation_noise,
            gradient_noise=gradient_noise,
            epsilon=epsilon,
            delta=delta,
            max_grad_norm=max_grad_norm,
            division=division,
            accountant=accountant,
            n_jobs=n_jobs,
            transport=transport,
            random_state=random_state,
        )
        self.class_weight = class_weight

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Let the guests send their representations, and train the host.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The host's labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss; they stay with the host.

        Returns
        -------
        self : FedOnceClassifier

        Raises
        ------
        ValueError
            If the labels are not classes, or if the parties and the columns do not
            match; the message names both.
        PartyError
            If a party fails; the message names it.
        PrivacyBudgetError
            If the budget cannot be kept, or guests say that they went beyond it.
        """
        labels = self._read_classes(X, y, sample_weight, self.class_weight)
        return self._fit(X, y, labels)

    # Both are computed from the labels without noise and are part of the released
    # model, so the guarantee must not be read as covering them.
    def _uncovered_labels(self):
        yield "The list of classes."
        if self.class_weight == "balanced":
            yield "The weights of the classes."

    def predict_proba(self, X):
        """Probability of each class.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes), dtype float64
            Columns in the order of ``classes_``.
        """
        return self._serve(X, "predict")


class FedOnceRegressor(VFLRegressorMixin, _BaseFedOnce):
    """FedOnce for a numerical target; see :class:`FedOnceClassifier`.

    The host standardises its target and minimises the squared error; predictions are in
    the target's own units [1]_.

    Read more in the :ref:`User Guide <fedonce>`.

    Parameters
    ----------
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`.
    active : str or int, default=0
        Name or position of the host, which holds the target and trains the
        model. It may hold no columns. All other parties are guests.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all: an error that names the party and counts them, or they are imputed
        like other missing values. Later they are imputed, and a
        :class:`~skvfl.exceptions.MissingRowsWarning` counts them.
    missing_party : {"raise", "zero"}, default="raise"
        What happens when a guest does not answer: its process died, it took too long
        (:class:`ProcessTransport` has a ``timeout``), it failed, or it holds no value
        of any row that it is asked about. Either a
        :class:`~skvfl.exceptions.PartyError`, or a
        :class:`~skvfl.exceptions.MissingPartyWarning` that names it, and zeros in place
        of its standardised representation: the mean of what it sent in ``fit``. A guest
        that refuses its input is an error in any case.
    local_encoder : transformer, dict of str to transformer or None, default=None
        What turns a guest's prepared columns into its representation; a dict says it
        for each guest by name. Every guest gets a clone with a seed of its own. By
        default a :class:`NoiseAsTargetsEncoder` that is trained with this estimator's
        ``max_epochs``, ``batch_size``, ``lr``, ``optimizer`` and ``weight_decay``; with
        a budget, a :class:`RandomFeaturesEncoder` or, for split epochs, an encoder that
        is not trained before them. ``PCA(3)`` is the paper's FedOnce-PCA. An encoder
        that is given brings its own settings; with a budget its ``lr`` is that of plain
        gradient steps, so set it.
    bottom : array-like of int or callable, default=(64,)
        The host's network on its own columns, the paper's local model: sizes of the
        hidden layers of a perceptron, or ``bottom(n_inputs, n_outputs)`` that returns a
        ``torch.nn.Module``. With a budget, that is made of torch's own layers in
        ``nn.Sequential``, or can be traced by ``torch.fx`` without data.
    top : array-like of int or callable, default=(64,)
        The head, given in the same way: the paper's host model. Its inputs are the
        outputs of ``bottom`` and every guest's representation, which the host
        standardises (not with a budget).
    cut_width : int, default=32
        Number of outputs of ``bottom``.
    max_epochs : int, default=50
        Number of passes over the rows.
    batch_size : int, default=128
        Rows per step; with a budget, their expected number. A last batch of one row
        joins its predecessor.
    lr : float or None, default=None
        Learning rate; by default 1e-3, and 0.5 with a budget.
    optimizer : class or None, default=None
        From ``torch.optim``; Adam by default, and plain SGD with a budget, which allows
        no other.
    weight_decay : float, default=0.0
        Of the optimiser; none with a budget, at the guests neither.
    early_stopping : bool, default=False
        Whether the host holds out rows, stops when their loss no longer improves, and
        goes back to the networks that were best on them. Split epochs take all rows.
    validation_fraction : float, default=0.1
        Fraction of the rows held out.
    n_iter_no_change : int, default=10
        Epochs without improvement before stopping.
    warm_start : bool, default=False
        Whether ``fit`` goes on with the host's networks of the last fit, for
        ``max_epochs`` more epochs and with new optimisers, and then with split epochs.
        The guests send what their encoders of the last fit make of the rows, with the
        same noise; what prepares the columns stays as it was. Not with a budget.
    callbacks : list of skorch callbacks, dict of str to list or None, default=None
        Schedulers, checkpoints and loggers of the host's networks; a dict gives each
        party its own by name, and a guest's are those of its encoder. In split epochs
        they see no rows, and guests' no losses.
    device : str or dict of str to str, default="cpu"
        Where networks are trained, as torch names it, such as ``"cuda"``; a dict says
        it for each party by name. An organisation elsewhere says it in its own file.
        Fitted networks are on the CPU, where private training runs, too.
    n_split_epochs : int, default=0
        Epochs of split learning after the one round: multi-round FedOnce. The guests'
        networks, which a :class:`NoiseAsTargetsEncoder` has, go on as they are.
    representation_noise : float, default=0.0
        Standard deviation of the Gaussian noise that guests add to what they send. The
        noise is a secret function of the row, so that asking again does not average it
        away; in split epochs it therefore cancels in the difference of two epochs, and
        a host that sends gradients of its own making uncovers it. It is added before
        the host standardises.
    gradient_noise : float, default=0.0
        Gaussian noise that the host adds to the gradients it sends in split epochs: its
        expected length for a row, in lengths of the batch's longest gradient. It
        averages out over epochs, and has no guarantee; not with a budget.
    epsilon : float or None, default=None
        Budget of differential privacy for the released networks of all parties
        together (FedOnce-L1); a ceiling, of which at least half is spent.
    delta : float, default=1e-5
        Probability that the guarantee leaves out.
    max_grad_norm : float, default=1.0
        Norm to which the gradient of every row is clipped, with a budget.
    division : {"moments", "naive"}, default="moments"
        How the budget is divided among the parties that spend it. ``"naive"`` is the
        paper's Priv-Baseline: an equal share for each.
    accountant : {"rdp", "pld"}, default="rdp"
        See :func:`skvfl.privacy.account_privacy`.
    n_jobs : int or None, default=None
        Number of guests that work at the same time, in threads, as in joblib. Worth it
        where they train long or live in processes of their own.
    transport : {"local", "process"} or Transport, default="local"
        How the parties are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of one random stream per party and purpose. ``None`` takes fresh entropy
        from the operating system. Whoever knows the seed knows the noise of private
        training.

    Attributes
    ----------
    answered_ : list of str
        Guests that answered in ``fit``, in their order. The others have no part in the
        model. A guest that does not answer later is named by the warning.
    loss_curve_ : list of float
        Mean training loss of the host's every epoch, then of every split epoch; empty
        with a budget, which no loss is part of.
    validation_loss_curve_ : list of float
        Loss of the held-out rows after the host's every epoch; empty without early
        stopping.
    n_iter_ : int
        Number of the host's own epochs; those after them are split epochs.
    bytes_curve_ : list of int
        Bytes that had crossed after the one round, and after every split epoch.
    epsilon_spent_ : PrivacySpent
        What was spent, and what the guarantee does not cover; only with a budget.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``. Its first round is the one round: one message of
        representations from every guest.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    FedOnceClassifier : The same for classes.
    NoiseAsTargetsEncoder : What a guest does by default.
    SplitNNRegressor : Two rounds for every batch.

    Notes
    -----
    *Who sees what, in short.* The host sees every row's representation at every guest;
    guests see nothing, except gradients in split epochs, from which labels can be
    inferred.

    *Who learns what.* The host sees the representation of every row of every guest, in
    ``fit`` and whenever it predicts, and can train models that invert it; noise on
    representations makes that harder and proves nothing. Guests see nothing at all in
    one-round training: no label, no gradient, nothing of each other. In split epochs
    they see gradients, from which labels can be inferred. Differential privacy protects
    rows from those who are given the trained networks, not from the host, which can
    compute the columns of a default private guest that has no more of them than 32:
    ``epsilon_spent_`` says what is covered.

    After a simulation the fitted estimator holds every party's networks, so that it can
    predict in one place: ``halves_`` names them.

    *Deviations from the paper.* Every party scales its own columns, and nothing is
    normalised over parties. The host standardises what arrives, each number by its mean
    and deviation over the rows of ``fit``, whatever their weights; with a budget it
    does not, because these would be a release that nobody accounts for. The order of
    the rows in batches is drawn anew in every epoch. Private training draws every batch
    by Poisson sampling, as its accountant assumes. The paper's own guest can be trained
    with a budget, but the assignment of targets makes rows depend on each other, which
    clipping does not bound: see :ref:`the user guide <fedonce_privacy>`.

    References
    ----------
    .. [1] Z. Wu, Q. Li, B. He, "Practical Vertical Federated Learning with Unsupervised
       Representation Learning".

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvfl import FedOnceRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> once = FedOnceRegressor(parties=3, random_state=0).fit(X, y)
    >>> once.score(X, y) > 0.5
    True
    """

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Let the guests send their representations, and train the host.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The host's target.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss; they stay with the host.

        Returns
        -------
        self : FedOnceRegressor

        Raises
        ------
        ValueError
            If the parties and the columns do not match; the message names both.
        PartyError
            If a party fails; the message names it.
        PrivacyBudgetError
            If the budget cannot be kept, or guests say that they went beyond it.
        """
        return self._fit(X, y, self._read_targets(X, y, sample_weight))

    def _uncovered_labels(self):
        yield "The mean and the standard deviation of the target."

    def predict(self, X):
        """Predict targets in their own units.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        y : ndarray of shape (n_samples,), dtype float64
        """
        return self._serve(X, "predict")[:, 0]
