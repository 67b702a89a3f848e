"""Under which names a node may be called, and by pages of which origins.

A browser sends what a page tells it to, to any address that the page's name leads to: a stranger's page may let its
name point to this node (DNS rebinding), or call the node by its own name. `Host` gives away the first, `Origin` the
second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final

from app.api import problems
from app.api.http import RawHeaders
from app.api.problems import ProblemType
from app.core.addresses import is_loopback

ANY: Final = "*"
REMEMBERED: Final = 256
"""Values of `Host` that are known to be allowed; where any name is, strangers may send any number of them."""
_SLASH: Final = ord("/")

PASSED_ON: Final = frozenset(
    (
        *(b"forwarded", b"via"),  # RFC 7239, and RFC 9110, 7.6.3
        *(b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip", b"x-original-forwarded-for", b"x-original-host"),
        *(b"x-envoy-external-address", b"x-envoy-original-path", b"cf-connecting-ip", b"cf-ray", b"cdn-loop"),
        *(b"true-client-ip", b"fastly-client-ip", b"fly-client-ip", b"x-azure-clientip", b"x-appengine-user-ip"),
        *(b"x-amz-cf-id", b"proxy-client-ip", b"wl-proxy-client-ip"),
    )
)
"""Headers in which proxies say for whom they ask; so do all that begin as follows."""
_PASSED_ON_PREFIX: Final = b"x-forwarded-"
_CROSS_SITE: Final = b"cross-site"
_PASSED_ON_DETAIL: Final = (
    "a proxy has passed this request on, and this node does not authenticate its callers: it serves its own machine "
    "alone; HOMING_ACCESS_OPEN=true opens it to everybody who reaches the proxy"
)
_OLD_DETAIL: Final = (
    "this request is HTTP/1.0, as sent by proxies that do not identify themselves, and this node does not authenticate "
    "its callers: it serves its own machine alone; send HTTP/1.1, or set HOMING_ACCESS_OPEN=true, which opens it to "
    "everybody who reaches it"
)
_CROSS_SITE_DETAIL: Final = (
    "a page of another site has sent this request, and this node does not authenticate its callers: it serves its own "
    "machine alone"
)
_FAR_DETAIL: Final = (
    "this connection comes from another machine, and this node does not authenticate its callers: it serves its own "
    "machine alone; HOMING_ACCESS_OPEN=true opens it to everybody who reaches it"
)

_ALLOWED_BY: Final = "allowed: this node's own addresses, and the names in HOMING_API_HOSTS"

Refusal = tuple[ProblemType, str]


class Hosts:
    """Decides about the `Host` and the `Origin` of requests, and where they come from.

    On a `loopback` listener only names and addresses of the loopback are allowed, on another one any address, and any
    name as long as none is `listed`. What is listed is allowed besides, also as the host of an origin; `*` is any host.
    With `direct`, a request that a proxy has passed on is refused: it says that somebody further away asks. HTTP/1.0
    is what a proxy speaks that says nothing else of itself, so it is refused, too; and a request that a browser calls
    another site's. So is one whose peer is no loopback address: a packet filter may lead strangers to a listener of
    the loopback.
    """

    def __init__(self, listed: Iterable[str], *, loopback: bool, direct: bool = False) -> None:
        self._listed = frozenset(one.lower() for one in listed)
        self._loopback = loopback
        self._direct = direct
        self._anything = ANY in self._listed or not (loopback or self._listed)
        self._known: set[bytes] = set()

    def facing(self, peer: str) -> Hosts:
        """The hosts that decide about the requests of a peer with this address."""
        return _Far(self) if self._direct and not is_loopback(peer) else self

    def is_plain(self, target: bytes, headers: RawHeaders, by_name: Mapping[bytes, bytes], version: str) -> bool:
        """True if `refusal` need not be asked: an allowed host, said once, and no page. It costs next to nothing."""
        return (
            by_name.get(b"host") in self._known
            and b"origin" not in by_name
            and len(by_name) == len(headers)
            and target[0] == _SLASH
            and (not self._direct or self._about_way(by_name, version) is None)
        )

    def refusal(
        self, target: bytes, headers: RawHeaders, by_name: Mapping[bytes, bytes], version: str
    ) -> Refusal | None:
        """The reason not to serve a request with these headers, also `by_name`; None for most."""
        fault = _fault(target, headers, version)
        if fault is not None:
            return problems.UNREADABLE_REQUEST, fault
        host = _authority(target) or by_name.get(b"host")
        if host is not None and not self._anything and not self._judge(_name_of(host.decode("latin-1"))):
            return problems.HOST_NOT_ALLOWED, f"{_shown(host)} is not a name of this node; {_ALLOWED_BY}"
        detail = self._about_way(by_name, version) if self._direct else None
        if detail is not None:
            return problems.PASSED_ON, detail
        if host is not None:
            self._remember(host)
        return self._about_origin(by_name.get(b"origin"), host or b"")

    def _about_way(self, by_name: Mapping[bytes, bytes], version: str) -> str | None:
        """The sign that the request has not come from a program of this machine alone, as far as it tells."""
        if not PASSED_ON.isdisjoint(by_name):
            return _PASSED_ON_DETAIL
        for name in by_name:
            if name.startswith(_PASSED_ON_PREFIX):
                return _PASSED_ON_DETAIL
        if version == "1.0":
            return _OLD_DETAIL
        if by_name.get(b"sec-fetch-site", b"").strip().lower() == _CROSS_SITE:
            return _CROSS_SITE_DETAIL
        return None

    def _remember(self, host: bytes) -> None:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known.add(host)

    def _judge(self, name: str) -> bool:
        if name in self._listed or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        # An address in `Host` is what somebody typed or a probe was given: no name was rebound.
        return address.is_loopback or not self._loopback

    def _about_origin(self, origin: bytes | None, host: bytes) -> Refusal | None:
        if origin is None:
            return None
        authority = origin.partition(b"://")[2].lower()
        if authority and (authority == host.lower() or _name_of(authority.decode("latin-1")) in self._listed):
            return None
        detail = f"pages of {_shown(origin)} may not call this node; {_ALLOWED_BY}"
        return problems.ORIGIN_NOT_ALLOWED, detail


class _Far(Hosts):
    """The hosts of a peer whose requests are all refused; what else is wrong with them is said first."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    def is_plain(self, target: bytes, headers: RawHeaders, by_name: Mapping[bytes, bytes], version: str) -> bool:
        del target, headers, by_name, version
        return False

    def refusal(self, target: bytes, headers: RawHeaders, by_name: Mapping[bytes, bytes], version: str) -> Refusal:
        found = self._hosts.refusal(target, headers, by_name, version)
        return (problems.PASSED_ON, _FAR_DETAIL) if found is None else found


