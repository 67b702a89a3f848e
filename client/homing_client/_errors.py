"""The errors of the client.

HomingError
├── ConfigurationError        a URL, a key or a context that cannot be used; nothing was sent
├── UnreachableError          no node answered
├── UnexpectedAnswerError     something answered that is no node
├── ProblemError              a node said no (RFC 9457); has all that it said
│   ├── InvalidInputError     400, 408, 413, 414, 415, 422, 428, 431
│   ├── NotAllowedError       401, 403, 421
│   ├── NotFoundError         404, 405
│   ├── ConflictError         409, 412
│   ├── LimitError            429
│   └── UnavailableError      500 and above
└── CommandError              what `call` raises when a command has an outcome other than success
    ├── DeviceRefusedError    failed: the device said no
    ├── TimedOutError         timed_out; `known` says how far it came
    ├── CommandCancelledError cancelled; CancelledError is its older name
    └── NotSentError          unsent: nobody is subscribed, or the broker would not have it
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from homing_client._models import Command


class HomingError(Exception):
    """The root of all errors of this package."""

    command_id: str | None = None
    """The command that it is about, where that is known."""


class ConfigurationError(HomingError):
    """A URL, a key or a context cannot be used. Nothing was sent."""


class UnreachableError(HomingError):
    """No node answered. `sent`: whether the request may have reached one all the same."""

    def __init__(self, sentence: str, *, sent: bool = True) -> None:
        super().__init__(sentence)
        self.sent = sent


class UnexpectedAnswerError(HomingError):
    """Something answered that is no Homing node, or a later one than this package understands."""


class ProblemError(HomingError):
    """A node said no. Its message is the `detail` of the problem."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status: Final = status
        self.problem: Final = problem
        """All that the node said: `type`, `title`, `detail`, `errors`, `command`, `known` …"""
        self.retry_after: Final = retry_after
        """Seconds after which it makes sense to try again, if the node said so."""
        self.command_id = problem.get("command_id")
        super().__init__(f"{self.detail} (HTTP {status})")

    @property
    def type(self) -> str:
        """The kind of problem, for programs: `urn:homing:problem:…`."""
        return str(self.problem.get("type") or "about:blank")

    @property
    def detail(self) -> str:
        """The sentence that says what went wrong, for people."""
        return str(self.problem.get("detail") or self.problem.get("title") or "no explanation")


class InvalidInputError(ProblemError):
    """A value is outside what is allowed; `problem["errors"]` names field and reason."""


class NotAllowedError(ProblemError):
    """The node does not know who asks, or the rules do not allow it."""


class NotFoundError(ProblemError):
    """There is no such thing, or the caller may not know of it."""


class ConflictError(ProblemError):
    """It contradicts what is so: the command has an outcome already, or the directory has changed meanwhile."""


class LimitError(ProblemError):
    """A limit is reached, and retries did not help."""


class UnavailableError(ProblemError):
    """The node, or something that it needs, is away, and retries did not help."""


class CommandError(HomingError):
    """A command has an outcome other than success."""

    def __init__(self, command: Command) -> None:
        self.command: Final = command
        self.command_id = command.id
        said = command.error.message if command.error else command.state
        super().__init__(f"{command.method} on {command.device_id}: {said}")


class DeviceRefusedError(CommandError):
    """The device said no; `command.error` has its code and text."""


class TimedOutError(CommandError):
    """No answer came before the deadline; `command.error.known` says how far the command came."""


class CommandCancelledError(CommandError):
    """Somebody cancelled the command."""


CancelledError = CommandCancelledError
"""Its older name, which hides the one of asyncio where it is imported."""


class NotSentError(CommandError):
    """The device never got it."""


BY_STATUS: Final[Mapping[int, type[ProblemError]]] = MappingProxyType(
    dict.fromkeys((400, 408, 413, 414, 415, 422, 428, 431), InvalidInputError)
    | dict.fromkeys((401, 403, 421), NotAllowedError)
    | dict.fromkeys((404, 405), NotFoundError)
    | dict.fromkeys((409, 412), ConflictError)
    | {429: LimitError}
)

BY_STATE: Final[Mapping[str, type[CommandError]]] = MappingProxyType(
    {
        "failed": DeviceRefusedError,
        "timed_out": TimedOutError,
        "cancelled": CommandCancelledError,
        "unsent": NotSentError,
    }
)


def error_of(status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> ProblemError:
    """The error that an answer of this status is."""
    kind = BY_STATUS.get(status, UnavailableError if status >= 500 else ProblemError)  # noqa: PLR2004 - RFC 9110
    return kind(status, problem, retry_after)
