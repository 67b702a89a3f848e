"""Devices that log in with a certificate over TLS, and those who only look like them."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from app.broker.certificate import ServerCertificate, client_certificate
from app.core.broker.codes import PacketType, ProtocolVersion, ReasonCode
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.packets import Connack, Connect, Disconnect, Packet, Publish, PublishAck
from app.core.broker.rights import ClientCertificate
from app.core.broker.wire import Framing
from app.core.errors import ConfigurationError
from app.runtime.system import SystemClock
from tests.broker import RunningBroker, running_broker
from tests.certificates import CertificateAuthority, CertificateFiles, make_certificate
from tests.services import find_binary
from tests.unit.assembly import ManualClock
from tests.unit.broker.conftest import Run
from tests.unit.broker.test_door import Gate
from tests.unit.broker.test_tls import Peer
from tests.waiting import PATIENCE, eventually

V5 = ProtocolVersion.V5
WRONG, REFUSED = ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED


@dataclass
class Site:
    """A broker with TLS that knows the devices SN1 and SN2, and an authority that makes certificates for devices."""

    running: RunningBroker
    gate: Gate
    server: CertificateFiles
    devices: CertificateAuthority
    certificate: ServerCertificate
    keys: dict[str, str]

    def showing(self, files: CertificateFiles | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.server.authority)
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
        return context

    @asynccontextmanager
    async def talk(self, files: CertificateFiles | None, user: str | None = None, key: str = "") -> AsyncIterator[Talk]:
        """Say CONNECT with this certificate, user name and key."""
        async with Peer(self.running.tls_port, self.showing(files)) as peer:
            talk = Talk(peer)
            talk.say(Connect(V5, "", user_name=user, password=key.encode() or None))
            yield talk

    async def answer(self, files: CertificateFiles | None, user: str | None = None, key: str = "") -> ReasonCode:
        """Return what CONNECT is answered with."""
        async with self.talk(files, user, key) as talk:
            said = await talk.hear()
            assert isinstance(said, Connack)
            return said.reason


class Talk:
    """MQTT on a peer's socket."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._framing = Framing()

    def say(self, packet: Packet) -> None:
        self._peer.writer.write(encode(packet, V5))

    async def hear(self) -> Packet:
        """The next packet; ConnectionError at the end."""
        while data := await self._peer.reader.read(65_536):
            for first, body in self._framing.feed(data):
                return decode(first, body, V5)
        raise ConnectionError("the broker has closed")


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    gate, server = Gate(), make_certificate(folder)
    keys = {one: gate.key_for(one).text for one in ("SN1", "SN2")}
    devices = CertificateAuthority(folder, "devices", "devices.pem")
    certificate = ServerCertificate(server.certificate, server.key, SystemClock(), devices.file)
    async with running_broker(certificate=certificate, door=gate.door) as running:
        yield Site(running, gate, server, devices, certificate, keys)


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
def test_a_device_logs_in_with_its_certificate_alone(run: Run, tmp_path: Path, version: int) -> None:
    async def story() -> None:
        async with site(tmp_path) as at:
            client = paho.Client(CallbackAPIVersion.VERSION2, "one", protocol=MQTTProtocolVersion(version))
            client.tls_set_context(at.showing(at.devices.issue("SN1")))
            client.connect_async("localhost", at.running.tls_port)
            client.loop_start()
            await eventually(client.is_connected)
            assert at.running.broker.sessions["one"].permit.owner == "device:SN1"
            client.disconnect()
            await asyncio.to_thread(client.loop_stop)

    run(story())


