"""Commands are written into Redis hashes, and replies of scripts are read; see lua/parts/record.lua for the fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from app.core import keys
from app.core.commands.approval import Approval
from app.core.commands.callback import Answer, Registration
from app.core.commands.command import Command, CommandState, Hold, IfOffline
from app.core.commands.reception import decode_receiver, reception_of
from app.core.commands.routing import Follower, MatchResult, Outcome, Recorded
from app.core.errors import UnreadableRecordError
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import CommandLane, LaneOrder, lane_topic
from app.core.versions import RECORD, check_record
from app.store.rules import micros, retention_of

Fields = Mapping[str, bytes | None]

OUTCOME_FIELDS: Final = ("state", "finished", "by", "result", "error")
VERSION_FIELD: Final = "v"
HOLD_FIELDS: Final = ("hold", "who", "not_before", "approval", "replaces", "run")
COMMAND_FIELDS: Final = (
    *OUTCOME_FIELDS,
    VERSION_FIELD,
    "about",
    "progress",
    "late",
    "verified",
    "notify",
    *HOLD_FIELDS,
)
CHECKED_OUTCOME_FIELDS: Final = (*OUTCOME_FIELDS, VERSION_FIELD)

NO_RECORD: Final[Fields] = MappingProxyType({"state": b"", VERSION_FIELD: b"none"})
"""The fields that stand for a key that holds something else than a record."""

_LAST_INSTANT: Final = 253_402_300_799_999_999
"""The end of the year 9999, in µs: the last one that can be written down."""

NO_EXPECTATIONS: Final = b"-"
_LANE: Final = "l"
_LANE_KIND: Final = re.compile(rf"(?:^|,)[^.,]+\.{_LANE}([a-z])([0-9]+):([0-9]+):([^.:,]+)((?:\.[a-z][^.,]*)*)$")
_PACE, _STOPS, _EXCLUDES, _EXCLUDED_BY = "p", "s", "x", "y"
"""Letters of what may stand behind the name of a lane."""
_LETTERS: Final = {
    LaneOrder.PARALLEL: "p",
    LaneOrder.FIFO: "f",
    LaneOrder.FIFO_ACK: "a",
    LaneOrder.LIFO: "s",
    LaneOrder.LATEST: "l",
}
_ORDERS: Final = {letter: one for one, letter in _LETTERS.items()}

_KINDS: Final = {Correlation.ID: "i", Correlation.VALUE: "v", Correlation.ECHO: "e", Correlation.ORDER: "o"}


def expected_keys(partition: int, registration: Registration) -> tuple[list[str], int, list[str]]:
    """Keys of the topics, those by order first, how many these are, and keys of the correlations.

    The place in a lane is the last of the topics.
    """
    by_order = {one.topic: None for one in registration.expectations if one.correlation is Correlation.ORDER}
    topics = by_order | {one.topic: None for one in registration.expectations}
    values = {
        keys.correlation(partition, one.topic, one.value): None
        for one in registration.expectations
        if one.correlation is Correlation.VALUE
    }
    if registration.lane is not None:
        topics[registration.lane.topic(registration.device_id)] = None
    return [keys.topic(partition, one) for one in topics], len(by_order), list(values)


def about(partition: int, registration: Registration, retention: int) -> bytes:
    """All that never changes; register.lua puts the two instants in front. `retention` is that of `retention_ms`."""
    one = registration
    idempotency = "-"
    if one.idempotency_key is not None:
        idempotency = _digest(keys.idempotency(partition, one.device_id, one.idempotency_key))
    head = f"{retention} {micros(one.quarantine)} {idempotency} {_expectations(partition, one)}"
    return f"{head} {one.home_node} {one.device_id}\0{one.method}\0{one.profile}\0".encode() + one.params


def retention_ms(registration: Registration) -> int:
    """At least one millisecond, which is the least that Redis takes."""
    return max(1, -(-micros(retention_of(registration)) // 1000))


def topic_digest(topic: str) -> str:
    """The topic as records name it: the same in every partition."""
    return _digest(keys.topic(0, topic))


def words(states: Collection[CommandState]) -> str:
    """The states with a blank around each, as the scripts search them."""
    return f" {' '.join(states)} "


def pairs(reply: Sequence[bytes]) -> Fields:
    """The reply of HGETALL."""
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


_OFFLINE: Final = {"offline=fail": IfOffline.FAIL, "offline=hold": IfOffline.HOLD}
"""Words of the field `v`; without one of them a command is sent also where nobody is subscribed, as 0.1.0 did."""


_BY_HOMING: Final = "by=homing"


def version(token: str, registration: Registration) -> str:
    """Return what the field `v` of a record says."""
    offline = (word for word, means in _OFFLINE.items() if means is registration.if_offline)
    return " ".join((str(RECORD), token, *offline, *((_BY_HOMING,) if registration.by_homing else ())))


def _if_offline(version_field: bytes | None) -> IfOffline:
    words_of = (version_field or b"").decode("latin-1").split(" ")
    return next((means for word, means in _OFFLINE.items() if word in words_of), IfOffline.SEND)


def _hold(fields: Fields) -> Hold | None:
    text = fields.get("hold")
    if text is None:
        return None
    until, timeout, claims, *given_back = (int(one) for one in text.split(b" "))
    who = (fields.get("who") or b"").decode()
    not_before, approval = fields.get("not_before"), fields.get("approval")
    return Hold(
        *(until, timedelta(microseconds=timeout), who, claims),
        given_back_at=given_back[0] if given_back else None,
        not_before=None if not_before is None else _instant(not_before),
        approval=None if approval is None else Approval.of_text(approval.decode()),
        replaces=(fields.get("replaces") or b"").decode(),
        run=(fields.get("run") or b"").decode(),
    )


def command(command_id: str, fields: Fields) -> Command:
    """The command of a record; UnreadableRecordError when it is of a later version, or damaged."""
    check_record(command_id, fields.get(VERSION_FIELD))
    try:
        return _command(command_id, fields)
    except ValueError as error:
        raise _damaged(command_id, fields.get("state"), error) from None


def _command(command_id: str, fields: Fields) -> Command:
    head, method, profile, params = (fields["about"] or b"").split(b"\0", 3)
    created_at, deadline, *_, expectations, home_node, device_id = head.split(b" ")
    if not device_id:
        raise ValueError("there is no device")
    finished_at, lane = fields.get("finished"), _lane(expectations)
    received_by, reception = decode_receiver(fields.get("by") or b"")
    return Command(
        id=command_id,
        device_id=device_id.decode(),
        method=method.decode(),
        params=params,
        profile=profile.decode(),
        state=CommandState((fields["state"] or b"").decode()),
        home_node=home_node.decode(),
        created_at=_instant(created_at),
        deadline=_instant(deadline),
        finished_at=_instant(finished_at) if finished_at else None,
        received_by=received_by,
        result=fields.get("result"),
        error=fields.get("error"),
        progress=fields.get("progress"),
        late=fields.get("late"),
        one_way=expectations == NO_EXPECTATIONS or (lane is not None and b"," not in expectations),
        lane=lane,
        if_offline=_if_offline(fields.get(VERSION_FIELD)),
        hold=_hold(fields),
        notify=tuple((fields.get("notify") or b"").decode().split()),
        matched_by=None if reception is None else reception.correlation,
        confirmed_by=None if reception is None else reception.finding,
        by_homing=_BY_HOMING.encode() in (fields.get(VERSION_FIELD) or b"").split(b" "),
        verified=fields.get("verified"),
    )


def outcome_of(command_id: str, fields: Fields) -> Outcome | None:
    """The outcome of a record, None while it is open; UnreadableRecordError as for `command`."""
    check_record(command_id, fields.get(VERSION_FIELD))
    if fields["finished"] is None:
        return None
    return outcome(command_id, [fields[name] or b"" for name in OUTCOME_FIELDS])


def outcome(command_id: str, values: Sequence[bytes]) -> Outcome:
    """The outcome of values in the order of OUTCOME_FIELDS, empty where there is none; UnreadableRecordError."""
    state, finished_at, received_by, result, error = values
    try:
        receiver, reception = decode_receiver(received_by)
        return Outcome(
            command_id,
            CommandState(state.decode()),
            _instant(finished_at),
            receiver,
            result or None,
            error or None,
            reception,
        )
    except ValueError as fault:
        raise _damaged(command_id, state, fault) from None


def _instant(text: bytes) -> int:
    microseconds = int(text)
    if not 0 <= microseconds <= _LAST_INSTANT:
        raise ValueError("an instant is out of range")
    return microseconds


def _damaged(command_id: str, state: bytes | None, error: ValueError) -> UnreadableRecordError:
    """Says of a state that it is unknown, as a later version may have more of them; else that it is damaged."""
    known = {one.value.encode() for one in CommandState}
    if state is not None and state not in known:
        return UnreadableRecordError(command_id, f"its state {state[:32].decode(errors='replace')!a} is unknown")
    return UnreadableRecordError(command_id, f"it is damaged ({type(error).__name__})")


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """A member of a partition's list."""

    created_at: int
    command_id: str
    device_id: str

    @property
    def position(self) -> tuple[int, str]:
        return self.created_at, self.command_id

    @classmethod
    def of(cls, member: bytes, score: bytes) -> PartitionEntry:
        """ValueError when this is no member that we write."""
        command_id, _, device_id = member.decode("ascii").partition(":")
        instant = float(score)
        if not 0 <= instant <= _LAST_INSTANT:
            raise ValueError("an instant is out of range")
        return cls(int(instant), command_id, device_id)


