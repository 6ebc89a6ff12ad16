"""Parties, the transports between them, and the log of what crossed."""

from skvfl.federation._federation import Federation
from skvfl.federation._holding import Holding, Labels
from skvfl.federation._log import CommunicationLog, Message, record_communication
from skvfl.federation._member import Handle, Member
from skvfl.federation._party import Party, TransformerParty, operation, serving
from skvfl.federation._process import ProcessTransport
from skvfl.federation._settings import Settings, register
from skvfl.federation._transport import LocalTransport, Session, Transport

__all__ = [
    "CommunicationLog",
    "Federation",
    "Handle",
    "Holding",
    "Labels",
    "LocalTransport",
    "Member",
    "Message",
    "Party",
    "ProcessTransport",
    "Session",
    "Settings",
    "TransformerParty",
    "Transport",
    "operation",
    "record_communication",
    "register",
    "serving",
]
