"""Device ids in paths: a name with a slash is one part of the path when the slash is escaped (RFC 3986, section 2.2).

Servers unescape a path before routes see it, and then nobody knows which slashes were part of a name. So the part that
names a device is read from the path as it came.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from starlette.types import Scope

from app.core.errors import InvalidInputError
from app.core.identifiers import validate_device_id

_DEVICES: Final = "/v1/devices/"


def with_device(scope: Scope) -> Scope:
    """The scope of a request whose path has escapes: with the id of the device in the path, where there is one."""
    front = scope.get("root_path", "") + _DEVICES
    raw: str = scope["raw_path"].decode("latin-1")
    if scope["type"] != "http" or not raw.startswith(front):
        return scope
    device, slash, rest = raw.removeprefix(front).partition("/")
    try:
        device = validate_device_id(unquote(device, errors="strict"))
    except (InvalidInputError, UnicodeDecodeError):
        """Stays as it came, so that it is one part of the path; whoever serves the request says what is wrong."""
    return {**scope, "path": f"{front}{device}{slash}{unquote(rest)}"}
