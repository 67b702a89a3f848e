"""`homing` as people run it: real processes on a real Redis and a real Mosquitto."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from urllib.request import urlopen

import psutil  # type: ignore[import-untyped] # it has no types
import pyarrow.parquet as pq
import pytest

from homing_rig.ports import lasting_port
from tests.services import NODE_PASSWORD, NODE_USER, MosquittoProcess, RedisProcess, wait_until
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
AS_DEVICES = {"HOMING_MQTT_USERNAME": "", "HOMING_MQTT_PASSWORD": ""}
"""For a fleet, which may not do what nodes do, and the other way round."""


AS_USERS_DO = (sys.executable, "-m", "app.cli")


class Running:
    """A `homing …` that goes on, with what it said on standard error so far."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        """The URL where it serves."""
        found = re.search(r"http_listens.*url=(\S+)", self.said)
        assert found is not None
        return found[1]

    def wait_for(self, text: str, count: int = 1) -> None:
        assert wait_until(lambda: self.said.count(text) >= count or self.process.poll() is not None, PATIENCE), (
            self.said
        )
        assert self.said.count(text) >= count, self.said

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def children(self) -> list[psutil.Process]:
        return list(psutil.Process(self.process.pid).children())


class Place:
    """The environment of the commands of a test: they have the rights of a node, unless it says otherwise."""

    def __init__(
        self, folder: Path, redis: RedisProcess, mosquitto: MosquittoProcess, program: Sequence[str] = AS_USERS_DO
    ) -> None:
        self.folder = folder
        self._program = program
        self.env = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
            "HOMING_STORE_URL": redis.node_url,
            "HOMING_MQTT_URL": mosquitto.url,
            "HOMING_MQTT_USERNAME": NODE_USER,
            "HOMING_MQTT_PASSWORD": NODE_PASSWORD,
            "HOMING_PROFILE": "dji",
            "HOMING_CLUSTER_DRAIN_DELAY": "0s",
        }

    def typing(self, program: Path) -> Place:
        """The same place, where people type this program."""
        other = copy(self)
        other._program = [str(program)]
        return other

    def command(self, *arguments: str) -> list[str]:
        """The words that start it."""
        return [*self._program, *arguments]

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command that ends."""
        return subprocess.run(
            self.command(*arguments),
            env=self.env | env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    @contextmanager
    def start(self, *arguments: str, **env: str) -> Iterator[Running]:
        """A command that goes on until it is stopped, at the latest with the block."""
        log = self.folder / f"{len(list(self.folder.iterdir()))}.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                self.command(*arguments), env=self.env | env, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=stderr
            )
        try:
            yield Running(process, log)
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with RedisProcess() as redis, MosquittoProcess() as mosquitto:
        yield Place(tmp_path, redis, mosquitto)
        assert not (refused := redis.refusals()), refused


@pytest.fixture
def alone(tmp_path: Path, redis_server: RedisProcess, mosquitto: MosquittoProcess, homing_program: Path) -> Place:
    """For commands that leave nothing behind, and are forked; those of `place` begin as users begin them."""
    return Place(tmp_path, redis_server, mosquitto, [str(homing_program)])


def nodes_at(url: str) -> list[str]:
    with urlopen(f"{url}/v1/nodes", timeout=PATIENCE) as answer:  # noqa: S310 - our own http URL
        return sorted(node["node_id"] for node in json.load(answer)["nodes"])


