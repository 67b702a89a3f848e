"""Topic filters of MQTT, for callbacks that are for some topics only."""

from __future__ import annotations


def fits(topic_filter: str, topic: str) -> bool:
    """True if a topic matches a filter. `+` and `#` do not match a first level that begins with `$`."""
    wanted, said = topic_filter.split("/"), topic.split("/")
    if said[0].startswith("$") and wanted[0] in ("+", "#"):
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(said) or level not in ("+", said[place]):
            return False
    return len(wanted) == len(said)
