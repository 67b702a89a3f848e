"""Dashboard, rules and docs speak of metrics that exist; every alert has its test and its runbook."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from app import metrics
from app.metrics import FAMILIES
from tests.services import find_binary
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
OPERATIONS = ROOT / "docs" / "operations"
LIBRARY = re.compile(r"(process|python_gc)_\w+|up|ALERTS")
"""The names that Prometheus and its client library give themselves."""

NAMES = re.compile(r"\b(?:homing|process|python_gc)_\w+|homing:[\w:]+")


def exported() -> set[str]:
    """All names of samples of our own."""
    return {
        name
        for family in FAMILIES
        for name in (
            [f"{family.name}_{part}" for part in ("bucket", "sum", "count")]
            if family.kind == "histogram"
            else [family.shown]
        )
    }


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((PROMETHEUS / "homing.rules.yml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "homing.json").read_text())
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def strings_of(value: object, key: str) -> Iterator[str]:
    """All strings under this key, at any depth."""
    if isinstance(value, dict):
        for name, member in value.items():
            if name == key and isinstance(member, str):
                yield member
            yield from strings_of(member, key)
    elif isinstance(value, list):
        for member in value:
            yield from strings_of(member, key)


def dashboard_queries() -> list[str]:
    return [*strings_of(dashboard(), "expr"), *strings_of(dashboard()["templating"], "definition")]


def metrics_in(queries: list[str]) -> set[str]:
    """Names of metrics, without what stands in quotes."""
    return {name for query in queries for name in NAMES.findall(re.sub(r'"[^"]*"', '""', query))}


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    asked = metrics_in(dashboard_queries())
    assert len(asked) > 30
    assert {name for name in asked if not LIBRARY.fullmatch(name)} <= exported() | recorded()


def test_the_rules_ask_for_metrics_that_exist() -> None:
    asked = metrics_in([rule["expr"] for rule in rules()])
    assert len(asked) > 20
    assert {name for name in asked if not LIBRARY.fullmatch(name)} <= exported() | recorded()


def test_every_family_is_in_the_dashboard_or_a_rule_or_is_plainly_informative() -> None:
    asked = metrics_in([*dashboard_queries(), *(rule["expr"] for rule in rules())])
    unused = {
        family.shown
        for family in FAMILIES
        if not asked & {family.shown, *(f"{family.name}_{part}" for part in ("bucket", "sum", "count"))}
    }
    assert unused == {
        *("homing_build_info", "homing_canary_total", "homing_commands_joined_total"),
        *("homing_commands_repeated_total", "homing_lease_renewals_failed_total", "homing_websockets_opened_total"),
        "homing_approvals_total",
        *("homing_probe_total", "homing_probe_questions_total", "homing_probe_verified_total"),
        *("homing_held", "homing_held_given_back_total", "homing_held_refused_total"),
        *("homing_mqtt_connections_total", "homing_mqtt_reading_paused_total", "homing_node_state"),
        # The broker in a node is for a box without a cluster, and so without these dashboards.
        *("homing_broker_connections_total", "homing_broker_disconnections_total", "homing_broker_dropped_total"),
        *("homing_broker_denied_total", "homing_broker_received_bytes_total", "homing_broker_sent_bytes_total"),
        "homing_broker_sent_total",
        *("homing_fleet_again_total", "homing_fleet_commands_total", "homing_fleet_failures_total"),
        "homing_fleet_runs_taken_total",
        *("homing_broker_messages_total", "homing_broker_refused_total", "homing_broker_taken_over_total"),
        *("homing_broker_backed_off_total", "homing_broker_unknown_acknowledgements_total"),
        *(
            "homing_store_redirects_total",
            "homing_store_replicas_short_total",
            "homing_store_scripts_reloaded_total",
            "homing_store_silences_total",
            "homing_http_connections_opened_total",
            "homing_logins_total",
            "homing_oidc_fetches_total",
            "homing_oidc_logins_total",
            "homing_tokens_refused_total",
        ),
    }


def test_the_counters_of_every_subject_are_rendered() -> None:
    folders = [path.parent.name for path in (ROOT / "app").glob("*/counters.py")]
    tables = [import_module(f"app.{folder}.counters").COUNTERS for folder in folders]
    assert len(tables) > 8
    assert sorted(map(id, tables)) == sorted(map(id, metrics.TABLES))


def test_every_metric_is_documented_as_it_is() -> None:
    text = (OPERATIONS / "metrics.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `homing_")]
    assert rows == [
        f"| `{family.shown}` | {family.kind} | {', '.join(f'`{label}`' for label in family.labels)} | {family.about} |"
        for family in FAMILIES
    ]


def test_every_alert_has_a_sentence_a_severity_and_a_section_that_says_what_to_do() -> None:
    text = (OPERATIONS / "alerts.md").read_text()
    told = re.findall(r"^## (\w+)\n\n(.+?)(?=\n\n##|\Z)", text.strip(), re.MULTILINE | re.DOTALL)
    assert [name for name, _ in told] == list(alerts())
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook"] == f"docs/operations/alerts.md#{name.lower()}"
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("page", "ticket", "info")


def test_what_alerts_about_events_and_queues_count_is_there_before_it_happens() -> None:
    expressions = " ".join(rule["expr"] for rule in rules())
    asked = re.findall(r'homing_(device|queue)_events_total\{event=~?"([^"]+)"', expressions)
    prefixes = {"device": "events", "queue": "queues"}
    names = {f"{prefixes[kind]}.{name}" for kind, each in asked for name in each.split("|")}
    assert len(names) > 6
    assert names <= set(metrics.ALWAYS_SHOWN), "an increase can only be seen of what was there before"


def test_every_alert_is_tested_to_fire_and_not_to_fire() -> None:
    tests = yaml.safe_load((PROMETHEUS / "homing.rules.test.yml").read_text())["tests"]
    fires: set[str] = set()
    quiet: set[str] = set()
    for one in tests:
        for asked in one["alert_rule_test"]:
            (fires if asked["exp_alerts"] else quiet).add(asked["alertname"])
    assert fires == quiet == set(alerts())


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_every_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["description"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_the_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    ids = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        ids.add(panel["id"])
    assert len(ids) == len(dashboard()["panels"])


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [find_binary("promtool", package="prometheus"), *arguments]
    return subprocess.run(command, cwd=PROMETHEUS, capture_output=True, text=True, check=False, timeout=PATIENCE)


def test_promtool_finds_every_alert_fire_when_it_should() -> None:
    ran = promtool("test", "rules", "homing.rules.test.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_promtool_accepts_rules_and_scrape_config() -> None:
    ran = promtool("check", "config", "--lint=all", "--lint-fatal", "prometheus.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_promtool_parses_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    """As recording rules, with Grafana's variables filled in."""
    queries = [query.replace("$__rate_interval", "5m") for query in strings_of(dashboard(), "expr")]
    rule = [{"record": f"panel:query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rule}]}))
    ran = promtool("check", "rules", "--lint=none", str(file))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_rule_that_is_broken_is_found(tmp_path: Path) -> None:
    """The tests of the rules must be able to fail."""
    broken = (PROMETHEUS / "homing.rules.yml").read_text().replace("homing_node_ready == 0", "homing_node_ready == 2")
    (tmp_path / "homing.rules.yml").write_text(broken)
    tests = yaml.safe_load((PROMETHEUS / "homing.rules.test.yml").read_text())
    tests["tests"] = [one for one in tests["tests"] if one["name"] == "HomingNodeNotReady"]
    (tmp_path / "homing.rules.test.yml").write_text(yaml.safe_dump(tests))
    ran = promtool("test", "rules", str(tmp_path / "homing.rules.test.yml"))
    assert ran.returncode == 1
    assert "HomingNodeNotReady" in ran.stdout + ran.stderr
