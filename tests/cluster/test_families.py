"""The table of families: every shipped one does all that commands do, on two nodes that speak all, over a real broker.

Rows and what devices say are the corpora (tests/unit/profiles/corpus), so a new family needs its two files and nothing
here. One cluster runs the whole table; the tests read its cells.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from typing import Final

import pytest

from app.core.commands.faults import with_code_text
from app.core.messages import Publication, ReceivedMessage
from app.core.profiles.profile import DeviceProfile
from app.mqtt.base import InboundDelivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from app.profiles.loader import parse_profile
from homing_simulator.played import Player
from tests.cluster.harness import Caller, Json, caller, cluster_of
from tests.services import MosquittoProcess, RedisProcess
from tests.unit.profiles.corpora import CORPORA, PROFILES, Corpus, Frame, filled, ids_of
from tests.waiting import PATIENCE

GARBAGE: Final = (b"\x00\xff\xfe", b'{"id": "cut of', b"[" * 200, b"\xc1\xc1")
"""Payloads that no codec reads as an answer: no text, JSON that ends too early or never, no MessagePack, no CBOR."""
TIMEOUT: Final = "3s"
"""Time for a request to reach its device on a busy machine."""
COLUMNS: Final = ("answer", "progress", "refusal", "garbage", "duplicate", "timeout", "late")
IF_ABLE: Final = {"progress": "running", "refusal": "failed"}
"""Columns that some families do not have: no rule of theirs has this state."""


def unmounted(text: str) -> str:
    """Without the `$` that topics of clouds begin with: Mosquitto gives shared subscriptions no message of those."""
    return text.replace('"$', '"').replace("'$", "'")


@dataclass(frozen=True)
class Row:
    """A family, and what its device says."""

    corpus: Corpus
    own: DeviceProfile

    @property
    def name(self) -> str:
        return self.corpus.name

    @cached_property
    def player(self) -> Player:
        return Player(self.own)

    def topics(self) -> Sequence[str]:
        return self.player.command_topics(self.corpus.device)

    def frame(self, state: str, *, command: int | None = None) -> Frame | None:
        return next(
            (one for one in self.corpus.frames if one.state == state and (command is None or one.command == command)),
            None,
        )

    def noise(self, command: int) -> list[Frame]:
        """Return the messages of the device that answer nothing."""
        return [one for one in self.corpus.frames if one.command == command and (one.dropped or one.of_another)]

    def can(self, state: str) -> bool:
        return any(rule.state.value == state for spec in self.own.responses for rule in spec.rules)


def row_of(corpus: Corpus) -> Row:
    """Families whose topics begin with `$` get a copy that does not, which is a file of the cluster's own."""
    if not any(one.topic.text.startswith("$") for one in corpus.profile.responses):
        return Row(corpus, corpus.profile)
    frames = [replace(one, topic=one.topic.removeprefix("$")) for one in corpus.frames]
    return Row(replace(corpus, frames=frames), parse_profile(unmounted(_file(corpus.name)), corpus.name))


def _file(name: str) -> str:
    return resources.files("app.profiles.shipped").joinpath(f"{name}.toml").read_text("utf-8")


ROWS: Final = [row_of(one) for one in CORPORA]


class OpenBroker(MosquittoProcess):
    """Everybody may do everything: which rights each family needs is not the question here."""

    def _command(self) -> Sequence[str]:
        command = super()._command()
        (self.folder / "acl").write_text("pattern readwrite #\n")
        return command


@dataclass
class Device:
    """The device of a row. It hears its commands and says what it is told to say."""

    row: Row
    publish: Callable[[Publication], object]
    asked: asyncio.Queue[ReceivedMessage] = field(default_factory=asyncio.Queue)

    def hear(self, message: ReceivedMessage) -> None:
        with suppress(ValueError, KeyError, TypeError):  # a gateway hears its own answers
            if self.row.player.read(message).device_id == self.row.corpus.device:
                self.asked.put_nowait(message)

    def say(self, frame: Frame, command_id: str) -> None:
        message = frame.message(ids_of(command_id))
        self.publish(
            Publication(
                message.topic,
                message.payload,
                correlation_data=message.correlation_data,
                user_properties=message.user_properties,
            )
        )

    def babble(self, frame: Frame, command_id: str) -> None:
        for payload in GARBAGE:
            self.publish(Publication(filled(frame.topic, ids_of(command_id)), payload))


