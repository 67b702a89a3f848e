"""The correlation by which a response names its command, or what stands in for a response."""

from __future__ import annotations

from enum import StrEnum


class Correlation(StrEnum):
    """The ways to match a response to its command, from the most to the least certain; recorded as `matched_by`."""

    ID = "id"
    """It carries our command id, from which every key can be derived."""
    VALUE = "value"
    """It carries something else that we know at registration, such as a flight id out of the params."""
    ECHO = "echo"
    """It carries nothing, and tells a state that the command asked for, within the time that the profile states."""
    ORDER = "order"
    """It carries nothing: one command at a time waits on the topic."""
    PROBE = "probe"
    """There was no response: a probe found in the state of the device what became of the command."""
