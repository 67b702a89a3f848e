"""Logins, as they go in and out."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from app.api.v1.command_models import Instant, SchemaModel


class LoginBody(SchemaModel):
    """The credentials of a person who logs in."""

    name: Annotated[str, Field(description="The person's name or id.", min_length=1, max_length=256)]
    password: Annotated[str, Field(min_length=1, max_length=256, json_schema_extra={"format": "password"})]
    tenant: Annotated[
        str | None,
        Field(description="The tenant of the person; left out for operators of Homing itself.", max_length=256),
    ] = None

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ann", "password": "correct horse battery"}]})


class Login(SchemaModel):
    """The key of a person who has logged in."""

    key: Annotated[str, Field(description="The key, to be sent as `Authorization: Bearer`. It is shown only once.")]
    id: Annotated[str, Field(description="The public id of the key, as shown in lists.")]
    principal: str
    tenant: Annotated[
        str | None, Field(description="The tenant of the principal; null for an operator of Homing itself.")
    ]
    expires_at: Instant

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "key": f"homing_2F7QW9ZD_{'x' * 43}_{'x' * 6}",
                    "id": "2F7QW9ZD",
                    "principal": "ann",
                    "tenant": None,
                    "expires_at": "2026-06-01T20:00:00.000Z",
                }
            ]
        }
    )
