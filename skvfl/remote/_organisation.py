"""What an organisation brings to the sessions of its peers, however frames travel."""

from __future__ import annotations

import copy
from typing import Any

from skvfl.exceptions import RefusedError
from skvfl.federation import Holding, Member
from skvfl.nn._device import check_device
from skvfl.privacy import KeyRing
from skvfl.privacy._keys import fingerprint as identity_fingerprint
from skvfl.remote._audit import Audit
from skvfl.remote._config import PartyConfig
from skvfl.remote._endpoint import Endpoint
from skvfl.remote._idle import Idle
from skvfl.remote._intersection import Ids, Masking
from skvfl.remote._keys import certificates_in, masking_identity, masking_key
from skvfl.remote._policy import Policy
from skvfl.remote._store import Store
from skvfl.vfedsec._agreement import IDENTITIES, KEY_RING


class Organisation:
    """What an organisation brings to the sessions of its peers.

    Parameters
    ----------
    config : PartyConfig
        What its file says.
    table : DataFrame
        Its table, with the column of ids.
    """

    def __init__(self, config: PartyConfig, table: Any) -> None:
        self.config = config
        if config.device != "cpu":
            # Before anybody asks for a fit that would fail.
            check_device(config.device, f"{config.path}: device")
        self.policy = Policy(config)
        self.store = Store(config.store / "models")
        self.audit = Audit(config.audit)
        self.idle = Idle(60 * config.idle_minutes)
        self._table = table
        # Made once: a peer may open many sessions, and each would take as much memory
        # and time as the whole table.
        self._blocks: dict[str, Any] = {}
        self._ids = Ids(table[config.ids])
        # As each peer is shown them. In memory, for as long as it has this table: how
        # they are masked is kept in no file.
        self._shown: dict[str, Ids] = {}
        self._own = {
            KEY_RING: KeyRing.of(config.name, masking_key(config.key), {}),
            IDENTITIES: {
                name: identity_fingerprint(masking_identity(certificates_in(path)[-1]))
                for name, path in config.partners.items()
            },
        }

    def member(self, peer: str) -> Member:
        """The organisation as one peer may know it, for one session."""
        allow = self.config.peer(peer).allow
        if allow is None:
            raise RefusedError(
                self.config.name, f"refused: {peer!r} may ask for nothing"
            )
        if peer not in self._blocks:
            shown = copy.copy(self._ids)
            shown.masking = Masking()
            # Sessions may begin at once, and all are to have the same.
            self._shown.setdefault(peer, shown)
            self._blocks[peer] = self._table[list(allow.columns)]
        # Nothing is written into it: parties take rows of it, which are copies.
        return Member(
            self.config.name,
            Holding(self._blocks[peer]),
            own=dict(self._own),
            ids=self._shown[peer],
            device=self.config.device,
        )

    def endpoint(self, peer: str) -> Endpoint:
        """Its side of one session."""
        return Endpoint(self.member(peer), self.policy, self.store, self.audit)
