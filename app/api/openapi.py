"""The additions to `/openapi.json` beyond what FastAPI reads from the routes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.api import problems
from app.api.problems import BY_ERROR, ProblemType
from app.core import errors
from app.core.access.rules import Action

Described = dict[str, Any]

FOR_ALL: Final = frozenset(
    {
        "DELETE /v1/login",
        "GET /v1/me",
        "GET /v1/overview",
        "GET /v1/overview/events",
        "GET /v1/interlocks",
        "GET /v1/profiles",
        "GET /v1/profiles/{name}/methods",
        "POST /v1/profiles/trial",
        "GET /v1/keys",
        "POST /v1/keys",
        "DELETE /v1/keys/{key_id}",
        "POST /v1/keys/{key_id}/rotate",
    }
)
"""Operations that everybody may call who is known: about themselves, and more for who may more."""
PUBLIC: Final = frozenset({"GET /", "GET /healthz", "GET /readyz", "POST /v1/login"})
"""Operations that anybody may call."""
SECURITY: Final = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key. A node without authentication does not require one.",
    }
}
_BORDER: Final = (problems.TARGET_TOO_LONG, problems.HEAD_TOO_LARGE)
_GUARDED: Final = (BY_ERROR[errors.UnauthenticatedError], BY_ERROR[errors.ForbiddenError])


def operation_id(route: APIRoute) -> str:
    """The name of the route's function: what a generated client calls the operation. It is a format."""
    return route.name


def acts(action: Action) -> Described:
    """Describe the action that callers must be allowed to do. Operations without one are in `FOR_ALL` or `PUBLIC`."""
    return {"x-action": str(action), "security": [{"key": []}]}


def knows() -> Described:
    """An operation whose callers only have to be known."""
    return {"security": [{"key": []}]}


def as_of_open(document: Described) -> None:
    """Say that operations may be called without a key, too: the node asks nobody for one."""
    for operation in (one for path in document["paths"].values() for one in path.values()):
        if "security" in operation:
            operation["security"] = [{}, *operation["security"]]


def with_border(document: Described) -> None:
    """Add to each operation what it is answered with before anybody knows which operation it is."""
    for operation in (one for path in document["paths"].values() for one in path.values()):
        for kind in _BORDER:
            operation["responses"][str(kind.status)] = {"$ref": f"#/components/responses/{kind.slug}"}
    document["components"]["responses"] = {kind.slug: _problem_response((kind,)) for kind in _BORDER}


def problems_of(*kinds: ProblemType, public: bool = False) -> dict[int | str, Described]:
    """One response for each status, with an example for each kind; an internal error may always be."""
    everywhere = (problems.INTERNAL,) if public else (problems.INTERNAL, *_GUARDED)
    by_status: dict[int | str, list[ProblemType]] = {}
    for kind in sorted((*kinds, *everywhere), key=lambda one: one.status):
        by_status.setdefault(kind.status, []).append(kind)
    return {status: _problem_response(same) for status, same in by_status.items()}


def header(description: str) -> Described:
    """A header of a response."""
    return {"description": description, "schema": {"type": "string"}}


def json_of(model: type[BaseModel]) -> Described:
    """A body of this model, where FastAPI is not to read it."""
    return {"application/json": {"schema": _ref(model.__name__)}}


def _ref(model: str) -> Described:
    return {"$ref": f"#/components/schemas/{model}"}


def _problem_response(kinds: Iterable[ProblemType]) -> Described:
    examples = {
        kind.slug: {"value": {"type": kind.uri, "title": kind.title, "status": kind.status, "detail": kind.title}}
        for kind in kinds
    }
    headers = (
        {"Retry-After": header("The number of seconds to wait before trying again.")}
        if any(kind.retry_after is not None for kind in kinds)
        else {}
    )
    return {
        "description": "; ".join(kind.title for kind in kinds) + ".",
        "headers": headers,
        "content": {"application/problem+json": {"schema": _ref("Problem"), "examples": examples}},
    }
