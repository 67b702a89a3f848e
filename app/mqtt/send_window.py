"""The publishes that one connection has to send: its window, its packet ids, and those that wait for room."""

from __future__ import annotations

import asyncio
import math
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from app.core.errors import (
    BrokerUnavailableError,
    PacketTooLargeError,
    PublishRefusedError,
    PublishUnconfirmedError,
    UnpublishableError,
)
from app.core.messages import Publication, Receipt
from app.mqtt import packets
from app.mqtt.base import Puback
from app.mqtt.paho_control import FIRST_FREE_PACKET_ID

_NO_MATCHING_SUBSCRIBERS: Final = 0x10
_FAILURE: Final = 0x80
_NEVER_TAKEN: Final = {0x90: "the topic name is invalid", 0x99: "the payload format is invalid"}
"""Reason codes of PUBACK (MQTT 5, section 3.4.2.1) that say the same however often the message is sent."""
_MAX_PACKET_ID: Final = 0xFFFF
_NO_PROPERTIES: Final = packets.publish_properties(None, None, None)


class _Unsent(NamedTuple):
    """A publish that waits for room in the broker's window; `expires_at` is on the loop's clock."""

    publication: Publication
    expires_at: float


class SendWindow:
    """The publishes of one connection, from `publish` to PUBACK.

    No more than `most` are unconfirmed or wait for room. What waits is sent as the broker confirms, in order, and never
    after its message expiry. Once it has failed it takes nothing more: nobody would ever end those publishes.
    """

    def __init__(self, write: Callable[[bytes], None], counters: Counter[str], most: int, *, is_v5: bool) -> None:
        self._write = write
        self._counters = counters
        self._most = most
        self._is_v5 = is_v5
        self._loop = asyncio.get_running_loop()
        self._window = most
        self._max_packet_size = packets.MAX_PACKET_SIZE
        self._unconfirmed: dict[int, Puback] = {}
        self._unsent: OrderedDict[Puback, _Unsent] = OrderedDict()
        self._last_packet_id = FIRST_FREE_PACKET_ID - 1
        self._ended: str | None = None
        """The reason for which the connection has ended; None while it stands."""

    @property
    def waiting(self) -> int:
        """The number of publishes that are unconfirmed or wait for room."""
        return len(self._unconfirmed) + len(self._unsent)

    def limit(self, receive_maximum: int, max_packet_size: int) -> None:
        """Keep to what the broker has said in CONNACK."""
        self._window = min(self._window, receive_maximum)
        self._max_packet_size = max_packet_size

    def no_room(self) -> BrokerUnavailableError:
        """The error for a publish that finds no room."""
        return BrokerUnavailableError(f"{self.waiting} messages wait for the MQTT broker already")

    def publish(self, publication: Publication) -> Puback:
        """Send it, or let it wait for room; BrokerUnavailableError if too many wait, or the connection has ended."""
        if self._ended is not None:
            raise BrokerUnavailableError(f"not connected to the MQTT broker: {self._ended}")
        if self.waiting >= self._most:
            raise self.no_room()
        if not publication.qos or not (self._unsent or len(self._unconfirmed) >= self._window):
            return self.send(publication)
        self._packet(publication, FIRST_FREE_PACKET_ID)  # what is wrong with it is said now
        future = Puback()
        expiry = math.inf if publication.message_expiry is None else publication.message_expiry.total_seconds()
        self._unsent[future] = _Unsent(publication, self._loop.time() + expiry)
        future.add_done_callback(self._withdraw)
        return future

    def send(self, publication: Publication) -> Puback:
        """Send it now."""
        future = Puback()
        self._send(publication, future)
        return future

    def confirm(self, packet_id: int, reason_code: int) -> None:
        """A PUBACK has come."""
        future = self._unconfirmed.pop(packet_id, None)
        if self._unsent:
            self._send_waiting()
        if future is None or future.done():
            return
        if reason_code < _FAILURE:
            unmatched = reason_code == _NO_MATCHING_SUBSCRIBERS
            future.set_result(Receipt.UNMATCHED if unmatched else Receipt.ACKNOWLEDGED)
        else:
            self._counters["publish_refused"] += 1
            _fail(future, _refusal(reason_code))

    def fail(self, reason: str) -> None:
        """The connection has ended: what was sent is in doubt, what waits was not sent."""
        self._ended = reason
        for future in self._unconfirmed.values():
            self._counters["publish_unconfirmed"] += 1
            _fail(future, PublishUnconfirmedError(reason))
        self._unconfirmed.clear()
        self.refuse_unsent(reason)

    def refuse_unsent(self, reason: str) -> None:
        """Send nothing of what waits."""
        while self._unsent:
            _fail(self._unsent.popitem(last=False)[0], BrokerUnavailableError(reason))

    def _send(self, publication: Publication, future: Puback) -> None:
        packet_id = self._free_packet_id() if publication.qos else 0
        self._write(self._packet(publication, packet_id))
        future.left = True
        if packet_id:
            self._unconfirmed[packet_id] = future
        else:
            future.set_result(Receipt.UNACKNOWLEDGED)

    def _send_waiting(self) -> None:
        """Send what waited for the broker's window, but never after its expiry: its caller was told otherwise."""
        while self._unsent and len(self._unconfirmed) < self._window:
            future, (publication, expires_at) = self._unsent.popitem(last=False)
            if future.done():
                continue
            if self._loop.time() < expires_at:
                self._send(publication, future)
            else:
                self._counters["publish_expired"] += 1
                _fail(future, BrokerUnavailableError("its time was over before the broker took it"))

    def _withdraw(self, future: asyncio.Future[Receipt]) -> None:
        """Give back the room of a publish that was cancelled while it waited; any other is no longer in the queue."""
        if isinstance(future, Puback) and self._unsent.pop(future, None) is not None:
            self._counters["publish_withdrawn"] += 1

    def _packet(self, publication: Publication, packet_id: int) -> bytes:
        packet = self._encode(publication, packet_id)
        if len(packet) > self._max_packet_size:
            raise PacketTooLargeError(
                "payload", f"makes a packet of {len(packet)} bytes; the broker takes {self._max_packet_size}"
            )
        return packet

    def _encode(self, publication: Publication, packet_id: int) -> bytes:
        topic = publication.topic
        if publication.qos not in (0, 1):
            raise UnpublishableError("qos", f"{publication.qos}: allowed are 0 and 1")
        if not topic or "+" in topic or "#" in topic or "\0" in topic:
            raise UnpublishableError("topic", "is empty, or has a wildcard or NUL in it: allowed is a topic name")
        try:
            properties = _publish_properties(publication) if self._is_v5 else None
            return packets.publish(topic.encode(), publication.payload, publication.qos, packet_id, properties)
        except (UnicodeEncodeError, struct.error) as error:
            raise UnpublishableError("publication", f"MQTT cannot carry it: {error}") from error

    def _free_packet_id(self) -> int:
        # Never endless: the window is smaller than the number of packet ids.
        while True:
            self._last_packet_id += 1
            if self._last_packet_id > _MAX_PACKET_ID:
                self._last_packet_id = FIRST_FREE_PACKET_ID
            if self._last_packet_id not in self._unconfirmed:
                return self._last_packet_id


def _publish_properties(publication: Publication) -> bytes:
    expiry, response_topic = publication.message_expiry, publication.response_topic
    user = publication.user_properties
    if expiry is None and response_topic is None and publication.correlation_data is None and not user:
        return _NO_PROPERTIES
    return packets.publish_properties(
        None if expiry is None else packets.expiry_interval(expiry),
        None if response_topic is None else response_topic.encode(),
        publication.correlation_data,
        [(name.encode(), value.encode()) for name, value in user] if user else (),
    )


def _refusal(reason_code: int) -> Exception:
    reason = f"the broker refused the message: 0x{reason_code:02X}"
    never = _NEVER_TAKEN.get(reason_code)
    return PublishRefusedError(reason) if never is None else UnpublishableError("publication", f"{reason}, {never}")


def _fail(future: Puback, error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # Marked as seen: a caller that went away must not make asyncio write a traceback for each message.
        future.exception()
