"""Send commands to drones and IoT devices through Homing, and learn what became of them.

    async with AsyncHoming("http://127.0.0.1:8080") as homing:
        dock = homing.device("dock-1", profile="dji")
        answer = await dock.call("cover_open", timeout="10s")
        print(answer.result)

`Homing` is the same without `async` and `await`. Names that begin with an underscore may change at any time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from homing_client._errors import (
    CancelledError,
    CommandCancelledError,
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
    Command,
    CommandEvent,
    Event,
    Fault,
    Happening,
    Known,
    Late,
    LogEvent,
    State,
)
from homing_client._node_models import (
    Cluster,
    DeviceRecord,
    Entry,
    Limit,
    Me,
    Node,
    Readiness,
    Tagged,
)
from homing_client._retry import NO_RETRY, Retry
from homing_client._version import __version__
from homing_client._wire import AsyncTransport, Reply, ServerEvent, Transport

if TYPE_CHECKING:
    from homing_client._async.access import AsyncAccess
    from homing_client._async.broker import AsyncBroker
    from homing_client._async.client import AsyncHoming
    from homing_client._async.consumer import AsyncConsumer
    from homing_client._async.device import AsyncDevice
    from homing_client._async.events import AsyncEvents, AsyncReader
    from homing_client._async.exchanges import AsyncExchanges
    from homing_client._async.fleet import AsyncFleet
    from homing_client._async.publisher import AsyncMessagePublisher, AsyncSentMessage
    from homing_client._async.queues import AsyncMessage, AsyncQueue, AsyncQueues
    from homing_client._async.schedules import AsyncSchedules
    from homing_client._async.traffic import AsyncTraffic
    from homing_client._async.webhooks import AsyncWebhooks
    from homing_client._sync.access import Access
    from homing_client._sync.broker import Broker
    from homing_client._sync.client import Homing
    from homing_client._sync.consumer import Consumer
    from homing_client._sync.device import Device
    from homing_client._sync.events import Events, Reader
    from homing_client._sync.exchanges import Exchanges
    from homing_client._sync.fleet import Fleet
    from homing_client._sync.publisher import MessagePublisher, SentMessage
    from homing_client._sync.queues import Message, Queue, Queues
    from homing_client._sync.schedules import Schedules
    from homing_client._sync.traffic import Traffic
    from homing_client._sync.webhooks import Webhooks

__all__ = [
    "NO_RETRY",
    "Access",
    "AsyncAccess",
    "AsyncBroker",
    "AsyncConsumer",
    "AsyncDevice",
    "AsyncEvents",
    "AsyncExchanges",
    "AsyncFleet",
    "AsyncHoming",
    "AsyncMessage",
    "AsyncMessagePublisher",
    "AsyncQueue",
    "AsyncQueues",
    "AsyncReader",
    "AsyncSchedules",
    "AsyncSentMessage",
    "AsyncTraffic",
    "AsyncTransport",
    "AsyncWebhooks",
    "Broker",
    "CancelledError",
    "Cluster",
    "Command",
    "CommandCancelledError",
    "CommandError",
    "CommandEvent",
    "ConfigurationError",
    "ConflictError",
    "Consumer",
    "Device",
    "DeviceRecord",
    "DeviceRefusedError",
    "Entry",
    "Event",
    "Events",
    "Exchanges",
    "Fault",
    "Fleet",
    "Happening",
    "Homing",
    "HomingError",
    "InvalidInputError",
    "Known",
    "Late",
    "Limit",
    "LimitError",
    "LogEvent",
    "Me",
    "Message",
    "MessagePublisher",
    "Node",
    "NotAllowedError",
    "NotFoundError",
    "NotSentError",
    "ProblemError",
    "Queue",
    "Queues",
    "Reader",
    "Readiness",
    "Reply",
    "Retry",
    "Schedules",
    "SentMessage",
    "ServerEvent",
    "State",
    "Tagged",
    "TimedOutError",
    "Traffic",
    "Transport",
    "UnavailableError",
    "UnexpectedAnswerError",
    "UnreachableError",
    "Webhooks",
    "__version__",
]

_SUBJECTS: Final = ("Access", "Broker", "Events", "Exchanges", "Fleet", "Queues", "Schedules", "Traffic", "Webhooks")
_MODULES: Final = {
    "AsyncHoming": "_async.client",
    "Homing": "_sync.client",
    "AsyncDevice": "_async.device",
    "Device": "_sync.device",
    **{f"Async{name}": f"_async.{name.lower()}" for name in _SUBJECTS},
    **{name: f"_sync.{name.lower()}" for name in _SUBJECTS},
    **dict.fromkeys(("AsyncMessage", "AsyncQueue"), "_async.queues"),
    **dict.fromkeys(("Message", "Queue"), "_sync.queues"),
    "AsyncConsumer": "_async.consumer",
    "Consumer": "_sync.consumer",
    **dict.fromkeys(("AsyncMessagePublisher", "AsyncSentMessage"), "_async.publisher"),
    **dict.fromkeys(("MessagePublisher", "SentMessage"), "_sync.publisher"),
    "AsyncReader": "_async.events",
    "Reader": "_sync.events",
}
"""The modules that are imported when somebody asks for a name: most programs need one of the twins, and little of
it."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"homing_client.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
