"""The rules of imports find planted breaches, and let pass what they allow."""

from __future__ import annotations

import pytest

from tests.project.test_imports import breaches


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("app/core/commands/routing.py", "from app.store.state import StateStore"),
        ("app/core/commands/routing.py", "import asyncio"),
        ("app/callbacks/delivery.py", "from app.store.redis.commands.store import RedisStateStore"),
        ("app/callbacks/delivery.py", "from app.store.memory import store"),
        ("app/callbacks/delivery.py", "from app.store import engine"),
        ("app/callbacks/delivery.py", "import app.store"),
        ("app/commands/deadlines/sweeper.py", "from app.cluster.redis import RedisCluster"),
        ("app/commands/send/invoker.py", "from app.mqtt.paho import PahoMqttClient"),
        ("app/node.py", "from app.store.engine import open_engine"),
        ("app/api/commands.py", "from app.store.memory.commands.store import MemoryStateStore"),
        ("app/api/cluster.py", "from app.cluster.local import LocalCluster"),
        ("app/main.py", "from app.store.redis.commands.store import RedisStateStore"),
        ("app/main.py", "from app.cluster import local"),
        ("app/cli/doctor.py", "from app.store.redis import doctor"),
        ("app/store/redis/commands/store.py", "from app.store.memory.commands.records import Table"),
        ("app/store/commands.py", "from app.store.redis.commands.records import Entry"),
        ("app/store/engine.py", "from app.cluster.directory import NodeInfo"),
        ("app/store/engine.py", "import redis.asyncio"),
        ("app/store/engine.py", "from sqlalchemy import select"),
        ("app/store/directory.py", "import alembic.command"),
        ("app/store/redis/commands/store.py", "import psycopg"),
        ("app/store/redis/commands/store.py", "import rocksdict"),
        ("app/node.py", "from app.store.rocks.events import RocksEventLog"),
        ("app/store/memory/commands/store.py", "import aiosqlite"),
        ("app/node.py", "from app.store.sql.access.directory import SqlDirectory"),
        ("app/cli/access.py", "from app.store.sql import schema"),
        ("app/cluster/redis.py", "from redis.asyncio import Redis"),
        ("app/cluster/local.py", "from app.store.redis.driver.plain import PlainRedis"),
        ("app/commands/send/invoker.py", "import paho.mqtt.client"),
        ("app/api/dependencies.py", "from joserfc import jws"),
        ("app/access/login/tokens.py", "import pwdlib"),
        ("app/access/login/tokens.py", "from app.commands.send.invoker import Invoker"),
        ("app/core/access/decide.py", "from app.access.login.tokens import Tokens"),
        ("app/core/access/keys.py", "import secrets"),
        ("app/core/commands/routing.py", "from time import monotonic"),
        ("app/core/commands/routing.py", "import orjson"),
        ("app/core/commands/routing.py", "from app import __version__"),
        ("app/core/commands/routing.py", "from . import errors"),
        ("app/store/memory/commands/store.py", "from app.mqtt.base import MqttClient"),
        ("app/store/memory/commands/store.py", "from app import mqtt"),
        ("app/store/memory/commands/store.py", "import app.mqtt.base"),
        ("app/store/memory/commands/store.py", "import redis.asyncio"),
        ("app/store/memory/commands/store.py", "from app.runtime.system import SystemClock"),
        ("app/mqtt/loopback.py", "import paho.mqtt.client"),
        ("app/callbacks/waiters.py", "from app.commands.send.invoker import Invoker"),
        ("app/callbacks/waiters.py", "from app.observers.journal import Journal"),
        ("app/observers/spans.py", "from app.commands.send.publisher import TraceCarrier"),
        ("app/commands/send/invoker.py", "def f():\n    from app.node import Node"),
        ("app/commands/send/invoker.py", "if TYPE_CHECKING:\n    from app.api import schemas"),
        ("app/commands/send/invoker.py", "from fastapi import HTTPException"),
        ("app/api/v1/command_models.py", "from homing_rig.bench import BenchOptions"),
        ("app/api/v1/command_models.py", "from app.runtime.system import new_ulid"),
        ("tools/simulator/homing_simulator/fleet.py", "from app.node import Node"),
        ("app/cli/serve.py", "import pytest"),
        ("app/store/state.py", "from app.cluster.cluster import Cluster"),
        ("app/callbacks/registry.py", "from app.observers import spans"),
        ("app/cluster/cluster.py", "from app.callbacks.waiters import Waiters"),
        ("app/node.py", "from homing_rig.programs import find_binary"),
        ("tools/rig/homing_rig/chaos/rig.py", "from app.cli.serve import serve"),
        ("tools/rig/homing_rig/chaos/rig.py", "from app.main import compose"),
        ("tools/rig/homing_rig/chaos/rig.py", "from homing_rig.bench.processes import Running"),
        ("tools/rig/homing_rig/chaos/rig.py", "from homing_rig import bench"),
        ("tools/rig/homing_rig/bench/run.py", "from homing_rig.chaos.proxy import FaultProxy"),
        ("tools/rig/homing_rig/programs.py", "from homing_rig.bench.options import BenchError"),
        ("tools/rig/homing_rig/chaos/rig.py", "from app.cli.output import out"),
        ("tools/simulator/homing_simulator/fleet.py", "from homing_rig.ports import free_port"),
        ("app/cli/root.py", "from homing_rig.bench import BenchOptions"),
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
            "app/core/commands/routing.py",
            "from __future__ import annotations\nfrom app.core.errors import HomingError\nimport json",
        ),
        (
            "app/store/redis/commands/store.py",
            "from redis.asyncio import Redis\nfrom app.core.errors import StoreUnavailableError",
        ),
        ("app/mqtt/paho.py", "from paho.mqtt.client import Client\nfrom app.settings import MqttSettings"),
        (
            "app/store/sql/access/directory.py",
            "from sqlalchemy import select\nfrom app.store.sql.driver.calls import Calls",
        ),
        ("app/node.py", "from app.store.directory import AccessDirectory"),
        ("app/callbacks/waiters.py", "from app.store.state import StateStore\nfrom app.core.clock import Clock"),
        (
            "app/api/v1/command_models.py",
            "from fastapi import FastAPI\nfrom app.commands.send.invoker import Invoker\nimport app",
        ),
        (
            "app/callbacks/delivery.py",
            "from app.store.commands import CommandStore\nfrom app.mqtt.base import Delivery",
        ),
        (
            "app/commands/deadlines/sweeper.py",
            "from app.cluster.directory import Directory\nfrom app.store import rules",
        ),
        ("app/adapters.py", "from app.store.engine import open_engine\nfrom app.cluster.engine import open_cluster"),
        ("app/cluster/engine.py", "from app.cluster.local import LocalCluster\nfrom app.store.engine import kind_of"),
        ("app/adapters.py", "from app.runtime.system import SystemClock\nfrom app.mqtt.paho import PahoMqttClient"),
        (
            "app/cli.py",
            "from app.analysis import analyze\nfrom app.main import create_app\nimport typer, aiohttp",
        ),
        (
            "tools/rig/homing_rig/chaos/rig.py",
            "from homing_rig import programs\nfrom homing_rig.chaos.load import Load",
        ),
        (
            "tools/rig/homing_rig/cli/bench.py",
            "from homing_rig.bench import BenchOptions\nfrom app.cli.output import out",
        ),
        ("tools/rig/homing_rig/chaos/rig.py", "from homing_simulator import FleetOptions"),
        ("tools/rig/homing_rig/bench/reference.py", "import paho.mqtt.client\nfrom fastapi import FastAPI"),
    ],
)
def test_what_the_rules_allow_passes(path: str, source: str) -> None:
    assert breaches(path, source) == []
