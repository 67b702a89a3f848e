"""`homing events`: what devices say unasked, over the HTTP API of a node."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, following, form
from app.cli.completion import members
from app.cli.output import Form, Stop, complain, out, tell, written
from app.cli.verbs import HELP, Verb, cell, group, read_json
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_client import LogEvent

COLUMNS = "at topic data|data_base64"

application = group(
    "Read, follow and publish events: messages that devices send unasked.",
    {
        "read": Verb("events.read", COLUMNS, head=False),
        "show": Verb("events.get"),
        "topics": Verb("events.topics", "topic at device_id kind"),
        "streams": Verb("events.streams", "structure"),
        "cursors": Verb("events.cursors", "name topic committed_at cursor"),
        "cursor": Verb("events.cursor"),
        "commit": Verb("events.commit"),
        "forget": Verb("events.forget"),
        "databases": Verb("events.databases", "name retention shards"),
    },
)

Database = Annotated[str | None, typer.Option(help=HELP["database"])]


@application.command()
def follow(
    topic: Annotated[str, typer.Argument(help=HELP["topic"], autocompletion=members("events.topics", "topic"))] = "#",
    *,
    since: Annotated[str | None, typer.Option("--since", "--from", help=f"{HELP['since']} By default, now.")] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after this number.")] = None,
    database: Database = None,
    distinct: Annotated[bool, typer.Option(help=HELP["distinct"])] = False,
    reader: Annotated[
        str | None, typer.Option(help="Continue where this reader had come to, and keep its cursor in the cluster.")
    ] = None,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Print events as they arrive until Ctrl-C. It reconnects if the connection breaks, and misses nothing.

    Exit code: 0 after --count events, 2 wrong input, 6 no node there, 8 not allowed, 130 interrupted.
    """
    shown = form(output, as_json=as_json)
    if reader is not None and distinct:
        raise Stop("--distinct cannot be combined with --reader", Exit.USAGE)
    with following(url, context, shown) as homing:
        if reader is None:
            _show(homing.events.follow(topic, since=since, database=database, distinct=distinct), count, shown)
            return
        kept = homing.events.reader(reader, topic, since=since, database=database)
        try:
            _show(kept, count, shown)
        except KeyboardInterrupt:
            kept.commit()
            raise
        kept.commit()


def _show(told: Iterable[LogEvent], count: int | None, shown: Form) -> None:
    for one in islice((one for one in told if not _is_gap(one.kind, one.data)), count):
        if shown is Form.HUMAN:
            tell(out, " ".join(cell(one.data, name) for name in COLUMNS.split()))
        else:
            out.line(written(one.data))


@application.command()
def publish(
    topic: Annotated[str, typer.Argument(help="The topic name, such as fleet/note.", show_default=False)],
    data: Annotated[str, typer.Argument(help=HELP["data"], metavar="JSON", show_default=False)],
    *,
    database: Annotated[str | None, typer.Option(help="The database to append to. By default, the first one.")] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="An idempotency key. Repeated with the same key, the event is appended once."),
    ] = None,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Append an event to the log, and print its position once it is durable. Devices do not receive it."""
    value = read_json("JSON", data)
    with connected(url, context) as homing:
        said = [{"topic": topic, "data": value}]
        (position,) = homing.events.publish(said, database=database, idempotency_key=idempotency_key)
    tell(out, position)


def _is_gap(kind: str, data: Any) -> bool:  # noqa: ANN401 - a JSON object
    """True if it is no event but a word about the stream; people are told of what they miss."""
    if kind == "gap":
        complain(
            f"events until {data['until']} are missing: they were dropped, are damaged, or Redis has forgotten them"
        )
    return kind != "event"
