"""Imports point down only, and each driver stays in its place: docs/architecture.md."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

LAYERS = (
    {"core"},
    {"settings"},
    {"runtime"},
    {"store", "mqtt", "profiles", "latency"},
    {"cluster", "outbound"},
    {"callbacks"},
    {"plane"},
    {"kernel"},
    {"access", "adapters"},
    {"audit", "broker", "commands", "events", "observers", "replies", "webhooks"},
    {"queues", "fleets"},
    {"node"},
    {"command_plane"},
    {"drafts", "membership", "overview", "traffic"},
    {"api"},
    {"metrics"},
    {"api_ports"},
    {"main"},
    {"server"},
    {"cli"},
)
"""From the bottom up. A part may import every part of the layers below it, and none beside or above it."""

TOOLS = {
    "analysis": {"core", "latency", "settings", "runtime"},
}
"""Parts that stand beside the layers, with all that each may import. `cli` imports them, and no other part does."""

OF_DISTRIBUTIONS = {"core", "settings", "runtime", "store", "mqtt", "profiles"}
"""All that the distributions in `tools/` may import of `app`; their verbs may import `cli` and `server` as well."""
MEASURED = {"access", "api", "audit", "callbacks", "commands", "fleets", "queues"}
"""Parts of `app` that the figures of the rig measure, and so may import besides."""
DISTRIBUTIONS = {"homing_simulator": set[str](), "homing_rig": {"homing_simulator"}}
"""Packages of `tools/`, with those of the others that each may import. `app` imports none: they add verbs to it."""

SIMULATION = "tools/rig/homing_rig/simulation/"
OF_SIMULATION = {"api", "cluster", "command_plane", "commands", "kernel", "membership", "node", "plane"}
OF_SIMULATION |= {"events", "replies", "webhooks"}
"""What the simulation puts together of `app`, besides that, as `app/main.py` does; and its judge is that of chaos."""

FUZZED = "tools/rig/homing_rig/fuzz/"
OF_FUZZ = {"broker"}
"""The parts that packets are fed to besides."""

RIGS = {"bench", "chaos", "fuzz", "kills", "simulation"}
"""Folders of `homing_rig`. They do not know each other; what both use lies beside them and knows neither."""
ON_BENCH = "homing_rig.figures.profiles"
"""Measures with the bench."""

SYSTEM = "app.runtime.system"
SYSTEM_READERS = {"runtime", "kernel", "adapters", "server", "cli", *TOOLS, *DISTRIBUTIONS}
"""The parts that may import the real clock and the real ids; all others take them through the constructor."""

PORTS = {
    "store": {
        "archive",
        "audit",
        "commands",
        "copies",
        "counters",
        "declared",
        "directory",
        "command_history",
        "command_stream",
        "echo_states",
        "events",
        "fleets",
        "holds",
        "questions",
        "queues",
        "roles",
        "schedules",
        "server_starts",
        "rules",
        "sessions",
        "state",
        "webhooks",
    },
    "cluster": {
        *("cluster", "directory", "membership", "orphans", "shares", "wakeups"),
        *("adopter", "canary", "counters", "founder", "sessions"),
    },
    "mqtt": {"base", "counters", "inbox"},
}
"""The modules that a part offers to those that PORT_USERS names: its ports, and what all of its adapters decide
alike."""

PORT_USERS = {
    *("audit", "callbacks", "commands", "events", "fleets", "queues", "replies", "webhooks"),
    *("node", "metrics", "overview", "api"),
}
"""The parts that know ports only: an engine or an adapter reaches them through the constructor."""

ENGINES = {
    "app.store.memory": (
        *("app/store/memory/*", "app/store/engine.py"),
        *("app/store/rocks/commands.py", "app/store/rocks/command_rows.py"),
        *("app/store/rocks/kept_state.py", "app/store/rocks/webhooks.py"),
        *("app/store/rocks/queues.py", "app/store/rocks/queue_rows.py"),
        *("app/store/rocks/fleets.py", "app/store/rocks/fleet_rows.py"),
    ),  # commands and queues in a folder are those in memory with a journal
    "app.store.redis": (
        *("app/store/redis/*", "app/store/engine.py", "app/store/session_engine.py", "app/cluster/redis*.py"),
        *(
            "app/cli/diagnosis.py",
            "app/cli/cluster_diagnosis.py",
            "app/cli/event_diagnosis.py",
            "tools/rig/homing_rig/rights.py",
        ),  # what is seen of a Redis, and the rights it has to give
    ),
    "app.store.parquet": ("app/store/parquet/*", "app/store/engine.py"),
    "app.store.rocks": (
        *("app/store/rocks/*", "app/store/engine.py", "app/store/folders.py"),
        *("app/store/data_folder.py", "app/store/backup/*"),
    ),
    "app.store.sql": ("app/store/sql/*", "app/store/engine.py"),
    "app.cluster.local": ("app/cluster/engine.py",),
    "app.cluster.redis": ("app/cluster/engine.py",),
}
"""The places where an engine may be imported: in its own folder, and in the modules that choose it."""

CORE_BANS = {"asyncio", "logging", "os", "random", "secrets", "socket", "subprocess", "threading", "time", "uuid"}
"""Parts of the standard library that decide nothing: they wait, read, write or surprise."""

CLI = ("app/cli.py", "app/cli/*")
SQL = ("app/store/sql/*",)
DRIVERS = {
    "aiosqlite": SQL,
    "alembic": SQL,
    "aiohttp": (*CLI, "app/access/login/issuer_calls.py", "app/outbound/sender.py", "tools/*"),
    "cryptography": ("app/api/cursors.py",),
    "cronsim": ("app/fleets/timetable.py",),
    "cbor2": ("app/profiles/codecs.py",),
    "google.protobuf": ("app/profiles/protobufs.py",),
    "fastapi": ("app/api/*", "app/main.py", "tools/rig/*"),
    "homing_client": (*CLI, "tools/rig/homing_rig/figures/*", "tools/simulator/homing_simulator/cli/demo.py"),
    "hiredis": ("app/store/redis/*",),
    "paho": ("app/mqtt/paho*.py", "tools/rig/*"),
    "psycopg": (*SQL, "tools/rig/homing_rig/postgres.py"),
    "psutil": ("tools/rig/*",),
    "pwdlib": ("app/access/login/passwords.py",),
    "duckdb": ("app/analysis/*",),
    "fsspec": ("app/latency/*", "app/store/parquet/*"),
    "msgpack": ("app/profiles/codecs.py",),
    "jinja2": ("app/analysis/*",),
    "jmespath": ("app/profiles/expressions.py",),
    "jsonschema": ("app/profiles/schemas.py",),
    "jsonschema_rs": ("app/profiles/schemas.py",),
    "joserfc": ("app/access/*",),
    "opentelemetry": ("app/runtime/tracing.py",),
    "prometheus_client": ("app/metrics.py", "app/api/*"),
    "pyarrow": ("app/latency/*", "app/analysis/*", "app/store/parquet/*", "app/api/v1/fleet_parquet.py"),
    "pydantic_settings": ("app/settings/*",),
    "pyspark": ("app/analysis/*",),
    "redis": ("app/store/redis/*", "tools/rig/*"),
    "rocksdict": ("app/store/rocks/*",),
    "rich": (*CLI, "tools/*"),
    "sqlalchemy": SQL,
    "sqlite3": SQL,
    "starlette": ("app/api/*", "app/server/*", "app/main.py", "tools/rig/*"),
    "typer": (*CLI, "tools/*/cli/*", "tools/rig/homing_rig/figures/*"),
    "ulid": ("app/runtime/system.py",),
    "uvicorn": ("app/main.py", "app/server/*", "tools/rig/*"),
    "uvloop": ("app/main.py", "app/server/*", "tools/rig/*"),
    # Only the tests have these.
    "playwright": (),
    "httpx": (),
    "httpx2": (),  # nodes have no use for it: it is the client's
    "hypothesis": (),
    "pytest": (),
    "testcontainers": (),
}
"""The places where each driver may be imported. (`*` crosses folders.)"""

ALL_PARTS = set().union(*LAYERS, TOOLS)


def may_import(part: str) -> set[str]:
    if part in TOOLS:
        return TOOLS[part]
    level = next(level for level, layer in enumerate(LAYERS) if part in layer)
    below = set().union(*LAYERS[:level])
    return below | set(TOOLS) if part == "cli" else below


def rig_of(module: str) -> str | None:
    """The folder of homing_rig that a module (like homing_rig.bench.run) lies in; None beside them."""
    names = module.split(".")
    return names[1] if len(names) > 1 and names[0] == "homing_rig" and names[1] in RIGS else None


def module_of(path: str) -> str:
    """`tools/rig/homing_rig/bench/run.py` as homing_rig.bench.run, `app/node.py` as app.node."""
    names = Path(path).with_suffix("").parts
    return ".".join(names[2:] if names[0] == "tools" else names)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements, at any depth: a tenth of what `ast.walk` goes through, as it looks into no expression."""
    found = [tree]
    while found:
        node = found.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, name, ())


