"""SplitNN: bottom models at the parties, a top model at the active party."""

from __future__ import annotations

from math import ceil
from numbers import Integral, Real

import numpy as np
from sklearn.base import (
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted
from torch.nn import functional

from skvfl._base import (
    MISSING_ROWS,
    VFLEstimator,
    check_answers,
)
from skvfl._random import int_seed, one_way, seed_sequence, spawn_named
from skvfl._sklearn import Interval, StrOptions, _num_samples
from skvfl.federation import CommunicationLog
from skvfl.federation._replies import NUMBER, OWN_WIDTH, Rows, learnt, rows_of
from skvfl.federation._transport import check_rows
from skvfl.nn._build import Build, Optimize
from skvfl.nn._training import check_finite
from skvfl.splitnn._legacy_parties import (
    AGGREGATIONS,
    BottomParty,
    TopParty,
    batch_bounds,
    epoch_loss,
)


class _BaseSplitNN(ClassNamePrefixFeaturesOutMixin, TransformerMixin, VFLEstimator):
    """Training and serving; the subclasses say what the labels are."""

    _parameter_constraints = {
        **VFLEstimator._parameter_constraints,
        **MISSING_ROWS,
        "bottom": ["array-like", callable],
        "top": ["array-like", callable],
        "cut_width": [Interval(Integral, 1, None, closed="left")],
        "aggregation": [StrOptions(set(AGGREGATIONS))],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "optimizer": [callable, None],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        missing_rows="raise",
        bottom=(64,),
        top=(64,),
        cut_width=32,
        aggregation="concat",
        max_epochs=50,
        batch_size=128,
        lr=1e-3,
        optimizer=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        transport="local",
        random_state=None,
    ):
        self.parties = parties
        self.active = active
        self.missing_rows = missing_rows
        self.bottom = bottom
        self.top = top
        self.cut_width = cut_width
        self.aggregation = aggregation
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.transport = transport
        self.random_state = random_state

    def _fit(self, X, y, labels, weights, n_outputs, loss):
        to_split, to_parties, to_rows = seed_sequence(self.random_state).spawn(3)
        X = self._fit_partition(X, y, to_split)
        active = self._active
        blocks = self._split(X, fitting=True)
        parties = [
            party.holding(
                block=blocks.pop(party.name),
                **(
                    {"labels": labels, "weights": weights}
                    if party.name == active
                    else {}
                ),
            )
            for party in self._make_parties(active, to_parties, n_outputs, loss)
        ]
        context = self._init_callback_context(max_subtasks=self.max_epochs)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        self.communication_ = CommunicationLog()
        with self._connect(parties, self.communication_, active) as session:
            self._train(session, active, len(labels), to_rows, context)
        self._parties = session.parties
        self.n_iter_ = len(self.loss_curve_)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _train(self, session, active, n_rows, sequence, context):
        """Split learning: activations up, gradients down, for every batch."""
        passive = [name for name in self._holders if name != active]
        to_table, to_epochs = sequence.spawn(2)
        session.begin_round()
        n_held_out = (
            ceil(self.validation_fraction * n_rows) if self.early_stopping else 0
        )
        n_train = n_rows - n_held_out
        order = {"seed": int_seed(to_table)}
        widths = session.call("prepare", to=passive, reply=self._any_widths, **order)
        self._widths = widths
        session.tell(
            "prepare_top", to=[active], widths=widths, n_train=n_train, **order
        )
        batches = batch_bounds(n_train, self.batch_size)
        self.loss_curve_, self.validation_loss_curve_ = [], []
        for to_epoch in to_epochs.spawn(self.max_epochs):
            task = context.subcontext(task_name="epoch")
            task.call_on_fit_task_begin(estimator=self)
            shuffle = {"seed": int_seed(to_epoch), "n_train": n_train}
            session.tell("begin_epoch", to={*passive, active}, **shuffle)
            steps = [
                self._step(session, active, passive, widths, start, stop)
                for start, stop in batches
            ]
            self.loss_curve_.append(epoch_loss(steps))
            check_finite(self.loss_curve_[-1:], len(self.loss_curve_), self.lr)
            stop = task.call_on_fit_task_end(estimator=self)
            if self.early_stopping:
                stop |= self._stops_early(session, active, passive, n_train, n_rows)
            if stop:
                break
        if self.early_stopping:
            session.tell("recall", to={*passive, active})
        session.tell("finish", to={*passive, active})

    def _step(self, session, active, passive, widths, start, stop):
        """One batch: a round of activations and a round of gradients."""
        session.begin_round()
        batch, expected = {"start": start, "stop": stop}, rows_of(widths, stop - start)
        received = session.call("forward", to=passive, reply=expected, **batch)
        check_rows(received, stop - start, widths)
        step = session.ask(
            active, "learn", reply=learnt(expected), received=received, **batch
        )
        session.begin_round()
        gradients = {n: {"gradient": g} for n, g in step["gradients"].items()}
        session.tell("backward", to=passive, each=gradients)
        return step

    def _stops_early(self, session, active, passive, n_train, n_rows):
        """Whether the loss of the held-out rows has stopped improving."""
        rows = {"start": n_train, "stop": n_rows}
        session.begin_round()
        expected = rows_of(self._widths, n_rows - n_train)
        received = session.call("represent", to=passive, reply=expected, **rows)
        loss = session.ask(active, "evaluate", reply=NUMBER, received=received, **rows)
        curve = self.validation_loss_curve_
        if not curve or loss < min(curve):
            session.tell("remember", to={*passive, active})
        curve.append(loss)
        return len(curve) - 1 - int(np.argmin(curve)) >= self.n_iter_no_change

    def _serve(self, X, operation):
        """What the active party computes for rows to be served."""
        check_is_fitted(self)
        active = self._active
        passive = [name for name in self._holders if name != active]
        with self._connect_fitted(X, active) as session:
            n_rows = _num_samples(X)
            rows = {"start": 0, "stop": n_rows}
            session.begin_round()
            expected = rows_of(self._widths, n_rows)
            received = session.call("represent", to=passive, reply=expected, **rows)
            check_rows(received, n_rows, self._widths)
            own = Rows(n_rows, OWN_WIDTH, exact=False)
            if operation == "predict":
                own = Rows(n_rows, self._n_outputs)
            asked = {"reply": own, "received": received, **rows}
            return check_answers(session.ask(active, operation, **asked))

    def transform(self, X):
        """Cut-layer representation: what the top model is given.

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        representation : ndarray of shape (n_samples, n_components), dtype float32
        """
        return self._serve(X, "combine")

    @property
    def _n_features_out(self):
        parts = len(self._holders) if self.aggregation == "concat" else 1
        return parts * self.cut_width

    def _make_parties(self, active, sequence, n_outputs, loss):
        to_prepare, to_models = sequence.spawn(2)
        prepare = self.partition_._make_transformers(to_prepare)
        children = spawn_named(to_models, self.partition_.parties_)
        bottom = Build(self.bottom, self.cut_width, name="bottom")
        top = Build(self.top, n_outputs, activate=True, name="top", trains=False)
        optimize = Optimize(self.optimizer, self.lr)
        parties = []
        for name, child in children.items():
            settings = (name, prepare.get(name), bottom, optimize, one_way(child))
            if name == active:
                parties.append(
                    TopParty(*settings, top, self.aggregation, self._holders, loss)
                )
            else:
                parties.append(BottomParty(*settings))
        return parties

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _squared_error(outputs, labels):
    return functional.mse_loss(outputs, labels, reduction="none")[:, 0]
