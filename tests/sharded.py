"""A Redis Cluster of this machine: three primaries, and replicas where a test needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from homing_rig.ports import lasting_port
from homing_rig.redis_members import PRIMARIES, is_primary, member_arguments, reply, state_of, unite
from tests.certificates import CertificateFiles, redis_tls
from tests.services import NODE_PASSWORD, NODE_USER, RedisProcess

LONG_NODE_TIMEOUT_MS: Final = 120_000
AT_ONCE: Final = 10


class MemberProcess(RedisProcess):
    """A member of a Redis Cluster."""

    def __init__(self, *extra_arguments: str, certificate: CertificateFiles | None = None) -> None:
        """`certificate` is for TLS between members, and for clients on a port of its own."""
        self.bus_port = lasting_port()
        self._tls_port = lasting_port() if certificate else 0
        tls = (*redis_tls(certificate, self._tls_port), "--tls-cluster", "yes") if certificate else ()
        super().__init__(*member_arguments(self.bus_port), *tls, *extra_arguments)

    @property
    def peer_port(self) -> int:
        """The port by which other members reach this one."""
        return self._tls_port or self.port

    def ask(self, *command: str | int) -> Any:  # noqa: ANN401 - what Redis replies
        """The reply of a command."""
        return reply(self.port, *command)

    def state(self) -> dict[str, str]:
        """The lines of CLUSTER INFO; empty when it does not answer."""
        return state_of(self)

    def is_primary(self) -> bool:
        """True if it takes writes, as it sees itself."""
        return is_primary(self)


@dataclass(frozen=True)
class Sharded:
    """All methods block."""

    members: Sequence[MemberProcess]
    """The primaries first, then a replica of each, in the same order."""

    @property
    def url(self) -> str:
        """As for HOMING_STORE_URL, with the rights of a node."""
        return self._url(f"{NODE_USER}:{NODE_PASSWORD}@")

    @property
    def admin_url(self) -> str:
        """The URL of a user with all rights."""
        return self._url("")

    @property
    def primaries(self) -> Sequence[MemberProcess]:
        """The members that take writes."""
        return [one for one in self.members if one.is_primary()]

    def owner(self, slot: int) -> MemberProcess:
        """The member that serves a slot."""
        for first, last, primary, *_ in self.primaries[0].ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(one for one in self.members if one.port == primary[1])
        raise LookupError(slot)

    def begin_move(self, slot: int, to: MemberProcess) -> MemberProcess:
        """Open the slot at both members; the one that it leaves."""
        source = self.owner(slot)
        to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", to.ask("CLUSTER", "MYID"))
        return source

    def move_keys(self, slot: int, source: MemberProcess, to: MemberProcess, most: int = 100_000) -> int:
        """Move so many keys of the slot at most; how many these were."""
        moved = 0
        while moved < most and (names := source.ask("CLUSTER", "GETKEYSINSLOT", slot, min(AT_ONCE, most - moved))):
            source.ask("MIGRATE", "127.0.0.1", to.peer_port, "", 0, 5000, "KEYS", *names)
            moved += len(names)
        return moved

    def end_move(self, slot: int, source: MemberProcess, to: MemberProcess) -> None:
        """Let the slot be at its new member."""
        name = to.ask("CLUSTER", "MYID")
        for one in (to, source, *(one for one in self.primaries if one not in (to, source))):
            one.ask("CLUSTER", "SETSLOT", slot, "NODE", name)

    def move(self, slot: int, to: MemberProcess) -> int:
        """Move a slot with all its keys; how many these were."""
        source = self.begin_move(slot, to)
        moved = self.move_keys(slot, source, to)
        self.end_move(slot, source, to)
        return moved

    def empty(self) -> None:
        """Delete all keys."""
        for one in self.primaries:
            one.forget_everything()

    def whole(self) -> bool:
        """True if all members that answer agree that each slot is served, and all replicas are in step."""
        living = [one for one in self.members if one.state()]
        return all(one.state().get("cluster_state") == "ok" for one in living) and all(
            one.is_primary() or one.ask("ROLE")[3] == "connected" for one in living
        )

    def outlast_pauses(self) -> None:
        """Let no member take another for dead that is only slow, as all of them refuse all calls then.

        A busy machine leaves a process without a processor for seconds, and each change of state waits for the disk.
        """
        for one in self.members:
            one.ask("CONFIG", "SET", "cluster-node-timeout", LONG_NODE_TIMEOUT_MS)

    def tls_url(self, parameters: str) -> str:
        """As for HOMING_STORE_URL, with TLS, the rights of a node, and these parameters."""
        places = ",".join(f"127.0.0.1:{one.peer_port}" for one in self.members)
        return f"rediss+cluster://{NODE_USER}:{NODE_PASSWORD}@{places}?{parameters}"

    def _url(self, login: str) -> str:
        places = ",".join(f"127.0.0.1:{one.port}" for one in self.members)
        return f"redis+cluster://{login}{places}"


@contextmanager
def sharded(*, replicas: bool = False, certificate: CertificateFiles | None = None) -> Iterator[Sharded]:
    """A cluster whose slots are all served, with a replica for each primary or none."""
    with ExitStack() as stack:
        count = PRIMARIES * (2 if replicas else 1)
        members = [stack.enter_context(MemberProcess(certificate=certificate)) for _ in range(count)]
        unite(members)
        yield Sharded(members)
