"""A Redis Cluster of three primaries with a replica each, whose thirds of the slots are failed over, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from redis.asyncio.cluster import ClusterNode, RedisCluster

from homing_rig.chaos.options import ChaosError
from homing_rig.chaos.redis_pair import BEHIND_SECONDS
from homing_rig.chaos.schedule import THIRDS
from homing_rig.chaos.servers import START_SECONDS, RedisProcess
from homing_rig.patience import eventually
from homing_rig.ports import lasting_port
from homing_rig.redis_members import (
    PRIMARIES,
    are_whole,
    cluster_url,
    is_in_step,
    is_primary,
    member_arguments,
    reply,
    takes_over,
    unite,
)
from homing_rig.rights import PASSWORD, RIG_USER


class ClusterRedis(RedisProcess):
    """A member that keeps its place in the cluster, and what it wrote, over its restarts."""

    def __init__(self, folder: Path, name: str) -> None:
        self.bus_port = lasting_port()
        super().__init__(folder, name=name)

    @property
    def peer_port(self) -> int:
        """The port by which other members reach it."""
        return self.port

    def ask(self, *command: str | int) -> Any:  # noqa: ANN401 - what Redis replies
        """The reply of a command; it blocks. RedisError."""
        return reply(self.port, *command, user=RIG_USER)

    def _command(self) -> Sequence[str]:
        follows = ("--masteruser", RIG_USER, "--masterauth", PASSWORD, "--cluster-require-full-coverage", "no")
        return [*super()._command(), *member_arguments(self.bus_port), *follows]


class RedisThirds:
    """Three pairs of a primary and a replica, each of which serves a third of the slots, whoever is the primary."""

    def __init__(self, folder: Path) -> None:
        self.members: Final = [ClusterRedis(folder, f"redis-{number + 1}") for number in range(2 * PRIMARIES)]
        places = [ClusterNode("127.0.0.1", one.port) for one in self.members]
        self.client: Final = RedisCluster(startup_nodes=places, username=RIG_USER, password=PASSWORD)
        self.turns: Final = asyncio.Lock()
        """Held by whoever lets one of the pairs fail over: the next one waits until all are in step again."""
        self.promoted: Final[list[float]] = []
        """Seconds from each death of a primary until its replica had its place."""
        self.ends: Final[list[tuple[float, str]]] = []
        """The loop times at which the dead primary of a third followed, and the third."""

    @property
    def url(self) -> str:
        """As for HOMING_STORE_URL, with the rights of a node."""
        return cluster_url([one.port for one in self.members], PASSWORD)

    async def start(self) -> None:
        """Start all members, and return when each slot is served and each replica in step."""
        await asyncio.gather(*(one.start() for one in self.members))
        await asyncio.to_thread(unite, self.members)

    async def switch(self, third: str) -> float:
        """Let primary and replica change places as an operator does, without loss.

        Return how many seconds it took until all replicas were in step again; ChaosError when they never were.
        """
        began = asyncio.get_running_loop().time()
        _, replica = await self._pair(third)
        await asyncio.to_thread(_take_over, replica)
        await self._in_step()
        return asyncio.get_running_loop().time() - began

    async def fail_over(self, third: str, seconds: float) -> float:
        """Kill the primary, whose replica is behind, and start it again `seconds` after that was promoted.

        Return how many seconds it took until all replicas were in step again; ChaosError when they never were.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        primary, replica = await self._pair(third)
        await asyncio.to_thread(_part, primary, replica)
        await asyncio.sleep(BEHIND_SECONDS)
        await primary.kill()
        died = loop.time()
        await asyncio.to_thread(replica.ask, "CONFIG", "SET", "masterauth", PASSWORD)
        await self._until(partial(is_primary, replica), f"{replica.name} never took the place of {primary.name}")
        self.promoted.append(loop.time() - died)
        await asyncio.sleep(seconds)
        await primary.start()
        await self._in_step()
        self.ends.append((loop.time(), third))
        return loop.time() - began

    async def refusals(self) -> int:
        """Count the calls that the members refused, as the user had no right to them."""
        logs = await asyncio.gather(*(asyncio.to_thread(one.ask, "ACL", "LOG") for one in self.members))
        return sum(map(len, logs))

    async def _pair(self, third: str) -> tuple[ClusterRedis, ClusterRedis]:
        """Return the primary and the replica of a third, as soon as all are in step."""
        await self._in_step()
        one, other = _pairs(self.members)[THIRDS.index(third)]
        return (one, other) if await asyncio.to_thread(is_primary, one) else (other, one)

    async def _in_step(self) -> None:
        await self._until(partial(_are_in_step, self.members), "the members of the Redis Cluster are not in step")

    async def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        try:
            await eventually(partial(asyncio.to_thread, holds), START_SECONDS)
        except TimeoutError:
            raise ChaosError(otherwise) from None


async def thirds_of(stack: AsyncExitStack, folder: Path) -> RedisThirds:
    """Start a Redis Cluster, which is gone when the stack is closed."""
    thirds = RedisThirds(folder)
    for one in thirds.members:
        stack.push_async_callback(one.kill)
    stack.push_async_callback(thirds.client.aclose)
    await thirds.start()
    return thirds


def _pairs(members: Sequence[ClusterRedis]) -> list[tuple[ClusterRedis, ClusterRedis]]:
    return list(zip(members[:PRIMARIES], members[PRIMARIES:], strict=True))


def _are_in_step(members: Sequence[ClusterRedis]) -> bool:
    """True if each pair has one primary and one replica that follows, and all know that each slot is served."""
    return are_whole(members) and all(
        (is_primary(one) and is_in_step(other)) or (is_primary(other) and is_in_step(one))
        for one, other in _pairs(members)
    )


def _take_over(replica: ClusterRedis) -> None:
    if not takes_over(replica):
        raise ChaosError(f"{replica.name} never took over: {replica.log_text[-1500:]}")


def _part(primary: ClusterRedis, replica: ClusterRedis) -> None:
    """Let the replica get no more of its primary, which does not let it in again."""
    replica.ask("CONFIG", "SET", "masterauth", "wrong")
    primary.ask("CLIENT", "KILL", "TYPE", "replica")
