"""TabVFL for numerical targets; the classifier's module has all that both share."""

from __future__ import annotations

from skvfl._base import VFLRegressorMixin
from skvfl._sklearn import _fit_context
from skvfl.tabvfl._estimator import _BaseTabVFL


class TabVFLRegressor(VFLRegressorMixin, _BaseTabVFL):
    """TabNet across parties for a numerical target; see :class:`TabVFLClassifier`.

    The active party standardises its target and minimises the squared error.

    Read more in the :ref:`User Guide <tabvfl>`.

    Parameters
    ----------
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`.
    active : str or int, default=0
        Name or position of the active party, the paper's host, which holds the labels
        and most of the network. It may hold no columns.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all: an error that names the party and counts them, or they are imputed
        like other missing values. Later they are imputed, and a
        :class:`~skvfl.exceptions.MissingRowsWarning` counts them.
    missing_party : {"raise", "cache", "zero"}, default="cache"
        What happens while training when a party is offline, or late for the transport's
        ``timeout``: training ends with a :class:`~skvfl.exceptions.PartyError`; or it
        goes on without it, with what it sent last for each row, or with zeros, none of
        which counts as hidden while pretraining. An offline party learns nothing. A
        late party is offline until the next epoch, or until it has answered; it still
        ends the step that it was late with, which is a whole epoch of pretraining with
        ``design="local"``.
    failure : ClientFailures or None, default=None
        Simulates parties that are offline for whole epochs, for ``missing_party`` to be
        tried.
    design : {"joint", "local_encoder", "local"}, default="joint"
        What is trained: one TabNet of all parties' columns (the paper's TabVFL); an
        encoder at every party, whose outputs are added up, with one decoder (its
        TabVFL-LE); or a TabNet at every party, pretrained alone, whose latent vectors
        stand side by side (its LT, local TabNets).
    n_d : int, default=8
        Width of the latent vector, at least the number of parties with columns.
    n_a : int, default=8
        Width of what the next step's attention is made of.
    n_steps : int, default=3
        Number of decision steps.
    gamma : float, default=1.3
        How much a column may be looked at again: the less, the nearer to 1.
    n_independent, n_shared : int, default=2
        Number of gated layers that are each step's own, and that all steps share.
    mask_type : {"sparsemax", "entmax"}, default="sparsemax"
        How attention scores become weights; ``"entmax"`` is less sparse.
    lambda_sparse : float, default=1e-3
        Weight of the entropy of the attention in the loss of finetuning.
    virtual_batch_size : int, default=128
        Rows whose statistics the network's batch norms share.
    momentum : float, default=0.02
        Weight of a virtual batch in their running statistics.
    pretrain : bool, default=True
        Whether the parties first learn to rebuild hidden cells, without labels.
    pretraining_ratio : float, default=0.5
        Fraction of the cells that are hidden, drawn anew for every batch by each party.
    pretraining_epochs : int or None, default=None
        Number of passes over the rows without labels; ``max_epochs`` by default.
    max_epochs : int, default=50
        Number of passes over the rows with labels.
    batch_size : int, default=256
        Rows per step. A last batch of one row joins its predecessor.
    lr : float, default=0.02
        Learning rate of every party's own optimiser.
    optimizer : class or None, default=None
        From ``torch.optim``; Adam by default.
    weight_decay : float, default=0.0
        Of the optimiser: for Adam, half the weight of the squared parameters.
    early_stopping : bool, default=False
        Whether to hold out rows, stop either phase when their loss no longer improves,
        and go back to the models that were best on them.
    validation_fraction : float, default=0.1
        Fraction of the rows held out.
    n_iter_no_change : int, default=10
        Epochs without improvement before stopping.
    warm_start : bool, default=False
        Whether ``fit`` goes on with the models of the last fit, for ``max_epochs`` more
        epochs and with new optimisers; what prepares the columns stays as it was.
    callbacks : list of skorch callbacks, dict of str to list or None, default=None
        Schedulers, checkpoints and loggers of the active party's networks; a dict gives
        each party its own by name. They hear of epochs and steps, and see no rows; only
        the active party's see losses.
    device : str or dict of str to str, default="cpu"
        Where networks are trained, as torch names it, such as ``"cuda"``; a dict says
        it for each party by name. An organisation elsewhere says it in its own file.
        Fitted networks are on the CPU.
    gradient_noise : float, default=0.0
        Gaussian noise that the active party adds to the gradients it sends in
        finetuning: its expected length for a row, in lengths of the batch's longest
        gradient. It averages out over epochs, and has no guarantee.
    max_grad_norm : float or None, default=1.0
        Norm that each optimiser scales longer gradients of its weights down to.
    transport : {"local", "process"} or Transport, default="local"
        How the parties are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of one random stream per party and of the public order of rows. ``None``
        takes fresh entropy from the operating system. A known seed is a known
        secret.

    Attributes
    ----------
    pretraining_loss_curve_ : list of float
        Mean loss of every epoch of pretraining, summed over the parties; an offline
        party counts with its last loss.
    pretraining_validation_loss_curve_ : list of float
        The same of the held-out rows; empty without early stopping.
    loss_curve_ : list of float
        Mean loss of every epoch of finetuning, without the term of the attention.
    validation_loss_curve_ : list of float
        The same of the held-out rows; empty without early stopping.
    n_iter_ : int
        Number of epochs of finetuning.
    failures_ : list of tuple
        Phase, ``"pretraining"`` or ``"finetuning"``, epoch from 1, and name of each
        party that was offline, or late.
    partition_ : VerticalPartitioner
        Who holds which columns.
    communication_ : CommunicationLog
        What crossed in ``fit``. Pretraining's operations are ``hide``, ``rebuild`` and
        ``adapt``, finetuning's are ``forward`` and ``backward``; those on held-out
        rows are ``hide_held_out``, ``rebuild_held_out`` and ``represent``.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    TabVFLClassifier : The same for classes; who learns what.
    SplitNNRegressor : Any networks, without attention and pretraining.
    ClientFailures : Simulated failures.

    Notes
    -----
    *Who sees what, in short.* The active party sees linear mixtures of every party's
    columns in every epoch; the others see gradients, from which labels can be inferred,
    and numbers that depend on all parties' columns.

    References
    ----------
    .. [1] M. Rashad, Z. Zhao, J. Decouchant, L. Y. Chen, "TabVFL: Improving Latent
       Representation in Vertical Federated Learning", 2024.
    .. [2] S. Ö. Arik, T. Pfister, "TabNet: Attentive Interpretable Tabular Learning",
       AAAI 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvfl import TabVFLRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> vfl = TabVFLRegressor(parties=3, max_epochs=30, random_state=0).fit(X, y)
    >>> vfl.score(X, y) > 0.4
    True
    """

    # Defined here and not in the base: scikit-learn reads the signature, and the
    # classifier's target is checked in another way.
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None):
        """Train all parties' models.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The active party's target.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss of finetuning; they stay with the active
            party.

        Returns
        -------
        self : TabVFLRegressor

        Raises
        ------
        ValueError
            If the parties and the columns do not match (the message names both), or if
            ``n_d`` is too small for the parties.
        PartyError
            If a party fails, dies (between organisations it is offline from then on),
            is late in the first epoch of a phase, or is offline with
            ``missing_party="raise"``; the message names it.
        """
        return self._fit(X, y, self._read_targets(X, y, sample_weight))

    def predict(self, X):
        """Predict targets in their own units.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        y : ndarray of shape (n_samples,), dtype float64
        """
        return self._serve(X, "predict")[:, 0]
