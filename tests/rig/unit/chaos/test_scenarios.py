"""Short forms judge what must never happen; how fast it was is for the full forms, which have the machine.

Nothing is judged well by what did not happen: no command, no answer, no fault.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from app.core.errors import ConfigurationError
from homing_rig.chaos.checker import Verdict, check
from homing_rig.chaos.history import AnswerAcked, Answered, End, Event, Executed, FinalRead, Invoke, Ok, OperationKind
from homing_rig.chaos.kept_events import EVENTS_LOST, EVENTS_TAKEN
from homing_rig.chaos.options import ChaosOptions
from homing_rig.chaos.run import header_of, prepare
from homing_rig.chaos.scenario import Figure, Form
from homing_rig.chaos.scenarios import ON_UP, SCENARIOS
from homing_rig.chaos.scenarios.events import GAP
from homing_rig.chaos.scenarios.traffic import ended
from homing_rig.chaos.schedule import INTAKE
from homing_rig.chaos.shared_figures import PROVOKED, milliseconds, quantile
from homing_rig.programs import MOSQUITTO_SETTINGS
from tests.services import require_programs

GENEROUS_SECONDS = 30


@pytest.mark.parametrize("name", SCENARIOS)
def test_short_forms_judge_no_speed(name: str) -> None:
    times = [one for one in SCENARIOS[name].figures if one.name.endswith(("_s", "_ms", "_ratio"))]
    judged = [one.name for one in times if not one.timing and (one.short or 0) < GENEROUS_SECONDS]
    assert judged == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_lease_in_a_short_form_is_as_long_as_in_life(name: str) -> None:
    assert SCENARIOS[name].short.settings.get("HOMING_CLUSTER_LEASE", "5s") == "5s"


@pytest.mark.parametrize("form", ["full", "short"])
@pytest.mark.parametrize("name", [name for name, one in SCENARIOS.items() if EVENTS_LOST in one.figures])
def test_the_broker_keeps_what_comes_until_another_node_has_taken_over(name: str, form: str) -> None:
    """Else it drops events that it has acknowledged to devices, and a run says nothing of Homing."""
    settings = dict(line.split(maxsplit=1) for line in MOSQUITTO_SETTINGS)
    size: Form = getattr(SCENARIOS[name], form)
    assert size.events * (size.down + GAP.limit) <= int(settings["max_queued_messages"])


def judged(events: Sequence[Event]) -> Verdict:
    header = header_of(SCENARIOS["R3"], SCENARIOS["R3"].full, ChaosOptions(scenario="R3"))
    return check(enumerate([header, *events, End(at=60.0)], 1)).verdict


ASKED = Invoke(
    at=1.0,
    op=0,
    caller="one",
    node="n1",
    kind=OperationKind.COMMAND,
    timeout=2.0,
    device="SN1",
    nonce="1",
    key="key-1",
)


def read(state: str, nonce: str | None = None) -> list[Event]:
    return [FinalRead(at=9.0, node=one, command_id="C1", state=state, result_nonce=nonce) for one in ("n1", "n2")]


def test_a_run_whose_devices_never_answer_has_no_verdict() -> None:
    timed_out = Ok(at=3.0, op=0, latency=2.0, status=504, command_id="C1", state="timed_out")
    silent = [Executed(at=1.1, device="SN1", command_id="C1", nonce="1")]
    assert judged([ASKED, *silent, timed_out, *read("timed_out")]) is Verdict.INCOMPLETE
    answered: list[Event] = [
        *silent,
        Answered(at=1.2, device="SN1", command_id="C1", sequence=0),
        AnswerAcked(at=1.3, device="SN1", command_id="C1", sequence=0),
    ]
    succeeded = Ok(at=1.4, op=0, latency=0.4, status=200, command_id="C1", state="succeeded", result_nonce="1")
    assert judged([ASKED, *answered, succeeded, *read("succeeded", "1")]) is Verdict.HOLDS


@pytest.mark.parametrize("compare", ["=", "<=", ">="])
def test_a_time_of_nothing_reaches_no_figure(compare: str) -> None:
    figure = Figure("p99_ms", compare, 0, "p99")
    assert not figure.reached(milliseconds([], 0.99))
    assert figure.reached(quantile([0.0], 0.99))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_with_faults_has_some_in_each_form_and_judges_whether_they_met_anybody(name: str) -> None:
    one = SCENARIOS[name]
    planned = [bool(one.plan(random.Random(1), form)) for form in (one.full, one.short)]
    assert planned[0] == planned[1]
    assert PROVOKED in one.figures or not planned[0]


@pytest.mark.parametrize("name", [name for name, one in SCENARIOS.items() if EVENTS_LOST in one.figures])
def test_a_scenario_of_events_judges_whether_there_were_any(name: str) -> None:
    assert EVENTS_TAKEN in SCENARIOS[name].figures


def test_a_run_that_ends_before_its_first_fault_is_refused() -> None:
    require_programs()
    with pytest.raises(ConfigurationError, match="seconds: 2; R3 ends before its first fault"):
        prepare(ChaosOptions(scenario="R3", seconds=2))
    assert prepare(ChaosOptions(scenario="R3", seconds=5))[2]
    assert prepare(ChaosOptions(scenario="R1", seconds=2))[2] == []


def test_what_breaks_more_than_one_process_is_refused_on_homing_up() -> None:
    require_programs()
    with pytest.raises(ConfigurationError, match="up: R7 needs several nodes, Redis or Mosquitto; R1, R3, "):
        prepare(ChaosOptions(scenario="R7", up=True))
    with pytest.raises(ConfigurationError, match="up: one `homing up` is one node"):
        ChaosOptions(scenario="R3", up=True, nodes=3)
    assert {fault.target for name in ON_UP for fault in prepare(ChaosOptions(scenario=name, up=True))[2]} <= {
        "n1",
        INTAKE,
    }


async def test_the_error_of_a_task_that_was_to_look_on_is_told() -> None:
    async def look() -> None:
        raise OSError("the process is gone")

    async def look_on() -> None:
        await asyncio.Event().wait()

    failed = asyncio.create_task(look())
    await asyncio.wait([failed])
    with pytest.raises(OSError, match="gone"):
        await ended(failed)
    await ended(asyncio.create_task(look_on()))
