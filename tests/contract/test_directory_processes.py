"""One SQLite file and several processes: whoever closes it must not believe to be its last user."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.access.changes import Put
from app.store.directory import AccessDirectory
from tests.contract.directory_places import ALL, TENANT, Place, sqlite_place
from tests.open_files import deleted_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc, which Linux has")


async def use_all_connections(directory: AccessDirectory) -> None:
    """Both engines, and each with more than one connection."""
    changes = [directory.apply([Put(replace(TENANT, name=str(number)))]) for number in range(3)]
    readings = [directory.read() for _ in range(3)]
    await asyncio.gather(*changes, *readings, directory.version(), directory.audit.heads())


async def verb(place: Place, *arguments: str) -> str:
    """Return what `homing …` says, in a process of its own that opens the file and closes it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "app.cli",
        *arguments,
        env={**os.environ, "HOMING_ACCESS_URL": place.url, "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return said.decode()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = sqlite_place(tmp_path)
    yield place
    await place.close()


async def test_a_verb_leaves_the_files_of_a_process_that_goes_on(place: Place) -> None:
    directory = place.open()
    await directory.migrate()
    await directory.apply(ALL)
    await use_all_connections(directory)
    assert "laptop" in await verb(place, "keys", "list", "--all")
    assert deleted_files(os.getpid(), "access.db") == []
    await directory.apply([Put(replace(TENANT, name="after the verb"))])
    assert "after the verb" in await verb(place, "access", "export")


async def test_two_directories_of_one_process_do_not_unlock_each_other(place: Place) -> None:
    lasting = place.open()
    await lasting.migrate()
    await use_all_connections(lasting)
    passing = place.open()
    await use_all_connections(passing)
    await passing.close()
    await verb(place, "keys", "list")
    assert deleted_files(os.getpid(), "access.db") == []


@pytest.mark.parametrize("linked", [False, True])
async def test_the_file_is_its_owners_alone_from_the_start_wherever_a_link_leads(
    tmp_path: Path, place: Place, *, linked: bool
) -> None:
    file = tmp_path / "access.db"
    if linked:
        file.symlink_to(tmp_path / "elsewhere.db")
    before = os.umask(0)
    try:
        directory = place.open()
        await directory.migrate()
        await use_all_connections(directory)
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert len(modes) >= 3
    assert set(modes.values()) == {0o600}
