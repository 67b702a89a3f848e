"""The questions that a broker asks about its clients: who one is, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from app.core.broker.codes import ReasonCode


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate that the client has shown and proved to be its own. An authority that the broker trusts made it."""

    name: str
    """The common name of its subject."""
    not_before: float
    """The instant since which it counts, in seconds since 1970."""
    not_after: float
    """The instant until which it counts."""


class Permit(Protocol):
    """The rights of a client whose CONNECT was accepted. Each answer is by the rules of this moment."""

    @property
    def owner(self) -> str:
        """The owner of the client, who may take up only sessions of their own; empty if nobody asked."""

    @property
    def reminder(self) -> str:
        """The text that the door wants to see again to know what an owner who is away has logged in with."""

    def valid(self) -> bool:
        """Return False when the client has to go."""

    def may_publish(self, topic: str) -> bool:
        """Return True if the client may publish to the topic name."""

    def publishes(self, topic: str) -> bool:
        """Return what `may_publish` does, for a message that is published now: some of them go on record."""

    def may_subscribe(self, topic_filter: str, *, shared: bool) -> bool:
        """Return True if the client may have the filter, also as a member of a share. Each message is judged again.

        The filter has no share in front.
        """

    def may_receive(self, topic: str) -> bool:
        """Return True if the client may get messages of the topic."""


class Door(Protocol):
    """Knows the clients of a broker."""

    @property
    def knows(self) -> bool:
        """False while nobody can tell who may do what. Until then nothing is said in the name of who is away."""

    def admit(
        self, user_name: str | None, password: bytes | None, certificate: ClientCertificate | None = None
    ) -> Permit | ReasonCode:
        """Return the permit of whoever shows this, or the reason why they are refused."""

    def absent(self, owner: str, reminder: str) -> Permit:
        """Return the permit of an owner without a connection: for their will, and for what is kept for them."""


class _EverythingPermit:
    """The permit of a client that may do everything."""

    reminder: Final = ""

    def __init__(self, owner: str) -> None:
        self.owner: Final = owner

    def valid(self) -> bool:
        return True

    def may_publish(self, topic: str) -> bool:  # noqa: ARG002 - as the port says
        return True

    def publishes(self, topic: str) -> bool:
        return self.may_publish(topic)

    def may_subscribe(self, topic_filter: str, *, shared: bool) -> bool:  # noqa: ARG002
        return True

    def may_receive(self, topic: str) -> bool:  # noqa: ARG002
        return True


class OpenDoor:
    """Lets everybody in who can reach the broker."""

    knows: Final = True

    def admit(
        self,
        user_name: str | None,  # noqa: ARG002 - as the port says
        password: bytes | None,  # noqa: ARG002
        certificate: ClientCertificate | None = None,  # noqa: ARG002
    ) -> Permit | ReasonCode:
        """Return a permit for everything."""
        return ANYBODY

    def absent(self, owner: str, reminder: str) -> Permit:  # noqa: ARG002
        """Return a permit for everything."""
        return ANYBODY


ANYBODY: Final[Permit] = _EverythingPermit("")
OWN_NODE: Final[Permit] = _EverythingPermit("\0node")
"""The node that has the broker. No principal has such an id."""
