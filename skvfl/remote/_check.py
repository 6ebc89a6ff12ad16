"""Looks at one organisation's side, and at the others that it can reach."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import skvfl
from skvfl.exceptions import ConfigurationError, PartyError
from skvfl.federation._member import OPEN
from skvfl.remote._config import PartyConfig, PeerConfig
from skvfl.remote._endpoint import (
    HELLO,
    IDS_ROLE,
    PROTOCOL,
    pack_request,
    read_reply,
)
from skvfl.remote._keys import (
    belong_together,
    certificates_in,
    days_left,
    fingerprint,
    name_in,
    signs_itself,
)

# Seconds by which clocks may differ, and days before which a renewal is due.
_CLOCK, _SOON = 60.0, 30.0
_PATIENCE = 10.0


class Finding(NamedTuple):
    """One line of a check.

    Parameters
    ----------
    about : str
        What was looked at.
    words : str
        What was found.
    is_wrong : bool
        Whether something is to be put right.
    """

    about: str
    words: str
    is_wrong: bool = False

    def __str__(self) -> str:
        return f"{'WRONG' if self.is_wrong else 'ok':5} {self.about}: {self.words}"


def findings(
    config: PartyConfig,
    greet: Callable[[PartyConfig, str], dict[str, Any]] | None = None,
) -> Iterator[Finding]:
    """Everything that can be known without training.

    Parameters
    ----------
    config : PartyConfig
        Of this organisation.
    greet : callable, default=None
        ``greet(config, peer)`` gives what a peer says of itself; over the network by
        default.

    Yields
    ------
    finding : Finding
    """
    yield from _own_certificate(config)
    yield _tried("store", _store, config)
    ids = None
    if config.table is not None:
        ids = _Table()
        yield _tried("table", ids.look, config)
    for name, path in config.partners.items():
        yield from _certificates_of(name, path)
    for peer in config.peers.values():
        yield from _allowed(peer, config)
        yield from _certificates_of(peer.name, peer.certificate)
        yield from _reached(config, peer, greet, ids)


def _tried(about: str, look: Callable[[Any], str], config: Any) -> Finding:
    try:
        return Finding(about, look(config))
    except (ConfigurationError, ImportError, OSError) as exc:
        return Finding(about, str(exc), is_wrong=True)


def _own_certificate(config: PartyConfig) -> Iterator[Finding]:
    def look(_: PartyConfig) -> str:
        (pem,) = certificates_in(config.certificate)[:1]
        if name_in(pem) != config.name:
            raise ConfigurationError(f"is of {name_in(pem)!r}, not of {config.name!r}")
        if not belong_together(config.key, pem):
            raise ConfigurationError(f"{config.key.name} is not the key of it")
        mode = config.key.stat().st_mode
        if os.name == "posix" and mode & 0o077:
            raise ConfigurationError(
                f"others may read {config.key}: chmod 600 {config.key}"
            )
        return _validity(pem)

    yield _tried("own certificate", look, config)


def _certificates_of(name: str, path: Path) -> Iterator[Finding]:
    def look(_: Path) -> str:
        found = certificates_in(path)
        for pem in found:
            if name_in(pem) != name:
                raise ConfigurationError(
                    f"{path.name} is of {name_in(pem)!r}: name it as its certificate "
                    "does, or ask for the right one"
                )
            if not signs_itself(pem):
                raise ConfigurationError(
                    f"{path.name} could certify others, or was signed by somebody "
                    "else: ask for one that `skvfl party keys` made"
                )
        valid = [pem for pem in found if days_left(pem) > 0]
        return _validity((valid or found)[-1])

    yield _tried(f"certificate of {name}", look, path)


def _allowed(peer: PeerConfig, config: PartyConfig) -> Iterator[Finding]:
    rule = peer.allow
    about = f"what {peer.name} may ask for"
    if rule is not None and rule.max_width >= len(rule.columns):
        yield Finding(
            about,
            f"{rule.max_width} values for a row of {len(rule.columns)} columns: with a "
            "few known rows the others can be computed; a smaller max_width limits it",
        )
    if rule is not None and "vfedsec" in rule.methods:
        known = ", ".join(config.partners)
        yield Finding(
            about,
            f"vFedSec with {known} and nobody else, by their certificates"
            if known
            else f"vFedSec with whomever it names: {peer.name} carries the keys of its "
            "partners to each other, and could put its own in their place and read "
            "what is masked; [partners.NAME] with a certificate for each partner "
            "prevents it",
        )


def _validity(pem: bytes) -> str:
    left = days_left(pem)
    if left <= 0:
        raise ConfigurationError(
            f"expired {-left:.0f} days ago: `skvfl party keys NAME --renew` makes "
            "the next one"
        )
    renew = ", renew it soon" if left < _SOON else ""
    return f"valid for {left:.0f} days{renew}; fingerprint {fingerprint(pem)}"


def _store(config: PartyConfig) -> str:
    config.store.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in (config.store, *([config.audit.parent] if config.audit else [])):
        if not os.access(folder, os.W_OK):
            raise ConfigurationError(f"{folder} cannot be written to")
    return str(config.store)


class _Table:
    """What the own table says of itself; its ids, for a comparison with a peer's."""

    kind: str | None = None

    def look(self, config: PartyConfig) -> str:
        from skvfl.remote._intersection import Ids
        from skvfl.remote._tables import open_table

        table = open_table(config)
        self.kind = Ids(table[config.ids]).kind
        return (
            f"{len(table)} rows, {table.shape[1] - 1} columns that somebody may use, "
            f"ids are {self.kind}"
        )


