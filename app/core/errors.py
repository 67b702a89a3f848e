"""Every error that Homing raises.

HomingError
├── ConfigurationError          a setting or a profile file is wrong; the process must not start
│   └── ForeignDirectoryError   the other nodes have another access directory
├── InvalidInputError           a caller's value is outside what is allowed
│   ├── PayloadTooLargeError    a body or payload is over its limit
│   └── UnpublishableError      MQTT cannot carry the command; it is on record as unsent
│       └── PacketTooLargeError the broker takes no packet of this size
├── UndecodableMessageError     a device's message cannot be read
├── CommandError                about one command; carries command_id
│   ├── CommandNotFoundError
│   ├── UnreadableRecordError   its record is of a later version, or damaged
│   ├── CommandFinishedError    it has an outcome already
│   ├── ApprovalOverError       no second person is asked, or none any more
│   ├── IdempotencyMismatchError  the key was used with another body
│   └── IllegalTransitionError  a state change that the table does not have
├── PreconditionRequiredError   the caller has to name the state that they know
├── AccessError                 about who may do what
│   ├── UnauthenticatedError    nobody knows who asks
│   ├── ForbiddenError          known, and not allowed
│   │   └── NeedsSecondPersonError  one more must want it
│   └── DeviceNotFoundError     not allowed to know of it
├── DirectoryError              about the access directory: who there is, and who may do what
│   ├── EntryNotFoundError
│   ├── EntryConflictError      a change contradicts what else is on record
│   ├── VersionConflictError    the directory has changed since the change was decided
│   ├── PreconditionFailedError  an entry is not what the caller takes it for
│   ├── NoDirectoryError        this node has none
│   └── SchemaError             its tables are of a version that this one cannot serve
│       ├── SchemaTooOldError
│       └── SchemaTooNewError
├── EventLogError               about the event log; nothing was written
│   ├── EventsOffError          this node keeps no events
│   ├── DatabaseNotFoundError
│   ├── EventNotFoundError      there is no event at a position
│   ├── CursorNotFoundError     a caller has no cursor of this name
│   ├── ValueNotFoundError      a topic has no last value
│   ├── ValueChangedError       the last value of a topic is another one than expected
│   ├── CallMismatchError       the idempotency key was used for other events
│   ├── QuotaError              the events take as much room as they may
│   ├── FencedError             somebody with a later right to write has taken over
│   └── DamagedEventsError      a piece of what was written cannot be read any more
├── QueueError                  about a queue or an exchange; nothing was changed
│   ├── QueuesOffError          this node keeps none
│   ├── QueueNotFoundError
│   ├── QueueDiffersError       it is declared otherwise already
│   ├── QueueNotEmptyError      it was to be deleted only if it is empty
│   └── QueueChangedError       others have changed what is declared, again and again
├── BrokerError                 about the broker in the node; nothing was changed
│   ├── BrokerOffError          this node has none
│   ├── BrokerTakenOverError    its sessions are those of another process now
│   └── BrokerEntryNotFoundError  it has no such session or retained message
├── FleetError                  about a fleet run
│   ├── RunNotFoundError
│   ├── NoTargetsError          no device is meant
│   ├── RunStateError           its state does not allow this
│   ├── RunMismatchError        the idempotency key belongs to another run
│   └── ScheduleNotFoundError
├── InterlockError              an interlock does not let the command through
├── HandlerFailedError          a handler of replies said nothing that can be used
├── CapacityError               a bound was reached; try again later
│   ├── RateLimitError          the access rules limit how often
│   ├── TooManyOpenError        the access rules limit how many commands are open
│   ├── TooManyHeldError        a device has as many held commands as it may have
│   └── DeviceBusyError         a device without correlation ids takes one command at a time
└── UnavailableError            something this node needs is away; try again later
    ├── StoreUnavailableError
    │   └── StoreRefusedError   the store answered, with an error that trying again does not mend
    ├── DirectoryUnavailableError  the access directory did not answer within the budget of the call
    ├── BrokerUnavailableError
    │   └── PublishRefusedError the broker said no to a message
    ├── PublishUnconfirmedError the connection was lost before PUBACK: it may have arrived
    ├── NotYetError             another node does not know yet what it would have to
    ├── InterlockBlindError     the values that interlocks judge by cannot be read
    ├── NodeDrainingError
    └── NodeIdTakenError        another live node has this node id
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from app.core.commands.command import Command


class HomingError(Exception):
    """Base of all errors raised by Homing."""


class ConfigurationError(HomingError):
    """A setting or a profile file is wrong: says which, and what is allowed."""


class ForeignDirectoryError(ConfigurationError):
    """The other nodes of the cluster have another access directory: a key revoked there would go on counting here."""


class InvalidInputError(HomingError):
    """A caller's value is outside what is allowed."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class PayloadTooLargeError(InvalidInputError):
    """A body or payload is over its size limit."""