def test_two_nodes_and_a_fleet(place: Place, homing_program: Path) -> None:
    with (
        place.start("serve", "--port", "0", "--node-id", "n1") as one,
        place.start("serve", "--port", "0", "--node-id", "n2") as other,
        place.start(
            *("simulate", "--profile", "dji", "--devices", "3", "--delay", "1ms..5ms", "--seed", "1"), **AS_DEVICES
        ) as fleet,
    ):
        for node in (one, other):
            node.wait_for("node_ready")
            node.wait_for("http_listens")
            assert re.search(
                r"http_listens.*broker=mqtt://127.0.0.1.*profile=dji.*store=redis://127.0.0.1|http_listens.*store=redis://127.0.0.1",
                node.said,
            )
        fleet.wait_for("3 dji devices are connected")

        answers, quick = [], place.typing(homing_program)
        # The broker hands what is for the group to its nodes in turn, canaries as well: who has an answer is chance.
        for number in range(60):
            sent = (quick if number else place).run(
                "send", "SN0002", "cover_open", "--node", (one, other)[number % 2].url, "--output", "json"
            )
            assert sent.returncode == 0, sent
            answers.append(json.loads(sent.stdout))
            if number and {answer["received_by"] for answer in answers} == {"n1", "n2"}:
                break
        assert {answer["state"] for answer in answers} == {"succeeded"}
        assert {answer["home_node"] for answer in answers} == {"n1", "n2"}
        assert {answer["received_by"] for answer in answers} == {"n1", "n2"}

        refused = quick.run("send", "SN0001", "takeoff_to_point", "--node", one.url)
        assert refused.returncode == 2
        assert "params: 'flight_id' is a required property" in refused.stderr
        silent = quick.run(
            *("send", "SN0099", "cover_open", "--timeout", "1s", "--if-offline", "send", "--node", one.url)
        )
        assert silent.returncode == 3
        assert "nobody was subscribed to its topic" in silent.stdout
        bad = quick.run("send", "SN+1", "cover_open", "--node", one.url)
        assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)

        for running in (one, other, fleet):
            assert running.stop(signal.SIGINT if running is one else signal.SIGTERM) == 0
            assert "Traceback" not in running.said
        assert "commands" in fleet.said.splitlines()[-1]


def test_a_second_node_with_the_same_id_refuses_to_start(place: Place) -> None:
    with place.start("serve", "--port", "0", "--node-id", "twin") as first:
        first.wait_for("node_ready")
        second = place.run("serve", "--port", "0", "--node-id", "twin")
        assert second.returncode == 2
        assert second.stderr.splitlines()[-1] == (
            "homing: a live node is called 'twin' already: give this one another HOMING_NODE_ID"
        )
        assert "Traceback" not in second.stderr
        assert first.process.poll() is None


def test_a_port_that_is_taken_gets_a_sentence(place: Place) -> None:
    with place.start("serve", "--port", "0") as first:
        first.wait_for("http_listens")
        port = first.url.rpartition(":")[2]
        second = place.run("serve", "--port", port)
        assert second.returncode == 2
        assert second.stderr.endswith(f"cannot listen on 127.0.0.1 port {port}: Address already in use\n")


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"HOMING_PROFILE": "x"}, "homing: HOMING_PROFILE: 'x' is unknown; allowed: dji, homing\n"),
        ({"HOMING_API_PORT": "x"}, "homing: HOMING_API_PORT: "),
        (
            {"HOMING_MQTT_URL": "http://x"},
            "homing: HOMING_MQTT_URL: scheme 'http' is unknown; allowed: mqtt://, mqtts://\n",
        ),
        ({"HOMING_CLUSTER_LEASE": "5"}, "homing: HOMING_CLUSTER_LEASE: '5' is not a duration; allowed: "),
    ],
)
def test_wrong_settings_end_with_a_sentence(alone: Place, env: dict[str, str], sentence: str) -> None:
    ended = alone.run("serve", **({"HOMING_API_PORT": "0"} | env))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(sentence)
    assert ended.stderr.count("\n") == 1


def test_workers_are_nodes_behind_one_port_and_are_replaced_when_they_die(place: Place) -> None:
    with place.start("serve", "--port", "0", "--workers", "2", "--node-id", "w") as parent:
        parent.wait_for("http_listens", 2)
        parent.wait_for("node_ready", 2)
        assert nodes_at(parent.url) == ["w-1", "w-2"]

        before = {child.pid for child in parent.children()}
        parent.children()[0].kill()
        parent.wait_for("worker_died")
        parent.wait_for("node_ready", 3)
        after = {child.pid for child in parent.children()}
        assert (len(after), len(before & after)) == (2, 1)
        assert wait_until(lambda: nodes_at(parent.url) == ["w-1", "w-2"], PATIENCE)

        workers = parent.children()
        assert parent.stop() == 0
        assert parent.said.count("node_stopped") == 2
        assert not any(worker.is_running() for worker in workers)


