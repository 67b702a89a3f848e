"""`homing doctor` as people run it: on a real Redis and a real Mosquitto, right and wrong ones."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path

from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from homing_rig.ports import lasting_port
from tests.cluster.test_cli import Place, alone, place
from tests.services import MosquittoProcess, RedisProcess, wait_until
from tests.waiting import PATIENCE

__all__ = ["alone", "place"]  # fixtures


def rows_of(table: str) -> dict[tuple[str, str], str]:
    """(part, subject) to level, of what the doctor printed."""
    found = re.findall(r"^(ok|warn|fail) +(store|broker) +(\S+(?: \S+)*?) {2,}", table, re.MULTILINE)
    return {(part, subject): level for level, part, subject in found}


def test_the_doctor_is_content_with_the_services_of_the_tests(alone: Place) -> None:
    seen = alone.run("doctor", COLUMNS="250")
    assert seen.returncode == 0, seen.stdout + seen.stderr
    rows = rows_of(seen.stdout)
    assert rows.pop(("broker", "version")) in ("ok", "warn")
    assert set(rows.values()) == {"ok"}
    assert {"eviction", "persistence", "shared subscriptions", "queues", "round trip"} <= {one for _, one in rows}


def test_the_doctor_says_when_absent_devices_go_unnoticed(tmp_path: Path, homing_program: Path) -> None:
    async def listen_to_everything(url: str) -> None:
        client = PahoMqttClient(MqttOptions.from_url(url, client_id="logger"), Counter())
        await client.start([Subscription("#")], InboundDelivery.acknowledge)
        await client.wait_connected()
        await client.stop(keep_session=True)

    with RedisProcess() as redis, MosquittoProcess() as mosquitto:
        asyncio.run(listen_to_everything(mosquitto.url))
        seen = Place(tmp_path, redis, mosquitto, [str(homing_program)]).run("doctor", COLUMNS="250")
    assert seen.returncode == 0, seen.stdout + seen.stderr
    assert rows_of(seen.stdout)["broker", "absent devices"] == "warn"


def test_the_doctor_cuts_nothing_and_does_not_blame_the_broker_for_its_own_probe(
    tmp_path: Path, homing_program: Path
) -> None:
    with RedisProcess() as redis, MosquittoProcess("max_queued_messages 1000", "sys_interval 1") as mosquitto:
        place = Place(tmp_path, redis, mosquitto, [str(homing_program)])
        first = place.run("doctor", COLUMNS="40")
        assert first.returncode == 1
        assert "HOMING_EVENTS_URL=redis://…, or rocks:///folder for one node." in first.stdout
        assert "Mosquitto: max_queued_messages 100000, see deploy/mosquitto.conf." in first.stdout
        found: dict[str, dict[str, str]] = {}

        def loss_is_told() -> bool:
            seen = json.loads(place.run("doctor", "--json").stdout)
            assert seen["level"] == "fail"
            found.update({one["subject"]: one for one in seen["diagnoses"] if one["part"] == "broker"})
            return found["dropped messages"]["seen"] != "none"

        assert wait_until(loss_is_told, PATIENCE)
    assert set(found["queues"]) == {"level", "part", "subject", "seen", "advice"}
    assert (found["queues"]["level"], found["dropped messages"]["level"]) == ("fail", "ok"), found


def test_the_doctor_speaks_3_1_1(alone: Place) -> None:
    seen = alone.run("doctor", COLUMNS="250", HOMING_MQTT_VERSION="3.1.1", HOMING_STORE_URL="memory://")
    assert seen.returncode == 0, seen.stdout + seen.stderr
    assert rows_of(seen.stdout)["broker", "shared subscriptions"] == "ok"
    assert "memory:// (one node alone" in seen.stdout


def test_the_doctor_finds_what_is_wrong(tmp_path: Path, homing_program: Path) -> None:
    with (
        RedisProcess("--maxmemory-policy", "allkeys-lru", "--appendonly", "no") as redis,
        MosquittoProcess("max_queued_messages 1000", "max_inflight_messages 20") as mosquitto,
    ):
        seen = Place(tmp_path, redis, mosquitto, [str(homing_program)]).run("doctor", COLUMNS="250")
    assert seen.returncode == 1
    rows = rows_of(seen.stdout)
    assert {one for one, level in rows.items() if level == "fail"} == {("store", "eviction"), ("broker", "queues")}
    assert rows["store", "persistence"] == rows["broker", "Receive Maximum"] == "warn"


def test_the_doctor_refuses_what_serve_refuses(tmp_path: Path, homing_program: Path) -> None:
    clustered = (
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        str(lasting_port()),
    )  # else port + 10,000
    with MosquittoProcess() as mosquitto, RedisProcess(*clustered) as redis:
        place = Place(tmp_path, redis, mosquitto, [str(homing_program)])
        seen, served = place.run("doctor", COLUMNS="250"), place.run("serve", "--port", "0")
    assert (seen.returncode, served.returncode) == (1, 2)
    assert rows_of(seen.stdout)["store", "mode"] == "fail"
    assert "Redis Cluster" in served.stderr


def test_the_doctor_names_the_primary_of_a_replica(tmp_path: Path) -> None:
    with (
        MosquittoProcess() as mosquitto,
        RedisProcess() as primary,
        RedisProcess("--replicaof", f"127.0.0.1 {primary.port}") as redis,
    ):
        seen = Place(tmp_path, redis, mosquitto).run("doctor", COLUMNS="250")
    assert seen.returncode == 1
    assert rows_of(seen.stdout)["store", "role"] == "fail"
    assert f"a replica of 127.0.0.1:{primary.port}, which takes no writes" in seen.stdout


def test_the_doctor_finds_nobody_there(alone: Place) -> None:
    seen = alone.run("doctor", HOMING_STORE_URL="redis://127.0.0.1:1/0", HOMING_MQTT_URL="mqtt://127.0.0.1:1")
    assert (seen.returncode, seen.stderr) == (1, "")
    assert seen.stdout.count("fail") == 2
