"""Verbs as a table: each is a method of `homing-client`, whose parameters become arguments and options."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli import completion
from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.json_input import parse_json
from app.cli.output import Form, Stop, err, out, table, tell, written
from app.cli.standard_input import read_all
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_client import Homing

WHERE: Final[Mapping[str, tuple[Any, Any]]] = {
    "url": (Url, None),
    "context": (ContextName, None),
    "output": (Output, Form.HUMAN),
    "as_json": (AsJson, False),
}
"""The parameters that all verbs have: the URL to ask, and the form of the output."""
JSON: Final = {"object", "Mapping[str, Any]", "Sequence[Mapping[str, Any]]"}
"""Types of parameters that are typed as JSON."""
WORDS: Final = {"Sequence[str]", "Sequence[str] | None"}
MANY: Final = 100
"""The number of entries of a long list that are printed where nobody says."""

HELP: Final[Mapping[str, str]] = {
    "action": "The action: read, send, cancel, …",
    "batch": "The maximum number of events of the queue in one delivery: 1 to 64.",
    "bindings": 'The complete list of bindings as JSON: [{"role": "operator", "devices": ["dock-*"]}].',
    "body": "The new record as JSON; - reads it from standard input.",
    "client_id": "The client id of a session, as homing broker sessions shows it.",
    "cancel_open": "Cancel also the commands that were sent and have not ended.",
    "consumer": "The name of the consumer, as consumers shows it.",
    "cursor": "The cursor behind the last event that was handled, as read and follow give it.",
    "data": "The value as JSON; - reads it from standard input.",
    "database": "The database of events. By default, all are read, and the node chooses the one to write to.",
    "days": "The number of days until the key expires.",
    "device": "The device id, such as dock-1.",
    "device_id": "The device id, such as dock-1.",
    "devices": "A pattern of device ids, such as 'dock-*'.",
    "distinct": "Leave out events that the broker delivered again.",
    "document": "The document, in the format of export; - reads it from standard input.",
    "dry_run": "Print the changes without making them.",
    "enabled": "Enable or disable the webhook.",
    "event_id": "The id of the event, as deliveries shows it.",
    "events": "An event to deliver, such as command.failed. Repeatable.",
    "even_unrouted": "Keep the message although no queue has a route for its key.",
    "exchange": "The name of the exchange.",
    "forgive": "Ignore everything that has failed so far.",
    "grace": "The time for which the old key stays valid, such as 24h; 0s ends it now.",
    "idempotency_key": "An idempotency key. Repeated with the same key, it is done once.",
    "if_match": "Write only if the current tag is this one; show and put print it.",
    "key": "The key of the message: words joined by dots, such as low.battery.",
    "key_id": "The id of the key, which is part of the key itself.",
    "kind": "The way in which queues choose: direct (by the key itself), fanout (all) or topic (by wildcards).",
    "label": "The purpose of the key, shown in lists.",
    "limit": "The maximum number of entries.",
    "message_id": "An id of the message, for consumers.",
    "method": "The method, such as cover_open.",
    "methods": "A pattern of methods as PROFILE:METHOD, such as 'dji:*'.",
    "name": "The name of the role.",
    "narrow": "A rule that narrows the key. Repeatable.",
    "never": "The key never expires.",
    "not_before": "The time before which no consumer gets the message: an instant, or how long from now, such as 10s.",
    "of": "The state in which targets have ended. Repeatable. By default, failed and timed_out.",
    "only_empty": "Delete it only if nothing waits in it.",
    "outcome": "Show only deliveries in this state: waiting, delivered or given_up.",
    "place": "The place of the event: DATABASE.SHARD.POSITION, such as telemetry.2.1772352000000000.",
    "principal": "The id of a person or service.",
    "principal_id": "The id of a person or service.",
    "profile": "The device profile.",
    "queue": "The name of the queue.",
    "reader": "The name of the reader, such as archive.",
    "run_id": "The id of the run, as list shows it.",
    "rules": "A rule, such as 'allow send dji:cover_* on dock-*'.",
    "since": "The start: how long ago, such as -10m, or an instant, such as 2026-11-21T10:00:00Z.",
    "schedule": "The name of the schedule.",
    "settlement": 'The settlement: {"done": ["LOAN"], "retry": [{"loan": "LOAN"}], …}; - reads it from standard input.',
    "state": "Show only targets in this state, such as failed.",
    "subject": "The id of a person or service, or group:NAME.",
    "tenant": "The tenant that it belongs to.",
    "tenant_id": "The id of the tenant.",
    "to": "The place to go on from: how long ago, such as -10m, an instant, such as 2026-11-21T10:00:00Z, or now.",
    "topic": "A topic, such as fleet/note. Verbs that read many topics take a filter, such as thing/product/+/events.",
    "transaction": 'The transaction as JSON: {"if": […], "write": […], "delete": […]}; - reads it from standard input.',
    "until": "The end: how long ago, such as -10m, or an instant, such as 2026-11-21T10:00:00Z.",
    "url": "The URL of the receiver: https://…",
    "webhook_id": "The id of the webhook.",
    "who": "Show only requests of this principal.",
}
"""The help for each parameter, whatever verb it belongs to."""

RENAMED: Final = {"url": "target"}
"""Parameters that are called as an option of all verbs."""
OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "since": ("--since", "--from"),
    "until": ("--until", "--to"),
    "enabled": ("--enabled/--disabled",),
    "events": ("--event",),
    "url": ("--to",),
}
"""Options that are called otherwise than their parameters."""

COMPLETED: Final = {
    "client_id": completion.members("broker.sessions", "client_id"),
    "device": completion.devices,
    "device_id": completion.devices,
    "exchange": completion.members("exchanges.all", "name"),
    "key_id": completion.members("access.keys", "id"),
    "name": completion.members("access.roles", "name"),
    "principal": completion.members("access.principals", "id"),
    "principal_id": completion.members("access.principals", "id"),
    "profile": completion.profiles,
    "queue": completion.members("queues.all", "name"),
    "run_id": completion.members("fleet.all", "id"),
    "schedule": completion.members("schedules.all", "name"),
    "reader": completion.members("events.cursors", "name"),
    "subject": completion.members("access.principals", "id"),
    "tenant_id": completion.members("access.tenants", "id"),
    "topic": completion.members("events.topics", "topic"),
    "webhook_id": completion.members("webhooks.all", "id"),
}
"""The completions that the shell can offer for a parameter."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A method of the client, `webhooks.all`, and how people see what it returns.

    `columns` of a list, by the names of members; `a|b` is the first of them that is there. `must`: the member of an
    answer that has to be true, else the exit code is 1; it is 9 where the member `empty` is true.
    """

    call: str
    columns: str = ""
    must: str = ""
    head: bool = True


def group(about: str, verbs: Mapping[str, Verb]) -> typer.Typer:
    """An application of these verbs."""
    application = typer.Typer(help=about, no_args_is_help=True)
    for name, verb in verbs.items():
        application.command(name)(command_of(verb))
    return application


def command_of(verb: Verb) -> Callable[..., None]:
    """A function that typer can read: its parameters are those of the method, and where to ask and how to print."""
    import homing_client

    *part, name = verb.call.split(".")
    method = getattr(getattr(homing_client, part[0].capitalize() if part else "Homing"), name)
    signature = inspect.signature(method)
    asked = list(signature.parameters.values())[1:]
    endless = str(signature.return_annotation).startswith("Iterator")

    def run(**given: Any) -> None:
        shown = form(given["output"], as_json=given["as_json"])
        with connected(given["url"], given["context"], shown) as homing:
            try:
                value = _called(homing, verb, asked, given)
                found = list(islice(value, given["many"])) if endless else value
            except ValueError as error:
                raise Stop(str(error), Exit.USAGE) from None
        _show(verb, shown, found)

    parameters = [_parameter(one) for one in asked]
    if endless:
        many = Annotated[int, typer.Option("--limit", "-n", min=1, help=HELP["limit"])]
        parameters.append(Parameter("many", Parameter.KEYWORD_ONLY, default=MANY, annotation=many))
    parameters += [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in WHERE.items()
    ]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # where typer looks first
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    told = (inspect.getdoc(method) or "").partition("\n\n")[0].partition(" Raises ")[0]
    for one in asked:
        option = f"--{one.name.replace('_', '-')}"
        if one.kind is Parameter.KEYWORD_ONLY and option in _options_of(one):
            told = told.replace(f"`{one.name}`", option)  # as people type it
    run.__doc__ = told
    return run


def _options_of(one: Parameter) -> tuple[str, ...]:
    return OPTIONS.get(one.name, (f"--{one.name.replace('_', '-')}",))


def _parameter(one: Parameter) -> Parameter:
    """The argument or option that a parameter becomes."""
    kind, is_argument = str(one.annotation), one.kind is not Parameter.KEYWORD_ONLY
    words: dict[str, Any] = {"help": HELP[one.name], "show_default": one.default not in (one.empty, None, False)}
    if one.name in COMPLETED:
        words["autocompletion"] = COMPLETED[one.name]
    if kind in JSON:
        words["metavar"] = "JSON"
    typed: Any = bool if kind.startswith("bool") else int if kind.startswith("int") else str
    typed = list[str] if kind in WORDS else typed
    if one.default is None:
        typed |= None
    names = () if is_argument else _options_of(one)
    info = typer.Argument(**words) if is_argument else typer.Option(*names, **words)
    name = RENAMED.get(one.name, one.name)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=one.default, annotation=Annotated[typed, info])


def _called(homing: Homing, verb: Verb, asked: Sequence[Parameter], given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    """Return what the method returns; ValueError for what makes no sense to it."""
    arguments, named = [], {}
    for one in asked:
        value = given[RENAMED.get(one.name, one.name)]
        if str(one.annotation) in JSON:
            value = read_json(one.name.upper(), value)
        if one.kind is Parameter.KEYWORD_ONLY:
            named[one.name] = value
        else:
            arguments.append(value)
    return attrgetter(verb.call)(homing)(*arguments, **named)


def read_json(name: str, text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON that was typed, or is on standard input; Stop."""
    try:
        return parse_json(read_all() if text == "-" else text)
    except ValueError as error:
        raise Stop(f"{name}: not JSON: {error}", Exit.USAGE) from None


