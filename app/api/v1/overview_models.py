"""Models of the cluster at a glance, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from app.api.v1.command_models import Instant
from app.api.v1.node_models import Queue
from app.core.commands.diagnosis import Verdict
from app.core.overview import Party


class _OverviewModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Headline(_OverviewModel):
    """The party that is in trouble, in a sentence."""

    party: Annotated[Party | None, Field(description="The party that is in trouble; null if none is.")]
    text: str
    since: Annotated[Instant | None, Field(description="The instant since when commands fail for it; null if unknown.")]


class FullestQueue(Queue):
    """The queue of a node that is nearest to its bound."""

    name: str


class NodeAtAGlance(_OverviewModel):
    """A live node. A node that does not answer within half a second, or is older, has neither state nor checks."""

    node_id: str
    answered: Annotated[bool, Field(description="True if the node has answered the one that was asked.")]
    ready: Annotated[
        bool | None, Field(description="True if the node has answered and can serve; null if it is of 0.2.0.")
    ]
    state: str | None
    version: str | None
    checks: Annotated[dict[str, str], Field(description="The result of each check, as in `GET /readyz`.")]
    open: Annotated[int | None, Field(description="The number of open commands whose home node this is.")]
    fullest: FullestQueue | None


class OpenNow(_OverviewModel):
    """A command that is open."""

    id: str
    device_id: str
    profile: str
    method: str
    created_at: Instant
    home_node: str


class NewestFailure(_OverviewModel):
    """The newest failure of a group."""

    id: str
    device_id: str
    at: Instant
    text: Annotated[str, Field(description="The verdict of its explanation.")]


class Trouble(_OverviewModel):
    """Commands that have failed for the same reason."""

    party: Annotated[Party | None, Field(description="The party that the failures belong to; null if unclear.")]
    code: Annotated[
        Verdict | None, Field(description="The verdict of their explanations; null if they are not explained yet.")
    ]
    profile: str
    method: str
    count: int
    devices: Annotated[int, Field(description="The number of devices that the commands were for.")]
    since: Instant
    newest: NewestFailure


class _Tally(_OverviewModel):
    ended: Annotated[dict[str, int], Field(description="The number of commands that have ended, by outcome.")]
    p50_ms: Annotated[int | None, Field(description="The time within which half of them ended; null if none is known.")]
    p95_ms: int | None
    p99_ms: int | None


class TotalOfCommands(_Tally):
    """The commands of all callers. Times are from the call to the outcome, and 300 s at most."""

    begun: Annotated[int, Field(description="The number of commands that were registered.")]


class MinuteOfCommands(TotalOfCommands):
    """The commands of a minute, of all callers."""

    at: Annotated[Instant, Field(description="The beginning of the minute, by the clocks of the nodes.")]


class MethodOfCommands(_Tally):
    """The commands of a method, of all callers and devices."""

    profile: str
    method: str
    timeout_ms: Annotated[int, Field(description="The longest timeout that one of them had.")]


class HourOfCommands(_OverviewModel):
    """The commands of the last hour in numbers."""

    total: TotalOfCommands
    minutes: Annotated[list[MinuteOfCommands], Field(description="Minutes in which there were commands, oldest first.")]
    methods: Annotated[
        list[MethodOfCommands], Field(description="The 20 methods with most commands, counted in steps of 5 minutes.")
    ]


class Overview(_OverviewModel):
    """The cluster at a glance. Each part has what the caller may read, and is null if they may not read any of it."""

    at: Instant
    complete: Annotated[
        bool, Field(description="False if the store did not say which nodes there are, so that one node is shown.")
    ]
    verdict: Headline
    nodes: Annotated[list[NodeAtAGlance] | None, Field(description="The live nodes; needs the `nodes` action.")]
    missing: Annotated[list[str] | None, Field(description="Live nodes that did not answer; needs the `nodes` action.")]
    open_commands: Annotated[
        list[OpenNow], Field(description="The commands that have been open for longest, 50 at most.")
    ]
    last_hour: Annotated[
        HourOfCommands | None,
        Field(description="The last hour in numbers; needs the `metrics` action for all devices."),
    ]
    trouble: Annotated[
        list[Trouble],
        Field(description="The failures of the last hour, 200 at most, in 20 groups at most, largest first."),
    ]
