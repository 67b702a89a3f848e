"""Workers share a queue over all events, while workers and nodes die, and while all kinds of faults come: E8, E15."""

from __future__ import annotations

import asyncio
import random
from itertools import cycle
from typing import Final

import aiohttp

from homing_rig.chaos.kept_events import KEPT, Kept
from homing_rig.chaos.patient_asker import PatientAsker
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.events import COMMANDS, LOG, SHORT_LOG, judge_events, talkers_of
from homing_rig.chaos.scenarios.nodes import kills_of_any
from homing_rig.chaos.schedule import BROKER, INTAKE, REDIS, Fault, Kind
from homing_rig.chaos.shared_figures import ANSWERED, SOUND, measure
from homing_rig.chaos.worked import AGAIN_SECONDS, SETTLE_SECONDS, Workers, judged

QUEUE: Final = "all"
WORKERS: Final = 10
DECLARED: Final = {
    "routes": [{"database": "events", "topic": "#"}, {"database": "telemetry", "topic": "#"}],
    "order": "device",
    "loan": "5s",
    "retry": ["0s"],
    "max_deliveries": 6,
    "start": "-1h",
}
"""Six deliveries: a worker that dies with an event counts as one, and five in a row do not happen."""
EMPTY_SECONDS: Final = 120.0
"""The time that the queue may take to become empty when all is well again."""
_STANDING: Final = ("ready", "lent", "later", "held_back")


async def _work(rig: Rig) -> None:
    await rig.start_fleet()
    talkers = await talkers_of(rig)
    async with aiohttp.ClientSession(headers=rig.session.headers) as http:
        await _declare(http, rig.nodes["n1"].url)
        workers = Workers(http, QUEUE, rig.turns, rig.options.seed)
        working = asyncio.create_task(workers.work(WORKERS))
        rig.stack.callback(working.cancel)
        talking = asyncio.create_task(talkers.talk(rig.form.events, rig.form.seconds or 0.0))
        rig.stack.callback(talking.cancel)
        await rig.load_with_faults(rig.job())
        await talking
        await rig.settle()
        measure(rig)
        kept = await judge_events(rig, talkers)
        rig.phase = "emptying the queue"
        workers.spare()
        asker = PatientAsker(http, SETTLE_SECONDS)
        counts = await _emptied(asker, rig.nodes["n1"].url, workers, kept)
        workers.stop()
        await working
        letters = await _letters(asker, rig.nodes["n1"].url)
    found = judged(workers.book, kept, set(letters))
    rig.measures |= {
        "asked_again": rig.measures["asked_again"] + asker.again,
        "queue_events": sum(map(len, kept.numbers.values())),
        "queue_deliveries": workers.book.deliveries.total(),
        "queue_left": sum(counts[name] for name in _STANDING),
        "queue_lost": found.lost,
        "poison_alive": found.poison_alive,
        "wrongly_dead": found.wrongly_dead,
        "lent_after_settled": found.lent_after_settled,
        "queue_order": found.out_of_order,
        "workers_died": workers.deaths,
        "dead_letters": len(letters),
        "letters_twice": len(letters) - len(set(letters)),
    }


async def _declare(http: aiohttp.ClientSession, url: str) -> None:
    async with http.put(f"{url}/v1/queues/{QUEUE}", json=DECLARED) as answer:
        answer.raise_for_status()


async def _emptied(asker: PatientAsker, url: str, workers: Workers, kept: Kept) -> dict[str, int]:
    """Wait until every event was handled or put aside; how the queue stands then, or when the time is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + EMPTY_SECONDS
    while True:
        counts: dict[str, int] = (await asker.ask(f"{url}/v1/queues/{QUEUE}"))["counts"]
        if loop.time() >= until:
            return counts
        if not sum(counts[name] for name in _STANDING):
            found = judged(workers.book, kept, set(await _letters(asker, url)))
            if not (found.lost or found.poison_alive):
                return counts
        await asyncio.sleep(AGAIN_SECONDS)


async def _letters(asker: PatientAsker, url: str) -> list[tuple[str, int, int]]:
    """The dead letters, each by topic, number and position of its event."""
    found: list[tuple[str, int, int]] = []
    parameters: dict[str, str] = {}
    while True:
        page = await asker.ask(f"{url}/v1/queues/{QUEUE}/dead", parameters)
        events = [letter["event"] for letter in page["letters"]]
        found += ((event["topic"], event["data"]["n"], event["position"]) for event in events)
        if not page["more"]:
            return found
        parameters = {"cursor": page["cursor"]}


_FIGURES: Final = (
    *SOUND,
    *KEPT,
    ANSWERED,
    Figure("queue_lost", "=", 0, "events in the log that were neither settled nor put aside"),
    Figure("queue_left", "=", 0, "events that the queue has still, when all is well again"),
    Figure("poison_alive", "=", 0, "events that nobody can handle, and that are no dead letters"),
    Figure("wrongly_dead", "=", 0, "dead letters of events that could be handled"),
    Figure("letters_twice", "=", 0, "dead letters of an event that has one already"),
    Figure("lent_after_settled", "=", 0, "events that were lent after the store had settled them"),
    Figure("queue_order", "=", 0, "events that were lent while an earlier one of their device was not settled"),
)

_TROUBLES: Final = (
    *((Kind.KILL, INTAKE), (Kind.RESTART, BROKER), (Kind.FREEZE, INTAKE), (Kind.CUT_PUBSUB, REDIS)),
    *((Kind.KILL, REDIS), (Kind.RESTART, "n2"), (Kind.FREEZE, REDIS), (Kind.FORGET_SCRIPTS, REDIS)),
)
"""The faults of R4, R6 to R8, R12, R13 and E2 to E4."""


def _all_in_turn(_rng: random.Random, form: Form) -> list[Fault]:
    return [
        Fault(1.0 + form.every * index, kind, target, form.down)
        for index, (kind, target) in zip(range(int((form.seconds or 0) / form.every)), cycle(_TROUBLES), strict=False)
    ]


E8 = Scenario(
    name="E8",
    title="ten workers on a queue, while workers and nodes die",
    provoke="kill -9 of a random node every 5 s; one take in fifty is the last of its worker; one event in a hundred "
    "fails whoever handles it",
    figures=_FIGURES,
    full=Form(seconds=300, events=200, rate=COMMANDS, timeout=30.0, patience=45.0, attempt=40.0, settings=LOG),
    short=Form(
        seconds=12, events=60, rate=COMMANDS, every=6.0, down=1.0, timeout=30.0, attempt=40.0, settings=SHORT_LOG
    ),
    act=_work,
    plan=kills_of_any,
)

E15 = Scenario(
    name="E15",
    title="a queue beside commands and events, and all kinds of faults",
    provoke="what R4, R6 to R8, R12, R13 and E2 to E4 provoke, one after the other, beside the workers of E8",
    figures=_FIGURES,
    full=Form(
        seconds=320, events=200, rate=50, every=10.0, down=3.0, timeout=30.0, patience=45.0, attempt=40.0, settings=LOG
    ),
    short=Form(
        seconds=33, events=40, rate=COMMANDS, every=4.0, down=1.0, timeout=30.0, attempt=40.0, settings=SHORT_LOG
    ),
    act=_work,
    plan=_all_in_turn,
    fsync="always",
)
