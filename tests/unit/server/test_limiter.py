"""The limiter: who is let in, who has to go, and when."""

from __future__ import annotations

from collections import Counter

import pytest

from app.core.peers import peer_of
from app.server.limiter import Admission, CloseReason, ConnectionLimiter, Limits


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds


class Guest:
    """A connection that leaves when it is told to."""

    def __init__(self, limiter: ConnectionLimiter, peer: str = "10.0.0.1") -> None:
        self.peer = peer
        self.limiter = limiter
        self.dismissed: CloseReason | None = None
        self.to_read = 0
        self.pings = 0
        self.standing = limiter.admit(self)

    def dismiss(self, why: CloseReason) -> None:
        self.dismissed = why
        self.limiter.idle.since.pop(self, None)
        self.limiter.head.since.pop(self, None)
        self.limiter.gone(self, self.standing)

    def unread(self) -> int:
        return self.to_read

    def ping(self) -> None:
        self.pings += 1
        self.limiter.pinged.since[self] = self.limiter.now()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def limiter(clock: Clock, **limits: int) -> ConnectionLimiter:
    return ConnectionLimiter(Limits(**limits), clock, Counter())


def test_a_reader_that_makes_progress_has_its_time_again(clock: Clock) -> None:
    one = limiter(clock)
    connection = Guest(one)
    connection.to_read = 1_000_000
    one.stalls(connection)
    for _ in range(5):
        clock.seconds += one.limits.stall
        connection.to_read -= 16 * 1024
        one.tick()
        assert connection.dismissed is None
    clock.seconds += one.limits.stall
    connection.to_read -= 1000
    one.tick()
    assert connection.dismissed is CloseReason.SLOW_READER
    assert one.counters["http.closed.slow_reader"] == 1


def test_who_is_silent_is_asked_once_and_has_to_answer(clock: Clock) -> None:
    one = limiter(clock)
    connection = Guest(one)
    one.silent.since[connection] = clock.seconds
    clock.seconds += one.limits.pong - 0.1
    one.tick()
    assert connection.pings == 0
    clock.seconds += 0.1
    one.tick()
    assert (connection.pings, connection.dismissed) == (1, None)
    clock.seconds += one.limits.pong
    one.tick()
    assert (connection.pings, connection.dismissed) == (1, CloseReason.NO_PONG)
    assert one.counters["http.closed.no_pong"] == 1


def test_room_is_made_by_slow_heads_first_then_by_the_longest_idle(clock: Clock) -> None:
    one = limiter(clock, connections=3, per_peer=3, probes=1)
    idle, later, slow = Guest(one), Guest(one), Guest(one)
    one.idle.since[idle] = clock.seconds
    clock.seconds += 1
    one.idle.since[later] = one.head.since[slow] = clock.seconds
    clock.seconds += 2
    for gone in (slow, idle, later):
        newcomer = Guest(one)
        assert newcomer.standing is Admission.ADMITTED
        assert gone.dismissed is CloseReason.MADE_ROOM
    assert Guest(one).standing is Admission.PROBE
    assert Guest(one).standing is Admission.REJECTED
    assert one.fill() == (3, 3)


def test_a_peer_with_all_it_may_have_makes_room_itself(clock: Clock) -> None:
    one = limiter(clock, connections=10, per_peer=1, probes=1)
    other, own = Guest(one, "10.0.0.2"), Guest(one)
    for connection in (other, own):
        one.idle.since[connection] = clock.seconds
    assert Guest(one).standing is Admission.ADMITTED
    assert (other.dismissed, own.dismissed) == (None, CloseReason.MADE_ROOM)


def test_nothing_is_left_of_connections_that_are_gone(clock: Clock) -> None:
    one = limiter(clock, connections=2, per_peer=1, probes=1)
    for peer in range(100):
        connection = Guest(one, str(peer))
        one.stalls(connection)
        one.gone(connection, connection.standing)
    assert one.fill() == (0, 2)
    assert not one._peers
    assert not one._stalled
    assert not one._probes


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("a socket without address", "a socket without address"),
    ],
)
def test_a_peer_is_an_address_or_a_network_of_ipv6(address: str, peer: str) -> None:
    assert peer_of(address) == peer
