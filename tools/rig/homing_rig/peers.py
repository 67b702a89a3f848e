"""Servers of others that queues are compared with, private and gone at the end, as they come from the distribution."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

from homing_rig.ports import lasting_port
from homing_rig.programs import environment, find_binary
from homing_rig.services import RunningProcess, ServiceProcess, reply_of

_AMQP_HEADER: Final = b"AMQP\x00\x00\x09\x01"
_CONNECTION_START: Final = b"\x01\x00\x00"
"""The beginning of a frame with a method on channel 0."""
_RABBITMQ: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""The server itself: what Debian puts on the path changes to a user that may not write to the temporary folder."""


class NatsProcess(ServiceProcess):
    """A NATS server with JetStream, which keeps its streams in files."""

    def __init__(self) -> None:
        super().__init__("nats-server")

    @property
    def url(self) -> str:
        """The URL for a client."""
        return f"nats://127.0.0.1:{self.port}"

    def _find(self, binary: str) -> str:
        return find_binary(binary, "nats-server")

    def _command(self) -> Sequence[str]:
        store = str(self.folder / "streams")
        return [self.binary, "--addr", "127.0.0.1", "--port", str(self.port), "--jetstream", "--store_dir", store]

    def _answers(self) -> bool:
        return reply_of(self.port, b"PING\r\n").startswith(b"INFO ")


class RabbitProcess(ServiceProcess):
    """A RabbitMQ of one node, with an epmd of its own, as Erlang needs one to start."""

    def __init__(self) -> None:
        super().__init__("rabbitmq-server")
        self._epmd_port = lasting_port()
        self._erlang_port = lasting_port()

    @property
    def url(self) -> str:
        """The URL for a client."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def kill(self) -> None:
        """End the server at once, and the epmd that it has started."""
        super().kill()
        told = [find_binary("epmd", "erlang-base"), "-port", str(self._epmd_port), "-kill"]
        subprocess.run(told, env=self._settings(), check=False, capture_output=True)

    def _find(self, binary: str) -> str:
        find_binary(binary, "rabbitmq-server")
        return _RABBITMQ

    def _settings(self) -> dict[str, str]:
        folder = str(self.folder)
        return environment(
            {
                "HOME": folder,  # where the cookie of Erlang is
                "RUNNING_UNDER_SYSTEMD": "1",  # the server takes the place of the shell that starts it
                "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
                "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                "RABBITMQ_NODE_PORT": str(self.port),
                "RABBITMQ_DIST_PORT": str(self._erlang_port),
                "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
                "RABBITMQ_LOG_BASE": folder,
                "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
                "RABBITMQ_PID_FILE": f"{folder}/pid",
                "ERL_EPMD_PORT": str(self._epmd_port),
                "ERL_EPMD_ADDRESS": "127.0.0.1",
            }
        )

    def _command(self) -> Sequence[str]:
        return [self.binary]

    def _launch(self, command: Sequence[str]) -> RunningProcess:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=self._settings())

    def _answers(self) -> bool:
        return reply_of(self.port, _AMQP_HEADER).startswith(_CONNECTION_START)
