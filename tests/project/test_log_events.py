"""Names and fields of log events are an API: docs/operations/logs.md lists them all."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}

ENTRY = re.compile(
    r"(?P<name>[a-z_]+)` \((?P<levels>[a-z, ]+)(?:; (?P<fields>[^)]+))?\): (?P<meaning>.+) \*To do:\* (?P<advice>.+)"
)
"""An event in docs/operations/logs.md: what it means, and what to do."""


@dataclass
class Event:
    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)


def is_log(node: ast.expr) -> bool:
    """`_log`, `self._log`, `self._logger`, `structlog.get_logger()`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("_log", "_logger")
        case ast.Call(func=ast.Attribute(attr="get_logger")):
            return True
    return False


def calls(source: str) -> Iterator[tuple[str, ast.Call]]:
    if "log" not in source and ".drop(" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, node


def event_name(call: ast.Call, place: int) -> str:
    assert isinstance(call.args[place], ast.Constant), f"line {call.lineno}: the name of an event is a literal"
    name = ast.literal_eval(call.args[place])
    assert re.fullmatch("[a-z][a-z_]+[a-z]", name), f"line {call.lineno}: {name!r} is no name of an event"
    return str(name)


def fields_of(call: ast.Call) -> set[str]:
    return {one.arg for one in call.keywords if one.arg is not None} - {"exc_info"}


def events_of(sources: Iterator[str]) -> dict[str, Event]:
    events: dict[str, Event] = defaultdict(Event)
    dropped: set[str] = set()
    for source in sources:
        for method, call in calls(source):
            assert isinstance(call.func, ast.Attribute)
            if method == "drop":
                dropped |= fields_of(call)
            elif is_log(call.func.value) and method in (*LEVELS, "log"):
                event = events[event_name(call, 1 if method == "log" else 0)]
                # What is passed on with its own level is at least a warning: bridge_logging asks for no less.
                event.levels |= {"warning", "error"} if method == "log" else {LEVELS[method]}
                event.fields |= fields_of(call)
    events["message_dropped"].fields |= dropped  # BurstLog hands these on
    return dict(events)


def events_in_code() -> dict[str, Event]:
    return events_of(path.read_text(encoding="utf-8") for path in sorted((ROOT / "app").rglob("*.py")))


def events_in_docs() -> dict[str, Event]:
    text = (ROOT / "docs" / "operations" / "logs.md").read_text(encoding="utf-8")
    listed = text.split("\n- `")[1:]
    assert all(one.count("*To do:*") == 1 for one in listed)
    found = [ENTRY.fullmatch(" ".join(one.partition("\n\n")[0].split())) for one in listed]
    entries = [one for one in found if one is not None]
    assert len(entries) == len(listed), [text for text, one in zip(listed, found, strict=True) if one is None]
    names = [one["name"] for one in entries]
    assert names == sorted(set(names))
    return {
        one["name"]: Event(set(one["levels"].split(", ")), set(re.findall("`([^`]+)`", one["fields"] or "")))
        for one in entries
    }


def test_the_documented_events_are_those_in_the_code() -> None:
    assert events_in_docs() == events_in_code()


def test_every_way_to_log_is_seen() -> None:
    source = """
_log.info("one_thing", a=1)
self._log.exception("two_things", b=2, exc_info=True)
structlog.get_logger().log(level, "three_things", c=3)
drops.drop("reason", device_id=1)
"""
    assert events_of(iter([source])) == {
        "one_thing": Event({"info"}, {"a"}),
        "two_things": Event({"error"}, {"b"}),
        "three_things": Event({"warning", "error"}, {"c"}),
        "message_dropped": Event(set(), {"device_id"}),
    }
