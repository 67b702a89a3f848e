"""A primary with a replica that three Sentinels guard, as servers of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis
from redis.exceptions import RedisError

from homing_rig.ports import lasting_port
from tests.certificates import CertificateFiles, redis_tls
from tests.services import NODE_PASSWORD, NODE_USER, RedisProcess, SentinelProcess, wait_until
from tests.waiting import PATIENCE

GUARDS = 3


class SecretRedis(RedisProcess):
    """A Redis whose replicas and Sentinels speak TLS to it, on a port of its own."""

    def __init__(self, certificate: CertificateFiles, *extra_arguments: str) -> None:
        self._tls_port = lasting_port()
        super().__init__(*redis_tls(certificate, self._tls_port), "--tls-replication", "yes", *extra_arguments)

    @property
    def peer_port(self) -> int:
        """The port with TLS."""
        return self._tls_port


class SecretSentinel(SentinelProcess):
    """A Sentinel that speaks TLS to all others, and to clients on a port of its own."""

    def __init__(self, certificate: CertificateFiles, redis: RedisProcess) -> None:
        self._tls_port = lasting_port()
        options = (*redis_tls(certificate, self._tls_port), "--tls-replication", "yes")
        lines = (f"{name.removeprefix('--')} {value}" for name, value in zip(options[::2], options[1::2], strict=True))
        super().__init__(redis, quorum=GUARDS - 1, lines="\n".join(lines))

    @property
    def peer_port(self) -> int:
        """The port with TLS."""
        return self._tls_port


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
        return next(one for one in self.servers if one.peer_port == max(named, key=named.count))

    def switch(self) -> None:
        """Begin a planned switch to the replica."""
        with Redis(port=self.guards[0].port) as guard:
            guard.execute_command("SENTINEL", "FAILOVER", SentinelProcess.service)

    def switched(self, before: RedisProcess) -> bool:
        """True if all Sentinels name another one."""
        return all(self._named(guard) not in (0, before.peer_port) for guard in self.guards)

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
        replica = stack.enter_context(RedisProcess("--replicaof", f"127.0.0.1 {primary.port}"))
        guards = [stack.enter_context(SentinelProcess(primary, quorum=GUARDS - 1, lines=users)) for _ in range(GUARDS)]
        found = Guarded((primary, replica), guards)
        if not users:
            assert wait_until(found.ready, PATIENCE, interval=0.1), "the Sentinels never found each other"
        yield found


@contextmanager
def secretly_guarded(certificate: CertificateFiles) -> Iterator[Guarded]:
    """The same where servers and Sentinels speak TLS to each other."""
    with ExitStack() as stack:
        primary = stack.enter_context(SecretRedis(certificate))
        source = ("--replicaof", f"127.0.0.1 {primary.peer_port}")
        replica = stack.enter_context(SecretRedis(certificate, *source))
        guards = [stack.enter_context(SecretSentinel(certificate, primary)) for _ in range(GUARDS)]
        found = Guarded((primary, replica), guards)
        assert wait_until(found.ready, PATIENCE, interval=0.1), "the Sentinels never found each other"
        yield found
