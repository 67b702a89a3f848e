"""As much of the protocol of NATS as it takes to keep a stream and to look at it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

SUBJECTS: Final = ("thing.>", "homing.>")
"""The subjects that its MQTT gateway makes of the topics of events."""
STREAM: Final = "EVENTS"
_INBOX: Final = b"_INBOX.bench"


class JetStream:
    """A connection that asks one thing at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connected(cls, port: int) -> JetStream:
        """To a server on this machine."""
        one = cls(*await asyncio.open_connection("127.0.0.1", port))
        await one._reader.readline()
        one._writer.write(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB %b 1\r\n' % _INBOX)
        return one

    async def keep_events(self) -> None:
        """Make a stream in files of what is said."""
        stream = {"name": STREAM, "subjects": SUBJECTS, "storage": "file", "retention": "limits"}
        await self._ask(f"$JS.API.STREAM.CREATE.{STREAM}", orjson.dumps(stream))

    async def count(self) -> int:
        """Return the number of events in the stream."""
        return int((await self._ask(f"$JS.API.STREAM.INFO.{STREAM}", b""))["state"]["messages"])

    async def close(self) -> None:
        """Let go of the server."""
        self._writer.close()
        await self._writer.wait_closed()

    async def _ask(self, subject: str, body: bytes) -> dict[str, Any]:
        self._writer.write(b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), _INBOX, len(body), body))
        while True:
            words = (await self._reader.readline()).split()
            if not words:
                raise ConnectionError("NATS closed the connection")
            if words[0] == b"PING":
                self._writer.write(b"PONG\r\n")
            elif words[0] == b"-ERR":
                raise ConnectionError(b" ".join(words).decode())
            elif words[0] == b"MSG":
                answer: dict[str, Any] = orjson.loads((await self._reader.readexactly(int(words[-1]) + 2))[:-2])
                if "error" in answer:
                    raise ConnectionError(str(answer["error"]))
                return answer
