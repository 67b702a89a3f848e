"""Answers about nodes, the cluster, callers, and devices on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from homing_client._models import instant, text_in


@dataclass(frozen=True, slots=True)
class Node:
    """A live node of the cluster. `is_self`: the one that answered."""

    node_id: str
    incarnation: str
    started_at: datetime | None
    is_self: bool
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Read it from JSON."""
        return cls(
            str(body.get("node_id")),
            str(body.get("incarnation")),
            instant(body.get("started_at")),
            body.get("self") is True,
            body,
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """The live nodes, and what the one that answered says of itself (its state, queues and counters)."""

    nodes: tuple[Node, ...]
    answered_by: Mapping[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Read it from JSON."""
        return cls(tuple(map(Node.of, body.get("nodes") or ())), body.get("self") or {})


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that holds for the caller: `count` in `seconds` and `burst` at once, or `concurrent` open commands.

    `left` is how many commands the node that answered would take now, of its `share`; None where the device matters.
    """

    rule: str
    name: str
    per: str
    share: float
    left: int | None
    count: int | None = None
    seconds: int | None = None
    burst: int | None = None
    concurrent: int | None = None
    open: int | None = None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Read it from JSON."""
        return cls(
            rule=str(body.get("rule")),
            name=str(body.get("name")),
            per=str(body.get("per")),
            share=float(body.get("share") or 0),
            left=body.get("left"),
            count=body.get("count"),
            seconds=body.get("seconds"),
            burst=body.get("burst"),
            concurrent=body.get("concurrent"),
            open=body.get("open"),
        )


@dataclass(frozen=True, slots=True)
class Me:
    """The caller as the node knows them. `open`: it asks nobody who they are.

    `may` has the actions about no device that they may do. Nodes before 0.3 name none.
    """

    open: bool
    principal: str | None = None
    tenant: str | None = None
    key: str | None = None
    expires_at: datetime | None = None
    session: bool = False
    roles: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Read it from JSON."""
        return cls(
            open=body.get("open") is True,
            principal=text_in(body.get("principal")),
            tenant=text_in(body.get("tenant")),
            key=text_in(body.get("key")),
            expires_at=instant(body.get("expires_at")),
            session=body.get("session") is True,
            roles=tuple(map(str, body.get("roles") or ())),
            may=tuple(map(str, body.get("may") or ())),
            limits=tuple(map(Limit.of, body.get("limits") or ())),
            raw=body,
        )


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """The record of a device. `tag` names this state of it, for `if_match`.

    Where devices were listed as `heard`, `on_record` may be false, and the last three members say what is known.
    """

    id: str
    tenant: str | None = None
    profile: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    tag: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    on_record: bool = True
    online: bool | None = None
    last_seen: datetime | None = None
    failures: int | None = None
    """The number of its commands among the latest failures of the last hour."""

    @classmethod
    def of(cls, body: Mapping[str, Any], tag: str | None = None) -> Self:
        """Read it from JSON."""
        return cls(
            str(body.get("id")),
            text_in(body.get("tenant")),
            text_in(body.get("profile")),
            dict(body.get("labels") or {}),
            str(body.get("note") or ""),
            tag,
            body,
            body.get("on_record") is not False,
            body.get("online"),
            instant(body.get("last_seen")),
            body.get("failures"),
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """JSON as a node told it. `tag` names this state of what can be changed, for `if_match`; None of anything else."""

    value: Any
    tag: str | None = None


class Tagged(dict[str, Any]):
    """An object as a node told it. `tag` names this state of it, for `if_match`; None of nodes that tell none."""

    def __init__(self, value: Mapping[str, Any], tag: str | None) -> None:
        super().__init__(value)
        self.tag = tag


@dataclass(frozen=True, slots=True)
class Readiness:
    """The readiness of a node: whether it can serve, and what each part that it needs says."""

    ready: bool
    state: str
    checks: Mapping[str, str]
