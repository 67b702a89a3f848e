"""The answers of an access directory when its database is away, slow or closed to it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from app.core.access.changes import Put
from app.core.errors import ConfigurationError, DirectoryUnavailableError
from app.store.directory import AccessDirectory
from app.store.engine import open_directory
from homing_rig.ports import lasting_port
from tests.contract.directory_places import ALL, BUDGET, TENANT, Place, postgresql_place, sqlite_place
from tests.services import PostgresProcess
from tests.waiting import PATIENCE

SOON = timedelta(milliseconds=500)


@pytest.fixture
def own_postgresql() -> Iterator[PostgresProcess]:
    with PostgresProcess() as server:
        yield server


async def every_call_fails(directory: AccessDirectory, sentence: str) -> None:
    for call in (
        directory.start(),
        directory.read(),
        directory.version(),
        directory.apply([Put(TENANT)]),
        directory.touch({"2F7QW9ZD": 1}),
    ):
        with pytest.raises(DirectoryUnavailableError, match=sentence):
            await call


async def back(directory: AccessDirectory) -> int:
    """The version, as soon as there is one."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await directory.version()
            except DirectoryUnavailableError:
                await asyncio.sleep(0.05)


class TestPostgresql:
    async def test_a_server_that_was_killed_is_used_again_and_has_all_that_was_answered(
        self, own_postgresql: PostgresProcess
    ) -> None:
        place = postgresql_place(own_postgresql)
        directory = place.open()
        await directory.migrate()
        for turn in range(3):
            version = await directory.apply([Put(replace(TENANT, name=str(turn)))])
            own_postgresql.kill()
            await every_call_fails(directory, "^the access directory is away: ")
            own_postgresql.start()
            assert await directory.version() == version
        assert (await directory.read()).tenants == (replace(TENANT, name="2"),)
        await place.close()

    async def test_a_server_that_stands_still_costs_a_caller_its_budget_and_no_more(
        self, own_postgresql: PostgresProcess
    ) -> None:
        place = postgresql_place(own_postgresql)
        directory = place.open()
        await directory.migrate()
        version = await directory.apply(ALL)
        hasty = place.open(SOON)
        await back(hasty)
        with own_postgresql.paused():
            # More calls than it may have connections; and each ends, though the server says nothing.
            async with asyncio.timeout(PATIENCE):
                for _ in range(2):
                    await every_call_fails(hasty, "^the access directory (did not answer within 0.5 s|is away: )")
        assert await back(hasty) >= version
        await place.close()

    async def test_a_writer_that_stands_still_in_its_transaction_costs_others_their_budget(
        self, postgresql: PostgresProcess
    ) -> None:
        place = postgresql_place(postgresql)
        directory = place.open()
        await directory.migrate()
        hasty = place.open(SOON)
        await back(hasty)
        with psycopg.connect(place.url) as other:
            other.execute("UPDATE access_meta SET version = version")
            with pytest.raises(DirectoryUnavailableError):
                await hasty.apply([Put(TENANT)])
            assert await back(hasty) == 0  # readers do not wait for writers
        assert await directory.apply([Put(TENANT)]) == 1
        await place.close()

    async def test_who_may_not_log_in_is_told_so_without_the_password(self, postgresql: PostgresProcess) -> None:
        wrong = postgresql.url("postgres").replace("homing:", "homing:s3cret-")
        directory = open_directory(wrong, new_cluster_id=str, budget=BUDGET)
        with pytest.raises(DirectoryUnavailableError, match="password authentication failed") as refused:
            await directory.start()
        assert "s3cret" not in str(refused.value)
        with pytest.raises(DirectoryUnavailableError, match="password authentication failed"):
            await directory.migrate()
        await directory.close()

    async def test_who_may_read_only_is_told_so(self, postgresql: PostgresProcess) -> None:
        place = postgresql_place(postgresql)
        await place.open().migrate()
        place.execute("CREATE ROLE reader LOGIN PASSWORD 'reader'")
        place.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        reader = place.url.replace(f"{postgresql.USER}:", "reader:").split("@", 1)
        directory = open_directory(f"postgresql://reader:reader@{reader[1]}", new_cluster_id=str, budget=BUDGET)
        await directory.start()
        assert (await directory.read()).version == 0
        with pytest.raises(DirectoryUnavailableError, match="permission denied for table access_meta"):
            await directory.apply([Put(TENANT)])
        await directory.close()
        await place.close()

    async def test_nobody_listens(self) -> None:
        url = f"postgresql://homing:s3cret@127.0.0.1:{lasting_port()}/homing"
        directory = open_directory(url, new_cluster_id=str, budget=BUDGET)
        await every_call_fails(directory, "Connection refused")
        await directory.close()


class TestSqlite:
    async def test_the_files_are_for_their_owner_alone(self, tmp_path: Path) -> None:
        place = sqlite_place(tmp_path)
        directory = place.open()
        before = os.umask(0)
        try:
            await directory.migrate()
            await directory.apply(ALL)
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        finally:
            os.umask(before)
        assert modes == {"access.db": 0o600, "access.db-wal": 0o600, "access.db-shm": 0o600}
        await place.close()

    async def test_another_process_that_keeps_it_locked_costs_writers_their_budget_and_readers_nothing(
        self, tmp_path: Path
    ) -> None:
        place = sqlite_place(tmp_path)
        await place.open().migrate()
        hasty = place.open(SOON)
        await back(hasty)
        with closing(sqlite3.connect(tmp_path / "access.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(DirectoryUnavailableError, match=r"did not answer within|database is locked"):
                await hasty.apply([Put(TENANT)])
            assert await back(hasty) == 0
            other.execute("ROLLBACK")
        assert await back(hasty) == 0
        assert await place.open().apply([Put(TENANT)]) == 1
        await place.close()

    async def test_a_folder_that_is_not_there_is_named_as_the_reason(self, tmp_path: Path) -> None:
        directory = open_directory(f"sqlite:///{tmp_path}/none/access.db", new_cluster_id=str, budget=BUDGET)
        await every_call_fails(directory, "cannot be opened: No such file or directory")
        await directory.close()

    async def test_a_file_of_another_kind_is_named_as_the_reason(self, tmp_path: Path) -> None:
        (tmp_path / "access.db").write_bytes(b"# my notes\n" * 100)
        place: Place = sqlite_place(tmp_path)
        await every_call_fails(place.open(), "file is not a database")
        await place.close()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://u:s3cret@h/d", "scheme 'mysql' is unknown; allowed: sqlite://, postgresql://"),
        ("postgresql+asyncpg://u:s3cret@h/d", "scheme 'postgresql.asyncpg' is unknown"),
        ("postgresql://u:s3cret@h", "names no database"),
        ("postgresql://u:s3cret@h/", "names no database"),
        ("postgresql://u:s3cret@h/a/b", "names no database"),
        ("postgresql://u:s3/cret@h/d", "has no port number"),
        ("postgresql://u:p@[h/s3cret", "is no URL"),
        (
            "postgresql://u:p@h/d?password=s3cret",
            "has 'password' behind its '\\?', which is not allowed; allowed: host",
        ),
        ("postgresql://u:p@h/d?options=-c%20s3cret", "has 'options' behind"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:////", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("sqlite://s3cret/access.db", "names no file"),
        ("sqlite:///a.db?mode=s3cret", "names no file"),
        ("", "scheme '' is unknown"),
    ],
)
def test_a_url_that_names_no_database_is_refused_without_repeating_it(url: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as refused:
        open_directory(url, new_cluster_id=str, budget=BUDGET)
    assert "s3" not in str(refused.value)
