"""What vFedSec's masks cost: beside no masks, and beside homomorphic encryption.

Prints one JSON object per line. All sides of a comparison are measured in turns in this
process, in CPU seconds with one thread; figures are medians of the repetitions, and a
spread is their smallest and largest. The full run is recorded in docs/benchmarks, from
where ``--write-docs`` makes the page of the benchmarks.

Needs adult, bank_marketing and fashion_mnist_30k.npz in the folder that the environment
variable SKVFL_DATA names. The homomorphic side needs ``pip install tenseal``; Paillier
is measured where phe is installed (its licence is the GPL). Both are left out where
they are missing.

    python bench_vfedsec.py [--quick | --write-docs]
"""

import time
import uuid
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, product
from math import ceil
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from _data import folder
from _measure import interleave, machine, per_epoch, timed
from _measure import ratio as ratio_of
from _page import listing, met, rows_of, table, write
from _record import command, one, run, select
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from skvfl import (
    ImageTiles,
    SplitNNClassifier,
    VerticalPartitioner,
    VFedSecClassifier,
    record_communication,
)
from skvfl.datasets import load
from skvfl.federation import Party, _wire
from skvfl.nn import ConvolutionalBottom
from skvfl.privacy import Aggregator, FixedPoint, KeyRing, Masker
from skvfl.vfedsec import _active, _agreement, _parties

BATCH = 256
ROUNDS = 5
SLOTS = 4096
# Calls of the masked path in one measurement.
CALLS = {"one": 200, "five": 50}
# Degree 8192; the first chain of moduli is TenSEAL's own for this degree, the second
# the shortest that leaves one multiplication.
CHAINS = {"packed": (60, 40, 40, 60), "packed, shortest moduli": (60, 40, 60)}
BY_ROW = "a ciphertext per row"
CATEGORIES = {
    "adult": "workclass occupation marital-status relationship race gender "
    "native-country educational-num",
    "bank_marketing": "housing loan contact day month poutcome default job marital "
    "education",
}


# Measuring


def ratio(what, over, under, *, at_most=None, at_least=None, **context):
    """One line: median and spread of the ratios of one repetition each."""
    seen = ratio_of(over, under, rounded=float)
    return {
        **judged(what, seen["ratio"], at_most=at_most, at_least=at_least),
        "spread": [figures(end) for end in seen["spread"]],
        "over": figures(median(over)),
        "under": figures(median(under)),
        **context,
    }


def judged(what, value, *, at_most=None, at_least=None, **context):
    """One line with a ratio, and whether it meets its bar."""
    line = {"what": what, "ratio": figures(value)}
    if at_most is not None:
        line |= {"bar": f"at most {at_most}", "met": bool(value <= at_most)}
    if at_least is not None:
        line |= {"bar": f"at least {at_least}", "met": bool(value >= at_least)}
    return line | context


def shares(what, values, **context):
    """One line: median and spread of shares, one of each repetition."""
    spread = [figures(min(values)), figures(max(values))]
    return {**judged(what, median(values), **context), "spread": spread}


def figures(value):
    """Four significant digits."""
    return float(f"{value:.4g}")


@contextmanager
def stopwatch():
    """CPU seconds of every party's operations, column preparation aside.

    In ``spent.secrets``, those of them that go into masks, sealed ids and sealed keys.
    """
    spent = Counter()
    spent.secrets = Counter()
    at_work = []
    perform = Party.perform
    places = [(Masker, "_add_masks"), (Masker, "unmask"), (_active, "seal_ids")]
    places += [(_parties, "open_ids")]
    places += [(_agreement, name) for name in ("seal_key", "open_key")]

    def act(party, operation, arguments):
        at_work[:] = [party.name]
        start = time.process_time()
        try:
            return perform(party, operation, arguments)
        finally:
            if operation != "prepare":
                spent[party.name] += time.process_time() - start

    def secret(function):
        def act(*arguments, **options):
            start = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                spent.secrets[at_work[0]] += time.process_time() - start

        return act

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(Party, "perform", act))
        for where, name in places:
            replaced = secret(getattr(where, name))
            patches.enter_context(mock.patch.object(where, name, replaced))
        yield spent


# The paper's settings


class Setting(NamedTuple):
    """One data set as the paper deals it.

    ``held`` is how many columns the last linear layer of each local module is given:
    what would be multiplied under encryption.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    parties: Any
    active: str
    clustered: tuple
    network: dict
    held: dict

    def model(self, masked, n_rows):
        """Classifier for this many rows, each cluster's cut in order into two."""
        half = (np.arange(n_rows) >= n_rows / 2).astype(int)
        return VFedSecClassifier(
            parties=VerticalPartitioner("passthrough", parties=self.parties),
            active=self.active,
            clients=dict.fromkeys(self.clustered, half),
            max_epochs=1,
            batch_size=BATCH,
            lr=0.01,
            rotate_every=ROUNDS,
            masked=masked,
            random_state=0,
            **self.network,
        )


