"""Opens a folder while its disk is full, and once there is room again: see test_faults."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from os import urandom
from pathlib import Path

from app.core.errors import HomingError
from app.store.rocks.folder import COMMANDS, RocksFolder
from app.store.rocks.sessions import RocksSessions

ROWS = 50
ROW_BYTES = 10_000


def _opened(folder: Path) -> RocksSessions:
    return RocksSessions(RocksFolder(folder / "store", COMMANDS))


def _fill(ballast: Path) -> None:
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


async def _main(folder: Path) -> None:
    sessions = _opened(folder)
    await sessions.start()
    await sessions.write({b"c%d" % number: urandom(ROW_BYTES) for number in range(ROWS)})
    await sessions.close()
    ballast = folder / "ballast"
    _fill(ballast)
    sessions = _opened(folder)
    try:
        await sessions.start()
    except HomingError as error:
        sys.stdout.write(f"{type(error).__name__} {error}\n")
    ballast.unlink()
    rows = await sessions.start()
    sys.stdout.write(f"there {len(rows)}\n")
    await sessions.close()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
