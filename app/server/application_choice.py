"""The choice of the application that answers a request: that of its listener, or one that says why it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from app.api.http import RawHeaders
from app.api.problems import ProblemType, problem
from app.server.hosts import Hosts
from app.server.limiter import Admission, CloseReason, ConnectionLimiter
from app.server.place import LimiterPlace
from app.server.refusals import REFUSALS
from app.server.sockets import OpsListener

PROBES: Final = frozenset((b"/healthz", b"/readyz", b"/metrics"))
"""Targets that are served to one more connection where there are as many as there may be."""


Application: TypeAlias = Any
"""An ASGI application, which uvicorn types no closer."""


class ApplicationChoice:
    """Belongs to one connection."""

    __slots__ = ("_hosts", "_limiter", "_ops", "_place", "application")

    def __init__(
        self,
        application: Application,
        limiter: ConnectionLimiter,
        place: LimiterPlace,
        hosts: Hosts,
        ops: OpsListener | None,
    ) -> None:
        self.application = application
        """Answers all requests that are served."""
        self._limiter = limiter
        self._place = place
        self._hosts = hosts
        self._ops = ops

    def face(self, client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> None:
        """Choose for a peer with this address, by the address that it has reached."""
        if client:
            self._hosts = self._hosts.facing(client[0])
        if self._ops is not None and server is not None and server[1] == self._ops.port:
            self.application = self._ops.application

    def of(self, target: bytes, headers: RawHeaders, by_name: Mapping[bytes, bytes], version: str) -> Application:
        """Return the application that answers the request with this head."""
        if self._place.standing is Admission.ADMITTED and self._hosts.is_plain(target, headers, by_name, version):
            return self.application
        refusal = self._hosts.refusal(target, headers, by_name, version)
        if refusal is not None:
            return self._refusing(*refusal)
        if self._place.standing is Admission.PROBE and target.partition(b"?")[0] not in PROBES:
            self._place.turn_away()
            return self._refusing(*REFUSALS[CloseReason.TOO_MANY])
        return self.application

    def is_refused(self, target: bytes, headers: RawHeaders, version: str) -> bool:
        """True if another application than its own answers a request of a connection that is admitted."""
        return self._hosts.refusal(target, headers, dict(headers), version) is not None

    def _refusing(self, kind: ProblemType, detail: str) -> Application:
        self._limiter.counters[f"refused.{kind.slug}"] += 1
        return problem(kind, detail)
