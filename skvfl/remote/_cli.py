"""The command ``skvfl``: what an organisation does with its party."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skvfl.exceptions import ConfigurationError, PartyError, ShareableError
from skvfl.remote._config import PartyConfig

# What a file begins with. Nothing is allowed until somebody has written it.
_TEMPLATE = """\
# What {name} has decided. Paths start from this file's folder.
name = "{name}"
ids = "customer"                # the column that names rows
key = "{name}.key"              # stays here
certificate = "{name}.pem"      # goes to the other organisations
listen = "0.0.0.0:8443"         # leave it out where {name} calls, see `dial`
# store = "store"               # models and counts
# audit = "audit.jsonl"         # sessions, refusals, bytes

[table]
file = "{name}.csv"             # or .parquet
# query = "select * from customers"
# database = "own.duckdb"       # or an address such as "postgresql://$USER:$PW@host/own"
# callable = "own_table:load"   # load() of own_table.py, which gives a DataFrame

# One part for each organisation that may ask, with the certificate that it sent:
# [peers.bank]
# certificate = "bank.pem"
# address = "bank.example:8443" # where it listens
# dial = true                   # {name} calls it, and opens no port of its own
# proxy = "http://proxy:3128"
#
# [peers.bank.allow]            # whatever is not allowed here is refused
# methods = ["fedonce"]         # rap, splitnn, fedonce, apc, vfedsec, tabvfl, boosting
# columns = ["minutes", "plan"]
# min_rows = 500                # of a fit
# max_width = 32                # values that leave for one row
# fits_per_day = 20             # every fold of a cross-validation is one
# rows_per_day = 10000          # that are predicted
# min_noise = 0.1               # fedonce, splitnn: on what leaves
# max_norm = 1.0                # splitnn: of a row, beside min_noise
# max_epsilon = 4.0             # fedonce: of a fit
# total_epsilon = 20.0          # fedonce: of all fits together
#
# [partners.shop]               # with whom vFedSec may bring {name} together
# certificate = "shop.pem"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status.

    Parameters
    ----------
    arguments : list of str, default=None
        Of the command line by default.
    """
    said = _parser().parse_args(arguments)
    try:
        return int(said.run(said))
    # Everything that is told to people; anything else is an error of this program.
    except (PartyError, ShareableError, ValueError, OSError, ImportError) as exc:
        print(f"skvfl: {exc}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="skvfl", description=__doc__)
    party = parser.add_subparsers(required=True, metavar="party").add_parser(
        "party", help="one organisation's side of learning with others"
    )
    commands = party.add_subparsers(required=True, metavar="command")

    keys = commands.add_parser("keys", help="make a key, a certificate and a file")
    keys.add_argument("name", help="of the organisation: letters, digits, hyphens")
    keys.add_argument("--folder", type=Path, default=Path(), help="where they go")
    keys.add_argument(
        "--renew",
        action="store_true",
        help="make the certificate that follows the present one, with the same key",
    )
    keys.set_defaults(run=_keys)

    for name, run, what in (
        ("serve", _serve, "answer the peers that the file allows, until stopped"),
        ("check", _check, "look at one's own side, and at peers that can be reached"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("file", type=Path, help="what the organisation decided")
        command.set_defaults(run=run)

    for name, run, what in (
        ("show", _show, "say in plain words what a plan asks for"),
        ("answer", _answer, "answer a plan, into a file beside it"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("plan", type=Path)
        command.add_argument(
            "--file",
            type=Path,
            help="what the organisation decided; by default the .toml file in this "
            "folder, or beside the plan",
        )
        command.set_defaults(run=run)
    return parser


def _keys(said: argparse.Namespace) -> int:
    from skvfl.remote._config import check_name
    from skvfl.remote._keys import fingerprint, make_keys

    name, folder = check_name(said.name), said.folder
    key, present = folder / f"{name}.key", folder / f"{name}.pem"
    made = folder / f"{name}.next.pem" if said.renew else present
    if said.renew and not (key.exists() and present.exists()):
        raise ConfigurationError(f"{key} or {present} is missing: nothing to renew")
    make_keys(name, key, made)
    print(f"{key}  stays here, and nobody else may read it")
    print(f"{made}  goes to the other organisations")
    file = folder / f"{name}.toml"
    if not file.exists():
        file.write_text(_TEMPLATE.format(name=name), encoding="utf-8")
        print(f"{file}  says what is allowed: nothing, until you write it")
    print(f"fingerprint {fingerprint(made.read_bytes())}")
    print(
        "Compare it with them by telephone: whoever has another one has been deceived."
    )
    if said.renew:
        print(
            f"When all have put it behind the present one (cat {made.name} >> "
            f"{present.name}, at their side), move it to {present.name}."
        )
    return 0


def _serve(said: argparse.Namespace) -> int:
    config = PartyConfig.load(said.file)
    asked = [peer.name for peer in config.peers.values() if peer.allow is not None]
    if not asked:
        raise ConfigurationError(f"{said.file}: no peer is allowed to ask for anything")
    # Late, so that a file that cannot be used is named at once.
    from skvfl.remote._grpc import serve

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    where = [config.listen] if config.listen is not None else []
    where += [f"calls {peer.name}" for peer in config.peers.values() if peer.dial]
    words = f"{config.name} answers {', '.join(asked)} ({', '.join(where)})"
    # Only when it does: whoever starts it may wait for this line.
    serve(config, stop, lambda port: print(words, flush=True))
    return 0


def _check(said: argparse.Namespace) -> int:
    from skvfl.remote._check import findings

    wrong = 0
    for finding in findings(PartyConfig.load(said.file)):
        wrong += finding.is_wrong
        print(finding, flush=True)
    print(f"{wrong} to be put right" if wrong else "nothing to be put right")
    return 1 if wrong else 0


def _show(said: argparse.Namespace) -> int:
    config = _own_file(said)
    from skvfl.remote._plans import show_plan

    print(show_plan(said.plan, config))
    return 0


def _answer(said: argparse.Namespace) -> int:
    config = _own_file(said)
    from skvfl.remote._organisation import Organisation
    from skvfl.remote._plans import answer_plan
    from skvfl.remote._tables import open_table

    own: Any = Organisation(config, open_table(config))
    reply = answer_plan(said.plan, config, own.endpoint)
    print(f"{reply}  goes back to whoever sent the plan")
    return 0


def _own_file(said: argparse.Namespace) -> PartyConfig:
    if said.file is not None:
        return PartyConfig.load(said.file)
    for folder in (Path(), said.plan.parent):
        found = [p for p in folder.glob("*.toml") if p.name != "pyproject.toml"]
        if len(found) == 1:
            return PartyConfig.load(found[0])
    raise ConfigurationError(
        "there is not exactly one .toml file here or beside the plan: name it, --file"
    )
