"""Key rings that have agreed, key streams computed anew, and a uniformity test."""

import struct

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from skvfl.privacy import MASK_FORWARD, KeyRing

# The numbers tested are fresh from the operating system in every run: at this level a
# false alarm is out of the question, and what is not uniform is far below it.
LEVEL = 1e-9


def make_rings(*names, session="session", epoch=0):
    rings = {name: KeyRing(name) for name in (*names, "server")}
    agree(rings, session=session, epoch=epoch)
    return rings


def announce(rings, *, session="session", epoch=0):
    return {
        name: ring.public_keys(
            [peer for peer in rings if peer != name], session=session, epoch=epoch
        )
        for name, ring in rings.items()
    }


def deliver(sent, name):
    return {peer: sent[peer][name] for peer in sent if peer != name}


def agree(rings, *, session="session", epoch=0):
    keys = announce(rings, session=session, epoch=epoch)
    proofs = {name: ring.agree(deliver(keys, name)) for name, ring in rings.items()}
    for name, ring in rings.items():
        ring.confirm(deliver(proofs, name))


def key_stream(ring, peer, shape, dtype, *, round_id, tensor_id=0, purpose=None):
    """AES-256-CTR in one call, from the definition."""
    counter = struct.pack(">IIQ", round_id, tensor_id, 0)
    key = ring.key(peer, purpose or MASK_FORWARD)
    cipher = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(cipher.update(bytes(size)), dtype).reshape(shape)


def uniformity(array):
    """Smallest p-value of chi-square tests of the bytes and a KS test of the values."""
    values = np.ascontiguousarray(array).reshape(-1)
    columns = values.view(np.uint8).reshape(-1, values.itemsize).T
    p_values = [
        stats.chisquare(np.bincount(column, minlength=256)).pvalue for column in columns
    ]
    scaled = values / 2.0 ** (8 * values.itemsize)
    return min(*p_values, stats.kstest(scaled, "uniform").pvalue)


def distinguishability(one, other):
    """Smallest p-value of tests that two arrays come from one distribution."""
    pair = [np.ascontiguousarray(array).reshape(-1) for array in (one, other)]
    p_values = [stats.ks_2samp(*(values.astype(float) for values in pair)).pvalue]
    for place in range(pair[0].itemsize):
        counts = [
            np.bincount(
                values.view(np.uint8)[place :: values.itemsize] >> 4, minlength=16
            )
            for values in pair
        ]
        table = np.array(counts)[:, np.sum(counts, axis=0) > 0]
        if table.shape[1] > 1:
            p_values.append(stats.chi2_contingency(table).pvalue)
    return min(p_values)
