"""Puts together what looks at the state of devices for commands that nobody has answered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from app.callbacks.open_commands import OpenCommands
from app.commands.deadlines.looker import StateLooker
from app.commands.deadlines.probe_on_request import ProbeOnRequest
from app.commands.deadlines.prober import Prober
from app.commands.deadlines.questions import DeviceQuestions
from app.commands.send.admission import LastEvent
from app.commands.send.invoker import Invoker
from app.kernel import Kernel
from app.runtime.listeners import Listeners


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeParts:
    """The parts that look, before the deadline and after it, and that ask."""

    prober: Prober
    on_request: ProbeOnRequest


def open_probes(
    kernel: Kernel,
    *,
    open_commands: OpenCommands,
    invoker: Invoker,
    last_event: LastEvent,
    kept: Listeners[str, timedelta],
) -> ProbeParts:
    """`kept` tells of each command whose deadline this node keeps."""
    looker = StateLooker(profiles=kernel.languages.profiles, last_event=last_event, clock=kernel.clock)
    questions = DeviceQuestions(
        invoker=invoker,
        store=kernel.store,
        clock=kernel.clock,
        new_ulid=kernel.adapters.new_ulid,
        counters=kernel.counters,
    )
    return ProbeParts(
        prober=Prober(
            store=kernel.store,
            open_commands=open_commands,
            looker=looker,
            questions=questions,
            kept=kept,
            clock=kernel.clock,
            node_id=kernel.info.node_id,
            counters=kernel.counters,
        ),
        on_request=ProbeOnRequest(
            store=kernel.store,
            looker=looker,
            questions=questions,
            all_know=kernel.cluster.all_know,
            counters=kernel.counters,
        ),
    )
