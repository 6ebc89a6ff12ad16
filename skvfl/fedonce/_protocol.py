"""FedOnce's protocol: one round of representations, and split learning from there."""

from __future__ import annotations

from contextvars import copy_context
from dataclasses import asdict
from functools import partial
from numbers import Integral, Real

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from skvfl._base import VFLEstimator, check_answers
from skvfl._course import Course
from skvfl._random import branch, int_seed, one_way, seed_sequence
from skvfl._renamed import renamed
from skvfl._sklearn import HasMethods, Interval, StrOptions, _num_samples
from skvfl._warnings import warn
from skvfl.exceptions import (
    MissingPartyWarning,
    PartyError,
    PartyTypeError,
    PartyValueError,
    RefusedError,
    WaitingError,
)
from skvfl.federation import CommunicationLog
from skvfl.federation._log import current_log
from skvfl.federation._replies import (
    NUMBER,
    OWN_WIDTH,
    Count,
    Fields,
    Reply,
    Rows,
    check_replies,
    rows_of,
)
from skvfl.federation._transport import check_rows
from skvfl.fedonce._budget import SPENT, account, make_plan, require_plain_steps
from skvfl.fedonce._host import HostSettings
from skvfl.fedonce._noise_as_targets import NoiseAsTargetsEncoder
from skvfl.fedonce._parties import GuestSettings, SplitSettings
from skvfl.fedonce._random_features import RandomFeaturesEncoder
from skvfl.nn._steps import batch_bounds, epoch_loss
from skvfl.nn._training import check_finite
from skvfl.partition._transformers import require_transformer
from skvfl.splitnn._estimator import split_epoch


