"""Commands that are held of a fleet run that stands: nobody sends them while it is paused, nor once it was aborted."""

from __future__ import annotations

from pathlib import Path

from app.core.messages import ReceivedMessage
from tests.api.rig import Rig, homing_with, is_ready, running
from tests.api.test_fleets import RUNS, Json, becomes, begin, counted, docks, post, tell
from tests.api.test_held import RULES
from tests.waiting import eventually


async def held(rig: Rig) -> list[Json]:
    found: list[Json] = (await rig.http.get("/v1/commands?state=held")).json()["commands"]
    return found


async def test_what_is_held_of_a_paused_run_waits_until_it_goes_on_and_nothing_else_does(tmp_path: Path) -> None:
    """An interlock keeps all of it back at first."""
    async with running(events={"url": "memory://"}, profiles={"dir": homing_with(tmp_path, RULES)}) as rig:
        await eventually(lambda: is_ready(rig))
        await tell(rig, docks(3))
        run = await begin(rig, docks(3), in_flight=2)
        await counted(rig, run, handed=2, waiting=1)
        assert (await post(rig, run, "pause")).json()["state"] == "paused"
        assert [one["hold"]["run"] for one in await held(rig)] == [run["id"]] * 2
        (first, _) = await held(rig)

        async def is_said() -> bool:  # a node remembers for half a second how a run stood
            verdict = (await rig.http.get(f"/v1/commands/{first['id']}/explain")).json()["verdict"]
            return f"fleet run {run['id']} is paused, or was aborted" in verdict["evidence"]

        await eventually(is_said)
        plain: list[str] = []

        async def have_come() -> bool:
            return sorted(one["id"] for one in rig.device.received) == sorted(plain)

        for _ in range(3):  # a look may come before the value by which the interlock judges
            for one in docks(2):
                rig.broker.publish(ReceivedMessage(f"homing/{one}/osd", b'{"mode": 0}', qos=1))
                sent = await rig.http.post(f"/v1/devices/{one}/commands", json={"method": "ok", "hold": "1h"})
                plain.append(sent.json()["id"])
            await eventually(have_come)
        assert len(await held(rig)) == 2, "they came first, and would have left first"
        rig.broker.publish(ReceivedMessage("homing/dock-2/osd", b'{"mode": 0}', qos=1))
        await post(rig, run, "resume")
        await becomes(rig, run, "succeeded")
        assert len(rig.device.received) == len(plain) + 3


async def test_an_abort_cancels_what_nobody_has_sent_and_leaves_what_was_sent(keeping: Rig) -> None:
    await tell(keeping, docks(1))
    run = await begin(keeping, docks(2), "silent")

    async def has_come() -> bool:
        return len(keeping.device.received) == 1

    await counted(keeping, run, handed=2)
    await eventually(has_come)
    await post(keeping, run, "abort")
    await counted(keeping, run, handed=1, cancelled=1)
    for command in list(keeping.device.received):
        keeping.device.answer(command, '"status":"ok"')
    assert (await becomes(keeping, run, "aborted"))["counts"] == {"succeeded": 1, "cancelled": 1}
    targets = (await keeping.http.get(f"{RUNS}/{run['id']}/targets")).json()["targets"]
    assert [one["state"] for one in targets] == ["succeeded", "cancelled"]
