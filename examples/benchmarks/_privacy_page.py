"""The pages "What the others can learn", from the recorded lines."""

import re
from typing import NamedTuple

from _page import HERE, MINUS, number
from _page import listing as table_of
from _record import select

from skvfl._methods import METHODS
from skvfl.privacy._claims import CLAIMS
from skvfl.privacy._suite import AS_SENT, LESSER

FOLDER = HERE.parents[1] / "docs" / "privacy"
DATA = {
    "adult": "adult",
    "bank_marketing": "bank marketing",
    "breast_cancer": "breast cancer",
}
# Below this an attack has shown nothing worth the name, and above that one a claim of
# protection cannot stand.
NOTHING, MUCH = 0.05, 0.5
NONE = "\N{EN DASH}"


class Evidence(NamedTuple):
    """What is measured of a claim.

    Attributes
    ----------
    attacks : tuple of str
        Names of the attacks' classes; none where nothing that was received is attacked.
    secret : str
        How the secrets begin that they go for.
    knows : str
        What must stand in the words of their side knowledge.
    part : str
        What must stand in the words of the attacker's part.
    setting : str
        Of the estimator.
    protects : bool
        Whether the claim is that nothing is found; else that it is.
    note : str
        What else to know.
    at_worst : str
        The heaviest verdict that this measurement allows.
    defence : str
        What must stand in the name of a defence, whose strongest setting is shown.
    """

    attacks: tuple = ()
    secret: str = "columns"
    knows: str = ""
    part: str = ""
    setting: str = ""
    protects: bool = True
    note: str = ""
    at_worst: str = "**contradicted**"
    defence: str = ""


def listing(title, header, rows):
    """Return a table, or words where there are no rows."""
    return table_of(title, header, rows) if rows else f"{title}: not measured yet."


def write_pages(lines):
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    fields = {
        "overview": overview(lines),
        "claims": claims(lines),
        "defences": defences(lines),
        "costs": costs(lines),
        "rows": f"{max(line['rows'] for line in select(lines, what='report')):,}",
        "seeds": max(line["seeds"] for line in select(lines, what="attack")),
        **lines[0],
    }
    _write("privacy_index", "index", **fields)
    for method in METHODS:
        _write("privacy_method", slug(method.name), **about(method, lines))


def _write(template, page, **fields):
    text = (HERE / "pages" / f"{template}.rst").read_text(encoding="utf-8")
    (FOLDER / f"{page}.rst").write_text(text.format(**fields), encoding="utf-8")


def slug(name):
    """Name of a method's page."""
    return name.lower().replace("-", "_")


def shown(line):
    """Score and interval of a line."""
    if line["score"] is None:
        return NONE
    if line["score"] < -1:
        return f"below {MINUS}1"
    half = line["half"] if line["half"] is not None else 0.0
    score = number(line["score"]).replace(f"{MINUS}0.00", "0.00")
    return f"{score} ± {number(min(half, 1.0))}"


def _kind(knows):
    """Side knowledge without numbers that differ between data sets."""
    if "columns" in knows or "times" in knows:
        return re.sub(r"^\d+ of its rows, ", "rows: ", knows)
    return knows


def _worst(lines):
    scored = [line for line in lines if line["score"] is not None]
    return max(scored, key=_weight, default=None)


def _weight(line):
    # As in a report: that rows are equal is the worst where nothing else is found.
    lesser = line["secret"].startswith(LESSER)
    return line["score"] >= 0.1, not lesser, line["score"]


def overview(lines):
    """The worst number of each role of each setting, on each data set."""
    attacks = select(lines, what="attack")
    rows = []
    for setting in dict.fromkeys(line["setting"] for line in attacks):
        of_setting = select(attacks, setting=setting)
        for part in dict.fromkeys(line["part"] for line in of_setting):
            found = [_worst(select(of_setting, part=part, data=data)) for data in DATA]
            worst = _worst([line for line in found if line is not None])
            by = "" if worst is None else _by(worst)
            scores = [NONE if line is None else shown(line) for line in found]
            rows.append([setting, part, *scores, by])
    header = ["method", "attacker", *DATA.values(), "the most successful attack"]
    return listing("The worst number of every role", header, rows)


def _by(line):
    knows = f", knowing {_kind(line['knows'])}" if line["knows"] else ""
    secret = line["secret"].partition(" of ")[0]
    if line["attack"] == AS_SENT:
        return f"{secret}, which it is sent"
    return f"{line['attack']} on {secret}{knows}"


