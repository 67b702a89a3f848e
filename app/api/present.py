"""The presence of a device and its last values in the event log, for whoever may know them."""

from __future__ import annotations

from collections.abc import Sequence

from app.api.dependencies import Asker
from app.api.representation import instant
from app.core.events.event import Event
from app.core.events.presence import entry_of
from app.events.plane import EventPlane


async def present(events: EventPlane, device_id: str, asker: Asker) -> tuple[dict[str, object] | None, Sequence[Event]]:
    """Return the device's presence, with the instant of its last kept message, and the last values of its topics.

    Of what the caller may read. None when nobody has heard of the device, or its presence is nothing for the caller.
    """
    values = [one for one in await events.values.values_of(device_id) if asker.may_read_event(one.entry)]
    found = await events.presence.presence_of(device_id)
    if found is None or not asker.may_read_event(entry_of(*found)):
        return None, values
    change, since = found
    seen = max([since, *(one.position for one in values)])
    return {"online": change.online, "since": instant(since), "last_seen": instant(seen)}, values
