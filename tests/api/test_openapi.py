"""The documentation says what the endpoints do."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.api.command_body import MEMBERS
from app.api.v1 import command_models as schemas
from app.api.v1 import node_models
from tests.api.rig import Rig, running
from tests.api.test_send import ASYNC

OPERATION_IDS = {
    "GET /v1/commands/events": "follow_commands",
    "GET /v1/commands/{command_id}/events": "follow_command",
    "POST /v1/devices/{device_id}/commands": "send_command",
    "GET /v1/devices/{device_id}/commands": "list_device_commands",
    "GET /v1/commands/{command_id}": "read_command",
    "DELETE /v1/commands/{command_id}": "cancel_command_by_delete",
    "GET /v1/commands/{command_id}/explain": "explain_command",
    "GET /v1/commands": "list_commands",
    "POST /v1/commands/{command_id}/cancel": "cancel_command",
    "POST /v1/commands/{command_id}/probe": "probe_command",
    "GET /v1/devices": "list_devices",
    "GET /v1/devices/{device_id}": "read_device",
    "PUT /v1/devices/{device_id}": "put_device",
    "DELETE /v1/devices/{device_id}": "remove_device",
    "GET /v1/nodes": "list_nodes",
    "GET /v1/broker/sessions": "list_broker_sessions",
    "GET /v1/broker/sessions/{client_id}": "get_broker_session",
    "DELETE /v1/broker/sessions/{client_id}": "end_broker_session",
    "GET /v1/broker/retained": "list_retained",
    "DELETE /v1/broker/retained": "delete_retained",
    "GET /v1/fleet-runs": "list_fleet_runs",
    "POST /v1/fleet-runs": "begin_fleet_run",
    "GET /v1/fleet-runs/{run_id}": "read_fleet_run",
    "GET /v1/fleet-runs/{run_id}/targets": "list_fleet_targets",
    "GET /v1/fleet-runs/{run_id}/explain": "explain_fleet_run",
    "POST /v1/fleet-runs/{run_id}/pause": "pause_fleet_run",
    "POST /v1/fleet-runs/{run_id}/resume": "resume_fleet_run",
    "POST /v1/fleet-runs/{run_id}/abort": "abort_fleet_run",
    "POST /v1/fleet-runs/{run_id}/retry": "retry_fleet_run",
    "GET /v1/schedules": "list_schedules",
    "PUT /v1/schedules/{name}": "put_schedule",
    "GET /v1/schedules/{name}": "read_schedule",
    "DELETE /v1/schedules/{name}": "delete_schedule",
    "GET /v1/events/stream": "follow_events",
    "GET /v1/events": "read_events",
    "POST /v1/events": "publish_events",
    "GET /v1/topics": "list_topics",
    "GET /v1/events/{database}/{shard}/{position}": "read_event",
    "GET /v1/streams": "list_structures",
    "GET /v1/cursors": "list_cursors",
    "GET /v1/cursors/{name}": "read_cursor",
    "PUT /v1/cursors/{name}": "commit_cursor",
    "DELETE /v1/cursors/{name}": "delete_cursor",
    "GET /v1/databases": "list_databases",
    "GET /v1/state/{topic}": "read_state",
    "PUT /v1/state/{topic}": "put_state",
    "GET /v1/devices/{device_id}/state": "read_device_state",
    "GET /v1/approvals": "list_approvals",
    "GET /v1/commands/{command_id}/approvals": "show_proposal",
    "POST /v1/commands/{command_id}/approvals": "decide_command",
    "POST /v1/devices/{device_id}/lanes/{lane}/resume": "resume_lane",
    "GET /v1/traffic": "listen_to_traffic",
    "POST /v1/profiles/trial": "try_message",
    "POST /v1/profiles/draft": "try_profile",
    "GET /v1/interlocks": "list_interlocks",
    "GET /v1/devices/{device_id}/interlocks": "check_interlocks",
    "POST /v1/transactions": "commit_transaction",
    "GET /v1/overview": "read_overview",
    "GET /v1/overview/events": "follow_overview",
    "GET /v1/me": "read_me",
    "POST /v1/login": "log_in",
    "DELETE /v1/login": "log_out",
    "GET /v1/profiles": "list_profiles",
    "GET /v1/profiles/{name}/methods": "list_methods",
    "GET /v1/keys": "list_keys",
    "POST /v1/keys": "create_key",
    "POST /v1/keys/{key_id}/rotate": "rotate_key",
    "DELETE /v1/keys/{key_id}": "revoke_key",
    "GET /v1/tenants": "list_tenants",
    "GET /v1/tenants/{tenant_id}": "read_tenant",
    "PUT /v1/tenants/{tenant_id}": "put_tenant",
    "DELETE /v1/tenants/{tenant_id}": "remove_tenant",
    "GET /v1/principals": "list_principals",
    "GET /v1/principals/{subject}/bindings": "list_bindings",
    "PUT /v1/principals/{subject}/bindings": "put_bindings",
    "GET /v1/principals/{principal_id}": "read_principal",
    "PUT /v1/principals/{principal_id}": "put_principal",
    "DELETE /v1/principals/{principal_id}": "remove_principal",
    "GET /v1/roles": "list_roles",
    "GET /v1/roles/{name}": "read_role",
    "PUT /v1/roles/{name}": "put_role",
    "DELETE /v1/roles/{name}": "remove_role",
    "GET /v1/access": "read_access",
    "PUT /v1/access": "put_access",
    "POST /v1/access/check": "check_access",
    "GET /v1/exchanges": "list_exchanges",
    "PUT /v1/exchanges/{name}": "declare_exchange",
    "GET /v1/exchanges/{name}": "read_exchange",
    "DELETE /v1/exchanges/{name}": "delete_exchange",
    "POST /v1/exchanges/{name}/messages": "publish_message",
    "GET /v1/queues": "list_queues",
    "PUT /v1/queues/{name}": "declare_queue",
    "GET /v1/queues/{name}": "read_queue",
    "DELETE /v1/queues/{name}": "delete_queue",
    "POST /v1/queues/{name}/bind": "bind_queue",
    "POST /v1/queues/{name}/unbind": "unbind_queue",
    "POST /v1/queues/{name}/take": "take_from_queue",
    "POST /v1/queues/{name}/settle": "settle_loans",
    "POST /v1/queues/{name}/rewind": "rewind_queue",
    "POST /v1/queues/{name}/purge": "purge_queue",
    "POST /v1/queues/{name}/redrive": "redrive_queue",
    "GET /v1/queues/{name}/dead": "read_dead_letters",
    "GET /v1/queues/{name}/consumers": "list_queue_consumers",
    "DELETE /v1/queues/{name}/consumers/{consumer}": "delete_queue_consumer",
    "GET /v1/webhooks": "list_webhooks",
    "POST /v1/webhooks": "create_webhook",
    "GET /v1/webhooks/{webhook_id}": "read_webhook",
    "PATCH /v1/webhooks/{webhook_id}": "change_webhook",
    "DELETE /v1/webhooks/{webhook_id}": "remove_webhook",
    "POST /v1/webhooks/{webhook_id}/rotate": "rotate_webhook",
    "POST /v1/webhooks/{webhook_id}/test": "test_webhook",
    "GET /v1/webhooks/{webhook_id}/deliveries": "list_deliveries",
    "POST /v1/webhooks/{webhook_id}/deliveries/{event_id}/retry": "retry_delivery",
    "GET /v1/audit": "list_audit_lines",
    "GET /v1/audit/verify": "verify_audit",
    "GET /": "read_index",
    "GET /healthz": "read_liveness",
    "GET /readyz": "read_readiness",
    "GET /metrics": "read_metrics",
}
"""The names of the operations in generated clients: a format, so that none of them ever changes."""


@pytest.fixture(scope="module")
def written() -> str:
    """The document, which takes a second to make."""

    async def asked() -> str:
        async with running() as rig:
            response = await rig.http.get("/openapi.json")
        assert response.status_code == 200
        return response.text

    return asyncio.run(asked())


@pytest.fixture
def document(written: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(written)
    return body


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for member in value.values():
            yield from references(member)
    elif isinstance(value, list):
        for member in value:
            yield from references(member)


async def test_all_operations_are_described(document: dict[str, Any]) -> None:
    guarded = {"401", "403", "500"}
    reading = {*guarded, "200", "404", "422", "503"}
    changing = {*reading, "201", "409", "412"}
    removing = {*guarded, "204", "404", "409", "412", "422", "503"}
    border = {"414", "431"}
    assert all(border <= operation["responses"].keys() for operation in operations(document).values())
    described = {name: set(operation["responses"]) - border for name, operation in operations(document).items()}
    assert described == {
        "POST /v1/devices/{device_id}/commands": {
            *guarded,
            *("200", "202", "404", "408", "409", "413", "415", "422", "429", "503", "504"),
        },
        "GET /v1/commands/{command_id}": {*guarded, "200", "404", "422", "503"},
        "GET /v1/commands/{command_id}/explain": {*guarded, "200", "404", "422", "429", "503"},
        "GET /v1/commands/events": {*guarded, "200", "422", "429", "503"},
        "GET /v1/commands/{command_id}/events": {*guarded, "200", "204", "404", "422", "429", "503"},
        "GET /v1/commands": {*guarded, "200", "422", "503"},
        "GET /v1/devices/{device_id}/commands": {*guarded, "200", "422", "503"},
        "GET /v1/devices": {*guarded, "200", "404", "422", "429", "503"},
        "GET /v1/devices/{device_id}": {*guarded, "200", "404", "422", "503"},
        "PUT /v1/devices/{device_id}": {*guarded, "200", "201", "404", "409", "412", "422", "503"},
        "DELETE /v1/devices/{device_id}": {*guarded, "204", "404", "412", "422", "503"},
        **dict.fromkeys(("GET /v1/tenants", "GET /v1/principals", "GET /v1/roles"), reading),
        **dict.fromkeys(("GET /v1/principals/{principal_id}", "GET /v1/roles/{name}"), reading),
        "GET /v1/tenants/{tenant_id}": reading,
        "GET /v1/principals/{subject}/bindings": reading,
        "PUT /v1/principals/{subject}/bindings": {*reading, "409", "412"},
        **dict.fromkeys(("PUT /v1/tenants/{tenant_id}", "PUT /v1/principals/{principal_id}"), changing),
        "PUT /v1/roles/{name}": changing,
        **dict.fromkeys(("DELETE /v1/tenants/{tenant_id}", "DELETE /v1/principals/{principal_id}"), removing),
        "DELETE /v1/roles/{name}": removing,
        "GET /v1/access": {*guarded, "200", "404", "503"},
        "PUT /v1/access": {*reading, "409", "412"},
        "POST /v1/access/check": reading,
        "GET /v1/keys": {*guarded, "200", "404", "422", "503"},
        **dict.fromkeys(("POST /v1/keys", "POST /v1/keys/{key_id}/rotate"), changing - {"200"}),
        "DELETE /v1/keys/{key_id}": removing,
        "GET /v1/audit": reading,
        "GET /v1/audit/verify": {*guarded, "200", "404", "503"},
        "DELETE /v1/commands/{command_id}": {*guarded, "200", "404", "409", "422", "503"},
        "POST /v1/commands/{command_id}/cancel": {*guarded, "200", "404", "409", "422", "503"},
        "POST /v1/commands/{command_id}/probe": {*guarded, "200", "404", "409", "422", "429", "503"},
        "GET /v1/exchanges": {*guarded, "200", "404", "422", "503"},
        "PUT /v1/exchanges/{name}": {*guarded, "200", "201", "404", "409", "422", "429", "503"},
        "GET /v1/exchanges/{name}": {*guarded, "200", "404", "422", "503"},
        "DELETE /v1/exchanges/{name}": {*guarded, "204", "404", "409", "422", "503"},
        "POST /v1/exchanges/{name}/messages": {*guarded, "200", "404", "413", "422", "503", "507"},
        "GET /v1/fleet-runs": {*guarded, "200", "422", "503"},
        "POST /v1/fleet-runs": {*guarded, "200", "202", "422", "429", "503"},
        "GET /v1/fleet-runs/{run_id}": {*guarded, "200", "404", "422", "503"},
        "GET /v1/fleet-runs/{run_id}/targets": {*guarded, "200", "404", "422", "503"},
        "GET /v1/fleet-runs/{run_id}/explain": {*guarded, "200", "404", "422", "503"},
        "POST /v1/fleet-runs/{run_id}/pause": {*guarded, "200", "404", "409", "422", "503"},
        "POST /v1/fleet-runs/{run_id}/resume": {*guarded, "200", "404", "409", "422", "503"},
        "POST /v1/fleet-runs/{run_id}/abort": {*guarded, "200", "404", "409", "422", "503"},
        "POST /v1/fleet-runs/{run_id}/retry": {*guarded, "202", "404", "422", "429", "503"},
        "GET /v1/schedules": {*guarded, "200", "422", "503"},
        "PUT /v1/schedules/{name}": {*guarded, "200", "201", "404", "412", "422", "429", "503"},
        "GET /v1/schedules/{name}": {*guarded, "200", "404", "422", "503"},
        "DELETE /v1/schedules/{name}": {*guarded, "204", "404", "412", "422", "429", "503"},
        "GET /v1/queues": {*guarded, "200", "404", "422", "503"},
        "PUT /v1/queues/{name}": {*guarded, "200", "201", "404", "409", "412", "422", "429", "503"},
        "GET /v1/queues/{name}": {*guarded, "200", "404", "422", "503"},
        "DELETE /v1/queues/{name}": {*guarded, "204", "404", "409", "422", "503"},
        "POST /v1/queues/{name}/bind": {*guarded, "200", "404", "409", "412", "422", "503"},
        "POST /v1/queues/{name}/unbind": {*guarded, "200", "404", "409", "412", "422", "503"},
        "POST /v1/queues/{name}/take": {*guarded, "200", "404", "422", "429", "503"},
        "POST /v1/queues/{name}/settle": {*guarded, "200", "404", "422", "503"},
        "POST /v1/queues/{name}/rewind": {*guarded, "204", "404", "409", "422", "503"},
        "POST /v1/queues/{name}/purge": {*guarded, "204", "404", "409", "422", "503"},
        "POST /v1/queues/{name}/redrive": {*guarded, "204", "404", "409", "422", "503"},
        "GET /v1/queues/{name}/dead": {*guarded, "200", "404", "422", "503"},
        "GET /v1/queues/{name}/consumers": {*guarded, "200", "404", "422", "503"},
        "DELETE /v1/queues/{name}/consumers/{consumer}": {*guarded, "200", "404", "422", "503"},
        "POST /v1/webhooks": {*guarded, "201", "404", "422", "429", "503"},
        "GET /v1/webhooks": {*guarded, "200", "404", "422", "503"},
        "GET /v1/webhooks/{webhook_id}": {*guarded, "200", "404", "422", "503"},
        "PATCH /v1/webhooks/{webhook_id}": {*guarded, "200", "404", "409", "412", "422", "503"},
        "DELETE /v1/webhooks/{webhook_id}": {*guarded, "204", "404", "422", "503"},
        "POST /v1/webhooks/{webhook_id}/rotate": {*guarded, "200", "404", "409", "422", "503"},
        "POST /v1/webhooks/{webhook_id}/test": {*guarded, "200", "404", "422", "429", "503"},
        "GET /v1/webhooks/{webhook_id}/deliveries": {*guarded, "200", "404", "422", "503"},
        "POST /v1/webhooks/{webhook_id}/deliveries/{event_id}/retry": {*guarded, "204", "404", "422", "503"},
        "GET /v1/nodes": {*guarded, "200", "503"},
        "GET /v1/broker/sessions": {*guarded, "200", "404", "422"},
        "GET /v1/broker/sessions/{client_id}": {*guarded, "200", "404", "422"},
        "DELETE /v1/broker/sessions/{client_id}": {*guarded, "204", "404", "422", "503"},
        "GET /v1/broker/retained": {*guarded, "200", "404", "422"},
        "DELETE /v1/broker/retained": {*guarded, "204", "404", "422", "503"},
        "GET /v1/events": {*guarded, "200", "404", "422", "503"},
        "GET /v1/events/stream": {*guarded, "200", "404", "422", "429", "503"},
        "POST /v1/events": {*guarded, "200", "404", "408", "413", "422", "503", "507"},
        "GET /v1/topics": {*guarded, "200", "404", "422", "503"},
        "GET /v1/events/{database}/{shard}/{position}": {*guarded, "200", "404", "422", "503"},
        "GET /v1/cursors": {*guarded, "200", "404", "422", "503"},
        "GET /v1/cursors/{name}": {*guarded, "200", "404", "422", "503"},
        "PUT /v1/cursors/{name}": {*guarded, "200", "404", "412", "422", "429", "503"},
        "DELETE /v1/cursors/{name}": {*guarded, "204", "404", "412", "422", "503"},
        "GET /v1/streams": {*guarded, "200", "404", "422", "503"},
        "GET /v1/databases": {*guarded, "200", "404", "503"},
        "GET /v1/state/{topic}": {*guarded, "200", "404", "422", "503"},
        "PUT /v1/state/{topic}": {*guarded, "200", "404", "408", "412", "413", "422", "503", "507"},
        "GET /v1/devices/{device_id}/state": {*guarded, "200", "404", "422", "503"},
        "POST /v1/devices/{device_id}/lanes/{lane}/resume": {*guarded, "200", "404", "422", "503"},
        "GET /v1/approvals": {*guarded, "200", "422", "503"},
        "GET /v1/commands/{command_id}/approvals": {*guarded, "200", "404", "409", "422", "503"},
        "POST /v1/commands/{command_id}/approvals": {
            *guarded,
            *("200", "404", "408", "409", "412", "413", "422", "428", "503"),
        },
        "GET /v1/traffic": {*guarded, "200", "422", "429", "503"},
        "POST /v1/profiles/trial": {*guarded, "200", "422"},
        "POST /v1/profiles/draft": {*guarded, "200", "422", "429", "503"},
        "GET /v1/interlocks": {*guarded, "200"},
        "GET /v1/devices/{device_id}/interlocks": {*guarded, "200", "404", "422", "503"},
        "POST /v1/transactions": {*guarded, "200", "404", "408", "409", "413", "422", "503", "507"},
        "GET /v1/me": {*guarded, "200"},
        "GET /v1/overview": {*guarded, "200"},
        "GET /v1/overview/events": {*guarded, "200", "429"},
        "POST /v1/login": {"201", "401", "408", "409", "413", "415", "422", "429", "500", "503"},
        "DELETE /v1/login": {*guarded, "204", "409", "503"},
        "GET /v1/profiles": {*guarded, "200"},
        "GET /v1/profiles/{name}/methods": {*guarded, "200", "404", "422"},
        "GET /": {"200"},
        "GET /healthz": {"200"},
        "GET /readyz": {"200", "500", "503"},
        "GET /metrics": {*guarded, "200"},
    }
    assert all(operation["summary"] for operation in operations(document).values())


async def test_operation_ids_are_short_unique_and_stay(document: dict[str, Any]) -> None:
    found = {name: operation["operationId"] for name, operation in operations(document).items()}
    assert found == OPERATION_IDS
    assert len(set(found.values())) == len(found)
    assert all(re.fullmatch("[a-z]+(_[a-z]+)+", one) for one in found.values())


async def test_no_name_of_a_model_is_a_path_of_ours(document: dict[str, Any]) -> None:
    """FastAPI tells two models of one name apart by their modules."""
    assert [name for name in document["components"]["schemas"] if not re.fullmatch("[A-Z][A-Za-z]+", name)] == []


async def test_the_server_is_where_the_document_is(document: dict[str, Any]) -> None:
    assert document["servers"] == [{"url": "/"}]


async def test_a_prefix_of_a_proxy_is_part_of_the_server() -> None:
    async with running() as rig:
        transport = httpx.ASGITransport(rig.application, root_path="/drones")
        async with httpx.AsyncClient(transport=transport, base_url="http://node-a") as http:
            assert (await http.get("/drones/openapi.json")).json()["servers"] == [{"url": "/drones"}]


async def test_every_problem_has_an_example_of_its_status(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        for status, described in operation["responses"].items():
            name_of_shared = described.get("$ref", "").rpartition("/")[2]
            response = document["components"]["responses"][name_of_shared] if name_of_shared else described
            if status >= "400":
                content = response["content"]["application/problem+json"]
                assert content["examples"], name
                assert {one["value"]["status"] for one in content["examples"].values()} == {int(status)}
            elif status != "204" and "text/event-stream" not in response["content"] and name != "GET /metrics":
                schema = response["content"]["application/json"]["schema"]
                assert all("$ref" in one for one in schema.get("anyOf", [schema]))


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    found = set(references(document))
    assert found
    for reference in found:
        parts = reference.removeprefix("#/").split("/")
        at: Any = document
        for part in parts:
            at = at[part]


async def test_an_answer_is_described_as_what_it_is(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        for status, response in operation["responses"].items():
            said = response.get("description", "")
            assert said != "Successful Response", f"{name} {status}"
            assert not said.startswith(("The id of", "The name of")), f"{name} {status} is described as its parameter"


async def test_every_path_parameter_is_described(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        described = {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"}
        assert described == set(re.findall(r"\{(\w+)\}", name))


def test_the_body_has_the_members_that_are_read() -> None:
    assert tuple(schemas.CommandBody.model_fields) == MEMBERS


async def test_what_the_endpoints_answer_fits_the_models(rig: Rig) -> None:
    for method in ("ok", "refuse"):
        schemas.Command.model_validate((await rig.send(method)).json())
    timed_out = (await rig.send("silent", timeout="1ms")).json()
    schemas.Problem.model_validate(timed_out)
    pending = (await rig.send("silent", headers=ASYNC)).json()
    schemas.Command.model_validate(pending)
    schemas.CommandPage.model_validate((await rig.http.get("/v1/commands")).json())
    node_models.Nodes.model_validate((await rig.http.get("/v1/nodes")).json())
    node_models.Alive.model_validate((await rig.http.get("/healthz")).json())
    node_models.Ready.model_validate((await rig.http.get("/readyz")).json())
    for faulty in ({"method": 1}, {"method": "ok", "timeout": 10}):
        problem = (await rig.http.post("/v1/devices/d/commands", json=faulty)).json()
        assert schemas.Problem.model_validate(problem).errors


async def test_the_documentation_page_is_there(rig: Rig) -> None:
    response = await rig.http.get("/docs")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
