"""Calls the HTTP API of a node, for the commands that people type."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit

from app import __version__
from app.core.errors import InvalidInputError
from app.core.payload import JsonValue

JsonObject: TypeAlias = "dict[str, JsonValue]"

MAX_ANSWER: Final = 4 * 1024 * 1024
"""Bytes; more than any answer of the API has."""


class NodeUnreachableError(Exception):
    """There is no usable answer from the node: it cannot be reached, or something else answers there."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the node said."""

    status: int
    body: JsonObject

    @property
    def problem(self) -> str:
        """What an error answer says, in a sentence."""
        said = self.body.get("detail") or self.body.get("title") or "no explanation"
        return f"{said} (HTTP {self.status})"


class RefusedError(Exception):
    """The node answers, and not with what was asked for."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.problem)
        self.answer = answer


class NodeClient:
    """Blocking calls to one node; one connection per call. InvalidInputError when the URL is none.

    `key` is the API key, for nodes that ask for one.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError as error:
            raise InvalidInputError("--node", str(error)) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInputError("--node", f"{url[:64]!a} is not a URL; write http://host:port")
        self.url = url.rstrip("/")
        self._key = key
        self._host, self._secure, self._prefix = parts.hostname, parts.scheme == "https", parts.path.rstrip("/")

    def post_command(self, device_id: str, body: JsonObject, headers: dict[str, str], timeout: float) -> Answer:
        """POST a command for a device; `timeout` (seconds) is how long the answer may take."""
        return self.call("POST", f"/v1/devices/{quote(device_id, safe='')}/commands", timeout, body, headers)

    def get_command(self, command_id: str, timeout: float) -> Answer:
        """GET a command."""
        return self.call("GET", f"/v1/commands/{quote(command_id, safe='')}", timeout)

    def lines(self, path: str, headers: dict[str, str], timeout: float) -> Iterator[str]:
        """The lines of a stream, for as long as it lasts; `timeout` (seconds) is how long it may be silent.

        RefusedError with what the node said instead; NodeUnreachableError also when the connection breaks.
        """
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout)
        all_headers = {"User-Agent": f"homing/{__version__}"} | headers
        if self._key:
            all_headers["Authorization"] = f"Bearer {self._key}"
        try:
            connection.request("GET", self._prefix + path, headers=all_headers)
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                raise RefusedError(Answer(response.status, self._decode(response.status, response.read(MAX_ANSWER))))
            while line := response.readline(MAX_ANSWER):
                yield line.decode().rstrip("\n")
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NodeUnreachableError(f"{self.url} cannot be reached: {reason}") from None
        finally:
            connection.close()

    def call(
        self,
        method: str,
        path: str,
        timeout: float,
        body: JsonObject | list[JsonValue] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request and its JSON answer; NodeUnreachableError says why there is none."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout)
        all_headers = {"Accept": "application/json", "User-Agent": f"homing/{__version__}"} | (headers or {})
        if self._key:
            all_headers["Authorization"] = f"Bearer {self._key}"
        payload = None
        if body is not None:
            payload = json.dumps(body).encode()
            all_headers["Content-Type"] = "application/json"
        try:
            connection.request(method, self._prefix + path, payload, all_headers)
            response = connection.getresponse()
            return Answer(response.status, self._decode(response.status, response.read(MAX_ANSWER)))
        except TimeoutError:
            raise NodeUnreachableError(f"{self.url} did not answer within {timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NodeUnreachableError(f"{self.url} cannot be reached: {reason}") from None
        finally:
            connection.close()

    def _decode(self, status: int, content: bytes) -> JsonObject:
        try:
            body: Any = json.loads(content)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise NodeUnreachableError(
                f"{self.url} answers HTTP {status} without a JSON object: that is no Homing node"
            )
        return body
