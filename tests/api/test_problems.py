"""Every error is RFC 9457, and every error class has been thought about."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI
from starlette.exceptions import HTTPException

from app.api import problems
from app.core import errors
from app.core.payload import REASONS
from tests.api.rig import DEVICE, Rig, build, settings_of
from tests.api.test_send import problem


def subclasses(of: type[errors.HomingError]) -> Iterator[type[errors.HomingError]]:
    yield of
    for one in of.__subclasses__():
        yield from subclasses(one)


def test_every_error_class_has_a_status() -> None:
    ours = {one for one in subclasses(errors.HomingError) if one.__module__.startswith(errors.__name__)}
    assert ours == set(problems.BY_ERROR)


def test_every_reason_of_the_json_decoder_has_a_sentence() -> None:
    assert set(problems.UNREADABLE) == REASONS


def test_a_problem_type_means_one_thing() -> None:
    kinds = {
        *problems.BY_ERROR.values(),
        *(one for one in vars(problems).values() if isinstance(one, problems.ProblemType)),
    }
    assert len({kind.slug for kind in kinds}) == len(kinds)
    assert {kind.status for kind in kinds} <= {
        400,
        401,
        403,
        404,
        405,
        408,
        409,
        412,
        413,
        414,
        415,
        421,
        422,
        428,
        429,
        431,
        500,
        503,
        504,
        507,
    }
    assert all(kind.retry_after for kind in kinds if kind.status in {429, 503})


@pytest.mark.parametrize(
    "path", ["/assets/x", "/v1", "/v2/nodes", "/v1/devices//commands", "/v1/nodes/", "/v1/devices/a/b/commands"]
)
async def test_an_unknown_path_is_404(rig: Rig, path: str) -> None:
    problem(await rig.http.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "reason"),
    [
        ("GET", f"/v1/devices?tenant={'x' * 129}", None, "query.tenant", "String should have at most 128 characters"),
        ("PUT", "/v1/schedules/nightly", {"device": 1}, "body.device", "Input should be a valid string"),
        ("PUT", "/v1/schedules/nightly", [], "body", "Input should be a JSON object"),
        ("PUT", "/v1/schedules/nightly", {"command": 1}, "body.command", "Input should be a JSON object"),
    ],
)
async def test_a_field_is_named_as_its_caller_knows_it(
    rig: Rig, method: str, path: str, body: object, field: str, reason: str
) -> None:
    said = problem(await rig.http.request(method, path, json=body), 422, "invalid-input")
    assert {"field": field, "reason": reason} in said["errors"]
    assert "none" not in said["detail"].lower()
    assert "function" not in said["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", f"/v1/devices/{DEVICE}/commands", "GET, POST"),
        ("PUT", "/v1/commands/042-01JC8ZQ5M7W3T9K2V4X6Y8B0D1", "DELETE, GET"),
        ("POST", "/v1/nodes", "GET"),
        ("BREW", "/healthz", "GET"),
    ],
)
async def test_a_method_that_is_not_allowed_is_405_with_all_that_are(
    rig: Rig, method: str, path: str, allowed: str
) -> None:
    response = await rig.http.request(method, path)
    body = problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == allowed
    assert body["detail"].endswith(f"allowed: {allowed}")


async def test_a_mistake_of_ours_is_500_and_tells_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("a secret")

    monkeypatch.setattr(rig.store, "get", broken)
    response = await rig.http.get("/v1/commands/042-01JC8ZQ5M7W3T9K2V4X6Y8B0D1")
    problem(response, 500, "internal-error")
    assert "secret" not in response.text


async def test_an_error_of_ours_without_status_of_its_own_is_500_and_tells_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise errors.ConfigurationError("a secret")

    monkeypatch.setattr(rig.store, "get", broken)
    response = await rig.http.get("/v1/commands/042-01JC8ZQ5M7W3T9K2V4X6Y8B0D1")
    problem(response, 500, "internal-error")
    assert "secret" not in response.text


@pytest.fixture
async def extended(rig: Rig) -> FastAPI:
    """The application with ordinary FastAPI routes beside ours."""

    @rig.application.get("/teapot")
    async def teapot() -> None:
        raise HTTPException(418, "short and stout", headers={"X-Pot": "tea"})

    @rig.application.get("/square")
    async def square(side: int) -> int:
        return side * side

    rig.application.middleware_stack = None
    return rig.application


async def test_ordinary_fastapi_routes_work_and_fail_like_ours(rig: Rig, extended: FastAPI) -> None:
    assert (await rig.http.get("/square?side=3")).json() == 9
    body = problem(await rig.http.get("/square?side=x"), 422, "invalid-input")
    assert body["errors"][0]["field"] == "query.side"
    assert (await rig.send("ok")).status_code == 200


async def test_an_http_error_of_the_framework_is_a_problem(rig: Rig, extended: FastAPI) -> None:
    response = await rig.http.get("/teapot")
    assert response.status_code == 418
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-pot"] == "tea"
    assert response.json() == {
        "type": "about:blank",
        "title": "I'm a Teapot",
        "status": 418,
        "detail": "short and stout",
    }


async def test_a_node_that_has_not_started_gives_503() -> None:
    settings = settings_of()
    homing, store, _, _ = build(settings, [])
    transport = httpx.ASGITransport(homing.application)
    async with httpx.AsyncClient(transport=transport, base_url="http://node-a") as client:
        response = await client.post(f"/v1/devices/{DEVICE}/commands", json={"method": "ok"})
        problem(response, 503, "unavailable")
        assert response.headers["retry-after"] == "1"
        problem(await client.get("/readyz"), 503, "not-ready")
    assert store.registrations == []
