"""MQTT topic names, topic filters and templates of topic names (MQTT 5, section 4.7).

Empty levels (`a//b`, `/a`) are levels, and some families of devices use them. A template has those that its author
wrote: no value that is filled in may be empty.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

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
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+(?:\.[A-Za-z0-9_]+)*)\}")
_REST: Final = re.compile(r"\{([a-z_]+)\*(?: but ([^{}]+))?\}")


def validate_topic(topic: str) -> str:
    """The topic name itself when a message may be published to it; raises InvalidInputError otherwise."""
    _check_text("topic", topic)
    if "+" in topic or "#" in topic:
        wildcard = next(char for char in topic if char in "+#")
        raise InvalidInputError(
            "topic", f"{named(wildcard)} at index {topic.index(wildcard)} is a wildcard, allowed in topic filters only"
        )
    levels = topic.split("/")
    if levels[0] == _SHARE:
        raise InvalidInputError("topic", "starts with $share, which is for subscriptions only (MQTT 5, section 4.8.2)")
    return topic


def validate_filter(topic_filter: str) -> str:
    """The topic filter itself, shared (`$share/{group}/{filter}`) or not; raises InvalidInputError when it is wrong."""
    _check_text("topic_filter", topic_filter)
    group, inner = parse_share(topic_filter)
    levels = inner.split("/")
    if group is not None and levels[0] == _SHARE:
        raise InvalidInputError("topic_filter", "has $share twice")
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            raise InvalidInputError(
                "topic_filter", f"level {position + 1}: '#' must be the whole of the last level [MQTT-4.7.1-1]"
            )
        if "+" in level and level != "+":
            raise InvalidInputError("topic_filter", f"level {position + 1}: '+' must be a whole level [MQTT-4.7.1-2]")
    return topic_filter


def matches(topic_filter: str, topic: str) -> bool:
    """True if a subscription to the filter gets messages of the topic; of a shared filter, the part after the group.

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
    """A topic for each of these topic filters, not shared, to which nodes publish and no device does.

    A filter without wildcards has none: all that is published there is for others.
    """
    return [one.replace("+", CANARY).replace("#", CANARY) for one in filters if "+" in one or "#" in one]


