"""The hot route with a span around it, which continues the caller's trace. Made only where tracing is on."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope

from app.api.http import Serve, headers_of
from app.runtime.tracing import SERVER, Attributes, Tracing


def traced(serve: Serve, tracing: Tracing, method: str, route: str) -> Serve:
    """Return a handler that serves the call inside a span of its own."""

    async def served(device_id: str, scope: Scope, receive: Receive) -> Response:
        given = headers_of(scope).get(b"traceparent", b"").decode("latin-1")
        about: Attributes = {"http.request.method": method, "http.route": route}
        with tracing.span(f"{method} {route}", SERVER, given, about) as span:
            response = await serve(device_id, scope, receive)
            span.set_attribute("http.response.status_code", response.status_code)
            return response

    return served
