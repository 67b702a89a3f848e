"""Workers share a queue over all events, while workers and nodes die: E8."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import aiohttp

from homing_rig.chaos.kept_events import KEPT, Kept
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.events import COMMANDS, LOG, SHORT_LOG, judge_events, talkers_of
from homing_rig.chaos.scenarios.nodes import kills_of_any
from homing_rig.chaos.shared_figures import ANSWERED, SOUND, measure
from homing_rig.chaos.worked import AGAIN_SECONDS, Workers, judged

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
        counts = await _emptied(http, rig.nodes["n1"].url, workers, kept)
        workers.stop()
        await working
        letters = await _letters(http, rig.nodes["n1"].url)
    found = judged(workers.book, kept, letters)
    rig.measures |= {
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
    }


async def _declare(http: aiohttp.ClientSession, url: str) -> None:
    async with http.put(f"{url}/v1/queues/{QUEUE}", json=DECLARED) as answer:
        answer.raise_for_status()


async def _emptied(http: aiohttp.ClientSession, url: str, workers: Workers, kept: Kept) -> dict[str, int]:
    """Wait until every event was handled or put aside; how the queue stands then, or when the time is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + EMPTY_SECONDS
    while True:
        async with http.get(f"{url}/v1/queues/{QUEUE}") as answer:
            answer.raise_for_status()
            counts: dict[str, int] = (await answer.json())["counts"]
        if loop.time() >= until:
            return counts
        if not sum(counts[name] for name in _STANDING):
            found = judged(workers.book, kept, await _letters(http, url))
            if not (found.lost or found.poison_alive):
                return counts
        await asyncio.sleep(AGAIN_SECONDS)


async def _letters(http: aiohttp.ClientSession, url: str) -> set[tuple[str, int, int]]:
    """The dead letters, by topic, number and position of the event."""
    found: set[tuple[str, int, int]] = set()
    parameters: dict[str, str] = {}
    while True:
        async with http.get(f"{url}/v1/queues/{QUEUE}/dead", params=parameters) as answer:
            answer.raise_for_status()
            page: dict[str, Any] = await answer.json()
        events = [letter["event"] for letter in page["letters"]]
        found |= {(event["topic"], event["data"]["n"], event["position"]) for event in events}
        if not page["more"]:
            return found
        parameters = {"cursor": page["cursor"]}


E8 = Scenario(
    name="E8",
    title="ten workers on a queue, while workers and nodes die",
    provoke="kill -9 of a random node every 5 s; one take in fifty is the last of its worker; one event in a hundred "
    "fails whoever handles it",
    figures=(
        *SOUND,
        *KEPT,
        ANSWERED,
        Figure("queue_lost", "=", 0, "events in the log that were neither settled nor put aside"),
        Figure("queue_left", "=", 0, "events that the queue has still, when all is well again"),
        Figure("poison_alive", "=", 0, "events that nobody can handle, and that are no dead letters"),
        Figure("wrongly_dead", "=", 0, "dead letters of events that could be handled"),
        Figure("lent_after_settled", "=", 0, "events that were lent after the store had settled them"),
        Figure("queue_order", "=", 0, "events that were lent while an earlier one of their device was not settled"),
    ),
    full=Form(seconds=300, events=200, rate=COMMANDS, timeout=30.0, patience=45.0, attempt=40.0, settings=LOG),
    short=Form(
        seconds=12, events=60, rate=COMMANDS, every=6.0, down=1.0, timeout=30.0, attempt=40.0, settings=SHORT_LOG
    ),
    act=_work,
    plan=kills_of_any,
)
