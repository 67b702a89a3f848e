"""The order of devices in a window: of each, one event is lent or to be lent next, and others wait behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.core.events.event import Position
from app.core.queues.loans import Reference
from app.core.queues.memoir import KeptOrder


@dataclass(slots=True)
class _Order:
    """The order of one device."""

    holder: Position
    parked: deque[Reference] = field(default_factory=deque)


class DeviceOrders:
    """Knows devices by the keys of references."""

    def __init__(self) -> None:
        self._orders: dict[int, _Order] = {}
        self.parked = 0
        """References that wait behind their device."""

    def is_next(self, reference: Reference) -> bool:
        """True if it is the first of its device; else it is parked."""
        order = self._orders.get(reference.key)
        if order is None:
            self._orders[reference.key] = _Order(reference.position)
            return True
        if order.holder == reference.position:
            return True
        order.parked.append(reference)
        self.parked += 1
        return False

    def leave(self, reference: Reference) -> Reference | None:
        """It is in the window no more; return what waited behind it and is free."""
        order = self._orders.get(reference.key)
        if order is None or order.holder != reference.position:
            return None
        if not order.parked:
            del self._orders[reference.key]
            return None
        following = order.parked.popleft()
        self.parked -= 1
        order.holder = following.position
        return following

    def clear(self) -> None:
        """Forget all."""
        self._orders.clear()
        self.parked = 0

    def kept(self) -> dict[int, KeptOrder]:
        """All of them, by the keys of devices."""
        return {key: KeptOrder(one.holder, tuple(one.parked)) for key, one in self._orders.items()}

    def restore(self, kept: Mapping[int, KeptOrder]) -> None:
        """Be as these say."""
        self._orders = {key: _Order(one.holder, deque(one.parked)) for key, one in kept.items()}
        self.parked = sum(len(one.parked) for one in kept.values())
