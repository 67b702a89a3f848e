"""Replies to devices on one node: put together on the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.callbacks.observer import Observers
from app.kernel import Kernel
from app.mqtt.inbox import Arrival
from app.plane import Plane
from app.replies.finder import LastEntry
from app.replies.handlers import open_handlers
from app.replies.replier import Replier
from app.runtime.services import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPlane:
    """The part that replies to devices, and its services."""

    replies_to: Callable[[Arrival], bool] | None
    """Sees to it that a message gets its reply; None where no profile has any."""
    plane: Plane


def open_replies(kernel: Kernel, observers: Observers, last_entry: LastEntry) -> ReplyPlane:
    """Nothing is connected yet; ConfigurationError. `last_entry` tells the last value of a topic."""
    handlers = open_handlers(
        kernel.settings.reply,
        kernel.languages.profiles.values(),
        clock=kernel.clock,
        new_ulid=kernel.adapters.new_ulid,
        counters=kernel.counters,
    )
    replies = kernel.languages.replies
    replier = Replier(
        reader=replies,
        mqtt=kernel.mqtt,
        store=kernel.store,
        clock=kernel.clock,
        counters=kernel.counters,
        observers=observers,
        last_entry=last_entry,
        handlers=None if handlers is None else handlers.handlers,
    )
    asked = [] if handlers is None else [handlers.service]
    return ReplyPlane(
        replies_to=replier.replies_to if replies.filters() else None,
        plane=Plane(name="replies", services=[*asked, Service("replier", drain=replier.drained, fills=replier.fills)]),
    )
