"""Broker and store over TLS, with a certificate authority of the test's own."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from app.core.errors import StoreUnavailableError
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from app.runtime.system import SystemClock
from app.store.redis.doctor import inspect
from homing_rig.ports import lasting_port
from tests.certificates import CertificateAuthority, CertificateFiles, redis_tls
from tests.cluster.harness import Device, Json, caller, cluster_of, devices
from tests.services import NODE_PASSWORD, NODE_USER, MosquittoProcess, RedisProcess, find_binary
from tests.waiting import eventually


@dataclass(frozen=True)
class Certificates(CertificateFiles):
    node_certificate: Path
    node_key: Path


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    openssl = find_binary("openssl")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1")
    new = ("req", "-newkey", "rsa:2048", "-nodes")
    run(*new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=tests")
    run(*new, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    signed_by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
    run("x509", "-req", "-in", "server.csr", *signed_by, "-out", "server.pem", "-days", "2")
    run(*new, "-keyout", "node.key", "-out", "node.csr", "-subj", f"/CN={NODE_USER}")
    run("x509", "-req", "-in", "node.csr", *signed_by, "-out", "node.pem", "-days", "2")
    for file in tmp_path.iterdir():
        file.chmod(0o644)
    node = (tmp_path / "node.pem", tmp_path / "node.key")
    return Certificates(tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.pem", *node)


def broker_lines(files: Certificates, port: int) -> tuple[str, ...]:
    own = (f"cafile {files.authority}", f"certfile {files.certificate}", f"keyfile {files.key}")
    return (f"listener {port} 127.0.0.1", *own, "allow_anonymous true")


async def test_commands_over_tls_to_broker_and_store(certificates: Certificates) -> None:
    def at_once(device: Device, command: Json) -> None:
        device.answer(command)

    mqtt_port, redis_port = lasting_port(), lasting_port()
    with (
        MosquittoProcess(*broker_lines(certificates, mqtt_port)) as broker,
        RedisProcess(*redis_tls(certificates, redis_port)) as redis,
        cluster_of(
            2,
            redis,
            broker,
            HOMING_MQTT_URL=f"mqtts://127.0.0.1:{mqtt_port}",
            HOMING_MQTT_CA_FILE=str(certificates.authority),
            HOMING_STORE_URL=f"rediss://{NODE_USER}:{NODE_PASSWORD}@127.0.0.1:{redis_port}/0?ssl_ca_certs={certificates.authority}",
        ) as cluster,
    ):
        async with devices(broker, at_once), caller(cluster) as client:
            tally = await client.many(200, 16)
    assert tally.states == {"succeeded": 200}
    assert tally.wrong == []
    assert tally.forwarded > 0


async def test_commands_over_mutual_tls_where_the_certificate_names_the_user(certificates: Certificates) -> None:
    def at_once(device: Device, command: Json) -> None:
        device.answer(command)

    mqtt_port, redis_port = lasting_port(), lasting_port()
    mutual = ("require_certificate true", "use_identity_as_username true")
    files = f"ssl_certfile={certificates.node_certificate}&ssl_keyfile={certificates.node_key}"
    with (
        MosquittoProcess(*broker_lines(certificates, mqtt_port), *mutual) as broker,
        RedisProcess(*redis_tls(certificates, redis_port), "--tls-auth-clients", "yes") as redis,
    ):
        store = f"rediss://{NODE_USER}:{NODE_PASSWORD}@127.0.0.1:{redis_port}/0?ssl_ca_certs={certificates.authority}"
        env = {
            "HOMING_MQTT_URL": f"mqtts://127.0.0.1:{mqtt_port}",
            "HOMING_MQTT_USERNAME": "",
            "HOMING_MQTT_PASSWORD": "",
            "HOMING_MQTT_CA_FILE": str(certificates.authority),
            "HOMING_MQTT_CERT_FILE": str(certificates.node_certificate),
            "HOMING_MQTT_KEY_FILE": str(certificates.node_key),
            "HOMING_STORE_URL": f"{store}&{files}",
        }
        with cluster_of(2, redis, broker, **env) as cluster:
            async with devices(broker, at_once), caller(cluster) as client:
                tally = await client.many(50, 8)
        with pytest.raises(StoreUnavailableError, match="127"):
            await asyncio.to_thread(inspect, store, SystemClock().monotonic, "r1")
        without = replace(MqttOptions.from_url(env["HOMING_MQTT_URL"], client_id="x"), ca_file=certificates.authority)
        counters: Counter[str] = Counter()
        stranger = PahoMqttClient(without, counters)
        await stranger.start([], lambda delivery: delivery.acknowledge())
        await eventually(lambda: counters["connection_failed"] + counters["connection_lost"] > 1)
        assert not stranger.connected
        await stranger.stop()
    assert tally.states == {"succeeded": 50}


async def test_a_broker_that_no_authority_vouches_for_is_refused(certificates: Certificates) -> None:
    port = lasting_port()
    with MosquittoProcess(*broker_lines(certificates, port)):
        counters: Counter[str] = Counter()
        options = MqttOptions.from_url(f"mqtts://127.0.0.1:{port}", client_id="careful")
        client = PahoMqttClient(replace(options, ca_file=None), counters)
        await client.start([], lambda delivery: delivery.acknowledge())
        await eventually(lambda: counters["connection_failed"] > 1)
        assert not client.connected
        await client.stop()


async def test_a_client_shows_the_certificate_that_was_renewed_when_it_connects_again(tmp_path: Path) -> None:
    port, counters = lasting_port(), Counter[str]()
    mutual = ("require_certificate true", "use_identity_as_username true")

    def broker(files: CertificateFiles) -> MosquittoProcess:
        own = (f"cafile {files.authority}", f"certfile {files.certificate}", f"keyfile {files.key}")
        return MosquittoProcess(f"listener {port} 127.0.0.1", *own, "allow_anonymous true", *mutual)

    issued: list[tuple[CertificateFiles, CertificateFiles]] = []
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        authority = CertificateAuthority(tmp_path / name, name)
        issued.append((authority.issue("server"), authority.issue("node")))
    for file in tmp_path.rglob("*.*"):
        file.chmod(0o644)
    (old_server, node), (new_server, renewed) = issued
    options = replace(
        MqttOptions.from_url(f"mqtts://127.0.0.1:{port}", client_id="node"),
        ca_file=node.authority,
        certificate_file=node.certificate,
        key_file=node.key,
    )
    client = PahoMqttClient(options, counters)
    with broker(old_server):
        await client.start([], lambda delivery: delivery.acknowledge())
        await eventually(lambda: client.connected)
    await eventually(lambda: not client.connected)
    with broker(new_server):
        for old, new in ((node.authority, renewed.authority), (node.certificate, renewed.certificate)):
            old.write_bytes(new.read_bytes())
        node.key.write_bytes(renewed.key.read_bytes())
        await eventually(lambda: client.connected)
        await client.stop()
