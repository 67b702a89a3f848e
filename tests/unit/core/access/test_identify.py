from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from app.core.access.callers import Caller, CallerStanding, Refusal
from app.core.access.identify import identify_key, stand, standing_at
from app.core.access.keys import Key, make_key
from app.core.access.model import Document
from app.core.access.snapshot import Snapshot
from tests.unit.core.access.documents import identity_of, key_of, service, token

RANDOM = Random(1)
KEY, EXPIRED, REVOKED, DISABLED, UNKNOWN = (make_key(RANDOM.randbytes) for _ in range(5))
BASE = Document(
    cluster_id="c",
    version=1,
    principals=(service("ci", "north"), service("gone", disabled_us=10**9)),
    credentials=(
        key_of("ci", KEY),
        key_of("ci", EXPIRED, expires_us=10),
        key_of("ci", REVOKED, revoked_us=10**9),
        key_of("gone", DISABLED),
        identity_of("ci", "s1"),
        identity_of("gone", "s2"),
        identity_of("ci", "s3", expires_us=10),
    ),
)
SNAPSHOT = Snapshot.of(BASE)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (KEY, Caller.of_key(KEY.id)),
        (EXPIRED, Refusal.EXPIRED),
        (REVOKED, Refusal.REVOKED),
        (DISABLED, Refusal.DISABLED),
        (UNKNOWN, Refusal.UNKNOWN),
        (Key(OTHER := EXPIRED.id, KEY.secret), Refusal.UNKNOWN),
    ],
)
def test_a_key_is_known_or_refused(key: Key, found: Caller | Refusal) -> None:
    for _ in range(2):  # the second time from memory
        assert identify_key(SNAPSHOT, key.text, 10) == found


def test_a_key_that_is_remembered_expires_all_the_same() -> None:
    snapshot = Snapshot.of(BASE)
    instants = (9, 10, 9)
    assert [identify_key(snapshot, EXPIRED.text, at) == Caller.of_key(EXPIRED.id) for at in instants] == [
        True,
        False,
        True,
    ]


def test_what_is_no_key_is_told_apart_from_a_typo() -> None:
    assert identify_key(SNAPSHOT, "abc", 10) is Refusal.MALFORMED
    assert identify_key(SNAPSHOT, "\ud800", 10) is Refusal.MALFORMED
    assert identify_key(SNAPSHOT, KEY.text[:-1] + ("0" if KEY.text[-1] != "0" else "1"), 10) is Refusal.TYPO


def test_of_100_000_forged_keys_none_is_accepted() -> None:
    """Forged keys have the id of a real one and of others, and none of them is kept in memory."""
    random = Random(7)
    snapshot = Snapshot.of(BASE)
    for number in range(100_000):
        forged = make_key(random.randbytes)
        text = (forged if number % 2 else Key(KEY.id, forged.secret)).text
        assert identify_key(snapshot, text, 10) is Refusal.UNKNOWN
    assert len(snapshot.known) == 0


@pytest.mark.parametrize(
    ("caller", "worth"),
    [
        (token("s1", expires_us=50), "ci"),
        (token("s2", expires_us=50), Refusal.DISABLED),
        (token("s3", expires_us=50), Refusal.EXPIRED),
        (token("s1", expires_us=10), Refusal.EXPIRED),
        (token("unknown", expires_us=50), None),
        (Caller.of_login("ci", issued_us=5, expires_us=50), "ci"),
        (Caller.of_login("ci", issued_us=5, expires_us=10), Refusal.EXPIRED),
        (Caller.of_login("gone", issued_us=5, expires_us=50), Refusal.DISABLED),
        (Caller.of_login("unknown", issued_us=5, expires_us=50), Refusal.UNKNOWN),
        (Caller(), Refusal.UNKNOWN),
    ],
)
def test_what_a_caller_is_worth(caller: Caller, worth: str | Refusal | None) -> None:
    standing = standing_at(10, stand(SNAPSHOT, caller))
    if isinstance(standing, CallerStanding):
        assert (standing.principal.id if standing.principal else None) == worth
    else:
        assert standing is worth


def test_tokens_and_logins_from_before_an_instant_count_no_more_and_keys_do() -> None:
    ci = replace(service("ci"), not_before_us=6)
    snapshot = Snapshot.of(replace(BASE, principals=(ci,)))
    early, late = (Caller.of_login("ci", issued_us=at, expires_us=50) for at in (5, 6))
    callers = [early, late, token("s1", issued_us=5), token("s1", issued_us=6), Caller.of_key(KEY.id)]
    found = [isinstance(stand(snapshot, caller), CallerStanding) for caller in callers]
    assert found == [False, True, False, True, True]


def test_a_principal_on_record_has_its_own_tenant_and_all_groups_of_the_token() -> None:
    standing = stand(SNAPSHOT, token("s1", "b", "a", "b", tenant_id="south"))
    assert isinstance(standing, CallerStanding)
    assert (standing.tenant_id, standing.subjects) == ("north", ("ci", "group:a", "group:b"))
    standing = stand(SNAPSHOT, token("nobody", "a", tenant_id="south"))
    assert isinstance(standing, CallerStanding)
    assert (standing.tenant_id, standing.subjects) == ("south", ("group:a",))
