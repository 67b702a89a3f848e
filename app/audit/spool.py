"""Lines of the audit that wait for their database on the disk, so that a node that stops or dies loses none of them.

A file belongs to one writer, who keeps it locked while it lives. It has a line for its name and for where its chain
was, and one for each line of the audit: how many facts were told up to there, and the bytes that were hashed, in which
there is no line feed. A line that was not written to its end is none. Everything blocks.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Self

from app.core.audit.chain import Chain, ChainHead, ChainLine, columns_of
from app.core.errors import ConfigurationError
from app.store.audit import StoredLine

SUFFIX: Final = ".audit"
_UNNAMED: Final = ".new"
MOST_BYTES: Final = 2**30
"""The size of one file."""


class Spooled(NamedTuple):
    """A line, and what has to be said with it."""

    kept: StoredLine
    facts: int
    """The number of facts that were told up to this line."""


class Spool:
    """The file of one writer, which is locked; `open_spool` and `left_behind` make one."""

    def __init__(self, path: Path, file: FileIO) -> None:
        self._path = path
        self._file = file
        """The file without a buffer: bytes that a full disk does not take would stay in one, and fail again with each
        call."""
        self._begin = 0
        """The offset at which the lines begin that were not taken."""
        self._end = 0
        self._chain: Chain | None = None
        """The chain at the line before the first one that was not taken."""
        self._last = 0
        """The number of the last line that was put."""
        self._alone: Final = threading.Lock()  # who called may have been cancelled, and call again

    @property
    def writer(self) -> str | None:
        """The writer of these lines; None as long as there are none."""
        return None if self._chain is None else self._chain.head.writer

    def is_empty(self) -> bool:
        """True if nothing waits."""
        return self._begin == self._end

    def has_room(self) -> bool:
        """True if more lines may be put."""
        return self._end < MOST_BYTES

    def put(self, before: ChainHead, lines: Sequence[Spooled]) -> None:
        """Keep lines, all or none, on the disk when this returns; `before` is where their chain was. OSError.

        To say it again changes nothing.
        """
        with self._alone:
            new = [one for one in lines if one.kept.line.seq > self._last]
            if new:
                self._put(before, new)
                self._last = new[-1].kept.line.seq

    def _put(self, before: ChainHead, lines: Sequence[Spooled]) -> None:
        chunk = b"".join(b"%d %b\n" % (one.facts, one.kept.line.body) for one in lines)
        if self.is_empty():
            self._clear()
            head = {"writer": before.writer, "seq": before.seq, "hash": before.hash.hex()}
            chunk = json.dumps(head).encode() + b"\n" + chunk
        try:
            _write(self._file.fileno(), chunk, self._end)
            os.fdatasync(self._file.fileno())
        except OSError:
            self._file.truncate(self._end)
            raise
        if self.is_empty():
            self._chain = Chain(before.writer, before)
            self._begin = len(chunk.partition(b"\n")[0]) + 1
            self._end = 0
        self._end += len(chunk)

    def first(self, most_lines: int, most_bytes: int) -> list[Spooled]:
        """The first lines that were not taken, as many as that at most, and one at least where there is one."""
        with self._alone:
            return [] if self._chain is None else self._first(self._chain.head, most_lines, most_bytes)

    def _first(self, before: ChainHead, most_lines: int, most_bytes: int) -> list[Spooled]:
        found: list[Spooled] = []
        chain, size = Chain(before.writer, before), 0
        with self._from(self._begin) as file:
            while len(found) < most_lines and size < most_bytes and self._begin + size < self._end:
                text = file.readline()
                size += len(text)
                spooled = _read(chain, text)
                if spooled is None:
                    break
                found.append(spooled)
        return found

    def take(self, lines: Sequence[Spooled]) -> None:
        """Forget the first lines, which are kept elsewhere now."""
        for one in lines:
            line = one.kept.line
            self._begin += len(b"%d %b\n" % (one.facts, line.body))
            self._chain = Chain(line.writer, ChainHead(line.writer, line.seq, line.hash))
        if self.is_empty():
            self._clear()

    def close(self) -> None:
        """Let go of the file; it goes away when nothing waits in it."""
        if self.is_empty():
            self._path.unlink(missing_ok=True)
        self._file.close()

    def _clear(self) -> None:
        self._file.truncate(0)
        self._begin = self._end = 0
        self._chain = None

    def recover(self) -> Self:
        """Find what another process has left in the file."""
        with self._from(0) as file:
            self._recover(file)
        return self

    def _recover(self, file: BinaryIO) -> None:
        first = file.readline()
        try:
            head = json.loads(first)
            chain = Chain(
                str(head["writer"]), ChainHead(str(head["writer"]), int(head["seq"]), bytes.fromhex(head["hash"]))
            )
        except (ValueError, KeyError, TypeError):
            return
        self._chain, self._begin, self._end = Chain(chain.head.writer, chain.head), len(first), len(first)
        for text in file:
            if _read(chain, text) is None:
                break
            self._end += len(text)

    def _from(self, place: int) -> BinaryIO:
        """The file, to be read from there on."""
        file = os.fdopen(self._file.fileno(), "rb", closefd=False)
        file.seek(place)
        return file


def open_spool(folder: Path, writer: str) -> Spool:
    """The file of a writer that has not been there before; ConfigurationError when the folder cannot be used."""
    path = folder / (writer.replace("/", "_") + SUFFIX)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Under its name another process may take it for one that is left behind, before it is locked.
        unnamed = path.with_suffix(_UNNAMED)
        spool = Spool(path, _locked(unnamed, create=True))
        unnamed.rename(path)
        return spool
    except OSError as error:
        raise ConfigurationError(f"HOMING_AUDIT_DIR: {folder} cannot be used: {error.strerror}") from None


def left_behind(folder: Path) -> Iterator[Spool]:
    """The files of writers that are gone. Whoever gets one has it for itself."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            file = _locked(path, create=False)
        except OSError:
            continue  # its writer lives, or somebody else has taken it
        yield Spool(path, file).recover()


def _locked(path: Path, *, create: bool) -> FileIO:
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
    file = FileIO(os.open(path, flags, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def _write(descriptor: int, chunk: bytes, place: int) -> None:
    """Write all of it there; a disk that is nearly full takes a part first."""
    left = memoryview(chunk)
    while left:
        count = os.pwrite(descriptor, left, place)
        left, place = left[count:], place + count


def _read(chain: Chain, text: bytes) -> Spooled | None:
    """The next line of the chain; None when it was not written to its end."""
    facts, _, body = text.partition(b" ")
    if not text.endswith(b"\n") or not facts.isdigit():
        return None
    line: ChainLine = chain.append(body[:-1])
    return Spooled(StoredLine(line, columns_of(line.body)), int(facts))