def tabular(name):
    """Adult or banking: linear local modules on one-hot columns, 5 clients."""
    bunch = load(name)
    categorical = CATEGORIES[name].split()
    parts, parties, stop = [], {}, 0
    for party, columns in bunch.parties.items():
        start = stop
        for column in columns:
            values = bunch.data[[column]]
            if column in categorical:
                encoder = OneHotEncoder(sparse_output=False)
                parts.append(encoder.fit_transform(values.fillna("?").astype(str)))
            else:
                parts.append(StandardScaler().fit_transform(values))
            stop += parts[-1].shape[1]
        parties[party] = np.arange(start, stop)
    passive = tuple(parties)[1:]
    return Setting(
        name,
        np.hstack(parts).astype(np.float32),
        bunch.target.to_numpy(),
        parties,
        "active",
        passive,
        {"bottom": (), "top": (), "cut_width": 64},
        {party: len(columns) for party, columns in parties.items()},
    )


def images(network):
    """Fashion-MNIST: 4 clients with a slice of 7 × 28 pixels each."""
    networks = {
        "CNN": ({"bottom": ConvolutionalBottom((7, 28)), "top": (120,)}, 600, 448),
        "MLP": ({"bottom": (32,), "top": (256, 128, 64)}, 128, 32),
    }
    modules, width, held = networks[network]
    with np.load(folder() / "fashion_mnist_30k.npz") as archive:
        rows = slice(2 * ROUNDS * BATCH)
        X = archive["x_train"][rows].reshape(-1, 784).astype(np.float32) / 255
        y = archive["y_train"][rows]
    return Setting(
        f"fashion_mnist, {network}",
        X,
        y,
        ImageTiles(shape=(28, 28), tiles=(4, 1)),
        "party0",
        (),
        {**modules, "cut_width": width},
        dict.fromkeys(("party0", "party1", "party2", "party3"), held),
    )


def by_party(setting, repetitions):
    """Tables 1 and 2: CPU seconds and megabytes per party, training and testing."""
    n_rows = ROUNDS * BATCH
    X, y = setting.X[:n_rows], setting.y[:n_rows]
    X_test = setting.X[n_rows : 2 * n_rows]
    models = {masked: setting.model(masked, n_rows) for masked in (True, False)}
    phases = {
        "training": lambda model: model.fit(X, y),
        "testing": lambda model: model.predict(X_test),
    }
    seconds = {(masked, phase): [] for masked in models for phase in phases}
    secrets = {phase: [] for phase in phases}
    for repetition in range(repetitions + 1):
        for (masked, model), (phase, act) in product(models.items(), phases.items()):
            with stopwatch() as spent:
                _, spent["all"] = timed(act, model)
            if repetition:
                seconds[masked, phase].append(shared(spent, setting.active))
                if masked:
                    every = {**spent, **spent.secrets, "all": spent.secrets.total()}
                    secrets[phase].append(shared(every, setting.active))
    for phase, act in phases.items():
        sent = {m: megabytes(act, models[m], phase, setting.active) for m in models}
        for who in ("active", "passive", "all"):
            context = {"data": setting.name, "phase": phase, "who": who}
            first = who == "active" and phase == "training"
            at_most = 0.25 if first and setting.name == "adult" else None
            secure, plain = ([x[who] for x in seconds[m, phase]] for m in models)
            alone = [x[who] for x in secrets[phase]]
            more = [a - b for a, b in zip(secure, plain, strict=True)]
            yield shares(
                "masks and sealed ids / total CPU",
                [a / b for a, b in zip(alone, secure, strict=True)],
                at_most=at_most,
                **context,
            )
            yield {
                **shares(
                    "overhead / total CPU",
                    [a / b for a, b in zip(more, secure, strict=True)],
                    at_most=at_most,
                    **context,
                ),
                "seconds": figures(median(secure)),
                "overhead": figures(median(more)),
            }
            yield judged(
                "bytes secured / plain",
                sent[True][who] / sent[False][who],
                at_most=1.25 if first and setting.name == "bank_marketing" else None,
                **context,
                megabytes=figures(sent[True][who]),
                overhead=figures(sent[True][who] - sent[False][who]),
            )


def megabytes(act, model, phase, active):
    """What every party sends and receives in one phase."""
    with record_communication() as log:
        act(model)
    log = model.communication_ if phase == "training" else log
    sizes = {
        name: (row["bytes_sent"] + row["bytes_received"]) / 1e6
        for name, row in log.by_party().items()
        if name != "server"
    }
    return shared({**sizes, "all": log.n_bytes / 1e6}, active)


