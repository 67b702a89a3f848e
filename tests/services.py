"""The private services of homing_rig, with the rights that deploy/ grants: skipped where they are not installed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from homing_rig import postgres, programs, services
from homing_rig.rights import NODE_USER
from homing_rig.services import RunningProcess, ServiceProcess, wait_until

__all__ = [
    "DEPLOY",
    "IN_CONTAINERS",
    "NODE_PASSWORD",
    "NODE_USER",
    "MosquittoProcess",
    "PostgresProcess",
    "RedisProcess",
    "SentinelProcess",
    "find_binary",
    "require_programs",
    "wait_until",
    "without_program",
]

DEPLOY = Path(__file__).parent.parent / "deploy"
NODE_PASSWORD = "change-me"
"""The password of NODE_USER, to whom deploy/redis/users.acl and deploy/mosquitto/acl grant what nodes need, and no more
(S9)."""
IN_CONTAINERS = ("redis-server", "mosquitto") if os.environ.get("HOMING_TEST_SERVICES") == "docker" else ()
"""Services that run in containers, as neither apt nor the machine has them."""


def find_binary(name: str, package: str = programs.SERVICES) -> str:
    """Path of a program. When it is missing the test is skipped on a laptop and fails in CI."""
    if name in IN_CONTAINERS:
        return name
    try:
        return programs.find_binary(name, package)
    except programs.NotInstalledError as error:
        without_program(str(error))


def without_program(missing: str) -> NoReturn:
    """Skip the test on a laptop, and fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def require_programs() -> None:
    """Redis and Mosquitto as programs of this machine, for rigs that start them themselves: containers will not do."""
    if IN_CONTAINERS:
        pytest.skip("this rig starts redis-server and mosquitto itself, and here they are in containers only")
    for name in ("redis-server", "mosquitto"):
        find_binary(name)


class _Tested(ServiceProcess):
    """A service that a test can do without, and that may run in a container."""

    def _find(self, binary: str) -> str:
        return find_binary(binary)

    def _launch(self, command: Sequence[str]) -> RunningProcess:
        if self.binary not in IN_CONTAINERS:
            return super()._launch(command)
        from tests.service_container import ContainerProcess  # noqa: PLC0415 - Docker's library, where there is Docker

        return ContainerProcess(command, self.folder)


class MosquittoProcess(_Tested, services.MosquittoProcess):
    """Nodes have the rights of deploy/mosquitto/acl."""

    password = NODE_PASSWORD

    def _acl(self) -> str:
        return (DEPLOY / "mosquitto" / "acl").read_text()

    def _passwords(self) -> str:
        return (DEPLOY / "mosquitto" / "passwords.example").read_text()


class RedisProcess(_Tested, services.RedisProcess):
    """Nodes have the rights of deploy/redis/users.acl."""

    password = NODE_PASSWORD

    def _users(self) -> str:
        return (DEPLOY / "redis" / "users.acl").read_text()


class SentinelProcess(_Tested, services.SentinelProcess):
    """As the rig has it."""


class PostgresProcess(_Tested, postgres.PostgresProcess):
    """As the rig has it."""
