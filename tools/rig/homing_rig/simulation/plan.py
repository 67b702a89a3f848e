"""The plan that a seed decides: how large the cluster is, what it is asked, how it is set up, and what breaks when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field

from homing_rig.simulation.broker import Quirks, ShareTurns
from homing_rig.simulation.callers import DEVICE, Wish
from homing_rig.simulation.event_talk import Saying
from homing_rig.simulation.network import LAWS, PLACES

BEGIN: Final = 2.0
"""The instant at which the load begins: by then all nodes are ready, where nothing keeps them."""
BROKER: Final = "broker"
MOST_NODES: Final = 9
MOST_COMMANDS: Final = 10_000
MOST_TROUBLES: Final = 10_000
MOST_SECONDS: Final = 3600.0
LONGEST: Final = 600.0
"""The most seconds that a trouble may last."""
_Instant = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
_Lease = Annotated[float, Field(ge=1, le=20)]
"""A lease as settings have it; a longer one outlasts the time in which everything has to come to rest."""
_Period = Annotated[float, Field(ge=0.1, le=5)]
_Offset = Annotated[float, Field(ge=-86_400, le=86_400)]
_Room = Annotated[int, Field(ge=1, le=1_000_000)]


class TroubleKind(StrEnum):
    """The kinds of trouble for a target, which is a node, a device, `store` or `broker`."""

    KILL = "kill"
    """SIGKILL, and started again after `seconds`."""
    UNPLUG = "unplug"
    """The same, and nobody is told that its connections have ended."""
    FREEZE = "freeze"
    """SIGSTOP for `seconds`."""
    RESTART = "restart"
    """SIGTERM, and started again `seconds` after it has ended. Of the broker: as Mosquitto restarts."""
    CUT_STORE = "cut_store"
    """The connections of a node to the store are reset."""
    CUT_BROKER = "cut_broker"
    """The connections of a node or a device to the broker are reset."""
    HALF_OPEN_STORE = "half_open_store"
    """The same, and neither side is told."""
    HALF_OPEN_BROKER = "half_open_broker"
    PART_STORE = "part_store"
    """A node reaches the store no more, for `seconds`."""
    PART_BROKER = "part_broker"
    STALL_STORE = "stall_store"
    """Messages between a node and the store take `seconds` longer."""
    STALL_BROKER = "stall_broker"
    OUTAGE = "outage"
    """The store is away for `seconds`, and keeps its data."""
    FAIL_OVER = "fail_over"
    """A replica takes the place of the store, and has not got what was written in the last `seconds`."""
    CLOCK = "clock"
    """The wall clock of a node is set forward by `seconds`, or back."""


OF_STORE: Final = (TroubleKind.OUTAGE, TroubleKind.FAIL_OVER)

OF_NODES: Final = (
    TroubleKind.KILL,
    TroubleKind.UNPLUG,
    TroubleKind.FREEZE,
    TroubleKind.RESTART,
    TroubleKind.CUT_STORE,
    TroubleKind.CUT_BROKER,
    TroubleKind.HALF_OPEN_STORE,
    TroubleKind.HALF_OPEN_BROKER,
    TroubleKind.PART_STORE,
    TroubleKind.PART_BROKER,
    TroubleKind.STALL_STORE,
    TroubleKind.STALL_BROKER,
    TroubleKind.CLOCK,
)
OF_DEVICES: Final = (TroubleKind.CUT_BROKER, TroubleKind.HALF_OPEN_BROKER)
_SECONDS: Final[Mapping[TroubleKind, tuple[float, float]]] = {
    TroubleKind.KILL: (0.1, 6.0),
    TroubleKind.UNPLUG: (0.1, 6.0),
    TroubleKind.FREEZE: (0.05, 8.0),
    TroubleKind.RESTART: (0.1, 2.0),
    TroubleKind.PART_STORE: (0.2, 6.0),
    TroubleKind.PART_BROKER: (0.2, 4.0),
    TroubleKind.STALL_STORE: (0.05, 1.5),
    TroubleKind.STALL_BROKER: (0.05, 1.0),
    TroubleKind.OUTAGE: (0.2, 4.0),
    TroubleKind.CLOCK: (-3600.0, 3600.0),
}
FAIL_OVER_EACH: Final = 5
WEBHOOKS_EACH: Final = 5
REPEATABLE_EACH: Final = 5
EVENTS_EACH: Final = 5
HELD_EACH: Final = 10
LONG: Final = 60.0
"""The seconds of a hold in which everything comes to rest, so that its command leaves."""
REPEATABLE_SECONDS: Final = 6.0
_RATES: Final = (0.1, 0.3, 0.8)
"""Troubles a second: rare, some, storm."""


@dataclass(frozen=True, slots=True, order=True)
class Trouble:
    """Something breaks. `at` is in seconds from the beginning of the load."""

    at: _Instant
    kind: TroubleKind
    target: str
    seconds: _Offset = 0.0

    @property
    def targets(self) -> str:
        """The targets of this trouble, as a pattern."""
        match self.kind:
            case _ if self.kind in OF_STORE:
                return "store"
            case TroubleKind.RESTART:
                return f"n[1-9]|{BROKER}"
            case _ if self.kind in OF_DEVICES:
                return f"n[1-9]|{DEVICE}"
            case _:
                return "n[1-9]"

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.kind} {self.target} {self.seconds:.3f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is decided before a run begins; the run itself draws from streams that `seed` names."""

    seed: int
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)]
    wishes: tuple[Wish, ...]
    troubles: tuple[Trouble, ...]
    laws: Mapping[str, str]
    """The slowness of the ways to the store, the broker, devices and callers."""
    quirks: Quirks = field(default_factory=Quirks)
    lease: _Lease = 2.0
    sweep: _Period = 0.5
    max_pending: _Room = 20_000
    max_waiters: _Room = 5_000
    receive_maximum: Annotated[int, Field(ge=1, le=65_535)] = 256
    offsets: tuple[_Offset, ...] = field(default=(0.0,) * 5)
    """The seconds by which the wall clocks of the nodes are off."""
    webhooks: bool = False
    """True if a receiver is told what becomes of commands."""
    returns: Mapping[str, _Instant] = field(default_factory=dict)
    """The instants at which devices come that are away in the beginning."""
    sayings: tuple[Saying, ...] = ()
    """Events; nobody keeps any where there are none."""
    intake: Literal["ordered", "shared"] = "ordered"
    """The way in which nodes take events from the broker."""
    stir: Annotated[int, Field(ge=0)] = 0
    """Another number draws other delays and another order for what is otherwise the same plan."""

    def stream(self, purpose: str) -> Random:
        """Draws for one purpose: what is drawn for another changes nothing here."""
        return Random(f"{self.seed}{f'+{self.stir}' if self.stir else ''}/{purpose}")

    @property
    def node_ids(self) -> list[str]:
        """The nodes."""
        return [f"n{number + 1}" for number in range(self.nodes)]

    @property
    def devices(self) -> list[str]:
        """The devices that are told something, or tell something."""
        said = {one.source for one in self.sayings if not one.source.startswith("caller-")}
        return sorted({one.device for one in self.wishes} | said)

    @property
    def summary(self) -> str:
        """The size of the plan, in words."""
        sizes = {"node": self.nodes, "command": len(self.wishes), "fault": len(self.troubles)}
        sizes |= {"event": len(self.sayings)} if self.sayings else {}
        return ", ".join(f"{count} {noun}{'s' * (count != 1)}" for noun, count in sizes.items())

    @property
    def ends(self) -> float:
        """The instant at which the last wish or trouble begins, or the last event is said."""
        said = [one.at for one in self.wishes] + [one.at for one in self.sayings]
        said += self.returns.values()
        return max(said + [BEGIN + one.at for one in self.troubles], default=BEGIN)

    @property
    def longest(self) -> float:
        """The seconds that the longest of the troubles lasts."""
        return max((one.seconds for one in self.troubles if one.kind is not TroubleKind.CLOCK), default=0.0)