def _fault(target: bytes, headers: RawHeaders, version: str) -> str | None:
    """The fault in how the request says whom it is for (RFC 9112, 3.2)."""
    given = sum(name == b"host" for name, _ in headers)
    if given > 1:
        return "the header Host is given several times; allowed: once"
    if not given and version != "1.0":
        return "the header Host is missing"
    if sum(name == b"origin" for name, _ in headers) > 1:
        return "the header Origin is given several times; allowed: once"
    if not target.startswith(b"/") and target != b"*" and not _authority(target):
        return "the target is neither a path nor a URL"
    return None


def _authority(target: bytes) -> bytes:
    """Host and port of a target in absolute form, which counts instead of `Host`; empty for others."""
    scheme, found, rest = target.partition(b"://")
    if not found or scheme.lower() not in (b"http", b"https"):
        return b""
    return rest.partition(b"/")[0].partition(b"?")[0].rpartition(b"@")[2]


def _name_of(authority: str) -> str:
    """The name or address in `name:port` or `[address]:port`, in lower case."""
    if authority.startswith("["):
        address, _, rest = authority[1:].partition("]")
        return address.lower() if not rest or rest.startswith(":") else ""
    return authority.partition(":")[0].lower().removesuffix(".")


def _shown(value: bytes) -> str:
    return ascii(value[:64].decode("latin-1"))
