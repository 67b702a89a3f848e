"""Backups of a data folder that is in use or not, and new folders made from them: whole, or refused in a sentence."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from app.core.errors import ConfigurationError, HomingError, StoreUnavailableError
from app.settings import one_folder
from app.store.backup.backups import back_up, restore
from app.store.backup.drafts import PREFIX, staged
from app.store.backup.manifest import SYNCED_BYTES, copy_file, digest_of
from app.store.backup.source import still_store
from app.store.data_folder import DIRECTORY, SECRETS, STORE, DataFolder
from app.store.rocks.checkpoints import CHECKPOINT, SOCKET, connect_to
from app.store.rocks.folder import COMMANDS, RocksFolder
from app.store.rocks.sessions import RocksSessions

NOW = 1_790_000_000.0
ROWS = {b"cdock": b"a", b"ttopic": b"b"}


async def open_store(data: Path) -> RocksSessions:
    sessions = RocksSessions(RocksFolder(data / STORE, COMMANDS))
    await sessions.start()
    return sessions


async def rows_of(data: Path) -> dict[bytes, bytes]:
    sessions = RocksSessions(RocksFolder(data / STORE, COMMANDS))
    rows = await sessions.start()
    await sessions.close()
    return dict(rows)


async def make_data(path: Path) -> None:
    folder = DataFolder(path)
    folder.keep(Path(SECRETS) / "admin.key", "k")
    sessions = await open_store(path)
    await sessions.write(ROWS)
    await sessions.close()
    with closing(sqlite3.connect(path / DIRECTORY)) as directory:
        directory.execute("CREATE TABLE t (n)")
    folder.release()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a node leaves it that was stopped, and a backup of it."""
    made = tmp_path_factory.mktemp("made")
    asyncio.run(make_data(made / "data"))
    back_up(made / "data", made / "backup", secrets=False, wall=NOW)
    return made


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "data", tmp_path / "data"))


@pytest.fixture
def taken(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "backup", tmp_path / "backup"))


def names(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}


def test_the_places_are_those_of_the_settings() -> None:
    assert (STORE, DIRECTORY) == (one_folder.STORE, one_folder.DIRECTORY)
    assert one_folder.ADMIN_KEY.parent == one_folder.WEBHOOKS_KEY.parent == Path(SECRETS)


async def test_what_is_restored_has_the_rows_of_before(taken: Path, tmp_path: Path) -> None:
    """Secrets are only in it when they are asked for, and all is for its owner alone."""
    found = names(taken)
    assert {"access.db", "layout.json", "manifest.json", "store/CURRENT", "store/layout.json"} <= found
    assert not {one for one in found if "secrets" in one or "lock" in one.lower() or "LOG" in one}
    assert {one.stat().st_mode & 0o77 for one in [taken, *taken.rglob("*")]} == {0}
    manifest = restore(taken, tmp_path / "new")
    assert manifest.made_at == "2026-09-21T14:13:20+00:00"
    assert {"access.db", "layout.json", "store/layout.json"} <= names(tmp_path / "new")
    assert await rows_of(tmp_path / "new") == ROWS
    DataFolder(tmp_path / "new").release()
    back_up(tmp_path / "new", tmp_path / "again", secrets=False, wall=NOW)


def test_secrets_are_copied_when_they_are_asked_for(data: Path, tmp_path: Path) -> None:
    back_up(data, tmp_path / "backup", secrets=True, wall=NOW)
    restore(tmp_path / "backup", tmp_path / "new")
    key = tmp_path / "new" / SECRETS / "admin.key"
    assert (key.read_text(), key.stat().st_mode & 0o777) == ("k\n", 0o600)


def test_a_start_in_the_middle_of_a_copy_waits_for_its_end(data: Path) -> None:
    copying = ExitStack()
    copying.enter_context(still_store(data, data / STORE))
    folder = DataFolder(data, lambda _sentence: copying.close())
    folder.release()


