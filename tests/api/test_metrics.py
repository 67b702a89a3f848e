"""`GET /metrics`: two formats, also when something is away."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from app.metrics import FAMILIES
from tests.api.rig import DEVICE, Rig, running

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain"
)
"""The header Accept of Prometheus."""


async def test_prometheus_text_is_the_default(rig: Rig) -> None:
    await rig.send("ok")
    response = await rig.http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in parse_text(response.text)}
    assert {family.name for family in FAMILIES if family.kind != "info"} <= set(families)
    (count,) = [
        sample.value
        for sample in families["homing_commands"].samples
        if sample.labels == {"profile": "homing", "outcome": "succeeded"}
    ]
    assert count == 1


async def test_open_metrics_is_given_to_who_asks_for_it(rig: Rig) -> None:
    await rig.send("ok")
    response = await rig.http.get("/metrics", headers={"Accept": PROMETHEUS_2})
    assert response.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert response.text.endswith("# EOF\n")
    families = parse_openmetrics(response.text)  # type: ignore[no-untyped-call]  # the parser has no types
    kinds = {family.name: family.type for family in families}
    assert {name: kind for name, kind in kinds.items() if name.startswith("homing_")} == {
        family.name: family.kind for family in FAMILIES
    }


async def test_several_accept_headers_and_odd_ones_are_read(rig: Rig) -> None:
    twice = [("Accept", "text/html"), ("Accept", "application/openmetrics-text; version=1.0.0")]
    assert (await rig.http.get("/metrics", headers=twice)).text.endswith("# EOF\n")
    for odd in ("", "*/*", "application/openmetrics-text", "text/plain;version=1.0.0;escaping=x", ";;,,=", "\xff"):
        response = await rig.http.get("/metrics", headers=[(b"Accept", odd.encode("latin-1"))])
        assert response.status_code == 200, odd


async def test_a_version_that_is_no_version_is_no_mistake_of_ours(rig: Rig) -> None:
    for version in ("a.b", "1.0.0.a", "2.0.0", ""):
        accept = f"application/openmetrics-text;version={version}"
        response = await rig.http.get("/metrics", headers={"Accept": accept})
        assert (response.status_code, response.headers["content-type"][:10]) == (200, "text/plain")


async def test_a_node_that_is_not_ready_is_scraped_all_the_same(rig: Rig) -> None:
    rig.store.away = True
    text = (await rig.http.get("/metrics")).text
    assert "homing_node_ready 0.0" in text
    assert 'homing_dependency_up{dependency="store"} 0.0' in text
    assert 'homing_dependency_up{dependency="mqtt"} 1.0' in text
    assert 'homing_node_state{state="ready"} 1.0' in text


async def test_refusals_are_counted_by_problem() -> None:
    async with running(command={"max_pending": 1}) as rig:
        parked = await rig.send("silent", headers={"Prefer": "respond-async"})
        assert parked.status_code == 202
        assert (await rig.send("silent")).status_code == 429
        assert (await rig.http.post(f"/v1/devices/{DEVICE}/commands", json={"method": 1})).status_code == 422
        text = (await rig.http.get("/metrics")).text
        assert 'homing_refused_total{problem="limit-reached"} 1.0' in text
        assert 'homing_refused_total{problem="invalid-input"} 1.0' in text