def test_each_worker_answers_on_a_port_of_its_own_for_its_metrics(place: Place) -> None:
    first = free_ports(2)
    with place.start("serve", "--port", "0", "--workers", "2", "--node-id", "w", f"--worker-port={first}") as parent:
        parent.wait_for("node_ready", 2)
        assert [workers_at(first + number) for number in range(2)] == [{"w-1"}, {"w-2"}]
        parent.children()[0].kill()
        parent.wait_for("node_ready", 3)
        assert [workers_at(first + number) for number in range(2)] == [{"w-1"}, {"w-2"}]
        assert parent.stop() == 0


def test_ports_for_workers_need_workers(alone: Place) -> None:
    for options in (["--worker-port=9000"], ["--worker-port=65535", "--workers=2"]):
        ended = alone.run("serve", *options)
        assert ended.returncode == 2
        assert ended.stderr.startswith("homing: --worker-port: needs --workers, and a port of its own for each of them")


def workers_at(port: int) -> set[str]:
    """Return the workers that answer there, asked several times."""
    texts = [urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).read().decode() for _ in range(5)]
    return {name for text in texts for name in re.findall(r'homing_build_info\{.*node_id="([^"]+)"', text)}


def free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        first = lasting_port()
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first


def test_workers_end_when_their_parent_is_killed(place: Place) -> None:
    with place.start("serve", "--port", "0", "--workers", "2") as parent:
        parent.wait_for("node_ready", 2)
        workers = parent.children()
        parent.stop(signal.SIGKILL)
        _, alive = psutil.wait_procs(workers, timeout=PATIENCE)
        assert not alive
        assert parent.said.count("node_stopped") == 2


def test_workers_that_cannot_start_stop_all(place: Place) -> None:
    with place.start("serve", "--port", "0", "--node-id", "w-2") as taken:
        taken.wait_for("node_ready")
        ended = place.run("serve", "--port", "0", "--workers", "2", "--node-id", "w")
        assert ended.returncode == 2
        assert "a live node is called 'w-2' already" in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("rest", "sentence"),
    [
        ("/abc", "has a path that is no database number"),
        ("/0?decode_responses=True", "has 'decode_responses' behind its '?', which is not allowed"),
    ],
)
@pytest.mark.parametrize("verb", [["serve", "--port", "0"], ["doctor"]], ids=["serve", "doctor"])
def test_a_url_that_would_be_misread_is_a_wrong_setting(
    alone: Place, verb: list[str], rest: str, sentence: str
) -> None:
    seen = alone.run(*verb, HOMING_STORE_URL=f"redis://127.0.0.1:1{rest}")
    assert seen.returncode == 2
    assert f"HOMING_STORE_URL: {sentence}" in seen.stderr
    assert "Traceback" not in seen.stderr


@pytest.mark.parametrize("devices", ["1", "5", "13"])
def test_the_demo_ends_after_one_round_that_succeeds(alone: Place, devices: str, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    shown = alone.run("demo", "--once", "--port", "0", "--devices", devices, "--latency-log", log)
    assert (shown.returncode, shown.stderr) == (0, "")
    table, _, folder = shown.stdout.partition("\nLog   ")
    rows = table.splitlines()[1:]
    assert len(rows) == 6 * -(-int(devices) // 6)
    assert sum(pq.ParquetFile(one).metadata.num_rows for one in Path(folder.strip()).rglob("*.parquet")) == len(rows)
    assert all(re.fullmatch(r"dock-\d+ +\w+ +succeeded +\d+ +demo-node", row.rstrip()) for row in rows), shown.stdout


def test_the_demo_takes_another_port_when_its_own_is_taken(place: Place) -> None:
    with place.start("serve", "--port", "0") as node:
        node.wait_for("http_listens")
        port = node.url.rpartition(":")[2]
        shown = place.run("demo", "--once", "--port", port)
    assert shown.returncode == 0
    assert shown.stderr.startswith(f"Port {port} is taken, so the API is at http://127.0.0.1:")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_ends_quietly(alone: Place, number: signal.Signals) -> None:
    demo = subprocess.Popen(
        alone.command("demo", "--port", "0"),
        env=alone.env | {"PYTHONUNBUFFERED": "1"},
        cwd=alone.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    assert any("Ctrl-C" in line for line in demo.stdout)
    demo.send_signal(number)
    _, said = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, said) == (0, "")
