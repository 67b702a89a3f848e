"""Turns records into Parquet files, in the background thread."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.latency.arrow import DICTIONARY, METADATA, SCHEMA, batch_of_closed, batch_of_rows
from app.latency.files import FileStore, LogFile
from app.latency.log import IntervalResult
from app.latency.record import Closed, Row, WriteError

ROW_GROUP: Final = 16_384
"""Records that are encoded at once."""
HOUR_US: Final = 3_600_000_000


class LogWriter:
    """Writes one file per partition and interval. Not for threads: one thread calls all methods."""

    def __init__(self, place: FileStore, node_id: str, incarnation: str, *, row_group: int = ROW_GROUP) -> None:
        self._place = place
        self._node_id = node_id
        self._incarnation = incarnation
        self._row_group = row_group
        self._sequence = 0
        self._open: dict[int, _OpenFile] = {}
        self._tidied = False

    def add(self, closed: Sequence[Closed], rows: Sequence[Row], offset: float | None) -> int:
        """Take records; how many wait in memory. WriteError when the open files are lost over it."""
        at_stake = self._records() + len(closed) + len(rows)
        try:
            self._tidy()
            if closed:
                self._spread(batch_of_closed(closed, self._node_id, offset))
            if rows:
                self._spread(batch_of_rows(rows))
        except (OSError, ImportError, ValueError, pa.ArrowException) as error:
            raise self._lost(error, at_stake) from error
        return sum(one.waiting for one in self._open.values())

    def finish(self) -> IntervalResult:
        """End the interval: all open files get their names. WriteError when one could not be written."""
        files = records = 0
        try:
            while self._open:
                hour = next(iter(self._open))
                self._open[hour].publish()
                files, records = files + 1, records + self._open.pop(hour).records
        except (OSError, ImportError, ValueError, pa.ArrowException) as error:
            raise self._lost(error, self._records()) from error
        return IntervalResult(files, records)

    def _tidy(self) -> None:
        """Once: this node's own left-overs. No other process has its name, as it holds the lease."""
        if not self._tidied:
            ours = re.compile(re.escape(self._node_id) + r"-[0-9A-Z]{26}-[0-9]+\.parquet")
            self._place.tidy(lambda name: ours.fullmatch(name) is not None)
            self._tidied = True

    def _spread(self, batch: pa.RecordBatch) -> None:
        """Give each record to the file of its hour: as a rule there is one."""
        recorded = batch.column("recorded_at").cast(pa.int64())
        span = pc.min_max(recorded)
        first, last = span["min"].as_py() // HOUR_US, span["max"].as_py() // HOUR_US
        if first == last:
            self._file(first).add(batch)
            return
        hours = pc.divide(recorded, HOUR_US)
        for hour in hours.unique().to_pylist():
            self._file(hour).add(batch.filter(pc.equal(hours, hour)))

    def _file(self, hour: int) -> _OpenFile:
        if hour not in self._open:
            self._sequence += 1
            moment = datetime.fromtimestamp(hour * 3600, UTC)
            name = f"{self._node_id}-{self._incarnation}-{self._sequence:06d}.parquet"
            path = f"date={moment:%Y-%m-%d}/hour={moment:%H}/{name}"
            file = self._place.create(path)
            try:
                self._open[hour] = _OpenFile(file, self._row_group)  # writes the first bytes
            except BaseException:
                file.discard()
                raise
        return self._open[hour]

    def _records(self) -> int:
        """In the open files."""
        return sum(one.records for one in self._open.values())

    def _lost(self, error: Exception, records: int) -> WriteError:
        """Forget the open files."""
        for one in self._open.values():
            one.discard()
        self._open.clear()
        return WriteError(str(error) or type(error).__name__, records)


class _OpenFile:
    """Encodes a row group at a time, so that neither memory nor the work at the end of an interval piles up."""

    def __init__(self, file: LogFile, row_group: int) -> None:
        self.records = 0
        self._file = file
        self._row_group = row_group
        self._batches: list[pa.RecordBatch] = []
        self._unencoded = 0
        self._parquet = pq.ParquetWriter(
            file.sink,
            SCHEMA,
            compression="zstd",
            use_dictionary=list(DICTIONARY),
            write_statistics=True,
            store_schema=False,  # readers get plain text columns, whatever they know of Arrow
        )

    @property
    def waiting(self) -> int:
        """Records in memory."""
        return self.records if self._file.in_memory else self._unencoded

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._unencoded += batch.num_rows
        self.records += batch.num_rows
        if self._unencoded >= self._row_group:
            self._encode()

    def publish(self) -> None:
        if self._batches:
            self._encode()
        self._parquet.add_key_value_metadata(METADATA)
        self._parquet.close()
        self._file.publish()

    def discard(self) -> None:
        self._batches.clear()
        self._parquet.is_open = False  # else it would write its footer when it is collected, to the full disk again
        self._file.discard()

    def _encode(self) -> None:
        table = pa.Table.from_batches(self._batches, SCHEMA)
        self._batches, self._unencoded = [], 0
        self._parquet.write_table(table, row_group_size=len(table))
