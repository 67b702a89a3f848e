"""Documents of the access directory, by hand and at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from app.core.access.callers import Caller
from app.core.access.keys import Key
from app.core.access.model import (
    Binding,
    Credential,
    Device,
    Document,
    Kind,
    Principal,
    Role,
    Scheme,
    Tenant,
)
from app.core.access.questions import Question
from app.core.access.rules import BUILT_IN, Action

T = TypeVar("T")
ISSUER = "https://issuer.example"


def tenant(tenant_id: str, *devices: str) -> Tenant:
    return Tenant(id=tenant_id, name=tenant_id, devices=devices, created_us=0)


def service(principal_id: str, tenant_id: str | None = None, *, disabled_us: int | None = None) -> Principal:
    return Principal(
        id=principal_id, tenant_id=tenant_id, kind=Kind.SERVICE, name=principal_id, disabled_us=disabled_us
    )


def key_of(
    principal_id: str,
    key: Key,
    *,
    narrow: Sequence[str] = (),
    expires_us: int | None = None,
    revoked_us: int | None = None,
) -> Credential:
    return Credential(
        id=key.id,
        principal_id=principal_id,
        scheme=Scheme.KEY,
        name="key",
        digest=key.digest,
        narrow=tuple(narrow),
        created_us=0,
        expires_us=expires_us,
        revoked_us=revoked_us,
    )


def identity_of(principal_id: str, subject: str, *, expires_us: int | None = None) -> Credential:
    return Credential(
        id=f"oidc-{subject}",
        principal_id=principal_id,
        scheme=Scheme.OIDC,
        name="oidc",
        issuer=ISSUER,
        subject=subject,
        created_us=0,
        expires_us=expires_us,
    )


def role(name: str, *rules: str, tenant_id: str | None = None) -> Role:
    return Role(name=name, tenant_id=tenant_id, rules=rules)


def binding(
    subject: str,
    role_name: str,
    *,
    tenant_id: str | None = None,
    devices: tuple[str, ...] = ("*",),
    expires_us: int | None = None,
) -> Binding:
    return Binding(
        id=f"{subject}-{role_name}-{tenant_id}-{expires_us}",
        subject=subject,
        role=role_name,
        tenant_id=tenant_id,
        devices=devices,
        expires_us=expires_us,
    )


def token(subject: str, *groups: str, tenant_id: str | None = None, issued_us: int = 5, expires_us: int = 90) -> Caller:
    return Caller.of_token(
        ISSUER, subject, groups=groups, tenant_id=tenant_id, issued_us=issued_us, expires_us=expires_us
    )


def _mostly(usual: T, *others: T) -> st.SearchStrategy[T]:
    return st.sampled_from([*[usual] * 8 * len(others), *others])


# Few letters, so that much fits, and few reasons to refuse at once; instants from 0 to 9.
_PATTERNS = st.sampled_from(["*", "*", "*", "a*", "*b", "a", "a*b"])
_NAMES = st.sampled_from([*["a", "ab", "aab", "b", "a\nb"] * 3, "", "a\0b"])
_ACTIONS = st.sampled_from([Action.READ, Action.SEND, Action.SEND])
_TARGETS = st.builds("{}:{} on {}".format, _PATTERNS, _PATTERNS, _PATTERNS)
_SUBJECTS = st.sampled_from([*["p1"] * 6, "p2", "group:g1", "group:g2"])
_TENANT_IDS = st.sampled_from([None, None, "t1", "t2"])
INSTANTS = st.integers(0, 9)
_ENDS: st.SearchStrategy[int | None] = st.sampled_from([*[None] * 20, *range(10)])

_RULES = st.one_of(
    st.builds("allow {} {}".format, _ACTIONS | st.just("*"), _TARGETS),
    st.builds("allow {} {}".format, _ACTIONS | st.just("*"), _TARGETS),
    st.builds("deny {} {}".format, _ACTIONS, _TARGETS),
    st.builds("require 2 send {}".format, st.just("*:* on *") | _TARGETS),
    st.builds(
        "limit {} {} {}".format,
        _ACTIONS | st.just("*"),
        st.just("*:* on *") | _TARGETS,
        st.sampled_from(["1/s", "5/min burst 3"]),
    ),
)
_ALL = "allow * *:* on *"
_RULE_LISTS = st.builds(
    lambda first, others: (*first, *others), st.sampled_from([(), (_ALL,), (_ALL,)]), st.lists(_RULES, max_size=4)
)
_TENANTS = st.sampled_from(
    [(), (tenant("t1", "*"),), (tenant("t1", "a*"), tenant("t2", "b*", "x*")), (tenant("t1", "ab", "b"), tenant("t2"))]
)
_PRINCIPALS = st.tuples(
    *[
        st.builds(
            Principal,
            id=st.just(principal_id),
            tenant_id=_mostly(None, "t1", "t2"),
            kind=st.just(Kind.USER),
            name=st.just(principal_id),
            disabled_us=_mostly(None, None, 3),
            not_before_us=_mostly(0, *range(1, 10)),
        )
        for principal_id in ("p1", "p2")
    ]
)
_CREDENTIALS = st.tuples(
    *[
        st.builds(
            Credential,
            id=st.just(credential_id),
            principal_id=_mostly("p1", "p2", "nobody"),
            scheme=st.just(scheme),
            name=st.just(""),
            digest=st.just(credential_id.encode().ljust(32) if scheme is not Scheme.OIDC else None),
            issuer=st.just(ISSUER if scheme is Scheme.OIDC else None),
            subject=st.just(credential_id if scheme is Scheme.OIDC else None),
            narrow=st.just(()) | _RULE_LISTS,
            created_us=st.integers(0, 10) if scheme is Scheme.LOGIN else st.just(0),
            expires_us=_ENDS,
            revoked_us=_mostly(None, None, 3),
        )
        for credential_id, scheme in [("k1", Scheme.KEY), ("k2", Scheme.LOGIN), ("s1", Scheme.OIDC)]
    ]
)
_ROLES = st.tuples(
    st.builds(Role, name=st.just("r1"), tenant_id=st.none(), rules=_RULE_LISTS),
    st.builds(Role, name=st.just("r2"), tenant_id=st.just("t1"), rules=_RULE_LISTS),
    st.builds(Role, name=st.just("r2"), tenant_id=st.just("t2"), rules=_RULE_LISTS),
)


@st.composite
def _bindings(draw: st.DrawFn) -> tuple[Binding, ...]:
    found = draw(st.sampled_from([[], [binding("p1", "r1")], [binding("p1", "r1")]])).copy()
    for number in range(draw(st.integers(0, 3))):
        tenant_id = draw(_TENANT_IDS)
        names = [*["r1"] * 5, *(["r2"] * 5 if tenant_id else []), "admin", *BUILT_IN]
        found.append(
            Binding(
                id=f"b{number}",
                subject=draw(_SUBJECTS),
                role=draw(st.sampled_from(names)),
                tenant_id=tenant_id,
                devices=tuple(draw(st.sampled_from([["*"], ["*"], ["*"], ["a*"], ["b", "*b"], []]))),
                expires_us=draw(_ENDS),
            )
        )
    return tuple(found)


DOCUMENTS = st.builds(
    Document,
    cluster_id=st.just("c"),
    version=st.just(1),
    tenants=_TENANTS,
    principals=_PRINCIPALS,
    credentials=_CREDENTIALS,
    roles=_ROLES,
    bindings=_bindings(),
    devices=st.sampled_from([(), (Device(id="ab", tenant_id="t2"),), (Device(id="zz", tenant_id="t1"),)]),
)
CALLERS = st.one_of(
    st.sampled_from([*["k1"] * 9, "k2", "k2", "unknown"]).map(Caller.of_key),
    st.builds(
        token,
        st.sampled_from(["s1", "s1", "s9"]),
        st.sampled_from(["g1", "g2"]),
        st.sampled_from(["g1", "g3"]),
        tenant_id=_TENANT_IDS,
        issued_us=INSTANTS,
        expires_us=INSTANTS.map(lambda at: at + 5),
    ),
    st.builds(
        Caller.of_login,
        st.sampled_from(["p1", "p1", "p1", "p9"]),
        issued_us=INSTANTS,
        expires_us=INSTANTS.map(lambda at: at + 5),
    ),
)
QUESTIONS = st.builds(Question, action=_ACTIONS, device=_NAMES, profile=_NAMES, method=_NAMES, tenant_id=_TENANT_IDS)
