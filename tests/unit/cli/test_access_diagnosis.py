from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from app.cli.access_diagnosis import DEVELOPMENT_KEY, AccessFacts, about_access
from app.cli.diagnosis import CheckLevel
from app.cli.doctor import look_at_access
from app.core.access.keys import make_key
from app.core.access.model import Binding, Credential, Document, Kind, Principal, Scheme
from app.settings import Settings, load_settings

ADMIN = Principal(id="admin", tenant_id=None, kind=Kind.SERVICE, name="admin")
BOUND = Binding(id="admin", subject="admin", role="admin", tenant_id=None)
NOW = 1_000


def key(identity: str = "2F7QW9ZD", expires_us: int | None = None) -> Credential:
    digest = make_key(secrets.token_bytes).digest
    return Credential(
        id=identity,
        principal_id="admin",
        scheme=Scheme.KEY,
        name="",
        digest=digest,
        created_us=0,
        expires_us=expires_us,
    )


def document(*credentials: Credential) -> Document:
    return Document(cluster_id="c", version=3, principals=(ADMIN,), credentials=credentials, bindings=(BOUND,))


def settings(url: str = "postgresql://db/homing", store: str = "redis://r/0", **more: Any) -> Settings:
    access = {"url": url, **more.pop("access", {})}
    return load_settings(_env_file=None, access=access, store={"url": store}, **more)


def told(of: Settings, facts: AccessFacts) -> list[tuple[CheckLevel, str]]:
    return [(one.level, one.subject) for one in about_access(of, facts, NOW)]


def test_a_directory_with_an_administrator_is_well() -> None:
    assert told(settings(), AccessFacts(document(key()))) == [
        (CheckLevel.OK, "reachable"),
        (CheckLevel.OK, "may log in"),
    ]


def test_that_nobody_may_log_in_is_found() -> None:
    for nobody in (document(), document(key(expires_us=NOW))):
        assert told(settings(), AccessFacts(nobody))[1] == (CheckLevel.FAIL, "may log in")
        bootstrap = settings(access={"bootstrap_key": make_key(secrets.token_bytes).text})
        assert told(bootstrap, AccessFacts(nobody))[1] == (CheckLevel.OK, "may log in")


@pytest.mark.parametrize(
    ("url", "migrate", "facts", "expected"),
    [
        ("postgresql://db/homing", False, AccessFacts(trouble="away"), (CheckLevel.FAIL, "reachable")),
        ("postgresql://db/homing", False, AccessFacts(trouble="old", no_tables=True), (CheckLevel.FAIL, "tables")),
        ("postgresql://db/homing", True, AccessFacts(trouble="old", no_tables=True), (CheckLevel.WARN, "tables")),
        ("sqlite:////x/access.db", False, AccessFacts(trouble="old", no_tables=True), (CheckLevel.WARN, "tables")),
    ],
)
def test_what_keeps_it_from_being_read_is_told(
    url: str, *, migrate: bool, facts: AccessFacts, expected: tuple[CheckLevel, str]
) -> None:
    assert told(settings(url, "memory://", access={"migrate": migrate}), facts) == [expected]


def test_what_is_risky_is_a_warning() -> None:
    facts = AccessFacts(document(key(DEVELOPMENT_KEY)))
    assert told(settings("sqlite:////x/access.db"), facts)[2:] == [
        (CheckLevel.WARN, "key"),
        (CheckLevel.WARN, "cluster"),
    ]
    opened = load_settings(_env_file=None, access={"open": True})
    assert told(opened, AccessFacts()) == [(CheckLevel.WARN, "open")]
    assert told(load_settings(_env_file=None), AccessFacts()) == [(CheckLevel.OK, "open")]


def test_the_development_key_is_the_one_that_is_shipped() -> None:
    assert f"homing_{DEVELOPMENT_KEY}_" in (Path(__file__).parents[3] / "deploy" / "compose.yaml").read_text()


def test_looking_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "access.db"
    seen = look_at_access(settings(f"sqlite:///{path}"))
    assert (seen.document, seen.no_tables) == (None, True)
    assert not path.exists()
    path.touch()
    assert "run homing access migrate" in look_at_access(settings(f"sqlite:///{path}")).trouble
