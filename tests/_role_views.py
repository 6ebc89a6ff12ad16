"""What each role of a method sees, and searches through it.

A *view* is everything that a role has: the party object that it is handed, what it
receives, what it has afterwards, and what the fitted estimator keeps for it or for
everybody. :func:`observe` fits an estimator and collects the views of all roles.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field

import cloudpickle
import numpy as np
import torch

from skvfl import LocalTransport
from skvfl.privacy._order import Order

SMALL = 2**16  # Whole numbers below it say nothing; most are sizes.
SECRET_BYTES = 8  # A shorter pattern is found by chance.
STATE_WORDS = 624  # Of a Mersenne twister.
MOST_TWISTS = 200

_SeedSequence = np.random.SeedSequence


# Which streams there are


def as_number(entropy):
    """Entropy of a stream as one whole number."""
    if isinstance(entropy, list | tuple | np.ndarray):
        return sum(int(word) << (32 * i) for i, word in enumerate(entropy))
    return int(entropy)


class Streams:
    """The tree of all streams that were made, known by the numbers they come from.

    Who has a number has every stream that comes from it, under whatever key. So the
    number of a fit's root leads to everything that is not behind a one-way function,
    and what is behind one has a number of its own, below it.

    Attributes
    ----------
    first : int
        Number of the root.
    numbers : set of int
        All of them.
    below : dict of int to set of int
        Numbers that were derived from a number in one step.
    patterns : dict of bytes to int
        Bytes that give a number away: its own, and words of its streams, which can be
        inverted.
    increments : dict of int to int
        Number of the stream of a generator of numpy's, by what never changes in it.
    twists : dict of bytes to int
        Number of the stream of a generator of torch's, by the states that it passes.
    """

    def __init__(self):
        self.first = None
        self.numbers = set()
        self.below = defaultdict(set)
        self.patterns = {}
        self.increments = {}
        self.twists = {}

    def made(self, sequence, above):
        """Write down a stream, and the number that it was derived from."""
        number = as_number(sequence.entropy)
        self.first = number if self.first is None else self.first
        if above is not None and above != number:
            self.below[above].add(number)
        if number not in self.numbers and number.bit_length() > 8 * SECRET_BYTES:
            self.patterns[number.to_bytes(-(-number.bit_length() // 8), "little")] = (
                number
            )
        self.numbers.add(number)
        stream = _SeedSequence(number, spawn_key=sequence.spawn_key)
        self.increments[np.random.PCG64(stream).state["state"]["inc"]] = number

    def told(self, sequence, words, derived=None):
        """Write down words of a stream, or the one number that was made of them."""
        number = as_number(sequence.entropy)
        if derived is not None:
            self.numbers.add(derived)
            self.below[number].add(derived)
        elif words.nbytes >= 16:
            self.patterns[words.tobytes()[:16]] = number
        if len(words) == STATE_WORDS:
            self._pass(number, words.astype(np.uint32))

    def _pass(self, number, words):
        twister = np.random.MT19937()
        state = {"key": words, "pos": STATE_WORDS}
        twister.state = {"bit_generator": "MT19937", "state": state}
        for _ in range(MOST_TWISTS):
            self.twists[words.tobytes()[:64]] = number
            twister.random_raw(STATE_WORDS, output=False)
            words = twister.state["state"]["key"]

    def reach(self, number):
        """Numbers that follow from a number, and are not it."""
        found, left = set(), [number]
        while left:
            new = self.below[left.pop()] - found
            found |= new
            left += new
        return found


class _Recorded(_SeedSequence):
    """A stream that is written down when it is made, and when it tells words."""

    streams = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if _Recorded.streams is not None:
            caller = sys._getframe(1)
            above = None
            if caller.f_code.co_name == "one_way":
                above = as_number(caller.f_locals["sequence"].entropy)
            _Recorded.streams.made(self, above)

    def generate_state(self, n_words, dtype=np.uint32):
        words = super().generate_state(n_words, dtype)
        if _Recorded.streams is None:
            return words
        by_int_seed = sys._getframe(1).f_code.co_name == "int_seed"
        _Recorded.streams.told(self, words, int(words[0] >> 1) if by_int_seed else None)
        return words


@contextmanager
def recorded(monkeypatch):
    """Write down all streams that are made."""
    with monkeypatch.context() as patch:
        patch.setattr(np.random, "SeedSequence", _Recorded)
        patch.setattr(_Recorded, "streams", Streams())
        yield _Recorded.streams


# What a role has


@dataclass
class Message:
    """An array that a role received.

    Parameters
    ----------
    what : tuple of str
        Operation, sender and place in the message.
    epoch : int
        Which one, to tell arrays of the same rows apart.
    rows : ndarray of int or None
        Which rows of the table its rows are about.
    array : ndarray
    """

    what: tuple
    epoch: int
    rows: np.ndarray | None
    array: np.ndarray


@dataclass
class View:
    """Everything that one role has."""

    messages: list[Message] = field(default_factory=list)
    numbers: set = field(default_factory=set)
    arrays: list[np.ndarray] = field(default_factory=list)
    blob: bytes = b""

    def take(self, thing, streams):
        """Look through a thing as it is now, and keep its bytes."""
        leaves = list(walk(thing))
        for leaf in leaves:
            self.numbers |= set(numbers_of(leaf, streams))
        arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
        arrays += [column for leaf in leaves for column in listed(leaf)]
        # Later steps may write into them.
        self.arrays += [array.copy() for array in arrays if array.size]
        parts = [np.ascontiguousarray(array).tobytes() for array in arrays]
        parts += [leaf for leaf in leaves if isinstance(leaf, bytes)]
        parts += [leaf.encode() for leaf in leaves if isinstance(leaf, str)]
        parts += [words_of(leaf) for leaf in leaves if isinstance(leaf, list)]
        try:
            parts.append(cloudpickle.dumps(thing))
        except Exception:  # Open ciphers and locks do not travel.
            parts.append(b"")
        blob = b"\0".join(parts)
        self.numbers |= {n for p, n in streams.patterns.items() if p in blob}
        self.blob += blob

    def compute(self, array):
        """Add what the role computes of every row of the table, by itself."""
        self.arrays.append(array)
        rows = np.arange(len(array))
        self.messages.append(Message(("computed",), 0, rows, array))


def listed(leaf):
    """Numbers of a list or dict as an array, if it is one of many numbers."""
    values = list(leaf.values()) if isinstance(leaf, dict) else leaf
    many = isinstance(values, list | tuple) and len(values) > 8
    if many and all(isinstance(value, float | np.floating) for value in values):
        yield np.array(values, float)


def words_of(numbers):
    """Bytes of a list of words."""
    words = [n for n in numbers if isinstance(n, int) and 0 <= n < 2**32]
    return np.array(words, "<u4").tobytes() if len(words) == len(numbers) else b""


def walk(thing):
    """Everything that can be reached from a thing."""
    seen, left, kept = set(), [thing], []
    while left:
        each = left.pop()
        if id(each) in seen or each is None or isinstance(each, bool | type):
            continue
        seen.add(id(each))
        kept.append(each)  # An id belongs to somebody else once its thing is gone.
        if isinstance(each, torch.Tensor):
            each = each.detach().cpu().numpy()
        yield each
        if isinstance(each, np.ndarray) and each.dtype != object:
            continue
        left += parts_of(each)


def parts_of(thing):
    if isinstance(thing, str | bytes | int | float | np.generic | types.ModuleType):
        return []
    if isinstance(thing, dict):
        return [*thing, *thing.values()]
    if isinstance(thing, np.ndarray):
        return list(thing.ravel())
    if isinstance(thing, list | tuple | set | frozenset):
        return list(thing)
    if isinstance(thing, functools.partial):
        return [thing.func, thing.args, thing.keywords]
    if isinstance(thing, types.MethodType):
        return [thing.__self__]
    if isinstance(thing, types.FunctionType):
        defaults = [thing.__defaults__, thing.__kwdefaults__]
        return [*(c.cell_contents for c in thing.__closure__ or ()), *defaults]
    if hasattr(thing, "to_numpy"):
        return [thing.to_numpy()]
    slots = [s for kind in type(thing).__mro__ for s in getattr(kind, "__slots__", ())]
    slots = [getattr(thing, slot, None) for slot in slots if isinstance(slot, str)]
    return [*vars(thing).values(), *slots] if hasattr(thing, "__dict__") else slots


def numbers_of(leaf, streams):
    """Numbers of the streams that a leaf gives away."""
    if isinstance(leaf, _SeedSequence):
        yield as_number(leaf.entropy)
    elif isinstance(leaf, np.random.Generator):
        yield from numbers_of(leaf.bit_generator, streams)
    elif isinstance(leaf, np.random.BitGenerator):
        if isinstance(leaf.seed_seq, _SeedSequence):
            yield as_number(leaf.seed_seq.entropy)
        increment = leaf.state["state"].get("inc")
        if increment in streams.increments:
            yield streams.increments[increment]
    elif isinstance(leaf, torch.Generator):
        if leaf.initial_seed() in streams.numbers:
            yield leaf.initial_seed()
        state = leaf.get_state().numpy()[24 : 24 + 8 * STATE_WORDS].view(np.uint64)
        key = state.astype(np.uint32).tobytes()[:64]
        if key in streams.twists:
            yield streams.twists[key]
    elif isinstance(leaf, int | np.integer):
        number = int(leaf)
        if number >= SMALL and number in streams.numbers:
            yield number


class Watch(LocalTransport):
    """A transport that keeps what every role is handed and receives.

    Parameters
    ----------
    hand_over : callable
        Called with the parties before they are handed over.

    Attributes
    ----------
    received : list of tuple
        Receiver, operation, sender, content, and which epoch and rows it is about.
    """

    def __init__(self, hand_over=None):
        self.hand_over = hand_over
        self.received = []

    def connect(self, parties, log, centre="server"):
        self.hand_over(parties)
        session = super().connect(parties, log, centre)
        return _watched(session, self, {party.name: party for party in parties})


def _watched(session, watch, parties):
    """A session whose calls are written down."""
    call = session.call
    n_rows = max(member.holding.n_rows for member in parties.values())
    order = Order(list(parties.values()), n_rows)

    def listen(operation, *, each=None, reply_to=None, to=None, **arguments):
        order.before(operation, arguments)
        names = session.names if to is None else [n for n in session.names if n in to]
        options = {"to": to, "each": each, "reply_to": reply_to}
        for name in names:
            sent = {**_plain(arguments), **((each or {}).get(name) or {})}
            when = order.epoch, order.rows
            watch.received.append((name, operation, session.centre, sent, when))
        replies = call(operation, **options, **arguments)
        order.after(operation)
        receiver = session.centre if reply_to is None else reply_to
        for name, reply in replies.items():
            when = order.epoch, order.rows
            watch.received.append((receiver, operation, name, reply, when))
        return replies

    session.call = listen
    return session


def _plain(arguments):
    # What tells the session how to call, and is sent to nobody.
    return {k: v for k, v in arguments.items() if k not in ("skip_late", "meanwhile")}


# Fitting and collecting


@dataclass
class Views:
    """The views of all roles of one fit and one prediction."""

    roles: dict[str, View]
    streams: Streams
    estimator: object
    public: set
    received: list


def observe(estimator, X, y, monkeypatch, *, plant=None, of_server=(), overheard=False):
    """Fit, predict, and collect what each role has.

    Parameters
    ----------
    plant : callable or None, default=None
        ``plant(parties, streams)`` may put something into parties that are handed over.
    of_server : iterable of str
        Attributes of the fitted estimator that are the server's.
    overheard : bool, default=False
        Whether every role also gets the messages that are meant for others.
    """
    watch = Watch()
    with recorded(monkeypatch) as streams:
        views = defaultdict(View)
        watch.hand_over = functools.partial(_hand_over, views, streams, plant)
        params = estimator.get_params(deep=False) | {"transport": watch}
        estimator = type(estimator)(**params).fit(X, y)
        estimator.predict(X)
    if overheard:
        _overhear(watch, [*views, "server"] if of_server else [*views])
    _add_messages(views, watch, streams, len(X))
    _add_fitted(views, estimator, streams, of_server)
    public = _public(watch, streams)
    return Views(dict(views), streams, estimator, public, watch.received)


def _overhear(watch, roles):
    """Give every message to everybody."""
    for receiver, operation, sender, content, order in list(watch.received):
        watch.received += [
            (role, operation, sender, content, order)
            for role in roles
            if role not in (receiver, sender)
        ]


def _hand_over(views, streams, plant, parties):
    if plant is not None:
        plant(parties, streams)
    for party in parties:
        views[party.name].take(party, streams)


def _add_messages(views, watch, streams, n_rows):
    for receiver, operation, sender, content, (epoch, rows) in watch.received:
        view = views[receiver]
        view.take(content, streams)
        for place, array in arrays_in(content):
            if len(array) == n_rows and rows is None:
                about = np.arange(n_rows)
            else:
                about = rows if rows is not None and len(rows) == len(array) else None
            message = Message((operation, sender, *place), epoch, about, array)
            view.messages.append(message)


def arrays_in(content, place=()):
    """Arrays of a message, and where they are in it."""
    if isinstance(content, np.ndarray) and content.ndim:
        yield place, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from arrays_in(value, (*place, key))
    elif isinstance(content, list | tuple):
        for i, value in enumerate(content):
            yield from arrays_in(value, (*place, str(i)))


def _add_fitted(views, estimator, streams, of_server):
    """What the fitted estimator keeps, but for its parameters, which are the user's."""
    kept = {k: v for k, v in vars(estimator).items() if k not in estimator.get_params()}
    for name, party in kept.pop("_parties").items():
        views[name].take(party, streams)
    for name in of_server:
        views["server"].take(kept.pop(name), streams)
    if "active_estimator_" in kept:
        views[estimator._active].take(kept.pop("active_estimator_"), streams)
    partition = {k: v for k, v in vars(kept.pop("partition_")).items() if k[-1] == "_"}
    for view in views.values():
        view.take([partition, kept], streams)