class UnpublishableError(InvalidInputError):
    """MQTT cannot carry this publication, now or later: trying again does not mend it."""

    code = "unpublishable"
    """What the record of the command says."""
    command_id: str | None = None
    """The command that it befell, which is on record as unsent."""
    command: Command | None = None
    """The same, as it is known here."""


class PacketTooLargeError(UnpublishableError):
    """The publication is larger than the packets that the broker takes."""

    code = "packet_too_large"


class HandlerFailedError(HomingError):
    """A handler of replies said nothing that can be used; `reason` is a stable word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class InterlockError(HomingError):
    """Interlocks do not let the command through; nothing was sent.

    `interlocks` are those that refuse, as callers are shown them. They have members `interlock`, `say`, `conditions`.
    """

    def __init__(self, method: str, device_id: str, interlocks: Sequence[Mapping[str, Any]]) -> None:
        said = "; ".join(_refusal(one) for one in interlocks)
        super().__init__(f"{method} was not sent to {device_id}: {said}")
        self.method = method
        self.device_id = device_id
        self.interlocks = interlocks

    def without_values(self) -> InterlockError:
        """The same for a caller who may not read the device: without its values."""
        return InterlockError(self.method, self.device_id, [without_values(one) for one in self.interlocks])


def without_values(interlock: Mapping[str, Any]) -> dict[str, Any]:
    """Return an interlock as a caller is shown it who may not read the device."""
    rows = [{k: v for k, v in row.items() if k not in _VALUES} for row in interlock["conditions"]]
    return {**interlock, "conditions": rows}


_VALUES: Final = ("value", "age", "because")
"""The members of a condition that tell of the device."""


def _refusal(one: Mapping[str, Any]) -> str:
    rows = [row for row in one["conditions"] if row["result"] != "holds"]
    return f"interlock {one['interlock']} refuses, {one['say']}: " + ", ".join(_condition(row) for row in rows)


def _condition(row: Mapping[str, Any]) -> str:
    wanted = " and ".join(f"{name} {json.dumps(value)}" for name, value in row["wanted"].items())
    value = f" {json.dumps(row['value'])}" if "value" in row else ""
    age = f", said {row['age']} ago" if "age" in row else ""
    because = f" as {row['because']}" if "because" in row else ""
    is_what = f" is{value}{age}" if value else f" is {row['result']}{because}{age}"
    return f"{row['path']}{is_what}{because if value else ''} (needed: {wanted})"


class WebhooksOffError(HomingError):
    """This node serves no webhooks."""


class WebhookNotFoundError(HomingError):
    """There is no such webhook, or delivery of it, that the caller may know of."""


class WebhookChangedError(HomingError):
    """Somebody else has changed the webhook meanwhile."""


class UndecodableMessageError(HomingError):
    """A device's message cannot be read; `reason` is a short stable word for counting.

    `profile` is the one that has the topic, '' where none has or nobody asked.
    """

    def __init__(self, reason: str, profile: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.profile = profile


class CommandError(HomingError):
    """Base of errors about one command."""

    def __init__(self, command_id: str, message: str) -> None:
        super().__init__(message)
        self.command_id = command_id


class CommandNotFoundError(CommandError):
    """No record under this id: never registered, or past its retention."""

    def __init__(self, command_id: str) -> None:
        super().__init__(command_id, f"no command {command_id}")


class UnreadableRecordError(CommandError):
    """The record of the command is of a later version than this node reads, or damaged; `reason` says which."""

    def __init__(self, command_id: str, reason: str) -> None:
        super().__init__(command_id, f"the record of command {command_id} cannot be read here: {reason}")
        self.reason = reason


class CommandFinishedError(CommandError):
    """The command has an outcome already, so it can no longer be cancelled."""

    def __init__(self, command_id: str, state: str) -> None:
        super().__init__(command_id, f"command {command_id} is {state} already")
        self.state = state


class IdempotencyMismatchError(CommandError):
    """The idempotency key was used for this device with another command; `differs` names by what, where it is known."""

    def __init__(self, command_id: str, differs: str = "") -> None:
        said = f"the idempotency key belongs to {command_id}, which is a different command"
        super().__init__(command_id, f"{said}: another {differs}" if differs else said)


class ApprovalOverError(CommandError):
    """No second person is asked about the command, or none any more."""


class PreconditionRequiredError(HomingError):
    """The caller has to say what they take for granted; says in which header."""


class IllegalTransitionError(CommandError):
    """An event that the transition table does not allow in this state."""


class AccessError(HomingError):
    """Base of errors about who may do what; nothing was done."""


class UnauthenticatedError(AccessError):
    """Nobody knows who asks: there is no credential, or it counts for nothing."""


class ForbiddenError(AccessError):
    """The caller is known, and may not do this."""


class NeedsSecondPersonError(ForbiddenError):
    """A second person has to approve, `within` this time; None where nobody can."""

    def __init__(self, reason: str, within: timedelta | None = None) -> None:
        super().__init__(reason)
        self.within = within


class DeviceNotFoundError(AccessError):
    """The caller may not know of this device, whether or not it is there."""


class DirectoryError(HomingError):
    """Base of errors about the access directory; nothing was changed."""


class EntryNotFoundError(DirectoryError):
    """The subject of a change is not on record."""


class EntryConflictError(DirectoryError):
    """A change contradicts what else is on record; says which change, and what it contradicts."""


class VersionConflictError(DirectoryError):
    """The directory has changed since the change was decided: read it again, and decide again."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"the access directory is at version {found}, and the change was made for version {expected}")
        self.expected = expected
        self.found = found


