from __future__ import annotations

from app.callbacks.floods import MOST_A_SECOND, Floods
from app.core.messages import ReceivedMessage
from tests.unit.assembly import AS_LONG_AS_IT_TAKES, Lamp, ManualClock, assemble, at_once, request
from tests.waiting import turns


def test_only_who_floods_is_held_back_and_only_for_that_second() -> None:
    clock = ManualClock()
    floods = Floods(clock)
    for number in range(MOST_A_SECOND):
        assert not floods.holds_back("loud"), number
        floods.count("loud")
    floods.count("quiet")
    assert floods.holds_back("loud")
    assert not floods.holds_back("quiet")
    clock.advance(1)
    assert not floods.holds_back("loud")
    floods.count("loud")
    assert not floods.holds_back("loud")


def test_what_is_kept_of_them_is_bounded() -> None:
    floods = Floods(ManualClock(), devices=2)
    for _ in range(MOST_A_SECOND):
        for device in ("a", "b", "c"):
            floods.count(device)
    assert [floods.holds_back(device) for device in ("a", "b", "c")] == [True, True, False]


async def test_a_device_that_floods_costs_no_look_ups_and_disturbs_no_other() -> None:
    assembly = await assemble()
    member = assembly.members[0]
    lamp = Lamp(assembly.broker, at_once)
    await lamp.start()
    for number in range(3 * MOST_A_SECOND):
        payload = f'{{"id":"042-{number:026}","status":"ok"}}'.encode()
        assembly.broker.publish(ReceivedMessage("homing/loud/response", payload))
        await turns()
    assert member.counters["drop.unknown"] == MOST_A_SECOND
    assert member.counters["drop.flood"] == 2 * MOST_A_SECOND
    invocation = await member.invoker.invoke(request(), park=True)
    assert (await invocation.wait(AS_LONG_AS_IT_TAKES)).state.final