def plan_of(seed: int, commands: int) -> Plan:
    """The plan of a seed: one in ten is calm."""
    chance = Random(f"{seed}/plan")
    nodes, devices = chance.choices((1, 2, 3, 4, 5), (1, 4, 8, 2, 1))[0], chance.randint(1, 12)
    seconds = chance.uniform(2.0, 6.0)
    timeout = chance.choice((0.5, 1.0, 2.0, 3.0))
    share_waits, share_keyed = chance.choice((0.0, 0.5, 1.0)), chance.choice((0.5, 1.0))
    share_cancelled = chance.choice((0.0, 0.0, 0.2))
    wishes = sorted(
        Wish(
            at=BEGIN + chance.uniform(0.0, seconds),
            number=number,
            device=f"device-{chance.randint(1, devices)}",
            timeout=timeout,
            waits=chance.random() < share_waits,
            keyed=chance.random() < share_keyed,
            cancels_after=chance.uniform(0.0, timeout) if chance.random() < share_cancelled else None,
        )
        for number in range(commands)
    )
    calm = seed % 10 == 0
    drawn: list[TroubleKind] = [kind for kind in TroubleKind if kind is not TroubleKind.FAIL_OVER]
    kinds = [kind for kind in drawn if chance.random() < 0.5]  # noqa: PLR2004
    return Plan(
        seed=seed,
        nodes=nodes,
        wishes=tuple(_with_held(seed, _with_repeatable(seed, wishes))),
        troubles=()
        if calm
        else tuple(sorted([*_troubles(chance, kinds, nodes, devices, seconds), *_fail_overs(seed)])),
        laws={where: chance.choices(LAWS, (4, 4, 1, 2))[0] for where in PLACES},
        quirks=_quirks(seed, chance),
        lease=chance.choice((1.0, 2.0, 5.0)),
        sweep=chance.choice((0.5, 1.0, 1.0)),
        max_pending=chance.choice((10, 20_000, 20_000)),
        max_waiters=chance.choice((5, 5_000, 5_000)),
        receive_maximum=chance.choice((1, 20, 256)),
        offsets=tuple(chance.uniform(-2.0, 2.0) for _ in range(5)),
        webhooks=seed % WEBHOOKS_EACH == WEBHOOKS_EACH - 2,
        returns=_returns(seed, devices, seconds),
        sayings=tuple(_sayings(seed, commands, devices, seconds)),
        intake=Random(f"{seed}/intake").choice(("ordered", "ordered", "shared")),
    )


