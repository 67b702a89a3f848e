"""Devices at the door of the broker: each may speak and listen where profiles have it do so, and for no other one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.access.authority import Authority
from app.access.follower import DirectoryFollower, View
from app.broker.door import AccessDoor, HandRecord
from app.broker.topics import DeviceTopics
from app.core.access.devices import device_principal
from app.core.access.keys import Key, make_key
from app.core.access.model import Credential, Document, Principal, Scheme, Tenant
from app.core.access.snapshot import Snapshot
from app.core.broker.codes import ReasonCode
from app.core.broker.rights import Permit
from app.core.errors import EntryConflictError
from app.core.profiles.profile import DeviceProfile
from app.core.topics import TopicTemplate
from app.profiles.loader import load_profiles
from tests.unit.assembly import ManualClock

WRONG, REFUSED = ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED
PROFILES = load_profiles()
TENANTS = (
    Tenant(id="air", name="air", devices=("SN*",), created_us=0),
    Tenant(id="ground", name="ground", devices=("L*",), created_us=0),
)


class Gate:
    """A door, and the directory behind it."""

    def __init__(
        self,
        tenants: tuple[Tenant, ...] = (),
        profiles: Iterable[DeviceProfile] = (),
        record: HandRecord | None = None,
    ) -> None:
        self.clock = ManualClock()
        self._random = iter(range(1, 200))
        self.following = SimpleNamespace(known=True, trouble="", heard_at=0.0, use=lambda *_: None)
        self.become(Document(cluster_id="c", version=1, tenants=tenants))
        follower = cast("DirectoryFollower", self.following)
        authority = Authority(follower, self.clock, stale=1e9, nodes=lambda: 1, counters=Counter())
        topics = DeviceTopics([PROFILES["homing"], PROFILES["dji"], *profiles])
        self.door = AccessDoor(authority, topics, ("", ""), self.clock.monotonic, record)

    def become(self, document: Document) -> None:
        self.document = document
        self.following.view = View(document, Snapshot.of(document))

    def revoke(self, key: Key) -> None:
        revoked = (replace(one, revoked_us=1) if one.id == key.id else one for one in self.document.credentials)
        self.become(replace(self.document, credentials=tuple(revoked)))

    def key_for(self, device: str, **more: Any) -> Key:
        """A key of the device, and its principal if there is none."""
        owner = device_principal(self.document, self.following.view.snapshot.tenancy, device, 0)
        return self.add(owner, **more)

    def add(self, owner: Principal, **more: Any) -> Key:
        number = next(self._random)
        key = make_key(lambda size: number.to_bytes(size, "big"))
        credential = Credential(
            id=key.id, principal_id=owner.id, scheme=Scheme.KEY, name="", digest=key.digest, created_us=0, **more
        )
        known = self.document.principals
        self.become(
            replace(
                self.document,
                principals=known if owner in known else (*known, owner),
                credentials=(*self.document.credentials, credential),
            )
        )
        return key

    def admitted(self, user_name: str, key: Key) -> Permit:
        found = self.door.admit(user_name, key.text.encode())
        assert not isinstance(found, ReasonCode), found.name
        return found


def test_a_device_logs_in_with_its_id_and_its_own_key() -> None:
    gate = Gate()
    mine, other = gate.key_for("SN1"), gate.key_for("SN2")
    assert gate.admitted("SN1", mine).owner == "device:SN1"
    for user_name, key in (("SN1", other), ("SN2", mine), ("device:SN1", mine), ("", mine), ("admin", mine)):
        assert gate.door.admit(user_name, key.text.encode()) is WRONG
    assert gate.door.admit(None, mine.text.encode()) is WRONG


def test_a_device_whose_name_is_no_id_logs_in_with_its_name() -> None:
    gate = Gate()
    lamp = gate.admitted("living room/lamp", gate.key_for("living room/lamp"))
    assert lamp.owner == "device:living%20room%2Flamp"
    assert gate.door.admit("living%20room%2Flamp", gate.key_for("living room/lamp").text.encode()) is WRONG


@pytest.mark.parametrize(
    ("topic", "publishes", "receives"),
    [
        ("homing/SN1/response", True, False),
        ("homing/SN1/event", True, False),
        ("homing/SN1/command", False, True),
        ("homing/SN2/response", False, False),
        ("homing/SN2/event", False, False),
        ("homing/SN2/command", False, False),
        ("thing/product/SN1/services_reply", True, False),
        ("thing/product/SN1/services", False, True),
        ("thing/product/SN1/events", True, False),
        ("thing/product/SN1/events_reply", False, True),
        ("thing/product/SN2/services", False, False),
        ("thing/product/SN2/services_reply", False, False),
        ("somewhere/else", False, False),
        ("SN1", False, False),
        ("$SYS/broker/version", False, False),
        ("$homing/nodes/x", False, False),
    ],
)
def test_a_device_speaks_and_listens_where_its_profiles_have_it_do_so(
    topic: str, *, publishes: bool, receives: bool
) -> None:
    gate = Gate()
    permit = gate.admitted("SN1", gate.key_for("SN1"))
    assert (permit.may_publish(topic), permit.may_receive(topic)) == (publishes, receives)
    assert permit.may_subscribe(topic, shared=False) == receives
    assert not permit.may_subscribe(topic, shared=True), "a member of a share takes from the others"


def test_filters_with_wildcards_are_granted_and_judged_message_by_message() -> None:
    gate = Gate()
    permit = gate.admitted("SN1", gate.key_for("SN1"))
    assert permit.may_subscribe("#", shared=False)
    assert not permit.may_subscribe("#", shared=True)


def profile(said: str, told: str = "q/{device_id}/in") -> DeviceProfile:
    """One that speaks as `homing` does, on other topics."""
    known = PROFILES["homing"]
    return replace(
        known,
        name="other",
        requests=tuple(replace(one, topic=TopicTemplate(told)) for one in known.requests),
        responses=tuple(replace(one, topic=TopicTemplate(said)) for one in known.responses),
        events=(),
        presence=(),
        replies=(),
    )


def test_a_topic_that_is_another_devices_by_any_profile_is_nobodys_key_to() -> None:
    """The nodes read a message by all profiles: what one takes for SN1's, the other takes for `homing`'s."""
    gate = Gate(profiles=[profile("{device_id}/SN1/response")])
    assert not gate.admitted("SN1", gate.key_for("SN1")).may_publish("homing/SN1/response")
    assert not gate.admitted("homing", gate.key_for("homing")).may_publish("homing/SN1/response")
    told = Gate(profiles=[profile("q/{device_id}/out", told="homing/response/{device_id}")])
    assert not told.admitted("response", told.key_for("response")).may_publish("homing/response/event")


def test_a_key_counts_until_it_is_revoked_and_two_at_a_time_may() -> None:
    gate = Gate()
    old = gate.key_for("SN1", expires_us=int(gate.clock.wall() + 10) * 1_000_000)
    new = gate.key_for("SN1")
    by_old, by_new = gate.admitted("SN1", old), gate.admitted("SN1", new)
    assert by_old.owner == by_new.owner, "the session stays the device's own"
    gate.clock.advance(11)
    assert (by_old.valid(), by_new.valid()) == (False, True)
    assert gate.door.admit("SN1", old.text.encode()) is WRONG
    gate.revoke(new)
    assert not by_new.valid()


def test_the_key_of_a_device_that_goes_to_another_tenant_counts_no_more() -> None:
    gate = Gate(TENANTS)
    permit = gate.admitted("SN1", gate.key_for("SN1"))
    ground = replace(TENANTS[1], devices=("L*", "SN1"))
    gate.become(replace(gate.document, tenants=(replace(TENANTS[0], devices=("SN2",)), ground)))
    assert not permit.valid()


def test_a_principal_that_another_tenant_has_made_in_the_name_of_a_device_is_refused() -> None:
    gate = Gate(TENANTS)
    forged = replace(device_principal(gate.document, gate.following.view.snapshot.tenancy, "L1", 0), tenant_id="air")
    assert gate.door.admit("L1", gate.add(forged).text.encode()) is REFUSED
    with pytest.raises(EntryConflictError, match="belongs to another tenant than its device"):
        gate.key_for("L1")
    with pytest.raises(EntryConflictError, match="belongs to no tenant"):
        gate.key_for("nobodys")


GATEWAYS = {"thingsboard-gateway"}
"""Profiles whose messages name the device in the payload alone, so that no topic is a device's own."""


def test_the_topics_of_every_shipped_profile_have_one_device_each() -> None:
    for name, one in load_profiles(shipped=["all"]).items():
        topics = DeviceTopics([one])
        told = [*(each.topic for each in one.requests), *(each.to for each in one.replies)]
        said = [*(each.topic for each in one.responses), *(each.topic for each in one.replies)]
        noticed = [*(each.topic for each in one.events), *(each.topic for each in one.presence)]
        for template in (*told, *said, *noticed):
            topic = template.filled({place: f"x{number}" for number, place in enumerate(template.names)})
            parties = topics.parties_of(topic)
            devices = parties.listeners if template in told else parties.speakers
            assert len(devices) == (name not in GATEWAYS), (name, template.text)
            assert name in GATEWAYS or parties.concern_only(min(devices)), (name, template.text)
