"""What goes in and out about people, keys and rights, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool, StrictInt
from pydantic.json_schema import SkipJsonSchema

from app.access.access_file import BindingBody, BindingInFile, PrincipalInFile, RoleInFile, TenantInFile
from app.api.v1.command_models import Instant
from app.core.access.rules import Action


class _AccessModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class HeldLimit(_AccessModel):
    """A limit that holds for who asks, and what is left of it on the node that answers."""

    rule: Annotated[str, Field(description="The line of the role, or of what narrows the key.")]
    name: Annotated[str, Field(description="The role and the number of the line.")]
    per: Annotated[str, Field(description="Who shares it: principal, tenant or device.")]
    share: Annotated[float, Field(description="The part of the limit that is this node's, up to 1.")]
    left: Annotated[
        int | None, Field(description="How many commands this node would take now; null where the device matters.")
    ]
    count: Annotated[int | SkipJsonSchema[None], Field(description="So many commands in `seconds`.")] = None
    seconds: int | SkipJsonSchema[None] = None
    burst: Annotated[int | SkipJsonSchema[None], Field(description="And so many at once.")] = None
    concurrent: Annotated[int | SkipJsonSchema[None], Field(description="So many commands open at a time.")] = None
    open: Annotated[int | None, Field(description="Of those, how many are open on this node.")] = None


class Me(_AccessModel):
    """Who asks. Of a node that is open, `open` is all there is."""

    open: Annotated[bool, Field(description="Whether this node asks nobody who they are.")]
    principal: str | SkipJsonSchema[None] = None
    tenant: Annotated[str | None, Field(description="null: who operates Homing itself.")] = None
    key: Annotated[str | None, Field(description="The public id of the key.")] = None
    expires_at: Annotated[Instant | None, Field(description="null: never.")] = None
    roles: Annotated[list[str], Field(description="Those that are bound at present.")] = []
    limits: Annotated[list[HeldLimit], Field(description="Those of these roles, and of the key.")] = []

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "open": False,
                    "principal": "ci",
                    "tenant": "default",
                    "key": "2F7QW9ZD",
                    "expires_at": "2026-06-01T08:00:00.000Z",
                    "roles": ["operator", "careful"],
                    "limits": [
                        {
                            "rule": "limit send *:* on * concurrent 20",
                            "name": "careful.1",
                            "per": "principal",
                            "share": 0.5,
                            "left": 7,
                            "concurrent": 20,
                            "open": 3,
                        }
                    ],
                }
            ]
        }
    )


_Days = Annotated[StrictInt, Field(ge=1, le=3650, description="Days until it ends.")]
_Never = Annotated[StrictBool, Field(description="It does not end.")]


class KeyBody(_AccessModel):
    """What a key is to be."""

    principal: Annotated[str | None, Field(description="Whose; who asks, when left out.", max_length=128)] = None
    label: Annotated[str, Field(description="What it is for.", max_length=128)] = ""
    narrow: Annotated[
        list[str], Field(description="Rules: it may do only what both they and the roles allow.", max_length=50)
    ] = []
    days: _Days = 90
    never: _Never = False


class Rotation(_AccessModel):
    """How a key is replaced."""

    grace: Annotated[str, Field(description="How long the old one goes on: 24h, 0s.")] = "24h"
    days: _Days = 90
    never: _Never = False


class KeyShown(_AccessModel):
    """A key without its secret."""

    id: str
    principal: str
    label: str
    narrow: list[str]
    created_at: Instant
    expires_at: Annotated[Instant | None, Field(description="null: never.")]
    revoked_at: Instant | None
    last_used_at: Annotated[Instant | None, Field(description="To the minute.")]


class KeyMade(KeyShown):
    """A new key, with what nobody can show again."""

    key: Annotated[str, Field(description="Goes into `Authorization: Bearer`.")]
    old: Annotated[KeyShown | None, Field(description="The one that it replaces.")] = None


class KeyPage(_AccessModel):
    """Keys."""

    keys: list[KeyShown]
    cursor: Annotated[str | None, Field(description="Give it to get the next page; null on the last one.")]


class Tenants(_AccessModel):
    """Whose devices which are."""

    tenants: list[TenantInFile]
    cursor: Annotated[str | None, Field(description="Give it to get the next page; null on the last one.")]


class Principals(_AccessModel):
    """People and services."""

    principals: list[PrincipalInFile]
    cursor: Annotated[str | None, Field(description="Give it to get the next page; null on the last one.")]


class Roles(_AccessModel):
    """Roles with their rules."""

    roles: list[RoleInFile]
    cursor: Annotated[str | None, Field(description="Give it to get the next page; null on the last one.")]


class Bindings(_AccessModel):
    """What is given to somebody."""

    bindings: list[BindingInFile]


class BindingsBody(_AccessModel):
    """What is to be given to somebody: all of it."""

    bindings: Annotated[list[BindingBody], Field(max_length=100)]


class Differences(_AccessModel):
    """What came (+), went (-) and changed (~)."""

    changes: Annotated[list[str], Field(examples=[["+ role 'pilot' of tenant 'north'"]])]


class AuditLine(_AccessModel):
    """One thing that was told. A line of a chain may tell of several, in the order of their times."""

    at: Annotated[Instant | None, Field(description="When it was written. Nodes of 0.2 do not say it.")] = None
    writer: Annotated[str, Field(description="Node and incarnation, or `directory`.")]
    seq: int
    hash: Annotated[str, Field(description="SHA-256 of the hash before it, the number and the line's bytes.")]
    line: Annotated[dict[str, JsonValue] | None, Field(description="What was told: `at` (µs), `kind`, `who`, …")]


class AuditPage(_AccessModel):
    """What was told, newest first."""

    lines: list[AuditLine]
    cursor: Annotated[str | None, Field(description="Give it to get the next page; null on the last one.")]


class AuditFault(_AccessModel):
    """What is wrong with a chain, and from which line on."""

    writer: str
    seq: int
    what: str


class AuditVerified(_AccessModel):
    """What was read, and what is wrong with it."""

    intact: bool
    writers: int
    lines: int
    heads: Annotated[int, Field(description="That the chains had to lead to.")]
    faults: list[AuditFault]
    empty: Annotated[bool, Field(description="Whether there was nothing to verify.")]
    reason: Annotated[str | None, Field(description="What that may mean; null where there are lines.")]


class Check(_AccessModel):
    """What somebody may want to do."""

    principal: Annotated[str, Field(max_length=128)]
    action: Action
    device: Annotated[str, Field(max_length=128)] = ""
    profile: Annotated[str, Field(max_length=64)] = ""
    method: Annotated[str, Field(max_length=128)] = ""
    tenant: Annotated[
        str | None, Field(description="Counts where there is no device; null is Homing itself.", max_length=128)
    ] = None


class Decision(_AccessModel):
    """Whether it is allowed, and why."""

    allowed: bool
    reason: Annotated[str, Field(examples=["no_rule"])]
    rule: Annotated[str | None, Field(description="The one that allows or denies it.")]
    requires: Annotated[int, Field(description="How many people must want it.")]
    limits: list[str]
    nearest: Annotated[list[str], Field(description="Rules that nearly allow it.")]
