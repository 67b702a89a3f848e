"""The silence of a client: before CONNECT, between two packets, and in the middle of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.core.broker.bounds import BrokerBounds
from app.core.broker.codes import ReasonCode

GRACE: Final = 1.5
"""Keep alives that a client may be silent for [MQTT-3.1.2-22]."""

LATE_SECONDS: Final = 5.0
"""An answer that waits may be late by so much before the connection counts as silent."""


@dataclass(frozen=True, slots=True)
class SilenceEnd:
    """The end of a connection that was silent for too long: the name by which it is counted, and what is said."""

    name: str
    reason: ReasonCode
    sentence: str = ""


NO_CONNECT: Final = SilenceEnd("no_connect", ReasonCode.NOT_AUTHORIZED)
KEEP_ALIVE: Final = SilenceEnd("keep_alive_timeout", ReasonCode.KEEP_ALIVE_TIMEOUT)
UNFINISHED: Final = SilenceEnd(
    "unfinished_packet", ReasonCode.UNSPECIFIED_ERROR, "the rest of a packet did not come in time"
)


class ClientSilence:
    """Times are those of a monotonic clock, in seconds."""

    def __init__(self, bounds: BrokerBounds, now: float) -> None:
        self._packet_seconds: Final = bounds.packet_seconds
        self._connect_by = now + bounds.connect_seconds
        self._heard = now
        self._connected = False
        self._longest: float | None = None
        self._inside_since: float | None = None

    def heard(self, now: float) -> None:
        """A whole packet has come."""
        self._heard = now

    def wait_until(self, instant: float) -> None:
        """CONNECT has come, and is answered at that instant."""
        self._connect_by = max(self._connect_by, instant + LATE_SECONDS)

    def connect(self, keep_alive: int, now: float) -> None:
        """CONNECT was accepted; with a keep alive of 0, silence between packets ends nothing."""
        self._connected = True
        self._heard = now  # whoever had to wait for CONNACK had nothing to say meanwhile
        self._longest = GRACE * keep_alive if keep_alive else None

    def read(self, now: float, *, inside: bool) -> None:
        """Bytes have come, of which the last ones are `inside` a packet that is not whole."""
        self._inside_since = now if inside else None

    def unread(self, now: float) -> None:
        """Nothing is read from the client at present, so its packets, or the rest of one, may be here."""
        self._heard = now
        if self._inside_since is not None:
            self._inside_since = now

    def end(self, now: float) -> SilenceEnd | None:
        """Return why the connection is to be ended, if it is."""
        if not self._connected:
            return NO_CONNECT if now > self._connect_by else None
        if self._longest is not None and now - self._heard > self._longest:
            return KEEP_ALIVE
        if self._inside_since is not None and now - self._inside_since > self._packet_seconds:
            return UNFINISHED
        return None
