"""Listening to sessions, so that nothing that crosses is left out of a view."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from skvfl.federation._watching import listening
from skvfl.privacy._order import Order
from skvfl.privacy._views import Run, Seen, Views


class _Recorder:
    """Writes down what sessions tell it."""

    def __init__(self):
        self.seen: list[Seen] = []
        self.runs: dict[int, Run] = {}
        self.roles: list[str] = []
        self._sessions: list[tuple[Any, int, Order]] = []
        self._logs: list[tuple[Any, int]] = []

    def begin(
        self,
        session: Any,
        members: Sequence[Any],
        brought: Mapping[str, Any],
        *,
        fit: Any,
    ) -> None:
        """Write down what each member that is at home here brings to a run."""
        # A fit may open several sessions, and is one run.
        number = len(self.runs)
        if fit is not None:
            number = next((n for log, n in self._logs if log is fit), number)
            self._logs.append((fit, number))
        run = self.runs.setdefault(number, Run(fit is not None, 0, {}, {}))
        for name, holding in brought.items():
            run.n_rows = max(run.n_rows, holding.n_rows)
            run.blocks[name] = holding.block
            if holding.rows is not None:
                run.rows[name] = holding.rows
            if holding.labels is not None:
                run.labels[name] = np.array(holding.labels.values)
        self._sessions.append((session, number, Order(members, run.n_rows)))
        for name in (session.centre, *session.names):
            if name not in self.roles:
                self.roles.append(name)

    def _of(self, session):
        """Number of the run that a session belongs to, and which rows are under way."""
        # By identity, and from the last: a callback may predict, in a session of its
        # own, while a fit goes on.
        for each, number, order in reversed(self._sessions):
            if each is session:
                return number, order
        self.begin(session, [], {}, fit=None)
        return self._of(session)

    def request(
        self, session: Any, operation: str, requests: Mapping[str, Any], opening: bool
    ) -> None:
        """Write down what is asked of whom, before it is."""
        _, order = self._of(session)
        arguments = next(iter(requests.values()), [operation, {}])[1]
        order.before(operation, arguments)
        for name, (_, sent) in requests.items():
            self._write(session, session.centre, name, operation, sent, opening)

    def reply(
        self,
        session: Any,
        operation: str,
        replies: Mapping[str, Any],
        receiver: str,
        opening: bool,
    ) -> None:
        """Write down what was answered to whom."""
        self._of(session)[1].after(operation)
        for name, reply in replies.items():
            self._write(session, name, receiver, operation, reply, opening)

    def late(self, session: Any, operation: str, name: str, reply: Any) -> None:
        """Write down what came too late to be used."""
        # Others' rows are under way by now, and whose rows these are is not kept.
        self._write(session, name, session.centre, operation, reply, False, late=True)

    def _write(
        self, session, sender, receiver, operation, content, opening, *, late=False
    ):
        # What stays inside one organisation is not received by anybody.
        if sender == receiver:
            return
        number, order = self._of(session)
        # Copied, because whoever has it may go on working in the same memory.
        copied = copy.deepcopy(content)
        rows = None if late or order.rows is None else order.rows.copy()
        seen = (number, order.epoch, sender, receiver, operation, copied, rows, opening)
        self.seen.append(Seen(*seen))


@contextmanager
def record_views() -> Iterator[Views]:
    """Record what every role is handed and receives, in fits and predictions.

    The session itself is listened to, whatever the transport, so nothing that crosses
    is left out. In a simulation the view of a party also has its own columns, and that
    of the label owner the labels. A reply that came too late to be used is seen, but
    without its rows. Work in other threads or processes (``n_jobs``) is not.

    Yields
    ------
    views : Views
        By role: ``"server"``, or the name of a party.

    See Also
    --------
    record_communication : How much was sent, not what.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL
    >>> from skvfl.privacy import record_views
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> vfl = RandomProjectionVFL(LogisticRegression(), parties=3, random_state=0)
    >>> with record_views() as views:
    ...     vfl = vfl.fit(X, y)
    >>> views.roles
    ['server', 'party0', 'party1', 'party2']
    >>> views["server"].matrix(sender="party1").values.shape
    (569, 10)
    """
    recorder = _Recorder()
    token = listening.set(recorder)
    try:
        # The views do not hold the recorder, which has the estimator's sessions.
        yield Views(recorder.seen, recorder.runs, recorder.roles)
    finally:
        listening.reset(token)
