"""A command that a profile can be tried with: an id of the form that it has, and params that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.core.payload import JsonValue
from app.core.profiles.echoes import Comparison
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.templates import names_in

ANY_ID: Final = "device-1"
_TEXT: Final = "1"
_DEEPEST: Final = 8


def example_device(profile: DeviceProfile) -> str:
    """An id of one of its devices."""
    fixed = {spec.device.fixed for spec in profile.responses if spec.device is not None} - {None}
    if fixed:
        return min(str(one) for one in fixed)
    if profile.device is None:
        return ANY_ID
    return profile.device.filled({name: f"{name.replace('_', '-')}-1" for name in profile.device.names})


def example_method(profile: DeviceProfile) -> str:
    """The first method that it names."""
    in_requests = (one for request in profile.requests for one in sorted(request.methods or ()))
    in_responses = (one for spec in profile.responses for one in sorted(spec.methods or ()))
    return next((one for found in (in_requests, profile.catalogue.methods, in_responses) for one in found), "method")


def example_params(profile: DeviceProfile, method: str) -> JsonValue:
    """Params with all that their schema requires, and all that its request and answers take from them."""
    known = profile.catalogue.methods.get(method)
    params = _of_schema(dict(known.params) if known is not None and known.params is not None else None)
    if not isinstance(params, dict):
        return params
    for name, value in _taken(profile, method):
        _put(params, name.split(".")[1:], value)
    return params


def _taken(profile: DeviceProfile, method: str) -> Iterator[tuple[str, JsonValue]]:
    """The placeholders of params that count, each with what is likely to do."""
    request = next((one for one in profile.requests if one.methods is None or method in one.methods), None)
    if request is not None:
        yield from ((name, _TEXT) for name in (*request.topic.names, *sorted(names_in(request.payload))) if "." in name)
    for spec in profile.responses:
        if not spec.answers(method):
            continue
        yield from ((name, _TEXT) for name in sorted(names_in(list(spec.value))) if "." in name)
        for wish in (spec.echo.wishes if spec.echo is not None else ())[:1]:
            number = wish.tolerance or wish.kind is Comparison.NUMBER
            value: JsonValue = 1 if number else True if wish.kind is Comparison.BOOLEAN else "ON"
            yield from ((name, value) for name in sorted(names_in(wish.equals)) if "." in name)


def _put(params: dict[str, JsonValue], way: list[str], value: JsonValue) -> None:
    place = params
    for step in way[:-1]:
        inner = place.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        place = inner
    place.setdefault(way[-1], value)


def _of_schema(schema: JsonValue | None, depth: int = 0) -> JsonValue:
    """Return what a schema requires, and nothing else; for what it says in other ways, any value."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {} if depth == 0 else _TEXT
    if isinstance(allowed := schema.get("enum", [schema.get("const")]), list) and allowed != [None]:
        return allowed[0]
    kind = schema.get("type")
    if kind == "object" or depth == 0 or "required" in schema or "properties" in schema:
        return _object(schema, depth)
    simple: dict[object, JsonValue] = {
        "integer": schema.get("minimum", 1),
        "number": schema.get("minimum", 1),
        "boolean": True,
        "array": [_of_schema(schema.get("items"), depth + 1)] * _count(schema, "minItems"),
    }
    return simple.get(kind, _TEXT * max(1, _count(schema, "minLength")))


def _object(schema: dict[str, JsonValue], depth: int) -> dict[str, JsonValue]:
    inner, required = schema.get("properties"), schema.get("required")
    members = inner if isinstance(inner, dict) else {}
    names = [one for one in required if isinstance(one, str)] if isinstance(required, list) else []
    names += [f"name{number}" for number in range(len(names), _count(schema, "minProperties"))]
    return {name: _of_schema(members.get(name), depth + 1) for name in names}


def _count(schema: dict[str, JsonValue], key: str) -> int:
    found = schema.get(key, 0)
    return min(found, _DEEPEST) if isinstance(found, int) else 0
