"""Measures how fast `homing up` lets devices in that come all at once, each with a key of its own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from time import perf_counter
from typing import Annotated, Final

from typer import Option

from app.core.access.changes import Put
from app.core.access.devices import principal_of_device
from app.core.access.keys import make_key
from app.core.access.model import Credential, Kind, Principal, Scheme
from app.core.audit.chain import Author
from homing_rig.directory import opened
from homing_rig.figures.broker import PlainClient, SmallBox, cpu_seconds
from homing_rig.figures.kit import FigureError, Findings
from homing_rig.figures.small_box import SPARE, open_files
from homing_rig.patience import PATIENCE

AGAIN_SECONDS: Final = 0.2
HOUR: Final = 3600
TOGETHER: Final = 1_000
"""Keys that are put into the directory in one step."""


async def connects(
    findings: Findings,
    *,
    devices: Annotated[int, Option(min=1, help="The number of devices.")] = 10_000,
    at_once: Annotated[int, Option(min=1, help="The number of them that are connecting at any moment.")] = 500,
) -> None:
    """Devices that connect at once, each with a key of its own: with new sessions, and back to these."""
    open_files(devices + SPARE)
    room = [f"HOMING_BROKER_MAX_{one}={devices + SPARE}" for one in ("CONNECTIONS", "SESSIONS")]
    with SmallBox(within=("env", *room), authenticate=True) as box:
        keys = await _give_keys(box, devices)
        for name, clean in (("with new sessions", True), ("back to their sessions", False)):
            began, cpu = perf_counter(), cpu_seconds(box.pid)
            clients = await _connect(box.mqtt_port, keys, at_once, clean=clean)
            findings.figure(f"devices a second, {name}", devices / (perf_counter() - began), "/s", least=1000)
            findings.figure(f"CPU of each, {name}", (cpu_seconds(box.pid) - cpu) / devices * 1e6, " µs")
            for one in clients:
                one.close()
            await asyncio.sleep(AGAIN_SECONDS)  # until their sessions are without a connection


async def _give_keys(box: SmallBox, devices: int) -> Mapping[str, str]:
    """Keys of so many devices, which the node knows."""
    keys = {f"dock-{number}": make_key(secrets.token_bytes) for number in range(devices)}
    names = list(keys)
    async with opened(f"sqlite:///{box.folder}/data/access.db") as directory:
        for begin in range(0, devices, TOGETHER):
            changes: list[Put] = []
            for name in names[begin : begin + TOGETHER]:
                owner, key = principal_of_device(name), keys[name]
                changes += [
                    Put(Principal(id=owner, tenant_id=None, kind=Kind.SERVICE, name=name)),
                    Put(
                        Credential(
                            id=key.id, principal_id=owner, scheme=Scheme.KEY, name=name, digest=key.digest, created_us=0
                        )
                    ),
                ]
            await directory.apply(changes, author=Author(via="rig"))
    last = names[-1]
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                (await PlainClient.connect(box.mqtt_port, last, key=keys[last].text)).close()
            except FigureError:
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return {name: key.text for name, key in keys.items()}


async def _connect(port: int, keys: Mapping[str, str], at_once: int, *, clean: bool) -> list[PlainClient]:
    room = asyncio.Semaphore(at_once)

    async def one(name: str) -> PlainClient:
        async with room:
            return await PlainClient.connect(port, name, expiry=HOUR, clean=clean, key=keys[name])

    return await asyncio.gather(*map(one, keys))
