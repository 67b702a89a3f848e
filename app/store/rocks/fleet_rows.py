"""Fleet runs as rows. What never changes of a run is a row, what changes is another, and each note about a target.

| field | meaning |
|---|---|
| of both rows: `v` | version of the row: a later one is left alone |
| `created`, `fingerprint`, `plan`, `targets` | as they were when the run began; instants in µs |
| `n`, `status` | version of the run, and its status; a byte for each target is below this line |
| `until`, `at`, `ended` | when it is forgotten and was changed last (µs); whether it has ended |
| `epoch` | of the lease: a lease ends with the process, and the next one has a greater epoch |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from app.store.fleets import RunRecord
from app.store.memory.fleets import PLAN_ROW, RUN_ROW, KeptRun, RunLease

VERSION: Final = 1


def encode_row(run: KeptRun, kind: str, index: Sequence[str]) -> bytes | None:
    """The row of this kind, of the target with this index where it is of one; None where there is no note about it."""
    if kind == PLAN_ROW:
        return _plan(run)
    if kind == RUN_ROW:
        return _run(run)
    note = run.results.get(int(index[0]))
    return None if note is None else json.dumps(note).encode()


def _plan(run: KeptRun) -> bytes:
    record = run.record
    row = {"v": VERSION, "created": record.created_at, "fingerprint": record.fingerprint, "plan": record.plan}
    return json.dumps({**row, "targets": run.targets}).encode()


def _run(run: KeptRun) -> bytes:
    head = {
        "v": VERSION,
        "n": run.record.version,
        "status": run.record.status,
        "until": run.expires_at,
        "at": run.changed_at,
        "ended": run.ended,
        "epoch": run.lease.epoch,
    }
    return json.dumps(head).encode() + b"\n" + run.record.marks


def decode_run(run_id: str, plan_row: bytes, run_row: bytes) -> KeptRun:
    """The run, without the notes about its targets; ValueError, KeyError, TypeError where it cannot be read."""
    line, _, marks = run_row.partition(b"\n")
    plan, head = json.loads(plan_row), json.loads(line)
    later = max(plan["v"], head["v"])
    if later > VERSION:
        raise ValueError(f"it is of version {later}, and this node reads {VERSION}")
    if len(marks) != len(plan["targets"]):
        raise ValueError(f"it has {len(marks)} marks for {len(plan['targets'])} targets")
    record = RunRecord(
        run_id=run_id,
        version=head["n"],
        created_at=plan["created"],
        fingerprint=plan["fingerprint"],
        plan=plan["plan"],
        status=head["status"],
        marks=marks,
    )
    lease = RunLease(epoch=head["epoch"])
    return KeptRun(record, plan["targets"], head["until"], head["at"], head["ended"], lease=lease)


def decode_result(row: bytes) -> Sequence[Any]:
    """The note about a target; ValueError where it cannot be read."""
    note = json.loads(row)
    if not isinstance(note, list):
        raise ValueError("it is no list")  # noqa: TRY004 - what was written is wrong, not what was passed
    return note
