"""What an organisation does with a plan: read it in plain words, and answer it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from skvfl.exceptions import PartyValueError
from skvfl.federation import _wire
from skvfl.federation._member import OPEN
from skvfl.remote._config import PartyConfig
from skvfl.remote._endpoint import (
    HELLO,
    IDS_ROLE,
    KEEP,
    MOST_HEADER,
    Endpoint,
    read_reply,
)
from skvfl.remote._lock import locked
from skvfl.remote._mailbox import (
    PLAN,
    REPLY,
    Desk,
    as_arrays,
    as_frames,
    digests,
    file_stem,
    write_private,
)
from skvfl.remote._sealing import write_new

_LATEST = int(datetime(3000, 1, 1, tzinfo=UTC).timestamp())
_METHODS = {
    "rap": "RAP, random projections",
    "fedonce": "FedOnce",
    "apc": "APC-VFL",
}
_WORDS = {
    HELLO: "It says which version of skvfl it has: {version}.",
    "describe_ids": "You say how many ids your table has, and whether they are text or "
    "whole numbers.",
    "mask_ids": "Its {n_masked} ids, masked, are compared with all of yours. It learns "
    "which of its ids are in your table, and how many ids you have; you learn how many "
    "it has. No id of either side can be read by the other.",
    "say_rows": "You say of each row, by one bit, whether you hold it.",
    "agree_on_rows": "You are told that all organisations hold {n_aligned} of the "
    "rows.",
    "fit_transform": "Your transformer and a random projection, drawn at your side, "
    "learn from these rows. You send one projected row of numbers for each.",
    "learn": "Your encoder learns from these rows. You send one row of numbers, the "
    "representation, for each.",
    "encode": "You send one row of numbers, the representation by your encoder, for "
    "each row.",
    "transform": "You send one projected row of numbers for each row.",
    "represent": "You send one row of numbers, the representation by your encoder, for "
    "each row.",
    "spent": "You say how many noisy steps you took, for the account of the privacy "
    "budget.",
    KEEP: "You keep what came of it, under a name that you tell, until it expires.",
}
# In a fit of APC-VFL, where the others have been told who holds what.
_LEARNS_TO_ENCODE = (
    "Your encoder learns from the rows that you hold. You send one row of numbers, the "
    "representation, for each row that all organisations hold."
)


class Plan(NamedTuple):
    """What one organisation asks another in one run.

    Parameters
    ----------
    sender : str
        Who asks.
    made : int
        When it was written, in seconds since 1970.
    frames : list of bytes
        As they are answered.
    requests : list of (str, dict)
        The same, to be read.
    """

    sender: str
    made: int
    frames: list[bytes]
    requests: list[tuple[str, dict[str, Any]]]


def read_plan(path: str | Path, desk: Desk) -> Plan:
    """Open a plan.

    Raises
    ------
    ValueError
        If it cannot be used; the message says why.
    """
    path = Path(path)
    if path.suffix != f".{PLAN}":
        raise ValueError(f"{path.name} is no plan: its name ends in .{PLAN}")
    sender, content = desk.read(path, PLAN)
    frames, made = as_frames(content.get("frames")), content.get("made")
    # Its time is a part of a name under which it is remembered that it was answered.
    if not frames or type(made) is not int or not 0 <= made < _LATEST:
        raise PartyValueError(sender, f"its file is no plan: {path.name}")
    requests = [_read_request(sender, i, frame) for i, frame in enumerate(frames)]
    _check_order(sender, [operation for operation, _ in requests])
    return Plan(sender, made, frames, requests)


def _read_request(sender: str, number: int, frame: bytes) -> tuple[str, dict[str, Any]]:
    try:
        request = _wire.unpack(frame, MOST_HEADER)
    except ValueError as exc:
        raise PartyValueError(sender, f"its plan cannot be read: {exc}") from None
    match request:
        case [int(given), str(operation), dict(arguments)] if given == number:
            return operation, arguments
    raise PartyValueError(sender, "its plan has what is no request")


def _check_order(sender: str, operations: list[str]) -> None:
    """Refuse what cannot be said in words, whoever it may be for."""
    # The endpoint checks the same again; whoever approves must not be shown a plan that
    # asks for something else than it says.
    if operations[:2] != [HELLO, OPEN]:
        raise PartyValueError(sender, "its plan does not begin by opening a run")
    unknown = [each for each in operations[2:] if each not in _WORDS or each == HELLO]
    if unknown:
        raise PartyValueError(
            sender, f"its plan asks for {unknown}, which is nothing that files carry"
        )


def show_plan(path: str | Path, config: PartyConfig) -> str:
    """What a plan asks for, in plain words, for whoever approves it.

    Parameters
    ----------
    path : str or path
        The plan.
    config : PartyConfig
        Of the organisation that it is for.

    Returns
    -------
    words : str
    """
    desk = Desk.of(config)
    plan = read_plan(path, desk)
    made = datetime.fromtimestamp(plan.made, UTC)
    lines = [
        f"{plan.sender} asks {desk.name}, by a file of {made:%Y-%m-%d %H:%M} UTC that "
        "it has signed:",
        "",
    ]
    words = dict(_WORDS)
    if plan.requests[1][1].get("role") is not None:
        words["encode"] = _LEARNS_TO_ENCODE
    for operation, arguments in plan.requests:
        if operation == OPEN:
            lines += _opening_in_words(arguments, config, plan.sender)
        else:
            lines.append(f"- {words[operation].format(**_facts(arguments))}")
    mark = _mark(desk, plan)
    lines += ["", "Nothing else is asked for, and nothing has been computed yet."]
    if mark.exists():
        lines.append("You have answered it before.")
    return "\n".join(lines)


def _facts(arguments: Mapping[str, Any]) -> dict[str, Any]:
    masked, aligned = (arguments.get(each) for each in ("masked", "aligned"))
    return {
        "version": f"{arguments.get('version')!r:.40}",
        "n_masked": len(masked) if isinstance(masked, np.ndarray) else "some",
        "n_aligned": int(np.count_nonzero(aligned))
        if isinstance(aligned, np.ndarray)
        else "some",
    }


def _opening_in_words(
    arguments: Mapping[str, Any], config: PartyConfig, sender: str
) -> list[str]:
    role, model = arguments.get("role"), arguments.get("model")
    if role == IDS_ROLE:
        return ["- You open a run that compares ids, and trains nothing."]
    rows = arguments.get("rows")
    n_rows = "all rows of your table"
    if isinstance(rows, np.ndarray) and rows.ndim == 1:
        n_rows = f"{np.count_nonzero(rows >= 0)} rows of your table"
        if n_lacking := int(np.count_nonzero(rows < 0)):
            n_rows += f" and {n_lacking} that you do not hold"
    if arguments.get("agreed") is not None:
        n_rows += f", named by the list {str(arguments['agreed'])!r} of compared ids"
    rule = config.peer(sender).allow
    columns = "no columns: it may ask for nothing"
    if rule is not None:
        columns = f"the columns that you allow it: {', '.join(rule.columns)}"
    if role is None:
        return [
            f"- You open a prediction by the model {model!r}, for {n_rows}, with "
            f"{columns}."
        ]
    method, _, part = str(role).partition(".")
    method = _METHODS.get(method) or repr(method)
    lines = [
        f"- You open a fit of {method}, as its {part!r}, on {n_rows}, with {columns}."
    ]
    settings = arguments.get("settings")
    if isinstance(settings, dict):
        lines += [f"    {_word(each)}: {say(said)}" for each, said in settings.items()]
    return lines


def _word(said: str) -> str:
    """A word as it is; anything else in quotes, so that it cannot pose as our words."""
    return said if said.isidentifier() else repr(said)


def say(words: Any) -> str:
    """Settings, which travel as words, as a person would write them in Python."""
    if isinstance(words, list):
        return f"[{', '.join(map(say, words))}]"
    if not isinstance(words, dict):
        return repr(words)
    match words:
        case {"tuple": list(items)}:
            return f"({', '.join(map(say, items))})"
        case {"dict": dict(items)}:
            inner = ", ".join(f"{key!r}: {say(each)}" for key, each in items.items())
            return f"{{{inner}}}"
        case {"dtype": str(name)}:
            return _word(name)
        case {"own": str(name)}:
            return f"your own {_word(name)}"
        case {"name": str(name)}:
            given = words.get("params", words.get("keywords"))
            if given is None:
                return _word(name)
            given = given.get("dict", given) if isinstance(given, dict) else {}
            inner = ", ".join(f"{_word(k)}={say(each)}" for k, each in given.items())
            return f"{_word(name)}({inner})"
    inner = ", ".join(f"{key!r}: {say(each)}" for key, each in words.items())
    return f"{{{inner}}}"


def answer_plan(
    path: str | Path, config: PartyConfig, open_endpoint: Callable[[str], Endpoint]
) -> Path:
    """Answer a plan, by the same rules and the same code as over a connection.

    Parameters
    ----------
    path : str or path
        The plan.
    config : PartyConfig
        Of the organisation that it is for.
    open_endpoint : callable
        ``open_endpoint(sender)`` makes what answers the sender's frames.

    Returns
    -------
    path : path
        Of the reply, beside the plan.

    Raises
    ------
    FileExistsError
        If the reply is there already.
    ValueError
        If the plan cannot be used, or was answered before, or is being answered.
    PartyError
        If something in it is not allowed, or cannot be done. Nothing is written then.
    """
    path, desk = Path(path), Desk.of(config)
    plan = read_plan(path, desk)
    # By what was asked: the one who reads it does not look at what the plan is called.
    stem = file_stem(desk.name, digests(plan.frames))
    reply = path.with_name(f"{stem}.{REPLY}")
    mark = _mark(desk, plan)
    # Two who begin at once would both find that nobody has answered.
    with locked(mark.with_name(f".{mark.name}.lock"), wait=False) as is_held:
        if not is_held:
            raise ValueError(f"{path.name} is being answered by somebody else just now")
        _answer_once(plan, path, reply, mark, desk, open_endpoint)
    return reply


def _answer_once(
    plan: Plan,
    path: Path,
    reply: Path,
    mark: Path,
    desk: Desk,
    open_endpoint: Callable[[str], Endpoint],
) -> None:
    """Answer a plan that nobody has answered."""
    if reply.exists():
        raise FileExistsError(f"{reply} is there already: send it, or move it away")
    if mark.exists():
        raise ValueError(
            f"{path.name} was answered before: send that reply again. A second answer "
            "to one plan would draw its random numbers anew, and two answers say more "
            "than one; whoever wants that writes another plan, which counts"
        )
    answers = _answer(plan, desk.name, open_endpoint(plan.sender))
    content = {"asked": digests(plan.frames), "frames": as_arrays(answers)}
    write_new(reply, desk.seal(content, REPLY, plan.sender))
    write_private(mark, {"by": desk.name, "to": plan.sender, "file": reply.name})


def _mark(desk: Desk, plan: Plan) -> Path:
    """Where it is written down that a plan was answered, whatever its name is."""
    stem = file_stem(plan.sender, digests(plan.frames))
    # The same may be asked again, by a plan of another time.
    return desk.store / "answered" / f"{stem}-{plan.made}"


def _answer(plan: Plan, name: str, endpoint: Endpoint) -> list[bytes]:
    answers = []
    try:
        for number, frame in enumerate(plan.frames):
            answers.append(endpoint.answer(plan.sender, frame))
            # An error ends it here: whoever answers learns of it, and decides.
            operation, _ = plan.requests[number]
            read_reply(name, answers[-1], number, operation)
    finally:
        endpoint.close(plan.sender)
    return answers