def _show(verb: Verb, shown: Form, value: Any) -> None:  # noqa: ANN401 - what a method returns
    from homing_client import Entry, Tagged

    tag = value.tag if isinstance(value, Entry | Tagged) else None
    value = value.value if isinstance(value, Entry) else value
    if verb.columns and isinstance(value, list):
        columns = verb.columns.split()
        heads = [one.partition("|")[0] for one in columns]
        table(shown, value, lambda one: [cell(one, name) for name in columns], heads, head=verb.head)
    elif shown is not Form.HUMAN:
        if value is not None:
            out.line(written(value))
    elif isinstance(value, dict):
        _members(value)
    elif value is None:
        tell(err, "Done.")
    else:
        tell(out, cell({"": value}, ""))
    if tag is not None:
        tell(err, f"tag {tag}")
    if verb.must and not (isinstance(value, dict) and value.get(verb.must)):
        raise Stop("", Exit.FAILED)
    if verb.must and value.get("empty"):
        raise Stop("", Exit.EMPTY)


def _members(one: Mapping[str, Any]) -> None:
    """A line for each member that says something; objects in a list have a line each."""
    told = {name: value for name, value in one.items() if value not in (None, "", [], {})}
    width = max(map(len, told), default=0)
    for name, value in told.items():
        if isinstance(value, list) and isinstance(value[0], dict):
            tell(out, name)
            for each in value:
                tell(out, f"  {_in_words(each)}")
        else:
            tell(out, f"{name:<{width}}  {cell(one, name)}")


def cell(one: Mapping[str, Any], column: str) -> str:
    """A member for people: JSON only where it is what a device or a caller said."""
    name = next((name for name in column.split("|") if one.get(name) is not None), None)
    if name is None:
        return ""
    value = one[name]
    return json.dumps(value, ensure_ascii=False) if name in _SAID and not isinstance(value, str) else _in_words(value)


def _in_words(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))
    if isinstance(value, dict):
        return " ".join(f"{name}={cell(value, name)}" for name in value if value[name] not in (None, "", [], {}))
    return json.dumps(value)


_SAID: Final = {"body", "data", "params"}
"""Members whose JSON is what somebody said, and is shown as they said it."""
