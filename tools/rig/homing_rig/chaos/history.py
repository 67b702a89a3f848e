"""The history of a chaos run: JSON Lines, one event each, in the order in which the rig learned of them.

The rig writes it while it runs, the checker reads it as a stream. `event` says what a line is; a member whose value is
the default is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, BinaryIO, Final, Self, get_type_hints

import orjson

from app.core.commands.command import CommandState
from app.core.errors import HomingError
from app.core.fleets.marks import MARK_OF_WORD
from homing_rig.chaos.events import (
    BROKER_DROPPED,
    GONE,
    NAMES,
    REDIS_KEYS_AFTER_TTL,
    REDIS_KEYS_BASELINE,
    VERSION,
    AnswerAcked,
    Answered,
    Completion,
    End,
    Event,
    Executed,
    Fail,
    Fault,
    FaultPhase,
    FinalRead,
    Header,
    Invoke,
    MarkRead,
    Metric,
    Mode,
    Ok,
    OperationKind,
    Unknown,
)

__all__ = [
    "BROKER_DROPPED",
    "GONE",
    "REDIS_KEYS_AFTER_TTL",
    "REDIS_KEYS_BASELINE",
    "VERSION",
    "AnswerAcked",
    "Answered",
    "Completion",
    "End",
    "Event",
    "Executed",
    "Fail",
    "Fault",
    "FaultPhase",
    "FinalRead",
    "Header",
    "HistoryError",
    "HistoryWriter",
    "Invoke",
    "MarkRead",
    "Metric",
    "Mode",
    "Ok",
    "OperationKind",
    "Unknown",
    "decode",
    "encode",
    "read_history",
]


class HistoryError(HomingError):
    """A history cannot be read or written: says which line and what is wrong there."""


class HistoryWriter:
    """Writes a new history file; use it as a context manager. Not for several threads.

    Keeps at most `buffer` bytes before it writes them to the file; call `flush` about once a second, so that a rig
    that dies leaves a history to read. HistoryError when the file exists or cannot be written.
    """

    def __init__(self, path: Path, *, buffer: int = 1 << 16) -> None:
        self._limit = buffer
        self._lines: list[bytes] = []
        self._size = 0
        try:
            self._file: BinaryIO = path.open("xb", buffering=0)
        except OSError as error:
            raise HistoryError(f"{path}: a new file is needed: {error.strerror}") from None

    def write(self, event: Event) -> None:
        """Append an event."""
        line = encode(event)
        self._lines.append(line)
        self._size += len(line)
        if self._size >= self._limit:
            self.flush()

    def flush(self) -> None:
        """Give everything so far to the operating system."""
        rest = memoryview(b"".join(self._lines))
        self._lines.clear()
        self._size = 0
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        """Flush and close; harmless when repeated."""
        if not self._file.closed:
            self.flush()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def encode(event: Event) -> bytes:
    """The line of an event, with its newline."""
    kind = type(event)
    line: dict[str, Any] = {"event": _EVENT_NAMES[kind]}
    for name, member in _MEMBERS[kind].items():
        value = getattr(event, name)
        if member.needed or value != member.default or name == "version":
            line[name] = value
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def decode(line: bytes, number: int) -> Event:
    """The event of line `number`; HistoryError says what is wrong with it."""
    try:
        given = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        cut = "" if line.endswith(b"\n") else "; it is cut off: the rig was stopped while it wrote"
        raise HistoryError(f"line {number}: is no JSON ({error}){cut}") from None
    if not isinstance(given, dict):
        raise HistoryError(f"line {number}: is no JSON object")
    name = given.pop("event", None)
    kind = NAMES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise HistoryError(f"line {number}: event {name!a} is unknown; allowed: {', '.join(NAMES)}")
    members = _MEMBERS[kind]
    for key, value in given.items():
        member = members.get(key)
        if member is None:
            raise HistoryError(f"line {number}: {name} has no {key!a}; allowed: {', '.join(members)}")
        try:
            given[key] = member.read(value)
        except ValueError:
            raise HistoryError(f"line {number}: {key} of {name} is {value!a}; allowed: {member.allowed}") from None
    missing = [key for key, member in members.items() if member.needed and key not in given]
    if missing:
        raise HistoryError(f"line {number}: {name} lacks {', '.join(missing)}")
    return kind(**given)


def read_history(path: Path) -> Iterator[tuple[int, Event]]:
    """Every event with its line number, one at a time; HistoryError when the file or a line cannot be read."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield number, decode(line, number)
    except OSError as error:
        raise HistoryError(f"{path}: cannot be read: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class _Member:
    """The reading of one member of a line."""

    needed: bool
    default: Any
    read: Callable[[Any], Any]
    """Raises ValueError for what is not allowed."""
    allowed: str


def _exactly(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:  # noqa: ANN401 - any JSON
        if type(value) is not kind:
            raise ValueError
        return value

    return read


def _number(value: Any) -> float:  # noqa: ANN401 - any JSON
    if type(value) not in (int, float):
        raise ValueError
    return float(value)


def _numbers(value: Any) -> Mapping[str, float]:  # noqa: ANN401 - any JSON
    return {name: _number(one) for name, one in _exactly(dict)(value).items()}


def _texts(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - any JSON
    return tuple(_exactly(str)(one) for one in _exactly(list)(value))


_READERS: Final[Mapping[Any, tuple[Callable[[Any], Any], str]]] = MappingProxyType(
    {
        str: (_exactly(str), "a text"),
        str | None: (_exactly(str), "a text"),
        int: (_exactly(int), "a whole number"),
        int | None: (_exactly(int), "a whole number"),
        float: (_number, "a number"),
        float | None: (_number, "a number"),
        bool: (_exactly(bool), "true or false"),
        bool | None: (_exactly(bool), "true or false"),
        Mapping[str, float]: (_numbers, "an object of numbers"),
        Mapping[str, Any]: (_exactly(dict), "an object"),
        tuple[str, ...]: (_texts, "an array of texts"),
        OperationKind: (OperationKind, ", ".join(OperationKind)),
        Mode: (Mode, ", ".join(Mode)),
        FaultPhase: (FaultPhase, ", ".join(FaultPhase)),
    }
)
_STATES: Final = {state: state for state in (*(one.value for one in CommandState), GONE)}


def _state(value: Any) -> str:  # noqa: ANN401 - any JSON
    if type(value) is not str or value not in _STATES:
        raise ValueError
    return _STATES[value]  # one object for all lines: a checker keeps many


def _mark(value: Any) -> str:  # noqa: ANN401 - any JSON
    if type(value) is not str or value not in MARK_OF_WORD:
        raise ValueError
    return MARK_OF_WORD[value].word


def _version(value: Any) -> int:  # noqa: ANN401 - any JSON
    if type(value) is not int or value != VERSION:
        raise ValueError
    return value


_BY_NAME: Final[Mapping[str, tuple[Callable[[Any], Any], str]]] = MappingProxyType(
    {
        "state": (_state, ", ".join([*CommandState, GONE])),
        "mark": (_mark, ", ".join(MARK_OF_WORD)),
        "version": (_version, f"{VERSION}"),
    }
)
"""Members that allow less than their type says."""


def _members(kind: type[Event]) -> Mapping[str, _Member]:
    hints = get_type_hints(kind)
    members = {}
    for field in dataclasses.fields(kind):
        made = field.default_factory
        default = field.default if made is dataclasses.MISSING else made()
        needed = default is dataclasses.MISSING
        read, allowed = _BY_NAME.get(field.name) or _READERS[hints[field.name]]
        members[field.name] = _Member(needed, default, read, allowed)
    return members


_MEMBERS: Final[Mapping[type[Event], Mapping[str, _Member]]] = MappingProxyType(
    {kind: _members(kind) for kind in NAMES.values()}
)
_EVENT_NAMES: Final[Mapping[type[Event], str]] = MappingProxyType({kind: name for name, kind in NAMES.items()})