class TopicTemplate:
    """A topic name with placeholders: `thing/product/{device_id}/services`.

    A placeholder is a level or a part of one (`?$rid={id}`), with something between two of them. One may be several
    levels: `{method*}`, or `{device_id* but set, get}`, none of which is one of these words. `allowed` are the names
    that there may be, None for any. Of several in one level the first takes as much as it can, or with `shortest` as
    little. Raises ConfigurationError when the template is wrong. `match`, `parse` and `render` run once per message.
    """

    __slots__ = (
        "_but",
        "_fields",
        "_format",
        "_patterns",
        "_rest",
        "_several",
        "_size",
        "_words",
        "further",
        "lasting",
        "levels",
        "names",
        "text",
    )

    def __init__(self, text: str, *, allowed: Collection[str] | None = PLACEHOLDERS, shortest: bool = False) -> None:
        self.text: Final = text
        """The template as it was written."""
        levels = text.split("/")
        parsed = [_level(text, level, allowed, "(.+?)" if shortest else "(.+)") for level in levels]
        self.names: Final = tuple(name for one in parsed for name in one.names)
        """The placeholders, from left to right."""
        self.further: Final = tuple(name for name in self.names if name not in PLACEHOLDERS)
        """The placeholders that not every template may have."""
        self.lasting: Final = "id" not in self.names and not self.further
        """True if all commands of a method to a device have the same topic."""
        for name in self.names:
            if self.names.count(name) > 1:
                raise ConfigurationError(f"topic template {text!a}: {{{name}}} stands there twice; once is allowed")
        try:
            # a stand-in of the same length keeps the index in the error right
            validate_topic("/".join(_BRACES.sub(lambda found: "x" * len(found[0]), level) for level in levels))
        except InvalidInputError as error:
            raise ConfigurationError(f"topic template {text!a}: {error.reason}") from None
        self.levels: Final = tuple(one.literal for one in parsed)
        """The level where it is literal, else None."""
        several = [i for i, one in enumerate(parsed) if one.rest]
        if len(several) > 1:
            raise ConfigurationError(f"topic template {text!a}: two placeholders are several levels; one may be")
        self._rest = several[0] if several else None
        self._several = None if self._rest is None else parsed[self._rest].names[0]
        self._but = frozenset() if self._rest is None else parsed[self._rest].but
        self._size = len(parsed)
        self._words = tuple((i, one.literal) for i, one in enumerate(parsed) if one.literal is not None)
        self._fields = tuple((i, one.names[0]) for i, one in enumerate(parsed) if one.names and one.pattern is None)
        self._patterns = tuple((i, one) for i, one in enumerate(parsed) if one.pattern is not None)
        self._format = "/".join("%s".join(part.replace("%", "%%") for part in _BRACES.split(level)) for level in levels)

    def render(self, **values: str) -> str:
        """The topic name with these values; further values are ignored.

        The values were validated as identifiers before; one that would still change the structure of the topic
        raises InvalidInputError, as does a missing one.
        """
        return self.filled(values)

    def filled(self, values: Mapping[str, str]) -> str:
        """As `render`."""
        try:
            filling = tuple([values[name] for name in self.names])
        except KeyError as error:
            raise InvalidInputError(str(error.args[0]), f"is missing: topic {self.text} needs it") from None
        for name, value in zip(self.names, filling, strict=True):
            if not _PLAIN_VALUE.fullmatch(value):  # the common case needs no search for what is forbidden
                for part in value.split("/") if name == self._several else (value,):
                    _check_value(name, part)
        topic = self._format % filling
        if len(topic) * 4 > MAX_TOPIC_BYTES:  # it may be too long: count the bytes
            validate_topic(topic)
        return topic

    def rejoined(self, values: Mapping[str, str]) -> str:
        """The topic that these values were parsed from, or one alike; they are taken as they are."""
        return self._format % tuple([values[name] for name in self.names])

    def filter(self) -> str:
        """The topic filter that covers every topic of this template: `thing/product/+/services`."""
        levels = ["+" if level is None else level for level in self.levels]
        return "/".join(levels if self._rest is None else [*levels[: self._rest], "#"])

    @property
    def before_several(self) -> int | None:
        """The number of levels before a placeholder that is one or more of them; None where there is none."""
        return self._rest

    def parse(self, topic: str) -> dict[str, str] | None:
        """The values of the placeholders in the topic, or None when it is no topic of this template.

        The values are what the sender wrote: they are not empty, no more is checked.
        """
        return self.match(topic.split("/"))

    def match(self, levels: Sequence[str]) -> dict[str, str] | None:
        """As `parse`, for the levels of a topic."""
        size = self._size
        if self._rest is not None:
            several = self._rest + len(levels) - size + 1
            if several <= self._rest or not self._but.isdisjoint(levels[self._rest : several]):
                return None
            levels = [*levels[: self._rest], "/".join(levels[self._rest : several]), *levels[several:]]
        if len(levels) != size:
            return None
        for position, literal in self._words:
            if levels[position] != literal:
                return None
        values = {}
        for position, name in self._fields:
            value = levels[position]
            if not value:
                return None
            values[name] = value
        for position, level in self._patterns:
            found = level.pattern.fullmatch(levels[position]) if level.pattern is not None else None
            if found is None:
                return None
            values.update(zip(level.names, found.groups(), strict=True))
        return values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicTemplate) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"TopicTemplate({self.text!r})"


class _TemplateLevel(NamedTuple):
    """A level of a template: a literal, one placeholder, or a pattern with placeholders in it."""

    literal: str | None
    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    rest: bool = False
    but: frozenset[str] = frozenset()


_BRACES: Final = re.compile(r"\{[^{}]*\}")


def _level(text: str, level: str, allowed: Collection[str] | None, part: str) -> _TemplateLevel:
    if "{" not in level and "}" not in level:
        return _TemplateLevel(level)
    if (found := _REST.fullmatch(level)) is not None:
        but = frozenset(one.strip() for one in (found[2] or "").split(",")) - {""}
        return _TemplateLevel(None, (_known(text, found[1], allowed),), rest=True, but=but)
    if (found := _PLACEHOLDER.fullmatch(level)) is not None:
        return _TemplateLevel(None, (_known(text, found[1], allowed),))
    literals = _PLACEHOLDER.split(level)[::2]
    if any("{" in one or "}" in one for one in literals) or "" in literals[1:-1]:
        raise ConfigurationError(
            f"topic template {text!a}: level {level!a} has no placeholder that can be read: a placeholder is {{name}} "
            "in lower-case letters, with something between two of them; {name*}, or {name* but word, word}, is levels"
        )
    names = tuple(_known(text, name, allowed) for name in _PLACEHOLDER.findall(level))
    return _TemplateLevel(None, names, re.compile(part.join(re.escape(one) for one in literals), re.DOTALL))


def _known(text: str, name: str, allowed: Collection[str] | None) -> str:
    if allowed is not None and name not in allowed:
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


def _check_group(field: str, group: str) -> None:
    if not group:
        raise InvalidInputError(field, "the group of a shared subscription is empty")
    found = _NOT_IN_A_VALUE.search(group.replace("$", ""))  # `$` is allowed in a group [MQTT-4.8.2-2]
    if found is not None:
        raise InvalidInputError(field, f"{named(found[0])} is not allowed in the group of a shared subscription")
