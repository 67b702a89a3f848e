"""A fleet run whose driver is killed again and again, or is cut off from Redis: RUN and PARTITION."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import RedisError

from app.core import keys
from app.core.fleets.marks import TargetMark
from homing_rig.chaos.history import MarkRead
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE
from homing_rig.chaos.schedule import DRIVER, REDIS, Fault, Kind
from homing_rig.chaos.shared_figures import SOUND, measure, stands

HOLD: Final = "30m"
OVER_SECONDS: Final = 240.0
"""The time that the run may take when all is well again."""
LOOK_SECONDS: Final = 0.05
_PLACE: Final = "/v1/fleet-runs"


@dataclass
class _Marks:
    """The marks of a run as they were at the last reading, and what readings have shown."""

    rig: Rig
    run_id: str
    drivers: set[str] = field(default_factory=set)
    in_flight: int = 0
    """The most that were handed and had not ended."""
    _last: bytes = b""

    async def watch(self) -> None:
        """Read them again and again, until cancelled."""
        run, *_, lease, _ = keys.run(self.run_id)
        while True:
            with suppress(RedisError):
                marks, holder = await self.rig.redis.hget(run, "marks"), await self.rig.redis.get(lease)
                if isinstance(marks, bytes):
                    self._note(marks)
                self.drivers |= {holder.decode().partition(" ")[0]} if isinstance(holder, bytes) else set()
            await asyncio.sleep(LOOK_SECONDS)

    def _note(self, marks: bytes) -> None:
        self.in_flight = max(self.in_flight, marks.count(TargetMark.HANDED))
        last, self._last = self._last.ljust(len(marks), bytes([TargetMark.WAITING])), marks
        now, recorder = self.rig.recorder.now(), self.rig.recorder
        for target, (before, mark) in enumerate(zip(last, marks, strict=True)):
            if before != mark:
                recorder.write(MarkRead(at=now, run=self.run_id, target=target, mark=TargetMark(mark).word))


async def _run(rig: Rig) -> None:
    await rig.start_fleet()
    rig.phase = "the run begins"
    run_id = str((await rig.ask("POST", _PLACE, _spec(rig)))["id"])
    rig.nemesis.run_lease = keys.run(run_id)[3]
    marks = _Marks(rig, run_id)
    watching, faults = asyncio.create_task(marks.watch()), asyncio.create_task(rig.nemesis.run(rig.schedule))
    for task in (watching, faults):
        rig.stack.callback(task.cancel)
    rig.phase = "the run and faults"
    await faults
    await rig.nemesis.heal()
    rig.phase = "waiting for the end of the run"
    async with asyncio.timeout(OVER_SECONDS):
        while (await rig.ask("GET", f"{_PLACE}/{run_id}"))["ended_at"] is None:
            await asyncio.sleep(LOOK_SECONDS)
    await asyncio.sleep(2 * LOOK_SECONDS)  # its last marks are read as well
    if watching.done():
        watching.result()
    watching.cancel()
    await rig.settle()
    measure(rig)
    rig.measures |= await _accounts(rig, run_id)
    rig.measures |= {"run_overrun": marks.in_flight - rig.form.in_flight, "drivers": len(marks.drivers)}
    rig.measures["stands_s"] = stands(rig)


def _spec(rig: Rig) -> dict[str, Any]:
    """Return a run that lasts as long as the faults."""
    minutes = (rig.form.seconds or 1.0) / 60
    return {
        "targets": {"devices": rig.devices},
        "command": {"method": "take_off", "timeout": f"{rig.form.timeout:g}s", "hold": HOLD},
        "in_flight": rig.form.in_flight,
        "rate": f"{max(1, round(len(rig.devices) / minutes))}/m",
    }


async def _accounts(rig: Rig, run_id: str) -> dict[str, float]:
    """Compare what the run says of its targets with the books of devices, and with the records of their commands."""
    rows = list[dict[str, Any]]()
    page: dict[str, Any] = {"cursor": ""}
    while (cursor := page["cursor"]) is not None:
        page = await rig.ask("GET", f"{_PLACE}/{run_id}/targets?limit=200{cursor and f'&cursor={cursor}'}")
        rows += page["targets"]
    (fleet,) = rig.fleets
    succeeded = [row for row in rows if row["state"] == TargetMark.SUCCEEDED.word]
    return {
        "run_twice": fleet.executions.total() - len(fleet.got),
        "run_forgotten": len(rig.devices)
        - sum(row["state"] in (TargetMark.SUCCEEDED.word, TargetMark.TIMED_OUT.word) for row in rows),
        "run_differs": sum([row["command_id"]] != [one for _, one in fleet.got[row["device_id"]]] for row in succeeded)
        + abs(len(succeeded) - int(rig.measures["succeeded"])),
    }


_FIGURES: Final = (
    *SOUND,
    Figure("run_twice", "=", 0, "commands of the run that reached a device that had one already"),
    Figure("run_forgotten", "=", 0, "targets that have neither succeeded nor timed out when the run has ended"),
    Figure("run_differs", "=", 0, "targets of which the run says something else than device and record"),
    Figure("run_overrun", "<=", 0, "targets in flight above what the run allows"),
    Figure("drivers", ">=", 2, "nodes that drove the run"),
    Figure("stands_s", "<=", 7, "seconds in which no device got anything, at most: lease + 2 s", timing=True),
)


def _kills(_rng: random.Random, form: Form) -> list[Fault]:
    """Kill whoever drives in the middle of each interval, and Redis twice."""
    seconds = form.seconds or 0.0
    drivers = [
        Fault(form.every * (index + 0.5), Kind.KILL, DRIVER, form.down) for index in range(int(seconds / form.every))
    ]
    return [*drivers, *(Fault(seconds * part, Kind.KILL, REDIS, form.down) for part in (0.3, 0.6))]


RUN = Scenario(
    name="RUN",
    title="the driver of a fleet run dies",
    provoke="a fleet run sends a command to each device, at an even rate; whoever drives it is killed every 3 s, and "
    "Redis (appendfsync always) twice",
    figures=_FIGURES,
    full=Form(seconds=120, devices=10_000, sessions=8, in_flight=500, timeout=10.0, every=3.0, down=1.0),
    short=Form(
        seconds=8, devices=80, in_flight=10, timeout=4.0, every=4.0, down=1.0, delay=(0.0, 0.3), settings=QUICK_LEASE
    ),
    act=_run,
    expects=("I2", "I3", "I4", "I10"),
    plan=_kills,
    drives=True,
    fsync="always",
)
PARTITION = Scenario(
    name="PARTITION",
    title="the driver of a fleet run is cut off while another one drives",
    provoke="a fleet run sends a command to each device, at an even rate; nothing passes between whoever drives it and "
    "Redis for 15 s, again and again",
    figures=_FIGURES,
    full=Form(seconds=120, devices=10_000, sessions=8, in_flight=500, timeout=10.0, every=20.0, down=15.0),
    short=Form(
        seconds=10, devices=60, in_flight=10, timeout=4.0, every=9.0, down=8.0, delay=(0.0, 0.3), settings=QUICK_LEASE
    ),
    act=_run,
    expects=("I2", "I3", "I4", "I10"),
    plan=lambda _rng, form: [
        Fault(1.0 + form.every * index, Kind.BLACKHOLE, DRIVER, form.down)
        for index in range(int((form.seconds or 0) / form.every))
    ],
    drives=True,
    proxies=True,
)
