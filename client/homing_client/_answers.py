"""Answers of the API, and events of its streams, as values or as the errors that they are: no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from homing_client._errors import UnexpectedAnswerError, error_of
from homing_client._models import (
    OUTCOMES,
    Command,
    CommandEvent,
    Happening,
    LogEvent,
)
from homing_client._node_models import (
    Cluster,
    DeviceRecord,
    Entry,
    Me,
    Readiness,
    Tagged,
)
from homing_client._operations import JsonObject
from homing_client._retry import retry_after
from homing_client._wire import Reply, ServerEvent

_NOT_READY: Final = 503


def command_sent(reply: Reply) -> Command:
    """The command that the answer to `send` tells of. Outcomes are values: also those that are problems in HTTP."""
    if reply.status < 400:  # noqa: PLR2004 - RFC 9110
        return Command.of(reply.json())
    command = reply.json().get("command") if reply.is_json else None
    if isinstance(command, Mapping) and command.get("state") in OUTCOMES:
        return Command.of(command)
    raise problem_of(reply)


def entry_of(reply: Reply) -> Entry:
    """The JSON of an answer and its tag; the error that it is."""
    nothing_of(reply)
    return anything_of(reply)


def anything_of(reply: Reply) -> Entry:
    """Return what `entry_of` does, of any operation: the value is None where the answer has no JSON."""
    if not reply.is_success:
        raise problem_of(reply)
    return Entry(reply.value() if reply.is_json and reply.content else None, reply.headers.get("etag"))


def tagged_of(reply: Reply) -> Tagged:
    """The object in an answer and its tag; the error that it is."""
    return Tagged(body_of(reply), reply.headers.get("etag"))


def command_of(reply: Reply) -> Command:
    """The command in an answer."""
    return Command.of(body_of(reply))


def device_of(reply: Reply) -> DeviceRecord:
    """The device in an answer."""
    return DeviceRecord.of(body_of(reply), reply.headers.get("etag"))


def listed(reply: Reply, member: str) -> list[JsonObject]:
    """All of a list that is not paged."""
    return list(body_of(reply).get(member) or ())


def cluster_of(reply: Reply) -> Cluster:
    """The cluster in an answer."""
    return Cluster.of(body_of(reply))


def me_of(reply: Reply) -> Me:
    """Read who the caller is."""
    return Me.of(body_of(reply))


def readiness_of(reply: Reply) -> Readiness:
    """Read whether a node can serve: an answer of 503 says that it cannot, and why."""
    if reply.status >= 400 and not (reply.status == _NOT_READY and reply.is_json):  # noqa: PLR2004 - RFC 9110
        raise problem_of(reply)
    body = reply.json()
    return Readiness(reply.status < 400, str(body.get("state")), body.get("checks") or {})  # noqa: PLR2004 - RFC 9110


def body_of(reply: Reply) -> JsonObject:
    """The object in an answer; the error that it is."""
    if not reply.is_success:
        raise problem_of(reply)
    return reply.json()


def content_of(reply: Reply) -> bytes:
    """The bytes of an answer; the error that it is."""
    if not reply.is_success:
        raise problem_of(reply)
    return reply.content


def text_of(reply: Reply) -> str:
    """The text of an answer; the error that it is."""
    return content_of(reply).decode("utf-8", "replace")


def event_of(one: ServerEvent) -> CommandEvent | None:
    """Read a server-sent event about a command; None for one that is for the connection alone."""
    body = _told(one)
    return None if body is None else CommandEvent.of(one.event, one.id, body)


def log_event_of(one: ServerEvent) -> LogEvent | None:
    """Read a server-sent event of the event log; None for one that is for the connection alone."""
    body = _told(one)
    return None if body is None else LogEvent(one.event, one.id, body)


def heard_of(one: ServerEvent) -> JsonObject | None:
    """Read a server-sent event about the broker's traffic, with its `kind`; None for one of the connection alone."""
    body = _told(one)
    return None if body is None else {"kind": one.event, **body}


def overview_of(one: ServerEvent) -> JsonObject | None:
    """Read a server-sent event that is an overview; None for one that says that nothing is new."""
    body = _told(one)
    return body if one.event == "overview" else None


def happening_of(one: ServerEvent) -> Happening | None:
    """Read a server-sent event about any command; None for one that is for the connection alone."""
    body = _told(one)
    return None if body is None else Happening.of(one.event, one.id, body)


def _told(one: ServerEvent) -> JsonObject | None:
    if not one.data:
        return None
    try:
        body = json.loads(one.data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise UnexpectedAnswerError(f"an event {one.event[:32]!a} without a JSON object: that is no Homing node")
    if one.event == "problem":
        status = body.get("status")
        raise error_of(status if isinstance(status, int) else _NOT_READY, body)
    return body


def nothing_of(reply: Reply) -> None:
    """An answer that says no more than that it is done; the error that it is.

    A page of something in between, such as a login, says nothing of the kind.
    """
    if not reply.is_success or (reply.content and not reply.is_json):
        raise problem_of(reply)


def problem_of(reply: Reply) -> Exception:
    """The error that an answer is."""
    after = retry_after(reply.headers)
    if reply.is_json:
        return error_of(reply.status, reply.json(), after)
    if reply.status >= 500:  # noqa: PLR2004 - RFC 9110; a proxy answers for nodes that are away
        return error_of(reply.status, {"title": "something between here and the nodes answered"}, after)
    return UnexpectedAnswerError(f"HTTP {reply.status} without a problem in JSON: that is no Homing node")