def made(command_id: str, state: CommandState, finished_at: bytes, error: bytes | None, heard: bytes) -> Outcome:
    """An outcome that finish.lua or sweep.lua has made."""
    return Outcome(
        command_id, state, int(finished_at), error=error, home_heard=heard.startswith(b"1"), follower=_follower(heard)
    )


def _follower(heard: bytes) -> Follower | None:
    """Return who stands first in the lane whose place an outcome has freed."""
    _, _, waits = heard.partition(b" ")
    return first_in_line(waits)


def first_in_line(told: bytes) -> Follower | None:
    """Return who stands first in a lane, as scripts tell it; None where nobody does."""
    command_id, _, device_id = told.decode().partition(" ")
    return Follower(command_id, device_id) if told else None


def recorded(reply: Sequence[bytes], answer: Answer, receiver: str) -> Recorded:
    """Return what respond.lua made of the answer."""
    verdict = MatchResult(reply[0].decode())
    if verdict is MatchResult.UNKNOWN:
        return Recorded(verdict)
    command_id = reply[1].decode()
    if verdict is MatchResult.MISMATCH:
        return Recorded(verdict, command_id)
    waiting, trace = tuple(reply[2].decode().split(" ")), reply[3].decode() or None
    found: Outcome | None = None
    if verdict is MatchResult.WON:
        found = Outcome(
            *(command_id, answer.state, int(reply[4]), receiver, answer.result, answer.error, reception_of(answer)),
            home_heard=reply[5].startswith(b"1"),
            follower=_follower(reply[5]),
        )
    elif verdict in (MatchResult.LATE, MatchResult.DUPLICATE, MatchResult.FINISHED):
        with suppress(UnreadableRecordError):  # then nobody here waits for it
            found = outcome(command_id, reply[4:])
    return Recorded(verdict, command_id, found, waiting, trace)