def claims(lines):
    """Every claim of a paper, and what was measured."""
    rows = []
    for method, several in CLAIMS.items():
        for claim in several:
            evidence = EVIDENCE.get((method, claim.name), ())
            verdict, shows = judged(lines, method, evidence)
            rows.append([method, claim.says, verdict, shows])
    header = ["method", "its paper says", "verdict", "measured"]
    return listing("The papers' claims", header, rows)


def judged(lines, method, evidence):
    """Verdict on a claim, and its numbers."""
    if not evidence:
        return "not measured", ""
    verdicts, shows = [], []
    for each in evidence:
        verdict, words = _weighed(lines, method, each)
        verdicts.append(verdict)
        shows.append(words)
    # The heaviest word counts.
    order = ["**contradicted**", "bounded", "confirmed", "not measured"]
    return min(verdicts, key=order.index), "; ".join(filter(None, shows))


def _weighed(lines, method, evidence):
    if evidence.defence:
        found = [
            line
            for line in select(lines, what="defence", method=method)
            if evidence.defence in line["defence"]
        ]
        if not found:
            return "not measured", ""
        plain, strongest = found[0], found[-1]
        return "bounded", (
            f"noise of {strongest['value']} takes leakage from {shown(plain)} to "
            f"{shown(strongest)}, and accuracy from {number(plain['utility'], 3)} to "
            f"{number(strongest['utility'], 3)}"
        )
    if not select(lines, what="report", method=method):
        return "not measured", ""
    if not evidence.attacks:
        received = [
            line
            for line in select(lines, what="received", method=method)
            if evidence.part in line["part"]
            and line["sender"]
            and "numbers" in line["content"]
        ]
        return ("bounded" if received else "confirmed"), evidence.note
    found = [
        line
        for line in select(lines, what="attack", method=method)
        if line["attack"] in evidence.attacks
        and line["secret"].startswith(evidence.secret)
        and evidence.knows in line["knows"]
        and evidence.part in line["part"]
        and evidence.setting in line["setting"]
    ]
    worst = _worst(found)
    if worst is None:
        return "not measured", evidence.note
    words = f"{shown(worst)} ({_by(worst)}; {DATA[worst['data']]})"
    words += f". {evidence.note}" if evidence.note else ""
    if not evidence.protects:
        return ("confirmed" if worst["score"] >= MUCH else "bounded"), words
    if worst["score"] >= MUCH:
        return evidence.at_worst, words
    quiet = worst["score"] < NOTHING or worst["score"] <= worst["half"]
    return ("confirmed" if quiet else "bounded"), words


def defences(lines):
    """What each defence costs and brings."""
    rows = [
        [
            line["method"],
            line["defence"],
            line["value"],
            DATA[line["data"]],
            number(line["utility"], 3),
            shown(line),
            line["attack"],
        ]
        for line in select(lines, what="defence")
    ]
    header = ["method", "defence", "value", "data", "accuracy", "leakage", "attack"]
    return listing("Defences and their price", header, rows)


def costs(lines):
    """CPU seconds of a report."""
    rows = [
        [line["setting"], number(line["seconds"], 1)]
        for line in select(lines, what="cost", data="adult")
    ]
    return listing("A report on adult, 5,000 rows", ["method", "CPU seconds"], rows)


def about(method, lines):
    """Fields of one method's page."""
    mine = select(lines, method=method.name)
    title = f"What the others can learn: {method.name}"
    said = [f"* {claim.says}" for claim in CLAIMS.get(method.name, ())]
    return {
        "label": f"learn_{slug(method.name)}",
        "title": title,
        "line": "=" * len(title),
        "sees": method.leaks.replace("`", "``"),
        "claims": "\n".join(said) or "There is no paper whose claims were looked at.",
        "received": _received_table(mine, method.name),
        "attacks": "\n\n".join(_attack_tables(mine)),
        "guarantees": _guarantees(mine),
    }


def _received_table(lines, method):
    rows = [
        [
            *(line[each] for each in ("role", "when", "sender", "content")),
            *(f"{line[each]:,}" for each in ("messages", "bytes")),
        ]
        for line in select(lines, what="received", data="adult", setting=method)
    ]
    header = ["to", "when", "from", "content", "messages", "bytes"]
    return listing("What crossed on adult", header, rows)


