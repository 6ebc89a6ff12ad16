"""Models that an organisation keeps at home, for each peer and each fit.

Every file is a message in the wire format: what the peer asked for, in words, and what
the organisation's own party has learnt, as plain data. Nothing in it is run.
"""

from __future__ import annotations

import copy
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

import skvfl
from skvfl.exceptions import SettingsError
from skvfl.federation import Party, _wire
from skvfl.remote._lock import locked
from skvfl.remote._state import from_state, to_state

_DAY, _HOUR = 86400.0, 3600.0
_MODEL = re.compile(r"[0-9a-f]{32}")
# Of a model; of a file that is being written; of which rows of a list were asked for.
_SUFFIX, _PARTLY, _NAMED = ".model", ".partly", ".named"


class Store:
    """Keeps models in a folder, and forgets those that nobody uses.

    Parameters
    ----------
    folder : str or Path
        Made if it is missing; only its owner can read it.
    keep_days : float, default=90
        Days after its last use at which a model is deleted.
    most_bytes : int, default=2**30
        Of all models of one peer; the ones that have not been used for longest go
        first. Every fold of a cross-validation leaves a model.
    """

    def __init__(
        self, folder: str | Path, keep_days: float = 90, most_bytes: int = 1 << 30
    ) -> None:
        self.folder = Path(folder)
        self.keep_days = keep_days
        self.most_bytes = most_bytes

    def shelf(self, peer: str) -> Shelf:
        """What is kept for one peer, which nobody else can name."""
        return Shelf(self, peer)

    def tidy(self) -> None:
        """Delete what is too old or too much, of all peers."""
        for folder in self.folder.glob("peer-*"):
            self._tidy(folder)

    def _tidy(self, folder: Path) -> None:
        total, oldest = 0, time.time() - self.keep_days * _DAY
        for path in folder.glob("*" + _NAMED):
            if not path.with_suffix(_SUFFIX).exists():
                path.unlink(missing_ok=True)
        for path in folder.glob("*" + _PARTLY):
            # Whoever wrote it has been killed.
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - _HOUR:
                    path.unlink()
        for used, size, path in sorted(_files(folder), reverse=True):
            total += size
            if used < oldest or total > self.most_bytes:
                path.unlink(missing_ok=True)


class Shelf:
    """Models of one peer, by names that are drawn.

    Parameters
    ----------
    store : Store
        Its rules.
    peer : str
        Name of the organisation that asked for the fits.
    """

    def __init__(self, store: Store, peer: str) -> None:
        self._store = store
        self._folder = store.folder / f"peer-{quote(peer, safe='')}"
        self._read: dict[str, dict[str, Any]] = {}

    def get(self, model: Any) -> Party | None:
        """A fitted party; None if there is none, or none any more.

        Raises
        ------
        SettingsError
            If it was kept by another version that wrote it differently.
        """
        kept = self._load(model)
        if kept is None:
            return None
        party = from_state(kept["state"])
        if not isinstance(party, Party):
            raise SettingsError("what was kept is no model: fit again")
        party._states = {}
        return party

    def about(self, model: Any) -> dict[str, Any] | None:
        """What was asked for when it was fitted: its ``role`` and ``settings``."""
        kept = self._load(model)
        return None if kept is None else kept["about"]

    def keep(
        self,
        party: Party,
        about: dict[str, Any],
        model: str | None = None,
        *,
        tidies: bool = True,
    ) -> str:
        """Keep what a party has learnt, and nothing of what it holds.

        Parameters
        ----------
        party : Party
            What has learnt.
        about : dict
            Plain data that says what was asked for.
        model : str, default=None
            A name that nothing has yet; drawn by default.
        tidies : bool, default=True
            Whether to look at all models of the peer for what is too old or too much.

        Returns
        -------
        model : str
            Its name, which cannot be guessed.

        Raises
        ------
        SettingsError
            If it has learnt what cannot be written down, or there is such a name.
        """
        model = secrets.token_hex(16) if model is None else model
        # What was kept before is never written over.
        if not _MODEL.fullmatch(model) or self._path(model).exists():
            raise SettingsError("a new model has a new name, of 32 digits")
        # What it holds for its run is no part of it. A copy, because a fit may go on
        # from here.
        learnt = copy.copy(party)
        learnt._states = {}
        content = _wire.pack(
            {"version": skvfl.__version__, "about": about, "state": to_state(learnt)}
        )
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(model)
        # Under another name first, or somebody could read half of it.
        partly = path.with_suffix(_PARTLY)
        with open(os.open(partly, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(content)
        partly.replace(path)
        if tidies:
            self._store._tidy(self._folder)
        return model

    def name_rows(self, model: str, rows: np.ndarray, most: int) -> bool:
        """Write down which rows of a list are asked for.

        Parameters
        ----------
        model : str
            Name of the list, which is kept.
        rows : ndarray of int
            Places on it.
        most : int
            How many may be asked for, in all runs together.

        Returns
        -------
        are_few : bool
            Whether they are no more than that; otherwise nothing is written.
        """
        path = self._path(model).with_suffix(_NAMED)
        # Two runs at once would each write down their own.
        with locked(self._folder / "lock"):
            before = np.zeros(0, bool)
            if path.exists():
                before = np.unpackbits(np.fromfile(path, np.uint8)).astype(bool)
            named = np.zeros(max(len(before), rows.max(initial=-1) + 1), bool)
            named[: len(before)] = before
            named[rows] = True
            if np.count_nonzero(named) > most:
                return False
            if not np.array_equal(named, before):
                partly = path.with_suffix(_NAMED + _PARTLY)
                np.packbits(named).tofile(partly)
                partly.replace(path)
        return True

    def drop(self, model: str) -> None:
        """Forget a model; nothing happens where there is none."""
        if _MODEL.fullmatch(model):
            self._read.pop(model, None)
            self._path(model).unlink(missing_ok=True)

    def _path(self, model: str) -> Path:
        return self._folder / (model + _SUFFIX)

    def _load(self, model: Any) -> dict[str, Any] | None:
        # A name that arrives must not be a path.
        if not isinstance(model, str) or not _MODEL.fullmatch(model):
            return None
        if model not in self._read:
            path = self._path(model)
            try:
                used = path.stat().st_mtime
                content = path.read_bytes()
                if used < time.time() - self._store.keep_days * _DAY:
                    path.unlink(missing_ok=True)
                    return None
                # Whoever is asked for predictions is not forgotten.
                os.utime(path)
            except FileNotFoundError:
                return None
            self._read[model] = _content(content)
        return self._read[model]


def _content(content: bytes) -> dict[str, Any]:
    try:
        kept = _wire.unpack(content)
        version = kept["version"]
        if {"about", "state"} <= kept.keys() and isinstance(kept["about"], dict):
            return dict(kept)
    except (ValueError, LookupError, TypeError):
        version = "another version"
    raise SettingsError(f"a model that skvfl {version} kept cannot be read: fit again")


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    for path in folder.glob("*" + _SUFFIX):
        try:
            said = path.stat()
        except FileNotFoundError:  # another session has tidied up
            continue
        yield said.st_mtime, said.st_size, path