class PreconditionFailedError(DirectoryError):
    """An entry is not what the caller takes it for; says what it is."""


class NoDirectoryError(DirectoryError):
    """This node has no access directory; says what is possible without one."""


class SchemaError(DirectoryError):
    """The tables of the directory are of a version that this version of Homing cannot serve."""


class SchemaTooOldError(SchemaError):
    """They have to be migrated first, or there are none yet."""


class SchemaTooNewError(SchemaError):
    """They were migrated by a later version, which this one does not understand."""


class EventLogError(HomingError):
    """Base of errors about the event log; nothing was written."""


class EventsOffError(EventLogError):
    """This node keeps no events: nobody has said where."""


class DatabaseNotFoundError(EventLogError):
    """There is no such database of events."""


class EventNotFoundError(EventLogError):
    """There is no event at a position, or none that whoever asks may know of; says why, where it was there."""


class CursorNotFoundError(EventLogError):
    """The caller has no cursor of this name."""


class ValueNotFoundError(EventLogError):
    """The topic has no last value, or none that whoever asks may know of."""


class ValueChangedError(EventLogError):
    """The last value of a topic is another one than the caller takes it to be."""

    def __init__(self, topic: str, expected: int | None, found: int | None) -> None:
        def told(position: int | None) -> str:
            return "no value" if position is None else f"a value at position {position}"

        super().__init__(f"topic {topic!a} has {told(found)}, and the change was made for {told(expected)}")
        self.topic = topic
        self.expected = expected
        self.found = found


class CallMismatchError(EventLogError):
    """The idempotency key was used for other events."""


class QuotaError(EventLogError):
    """The events take as much room as they may; reading and deleting go on."""


class FencedError(EventLogError):
    """Somebody with a later right to write has taken over."""


class DamagedEventsError(EventLogError):
    """Something that was written cannot be read any more; says which piece. The rest is served."""


