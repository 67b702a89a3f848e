"""deploy/compose.redis-cluster.yaml and deploy/compose.redis-sentinel.yaml: their servers, started here as they say."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.core.identifiers import PARTITIONS
from app.core.redis_address import RedisKind, parse_redis_url
from app.runtime.system import SystemClock
from app.store.redis.doctor import RedisFacts, inspect
from homing_rig.ports import lasting_port
from homing_rig.programs import environment
from homing_rig.services import ServiceProcess, reply_of
from tests.contract.store_backends import registration
from tests.deploy.test_compose_file import DEPLOY, by_default, composed
from tests.services import require_programs, wait_until
from tests.stores import redis_store
from tests.waiting import PATIENCE

FILES = ("compose.redis-cluster.yaml", "compose.redis-sentinel.yaml")
KEEPER = "of-the-keeper"
NODE = "of-nodes"


@pytest.fixture(autouse=True)
def programs() -> None:
    require_programs()


class ComposedServer(ServiceProcess):
    """A server of a compose file, on a port of its own, with its scripts and rights."""

    def __init__(self, service: dict[str, Any], *more: str, announced: str = "localhost") -> None:
        super().__init__("redis-server")
        self._service = service
        self._more = more
        self._announced = announced

    def _command(self) -> Sequence[str]:
        command = self._service["command"]
        words = shlex.split(command) if isinstance(command, str) else command
        if words[:2] == ["sh", "-c"]:
            words = shlex.split(words[2].removeprefix("exec ").replace("$$(hostname)", self._announced))
        words = [{"redis": "localhost", "/data": str(self.folder)}.get(one, one) for one in words]
        script = self._script(Path(words[1]).name)
        given = {"REDISCLI_AUTH": NODE, "KEEPER_PASSWORD": KEEPER, "ANNOUNCED": "localhost"}
        given["SENTINEL_FILE"] = str(self.folder / "sentinel.conf")
        own = ("--port", str(self.port), "--bind", "127.0.0.1", *self._more)
        return ["env", *(f"{name}={value}" for name, value in given.items()), "sh", str(script), *words[2:], *own]

    def _script(self, name: str) -> Path:
        """A copy of a script that keeps to its folder."""
        text = (DEPLOY / "compose" / name).read_text().replace("/tmp/", f"{self.folder}/")  # noqa: S108 - as it is there
        copy = self.folder / name
        copy.write_text(text.replace("/homing/users.acl", str(DEPLOY / "redis" / "users.acl")))
        return copy

    def _answers(self) -> bool:
        return reply_of(self.port, b"PING\r\n").startswith((b"+PONG", b"-NOAUTH"))


def look(url: str) -> RedisFacts:
    return inspect(url, SystemClock().monotonic, "composed")


async def keeps_commands(url: str) -> bool:
    """True if a node could work with it."""
    store = redis_store(url)
    await store.start()
    try:
        commands = [registration(f"device-{number}") for number in range(10)]
        for one in commands:
            await store.register(one)
        return all(await store.get([one.command_id for one in commands]))
    finally:
        await store.close()


@pytest.mark.parametrize("name", FILES)
def test_nodes_are_sent_to_servers_that_are_there_and_log_in_as_these_know_them(name: str) -> None:
    file, below = composed(name), composed("compose.yaml")
    for number in (1, 2, 3):
        given = file["services"][f"node-{number}"]["environment"]
        assert given.keys() == {"HOMING_STORE_URL", "HOMING_EVENTS_URL"}
        for url in given.values():
            password = below["services"]["node-1"]["environment"]["HOMING_MQTT_PASSWORD"]
            assert f"://homing:{password}@" in url
            address = parse_redis_url(by_default(url))
            assert {host for host, _ in address.seeds} <= file["services"].keys()
            assert address.kind is (RedisKind.CLUSTER if "cluster" in name else RedisKind.SENTINEL)


@pytest.mark.parametrize("name", FILES)
def test_servers_differ_by_name_and_volume_and_have_no_rights_on_the_machine(name: str) -> None:
    file = composed(name)
    servers = {key: one for key, one in file["services"].items() if key.startswith(("redis", "sentinel"))}
    volumes = [one.split(":")[0] for server in servers.values() for one in server["volumes"] if one[0] != "."]
    assert len(volumes) == len(set(volumes)) == 6
    assert set(volumes) <= {*file["volumes"], *composed("compose.yaml")["volumes"]}
    for server in servers.values():
        assert server["read_only"] is True
        assert server["cap_drop"] == ["ALL"]
        assert server["user"] == "999:999"
        assert "ports" not in server


@pytest.fixture
def members() -> Iterator[list[ComposedServer]]:
    """Three of the six, of which none knows another."""
    services = composed("compose.redis-cluster.yaml")["services"]
    with ExitStack() as stack:
        names = ("redis", "redis-2", "redis-3")
        made = [ComposedServer(services[name], "--cluster-port", str(lasting_port())) for name in names]
        yield [stack.enter_context(one) for one in made]


def test_members_are_joined_into_a_cluster_that_nodes_can_use(members: list[ComposedServer]) -> None:
    places = [f"localhost:{one.port}" for one in members]
    for _ in range(2):  # the second time finds that it is done
        given = {"KEEPER_PASSWORD": KEEPER, "REPLICAS": "0"}
        done = subprocess.run(
            ["sh", DEPLOY / "compose" / "join-redis", *places],
            env=environment(given),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    url = f"redis+cluster://homing:{NODE}@{places[0]}"
    facts = look(url)
    assert facts.cluster is not None
    assert set(facts.cluster.states) == {"ok"}
    assert sorted(one.place for one in facts.cluster.primaries) == sorted(places), "members announce their names"
    assert [one.missing_rights for one in facts.cluster.primaries] == [[], [], []]
    assert sum(facts.cluster.partitions) == PARTITIONS
    keeper = look(f"redis+cluster://keeper:{KEEPER}@{places[0]}").cluster
    assert keeper is not None
    assert (keeper.node_timeout_ms, keeper.full_coverage) == (1500, False)
    assert asyncio.run(keeps_commands(url))


@pytest.fixture
def sentinels() -> Iterator[list[ComposedServer]]:
    """Three that guard a primary with a replica."""
    services = composed("compose.redis-sentinel.yaml")["services"]
    with ExitStack() as stack:
        primary = stack.enter_context(ComposedServer(services["redis"]))
        for name in ("redis-2", "redis-3"):
            services[name]["command"] = services[name]["command"].replace("redis 6379", f"localhost {primary.port}")
        stack.enter_context(ComposedServer(services["redis-2"], "--replica-announce-ip", "localhost"))
        guards = [services[f"sentinel-{number}"] for number in (1, 2, 3)]
        for one in guards:
            one["command"] = [str(primary.port) if word == "6379" else word for word in one["command"]]
        yield [stack.enter_context(ComposedServer(one)) for one in guards]


def test_sentinels_guard_a_primary_that_nodes_can_use(sentinels: list[ComposedServer]) -> None:
    places = ",".join(f"localhost:{one.port}" for one in sentinels)
    url = f"redis+sentinel://homing:{NODE}@{places}/homing/0"

    def guarded() -> bool:
        facts = look(url)
        known = facts.guards is not None and (facts.guards.known, facts.guards.silent) == (3, ())
        return known and facts.replicas == 1 and not facts.missing_rights

    assert wait_until(guarded, PATIENCE, interval=0.2)
    assert asyncio.run(keeps_commands(url))


def test_a_sentinel_keeps_what_it_has_found_out_when_it_starts_again(tmp_path: Path) -> None:
    service = yaml.safe_load((DEPLOY / "compose.redis-sentinel.yaml").read_text())["services"]["sentinel-1"]
    with ComposedServer(service) as one:
        found = "# what it has found out\n"
        file = one.folder / "sentinel.conf"
        one.stop()
        file.write_text(file.read_text() + found)
        one.start()
        assert file.read_text().count("sentinel monitor homing localhost 6379 2") == 1
        assert found in file.read_text()
