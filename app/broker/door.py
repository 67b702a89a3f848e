"""The door of the broker in a node: clients log in by keys.

People and services may do what rules of the access directory say, devices what their profiles have devices do.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from typing import Final, Protocol

from app.access.authority import Authority
from app.broker.absent import AbsentOwners
from app.broker.topics import DeviceTopics
from app.core.access.callers import Caller
from app.core.access.devices import device_of_principal, principal_of_device
from app.core.access.rules import Action
from app.core.access.snapshot import Snapshot
from app.core.broker.codes import ReasonCode
from app.core.broker.figures import FIGURES
from app.core.broker.rights import OWN_NODE, ClientCertificate, Permit
from app.core.errors import HomingError, UnauthenticatedError, UnavailableError
from app.core.identifiers import id_of_name

RAW: Final = "publish-raw"
"""The method, in rules, of a command that goes round the nodes: nobody can tell which one it is."""
_WRONG: Final = ReasonCode.BAD_USER_NAME_OR_PASSWORD
MOST_KNOWN: Final = 1024
"""Decisions that a connection keeps, for a second at most."""


class HandRecord(Protocol):
    """Puts commands on record that callers publish by hand, past the nodes."""

    def check(self) -> None:
        """UnavailableError when they must be on record, and nothing can be written."""

    def sent_by_hand(self, caller: Caller, topic: str, device_id: str, profile: str) -> None:
        """A caller publishes on a topic on which devices are told commands."""


class AccessDoor:
    """Takes an API key or a token as the password, with the id of its principal as the user name.

    A device has its own id as the user name. It may show a certificate with its name instead of a key. `own` is the
    login of the node itself; `monotonic` is the clock by which decisions grow old.
    """

    def __init__(
        self,
        authority: Authority,
        topics: DeviceTopics,
        own: tuple[str, str],
        monotonic: Callable[[], float],
        record: HandRecord | None = None,
    ) -> None:
        self._authority = authority
        self._record = record
        self._topics = topics
        self._own = (own[0].encode(), own[1].encode())
        self._absent = AbsentOwners(authority, self._permit_of, monotonic)

    @property
    def knows(self) -> bool:
        """See Door."""
        return self._authority.following.known

    def admit(
        self, user_name: str | None, password: bytes | None, certificate: ClientCertificate | None = None
    ) -> Permit | ReasonCode:
        """Admit a client by the rules of this moment."""
        if not password:
            return ReasonCode.NOT_AUTHORIZED if certificate is None else self._certified(user_name, certificate)
        name, secret = self._own
        if secret and compare_digest((user_name or "").encode(), name) and compare_digest(password, secret):
            return OWN_NODE
        try:
            caller = self._authority.caller(b"Bearer " + password)
            identity = self._authority.identity(caller)
        except UnauthenticatedError:
            return _WRONG
        except UnavailableError:
            return ReasonCode.SERVER_UNAVAILABLE
        owner = identity.principal
        device = device_of_principal(owner)
        if device is None:
            return self._permit_of(caller, owner) if user_name == owner else _WRONG
        if id_of_name(user_name or "") != device or (certificate and id_of_name(certificate.name) != device):
            return _WRONG
        return self._device(caller, device)

    def absent(self, owner: str, reminder: str) -> Permit:
        """See Door."""
        return self._absent.permit(owner, reminder)

    def _permit_of(self, caller: Caller, owner: str) -> _DevicePermit | _CallerPermit:
        device = device_of_principal(owner)
        if device is None:
            return _CallerPermit(self._authority, self._topics, caller, owner, self._record)
        return _DevicePermit(self._authority, self._topics, caller, owner, device)

    def _certified(self, user_name: str | None, certificate: ClientCertificate) -> Permit | ReasonCode:
        """Admit the device that the certificate names, if the directory has it; the user name may be left out."""
        device = id_of_name(certificate.name)
        if user_name and id_of_name(user_name) != device:
            return _WRONG
        begins_us, ends_us = (round(one * 1_000_000) for one in (certificate.not_before, certificate.not_after))
        caller = Caller.of_login(principal_of_device(device), issued_us=begins_us, expires_us=ends_us)
        return self._device(caller, device)

    def _device(self, caller: Caller, device: str) -> Permit | ReasonCode:
        permit = self._permit_of(caller, principal_of_device(device))
        return permit if permit.valid() else ReasonCode.NOT_AUTHORIZED


class _DevicePermit:
    """The rights of a device: to speak and to listen where profiles have this device do so, and no other one.

    Nothing else gives it rights or takes them away, but its key, and the tenant that the device belongs to.
    """

    def __init__(self, authority: Authority, topics: DeviceTopics, caller: Caller, owner: str, device: str) -> None:
        self.owner: Final = owner
        self._authority = authority
        self._parties_of = topics.parties_of
        self._caller = caller
        self._device = device

    @property
    def reminder(self) -> str:
        return self._caller.lasting().to_text()

    def valid(self) -> bool:
        """Look at the key, and whether the device is still one of its tenant."""
        try:
            tenant = self._authority.identity(self._caller).tenant
            return tenant is None or tenant == self._authority.tenant_of(self._device)
        except UnauthenticatedError:
            return False
        except UnavailableError:
            return True  # nobody knows better

    def may_publish(self, topic: str) -> bool:
        parties = self._parties_of(topic)
        return self._device in parties.speakers and parties.concern_only(self._device)

    def publishes(self, topic: str) -> bool:
        return self.may_publish(topic)

    def may_subscribe(self, topic_filter: str, *, shared: bool) -> bool:
        """A member of a share would take from others what it may not have."""
        return not shared and (_has_wildcards(topic_filter) or self.may_receive(topic_filter))

    def may_receive(self, topic: str) -> bool:
        parties = self._parties_of(topic)
        return self._device in parties.listeners and parties.concern_only(self._device)


class _CallerPermit:
    """The rights of a caller, as they are over HTTP."""

    def __init__(
        self, authority: Authority, topics: DeviceTopics, caller: Caller, owner: str, record: HandRecord | None
    ) -> None:
        self.owner: Final = owner
        self._authority = authority
        self._topics = topics
        self._caller = caller
        self._record = record
        self._snapshot: Snapshot | None = None
        self._known: dict[tuple[Callable[[str], bool], str], bool] = {}

    @property
    def reminder(self) -> str:
        return self._caller.lasting().to_text()

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
        return self._once(self._judge_publishing, topic)

    def publishes(self, topic: str) -> bool:
        """Commands by hand go on record, and are refused where they must and cannot."""
        if not self.may_publish(topic):
            return False
        if self._record is None or not (use := self._topics.use_of(topic)).told:
            return True
        try:
            self._record.check()
        except UnavailableError:
            return False
        self._record.sent_by_hand(self._caller, topic, use.device, use.profile)
        return True

    def may_subscribe(self, topic_filter: str, *, shared: bool) -> bool:  # noqa: ARG002 - as the port says
        """A filter with wildcards is granted: each message that it brings is judged."""
        return _has_wildcards(topic_filter) or self.may_receive(topic_filter)

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

    def _judge_publishing(self, topic: str) -> bool:
        use = self._topics.use_of(topic)
        if not use.told:
            return self._may(Action.PUBLISH, use.device)
        # A command by hand meets no rule about its method, so it takes the right to override them.
        return all(self._may(one, use.device, use.profile, RAW) for one in (Action.SEND, Action.OVERRIDE))

    def _reads(self, topic: str) -> bool:
        if topic.startswith(FIGURES):
            return self._may(Action.METRICS, "")
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


def _has_wildcards(topic_filter: str) -> bool:
    return "+" in topic_filter or "#" in topic_filter
