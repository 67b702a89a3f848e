"""The rules of topic names and topic filters (MQTT 5, sections 4.7 and 4.8)."""

from __future__ import annotations

from typing import Final

from app.core.broker.codes import PacketError, ReasonCode

SHARED: Final = "$share/"


def check_topic(topic: str) -> str:
    """The topic name; PacketError for an empty one [MQTT-4.7.3-1] or wildcards in it [MQTT-3.3.2-2, 4.7.1-1]."""
    if not topic or "+" in topic or "#" in topic:
        raise PacketError(ReasonCode.TOPIC_NAME_INVALID, "a topic name is empty or has wildcards")
    return topic


def check_filter(topic_filter: str) -> str:
    """The topic filter, shared or not; PacketError.

    `#` stands alone in the last level [MQTT-4.7.1-1], `+` alone in any [MQTT-4.7.1-2], the name of a share has neither
    [MQTT-4.8.2-1, -2].
    """
    inner = topic_filter
    if topic_filter.startswith(SHARED):
        name, slash, inner = topic_filter.removeprefix(SHARED).partition("/")
        if not name or not slash or "+" in name or "#" in name:
            raise _invalid("a shared subscription is $share/name/filter, with a name without wildcards")
    if not inner:
        raise _invalid("a topic filter is empty")  # [MQTT-4.7.3-1]
    *front, last = inner.split("/")
    if any("#" in level for level in front) or ("#" in last and last != "#"):
        raise _invalid("# does not stand alone in the last level")
    if any("+" in level and level != "+" for level in (*front, last)):
        raise _invalid("+ does not stand alone in its level")
    return topic_filter


def _invalid(sentence: str) -> PacketError:
    return PacketError(ReasonCode.TOPIC_FILTER_INVALID, sentence)
