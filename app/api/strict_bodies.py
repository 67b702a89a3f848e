"""Bodies of routes that FastAPI checks: bounded while they come, and read once, as strictly as what devices send."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from app.api.http import headers_of, read_body
from app.api.problems import UNREADABLE
from app.core.errors import InvalidInputError, UndecodableMessageError
from app.core.payload import MAX_DEPTH, decode_json

MOST_BYTES: Final = 1024 * 1024
"""The bytes of a body, as many as the door to the node takes with all framing."""
_IN_ARRAY, _IN_OBJECT = 2, 3
"""Arrays and objects around the data of an event: in `[{"data": …}]` and in `{"write": [{"data": …}]}`."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRequest(Request):
    """`unreadable` says what of its JSON would be refused elsewhere: the handler names the place."""

    def __init__(self, scope: Scope, receive: Receive, body: bytes) -> None:
        super().__init__(scope, receive)
        self._body = body
        self.unreadable: UndecodableMessageError | None = None

    async def json(self) -> Any:  # noqa: ANN401 - any JSON
        """The value of the body; json.JSONDecodeError when it has none at all."""
        around = _IN_OBJECT if self._body.lstrip().startswith(b"{") else _IN_ARRAY
        try:
            return decode_json(self._body, max_bytes=MOST_BYTES, max_depth=MAX_DEPTH + around)
        except UndecodableMessageError as error:
            self.unreadable = error
            return json.loads(self._body)


class StrictBodyRoute(APIRoute):
    """A route whose body, where it has one, comes as a `StrictRequest`."""

    def get_route_handler(self) -> Handler:
        """Return the handler that serves a request."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def read_and_handle(request: Request) -> Response:
            body = await read_body(request.receive, headers_of(request.scope), MOST_BYTES, request.app.body_seconds)
            return await handle(StrictRequest(request.scope, request.receive, body))

        return read_and_handle


def unreadable_of(request: Request) -> UndecodableMessageError | None:
    """The fault in the JSON of the body, though its shape is right."""
    return request.unreadable if isinstance(request, StrictRequest) else None


def check_readable(request: Request) -> None:
    """InvalidInputError about the whole body, where no place in it was named."""
    error = unreadable_of(request)
    if error is not None:
        raise InvalidInputError("body", UNREADABLE.get(error.reason, error.reason))
