"""Everybody on this node who follows the overview. It is made once for all of them, and only while there are some."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, Protocol

from starlette.responses import Response

from app.api.overview_views import OverviewView, OverviewViews, Rights
from app.api.sse import EventStream, SseStream, SseStreams
from app.overview import ClusterGlance, Overviews
from app.runtime.telemetry import Counters

HEARTBEAT_SECONDS: Final = 5.0
"""After so long without an event a bookmark is written: who hears none knows soon that the node does not answer."""
COUNTED_SECONDS: Final = 6.0
"""The seconds between two overviews in which only numbers differ: they do all the time where commands are sent."""
SHARE_OF_ONE: Final = 5
"""One principal may have a fifth of the streams: people on duty share a login, and each of them has a page open."""


class OverviewReader(Rights, Protocol):
    """A caller who reads or follows the overview."""

    def principal(self) -> str | None:
        """Return their name; None where nobody is asked. UnauthenticatedError when they are nobody any more."""


class OverviewStreams:
    """The overview for callers of this node: read, or followed.

    They have as many streams as `most`, besides those of events: these hold what is theirs alone, and a page of the
    console must not take the place of a program that waits for it.
    """

    def __init__(self, overviews: Overviews, counters: Counters, *, most: int, most_per_principal: int) -> None:
        self._overviews = overviews
        self._views = OverviewViews()
        self._streams = SseStreams(
            counters,
            most=most,
            most_per_principal=max(most_per_principal, most // SHARE_OF_ONE),
            keep_alive=HEARTBEAT_SECONDS,
        )
        self.counted_seconds = COUNTED_SECONDS
        self.fill = self._streams.fill
        self.dismiss = self._streams.dismiss
        self.recheck = self._streams.recheck

    async def read(self, reader: OverviewReader) -> OverviewView:
        """Return the overview as they may see it; the errors of their rights."""
        return self._views.view(await self._overviews.read(), reader)

    async def follow(self, reader: OverviewReader) -> Response:
        """Return the stream of overviews as they may see them; the errors of their rights."""
        glance = await self._overviews.read()
        first = self._views.view(glance, reader)
        feed = partial(self._feed, reader, glance, first)
        return EventStream(self._streams, feed, may=partial(_known, reader), principal=reader.principal())

    async def _feed(self, reader: OverviewReader, glance: ClusterGlance, told: OverviewView, stream: SseStream) -> None:
        now = asyncio.get_running_loop().time
        await stream.write(told.event)
        told_at = now()
        while True:
            glance = await self._overviews.after(glance)
            view = self._views.view(glance, reader)
            counted = view.said != told.said and now() >= told_at + self.counted_seconds
            if counted or view.urgent != told.urgent:
                await stream.write(view.event)
                told, told_at = view, now()
            else:
                await stream.keep(view.bookmark)


def _known(reader: OverviewReader) -> None:
    """UnauthenticatedError when they are nobody any more; what they may see is asked with each overview."""
    reader.principal()
