"""Requests that a program made up from /openapi.json: whatever is asked, no operation answers by a mistake of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from tests.api.rig import running
from tests.api.serving import serving
from tests.api.test_access import guarded

EXAMPLES: Final = 6
"""Requests for each operation, of those that fit its description; and as many that do not."""

ENDLESS: Final = "/events"
"""How the paths of streams end, which go on for ever."""

PATIENCE: Final = 60.0


def attack(url: str, headers: Mapping[str, str]) -> tuple[int, list[str]]:
    """Ask every operation; give how many answers there were, and which of them were mistakes."""
    count, mistakes = 0, []
    session = requests.Session()
    session.headers.update(headers)

    def ask(case: Case[Any]) -> None:
        nonlocal count
        # The device of the tests does not answer most methods, and nobody wants to wait for it.
        case.headers["Prefer"] = "respond-async"
        answer = case.call(base_url=url, session=session, timeout=PATIENCE)
        count += 1
        if answer.status_code >= 500:
            mistakes.append(f"{case.as_curl_command()} -> {answer.status_code} {answer.text[:300]}")

    for found in schemathesis.openapi.from_url(f"{url}/openapi.json", headers=dict(headers)).get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        if operation.method == "get" and operation.path.endswith(ENDLESS):
            continue
        for mode in GenerationMode:
            strategy = operation.as_strategy(generation_mode=mode)
            made_up = settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            with suppress(Unsatisfiable):  # an operation without parameters and body cannot be asked wrongly
                made_up(given(case=strategy)(ask))()
    return count, mistakes


async def test_nothing_that_is_made_up_is_a_mistake_of_an_open_node() -> None:
    async with running() as rig, serving(rig) as served:
        count, mistakes = await asyncio.to_thread(attack, f"http://127.0.0.1:{served.port}", {})
    assert mistakes == []
    assert count > 300


async def test_nothing_that_is_made_up_is_a_mistake_of_a_node_with_rules(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site, serving(site.rig) as served:
        count, mistakes = await asyncio.to_thread(attack, f"http://127.0.0.1:{served.port}", site.headers("admin"))
    assert mistakes == []
    assert count > 300
