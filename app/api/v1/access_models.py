"""Models of people, keys and rights, for `/docs` and `/openapi.json`."""

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
    """A limit that applies to the caller, and how much of it is left on the node that answers."""

    rule: Annotated[str, Field(description="The rule of the role, or one that narrows the key.")]
    name: Annotated[str, Field(description="The name of the role and the number of the rule.")]
    per: Annotated[
        str, Field(description="The callers who share the limit: those of a `principal`, a `tenant` or a `device`.")
    ]
    share: Annotated[float, Field(description="This node's share of the limit, at most 1.")]
    left: Annotated[
        int | None,
        Field(
            description="The number of commands that this node would accept now; null if that depends on the device."
        ),
    ]
    count: Annotated[int | SkipJsonSchema[None], Field(description="The number of commands allowed in `seconds`.")] = (
        None
    )
    seconds: int | SkipJsonSchema[None] = None
    burst: Annotated[
        int | SkipJsonSchema[None], Field(description="The number of commands allowed at once, in a burst.")
    ] = None
    concurrent: Annotated[
        int | SkipJsonSchema[None], Field(description="The number of commands allowed to be open at a time.")
    ] = None
    open: Annotated[int | None, Field(description="The number of these commands that are open on this node.")] = None


class Me(_AccessModel):
    """The caller. A node without authentication returns only `open`."""

    open: Annotated[bool, Field(description="True if this node does not authenticate its callers.")]
    principal: str | SkipJsonSchema[None] = None
    tenant: Annotated[
        str | None, Field(description="The tenant of the principal; null for an operator of Homing itself.")
    ] = None
    key: Annotated[str | None, Field(description="The public id of the key.")] = None
    expires_at: Annotated[
        Instant | None, Field(description="The instant when the key expires; null if it never does.")
    ] = None
    session: Annotated[bool, Field(description="True if the caller is a console whose user has logged in there.")] = (
        False
    )
    roles: Annotated[list[str], Field(description="The roles that are bound at present.")] = []
    may: Annotated[
        list[Action],
        Field(
            description="The actions about no device that the caller may do: in their own tenant, and `nodes` and "
            "`metrics` and `trace` of Homing itself. Menus are made of them."
        ),
    ] = []
    limits: Annotated[list[HeldLimit], Field(description="The limits of these roles and of the key.")] = []

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
                    "may": ["fleet"],
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


_Days = Annotated[StrictInt, Field(ge=1, le=3650, description="The number of days until the key expires.")]
_Never = Annotated[StrictBool, Field(description="True if the key never expires.")]


class KeyBody(_AccessModel):
    """The properties of a new key."""

    principal: Annotated[
        str | None, Field(description="The principal that the key is for; the caller if left out.", max_length=128)
    ] = None
    device: Annotated[
        str | None,
        Field(
            description="The device that the key is for, in place of a principal. With it, the broker of a node lets "
            "the device publish and receive where its profiles say, and nothing else.",
            max_length=512,
        ),
    ] = None
    label: Annotated[str, Field(description="The purpose of the key, shown in lists.", max_length=128)] = ""
    narrow: Annotated[
        list[str],
        Field(
            description="Rules that narrow the key: it may do only what both they and the roles allow.", max_length=50
        ),
    ] = []
    days: _Days = 90
    never: _Never = False


class Rotation(_AccessModel):
    """The options for replacing a key."""

    grace: Annotated[str, Field(description="The time for which the old key stays valid, such as 24h or 0s.")] = "24h"
    days: _Days = 90
    never: _Never = False


class KeyShown(_AccessModel):
    """A key without its secret."""

    id: str
    principal: str
    label: str
    narrow: list[str]
    created_at: Instant
    expires_at: Annotated[Instant | None, Field(description="The instant when the key expires; null if it never does.")]
    revoked_at: Instant | None
    last_used_at: Annotated[Instant | None, Field(description="The last use of the key, to the minute.")]


class KeyMade(KeyShown):
    """A new key with its secret, which cannot be shown again."""

    key: Annotated[str, Field(description="The key, to be sent as `Authorization: Bearer`.")]
    old: Annotated[KeyShown | None, Field(description="The key that it replaces.")] = None


class KeyPage(_AccessModel):
    """A page of keys."""

    keys: list[KeyShown]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class Tenants(_AccessModel):
    """A tenant owns devices."""

    tenants: list[TenantInFile]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class Principals(_AccessModel):
    """People and services."""

    principals: list[PrincipalInFile]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class Roles(_AccessModel):
    """Roles with their rules."""

    roles: list[RoleInFile]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class Bindings(_AccessModel):
    """The bindings of a principal or group."""

    bindings: list[BindingInFile]


class BindingsBody(_AccessModel):
    """The complete list of bindings for a principal or group."""

    bindings: Annotated[list[BindingBody], Field(max_length=100)]


class Differences(_AccessModel):
    """Changes to the directory: entries added (+), removed (-) and changed (~)."""

    changes: Annotated[list[str], Field(examples=[["+ role 'pilot' of tenant 'north'"]])]


class AuditLine(_AccessModel):
    """One fact of the audit log. A line of a chain may contain several, ordered by time."""

    at: Annotated[
        Instant | None, Field(description="The instant when the line was written. Nodes of version 0.2 do not give it.")
    ] = None
    writer: Annotated[str, Field(description="The node and incarnation that wrote the line, or `directory`.")]
    seq: int
    hash: Annotated[str, Field(description="SHA-256 over the previous hash, the line's number and its bytes.")]
    line: Annotated[dict[str, JsonValue] | None, Field(description="The recorded fact: `at` (µs), `kind`, `who`, …")]


class AuditPage(_AccessModel):
    """Lines of the audit log, newest first."""

    lines: list[AuditLine]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class AuditFault(_AccessModel):
    """A fault in a chain, and the line where it begins."""

    writer: str
    seq: int
    what: str


class AuditVerified(_AccessModel):
    """The number of lines that were read, and the faults that were found."""

    intact: bool
    writers: int
    lines: int
    heads: Annotated[int, Field(description="The number of heads that the chains were compared with.")]
    faults: list[AuditFault]
    empty: Annotated[bool, Field(description="True if there were no lines to verify.")]
    reason: Annotated[str | None, Field(description="Possible reasons why there are no lines; null if there are any.")]


class Check(_AccessModel):
    """A principal and the action to check."""

    principal: Annotated[str, Field(max_length=128)]
    action: Action
    device: Annotated[str, Field(max_length=128)] = ""
    profile: Annotated[str, Field(max_length=64)] = ""
    method: Annotated[str, Field(max_length=128)] = ""
    tenant: Annotated[
        str | None,
        Field(
            description="The tenant to ask about if no device is given; null stands for Homing itself.", max_length=128
        ),
    ] = None


class Decision(_AccessModel):
    """The answer to whether an action is allowed, and why."""

    allowed: bool
    reason: Annotated[str, Field(examples=["no_rule"])]
    rule: Annotated[str | None, Field(description="The rule that allows or denies the action.")]
    requires: Annotated[int, Field(description="The number of people who must approve, the caller included.")]
    limits: list[str]
    nearest: Annotated[list[str], Field(description="Rules that nearly allow the action.")]
