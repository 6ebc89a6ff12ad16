"""What crossed between organisations: the communication log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple


class Message(NamedTuple):
    """One message of a :class:`CommunicationLog`.

    Parameters
    ----------
    round : int
        Communication round, from 1; 0 for the messages that open a run.
    sender, receiver : str
        Names of parties, or ``"server"``. A message whose sender is its receiver stays
        inside one organisation: it is listed and not counted.
    operation : str
        What was asked or answered.
    bytes : int
        Length of the serialised message.
    data_bearing : bool
        Whether it carries an array and crosses between organisations.

    See Also
    --------
    skvfl.CommunicationLog : A list of them, and what they cost.

    Examples
    --------
    >>> from skvfl import CommunicationLog
    >>> log = CommunicationLog()
    >>> log.begin_round()
    >>> log.record("shop", "server", "forward", 120, True)
    >>> log.messages[0].sender, log.messages[0].bytes
    ('shop', 120)
    """

    round: int
    sender: str
    receiver: str
    operation: str
    bytes: int
    data_bearing: bool


class CommunicationLog:
    """Every message of one protocol run, and what it costs.

    Estimators create one in ``fit`` and keep it as ``communication_``;
    :func:`record_communication` yields one for predictions.

    See Also
    --------
    record_communication : The log of predictions.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> vfl = RandomProjectionVFL(LogisticRegression(), parties=3, random_state=0)
    >>> log = vfl.fit(X, y).communication_
    >>> log.n_rounds, log.n_messages
    (1, 4)
    >>> round(log.transfer_time(bandwidth=100e6, latency=0.02), 3)
    0.046
    """

    def __init__(self) -> None:
        # Plain tuples: the garbage collector stops visiting them, unlike named ones.
        self._records: list[tuple[int, str, str, str, int, bool]] = []
        self._round = 0

    def begin_round(self) -> None:
        """Start the next communication round."""
        # Rounds are counted here and not by operation: what one round is differs
        # between protocols, and latency is paid once for each.
        self._round += 1

    @property
    def has_begun(self) -> bool:
        """Whether a round has begun."""
        return self._round > 0

    def record(
        self,
        sender: str,
        receiver: str,
        operation: str,
        size: int,
        has_array: bool,
        *,
        opening: bool = False,
    ) -> None:
        """Add one message to the current round.

        Parameters
        ----------
        sender, receiver : str
            Names of parties, or ``"server"``.
        operation : str
            What was asked or answered.
        size : int
            Length of the serialised message in bytes.
        has_array : bool
            Whether the message carries an array.
        opening : bool, default=False
            Whether it opens a run, which comes before the first round.
        """
        # A protocol that begins no round of its own has one.
        if self._round == 0 and not opening:
            self._round = 1
        self._records.append(
            (
                0 if opening else self._round,
                sender,
                receiver,
                operation,
                size,
                has_array and sender != receiver,
            )
        )

    @property
    def messages(self) -> list[Message]:
        """All messages in the order of the protocol."""
        return [Message._make(record) for record in self._records]

    # An operation of a party on its own data is listed, so that a reader of the log
    # sees the whole protocol; it costs no network.
    def _crossing(self) -> Iterator[Message]:
        return (m for m in self.messages if m.sender != m.receiver)

    @property
    def n_rounds(self) -> int:
        """Number of communication rounds in which something crossed."""
        # The rounds in which something crossed, not the highest number: a round without
        # a guest that is online costs nothing.
        return len({m.round for m in self._crossing() if m.round})

    @property
    def n_messages(self) -> int:
        """Number of data-bearing messages between organisations, after the opening."""
        return sum(m.data_bearing for m in self.messages if m.round)

    @property
    def n_bytes(self) -> int:
        """Bytes that crossed between organisations, requests included."""
        return sum(m.bytes for m in self._crossing())

    def by_party(self) -> dict[str, dict[str, int]]:
        """Messages and bytes that each organisation sent and received.

        Returns
        -------
        traffic : dict of str to dict
            ``{name: {"messages_sent": …, "bytes_sent": …, "messages_received": …,
            "bytes_received": …}}``; messages are the data-bearing ones after the
            opening.
        """
        traffic: dict[str, dict[str, int]] = {}
        for message in self._crossing():
            for name, way in (
                (message.sender, "sent"),
                (message.receiver, "received"),
            ):
                row = traffic.setdefault(
                    name,
                    {
                        "messages_sent": 0,
                        "bytes_sent": 0,
                        "messages_received": 0,
                        "bytes_received": 0,
                    },
                )
                # Requests and openings count in bytes alone, so that the number of
                # messages is the one that the papers state.
                row[f"messages_{way}"] += message.data_bearing and message.round > 0
                row[f"bytes_{way}"] += message.bytes
        return traffic

    def transfer_time(self, *, bandwidth: float, latency: float) -> float:
        """Estimate how long the messages take on a network.

        The model: all traffic shares one link, the messages of one round are under way
        together, and every round waits for one request and one reply.

        Parameters
        ----------
        bandwidth : float
            Bits per second of the shared link; ``10e9`` is 10 Gbit/s.
        latency : float
            Seconds that one message needs from sender to receiver, one way.

        Returns
        -------
        seconds : float
            ``8 * n_bytes / bandwidth + 2 * latency * n_rounds``.

        Raises
        ------
        ValueError
            If ``bandwidth`` is not positive or ``latency`` is negative.
        """
        if not bandwidth > 0 or not latency >= 0:
            raise ValueError(
                "bandwidth (bits per second) must be positive and latency (seconds) "
                f"must not be negative, got {bandwidth} and {latency}"
            )
        # Bytes are added up over the parties, because they share the link; a round
        # waits once, because its messages are under way together.
        return 8 * self.n_bytes / bandwidth + 2 * latency * self.n_rounds

    def to_frame(self) -> Any:
        """All messages as a pandas DataFrame, one row per message.

        Returns
        -------
        frame : pandas.DataFrame
            Columns ``round, sender, receiver, operation, bytes, data_bearing``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        try:
            # Here and not above, like matplotlib below: the log itself needs neither.
            import pandas as pd
        except ImportError as exc:
            raise ImportError(
                "CommunicationLog.to_frame needs pandas: pip install 'skvfl[frames]'"
            ) from exc
        return pd.DataFrame(self.messages, columns=Message._fields)

    def plot(self, ax: Any = None) -> Any:
        """Draw the bytes that each organisation sent and received.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Returns
        -------
        ax : matplotlib Axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError as exc:
            raise ImportError(
                "CommunicationLog.plot needs matplotlib: pip install 'skvfl[plot]'"
            ) from exc
        if ax is None:
            _, ax = plt.subplots()
        traffic = self.by_party()
        names = list(traffic)
        position = range(len(names))
        height = 0.4
        for way, shift in (("sent", -height / 2), ("received", height / 2)):
            ax.barh(
                [p + shift for p in position],
                [traffic[name][f"bytes_{way}"] for name in names],
                height=height,
                label=way,
            )
        ax.set(
            yticks=position,
            yticklabels=names,
            xlabel="bytes",
            title=f"{self.n_rounds} round(s), {self.n_bytes:,} bytes",
        )
        # The first party on top, as in the table.
        ax.invert_yaxis()
        ax.legend()
        return ax

    def __repr__(self) -> str:
        return (
            f"CommunicationLog(n_rounds={self.n_rounds}, "
            f"n_messages={self.n_messages}, n_bytes={self.n_bytes})"
        )


# By context, so that threads that predict at once do not write into each other's logs.
_recording: ContextVar[CommunicationLog | None] = ContextVar("recording", default=None)


@contextmanager
def record_communication() -> Iterator[CommunicationLog]:
    """Record what predictions and transformations send.

    A fitted estimator is never changed by ``predict``, so its traffic goes to the log
    that this context manager yields. Calls made in other threads or processes (as with
    ``n_jobs``) are not seen.

    Yields
    ------
    log : CommunicationLog
        Filled while the block runs; every call starts a new round.

    See Also
    --------
    CommunicationLog : What is recorded.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skvfl import RandomProjectionVFL, record_communication
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> vfl = RandomProjectionVFL(LogisticRegression(), parties=3, random_state=0)
    >>> vfl = vfl.fit(X, y)
    >>> with record_communication() as log:
    ...     labels = vfl.predict(X[:10])
    >>> log.n_rounds, log.n_messages
    (2, 4)
    """
    log = CommunicationLog()
    token = _recording.set(log)
    try:
        yield log
    finally:
        # By the token, so that the log of an enclosing block goes on.
        _recording.reset(token)


def current_log() -> CommunicationLog:
    """The log of the enclosing :func:`record_communication`, or one to throw away."""
    log = _recording.get()
    return CommunicationLog() if log is None else log
