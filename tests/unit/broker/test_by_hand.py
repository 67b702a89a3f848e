"""Commands that callers publish by hand, past the nodes: they go on record, or do not go out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.broker.door import HandRecord
from app.core.access.callers import Caller
from app.core.access.model import Binding, Kind, Principal, Role
from app.core.broker.rights import Permit
from app.core.errors import UnavailableError
from tests.unit.broker.test_door import Gate

COMMAND, RESPONSE = "homing/SN1/command", "homing/SN1/response"


class Record(HandRecord):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.trouble = ""

    def check(self) -> None:
        if self.trouble:
            raise UnavailableError(self.trouble)

    def sent_by_hand(self, caller: Caller, topic: str, device_id: str, profile: str) -> None:
        self.told.append((topic, device_id, profile))


def permit_of(record: Record, *actions: str) -> tuple[Gate, Permit]:
    gate = Gate(record=record)
    person = Principal(id="ann", tenant_id=None, kind=Kind.USER, name="ann")
    key = gate.add(person)
    rules = tuple(f"allow {one} *:* on *" for one in actions)
    role, binding = (
        Role(name="r", tenant_id=None, rules=rules),
        Binding(id="b", subject="ann", role="r", tenant_id=None),
    )
    gate.become(replace(gate.document, roles=(role,), bindings=(binding,)))
    return gate, gate.admitted("ann", key)


def test_a_command_by_hand_is_on_record_each_time_and_nothing_else_is() -> None:
    record = Record()
    _, permit = permit_of(record, "send", "override", "publish")
    assert permit.may_publish(COMMAND)
    assert record.told == [], "a question is no command"
    assert [permit.publishes(COMMAND), permit.publishes(COMMAND), permit.publishes(RESPONSE)] == [True] * 3
    assert record.told == [(COMMAND, "SN1", "homing")] * 2


def test_a_will_that_is_a_command_is_on_record_when_it_is_said() -> None:
    record = Record()
    gate, permit = permit_of(record, "send", "override")
    away = gate.door.absent(permit.owner, permit.reminder)
    assert away.may_publish(COMMAND)
    assert record.told == []
    assert away.publishes(COMMAND)
    assert record.told == [(COMMAND, "SN1", "homing")]


@pytest.mark.parametrize("actions", [("send",), ("override",), ("publish",)])
def test_who_lacks_a_right_leaves_no_record(actions: tuple[str, ...]) -> None:
    record = Record()
    _, permit = permit_of(record, *actions)
    assert not permit.publishes(COMMAND)
    assert record.told == []


def test_what_must_be_on_record_and_cannot_does_not_go_out() -> None:
    record = Record()
    _, permit = permit_of(record, "send", "override", "publish")
    record.trouble = "the disk is full"
    assert not permit.publishes(COMMAND)
    assert permit.publishes(RESPONSE)
    record.trouble = ""
    assert permit.publishes(COMMAND)
