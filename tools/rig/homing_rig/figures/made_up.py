"""Requests that a program made up from /openapi.json, against a node with all of its parts."""

from __future__ import annotations

import asyncio
import secrets
import sys
from contextlib import ExitStack
from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated, Final

from typer import Option

from homing_rig.directory import guarded_settings
from homing_rig.figures.kit import FigureError, Findings
from homing_rig.harness import cluster_of
from homing_rig.services import MosquittoProcess, RedisProcess

CHECKS: Final = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,unsupported_method,allow_header_conformance"
)
ENDLESS: Final = r"^/v1/(events/stream|commands/events)$"
"""Streams that do not end."""


class Caller(StrEnum):
    """The caller who makes the requests."""

    OPEN = "open"
    """Anybody: the node does not authenticate its callers."""
    ADMIN = "admin"
    """An administrator, with a key."""
    NOBODY = "nobody"
    """A caller without a key, where one is needed."""


async def made_up(
    findings: Findings,
    *,
    caller: Annotated[Caller, Option(help="The caller who makes the requests.")] = Caller.OPEN,
    cases: Annotated[int, Option(min=1, help="The number of requests for each operation, at most.")] = 200,
    seed: Annotated[int, Option(help="The same number makes up the same requests.")] = 1,
) -> None:
    """Requests that Schemathesis makes up from /openapi.json: each answer has to be one that is described there."""
    if find_spec("schemathesis") is None:
        raise FigureError("schemathesis is not installed: pip install schemathesis")
    with ExitStack() as stack:
        broker, redis = stack.enter_context(MosquittoProcess()), stack.enter_context(RedisProcess())
        settings = {
            "HOMING_WEBHOOKS_SECRET_KEY": secrets.token_hex(32),
            "HOMING_EVENTS_URL": redis.node_url,
            "HOMING_COMMAND_DEFAULT_TIMEOUT": "1s",
        }
        more, key = stack.enter_context(guarded_settings())
        if caller is not Caller.OPEN:
            settings |= more
        node = stack.enter_context(cluster_of(1, redis, broker, **settings)).nodes[0]
        headers = ["-H", f"Authorization: Bearer {key.text}"] if caller is Caller.ADMIN else []
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{node.url}/openapi.json", *headers),
            *("-H", "Prefer: respond-async", "--checks", CHECKS, "--exclude-path-regex", ENDLESS),
            *("--phases", "examples,coverage,fuzzing", "--mode", "all", "--max-examples", str(cases)),
            *("--seed", str(seed), "--continue-on-failure", "--no-color", "--request-timeout", "60"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    findings.note(said.decode(errors="replace"))
    findings.figure("runs of Schemathesis with a failure", process.returncode != 0, most=0)
