"""Who listens to sessions: nobody, unless a recorder is set for this context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from skvfl.federation._holding import Holding
from skvfl.federation._member import Member


class Listener(Protocol):
    """What a recorder of sessions offers."""

    def begin(
        self,
        session: Any,
        members: Sequence[Member],
        brought: Mapping[str, Holding],
        *,
        fit: Any,
    ) -> None:
        """A session begins with members at home here; of a fit, by its log, or none."""

    def request(
        self,
        session: Any,
        operation: str,
        requests: Mapping[str, Any],
        opening: bool,
    ) -> None:
        """Members are about to be asked."""

    def reply(
        self,
        session: Any,
        operation: str,
        replies: Mapping[str, Any],
        receiver: str,
        opening: bool,
    ) -> None:
        """Members have answered."""

    def late(self, session: Any, operation: str, name: str, reply: Any) -> None:
        """A reply has come that nobody waited for any more."""


# By context, as the log of predictions: threads do not hear each other's sessions.
listening: ContextVar[Listener | None] = ContextVar("listening", default=None)
