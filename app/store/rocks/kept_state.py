"""A state store in memory becomes rows, and rows become one.

| key: a letter, then names with a zero byte before each | value |
|---|---|
| `c` command id | app/store/rocks/command_rows.py |
| `d` document | a schedule, as app/core/schedules/schedule.py writes it |
| `e` endpoint | JSON: the endpoint |
| `f` endpoint | JSON: since when it fails, when its queue is forgotten (µs) |
| `q` endpoint, event | JSON: when it is due, when it ended (µs); a line below it JSON: the delivery |
| `l` topic of a lane | JSON: when a command left through it last (µs), and since when and by which command it stands |
| `n` notice | empty: the outbox has it |
| `p` run | app/store/rocks/fleet_rows.py: what never changes of a fleet run |
| `r` run | what changes of it |
| `s` run, index of a target | JSON: the note about it |
| `t` device, topic | until when (µs, 8 bytes) a state is remembered, and the state |
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from struct import Struct
from typing import Final

import structlog

from app.core.errors import UnreadableRecordError
from app.core.webhooks.deliveries import (
    OutboxEntry,
    decode_delivery,
    decode_endpoint,
    encode_delivery,
    encode_endpoint,
)
from app.store.memory.commands.echo_states import STATE_ROW
from app.store.memory.commands.lane_marks import LANE_ROW
from app.store.memory.commands.records import COMMAND_ROW, Record, RowKey
from app.store.memory.commands.store import MemoryStateStore
from app.store.memory.fleets import PLAN_ROW, RESULT_ROW, RUN_ROW, KeptRun
from app.store.memory.schedules import SCHEDULE_ROW
from app.store.memory.webhooks import (
    DELIVERY_ROW,
    ENDPOINT_ROW,
    NOTICE_ROW,
    QUEUE_ROW,
    KeptDelivery,
    QueueFacts,
)
from app.store.rocks.command_rows import decode_record, encode_record
from app.store.rocks.fleet_rows import decode_result, decode_run, encode_row

_ENDS: Final = Struct(">Q")
_DAMAGED: Final = (ValueError, KeyError, TypeError)
_log = structlog.get_logger(__name__)


def key_of(key: RowKey) -> bytes:
    """The key as bytes."""
    return "\0".join(key).encode()


def row_of(state: MemoryStateStore, key: RowKey) -> bytes | None:
    """Return what is to be kept under this key; None where there is nothing any more."""
    match key:
        case (kind, command_id) if kind == COMMAND_ROW:
            record = state.table.records.get(command_id)
            return None if record is None else encode_record(record, state.table.occupied_by(record))
        case (kind, endpoint_id) if kind == ENDPOINT_ROW:
            endpoint = state.webhooks.endpoint(endpoint_id)
            return None if endpoint is None else encode_endpoint(endpoint)
        case (kind, endpoint_id) if kind == QUEUE_ROW:
            facts = state.webhooks.facts(endpoint_id)
            return None if facts is None else json.dumps(facts).encode()
        case (kind, endpoint_id, event_id) if kind == DELIVERY_ROW:
            kept = state.webhooks.kept(endpoint_id, event_id)
            return None if kept is None else _delivery_row(kept)
        case (kind, member) if kind == NOTICE_ROW:
            return b"" if state.webhooks.told(OutboxEntry.read(member)) else None
        case (kind, run_id, *index) if kind in (PLAN_ROW, RUN_ROW, RESULT_ROW):
            run = state.fleets.kept(run_id)
            return None if run is None else encode_row(run, kind, index)
        case (kind, name) if kind in (LANE_ROW, SCHEDULE_ROW):
            return state.table.marks.kept(name) if kind == LANE_ROW else state.schedules.kept(name)
        case (kind, device_id, topic) if kind == STATE_ROW:
            told = state.states.kept(device_id, topic)
            return None if told is None else _ENDS.pack(told[0]) + told[1]
    raise ValueError(f"no row has the key {key!a}")


def _delivery_row(kept: KeptDelivery) -> bytes:
    return json.dumps([kept.due, kept.ended]).encode() + b"\n" + encode_delivery(kept.delivery)


def _began(run: KeptRun) -> tuple[int, str]:
    return run.record.created_at, run.record.run_id


class KeptState:
    """All rows, read. What cannot be read is named in the log, counted as `drop.unreadable_record` and left out."""

    def __init__(self, rows: Mapping[bytes, bytes], counters: Counter[str]) -> None:
        self._counters = counters
        self._by_kind: dict[str, list[tuple[tuple[str, ...], bytes]]] = {}
        for key, row in rows.items():
            kind, *names = key.decode(errors="replace").split("\0")
            self._by_kind.setdefault(kind, []).append((tuple(names), row))
        self._commands = sorted(self._read_commands(), key=lambda one: one[0].number)
        self._runs = {one.record.run_id: one for one in sorted(self._read_runs(), key=_began)}
        self._read_results()

    @property
    def latest(self) -> int:
        """The latest instant (µs) at which something happened; 0 when nothing has."""
        of_commands = (max(one.command.created_at, one.command.finished_at or 0) for one, _ in self._commands)
        return max(chain(of_commands, (one.changed_at for one in self._runs.values())), default=0)

    def restore(self, state: MemoryStateStore) -> None:
        """Put all of it into a state store that is empty."""
        for record, occupied in self._commands:
            state.table.restore(record, occupied)
        self._restore_lanes(state)
        self._restore_webhooks(state)
        for run in self._runs.values():
            state.fleets.restore(run)
        for (document,), row in self._of(SCHEDULE_ROW, 1):
            state.schedules.restore(document, row)
        for (device_id, topic), row in self._of(STATE_ROW, 2):
            ends, now = _ENDS.unpack_from(row)[0], state.table.now()
            if ends > now:
                state.states.restore(device_id, topic, ends, row[_ENDS.size :])

    def _read_commands(self) -> Iterator[tuple[Record, list[str]]]:
        for (command_id,), row in self._of(COMMAND_ROW, 1):
            try:
                record, occupied = decode_record(command_id, row)
            except UnreadableRecordError as fault:
                self._leave_out(COMMAND_ROW, (command_id,), str(fault))
            else:
                yield record, list(occupied)

    def _read_runs(self) -> Iterator[KeptRun]:
        plans = {run_id: row for (run_id,), row in self._of(PLAN_ROW, 1)}
        for names, row in self._of(RUN_ROW, 1):
            try:
                yield decode_run(names[0], plans[names[0]], row)
            except _DAMAGED as fault:
                self._leave_out(RUN_ROW, names, repr(fault))

    def _read_results(self) -> None:
        for names, row in self._of(RESULT_ROW, 2):
            run = self._runs.get(names[0])
            if run is None:  # which is named already
                continue
            try:
                run.results[int(names[1])] = decode_result(row)
            except _DAMAGED as fault:
                self._leave_out(RESULT_ROW, names, repr(fault))

    def _restore_lanes(self, state: MemoryStateStore) -> None:
        for names, row in self._of(LANE_ROW, 1):
            try:
                state.table.marks.restore(names[0], row)
            except _DAMAGED as fault:
                self._leave_out(LANE_ROW, names, repr(fault))
        state.table.marks.restored()

    def _restore_webhooks(self, state: MemoryStateStore) -> None:
        for names, row in self._of(ENDPOINT_ROW, 1):
            try:
                state.webhooks.restore_endpoint(decode_endpoint(row))
            except _DAMAGED as fault:
                self._leave_out(ENDPOINT_ROW, names, repr(fault))
        for (member,), _ in self._of(NOTICE_ROW, 1):
            state.webhooks.restore_notice(OutboxEntry.read(member))
        queues: dict[str, list[KeptDelivery]] = {}
        for names, row in self._of(DELIVERY_ROW, 2):
            try:
                instants, _, delivery = row.partition(b"\n")
                queues.setdefault(names[0], []).append(KeptDelivery(decode_delivery(delivery), *json.loads(instants)))
            except _DAMAGED as fault:
                self._leave_out(DELIVERY_ROW, names, repr(fault))
        facts = {names[0]: QueueFacts(*json.loads(row)) for names, row in self._of(QUEUE_ROW, 1)}
        for endpoint_id in {**facts, **queues}:
            deliveries = sorted(queues.get(endpoint_id, ()), key=lambda one: one.ended or 0)
            state.webhooks.restore_queue(endpoint_id, facts.get(endpoint_id, QueueFacts()), deliveries)

    def _of(self, kind: str, count: int) -> Iterator[tuple[tuple[str, ...], bytes]]:
        for names, row in self._by_kind.get(kind, ()):
            if len(names) == count and (kind != STATE_ROW or len(row) >= _ENDS.size):
                yield names, row
            else:
                self._leave_out(kind, names, "its key is none that this version writes")

    def _leave_out(self, kind: str, names: tuple[str, ...], reason: str) -> None:
        self._counters["drop.unreadable_record"] += 1
        _log.error("row_unreadable", kind=kind, name=" ".join(names)[:200], reason=reason[:500])
