"""Publishes commands, composed from what the store knows of them: any node can send one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Protocol

from app.callbacks.observer import Observers
from app.commands.send.absence import Absence
from app.core.commands.command import Command
from app.core.errors import BrokerUnavailableError
from app.core.messages import Publication
from app.core.payload import MISSING, JsonValue, Missing
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.templates import CommandFacts, facts_of
from app.mqtt.base import MqttClient, Puback
from app.runtime.listeners import Listeners


class TraceCarrier(Protocol):
    """Puts the context of a command's trace on what carries it. No observer: it decides what is stored and sent."""

    def context(self) -> str | None:
        """The context (W3C traceparent) of the request that is served; None where it is not traced."""

    def stamp(self, publication: Publication) -> None:
        """Let a publication that is about to leave carry the context of its own publish, as a user property."""


class Publisher:
    """`carrier` is there where commands are traced."""

    def __init__(
        self,
        *,
        mqtt: MqttClient,
        profiles: Mapping[str, DeviceProfile],
        observers: Observers,
        absence: Absence,
        carrier: TraceCarrier | None = None,
    ) -> None:
        self._mqtt = mqtt
        self._profiles = profiles
        self._observers = observers
        self.absence: Final = absence
        """True if the broker tells of commands that nobody gets."""
        self.carrier = carrier
        self.handed_over: Final[Listeners[Command, Puback]] = Listeners()
        """Called with a command that the connection to the broker has taken, and the future of its PUBACK."""

    @property
    def connected(self) -> bool:
        """True if there is a connection to the MQTT broker."""
        return self._mqtt.connected

    def check_connected(self) -> None:
        """BrokerUnavailableError without a connection, so that nothing is begun in vain."""
        if not self._mqtt.connected:
            raise BrokerUnavailableError("this node has no connection to the MQTT broker")

    def publish(
        self,
        command: Command,
        *,
        params: JsonValue | Missing = MISSING,
        left: timedelta | None = None,
        trace: str | None = None,
    ) -> tuple[Publication, Puback]:
        """Send a command, see `compose`; what was sent, and the future of its PUBACK.

        `params` are those of the command where the caller has them as a value.

        InvalidInputError, and what `MqttClient.publish` raises.
        """
        publication = compose(self._profiles[command.profile], facts_of(command, params), left=left, trace=trace)
        if self.carrier is not None:
            self.carrier.stamp(publication)
        puback = self._mqtt.publish(publication)
        for tell in self._observers.published:
            tell(command.id, publication, puback)
        self.handed_over(command, puback)
        return publication, puback


def compose(
    profile: DeviceProfile, facts: CommandFacts, *, left: timedelta | None = None, trace: str | None = None
) -> Publication:
    """The publication that carries the command to its device.

    `left` is the time until its deadline where that is not the whole timeout any more; `trace` the context of its trace
    (W3C traceparent). InvalidInputError when MQTT has no topic name for it.
    """
    publication = profile.compose(facts, trace)
    if left is not None:
        publication.message_expiry = left
    return publication
