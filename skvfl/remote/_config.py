"""What an organisation has decided, as its file says it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from skvfl.exceptions import ConfigurationError, RefusedError

METHODS = ("rap", "splitnn", "fedonce", "apc", "vfedsec", "tabvfl", "boosting")
# What these put out cannot be undone without the matrix or network that they draw; a
# scaler instead of one of them would send the columns as they are.
ENCODERS = (
    "AutoencoderTransformer",
    "GaussianProjection",
    "NoiseAsTargetsEncoder",
    "RandomFeaturesEncoder",
)
# A name stands in a certificate as the name of a host.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What one peer may ask for; everything else is refused.

    Parameters
    ----------
    methods : tuple of str
        Which of ``rap``, ``splitnn``, ``fedonce``, ``apc``, ``vfedsec``, ``tabvfl``,
        ``boosting``.
    columns : tuple of str
        Columns that may be learnt from, in the order in which they are used.
    min_rows : int
        Smallest number of rows of a fit.
    max_width : int
        Largest number of values that leave for one row.
    fits_per_day : int
        Fits that may begin in a day, by universal time; every fold of a
        cross-validation is one.
    rows_per_day : int
        Rows that may be predicted in a day.
    alignments_per_day : int, default=10
        How often ids may be compared in a day.
    max_ids : int, default=10_000_000
        How many ids of the peer's may be compared at once. A peer learns which of them
        are here, also of those that it only guesses.
    ids_per_day : int, default=10_000_000
        How many of the peer's ids may be compared in a day, all comparisons together.
    min_noise : float, default=0.0
        Smallest standard deviation of the noise on what leaves, in FedOnce and SplitNN.
    max_norm : float or None, default=None
        Largest norm of a row's activations in SplitNN, without which noise of a size
        hides nothing.
    max_epsilon : float or None, default=None
        Largest privacy budget of a fit.
    total_epsilon : float or None, default=None
        Largest privacy budget of all fits together, from the first one on.
    delta : float, default=1e-5
        With which it is accounted for.
    encoders : tuple of str
        Names of transformers whose output may leave.
    transformers : tuple of str, default=("auto",)
        What may prepare columns: ``"auto"``, ``"passthrough"``, or names.
    unmasked : bool, default=False
        Whether vFedSec may run without masks.
    max_layer : int, default=1024
        Largest number of neurons of any layer that is asked for.
    max_epochs : int, default=1000
        Largest number of epochs for which an encoder is trained, and of passes over the
        rows in a fit of many rounds.
    """

    methods: tuple[str, ...]
    columns: tuple[str, ...]
    min_rows: int
    max_width: int
    fits_per_day: int
    rows_per_day: int
    alignments_per_day: int = 10
    max_ids: int = 10_000_000
    ids_per_day: int = 10_000_000
    min_noise: float = 0.0
    max_norm: float | None = None
    max_epsilon: float | None = None
    total_epsilon: float | None = None
    delta: float = 1e-5
    encoders: tuple[str, ...] = ENCODERS
    transformers: tuple[str, ...] = ("auto",)
    unmasked: bool = False
    max_layer: int = 1024
    max_epochs: int = 1000

    def unprotected(self) -> list[str]:
        """Methods in which nothing hides a row's part as this rule has it."""
        if self.max_epsilon is not None:
            kept_by = {"fedonce"}
        elif self.min_noise > 0 or self.max_norm is not None:
            kept_by = {"fedonce", "splitnn"} if self.max_norm else {"fedonce"}
        else:
            return []
        return [method for method in self.methods if method not in kept_by]


@dataclass(frozen=True, kw_only=True)
class PeerConfig:
    """Another organisation: who it is, where it is, and what it may ask for.

    Parameters
    ----------
    name : str
        As in its certificate.
    certificate : Path
        Its certificate, as it was exchanged; two of them in one file while it is being
        renewed.
    address : str or None, default=None
        ``"host:port"``, where it listens.
    dial : bool, default=False
        Whether this organisation calls it, to be asked over this connection.
    proxy : str or None, default=None
        ``"http://host:port"``, through which it is reached.
    allow : Allowance or None, default=None
        None for a peer that may ask for nothing.
    """

    name: str
    certificate: Path
    address: str | None = None
    dial: bool = False
    proxy: str | None = None
    allow: Allowance | None = None


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """Where an organisation's table comes from: one of three sources.

    Parameters
    ----------
    file : Path or None, default=None
        A CSV or Parquet file.
    query : str or None, default=None
        A query that its database answers.
    database : str or None, default=None
        A DuckDB file, or an address as SQLAlchemy takes it. ``$NAME`` stands for an
        environment variable, so that no password need be in the file.
    callable : str or None, default=None
        ``"module:function"`` of its own, which returns a DataFrame. Modules beside the
        organisation's file are found.
    folder : Path
        Of the organisation's file.
    """

    file: Path | None = None
    query: str | None = None
    database: str | None = None
    callable: str | None = None
    folder: Path = field(default=Path())


