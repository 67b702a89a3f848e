"""A client of the broker in a node, packet by packet over a socket."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TypeVar

from app.core.broker.codes import ProtocolVersion
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.packets import Connack, Connect, Packet, WillMessage
from app.core.broker.wire import Framing
from tests.broker import RunningBroker
from tests.unit.core.broker.peers import properties
from tests.waiting import PATIENCE

V5 = ProtocolVersion.V5
_Packet = TypeVar("_Packet")


class Talk:
    """A connection, packet by packet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._framing = Framing()
        self._heard: list[Packet] = []

    def say(self, *packets: Packet) -> None:
        self._writer.write(b"".join(encode(one, V5) for one in packets))

    async def hear(self, kind: type[_Packet]) -> _Packet:
        """The next packet, which is of this type; ConnectionError at the end."""
        async with asyncio.timeout(PATIENCE):
            while not self._heard:
                data = await self._reader.read(65_536)
                if not data:
                    raise ConnectionError("the broker has closed")
                self._heard += [decode(first, body, V5) for first, body in self._framing.feed(data)]
        one = self._heard.pop(0)
        assert isinstance(one, kind), one
        return one

    async def close(self) -> None:
        self._writer.transport.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


async def begin_talk(
    running: RunningBroker,
    client_id: str,
    talks: list[Talk],
    user: str | None = None,
    will: WillMessage | None = None,
    keep_alive: int = 0,
) -> tuple[Talk, Connack]:
    """Connect with a session that lives for an hour; `talks` gets the connection, for whoever ends it."""
    talking = Talk(*await asyncio.open_connection("127.0.0.1", running.port))
    talks.append(talking)
    password = None if user is None else user.encode()
    lasting = properties(SESSION_EXPIRY_INTERVAL=3600)
    talking.say(
        Connect(
            V5,
            client_id,
            clean_start=False,
            keep_alive=keep_alive,
            user_name=user,
            password=password,
            will=will,
            properties=lasting,
        )
    )
    return talking, await talking.hear(Connack)