async def test_one_that_is_in_use_gives_a_checkpoint_of_one_moment(data: Path, tmp_path: Path) -> None:
    """It is asked for over the socket, and gone afterwards; what is written later is not in it."""
    sessions = await open_store(data)
    assert (data / STORE / SOCKET).stat().st_mode & 0o777 == 0o600
    await sessions.write({b"cbefore": b"1"})
    await asyncio.to_thread(back_up, data, tmp_path / "backup", secrets=False, wall=NOW)
    await sessions.write({b"cafter": b"2"})
    with connect_to(data / STORE) as first:
        assert await asyncio.to_thread(first.recv, 100) == b"{}\n"
        assert (data / STORE / CHECKPOINT).is_dir()
        with pytest.raises(StoreUnavailableError, match="made no checkpoint: another backup is under way"):
            await asyncio.to_thread(back_up, data, tmp_path / "second", secrets=False, wall=NOW)
    await sessions.close()
    assert not (data / STORE / CHECKPOINT).exists(), "its owner has gone"
    assert not (data / STORE / SOCKET).exists()
    assert {one.name for one in tmp_path.iterdir()} == {"data", "backup"}, "nothing is left of the second"
    restore(tmp_path / "backup", tmp_path / "new")
    assert await rows_of(tmp_path / "new") == ROWS | {b"cbefore": b"1"}


async def test_a_copy_counts_only_if_the_node_was_there_until_its_end(data: Path) -> None:
    """A checkpoint goes with the node, and nobody would miss a file that was not listed any more."""
    sessions = await open_store(data)
    copying = still_store(data, data / STORE)
    still = await asyncio.to_thread(copying.__enter__)
    assert (still / "CURRENT").exists()
    await sessions.close()
    with pytest.raises(StoreUnavailableError, match=f"the node that used {data} ended while its store was copied"):
        copying.__exit__(None, None, None)


async def test_a_folder_that_was_moved_away_under_its_node_is_copied_when_it_is_back(
    data: Path, tmp_path: Path
) -> None:
    """The links of a checkpoint would be made where the folder was."""
    sessions = await open_store(data)
    moved = data.rename(tmp_path / "moved")
    with pytest.raises(
        StoreUnavailableError, match=r"the store cannot be copied: .* put the folder back that was there"
    ):
        await asyncio.to_thread(back_up, moved, tmp_path / "backup", secrets=False, wall=NOW)
    assert {one.name for one in tmp_path.iterdir()} == {"moved"}
    moved.rename(data)
    await asyncio.to_thread(back_up, data, tmp_path / "backup", secrets=False, wall=NOW)
    await sessions.close()


