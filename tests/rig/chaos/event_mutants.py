"""Mistakes of nodes that keep events, queues and dead letters; `mutants.py` has the table of all."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.rig.planting import change, product_class


def events_acknowledged_at_once() -> None:
    """PUBACK for an event as soon as it has come."""
    intake = product_class("app.events.intake.Intake")
    keep = intake._keep

    def too_early(self: Any, arrival: Any, entries: Any) -> None:
        arrival.settle()
        keep(self, _Settled(), entries)

    intake._keep = too_early


class _Settled:
    """An arrival that nobody waits for any more."""

    def settle(self) -> None:
        pass

    def leave(self) -> None:
        pass


def events_without_a_fence() -> None:
    """A former intake goes on appending when another node is the intake."""
    change("events/append", "tonumber(ARGV[2]) < epoch then", "false then")


def events_given_up() -> None:
    """An event that the log did not take at once is given up and acknowledged, as nobody should wait."""
    writer = product_class("app.events.writer.EventWriter")

    async def append(self: Any, shard: Any, batch: Any) -> bool:
        try:
            self._admit(shard.database)
            await self._log.append(shard, [one.entry for one in batch], batch[0].epoch)
        except product_class("app.core.errors.HomingError"):
            self._counters["events.refused"] += len(batch)
        return True

    writer.append = append


def events_out_of_line() -> None:
    """Batches of a shard are appended at the same time."""
    writer = product_class("app.events.writer.EventWriter")

    async def serve(self: Any, shard: Any, waiting: Any, _full: Any) -> None:
        async def one(batch: Any) -> None:
            is_in = await self.append(shard, batch)
            self._size -= len(batch)
            for each in batch:
                each.done(is_in)

        batches = []
        while waiting:
            batches.append([waiting.popleft()])
        await asyncio.gather(*(one(batch) for batch in reversed(batches)))

    writer.serve = serve


def events_before_they_are_durable() -> None:
    """An append is acknowledged when it is in the memory of the process: without log in front, and without sync."""
    folder, options = product_class("app.store.rocks.folder.RocksFolder"), product_class("rocksdict.WriteOptions")

    def commit(self: Any, rows: Any) -> None:
        without_log = options()
        without_log.disable_wal = True
        self._database.write(rows, without_log)

    folder.commit = commit


def queue_lock_freed_before_retry() -> None:
    """An event that is to be tried again gives its device free."""
    kept = "    else\n      back[#back + 1] = reference\n    end"
    freed = kept.replace(
        "\n    end", "\n      leave({reference}, ordered, freed)\n      window.size = window.size + 1\n    end"
    )
    change("queues/settle", kept, freed)


def queue_loses_what_it_reads() -> None:
    """The first event of each page does not come into the window."""
    feeder = product_class("app.queues.feeder.QueueFeeder")
    feed = feeder._feed

    async def forgetful(self: Any, source: Any, at: Any, events: Any, seen: Any) -> Any:
        return await feed(self, source, at, events[1:], seen)

    feeder._feed = forgetful


def dead_letters_forgotten() -> None:
    """A dying event is taken off, and no letter is appended."""

    async def none(_self: Any, _shard: Any, _dying: Any) -> dict[Any, Any]:
        return {}

    product_class("app.queues.burials.Burials")._letters = none


def pushed_is_done_whatever_the_reply() -> None:
    """A batch that a receiver did not take is settled as done."""
    parcels = product_class("app.queues.pusher.QueueParcels")
    settle = parcels.settle

    async def careless(self: Any, endpoint: Any, parcel: Any, _reply: Any) -> int:
        return int(await settle(self, endpoint, parcel, product_class("app.core.webhooks.schedule.Reply")(204)))

    parcels.settle = careless


def pushes_stop_while_one_fails() -> None:
    """A receiver that is well gets nothing while another one fails."""
    parcels = product_class("app.queues.pusher.QueueParcels")
    claim = parcels.claim

    async def wait_for_all(self: Any, endpoint: Any, most: int) -> Any:
        if self._failing and endpoint.id not in self._failing:
            return product_class("app.webhooks.parcels.ClaimedParcels")((), more=False)
        return await claim(self, endpoint, most)

    parcels.claim = wait_for_all
