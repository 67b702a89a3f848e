"""MQTT topic names, topic filters and templates of topic names (MQTT 5, section 4.7).

One rule is ours and stricter than MQTT: no empty levels (`a//b`, `/a`, `a/`). They come from a value that was
left out, and a filter that has one never matches the topic that was meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from app.core.characters import named
from app.core.errors import ConfigurationError, InvalidInputError
from app.core.identifiers import CANARY

MAX_TOPIC_BYTES: Final = 65_535
"""MQTT 5, section 4.7.3: a UTF-8 encoded string has a length of two bytes."""

PLACEHOLDERS: Final = frozenset({"device_id", "id", "method"})
"""The placeholders that a template may have unless its owner says otherwise."""

_SHARE: Final = "$share"

# MQTT 5, section 1.5.4: NUL and surrogates must not, control characters and noncharacters should not be used.
_FORBIDDEN: Final = "\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufdd0-\\ufdef" + "".join(
    f"\\U{plane:04x}fffe\\U{plane:04x}ffff" for plane in range(17)
)
_FORBIDDEN_CHARACTER: Final = re.compile(f"[{_FORBIDDEN}]")
_NOT_IN_A_VALUE: Final = re.compile(f"[/+#${_FORBIDDEN}]")
_PLAIN_VALUE: Final = re.compile("[A-Za-z0-9_.:-]+")
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")


def validate_topic(topic: str) -> str:
    """The topic name itself when a message may be published to it; raises InvalidInputError otherwise."""
    _check_text("topic", topic)
    wildcard = next((char for char in topic if char in "+#"), None)
    if wildcard is not None:
        raise InvalidInputError(
            "topic", f"{named(wildcard)} at index {topic.index(wildcard)} is a wildcard, allowed in topic filters only"
        )
    levels = topic.split("/")
    if levels[0] == _SHARE:
        raise InvalidInputError("topic", "starts with $share, which is for subscriptions only (MQTT 5, section 4.8.2)")
    _check_no_empty_level("topic", levels)
    return topic


def validate_filter(topic_filter: str) -> str:
    """The topic filter itself, shared (`$share/{group}/{filter}`) or not; raises InvalidInputError when it is wrong."""
    _check_text("topic_filter", topic_filter)
    group, inner = parse_share(topic_filter)
    levels = inner.split("/")
    if group is not None and levels[0] == _SHARE:
        raise InvalidInputError("topic_filter", "has $share twice")
    _check_no_empty_level("topic_filter", levels)
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            raise InvalidInputError(
                "topic_filter", f"level {position + 1}: '#' must be the whole of the last level [MQTT-4.7.1-1]"
            )
        if "+" in level and level != "+":
            raise InvalidInputError("topic_filter", f"level {position + 1}: '+' must be a whole level [MQTT-4.7.1-2]")
    return topic_filter


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a subscription to the filter gets messages of the topic; of a shared filter, the part after the group.

    Both are taken as valid. `#` matches the parent level too (section 4.7.1.2), and a wildcard in the first level
    does not match a topic that begins with `$` [MQTT-4.7.2-1].
    """
    if topic_filter.startswith("$share/"):
        topic_filter = topic_filter.partition("/")[2].partition("/")[2]
    if topic_filter == topic:
        return True
    if topic.startswith("$") and topic_filter.startswith(("+", "#")):
        return False
    wanted = topic_filter.split("/")
    levels = topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]
    if len(wanted) != len(levels):
        return False
    for want, level in zip(wanted, levels, strict=True):  # noqa: SIM110 - a generator takes twice as long
        if want not in (level, "+"):
            return False
    return True


def parse_share(topic_filter: str) -> tuple[str | None, str]:
    """(group, inner filter) of a shared subscription, (None, the filter) of another.

    Raises InvalidInputError when it starts with `$share` but has no group or no filter.
    """
    first, _, rest = topic_filter.partition("/")
    if first != _SHARE:
        return None, topic_filter
    group, _, inner = rest.partition("/")
    _check_group("topic_filter", group)
    if not inner:
        raise InvalidInputError("topic_filter", "has no filter after the group: allowed is $share/{group}/{filter}")
    return group, inner


def shown_filter(topic_filter: str) -> str:
    """The filter for people and logs: without the name of the group, which is a secret."""
    if not topic_filter.startswith(f"{_SHARE}/"):
        return topic_filter
    return f"{_SHARE}/…/{topic_filter.split('/', 2)[2]}"


def share(group: str, topic_filter: str) -> str:
    """The shared subscription `$share/{group}/{filter}` (section 4.8.2); raises InvalidInputError on a wrong part."""
    _check_group("group", group)
    return validate_filter(f"{_SHARE}/{group}/{topic_filter}")


def canary_topics(filters: Iterable[str]) -> list[str]:
    """A topic for each of these topic filters, not shared, to which nodes publish and no device does."""
    return [one.replace("+", CANARY) for one in filters]


