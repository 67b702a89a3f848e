"""The models that FastAPI sees in no route, for `/openapi.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from app.api.v1.command_models import CommandBody, Problem
from app.api.v1.fleet_models import FleetRunBody
from app.api.v1.login_models import LoginBody


def unseen() -> Mapping[str, Any]:
    """The schemas, by name, of the models that FastAPI sees in no route, as it neither reads nor sends them."""
    _, schema = models_json_schema(
        [(CommandBody, "validation"), (FleetRunBody, "validation"), (LoginBody, "validation"), (Problem, "validation")],
        ref_template="#/components/schemas/{model}",
    )
    definitions: Mapping[str, Any] = schema["$defs"]
    return definitions
