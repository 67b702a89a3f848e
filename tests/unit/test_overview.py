"""Nodes that are asked for the overview: of this version, of 0.2.0, and silent ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import orjson

from app.cluster.directory import NodeInfo
from app.cluster.local import LocalCluster
from app.commands.explain.explainer import Explainer
from app.commands.peer_query import PeerQuery
from app.core.commands.command import Command, CommandState
from app.core.commands.misses import Target
from app.core.commands.routing import Outcome
from app.core.errors import UnavailableError
from app.core.overview import NodeGlance, judge_cluster
from app.observers.failures import Failures
from app.observers.recent import RecentCommands
from app.overview import NodeDeaths, Overviews
from app.runtime.system import new_charter
from app.store.commands import CommandReader
from tests.unit.assembly import ManualClock
from tests.unit.core.commands.test_diagnosis import command

NOW_US = round(ManualClock().wall() * 1_000_000)
ASKER, OTHER = "node-a", "node-b"
Channels = dict[str, Callable[[bytes], None]]


class Wired(LocalCluster):
    """Two nodes, whose notes come in a moment later."""

    def __init__(self, channels: Channels) -> None:
        super().__init__(new_charter())
        self._channels = channels

    async def nodes(self) -> Sequence[NodeInfo]:
        return [NodeInfo(one, "0" * 26, one, 0.0) for one in (ASKER, OTHER)]

    async def note(self, node_id: str, what: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._channels[node_id], what)


async def read(channels: Channels) -> tuple[NodeGlance, NodeGlance]:
    """Both nodes as the first one sees them."""
    overviews, peers = overviews_of(ASKER, channels)
    channels[ASKER] = peers.noted
    own, other = (await overviews.read()).nodes
    return own, other


class Seen:
    """The deaths and failures that a node has seen."""

    def __init__(self) -> None:
        self.deaths = NodeDeaths(lambda: NOW_US)
        self.failures = Failures()


class Commands:
    """A store that has every command."""

    async def get(self, command_ids: Sequence[str]) -> list[Command | None]:
        return [command(id=one) for one in command_ids]


class Explainers:
    """Explains nothing in time."""

    async def explain(self, _command: Command) -> None:
        raise UnavailableError("later")


def overviews_of(node_id: str, channels: Channels, seen: Seen | None = None) -> tuple[Overviews, PeerQuery]:
    known = seen or Seen()

    async def glance() -> NodeGlance:
        return NodeGlance(node_id, answered=True, state="ready", version="0.3.0", checks={"store": "ok"})

    peers = PeerQuery(cluster=Wired(channels), node_id=node_id, new_secret=lambda: "secret", counters=Counter())
    peers.answers["command"] = lambda _question: asyncio.sleep(0, {"hops": [], "misses": [], "heard": []})
    overviews = Overviews(
        peers=peers,
        explainer=cast("Explainer", Explainers()),
        store=cast("CommandReader", Commands()),
        failures=known.failures,
        recent=RecentCommands(ManualClock()),
        open_commands=(),
        deaths=known.deaths,
        glance=glance,
        clock=ManualClock(),
    )
    return overviews, peers


async def test_a_node_of_this_version_tells_of_itself() -> None:
    channels: Channels = {}
    _, peers = overviews_of(OTHER, channels)
    channels[OTHER] = peers.noted
    own, other = await read(channels)
    assert (other.node_id, other.state, other.version) == (OTHER, own.state, own.version)


async def test_what_one_node_has_seen_all_know() -> None:
    channels: Channels = {}
    seen = Seen()
    seen.deaths.note("node-c")
    seen.failures.foreign(Outcome("of-another", CommandState.TIMED_OUT, seen.deaths.read()[0].at))
    _, peers = overviews_of(OTHER, channels, seen)
    channels[OTHER] = peers.noted
    overviews, peers = overviews_of(ASKER, channels)
    channels[ASKER] = peers.noted
    found = await overviews.read()
    assert [one.answered for one in found.nodes] == [True, True]
    assert found.deaths == seen.deaths.read()
    assert [one.command_id for one in found.failures] == ["of-another"]


async def test_a_node_of_0_2_0_answers_and_is_not_in_trouble() -> None:
    """It reads a question as that version does: `app/commands/asking.py`, `_answer`."""
    channels: Channels = {}

    def old(what: bytes) -> None:
        said: dict[str, Any] = orjson.loads(what)
        assert isinstance(said["command"], str)
        Target(**said["about"])
        told = {"node": OTHER, "hops": [], "misses": [], "heard": [], "tell": said["ask"]}
        channels[said["from"]](orjson.dumps(told))

    channels[OTHER] = old
    own, other = await read(channels)
    assert (other.answered, other.version, other.state) == (True, "", "")
    assert judge_cluster([own, other], [], 0, named=True).party is None


async def test_a_silent_node_is_named() -> None:
    own, other = await read({OTHER: lambda _what: None})
    assert not other.answered
    assert OTHER in judge_cluster([own, other], [], 0, named=True).text
