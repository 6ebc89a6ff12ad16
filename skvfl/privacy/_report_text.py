"""A privacy report as text, as tables, and as a page for readers who sign."""

from __future__ import annotations

from html import escape
from textwrap import fill

from skvfl.privacy._suite import AS_SENT, CONTENT, EQUAL_ROWS, LESSER, PAIRS

WIDTH = 88
READING = (
    "A score of 0 is no better than the best guess from what the attacker knew "
    "already; 1 is an exact reconstruction. The interval (95 %) is over draws of that "
    "knowledge on one fit."
)
LIMITS = (
    "These are the attacks that were tried. A low score says that they fail on these "
    "data, and not that every attack does. All parties were taken to follow the "
    "protocol."
)
UNTRIED = "no attack suits what it receives"
STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{text-align:left;padding:.2em .8em .2em 0;"
    "border-bottom:1px solid #ccc;vertical-align:top}"
)
# What can be told by whoever finds out a lesser secret.
TOLD = {
    EQUAL_ROWS: "which rows{} are equal",
    PAIRS: "which aliases stand for one class",
    CONTENT: "masked numbers{} from random ones",
}
# Least score, and what somebody who reached it can do.
LEVELS = (
    (0.95, "reconstruct {secret} nearly exactly", "tell nearly always"),
    (0.5, "reconstruct {secret} to a large part", "mostly tell"),
    (0.1, "find out something about {secret}", "sometimes tell"),
)


def number(value):
    """A score with two digits, never "-0.00"; how much worse than a guess is idle."""
    if value < -1:
        return "below \N{MINUS SIGN}1"
    return f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "\N{MINUS SIGN}")


def scored(outcome):
    """Score and interval."""
    if outcome.why_not:
        return "not carried out"
    low, high = number(outcome.low), number(outcome.high)
    return f"{number(outcome.score)} [{low}, {high}]"


def in_words(role, outcome):
    """What a role can do, in a sentence.

    Parameters
    ----------
    role : Role
        Whose attack it is.
    outcome : Outcome
        That was carried out.

    Returns
    -------
    sentence : str
    """
    who = " and ".join(role.name.split("+")) + (" together" * ("+" in role.name))
    who = f"The {who}" if who.startswith("server") else who
    if outcome.attack == AS_SENT:
        return f"{who} is sent {outcome.secret} as they are."
    knows = f"knowing {outcome.knows or 'nothing besides'}"
    secret = outcome.secret
    lesser = next((each for each in LESSER if secret.startswith(each)), None)
    if lesser is not None:
        secret = TOLD[lesser].format(secret.removeprefix(lesser))
    for least, reconstruct, tell in LEVELS:
        # An interval that holds 0 shows nothing.
        if outcome.score >= least and outcome.low > 0:
            can = f"{tell} {secret}" if lesser else reconstruct.format(secret=secret)
            return f"{who} can {can}, {knows}; score {scored(outcome)}."
    return (
        f"{who} cannot find out {secret} better than by a guess with these attacks, "
        f"{knows}; score {scored(outcome)}."
    )


def _headline(report):
    worst = report.worst
    return "No attack could be carried out." if worst is None else in_words(*worst)


def _parties(report):
    held = [
        f"{name} ({n} prepared column{'s' * (n != 1)})"
        for name, n in report.columns.items()
    ]
    return f"{report.n_rows:,} rows" + (f"; {', '.join(held)}" if held else "")


def _receives(each):
    messages = f"{each.messages:,} message{'s' * (each.messages != 1)}"
    source = f", from {each.sender} ({each.operation})" if each.sender else ""
    return f"{each.when}: {each.what}{source}; {messages}, {each.bytes:,} bytes"


def as_text(report):
    """The report as text.

    Parameters
    ----------
    report : PrivacyReport
        What was measured.

    Returns
    -------
    text : str
    """
    lines = [
        _fill(
            f"Privacy report: {report.method} ({report.estimator}), {_parties(report)}"
        ),
        _fill(f"Worst: {_headline(report)}"),
    ]
    for role in report.roles:
        lines += ["", f"{role.name} ({role.part})", "-" * 40]
        lines += _part("receives", map(_receives, role.received))
        lines += _part("can work out", map(_found, role.outcomes), UNTRIED)
        lines += _part("the paper says", role.claims)
        lines += _part("guaranteed", [role.guarantee])
    lines += ["", _fill(READING), _fill(LIMITS)]
    return "\n".join(lines)


