"""Puts together the parts that every command passes on its way to a device."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.access.ports import Everybody
from app.callbacks.open_commands import OpenCommands
from app.cluster.canary import Canary
from app.command_plane.observed import Observed
from app.commands.deadlines.expirer import Expirer
from app.commands.send.absence import Absence, OfflineSince, nobody_knows, nobody_knows_where
from app.commands.send.admission import CommandAdmission, LastEvent, no_events
from app.commands.send.publisher import Publisher
from app.commands.send.registrar import LastingCaller, Registrar, ToldOf
from app.core.commands.command import Command
from app.core.events.presence import Whereabouts
from app.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSurroundings:
    """The questions that commands ask of other planes."""

    told_of: ToldOf
    """Says which webhooks are told of a command."""
    offline_since: OfflineSince = nobody_knows
    """Says since when a device is known to be away."""
    whereabouts: Callable[[str], Awaitable[Whereabouts]] = nobody_knows_where
    """Says whether a device is there, and since when."""
    last_event: LastEvent = no_events
    """The last value of a topic."""
    may_send: Callable[[Command], None] = lambda _command: None
    """Return where the caller of a held command may send it, by the rules of this moment."""
    renew: Callable[[], Awaitable[None]] = Everybody().renew
    """Reads the rules anew, before something ends as somebody may not."""
    lasting: LastingCaller = Everybody().lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """The parts that every command passes on its way to a device, at once or later."""

    admission: CommandAdmission
    registrar: Registrar
    publisher: Publisher
    absence: Absence
    expirer: Expirer


def open_way_out(
    kernel: Kernel, observed: Observed, open_commands: OpenCommands, canary: Canary, around: CommandSurroundings
) -> WayOut:
    """Put them together. `around` is asked while commands are on their way."""
    profiles, node_id = kernel.languages.profiles, kernel.info.node_id
    absence = Absence(
        mqtt=kernel.mqtt,
        profiles=profiles,
        contradicted=lambda: canary.contradicted,
        offline_since=around.offline_since,
        expire=kernel.settings.mqtt.version != "3.1.1",
    )
    publisher = Publisher(
        mqtt=kernel.mqtt, profiles=profiles, observers=observed.observers, absence=absence, carrier=observed.spans
    )
    return WayOut(
        admission=CommandAdmission(
            profiles=profiles,
            last_event=around.last_event,
            store=kernel.store,
            now_us=kernel.now_us,
            counters=kernel.counters,
        ),
        registrar=Registrar(
            publisher=publisher,
            new_ulid=kernel.adapters.new_ulid,
            node_id=node_id,
            retention=kernel.settings.store.retention,
            told_of=around.told_of,
            lasting=around.lasting,
        ),
        publisher=publisher,
        absence=absence,
        expirer=Expirer(
            store=kernel.store,
            open_commands=open_commands,
            clock=kernel.clock,
            node_id=node_id,
            counters=kernel.counters,
            tells=absence.tells,
        ),
    )
