"""The verbs of `homing queue` that write declarations: routes one by one, and a document of all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.output import Form, Stop, err, out, tell, written
from app.core.durations import parse_duration
from app.runtime.exits import Exit

if TYPE_CHECKING:
    from homing_client import Homing, Tagged

TopicOption = Annotated[list[str] | None, typer.Option("--topic", help="A topic filter of events. Repeatable.")]
KeyOption = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="EXCHANGE:KEY", help="Messages of an exchange, such as ops:low.*. Repeatable."),
]
DatabaseOption = Annotated[str, typer.Option(help="The database of these events.")]
IfMatchOption = Annotated[
    str | None, typer.Option(help="Write only if the current tag is this one; show and declare print it.")
]
SHOWN_ONLY: Final = ("name", "tenant", "created_at", "counts")
"""Members of a queue that are shown, and not declared."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "loan": "30s",
    "retry": ["1s", "10s", "1m"],
    "max_deliveries": 5,
    "order": "none",
    "ttl": None,
    "delay": "0ms",
    "single": False,
    "ends_after": None,
    "labels": {},
}
"""The values of members that a document does not name."""
_NO_NAMES: Final = frozenset({"", ".", ".."})
DURATIONS: Final = frozenset({"loan", "ttl", "delay", "ends_after"})


def routes_of(topics: Sequence[str] | None, keys: Sequence[str] | None, database: str) -> list[dict[str, str]]:
    """The routes that were typed."""
    return [{"database": database, "topic": one} for one in topics or ()] + [*map(_key_route, keys or ())]


def _key_route(text: str) -> dict[str, str]:
    exchange, _, key = text.partition(":")
    return {"exchange": exchange, "key": key or "#"}


def show(queue: Tagged, shown: Form, sentence: str) -> None:
    """Print a queue as it stands now."""
    if shown is not Form.HUMAN:
        out.line(written(dict(queue)))
    else:
        tell(out, sentence)
    tell(err, f"tag {queue.tag}")


def checked(name: str) -> str:
    """The name of a queue that was typed; Stop for one that no path can have. A node says what else is wrong."""
    if name in _NO_NAMES or not name.isprintable():  # bytes that are no UTF-8 are not, either
        raise Stop(f"QUEUE: {name!a} is no name of a queue", Exit.USAGE)
    return name


def _rerouting(name: str, does: str, method_of: Callable[[Homing], Callable[..., Tagged]]) -> Callable[..., None]:
    """The verb of this name, which gives the routes that were typed to a method of the client."""

    def reroute(
        queue: Annotated[
            str, typer.Argument(metavar="QUEUE", help="The name of the queue.", show_default=False, callback=checked)
        ],
        *,
        topic: TopicOption = None,
        key: KeyOption = None,
        database: DatabaseOption = "events",
        if_match: IfMatchOption = None,
        url: Url = None,
        context: ContextName = None,
        output: Output = Form.HUMAN,
        as_json: AsJson = False,
    ) -> None:
        shown = form(output, as_json=as_json)
        with connected(url, context, shown) as homing:
            changed = method_of(homing)(queue, routes_of(topic, key, database), if_match=if_match)
        show(changed, shown, f"queue {queue} has {len(changed.get('routes', ()))} routes")

    reroute.__name__ = name
    reroute.__doc__ = f"{does}\n\nExit code: 0 done, 2 wrong input, 6 no node there, 8 not allowed."
    return reroute


bind: Final = _rerouting(
    "bind",
    "Add routes to a queue. Routes that it has already are left as they are.",
    lambda homing: homing.queues.bind,
)
unbind: Final = _rerouting(
    "unbind",
    "Remove routes from a queue. Events that it has already looked at are still delivered.",
    lambda homing: homing.queues.unbind,
)


def export(*, url: Url = None, context: ContextName = None) -> None:
    """Print all exchanges and queues as one document, which apply takes.

    Exit code: 0 done, 6 no node there, 8 not allowed.
    """
    with connected(url, context) as homing:
        exchanges, queues = homing.exchanges.all(), homing.queues.all()
    document = {
        "exchanges": [{"name": one["name"], "kind": one["kind"]} for one in exchanges],
        "queues": [{"name": one["name"], **_declared(one)} for one in queues],
    }
    out.line(json.dumps(document, indent=2, ensure_ascii=False))


def apply(
    document: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help='A document in the format of export: {"exchanges": […], "queues": […]}; - reads standard input.',
        ),
    ],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes without making them.")] = False,
    url: Url = None,
    context: ContextName = None,
) -> None:
    """Declare all exchanges and queues of a document, and change those that are declared otherwise. It deletes none.

    The order of a queue and the kind of an exchange cannot be changed. If the document asks for that, nothing changes.

    Exit code: 0 done, 2 wrong input, 6 no node there, 8 not allowed.
    """
    told = _read(document)
    with connected(url, context) as homing:
        changes = [*_exchanges(homing, told["exchanges"]), *_queues(homing, told["queues"])]
        fixed = [f"{one.named}: {one.fixed} cannot be changed" for one in changes if one.fixed]
        if fixed:
            raise Stop(f"{'; '.join(fixed)}; delete it and declare it again", Exit.USAGE)
        for one in changes:
            if not dry_run:
                _make(homing, one)
            tell(out, f"{one.named} {one.in_words(dry_run=dry_run)}")


