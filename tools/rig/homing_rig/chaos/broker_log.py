"""Mosquitto's log of sessions, as it tells its administrator: who logged in under which client id, and what is shared.

Needs `LOG_TYPES` in its configuration. So faults find their targets without knowing where nodes keep their names.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LOG_TYPES: Final = tuple(f"log_type {kind}" for kind in ("error", "warning", "notice", "information", "subscribe"))

_SUBSCRIBED: Final = re.compile(r"^\d+: (\S+) \d \$share/([^/\s]+)/(\S+)$", re.MULTILINE)
_CONNECTED: Final = re.compile(r"^\d+: New client connected from \S+ as (\S+) \(.*u'([^']*)'\)\.$", re.MULTILINE)


class Shared(NamedTuple):
    """A shared subscription as it was made."""

    client_id: str
    group: str
    topic_filter: str


def shared(log: str) -> list[Shared]:
    """Every shared subscription so far, the latest last."""
    return [Shared(*found) for found in _SUBSCRIBED.findall(log)]


def logged_in(log: str, user: str) -> list[str]:
    """The client ids under which a user connected, the latest last."""
    return [client_id for client_id, name in _CONNECTED.findall(log) if name == user]


def filters_of_group(log: str, user: str) -> list[str]:
    """The filters of somebody who joins the group that this user joined last; none before there is one."""
    mine = set(logged_in(log, user))
    joined = [one for one in shared(log) if one.client_id in mine]
    return sorted({f"$share/{one.group}/{one.topic_filter}" for one in joined if one.group == joined[-1].group})
