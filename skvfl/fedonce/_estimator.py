"""FedOnce: guests encode their columns once, the host trains on what it received."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from math import ceil
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted
from torch.nn import functional

from skvfl._base import (
    MISSING_ROWS,
    VFLClassifierMixin,
    VFLEstimator,
    VFLRegressorMixin,
    check_answers,
)
from skvfl._random import (
    int_seed,
    one_way,
    seed_party,
    seed_sequence,
    spawn_named,
)
from skvfl._sklearn import (
    HasMethods,
    Interval,
    StrOptions,
    _fit_context,
    _num_samples,
)
from skvfl._targets import mean_and_scale, standardised
from skvfl._warnings import warn
from skvfl.exceptions import (
    MissingPartyWarning,
    PartyError,
    PartyTypeError,
    PartyValueError,
    PrivacyLeakWarning,
)
from skvfl.federation import CommunicationLog
from skvfl.federation._log import current_log
from skvfl.federation._replies import Count, Fields, Reply, check_replies, rows_of
from skvfl.federation._transport import check_rows
from skvfl.fedonce._noise_as_targets import NoiseAsTargetsEncoder
from skvfl.fedonce._parties import GuestParty, HostParty, train_host_privately
from skvfl.fedonce._random_features import RandomFeaturesEncoder
from skvfl.nn._apart import keep_apart
from skvfl.nn._build import Build, Optimize
from skvfl.nn._steps import batch_bounds, epoch_loss
from skvfl.nn._training import check_finite, train
from skvfl.partition._splitters import Contiguous, ImageTiles, RoundRobin
from skvfl.partition._transformers import require_transformer
from skvfl.privacy import SampledGaussian, account_privacy, calibrate_noise
from skvfl.splitnn._legacy_estimator import _BaseSplitNN, _squared_error

# They look at the number of columns alone.
_BLIND_SPLITTERS = (RoundRobin, Contiguous, ImageTiles)


class _Plan(NamedTuple):
    """Who takes how many noisy steps."""

    guests: dict[str, SampledGaussian]
    host: SampledGaussian
    split: SampledGaussian | None
    per_epoch: int


class _BaseFedOnce(_BaseSplitNN):
    """Training and serving; the subclasses say what the labels are."""

    _parameter_constraints = {
        **VFLEstimator._parameter_constraints,
        **MISSING_ROWS,
        **{
            name: _BaseSplitNN._parameter_constraints[name]
            for name in (
                "max_epochs",
                "batch_size",
                "optimizer",
                "early_stopping",
                "validation_fraction",
                "n_iter_no_change",
            )
        },
        "guest": [HasMethods(["fit_transform", "transform"]), dict, None],
        "local": ["array-like", callable],
        "local_width": [Interval(Integral, 1, None, closed="left")],
        "host": ["array-like", callable],
        "lr": [Interval(Real, 0, None, closed="neither"), None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "n_split_epochs": [Interval(Integral, 0, None, closed="left")],
        "missing_party": [StrOptions({"raise", "zero"})],
        "representation_noise": [Interval(Real, 0, None, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="neither"), None],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "max_grad_norm": [Interval(Real, 0, None, closed="neither")],
        "division": [StrOptions({"moments", "naive"})],
        "accountant": [StrOptions({"rdp", "pld"})],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        guest=None,
        local=(64,),
        local_width=32,
        host=(64,),
        max_epochs=50,
        batch_size=128,
        lr=None,
        optimizer=None,
        weight_decay=0.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        n_split_epochs=0,
        missing_party="raise",
        missing_rows="raise",
        representation_noise=0.0,
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
        self.guest = guest
        self.local = local
        self.local_width = local_width
        self.host = host
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_split_epochs = n_split_epochs
        self.missing_party = missing_party
        self.missing_rows = missing_rows
        self.representation_noise = representation_noise
        self.epsilon = epsilon
        self.delta = delta
        self.max_grad_norm = max_grad_norm
        self.division = division
        self.accountant = accountant
        self.n_jobs = n_jobs
        self.transport = transport
        self.random_state = random_state

    def _fit(self, X, y, labels, weights, n_outputs, loss):
        """The paper's Algorithm 1, and split learning where it ends."""
        sequences = seed_sequence(self.random_state).spawn(6)
        to_split, to_parties, to_guests, to_host, to_rows, to_noise = sequences
        X = self._fit_partition(X, y, to_split)
        encoders = self._make_encoders(to_guests)
        plan = self._plan(encoders, len(labels))
        guests, host = self._make_parties(to_parties, encoders, plan, n_outputs, loss)
        blocks = self._split(X, fitting=True)
        context = self._init_callback_context(
            max_subtasks=1 + self.max_epochs + self.n_split_epochs
        )
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        self.communication_ = log = CommunicationLog()
        once, afterwards = (spawn_named(each, blocks) for each in to_noise.spawn(2))

        task = context.subcontext(task_name="one round")
        task.call_on_fit_task_begin(estimator=self)
        guests = _holding(guests, blocks, once)
        guests, received = self._represent(guests, len(labels), log)
        task.call_on_fit_task_end(estimator=self)

        host = host.holding(
            block=blocks[host.name],
            labels=labels,
            weights=weights,
            sequence=one_way(afterwards[host.name]),
        )
        train_host = self._train_function(plan, one_way(to_host))
        self._train_host(host, received, train_host, context)
        if self.n_split_epochs:
            guests = _holding(guests, blocks, afterwards)
            with self._connect([host, *guests], log, host.name) as session:
                self._train_split(session, plan, len(labels), to_rows, context)
            host, *guests = session.parties.values()
        host.release()
        self._parties = {party.name: party for party in [host, *guests]}
        self._account(plan, encoders)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _represent(self, guests, n_rows, log):
        """The one round: the guests that answered, and their representations."""
        guests, received = self._gather(guests, "learn", log, self._any_rows(n_rows))
        check_rows(received, n_rows)
        if not received and self._active not in self._holders:
            raise ValueError(
                f"no guest answered, and the host {self._active!r} holds no column"
            )
        self.answered_ = list(received)
        self._widths = {name: sent.shape[1] for name, sent in received.items()}
        self.bytes_curve_ = [log.n_bytes]
        return guests, received

    def _gather(self, guests, operation, log, expected):
        """One round: ask every guest by itself; those that answered, and their answers.

        Every guest has a session of its own, so that one that does not answer ends
        nobody else's work. An answer that is not as expected ends everybody's.
        """

        def ask(guest):
            messages = CommunicationLog()
            try:
                with self._connect([guest], messages, self._active) as session:
                    size = Reply(expected[guest.name].n_bytes)
                    answer = session.ask(guest.name, operation, reply=size)
            except (PartyTypeError, PartyValueError):
                raise
            except PartyError as error:
                return guest, None, messages, error
            return session.parties[guest.name], answer, messages, None

        log.begin_round()
        replies = Parallel(n_jobs=self.n_jobs, backend="threading")(
            delayed(ask)(guest) for guest in guests
        )
        missing = [error for *_, error in replies if error is not None]
        if missing and self.missing_party == "raise":
            raise PartyError(
                missing[0].party,
                f"{missing[0].message} (missing_party='zero' goes on without it)",
            ) from missing[0]
        if missing:
            warn(
                f"{len(missing)} of {len(guests)} guests did not answer, and zeros "
                f"stand for their representations: {'; '.join(map(str, missing))}",
                MissingPartyWarning,
            )
        for *_, messages, _ in replies:
            for _, *message in messages.messages:
                log.record(*message)
        answered = [reply for reply in replies if reply[3] is None]
        answers = {guest.name: answer for guest, answer, *_ in answered}
        check_replies(answers, expected, operation)
        return [guest for guest, *_ in answered], answers

    def _train_host(self, host, received, train_host, context):
        """The host learns alone from what it has."""
        self.n_iter_ = 0
        self.loss_curve_, self.validation_loss_curve_ = [], []

        def report(epoch, losses):
            task = context.subcontext(task_name="epoch")
            task.call_on_fit_task_begin(estimator=self)
            self.n_iter_ = epoch
            for curve, name in (
                (self.loss_curve_, "train_loss"),
                (self.validation_loss_curve_, "valid_loss"),
            ):
                curve += [losses[name]] if name in losses else []
            return task.call_on_fit_task_end(estimator=self)

        host.perform(
            "learn_once",
            {
                "received": received,
                "train": train_host,
                "report": report,
                # Means and deviations of rows are a release that nobody accounts for.
                "standardise": self.epsilon is None,
            },
        )

    def _train_split(self, session, plan, n_rows, sequence, context):
        """Multi-round FedOnce: split learning from the networks of the one round."""
        to_table, to_epochs = sequence.spawn(2)
        session.begin_round()
        order = {"seed": int_seed(to_table)}
        if plan is None:
            session.tell("join", **order)
        else:
            order |= {
                "shared": one_way(to_epochs).generate_state(4).tolist(),
                "run": asdict(plan.split),
                "max_grad_norm": self.max_grad_norm,
                "lr": self._lr,
            }
            session.tell("join_privately", to=self.answered_, **order)
            widths = list(self._widths.values())
            session.tell("join_privately", to=[self._active], widths=widths, **order)
        for to_epoch in to_epochs.spawn(self.n_split_epochs):
            task = context.subcontext(task_name="split epoch")
            task.call_on_fit_task_begin(estimator=self)
            if plan is None:
                self._split_epoch(session, int_seed(to_epoch), n_rows)
            else:
                for _ in range(plan.per_epoch):
                    self._private_step(session, n_rows)
            session.tell("finish")
            self.bytes_curve_.append(session.log.n_bytes)
            if task.call_on_fit_task_end(estimator=self):
                break

    def _split_epoch(self, session, seed, n_rows):
        """One pass of split learning, as SplitNN does it."""
        session.tell("begin_epoch", seed=seed, n_train=n_rows)
        batches = batch_bounds(n_rows, self.batch_size)
        learnt = [
            self._step(session, self._active, self.answered_, self._widths, *bounds)
            for bounds in batches
        ]
        self.loss_curve_.append(epoch_loss(learnt))
        check_finite(self.loss_curve_[-1:], len(self.loss_curve_), self._lr)

    def _private_step(self, session, n_rows):
        """Everybody draws the same rows, and adds noise to its own gradients."""
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
        blocks = self._split(X)
        n_rows = _num_samples(X)
        holding = {
            name: party.holding(block=blocks[name])
            for name, party in self._parties.items()
        }
        host = holding.pop(self._active)
        expected = rows_of(self._widths, n_rows)
        _, received = self._gather(
            list(holding.values()), "encode", current_log(), expected
        )
        check_rows(received, n_rows, self._widths)
        answers = host.perform(
            operation, {"start": 0, "stop": n_rows, "received": received}
        )
        return check_answers(answers)

    def _unexplained(self, name, empty, fitting):
        """A guest without any value does not answer: ``missing_party`` speaks of it."""
        return empty & (name == self._active or not empty.all())

    def _make_parties(self, sequence, encoders, plan, n_outputs, loss):
        """Guests in their order, and the host."""
        to_prepare, to_models, to_keys = sequence.spawn(3)
        prepare = self.partition_._make_transformers(to_prepare)
        optimizer = self.optimizer
        if self.weight_decay:
            optimizer = partial(
                torch.optim.Adam if optimizer is None else optimizer,
                weight_decay=self.weight_decay,
            )
        optimize = Optimize(optimizer, self._lr)
        names = self.partition_.parties_
        models, keys = spawn_named(to_models, names), spawn_named(to_keys, names)
        check = None if plan is None else keep_apart
        local = {"name": "local", "trains": False, "check": check}
        guests = []
        for name in names:
            stream = one_way(models[name])
            if name == self._active:
                host = HostParty(
                    name,
                    prepare.get(name),
                    Build(self.local, self.local_width, **local),
                    optimize,
                    stream,
                    Build(self.host, n_outputs, name="host", check=check),
                    loss,
                )
            else:
                guests.append(
                    GuestParty(
                        name,
                        prepare[name],
                        encoders[name],
                        self.representation_noise,
                        one_way(keys[name]).generate_state(8).tobytes(),
                        optimize,
                        stream,
                        None if plan is None else plan.guests.get(name),
                        self.max_grad_norm,
                    )
                )
        return guests, host

    def _make_encoders(self, sequence):
        """Every guest's own encoder, by name, each with a random stream of its own."""
        names = [name for name in self.partition_.parties_ if name != self._active]
        given = self.guest
        if not isinstance(given, dict):
            encoder = self._default_encoder() if given is None else given
            given = dict.fromkeys(names, encoder)
        unknown = sorted(set(given) - set(names))
        lacking = sorted(set(names) - set(given))
        if unknown or lacking:
            raise ValueError(
                f"guest names {unknown}, which are no guests, and lacks "
                f"{lacking}: give a transformer for every party but the active one"
            )
        for name in names:
            require_transformer(f"guest of party {name!r}", given[name])
        encoders = {
            name: seed_party(clone(given[name]), child)
            for name, child in spawn_named(sequence, names).items()
        }
        for name, encoder in encoders.items():
            has_network = isinstance(encoder, NoiseAsTargetsEncoder)
            if self.n_split_epochs and not has_network:
                raise ValueError(
                    f"n_split_epochs={self.n_split_epochs} trains the guests' networks "
                    f"further, and the {type(encoder).__name__} of guest {name!r} has "
                    "none: use NoiseAsTargetsEncoder, or n_split_epochs=0"
                )
            if has_network and self.epsilon is not None:
                encoder._validate_params()
                _require_plain_steps(f"guest {name!r}", encoder, ["callbacks"])
                encoder._check = keep_apart
        return encoders

    def _default_encoder(self):
        if self.epsilon is not None and not self.n_split_epochs:
            return RandomFeaturesEncoder()
        return NoiseAsTargetsEncoder(
            max_epochs=self.max_epochs if self.epsilon is None else 0,
            batch_size=self.batch_size,
            lr=self._lr,
            optimizer=self.optimizer,
            weight_decay=self.weight_decay,
        )

    def _plan(self, encoders, n_rows):
        """Steps of every party's private training, with noise within the budget."""
        if self.epsilon is None:
            return None
        if self.delta >= 1 / n_rows:
            warn(
                f"delta={self.delta:g} allows a model that gives away one of the "
                f"{n_rows} rows: take a delta well below {1 / n_rows:.1g}",
                PrivacyLeakWarning,
            )
        _require_plain_steps("the host", self, ["early_stopping", "weight_decay"])

        def plan(parties, settings, n_epochs):
            per_epoch = ceil(n_rows / settings.batch_size)
            rate = min(1.0, settings.batch_size / n_rows)
            return SampledGaussian(rate, n_epochs * per_epoch, parties)

        guests = {
            name: plan((name,), encoder, encoder.max_epochs)
            for name, encoder in encoders.items()
            if isinstance(encoder, NoiseAsTargetsEncoder) and encoder.max_epochs
        }
        runs = [*guests.values(), plan((self._active,), self, self.max_epochs)]
        if self.n_split_epochs:
            runs.append(plan((self._active, *encoders), self, self.n_split_epochs))
        noisy = calibrate_noise(
            runs,
            self.epsilon,
            self.delta,
            accountant=self.accountant,
            division=self.division,
        )
        return _Plan(
            dict(zip(guests, noisy, strict=False)),
            noisy[len(guests)],
            noisy[-1] if self.n_split_epochs else None,
            ceil(n_rows / self.batch_size),
        )

    def _train_function(self, plan, sequence):
        """How the host trains its networks."""
        if plan is not None:
            return partial(
                train_host_privately,
                run=plan.host,
                per_epoch=plan.per_epoch,
                sequence=sequence,
                max_grad_norm=self.max_grad_norm,
                lr=self._lr,
            )
        return partial(
            train,
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            lr=self._lr,
            sequence=sequence,
            optimizer=self.optimizer,
            weight_decay=self.weight_decay,
            early_stopping=self.early_stopping,
            validation_fraction=self.validation_fraction,
            n_iter_no_change=self.n_iter_no_change,
        )

    def _account(self, plan, encoders):
        """What was spent, and what the guarantee does not cover."""
        self.__dict__.pop("epsilon_spent_", None)
        if plan is None:
            return
        runs = [*plan.guests.values(), plan.host]
        if plan.split is not None:
            runs.append(plan.split)
        spent = account_privacy(
            runs,
            self.delta,
            accountant=self.accountant,
            division=self.division,
            not_covered=[
                "How every party scales, imputes and encodes its own columns, and the "
                "representation of every row that is sent to the host.",
                *self._uncovered_labels(),
                *self._uncovered_split(),
                *_uncovered_guests(encoders),
                *self._readable_columns(encoders),
                *self._uncovered_draws(plan),
            ],
        )
        # A network that learnt from another's noisy network depends on its rows, too.
        learnt = [*spent.parties] if plan.split else [self._active] * bool(plan.guests)
        parties = spent.parties | dict.fromkeys(learnt, spent.epsilon)
        self.epsilon_spent_ = replace(spent, parties=parties)

    def _readable_columns(self, encoders):
        """Sentences about guests whose columns the host can compute from what is sent.

        Random directions are no secret, and as many of them as there are columns, or
        more, can be inverted; the host can also fit the inverse on as many rows that it
        knows.
        """
        for name, encoder in encoders.items():
            n_columns = len(self.partition_.parties_[name])
            if (
                isinstance(encoder, RandomFeaturesEncoder)
                and n_columns <= encoder.n_components
            ):
                yield (
                    f"The columns of {name!r}: there are {n_columns} of them, and the "
                    f"representation of a row has {encoder.n_components} numbers, so "
                    "that the host can compute every prepared cell from it, unless "
                    "preparation makes more columns than numbers."
                )

    def _uncovered_split(self):
        splitter = getattr(self.partition_, "splitter_", None)
        if splitter is not None and type(splitter) not in _BLIND_SPLITTERS:
            yield (
                f"Who holds which columns: the {type(splitter).__name__} may have "
                "looked at rows."
            )

    def _uncovered_draws(self, plan):
        if plan.split is not None:
            yield (
                "The sizes of messages in communication_ and bytes_curve_, which tell "
                "how many rows were drawn in each step."
            )
        if self.random_state is not None:
            yield (
                "Whatever else is trained with the same random_state: its noise is "
                "the same, and the difference of two models has none."
            )

    @property
    def _lr(self):
        if self.lr is not None:
            return self.lr
        return 1e-3 if self.epsilon is None else 0.5

    @property
    def _n_features_out(self):
        own = self.local_width if self._active in self._holders else 0
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


