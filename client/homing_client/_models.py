"""The values that nodes tell. Members that this version does not know are in `raw`, and do no harm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Self, cast

State = Literal[
    "held", "pending", "sent", "acknowledged", "running", "succeeded", "failed", "timed_out", "cancelled", "unsent"
]
"""The state of a command. A node that is younger than this package might say another word."""
OUTCOMES: Final = frozenset({"succeeded", "failed", "timed_out", "cancelled", "unsent"})
"""The states that stay."""


def instant(text: Any) -> datetime | None:  # noqa: ANN401 - any JSON value
    """The moment that RFC 3339 text names; None for anything else."""
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def text_in(value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Known:
    """The known progress of a command that timed out. None is what is not known."""

    published: bool | None = None
    acknowledged: bool | None = None
    acknowledged_at: datetime | None = None
    subscribers: str = "unknown"

    @classmethod
    def of(cls, body: Any) -> Self | None:  # noqa: ANN401 - any JSON value
        """Read it from JSON; None where there is none."""
        if not isinstance(body, Mapping):
            return None
        return cls(
            body.get("published"),
            body.get("acknowledged"),
            instant(body.get("acknowledged_at")),
            str(body.get("subscribers") or "unknown"),
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why a command did not succeed: a word of Homing, or the device's code; and a sentence.

    `code` is what it is to the device, a number or anything else; `code_text` is always text.
    """

    code: Any
    message: str
    known: Known | None = None
    code_text: str = ""

    @classmethod
    def of(cls, body: Any) -> Self | None:  # noqa: ANN401 - any JSON value
        """Read it from JSON; None where there is none."""
        if not isinstance(body, Mapping):
            return None
        code, text = body.get("code"), body.get("code_text")
        if not isinstance(text, str):  # a node of 0.2 does not say it
            text = code if isinstance(code, str) else "" if code is None else json.dumps(code)
        return cls(code, str(body.get("message") or ""), Known.of(body.get("known")), text)


