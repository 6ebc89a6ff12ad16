"""The course of a fit: what callbacks hear of it, and how a user ends it early."""

from __future__ import annotations

import math
import signal
import threading
import time
from functools import cache, partial

from skvfl._warnings import warn
from skvfl.exceptions import InterruptedFitWarning, PartyError

# To keep a half takes all parties some milliseconds, and an epoch may take no longer.
LEAST_SECONDS = 1.0


class Course:
    """The tasks of one fit, for callbacks and for whoever interrupts it.

    An interrupt in the middle of an epoch would leave parties with models of different
    steps. It is therefore put off to the end of the epoch, where training stops as if
    a callback had asked for it; a second one is not. Between epochs, where held-out
    rows are asked of, and while the best models are gone back to, it is put off alike.

    Between organisations a partner may be lost in the middle of an epoch. Methods that
    can go on by ``warm_start`` then leave the models of the last epoch that all have
    kept, and the error says so.

    Parameters
    ----------
    estimator : VFLEstimator
        Whose fit it is.
    X, y
        As ``fit`` was given them, for callbacks that compute scores.
    n_tasks : int
        How many tasks there will be at most.

    Attributes
    ----------
    context : CallbackContext
        Of the fit.
    rows : dict
        Arguments of every call to a callback.
    interrupted : bool
        Whether the user has interrupted an epoch.
    session : Session or None
        In which the parties learn; set by the method.
    """

    def __init__(self, estimator, X, y, n_tasks):
        self._estimator = estimator
        self.rows = {"estimator": estimator, "X": X, "y": y}
        self.context = estimator._init_callback_context(max_subtasks=n_tasks)
        self._handler = None
        self.interrupted = False
        self.session = None
        # Attributes of the last epoch of which all have kept their halves, and of the
        # one after it, of which some have yet to say that they have.
        self._reached = self._pending = None
        # When halves were asked for last.
        self._marked = -math.inf
        self._may_end = False
        self._has_warned = False

    def __enter__(self):
        self.context.call_on_fit_task_begin(**self.rows)
        return self

    def __exit__(self, kind, exc, traceback):
        self._attend()
        if isinstance(exc, PartyError):
            self._fall_back(exc)
        # Halves of an earlier fit would go wherever this estimator goes, whichever of
        # the new ones are left out.
        for name in ("_earlier", "_replaces"):
            vars(self._estimator).pop(name, None)
        if kind is None:
            # The estimator has all its attributes by now.
            self.context.call_on_fit_task_end(
                **self.rows, reconstruction_attributes=dict
            )
        if kind is None and self.interrupted:
            warn(
                "the fit was interrupted: its model is that of n_iter_="
                f"{self._estimator.n_iter_} epochs",
                InterruptedFitWarning,
            )

    def begin(self, name, *, may_end=False):
        """Begin a task.

        Parameters
        ----------
        name : str
            What callbacks are told that it is.
        may_end : bool, default=False
            Whether an interrupt leaves something worth keeping when the task has ended.

        Returns
        -------
        task : CallbackContext
        """
        task = self.context.subcontext(task_name=name)
        task.call_on_fit_task_begin(**self.rows)
        self._may_end = may_end
        # A refit is not worth losing the earlier fit for, which an error brings back.
        if may_end and not self._estimator._replaces:
            self._put_off()
        else:
            self._attend()
        return task

    def end(self, task, so_far=None):
        """End a task.

        Parameters
        ----------
        task : CallbackContext
            As ``begin`` gave it.
        so_far : callable, default=None
            Gives the attributes of an estimator that predicts with what has been learnt
            so far, or None.

        Returns
        -------
        stop : bool
            Whether a callback, or the user, says that this was the last one.
        """
        puts_off = self._handler is not None
        attributes = None if so_far is None else self._attributes(so_far)
        try:
            stop = task.call_on_fit_task_end(
                **self.rows, reconstruction_attributes=attributes
            )
        # Callbacks of other libraries end training by this exception.
        except KeyboardInterrupt:
            if self.interrupted or not puts_off:
                raise
            self.interrupted, stop = True, True
        return stop or self.interrupted

    def tasks(self, name, n_tasks, *, so_far=None, may_end=False):
        """Count tasks until a callback asks to stop.

        For loops that nothing else stops: a generator that a loop breaks out of cannot
        tell this from an error, so the last task would never end. ``so_far`` and
        ``may_end`` are those of ``end`` and ``begin``.
        """
        for i in range(n_tasks):
            task = self.begin(name, may_end=may_end)
            yield i
            if self.end(task, so_far):
                return

    def _attributes(self, so_far):
        """What gives the attributes of what has been learnt so far, or None."""
        # Once for an epoch: partners keep their halves anew each time.
        taken = cache(partial(_whole, so_far))
        keeps_epochs = self.session is not None and self.session.keeps_epochs
        goes_on = self._may_end and hasattr(self._estimator, "warm_start")
        if keeps_epochs and goes_on and self._is_due():
            self._mark(taken)

        def settled():
            if taken() is None:
                self._warn_once()
            elif keeps_epochs:
                # Before that, partners could not say what they predict.
                self.session.settled(wait=True)
            return taken()

        return settled

    def _warn_once(self):
        """Say that callbacks get no model, and so give no scores."""
        if not self._has_warned:
            self._has_warned = True
            warn(
                "callbacks get no model of some epochs, and give no scores of them: a "
                "party keeps its half elsewhere (by files it is asked once), or is "
                "late",
                UserWarning,
            )

    def _is_due(self):
        """Whether it is time to keep halves again."""
        # Where a fit goes on without a partner, the half that it kept last is its part
        # of the model: that must be of the last epoch that it took part in.
        if getattr(self._estimator, "missing_party", "raise") != "raise":
            return True
        return time.monotonic() - self._marked >= LEAST_SECONDS

    def _mark(self, taken):
        """Note where a fit can go on from whose partner is lost later."""
        # Nobody has waited for the epoch before this one to be kept.
        if self._pending is not None and _is_settled(self.session):
            self._reached = self._pending
        if (now := taken()) is None:
            return
        self._marked = time.monotonic()
        known = vars(self._estimator)
        lengths = {
            name: len(curve)
            for name, curve in known.items()
            if name.endswith("curve_") and isinstance(curve, list)
        }
        # Held-out rows are asked of when the epoch has ended.
        lengths["validation_loss_curve_"] = lengths["loss_curve_"]
        self._pending = {"n_iter_": known.get("n_iter_"), **now}, lengths

    def _fall_back(self, exc):
        """Leave the last epoch of which all have kept their halves."""
        if self._pending is not None and _is_settled(self.session):
            self._reached = self._pending
        # A refit is not worth losing the earlier fit for.
        if self._reached is None or self._estimator._replaces:
            return
        attributes, lengths = self._reached
        known = vars(self._estimator)
        curves = {name: known[name][:length] for name, length in lengths.items()}
        self._estimator._left = {**attributes, **curves}
        exc.add_note(
            f"The estimator has the models of n_iter_={attributes['n_iter_']} epochs, "
            "of which every party has kept its half: once all answer again it "
            "predicts, and fit goes on from there with warm_start=True."
        )

    def _put_off(self):
        # Python lets the main thread alone handle signals, and a program that handles
        # this one itself knows better.
        if (
            self._handler is None
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._handler = signal.signal(signal.SIGINT, self._remember)

    def _remember(self, number, frame):
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def _attend(self):
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._handler = None


def _is_settled(session):
    try:
        return session.settled()
    except PartyError:
        return False


def _whole(so_far):
    """What ``so_far`` gives, or None where some parties are not here to be copied."""
    attributes = so_far()
    return attributes if attributes["_parties"] else None
