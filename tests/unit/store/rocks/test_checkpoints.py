"""A folder lends its checkpoint, and takes it back."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from app.store.rocks.checkpoints import CHECKPOINT, CheckpointServer, connect_to


async def make(folder: Path) -> None:
    folder.mkdir()


async def test_a_connection_ends_where_the_folder_is_closed_while_its_checkpoint_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, go_on = threading.Event(), threading.Event()
    rmtree = shutil.rmtree

    def slow(path: Path, *, ignore_errors: bool) -> None:
        if path.exists():
            removing.set()
            go_on.wait()
        rmtree(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", slow)
    server = CheckpointServer(tmp_path, make)
    await server.start()
    with connect_to(tmp_path) as mine:
        assert await asyncio.to_thread(mine.recv, 100) == b"{}\n"
        mine.sendall(b"x")  # done with it, and still there
        await asyncio.to_thread(removing.wait)
        closing = asyncio.create_task(server.close())
        await asyncio.sleep(0)
        go_on.set()
        await closing
        assert not (tmp_path / CHECKPOINT).exists()
        assert await asyncio.to_thread(mine.recv, 1) == b""
