"""The diagnoses of `homing doctor` about access: no I/O, so that every one can be tested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.cli.diagnosis import CheckLevel, Diagnosis
from app.core.access.admins import admins, counts

if TYPE_CHECKING:
    from app.core.access.model import Document
    from app.settings import Settings

DEVELOPMENT_KEY: Final = "DEVKEY00"
"""The id of the key that stands in deploy/."""


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """The facts that were seen of the access directory."""

    document: Document | None = None
    """None when it could not be read."""
    trouble: str = ""
    """The reason why the document could not be read."""
    no_tables: bool = False
    """It is there, and has no tables yet, or old ones."""


def about_access(settings: Settings, facts: AccessFacts, now_us: int) -> Iterator[Diagnosis]:
    """On who may call the nodes of these settings."""
    access = settings.access
    if not access.url:
        yield _about_open(settings)
        return
    sqlite = access.url.startswith("sqlite:")
    if facts.document is not None:
        yield _ok("reachable", f"version {facts.document.version}, tables as this program needs them")
        yield from _about_people(settings, facts.document, now_us)
    elif facts.no_tables and (sqlite or access.migrate):
        yield Diagnosis(
            CheckLevel.WARN, "access", "tables", facts.trouble, "A node brings them up to date at its start."
        )
    else:
        advice = (
            "Run homing access migrate." if facts.no_tables else "Start the database, or correct HOMING_ACCESS_URL."
        )
        yield Diagnosis(CheckLevel.FAIL, "access", "tables" if facts.no_tables else "reachable", facts.trouble, advice)
    if sqlite and settings.store.url.startswith("redis"):
        yield Diagnosis(
            CheckLevel.WARN,
            "access",
            "cluster",
            "a SQLite file beside a Redis: nodes of another machine would have other rules",
            "For nodes on several machines: HOMING_ACCESS_URL=postgresql://…",
        )
    if settings.oidc.issuer:
        yield _ok("tokens", f"of {settings.oidc.issuer} for {settings.oidc.audience}")


def _about_open(settings: Settings) -> Diagnosis:
    if settings.access.open:
        return Diagnosis(
            CheckLevel.WARN,
            "access",
            "open",
            "HOMING_ACCESS_OPEN=true: everybody who reaches the port may do everything",
            "Run homing access init, and set HOMING_ACCESS_URL instead.",
        )
    return Diagnosis(
        CheckLevel.OK,
        "access",
        "open",
        "to this machine alone: nobody is asked for a key",
        "For callers elsewhere: homing access init, and HOMING_ACCESS_URL.",
    )


def _about_people(settings: Settings, document: Document, now_us: int) -> Iterator[Diagnosis]:
    able = admins(document, now_us)
    keys = [one for one in document.credentials if one.digest is not None and counts(one, now_us)]
    people = [one for one in document.principals if one.password_hash and one.disabled_us is None]
    seen = f"{len(keys)} keys, {len(people)} people with a password, {len(able)} who administer"
    has_bootstrap = bool(settings.access.bootstrap_key.get_secret_value() or settings.access.bootstrap_key_file)
    if able:
        yield _ok("may log in", seen)
    elif has_bootstrap:
        yield _ok("may log in", f"{seen}; a node puts the bootstrap key on record at its start")
    else:
        advice = "Run homing access init, or set HOMING_ACCESS_BOOTSTRAP_KEY_FILE."
        yield Diagnosis(CheckLevel.FAIL, "access", "may log in", seen, advice)
    if any(one.id == DEVELOPMENT_KEY for one in keys):
        yield Diagnosis(
            CheckLevel.WARN,
            "access",
            "key",
            f"{DEVELOPMENT_KEY} counts, which everybody can read in deploy/",
            f"Make another administrator's key, then homing keys revoke {DEVELOPMENT_KEY}.",
        )


def _ok(subject: str, seen: str) -> Diagnosis:
    return Diagnosis(CheckLevel.OK, "access", subject, seen)