class _BaseFedOnce(ClassNamePrefixFeaturesOutMixin, TransformerMixin, VFLEstimator):
    """Training and serving; the subclasses say what the labels are."""

    # What a guest draws: its columns' preparation, its part in split learning, the key
    # of the noise on what it sends, its encoder, and the noise of private training in
    # the one round and after it. The host's own training draws from the last two, and
    # from "noise" what it adds to gradients.
    _streams = {
        "prepare": (1, 0),
        "models": (1, 1),
        "keys": (1, 2),
        "noise": (1, 3),
        "guests": (2,),
        "once": (5, 0),
        "afterwards": (5, 1),
    }
    _by_party = ("local_encoder",)

    _parameter_constraints = {
        **VFLEstimator._parameter_constraints,
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "optimizer": [callable, None],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "callbacks": [list, dict, None],
        "device": [str, dict],
        "local_encoder": [HasMethods(["fit_transform", "transform"]), dict, None],
        "bottom": ["array-like", callable],
        "cut_width": [Interval(Integral, 1, None, closed="left")],
        "top": ["array-like", callable],
        "lr": [Interval(Real, 0, None, closed="neither"), None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "n_split_epochs": [Interval(Integral, 0, None, closed="left")],
        "missing_party": [StrOptions({"raise", "zero"})],
        "representation_noise": [Interval(Real, 0, None, closed="left")],
        "gradient_noise": [Interval(Real, 0, None, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "max_grad_norm": [Interval(Real, 0, None, closed="neither")],
        "division": [StrOptions({"moments", "naive"})],
        "accountant": [StrOptions({"rdp", "pld"})],
        "n_jobs": [Integral, None],
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
        n_jobs=None,
        transport="local",
        random_state=None,
    ):
        self.parties = parties
        self.active = active
        self.missing_rows = missing_rows
        self.missing_party = missing_party
        self.local_encoder = local_encoder
        self.bottom = bottom
        self.top = top
        self.cut_width = cut_width
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.device = device
        self.n_split_epochs = n_split_epochs
        self.representation_noise = representation_noise
        self.gradient_noise = gradient_noise
        self.epsilon = epsilon
        self.delta = delta
        self.max_grad_norm = max_grad_norm
        self.division = division
        self.accountant = accountant
        self.n_jobs = n_jobs
        self.transport = transport
        self.random_state = random_state

    def _fit(self, X, y, labels):
        """The paper's Algorithm 1, and split learning where it ends."""
        # Not by ``_training``, which opens one session for everybody at once.
        root = seed_sequence(self.random_state)
        X = self._fit_partition(X, y, branch(root, 0))
        encoders = self._check_encoders()
        n_rows = len(labels.values)
        self._plan = make_plan(self, encoders, n_rows)
        n_tasks = 1 + self.max_epochs + self.n_split_epochs
        self.communication_ = log = CommunicationLog()
        with Course(self, X, y, n_tasks) as course:
            members = self._make_members(X, root, labels)
            opening = self._opening(members, fitted=self._earlier)
            open_one = self._one_by_one(members, opening, fitting=True)
            # The host's session stays open over the one round, because it learns from
            # what the guests send; a guest's is its own, so that one who dies takes
            # nobody along.
            with open_one(self._active, log) as session:
                course.session = session
                guests, received, said = self._represent(open_one, n_rows, course)
                self._train_host(session, received, guests, course)
            parties, said_split = session.parties | guests, {}
            if self.n_split_epochs and not course.interrupted:
                with self._open_again(X, root, labels, parties) as session:
                    course.session = session
                    rows = branch(root, 4)
                    said_split = self._train_split(session, n_rows, rows, course)
                parties = session.parties
            self._parties = {
                name: parties[name] for name in self._names if name in parties
            }
            # A refit without a budget must not keep the account of the fit before it.
            self.__dict__.pop("epsilon_spent_", None)
            if self._plan is not None:
                self.epsilon_spent_ = account(self, encoders, said, said_split)
        return self

    def _so_far(self, session, guests=()):
        halves = session.halves()
        if halves:
            halves |= dict(guests)
        parties = {name: halves[name] for name in self._names if name in halves}
        return {"_parties": parties}

    def _settings(self, name):
        plan, lr = self._plan, self._lr
        said = {
            "transformer": self._transformer(name),
            "lr": lr,
            "optimizer": self.optimizer,
            "weight_decay": self.weight_decay,
            "max_grad_norm": None if plan is None else self.max_grad_norm,
        }
        if name != self._active:
            # A guest that is not in the plan learns nothing from rows, or is named
            # among what the guarantee does not cover.
            run = None if plan is None else plan.guests.get(name)
            return GuestSettings(
                local_encoder=self._encoder_of(name),
                representation_noise=self.representation_noise,
                run=None if run is None else asdict(run),
                **said,
            )
        return HostSettings(
            bottom=self.bottom,
            cut_width=self.cut_width,
            top=self.top,
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            early_stopping=self.early_stopping,
            validation_fraction=self.validation_fraction,
            n_iter_no_change=self.n_iter_no_change,
            run=None if plan is None else asdict(plan.host),
            **said,
        )

    def _one_by_one(self, members, opening, *, fitting):
        """How to open a session with a member alone: ``open_one(name, log)``."""

        def open_one(name, log):
            asked = {name: opening[name]}
            return self._begin(members, log, self._active, asked, fitting=fitting)

        return open_one

    def _open_again(self, X, root, labels, parties):
        """A session of those who have learnt in the one round."""
        # Made anew: what a member holds was dropped with the session of the one round.
        members = self._make_members(X, root, labels)
        noise = {self._active: self.gradient_noise}
        told = {
            "settings": lambda name: SplitSettings(gradient_noise=noise.get(name, 0.0)),
            "fitted": parties,
        }
        opening = self._opening(members, [*parties], **told)
        log = self.communication_
        return self._begin(members, log, self._active, opening, fitting=True)

    def _represent(self, open_one, n_rows, course):
        """The one round: every guest fits its encoder and sends what it gives.

        Returns
        -------
        guests : dict of str to Party or Handle
            Those that answered, and have learnt.
        received : dict of str to ndarray
            Their representations.
        said : dict of str to (dict or None)
            Under a budget, what they say of their noisy steps.
        """
        task = course.begin("one round")
        log = self.communication_

        def learn(name, messages):
            with open_one(name, messages) as session:
                if name not in self._holders:
                    raise PartyError(name, "it holds no column")
                # Only the size is looked at here. A reply that is wrong in any other
                # way ends the fit of all, which is checked once everybody has answered.
                size = Reply(self._any_rows(n_rows)[name].n_bytes)
                sent = session.ask(name, "learn", reply=size)
                said = None
                if self._plan is not None:
                    said = session.ask(name, "spent", reply=Reply(0))
            return session.parties[name], sent, said

        names = [name for name in self._names if name != self._active]
        answers = self._gather(names, learn, log)
        guests, received, said = (
            {name: answer[i] for name, answer in answers.items()} for i in range(3)
        )
        # Here and not in a guest's session, where ``missing_party`` would take a wrong
        # answer for none.
        check_replies(received, self._any_rows(n_rows), "learn")
        check_replies(said, dict.fromkeys(said, SPENT), "spent")
        check_rows(received, n_rows)
        if not received and self._active not in self._holders:
            raise ValueError(
                f"no guest answered, and the host {self._active!r} holds no column"
            )
        self.answered_ = list(received)
        self._widths = {name: sent.shape[1] for name, sent in received.items()}
        self.bytes_curve_ = [log.n_bytes]
        course.end(task)
        return guests, received, said

    def _gather(self, names, ask, log):
        """One round: ask every guest by itself; the answers of those that answered.

        Every guest has a session of its own, so that one that does not answer ends
        nobody else's work. ``ask(name, messages)`` opens it, with a log of its own.
        """

        def attempt(name):
            # A log of its own, because guests answer in any order.
            messages = CommunicationLog()
            try:
                return name, ask(name, messages), messages, None
            # A mistake in the input, or a refusal, which zeros must not hide.
            except (PartyTypeError, PartyValueError, RefusedError):
                raise
            except (PartyError, WaitingError) as error:
                return name, None, messages, error

        log.begin_round()
        # Threads: parties hold what must not be pickled, and torch and numpy let go of
        # the interpreter where they work. Each in a copy of the context, by which
        # whoever records the views of a run is found.
        attempts = Parallel(n_jobs=self.n_jobs, backend="threading")(
            delayed(copy_context().run)(attempt, name) for name in names
        )
        missing = [error for *_, error in attempts if error is not None]
        # No guest is absent whose answer is under way. After all were asked, so that
        # one wait is enough.
        due = [error for error in missing if isinstance(error, WaitingError)]
        if due:
            raise WaitingError([plan for error in due for plan in error.plans])
        if missing and self.missing_party == "raise":
            raise PartyError(
                missing[0].party,
                f"{missing[0].message} (missing_party='zero' goes on without it)",
            ) from missing[0]
        if missing:
            warn(
                f"{len(missing)} of {len(names)} guests did not answer, and zeros "
                f"stand for their representations: {'; '.join(map(str, missing))}",
                MissingPartyWarning,
            )
        # In the order of the names, so that a seed gives one log; with what guests sent
        # that failed later, because it has crossed.
        for _, _, messages, _ in attempts:
            for number, *message in messages.messages:
                log.record(*message, opening=number == 0)
        return {name: answer for name, answer, _, error in attempts if error is None}

    def _train_host(self, session, received, guests, course):
        """The host learns alone from what it has received."""
        host = self._active
        before = 0 if self._earlier is None else self.n_iter_
        self._begin_curves()
        # With a budget a loss is no part of a reply that is expected, so none crosses.
        said = {"stops": Count(0, 1)}
        if self.epsilon is None:
            said["train_loss"] = NUMBER
            if self.early_stopping:
                said["valid_loss"] = NUMBER
        session.tell("receive", to=[host], received=received)
        # Not by ``Course.tasks``, because the host may stop early, too.
        for n_epochs in range(1, self.max_epochs + 1):
            # What was spent until an interrupt would have to be found out from all.
            task = course.begin("epoch", may_end=self._plan is None)
            epoch = session.ask(host, "train_epoch", reply=Fields(said))
            self.n_iter_ = before + n_epochs
            if "train_loss" in epoch:
                self.loss_curve_.append(epoch["train_loss"])
            if "valid_loss" in epoch:
                self.validation_loss_curve_.append(epoch["valid_loss"])
            so_far = partial(self._so_far, session, guests=guests)
            if course.end(task, so_far) or epoch["stops"]:
                break
        session.tell("end_training", to=[host])

    def _train_split(self, session, n_rows, sequence, course):
        """Multi-round FedOnce: split learning from the networks of the one round.

        Returns
        -------
        said : dict of str to dict
            Under a budget, what guests say of their noisy steps.
        """
        to_table, to_epochs = sequence.spawn(2)
        session.begin_round()
        order = {"seed": int_seed(to_table)}
        if self._plan is None:
            session.tell("join", **order)
        else:
            session.tell(
                "join_privately",
                # Four words of a stream lead back to its root, and so to all secrets
                # of a simulation; of a digest they do not.
                shared=one_way(to_epochs).generate_state(4).tolist(),
                run=asdict(self._plan.split),
                max_grad_norm=self.max_grad_norm,
                lr=self._lr,
                **order,
            )
        seeds = [int_seed(each) for each in to_epochs.spawn(self.n_split_epochs)]
        so_far = partial(self._so_far, session)
        for seed in seeds:
            task = course.begin("split epoch", may_end=self._plan is None)
            if self._plan is None:
                self._split_epoch(session, seed, n_rows)
            else:
                for _ in range(self._plan.per_epoch):
                    self._private_step(session, n_rows)
            ends = False
            if self._plan is None:
                losses = {"train_loss": self.loss_curve_[-1]}
                ends = self._ask_callbacks(session, losses)
            # After every epoch, so that spoilt networks end the fit at once.
            session.tell("finish")
            self.bytes_curve_.append(session.log.n_bytes)
            if course.end(task, so_far) or ends:
                break
        if self._plan is None:
            return {}
        # Not of the host, for whose steps the plan stands.
        return session.call("spent", to=self.answered_, reply=SPENT)

    def _split_epoch(self, session, seed, n_rows):
        """One pass of split learning, as SplitNN does it."""
        session.tell("begin_epoch", seed=seed, n_train=n_rows)
        batches = batch_bounds(n_rows, self.batch_size)
        parties = self._active, self.answered_, self._widths
        steps = split_epoch(session, *parties, batches)
        self.loss_curve_.append(epoch_loss(steps))
        check_finite(self.loss_curve_[-1:], len(self.loss_curve_), self._lr)

    def _private_step(self, session, n_rows):
        """Everybody draws the same rows, and adds noise to its own gradients."""
        # The host first: by its number of rows the guests' answers can be checked.
        n_drawn = session.ask(self._active, "draw", reply=Count(0, n_rows))
        session.begin_round()
        expected = rows_of(self._widths, n_drawn)
        received = session.call("forward_rows", to=self.answered_, reply=expected)
        check_rows(received, n_drawn, self._widths)
        gradients = session.ask(
            self._active, "learn_rows", reply=Fields(expected), received=received
        )
        session.begin_round()
        each = {name: {"gradient": sent} for name, sent in gradients.items()}
        session.tell("backward_rows", to=self.answered_, each=each)

    def _serve(self, X, operation):
        """The paper's Algorithm 2: what the host computes for rows to be served."""
        check_is_fitted(self)
        host, log = self._active, current_log()
        members, opening = self._fitted_members(X, [host, *self.answered_])
        open_one = self._one_by_one(members, opening, fitting=False)
        # Not by ``_serving``: a guest that does not answer must not end the others'
        # sessions, in predictions neither.
        n_rows = _num_samples(X)
        expected = rows_of(self._widths, n_rows)

        def encode(name, messages):
            with open_one(name, messages) as session:
                size = Reply(expected[name].n_bytes)
                return session.ask(name, "encode", reply=size)

        with open_one(host, log) as session:
            received = self._gather(self.answered_, encode, log)
            check_replies(received, expected, "encode")
            check_rows(received, n_rows, self._widths)
            # A local network of the user's own may have any width.
            own = Rows(n_rows, OWN_WIDTH, exact=False)
            if operation == "predict":
                own = Rows(n_rows, self._n_outputs)
            rows = {"start": 0, "stop": n_rows}
            asked = {"reply": own, "received": received, **rows}
            return check_answers(session.ask(host, operation, **asked))

    def _n_unexplained(self, name, n_empty, n_rows, fitting):
        """A guest without any value does not answer: ``missing_party`` speaks of it."""
        return 0 if name != self._active and n_empty == n_rows else n_empty

    @property
    def _one_round(self):
        return not self.n_split_epochs

    def _encoder_of(self, name):
        """What a guest is told to encode with."""
        encoder = self.local_encoder
        if encoder is None:
            return self._default_encoder()
        return encoder[name] if isinstance(encoder, dict) else encoder

    def _check_encoders(self):
        """What every guest is told to encode with, by name."""
        if self.gradient_noise and not self.n_split_epochs:
            raise ValueError(
                f"gradient_noise={self.gradient_noise} is added in split epochs, and "
                "n_split_epochs=0: no gradient crosses in the one round; set "
                "n_split_epochs, or gradient_noise=0"
            )
        names = [name for name in self._names if name != self._active]
        if isinstance(self.local_encoder, dict):
            unknown = sorted(set(self.local_encoder) - set(names))
            lacking = sorted(set(names) - set(self.local_encoder))
            if unknown or lacking:
                raise ValueError(
                    f"local_encoder names {unknown}, which are no guests, and lacks "
                    f"{lacking}: give a transformer for every party but the active one"
                )
        encoders = {name: self._encoder_of(name) for name in names}
        for name, encoder in encoders.items():
            require_transformer(f"local_encoder of party {name!r}", encoder)
            has_network = isinstance(encoder, NoiseAsTargetsEncoder)
            if self.n_split_epochs and not has_network:
                raise ValueError(
                    f"n_split_epochs={self.n_split_epochs} trains the guests' networks "
                    f"further, and the {type(encoder).__name__} of guest {name!r} has "
                    "none: use NoiseAsTargetsEncoder, or n_split_epochs=0"
                )
            if has_network and self.epsilon is not None:
                encoder._validate_params()
                require_plain_steps(f"guest {name!r}", encoder, ["callbacks"])
        return encoders

    def _default_encoder(self):
        # It learns nothing from rows, so that the host has the whole budget; split
        # epochs need a network, which then learns in them alone.
        if self.epsilon is not None and not self.n_split_epochs:
            return RandomFeaturesEncoder()
        return NoiseAsTargetsEncoder(
            max_epochs=self.max_epochs if self.epsilon is None else 0,
            batch_size=self.batch_size,
            lr=self._lr,
            optimizer=self.optimizer,
            weight_decay=self.weight_decay,
        )

    @property
    def _lr(self):
        if self.lr is not None:
            return self.lr
        # Clipped gradients are short, and plain steps do not scale them up as Adam
        # does.
        return 1e-3 if self.epsilon is None else 0.5

    @property
    def _n_features_out(self):
        own = self.cut_width if self._active in self._holders else 0
        return own + sum(self._widths.values())

    def transform(self, X):
        """Joint representation: what the head is given.

        The outputs of the host's local network, then every guest's representation,
        standardised as the host does it (with a budget, as it was sent).

        Parameters
        ----------
        X : DataFrame, ndarray or sparse matrix of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        representation : ndarray of shape (n_samples, n_components), dtype float32
        """
        return self._serve(X, "combine")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
