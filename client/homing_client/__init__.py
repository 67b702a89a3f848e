"""Send commands to drones and IoT devices through Homing, and learn what became of them.

    async with AsyncHoming("http://127.0.0.1:8080") as homing:
        dock = homing.device("dock-1", profile="dji")
        answer = await dock.call("cover_open", timeout="10s")
        print(answer.result)

`Homing` is the same without `async` and `await`. Names that begin with an underscore may change at any time.
"""

from homing_client._async.access import AsyncAccess
from homing_client._async.client import AsyncDevice, AsyncHoming
from homing_client._async.events import AsyncEvents
from homing_client._async.webhooks import AsyncWebhooks
from homing_client._errors import (
    CancelledError,
    CommandError,
    ConfigurationError,
    ConflictError,
    DeviceRefusedError,
    HomingError,
    InvalidInputError,
    LimitError,
    NotAllowedError,
    NotFoundError,
    NotSentError,
    ProblemError,
    TimedOutError,
    UnavailableError,
    UnexpectedAnswerError,
    UnreachableError,
)
from homing_client._models import (
    Cluster,
    Command,
    CommandEvent,
    DeviceRecord,
    Entry,
    Fault,
    Happening,
    Known,
    Late,
    LogEvent,
    Me,
    Node,
    Readiness,
)
from homing_client._retry import NO_RETRY, Retry
from homing_client._sync.access import Access
from homing_client._sync.client import Device, Homing
from homing_client._sync.events import Events
from homing_client._sync.webhooks import Webhooks
from homing_client._version import __version__
from homing_client._wire import AsyncTransport, Reply, ServerEvent, Transport

__all__ = [
    "NO_RETRY",
    "Access",
    "AsyncAccess",
    "AsyncDevice",
    "AsyncEvents",
    "AsyncHoming",
    "AsyncTransport",
    "AsyncWebhooks",
    "CancelledError",
    "Cluster",
    "Command",
    "CommandError",
    "CommandEvent",
    "ConfigurationError",
    "ConflictError",
    "Device",
    "DeviceRecord",
    "DeviceRefusedError",
    "Entry",
    "Events",
    "Fault",
    "Happening",
    "Homing",
    "HomingError",
    "InvalidInputError",
    "Known",
    "Late",
    "LimitError",
    "LogEvent",
    "Me",
    "Node",
    "NotAllowedError",
    "NotFoundError",
    "NotSentError",
    "ProblemError",
    "Readiness",
    "Reply",
    "Retry",
    "ServerEvent",
    "TimedOutError",
    "Transport",
    "UnavailableError",
    "UnexpectedAnswerError",
    "UnreachableError",
    "Webhooks",
    "__version__",
]
