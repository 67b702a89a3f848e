"""A primary with a replica that three Sentinels guard, as servers of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis
from redis.exceptions import RedisError

from tests.services import NODE_PASSWORD, NODE_USER, RedisProcess, SentinelProcess, wait_until
from tests.waiting import PATIENCE

GUARDS = 3


@dataclass(frozen=True)
class Guarded:
    """All methods block."""

    servers: Sequence[RedisProcess]
    """The one that was the primary at first is the first."""
    guards: Sequence[SentinelProcess]

    @property
    def url(self) -> str:
        """As for HOMING_STORE_URL, with the rights of a node."""
        return sentinel_url(self.guards, f"{NODE_USER}:{NODE_PASSWORD}@")

    def primary(self) -> RedisProcess:
        """The one that most Sentinels name."""
        named = [self._named(guard) for guard in self.guards]
        return next(one for one in self.servers if one.port == max(named, key=named.count))

    def switch(self) -> None:
        """Begin a planned switch to the replica."""
        with Redis(port=self.guards[0].port) as guard:
            guard.execute_command("SENTINEL", "FAILOVER", SentinelProcess.service)

    def switched(self, before: RedisProcess) -> bool:
        """True if all Sentinels name another one."""
        return all(self._named(guard) not in (0, before.port) for guard in self.guards)

    def ready(self) -> bool:
        """True if all know each other and a replica that is in step."""
        facts = [self._facts(guard) for guard in self.guards]
        known = all(one.get("num-slaves", 0) > 0 and one.get("num-other-sentinels", 0) == GUARDS - 1 for one in facts)
        with Redis(port=self.primary().port) as client:
            said: dict[str, Any] = client.info("replication")
        return known and any(
            isinstance(one, dict) and one.get("state") == "online" and one.get("offset", 0) > 0 for one in said.values()
        )

    def _named(self, guard: SentinelProcess) -> int:
        return int(self._facts(guard).get("port", 0))

    def _facts(self, guard: SentinelProcess) -> dict[str, Any]:
        with suppress(RedisError, OSError), Redis(port=guard.port, socket_timeout=1, decode_responses=True) as client:
            return cast("dict[str, Any]", client.sentinel_master(SentinelProcess.service))
        return {}


def sentinel_url(guards: Sequence[SentinelProcess], login: str = "") -> str:
    """The URL that names these."""
    places = ",".join(f"127.0.0.1:{one.port}" for one in guards)
    return f"redis+sentinel://{login}{places}/{SentinelProcess.service}/0"


@contextmanager
def guarded(users: str = "") -> Iterator[Guarded]:
    """All of them, ready. `users` are lines for the file of the Sentinels."""
    with ExitStack() as stack:
        primary = stack.enter_context(RedisProcess())
        replica = stack.enter_context(
            RedisProcess("--replicaof", f"127.0.0.1 {primary.port}", "--repl-diskless-sync-delay", "0")
        )
        guards = [stack.enter_context(SentinelProcess(primary, quorum=GUARDS - 1, users=users)) for _ in range(GUARDS)]
        found = Guarded((primary, replica), guards)
        if not users:
            assert wait_until(found.ready, PATIENCE, interval=0.1), "the Sentinels never found each other"
        yield found