class BrokerError(HomingError):
    """Base of errors about the broker in the node; nothing was changed."""


class BrokerOffError(BrokerError):
    """This node has no broker of its own."""


class BrokerTakenOverError(BrokerError):
    """The broker does not own what it keeps any more; says why."""


class BrokerEntryNotFoundError(BrokerError):
    """The broker has no such session, or no such retained message."""


class QueueError(HomingError):
    """Base of errors about a queue or an exchange; nothing was changed."""


class QueuesOffError(QueueError):
    """This node keeps no queues; says why."""


class QueueNotFoundError(QueueError):
    """There is no such queue that the caller may know of."""


class QueueDiffersError(QueueError):
    """A queue of this name is declared otherwise; says in which fields."""


class QueueNotEmptyError(QueueError):
    """The queue was to be deleted only if it is empty."""


class QueueChangedError(QueueError):
    """Others have changed what is declared meanwhile, more often than it was tried again."""


class ExchangeNotFoundError(QueueError):
    """There is no such exchange that the caller may know of."""


class ExchangeDiffersError(QueueError):
    """An exchange of this name is of another kind."""


class ExchangeInUseError(QueueError):
    """Queues have routes from the exchange; names them."""


class UnroutedError(QueueError):
    """No queue has a route for what was said."""


class FleetError(HomingError):
    """Base of errors about a fleet run; nothing was changed."""


class RunNotFoundError(FleetError):
    """There is no such run that the caller may know of."""


class NoTargetsError(FleetError):
    """No device is meant, so there is nothing to run."""


class RunStateError(FleetError):
    """The state of the run does not allow this; says what would."""


class RunMismatchError(FleetError):
    """The idempotency key was used for another run."""


class ScheduleNotFoundError(FleetError):
    """There is no such schedule that the caller may know of."""


class CapacityError(HomingError):
    """A bound was reached; nothing was registered or sent."""


class RateLimitError(CapacityError):
    """Somebody has done this as often as the access rules allow; after `retry_after` seconds they may again."""

    def __init__(
        self, reason: str, retry_after: float, name: str = "", policies: tuple[tuple[int, int], ...] = ()
    ) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.name = name
        """What is limited."""
        self.policies = policies
        """How often in how many seconds."""


class TooManyOpenError(CapacityError):
    """Somebody has as many commands open as the access rules allow; who knows when the first of them ends."""


class TooManyHeldError(CapacityError):
    """A device has as many held commands as it may have."""


class DeviceBusyError(CapacityError):
    """A device that is matched by order alone has a command in flight (or in quarantine) already."""


class UnavailableError(HomingError):
    """Something this node needs is away."""

    command_id: str | None = None
    """The command that it befell, which is or may be on record."""
    command: Command | None = None
    """The same, as it is known here; None where nothing was recorded, or nobody knows."""


class StoreUnavailableError(UnavailableError):
    """The state store did not answer within the budget of the call."""


class StoreRefusedError(StoreUnavailableError):
    """The store answered with an error that trying again does not mend."""


class DirectoryUnavailableError(UnavailableError):
    """The access directory did not answer within the budget of the call. A change may or may not have been made."""


class BrokerUnavailableError(UnavailableError):
    """There is no connection to the MQTT broker, or its send window is full: nothing was sent."""


class PublishRefusedError(BrokerUnavailableError):
    """The broker answered a message with PUBACK 0x80 or above: nobody got it (MQTT 5, section 3.4.2.1)."""


class PublishUnconfirmedError(UnavailableError):
    """The connection was lost between PUBLISH and PUBACK: the message may have arrived."""


class NotYetError(UnavailableError):
    """Another node of the cluster does not know yet what it would have to: it is of an earlier version."""


class InterlockBlindError(UnavailableError):
    """The values that interlocks judge by cannot be read; nothing was sent."""


class NodeDrainingError(UnavailableError):
    """This node is about to stop and takes no new commands."""


class NodeIdTakenError(UnavailableError):
    """Another live node holds the lease of this node id."""

    def __init__(self, node_id: str) -> None:
        super().__init__(f"a live node is called {node_id!r} already: give this one another HOMING_NODE_ID")
        self.node_id = node_id