def _attack_tables(lines):
    attacks = select(lines, what="attack")
    for setting in dict.fromkeys(line["setting"] for line in attacks):
        groups = {}
        for line in select(attacks, setting=setting):
            # Parties have other names in each data set.
            secret = line["secret"].partition(" of ")[0]
            key = (line["part"], secret, line["attack"], _kind(line["knows"]))
            groups.setdefault(key, {}).setdefault(line["data"], []).append(line)
        rows = []
        for key, by_data in groups.items():
            scores = [_worst(by_data.get(data, ())) for data in DATA]
            rows.append([*key, *(NONE if s is None else shown(s) for s in scores)])
        header = ["attacker", "secret", "attack", "knowing", *DATA.values()]
        yield listing(setting, header, rows)


def _guarantees(lines):
    said = {
        (line["setting"], line["part"]): line["guarantee"]
        for line in select(lines, what="guarantee", data="adult")
    }
    rows = [[*key, sentence] for key, sentence in said.items()]
    return listing("What is guaranteed", ["setting", "against", "guarantee"], rows)


EVIDENCE = {
    ("RAP", "parties"): (
        Evidence(part="without labels", note="no number reaches a party"),
    ),
    ("RAP", "nothing known"): (
        Evidence(
            ("EqualRowsAttack",),
            "equal",
            at_worst="bounded",
            note="No value is found, but which rows are equal is.",
        ),
    ),
    ("RAP", "distribution"): (
        Evidence(
            ("MomentsAttack", "IndependentComponentsAttack", "FrequencyAttack"),
            note="Means do not suffice; third moments and frequencies do.",
        ),
    ),
    ("RAP", "fewer rows than columns"): (
        Evidence(
            ("KnownRowsAttack",),
            knows="one fewer",
            at_worst="bounded",
            note="So many solutions there are, and the part that rows span is found.",
        ),
    ),
    ("RAP", "unmatched rows"): (
        Evidence(
            ("KnownRowsAttack",),
            knows="not which",
            setting="gaussian",
            note="That is the paper's matrix",
        ),
        Evidence(
            ("KnownRowsAttack",),
            knows="not which",
            note="That is our default, an orthogonal matrix, which keeps lengths.",
        ),
    ),
    ("RAP", "matched rows"): (
        Evidence(("KnownRowsAttack",), knows="twice as many", protects=False),
    ),
    ("RAP", "aliases"): (
        Evidence(("AliasAttack",), "labels"),
        Evidence(("AliasAttack",), "pairs"),
    ),
    ("SplitNN", "private bottoms"): (
        Evidence(("InversionAttack", "AttributeInferenceAttack"), ""),
    ),
    ("vFedSec", "uniform"): (
        Evidence(("UniformityAttack", "RoundDifferenceAttack"), "masked"),
    ),
    ("vFedSec", "reconstruction"): (
        Evidence(
            ("CollusionAttack",),
            part="server",
            note="From the sum, by the server alone, where a party has few columns.",
        ),
    ),
    ("vFedSec", "labels"): (
        Evidence((AS_SENT,), "labels", note="Labels are secrets."),
    ),
    ("vFedSec", "collusion"): (
        Evidence(
            ("CollusionAttack",),
            part="working together",
            protects=False,
            note="All others were in league with the server.",
        ),
    ),
    ("vFedSec", "cluster gradients"): (
        Evidence(
            ("ClusterGradientAttack",),
            setting="clusters",
            note="Without masks the same attack finds the rows, in the tests.",
        ),
    ),
    ("FedOnce", "representations"): (Evidence(("InversionAttack",), protects=False),),
    ("FedOnce", "noise on representations"): (Evidence(defence="representations"),),
    ("FedOnce", "budget"): (
        Evidence(("LossThresholdAttack",), "who was", setting="ε"),
        Evidence(
            ("InversionAttack",),
            setting="ε",
            note="The host, whom the budget does not cover.",
            protects=False,
        ),
    ),
    ("APC-VFL", "encoders"): (
        Evidence(("InversionAttack", "AttributeInferenceAttack"), ""),
    ),
    ("APC-VFL", "no gradients"): (
        Evidence(part="without labels", note="only which rows are aligned"),
    ),
    ("TabVFL", "layer"): (
        Evidence(("HyperplaneAttack",), setting="pretraining"),
        Evidence(("InversionAttack", "AttributeInferenceAttack"), ""),
    ),
    ("TabVFL", "black boxes"): (Evidence(("HyperplaneAttack",)),),
}
