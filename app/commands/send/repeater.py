"""Sends what a dead node left on record and perhaps never sent, where the profile says that it may be repeated.

A node may die between record and publish, and nobody can know which it was. So all of its commands that nobody has seen
leave are sent once more, if doing so twice, or late within the deadline, harms nothing (`repeatable` in the profile).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog

from app.callbacks.observer import Observers
from app.commands.deadlines.expirer import Expirer
from app.commands.send.publisher import Publisher
from app.core.clock import Clock
from app.core.commands.command import Command, CommandState
from app.core.errors import BrokerUnavailableError, InvalidInputError, PublishUnconfirmedError, UnavailableError
from app.core.messages import Receipt
from app.core.profiles.profile import DeviceProfile
from app.runtime.telemetry import Counters
from app.store.commands import CommandStore, Query

MOST: Final = 20_000
"""The number of open commands of a dead node that are looked at: as many as a node has by default."""
AT_A_TIME: Final = 16
"""Few, so that hardly any of them waits in the node for the broker: a cancellation does not find it there."""
PATIENCE: Final = timedelta(seconds=10)
"""The time for which one of them may wait for its PUBACK before the next ones are sent."""
LOOK_BACK: Final = 100
"""The number of the latest commands of a device that are looked at."""


class Repeater:
    """Takes over from nodes that died. Of several survivors that do so at once only one sends a command."""

    def __init__(
        self,
        *,
        store: CommandStore,
        publisher: Publisher,
        profiles: Mapping[str, DeviceProfile],
        expirer: Expirer,
        clock: Clock,
        node_id: str,
        counters: Counters,
        observers: Observers,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._profiles = profiles
        self._expirer = expirer
        self._clock = clock
        self._node_id = node_id
        self._counters = counters
        self._observers = observers
        self._log = structlog.get_logger()

    async def take_over(self, node_id: str, *, registered_before: int | None = None) -> int:
        """Send what may be repeated of the open commands of a node of which no incarnation lives; how many were sent.

        Where another incarnation lives already, `registered_before` (microseconds on the store's clock) leaves out what
        that one registered or claimed. UnavailableError when store or broker are away: it may be tried again, and sends
        nothing twice. Commands keep their ids and deadlines.
        """
        self._publisher.check_connected()
        left = [one for one in await self._store.pending_of(node_id, MOST) if self._may_repeat(one, registered_before)]
        if not left:
            return 0
        offset = await self._store.now() - self._now()
        sent, failures = 0, []
        left.sort(key=lambda one: one.begun_at)
        for start in range(0, len(left), AT_A_TIME):
            some = left[start : start + AT_A_TIME]
            results = await asyncio.gather(*(self._repeat(one, offset) for one in some), return_exceptions=True)
            sent += results.count(True)
            failures += [one for one in results if isinstance(one, BaseException)]
        if sent:
            self._log.info("commands_repeated", dead_node=node_id, count=sent)
        _raise_first(failures)
        return sent

    def _may_repeat(self, command: Command, registered_before: int | None) -> bool:
        profile = self._profiles.get(command.profile)
        return (
            command.state is CommandState.PENDING
            and profile is not None
            and command.method in profile.repeatable
            and (registered_before is None or command.begun_at < registered_before)
        )

    async def _repeat(self, command: Command, offset: int) -> bool:
        """True if it was sent. `offset` leads from our monotonic clock to the store's, in microseconds."""
        if await self._overtaken(command):
            self._counters["repeat.overtaken"] += 1
            return False
        self._publisher.check_connected()  # the connection may have broken since, and what is marked has had its turn
        left = timedelta(microseconds=command.deadline - offset - self._now())
        if left <= timedelta() or not await self._store.mark(command.id, CommandState.SENT, self._node_id):
            return False
        try:
            async with asyncio.timeout(min(left, PATIENCE).total_seconds()):
                _, puback = self._publisher.publish(command, left=left)
                receipt = await puback
        except (TimeoutError, PublishUnconfirmedError):
            # It may have arrived: the deadline decides, as for any other.
            for tell in self._observers.unconfirmed:
                tell(command.id)
        except (BrokerUnavailableError, InvalidInputError):
            # The dead node may have sent it, so that this one did not is no reason to call it unsent.
            return False
        else:
            await self._acknowledged(command, receipt)
        self._counters["repeat.sent"] += 1
        return True

    async def _acknowledged(self, command: Command, receipt: Receipt) -> None:
        if receipt is Receipt.UNMATCHED:
            # The dead node may have sent it when somebody was subscribed, so this does not say that nobody has it:
            # whatever `if_offline` is, the deadline decides.
            for tell in self._observers.unmatched:
                tell(command.id)
        elif command.one_way:
            await self._expirer.end(command.id, CommandState.SUCCEEDED)

    async def _overtaken(self, command: Command) -> bool:
        """True if its device was told something else since: opening what was closed meanwhile is no repetition."""
        page = await self._store.list_commands(Query(device_id=command.device_id, limit=LOOK_BACK))
        return any(
            one.begun_at > command.begun_at and one.method != command.method and one.state is not CommandState.UNSENT
            for one in page.commands
        )

    def _now(self) -> int:
        return round(self._clock.monotonic() * 1_000_000)


def _raise_first(failures: Sequence[BaseException]) -> None:
    """Raise a mistake of ours before an error of what is merely away."""
    for failure in sorted(failures, key=lambda one: isinstance(one, UnavailableError)):
        raise failure
