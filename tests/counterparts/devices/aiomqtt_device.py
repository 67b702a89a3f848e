"""A device that answers MQTT 5 requests, as the response topic and correlation data of each ask it to."""

from __future__ import annotations

import asyncio
import sys

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


async def main(host: str, port: int) -> None:
    """Give back the params, or nothing at all to `ping`."""
    async with aiomqtt.Client(host, port, protocol=aiomqtt.ProtocolVersion.V5, identifier="aio-1") as client:
        await client.subscribe("aio-1/request/+", qos=1)
        async for message in client.messages:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # has no types
            properties.CorrelationData = message.properties.CorrelationData
            said = b"" if str(message.topic).endswith("/ping") else message.payload
            await client.publish(message.properties.ResponseTopic, said, qos=1, properties=properties)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
