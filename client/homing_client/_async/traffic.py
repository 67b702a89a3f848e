"""Messages between devices and broker: a look at those that come, and what profiles make of one."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta

from homing_client._answers import body_of, heard_of
from homing_client._async.session import AsyncSession
from homing_client._operations import JsonObject, duration
from homing_client._wire import Request


class AsyncTraffic:
    """The messages of the broker, for those who look for what is wrong with a device. `AsyncHoming.traffic`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def listen(
        self, topic: str | None = None, *, lasting: timedelta | str = "60s", limit: int = 1000
    ) -> AsyncIterator[JsonObject]:
        """Listen to the topics that match a filter, or to all that the profiles have, until time or limit is reached.

        The `kind` of each is `listening`, `message` or `end`. Raises NotAllowedError; another node is asked where too
        many listen on one.
        """
        query = {"topic": topic, "for": duration(lasting), "limit": str(limit)}
        async with aclosing(self._session.stream(Request("GET", "/v1/traffic", query=query), None)) as told:
            async for one in told:
                heard = heard_of(one)
                if heard is not None:
                    yield heard
                    if heard["kind"] == "end":
                        return

    async def try_message(self, topic: str, payload: str | bytes, *, retain: bool = False) -> JsonObject:
        """Say what each profile would make of a message. Nothing is sent."""
        said = {"payload": payload} if isinstance(payload, str) else {"payload_base64": b64encode(payload).decode()}
        body = {"topic": topic, **said, "retain": retain}
        return body_of(await self._session.exchange(Request("POST", "/v1/profiles/trial", body=body)))

    async def try_profile(
        self,
        toml: str,
        *,
        method: str | None = None,
        device_id: str | None = None,
        params: object = None,
        topic: str | None = None,
        payload: str | None = None,
    ) -> JsonObject:
        """Try a profile that the node does not speak: its `faults`, or what it makes of a command and of a message.

        What is left out is an example that fits. Raises NotAllowedError, and LimitError while another one is tried.
        """
        command = {"method": method, "device_id": device_id, "params": params}
        body = {"toml": toml, **command, "topic": topic, "payload": payload}
        return body_of(await self._session.exchange(Request("POST", "/v1/profiles/draft", body=body)))
