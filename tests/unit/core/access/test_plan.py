"""The plan by which one document becomes another."""

from __future__ import annotations

from dataclasses import replace

from app.core.access.changes import Put, Remove, Revoke
from app.core.access.model import Binding, Credential, Document, Kind, Principal, Role, Scheme, Tenant
from app.core.access.plan import applied, differences, plan

NORTH = Tenant(id="north", name="", devices=("n*",), created_us=1)
SOUTH = Tenant(id="south", name="", devices=("s*",), created_us=1)
CI = Principal(id="ci", tenant_id="north", kind=Kind.SERVICE, name="ci")
KEY = Credential(id="k", principal_id="ci", scheme=Scheme.KEY, name="", digest=bytes(32), created_us=1)
ROLE = Role(name="pilot", tenant_id="north", rules=())
BINDING = Binding(id="b", subject="ci", role="pilot", tenant_id="north")
BEFORE = Document(
    cluster_id="c",
    version=7,
    tenants=(NORTH,),
    principals=(CI,),
    credentials=(KEY,),
    roles=(ROLE,),
    bindings=(BINDING,),
)
HEIR = replace(CI, id="ci2")
AFTER = replace(
    BEFORE,
    tenants=(SOUTH,),
    principals=(replace(HEIR, tenant_id="south"),),
    credentials=(),
    roles=(replace(ROLE, tenant_id="south"), replace(ROLE, tenant_id=None)),
    bindings=(replace(BINDING, subject="ci2", tenant_id="south"),),
)


def test_nothing_is_to_be_done_between_equals() -> None:
    assert plan(BEFORE, BEFORE) == ()
    assert differences(BEFORE, BEFORE) == []


def test_a_plan_leads_from_one_document_to_the_other() -> None:
    assert applied(BEFORE, plan(BEFORE, AFTER)) == replace(AFTER, version=8)
    assert applied(AFTER, plan(AFTER, BEFORE)) == replace(
        BEFORE, version=8, credentials=()
    )  # which are made one by one


def test_the_differences_are_a_line_each() -> None:
    assert differences(BEFORE, AFTER) == [
        *("- tenant 'north'", "+ tenant 'south'", "- principal 'ci'", "+ principal 'ci2'", "- credential 'k'"),
        *("+ role 'pilot'", "- role 'pilot' of tenant 'north'", "+ role 'pilot' of tenant 'south'", "~ binding 'b'"),
    ]


def test_changes_are_made_as_a_directory_makes_them() -> None:
    revoke = Revoke(credential_id="k", at_us=5)
    assert applied(BEFORE, [revoke, replace(revoke, at_us=6)]).credentials == (replace(KEY, revoked_us=5),)
    assert applied(BEFORE, [Remove(kind=Binding, id="b")]).bindings == ()
    assert applied(BEFORE, [Put(SOUTH)]).tenants == (NORTH, SOUTH)
    assert applied(BEFORE, []) == BEFORE
