"""Serves the console: static files of the package, which ask the public API as any other caller does.

`index.html` and `boot.js` are the same for all builds and are not kept by browsers. All other files are below a path
that names their digest, so that they are kept for good, and files of two versions are never mixed. Comments on lines of
their own stay here, as they are a tenth of what browsers would load; the lines keep their numbers.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final

from fastapi import Request
from fastapi import Response as Reply

from app.api import problems
from app.api.http import BytesResponse, headers_of
from app.api.problems import problem
from app.api.routers import PublicRouter

FILES: Final = Path(__file__).parents[1] / "console"
POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    b"trusted-types 'none'"
)
_TYPES: Final[Mapping[str, bytes]] = MappingProxyType(
    {
        ".css": b"text/css; charset=utf-8",
        ".html": b"text/html; charset=utf-8",
        ".js": b"text/javascript; charset=utf-8",
    }
)
_BUILD: Final = b"{build}"
"""Stands in `index.html` for the name of the build."""
COMMENT: Final = re.compile(rb"^[ \t]*(?:/\*\*(?:(?!\*/).)*\*/[ \t]*|//[^\n]*)$", re.MULTILINE | re.DOTALL)
_OF_OTHERS: Final = "vendor/"
"""Below it files are as they were taken."""
_ENTRANCE: Final = ("index.html", "boot.js")
_HEADERS: Final = (
    (b"content-security-policy", POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"vary", b"accept-encoding"),
)
_KEPT: Final = (b"cache-control", b"public, max-age=31536000, immutable")
_NOT_KEPT: Final = (b"cache-control", b"no-cache")
_NO_FILE: Final = "the console of this node has no such file; a page of another version may have asked for it"

router = PublicRouter(prefix="/console", include_in_schema=False)


@dataclass(frozen=True, slots=True)
class _StaticFile:
    """A file as it is sent."""

    plain: bytes
    packed: bytes
    content_type: bytes
    etag: bytes


@dataclass(frozen=True, slots=True)
class _Build:
    """All files of the console by path, and the digest that names them."""

    name: str
    files: Mapping[str, _StaticFile]


@router.get("")
async def to_console() -> Reply:
    """Leads to the page, whose files are named relative to it."""
    return Reply(status_code=308, headers={"location": "console/"})


@router.get("/")
async def page(request: Request) -> Reply:
    """The page."""
    return _sent(request, "index.html", _NOT_KEPT)


@router.get("/boot.js")
async def boot(request: Request) -> Reply:
    """Starts the scripts of the page's build."""
    return _sent(request, "boot.js", _NOT_KEPT)


@router.get("/{build}/{name:path}")
async def static(request: Request, build: str, name: str) -> Reply:
    """A file of this build."""
    if build != _build().name or name in _ENTRANCE:
        return problem(problems.NOT_FOUND, _NO_FILE)
    return _sent(request, name, _KEPT)


def _sent(request: Request, name: str, kept: tuple[bytes, bytes]) -> Reply:
    file = _build().files.get(name)
    if file is None:
        return problem(problems.NOT_FOUND, _NO_FILE)
    asked = headers_of(request.scope)
    headers = [kept, (b"etag", file.etag), *_HEADERS]
    if file.etag in asked.get(b"if-none-match", b""):
        return _NotModified(headers)
    if b"gzip" in asked.get(b"accept-encoding", b""):
        headers.append((b"content-encoding", b"gzip"))
        return BytesResponse(file.packed, content_type=file.content_type, headers=headers)
    return BytesResponse(file.plain, content_type=file.content_type, headers=headers)


class _NotModified(Reply):
    """Says that the browser has the file already."""

    def __init__(self, headers: list[tuple[bytes, bytes]]) -> None:
        self.status_code = 304
        self.body = b""
        self.background = None
        self.raw_headers = headers


@cache
def _build() -> _Build:
    paths = sorted(path for path in FILES.rglob("*") if path.suffix in _TYPES)
    found = {path.relative_to(FILES).as_posix(): path.read_bytes() for path in paths}
    whole = sha256()
    for name, data in found.items():
        whole.update(b"%b\0%d\0%b" % (name.encode(), len(data), data))
    build = whole.hexdigest()[:12]
    found["index.html"] = found["index.html"].replace(_BUILD, build.encode())
    return _Build(build, {name: _static(name, sent_of(name, data)) for name, data in found.items()})


def sent_of(name: str, data: bytes) -> bytes:
    """Return a file of this name as it is sent."""
    if not name.endswith(".js") or name.startswith(_OF_OTHERS):
        return data
    return COMMENT.sub(lambda comment: b"\n" * comment[0].count(b"\n"), data)


def _static(name: str, data: bytes) -> _StaticFile:
    etag = b'"%b"' % sha256(data).hexdigest()[:16].encode()
    return _StaticFile(data, gzip.compress(data, mtime=0), _TYPES[Path(name).suffix], etag)
