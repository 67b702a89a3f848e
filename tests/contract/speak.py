"""One version of Homing writes into Redis, and reads what is there. Run with that version on PYTHONPATH.

    python speak.py write redis://…     put commands in all states there; print keys and wake-ups
    python speak.py read redis://…      print every command as this version sees it
    python speak.py answer redis://…    answer each open command, and print what became of it
    python speak.py decode              print what the wake-ups on standard input say

It uses only what 0.1.0 has, too. What it prints is JSON; bytes are in Latin-1.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from redis.asyncio import Redis

if TYPE_CHECKING:
    from app.core.commands.callback import Answer, Registration
    from app.store.commands import Query
    from app.store.redis.commands.store import RedisStateStore


def _module(*names: str) -> Any:  # noqa: ANN401 - a module
    """The first of these that there is: versions have the same things in other places."""
    for name in names:
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(f"none of {', '.join(names)}")


_CALLBACK = _module("app.core.commands.callback", "app.core.callback")
_COMMAND = _module("app.core.commands.command", "app.core.command")
CommandState = _COMMAND.CommandState
Correlation, Expectation = _CALLBACK.Correlation, _CALLBACK.Expectation
command_id = _module("app.core.identifiers").command_id
decode_wake_up = _module("app.core.cluster.wakeup", "app.core.wakeup").decode_wake_up
system = _module("app.runtime.system", "app.system")


DEVICE = "dock-1"
REPLY, EVENTS = f"thing/product/{DEVICE}/services_reply", f"thing/product/{DEVICE}/events"
MINUTE = timedelta(minutes=1)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def registration(number: int, **changes: Any) -> Registration:
    facts: dict[str, Any] = {
        "command_id": command_id(DEVICE, f"01J{number:023d}"),
        "device_id": DEVICE,
        "method": "takeoff",
        "params": b'{"height":30}',
        "profile": "dji",
        "home_node": "home",
        "expectations": (
            Expectation(REPLY, Correlation.ID),
            Expectation(EVENTS, Correlation.VALUE, f"flight-{number}"),
        ),
        "timeout": MINUTE,
        "retention": MINUTE,
    }
    if number % 2 and "if_offline" in _CALLBACK.Registration.__dataclass_fields__:
        facts["if_offline"] = _COMMAND.IfOffline.FAIL  # a word that 0.1.0 does not know
    made: Registration = _CALLBACK.Registration(**facts | changes)
    return made


def answer(command: str, state: object = CommandState.SUCCEEDED, **changes: Any) -> Answer:
    facts: dict[str, Any] = {"result": b'{"code":0}', "received_at": 1_700_000_000_000_000, "size": 42}
    made: Answer = _CALLBACK.Answer(REPLY, DEVICE, Correlation.ID, command, state, **facts | changes)
    return made


def query() -> Query:
    """All that there is."""
    made: Query = _module("app.store.commands", "app.store.base").Query(limit=100)
    return made


def opened(url: str) -> RedisStateStore:
    """A store as its version makes it."""
    facts: dict[str, Any] = {"clock": system.SystemClock(), "counters": Counter()}
    if hasattr(system, "new_wake_key"):
        facts |= {"wake_key": system.new_wake_key(), "new_secret": system.new_secret}
    store: RedisStateStore = _module(
        "app.store.redis.commands.store", "app.store.redis.store", "app.store.redis"
    ).RedisStateStore(url, **facts)
    return store


async def write(store: RedisStateStore, client: Redis) -> dict[str, Any]:
    async with client.pubsub() as channels:
        await channels.psubscribe("mqtt:node:*")
        await channels.get_message(timeout=5)
        kinds: dict[int, dict[str, Any]] = {number: {} for number in range(9)}
        kinds[1] = {"trace": TRACE}
        kinds[2] = {"idempotency_key": "once", "fingerprint": "same"}
        kinds[8] = {"expectations": (Expectation(f"{EVENTS}/8", Correlation.ORDER),), "quarantine": MINUTE}
        ids = []
        for number, changes in kinds.items():
            one = registration(number, **changes)
            await store.register(one)
            ids.append(one.command_id)
        await store.respond(answer(ids[0]), "other")
        await store.respond(answer(ids[1], CommandState.FAILED, result=None, error=b'{"code":"x"}'), "other")
        again = registration(99, home_node="joining", idempotency_key="once", fingerprint="same")
        await store.register(again)
        await store.respond(answer(ids[2], received_at=None), "other")
        await store.finish(ids[3], CommandState.CANCELLED, "other", b'{"code":"cancelled"}')
        await store.respond(answer(ids[3]), "other")
        await store.finish(ids[4], CommandState.UNSENT, "other", b'{"code":"not_sent"}')
        await store.respond(answer(ids[5], CommandState.RUNNING, result=b'{"percent":5}'), "other")
        await store.mark(ids[6], CommandState.ACKNOWLEDGED)
        await store.finish(ids[8], CommandState.CANCELLED, "other", b'{"code":"cancelled"}')
        heard = []
        while (message := await channels.get_message(timeout=0.3)) is not None:
            if message["type"] == "pmessage":
                heard.append([message["channel"].decode(), message["data"].decode("latin-1")])
    return {"keys": await dump(client), "wake_ups": heard}


async def dump(client: Redis) -> dict[str, Any]:
    found: dict[str, Any] = {}
    keys: Any = await client.keys()
    for key in sorted(keys):
        kind = await client.type(key)
        content: Any
        if kind == b"hash":
            fields: Any = await client.hgetall(key)
            content = {name.decode(): text.decode("latin-1") for name, text in fields.items()}
        elif kind == b"zset":
            members: Any = await client.zrange(key, 0, -1, withscores=True)
            content = [[name.decode(), score] for name, score in members]
        else:
            content = cast("bytes", await client.get(key)).decode()
        found[key.decode()] = content
    return found


async def load(client: Redis, found: dict[str, Any]) -> None:
    for key, content in found.items():
        if isinstance(content, dict):
            await client.hset(key, mapping={name: text.encode("latin-1") for name, text in content.items()})
        elif isinstance(content, list):
            await client.zadd(key, dict(content))
        else:
            await client.set(key, content)


async def read(store: RedisStateStore) -> list[Any]:
    page = await store.list_commands(query())
    outcomes = await store.outcomes([one.id for one in page.commands])
    return [
        [
            *(one.id, one.state.value, one.device_id, one.method, one.home_node, one.params.decode()),
            *(_text(part) for part in (one.result, one.error, one.progress)),
            one.late is not None,
            None if known is None else [known.state.value, known.received_by, known.reception],
        ]
        for one, known in zip(page.commands, outcomes, strict=True)
    ]


async def answer_all(store: RedisStateStore) -> list[Any]:
    told = []
    for one in (await store.list_commands(query())).commands:
        if one.state.final:
            finished = await store.finish(one.id, CommandState.CANCELLED, "third")
            told.append([one.id, finished.won, finished.outcome.state.value])
        else:
            recorded = await store.respond(answer(one.id), "third")
            told.append([one.id, recorded.verdict.value, list(recorded.waiting)])
    return told


def decode(lines: list[str]) -> list[Any]:
    told: list[Any] = []
    for line in lines:
        try:
            known, outcome = decode_wake_up(line.encode("latin-1"))
        except ValueError as error:
            told.append(str(error))
            continue
        told.append(
            [known] if outcome is None else [known, outcome.state.value, outcome.received_by, _text(outcome.result)]
        )
    return told


def _text(part: bytes | None) -> str | None:
    return None if part is None else part.decode()


async def main(verb: str, url: str = "") -> Any:  # noqa: ANN401 - whatever the verb prints
    if verb == "decode":
        return decode(json.load(sys.stdin))
    store = opened(url)
    await store.start()
    try:
        if verb == "read":
            return await read(store)
        if verb == "answer":
            return await answer_all(store)
        async with Redis.from_url(url) as client:
            return await write(store, client)
    finally:
        await store.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:])), indent=1))  # noqa: T201 - that is what it is for