def _reached(
    config: PartyConfig, peer: PeerConfig, greet: Any, table: _Table | None
) -> Iterator[Finding]:
    about = f"line to {peer.name}"
    if peer.address is None and not (config.active and config.listen):
        yield Finding(about, f"{peer.name} calls, or is reached by files")
        return
    if peer.dial:
        yield Finding(about, f"called while `skvfl party serve` runs: {peer.address}")
        return
    ask = _ask if greet is None else greet
    began = time.time()
    try:
        said = ask(config, peer.name)
    except (PartyError, ConfigurationError, ImportError) as exc:
        yield Finding(about, str(exc), is_wrong=True)
        return
    yield from _answered(said, (began + time.time()) / 2, about)
    about, theirs = f"ids of {peer.name}", said["ids"]
    if table is not None and table.kind not in (None, theirs):
        words = f"are {theirs}, and yours are {table.kind}: convert one to the other"
        yield Finding(about, words, is_wrong=True)
    else:
        yield Finding(about, f"are {theirs}, {said['n_ids']} of them")


def _ask(config: PartyConfig, peer: str) -> dict[str, Any]:
    """What a peer says of itself, and of its ids, which are not compared."""
    from skvfl.remote._grpc import reach
    from skvfl.remote._intersection import KINDS

    line = reach(config, peer, _PATIENCE)
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        (HELLO, {"protocol": PROTOCOL, "version": skvfl.__version__}),
        (OPEN, {"role": IDS_ROLE, "settings": {}}),
        ("describe_ids", {}),
    )
    answers = []
    try:
        for number, (operation, arguments) in enumerate(asked):
            line.send(pack_request(number, operation, **arguments))
            frame = line.receive(_PATIENCE)
            if frame is None:
                fault = f"no reply to {operation!r} within {_PATIENCE:g} seconds"
                raise PartyError(peer, fault)
            answers.append(read_reply(peer, frame, number, operation))
    finally:
        line.close()
    said, _, ids = answers
    match said, ids:
        case (
            {
                "version": str(),
                "protocol": int(),
                "time": float() as clock,
                "terms": dict(),
            },
            {"kind": str() as kind, "n_ids": int() as n_ids},
        ) if isfinite(clock) and said["version"].isprintable() and kind in KINDS:
            return {**said, "ids": kind, "n_ids": n_ids}
    raise PartyError(peer, "what it says of itself is none of what is expected")


def _answered(said: dict[str, Any], now: float, about: str) -> Iterator[Finding]:
    versions = f"skvfl {said['version']} there, {skvfl.__version__} here"
    yield Finding(about, f"answers; {versions}; protocol {said['protocol']}")
    apart = float(said["time"]) - now
    ahead = "ahead of" if apart > 0 else "behind"
    yield Finding(
        about,
        f"its clock is {abs(apart):.0f} s {ahead} this one",
        is_wrong=abs(apart) > _CLOCK,
    )
    terms = said.get("terms", {})
    for name in ("methods", "columns", "min_rows", "max_width"):
        if name in terms:
            yield Finding(about, f"allows {name} = {terms[name]}")
    for name, left in terms.items():
        if name.endswith("left today"):
            yield Finding(about, f"{left} {name}")
