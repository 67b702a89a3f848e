"""Knows for which profiles the broker tells that nobody is subscribed, and so what a command does where nobody is.

PUBACK 0x10 proves that nobody is subscribed to a topic; its absence proves nothing: with MQTT 3.1.1 there is no reason
code, some brokers never send this one, and where somebody listens to everything each topic has a subscriber. So each
connection begins with a message to a device that there is not, for each profile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from app.core.commands.command import IfOffline
from app.core.errors import InvalidInputError, UnavailableError
from app.core.events.presence import Whereabouts
from app.core.identifiers import CANARY
from app.core.messages import Publication, Receipt
from app.core.profiles.profile import DeviceProfile
from app.mqtt.base import MqttClient

EVERY_SECONDS: Final = 1.0
"""The time after which it is looked again whether the connection is another one."""
EXPIRY: Final = timedelta(seconds=1)
NOTHING: Final = b""
"""The payload that a subscriber to the commands of all devices sees of it: empty, which no codec takes for a
command."""


OfflineSince = Callable[[str], Awaitable[int | None]]
"""The instant (µs since 1970) since which a device is known to be away; None without evidence, and never an error."""


async def nobody_knows(_device_id: str) -> int | None:
    """The answer of a node that keeps no events."""
    return None


async def nobody_knows_where(_device_id: str) -> Whereabouts:
    """Return nothing: a node that keeps no events does not know whether a device is there."""
    return Whereabouts(None)


class Absence:
    """`contradicted` tells whether the broker has said that nobody is subscribed where this node is.

    `offline_since` is asked where a caller wants to know before anything is sent.
    """

    def __init__(
        self,
        *,
        mqtt: MqttClient,
        profiles: Mapping[str, DeviceProfile],
        contradicted: Callable[[], bool],
        offline_since: OfflineSince = nobody_knows,
        expire: bool = True,
    ) -> None:
        """`expire`: whether what the broker keeps for a device that is away expires; with MQTT 3.1.1 nothing does."""
        self.offline_since: Final = offline_since
        self._expire = expire
        self._mqtt = mqtt
        self._profiles = profiles
        self._contradicted = contradicted
        self._told: set[str] = set()
        self._asked_on = 0

    def default(self, profile: str) -> IfOffline:
        """Return what a command of this profile does whose caller does not say."""
        return IfOffline.FAIL if self.tells(profile) else IfOffline.SEND

    def asks_first(self, if_offline: IfOffline | None) -> bool:
        """True if a command is sent only to a device that is not known to be away; None: its caller does not say.

        A command that does not expire would reach the device whenever it comes back, however late that is.
        """
        return if_offline is IfOffline.FAIL or (if_offline is None and not self._expire)

    def tells(self, profile: str) -> bool:
        """True if the broker says of a command of this profile that nobody is subscribed."""
        return profile in self._told and not self._contradicted()

    def defaults(self) -> Mapping[str, IfOffline]:
        """By profile."""
        return {name: self.default(name) for name in sorted(self._profiles)}

    def told(self, profile: str) -> None:
        """Note that the broker told it of a command: who listened to everything has gone."""
        self._told.add(profile)

    async def run(self) -> None:
        """Ask anew on each connection, until cancelled."""
        while True:
            await self._mqtt.wait_connected()
            if self._asked_on != self._mqtt.connections:
                self._ask()
            await asyncio.sleep(EVERY_SECONDS)

    def _ask(self) -> None:
        connection = self._asked_on = self._mqtt.connections
        self._told.clear()
        for name, profile in self._profiles.items():
            topic = next((topic for topic, qos in profile.topics_of_nobody(CANARY) if qos), None)
            if topic is None:  # the broker says nothing to QoS 0
                continue
            try:
                puback = self._mqtt.publish(Publication(topic, NOTHING, message_expiry=EXPIRY))
            except (UnavailableError, InvalidInputError):
                continue
            puback.add_done_callback(partial(self._answered, name, connection))

    def _answered(self, profile: str, connection: int, puback: asyncio.Future[Receipt]) -> None:
        if puback.cancelled() or puback.exception() is not None or connection != self._asked_on:
            return
        if puback.result() is Receipt.UNMATCHED:
            self._told.add(profile)