def _part(title, entries, otherwise="nothing"):
    entries = [*entries]
    if not entries:
        return [f"  {title}: {otherwise}"]
    marks = {"initial_indent": "    - ", "subsequent_indent": "      "}
    return [f"  {title}:", *(_fill(each, **marks) for each in entries)]


def _fill(text, **marks):
    # Names may hold hyphens, and should stay what they are.
    return fill(text, WIDTH, break_on_hyphens=False, break_long_words=False, **marks)


def _found(outcome):
    knows = f", knowing {outcome.knows}" if outcome.knows else ""
    why = f": {outcome.why_not}" if outcome.why_not else ""
    return f"{outcome.secret}: {scored(outcome)} by {outcome.attack}{knows}{why}"


def _table(header, rows):
    """A table in HTML, with every cell escaped."""
    head = "".join(f"<th>{escape(str(each))}</th>" for each in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _paragraph(text):
    return f"<p>{escape(text)}</p>"


def as_html(report):
    """The report as tables in HTML.

    Parameters
    ----------
    report : PrivacyReport
        What was measured.

    Returns
    -------
    html : str
    """
    title = f"Privacy report: {report.method} ({report.estimator})"
    parts = [
        "<div class='skvfl-privacy-report'>",
        f"<h3>{escape(title)}</h3>",
        _paragraph(_parties(report)),
        f"<p><strong>{escape(_headline(report))}</strong></p>",
    ]
    for role in report.roles:
        parts.append(f"<h4>{escape(role.name)} ({escape(role.part)})</h4>")
        header = ("when", "from", "operation", "what", "messages", "bytes")
        rows = [
            (r.when, r.sender, r.operation, r.what, f"{r.messages:,}", f"{r.bytes:,}")
            for r in role.received
        ]
        parts.append(_table(header, rows) if rows else _paragraph("Receives nothing."))
        if role.outcomes:
            header = ("secret", "score [95 %]", "attack", "knowing")
            rows = [
                (each.secret, scored(each), each.attack, each.why_not or each.knows)
                for each in role.outcomes
            ]
            parts.append(_table(header, rows))
        parts += [_paragraph(f"The paper says: {claim}") for claim in role.claims]
        parts.append(_paragraph(f"Guaranteed: {role.guarantee}"))
    return "".join([*parts, _paragraph(f"{READING} {LIMITS}"), "</div>"])


def as_page(report):
    """A page of its own, in plain sentences.

    Parameters
    ----------
    report : PrivacyReport
        What was measured.

    Returns
    -------
    html : str
    """
    title = f"What the others can learn: {report.method}"
    parts = [
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        _paragraph(f"Measured in a simulation: {_parties(report)}."),
        "<h2>In short</h2>",
        _paragraph(report.sees),
        f"<p><strong>{escape(_headline(report))}</strong></p>",
    ]
    for role in report.roles:
        parts.append(f"<h2>{escape(role.name)}, {escape(role.part)}</h2>")
        parts += ["<h3>What it receives</h3>", _list(map(_receives, role.received))]
        parts.append("<h3>What it can find out</h3>")
        parts.append(_list(_sentences(role) or [f"{UNTRIED}.".capitalize()]))
        if role.claims:
            parts.append("<h3>What the method's authors say</h3>")
            parts.append(_list(role.claims))
        parts += ["<h3>What is guaranteed</h3>", _paragraph(role.guarantee)]
    parts += ["<h2>How to read the scores</h2>", _paragraph(READING)]
    parts += [_paragraph(LIMITS), "</body></html>"]
    return "".join(parts)


def _sentences(role):
    """The best attack on each secret, in a sentence."""
    best = {}
    for each in role.outcomes:
        if not each.why_not:
            best.setdefault(each.secret, each)
    return [in_words(role, each) for each in best.values()]


def _list(entries):
    entries = [f"<li>{escape(each)}</li>" for each in entries]
    return f"<ul>{''.join(entries)}</ul>" if entries else "<p>Nothing.</p>"
