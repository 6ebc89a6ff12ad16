"""VFedTrans as a baseline: the joint representation comes from FedSVD.

What C.-j. Huang, L. Wang and X. Han describe in "Vertical Federated Knowledge Transfer
via Representation Distillation for Healthcare Collaboration Networks" (2023), on top of
FedSVD (D. Chai et al., "Practical Lossless Federated Singular Vector Decomposition over
Billion-Scale Data", 2022). All parties in one process: what it costs in accuracy and
bytes can be seen, and it protects nobody.
"""

import numpy as np

from skvfl import AutoencoderTransformer, PartyPreprocessor


def federated_svd(blocks, rng):
    """Left singular vectors of the parties' columns side by side, as FedSVD has them.

    An authority that all trust deals an orthogonal matrix P to every party, and to each
    its rows of another one, Q. Every party sends ``P @ block @ rows_of_Q`` to a server,
    where they add up to the masked table ``P @ X @ Q``; its left singular vectors are
    ``P @ U``, from which who knows P has U.

    Parameters
    ----------
    blocks : list of ndarray of shape (n_rows, n_columns)
        Every party's columns of the same rows.
    rng : numpy.random.Generator
        The authority's.

    Returns
    -------
    left : ndarray of shape (n_rows, min(n_rows, all columns))
        U, whose signs are arbitrary.
    sent : dict of str to int
        Bytes of what would cross: see :func:`bytes_sent`.
    """
    n_rows, widths = len(blocks[0]), [block.shape[1] for block in blocks]
    P, Q = (orthogonal(size, rng) for size in (n_rows, sum(widths)))
    of_parties = np.split(Q, np.cumsum(widths)[:-1])
    masked = [P @ block @ of for block, of in zip(blocks, of_parties, strict=True)]
    left = np.linalg.svd(sum(masked), full_matrices=False)[0]
    sent = {
        "masks": len(blocks) * P.nbytes + Q.nbytes,
        "tables": sum(table.nbytes for table in masked),
        "representation": left.nbytes,
    }
    return P.T @ left, sent


def bytes_sent(n_rows, widths):
    """What FedSVD's steps send, by what they are, in double precision.

    Without the keys of the secure sum that hides one party's masked table from the
    server, and without FedSVD's masks in blocks, which are smaller.
    """
    n_parties, n_columns = len(widths), sum(widths)
    return {
        "masks": 8 * (n_parties * n_rows**2 + n_columns**2),
        "tables": 8 * n_parties * n_rows * n_columns,
        "representation": 8 * n_rows * min(n_rows, n_columns),
    }


def orthogonal(size, rng):
    """Return an orthogonal matrix, drawn evenly from all."""
    Q, R = np.linalg.qr(rng.standard_normal((size, size)))
    return Q * np.sign(np.diag(R))


class VFedTrans:
    """The active party's columns beside a latent vector that imitates U.

    An autoencoder of the active party's own columns learns to come near U in the
    aligned rows. Afterwards the party is alone, and represents a row by its columns and
    its latent vector.

    Parameters
    ----------
    parties : dict of str to list of str
        Columns by party, the active one's first.
    distillation_weight : float
        Weight λ of the distance from U beside the reconstruction error.
    random_state : int
        Seed of FedSVD's masks and of the autoencoder.
    **training
        Epochs and batches of the autoencoder.
    """

    def __init__(self, parties, distillation_weight, random_state, **training):
        self.parties = parties
        self.distillation_weight = distillation_weight
        self.random_state = random_state
        self.training = training

    def fit(self, X, y=None, *, aligned):
        """Learn from the rows of a table, of which all parties hold the aligned ones.

        Labels play no part in that.
        """
        active, *passive = self.parties.values()
        self.preparation_ = PartyPreprocessor().fit(X[active])
        own = self.preparation_.transform(X[active])
        shared = X[aligned]
        others = [PartyPreprocessor().fit_transform(shared[each]) for each in passive]
        rng = np.random.default_rng(self.random_state)
        left, self.sent_ = federated_svd([own[aligned], *others], rng)
        # The columns of U have length one, whatever the number of rows; with a variance
        # of one λ weighs the same distance as elsewhere.
        self.target_ = np.zeros((len(own), left.shape[1]), np.float32)
        self.target_[aligned] = left * np.sqrt(len(left))
        self.encoder_ = AutoencoderTransformer(
            left.shape[1],
            distillation_loss="mae",
            distillation_weight=self.distillation_weight,
            random_state=self.random_state,
            **self.training,
        ).fit(own, latent_target=self.target_, has_target=aligned)
        return self

    def transform(self, X):
        """The active party's columns of rows, and their latent vectors."""
        own = self.preparation_.transform(X[next(iter(self.parties.values()))])
        return np.hstack([own, self.encoder_.transform(own)])
