"""The distribution: its twins, its imports, its public face, its wheel, and that it has every operation."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
import zipfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest

import homing_client
from app import __version__
from app.api import problems
from app.api.problems import BY_ERROR, ProblemType
from homing_client import AsyncHoming, Command, DeviceRecord, Homing, Reply, ServerEvent
from homing_client._errors import BY_STATUS
from homing_client._models import Fault, Known, Late
from homing_client._node_models import Me
from tests.api.documents import document_of
from tests.api.rig import running
from tests.client.twins import all_of, done

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "client" / "homing_client"
PATH: Final = {
    "lane": "flight",
    "consumer": "w1",
    "client_id": "dock-1",
    "command_id": "000-01J00000000000000000000001",
    "device_id": "dock-1",
    "name": "dji",
    "topic": "t",
    "key_id": "k",
    "tenant_id": "t",
    "principal_id": "p",
    "subject": "p",
    "run_id": "r",
    "webhook_id": "w",
    "event_id": "e",
    "database": "events",
    "shard": "2",
    "position": "17",
}
C, D = "000-01J00000000000000000000001", "dock-1"

CALLS: Final[Mapping[str, Callable[[Any], Awaitable[Any]]]] = {
    "POST /v1/devices/{device_id}/commands": lambda homing: done(homing.send, D, "m"),
    "GET /v1/devices/{device_id}/commands": lambda homing: all_of(homing.commands_of, D),
    "GET /v1/commands/{command_id}": lambda homing: done(homing.get, C),
    "GET /v1/commands/{command_id}/explain": lambda homing: done(homing.explain, C),
    "GET /v1/commands": lambda homing: all_of(homing.commands),
    "POST /v1/commands/{command_id}/probe": lambda homing: done(homing.probe, C),
    "DELETE /v1/commands/{command_id}": lambda homing: done(homing.cancel, C),
    "GET /v1/devices": lambda homing: all_of(homing.devices),
    "GET /v1/devices/{device_id}": lambda homing: done(homing.device_record, D),
    "PUT /v1/devices/{device_id}": lambda homing: done(homing.put_device, D),
    "DELETE /v1/devices/{device_id}": lambda homing: done(homing.remove_device, D),
    "GET /v1/commands/{command_id}/events": lambda homing: all_of(homing.watch, C),
    "GET /v1/commands/events": lambda homing: all_of(homing.watch_all, device="dock-*"),
    "GET /v1/profiles": lambda homing: done(homing.profiles),
    "GET /v1/profiles/{name}/methods": lambda homing: done(homing.methods, "dji"),
    "POST /v1/login": lambda homing: done(homing.login, "ann", "secret"),
    "DELETE /v1/login": lambda homing: done(homing.logout),
    "GET /v1/exchanges": lambda homing: done(homing.exchanges.all),
    "PUT /v1/exchanges/{name}": lambda homing: done(homing.exchanges.declare, "dji"),
    "GET /v1/exchanges/{name}": lambda homing: done(homing.exchanges.get, "dji"),
    "DELETE /v1/exchanges/{name}": lambda homing: done(homing.exchanges.delete, "dji"),
    "POST /v1/exchanges/{name}/messages": lambda homing: done(homing.exchanges.publish, "dji", "a.b", 1),
    "GET /v1/queues": lambda homing: done(homing.queues.all),
    "PUT /v1/queues/{name}": lambda homing: done(homing.queues.declare, "dji", {"routes": []}),
    "POST /v1/queues/{name}/bind": lambda homing: done(homing.queues.bind, "dji", []),
    "POST /v1/queues/{name}/unbind": lambda homing: done(homing.queues.unbind, "dji", []),
    "GET /v1/queues/{name}": lambda homing: done(homing.queues.get, "dji"),
    "DELETE /v1/queues/{name}": lambda homing: done(homing.queues.delete, "dji"),
    "POST /v1/queues/{name}/take": lambda homing: done(homing.queue("dji").take),
    "POST /v1/queues/{name}/settle": lambda homing: done(homing.queues.settle, "dji", {}),
    "POST /v1/queues/{name}/rewind": lambda homing: done(homing.queues.rewind, "dji", to="now"),
    "POST /v1/queues/{name}/purge": lambda homing: done(homing.queues.purge, "dji"),
    "POST /v1/queues/{name}/redrive": lambda homing: done(homing.queues.redrive, "dji"),
    "GET /v1/queues/{name}/dead": lambda homing: all_of(homing.queues.dead, "dji"),
    "GET /v1/queues/{name}/consumers": lambda homing: done(homing.queues.consumers, "dji"),
    "DELETE /v1/queues/{name}/consumers/{consumer}": lambda homing: done(homing.queues.send_away, "dji", "w1"),
    "GET /v1/events": lambda homing: all_of(homing.events.read),
    "GET /v1/events/stream": lambda homing: all_of(homing.events.follow),
    "GET /v1/events/{database}/{shard}/{position}": lambda homing: done(homing.events.get, "events.2.17"),
    "POST /v1/events": lambda homing: done(homing.events.publish, [{"topic": "t", "data": 1}]),
    "GET /v1/topics": lambda homing: all_of(homing.events.topics),
    "GET /v1/cursors": lambda homing: done(homing.events.cursors),
    "GET /v1/cursors/{name}": lambda homing: done(homing.events.cursor, "dji"),
    "PUT /v1/cursors/{name}": lambda homing: done(homing.events.commit, "dji", "2.x"),
    "DELETE /v1/cursors/{name}": lambda homing: done(homing.events.forget, "dji"),
    "GET /v1/streams": lambda homing: done(homing.events.streams),
    "GET /v1/databases": lambda homing: done(homing.events.databases),
    "GET /v1/state/{topic}": lambda homing: done(homing.events.last, "t"),
    "PUT /v1/state/{topic}": lambda homing: done(homing.events.put_last, "t", 1),
    "GET /v1/devices/{device_id}/state": lambda homing: done(homing.events.of_device, D),
    "POST /v1/transactions": lambda homing: done(homing.events.transact, {"write": []}),
    "GET /v1/keys": lambda homing: done(homing.access.keys),
    "POST /v1/keys": lambda homing: done(homing.access.make_key, label="x"),
    "POST /v1/keys/{key_id}/rotate": lambda homing: done(homing.access.rotate_key, "k", grace="1h"),
    "DELETE /v1/keys/{key_id}": lambda homing: done(homing.access.revoke_key, "k"),
    "GET /v1/tenants": lambda homing: done(homing.access.tenants),
    "GET /v1/tenants/{tenant_id}": lambda homing: done(homing.access.tenant, "t"),
    "PUT /v1/tenants/{tenant_id}": lambda homing: done(homing.access.put_tenant, "t", {}),
    "DELETE /v1/tenants/{tenant_id}": lambda homing: done(homing.access.remove_tenant, "t"),
    "GET /v1/principals": lambda homing: done(homing.access.principals),
    "GET /v1/principals/{principal_id}": lambda homing: done(homing.access.principal, "p"),
    "PUT /v1/principals/{principal_id}": lambda homing: done(homing.access.put_principal, "p", {}),
    "DELETE /v1/principals/{principal_id}": lambda homing: done(homing.access.remove_principal, "p"),
    "GET /v1/principals/{subject}/bindings": lambda homing: done(homing.access.bindings, "p"),
    "PUT /v1/principals/{subject}/bindings": lambda homing: done(homing.access.put_bindings, "p", []),
    "GET /v1/roles": lambda homing: done(homing.access.roles),
    "GET /v1/roles/{name}": lambda homing: done(homing.access.role, "dji"),
    "PUT /v1/roles/{name}": lambda homing: done(homing.access.put_role, "dji", []),
    "DELETE /v1/roles/{name}": lambda homing: done(homing.access.remove_role, "dji"),
    "GET /v1/access": lambda homing: done(homing.access.export),
    "PUT /v1/access": lambda homing: done(homing.access.apply, {}),
    "POST /v1/access/check": lambda homing: done(homing.access.check, "ci", "send", device=D),
    "GET /v1/fleet-runs": lambda homing: done(homing.fleet.all),
    "POST /v1/fleet-runs": lambda homing: done(
        homing.fleet.run, {"devices": ["d"]}, "m", waves=[1], stop="5%", spread="site"
    ),
    "GET /v1/fleet-runs/{run_id}": lambda homing: done(homing.fleet.get, "r"),
    "GET /v1/fleet-runs/{run_id}/targets": lambda homing: all_of(homing.fleet.targets, "r", state="failed"),
    "GET /v1/fleet-runs/{run_id}/explain": lambda homing: done(homing.fleet.explain, "r"),
    "POST /v1/fleet-runs/{run_id}/pause": lambda homing: done(homing.fleet.pause, "r"),
    "POST /v1/fleet-runs/{run_id}/resume": lambda homing: done(homing.fleet.resume, "r", forgive=True),
    "POST /v1/fleet-runs/{run_id}/abort": lambda homing: done(homing.fleet.abort, "r", cancel_open=True),
    "POST /v1/fleet-runs/{run_id}/retry": lambda homing: done(homing.fleet.retry, "r", of=["failed"]),
    "GET /v1/schedules": lambda homing: done(homing.schedules.all),
    "PUT /v1/schedules/{name}": lambda homing: done(homing.schedules.put, "dji", {"cron": "* * * * *"}, if_match="t"),
    "GET /v1/schedules/{name}": lambda homing: done(homing.schedules.get, "dji"),
    "DELETE /v1/schedules/{name}": lambda homing: done(homing.schedules.delete, "dji"),
    "GET /v1/webhooks": lambda homing: done(homing.webhooks.all),
    "POST /v1/webhooks": lambda homing: done(homing.webhooks.make, "https://x", events=["command.failed"]),
    "GET /v1/webhooks/{webhook_id}": lambda homing: done(homing.webhooks.get, "w"),
    "PATCH /v1/webhooks/{webhook_id}": lambda homing: done(homing.webhooks.change, "w", enabled=False),
    "DELETE /v1/webhooks/{webhook_id}": lambda homing: done(homing.webhooks.remove, "w"),
    "POST /v1/webhooks/{webhook_id}/rotate": lambda homing: done(homing.webhooks.rotate, "w"),
    "POST /v1/webhooks/{webhook_id}/test": lambda homing: done(homing.webhooks.test, "w"),
    "GET /v1/webhooks/{webhook_id}/deliveries": lambda homing: done(homing.webhooks.deliveries, "w"),
    "POST /v1/webhooks/{webhook_id}/deliveries/{event_id}/retry": lambda homing: done(homing.webhooks.retry, "w", "e"),
    "GET /v1/audit": lambda homing: all_of(homing.access.audit),
    "GET /v1/audit/verify": lambda homing: done(homing.access.verify_audit),
    "GET /v1/broker/sessions": lambda homing: done(homing.broker.sessions),
    "GET /v1/broker/sessions/{client_id}": lambda homing: done(homing.broker.session, "dock-1"),
    "DELETE /v1/broker/sessions/{client_id}": lambda homing: done(homing.broker.end_session, "dock-1"),
    "GET /v1/broker/retained": lambda homing: done(homing.broker.retained, topic="a/+"),
    "DELETE /v1/broker/retained": lambda homing: done(homing.broker.delete_retained, "a/b"),
    "POST /v1/devices/{device_id}/lanes/{lane}/resume": lambda homing: done(homing.resume_lane, D, "flight"),
    "GET /v1/approvals": lambda homing: done(homing.approvals),
    "GET /v1/commands/{command_id}/approvals": lambda homing: done(homing.approval, C),
    "POST /v1/commands/{command_id}/approvals": lambda homing: done(homing.approve, C, "f"),
    "GET /v1/interlocks": lambda homing: done(homing.interlocks),
    "GET /v1/devices/{device_id}/interlocks": lambda homing: done(homing.check_interlocks, D, "m"),
    "GET /v1/traffic": lambda homing: all_of(homing.traffic.listen, "a/#", lasting="1s", limit=1),
    "POST /v1/profiles/trial": lambda homing: done(homing.traffic.try_message, "a/b", b"x"),
    "POST /v1/profiles/draft": lambda homing: done(homing.traffic.try_profile, "name = 'lamp'"),
    "GET /v1/nodes": lambda homing: done(homing.nodes),
    "GET /v1/overview": lambda homing: done(homing.overview),
    "GET /v1/overview/events": lambda homing: all_of(homing.watch_overview),
    "GET /v1/me": lambda homing: done(homing.me),
    "GET /": lambda homing: done(homing.index),
    "GET /healthz": lambda homing: done(homing.alive),
    "GET /readyz": lambda homing: done(homing.ready),
    "GET /metrics": lambda homing: done(homing.metrics),
}
"""The call of a client that each operation is."""
OTHER_NAMES: Final = {"POST /v1/commands/{command_id}/cancel"}
"""Operations that are others by a younger name: clients speak to nodes of the version before, too."""


async def document() -> dict[str, Any]:
    async with running() as rig:
        return await document_of(rig)


async def test_every_operation_has_a_call_in_both_twins() -> None:
    found = await document()
    there = {f"{method.upper()} {path}" for path, methods in found["paths"].items() for method in methods}
    assert there == CALLS.keys() | OTHER_NAMES
    for operation, call in CALLS.items():
        for open_homing in (_async_recorded, _recorded):
            asked: list[str] = []
            await call(open_homing(asked))
            method, _, path = operation.partition(" ")
            assert [one.partition("?")[0] for one in asked] == [f"{method} http://node{path.format(**PATH)}"]


class _Recorder:
    """A transport that writes down what is asked."""

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked

    def exchange(
        self, url: str, method: str, content: bytes | None, headers: Mapping[str, str], patience: float
    ) -> Reply:
        self.asked.append(f"{method} {url}")
        return Reply(200, {"content-type": "application/json"}, b'{"state":"succeeded","positions":[]}')

    def stream(
        self, url: str, headers: Mapping[str, str], patience: float
    ) -> AbstractContextManager[tuple[Reply, Iterator[ServerEvent]]]:
        self.asked.append(f"GET {url}")
        return nullcontext((Reply(204, {}, b""), iter(())))

    def close(self) -> None:
        pass


class _AsyncRecorder:
    def __init__(self, asked: list[str]) -> None:
        self._recorder = _Recorder(asked)

    async def exchange(
        self, url: str, method: str, content: bytes | None, headers: Mapping[str, str], patience: float
    ) -> Reply:
        return self._recorder.exchange(url, method, content, headers, patience)

    def stream(
        self, url: str, headers: Mapping[str, str], patience: float
    ) -> AbstractAsyncContextManager[tuple[Reply, Any]]:
        return nullcontext(self._recorder.stream(url, headers, patience).__enter__())

    async def aclose(self) -> None:
        pass


def _recorded(asked: list[str]) -> Homing:
    return Homing("http://node", transport=_Recorder(asked))


def _async_recorded(asked: list[str]) -> AsyncHoming:
    return AsyncHoming("http://node", transport=_AsyncRecorder(asked))


MODELS: Final = {
    "Command": Command,
    "CommandError": Fault,
    "HeardDevice": DeviceRecord,
    "Known": Known,
    "LateResponse": Late,
    "Me": Me,
}


FLATTENED = {"held_until": "hold"}
"""The objects of answers, by the members of models that are their only member of interest."""


async def test_every_member_of_an_answer_is_known() -> None:
    schemas = (await document())["components"]["schemas"]
    for name, model in MODELS.items():
        known = {FLATTENED.get(one.name, one.name) for one in fields(model)} - {"raw", "tag"}
        assert schemas[name]["properties"].keys() == known, name


async def test_a_command_is_read_as_it_is() -> None:
    example = (await document())["components"]["schemas"]["Command"]["examples"][0]
    command = Command.of(example | {"of_a_later_version": 1})
    assert command.raw["of_a_later_version"] == 1
    for one in fields(Command):
        if (
            one.name not in ("raw", "error", "late", "confirmed_by", "verified", "requested_by", *FLATTENED)
            and not one.name.endswith("_at")
            and one.name != "deadline"
        ):
            assert getattr(command, one.name) == example[one.name]
    assert str(Command.of({}).state) == "None"


def test_the_blocking_twin_is_made_from_the_async_one() -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "unasync.py", "check"], check=True)
    for one, other in ((AsyncHoming, Homing), (homing_client.AsyncDevice, homing_client.Device)):
        names = [{name for name in dir(twin) if not name.startswith("_")} for twin in (one, other)]
        assert {name.replace("aclose", "close") for name in names[0]} == names[1]
        for name in names[1] - {"close"}:
            assert inspect.getdoc(getattr(one, name)) == (inspect.getdoc(getattr(other, name)) or "").replace(
                "As Homing", "As AsyncHoming"
            )


def test_errors_that_are_named_are_errors_of_the_client() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                raised = re.findall(r"Raises ([^.:]+)", ast.get_docstring(node) or "")
                named = set(re.findall(r"\b[A-Z]\w+Error\b", " ".join(raised))) - {"TimeoutError", "ValueError"}
                assert named <= {*homing_client.__all__, "UpgradeRefusedError"}, f"{path.name}: {node.name}"


def test_each_status_with_which_a_node_refuses_is_an_error_of_its_own() -> None:
    told = {one.status for one in (*vars(problems).values(), *BY_ERROR.values()) if isinstance(one, ProblemType)}
    assert {status for status in told if status < 500} <= BY_STATUS.keys()


def test_only_two_modules_know_the_http_library() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            for name in names:
                top = name.partition(".")[0]
                allowed = {"homing_client", *sys.stdlib_module_names} | (
                    {"httpx2"} if path.name in ("_http.py", "_duplex.py") else set()
                )
                assert top in allowed, f"{path.name} imports {name}"


def test_the_http_library_is_in_no_public_signature() -> None:
    for name in homing_client.__all__:
        public = getattr(homing_client, name)
        members = [public, *(getattr(public, one) for one in dir(public) if not one.startswith("_"))]
        for member in members:
            assert "httpx" not in str(getattr(member, "__annotations__", "")), name
        assert not any("httpx" in base.__module__ for base in getattr(public, "__mro__", ())), name


def test_importing_it_loads_what_is_used() -> None:
    unused = {"httpx2", "ssl", "app", "random", "tempfile", "homing_client._async", "homing_client._sync"}
    code = f"import sys, homing_client; assert not {unused} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT / "client")
    unused = {"homing_client._async", "homing_client._sync.access", "homing_client._sync.webhooks"}
    code = f"import sys; from homing_client import Homing; assert not {unused} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT / "client")
    assert set(dir(homing_client)) == set(homing_client.__all__)


def test_its_version_is_that_of_homing() -> None:
    assert homing_client.__version__ == __version__
    for path in ("pyproject.toml", "client/pyproject.toml"):
        text = (ROOT / path).read_text("utf-8")
        assert f'version = "{__version__}"' in text
    assert f'"homing-client=={__version__}"' in (ROOT / "pyproject.toml").read_text("utf-8")
    assert (ROOT / "LICENSE").read_bytes() == (ROOT / "client" / "LICENSE").read_bytes()


def test_the_wheel_has_the_package_its_types_and_one_dependency(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, check=True, cwd=ROOT / "client", capture_output=True)
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (metadata,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA"))
        wheel.extractall(tmp_path / "there")
    sources = {
        one.relative_to(ROOT / "client").as_posix() for one in PACKAGE.rglob("*") if one.suffix in (".py", ".typed")
    }
    assert names == sources >= {"homing_client/py.typed"}
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist")] == [
        "Requires-Dist: httpx2[ws]<3,>=2.16"
    ]
    code = "import homing_client; print(homing_client.__file__); homing_client.Homing('http://127.0.0.1:1').close()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "there", check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith(str(tmp_path))


@pytest.mark.parametrize("device", ["", ".", ".."])
def test_F93_a_device_cannot_become_another_path(device: str) -> None:
    asked: list[str] = []
    with pytest.raises(ValueError, match="device_id"):
        _recorded(asked).send(device, "m")
    _recorded(asked).send("a/b?c#d é", "m")
    assert asked == ["POST http://node/v1/devices/a%2Fb%3Fc%23d%20%C3%A9/commands"]


async def test_many_use_one_client_at_a_time() -> None:
    asked: list[str] = []
    async with _async_recorded(asked) as homing:
        await asyncio.gather(*(homing.send(f"d{number}", "m") for number in range(100)))
    assert len(set(asked)) == 100