def _expectations(partition: int, registration: Registration) -> str:
    kinds: dict[str, list[str]] = {}
    for one in registration.expectations:
        kind = _KINDS[one.correlation]
        if one.correlation is Correlation.VALUE:
            kind += _digest(keys.correlation(partition, one.topic, one.value))
        kinds.setdefault(topic_digest(one.topic), []).append(kind)
    lane = registration.lane
    if lane is not None:
        order, width = order_of(lane)
        kinds[topic_digest(lane.topic(registration.device_id))] = [
            f"{_LANE}{order}{width}:{micros(lane.rest) // 1000}:{lane.name}",
            *_told_behind(lane, registration.device_id),
        ]
    return ",".join(".".join((topic, *of_topic)) for topic, of_topic in kinds.items()) or NO_EXPECTATIONS.decode()


def order_of(lane: CommandLane) -> tuple[str, int]:
    """The order of a lane as records have it, which is a letter, and its width."""
    return _LETTERS[lane.order], lane.width


def rules_of(lane: CommandLane, device_id: str) -> tuple[int, str, str]:
    """Pace of a lane (µs), `stops` where it may be stopped, and digests of the lanes that it excludes at a device."""
    excluded = " ".join(topic_digest(lane_topic(one, device_id)) for one in lane.excludes)
    return micros(lane.pace), "stops" if lane.stops else "", excluded


def _told_behind(lane: CommandLane, device_id: str) -> Iterator[str]:
    """Yield what a record says of a lane besides order, width, rest and name: nothing of most."""
    if lane.pace:
        yield f"{_PACE}{micros(lane.pace)}"
    if lane.stops:
        yield _STOPS
    for letter, names in ((_EXCLUDES, lane.excludes), (_EXCLUDED_BY, lane.excluded_by)):
        for name in names:
            yield f"{letter}{name}:{topic_digest(lane_topic(name, device_id))}"


def _lane(expectations: bytes) -> CommandLane | None:
    found = _LANE_KIND.search(expectations.decode("ascii", "replace"))
    if found is None:
        return None
    told = [(one[0], one[1:].partition(":")[0]) for one in found[5].split(".")[1:]]
    return CommandLane(
        found[4],
        _ORDERS[found[1]],
        int(found[2]),
        timedelta(milliseconds=int(found[3])),
        pace=timedelta(microseconds=next((int(text) for letter, text in told if letter == _PACE), 0)),
        excludes=tuple(text for letter, text in told if letter == _EXCLUDES),
        excluded_by=tuple(text for letter, text in told if letter == _EXCLUDED_BY),
        stops=any(letter == _STOPS for letter, _ in told),
    )


def _digest(key: str) -> str:
    return key.rpartition(":")[2]
