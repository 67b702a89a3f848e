"""An endpoint with a span around it, which continues the caller's trace. Made only where tracing is on."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.api.http import Endpoint, headers_of
from app.tracing import SERVER, Attributes, Tracing


def traced_endpoint(endpoint: Endpoint, tracing: Tracing, method: str, route: str) -> Endpoint:
    """The endpoint, served inside a span of its own."""

    async def served(request: Request) -> Response:
        given = headers_of(request).get(b"traceparent", b"").decode("latin-1")
        about: Attributes = {"http.request.method": method, "http.route": route}
        with tracing.span(f"{method} {route}", SERVER, given, about) as span:
            response = await endpoint(request)
            span.set_attribute("http.response.status_code", response.status_code)
            return response

    return served
