"""Redis Clusters of this machine: how members are started and find each other. All of it blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, Protocol

from redis import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError

from app.core import keys
from app.core.identifiers import partition_of
from homing_rig.patience import PATIENCE
from homing_rig.ports import lasting_port
from homing_rig.rights import NODE_USER, PASSWORD
from homing_rig.services import NotStartedError, RedisProcess, wait_until

PRIMARIES: Final = 3
SLOTS: Final = 16_384
NODE_TIMEOUT_MS: Final = 1500
LOOK_SECONDS: Final = 0.05
ASK_AGAIN_SECONDS: Final = 6.0
"""Redis gives a planned fail-over up after 5 s, and does not begin another by itself."""
ASKED: Final = 10


class Member(Protocol):
    """A member of a Redis Cluster, as another one and whoever asks it sees it."""

    bus_port: int

    @property
    def peer_port(self) -> int:
        """The port by which other members reach it."""

    def ask(self, *command: str | int) -> Any:  # noqa: ANN401 - what Redis replies
        """The reply of a command; RedisError."""


def member_arguments(bus_port: int, node_timeout_ms: int = NODE_TIMEOUT_MS) -> tuple[str, ...]:
    """The options that make a member of a Redis."""
    return (
        *("--cluster-enabled", "yes", "--cluster-port", str(bus_port)),
        *("--cluster-node-timeout", str(node_timeout_ms), "--cluster-allow-replica-migration", "no"),
    )


def reply(port: int, *command: str | int, user: str | None = None) -> Any:  # noqa: ANN401 - what Redis replies
    """The reply of the Redis on this port, as it comes; RedisError. Without a user it does not log in."""
    password = None if user is None else PASSWORD
    with Redis(port=port, socket_timeout=PATIENCE, decode_responses=True, username=user, password=password) as client:
        connection = client.connection_pool.get_connection()
        try:
            connection.send_command(*command)
            return connection.read_response()
        finally:
            client.connection_pool.release(connection)


def state_of(member: Member) -> dict[str, str]:
    """The lines of CLUSTER INFO; empty when it does not answer."""
    with suppress(RedisError, OSError):
        return dict(line.split(":", 1) for line in member.ask("CLUSTER", "INFO").splitlines() if ":" in line)
    return {}


def is_primary(member: Member) -> bool:
    """True if it takes writes, as it sees itself."""
    with suppress(RedisError, OSError):
        return bool(member.ask("ROLE")[0] == "master")
    return False


def is_in_step(member: Member) -> bool:
    """True if it is a replica that follows its primary, as it sees itself."""
    with suppress(RedisError, OSError):
        role, *rest = member.ask("ROLE")
        return bool(role == "slave" and rest[2] == "connected")
    return False


def takes_over(replica: Member) -> bool:
    """Let the replica change places with its primary, as planned; True once it has. A busy machine needs attempts."""
    for _ in range(ASKED):
        with suppress(ResponseError):
            replica.ask("CLUSTER", "FAILOVER")
        if wait_until(lambda: is_primary(replica), ASK_AGAIN_SECONDS, LOOK_SECONDS):
            return True
    return False


def unite(members: Sequence[Member]) -> None:
    """Let the first three serve a third of the slots each, and the others follow them, in the same order.

    NotStartedError if they never find each other.
    """
    for number, one in enumerate(members):
        one.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        if number < PRIMARIES:
            first, behind = (SLOTS * place // PRIMARIES for place in (number, number + 1))
            one.ask("CLUSTER", "ADDSLOTSRANGE", first, behind - 1)
        if number:
            one.ask("CLUSTER", "MEET", "127.0.0.1", members[0].peer_port, members[0].bus_port)
    known = str(len(members))
    _await(lambda: all(state_of(one).get("cluster_known_nodes") == known for one in members))
    replicas = members[PRIMARIES:]
    for replica, primary in zip(replicas, members, strict=False):
        replica.ask("CLUSTER", "REPLICATE", primary.ask("CLUSTER", "MYID"))
    _await(lambda: are_whole(members) and all(is_in_step(one) for one in replicas))


def _await(found: Callable[[], bool]) -> None:
    if not wait_until(found, PATIENCE, LOOK_SECONDS):
        raise NotStartedError("the members of the Redis Cluster never found each other")


def are_whole(members: Sequence[Member]) -> bool:
    """True if all of them know that each slot is served."""
    return all(state_of(one).get("cluster_state") == "ok" for one in members)


def third_of(device_id: str) -> int:
    """The number, from 0, of the third of the slots that has the commands of a device."""
    return key_slot(keys.due(partition_of(device_id)).encode()) * PRIMARIES // SLOTS


def members_url(members: Sequence[RedisProcess]) -> str:
    """The URL of their cluster, as for HOMING_STORE_URL."""
    return cluster_url([one.port for one in members], RedisProcess.password)


def cluster_url(ports: Sequence[int], password: str) -> str:
    """The URL of the cluster with members on these ports, as for HOMING_STORE_URL, with the rights of a node."""
    return f"redis+cluster://{NODE_USER}:{password}@{','.join(f'127.0.0.1:{port}' for port in ports)}"


class MemberRedis(RedisProcess):
    """A member of a Redis Cluster, to measure with."""

    def __init__(self) -> None:
        self.bus_port = lasting_port()
        super().__init__(*member_arguments(self.bus_port, node_timeout_ms=15_000))

    def ask(self, *command: str | int) -> Any:  # noqa: ANN401 - what Redis replies
        """The reply of a command."""
        return reply(self.port, *command)


@contextmanager
def three_primaries() -> Iterator[Sequence[MemberRedis]]:
    """Three that serve a third of the slots each, without replicas; NotStartedError if they never find each other."""
    with ExitStack() as stack:
        members = [stack.enter_context(MemberRedis()) for _ in range(PRIMARIES)]
        unite(members)
        yield members
