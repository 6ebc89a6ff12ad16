"""Plans and replies: files of the frames that would travel over a connection."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import numpy as np

from skvfl.exceptions import PartyValueError
from skvfl.federation import _wire
from skvfl.remote._config import PartyConfig
from skvfl.remote._endpoint import read_reply
from skvfl.remote._keys import (
    certificates_in,
    days_left,
    opening_key,
    public_keys,
    signing_key,
)
from skvfl.remote._sealing import (
    PrivateKeys,
    PublicKeys,
    seal,
    unseal,
    write_new,
)

PLAN, REPLY = "plan", "reply"
_SHORT = 12


class Desk(NamedTuple):
    """What an organisation writes and reads files with.

    Parameters
    ----------
    name : str
        Its own.
    keys : PrivateKeys
        Its own.
    known : dict of str to PublicKeys
        Of the organisations that it exchanges files with.
    store : path
        A folder that nobody else reads.
    """

    name: str
    keys: PrivateKeys
    known: Mapping[str, PublicKeys]
    store: Path

    @classmethod
    def of(cls, config: PartyConfig) -> Self:
        """The desk of an organisation, by what its file says."""
        known = {}
        for name, peer in config.peers.items():
            valid = [p for p in certificates_in(peer.certificate) if days_left(p) > 0]
            if valid:
                # Two while it is being renewed; the new one was added.
                known[name] = PublicKeys(*public_keys(valid[-1]))
        keys = PrivateKeys(signing_key(config.key), opening_key(config.key))
        return cls(config.name, keys, known, config.store)

    def seal(self, content: Any, kind: str, receiver: str) -> bytes:
        """A file of this organisation's for another one."""
        if receiver not in self.known:
            raise PartyValueError(
                receiver, "its certificate has run out: ask it for the new one"
            )
        return seal(
            content,
            kind=kind,
            sender=self.name,
            receiver=receiver,
            keys=self.keys,
            to=self.known[receiver],
        )

    def read(self, path: Path, kind: str) -> tuple[str, dict[str, Any]]:
        """Who wrote a file for this organisation, and what it says.

        Raises
        ------
        ValueError
            If it cannot be used; the message says why, and names the file.
        """
        try:
            sender, content = unseal(
                path.read_bytes(),
                kind=kind,
                receiver=self.name,
                keys=self.keys,
                known=self.known,
            )
        except PartyValueError as exc:
            raise PartyValueError(exc.party, f"{exc.message}: {path.name}") from None
        except ValueError as exc:
            raise ValueError(f"{path.name}: {exc}") from None
        if not isinstance(content, dict):
            raise PartyValueError(sender, f"its file says nothing: {path.name}")
        return sender, content


def digests(frames: Sequence[bytes]) -> np.ndarray:
    """What a reply says of the frames that it answers."""
    each = [hashlib.sha256(frame).digest() for frame in frames]
    return np.frombuffer(b"".join(each), np.uint8).reshape(-1, 32)


def file_stem(name: str, asked: np.ndarray) -> str:
    """Name of a plan and of its reply, by what is asked.

    Parameters
    ----------
    name : str
        Of the organisation that answers.
    asked : ndarray of uint8 of shape (n_frames, 32)
        The second one opens the run.
    """
    return f"{_opening_stem(name, asked[1])}{_short(asked.tobytes())}"


def _opening_stem(name: str, opening: np.ndarray) -> str:
    return f"{as_file_name(name)}-{_short(opening.tobytes())}-"


def as_file_name(name: str) -> str:
    """A name of an organisation as a part of a file's."""
    # A dot may stand for a folder, or begin a suffix.
    return quote(name, safe="").replace(".", "%2E")


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_SHORT]


def as_arrays(frames: Sequence[bytes]) -> list[np.ndarray]:
    """Frames as what may stand in a message."""
    return [np.frombuffer(frame, np.uint8) for frame in frames]


def as_frames(arrays: Any) -> list[bytes] | None:
    """Frames that arrived in a message; None where it holds something else."""
    if not isinstance(arrays, list):
        return None
    if not all(isinstance(a, np.ndarray) and a.dtype == np.uint8 for a in arrays):
        return None
    return [each.tobytes() for each in arrays]


class Reply(NamedTuple):
    """What one organisation answered to one plan.

    Parameters
    ----------
    name : str
        Of the organisation.
    asked : ndarray of uint8 of shape (n_frames, 32)
        Digests of the frames that it was sent.
    frames : list of bytes
        Its answers, one to each.
    """

    name: str
    asked: np.ndarray
    frames: list[bytes]

    def says(self, number: int, operation: str) -> Any:
        """Its answer to one of the frames."""
        return read_reply(self.name, self.frames[number], number, operation)


class Mailbox:
    """The folder in which plans lie for an organisation, and its replies.

    Parameters
    ----------
    desk : Desk
        Of the organisation that asks.
    folder : path
        Where its plans are written, and where replies are put.
    name : str
        Of the organisation that answers.
    """

    def __init__(self, desk: Desk, folder: Path, name: str) -> None:
        self.desk, self.folder, self.name = desk, folder, name

    def write(self, frames: Sequence[bytes]) -> Path:
        """The plan of some frames, which is written where it is not there yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{file_stem(self.name, digests(frames))}.{PLAN}"
        if not path.exists():
            content = {"frames": as_arrays(frames), "made": int(time.time())}
            write_new(path, self.desk.seal(content, PLAN, self.name))
        return path

    def replies(self, opening: bytes) -> list[Reply]:
        """Replies to all plans with one opening.

        Raises
        ------
        PartyValueError
            If a file among them is not what its name says.
        """
        stem = _opening_stem(self.name, digests([opening])[0])
        paths = sorted(self.folder.glob(f"{stem}*.{REPLY}"))
        return [self._read(path) for path in paths]

    def _read(self, path: Path) -> Reply:
        sender, content = self.desk.read(path, REPLY)
        asked, frames = content.get("asked"), as_frames(content.get("frames"))
        if (
            frames is None
            or not isinstance(asked, np.ndarray)
            or asked.dtype != np.uint8
            or asked.shape != (len(frames), 32)
            or len(frames) < 2
        ):
            raise PartyValueError(sender, f"its file is no reply: {path.name}")
        # What a file is called can be changed by anybody on its way.
        if sender != self.name or path.stem != file_stem(self.name, asked):
            raise PartyValueError(
                sender, f"its reply answers another plan than {path.stem}.{PLAN}"
            )
        return Reply(sender, asked, frames)


def write_private(path: Path, content: Any) -> None:
    """Write a message for this organisation alone, or replace the one that is there."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "wb") as file:
        file.write(_wire.pack(content))
    part.replace(path)