def _public(watch, streams):
    """Numbers that were sent to several: seeds of what everybody knows."""
    sent = defaultdict(set)
    for receiver, _, _, content, _ in watch.received:
        view = View()
        view.take(content, streams)
        for number in view.numbers:
            sent[number].add(receiver)
    return {number for number, receivers in sent.items() if len(receivers) > 1}


# Searches


def stream_leaks(views, share=lambda role, other: False):
    """Pairs of roles the first of which has a stream of the second's, or one above it.

    Parameters
    ----------
    share : callable
        Whether two roles may have a stream in common.
    """
    leaks = set()
    for role, view in views.roles.items():
        reach = set().union(*(views.streams.reach(n) for n in view.numbers))
        for other, theirs in views.roles.items():
            secrets = theirs.numbers - views.public
            same = view.numbers & secrets
            if role != other and (reach & secrets or (same and not share(role, other))):
                leaks.add((role, other))
    return leaks


def cells_found(view, column):
    """Share of a column's numbers that stand somewhere in a view."""
    column = np.asarray(column, float)
    best = 0.0
    for array in view.arrays:
        if array.dtype.kind != "f" or array.size < len(column) / 2:
            continue
        numbers = np.sort(array.ravel().astype(float))
        place = np.searchsorted(numbers, column).clip(1, len(numbers) - 1)
        gap = np.minimum(abs(numbers[place] - column), abs(numbers[place - 1] - column))
        best = max(best, float((gap <= 3e-7 * np.maximum(1, abs(column))).mean()))
    sample = column[:: max(1, len(column) // 12)]
    in_bytes = [each.tobytes() in view.blob for each in sample]
    return max(best, float(np.mean(in_bytes)))


def matrices(view):
    """Arrays about all rows of the table, each as a matrix with a line for each row."""
    groups = defaultdict(list)
    for message in view.messages:
        if message.rows is not None and message.array.dtype.kind in "fui":
            groups[message.what, message.epoch].append(message)
    n_rows = max((m.rows.max() + 1 for g in groups.values() for m in g), default=0)
    for (what, _), group in groups.items():
        width = int(np.prod(group[0].array.shape[1:]))
        whole = np.full((n_rows, width), np.nan)
        for message in group:
            array = message.array
            if array.dtype.kind == "u" and array.itemsize > 1:
                array = array.view(array.dtype.str.replace("u", "i"))  # Fixed point.
            whole[message.rows] = array.reshape(len(array), -1)
        known = ~np.isnan(whole).any(axis=1)
        if known.mean() > 0.5:
            yield what, known, whole


def r_squared(inputs, targets):
    """Share of held-out rows' variance that a linear map of the inputs explains."""
    scale = inputs.std(axis=0)
    inputs = inputs[:, scale > 1e-12] / scale[scale > 1e-12]
    if not inputs.shape[1]:
        return np.zeros(targets.shape[1])
    inputs = np.column_stack([inputs - inputs.mean(axis=0), np.ones(len(inputs))])
    train = np.arange(len(inputs)) % 3 > 0
    found = np.linalg.lstsq(inputs[train], targets[train], rcond=1e-6)[0]
    left = ((targets[~train] - inputs[~train] @ found) ** 2).mean(axis=0)
    return np.clip(1 - left / targets[~train].var(axis=0), 0, 1)


def reconstruction(view, targets, where=lambda what: True):
    """How well columns are linear in what a role received, at best.

    Parameters
    ----------
    targets : ndarray of shape (n_rows, n_columns)
        Columns of somebody else.
    where : callable
        Which messages to look at.

    Returns
    -------
    r2 : ndarray of shape (n_columns,)
        The largest over single messages, and over the last messages together.
    """
    received = [each for each in matrices(view) if where(each[0])]
    best = np.zeros(targets.shape[1])
    for _, known, whole in received:
        best = np.maximum(best, r_squared(whole[known], targets[known]))
    if len(received) > 1:
        last = {what: (known, whole) for what, known, whole in received}
        known = np.logical_and.reduce([known for known, _ in last.values()])
        if known.mean() > 0.5:
            together = np.hstack([whole for _, whole in last.values()])
            together = together[:, : known.sum() // 4]
            best = np.maximum(best, r_squared(together[known], targets[known]))
    return best
