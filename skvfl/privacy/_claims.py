"""What the methods' papers say of privacy, and what is guaranteed to whom.

In our words. Reports and the pages on what the others can learn say it from here.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Claim(NamedTuple):
    """Something that a paper says of its method's privacy.

    Attributes
    ----------
    name : str
        By which measurements of it are found.
    about : {"centre", "passive", "coalition", "released"}
        Whose knowledge it is about: whoever trains, a party without labels, several
        together, or whoever is given the finished model.
    says : str
        What the paper says, in our words.
    """

    name: str
    about: str
    says: str


CLAIMS = {
    "RAP": (
        Claim("parties", "passive", "The parties learn nothing of one another."),
        Claim(
            "nothing known",
            "centre",
            "A server that knows nothing of the columns can only guess the matrix, and "
            "reconstructs nothing.",
        ),
        Claim(
            "distribution",
            "centre",
            "A server that knows the columns' distribution cannot reconstruct them, "
            "because means have infinitely many solutions.",
        ),
        Claim(
            "fewer rows than columns",
            "centre",
            "Fewer known rows than columns leave infinitely many solutions.",
        ),
        Claim(
            "unmatched rows",
            "centre",
            "As many known rows as columns are of no use to a server that does not "
            "know which rows they are.",
        ),
        Claim(
            "matched rows",
            "centre",
            "As many known rows as columns, and a client that says which they are, "
            "solve it. Shuffling the rows would hide that.",
        ),
        Claim(
            "aliases",
            "centre",
            "Two aliases for each class keep labels from the server.",
        ),
    ),
    "SplitNN": (
        Claim(
            "private bottoms",
            "centre",
            "Bottom models that stay private keep columns from the server (said of it "
            "in RAP's paper, which adds that known rows train a model that goes back).",
        ),
    ),
    "vFedSec": (
        Claim(
            "uniform",
            "centre",
            "What a client sends looks like uniformly random numbers.",
        ),
        Claim(
            "reconstruction",
            "centre",
            "Data are protected from reconstruction and from membership inference.",
        ),
        Claim(
            "labels",
            "centre",
            "The server is sent labels, from which alone it infers nothing useful.",
        ),
        Claim(
            "collusion",
            "coalition",
            "One client's output stays hidden unless all other clients are corrupted.",
        ),
        Claim(
            "cluster gradients",
            "centre",
            "The gradient of a client in a cluster is hidden by masks.",
        ),
    ),
    "FedOnce": (
        Claim(
            "representations",
            "centre",
            "The host is trusted: no feature crosses, only representations, and these "
            "may be attacked, for which it says that better methods are needed.",
        ),
        Claim(
            "noise on representations",
            "centre",
            "Noise on representations is a possible protection, if it is small.",
        ),
        Claim(
            "budget",
            "released",
            "With a budget, released models are (ε, δ) differentially private, which "
            "protects from membership inference.",
        ),
    ),
    "APC-VFL": (
        Claim(
            "encoders",
            "centre",
            "There are infinitely many encoders, so representations are safe to share "
            "as long as encoders stay private.",
        ),
        Claim(
            "no gradients",
            "passive",
            "Neither columns nor models nor gradients, which could leak, are sent.",
        ),
    ),
    "TabVFL": (
        Claim(
            "layer",
            "centre",
            "A fully connected layer between a guest's columns and the host prevents "
            "that data leak directly.",
        ),
        Claim(
            "black boxes",
            "passive",
            "Models start from weights drawn at home, so each is a black box to the "
            "others.",
        ),
    ),
}
NONE = (
    "None against whoever receives these messages: no noise that is accounted for "
    "hides them."
)
NOTHING = "It receives no numbers in this fit, and so learns nothing from them."
MASKS = (
    "One client's contribution is hidden in the sum, for as long as its masks' keys "
    "are secret and not all others are in league with the server (computational). "
    "The sum itself and the labels are not hidden."
)


def claims_of(method, about):
    """What a method's paper says of one kind of role.

    Parameters
    ----------
    method : str or None
        Name of the method.
    about : str
        As :attr:`Claim.about`.

    Returns
    -------
    claims : list of str
    """
    return [each.says for each in CLAIMS.get(method, ()) if each.about == about]


def guarantee(method, estimator, about, received):
    """The formal guarantee against a role, with what it covers.

    Parameters
    ----------
    method : str or None
        Name of the method.
    estimator : estimator
        Fitted.
    about : str
        As :attr:`Claim.about`.
    received : bool
        Whether the role was sent any array.

    Returns
    -------
    sentence : str
    """
    if not received:
        return NOTHING
    # Of all fits that this one went on from; infinite if one had no budget.
    spent = getattr(estimator, "label_epsilon_", math.inf)
    spent += getattr(estimator, "label_epsilon_lost_", 0.0)
    if about == "passive" and spent < math.inf:
        said = f"ε = {spent:g} limits what it learns of each label."
        if method == "Boosting":
            said += " Which rows go to which node is not covered."
        return said
    if method == "vFedSec" and about == "centre" and estimator.masked:
        return MASKS
    return NONE


def released_guarantee(estimator):
    """The formal guarantee against whoever is given the finished networks.

    Parameters
    ----------
    estimator : estimator
        Fitted.

    Returns
    -------
    sentence : str
    """
    spent = getattr(estimator, "epsilon_spent_", None)
    if spent is None or not math.isfinite(float(spent)):
        return "None: it was fitted without differential privacy."
    epsilon, delta = spent.epsilon, spent.delta
    # The area under the curve of the best test that (ε, δ) allows (Kairouz, Oh and
    # Viswanath), on the scale of the score, so that a large ε overflows nothing.
    most = 1 - 2 * (1 - delta) ** 2 * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    said = (
        f"ε = {epsilon:.2f} at δ = {delta:g} ({spent.adjacency}): no such attack on "
        f"the finished networks scores above {most:.2f}."
    )
    gaps = " ".join(spent.not_covered)
    return f"{said} Not covered: {gaps}" if gaps else said