def test_it_has_the_rights_of_the_device_s_keys(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with site(tmp_path) as at, at.talk(at.devices.issue("SN1"), "SN1") as talk:
            assert isinstance(await talk.hear(), Connack)
            for number, (topic, reason) in enumerate(
                [
                    ("homing/SN1/event", ReasonCode.NO_MATCHING_SUBSCRIBERS),
                    ("homing/SN2/event", REFUSED),
                    ("homing/SN1/command", REFUSED),
                ]
            ):
                talk.say(Publish(topic, b"{}", 1, packet_id=number + 1))
                assert await talk.hear() == PublishAck(PacketType.PUBACK, number + 1, reason)

    run(story())


@pytest.mark.parametrize("who", ["another authority", "expired"])
def test_a_certificate_that_nobody_vouches_for_gets_no_connection(run: Run, tmp_path: Path, who: str) -> None:
    async def story() -> None:
        async with site(tmp_path) as at:
            if who == "expired":
                files = at.devices.issue("SN1", days=-1)
            else:
                files = CertificateAuthority(tmp_path, "devices", "others.pem").issue("SN1")
            with pytest.raises((OSError, ConnectionError)):
                async with at.talk(files, "SN1", at.keys["SN1"]) as talk:
                    await talk.hear()
            await eventually(lambda: at.running.counters["broker.refused.tls_handshake"] == 1)
            assert at.running.broker.sessions == {}

    run(story())


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize(
    ("who", "alert"),
    [("another authority", "unknown ca"), ("expired", "certificate expired")],
    ids=["other", "expired"],
)
def test_it_is_told_why_by_an_alert_of_tls(run: Run, tmp_path: Path, version: str, who: str, alert: str) -> None:
    """RFC 8446, 6.2, and RFC 5246, 7.2.2, as openssl hears it."""

    async def story() -> None:
        async with site(tmp_path) as at:
            if who == "expired":
                files = at.devices.issue("SN1", days=-1)
            else:
                files = CertificateAuthority(tmp_path, "others", "others.pem").issue("SN1")
            said = await asyncio.to_thread(openssl, at, files, version)
            assert re.search(rf"alert {alert}\b", said), said
            await eventually(lambda: at.running.counters["broker.refused.tls_handshake"] == 1)
            assert at.running.broker.taken == 0

    run(story())


def openssl(at: Site, files: CertificateFiles, version: str) -> str:
    """Connect with this certificate; what was said when the broker had ended the connection."""
    shown = ["-cert", str(files.certificate), "-key", str(files.key), "-CAfile", str(at.server.authority)]
    command = [find_binary("openssl", "openssl"), "s_client", version, "-quiet", *shown]
    done = subprocess.run(
        [*command, "-connect", f"localhost:{at.running.tls_port}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stderr


def test_who_shows_none_needs_a_key(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with site(tmp_path) as at:
            assert await at.answer(None) is REFUSED
            assert await at.answer(None, "SN1") is REFUSED
            assert await at.answer(None, "SN1", at.keys["SN1"]) is ReasonCode.SUCCESS

    run(story())


def test_the_certificate_of_another_device_opens_nothing(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with site(tmp_path) as at:
            mine, other = at.devices.issue("SN1"), at.devices.issue("SN2")
            assert await at.answer(other, "SN1") is WRONG
            assert await at.answer(other, "SN1", at.keys["SN1"]) is WRONG
            assert await at.answer(mine, "SN1", at.keys["SN2"]) is WRONG
            assert await at.answer(mine, "SN1", at.keys["SN1"]) is ReasonCode.SUCCESS
            assert await at.answer(at.devices.issue("device:SN1"), "SN1") is WRONG

    run(story())


def test_a_device_that_the_directory_has_not_stays_outside(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with site(tmp_path) as at:
            stranger = at.devices.issue("SN9")
            assert await at.answer(stranger) is REFUSED
            at.gate.key_for("SN9")
            assert await at.answer(stranger) is ReasonCode.SUCCESS

    run(story())


@pytest.mark.parametrize("what", ["the device is disabled", "the certificate ends"])
def test_a_connection_ends_with_what_it_stands_on(run: Run, tmp_path: Path, what: str) -> None:
    async def story() -> None:
        async with site(tmp_path) as at, at.talk(at.devices.issue("SN1")) as talk:
            assert isinstance(await talk.hear(), Connack)
            if what == "the device is disabled":
                known = [replace(one, disabled_us=1) for one in at.gate.document.principals]
                at.gate.become(replace(at.gate.document, principals=tuple(known)))
            else:
                at.gate.clock.now += 400 * 86_400 * 10
            at.running.broker.recheck()
            said = await talk.hear()
            assert isinstance(said, Disconnect)
            assert said.reason is REFUSED

    run(story())


def test_authorities_are_read_anew(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with site(tmp_path) as at:
            old = at.devices.issue("SN1")
            assert await at.answer(old) is ReasonCode.SUCCESS
            new = CertificateAuthority(tmp_path, "new devices", "devices.pem").issue("SN2")
            for _ in range(2):
                at.certificate.refresh()
            assert await at.answer(new) is ReasonCode.SUCCESS
            with pytest.raises((OSError, ConnectionError)):
                await at.answer(old)

    run(story())


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ([[("organizationName", "o")], [("commonName", "SN1")]], "SN1"),
        ([[("organizationName", "o")]], None),
        ([[("commonName", "")]], None),
        ([[("commonName", "SN1")], [("commonName", "SN2")]], None),
        ([], None),
    ],
)
def test_a_certificate_has_one_name(subject: object, name: str | None) -> None:
    shown = {"subject": subject, "notBefore": "Jan  1 00:00:00 2020 GMT", "notAfter": "Jan  2 00:00:00 2020 GMT"}
    expected = None if name is None else ClientCertificate(name, 1_577_836_800, 1_577_923_200)
    assert client_certificate(shown) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "HOMING_BROKER_CLIENT_CA_FILE: {file} cannot be read: No such file or directory"),
        ("", "HOMING_BROKER_CLIENT_CA_FILE: {file} has no certificate in the PEM format"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "HOMING_BROKER_CLIENT_CA_FILE: {file} cann"),
    ],
)
def test_a_file_of_authorities_that_cannot_be_used_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    files, file = make_certificate(tmp_path), tmp_path / "devices.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        ServerCertificate(files.certificate, files.key, ManualClock(), file)
    assert str(refused.value).startswith(said.format(file=file))
