"""Events that go into the cold tier while nodes die: E14."""

from __future__ import annotations

from typing import Final

from homing_rig.chaos.kept_events import KEPT
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.events import COMMANDS, LOG, REPEATED, SHORT_LOG, talk
from homing_rig.chaos.scenarios.nodes import random_kills
from homing_rig.chaos.shared_figures import ANSWERED, SOUND

LARGE: Final = 4000
"""Bytes of an event, so that generations end soon."""
_COLD: Final = {
    "HOMING_EVENTS_COLD": "{folder}/cold",
    "HOMING_EVENTS_HOT": "0s",
    "HOMING_EVENTS_GENERATION_BYTES": "1000000",
}


async def _cools(rig: Rig) -> None:
    await talk(rig, LARGE)
    rig.measures["cold_generations"] = await _cold_generations(rig)


async def _cold_generations(rig: Rig) -> int:
    async with rig.session.get(f"{rig.nodes['n1'].url}/v1/databases") as answer:
        said = await answer.json()
    return sum(one["state"] == "cold" for database in said["databases"] for one in database["generations"])


E14 = Scenario(
    name="E14",
    title="events go into the cold tier while nodes die",
    provoke="generations end every second or two and become files; kill -9 of a random node meanwhile",
    figures=(
        *SOUND,
        *KEPT,
        ANSWERED,
        REPEATED,
        Figure("cold_generations", ">=", 3, "generations that are in files"),
    ),
    full=Form(seconds=120, events=400, rate=COMMANDS, timeout=30.0, patience=45.0, attempt=40.0, settings=LOG | _COLD),
    short=Form(
        seconds=14,
        events=250,
        rate=COMMANDS,
        every=6.0,
        down=1.0,
        timeout=30.0,
        attempt=40.0,
        settings=SHORT_LOG | _COLD,
    ),
    act=_cools,
    plan=random_kills,
)
