"""Organisations whose tables the coordinator does not see."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from skvfl.federation._log import CommunicationLog
from skvfl.federation._member import Member
from skvfl.federation._party import Party
from skvfl.federation._transport import Session, Transport


class Federation(Transport):
    """Members in places of their own: who they are, and how they are reached.

    As the ``parties`` of an estimator it takes the place of a table that is split up:
    ``X`` then has the active party's columns only, and every other member answers from
    its own table. Parties and transport are one object, so that nothing can fall back
    to a simulation.

    Its :meth:`connect` is given the members that are at home here, and opens a session
    with these and the others; what the others have learnt stays with them, and a
    :class:`Handle` stands for it.

    Attributes
    ----------
    names : list of str
        All members, in the order of the protocol.
    one_round : bool
        Whether it carries one question to each member in a run, and no more.
    deals_secrets : bool
        Whether members at home draw their secrets from the ``random_state`` of the
        estimator, as in a simulation, and not from the operating system. A seed can be
        guessed, so this is for tests that compare bits, and False by default.

    See Also
    --------
    skvfl.connect : Makes one of members on machines of their own.

    Examples
    --------
    >>> from skvfl.federation import Federation, Transport
    >>> issubclass(Federation, Transport)
    True
    """

    names: list[str]
    one_round: bool = False
    deals_secrets: bool = False

    @abstractmethod
    def connect(
        self,
        parties: Sequence[Party | Member],
        log: CommunicationLog,
        centre: str = "server",
        *,
        names: Sequence[str] | None = None,
    ) -> Session:
        """Open a session.

        Parameters
        ----------
        parties : sequence of Member
            Those that are at home here.
        log : CommunicationLog
            Where messages are recorded.
        centre : str, default="server"
            Name of the organisation that runs the protocol.
        names : sequence of str, default=None
            Members that take part; all of them by default.
        """

    def own_columns(self, X: Any) -> Any:
        """Which columns of a table are the active party's; all of them by default.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            What the estimator was given.

        Returns
        -------
        columns : names, positions, slice or mask
        """
        return slice(None)

    def rows(self, X: Any) -> np.ndarray | None:
        """Which rows the others are asked for; all of theirs by default.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            What the estimator was given.

        Returns
        -------
        rows : ndarray of int of shape (n_samples,) or None
            As :meth:`Member.open` takes them.
        """
        return None

    def ask_for(self, name: str, rows: Any, log: CommunicationLog) -> dict[str, Any]:
        """How a member elsewhere is told which rows a run is about.

        Parameters
        ----------
        name : str
            Of the member.
        rows : object
            What :meth:`rows` gave.
        log : CommunicationLog
            Of the run, where messages are recorded that this takes.

        Returns
        -------
        arguments : dict
            Of :meth:`Member.open`.
        """
        return {"rows": rows}
