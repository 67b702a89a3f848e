"""Alerts on their way: a file each, whose folder says how far it got. What is written twice is still sent once."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from app import __version__
from app.analysis.places import as_json, rename, write_whole
from app.core.webhooks.schedule import Reply

PENDING, SENT, REFUSED = STATES = ("pending", "sent", "refused")
MOST_PENDING: Final = 1000
"""More wait for a webhook that is away: the oldest are given up, as refused."""
REQUEST_SECONDS: Final = 5.0
SERVER_ERROR: Final = 500

Send = Callable[[dict[str, Any]], Reply]
_log = structlog.get_logger()


class Outbox:
    """Three folders. One process at a time uses it, and within it one thread sends."""

    def __init__(self, folder: Path, send: Send, *, most_pending: int = MOST_PENDING) -> None:
        self._folder = folder
        self._send = send
        self._most_pending = most_pending
        self._away = ""
        for name in STATES:
            (folder / name).mkdir(parents=True, exist_ok=True)

    def put(self, name: str, alert: dict[str, Any]) -> None:
        """Keep an alert until it is sent; one of this name that was sent before is not put again."""
        if not any((self._folder / state / name).exists() for state in (SENT, REFUSED)):
            write_whole(self._folder / PENDING / name, as_json(alert))

    def latest(self, measure: str) -> dict[str, Any]:
        """The last alert of a measure whose name the files end with, in any state; empty when there is none."""
        found = sorted(self._folder.glob(f"*/*-{measure}.json"), key=lambda path: path.name)
        latest: dict[str, Any] = json.loads(found[-1].read_bytes()) if found else {}
        return latest

    def send_pending(self) -> None:
        """Send what waits, in order, as long as the receiver is there."""
        names = sorted(path.name for path in (self._folder / PENDING).glob("*.json"))
        for name in names[: -self._most_pending]:
            self._move(name, REFUSED)
            _log.error("alert_given_up", file=name, reason=f"more than {self._most_pending} wait")
        for name in names[-self._most_pending :]:
            alert = json.loads((self._folder / PENDING / name).read_bytes())
            reply = self._send(alert)
            if reply.status is None or reply.status == HTTPStatus.TOO_MANY_REQUESTS or reply.status >= SERVER_ERROR:
                if self._away != reply.reason:
                    _log.warning("alert_waits", id=alert["id"], reason=reply.reason)
                self._away = reply.reason
                return
            self._away = ""
            self._move(name, SENT if reply.delivered else REFUSED)
            if not reply.delivered:
                _log.error("alert_refused", id=alert["id"], reason=reply.reason)

    def counts(self) -> dict[str, int]:
        """The number of alerts in each state."""
        return {name: sum(1 for _ in (self._folder / name).glob("*.json")) for name in STATES}

    def _move(self, name: str, state: str) -> None:
        rename(self._folder / PENDING / name, self._folder / state / name)


def to_log(alert: dict[str, Any]) -> Reply:
    """Tell the log of an alert, where there is no webhook."""
    tell = _log.warning if alert["event"] == "raised" else _log.info
    tell(f"alert_{alert['event']}", **{name: alert[name] for name in alert if name not in ("event", "version")})
    return Reply(HTTPStatus.OK)


def webhook(url: str) -> Send:
    """POSTs alerts as JSON. A crash between the answer and our note of it repeats one, with the same id."""
    place = urlsplit(url)
    connect = HTTPSConnection if place.scheme == "https" else HTTPConnection
    target = place._replace(scheme="", netloc="", path=place.path or "/", fragment="").geturl()

    def send(alert: dict[str, Any]) -> Reply:
        headers = {"Content-Type": "application/json", "User-Agent": f"homing/{__version__}"}
        headers["Idempotency-Key"] = alert["id"]
        connection = connect(str(place.hostname), place.port, timeout=REQUEST_SECONDS)
        try:
            connection.request("POST", target, json.dumps(alert).encode(), headers)
            status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            return Reply(None, str(error) or type(error).__name__)
        finally:
            connection.close()
        return Reply(status, f"it answered {status}")

    return send