async def test_the_socket_has_an_address_in_a_deep_folder(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    DataFolder(deep).release()
    sessions = await open_store(deep)
    with connect_to(deep / STORE):
        pass
    await sessions.close()


def in_use(data: Path) -> None:
    """By a process that answers nobody; the lock lives as long as the test's process."""
    DataFolder(data)


def not_ours(data: Path) -> None:
    shutil.rmtree(data)
    data.mkdir()
    (data / "letter").write_text("dear")


def newer(data: Path) -> None:
    (data / "layout.json").write_text('{"layout": 9, "written_by": "9.0.0"}')


def broken(data: Path) -> None:
    (data / STORE / "CURRENT").write_text("nonsense\n")


def no_directory(data: Path) -> None:
    (data / DIRECTORY).write_bytes(b"nonsense" * 1000)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (in_use, "is in use, and nobody answers at .*homing.sock; wait until the node has started, or stop it"),
        (not_ours, "is no folder of homing up that has a store; name it with --data"),
        (newer, r"was written by 9.0.0 \(layout 9\); this is .*, which reads up to layout 1"),
        (broken, "store cannot be opened: "),
        (no_directory, "access.db cannot be copied: file is not a database"),
    ],
)
def test_a_folder_that_cannot_be_copied_leaves_no_backup(
    data: Path, tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(data)
    with pytest.raises(HomingError, match=said):
        back_up(data, tmp_path / "backup", secrets=False, wall=NOW)
    assert [one.name for one in tmp_path.iterdir()] == ["data"]


def no_manifest(backup: Path) -> None:
    (backup / "manifest.json").unlink()


def damaged_manifest(backup: Path) -> None:
    (backup / "manifest.json").write_text('{"format": 1, "files": {')


def other_manifest(backup: Path) -> None:
    (backup / "manifest.json").write_text('{"format": 1, "written_by": "0.3.0"}')


def newer_manifest(backup: Path) -> None:
    (backup / "manifest.json").write_text('{"format": 2, "written_by": "9.0.0"}')


def leads_elsewhere(backup: Path) -> None:
    files = {"../evil": {"bytes": 0, "sha256": ""}}
    told = {"format": 1, "written_by": "0.3.0", "made_at": "", "files": files}
    (backup / "manifest.json").write_text(json.dumps(told))


def flipped(backup: Path) -> None:
    (one,) = backup.glob("store/*.log")
    data = bytearray(one.read_bytes() or b"x")
    data[-1] ^= 1
    one.write_bytes(data)


def missing(backup: Path) -> None:
    (backup / "store" / "CURRENT").unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (no_manifest, "is no backup: it has no manifest.json"),
        (damaged_manifest, "manifest.json is damaged: it is not JSON; take another backup"),
        (other_manifest, "manifest.json is damaged: it lists no files as backups do"),
        (newer_manifest, r"was written by 9.0.0 \(format 2\); this is .*, which reads up to format 1"),
        (leads_elsewhere, "manifest.json is damaged"),
        (flipped, r"store/\d+.log is damaged: size or SHA-256 are not those of manifest.json; take another backup"),
        (missing, "store/CURRENT is missing, and manifest.json names it; take another backup"),
    ],
)
def test_a_damaged_backup_makes_no_folder(
    taken: Path, tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(taken)
    with pytest.raises(ConfigurationError, match=said):
        restore(taken, tmp_path / "new")
    assert [one.name for one in tmp_path.iterdir()] == ["backup"]


def test_only_new_folders_are_written(taken: Path, data: Path, tmp_path: Path) -> None:
    for target in (data, taken / "manifest.json"):
        with pytest.raises(ConfigurationError, match="is there already, and is no empty folder; name a new one"):
            restore(taken, target)
    with pytest.raises(ConfigurationError, match="is there already, and is no empty folder; name a new one"):
        back_up(data, taken, secrets=False, wall=NOW)
    with pytest.raises(ConfigurationError, match="cannot be written: Not a directory"):
        back_up(data, taken / "manifest.json" / "below", secrets=False, wall=NOW)
    (tmp_path / "empty").mkdir()
    restore(taken, tmp_path / "empty")


def test_a_volume_that_is_mounted_is_filled(data: Path, tmp_path: Path) -> None:
    """As in a container, where the folder of the node is a volume; it may have a folder of its own."""
    unshare = shutil.which("unshare")
    private = [str(unshare), "--user", "--map-root-user", "--mount"]
    if unshare is None or subprocess.run([*private, "true"], check=False).returncode:
        pytest.skip("this machine lets nobody mount a volume")
    homing, names = f"{shlex.quote(sys.executable)} -m app.cli", [str(tmp_path / one) for one in ("backup", "new")]
    backup, new = map(shlex.quote, names)
    script = f"""
        set -e
        mkdir {backup} {new}
        for one in {backup} {new}; do mount -t tmpfs none $one; mkdir $one/lost+found $one/{PREFIX}old; done
        {homing} backup {backup} --data {shlex.quote(str(data))}
        {homing} restore {backup} --data {new}
        if {homing} restore {backup} --data {new}; then exit 9; fi
        {homing} doctor --data {new} >&2
        ls -A {new}
    """
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*private, "sh", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    there = {"access.db", "layout.json", "lost+found", "store"}
    assert set(done.stdout.splitlines()[-len(there) :]) == there
    assert "is there already, and is no empty folder" in done.stderr


def test_a_full_target_gets_a_sentence_and_keeps_nothing(data: Path, tmp_path: Path) -> None:
    """No file may grow beyond 4 KiB, which is like a full disk to whoever writes."""
    words = [sys.executable, "-m", "app.cli", "backup", str(tmp_path / "backup"), "--data", str(data)]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # noqa: E731
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    (data / DIRECTORY).unlink()
    done = subprocess.run(words, preexec_fn=limit, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"homing: {tmp_path / 'backup'} cannot be written: File too large\n"
    assert [one.name for one in tmp_path.iterdir()] == ["data"]


def test_a_copy_is_synced_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    sync = os.fsync

    def synced(file: int) -> None:
        sync(file)
        sizes.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", synced)
    (tmp_path / "source").write_bytes(bytes(2 * SYNCED_BYTES + 5))
    digest = copy_file(tmp_path / "source", tmp_path / "target")
    assert sizes == [SYNCED_BYTES, 2 * SYNCED_BYTES, 2 * SYNCED_BYTES + 5]
    assert digest == digest_of(tmp_path / "source") == digest_of(tmp_path / "target")


def test_what_a_killed_process_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    half = tmp_path / f"{PREFIX}old"
    half.mkdir()
    (half / "homing.lock").write_text("1")
    with staged(tmp_path / "a") as first:
        assert not half.exists()
        with staged(tmp_path / "b"):
            assert first.exists(), "a living process has it"
        with pytest.raises(ConfigurationError, match="is being written by another process"), staged(tmp_path / "a"):
            pass
    assert {one.name for one in tmp_path.iterdir()} == {"a", "b"}