def shared(amounts, active):
    """The active party's, the mean of the passive ones, and all together."""
    passive = [x for name, x in amounts.items() if name not in (active, "all")]
    return {
        "active": amounts[active],
        "passive": sum(passive) / len(passive),
        "all": amounts["all"],
    }


# Epochs


def epochs(adult, quick, repetitions):
    """Epoch of vFedSec over the same graph without masks, and over SplitNN."""
    n_rows, n_epochs = (5_000, 1) if quick else (24_000, 2)
    X, y = adult.X[:n_rows], adult.y[:n_rows]
    wide = {"bottom": (512, 256), "top": (512,), "cut_width": 64}
    networks = {
        "hidden (64,), cut 32 (the defaults)": {},
        "linear, cut 64 (the paper's for adult)": adult.network,
        "hidden (512, 256), cut 64": wide,
    }
    for name, network in networks.items():
        common = {
            "parties": VerticalPartitioner("passthrough", parties=5),
            "max_epochs": n_epochs,
            "batch_size": BATCH,
            "random_state": 0,
            **network,
        }
        models = {
            "masked": VFedSecClassifier(**common),
            "unmasked": VFedSecClassifier(**common, masked=False),
            "splitnn": SplitNNClassifier(**common, aggregation="sum"),
        }
        sides = {key: partial(model.fit, X, y) for key, model in models.items()}
        masked, unmasked, split = interleave(repetitions, sides).values()
        context = {"network": name, "rows": n_rows, "epochs": n_epochs, "parties": 5}
        at_most = 1.25 if not network else None
        what = "vFedSec epoch / unmasked"
        yield ratio(what, masked, unmasked, at_most=at_most, **context)
        yield ratio("vFedSec epoch / SplitNN(sum) epoch", masked, split, **context)


def through_autograd(quick, repetitions):
    """Epoch of vFedSec over an unmasked one of the same networks as users' modules.

    These go through autograd, as all networks did before their passes were written out.
    What calls and messages cost has fallen since on both sides. An epoch is the
    difference of two numbers of epochs, so that opening the run does not count.
    """

    def module(*sizes, first=()):
        layers = [nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:])]
        return nn.Sequential(*first, *layers)

    n_rows, n_epochs = (6_400, (1, 2)) if quick else (12_800, (1, 3))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, 52)).astype(np.float32)
    y = (X @ rng.standard_normal(52) > 0).astype(int)
    common = {"parties": 4, "random_state": 0}
    models = {
        "masked": VFedSecClassifier(**common),
        "autograd": VFedSecClassifier(
            **common,
            masked=False,
            bottom=lambda n_inputs, n_outputs: module(n_inputs, 64, n_outputs),
            top=lambda n_inputs, n_outputs: module(
                n_inputs, 64, n_outputs, first=[nn.ReLU()]
            ),
        ),
    }
    sides = {
        key: lambda n, model=model: model.set_params(max_epochs=n).fit(X, y)
        for key, model in models.items()
    }
    masked, autograd = per_epoch(repetitions, n_epochs, sides).values()
    context = {"network": "hidden (64,), cut 32 (the defaults)", "parties": 4}
    what = "vFedSec epoch / unmasked through autograd"
    yield ratio(what, masked, autograd, at_most=1.0, **context)


# Parties


def growth(quick, repetitions):
    """CPU and bytes of an epoch by number of parties, two columns each."""
    n_parties = (100, 200) if quick else (10, 25, 50, 100, 200)
    models = {
        n: VFedSecClassifier(parties=n, max_epochs=1, random_state=0) for n in n_parties
    }
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1280, 2 * max(n_parties))).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    sides = {n: partial(model.fit, X[:, : 2 * n], y) for n, model in models.items()}
    seconds = interleave(3 if quick else repetitions, sides)
    sizes = {n: model.communication_.n_bytes for n, model in models.items()}
    for n in n_parties:
        yield {
            "what": "epoch by number of parties",
            "parties": n,
            "seconds": figures(median(seconds[n])),
            "megabytes": figures(sizes[n] / 1e6),
        }
    for what, found in {
        "CPU": [
            np.log2(b / a) for a, b in zip(seconds[100], seconds[200], strict=True)
        ],
        "bytes": [np.log2(sizes[200] / sizes[100])],
    }.items():
        yield shares(f"exponent of {what}, 100 to 200 parties", found, at_most=1.15)
    yield judged("megabytes of an epoch, 200 parties", sizes[200] / 1e6, at_most=80)


# Masks beside homomorphic encryption


