"""Queues, as they go in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from app.api.event_json import event_json
from app.api.representation import instant
from app.api.v1.command_models import Instant, LabelName, said
from app.api.v1.event_models import Event
from app.core.durations import DURATION, format_duration, parse_duration
from app.core.errors import InvalidInputError
from app.core.queues.exchanges import KeyRoute
from app.core.queues.letters import DeadLetter
from app.core.queues.loans import CONSUMER_BYTES
from app.core.queues.model import NAME, DeclaredQueue, QueueOptions, TopicRoute
from app.queues.stats import QueueStats
from app.queues.taker import QueueMessage

LOAN: Final = "5f2c8d1e.events.3.1795277533402113.0"
MOST_TAKEN: Final = 1000
MOST_SETTLED: Final = 1024
MOST_BYTES: Final = 4 * 1024 * 1024
_DURATION: Final = said(DURATION)

Duration = Annotated[str, Field(description="A duration such as 500ms, 10s or 1.5m.", json_schema_extra=_DURATION)]
Token = Annotated[str, Field(description="The `loan` of an event, as `take` returned it.", examples=[LOAN])]


class _QueueModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class QueueRoute(_QueueModel):
    """Events that a queue gets."""

    database: Annotated[str, Field(description="The database of events.", examples=["events"])]
    topic: Annotated[str, Field(description="A topic filter.", examples=["thing/product/+/events"])]


class ExchangeRoute(_QueueModel):
    """The messages of an exchange that a queue gets."""

    exchange: Annotated[str, Field(description="The name of the exchange.", examples=["ops"])]
    key: Annotated[
        str,
        Field(
            description="The key; in a topic exchange `*` is a word, and `#` any number of words.", examples=["low.*"]
        ),
    ] = "#"


class QueueBody(_QueueModel):
    """A queue, as it is declared."""

    routes: Annotated[list[QueueRoute | ExchangeRoute], Field(description="The events that it gets: 1 to 64 routes.")]
    loan: Annotated[Duration, Field(description="The time in which a consumer has to settle an event: 1s to 12h.")] = (
        "30s"
    )
    retry: Annotated[
        list[Duration],
        Field(description="After how long an event is lent again, for each failed delivery; the last one repeats."),
    ] = ["1s", "10s", "1m"]
    max_deliveries: Annotated[
        StrictInt, Field(description="After so many failed deliveries it becomes a dead letter; 0 for never.")
    ] = 5
    order: Annotated[
        Literal["none", "device"],
        Field(description="`device`: events of a device are lent one after the other. It cannot be changed."),
    ] = "none"
    ttl: Annotated[Duration | None, Field(description="Events that are older are not lent.")] = None
    delay: Annotated[Duration, Field(description="Events that are younger are not lent: up to 24h.")] = "0ms"
    single: Annotated[StrictBool, Field(description="True if one consumer at a time takes.")] = False
    ends_after: Annotated[
        Duration | None, Field(description="The queue is deleted when nobody has taken from it for so long.")
    ] = None
    labels: dict[LabelName, str] = {}
    start: Annotated[
        str | None,
        Field(description="The start of a new queue: `now`, an instant, or how long ago. By default, `now`."),
    ] = None


class RoutesBody(_QueueModel):
    """Routes to add to a queue, or to remove from it."""

    routes: Annotated[list[QueueRoute | ExchangeRoute], Field(description="1 to 64 routes.")]


class QueueCounts(_QueueModel):
    """The state of a queue."""

    ready: Annotated[int, Field(description="Events that can be lent now, of those that were looked at so far.")]
    lent: Annotated[int, Field(description="Events that consumers have.")]
    later: Annotated[int, Field(description="Events that wait for their next delivery.")]
    held_back: Annotated[int, Field(description="Events that wait for an earlier one of their device.")]
    done: int
    retried: int
    dead: Annotated[int, Field(description="Events that became dead letters.")]
    expired: Annotated[int, Field(description="Events that were too old for `ttl`, or that the log had dropped.")]
    missed: Annotated[int, Field(description="Events among these that the log dropped before they were lent.")]
    delivered: int
    delivered_again: int
    oldest_at: Annotated[Instant | None, Field(description="The instant of the first event that is ready.")]
    asked_at: Annotated[Instant | None, Field(description="The instant at which somebody last took.")]
    consumers: Annotated[int, Field(description="The consumers that took within the last minute.")]


class LogQueue(QueueBody):
    """A queue."""

    name: Annotated[str, Field(json_schema_extra=said(NAME), examples=["alarms"])]
    tenant: str
    created_at: Instant


class LogQueueWithCounts(LogQueue):
    """A queue, and how it stands."""

    counts: QueueCounts


class LogQueues(_QueueModel):
    """Queues by name."""

    queues: list[LogQueue]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class TakeBody(_QueueModel):
    """The request of a consumer."""

    max: Annotated[StrictInt, Field(description="The maximum number of events: 1 to 1000.")] = 32
    wait: Annotated[Duration, Field(description="The time to wait when there is none: up to 60s.")] = "0ms"
    consumer: Annotated[str, Field(description="A name that tells this consumer from others.", examples=["w1"])] = ""
    auto: Annotated[
        StrictBool, Field(description="True if the events are settled when they are lent: at most once.")
    ] = False
    max_bytes: Annotated[StrictInt, Field(description="The maximum size of all events together.")] = MOST_BYTES


class TakenEvent(_QueueModel):
    """An event that was lent."""

    loan: Token
    delivery: Annotated[int, Field(description="The number of its deliveries, with this one.")]
    until: Annotated[Instant, Field(description="The instant until which to settle it; then it is lent again.")]
    database: str
    event: Event


class TakenEvents(_QueueModel):
    """The events that were lent."""

    events: list[TakenEvent]
    full: Annotated[
        bool, Field(description="True if nothing is lent until consumers settle what they have, as that is too much.")
    ]


class LaterLoan(_QueueModel):
    """An event to be delivered again."""

    loan: Token
    after: Annotated[Duration | None, Field(description="After how long. By default, as the queue says.")] = None


class DeadLoan(_QueueModel):
    """An event to be put aside."""

    loan: Token
    reason: Annotated[str, Field(max_length=512)] = "rejected"


class ExtendedLoan(_QueueModel):
    """A loan that needs more time: all events of the same loan have it."""

    loan: Token
    by: Annotated[Duration, Field(description="From now on; at most 12h after it was lent.")]


class SettleBody(_QueueModel):
    """The settlements of events that were lent: up to 1024, each once."""

    done: list[Token] = []
    retry: list[LaterLoan] = []
    dead: list[DeadLoan] = []
    release: Annotated[list[Token], Field(description="Events to be lent to others, without counting a delivery.")] = []
    extend: list[ExtendedLoan] = []


class SettledEvents(_QueueModel):
    """The result of a settlement."""

    settled: int
    over: Annotated[
        list[str], Field(description="Loans that are over: settled before, lent to others, or never known.")
    ]


class RewindBody(_QueueModel):
    """The place where a queue goes on."""

    to: Annotated[str, Field(description="An instant, how long ago, or `now`.", examples=["2026-11-21T10:00:00Z"])]


class RedriveBody(_QueueModel):
    """Up to where dead letters are read again."""

    until: Annotated[str | None, Field(description="An instant, or how long ago. By default, now.")] = None


class DeadLetterBody(_QueueModel):
    """A dead letter."""

    position: int
    at: Instant
    reason: str
    deliveries: int
    consumer: str
    database: str
    event: Event


class DeadLetters(_QueueModel):
    """A page of dead letters, oldest first."""

    letters: list[DeadLetterBody]
    cursor: str
    more: bool


class QueueConsumer(_QueueModel):
    """Somebody who took lately."""

    consumer: str
    asked_at: Instant


class QueueConsumers(_QueueModel):
    """The consumers that took within the last minute."""

    consumers: list[QueueConsumer]


class ReleasedEvents(_QueueModel):
    """The number of events that a consumer was lent and had not settled."""

    released: int


def check_consumer(field: str, name: str) -> None:
    """InvalidInputError about this field, where the name of a consumer is too long."""
    if len(name.encode()) > CONSUMER_BYTES:
        raise InvalidInputError(field, f"is too long; allowed: {CONSUMER_BYTES} bytes in UTF-8")


def duration_of(field: str, text: str) -> timedelta:
    """The duration; InvalidInputError about this field."""
    try:
        return parse_duration(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(field, str(error)) from None


def routes_of(told: Sequence[QueueRoute | ExchangeRoute]) -> tuple[TopicRoute | KeyRoute, ...]:
    """The routes that a caller gave, those by topic first."""
    return (
        *sorted(TopicRoute(one.database, one.topic) for one in told if isinstance(one, QueueRoute)),
        *sorted(KeyRoute("", one.exchange, one.key) for one in told if isinstance(one, ExchangeRoute)),
    )


def options_of(body: QueueBody) -> QueueOptions:
    """Return what is declared; InvalidInputError."""

    def some(field: str, text: str | None) -> timedelta | None:
        return None if text is None else duration_of(field, text)

    return QueueOptions(
        routes=routes_of(body.routes),
        loan=duration_of("loan", body.loan),
        retry=tuple(duration_of(f"retry.{place}", one) for place, one in enumerate(body.retry)),
        max_deliveries=body.max_deliveries,
        order=body.order,
        ttl=some("ttl", body.ttl),
        delay=duration_of("delay", body.delay),
        single=body.single,
        ends_after=some("ends_after", body.ends_after),
        labels=body.labels,
    )


def queue_json(queue: DeclaredQueue) -> dict[str, Any]:
    """A queue as it is shown, and as `homing queue apply` takes it."""
    options = queue.options

    def shown(duration: timedelta | None) -> str | None:
        return None if duration is None else format_duration(duration)

    return {
        "name": queue.name,
        "tenant": queue.tenant,
        "created_at": instant(queue.created_us),
        "routes": [
            {"exchange": one.exchange, "key": one.key}
            if isinstance(one, KeyRoute)
            else {"database": one.database, "topic": one.topic}
            for one in options.routes
        ],
        "loan": format_duration(options.loan),
        "retry": [format_duration(one) for one in options.retry],
        "max_deliveries": options.max_deliveries,
        "order": options.order,
        "ttl": shown(options.ttl),
        "delay": format_duration(options.delay),
        "single": options.single,
        "ends_after": shown(options.ends_after),
        "labels": dict(options.labels),
    }


def counts_json(stats: QueueStats) -> dict[str, Any]:
    """The state of a queue."""
    names = ("ready", "lent", "later", "held_back", "done", "retried", "dead", "expired", "missed", "delivered")
    return {
        **{name: getattr(stats, name) for name in names},
        "delivered_again": stats.again,
        "oldest_at": instant(stats.oldest) if stats.oldest else None,
        "asked_at": instant(stats.asked) if stats.asked else None,
        "consumers": len(stats.consumers),
    }


def message_json(message: QueueMessage) -> bytes:
    """An event that was lent."""
    return orjson.dumps(
        {
            "loan": str(message.token),
            "delivery": message.delivery,
            "until": instant(message.until),
            "database": message.database,
            "event": orjson.Fragment(event_json(message.event)),
        }
    )


def letter_json(position: int, letter: DeadLetter) -> bytes:
    """A dead letter."""
    about: Mapping[str, Any] = letter.about
    known: Callable[[str, Any], Any] = about.get
    return orjson.dumps(
        {
            "position": position,
            "at": instant(position),
            "reason": known("reason", ""),
            "deliveries": known("deliveries", 0),
            "consumer": known("consumer", ""),
            "database": about["origin"].get("database", ""),
            "event": orjson.Fragment(event_json(letter.original)),
        }
    )
