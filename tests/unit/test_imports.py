"""Imports point down only, and each driver stays in its place: docs/architecture.md."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

LAYERS = (
    {"core"},
    {"settings", "observability", "measures", "tasks"},
    {"tracing"},
    {"store", "mqtt", "cluster", "profiles", "latency", "system"},
    {"callbacks"},
    {"commands"},
    {"node"},
    {"metrics"},
    {"api"},
    {"main"},
    {"cli"},
)
"""From the bottom up. A part may import every part of the layers below it, and none beside or above it."""

TOOLS = {
    "analysis": {"core", "latency", "settings", "observability"},
    "bench": {"core", "settings", "observability", "store", "mqtt", "profiles", "system", "simulator"},
    "chaos": {"core", "mqtt", "system", "simulator", "bench"},
    "simulator": {"core", "settings", "observability", "store", "mqtt", "profiles", "system"},
}
"""Parts that stand beside the layers, with all that each may import. `cli` imports them."""

SYSTEM_READERS = {"node", "main", "cli", *TOOLS}
"""Who may import the real clock and the real ids; everybody else takes them through the constructor."""

CORE_BANS = {"asyncio", "logging", "os", "random", "secrets", "socket", "subprocess", "threading", "time", "uuid"}
"""Parts of the standard library that decide nothing: they wait, read, write or surprise."""

CLI = ("app/cli.py", "app/cli/*")
DRIVERS = {
    "aiohttp": (*CLI, "app/bench/*", "app/chaos/*", "app/simulator/*"),
    "amqtt": ("app/mqtt/embedded.py",),
    "fastapi": ("app/api/*", "app/main.py", "app/bench/*"),
    "hiredis": ("app/store/redis*.py", "app/store/combiner.py"),
    "paho": ("app/mqtt/paho*.py", "app/bench/*"),
    "psutil": (*CLI, "app/bench/*", "app/chaos/*"),
    "fsspec": ("app/latency/*", "app/analysis/*"),
    "jinja2": ("app/analysis/*",),
    "opentelemetry": ("app/tracing.py",),
    "prometheus_client": ("app/metrics.py", "app/api/*"),
    "pyarrow": ("app/latency/*", "app/analysis/*"),
    "pydantic_settings": ("app/settings.py",),
    "pyspark": ("app/analysis/*",),
    "redis": ("app/store/redis*.py", "app/store/combiner.py", "app/cluster/*", "app/chaos/*"),
    "rich": (*CLI, "app/bench/*", "app/simulator/*"),
    "starlette": ("app/api/*", "app/main.py", "app/bench/*"),
    "typer": CLI,
    "ulid": ("app/system.py",),
    "uvicorn": ("app/main.py", *CLI, "app/bench/*"),
    "uvloop": ("app/main.py", *CLI, "app/bench/*"),
    # Only the tests have these.
    "duckdb": (),
    "playwright": (),
    "httpx": (),
    "hypothesis": (),
    "pytest": (),
    "testcontainers": (),
}
"""Where each driver may be imported. (`*` crosses folders.)"""

ALL_PARTS = set().union(*LAYERS, TOOLS)


def may_import(part: str) -> set[str]:
    if part in TOOLS:
        return TOOLS[part]
    level = next(level for level, layer in enumerate(LAYERS) if part in layer)
    below = set().union(*LAYERS[:level])
    if part not in SYSTEM_READERS:
        below.discard("system")
    return below | set(TOOLS) if part == "cli" else below


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything imported, also inside functions and under TYPE_CHECKING."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def why_not(path: str, part: str, name: str) -> str | None:
    """Say why the module at `path`, which belongs to `part`, must not import `name`; None when it may."""
    top, _, rest = name.partition(".")
    if part == "__init__":
        return "app itself imports nothing, so that every part costs only itself"
    if not top:
        return "imports are absolute"
    if top == "app":
        target = rest.partition(".")[0]
        if target in ALL_PARTS - may_import(part) - {part}:
            return f"{part} may import {', '.join(sorted(may_import(part))) or 'no other part'}"
        return "core imports itself and the standard library" if part == "core" and target != "core" else None
    if part == "core" and (top not in sys.stdlib_module_names or top in CORE_BANS):
        return "core is the standard library without I/O, clocks and chance"
    if top in DRIVERS and not any(fnmatch(path, place) for place in DRIVERS[top]):
        return f"{top} belongs into {', '.join(DRIVERS[top]) or 'tests'}"
    return None


def breaches(path: str, source: str) -> list[str]:
    """Say in a sentence each what the module at `path` (like app/core/errors.py) imports against the rules."""
    part = Path(path).parts[1].removesuffix(".py")
    if part not in ALL_PARTS | {"__init__"}:
        return [f"{path}: add {part} to the tables of tests/unit/test_imports.py"]
    return [
        f"{path}:{line} imports {name}: {reason}"
        for line, name in imported_names(ast.parse(source))
        if (reason := why_not(path, part, name))
    ]


def test_the_application_keeps_the_import_rules() -> None:
    modules = sorted((ROOT / "app").rglob("*.py"))
    assert modules
    found = [
        breach
        for module in modules
        for breach in breaches(module.relative_to(ROOT).as_posix(), module.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("app/core/routing.py", "from app.store.base import StateStore"),
        ("app/core/routing.py", "import asyncio"),
        ("app/core/routing.py", "from time import monotonic"),
        ("app/core/routing.py", "import orjson"),
        ("app/core/routing.py", "from app import __version__"),
        ("app/core/routing.py", "from . import errors"),
        ("app/store/memory.py", "from app.mqtt.base import MqttClient"),
        ("app/store/memory.py", "from app import mqtt"),
        ("app/store/memory.py", "import app.mqtt.base"),
        ("app/store/memory.py", "import redis.asyncio"),
        ("app/store/memory.py", "from app.system import SystemClock"),
        ("app/mqtt/loopback.py", "import paho.mqtt.client"),
        ("app/callbacks/registry.py", "from app.commands.invoker import Invoker"),
        ("app/commands/invoker.py", "def f():\n    from app.node import Node"),
        ("app/commands/invoker.py", "if TYPE_CHECKING:\n    from app.api import schemas"),
        ("app/commands/invoker.py", "from fastapi import HTTPException"),
        ("app/api/schemas.py", "from app.bench import load"),
        ("app/api/schemas.py", "from app.system import new_ulid"),
        ("app/simulator/fleet.py", "from app.node import Node"),
        ("app/cli/serve.py", "import pytest"),
        ("app/__init__.py", "from app.core import errors"),
        ("app/somewhere/new.py", ""),
    ],
)
def test_a_planted_breach_is_found(path: str, source: str) -> None:
    (sentence,) = breaches(path, source)
    assert sentence.startswith(path)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "app/core/routing.py",
            "from __future__ import annotations\nfrom app.core.errors import HomingError\nimport json",
        ),
        ("app/store/redis.py", "from redis.asyncio import Redis\nfrom app.core.errors import StoreUnavailableError"),
        ("app/mqtt/paho.py", "from paho.mqtt.client import Client\nfrom app.settings import MqttSettings"),
        ("app/callbacks/registry.py", "from app.store.base import StateStore\nfrom app.core.clock import Clock"),
        ("app/api/schemas.py", "from fastapi import FastAPI\nfrom app.commands.invoker import Invoker\nimport app"),
        ("app/main.py", "from app.system import SystemClock\nfrom app import __version__\nimport uvicorn"),
        ("app/cli.py", "from app.bench import load\nfrom app.main import create_app\nimport typer, aiohttp"),
        ("app/bench/reference.py", "import paho.mqtt.client\nfrom fastapi import FastAPI"),
    ],
)
def test_what_the_rules_allow_passes(path: str, source: str) -> None:
    assert breaches(path, source) == []