class Sum:
    """A secure sum whose clients and server have agreed on keys."""

    def __init__(self, n_clients, bits=32):
        self.names = [f"client{i}" for i in range(n_clients)]
        rings = {name: KeyRing(name) for name in (*self.names, "server")}
        self.agreement_seconds = timed(self._agree, rings)[1] / len(rings)
        numbers = FixedPoint(n_clients, bound=1000.0, bits=bits)
        self.maskers = [Masker(rings[n], self.names, numbers) for n in self.names]
        self._aggregator = Aggregator(rings["server"], self.names, numbers)
        self._rounds = count()

    @staticmethod
    def _agree(rings):
        session = uuid.uuid4().hex

        def deliver(sent, name):
            return {peer: sent[peer][name] for peer in rings if peer != name}

        keys = {
            name: ring.public_keys(set(rings) - {name}, session=session, epoch=0)
            for name, ring in rings.items()
        }
        proofs = {name: ring.agree(deliver(keys, name)) for name, ring in rings.items()}
        for name, ring in rings.items():
            ring.confirm(deliver(proofs, name))

    def one_client(self, X, W=None):
        """The first client's work: the product, if any, and its masked message."""
        values = X if W is None else X @ W
        return self.maskers[0].mask(values, round_id=next(self._rounds))

    def everybody(self, X, W):
        """All clients' products, their sum at the server, decoded."""
        round_id = next(self._rounds)
        messages = {
            name: masker.mask(X @ W, round_id=round_id)
            for name, masker in zip(self.names, self.maskers, strict=True)
        }
        return self._aggregator.total(messages, round_id=round_id)


class Packed:
    """CKKS with one ciphertext per column, a slot for each row."""

    def __init__(self, tenseal, moduli):
        self._tenseal = tenseal
        settings = {"coeff_mod_bit_sizes": list(moduli), "n_threads": 1}
        self._context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, **settings)
        self._context.global_scale = 2.0 ** moduli[1]

    def encrypt(self, X):
        """Encrypt the columns."""
        return self._tenseal.ckks_tensor(self._context, X[:, None, :], batch=True)

    def product(self, X, W):
        """Encrypt, and multiply by a matrix in the clear."""
        return self.encrypt(X).mm(self._tenseal.plain_tensor(W))

    def decrypted(self, X, W):
        """The product, decrypted."""
        return np.array(self.product(X, W).decrypt().tolist())[:, 0]

    def full_ciphertext(self):
        """Bytes of a ciphertext with a number in each slot."""
        vector = self._tenseal.ckks_vector(self._context, np.linspace(-1, 1, SLOTS))
        return len(vector.serialize())


class ByRow(Packed):
    """CKKS with one ciphertext per row."""

    def __init__(self, tenseal, moduli):
        super().__init__(tenseal, moduli)
        self._context.generate_galois_keys()

    def encrypt(self, X):
        """Encrypt the rows."""
        return [self._tenseal.ckks_vector(self._context, row) for row in X]

    def product(self, X, W):
        """Encrypt, and multiply each row by a matrix in the clear."""
        return [row.matmul(W) for row in self.encrypt(X)]

    def decrypted(self, X, W):
        """The product, decrypted."""
        return np.array([row.decrypt() for row in self.product(X, W)])


