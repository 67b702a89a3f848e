"""Held commands in Redis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

from redis.exceptions import ResponseError

from app.core import keys
from app.core.commands.command import CommandState, WaitReason
from app.core.commands.routing import Follower
from app.core.errors import DeviceBusyError, InvalidInputError, StoreUnavailableError, UnreadableRecordError
from app.core.identifiers import PARTITIONS, partition_of, partition_of_command
from app.core.profiles.lanes import CommandLane, lane_topic
from app.store.holds import Claimed, HeldEntries, HeldEntry, LaneOccupancy, LaneStop, Restarted, Resumed, Waits
from app.store.redis.commands import records
from app.store.redis.commands.timed_scripts import TimedScripts
from app.store.redis.driver.each_server import of_each_server
from app.store.redis.driver.lanes import LIST_BATCH, Lanes
from app.store.redis.driver.scripts import HOLD_CLAIM, HOLD_GIVE_BACK, HOLD_LANE, HOLD_PASS_ON, HOLD_RESUME
from app.store.redis.driver.unreadable import Unreadable
from app.store.rules import MOST_HELD_OF_PARTITION, busy, marked_by, micros, replaced, superseded

_BUSY: Final = "the device of the command"
_NOTE_MS: Final = 600_000
"""Its end is a change, too: one reading more."""


class RedisHolds:
    """See `app/core/keys.py` for the keys, and the headers of lua/claim.lua and lua/give_back.lua for the steps."""

    def __init__(self, lanes: Lanes, unreadable: Unreadable, timed: TimedScripts) -> None:
        self._lanes = lanes
        self._unreadable = unreadable
        self._timed = timed

    async def held(self) -> HeldEntries:
        names = [keys.held(partition) for partition in range(PARTITIONS)]
        last = 2 * MOST_HELD_OF_PARTITION - 1  # those whose claim was undone come back, also where there is no room

        async def ask(partitions: Sequence[int]) -> list[list[HeldEntry]]:
            found: list[list[HeldEntry]] = []
            for first in range(0, len(partitions), LIST_BATCH):
                some = partitions[first : first + LIST_BATCH]
                replies = await self._lanes.call_for_list(
                    [("ZRANGE", names[one], 0, last, "WITHSCORES") for one in some]
                )
                found += ([] if isinstance(one, ResponseError) else sorted(_entries(one)) for one in replies)
            return found

        by_partition = await of_each_server(names, self._lanes.server_of, ask)
        unread = frozenset(number for number, some in enumerate(by_partition) if some is None)
        return HeldEntries([entry for some in by_partition for entry in some or ()], unread)

    async def last_held(self) -> str:
        note: bytes | None = await self._lanes.call("GET", keys.LAST_HELD)
        return "" if note is None else note.decode("utf-8", "replace")

    async def lane_now(self, device_id: str, lane: CommandLane) -> LaneOccupancy:
        place = keys.topic(partition_of(device_id), lane.topic(device_id))
        rules = records.rules_of(lane, device_id)
        in_flight, until, stop, *waiting = await self._lanes.run(HOLD_LANE, [place], micros(lane.rest), *rules)
        ids = tuple(one.decode("utf-8", "replace") for one in waiting)
        return LaneOccupancy(int(in_flight), ids, until=int(until), stop=_stop(stop))

    async def resume(self, device_id: str, lane: str, stopped_by: str) -> Resumed:
        place = keys.topic(partition_of(device_id), lane_topic(lane, device_id))
        match await self._lanes.run(HOLD_RESUME, [place], stopped_by):
            case [stop, first] if first:
                return Resumed(_stop(stop), Follower(first.decode(), device_id))
            case [stop, *_]:
                return Resumed(_stop(stop))
            case _:
                return Resumed(None)

    async def claim(
        self, command_id: str, node_id: str, token: str, starts: Collection[str] = ()
    ) -> Claimed | Waits | Restarted | None:
        at = " ".join(starts)
        reply = await self._timed.run(HOLD_CLAIM, keys_of(command_id), command_id, node_id, token, at)
        match reply:
            case [b"claimed", values]:
                fields = records.pairs(values)
                trace = fields.get("trace")
                try:
                    command = self._unreadable.checked(command_id, fields)
                except UnreadableRecordError:
                    return None
                return Claimed(command, None if trace is None else trace.decode(), tuple(values))
            case [b"restarted", start]:
                return Restarted(start.decode())
            case [b"waits", reason, until]:
                return Waits(WaitReason(reason.decode()), int(until))
            case [b"busy", quarantine_left]:
                raise DeviceBusyError(busy(_BUSY, int(quarantine_left)))
            case [b"busy"]:
                raise DeviceBusyError(busy(_BUSY, None))
            case _:
                return None

    async def pass_on(self, command_id: str) -> Follower | None:
        allowed = records.words(marked_by(CommandState.ACKNOWLEDGED))
        return records.first_in_line(
            await self._lanes.run(HOLD_PASS_ON, keys_of(command_id)[:1], command_id, CommandState.ACKNOWLEDGED, allowed)
        )

    async def give_back(self, command_id: str, token: str) -> bool:
        errors = superseded("*"), replaced("*")
        held = bool(await self._lanes.run(HOLD_GIVE_BACK, keys_of(command_id), command_id, token, *errors))
        if held:
            await note_held(self._lanes, f"{command_id} {token}")
        return held


async def note_held(lanes: Lanes, note: str) -> None:
    """Leave a note that something was held. Its slot is its own, and so is this step: it may be missing."""
    with suppress(StoreUnavailableError):
        await lanes.call("SET", keys.LAST_HELD, note, "PX", _NOTE_MS)


def keys_of(command_id: str) -> list[str]:
    """The keys of a command, whatever its id: its record, what is due, and the list."""
    try:
        partition = partition_of_command(command_id)
    except InvalidInputError:
        partition = 0
    return [keys.callback(partition, command_id), keys.due(partition), keys.listing(partition)]


def _stop(text: bytes) -> LaneStop | None:
    """Return what stopped a lane; None where nothing did, or nobody can read it."""
    at, _, command_id = text.decode("utf-8", "replace").partition(" ")
    return LaneStop(int(at), command_id) if at.isdecimal() else None


def _entries(reply: Sequence[bytes]) -> Sequence[HeldEntry]:
    """Return the members of a partition that can be read; a sweep takes the others out."""
    entries = []
    for member, score in zip(reply[::2], reply[1::2], strict=True):
        command_id, _, device_id = member.decode("utf-8", "replace").partition(" ")
        if device_id:
            entries.append(HeldEntry(device_id, command_id, int(float(score))))
    return entries
