"""The routers of a node: which callers their routes answer, and what their operations are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import ClassVar

from fastapi import APIRouter, Depends
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from app.api.dependencies import asker
from app.api.openapi import operation_id


class PublicRouter(APIRouter):
    """A router whose routes answer everybody.

    An application takes its routes as they are (`routes_of`). FastAPI's `include_router` would analyse each of them
    once more, at the first request, and match each request on two levels.
    """

    guards: ClassVar[Sequence[Dependency]] = ()
    """Each route depends on these besides its own."""

    def __init__(
        self,
        *,
        prefix: str = "",
        tags: list[str | Enum] | None = None,
        route_class: type[APIRoute] = APIRoute,
        include_in_schema: bool = True,
    ) -> None:
        super().__init__(
            prefix=prefix,
            tags=tags,
            route_class=route_class,
            include_in_schema=include_in_schema,
            dependencies=self.guards,
            generate_unique_id_function=operation_id,
        )


class GuardedRouter(PublicRouter):
    """A router of whose routes none answers a caller whom nobody knows: whatever is added to it asks who it is."""

    guards = (Depends(asker),)


def routes_of(routers: Iterable[PublicRouter]) -> list[BaseRoute]:
    """Return the routes of these routers, in their order."""
    return [route for router in routers for route in router.routes]
