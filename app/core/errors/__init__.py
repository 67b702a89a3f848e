"""Every error that Homing raises, one file for each subject, and one door: they are imported from here.

Each is a HomingError. Each file draws its own, with what is derived from what.

configuration  a setting or a profile file is wrong; the process must not start
input          a caller sends what is outside what is allowed, or what MQTT cannot carry
messages       a device, or a handler of replies, says what cannot be used
commands       one command
interlocks     an interlock does not let the command through
access         who may do what
directory      the access directory: who there is, and who may do what; nothing was changed
events         the event log; nothing was written
queues         a queue or an exchange; nothing was changed
broker         the broker in the node; nothing was changed
fleets         a fleet run, or a schedule; nothing was changed
webhooks       a webhook
capacity       a bound was reached; nothing was registered or sent
unavailable    something this node needs is away; try again later
"""

from __future__ import annotations

from app.core.errors.access import (
    AccessError,
    DeviceNotFoundError,
    ForbiddenError,
    NeedsSecondPersonError,
    UnauthenticatedError,
)
from app.core.errors.base import HomingError
from app.core.errors.broker import BrokerEntryNotFoundError, BrokerError, BrokerOffError, BrokerTakenOverError
from app.core.errors.capacity import CapacityError, DeviceBusyError, RateLimitError, TooManyHeldError, TooManyOpenError
from app.core.errors.commands import (
    ApprovalOverError,
    CommandError,
    CommandFinishedError,
    CommandNotFoundError,
    IdempotencyMismatchError,
    IllegalTransitionError,
    UnreadableRecordError,
)
from app.core.errors.configuration import ConfigurationError, ForeignDirectoryError
from app.core.errors.directory import (
    DirectoryError,
    EntryConflictError,
    EntryNotFoundError,
    NoDirectoryError,
    PreconditionFailedError,
    SchemaError,
    SchemaTooNewError,
    SchemaTooOldError,
    VersionConflictError,
)
from app.core.errors.events import (
    CallMismatchError,
    CursorNotFoundError,
    DamagedEventsError,
    DatabaseNotFoundError,
    EventLogError,
    EventNotFoundError,
    EventsOffError,
    FencedError,
    QuotaError,
    ValueChangedError,
    ValueNotFoundError,
)
from app.core.errors.fleets import (
    FleetError,
    NoTargetsError,
    RunMismatchError,
    RunNotFoundError,
    RunStateError,
    ScheduleNotFoundError,
)
from app.core.errors.input import (
    InvalidInputError,
    PacketTooLargeError,
    PayloadTooLargeError,
    PreconditionRequiredError,
    UnpublishableError,
)
from app.core.errors.interlocks import InterlockError, without_values
from app.core.errors.messages import HandlerFailedError, UndecodableMessageError
from app.core.errors.queues import (
    ExchangeDiffersError,
    ExchangeInUseError,
    ExchangeNotFoundError,
    QueueChangedError,
    QueueDiffersError,
    QueueError,
    QueueNotEmptyError,
    QueueNotFoundError,
    QueuesOffError,
    UnroutedError,
)
from app.core.errors.unavailable import (
    BrokerUnavailableError,
    DirectoryUnavailableError,
    InterlockBlindError,
    NodeDrainingError,
    NodeIdTakenError,
    NotYetError,
    PublishRefusedError,
    PublishUnconfirmedError,
    StoreRefusedError,
    StoreUnavailableError,
    UnavailableError,
)
from app.core.errors.webhooks import WebhookChangedError, WebhookNotFoundError, WebhooksOffError

__all__ = [
    "AccessError",
    "ApprovalOverError",
    "BrokerEntryNotFoundError",
    "BrokerError",
    "BrokerOffError",
    "BrokerTakenOverError",
    "BrokerUnavailableError",
    "CallMismatchError",
    "CapacityError",
    "CommandError",
    "CommandFinishedError",
    "CommandNotFoundError",
    "ConfigurationError",
    "CursorNotFoundError",
    "DamagedEventsError",
    "DatabaseNotFoundError",
    "DeviceBusyError",
    "DeviceNotFoundError",
    "DirectoryError",
    "DirectoryUnavailableError",
    "EntryConflictError",
    "EntryNotFoundError",
    "EventLogError",
    "EventNotFoundError",
    "EventsOffError",
    "ExchangeDiffersError",
    "ExchangeInUseError",
    "ExchangeNotFoundError",
    "FencedError",
    "FleetError",
    "ForbiddenError",
    "ForeignDirectoryError",
    "HandlerFailedError",
    "HomingError",
    "IdempotencyMismatchError",
    "IllegalTransitionError",
    "InterlockBlindError",
    "InterlockError",
    "InvalidInputError",
    "NeedsSecondPersonError",
    "NoDirectoryError",
    "NoTargetsError",
    "NodeDrainingError",
    "NodeIdTakenError",
    "NotYetError",
    "PacketTooLargeError",
    "PayloadTooLargeError",
    "PreconditionFailedError",
    "PreconditionRequiredError",
    "PublishRefusedError",
    "PublishUnconfirmedError",
    "QueueChangedError",
    "QueueDiffersError",
    "QueueError",
    "QueueNotEmptyError",
    "QueueNotFoundError",
    "QueuesOffError",
    "QuotaError",
    "RateLimitError",
    "RunMismatchError",
    "RunNotFoundError",
    "RunStateError",
    "ScheduleNotFoundError",
    "SchemaError",
    "SchemaTooNewError",
    "SchemaTooOldError",
    "StoreRefusedError",
    "StoreUnavailableError",
    "TooManyHeldError",
    "TooManyOpenError",
    "UnauthenticatedError",
    "UnavailableError",
    "UndecodableMessageError",
    "UnpublishableError",
    "UnreadableRecordError",
    "UnroutedError",
    "ValueChangedError",
    "ValueNotFoundError",
    "VersionConflictError",
    "WebhookChangedError",
    "WebhookNotFoundError",
    "WebhooksOffError",
    "without_values",
]
