"""Fingerprints of commands: who approves one names it, and so approves exactly what was shown."""

from __future__ import annotations

from hashlib import blake2b

from app.core.commands.command import Command
from app.core.profiles.profile import to_json


def fingerprint_of(command: Command) -> str:
    """The fingerprint of what a command would do, which never changes while it waits: the same on every node."""
    hold = command.hold
    said = [
        *(command.id, command.device_id, command.profile, command.method, command.params.decode()),
        *(command.one_way, command.if_offline, None if command.lane is None else command.lane.name),
        *((None, None, None) if hold is None else (hold.until, hold.timeout.total_seconds(), hold.not_before)),
    ]
    if hold is not None and hold.replaces:
        said.append(["replaces", hold.replaces])
    return blake2b(to_json(said), digest_size=12).hexdigest()
