"""The HTTP client of webhooks is loaded when one is sent first, and once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping

from app.core.webhooks.schedule import Reply
from app.outbound.ports import DeferredSender, Sender


class CountedSender:
    """Says yes."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.closed = False

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        del headers, body
        return Reply(200, url)

    async def close(self) -> None:
        self.closed = True


async def test_it_is_made_once_however_many_send_at_the_same_time() -> None:
    CountedSender.made = 0
    made: list[CountedSender] = []

    def make() -> Sender:
        made.append(CountedSender())
        return made[-1]

    sender = DeferredSender(make)
    assert CountedSender.made == 0
    replies = await asyncio.gather(*(sender.post(str(number), {}, b"") for number in range(3)))
    assert [one.reason for one in replies] == ["0", "1", "2"]
    assert CountedSender.made == 1
    await sender.close()
    assert made[0].closed


async def test_nothing_is_made_to_be_closed() -> None:
    CountedSender.made = 0
    await DeferredSender(CountedSender).close()
    assert CountedSender.made == 0


def test_a_node_that_sends_nothing_has_no_http_client_in_memory() -> None:
    """Eight megabytes of it, on a box that has few."""
    script = "import sys, app.server.run; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