@dataclass(frozen=True, slots=True)
class Late:
    """A response of a device that came after the outcome. It changed nothing."""

    state: State
    result: Any
    error: Fault | None
    received_at: datetime | None

    @classmethod
    def of(cls, body: Any) -> Self | None:  # noqa: ANN401 - any JSON value
        """Read it from JSON; None where there is none."""
        if not isinstance(body, Mapping):
            return None
        state = cast("State", str(body.get("state")))
        return cls(state, body.get("result"), Fault.of(body.get("error")), instant(body.get("received_at")))


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it stood when the node was asked."""

    id: str
    device_id: str
    method: str
    state: State
    params: Any = None
    result: Any = None
    error: Fault | None = None
    created_at: datetime | None = None
    finished_at: datetime | None = None
    deadline: datetime | None = None
    home_node: str | None = None
    received_by: str | None = None
    matched_by: str | None = None
    forwarded: bool = False
    late: Late | None = None
    progress: Any = None
    last_progress: Any = None
    profile: str | None = None
    if_offline: str | None = None
    held_until: datetime | None = None
    """The end of its hold; None of a command that was not to be held."""
    confirmed_by: Mapping[str, Any] | None = None
    """The state of the device (`kind`, `topic`, `at`, `value`) that settled it where no response came."""
    verified: Mapping[str, Any] | None = None
    """The evidence that a probe found after the timeout: `state`, `kind`, `topic`, `at`, `value`, `found_at`."""
    requested_by: str | None = None
    """`homing` of a command that no caller sent: a probe asked the device for its state."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_final(self) -> bool:
        """True if it has an outcome."""
        return self.state in OUTCOMES

    @property
    def succeeded(self) -> bool:
        """True if its outcome is success."""
        return self.state == "succeeded"

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Read it from JSON."""
        return cls(
            id=str(body.get("id")),
            device_id=str(body.get("device_id")),
            method=str(body.get("method")),
            state=cast("State", str(body.get("state"))),
            params=body.get("params"),
            result=body.get("result"),
            error=Fault.of(body.get("error")),
            created_at=instant(body.get("created_at")),
            finished_at=instant(body.get("finished_at")),
            deadline=instant(body.get("deadline")),
            home_node=text_in(body.get("home_node")),
            received_by=text_in(body.get("received_by")),
            matched_by=text_in(body.get("matched_by")),
            forwarded=body.get("forwarded") is True,
            late=Late.of(body.get("late")),
            progress=body.get("progress"),
            last_progress=body.get("last_progress"),
            profile=text_in(body.get("profile")),
            if_offline=text_in(body.get("if_offline")),
            held_until=instant((body.get("hold") or {}).get("until")),
            confirmed_by=body.get("confirmed_by"),
            verified=body.get("verified"),
            requested_by=text_in(body.get("requested_by")),
            raw=body,
        )


@dataclass(frozen=True, slots=True)
class CommandEvent:
    """Something that happened to a command.

    `kind`: `command` (as it stood when the stream began), `progress`, `outcome`, `verified`, `late`. `command` comes
    with all but progress, `progress` is what the device reported. `id` is for `after`.
    """

    kind: str
    id: str
    command: Command | None = None
    progress: Any = None
    at: datetime | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, kind: str, identity: str, body: Mapping[str, Any]) -> Self:
        """Read it from JSON."""
        if kind == "progress":
            return cls(kind, identity, None, body.get("progress"), instant(body.get("at")), body)
        command = Command.of(body) if "state" in body else None
        return cls(kind, identity, command, command.progress if command else None, None, body)


class Event(dict[str, Any]):
    """Something that was said, as the node told it: a mapping, with its usual members as attributes."""

    @property
    def topic(self) -> str:
        """The topic where it was said."""
        return str(self["topic"])

    @property
    def at(self) -> datetime | None:
        """The instant."""
        return instant(self.get("at"))

    @property
    def position(self) -> int:
        """The position in the log, in microseconds since 1970: an instant and an order."""
        return int(self["position"])

    @property
    def device_id(self) -> str | None:
        """The device that it comes from, where that is known."""
        return text_in(self.get("device_id"))

    @property
    def kind(self) -> str | None:
        """The name that its profile gives it: `profile:name`."""
        return text_in(self.get("kind"))

    @property
    def id(self) -> str | None:
        """The id that a repetition has in common with it."""
        return text_in(self.get("id"))

    @property
    def not_before(self) -> datetime | None:
        """The instant before which queues did not lend it, where it is a dated message."""
        return instant(self.get("not_before"))

    @property
    def data(self) -> Any:  # noqa: ANN401 - any JSON value
        """The value that was said, where it is JSON."""
        return self.get("data")


@dataclass(frozen=True, slots=True)
class LogEvent:
    """An event of a stream of the event log. `cursor` is for `after`.

    `kind`: `event`, which is in `event`; `gap`: events are missing, until `data["until"]`; `bookmark`: nothing has come
    for a while, and this cursor is a newer one. `data` is what the node told, whatever it is.
    """

    kind: str
    cursor: str
    data: Mapping[str, Any]

    @property
    def event(self) -> Event | None:
        """The event, as `read` gives it; None of a gap and a bookmark."""
        return Event(self.data) if self.kind == "event" else None


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that a stream of all commands told. `id` is for `after`.

    `kind`: `progress`, `outcome`, `late`, each of the command `command_id`, with what it brought in `progress`, `error`
    or `late`; `gap`: some may be missing, and there are all since `at`; `bookmark`: comes first, and when nothing has
    come for a while, and all from before it was told.
    """

    kind: str
    id: str
    at: datetime | None = None
    command_id: str | None = None
    device_id: str | None = None
    profile: str | None = None
    method: str | None = None
    state: str | None = None
    number: int | None = None
    progress: Any = None
    error: Fault | None = None
    late: Late | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, kind: str, identity: str, body: Mapping[str, Any]) -> Self:
        """Read it from JSON."""
        number = body.get("seq")
        return cls(
            kind,
            identity,
            instant(body.get("since" if kind == "gap" else "at")),
            text_in(body.get("command_id")),
            text_in(body.get("device_id")),
            text_in(body.get("profile")),
            text_in(body.get("method")),
            text_in(body.get("state")),
            number if isinstance(number, int) else None,
            body.get("progress"),
            Fault.of(body.get("error")),
            Late.of(body.get("late")),
            body,
        )
