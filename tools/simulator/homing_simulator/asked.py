"""Reads a command as a device does: the payload and topic of a profile's request the other way round. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from app.core.errors import UndecodableMessageError
from app.core.identifiers import id_of_name
from app.core.messages import ReceivedMessage
from app.core.payload import MISSING, JsonValue, Missing, lookup
from app.core.profiles.profile import DeviceProfile, RequestSpec
from app.core.profiles.templates import UUID_BYTES, names_in, scalar_text, uuid_text

_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+(?:\.[A-Za-z0-9_.-]+)?)\}")


class Known:
    """The facts that a device has learnt of a command, by name, such as `id`, `method` or a part of its own id."""

    def __init__(self, params: JsonValue | Missing = MISSING) -> None:
        self.params = params
        self._facts: dict[str, JsonValue] = {}

    def learn(self, name: str, value: JsonValue) -> bool:
        """False when it was known to be something else."""
        if name == "params":
            fresh, self.params = self.params in (MISSING, value), value
            return fresh
        if name.startswith("params."):
            return value is None or self._learn_param(name.split(".")[1:], value)
        return self._facts.setdefault(name, value) == value

    def _learn_param(self, way: list[str], value: JsonValue) -> bool:
        if self.params is MISSING:
            self.params = {}
        place = self.params
        for step in way[:-1]:
            if not isinstance(place, dict):
                return False
            place = place.setdefault(step, {})
        return isinstance(place, dict) and place.setdefault(way[-1], value) == value

    def fact(self, name: str) -> JsonValue | Missing:
        """MISSING when the request does not say it."""
        if name == "params":
            return self.params
        if name.startswith("params."):
            return MISSING if self.params is MISSING else lookup(self.params, tuple(name.split(".")[1:]))
        return self._facts.get(name, MISSING)

    def text(self, name: str) -> str | None:
        """As a level of a topic or the value of a correlation has it; None when there is none."""
        return scalar_text(self.fact(name))

    def filled(self, template: str) -> str | None:
        """The text of a template of a value; None when the request does not say all of it."""
        if any(self.text(name) is None for name in names_in(template)):
            return None
        return _PLACEHOLDER.sub(lambda found: self.text(found[1]) or "", template)


def asked(profile: DeviceProfile, message: ReceivedMessage) -> Iterator[tuple[RequestSpec, Known]]:
    """The requests of the profile that the message can be, with what it says as each of them.

    Those that any params fit come last.
    """
    for request in sorted(profile.requests, key=lambda one: one.merge_params):
        values = request.topic.parse(message.topic)
        if values is None:
            continue
        try:
            document = request.decode(message.payload)
        except UndecodableMessageError:
            continue
        known = Known()
        if all(known.learn(name, value) for name, value in values.items()) and _reads(request, document, known):
            _of_properties(request, message, known)
            yield request, known


def _reads(request: RequestSpec, document: JsonValue, known: Known) -> bool:
    if not request.merge_params:
        return _same(request.payload, document, known, request)
    own = request.payload if isinstance(request.payload, dict) else {}
    if not isinstance(document, dict):
        return False
    if not _same(own, {name: value for name, value in document.items() if name in own}, known, request):
        return False
    return known.learn("params", {name: value for name, value in document.items() if name not in own})


def _of_properties(request: RequestSpec, message: ReceivedMessage, known: Known) -> None:
    data = message.correlation_data
    if not request.properties or data is None:
        return
    if not request.uuid:
        known.learn("id", data.decode("ascii", "replace"))
    elif len(data) == UUID_BYTES:
        known.learn("id_uuid", uuid_text(data))


def _same(template: JsonValue, value: JsonValue | Missing, known: Known, request: RequestSpec) -> bool:
    """True if the value is what the template becomes; what its placeholders stand for is learnt."""
    match template:
        case str():
            return _same_text(template, value, known, request)
        case dict():
            if not isinstance(value, dict) or not value.keys() <= template.keys() | _traced(request):
                return False
            return all(_same(one, value.get(name, MISSING), known, request) for name, one in template.items())
        case list():
            if not isinstance(value, list) or len(value) > len(template):
                return False
            padded = [*value, *[MISSING] * (len(template) - len(value))]
            return all(_same(one, other, known, request) for one, other in zip(template, padded, strict=True))
        case _:
            return value == template and isinstance(value, bool) == isinstance(template, bool)


def _same_text(template: str, value: JsonValue | Missing, known: Known, request: RequestSpec) -> bool:
    if (whole := _PLACEHOLDER.fullmatch(template)) is not None:
        if isinstance(value, Missing):
            return request.omit_absent
        return known.learn(whole[1], value)
    if not isinstance(value, str):
        return False
    words = [re.escape(word) for word in _PLACEHOLDER.split(template)[::2]]
    found = re.fullmatch("(.*?)".join(words), value, re.DOTALL)
    names = _PLACEHOLDER.findall(template)
    return found is not None and all(known.learn(name, text) for name, text in zip(names, found.groups(), strict=True))


def _traced(request: RequestSpec) -> frozenset[str]:
    """The member that only traced commands have."""
    last = request.traceparent[-1] if request.traceparent else None
    return frozenset({last} if isinstance(last, str) else ())


def device_of(profile: DeviceProfile, known: Known) -> str | None:
    """The id of the device that was asked; None when the request does not say."""
    if (said := known.text("device_id")) is not None:
        return id_of_name(said)
    if profile.device is not None:
        parts: Mapping[str, str | None] = {name: known.text(name) for name in profile.device.names}
        if all(parts.values()):
            return profile.device.rejoined({name: id_of_name(text or "") for name, text in parts.items()})
    fixed = {one.device.fixed for one in profile.responses if one.device is not None}
    return next(iter(fixed)) if len(fixed) == 1 else None


INSTANTS: Final = {"deadline_ms": 1000, "deadline_s": 1}
"""The members that say when a command is over, each with how many of its units are a second."""
