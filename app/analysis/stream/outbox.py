"""Alerts on their way: a file each, whose folder says how far it got. What is written twice is still sent once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import structlog

from app import __version__
from app.analysis.places import as_json, rename, write_whole

PENDING: Final = "pending"
SENT: Final = "sent"
REFUSED: Final = "refused"
MOST_PENDING: Final = 1000
"""More wait for a webhook that is away: the oldest are given up, as refused."""
REQUEST_SECONDS: Final = 5.0
TOO_MANY_REQUESTS: Final = 429
SERVER_ERROR: Final = 500

Send = Callable[[dict[str, Any]], None]
_log = structlog.get_logger()


class RefusedError(Exception):
    """The receiver said that it will never take this alert."""


class AwayError(Exception):
    """The receiver did not take it this time."""


class Outbox:
    """Three folders. One process at a time uses it, and within it one thread sends."""

    def __init__(self, folder: Path, send: Send) -> None:
        self._folder = folder
        self._send = send
        self._away = ""
        for name in (PENDING, SENT, REFUSED):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def put(self, name: str, alert: dict[str, Any]) -> None:
        """Keep an alert until it is sent; one of this name that was sent before is not put again."""
        if not any((self._folder / state / name).exists() for state in (SENT, REFUSED)):
            write_whole(self._folder / PENDING / name, as_json(alert))

    def send_pending(self) -> None:
        """Send what waits, in order, as long as the receiver is there."""
        names = sorted(path.name for path in (self._folder / PENDING).glob("*.json"))
        for name in names[: max(0, len(names) - MOST_PENDING)]:
            self._move(name, REFUSED)
            _log.error("alert_given_up", file=name, reason=f"more than {MOST_PENDING} wait")
        for name in names[-MOST_PENDING:]:
            alert = json.loads((self._folder / PENDING / name).read_bytes())
            try:
                self._send(alert)
            except RefusedError as error:
                self._move(name, REFUSED)
                _log.error("alert_refused", id=alert["id"], reason=str(error))
            except AwayError as error:
                if self._away != str(error):
                    _log.warning("alert_waits", id=alert["id"], reason=str(error))
                self._away = str(error)
                return
            else:
                self._away = ""
                self._move(name, SENT)

    def counts(self) -> dict[str, int]:
        """How many are in which state."""
        return {name: sum(1 for _ in (self._folder / name).glob("*.json")) for name in (PENDING, SENT, REFUSED)}

    def _move(self, name: str, state: str) -> None:
        rename(self._folder / PENDING / name, self._folder / state / name)


def to_log(alert: dict[str, Any]) -> None:
    """Where there is no webhook."""
    tell = _log.warning if alert["event"] == "raised" else _log.info
    tell(
        f"alert_{alert['event']}", **{name: value for name, value in alert.items() if name not in ("event", "version")}
    )


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:  # a POST must not become a GET
        return None


class Webhook:
    """POSTs alerts as JSON. A crash between the answer and our note of it repeats one, with the same id."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = build_opener(_NoRedirects)

    def __call__(self, alert: dict[str, Any]) -> None:
        """AwayError when it was not taken this time, RefusedError when trying again is of no use."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"homing/{__version__}",
            "Idempotency-Key": alert["id"],
        }
        request = Request(self._url, json.dumps(alert).encode(), headers, method="POST")  # noqa: S310 - checked scheme
        try:
            self._opener.open(request, timeout=REQUEST_SECONDS).close()
        except HTTPError as error:
            error.close()
            if error.code >= SERVER_ERROR or error.code == TOO_MANY_REQUESTS:
                raise AwayError(f"it answered {error.code}") from None
            raise RefusedError(f"it answered {error.code}") from None
        except OSError as error:
            raise AwayError(str(error)) from None
