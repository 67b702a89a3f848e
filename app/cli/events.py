"""`homing events`: what devices say unasked, over the HTTP API of a node."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from app.cli.calls import KEY, default_node
from app.cli.output import Exit, Stop, complain, out, tell

if TYPE_CHECKING:
    from app.cli.client import NodeClient

application = typer.Typer(help="What devices say unasked: read, follow and publish it.", no_args_is_help=True)

SECONDS = 30.0
"""How long one answer may take."""
PAGE = 500
SILENT_SECONDS = 60.0
"""A stream that says nothing for so long has lost its connection: a node writes every 15 seconds."""
AGAIN_SECONDS = 1.0
MOST_TRIES = 60

Node = Annotated[
    str | None, typer.Option("--url", "--node", metavar="URL", help="[default: HOMING_URL, else http://127.0.0.1:8080]")
]
Database = Annotated[str | None, typer.Option(help="Of events; the node's first one if absent.")]
Topic = Annotated[str, typer.Argument(help="A topic filter, such as thing/product/+/events.")]


class Output(StrEnum):
    """How events are printed."""

    HUMAN = "human"
    JSON = "json"


As = Annotated[Output, typer.Option("--output", help="For people, or a JSON object a line for programs.")]


@application.command()
def read(
    topic: Topic = "#",
    *,
    since: Annotated[str | None, typer.Option("--from", help="As -10m, or an instant: 2026-11-21T10:00:00Z.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Likewise.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    database: Database = None,
    node: Node = None,
    output: As = Output.HUMAN,
) -> None:
    """Print events, the oldest first. HOMING_KEY holds the API key, where the node asks for one.

    Exit code: 0 all is printed, 1 the node refused, 2 wrong input, 6 no node there, 7 the node answered strangely.
    """
    client = _client(node)
    asked = _without_none(topic=topic, to=until, database=database) | {"from": since or "1970-01-01T00:00:00Z"}
    left, more = limit, True
    while more and left:
        page = _get(client, "/v1/events", asked | {"limit": str(min(left, PAGE))})
        for event in page["events"]:
            _show(event, output)
        left -= len(page["events"])
        more = page["more"]
        asked.pop("from", None)
        asked["cursor"] = page["cursor"]


@application.command()
def follow(
    topic: Topic = "#",
    *,
    since: Annotated[str | None, typer.Option("--from", help="As -10m, or an instant; else from now on.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    database: Database = None,
    node: Node = None,
    output: As = Output.HUMAN,
) -> None:
    """Print events as they come, until Ctrl-C. A connection that breaks is made again, and nothing is missed.

    Exit code: 0 there were as many as asked for, 1 the node refused, 2 wrong input, 6 no node there, 130 interrupted.
    """
    from app.cli.client import NodeUnreachableError

    client, asked = _client(node), _without_none(topic=topic, database=database, **{"from": since})
    last: str | None = None
    left = math.inf if count is None else count
    tries = 0
    while True:
        try:
            for name, identity, data in _events(client, asked, last):
                tries, last = 0, identity or last
                if name == "gap":
                    complain(f"events until {data['until']} are gone: they were dropped before they were read")
                if name == "problem":
                    raise Stop(str(data.get("detail")), Exit.FAILED)
                if name == "event":
                    _show(data, output)
                    left -= 1
                    if not left:
                        return
        except NodeUnreachableError as error:
            if last is None or tries >= MOST_TRIES:
                raise Stop(str(error), Exit.UNREACHABLE) from None
        tries += 1
        time.sleep(AGAIN_SECONDS)


@application.command()
def publish(
    topic: Annotated[str, typer.Argument(help="A topic name, such as fleet/note.", show_default=False)],
    data: Annotated[str, typer.Argument(help="JSON; - reads it from standard input.", show_default=False)],
    *,
    database: Database = None,
    node: Node = None,
) -> None:
    """Put an event into the log, and print its position. No device hears of it.

    Exit code: 0 it is durable, 1 the node refused, 2 wrong input, 6 no node there, 7 the node answered strangely.
    """
    try:
        value = json.loads(sys.stdin.read() if data == "-" else data)
    except ValueError as error:
        raise Stop(f"DATA: not JSON: {error}", Exit.USAGE) from None
    path = "/v1/events" + (f"?{urlencode({'database': database})}" if database else "")
    answer = _ask(_client(node), "POST", path, [{"topic": topic, "data": value}])
    out.print(answer["positions"][0], markup=False)


def _events(
    client: NodeClient, asked: dict[str, str], last: str | None
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Name, id and data of each event of the stream (WHATWG HTML, 9.2.6), as far as this API uses it."""
    from app.cli.client import NodeUnreachableError, RefusedError

    headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": last})
    if last is not None:
        asked = {name: value for name, value in asked.items() if name != "from"}
    fields: dict[str, str] = {}
    try:
        for line in client.lines(f"/v1/events/stream?{urlencode(asked)}", headers, SILENT_SECONDS):
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            elif "data" in fields:
                yield fields.get("event", ""), fields.get("id"), json.loads(fields["data"])
                fields = {}
    except RefusedError as error:
        if error.answer.status == HTTPStatus.SERVICE_UNAVAILABLE:  # it starts, say
            raise NodeUnreachableError(str(error)) from None
        wrong = error.answer.status == HTTPStatus.UNPROCESSABLE_ENTITY
        raise Stop(str(error), Exit.USAGE if wrong else Exit.FAILED) from None


def _client(node: str | None) -> NodeClient:
    from app.cli.client import NodeClient
    from app.core.errors import InvalidInputError

    try:
        return NodeClient(node or default_node(), os.environ.get(KEY))
    except InvalidInputError as error:
        raise Stop(str(error), Exit.USAGE) from None


def _get(client: NodeClient, path: str, parameters: dict[str, str]) -> dict[str, Any]:
    return _ask(client, "GET", f"{path}?{urlencode(parameters)}")


def _ask(client: NodeClient, method: str, path: str, body: Any = None) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    from app.cli.client import NodeUnreachableError

    try:
        answer = client.call(method, path, SECONDS, body)
    except NodeUnreachableError as error:
        raise Stop(str(error), Exit.UNREACHABLE) from None
    if answer.status == HTTPStatus.UNPROCESSABLE_ENTITY:
        raise Stop(answer.problem, Exit.USAGE)
    if answer.status >= HTTPStatus.BAD_REQUEST:
        raise Stop(answer.problem, Exit.FAILED)
    return answer.body


def _show(event: dict[str, Any], output: Output) -> None:
    if output is Output.JSON:
        line = json.dumps(event, ensure_ascii=False)
    else:
        said = event["data_base64"] if "data_base64" in event else json.dumps(event.get("data"), ensure_ascii=False)
        line = f"{event['at']} {event['topic']} {said}"
    tell(out, line)


def _without_none(**given: str | None) -> dict[str, str]:
    return {name: value for name, value in given.items() if value is not None}