@dataclass(frozen=True, kw_only=True)
class PartyConfig:
    """An organisation, as its file says it.

    Parameters
    ----------
    name : str
        As in its certificate.
    table : TableConfig or None
        None at an organisation that asks and is never asked.
    ids : str
        The column that names rows, which no method learns from.
    key, certificate : Path
        Its own; see ``skvfl party keys``.
    listen : str or None, default=None
        ``"host:port"`` of this machine.
    peers : dict of str to PeerConfig
        The others, by their names.
    store : Path
        Folder of the models that it keeps and of its counts.
    audit : Path or None, default=None
        Where sessions and refusals are written down.
    active : bool, default=False
        Whether it has the labels, and asks.
    partners : dict of str to Path, default={}
        Certificates of those with whom a peer may bring this organisation together in
        vFedSec, by name; they need not be peers. With any, nobody else is.
    device : str, default="cpu"
        Where it trains its networks when it is asked, as torch names it; no peer can
        say so.
    idle_minutes : float, default=60.0
        How long a peer may ask for nothing before its session is ended.
    path : Path
        The file that said all this.
    """

    name: str
    table: TableConfig | None = None
    ids: str
    key: Path
    certificate: Path
    listen: str | None = None
    peers: dict[str, PeerConfig]
    store: Path
    audit: Path | None = None
    active: bool = False
    partners: dict[str, Path] = field(default_factory=dict)
    device: str = "cpu"
    idle_minutes: float = 60.0
    path: Path = field(default=Path())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """What a file says.

        Parameters
        ----------
        path : str or Path
            A TOML file. Paths in it start from its own folder.

        Returns
        -------
        config : PartyConfig

        Raises
        ------
        ConfigurationError
            If the file cannot be read, or says something that has no meaning.
        """
        path = Path(path)
        try:
            said = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as exc:
            raise ConfigurationError(f"{path} cannot be read: {exc.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
            raise ConfigurationError(f"{path} is no TOML: {exc}") from None
        config = cls(**_Reader(path).party(said))
        _check(config)
        return config

    def peer(self, name: str) -> PeerConfig:
        """A peer by its name.

        Raises
        ------
        RefusedError
            If there is none.
        """
        if name not in self.peers:
            raise RefusedError(self.name, f"refused: {name!r} is no peer of its")
        return self.peers[name]

    def roots(self) -> bytes:
        """Certificates of all peers, one after the other: nobody else is let in."""
        from skvfl.remote._keys import certificates_in

        return b"".join(
            pem
            for peer in self.peers.values()
            for pem in certificates_in(peer.certificate)
        )

    def peer_of(self, pem: bytes) -> str:
        """Name of the peer whose certificate this is.

        Parameters
        ----------
        pem : bytes
            As the connection says it.

        Raises
        ------
        RefusedError
            If it is not one of those that were exchanged, whatever name is in it.
        """
        from skvfl.remote._keys import certificates_in, fingerprint

        given = fingerprint(pem)
        for peer in self.peers.values():
            # Of the files as they are now, so that a renewal needs no restart here.
            pinned = certificates_in(peer.certificate)
            if given in [fingerprint(each) for each in pinned]:
                return peer.name
        raise RefusedError(
            self.name, "refused: this certificate is not one of those it has exchanged"
        )


class _Reader:
    """Turns what a file says into fields, and names whatever has no meaning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.parent

    def party(self, said: Mapping[str, Any]) -> dict[str, Any]:
        known: dict[str, Callable[[Any], Any]] = {
            "name": _name,
            "ids": _text,
            "key": self._path,
            "certificate": self._path,
            "listen": _address,
            "store": self._path,
            "audit": self._path,
            "active": _yes_or_no,
            "device": _text,
            "idle_minutes": _number(0, _INFINITE, above=True),
            "table": self._table,
            "peers": self._peers,
            "partners": self._partners,
        }
        due = ("name", "ids", "key", "certificate", "peers")
        values = self._read(said, known, due, "")
        values.setdefault("store", self.folder / "store")
        values.setdefault("audit", self.folder / "audit.jsonl")
        return values | {"path": self.path}

    def _table(self, said: Any) -> TableConfig:
        known: dict[str, Callable[[Any], Any]] = {
            "file": self._path,
            "query": _text,
            "database": _text,
            "callable": _text,
        }
        values = self._read(said, known, (), "table.")
        return TableConfig(**values, folder=self.folder)

    def _peers(self, said: Any) -> dict[str, PeerConfig]:
        if not isinstance(said, dict) or not said:
            raise ValueError("a table for each peer, such as [peers.bank]")
        peers = {}
        for name, each in said.items():
            self._value(_name, name, f"peers.{name}")
            known: dict[str, Callable[[Any], Any]] = {
                "certificate": self._path,
                "address": _address,
                "dial": _yes_or_no,
                "proxy": _proxy,
                "allow": partial(self._allowance, name),
            }
            where = f"peers.{name}."
            values = self._read(each, known, ("certificate",), where)
            peers[name] = PeerConfig(name=name, **values)
        return peers

    def _partners(self, said: Any) -> dict[str, Path]:
        if not isinstance(said, dict):
            raise ValueError("a table for each partner, such as [partners.shop]")
        partners = {}
        for name, each in said.items():
            self._value(_name, name, f"partners.{name}")
            known = {"certificate": self._path}
            where = f"partners.{name}."
            partners[name] = self._read(each, known, tuple(known), where)["certificate"]
        return partners

    def _allowance(self, name: str, said: Any) -> Allowance:
        due = [f.name for f in fields(Allowance) if f.default is MISSING]
        return Allowance(**self._read(said, _RULES, due, f"peers.{name}.allow."))

    def _path(self, said: Any) -> Path:
        return self.folder / Path(_text(said)).expanduser()

    def _read(
        self,
        said: Any,
        known: Mapping[str, Callable[[Any], Any]],
        due: Any,
        where: str,
    ) -> dict[str, Any]:
        if not isinstance(said, dict):
            name = where.removesuffix(".")
            raise self._error(name, f"is no table: write [{name}]")
        for key in said:
            if key not in known:
                near = get_close_matches(key, known, 1)
                cure = f"did you mean {near[0]!r}" if near else f"known are {[*known]}"
                raise self._error(where + key, f"is not known here: {cure}")
        if lacking := [key for key in due if key not in said]:
            raise self._error(where + lacking[0], "is missing: there is no default")
        return {k: self._value(known[k], each, where + k) for k, each in said.items()}

    def _value(self, read: Callable[[Any], Any], said: Any, where: str) -> Any:
        try:
            return read(said)
        except ConfigurationError:
            raise
        except ValueError as exc:
            raise self._error(where, f"must be {exc}") from None

    def _error(self, where: str, what: str) -> ConfigurationError:
        return ConfigurationError(f"{self.path}: {where} {what}")


def _check(config: PartyConfig) -> None:
    """Refuse what contradicts itself."""

    def refuse(what: str) -> None:
        raise ConfigurationError(f"{config.path}: {what}")

    if config.name in config.peers:
        refuse(f"peers.{config.name} is this organisation itself: leave it out")
    if config.name in config.partners:
        refuse(f"partners.{config.name} is this organisation itself: leave it out")
    asked = [peer.name for peer in config.peers.values() if peer.allow is not None]
    if asked and config.table is None:
        refuse(f"peer {asked[0]!r} may ask, and there is no [table] to answer from")
    if config.table is not None:
        table = config.table
        sources = (table.file, table.query, table.callable)
        if sum(each is not None for each in sources) != 1:
            refuse("table must have one of file, query and callable")
        if (table.query is None) != (table.database is None):
            refuse("table must have query and database together")
    for peer in config.peers.values():
        where = f"peers.{peer.name}"
        if peer.dial and peer.address is None:
            refuse(f"{where}.address is missing: dial needs to know whom to call")
        if peer.proxy is not None and peer.address is None:
            refuse(f"{where}.address is missing: a proxy is for a peer that is called")
        if peer.allow is not None:
            _check_allowance(config, peer.allow, f"{where}.allow", refuse)


def _check_allowance(
    config: PartyConfig, rule: Allowance, where: str, refuse: Callable[[str], None]
) -> None:
    if config.ids in rule.columns:
        refuse(
            f"{where}.columns has {config.ids!r}, which names rows and is no feature"
        )
    if rule.total_epsilon is not None and rule.max_epsilon is None:
        refuse(f"{where}.total_epsilon needs max_epsilon, the budget of a single fit")
    if others := rule.unprotected():
        refuse(
            f"{where}: max_epsilon is kept by fedonce alone, min_noise by fedonce and, "
            "with max_norm, by splitnn, because noise hides nothing of numbers of any "
            f"size; leave {others} out of methods, or the noise"
        )


def check_name(said: str) -> str:
    """A name that an organisation can have.

    Raises
    ------
    ConfigurationError
        If certificates cannot have it.
    """
    try:
        return _name(said)
    except ValueError as exc:
        raise ConfigurationError(f"the name {said!r} must be {exc}") from None


def _text(said: Any) -> str:
    if not isinstance(said, str) or not said.strip():
        raise ValueError("text")
    return said


def _name(said: Any) -> str:
    if not isinstance(said, str) or not _NAME.fullmatch(said):
        raise ValueError("letters, digits and hyphens, because certificates have it")
    return said


def _address(said: Any) -> str:
    host, colon, port = _text(said).rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError('"host:port"')
    return _text(said)


def _proxy(said: Any) -> str:
    parts = urlsplit(_text(said))
    # grpc speaks plain HTTP to a proxy; what it tunnels is encrypted all the same.
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError('"http://host:port"')
    return _text(said)


def _yes_or_no(said: Any) -> bool:
    if not isinstance(said, bool):
        raise ValueError("true or false")
    return said


def _count(least: int) -> Callable[[Any], int]:
    def read(said: Any) -> int:
        if isinstance(said, bool) or not isinstance(said, int) or said < least:
            raise ValueError(f"a whole number of {least} or more")
        return said

    return read


def _number(least: float, most: float, *, above: bool) -> Callable[[Any], float]:
    def read(said: Any) -> float:
        good = isinstance(said, int | float) and not isinstance(said, bool)
        if not good or not isfinite(said) or not least <= said < most:
            good = False
        if not good or (above and said == least):
            end = "" if most == float("inf") else f" and below {most:g}"
            raise ValueError(f"a number {'above' if above else 'from'} {least:g}{end}")
        return float(said)

    return read


def _names(*, among: tuple[str, ...] = ()) -> Callable[[Any], tuple[str, ...]]:
    def read(said: Any) -> tuple[str, ...]:
        if not isinstance(said, list) or not said:
            raise ValueError("a list of names that is not empty")
        if not all(isinstance(each, str) for each in said):
            raise ValueError("a list of names")
        if among and (unknown := [each for each in said if each not in among]):
            raise ValueError(f"a list of {list(among)}, and {unknown[0]!r} is none")
        if len(set(said)) < len(said):
            raise ValueError("a list in which nothing is named twice")
        return tuple(said)

    return read


_INFINITE = float("inf")
_RULES: dict[str, Callable[[Any], Any]] = {
    "methods": _names(among=METHODS),
    "columns": _names(),
    "min_rows": _count(1),
    "max_width": _count(1),
    "fits_per_day": _count(0),
    "rows_per_day": _count(0),
    "alignments_per_day": _count(0),
    "max_ids": _count(1),
    "ids_per_day": _count(0),
    "min_noise": _number(0, _INFINITE, above=False),
    "max_norm": _number(0, _INFINITE, above=True),
    "max_epsilon": _number(0, _INFINITE, above=True),
    "total_epsilon": _number(0, _INFINITE, above=True),
    "delta": _number(0, 1, above=True),
    "encoders": _names(),
    "transformers": _names(),
    "unmasked": _yes_or_no,
    "max_layer": _count(1),
    "max_epochs": _count(0),
}