def _require_plain_steps(who, settings, forbidden):
    for name in ["optimizer", *forbidden]:
        if getattr(settings, name):
            raise ValueError(
                f"{name} of {who} cannot be used with a budget: private training takes "
                "plain gradient steps and looks at no loss"
            )


def _uncovered_guests(encoders):
    """Sentences about guests whose guarantee does not hold, or that have none."""
    known = (RandomFeaturesEncoder, NoiseAsTargetsEncoder)
    for name, encoder in encoders.items():
        kind = type(encoder).__name__
        if not isinstance(encoder, known):
            sentence = f"The {kind} of guest {name!r}, which is fitted without noise."
            warn(sentence, PrivacyLeakWarning)
            yield sentence
            continue
        if type(encoder) not in known:
            yield (
                f"Whatever the {kind} of guest {name!r} does differently from the "
                f"{type(encoder).__mro__[1].__name__} that it is derived from."
            )
        if (
            isinstance(encoder, NoiseAsTargetsEncoder)
            and encoder.max_epochs
            and encoder.targets == "noise"
            and encoder.update_every is not None
        ):
            yield (
                f"The assignment of targets at guest {name!r}: it makes the gradients "
                "of the rows of a batch depend on each other and on earlier batches, "
                "which clipping does not bound."
            )


