"""Parameters and examples in the documentation: their patterns allow what the endpoints allow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from app.api.v1 import access_models as schemas_of_access
from app.api.v1 import command_models as schemas
from app.api.v1 import device_models, node_models
from app.core.durations import parse_duration
from app.core.errors import InvalidInputError
from app.core.identifiers import validate_command_id, validate_device_id, validate_idempotency_key, validate_method
from tests.api.test_openapi import document, operations, written

__all__ = ["document", "written"]  # fixtures


def parameters(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    models = document["components"]["schemas"]
    for operation in operations(document).values():
        for one in operation.get("parameters", []):
            model = one["schema"].get("$ref", "").rpartition("/")[2]
            yield one | {"schema": one["schema"] | models[model]} if model else one


async def test_H18_every_parameter_says_what_is_allowed(document: dict[str, Any]) -> None:
    said = {"pattern", "enum", "minimum", "maxLength"}
    silent = {one["name"] for one in parameters(document) if not said & one["schema"].keys()}
    assert silent == {"Prefer"}  # what cannot be read there is ignored
    for one in parameters(document):
        if "pattern" in one["schema"]:
            assert re.search(one["schema"]["pattern"], one["schema"]["examples"][0]), one["name"]


TEXTS = (
    *(
        "",
        ".",
        "..",
        "...",
        "a",
        "a b",
        "a/b",
        "\u0430",
        "SN-1_2.3:4",
        "x" * 128,
        "x" * 129,
        "x" * 255,
        "x" * 256,
        "~!",
    ),
    *("042-01JC8ZQ5M7W3T9K2V4X6Y8B0D1", "256-01JC8ZQ5M7W3T9K2V4X6Y8B0D1", "042-81JC8ZQ5M7W3T9K2V4X6Y8B0D1"),
    *("042-01jc8zq5m7w3t9k2v4x6y8b0d1"),
    *("10s", "10", "1.5m", "-1s", "1e3s", "1000000000s"),
)


@pytest.mark.parametrize(
    ("place", "check"),
    [
        ("device_id", validate_device_id),
        ("device", validate_device_id),
        ("command_id", validate_command_id),
        ("Idempotency-Key", validate_idempotency_key),
        ("method", validate_method),
        ("timeout", parse_duration),
    ],
)
async def test_H18_the_patterns_allow_what_the_endpoints_allow(
    document: dict[str, Any], place: str, check: Callable[[str], object]
) -> None:
    body = document["components"]["schemas"]["CommandBody"]["properties"]
    patterns: dict[str, Any] = {}
    for one in parameters(document):
        if not one["description"].startswith("Return only events of "):  # what may be a part of a name
            patterns.setdefault(one["name"], one["schema"].get("pattern"))
    patterns |= {"method": body["method"]["pattern"], "timeout": body["timeout"]["anyOf"][0]["pattern"]}
    allowed = {text for text in TEXTS if accepted(check, text)}
    assert 0 < len(allowed) < len(TEXTS)
    assert {text for text in TEXTS if re.search(patterns[place], text)} == allowed


def accepted(check: Callable[[str], object], text: str) -> bool:
    try:
        check(text)
    except (InvalidInputError, ValueError):
        return False
    return True


@pytest.mark.parametrize(
    "model",
    [
        schemas.CommandBody,
        schemas.Command,
        node_models.Nodes,
        schemas_of_access.Me,
        device_models.DeviceBody,
        device_models.Device,
    ],
)
def test_the_examples_are_valid(model: type[BaseModel]) -> None:
    for example in model.model_json_schema().get("examples", []):
        model.model_validate(example)


def test_the_ids_in_the_examples_are_valid() -> None:
    validate_device_id(schemas.DEVICE_ID)
    validate_command_id(schemas.COMMAND_ID)
