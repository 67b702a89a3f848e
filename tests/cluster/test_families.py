"""Every shipped family on two nodes that speak all of them, over a real broker: garbage first, then what is right."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from app.core.messages import Publication, ReceivedMessage
from app.mqtt.base import Delivery, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from tests.cluster.harness import Caller, caller, cluster_of
from tests.services import MosquittoProcess, RedisProcess
from tests.unit.profiles.corpora import CORPORA, Corpus, Frame

_ID = re.compile(r"[0-9]{3}-[0-9A-HJKMNP-TV-Z]{26}")
_NUMBER = re.compile(r'(?:request/|"id":)([0-9]+)')


FAMILIES = [one for one in CORPORA if one.name != "aws-commands"]
"""Mosquitto grants a shared subscription to topics that begin with `$`, and gives it no message."""


class OpenBroker(MosquittoProcess):
    """Everybody may do everything: which rights each family needs is not the question here."""

    def _command(self) -> Sequence[str]:
        command = super()._command()
        (self.folder / "acl").write_text("pattern readwrite #\n")
        return command


class Devices:
    """One of each family. It says all that is no answer, and then the frame that is its answer now."""

    def __init__(self, client: PahoMqttClient) -> None:
        self._client = client
        self._playing: dict[str, tuple[Corpus, Frame]] = {}
        self.asked: Counter[str] = Counter()

    def play(self, corpus: Corpus, answer: Frame) -> None:
        """Answer the next request of this command so."""
        facts = corpus.command(answer)
        self._playing[_pattern(corpus.profile.compose(facts).topic)] = corpus, answer

    def handle(self, delivery: Delivery) -> None:
        message = delivery.message
        for pattern, (corpus, answer) in list(self._playing.items()):
            if re.fullmatch(pattern, message.topic):
                del self._playing[pattern]
                self.asked[corpus.name] += 1
                noise = [one for one in corpus.frames if one.dropped is not None or one.of_another]
                for frame in (*(one for one in noise if one.command == answer.command), answer):
                    self._say(frame, message)
        delivery.acknowledge()

    def _say(self, frame: Frame, request: ReceivedMessage) -> None:
        said = f"{request.topic} {request.payload.decode()} {(request.correlation_data or b'').decode()}"
        named, number = _ID.search(said), _NUMBER.search(said)

        def filled(text: str) -> str:
            text = text.replace("{id}", named[0] if named else "")
            return text.replace("{id_number}", number[1] if number else "")

        data = None if frame.correlation_data is None else filled(frame.correlation_data).encode()
        _puback = self._client.publish(
            Publication(filled(frame.topic), filled(frame.payload).encode(), correlation_data=data)
        )


def _pattern(topic: str) -> str:
    return re.sub(r"[0-9]{3}-[0-9A-Z]{26}|[0-9]{5,}", lambda _: "[0-9A-Z-]+", re.escape(topic).replace("\\-", "-"))


async def send(client: Caller, number: int, corpus: Corpus, frame: Frame) -> dict[str, Any]:
    command = corpus.commands[frame.command]
    body = {"method": command.method, "params": json.loads(command.params), "timeout": "60s", "profile": corpus.name}
    url = f"{client.cluster.nodes[number % 2].url}/v1/devices/{corpus.device}/commands"
    async with client.session.post(url, json=body) as response:
        received: dict[str, Any] = await response.json(content_type=None)
        return received


async def test_every_family_is_answered_and_refused_on_two_nodes_that_speak_all() -> None:
    with (
        OpenBroker() as broker,
        RedisProcess() as server,
        cluster_of(2, server, broker, HOMING_PROFILES_SHIPPED=",".join(one.name for one in FAMILIES)) as cluster,
    ):
        options = MqttOptions.from_url(broker.url, client_id="families")
        mqtt = PahoMqttClient(options, Counter())
        devices = Devices(mqtt)
        await mqtt.start([Subscription("#")], devices.handle)
        await mqtt.wait_connected()
        try:
            async with caller(cluster) as client:
                for state in ("succeeded", "failed"):
                    rounds = [(one, _first(one, state)) for one in FAMILIES]
                    playing = [(corpus, frame) for corpus, frame in rounds if frame is not None]
                    for corpus, frame in playing:
                        devices.play(corpus, frame)
                    ended = await asyncio.gather(
                        *(send(client, number, *one) for number, one in enumerate(playing)),
                    )
                    for (corpus, frame), command in zip(playing, ended, strict=True):
                        assert command.get("state") == state, (corpus.name, command)
                        if frame.result is not None:
                            assert command["result"] == json.loads(frame.result), corpus.name
                        if frame.error is not None:
                            assert command["error"] == json.loads(frame.error), corpus.name
        finally:
            await mqtt.stop()
        assert set(devices.asked) == {one.name for one in FAMILIES}
        assert sum(cluster.counters("drop.not_json")) > 0


def _first(corpus: Corpus, state: str) -> Frame | None:
    return next((frame for frame in corpus.frames if frame.state == state), None)
