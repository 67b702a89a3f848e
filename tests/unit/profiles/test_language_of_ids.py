"""The device that an answer is of, where numbers confirm it and ids have letters that part them."""

from __future__ import annotations

import json

import pytest

from app.broker.topics import DeviceTopics
from app.core.errors import UndecodableMessageError
from tests.unit.profiles.test_language import ID, facts, names_it, profile, read

BY_NUMBER = (
    'topic = "r/{device_id}"\ncorrelation = "value"\nvalue = "{id_number}"\n'
    'sources = [{ path = "seq" }]\nconfirm = ["ack.seq"]\n'
)


@pytest.mark.parametrize("kind", [int, str])
def test_a_number_confirms_what_was_named_by_a_number(kind: type) -> None:
    one = profile('topic = "c/{device_id}"\npayload = { seq = "{id_number}" }\n', BY_NUMBER)
    sent = json.loads(one.compose(facts()).payload)["seq"]
    answer = read(one, "r/d", {"seq": sent, "ack": {"seq": kind(sent)}})
    assert names_it(one, answer, facts())
    for other in (kind(sent + 1), None, True, [sent]):
        with pytest.raises(UndecodableMessageError, match="correlation_contradicts"):
            read(one, "r/d", {"seq": sent, "ack": {"seq": other}})


def test_a_serial_with_colons_belongs_to_one_device_alone() -> None:
    """A serial may be a MAC address. No other product and serial may come to the same id: they are another device."""
    one = profile(
        'topic = "/{product}/{serial}/read"\npayload = { id = "{id}" }',
        'topic = "/{product}/{serial}/read/reply"\ncorrelation = "id"\nsources = [{ path = "id" }]',
        'device_id = "{product}:{serial}"',
    )
    command = facts(device="pump:AA:BB:CC")
    assert one.compose(command).topic == "/pump/AA:BB:CC/read"
    answer = read(one, "/pump/AA:BB:CC/read/reply", {"id": ID})
    assert (answer.device_id, names_it(one, answer, command)) == ("pump:AA:BB:CC", True)
    with pytest.raises(UndecodableMessageError, match="no_device"):
        read(one, "/pump:AA/BB:CC/read/reply", {"id": ID})
    parties = DeviceTopics([one]).parties_of("/pump:AA/BB:CC/read/reply")
    assert not parties.concern_only("pump:AA:BB:CC")