class TopicTemplate:
    """A topic name with placeholders for whole levels: `thing/product/{device_id}/services`.

    Raises ConfigurationError when the template is wrong. `parse` and `render` run once per message.
    """

    __slots__ = ("_fields", "_filter", "_format", "_level_count", "_literals", "names", "text")

    def __init__(self, text: str, *, allowed: Collection[str] = PLACEHOLDERS) -> None:
        self.text: Final = text
        """The template as it was written."""
        levels = text.split("/")
        fields: list[tuple[int, str]] = []
        for position, level in enumerate(levels):
            name = _placeholder_name(text, level, allowed)
            if name is None:
                continue
            if any(name == other for _, other in fields):
                raise ConfigurationError(f"topic template {text!a}: {{{name}}} stands there twice; once is allowed")
            fields.append((position, name))
        self._fields = tuple(fields)
        self.names: Final = tuple(name for _, name in fields)
        """The placeholders, from left to right."""
        placed = {position for position, _ in fields}
        self._literals = tuple((i, level) for i, level in enumerate(levels) if i not in placed)
        self._level_count = len(levels)
        try:
            # a stand-in of the same length keeps the index in the error right
            validate_topic("/".join("x" * len(level) if i in placed else level for i, level in enumerate(levels)))
        except InvalidInputError as error:
            raise ConfigurationError(f"topic template {text!a}: {error.reason}") from None
        self._filter = "/".join("+" if i in placed else level for i, level in enumerate(levels))
        self._format = "/".join("%s" if i in placed else level.replace("%", "%%") for i, level in enumerate(levels))

    def render(self, **values: str) -> str:
        """The topic name with these values; further values are ignored.

        The values were validated as identifiers before; one that would still change the structure of the topic
        raises InvalidInputError, as does a missing one.
        """
        try:
            filling = tuple([values[name] for name in self.names])
        except KeyError as error:
            raise InvalidInputError(str(error.args[0]), f"is missing: topic {self.text} needs it") from None
        for name, value in zip(self.names, filling, strict=True):
            if not _PLAIN_VALUE.fullmatch(value):  # the common case needs no search for what is forbidden
                _check_value(name, value)
        topic = self._format % filling
        if len(topic) * 4 > MAX_TOPIC_BYTES:  # it may be too long: count the bytes
            validate_topic(topic)
        return topic

    def filter(self) -> str:
        """The topic filter that covers every topic of this template: `thing/product/+/services`."""
        return self._filter

    def parse(self, topic: str) -> dict[str, str] | None:
        """The values of the placeholders in the topic, or None when it is no topic of this template.

        The values are what the sender wrote: they are not empty and are one level each, no more is checked.
        """
        levels = topic.split("/")
        if len(levels) != self._level_count:
            return None
        for position, literal in self._literals:
            if levels[position] != literal:
                return None
        values = {}
        for position, name in self._fields:
            value = levels[position]
            if not value:
                return None
            values[name] = value
        return values

    def overlaps(self, other: TopicTemplate) -> bool:
        """Whether there are topics of both templates."""
        literals = dict(self._literals)
        return self._level_count == other._level_count and all(
            literals.get(position, level) == level for position, level in other._literals
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicTemplate) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"TopicTemplate({self.text!r})"


def _placeholder_name(text: str, level: str, allowed: Collection[str]) -> str | None:
    """The name when the level is a placeholder, None when it is literal."""
    if "{" not in level and "}" not in level:
        return None
    found = _PLACEHOLDER.fullmatch(level)
    if found is None:
        raise ConfigurationError(
            f"topic template {text!a}: level {level!a} is not a placeholder: a placeholder is a whole level, "
            "{name} in lower-case letters"
        )
    name = found[1]
    if name not in allowed:
        known = ", ".join(f"{{{one}}}" for one in sorted(allowed)) or "no placeholders"
        raise ConfigurationError(f"topic template {text!a}: {{{name}}} is unknown; allowed: {known}")
    return name


def _check_value(name: str, value: str) -> None:
    if not value:
        raise InvalidInputError(name, "is empty, which would make an empty level in the topic")
    found = _NOT_IN_A_VALUE.search(value)
    if found is not None:
        raise InvalidInputError(
            name, f"{named(found[0])} at index {found.start()} is not allowed in a level of a topic"
        )


def _check_text(field: str, text: str) -> None:
    if not text:
        raise InvalidInputError(field, "is empty: at least one character is needed [MQTT-4.7.3-1]")
    found = _FORBIDDEN_CHARACTER.search(text)
    if found is not None:
        raise InvalidInputError(
            field,
            f"{named(found[0])} at index {found.start()} is not allowed: "
            "no NUL, control characters, surrogates or noncharacters (MQTT 5, section 1.5.4)",
        )
    size = len(text.encode())
    if size > MAX_TOPIC_BYTES:
        raise InvalidInputError(field, f"has {size} bytes in UTF-8; allowed are {MAX_TOPIC_BYTES} [MQTT-4.7.3-3]")


def _check_no_empty_level(field: str, levels: list[str]) -> None:
    if "" in levels:
        raise InvalidInputError(
            field, f"level {levels.index('') + 1} is empty; Homing allows no empty levels, although MQTT does"
        )


def _check_group(field: str, group: str) -> None:
    if not group:
        raise InvalidInputError(field, "the group of a shared subscription is empty")
    found = _NOT_IN_A_VALUE.search(group.replace("$", ""))  # `$` is allowed in a group [MQTT-4.8.2-2]
    if found is not None:
        raise InvalidInputError(field, f"{named(found[0])} is not allowed in the group of a shared subscription")
