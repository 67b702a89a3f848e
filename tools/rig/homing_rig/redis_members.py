"""A Redis Cluster of three primaries without replicas, on this machine, to measure with. All of it blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from redis import Redis

from homing_rig.patience import PATIENCE
from homing_rig.ports import lasting_port
from homing_rig.rights import NODE_USER
from homing_rig.services import NotStartedError, RedisProcess, wait_until

PRIMARIES: Final = 3
SLOTS: Final = 16_384


class MemberRedis(RedisProcess):
    """A member of a Redis Cluster."""

    def __init__(self) -> None:
        self.bus_port = lasting_port()
        super().__init__("--cluster-enabled", "yes", "--cluster-port", str(self.bus_port))

    def ask(self, *command: str | int) -> Any:  # noqa: ANN401 - what Redis replies
        """The reply of a command."""
        with Redis(port=self.port, socket_timeout=PATIENCE, decode_responses=True) as client:
            return client.execute_command(*command)

    def is_whole(self) -> bool:
        """True if all slots are served, as far as it knows."""
        said = self.ask("CLUSTER INFO")
        return bool(said["cluster_state"] == "ok" and said["cluster_known_nodes"] == str(PRIMARIES))


def members_url(members: Sequence[MemberRedis]) -> str:
    """The URL of their cluster, as for HOMING_STORE_URL."""
    places = ",".join(f"127.0.0.1:{one.port}" for one in members)
    return f"redis+cluster://{NODE_USER}:{RedisProcess.password}@{places}"


@contextmanager
def three_primaries() -> Iterator[Sequence[MemberRedis]]:
    """Three that serve a third of the slots each; NotStartedError if they never find each other."""
    with ExitStack() as stack:
        members = [stack.enter_context(MemberRedis()) for _ in range(PRIMARIES)]
        for number, one in enumerate(members):
            first, behind = (SLOTS * place // PRIMARIES for place in (number, number + 1))
            one.ask("CLUSTER SET-CONFIG-EPOCH", number + 1)
            one.ask("CLUSTER ADDSLOTSRANGE", first, behind - 1)
            if number:
                one.ask("CLUSTER MEET", "127.0.0.1", members[0].port, members[0].bus_port)
        if not wait_until(lambda: all(one.is_whole() for one in members), PATIENCE, interval=0.1):
            raise NotStartedError("the members of the Redis Cluster never found each other")
        yield members
