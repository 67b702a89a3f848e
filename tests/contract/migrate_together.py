"""A process that migrates and does what nodes do at their first start: for each URL on standard input, one line."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from app.core.access.changes import Put
from app.core.access.model import Kind, Principal
from app.core.errors import VersionConflictError
from app.store.engine import open_directory


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(name: str) -> None:
    say("ready")
    while url := (await asyncio.to_thread(sys.stdin.readline)).strip():
        directory = open_directory(url, new_cluster_id=lambda: f"of-{name}", budget=timedelta(seconds=30))
        migrated = await directory.migrate()
        await directory.start()
        try:
            await directory.apply(
                [Put(Principal(id=name, tenant_id=None, kind=Kind.SERVICE, name=name))], expected_version=0
            )
            first = True
        except VersionConflictError:
            first = False
        say(f"{migrated} {first} {(await directory.read()).cluster_id}")
        await directory.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