@dataclass(frozen=True, slots=True)
class _Difference:
    """A declaration of a document beside the one that is there; `fields` are those that differ."""

    kind: str
    name: str
    wanted: Mapping[str, Any]
    there: bool
    fields: tuple[str, ...] = ()
    fixed: str = ""
    """The field that differs and cannot be changed; "" if there is none."""

    @property
    def named(self) -> str:
        return f"{self.kind} {self.name}"

    def in_words(self, *, dry_run: bool) -> str:
        """The sentence that says what becomes of it."""
        would = "would be " if dry_run else ""
        if not self.there:
            return f"{would}created"
        return f"{would}changed: {', '.join(self.fields)}" if self.fields else "as it was"


def _exchanges(homing: Homing, wanted: Sequence[Mapping[str, Any]]) -> list[_Difference]:
    if not wanted:
        return []
    known = {one["name"]: one for one in homing.exchanges.all()}
    return [
        _Difference(
            "exchange",
            one["name"],
            one,
            one["name"] in known,
            fixed="kind" if one["name"] in known and known[one["name"]]["kind"] != one.get("kind", "topic") else "",
        )
        for one in wanted
    ]


def _queues(homing: Homing, wanted: Sequence[Mapping[str, Any]]) -> list[_Difference]:
    known = {one["name"]: one for one in homing.queues.all()}
    found = []
    for one in wanted:
        name, declared = one["name"], _declared(one)
        fields = _differences(declared, _declared(known[name])) if name in known else ()
        fixed = "order" if "order" in fields else ""
        found.append(_Difference("queue", name, declared, name in known, fields, fixed))
    return found


def _make(homing: Homing, one: _Difference) -> None:
    if one.kind == "exchange":
        if not one.there:
            homing.exchanges.declare(one.name, str(one.wanted.get("kind", "topic")))
    elif not one.there:
        homing.queues.declare(one.name, one.wanted)
    elif one.fields:
        known = homing.queues.get(one.name)
        homing.queues.declare(one.name, one.wanted, if_match=known.tag)


def _declared(queue: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in queue.items() if name not in SHOWN_ONLY}


def _differences(wanted: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the members that differ. A queue that is there does not begin anew, whatever `start` says."""
    names = dict.fromkeys(one for one in (*DEFAULTS, *wanted, *known) if one != "start")
    return tuple(one for one in sorted(names) if _comparable(one, wanted) != _comparable(one, known))


def _comparable(name: str, queue: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
    value = queue.get(name, DEFAULTS.get(name))
    if name == "routes" and isinstance(value, list):
        routes = [{"key": "#", **one} if isinstance(one, dict) and "exchange" in one else one for one in value]
        return sorted({json.dumps(one, sort_keys=True) for one in routes})
    if name in DURATIONS:
        return _duration(value)
    return [*map(_duration, value)] if name == "retry" and isinstance(value, list) else value


def _duration(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The duration; what is none stays as it is, and the node says what is wrong with it."""
    try:
        return parse_duration(value) if isinstance(value, str) else value
    except (ValueError, OverflowError):
        return value


def _read(document: str) -> dict[str, list[dict[str, Any]]]:
    """The document as it was typed, in a file, or on standard input; Stop."""
    from app.cli.verbs import read_json

    text = document
    if document != "-" and not document.lstrip().startswith(("{", "[")):
        try:
            text = Path(document).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise Stop(f"FILE: {document[:256]} cannot be read: {reason}", Exit.USAGE) from None
    told = read_json("FILE", text)
    found = {"exchanges": [], "queues": told} if isinstance(told, list) else told
    wrong = not isinstance(found, dict) or not found.keys() <= {"exchanges", "queues"} or not found
    parts = {} if wrong else {name: found.get(name, []) for name in ("exchanges", "queues")}
    for one in parts.values():
        named = isinstance(one, list) and all(isinstance(each, dict) and _is_named(each) for each in one)
        if not named or len({each["name"] for each in one}) < len(one):
            wrong = True
    if wrong:
        raise Stop(
            "FILE: is no document of queues; allowed: "
            '{"exchanges": [{"name": "ops", "kind": "topic"}], "queues": [{"name": "alarms", "routes": […]}]}, '
            "each name once",
            Exit.USAGE,
        )
    return parts


def _is_named(declaration: Mapping[str, Any]) -> bool:
    name = declaration.get("name")
    return isinstance(name, str) and name not in _NO_NAMES and name.isprintable()
