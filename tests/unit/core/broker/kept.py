"""A broker that keeps its state, whose disk is a dictionary: synced when a test says so, and killed at any moment."""

from __future__ import annotations

from app.broker.gate import GatedLink, SyncGate
from app.core.broker.bounds import BrokerBounds
from app.core.broker.connection import BrokerConnection
from app.core.broker.journal import BrokerJournal
from app.core.broker.restore import restore
from app.core.broker.rights import Door
from app.core.broker.rows import rows_of
from tests.unit.core.broker.peers import BrokerBench, HandClock, Peer


class RestartedClock(HandClock):
    """`monotonic` begins anew with each process."""

    def __init__(self) -> None:
        super().__init__()
        self.booted = 0.0

    def monotonic(self) -> float:
        return self.now - self.booted


class KeptBench(BrokerBench):
    """By default all that is said is synced at once; with `by_hand` it waits for `sync`."""

    def __init__(self, door: Door | None = None, /, *, by_hand: bool = False, **bounds: int) -> None:
        self.disk: dict[bytes, bytes] = {}
        self.by_hand = by_hand
        self.writes = 0
        self.damaged: dict[bytes, str] = {}
        super().__init__(door, **bounds)
        self.clock: RestartedClock = RestartedClock()
        self._peers: list[Peer] = []
        self._begin()

    def open(self, peer: Peer) -> BrokerConnection:
        self._peers.append(peer)
        link = GatedLink(self.gate, peer)
        connection = self.broker.open(link)
        link.drained = connection.drained
        return connection

    def settle(self) -> None:
        if not self.by_hand:
            self.sync()

    def sync(self) -> None:
        """Write what has changed, and let leave what waited for it."""
        rows = rows_of(self.broker, self.broker.journal.take())
        self.gate.seal()
        self.writes += bool(rows)
        for key, row in rows.items():
            if row is None:
                self.disk.pop(key, None)
            else:
                self.disk[key] = row
        self.gate.release()

    def kill(self, *, down: float = 1.0) -> None:
        """End without a word, and start again after so many seconds with what was synced."""
        for peer in self._peers:
            peer.closed = peer.gone = True
        self._peers.clear()
        self.clock.now += down
        self._begin()

    def stop(self, *, down: float = 1.0) -> None:
        """End in an orderly way, and start again."""
        self.broker.stop()
        self.sync()
        self.kill(down=down)

    def ask(self, door: Door) -> None:
        """Start again with this door."""
        self._door = door
        self.kill()

    def bound(self, **bounds: int) -> None:
        """Start again with other bounds."""
        self._bounds = BrokerBounds(**bounds)
        self.kill()

    def keys(self, kinds: str) -> list[bytes]:
        """Keys of the rows of these kinds."""
        return sorted(key for key in self.disk if chr(key[0]) in kinds)

    def _begin(self) -> None:
        self.clock.booted = self.clock.now - 50
        self.broker = self.new_broker(BrokerJournal(keeps=True))
        self.gate = SyncGate(lambda: None, self.broker.unsent)
        self.damaged |= restore(self.broker, self.disk)
        self.settle()
