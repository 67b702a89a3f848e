"""What `/openapi.json` says beyond what FastAPI reads from the routes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from app.api import problems
from app.api.problems import ProblemType

Described = dict[str, Any]


def problems_of(*kinds: ProblemType) -> dict[int | str, Described]:
    """One response for each status, with an example for each kind; an internal error may always be."""
    by_status: dict[int | str, list[ProblemType]] = {}
    for kind in sorted((*kinds, problems.INTERNAL), key=lambda one: one.status):
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
    headers = {"Retry-After": header("Seconds.")} if any(kind.retry_after is not None for kind in kinds) else {}
    return {
        "description": "; ".join(kind.title for kind in kinds) + ".",
        "headers": headers,
        "content": {"application/problem+json": {"schema": _ref("Problem"), "examples": examples}},
    }
