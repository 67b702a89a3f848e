"""Migrations of the access directory, and which versions of its tables are served."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, make_url

from app.core.access.changes import Put
from app.core.errors import DirectoryUnavailableError, SchemaTooNewError, SchemaTooOldError
from app.store.directory import AccessDirectory
from app.store.sql.driver import schema
from app.store.sql.driver.schema import MIGRATIONS, SCHEMA, VERSION_TABLE
from app.store.sql.tables import metadata
from tests.contract.directory_places import ALL, BUDGET, PLAIN_DEVICE, Place, postgresql_place, sqlite_place
from tests.services import PostgresProcess

ROOT = Path(__file__).parents[2]
ROUNDS = 5
SET_SCHEMA = "UPDATE access_schema SET version_num = '{:04}'"
SET_OLDEST = "UPDATE access_meta SET oldest = {}"


def test_the_number_of_the_schema_is_that_of_the_last_migration() -> None:
    scripts = ScriptDirectory(str(MIGRATIONS))
    assert scripts.get_current_head() == f"{SCHEMA:04}"
    in_order = [one.revision for one in scripts.walk_revisions()][::-1]
    assert in_order == [f"{number:04}" for number in range(1, SCHEMA + 1)]


# What SQLite does not tell of its index over an expression is compared on PostgreSQL alone.
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
@pytest.mark.filterwarnings("ignore:autogenerate skipping metadata-specified expression-based index")
async def test_the_migrations_make_the_tables_that_the_code_knows(place: Place) -> None:
    await place.open().migrate()
    url = make_url(place.url.replace("postgresql:", "postgresql+psycopg:"))
    engine = create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


async def test_migrating_again_changes_nothing(directory: AccessDirectory) -> None:
    await directory.apply(ALL)
    before = await directory.read()
    assert not await directory.migrate()
    assert await directory.read() == before


async def test_a_migration_that_fails_leaves_nothing_behind(place: Place) -> None:
    place.execute("CREATE TABLE removed_devices (id INTEGER)")  # of a late migration
    directory = place.open()
    with pytest.raises(DirectoryUnavailableError, match="removed_devices"):
        await directory.migrate()
    with pytest.raises(SchemaTooOldError):
        await directory.start()
    place.execute("DROP TABLE removed_devices")
    assert await directory.migrate()
    await directory.start()


async def serves(directory: AccessDirectory) -> bool:
    """True if it can do all that nodes do."""
    await directory.start()
    await directory.apply([Put(PLAIN_DEVICE)])
    await directory.touch({"unknown": 1})
    return PLAIN_DEVICE in (await directory.read()).devices


class TestVersionsOfTheTables:
    async def test_none_at_all_are_too_old(self, place: Place) -> None:
        with pytest.raises(SchemaTooOldError, match=r"has no tables yet: run homing access migrate$"):
            await place.open().start()

    def test_a_later_program_asks_for_their_migration(self) -> None:
        sentence = f"have version {SCHEMA}, and this program needs {SCHEMA + 1}: run homing access migrate$"
        with pytest.raises(SchemaTooOldError, match=sentence):
            schema.check(schema.StoredSchema(SCHEMA, 1), needed=SCHEMA + 1)

    async def test_a_database_that_was_never_named_has_to_be_migrated_to_its_end(
        self, directory: AccessDirectory, place: Place
    ) -> None:
        place.execute("DELETE FROM access_meta")
        with pytest.raises(SchemaTooOldError, match=r"run homing access migrate$"):
            await directory.start()
        with pytest.raises(SchemaTooOldError, match=r"run homing access migrate$"):
            await directory.read()
        assert await directory.migrate()
        assert (await directory.read()).cluster_id == "cluster-1"

    async def test_ones_that_a_later_version_only_added_to_are_served(
        self, directory: AccessDirectory, place: Place
    ) -> None:
        await directory.apply(ALL)
        place.execute("ALTER TABLE devices ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'")
        place.execute("CREATE TABLE novelties (id INTEGER PRIMARY KEY)")
        place.execute(SET_SCHEMA.format(SCHEMA + 1))
        assert await serves(directory)
        assert not await directory.migrate()  # nor are they touched
        assert await serves(place.open())

    async def test_ones_that_a_later_version_took_something_away_from_are_not_served(
        self, directory: AccessDirectory, place: Place
    ) -> None:
        """Also not by a node that runs meanwhile."""
        await directory.apply(ALL)
        place.execute(SET_SCHEMA.format(SCHEMA + 2))
        place.execute(SET_OLDEST.format(SCHEMA + 1))
        for call in (
            place.open().start(),
            directory.read(),
            directory.version(),
            directory.apply([Put(PLAIN_DEVICE)]),
            directory.touch({"x": 1}),
        ):
            with pytest.raises(SchemaTooNewError, match=f"from version {SCHEMA + 1} on, and this one knows {SCHEMA}"):
                await call
        assert not await directory.migrate()


class Trio:
    """Three processes that migrate the same database at once."""

    def __init__(self, stack: ExitStack) -> None:
        program = [sys.executable, "-m", "tests.contract.migrate_together"]
        self._processes = [
            stack.enter_context(
                subprocess.Popen([*program, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            )
            for name in ("a", "b", "c")
        ]
        for process in self._processes:
            assert self._line(process) == ["ready"]

    def migrate(self, url: str) -> list[list[str]]:
        """Return what each says: whether it migrated, whether it wrote first, and the name of the cluster."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{url}\n")
            process.stdin.flush()
        return [self._line(process) for process in self._processes]

    @staticmethod
    def _line(process: subprocess.Popen[str]) -> list[str]:
        assert process.stdout is not None
        return process.stdout.readline().split()


@pytest.fixture
def trio() -> Iterator[Trio]:
    with ExitStack() as stack:
        yield Trio(stack)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_of_three_processes_that_start_at_once_one_migrates_and_one_is_first(
    kind: str, trio: Trio, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for number in range(ROUNDS):
        if kind == "sqlite":
            (tmp_path / str(number)).mkdir()
            place = sqlite_place(tmp_path / str(number))
        else:
            server: PostgresProcess = request.getfixturevalue("postgresql")
            place = postgresql_place(server)
        said = trio.migrate(place.url)
        assert sorted(line[0] for line in said) == ["False", "False", "True"], said
        assert sorted(line[1] for line in said) == ["False", "False", "True"], said
        assert len({line[2] for line in said}) == 1, said
        directory = place.open(BUDGET)
        found = await directory.read()
        assert (found.version, len(found.principals)) == (1, 1)
        await place.close()
