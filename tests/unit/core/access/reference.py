"""The access rules as plainly as they can be written: slow, without regular expressions, nothing remembered."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.access.callers import Caller
from app.core.access.model import Credential, Document, Principal, Scheme
from app.core.access.questions import Question
from app.core.access.rules import BUILT_IN, OF_METHODS


def fits(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(fits(pattern[1:], text[start:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] == text[0] and fits(pattern[1:], text[1:])


@dataclass(frozen=True)
class Verdict:
    allowed: bool
    requires: int = 1
    limits: frozenset[str] = frozenset()


NO = Verdict(allowed=False)


def verdict(document: Document, caller: Caller, question: Question, now_us: int) -> Verdict:
    credential = credential_of(document, caller)
    principal = principal_of(document, caller, credential)
    if not counts(caller, credential, principal, now_us):
        return NO
    if any("\0" in name for name in (question.device, question.profile, question.method)):
        return NO
    if question.action in OF_METHODS and not (question.device and question.profile and question.method):
        return NO
    owner = owner_of(document, question)
    tenant_id = principal.tenant_id if principal else caller.tenant_id
    if tenant_id is not None and tenant_id != owner:
        return NO
    rules = fitting_rules(document, caller, principal, owner, question, now_us)
    narrow = [] if credential is None else [line for line in credential.narrow if rule_fits(line, question)]
    if any(line.startswith("deny") for line in rules + narrow):
        return NO
    if not any(line.startswith("allow") for line in rules):
        return NO
    if credential is not None and credential.narrow and not any(line.startswith("allow") for line in narrow):
        return NO
    return Verdict(
        allowed=True,
        requires=2 if any(line.startswith("require") for line in rules + narrow) else 1,
        limits=frozenset(line for line in rules + narrow if line.startswith("limit")),
    )


def credential_of(document: Document, caller: Caller) -> Credential | None:
    for one in document.credentials:
        if caller.credential_id is not None and one.id == caller.credential_id:
            return one
        if caller.issuer is not None and (one.issuer, one.subject) == (caller.issuer, caller.subject):
            return one
    return None


def principal_of(document: Document, caller: Caller, credential: Credential | None) -> Principal | None:
    wanted = credential.principal_id if credential else caller.principal_id
    return next((one for one in document.principals if one.id == wanted), None)


def counts(caller: Caller, credential: Credential | None, principal: Principal | None, now_us: int) -> bool:
    if caller.expires_us is not None and caller.expires_us <= now_us:
        return False
    if credential is not None:
        over = credential.expires_us is not None and credential.expires_us <= now_us
        if over or credential.revoked_us is not None or principal is None:
            return False
    if principal is None:
        return caller.issuer is not None
    if principal.disabled_us is not None:
        return False
    if credential is None or credential.scheme is Scheme.OIDC:
        return caller.issued_us >= principal.not_before_us
    return credential.scheme is Scheme.KEY or credential.created_us >= principal.not_before_us


def owner_of(document: Document, question: Question) -> str | None:
    if not question.device:
        return question.tenant_id
    for device in document.devices:
        if device.id == question.device:
            return device.tenant_id
    if not document.tenants:
        return "default"
    for tenant in document.tenants:
        if any(fits(pattern, question.device) for pattern in tenant.devices):
            return tenant.id
    return None


def fitting_rules(
    document: Document,
    caller: Caller,
    principal: Principal | None,
    owner: str | None,
    question: Question,
    now_us: int,
) -> list[str]:
    found = []
    for binding in document.bindings:
        if binding.subject.startswith("group:"):
            mine = binding.subject[6:] in caller.groups
        else:
            mine = principal is not None and binding.subject == principal.id
        here = binding.tenant_id is None or binding.tenant_id == owner
        now = binding.expires_us is None or now_us < binding.expires_us
        if mine and here and now and any(fits(pattern, question.device) for pattern in binding.devices):
            found += [line for line in lines_of(document, binding.role, binding.tenant_id) if rule_fits(line, question)]
    return found


def lines_of(document: Document, name: str, tenant_id: str | None) -> list[str]:
    for role in document.roles:
        if role.name == name and role.tenant_id in (None, tenant_id):
            return list(role.rules)
    return list(BUILT_IN[name])


def rule_fits(line: str, question: Question) -> bool:
    words = [word for word in line.split() if word != "2"]
    _, action, target, _, device = words[:5]
    profile, method = target.split(":", 1)
    return (
        action in ("*", question.action)
        and fits(profile, question.profile)
        and fits(method, question.method)
        and fits(device, question.device)
    )
