"""What routes may ask for by FastAPI's dependencies."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import Depends, Request

from app.api.hot import HotRoute
from app.api.ports import Ports
from app.api.turns import Turns


class Front(Protocol):
    """The application, as its routes know it."""

    ports: Ports
    hot: HotRoute
    lists: Turns


async def _ports(request: Request) -> Ports:
    front: Front = request.app
    return front.ports


async def _hot(request: Request) -> HotRoute:
    front: Front = request.app
    return front.hot


async def _lists(request: Request) -> Turns:
    front: Front = request.app
    return front.lists


NodePorts = Annotated[Ports, Depends(_ports)]
"""What the API needs of its node."""
Hot = Annotated[HotRoute, Depends(_hot)]
"""Serves the busy call."""
Lists = Annotated[Turns, Depends(_lists)]
"""The turns of those who read lists."""