def product_operands(n_rows):
    """A batch and a weight matrix as in the paper's ablation."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n_rows, 8)), rng.normal(size=(8, 8)) / 4


def encryption(quick, repetitions):
    """One product (256 × 8) @ (8 × 8): masks against CKKS and Paillier."""
    X, W = product_operands(BATCH)
    floats = X.astype(np.float32), W.astype(np.float32)
    masks = Sum(5)
    assert np.allclose(masks.everybody(*floats), 5 * X @ W, atol=1e-3)
    ours = {
        "one": partial(masks.one_client, *floats),
        "five": partial(masks.everybody, *floats),
    }
    message_bytes = _wire.measure(masks.one_client(*floats))[0]
    try:
        import tenseal
    except ImportError:
        yield {"what": "CKKS", "skipped": "pip install tenseal"}
    else:
        more = ours, message_bytes, repetitions
        for name, moduli in CHAINS.items():
            bars = (690, 250) if name == "packed" else (None, None)
            yield from against_ckks(name, Packed(tenseal, moduli), X, W, bars, *more)
        scheme, rows = ByRow(tenseal, CHAINS["packed"]), X[: 16 if quick else 64]
        yield from against_ckks(BY_ROW, scheme, rows, W, (None, 10_000), *more)
        yield from batch_sizes(tenseal, quick, repetitions)
    try:
        from phe import paillier
    except ImportError:
        yield {"what": "Paillier", "skipped": "phe is not installed"}
    else:
        yield from against_paillier(paillier, X[:1], W, ours, min(repetitions, 3))


def against_ckks(name, scheme, X, W, bars, ours, message_bytes, repetitions):
    """One way of packing against the masked path."""
    assert np.allclose(scheme.decrypted(X, W), X @ W, atol=1e-3)
    factor = BATCH / len(X)
    theirs = {
        "encrypt": partial(scheme.encrypt, X),
        "product": partial(scheme.product, X, W),
        "end_to_end": partial(scheme.decrypted, X, W),
    }
    seconds = interleave(repetitions, ours | theirs, CALLS)
    encrypt, product, whole = ([factor * s for s in seconds[side]] for side in theirs)
    both = [4 * a + b for a, b in zip(product, whole, strict=True)]
    context = {"packing": name, "rows_measured": len(X)}
    yield ratio(
        "CKKS / masked path, the encrypting party alone",
        product,
        seconds["one"],
        at_least=bars[0],
        encrypt=figures(median(encrypt)),
        **context,
    )
    what = "CKKS / masked path, end to end"
    yield ratio(what, whole, seconds["five"], at_least=bars[1], **context)
    what = "CKKS / masked path, five clients on both sides"
    yield ratio(what, both, seconds["five"], **context)
    ciphertexts = scheme.encrypt(X)
    if not isinstance(ciphertexts, list):
        ciphertexts = [ciphertexts]
    size = factor * sum(len(each.serialize()) for each in ciphertexts)
    yield judged(
        "bytes CKKS / masked message",
        size / message_bytes,
        at_least=9.6 if name == "packed" else None,
        **context,
        megabytes=figures(size / 1e6),
        masked_megabytes=figures(message_bytes / 1e6),
        full_ciphertext=scheme.full_ciphertext(),
    )


def against_paillier(paillier, X, W, ours, repetitions):
    """Paillier at phe's default key size, extrapolated from one row."""
    public, private = paillier.generate_paillier_keypair()

    def multiply():
        encrypted = [public.encrypt(float(x)) for x in X[0]]
        return [
            sum(e * float(w) for e, w in zip(encrypted, column, strict=True))
            for column in W.T
        ]

    def end_to_end():
        return [private.decrypt(each) for each in multiply()]

    assert np.allclose(end_to_end(), (X @ W)[0])
    sides = {**ours, "product": multiply, "whole": end_to_end}
    one, five, product, whole = interleave(repetitions, sides, CALLS).values()
    context = {"rows_measured": 1, "key": public.n.bit_length()}
    for what, theirs, mine in (
        ("the encrypting party alone", product, one),
        ("end to end", whole, five),
    ):
        whole_batch = [BATCH * s for s in theirs]
        yield ratio(f"Paillier / masked path, {what}", whole_batch, mine, **context)


def batch_sizes(tenseal, quick, repetitions):
    """Figure 2: the same product for several batch sizes."""
    scheme, masks = Packed(tenseal, CHAINS["packed"]), Sum(5)
    for n_rows in (64, 256) if quick else (64, 128, 256, 512, 1024):
        X, W = product_operands(n_rows)
        sides = {
            "masked": partial(masks.one_client, *map(np.float32, (X, W))),
            "packed": partial(scheme.product, X, W),
        }
        masked, packed = interleave(repetitions, sides, {"masked": 100}).values()
        what = "CKKS / masked path by batch size"
        yield ratio(what, packed, masked, packing="packed", batch=n_rows)


def estimates(settings, lines):
    """Tables 1 and 2 under encryption, from what one product costs, as in the paper.

    Each round, each client encrypts what its last linear layer is given, multiplies,
    and sends its part of the secure layer in full ciphertexts; nothing is decrypted.
    Clients of a cluster also encrypt the gradient of the linear layer that they share,
    which vFedSec masks.
    """
    measured = {line["what"]: line for line in lines if line.get("packing") == "packed"}
    if not measured:
        return
    whole = measured["CKKS / masked path, the encrypting party alone"]
    size = measured["bytes CKKS / masked message"]["full_ciphertext"]
    column = whole["encrypt"] / 8
    weight = (whole["over"] - whole["encrypt"]) / 64
    trained = select(lines, what="bytes secured / plain", phase="training")
    for setting in settings:
        width = setting.network["cut_width"]
        seconds, sent = {"all": 0}, {"all": 0}
        for name, held in setting.held.items():
            n_ciphertexts = ceil(BATCH * width / SLOTS)
            if name in setting.clustered:
                n_ciphertexts += ceil(held * width / SLOTS)
            seconds[name] = ROUNDS * held * (column + weight * width)
            sent[name] = ROUNDS * n_ciphertexts * size / 1e6
        seconds, sent = (shared(each, setting.active) for each in (seconds, sent))
        for who in ("active", "passive"):
            ours = one(trained, data=setting.name, who=who)
            plain = ours["megabytes"] - ours["overhead"]
            yield judged(
                "estimated bytes under CKKS / vFedSec, training",
                (plain + sent[who]) / ours["megabytes"],
                at_least=9.6,
                data=setting.name,
                who=who,
                megabytes=figures(plain + sent[who]),
                overhead=figures(sent[who]),
                seconds=figures(seconds[who]),
            )