def _with_repeatable(seed: int, wishes: list[Wish]) -> Iterable[Wish]:
    """In one seed of five all that half of the devices are told: what another method has overtaken nobody repeats.

    A survivor has emptied the session of a dead node before it repeats anything, which takes seconds.
    """
    if seed % REPEATABLE_EACH != REPEATABLE_EACH - 3:
        return wishes
    chance, devices = Random(f"{seed}/repeatable"), sorted({one.device for one in wishes})
    chosen = chance.sample(devices, (len(devices) + 1) // 2)
    return (
        replace(one, repeatable=True, timeout=REPEATABLE_SECONDS) if one.device in chosen else one for one in wishes
    )


def _with_held(seed: int, wishes: Iterable[Wish]) -> Iterable[Wish]:
    """In one seed of ten most commands are held, a few of them for less time than their device is away."""
    if seed % HELD_EACH != HELD_EACH // 2:
        return wishes
    chance = Random(f"{seed}/held")
    return (
        replace(one, waits=False, hold=chance.choices((None, round(chance.uniform(0.3, 3.0), 3), LONG), (1, 1, 4))[0])
        for one in wishes
    )


def _returns(seed: int, devices: int, seconds: float) -> Mapping[str, float]:
    if seed % HELD_EACH != HELD_EACH // 2:
        return {}
    chance = Random(f"{seed}/returns")
    away = [f"device-{number + 1}" for number in range(devices) if chance.random() < 0.7]  # noqa: PLR2004
    return {one: round(BEGIN + chance.uniform(0.0, 1.5 * seconds), 3) for one in away}


def _sayings(seed: int, commands: int, devices: int, seconds: float) -> Iterable[Saying]:
    """In one seed of five there are events, one for two commands, in bursts; callers publish a third of them."""
    if seed % EVENTS_EACH != EVENTS_EACH - 4:
        return ()
    chance = Random(f"{seed}/events")
    sources = [f"device-{number + 1}" for number in range(devices)], ["caller-1", "caller-2"]
    bursts = [(BEGIN + chance.uniform(0.0, seconds), chance.choices(sources, (2, 1))[0]) for _ in range(commands // 8)]
    return sorted(
        Saying(at, number, chance.choice(among))
        for number, (at, among) in enumerate(chance.choices(bursts, k=(commands + 1) // 2) if bursts else ())
    )


def _quirks(seed: int, chance: Random) -> Quirks:
    absent, told, forgotten = chance.random() < 0.2, chance.random() < 0.8, chance.random() < 0.7  # noqa: PLR2004
    return Quirks(
        absent_members=absent,
        # A broker that forgets who is subscribed, and does not tell, loses answers, whatever Homing does.
        unmatched_told=told or forgotten,
        shares_forgotten=forgotten,
        receive_maximum=chance.choice((1, 20, 20, 1000)),
        turns=Random(f"{seed}/turns").choices(list(ShareTurns), (3, 1, 1))[0],
    )


def _troubles(chance: Random, kinds: list[TroubleKind], nodes: int, devices: int, seconds: float) -> Iterable[Trouble]:
    rate = chance.choice(_RATES) * seconds
    for kind in kinds:
        count = int(rate) + (chance.random() < rate % 1)
        if kind is TroubleKind.OUTAGE:
            count = min(count, 1)
        for _ in range(count):
            first, last = _SECONDS.get(kind, (0.0, 0.0))
            yield Trouble(
                at=round(chance.uniform(0.0, seconds), 3),
                kind=kind,
                target=_target(chance, kind, nodes, devices),
                seconds=round(chance.uniform(first, last), 3),
            )


def _fail_overs(seed: int) -> Iterable[Trouble]:
    """One seed in five has one, and one in three with events: nothing is proved by what it makes forgotten."""
    with_events = seed % EVENTS_EACH == EVENTS_EACH - 4 and seed % 3 == 0
    if seed % FAIL_OVER_EACH == FAIL_OVER_EACH - 1 or with_events:
        chance = Random(f"{seed}/fail-over")
        at, seconds = round(chance.uniform(0.5, 2.0), 3), round(chance.uniform(0.0, 0.5), 3)
        yield Trouble(at, TroubleKind.FAIL_OVER, "store", seconds)


def _target(chance: Random, kind: TroubleKind, nodes: int, devices: int) -> str:
    if kind is TroubleKind.OUTAGE:
        return "store"
    if kind is TroubleKind.RESTART and chance.random() < 0.25:  # noqa: PLR2004
        return BROKER
    if kind in OF_DEVICES and chance.random() < 0.5:  # noqa: PLR2004
        return f"device-{chance.randint(1, devices)}"
    return f"n{chance.randint(1, nodes)}"
