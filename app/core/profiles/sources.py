"""The places where a message says which device it comes from, and what it has in common with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from app.core.errors import InvalidInputError, UndecodableMessageError
from app.core.identifiers import id_of_name
from app.core.messages import ReceivedMessage
from app.core.paths import Path, first
from app.core.payload import JsonValue
from app.core.profiles.templates import UUID_BYTES, scalar_text, uuid_text
from app.core.topics import TopicTemplate

BETWEEN: Final = "\x1f"
"""Stands between the parts of a correlation that has several."""

PAYLOAD: Final = "payload"
"""The member of a wide document that has the payload."""

Decode = Callable[[bytes], JsonValue]
"""Reads a payload; raises UndecodableMessageError, and nothing else."""

AsText = Callable[[object], str | None]
"""Reads a value that stands at a path as text; None when it is none."""


def wide_document(message: ReceivedMessage, payload: JsonValue, values: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return what paths lead into that are not about the payload alone; `values` are those of the topic's placeholders.

    Of user properties of one name the first counts.
    """
    return {PAYLOAD: payload, "topic": dict(values), "user": dict(reversed(message.user_properties))}


@dataclass(frozen=True, slots=True)
class CorrelationSource:
    """The place of the correlation: MQTT 5 correlation data, a placeholder of the topic, or a path in the message.

    `parts` are several of those together. `keys` leads to an object each of whose keys may be the correlation. With
    `uuid` the correlation data are the 16 bytes of one, and any others are none.
    """

    property: bool = False
    topic_level: str | None = None
    path: Path | None = None
    keys: Path | None = None
    parts: tuple[CorrelationSource, ...] = ()
    uuid: bool = False

    def read(
        self, message: ReceivedMessage, values: Mapping[str, str], document: JsonValue, as_text: AsText = scalar_text
    ) -> str | None:
        """Return what stands there as text, or None where there is nothing."""
        if self.parts:
            parts = [part.read(message, values, document, as_text) for part in self.parts]
            return BETWEEN.join(part or "" for part in parts) if all(parts) else None
        if self.property:
            return self._data(message.correlation_data)
        if self.topic_level is not None:
            return values.get(self.topic_level)
        return as_text(first(document, self.path or ()))

    def _data(self, data: bytes | None) -> str | None:
        if self.uuid:
            return uuid_text(data) if data is not None and len(data) == UUID_BYTES else None
        return data.decode("utf-8", "replace") if data is not None else None


@dataclass(frozen=True, slots=True)
class DeviceSource:
    """The device that a message comes from, where no level of its topic is the device id.

    A fixed one, a path in the message, or `form`: the id is put together from placeholders of the topic.
    """

    fixed: str | None = None
    path: Path | None = None
    form: TopicTemplate | None = None

    def read(self, values: Mapping[str, str], document: JsonValue) -> str:
        """The device id, as the message has it, escaped; UndecodableMessageError when it has none."""
        if self.fixed is not None:
            return self.fixed
        if self.form is not None:
            device_id = id_of_parts(self.form, values)
            if device_id is None:
                raise UndecodableMessageError("no_device")
            return device_id
        found = first(document, self.path or ())
        if not isinstance(found, str):
            raise UndecodableMessageError("no_device")
        return id_of_name(found)


def id_of_parts(form: TopicTemplate, values: Mapping[str, str]) -> str | None:
    """The id that is put together from these parts; None where it would be that of a device with other parts."""
    parts = {name: id_of_name(values[name]) for name in form.names}
    try:
        device_id = form.filled(parts)
    except InvalidInputError:
        return None
    return device_id if form.parse(device_id) == parts else None


def device_of(source: DeviceSource | None, values: Mapping[str, str], document: JsonValue) -> str:
    """The id of the device that a message comes from; without a source its topic says so. As `DeviceSource.read`."""
    return id_of_name(values["device_id"]) if source is None else source.read(values, document)
