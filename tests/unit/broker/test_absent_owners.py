"""The door judges owners who are away: their wills by the key that they had shown, what is kept by who they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.core.access.callers import Caller
from app.core.access.model import Binding, Kind, Principal, Role
from app.core.broker.packets import WillMessage
from app.core.broker.rights import OWN_NODE, Permit
from tests.unit.broker.test_door import Gate
from tests.unit.core.broker.doors import knock
from tests.unit.core.broker.peers import BrokerBench, payloads, properties

SAID, TOLD = "homing/SN1/event", "homing/SN1/command"
BACKEND = Principal(id="backend", tenant_id=None, kind=Kind.SERVICE, name="backend")
RIGHTS = Role(name="some", tenant_id=None, rules=("allow read *:* on *", "allow publish *:* on *"))


def binding(subject: str, expires_us: int | None = None) -> Binding:
    return Binding(id="b", subject=subject, role="some", tenant_id=None, expires_us=expires_us)


def bound(subject: str, expires_us: int | None = None) -> Gate:
    """A gate where these may read and publish everywhere."""
    gate = Gate()
    gate.become(replace(gate.document, roles=(RIGHTS,), bindings=(binding(subject, expires_us),)))
    return gate


def away(gate: Gate, permit: Permit) -> Permit:
    """The permit of the same owner when the connection has ended."""
    return gate.door.absent(permit.owner, permit.reminder)


def says_and_gets(permit: Permit, said: str = SAID, told: str = SAID) -> tuple[bool, bool]:
    return permit.may_publish(said), permit.may_receive(told)


def test_a_revoked_key_says_nothing_more_and_its_owner_is_kept_what_comes() -> None:
    """So nobody loses messages who changes a key."""
    gate = bound("backend")
    key = gate.add(BACKEND)
    permit = away(gate, gate.admitted("backend", key))
    assert says_and_gets(permit) == (True, True)
    gate.revoke(key)
    assert says_and_gets(permit) == (False, True)
    disabled = replace(BACKEND, disabled_us=1)
    gate.become(replace(gate.document, principals=(disabled,)))
    assert says_and_gets(permit) == (False, False)


def test_a_device_that_is_away_is_judged_by_its_key_its_record_and_its_profiles() -> None:
    gate = Gate()
    key = gate.key_for("SN1")
    permit = away(gate, gate.admitted("SN1", key))
    assert says_and_gets(permit, told=TOLD) == (True, True)
    assert says_and_gets(permit, "homing/SN2/event", "homing/SN2/command") == (False, False)
    gate.revoke(key)
    assert says_and_gets(permit, told=TOLD) == (False, True)
    gate.become(replace(gate.document, principals=(), credentials=()))
    assert says_and_gets(permit, told=TOLD) == (False, False)


@pytest.mark.parametrize("delay", [0, 30])
@pytest.mark.parametrize("is_revoked", [True, False])
def test_a_device_whose_key_is_revoked_while_it_is_there_has_no_will(*, is_revoked: bool, delay: int) -> None:
    gate = bound("backend")
    bench = BrokerBench(gate.door)
    watcher, _ = knock(bench, "backend", gate.add(BACKEND).text.encode())
    watcher.subscribe(SAID)
    key = gate.key_for("SN1")
    will = WillMessage(SAID, b"gone", 1, properties=properties(WILL_DELAY_INTERVAL=delay))
    device, _ = knock(bench, "SN1", key.text.encode(), client_id="SN1", will=will, expiry=60)
    if is_revoked:
        gate.revoke(key)
        bench.broker.recheck()
        assert device.closed
    else:
        device.drop()
    bench.pass_seconds(delay)
    assert payloads(watcher.hear()) == ([] if is_revoked else [b"gone"])


def test_rights_that_end_by_themselves_end_for_who_is_away_within_a_second() -> None:
    gate = bound("backend", int(Gate().clock.wall() + 10) * 1_000_000)
    permit = away(gate, gate.admitted("backend", gate.add(BACKEND)))
    assert says_and_gets(permit) == (True, True)
    gate.clock.advance(11)
    assert says_and_gets(permit) == (False, False)


def test_a_token_that_has_run_out_says_its_will_and_a_key_that_has_does_not() -> None:
    """A token ends in minutes, whatever its owner may; who made a key that ends meant it."""
    gate = bound("backend")
    now = int(gate.clock.wall()) * 1_000_000
    login = Caller.of_login("backend", issued_us=now, expires_us=now + 1_000_000)
    key = gate.add(BACKEND, expires_us=now + 1_000_000)
    by_key = away(gate, gate.admitted("backend", key))
    by_token = gate.door.absent("backend", login.lasting().to_text())
    gate.clock.advance(2)
    assert says_and_gets(by_key) == (False, True)
    assert says_and_gets(by_token) == (True, True)


def test_whom_only_a_token_tells_of_is_known_by_its_groups() -> None:
    gate = bound("group:pilots")
    token = Caller.of_token("https://i", "s", groups=["pilots"], tenant_id=None, issued_us=0, expires_us=1)
    owner = token.outsider or ""
    assert says_and_gets(gate.door.absent(owner, token.lasting().to_text())) == (True, True)
    gate.clock.advance(1)
    assert says_and_gets(gate.door.absent(owner, "")) == (False, False)


@pytest.mark.parametrize("reminder", ["", "[", "[1]", "7", '["x"]'])
def test_an_owner_without_a_reminder_is_judged_by_the_id(reminder: str) -> None:
    gate = bound("backend")
    gate.add(BACKEND)
    assert says_and_gets(gate.door.absent("backend", reminder)) == (True, True)
    assert says_and_gets(gate.door.absent("nobody", reminder)) == (False, False)


def test_while_nobody_knows_the_rules_all_is_kept() -> None:
    gate = bound("backend")
    permit = away(gate, gate.admitted("backend", gate.add(BACKEND)))
    assert gate.door.knows
    gate.following.known = False
    assert not gate.door.knows
    assert permit.may_receive("anything")


def test_the_node_and_sessions_of_nobody_are_as_before() -> None:
    gate = Gate()
    assert gate.door.absent(OWN_NODE.owner, "") is OWN_NODE
    assert says_and_gets(gate.door.absent("", "")) == (True, True)
