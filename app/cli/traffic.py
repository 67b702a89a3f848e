"""`homing traffic`, `trial` and `draft`: messages between devices and broker, as a node and profiles read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.json_input import parse_json
from app.cli.output import Form, Stop, err, out, tell, written
from app.cli.standard_input import read_all
from app.runtime.exits import Exit


def traffic(
    topic: Annotated[
        str | None, typer.Argument(metavar="[FILTER]", help="A topic filter. By default, the topics of the profiles.")
    ] = None,
    *,
    lasting: Annotated[str, typer.Option("--for", metavar="DURATION", help="End after this time, at most 5m.")] = "60s",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="End after this number.")] = 1000,
    payloads: Annotated[bool, typer.Option(help="Show the beginning of each payload.")] = True,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Listen to the broker through a node, and show how each profile reads each message, or why it ignores it.

    Nothing is published or taken away from nodes. It needs the action trace, and hears what the user name of the node
    may read. homing profile trace does the same with a connection of your own.
    """
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        told = homing.traffic.listen(topic, lasting=lasting, limit=limit)
        if shown is Form.JSON:
            out.line(written(list(told)))
            return
        for one in told:
            if shown is Form.NDJSON:
                out.line(written(one))
                continue
            for line in _lines(one, payloads=payloads):
                tell(err if one["kind"] == "listening" else out, line)


def trial(
    topic: Annotated[str, typer.Argument(help="The topic of the message, such as homing/dock-1/response.")],
    payload: Annotated[str, typer.Argument(help="The payload as text. The prefix hex: begins a binary payload.")],
    *,
    retain: Annotated[
        bool, typer.Option("--retain", help="Treat the message as retained: the broker has kept it from before.")
    ] = False,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Show what each profile of a node would make of a message. Nothing is sent.

    Exit code: 0 a profile reads it, 1 none has its topic or all ignore it.
    """
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        found = homing.traffic.try_message(topic, _payload(payload), retain=retain)
    if shown is not Form.HUMAN:
        out.line(written(found))
    else:
        for line in _readings(found):
            tell(out, line)
    if all(one["outcome"].startswith("ignored") for one in found["readings"]):
        raise Stop("", Exit.FAILED)


def draft(
    file: Annotated[str, typer.Argument(help="The profile as a TOML file; - is standard input.")],
    *,
    method: Annotated[
        str | None, typer.Option(help="The method of the command. By default, the first of the profile.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="By default, an id in the format of the profile.")] = None,
    params: Annotated[str | None, typer.Option(help="As JSON. By default, those that the profile needs.")] = None,
    message: Annotated[
        str | None, typer.Option(help="The words of the device; {id} becomes that of the command.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="The topic of the message. By default, one where answers are expected.")
    ] = None,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Try a profile on a node that does not speak it: its faults, what a command would publish, how a message is read.

    Nothing is sent. It needs the action trace. homing profile check does the same without a node.

    Exit code: 0 all is well, 1 the profile has faults or no such command, or the message does not answer it.
    """
    shown = form(output, as_json=as_json)
    given = None if params is None else _json(params)
    try:
        toml = read_all() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Stop(f"{file}: cannot be read: {reason}", Exit.USAGE) from None
    with connected(url, context, shown) as homing:
        found = homing.traffic.try_profile(
            toml, method=method, device_id=device, params=given, topic=topic, payload=message
        )
    if shown is not Form.HUMAN:
        out.line(written(found))
    else:
        for line in _findings(found):
            tell(out, line)
    if not found["accepted"] or found["answers"] is False:
        raise Stop("", Exit.FAILED)


def _json(text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return parse_json(text)
    except ValueError as error:
        raise Stop(f"--params: is no JSON: {error}", Exit.USAGE) from None


def _findings(found: Mapping[str, Any]) -> Iterator[str]:
    yield from found["faults"]
    yield from (f"hint: {line}" for line in found["hints"])
    if found["command"] is not None:
        yield f"{found['command']['method']} to {found['command']['device_id']}:"
    yield from (f"  {line}" for line in found["publishes"])
    for name, lines in (("reads", found["reads"]), ("the message", found["readings"])):
        if lines:
            yield f"{name}:"
            yield from (f"  {line}" for line in lines)


def _payload(text: str) -> str | bytes:
    if not text.startswith("hex:"):
        return text
    try:
        return bytes.fromhex(text.removeprefix("hex:"))
    except ValueError:
        raise Stop("PAYLOAD: is no hexadecimal", Exit.USAGE) from None


def _lines(one: Mapping[str, Any], *, payloads: bool) -> Iterator[str]:
    match one["kind"]:
        case "listening":
            yield f"listening to {', '.join(one['topics'])} for {one['for']}"
        case "message":
            said = one.get("payload", f"hex {one.get('payload_hex', '')}") if payloads else ""
            retained = ", retained" if one["retain"] else ""
            more = " …" if payloads and one["cut"] else ""
            yield f"{one['at']} {one['topic']} ({one['bytes']} bytes{retained}) {said}{more}".rstrip()
            yield from (f"  {line}" for line in _readings(one))
        case "end":
            yield f"{one['heard']} messages, {one['strangers']} on topics that no profile has, {one['dropped']} dropped"
            for row in one["outcomes"]:
                yield f"  {row['profile']}: {row['count']} {row['outcome']}"


def _readings(one: Mapping[str, Any]) -> Iterator[str]:
    if not one["readings"]:
        yield "no profile has this topic"
    yield from (f"{row['profile']}: {row['sentence']}" for row in one["readings"])