def _holding(guests, blocks, streams):
    """Guests with what they hold for one run: columns, and a stream of random bits."""
    return [
        guest.holding(block=blocks[guest.name], sequence=one_way(streams[guest.name]))
        for guest in guests
    ]


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
    guest : transformer, dict of str to transformer or None, default=None
        What turns a guest's prepared columns into its representation; a dict says it
        for each guest by name. Every guest gets a clone with a seed of its own. By
        default a :class:`NoiseAsTargetsEncoder` that is trained with this estimator's
        ``max_epochs``, ``batch_size``, ``lr``, ``optimizer`` and ``weight_decay``; with
        a budget, a :class:`RandomFeaturesEncoder` or, for split epochs, an encoder that
        is not trained before them. ``PCA(3)`` is the paper's FedOnce-PCA. An encoder
        that is given brings its own settings; with a budget its ``lr`` is that of plain
        gradient steps, so set it.
    local : array-like of int or callable, default=(64,)
        The host's local network on its own columns: sizes of the hidden layers of a
        perceptron, or ``local(n_inputs, n_outputs)`` that returns a
        ``torch.nn.Module``. With a budget, that is made of torch's own layers in
        ``nn.Sequential``, or can be traced by ``torch.fx`` without data.
    local_width : int, default=32
        Number of outputs of the local network.
    host : array-like of int or callable, default=(64,)
        The head, given in the same way: the paper's host model. Its inputs are the
        outputs of the local network and every guest's representation, which the host
        standardises (not with a budget).
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
    n_split_epochs : int, default=0
        Epochs of split learning after the one round: multi-round FedOnce. The guests'
        networks, which a :class:`NoiseAsTargetsEncoder` has, go on as they are.
    missing_party : {"raise", "zero"}, default="raise"
        What happens when a guest does not answer: its process died, it took too long
        (:class:`ProcessTransport` has a ``timeout``), it failed, or it holds no value
        of any row that it is asked about. Either a
        :class:`~skvfl.exceptions.PartyError`, or a
        :class:`~skvfl.exceptions.MissingPartyWarning` that names it, and zeros in place
        of its standardised representation: the mean of what it sent in ``fit``. A guest
        that refuses its input is an error in any case.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all: an error that names the party and counts them, or they are imputed
        like other missing values. Later they are imputed, and a
        :class:`~skvfl.exceptions.MissingRowsWarning` counts them.
    representation_noise : float, default=0.0
        Standard deviation of the Gaussian noise that guests add to what they send. The
        noise is a secret function of the row, so that asking again does not average it
        away; in split epochs it therefore cancels in the difference of two epochs. It
        is added before the host standardises.
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
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in the loss, as in scikit-learn.
    transport : {"local", "process"} or Transport, default="local"
        How the guests are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`. The host is this process.
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
        model. Who does not answer later is named by the warning.
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
    *Who learns what.* The host sees the representation of every row of every guest, in
    ``fit`` and whenever it predicts, and can train models that invert it; noise on
    representations makes that harder and proves nothing. Guests see nothing at all in
    one-round training: no label, no gradient, nothing of each other. In split epochs
    they see gradients, from which labels can be inferred. Differential privacy protects
    rows from those who are given the trained networks, not from the host, which can
    compute the columns of a default private guest that has no more of them than 32:
    ``epsilon_spent_`` says what is covered.

    In this version a fitted estimator holds every party's networks, so that it can
    predict in one place.

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

    def __init__(
        self,
        *,
        parties=2,
        active=0,
        guest=None,
        local=(64,),
        local_width=32,
        host=(64,),
        max_epochs=50,
        batch_size=128,
        lr=None,
        optimizer=None,
        weight_decay=0.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        n_split_epochs=0,
        missing_party="raise",
        missing_rows="raise",
        representation_noise=0.0,
        epsilon=None,
        delta=1e-5,
        max_grad_norm=1.0,
        division="moments",
        accountant="rdp",
        n_jobs=None,
        class_weight=None,
        transport="local",
        random_state=None,
    ):
        super().__init__(
            parties=parties,
            active=active,
            guest=guest,
            local=local,
            local_width=local_width,
            host=host,
            max_epochs=max_epochs,
            batch_size=batch_size,
            lr=lr,
            optimizer=optimizer,
            weight_decay=weight_decay,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            n_split_epochs=n_split_epochs,
            missing_party=missing_party,
            missing_rows=missing_rows,
            representation_noise=representation_noise,
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
            If the budget cannot be kept.
        """
        codes = self._encode_classes(y)
        weights = self._row_weights(X, sample_weight, self.class_weight, codes)
        loss = partial(functional.cross_entropy, reduction="none")
        return self._fit(X, y, codes, weights, len(self.classes_), loss)

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
        return softmax(self._serve(X, "predict").astype(np.float64), axis=1)

    def predict(self, X):
        """Predict classes.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            With the columns of ``fit``, in any order where they have names.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Of the data type of ``classes_``.
        """
        codes = self._serve(X, "predict").argmax(axis=1)
        return self.classes_[codes]


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
    guest : transformer, dict of str to transformer or None, default=None
        What turns a guest's prepared columns into its representation; a dict says it
        for each guest by name. Every guest gets a clone with a seed of its own. By
        default a :class:`NoiseAsTargetsEncoder` that is trained with this estimator's
        ``max_epochs``, ``batch_size``, ``lr``, ``optimizer`` and ``weight_decay``; with
        a budget, a :class:`RandomFeaturesEncoder` or, for split epochs, an encoder that
        is not trained before them. ``PCA(3)`` is the paper's FedOnce-PCA. An encoder
        that is given brings its own settings; with a budget its ``lr`` is that of plain
        gradient steps, so set it.
    local : array-like of int or callable, default=(64,)
        The host's local network on its own columns: sizes of the hidden layers of a
        perceptron, or ``local(n_inputs, n_outputs)`` that returns a
        ``torch.nn.Module``. With a budget, that is made of torch's own layers in
        ``nn.Sequential``, or can be traced by ``torch.fx`` without data.
    local_width : int, default=32
        Number of outputs of the local network.
    host : array-like of int or callable, default=(64,)
        The head, given in the same way: the paper's host model. Its inputs are the
        outputs of the local network and every guest's representation, which the host
        standardises (not with a budget).
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
    n_split_epochs : int, default=0
        Epochs of split learning after the one round: multi-round FedOnce. The guests'
        networks, which a :class:`NoiseAsTargetsEncoder` has, go on as they are.
    missing_party : {"raise", "zero"}, default="raise"
        What happens when a guest does not answer: its process died, it took too long
        (:class:`ProcessTransport` has a ``timeout``), it failed, or it holds no value
        of any row that it is asked about. Either a
        :class:`~skvfl.exceptions.PartyError`, or a
        :class:`~skvfl.exceptions.MissingPartyWarning` that names it, and zeros in place
        of its standardised representation: the mean of what it sent in ``fit``. A guest
        that refuses its input is an error in any case.
    missing_rows : {"raise", "impute"}, default="raise"
        What happens in ``fit`` to rows of which a party of two columns or more holds no
        value at all: an error that names the party and counts them, or they are imputed
        like other missing values. Later they are imputed, and a
        :class:`~skvfl.exceptions.MissingRowsWarning` counts them.
    representation_noise : float, default=0.0
        Standard deviation of the Gaussian noise that guests add to what they send. The
        noise is a secret function of the row, so that asking again does not average it
        away; in split epochs it therefore cancels in the difference of two epochs. It
        is added before the host standardises.
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
        How the guests are reached, see :class:`LocalTransport` and
        :class:`ProcessTransport`. The host is this process.
    random_state : int, RandomState instance or None, default=None
        Root of one random stream per party and purpose. ``None`` takes fresh entropy
        from the operating system. Whoever knows the seed knows the noise of private
        training.

    Attributes
    ----------
    answered_ : list of str
        Guests that answered in ``fit``, in their order. The others have no part in the
        model. Who does not answer later is named by the warning.
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
    *Who learns what.* The host sees the representation of every row of every guest, in
    ``fit`` and whenever it predicts, and can train models that invert it; noise on
    representations makes that harder and proves nothing. Guests see nothing at all in
    one-round training: no label, no gradient, nothing of each other. In split epochs
    they see gradients, from which labels can be inferred. Differential privacy protects
    rows from those who are given the trained networks, not from the host, which can
    compute the columns of a default private guest that has no more of them than 32:
    ``epsilon_spent_`` says what is covered.

    In this version a fitted estimator holds every party's networks, so that it can
    predict in one place.

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
            If the budget cannot be kept.
        """
        target = self._encode_target(y)
        self._mean, self._scale = mean_and_scale(target)
        standard = standardised(target, self._mean, self._scale).astype(np.float32)
        weights = self._row_weights(X, sample_weight)
        return self._fit(X, y, standard, weights, 1, _squared_error)

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
        outputs = self._serve(X, "predict").astype(np.float64)
        return outputs[:, 0] * self._scale + self._mean
