"""A node whose commands and events are in one folder: killed and started again, on a real Mosquitto."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import aiohttp
import pytest

from tests.cluster.harness import Device, Json, NodeProcess, devices
from tests.services import MosquittoProcess
from tests.waiting import PATIENCE, eventually

COMMANDS = 60
KILLS = 3
RUN = 6
WORK = 180


@pytest.fixture
def broker() -> Iterator[MosquittoProcess]:
    with MosquittoProcess() as one:
        yield one


@contextmanager
def node_in(folder: Path, broker: MosquittoProcess) -> Iterator[NodeProcess]:
    url = f"rocks://{folder}/data"
    settings = {"HOMING_NODE_ID": "", "HOMING_STORE_URL": url, "HOMING_EVENTS_URL": url}
    with NodeProcess("", None, broker, **settings) as node:
        yield node


class Held:
    """A device that answers when told to, or at once."""

    def __init__(self) -> None:
        self.commands: dict[str, Json] = {}
        self.at_once = False

    def __call__(self, device: Device, command: Json) -> None:
        if self.at_once:
            device.answer(command)
        self.commands[command["tid"]] = command


class Client:
    """Calls the node, through its restarts."""

    def __init__(self, session: aiohttp.ClientSession, node: NodeProcess) -> None:
        self._session = session
        self._node = node

    async def send(self, number: int, timeout: str = "300s", **headers: str) -> Json:
        url = f"{self._node.url}/v1/devices/SN{number:03}/commands"
        body = {"method": "return_home", "params": {"nonce": number}, "timeout": timeout}
        async with self._session.post(url, json=body, headers=headers) as response:
            assert response.status in (200, 202), await response.text()
            return dict(await response.json())

    async def get(self, path: str) -> Json:
        async with self._session.get(f"{self._node.url}{path}") as response:
            assert response.status == 200, await response.text()
            return dict(await response.json())

    async def begin(self, run: Json) -> Json:
        async with self._session.post(f"{self._node.url}/v1/fleet-runs", json=run) as response:
            assert response.status == 202, await response.text()
            return dict(await response.json())

    async def state(self, command_id: str) -> str:
        return str((await self.get(f"/v1/commands/{command_id}"))["state"])


@asynccontextmanager
async def client_of(node: NodeProcess) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2 * PATIENCE)) as session:
        yield Client(session, node)


async def test_open_commands_outlive_a_kill_and_so_does_what_devices_said_meanwhile(
    tmp_path: Path, broker: MosquittoProcess
) -> None:
    held, later = Held(), {"Prefer": "respond-async"}
    with node_in(tmp_path, broker) as node:
        async with devices(broker, held) as device, client_of(node) as client:
            sent = [await client.send(n, **later, **{"Idempotency-Key": f"k{n}"}) for n in range(COMMANDS)]
            ids = [one["id"] for one in sent]
            await eventually(lambda: len(held.commands) == COMMANDS)
            before, meanwhile, after = ids[::3], ids[1::3], ids[2::3]
            for one in before:
                device.answer(held.commands[one])
            await eventually(lambda: all_in(client, before))
            ended = [await client.get(f"/v1/commands/{one}") for one in before]
            who = (await client.get("/v1/nodes"))["nodes"][0]["node_id"]
            await asyncio.to_thread(node.kill)
            for one in meanwhile:
                device.answer(held.commands[one])
            await asyncio.to_thread(node.start)
            assert [await client.get(f"/v1/commands/{one}") for one in before] == ended
            assert (await client.get("/v1/nodes"))["nodes"][0]["node_id"] == who
            again = await client.send(2, **later, **{"Idempotency-Key": "k2"})
            assert again["id"] == ids[2], "its key is known"
            await eventually(lambda: all_in(client, meanwhile))
            for one in after:
                device.answer(held.commands[one])
            await eventually(lambda: all_in(client, after))
            assert set(device.executed.values()) == {1}


async def all_in(client: Client, ids: list[str]) -> bool:
    return {await client.state(one) for one in ids} == {"succeeded"}


async def test_a_deadline_that_passes_while_the_node_is_dead_ends_its_command_at_the_start(
    tmp_path: Path, broker: MosquittoProcess
) -> None:
    held = Held()
    with node_in(tmp_path, broker) as node:
        async with devices(broker, held), client_of(node) as client:
            sent = await client.send(1, "8s", Prefer="respond-async")
            await eventually(lambda: sent["id"] in held.commands)
            await asyncio.to_thread(node.kill)
            left = datetime.fromisoformat(sent["deadline"]) - datetime.now(UTC)
            assert left > timedelta(0), "the node was killed too late"
            await asyncio.sleep(left.total_seconds())  # nothing else makes a deadline pass
            await asyncio.to_thread(node.start)

            async def ended() -> bool:
                return await client.state(sent["id"]) == "timed_out"

            await eventually(ended)
            found = await client.get(f"/v1/commands/{sent['id']}")
            assert found["finished_at"] >= found["deadline"] == sent["deadline"]
            assert found["error"]["code"] == "timed_out"
            assert found["error"]["known"]["published"] in (True, None), "the kill may have come before it was noted"


async def test_what_was_answered_before_a_kill_is_there_after_it(tmp_path: Path, broker: MosquittoProcess) -> None:
    held = Held()
    held.at_once = True
    with node_in(tmp_path, broker) as node:
        async with devices(broker, held), client_of(node) as client:
            told: dict[str, Json] = {}

            async def one_after_the_other(first: int) -> None:
                try:
                    for number in count(first):
                        outcome = await client.send(number)
                        told[outcome["id"]] = outcome
                except (aiohttp.ClientError, ConnectionError):
                    return  # the node is dead

            for kill in range(KILLS):
                callers = [asyncio.create_task(one_after_the_other(1000 * (8 * kill + n))) for n in range(8)]
                most = len(told) + 50 + 40 * kill
                await eventually(lambda: len(told) >= most)  # noqa: B023
                await asyncio.to_thread(node.kill)
                await asyncio.gather(*callers)
                await asyncio.to_thread(node.start)
                for command_id, outcome in told.items():
                    assert await client.get(f"/v1/commands/{command_id}") == outcome


async def test_a_fleet_run_goes_on_after_a_kill(tmp_path: Path, broker: MosquittoProcess) -> None:
    """One command has ended before it, one while the node was dead, one is open: none is sent twice."""
    held = Held()
    targets = [f"SN{number:03}" for number in range(RUN)]
    with node_in(tmp_path, broker) as node:
        async with devices(broker, held) as device, client_of(node) as client:
            command = {"method": "return_home", "timeout": "300s", "hold": "1h"}
            wanted = {"targets": {"devices": targets}, "command": command, "in_flight": 2, "order": "as_listed"}
            run = await client.begin(wanted)
            await eventually(lambda: len(held.commands) == 2)
            first, second = held.commands.values()
            device.answer(first)
            await eventually(lambda: len(held.commands) == 3)
            await asyncio.to_thread(node.kill)
            device.answer(second)
            await asyncio.to_thread(node.start)
            held.at_once = True
            for one in [*held.commands.values()][2:]:
                device.answer(one)

            async def has_ended() -> bool:
                return bool((await client.get(f"/v1/fleet-runs/{run['id']}"))["state"] == "succeeded")

            await eventually(has_ended)
            done = await client.get(f"/v1/fleet-runs/{run['id']}")
            page = await client.get(f"/v1/fleet-runs/{run['id']}/targets")
            assert (done["counts"], done["digest"]) == ({"succeeded": RUN}, run["digest"])
            assert {one["command_id"] for one in page["targets"]} == set(held.commands)
            assert set(device.executed.values()) == {1}


async def test_queues_outlive_a_kill(tmp_path: Path, broker: MosquittoProcess) -> None:
    """Events that were fed, lent, settled or put off are as it was answered; tokens of before settle after."""
    with node_in(tmp_path, broker) as node:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2 * PATIENCE)) as session:

            async def say(method: str, path: str, body: object) -> Json:
                async with session.request(method, f"{node.url}{path}", json=body) as response:
                    assert response.status < 300, await response.text()
                    return dict(await response.json())

            async def take(most: int, seconds: int = 60) -> list[Json]:
                body = {"max": most, "wait": f"{seconds}s"}
                return list((await say("POST", "/v1/queues/work/take", body))["events"])

            async def counted() -> Json:
                return dict((await say("GET", "/v1/queues/work", None))["counts"])

            routes = [{"database": "events", "topic": "work/+"}]
            await say("PUT", "/v1/queues/work", {"routes": routes, "loan": "1h", "retry": ["1h"], "max_deliveries": 9})
            events = [{"topic": f"work/{number}", "data": number} for number in range(WORK)]
            await say("POST", "/v1/events", events)
            lent: dict[int, str] = {}
            settled: set[int] = set()
            for kill in range(KILLS):
                while len(lent) < (kill + 1) * WORK // KILLS:
                    lent |= {int(one["event"]["data"]): one["loan"] for one in await take(WORK // KILLS // 3)}
                open_ones = [one for one in lent if one not in settled]
                done, late = open_ones[::3], open_ones[1::3]
                said = {"done": [lent[one] for one in done], "retry": [{"loan": lent[one]} for one in late]}
                assert (await say("POST", "/v1/queues/work/settle", said))["over"] == []
                settled |= {*done, *late}
                before = await counted()
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.start)
                assert await counted() == before
            assert sorted(lent) == list(range(WORK)), "nothing is lost, nothing lent twice"
            rest = [lent[one] for one in lent if one not in settled]
            assert await say("POST", "/v1/queues/work/settle", {"done": rest}) == {"settled": len(rest), "over": []}
            ended = [lent[one] for one in settled]
            assert (await say("POST", "/v1/queues/work/settle", {"done": ended}))["settled"] == 0
            assert await take(1, seconds=0) == []


async def test_a_second_process_is_told_who_has_the_folder(
    tmp_path: Path, broker: MosquittoProcess, homing_program: Path
) -> None:
    with node_in(tmp_path, broker) as node:
        second = await asyncio.to_thread(
            subprocess.run,
            [str(homing_program), "serve", "--port", "0"],
            env={"HOMING_STORE_URL": f"rocks://{tmp_path}/data", "HOMING_MQTT_URL": broker.url},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert second.returncode == 2, second.stderr
        assert f"HOMING_STORE_URL: {tmp_path}/data is in use by process {node.pid} since " in second.stderr
        assert "Traceback" not in second.stderr
