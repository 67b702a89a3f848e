"""Tokens with unknown keys against a node, and what other callers notice of them (A7)."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import Counter
from contextlib import AsyncExitStack
from http import HTTPStatus
from statistics import median
from time import perf_counter
from typing import Annotated, Final

import aiohttp
from typer import Option

from app.core.access.keys import Key
from homing_rig.directory import guarded_settings, until_known
from homing_rig.figures.calls import Calls, unlimited_session
from homing_rig.figures.flood import Spec, flood, request
from homing_rig.figures.kit import Findings, paced
from homing_rig.harness import Cluster, cluster_of
from homing_rig.issuer import Issuer, part, serving
from homing_rig.services import MosquittoProcess, RedisProcess

OTHERS: Final = 100
"""Commands a second of a caller with a key."""
LEAD: Final = 2.0
"""Seconds for which tokens come before and after commands are timed: their process has to start."""
KEY_SET: Final = b"""{"keys": [{"kty": "EC", "crv": "P-256", "kid": "ec",
"x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"""
"""A public key, that of RFC 7515. Nothing is signed with it."""


def unknown_token(issuer: str) -> str:
    """A token whose key nobody has heard of."""
    head = {"alg": "ES256", "kid": secrets.token_hex(8)}
    body = {"iss": issuer, "aud": "homing", "sub": "x", "iat": 1, "exp": 2**33}
    return f"{part(head)}.{part(body)}.{secrets.token_urlsafe(64)}"


async def turn(cluster: Cluster, issuer: Issuer, key: Key, seconds: float, rate: float) -> tuple[Calls, Counter[str]]:
    """Commands for so many seconds, beside so many tokens a second, and the answers to tokens."""
    node = cluster.nodes[0]
    # Made before: the process that times does nothing else then.
    made = [f"Authorization: Bearer {unknown_token(issuer.url)}" for _ in range(round(rate * (seconds + 2 * LEAD)))]
    sent = Spec([(node.port, request("GET", "/v1/me", [one])) for one in made], rate, seconds + 2 * LEAD)
    async with unlimited_session() as session:
        calls = Calls(session, key)
        async with asyncio.TaskGroup() as group:
            flooding = group.create_task(flood(sent)) if rate else None
            await asyncio.sleep(LEAD)
            async for number in paced(OTHERS, round(seconds * OTHERS)):
                group.create_task(calls.send(node.url, number))
    return calls, Counter() if flooding is None else flooding.result().statuses


async def tokens(
    findings: Findings,
    *,
    rate: Annotated[float, Option(min=0, help="The number of tokens a second; 0 for none.")] = 1000,
    rounds: Annotated[int, Option(min=1, help="The number of turns without and with tokens.")] = 5,
    seconds: Annotated[float, Option(min=0.5, help="The length of a turn.")] = 10.0,
) -> None:
    """p99 of a caller beside tokens of unknown keys, against that without them, in turns on one node."""
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(serving(KEY_SET))
        settings, key = stack.enter_context(guarded_settings())
        settings |= {"HOMING_OIDC_ISSUER": issuer.url, "HOMING_OIDC_AUDIENCE": "homing"}
        broker, redis = stack.enter_context(MosquittoProcess()), stack.enter_context(RedisProcess())
        # In a thread, as the node asks the issuer while it starts.
        cluster = await asyncio.to_thread(stack.enter_context, cluster_of(1, redis, broker, **settings))
        async with aiohttp.ClientSession() as session:
            await until_known(session, cluster, key)
        await turn(cluster, issuer, key, seconds, 0)  # nobody begins cold
        asked, begun = issuer.asked, perf_counter()
        without, during = [], []
        for _ in range(rounds):
            calm, _ = await turn(cluster, issuer, key, seconds, 0)
            beside, answers = await turn(cluster, issuer, key, seconds, rate)
            without.append(calm.p99)
            during.append(beside.p99)
            per_second = answers.total() / (seconds + 2 * LEAD)
            others = dict(calm.statuses + beside.statuses)
            findings.note(f"{per_second:.0f} tokens/s, answers to them {dict(answers)}, to others {others}")
            if others.keys() != {HTTPStatus.ACCEPTED}:
                findings.figure("commands refused", sum(others.values()) - others.get(HTTPStatus.ACCEPTED, 0), most=0)
        fetches, minutes = issuer.asked - asked, (perf_counter() - begun) / 60
    findings.spread("p99 without tokens", without, " ms")
    findings.spread("p99 with tokens", during, " ms")
    ratios = [beside / calm for calm, beside in zip(without, during, strict=True)]
    findings.spread("p99 with tokens against that without", ratios, " ×", most=1.2)
    findings.figure(f"fetches of keys in {minutes:.1f} min", fetches, most=math.ceil(minutes * 6))
    findings.figure("p99 of all", median([*without, *during]), " ms")
