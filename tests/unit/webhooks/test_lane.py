"""The lane of an endpoint: that it is not served any more ends its attempts, and not what others are told of that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.schedule import Reply
from app.core.webhooks.signatures import Signer
from app.webhooks.lane import DeliveryLane
from app.webhooks.parcels import ClaimedParcels, Parcel
from tests.waiting import turns

ENDPOINT = Endpoint(
    id="wh_01J00000000000000000000001",
    tenant="",
    url="https://gone.example/hook",
    events=frozenset(),
    devices="*",
    methods="*:*",
    created_at=1,
    root="",
)


class TwoParcels:
    """A source that has two parcels."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []
        self.left = [Parcel(f"evt_{number}", b"{}", None, {}) for number in range(2)]

    async def claim(self, endpoint: Endpoint, most: int) -> ClaimedParcels:
        del endpoint, most
        found, self.left = self.left, []
        return ClaimedParcels(found, more=False)

    async def settle(self, endpoint: Endpoint, parcel: Parcel, reply: Reply) -> int:
        del endpoint, parcel, reply
        return 0

    def forget(self, endpoint_id: str) -> None:
        self.forgotten.append(endpoint_id)


class Gone:
    """A receiver that wants nothing any more."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        del url, headers, body
        return Reply(410)

    async def close(self) -> None:
        return


async def test_others_are_told_though_the_lane_ends_meanwhile() -> None:
    known = {ENDPOINT.id: ENDPOINT}
    may_tell = asyncio.Event()
    told: list[str] = []

    async def disable(endpoint: Endpoint, reason: str) -> None:
        if known.pop(endpoint.id, None) is None:
            return  # the other parcel was quicker
        await may_tell.wait()
        told.append(reason)

    source = TwoParcels()
    lane = DeliveryLane(
        ENDPOINT.id,
        endpoint=known.get,
        source=source,
        sender=Gone(),
        signer=Signer(b"0123456789abcdef" * 2),
        disable=disable,
        now=lambda: 1,
        counters=Counter(),
    )
    await lane.run()
    assert (told, lane.in_flight, source.forgotten) == ([], 0, [ENDPOINT.id])
    may_tell.set()
    await turns()
    assert told == ["the receiver answered 410: it wants nothing any more"]
