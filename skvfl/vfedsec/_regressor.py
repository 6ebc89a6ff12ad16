"""vFedSec for numerical targets; the classifier's module has all that both share."""

from __future__ import annotations

from skvfl._base import VFLRegressorMixin
from skvfl._sklearn import _fit_context
from skvfl.vfedsec._estimator import _BaseVFedSec


class VFedSecRegressor(VFLRegressorMixin, _BaseVFedSec):
    """Secure split learning of a numerical target; see :class:`VFedSecClassifier`.

    The server receives the standardised target and minimises the squared error.

    Read more in the :ref:`User Guide <vfedsec>`.

    Parameters
    ----------
    parties : int, splitter, dict, list of tuple or VerticalPartitioner, default=2
        Who holds which columns, see :class:`VerticalPartitioner`.
    active : str, int or list of these, default=0
        Name or position of the active party, which holds the target. Of several, each
        holds the target of some rows, as with classes.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens to rows of which a party holds nothing, as with classes.
    clients : dict of str to int or array-like of int, default=None
        Passive parties that are several clients, see :class:`VFedSecClassifier`.
    bottom : array-like of int, callable or dict of str to these, default=(64,)
        Every client's local module: sizes of the hidden layers of a perceptron, or
        ``bottom(n_inputs, n_outputs)`` that returns a ``torch.nn.Module``. A dict says
        it for each party by name.
    top : array-like of int or callable, default=(64,)
        The server's global module, given in the same way. A ReLU comes before it.
    cut_width : int, default=32
        Number of units of the secure layer.
    bits : {32, 64}, default=32
        Size of one masked number; 32 bits are no more bytes than float32.
    bound : float, default=1000.0
        Largest magnitude of any client's contribution; a larger one is an error.
    rotate_every : int, default=5
        Batches after which all keys are agreed on anew, in training and in prediction.
    masked : bool, default=True
        Whether there are keys, masks and sealed row ids.
    key_rings : dict of str to KeyRing, default=None
        Lasting identities of clients and of ``"server"``; others make new ones.
    record_server_view : bool, default=False
        Whether to keep what the server received in ``fit``, as ``server_view_``.
    max_epochs : int, default=50
        Number of passes over the rows.
    batch_size : int, default=128
        Rows per round of training. A last batch of one row joins its predecessor.
    lr : float, default=1e-3
        Learning rate of every client's own optimiser, and of the server's.
    optimizer : class or None, default=None
        From ``torch.optim``; Adam by default.
    weight_decay : float, default=0.0
        Of the optimiser: for Adam, half the weight of the squared parameters.
    early_stopping : bool, default=False
        Whether to hold out rows, and go back to the models that were best on them.
    validation_fraction : float, default=0.1
        Fraction of the rows held out.
    n_iter_no_change : int, default=10
        Epochs without improvement before stopping.
    warm_start : bool, default=False
        Whether ``fit`` goes on with the models of the last fit, for ``max_epochs`` more
        epochs and with new optimisers; what prepares the columns stays as it was.
    callbacks : list of skorch callbacks, dict of str to list or None, default=None
        Schedulers, checkpoints and loggers of the server's module; a dict gives each
        party, or ``"server"``, its own by name. They hear of epochs and steps, and see
        no rows; only the server's see losses.
    device : str or dict of str to str, default="cpu"
        Where networks are trained, as torch names it, such as ``"cuda"``; a dict says
        it for each party by name. An organisation elsewhere says it in its own file.
        Fitted networks are on the CPU.
    transport : {"local", "process"} or Transport, default="local"
        How the clients are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`.
    random_state : int, RandomState instance or None, default=None
        Root of the random streams of models and of the order of rows. Keys and masks
        always come from the operating system.

    Attributes
    ----------
    loss_curve_ : list of float
        Mean training loss of every epoch.
    validation_loss_curve_ : list of float
        Loss of the held-out rows after every epoch; empty without early stopping.
    n_iter_ : int
        Number of epochs.
    partition_ : VerticalPartitioner
        Who holds which columns.
    clusters_ : dict of str to list of str
        Names of the clients that hold each party's columns.
    fingerprints_ : dict of str to str
        Fingerprint of every client's and the server's identity; empty without masks.
    communication_ : CommunicationLog
        What crossed in ``fit``, keys included.
    server_view_ : list of ServerRecord
        If asked for: every masked or sealed array that the server received in ``fit``.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    VFedSecClassifier : The same for classes.
    SplitNNRegressor : The same network in the clear, with ``aggregation="sum"``.

    Notes
    -----
    *Who sees what, in short.* The server sees labels and the sum of all contributions;
    every client sees the gradient of that sum, from which labels can be inferred.

    *Who learns what*, contributions and deviations from the paper [1]_ are those of
    :class:`VFedSecClassifier`, with the target in place of labels.

    References
    ----------
    .. [1] "vFedSec: Efficient Secure Aggregation for Vertical Federated Learning via
       Secure Layer".

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skvfl import VFedSecRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> vfl = VFedSecRegressor(parties=3, max_epochs=30, random_state=0).fit(X, y)
    >>> vfl.score(X, y) > 0.5
    True
    """

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None, *, label_holders=None):
        """Train all clients' local modules and the server's global module.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,)
            The active party's target, which it shares with the server.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss, shared with the server like the target.
        label_holders : array-like of str of shape (n_samples,), default=None
            Which of several active parties holds each row's target; dealt at random in
            equal numbers by default.

        Returns
        -------
        self : VFedSecRegressor

        Raises
        ------
        ValueError
            If parties, clients and columns do not match, or if fewer than two parties
            hold columns of a row; the message names them.
        PartyError
            If a client fails, or a message of it cannot be used; names the client.
        """
        labels = self._read_targets(X, y, sample_weight)
        return self._fit(X, y, labels, label_holders)

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
