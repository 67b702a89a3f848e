"""Owners of sessions who are away: what they may say and get by the rules of this moment (docs/adr/0179)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.access.authority import Authority
from app.core.access.callers import EVER, OIDC, Caller
from app.core.access.snapshot import Snapshot
from app.core.broker.rights import ANYBODY, OWN_NODE, Permit
from app.core.topictree import MOST_TOPICS

DECIDED_SECONDS: Final = 1.0
"""A decision counts for so long, as rules may have an end."""


class AbsentOwners:
    """A will is said by whoever has shown a key, so that key has to count when it is due; a token may have run out.

    What is kept is for the owner, who may come back with another key, by which it is judged again. `permit_of` gives
    the permit of a caller who is this owner.
    """

    def __init__(
        self, authority: Authority, permit_of: Callable[[Caller, str], Permit], monotonic: Callable[[], float]
    ) -> None:
        self._authority = authority
        self._permit_of = permit_of
        self._monotonic = monotonic
        self._snapshot: Snapshot | None = None
        self._until = 0.0
        self._known: dict[tuple[str, str], bool] = {}

    def permit(self, owner: str, reminder: str) -> Permit:
        """Return the permit of an owner. A session of nobody is whose who takes it up."""
        if owner in ("", OWN_NODE.owner):
            return OWN_NODE if owner else ANYBODY
        return _AbsentPermit(self, owner, reminder)

    def says(self, owner: str, reminder: str, topic: str) -> bool:
        """Return True if what the owner has left to be said is said."""
        permit = self._speaker(owner, reminder)
        return permit.valid() and permit.may_publish(topic)

    def publishes(self, owner: str, reminder: str, topic: str) -> bool:
        """Return what `says` does, for what is said now."""
        permit = self._speaker(owner, reminder)
        return permit.valid() and permit.publishes(topic)

    def _speaker(self, owner: str, reminder: str) -> Permit:
        return self._permit_of(_remembered(reminder) or _lasting(owner), owner)

    def gets(self, owner: str, reminder: str, topic: str) -> bool:
        """Return True if messages of the topic are kept for the owner. While nobody knows the rules, all are."""
        if not self._authority.following.known:
            return True
        snapshot, now = self._authority.view.snapshot, self._monotonic()
        if snapshot is not self._snapshot or now >= self._until or len(self._known) >= MOST_TOPICS:
            self._known.clear()
            self._snapshot, self._until = snapshot, now + DECIDED_SECONDS
        known = self._known.get((owner, topic))
        if known is None:
            known = self._known[owner, topic] = self._judge(owner, reminder, topic)
        return known

    def _judge(self, owner: str, reminder: str, topic: str) -> bool:
        told = _remembered(reminder) if owner.startswith(OIDC) else None  # nobody else tells of them
        permit = self._permit_of(told or _lasting(owner), owner)
        return permit.valid() and permit.may_receive(topic)


class _AbsentPermit:
    """The rights of an owner who is away. There is one for each session, so it is small."""

    __slots__ = ("_owners", "owner", "reminder")

    def __init__(self, owners: AbsentOwners, owner: str, reminder: str) -> None:
        self._owners = owners
        self.owner: Final = owner
        self.reminder: Final = reminder

    def valid(self) -> bool:
        """Nobody has to go who is away."""
        return True

    def may_publish(self, topic: str) -> bool:
        return self._owners.says(self.owner, self.reminder, topic)

    def publishes(self, topic: str) -> bool:
        return self._owners.publishes(self.owner, self.reminder, topic)

    def may_subscribe(self, topic_filter: str, *, shared: bool) -> bool:  # noqa: ARG002 - as the port says
        """Nobody subscribes who is away."""
        return False

    def may_receive(self, topic: str) -> bool:
        return self._owners.gets(self.owner, self.reminder, topic)


def _lasting(owner: str) -> Caller:
    return Caller.of_login(owner, issued_us=EVER, expires_us=EVER)


def _remembered(reminder: str) -> Caller | None:
    try:
        return Caller.of_text(reminder) if reminder else None
    except (TypeError, ValueError):
        return None  # a later version wrote it
