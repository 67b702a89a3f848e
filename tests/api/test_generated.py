"""Requests that a program made up from /openapi.json: whatever is asked, no operation answers by a mistake of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
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

FEW: Final = 2
"""Requests for each operation, of those that fit its description; and as many that do not. They are always the same."""
SOME: Final = 6

ENDLESS: Final = ("/events", "/traffic")
"""The ends of the paths of streams, which go on for ever, or for a minute."""

PATIENCE: Final = 60.0


class Asked:
    """A node that is asked, how many answers there were, and which of them were mistakes."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url = url
        self.count = 0
        self.mistakes: list[str] = []
        self._session = requests.Session()
        self._session.headers.update(headers)

    def ask(self, case: Case[Any]) -> None:
        answer = case.call(base_url=self.url, session=self._session, timeout=PATIENCE)
        self.count += 1
        if answer.status_code >= 500:
            self.mistakes.append(f"{case.as_curl_command()} -> {answer.status_code} {answer.text[:300]}")


def attack(nodes: Sequence[Asked], examples: int) -> None:
    """Ask every operation of the first one, and each of the others the same."""

    def ask(case: Case[Any]) -> None:
        # The device of the tests does not answer most methods, and nobody wants to wait for it.
        case.headers["Prefer"] = "respond-async"
        for node in nodes:
            node.ask(case)

    for found in schemathesis.openapi.from_url(f"{nodes[0].url}/openapi.json").get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        if operation.method == "get" and operation.path.endswith(ENDLESS):
            continue
        for mode in GenerationMode:
            strategy = operation.as_strategy(generation_mode=mode)
            made_up = settings(
                max_examples=examples,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            with suppress(Unsatisfiable):  # an operation without parameters and body cannot be asked wrongly
                made_up(given(case=strategy)(ask))()


@pytest.mark.parametrize("examples", [FEW, pytest.param(SOME, marks=pytest.mark.long)])
async def test_nothing_that_is_made_up_is_a_mistake_of_ours(tmp_path: Path, examples: int) -> None:
    """On a node with rules, and on one that is open to all."""
    async with (
        guarded(tmp_path) as site,
        serving(site.rig) as strict,
        running() as rig,
        serving(rig) as open_to_all,
    ):
        nodes = [
            Asked(f"http://127.0.0.1:{strict.port}", site.headers("admin")),
            Asked(f"http://127.0.0.1:{open_to_all.port}", {}),
        ]
        await asyncio.to_thread(attack, nodes, examples)
    for node in nodes:
        assert node.mistakes == []
        assert node.count > 50 * examples
