"""A service in a container instead of a process, for machines that have Docker and not the services.

`scripts/test` sets HOMING_TEST_SERVICES=docker there. The container shares the host's network and its folder for
temporary files, so that nothing else needs to know.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from docker.errors import APIError
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

REDIS: Final = "redis:7-bookworm"
MOSQUITTO: Final = "eclipse-mosquitto:2.0.22"
"""As in deploy/compose.yaml."""
DEBIANS_MOSQUITTO: Final = "homing-mosquitto:debian"
"""The image that `scripts/image` makes where there is no registry."""


def mosquitto_image() -> str:
    """The image to start: Debian's, where that is the one that this engine has."""
    known = subprocess.run(["docker", "image", "inspect", DEBIANS_MOSQUITTO], capture_output=True, check=False)
    return MOSQUITTO if known.returncode else DEBIANS_MOSQUITTO


class ContainerProcess:
    """As much of subprocess.Popen as a ServiceProcess uses."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        testcontainers_config.ryuk_disabled = True  # every container is removed by its owner
        self._log = folder / "log"
        image = REDIS if Path(command[0]).name == "redis-server" else mosquitto_image()
        self._container = DockerContainer(image).with_kwargs(
            entrypoint=list(command),
            network_mode="host",
            user=f"{os.getuid()}:{os.getgid()}",
            working_dir=str(folder),
        )
        # With the folders of the tests, where certificates and the like are.
        shared = tempfile.gettempdir()
        self._container.with_volume_mapping(shared, shared, "rw")
        self._container.start()
        self.returncode: int | None = None

    @property
    def pid(self) -> int:
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        return int(wrapped.attrs["State"]["Pid"])

    def poll(self) -> int | None:
        wrapped = self._container.get_wrapped_container()
        if self.returncode is None:
            wrapped.reload()
            if wrapped.status in ("exited", "dead"):
                self._finish(int(wrapped.attrs["State"]["ExitCode"]))
        return self.returncode

    def send_signal(self, number: int) -> None:
        wrapped = self._container.get_wrapped_container()
        with suppress(APIError):  # it ended meanwhile, or is as it should be
            if number == signal.SIGSTOP:
                wrapped.pause()
                return
            with suppress(APIError):
                wrapped.unpause()  # Docker gives no signals to a paused container
            if number != signal.SIGCONT:
                wrapped.kill(signal=signal.Signals(number).name)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            try:
                ended = self._container.get_wrapped_container().wait(timeout=timeout)
            except Exception as error:
                raise subprocess.TimeoutExpired("container", timeout or 0) from error
            self._finish(int(ended["StatusCode"]))
        return self.returncode or 0

    def _finish(self, code: int) -> None:
        self.returncode = code
        self._log.write_bytes(self._container.get_wrapped_container().logs())
        self._container.stop(force=True)