class Table:
    """Runs the rows and keeps what became of their commands: the cells."""

    def __init__(self, client: Caller, devices: dict[str, Device]) -> None:
        self.cells: dict[tuple[str, str], tuple[Frame | None, Json]] = {}
        self.dropped: dict[tuple[str, str], int] = {}
        self._client = client
        self._devices = devices

    async def run(self) -> None:
        """Rows side by side; but what only counters show one row after the other."""
        await self._each(self._refused, self._progressed, self._answered)
        await self._counted("duplicate", "garbage")
        await self._each(self._timed_out)
        await self._counted("late", "timeout")

    async def _each(self, *steps: Callable[[Row], Awaitable[None]]) -> None:
        async def whole(row: Row) -> None:
            for step in steps:
                await step(row)

        await asyncio.gather(*(whole(row) for row in ROWS))

    async def _refused(self, row: Row) -> None:
        if (frame := row.frame("failed")) is not None:
            identity = await self._sent(row, frame)
            self._devices[row.name].say(frame, identity)
            await self._ends("refusal", row, frame, identity)

    async def _progressed(self, row: Row) -> None:
        running = row.frame("running")
        done = None if running is None else row.frame("succeeded", command=running.command)
        if running is None or done is None:
            return
        identity = await self._sent(row, running)
        self._devices[row.name].say(running, identity)
        while (seen := (await self._client.get(1, identity))[1])["state"] != "running":  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)
        self.cells[row.name, "progress"] = running, seen
        self._devices[row.name].say(done, identity)
        await self._ends("answer", row, done, identity)

    async def _answered(self, row: Row) -> None:
        frame = _succeeded(row)
        identity = await self._sent(row, frame)
        device = self._devices[row.name]
        device.babble(frame, identity)
        for one in row.noise(frame.command):
            device.say(one, identity)
        device.say(frame, identity)
        await self._ends("garbage", row, frame, identity)
        self.cells.setdefault((row.name, "answer"), self.cells[row.name, "garbage"])

    async def _timed_out(self, row: Row) -> None:
        frame = _succeeded(row)
        while True:
            identity = await self._sent(row, frame, timeout=TIMEOUT)
            await self._ends("timeout", row, frame, identity)
            if not row.own.has_no_ops or self.cells[row.name, "timeout"][1]["state"] == "timed_out":
                return
            for one in row.noise(frame.command):  # else what was told before is the answer
                self._devices[row.name].say(one, identity)

    async def _counted(self, column: str, of: str) -> None:
        """The answer comes again, or now that it is too late."""
        for row in ROWS:
            frame, before = self.cells[row.name, of]
            assert frame is not None
            drops = self._drops()
            self._devices[row.name].say(frame, before["id"])
            while True:
                _, seen = await self._client.get(0, before["id"])
                if self._drops() > drops or seen["late"] is not None:
                    break
                await asyncio.sleep(0.02)
            self.cells[row.name, column] = frame, seen

    def _drops(self) -> int:
        nodes = (self._client.cluster.reported(one.node_id)["counters"] for one in self._client.cluster.nodes)
        return sum(
            count
            for counters in nodes
            for name, count in counters.items()
            if name.startswith("drop.") and "canary" not in name
        )

    async def _sent(self, row: Row, frame: Frame, timeout: str = "60s") -> str:
        """Send the command that the frame is about; its id, when its device has it."""
        command = row.corpus.commands[frame.command]
        body = {
            "method": command.method,
            "params": json.loads(command.params),
            "timeout": timeout,
            "profile": row.name,
        }
        number = ROWS.index(row) % len(self._client.cluster.nodes)
        url = f"{self._client.cluster.nodes[number].url}/v1/devices/{row.corpus.device}/commands"
        headers = {"Prefer": "respond-async"}
        async with self._client.session.post(url, json=body, headers=headers) as response:
            sent: Json = await response.json(content_type=None)
        assert response.status == 202, (row.name, sent)
        await self._devices[row.name].asked.get()
        return str(sent["id"])

    async def _ends(self, column: str, row: Row, frame: Frame, identity: str) -> None:
        self.cells[row.name, column] = frame, await self._client.final(1, identity)


def _succeeded(row: Row) -> Frame:
    frame = row.frame("succeeded")
    assert frame is not None, f"the corpus of {row.name} has no frame that succeeds"
    return frame


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    folder = tmp_path_factory.mktemp("profiles")
    for row in ROWS:
        if row.own is not row.corpus.profile:
            (folder / f"{row.name}.toml").write_text(unmounted(_file(row.name)))
    shipped = ",".join(row.name for row in ROWS if row.own is row.corpus.profile)
    env = {"HOMING_PROFILES_SHIPPED": shipped, "HOMING_PROFILES_DIR": str(folder)}
    with OpenBroker() as broker, RedisProcess() as server, cluster_of(2, server, broker, **env) as cluster:

        async def run() -> Table:
            mqtt = PahoMqttClient(MqttOptions.from_url(broker.url, client_id="families"), Counter())
            devices = {row.name: Device(row, mqtt.publish) for row in ROWS}

            def handle(delivery: InboundDelivery) -> None:
                for device in devices.values():
                    device.hear(delivery.message)
                delivery.acknowledge()

            await mqtt.start([Subscription(topic) for topic in {t for row in ROWS for t in row.topics()}], handle)
            await mqtt.wait_connected()
            try:
                async with caller(cluster) as client, asyncio.timeout(PATIENCE):
                    table = Table(client, devices)
                    await table.run()
                    return table
            finally:
                await mqtt.stop()

        yield asyncio.run(run())


def test_each_shipped_family_has_a_row() -> None:
    assert {row.name for row in ROWS} == set(PROFILES)


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_family_does_all_that_commands_do(table: Table, row: Row, column: str) -> None:
    needs = IF_ABLE.get(column)
    if needs is not None and not row.can(needs):
        assert (row.name, column) not in table.cells
        return
    assert (row.name, column) in table.cells, f"the corpus of {row.name} has no frame for this"
    frame, command = table.cells[row.name, column]
    assert frame is not None
    late = column in ("timeout", "late")
    state = "timed_out" if late else frame.state
    assert command["state"] == state
    if not late and state != "running":
        assert command["matched_by"] in {one.correlation.value for one in row.own.responses}
    if frame.result is not None and not late:
        assert command["progress" if state == "running" else "result"] == json.loads(frame.result)
    if frame.error is not None and not late:
        assert command["error"] == json.loads(with_code_text(frame.error.encode()))
