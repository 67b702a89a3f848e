"""The listener to what the broker tells of itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from homing_rig.chaos import fleet
from homing_rig.chaos.fleet import Witness
from homing_rig.chaos.servers import MosquittoProcess
from tests.services import require_programs


class SilentBroker(MosquittoProcess):
    """A broker that counts nothing."""

    def _command(self) -> Sequence[str]:
        command = super()._command()
        config = self.folder / "mosquitto.conf"
        config.write_text(config.read_text().replace("sys_interval 1", "sys_interval 0"))
        return command


async def test_a_broker_that_tells_nothing_has_not_told_that_it_dropped_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_programs()
    (tmp_path / "profiles").mkdir()
    broker = SilentBroker(tmp_path, tmp_path / "profiles")
    witness = Witness(broker.port)
    await broker.start()
    try:
        monkeypatch.setattr(fleet, "START_SECONDS", 1.0)
        with pytest.raises(TimeoutError):
            await witness.start()
    finally:
        await witness.stop()
        await broker.kill()
