"""The metrics say what happened, stay small, and are those that docs, dashboard and rules speak of."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.callbacks.pending import Pending
from app.core.commands.command import CommandState
from app.core.errors import BrokerUnavailableError
from app.metrics import FAMILIES, MetricsExposition, NodeMetrics
from app.node import Health, NodeState
from app.observers.measures import OTHER_PROFILE, CommandMeasures
from app.queues import gauges
from app.runtime.families import Family, Labels
from app.runtime.histograms import SECONDS, Histogram
from app.runtime.services import Services
from app.runtime.telemetry import Counters
from tests.unit.assembly import AS_LONG_AS_IT_TAKES, Assembly, Lamp, assemble, at_once, never, request, slow_to_register
from tests.waiting import PATIENCE

WELL = Health(NodeState.READY, {"store": "ok", "mqtt": "ok", "cluster": "ok"})

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def of_a_queue() -> Iterator[tuple[Family, Mapping[Labels, float]]]:
    """As the plane of queues shows one, which an assembly has not."""
    for family in gauges.FAMILIES:
        yield family, {tuple(f"a-{label}" for label in family.labels): 1.0}


def scrape(assembly: Assembly, member: int = 0, health: Health = WELL) -> Samples:
    node = assembly.members[member].node
    metrics = NodeMetrics(
        node_id=node.kernel.info.node_id,
        measures=node.observed.measures,
        open_commands=node.commands.open_commands,
        waiters=node.commands.waiters,
        fills=Services(node.services, _raise).fills,
        gauges=lambda: [*Services(node.services, _raise).gauges(), *of_a_queue()],
        counters=node.kernel.counters,
    )
    text, _ = MetricsExposition(metrics).render("", health)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def _raise(error: BaseException) -> None:
    raise error


async def test_each_primary_of_a_redis_cluster_is_shown_as_the_store_sees_it() -> None:
    assembly = await assemble()
    assert "homing_store_primary_up" not in {name for name, _ in scrape(assembly)}
    assembly.members[0].node.observed.measures.store.primaries = lambda: {"r1:6379": True, "r2:6379": False}
    samples = scrape(assembly)
    assert value(samples, "homing_store_primary_up", primary="r1:6379") == 1
    assert value(samples, "homing_store_primary_up", primary="r2:6379") == 0


def test_a_bucket_has_what_is_at_most_its_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for one in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(one)
    assert histogram.cumulated() == [2, 4, 5]
    assert histogram.total == pytest.approx(7.5)


def test_the_buckets_are_about_evenly_spaced_on_a_logarithmic_scale() -> None:
    steps = [high / low for low, high in itertools.pairwise(SECONDS)]
    assert SECONDS[0] <= 0.001
    assert SECONDS[-1] >= 60
    assert all(1.5 <= step <= 3 for step in steps)


def test_a_profile_that_nobody_knows_makes_no_series() -> None:
    measures = CommandMeasures(["dji"], "n1", Counters())
    for profile in ("of an earlier start", "of another one"):
        ended = Pending(0.0)
        ended.profile, ended.state = profile, CommandState.SUCCEEDED
        measures.closed(ended)
    assert measures.commands[OTHER_PROFILE, "succeeded"] == 2
    assert {profile for profile, _ in measures.commands} == {"dji", OTHER_PROFILE}


async def test_a_command_is_counted_with_all_its_hops() -> None:
    assembly = await assemble(1)
    await Lamp(assembly.broker, at_once).start()
    home = assembly.members[0]
    for _ in range(3):
        assert (
            await (await home.invoker.invoke(request(), park=True)).wait(AS_LONG_AS_IT_TAKES)
        ).state is CommandState.SUCCEEDED
    samples = scrape(assembly)
    assert value(samples, "homing_commands_total", profile="homing", outcome="succeeded") == 3
    assert value(samples, "homing_command_seconds_count", profile="homing", outcome="succeeded") == 3
    for hop in ("register", "publish", "record", "delivery"):
        assert value(samples, f"homing_{hop}_seconds_count") == 3, hop
    assert value(samples, "homing_response_seconds_count", forwarded="false") == 3
    assert value(samples, "homing_response_seconds_count", forwarded="true") == 0
    assert value(samples, "homing_responses_total", kind="local") == 3


async def test_hops_are_measured_on_the_clock_of_the_node() -> None:
    assembly = await assemble(1)
    lamp = Lamp(assembly.broker, never)
    await lamp.start()
    invocation = await assembly.members[0].invoker.invoke(request(), park=True)
    await _until(lambda: bool(lamp.received))
    assembly.clock.advance(0.7)
    lamp.say(lamp.received[0])
    await invocation.wait(AS_LONG_AS_IT_TAKES)
    samples = scrape(assembly)
    assert value(samples, "homing_response_seconds_sum", forwarded="false") == pytest.approx(0.7)
    assert value(samples, "homing_response_seconds_bucket", forwarded="false", le="0.5") == 0
    assert value(samples, "homing_response_seconds_bucket", forwarded="false", le="1.0") == 1
    assert value(samples, "homing_command_seconds_sum", profile="homing", outcome="succeeded") == pytest.approx(0.7)


async def test_forwarded_responses_are_measured_apart() -> None:
    assembly = await assemble(2)
    await Lamp(assembly.broker, at_once).start()
    for _ in range(4):  # the broker gives them to both nodes in turn
        await (await assembly.members[0].invoker.invoke(request(), park=True)).wait(AS_LONG_AS_IT_TAKES)
    home, other = scrape(assembly, 0), scrape(assembly, 1)
    assert value(home, "homing_response_seconds_count", forwarded="true") == 2
    assert value(home, "homing_response_seconds_count", forwarded="false") == 2
    assert value(home, "homing_record_seconds_count") == value(other, "homing_record_seconds_count") == 2
    assert value(home, "homing_wakeups_total", kind="inline") == 2
    assert value(other, "homing_responses_total", kind="forwarded") == 2
    assert value(other, "homing_commands_total", profile="homing", outcome="succeeded") == 0


async def test_a_command_that_times_out_has_no_response_to_measure() -> None:
    assembly = await assemble(1)
    await Lamp(assembly.broker, never).start()
    home = assembly.members[0]
    invocation = await home.invoker.invoke(request(), park=True)
    samples = scrape(assembly)
    assert value(samples, "homing_commands_in_flight") == 1
    assert value(samples, "homing_waiters") == 1
    assert value(samples, "homing_queue_size", queue="pending") == 1
    assert value(samples, "homing_queue_bound", queue="pending") == 100
    await home.expirer.end(invocation.command.id, CommandState.TIMED_OUT)
    await invocation.wait(AS_LONG_AS_IT_TAKES)
    samples = scrape(assembly)
    assert value(samples, "homing_commands_total", profile="homing", outcome="timed_out") == 1
    for forwarded in ("false", "true"):
        assert value(samples, "homing_response_seconds_count", forwarded=forwarded) == 0
    assert value(samples, "homing_commands_in_flight") == value(samples, "homing_waiters") == 0


async def test_a_cancelled_command_is_counted_once_whoever_cancels_it() -> None:
    assembly = await assemble(2)
    await Lamp(assembly.broker, never).start()
    home, other = assembly.members
    for canceller in (home, other):
        invocation = await home.invoker.invoke(request(), park=True)
        assert (await canceller.invoker.cancel(invocation.command.id)).won
        await invocation.wait(AS_LONG_AS_IT_TAKES)
    counted = [
        amount
        for member in (0, 1)
        for (name, labels), amount in scrape(assembly, member).items()
        if name == "homing_commands_total" and ("outcome", "cancelled") in labels
    ]
    assert sum(counted) == 2


async def test_a_command_that_could_not_be_sent_is_counted() -> None:
    assembly = await assemble(1, make_store=slow_to_register)
    sending = asyncio.create_task(assembly.members[0].invoker.invoke(request(), park=True))
    await asyncio.sleep(0)
    assembly.broker.disconnect("n1")
    with pytest.raises(BrokerUnavailableError):
        await sending
    samples = scrape(assembly)
    counted = {
        dict(labels)["outcome"]: amount
        for (name, labels), amount in samples.items()
        if name == "homing_commands_total" and amount
    }
    assert counted == {"unsent": 1}
    assert value(samples, "homing_publishes_failed_total", reason="unsent") == 1


async def test_counters_show_under_their_own_names_and_unknown_ones_all_the_same() -> None:
    assembly = await assemble(1)
    counters = assembly.members[0].counters
    counters.update(
        {"drop.not_json": 2, "undecodable_topic": 3, "drop.undecodable_topic": 1, "latency.written": 5}
        | {
            "dropped_of.dji-drc.no_rule_holds": 9,
            "explained.silent": 1,
            "sweep.delivered": 6,
            "brand.new": 7,
            "refused.limit-reached": 8,
        }
    )
    samples = scrape(assembly)
    assert value(samples, "homing_dropped_total", reason="not_json") == 2
    assert value(samples, "homing_dropped_total", reason="undecodable_topic") == 4
    assert value(samples, "homing_explanations_total", verdict="silent") == 1
    assert value(samples, "homing_profile_dropped_total", profile="dji-drc", reason="no_rule_holds") == 9
    assert value(samples, "homing_latency_log_events_total", event="written") == 5
    assert value(samples, "homing_wakeups_lost_total") == 6
    assert value(samples, "homing_events_total", event="brand.new") == 7
    assert value(samples, "homing_refused_total", problem="limit-reached") == 8


async def test_what_alerts_look_for_is_there_before_it_happens() -> None:
    samples = scrape(await assemble(1))
    for reason in ("not_json", "duplicate", "retained"):
        assert value(samples, "homing_dropped_total", reason=reason) == 0
    assert value(samples, "homing_sweep_timed_out_total") == 0
    assert value(samples, "homing_lease_lost_total") == 0
    assert value(samples, "homing_publishes_failed_total", reason="unconfirmed") == 0


async def test_readiness_is_what_readyz_says() -> None:
    assembly = await assemble(1)
    away = Health(NodeState.READY, {"store": "the store does not answer", "mqtt": "ok"})
    samples = scrape(assembly, health=away)
    assert value(samples, "homing_node_ready") == 0
    assert value(samples, "homing_dependency_up", dependency="store") == 0
    assert value(samples, "homing_dependency_up", dependency="mqtt") == 1
    assert value(scrape(assembly), "homing_node_ready") == 1


async def test_the_number_of_series_does_not_grow_with_devices_methods_or_commands() -> None:
    assembly = await assemble(1)
    await Lamp(assembly.broker, at_once).start()
    home = assembly.members[0]

    async def send(count: int) -> int:
        for number in range(count):
            asked = request(f"method_{number}", device_id=f"lamp-{number}")
            await (await home.invoker.invoke(asked, park=True)).wait(AS_LONG_AS_IT_TAKES)
        return len(scrape(assembly))

    few = await send(1)
    assert await send(50) == few < 500


async def test_every_family_has_its_samples_under_its_name_and_labels() -> None:
    assembly = await assemble(1)
    counters = assembly.members[0].counters
    counters.update({"latency.written": 1, "brand.new": 1, "refused.limit-reached": 1, "dropped_of.dji.not_json": 1})
    await Lamp(assembly.broker, at_once).start()
    await (await assembly.members[0].invoker.invoke(request(), park=True)).wait(AS_LONG_AS_IT_TAKES)
    assembly.members[0].node.observed.measures.store.primaries = lambda: {"r1:6379": True}
    found: dict[str, set[str]] = {}
    for name, labels in scrape(assembly):
        found.setdefault(name, set()).update({label for label, _ in labels} - {"le"})
    for family in FAMILIES:
        shown = f"{family.shown}_count" if family.kind == "histogram" else family.shown
        assert found.get(shown) == set(family.labels), family.shown
    own = {name for name in found if name.startswith("homing_")}
    assert own == {
        name
        for family in FAMILIES
        for name in (
            [f"{family.name}_{part}" for part in ("bucket", "sum", "count")]
            if family.kind == "histogram"
            else [family.shown]
        )
    }


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - everything is in this process
            await asyncio.sleep(0)
