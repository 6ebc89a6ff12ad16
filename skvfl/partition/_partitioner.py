"""Who holds which columns."""

from __future__ import annotations

from contextlib import nullcontext
from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from skvfl._random import seed_missing, seed_party, seed_sequence, spawn_named
from skvfl._rows import apply
from skvfl._sklearn import (
    CallbackSupportMixin,
    HasMethods,
    Interval,
    StrOptions,
    _check_feature_names_in,
    _fit_context,
    _get_container_adapter,
    _get_output_config,
    _VisualBlock,
)
from skvfl._warnings import speaking_for
from skvfl.exceptions import (
    InvalidColumnError,
    InvalidOutputError,
    PartyValueError,
    party_error,
)
from skvfl.federation._federation import Federation
from skvfl.partition._columns import (
    column_labels,
    column_names,
    describe,
    look_alike,
    resolve,
)
from skvfl.partition._names import (
    _check_names,
    _check_overlap,
    party_name,
)
from skvfl.partition._preprocessing import PartyPreprocessor
from skvfl.partition._splitters import RoundRobin
from skvfl.partition._tables import _check_table, _take_columns
from skvfl.partition._transformers import resolve_transformer


class VerticalPartitioner(CallbackSupportMixin, TransformerMixin, BaseEstimator):
    """Split a table's columns over parties and transform each party's part.

    Every party gets its own clone of the transformer, fitted on its own columns only
    and without the labels, which a party does not hold; the outputs are set side by
    side in the order of the parties. As the ``parties`` parameter of an estimator it
    says who holds which columns and how each party prepares them.

    Read more in the :ref:`User Guide <partition>`.

    Parameters
    ----------
    transformer : {"auto", "passthrough"} or transformer, default="auto"
        What each party does with its columns. ``"auto"`` is
        :class:`PartyPreprocessor`, ``"passthrough"`` leaves them as they are, and any
        other transformer is cloned for every party.
    parties : int, splitter, dict or list of tuple, default=2
        Who holds which columns:

        - int: simulate that many parties, columns dealt round-robin, names
          ``"party0"``, ``"party1"``, …;
        - a column splitter, such as :class:`ImportanceSplit`;
        - dict: party name to columns;
        - list of ``(name, transformer, columns)``, as in ``ColumnTransformer``.

        Columns are names, positions, a slice, a boolean mask, or a callable that is
        given the table and returns one of these. Integers are always positions.
    remainder : {"raise", "drop"} or str, default="raise"
        What happens to columns that no party claims: an error, dropped, or given to the
        party of that name.
    allow_overlap : bool, default=False
        Whether two parties may hold the same column.
    n_jobs : int, default=None
        Number of parties that work at the same time, as in joblib.
    random_state : int, RandomState instance or None, default=None
        Every ``random_state`` inside the parties' transformers gets a seed of its own
        from this one and the party's name, so that no two parties draw the same numbers
        and the order of parties makes no difference. ``None`` takes
        fresh entropy from the operating system. An integer set inside ``transformer``
        itself is kept as the root of the parties' seeds. A column splitter without a
        seed gets one, too.

    Attributes
    ----------
    parties_ : dict of str to ndarray of int
        Positions of the columns that each party holds.
    transformers_ : dict of str to transformer
        Each party's fitted transformer.
    output_slices_ : dict of str to slice
        Where each party's columns are in the output.
    splitter_ : splitter
        The fitted column splitter, with what it measured; only where ``parties`` is an
        int or a splitter.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, where all columns have one.

    See Also
    --------
    PartyPreprocessor : What each party does by default.
    RandomProjectionVFL : An estimator over such parties.

    Notes
    -----
    Columns are found by their labels wherever the table of ``fit`` and the table of
    ``transform`` have labels, so permuted columns give the same answer. Columns that
    were unclaimed and dropped in ``fit`` may be absent later; unknown columns are an
    error unless ``remainder="drop"``.

    Output columns stand in the order in which the parties are written. The estimators
    of this package take parties in the order of their first columns in the table
    instead, so that the same seed gives the same result whichever way they are written;
    a position given as ``active`` counts in the order as written.

    This object belongs to whoever may see the whole table. Names of one-hot encoded
    columns are values of the table, in ``get_feature_names_out`` and in the HTML
    representation, and errors of a party's own transformer are passed on as they are.

    Examples
    --------
    >>> import pandas as pd
    >>> from skvfl import VerticalPartitioner
    >>> table = pd.DataFrame(
    ...     {"age": [30, 40, 50], "city": ["Rome", "Oslo", "Rome"], "spend": [1, 2, 3]}
    ... )
    >>> parties = {"bank": ["age", "city"], "shop": "spend"}
    >>> partition = VerticalPartitioner(parties=parties)
    >>> partition.set_output(transform="pandas").fit_transform(table).round(2)
       bank__age  bank__city_Oslo  bank__city_Rome  shop__spend
    0      -1.22              0.0              1.0        -1.22
    1       0.00              1.0              0.0         0.00
    2       1.22              0.0              1.0         1.22
    """

    _parameter_constraints = {
        "transformer": [
            StrOptions({"auto", "passthrough"}),
            HasMethods(["fit_transform", "transform"]),
        ],
        "parties": [
            Interval(Integral, 1, None, closed="left"),
            HasMethods("split_columns"),
            dict,
            list,
        ],
        "remainder": [str],
        "allow_overlap": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
    }

    def __init__(
        self,
        transformer="auto",
        *,
        parties=2,
        remainder="raise",
        allow_overlap=False,
        n_jobs=None,
        random_state=None,
    ):
        self.transformer = transformer
        self.parties = parties
        self.remainder = remainder
        self.allow_overlap = allow_overlap
        self.n_jobs = n_jobs
        self.random_state = random_state

    @property
    def _own_transformers(self):
        """Transformers that parties bring themselves, by name."""
        if not isinstance(self.parties, list):
            return {}
        return {
            entry[0]: entry[1]
            for entry in self.parties
            if isinstance(entry, tuple)
            and len(entry) == 3
            and isinstance(entry[0], str)
        }

    def get_params(self, deep=True):
        """Get parameters, those of every party's own transformer included.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include ``name`` and ``name__parameter`` of the transformers in a
            list of parties, and the parameters of nested objects.

        Returns
        -------
        params : dict
        """
        params = super().get_params(deep=deep)
        if deep:
            for name, transformer in self._own_transformers.items():
                params[name] = transformer
                if hasattr(transformer, "get_params"):
                    nested = transformer.get_params(deep=True)
                    params.update({f"{name}__{key}": v for key, v in nested.items()})
        return params

    def set_params(self, **params):
        """Set parameters, those of every party's own transformer included.

        Parameters
        ----------
        **params : dict
            As named by :meth:`get_params`.

        Returns
        -------
        self : VerticalPartitioner
        """
        # First, because the names before "__" in the other parameters are those of the
        # new parties.
        if "parties" in params:
            super().set_params(parties=params.pop("parties"))
        own = self._own_transformers
        nested = {}
        for key in [key for key in params if key.split("__")[0] in own]:
            name, _, parameter = key.partition("__")
            if parameter:
                nested.setdefault(name, {})[parameter] = params.pop(key)
            else:
                own[name] = params.pop(key)
                # A new list: a clone shares the old one with the estimator that it was
                # cloned from.
                self.parties = [
                    (other, own[other], columns) for other, _, columns in self.parties
                ]
        super().set_params(**params)
        for name, values in nested.items():
            own[name].set_params(**values)
        return self

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None):
        """Find each party's columns and fit its transformer on them.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            The table of which every party holds some columns.
        y : array-like of shape (n_samples,), default=None
            Only for a column splitter that measures importance. No party's transformer
            sees it.

        Returns
        -------
        self : VerticalPartitioner

        Raises
        ------
        ValueError
            If the parties and the columns do not match; the message names both.
        """
        self._fit_transform(X, y)
        return self

    @_fit_context(prefer_skip_nested_validation=False)
    def fit_transform(self, X, y=None):
        """Fit, and transform the same table.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.

        Returns
        -------
        X_out : ndarray, sparse matrix or DataFrame of shape (n_samples, n_outputs)
            As for :meth:`transform`.
        """
        return self._fit_transform(X, y)

    def _fit_transform(self, X, y):
        X = self._fit_columns(X, y)
        transformers = self._make_transformers()
        # Told of before the parties start, so that a progress bar knows how many there
        # are.
        context = self._init_callback_context(
            max_subtasks=len(transformers), sequential_subtasks=self.n_jobs is None
        )
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        # Workers of joblib get this thread's settings, and each party's transformer
        # returns the kind of table asked for; so nothing is converted when outputs are
        # joined.
        with config_context(transform_output=self._container):
            fitted = Parallel(n_jobs=self.n_jobs)(
                delayed(_fit_transform_party)(
                    name,
                    transformer,
                    _take_columns(X, self.parties_[name]),
                    self,
                    context.subcontext(
                        task_name=f"fit {name}",
                        task_id=None if self.n_jobs is None else i,
                    ),
                )
                for i, (name, transformer) in enumerate(transformers.items())
            )
        self.transformers_ = {
            name: transformer
            for name, (transformer, _) in zip(transformers, fitted, strict=True)
        }
        outputs = [output for _, output in fitted]
        stops = np.cumsum([0, *(output.shape[1] for output in outputs)])
        self.output_slices_ = {
            name: slice(int(start), int(stop))
            for name, start, stop in zip(
                transformers, stops[:-1], stops[1:], strict=True
            )
        }
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self._side_by_side(outputs)

    def transform(self, X):
        """Transform every party's columns and set the outputs side by side.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        X_out : ndarray, sparse matrix or DataFrame of shape (n_samples, n_outputs)
            Sparse if any party's output is.

        Raises
        ------
        ValueError
            If a column is missing or unknown; the message names party and column.
        """
        check_is_fitted(self, "transformers_")
        X, held = self._find_columns(X)
        with config_context(transform_output=self._container):
            outputs = Parallel(n_jobs=self.n_jobs)(
                delayed(_transform_party)(
                    name, transformer, _take_columns(X, held[name])
                )
                for name, transformer in self.transformers_.items()
            )
        # A column more or less would shift all parties that follow into other columns
        # of a model fitted on the joined table.
        for name, output in zip(self.transformers_, outputs, strict=True):
            place = self.output_slices_[name]
            if output.shape[1] != place.stop - place.start:
                raise PartyValueError(
                    name,
                    f"its transformer gave {output.shape[1]} columns after giving "
                    f"{place.stop - place.start} in fit",
                )
        return self._side_by_side(outputs)

    def split(self, X):
        """Hand out each party's block of a table.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        blocks : dict of str to table
            Name to the party's columns, of the same kind as ``X``.
        """
        check_is_fitted(self, "parties_")
        X, held = self._find_columns(X)
        return {name: _take_columns(X, positions) for name, positions in held.items()}

    def get_feature_names_out(self, input_features=None):
        """Names of the output columns: ``party__feature``.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns, where the table of ``fit`` had none.

        Returns
        -------
        names : ndarray of str
        """
        check_is_fitted(self, "transformers_")
        names = _check_feature_names_in(self, input_features)
        return np.array(
            [
                f"{party}__{feature}"
                for party, transformer in self.transformers_.items()
                for feature in transformer.get_feature_names_out(
                    names[self.parties_[party]]
                )
            ],
            dtype=object,
        )

    def _fit_columns(self, X, y=None, *, label_owner=None, sequence=None):
        """Find each party's columns; the part of ``fit`` that estimators use.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.
        label_owner : str or int, default=None
            Name or position of the one party that may hold no columns.
        sequence : numpy.random.SeedSequence, default=None
            Root of the seed of a column splitter that has none, unless
            ``random_state`` is set.

        Returns
        -------
        X : table
            Validated; a list of lists has become an array.
        """
        X = _check_table(X)
        names = column_names(X)
        validate_data(self, X, skip_check_array=True)
        # Labels of any type, not only names, so that tables with integer labels are
        # matched too.
        self._labels = column_labels(X)
        held = self._deal(X, y, names, self._root(sequence))
        _check_names(held)
        self._claim_remainder(held, names)
        # Only an estimator has labels; a partitioner by itself has no use for a party
        # without columns.
        if label_owner is not None:
            label_owner = party_name(held, label_owner)
        for name, positions in held.items():
            if not positions.size and name != label_owner:
                raise ValueError(
                    f"party {name!r} holds no column; only the label owner of an "
                    "estimator that allows it may hold none"
                )
        # Others that an estimator has may hold some elsewhere.
        if label_owner is None and not any(each.size for each in held.values()):
            raise ValueError("no party holds a column")
        if not self.allow_overlap:
            # Two parties with one column are an error far more often than they are
            # meant.
            _check_overlap(held, names)
        self.parties_ = held
        return X

    def _make_transformers(self, sequence=None):
        """Unfitted transformer of each party that holds columns.

        Parameters
        ----------
        sequence : numpy.random.SeedSequence, default=None
            Root of the parties' seeds, unless ``random_state`` is set.

        Returns
        -------
        transformers : dict of str to transformer
        """
        own = self._own_transformers
        transformers = {}
        children = spawn_named(self._root(sequence), self.parties_)
        for name, child in children.items():
            if self.parties_[name].size:
                transformer = resolve_transformer(own.get(name, self.transformer))
                transformers[name] = seed_party(
                    transformer, child, leaves=sequence is not None
                )
        return transformers

    def _transformer_of(self, name):
        """What a party does with its columns, as the user said it."""
        return self._own_transformers.get(name, self.transformer)

    def _root(self, sequence):
        """Root of the seeds: the partitioner's own if it has one, else the given."""
        if self.random_state is None and sequence is not None:
            return sequence
        return seed_sequence(self.random_state)

    def _deal(self, X, y, names, sequence):
        """Positions of each party's columns, as ``parties`` says."""
        parties = self.parties
        if isinstance(parties, Integral):
            parties = RoundRobin(int(parties))
        if hasattr(parties, "split_columns"):
            # A clone, because fit leaves the user's own splitter as it was.
            self.splitter_ = seed_missing(clone(parties), sequence)
            parties = self.splitter_.split_columns(X, y)
            # A splitter answers with positions, for which no table is needed any more.
            X = np.empty((0, self.n_features_in_))
        # A refit without a splitter must not show what an earlier one measured.
        elif hasattr(self, "splitter_"):
            del self.splitter_
        if isinstance(parties, list):
            _check_triples(parties)
            parties = {name: columns for name, _, columns in parties}
        if not parties:
            raise ValueError("parties is empty: name at least one party")
        return {
            name: resolve(columns, X, names, name) for name, columns in parties.items()
        }

    def _claim_remainder(self, held, names):
        claimed = np.zeros(self.n_features_in_, dtype=bool)
        for positions in held.values():
            claimed[positions] = True
        unclaimed = np.flatnonzero(~claimed)
        # The name of a party comes first: no party may be called "drop" or "raise".
        if self.remainder in held:
            positions = np.concatenate([held[self.remainder], unclaimed])
            held[self.remainder] = positions.astype(int)
        elif self.remainder == "raise":
            if unclaimed.size:
                columns = ", ".join(describe(i, names) for i in unclaimed[:5])
                raise ValueError(
                    f"{unclaimed.size} column(s) belong to no party: {columns}"
                    f"{', …' if unclaimed.size > 5 else ''}; give them to a party, or "
                    'set remainder="drop" or remainder="<name of a party>"'
                )
        elif self.remainder != "drop":
            raise ValueError(
                f"remainder={self.remainder!r} is neither 'raise' nor 'drop' nor one "
                f"of the parties {list(held)}"
            )

    def _find_columns(self, X):
        """Validate a later table; positions in it of each party's columns."""
        X = _check_table(X)
        column_names(X)
        expected, labels = self._labels, column_labels(X)
        # Without labels on either side there are only positions to go by; scikit-learn
        # then checks their number.
        if expected is None or labels is None or labels == expected:
            validate_data(self, X, reset=False, skip_check_array=True)
            return X, self.parties_
        place = {label: i for i, label in enumerate(labels)}
        held = {}
        for party, positions in self.parties_.items():
            for i in positions:
                if expected[i] not in place:
                    raise ValueError(
                        f"party {party!r}: column {expected[i]!r} is missing from the "
                        f"table{look_alike(expected[i], labels)}"
                    )
            held[party] = np.array([place[expected[i]] for i in positions], int)
        # New columns are an error, because one that was renamed would otherwise be
        # ignored.
        known = set(expected)
        unknown = [str(label) for label in labels if label not in known]
        if unknown and self.remainder != "drop":
            raise ValueError(
                f"columns {unknown} were not seen in fit; drop them, or fit with "
                'remainder="drop"'
            )
        return X, held

    @property
    def _prepares_by_default(self):
        """Whether every party uses the default preprocessing, which takes any table."""
        transformers = self._own_transformers.values() or [self.transformer]
        return all(
            isinstance(each, PartyPreprocessor) or each == "auto"
            for each in transformers
        )

    @property
    def _container(self):
        """Kind of table that this partitioner was asked to return."""
        return _get_output_config("transform", self)["dense"]

    def _side_by_side(self, outputs):
        # Sparse once one party is: the dense form of its columns may not fit in memory.
        if any(sparse.issparse(output) for output in outputs):
            return sparse.hstack(outputs).tocsr()
        if self._container != "default":
            adapter = _get_container_adapter("transform", self)
            if all(adapter.is_supported_container(output) for output in outputs):
                for i, output in enumerate(outputs):
                    unique = [f"{i}__{j}" for j in range(output.shape[1])]
                    # Two parties may use one name for an output; scikit-learn sets the
                    # final names after this, and polars refuses to join frames with
                    # equal ones.
                    adapter.rename_columns(output, unique)
                return adapter.hstack(outputs)
        return np.hstack([np.asarray(output) for output in outputs])

    def _sk_visual_block_(self):
        if hasattr(self, "transformers_"):
            own = self._own_transformers
            # The box shows the transformer as the user gave it. A fitted one would show
            # medians and categories of a party's rows to whoever displays the
            # estimator.
            transformers = {
                name: _box(own.get(name, self.transformer))
                for name in self.transformers_
            }
            details = [positions.tolist() for positions in self.parties_.values()]
        elif self._own_transformers:
            transformers = self._own_transformers
            details = [str(columns) for _, _, columns in self.parties]
        else:
            transformers = {"every party": self.transformer}
            details = [str(self.parties)]
        return _VisualBlock(
            "parallel",
            list(transformers.values()),
            names=list(transformers),
            name_details=details,
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        transformers = self._own_transformers.values() or [self.transformer]
        # The partitioner takes what every party's transformer takes, and no more.
        inner = [
            get_tags(resolve_transformer(transformer)) for transformer in transformers
        ]
        inputs = tags.input_tags
        inputs.allow_nan = all(t.input_tags.allow_nan for t in inner)
        inputs.sparse = all(t.input_tags.sparse for t in inner)
        inputs.string = all(t.input_tags.string for t in inner)
        inputs.categorical = all(t.input_tags.categorical for t in inner)
        tags.no_validation = all(t.no_validation for t in inner)
        kept = [t.transformer_tags for t in inner if t.transformer_tags is not None]
        if kept:
            tags.transformer_tags.preserves_dtype = [
                dtype
                for dtype in kept[0].preserves_dtype
                if all(dtype in other.preserves_dtype for other in kept)
            ]
        return tags


def as_partition(parties):
    """A fresh, unfitted partitioner from anything that ``parties`` accepts."""
    if isinstance(parties, VerticalPartitioner):
        return clone(parties)
    # Members of a federation hold their columns themselves, so that what the centre
    # partitions is the active party's table alone.
    if isinstance(parties, Federation):
        return VerticalPartitioner(parties=1)
    return VerticalPartitioner(parties=parties)


def _box(transformer):
    """Show a transformer without what a party's fitted clone learnt."""
    is_text = isinstance(transformer, str)
    label = transformer if is_text else type(transformer).__name__
    return _VisualBlock("single", None, names=label, name_details=str(transformer))


def _fit_transform_party(name, transformer, block, caller, context):
    # Most transformers of others do not know callbacks, and would fail on being told.
    nested = hasattr(transformer, "set_callbacks")
    with context.propagate_callback_context(transformer) if nested else nullcontext():
        context.call_on_fit_task_begin(estimator=caller)
        output = _run(name, transformer.fit_transform, block)
        context.call_on_fit_task_end(estimator=caller)
    return transformer, output


def _transform_party(name, transformer, block):
    return _run(name, transformer.transform, block)


def _run(name, method, block):
    try:
        with speaking_for(name):
            output = apply(method, block)
    except InvalidColumnError as exc:
        raise party_error(name, f"among its own columns, {exc}", exc) from exc
    except InvalidOutputError as exc:
        raise party_error(name, str(exc), exc) from exc
    except Exception as exc:
        # A note, not another message: type and text of the error stay what the caller
        # expects of that transformer.
        exc.add_note(f"in the transformer of party {name!r}")
        raise
    # A transformer may number its rows anew; blocks of two indices would be joined by
    # label.
    if hasattr(output, "iloc") and hasattr(block, "iloc"):
        output = output.set_axis(block.index)
    return output


def _check_triples(parties):
    for entry in parties:
        if not (isinstance(entry, tuple) and len(entry) == 3):
            raise ValueError(
                "a list of parties holds (name, transformer, columns) tuples, got a "
                f"{type(entry).__name__}; where all parties prepare their columns "
                "alike, give a dict of names to columns"
            )
    names = [name for name, _, _ in parties]
    _check_names(names)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"duplicate party names {repeated}: give each party a name of its own"
        )
    # ``set_params`` could not tell such a party's transformer from the parameter.
    taken = set(names).intersection(VerticalPartitioner().get_params(deep=False))
    if taken:
        raise ValueError(
            f"party names {sorted(taken)} are parameters of VerticalPartitioner"
        )
