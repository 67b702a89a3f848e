"""A node that is open to its own machine alone, with a real nginx in front that opens it to others."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from app.server.hosts import Hosts
from homing_rig.ports import lasting_port
from tests.api.rig import COMMANDS, Rig
from tests.api.serving import serving
from tests.services import find_binary
from tests.waiting import eventually

CONF = """
daemon off; pid {folder}/pid; error_log stderr; worker_processes 1;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{node}; {more} }} }}
}}
"""


@asynccontextmanager
async def behind_nginx(rig: Rig, folder: Path, more: str) -> AsyncIterator[httpx.AsyncClient]:
    """Callers of a node through nginx."""
    binary = find_binary("nginx", package="nginx-light")
    async with serving(rig, hosts=Hosts((), loopback=True, direct=True)) as served:
        port = lasting_port()
        conf = folder / "nginx.conf"
        conf.write_text(CONF.format(folder=folder, port=port, node=served.port, more=more), encoding="utf-8")
        command = [binary, "-p", str(folder), "-c", str(conf), "-e", "stderr"]
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:

                async def answers() -> bool:
                    try:
                        return (await http.get("/healthz")).status_code > 0
                    except httpx.ConnectError:
                        return False

                await eventually(answers)
                yield http
        finally:
            process.terminate()
            await process.wait()


@pytest.mark.parametrize(
    "more",
    [
        "proxy_http_version 1.0;",  # what nginx speaks of itself, at least up to 1.28
        "proxy_http_version 1.1; proxy_set_header X-Forwarded-For $remote_addr;",
        "proxy_http_version 1.1; proxy_set_header X-Real-IP $remote_addr;",
        "proxy_http_version 1.1; proxy_set_header Via nginx;",
        "proxy_http_version 1.1; proxy_set_header X-Forwarded-Port 80;",
    ],
)
async def test_what_nginx_passes_on_is_refused(rig: Rig, tmp_path: Path, more: str) -> None:
    async with behind_nginx(rig, tmp_path, more) as http:
        answer = await http.post(COMMANDS, json={"method": "ok"})
        assert answer.status_code == 403
        assert answer.json()["type"].endswith("passed-on")
    assert rig.store.registrations == []


async def test_nginx_that_says_nothing_of_itself_cannot_be_told_from_a_program_of_this_machine(
    rig: Rig, tmp_path: Path
) -> None:
    async with behind_nginx(rig, tmp_path, "proxy_http_version 1.1;") as http:
        assert (await http.post(COMMANDS, json={"method": "ok"})).status_code == 200  # docs/threat-model.md says so
