"""The door of the broker in a node: clients log in by keys, and may do what rules of the access directory say."""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from typing import Final

from app.access.authority import Authority
from app.broker.topics import DeviceTopics
from app.core.access.callers import Caller
from app.core.access.rules import Action
from app.core.access.snapshot import Snapshot
from app.core.broker.codes import ReasonCode
from app.core.broker.rights import OWN_NODE, Permit
from app.core.errors import HomingError, UnauthenticatedError, UnavailableError

RAW: Final = "publish-raw"
"""The method, in rules, of a command that goes round the nodes: nobody can tell which one it is."""
MOST_KNOWN: Final = 1024
"""Decisions that a connection keeps, for a second at most."""


class AccessDoor:
    """Takes an API key or a token as the password, with the id of its principal as the user name.

    `own` is the login of the node itself.
    """

    def __init__(self, authority: Authority, topics: DeviceTopics, own: tuple[str, str]) -> None:
        self._authority = authority
        self._topics = topics
        self._own = (own[0].encode(), own[1].encode())

    def admit(self, user_name: str | None, password: bytes | None) -> Permit | ReasonCode:
        """Admit a client by the rules of this moment."""
        if not password:
            return ReasonCode.NOT_AUTHORIZED
        name, secret = self._own
        if secret and compare_digest((user_name or "").encode(), name) and compare_digest(password, secret):
            return OWN_NODE
        try:
            caller = self._authority.caller(b"Bearer " + password)
            owner = self._authority.identity(caller).principal
        except UnauthenticatedError:
            return ReasonCode.BAD_USER_NAME_OR_PASSWORD
        except UnavailableError:
            return ReasonCode.SERVER_UNAVAILABLE
        if user_name != owner:
            return ReasonCode.BAD_USER_NAME_OR_PASSWORD
        return _CallerPermit(self._authority, self._topics, caller, owner)


class _CallerPermit:
    """The rights of a caller, as they are over HTTP."""

    def __init__(self, authority: Authority, topics: DeviceTopics, caller: Caller, owner: str) -> None:
        self.owner: Final = owner
        self._authority = authority
        self._topics = topics
        self._caller = caller
        self._snapshot: Snapshot | None = None
        self._known: dict[tuple[Callable[[str], bool], str], bool] = {}

    def valid(self) -> bool:
        """Look at the key; what was decided before is forgotten, as rules may have an end."""
        self._known.clear()
        try:
            self._authority.identity(self._caller)
        except UnauthenticatedError:
            return False
        except UnavailableError:
            return True  # nobody knows better
        return True

    def may_publish(self, topic: str) -> bool:
        return self._once(self._publishes, topic)

    def may_subscribe(self, topic_filter: str) -> bool:
        """A filter with wildcards is granted: each message that it brings is judged."""
        return "+" in topic_filter or "#" in topic_filter or self.may_receive(topic_filter)

    def may_receive(self, topic: str) -> bool:
        return self._once(self._reads, topic)

    def _once(self, judge: Callable[[str], bool], topic: str) -> bool:
        """The answer of `judge` by this snapshot of the rules."""
        try:
            snapshot = self._authority.view.snapshot
        except UnavailableError:
            return False
        if snapshot is not self._snapshot or len(self._known) >= MOST_KNOWN:
            self._known.clear()
            self._snapshot = snapshot
        known = self._known.get((judge, topic))
        if known is None:
            known = self._known[judge, topic] = judge(topic)
        return known

    def _publishes(self, topic: str) -> bool:
        use = self._topics.use_of(topic)
        if not use.told:
            return self._may(Action.PUBLISH, use.device)
        # A command by hand meets no rule about its method, so it takes the right to override them.
        return all(self._may(one, use.device, use.profile, RAW) for one in (Action.SEND, Action.OVERRIDE))

    def _reads(self, topic: str) -> bool:
        use = self._topics.use_of(topic)
        try:
            return self._authority.may_read(self._caller, use.device, use.profile, "")
        except HomingError:
            return False

    def _may(self, action: Action, device: str, profile: str = "", method: str = "") -> bool:
        try:
            self._authority.check(self._caller, action, device, profile, method)
        except HomingError:
            return False
        return True