def imported_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything imported, also inside functions and under TYPE_CHECKING."""
    for node in statements(tree):
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
    if top in DISTRIBUTIONS:
        return why_no_distribution(path, part, top, name)
    if part in DISTRIBUTIONS and top == "app":
        allowed = OF_DISTRIBUTIONS | ({"cli", "server"} if "/cli/" in path else set())
        allowed |= OF_SIMULATION if path.startswith(SIMULATION) else set()
        allowed |= OF_FUZZ if path.startswith(FUZZED) else set()
        allowed |= MEASURED if "/homing_rig/figures/" in path else set()
        target = rest.partition(".")[0]
        return f"{part} may import {', '.join(sorted(allowed))} of app" if target in ALL_PARTS - allowed else None
    if top == "app":
        return why_not_ours(path, part, rest.partition(".")[0], name)
    if part == "core" and (top not in sys.stdlib_module_names or top in CORE_BANS):
        return "core is the standard library without I/O, clocks and chance"
    if top in DRIVERS and not any(fnmatch(path, place) for place in DRIVERS[top]):
        return f"{top} belongs into {', '.join(DRIVERS[top]) or 'tests'}"
    return None


def why_no_distribution(path: str, part: str, target: str, name: str) -> str | None:
    """As `why_not`, for a name in a package of `tools/`, `target`."""
    verb = "/cli/" in path or (path.startswith(SIMULATION) and rig_of(name) == "chaos")
    rig, free = rig_of(name), verb or module_of(path) == ON_BENCH
    if part == target == "homing_rig" and rig not in (None, rig_of(module_of(path))) and not free:
        return f"{rig} is known to nobody else in homing_rig; what both rigs use lies beside them"
    if part != target and target not in DISTRIBUTIONS.get(part, set()):
        return f"{part} does not know {target}"
    return None


def why_not_ours(path: str, part: str, target: str, name: str) -> str | None:
    """As `why_not`, for a name in another part of app, `target`."""
    if f"{name}.".startswith(f"{SYSTEM}.") and part not in SYSTEM_READERS:
        return f"{part} takes clocks and ids through the constructor"
    if target in ALL_PARTS - may_import(part) - {part}:
        return f"{part} may import {', '.join(sorted(may_import(part))) or 'no other part'}"
    if part == "core" and target != "core":
        return "core imports itself and the standard library"
    return why_no_engine(path, part, name)


def why_no_engine(path: str, part: str, name: str) -> str | None:
    """Say why the module at `path` must not import this part of an engine; None when it is a port, or it may."""
    _, target, module = (*name.split("."), "", "")[:3]
    if part in PORT_USERS and target in PORTS and module not in PORTS[target]:
        return f"{part} knows the ports of {target} only: {', '.join(sorted(PORTS[target]))}"
    for engine, places in ENGINES.items():
        if f"{name}.".startswith(f"{engine}.") and not any(fnmatch(path, place) for place in places):
            return f"{engine} belongs into {', '.join(places)}"
    return None


def breaches(path: str, source: str) -> list[str]:
    """Say in a sentence each what the module at `path`, such as app/core/errors.py, imports against the rules."""
    module = module_of(path)
    part = module.split(".")[0 if path.startswith("tools/") else 1]
    if part not in ALL_PARTS | DISTRIBUTIONS.keys() | {"__init__"}:
        return [f"{path}: add {part} to the tables of tests/project/test_imports.py"]
    return [
        f"{path}:{line} imports {name}: {reason}"
        for line, name in imported_names(ast.parse(source))
        if (reason := why_not(path, part, name))
    ]


def test_the_application_keeps_the_import_rules() -> None:
    modules = [*(ROOT / "app").rglob("*.py"), *(ROOT / "tools").rglob("homing_*/**/*.py")]
    assert modules
    found = [
        breach
        for module in modules
        for breach in breaches(module.relative_to(ROOT).as_posix(), module.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_the_page_of_the_architecture_shows_these_layers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Where things are")[2]
    shown = [set(line.split(", ")) for line in page.partition("```\n")[2].partition("\n```")[0].splitlines()]
    there = {path.stem for path in (ROOT / "app").iterdir()}
    assert shown == [layer & there for layer in reversed(LAYERS) if layer & there]


def test_the_rules_allow_no_circle() -> None:
    order = tuple(TopologicalSorter({part: may_import(part) for part in ALL_PARTS}).static_order())  # raises CycleError
    assert set(order) == ALL_PARTS
