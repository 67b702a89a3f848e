"""Permits of limits are held by commands that are open, on several nodes together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.core.access.limits import MOST_TOLD, Shares
from app.core.access.places import ConcurrencyPermit, ConcurrencyPermits


def test_a_place_is_taken_once_and_given_back_once() -> None:
    places = ConcurrencyPermits()
    place = places.place(["a", "b"])
    assert places.taken() == {}
    for _ in range(2):
        place.enter()
        assert places.taken() == {"a": 1, "b": 1}
    for _ in range(2):
        place.leave()
        assert places.taken() == {}
    place.enter()
    assert places.taken() == {"a": 1, "b": 1}


def test_a_place_that_was_not_taken_gives_nothing_back() -> None:
    places = ConcurrencyPermits()
    places.place(["a"]).enter()
    places.place(["a"]).leave()
    assert places.taken() == {"a": 1}


def test_a_share_is_rounded_up() -> None:
    places = ConcurrencyPermits()
    assert [places.free("k", 3, share, 0) for share in (1.0, 0.5, 1 / 3, 0.01)] == [3, 2, 1, 1]
    assert places.free("k", 30, 0.1 * 3, 0) == 9  # and not ten, as 0.30000000000000004 is no more than 0.3


def test_what_others_have_taken_is_not_given() -> None:
    places = ConcurrencyPermits()
    places.place(["k"]).enter()
    assert places.free("k", 20, 1.0, 17) == 2
    assert places.free("k", 20, 1.0, 19) == 0
    assert places.free("k", 20, 1.0, 40) == 0


class Nodes:
    """Nodes that share one limit of open commands, and tell each other every second."""

    def __init__(self, count: int, most: int) -> None:
        self.most = most
        self.places = [ConcurrencyPermits() for _ in range(count)]
        self.shares = [Shares(lambda: count, one.taken) for one in self.places]
        self.open: list[list[ConcurrencyPermit]] = [[] for _ in range(count)]

    def ask(self, node: int) -> bool:
        share = self.shares[node].ask("k")
        elsewhere = self.shares[node].taken_elsewhere("k")
        if not self.places[node].free("k", self.most, share, elsewhere):
            return False
        place = self.places[node].place(["k"])
        place.enter()
        self.open[node].append(place)
        return True

    def end(self, node: int, count: int) -> None:
        for _ in range(min(count, len(self.open[node]))):
            self.open[node].pop().leave()

    def tell(self) -> None:
        told = [one.tell() for one in self.shares]
        for node, one in enumerate(self.shares):
            one.hear(told[:node] + told[node + 1 :])

    @property
    def count(self) -> int:
        return sum(map(len, self.open))


def test_who_stays_on_one_node_gets_all_of_it_there() -> None:
    nodes = Nodes(3, 20)
    for _ in range(10):
        while nodes.ask(0):
            pass
        nodes.tell()
    assert nodes.count == 20
    assert not nodes.ask(1)
    assert not nodes.ask(2)


def test_what_is_open_here_and_not_asked_for_keeps_its_share() -> None:
    nodes = Nodes(2, 20)
    for _ in range(10):
        while nodes.ask(0):
            pass
        nodes.tell()
    for _ in range(60):
        nodes.tell()
    nodes.end(0, 1)
    assert nodes.ask(0)


def test_places_that_end_on_one_node_are_given_by_another() -> None:
    nodes = Nodes(2, 20)
    for _ in range(10):
        while nodes.ask(0):
            pass
        nodes.tell()
    nodes.end(0, 20)
    for _ in range(10):
        nodes.tell()
        while nodes.ask(1):
            pass
        assert nodes.count <= 20
    assert nodes.count == 20


@given(
    st.integers(1, 4),
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 40)), max_size=40),
)
def test_no_more_is_open_than_allowed_but_for_what_began_in_one_second(
    count: int, most: int, steps: list[tuple[int, int, int]]
) -> None:
    """In one second nodes may give together what their shares are, rounded up, on top of what they do not know of."""
    nodes = Nodes(count, most)
    nodes.tell()
    for where, asked, ended in steps:
        node = where % count
        known = nodes.count  # all nodes have told each other
        for _ in range(asked):
            nodes.ask(node)
        assert nodes.count <= max(known, most)
        nodes.end(node, ended)
        nodes.tell()


def test_what_is_told_is_bounded() -> None:
    places = ConcurrencyPermits()
    for number in range(MOST_TOLD * 2):
        places.place([f"k{number}"]).enter()
    told = Shares(lambda: 2, places.taken).tell()
    assert len(told) <= MOST_TOLD
    assert sum(key.startswith("open\n") for key in told) == MOST_TOLD // 2
