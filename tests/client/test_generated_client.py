"""A client that a program made from /openapi.json sends commands, and nothing of the document is lost on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.api.rig import DEVICE, running
from tests.api.serving import serving
from tests.counterparts.environments import python_with
from tests.waiting import PATIENCE

PINNED = ("openapi-python-client==0.29.1",)
USES = """
import sys
from generated.api.commands import cancel_command, list_commands, read_command, send_command
from generated.api.commands import explain_command
from generated.client import AuthenticatedClient
from generated.models import Command, CommandBody, CommandState, Explanation

with AuthenticatedClient(base_url=sys.argv[1], token="none is asked for") as client:
    sent = send_command.sync(sys.argv[2], client=client, body=CommandBody(method="ok", timeout="10m"))
    assert isinstance(sent, Command) and sent.state is CommandState.SUCCEEDED, sent
    refused = send_command.sync(sys.argv[2], client=client, body=CommandBody(method="refuse", timeout="10m"))
    assert refused.error.code == 42 and refused.error.code_text == "42", refused
    unheard = CommandBody(method="silent", timeout="10m")
    waits = send_command.sync(sys.argv[2], client=client, body=unheard, prefer="respond-async")
    assert cancel_command.sync(waits.id, client=client).state is CommandState.CANCELLED
    assert read_command.sync(sent.id, client=client).id == sent.id
    assert {one.id for one in list_commands.sync(client=client).commands} == {sent.id, refused.id, waits.id}
    assert isinstance(explain_command.sync(sent.id, client=client), Explanation)
"""


async def run(*command: str, cwd: Path) -> tuple[int | None, str]:
    """The return code of a program, and what it said; this loop serves meanwhile."""
    program = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await program.communicate()
    return program.returncode, said.decode()


@pytest.mark.long
async def test_a_client_is_generated_without_a_warning_and_sends_a_command(tmp_path: Path) -> None:
    python = await asyncio.to_thread(python_with, "openapi", *PINNED)
    async with running() as rig, serving(rig) as served:
        url = f"http://127.0.0.1:{served.port}"
        # The first request has the document made, which may take a loaded machine longer than the 5 s of the program.
        config = f"post_hooks: []\nhttp_timeout: {PATIENCE:.0f}\n"
        (tmp_path / "config.yml").write_text(config, encoding="utf-8")
        made = tmp_path / "generated"
        options = ("--url", f"{url}/openapi.json", "--meta", "none", "--output-path", str(made))
        generate = (python, "-m", "openapi_python_client", "generate", "--config", "config.yml", "--fail-on-warning")
        code, said = await run(*generate, *options, cwd=tmp_path)
        assert code == 0, said
        assert "WARNING" not in said.upper()
        (tmp_path / "uses.py").write_text(USES, encoding="utf-8")
        code, said = await run(python, "uses.py", url, DEVICE, cwd=tmp_path)
        assert code == 0, said