# Masks alone


def mask_costs(quick, repetitions):
    """Table 3: one client's masks by number of clients, and by speed of the cipher."""
    values = np.random.default_rng(0).normal(size=(BATCH, 64)).astype(np.float32)
    sums = {n: Sum(n) for n in (2, 5, 20, 100)}
    calls = {n: max(1, (20 if quick else 200) // n) for n in sums}
    sides = {n: partial(each.one_client, values) for n, each in sums.items()}
    seconds = interleave(repetitions, sides, calls)
    for n, each in sums.items():
        yield {
            "what": "masks of one client",
            "clients": n,
            "seconds": figures(median(seconds[n])),
            "key_agreement_seconds": figures(each.agreement_seconds),
        }
    _, five, twenty, hundred = seconds.values()
    yield ratio(
        "cost of one more client: from 20 to 100 / from 5 to 20",
        [(b - a) / 80 for a, b in zip(twenty, hundred, strict=True)],
        [(b - a) / 15 for a, b in zip(five, twenty, strict=True)],
    )
    for bits, shape in ((32, (256, 64)), (32, (1024, 256)), (64, (1024, 256))):
        yield keystream(bits, shape, repetitions)


def keystream(bits, shape, repetitions):
    """Masks per second, added to numbers, over key stream per second."""
    masker = Sum(5, bits).maskers[0]
    total = np.zeros(np.prod(shape), f"<u{bits // 8}")
    chunk = memoryview(bytes(1 << 16))
    buffer = bytearray(1 << 16)
    stream = Cipher(algorithms.AES256(bytes(32)), modes.CTR(bytes(16))).encryptor()
    n_chunks = 4 * total.nbytes // len(chunk)
    nonces = (n.to_bytes(8, "big") for n in count())

    def cipher():
        for _ in range(n_chunks):
            stream.update_into(chunk, buffer)

    n_calls = max(1, (1 << 25) // total.nbytes // 4)
    seconds = interleave(
        repetitions,
        {"masks": lambda: masker._add_masks(total, next(nonces)), "cipher": cipher},
        {"masks": n_calls, "cipher": n_calls},
    )
    return ratio(
        "mask throughput / key stream",
        seconds["cipher"],
        seconds["masks"],
        at_least=0.6,
        bits=bits,
        shape=list(shape),
        gigabytes_per_second=figures(4 * total.nbytes / median(seconds["masks"]) / 1e9),
    )


def measure(quick):
    """Everything, line by line."""
    repetitions = 5 if quick else 9
    yield {"what": "machine", **machine(quick), "repetitions": repetitions}
    settings = [*map(tabular, CATEGORIES), images("MLP"), images("CNN")]
    lines = []
    for part in (
        mask_costs(quick, repetitions),
        encryption(quick, repetitions),
        *(by_party(s, 3 if quick else 2 * repetitions) for s in settings),
        epochs(settings[0], quick, repetitions),
        through_autograd(quick, repetitions),
        growth(quick, repetitions),
    ):
        for line in part:
            lines.append(line)
            yield line
    yield from estimates(settings, lines)


# The page

ADULT, BANK = "adult", "bank_marketing"
CNN, MLP = "fashion_mnist, CNN", "fashion_mnist, MLP"
# By data and party: CPU seconds of training in all and as overhead, and of testing
# (Tables 1 and 4); the same in megabytes (Table 2; our copy of the paper has no table
# for the MLP); SEAL's CPU seconds and megabytes in training.
PAPER = """
adult|active|0.7379 0.1909 0.2738 0.1889|0.88 0.14 0.57 0.14|509.3 8.41
adult|passive|0.1588 0.1143 0.1413 0.1124|0.85 0.13 0.44 0.13|388.5 8.39
bank_marketing|active|1.044 0.1881 0.3057 0.1864|0.88 0.14 0.57 0.14|1075 8.41
bank_marketing|passive|0.1633 0.1089 0.1363 0.1075|0.79 0.13 0.44 0.13|111.3 8.32
fashion_mnist, CNN|active|1.016 0.324 0.6286 0.3189|6.24 0.21 3.31 0.21|79180 76.85
fashion_mnist, CNN|passive|0.8504 0.2301 0.5282 0.23|5.99 0.05 3.06 0.05|79180 76.6
fashion_mnist, MLP|active|0.5438 0.3304 0.4723 0.3301||1207
fashion_mnist, MLP|passive|0.3947 0.2003 0.3338 0.2003||1207
"""


def paper(column):
    """One column of the paper's numbers, by data and party."""
    return {
        (data, who): [*map(float, cells[column].split())]
        for data, who, *cells in rows_of(PAPER)
        if cells[column]
    }


PAPER_SECONDS, PAPER_MEGABYTES, PAPER_SEAL = map(paper, range(3))
COLUMNS = ["Data", "Party", "Training", "Overhead", "Share", "Testing"]
COLUMNS += ["Overhead", "Share"]


def number(value, digits=3):
    """Few significant digits, without exponents."""
    if value is None:
        return "—"
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.{digits}g}"


def spread(line):
    """Ratio and its range."""
    low, high = line["spread"]
    return f"{number(line['ratio'])} ({number(low)} to {number(high)})"


def column(field, scale=1):
    """Write a field of a line."""
    return lambda line: number(scale * line[field])


def bars_table(lines):
    """All measurements that have a bar."""
    rows = []
    for line in (line for line in lines if "bar" in line):
        fields = ("network", "data", "phase", "who", "packing")
        where = ", ".join(line[field] for field in fields if field in line)
        if "bits" in line:
            where = "{bits} bits, {shape[0]} × {shape[1]}".format_map(line)
        seen = spread(line) if "spread" in line else number(line["ratio"], 4)
        rows.append((line["what"], where, line["bar"], seen, met(line["met"])))
    header = ("What", "Where", "Bar", "Seen: median (range)", "Met")
    return listing("Bars", header, rows)


def totals(total, overhead, scale=1):
    """Cells of a total, an overhead, and its share."""
    share = f"{100 * (overhead / total):.3g} %"
    return number(scale * total), number(scale * overhead), share


def ours_table(lines, what, total, scale, title):
    """Tables 1 and 2 as measured here."""
    rows = []
    for data, who in product((ADULT, BANK, CNN, MLP), ("active", "passive", "all")):
        row = [data, who]
        for phase in ("training", "testing"):
            line = one(lines, what=what, data=data, phase=phase, who=who)
            row += totals(line[total], line["overhead"], scale)
        rows.append(row)
    return listing(title, COLUMNS, rows)


def paper_table(numbers, title):
    """Tables 1 and 2 as published."""
    rows = [
        (*of, *totals(*values[:2]), *totals(*values[2:]))
        for of, values in numbers.items()
    ]
    return listing(title, COLUMNS, rows)


def product_table(lines):
    """One product under each scheme."""
    names = {name: ("CKKS", {"packing": name}) for name in (*CHAINS, BY_ROW)}
    names["Paillier, a ciphertext per number"] = ("Paillier", {})
    sides = ("the encrypting party alone", "end to end", "five clients on both sides")
    rows = []
    for name, (scheme, where) in names.items():
        found = [
            select(lines, what=f"{scheme} / masked path, {side}", **where)
            for side in sides
        ]
        if found[0]:
            milliseconds = number(1e3 * found[0][0]["over"])
            ratios = [spread(*each) if each else "—" for each in found]
            size = select(lines, what=f"bytes {scheme} / masked message", **where)
            size = number(size[0]["ratio"] if size else None)
            rows.append((name, milliseconds, *ratios, size))
    ours = ("÷ one client masked", "End to end ÷ five clients masked")
    both = ("Five clients on both sides", "Bytes ÷ masked")
    header = ("Scheme", "Encrypt and multiply, ms", *ours, *both)
    return listing("Ours: (256 × 8) @ (8 × 8)", header, rows)


def estimate_table(lines):
    """Training under encryption, estimated."""
    what = "estimated bytes under CKKS / vFedSec, training"
    rows = []
    for line in select(lines, what=what):
        where = {"data": line["data"], "who": line["who"]}
        ours = one(lines, what="overhead / total CPU", phase="training", **where)
        masks, seconds = ours["overhead"], line["seconds"]
        cells = masks, seconds, seconds / masks, line["megabytes"], line["ratio"]
        seal, *size = PAPER_SEAL[line["data"], line["who"]]
        cells = *cells, seal, *(size or [None])
        rows.append((*where.values(), *map(number, cells)))
    costs = ("Masks, s", "CKKS, s", "Ratio", "CKKS, MB in all", "÷ vFedSec's")
    header = ("Data", "Party", *costs, "Paper's SEAL, s", "Paper's SEAL, MB")
    return listing("Ours, and the paper's last", header, rows)


def epoch_table(lines):
    """Epochs."""
    split = "vFedSec epoch / SplitNN(sum) epoch"
    columns = {
        "Network": "{network}",
        "÷ the same without masks": spread,
        "÷ SplitNN, sum": lambda line: spread(
            one(lines, what=split, network=line["network"])
        ),
    }
    shown = select(lines, what="vFedSec epoch / unmasked")
    return table("Ours: adult, 5 parties, batch 256", shown, columns)


def write_page(lines):
    """Write the page of the benchmarks."""
    where = {"data": ADULT, "phase": "training", "who": "active"}
    active = one(lines, what="overhead / total CPU", **where)
    total, overhead, *_ = PAPER_SECONDS[ADULT, "active"]
    paillier = "Paillier was not measured: phe was not installed."
    if select(lines, what="Paillier / masked path, end to end"):
        paillier = (
            "Paillier is that of phe with its default key, extrapolated from one row."
        )
    linear = "cost of one more client: from 20 to 100 / from 5 to 20"
    sizes = [
        line["full_ciphertext"]
        for line in select(lines, what="bytes CKKS / masked message")
    ]
    write(
        "vfedsec_benchmarks",
        machine=one(lines, what="machine"),
        bars=bars_table(lines),
        missed=missed_list(lines),
        seconds=ours_table(
            lines, "overhead / total CPU", "seconds", 1e3, "Ours, milliseconds"
        ),
        paper_seconds=paper_table(PAPER_SECONDS, "The paper's, seconds"),
        secrets=spread(one(lines, what="masks and sealed ids / total CPU", **where)),
        plain_ms=number(1e3 * (active["seconds"] - active["overhead"])),
        paper_plain_ms=number(1e3 * (total - overhead)),
        mask_ms=number(1e3 * active["overhead"]),
        paper_mask_ms=number(1e3 * overhead),
        megabytes=ours_table(
            lines, "bytes secured / plain", "megabytes", 1, "Ours, megabytes"
        ),
        paper_megabytes=paper_table(PAPER_MEGABYTES, "The paper's, megabytes"),
        epochs=epoch_table(lines),
        growth=table(
            "Ours: an epoch of 10 batches of 128 rows",
            select(lines, what="epoch by number of parties"),
            {
                "Parties": "{parties}",
                "CPU of all, s": column("seconds"),
                "Megabytes of all": column("megabytes"),
            },
        ),
        paillier=paillier,
        product=product_table(lines),
        batches=table(
            "Ours: (rows × 8) @ (8 × 8)",
            select(lines, what="CKKS / masked path by batch size"),
            {
                "Rows": "{batch}",
                "One client masked, ms": column("under", 1e3),
                "CKKS packed, ms": column("over", 1e3),
                "Ratio": spread,
            },
        ),
        estimates=estimate_table(lines),
        masks=table(
            "Ours: 256 × 64 numbers of 32 bits",
            select(lines, what="masks of one client"),
            {
                "Clients": "{clients}",
                "One client's message, ms": column("seconds", 1e3),
                "One key agreement, ms": column("key_agreement_seconds", 1e3),
            },
        ),
        shorter=f"{100 * sizes[1] / sizes[0]:.0f} %" if sizes else "—",
        linear=spread(one(lines, what=linear)),
        speed=table(
            "Ours: four masks",
            select(lines, what="mask throughput / key stream"),
            {
                "Numbers": "{shape[0]} × {shape[1]}, {bits} bits",
                "Masks, GB/s": column("gigabytes_per_second"),
                "÷ the cipher's own speed": spread,
            },
        ),
    )


REASONS = {
    "masks and sealed ids / total CPU": "the training around them has become faster "
    "than they have.",
    "overhead / total CPU": "a round of the paper's linear local modules is so short "
    "(see the milliseconds below) that a handful of small cryptographic calls per "
    "message weigh as much as the training itself. A third of it is the agreement on "
    "new keys every five rounds.",
    "vFedSec epoch / unmasked": "for the same reason; what masks cost depends little "
    "on the network, so that the ratio falls as it grows.",
    "vFedSec epoch / unmasked through autograd": "renewed keys are the largest part of "
    "what masks add. The bar was set on an unmasked epoch before passes were written "
    "out; what its calls and messages cost has fallen since.",
    "CKKS / masked path, end to end": "five clients' masked messages with their tags, "
    "and their sum, are held against one client under CKKS; like for like, with five "
    "clients on both sides, see the table further down.",
    "mask throughput / key stream": "for messages of one chunk (64 KiB), setting four "
    "streams to their nonces weighs beside them; larger ones meet the bar.",
    "CKKS / masked path, the encrypting party alone": "this machine's CKKS is faster "
    "than the one that the bar was set on.",
}


def missed_list(lines):
    """Why what was missed was missed."""
    missed = dict.fromkeys(line["what"] for line in select(lines, met=False))
    if not missed:
        return "All are met."
    items = "\n".join(f"- {what}: {REASONS.get(what, '')}" for what in missed)
    return f"What is missed, and why:\n\n{items}"


if __name__ == "__main__":
    run(command(__doc__).parse_args(), "vfedsec", measure, write_page)
