"""`homing users`, on a SQLite file."""

from __future__ import annotations

import asyncio

import pytest

from app.access.login.passwords import Passwords
from tests.unit.cli.conftest import PASSWORD, Homing, Read, type_in
from tests.unit.cli.test_access import counts, principal


async def _right_ones(kept: str, *passwords: str) -> list[bool]:
    checks = Passwords()
    try:
        return [await checks.check(one, kept) for one in passwords]
    finally:
        checks.close()


class TestUsers:
    def test_a_person_has_a_password_that_is_kept_as_a_hash(
        self, homing: Homing, read: Read, admin_key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        type_in(monkeypatch, f"{PASSWORD}\n")
        code, out, err = homing(
            "users", "add", "ann", "--email", "ann@example.org", "--role", "viewer", "--password-stdin"
        )
        assert (code, out, err) == (0, "", "ann is on record.\n")
        ann = principal(read(), "ann")
        assert ann.password_hash is not None
        assert ann.password_hash.startswith("$argon2id$")
        assert asyncio.run(_right_ones(ann.password_hash, PASSWORD, PASSWORD + "!")) == [True, False]

    def test_a_new_password_ends_what_the_old_one_began(
        self, homing: Homing, read: Read, admin_key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        homing("users", "add", "ann", "--no-password")
        assert principal(read(), "ann").password_hash is None
        type_in(monkeypatch, PASSWORD)
        assert homing("users", "passwd", "ann", "--password-stdin") == (0, "", "ann has a new password.\n")
        ann = principal(read(), "ann")
        assert ann.password_hash is not None
        assert ann.not_before_us >= ann.created_us

    def test_who_is_disabled_has_no_key_that_counts_until_let_in_again(
        self, homing: Homing, read: Read, admin_key: str
    ) -> None:
        key = homing("keys", "create", "ci", "--role", "viewer")[1].strip()
        assert homing("users", "disable", "ci")[0] == 0
        assert principal(read(), "ci").disabled_us is not None
        code, out, _ = homing("users", "list", "--services")
        assert code == 0
        assert "disabled since" in out
        assert homing("users", "disable", "ci", "--undo")[0] == 0
        assert counts(read(), key)

    def test_the_list_shows_people_and_their_roles(self, homing: Homing, admin_key: str) -> None:
        homing("users", "add", "ann", "--no-password", "--role", "operator", "--devices", "dock-*")
        code, out, _ = homing("users", "list")
        assert code == 0
        assert "ann" in out
        assert "operator on dock-*" in out
        assert "admin" not in out

    def test_a_long_name_is_whole_in_a_pipe(self, homing: Homing, admin_key: str) -> None:
        name = f"ann.of.the.night.shift@{'long.' * 12}example.org"
        homing("users", "add", name, "--no-password", "--role", "viewer")
        homing("keys", "create", name, "--label", "of her laptop, " * 5)
        assert f"{name}  {name}  user  -       viewer on *" in homing("users", "list")[1]
        assert f"{name}  {'of her laptop, ' * 5}" in homing("keys", "list")[1]

    @pytest.mark.parametrize(
        ("arguments", "typed", "sentence"),
        [
            (["add", "admin", "--no-password"], "", "'admin' is on record already"),
            (["add", "bob", "--password-stdin"], "short", "password: has 5 characters; allowed are 12 to 256"),
            (["add", "bob", "--password-stdin"], "x" * 300, "password: has 258 characters; allowed are 12 to 256"),
            (["passwd", "bob", "--password-stdin"], PASSWORD, "'bob' is not on record"),
            (["passwd", "admin", "--password-stdin"], PASSWORD, "'admin' is a service"),
            (["disable", "bob"], "", "'bob' is not on record"),
            (["disable", "admin"], "", "nobody could administer access any more"),
        ],
    )
    def test_what_cannot_be_done_is_one_sentence_and_changes_nothing(
        self,
        homing: Homing,
        read: Read,
        admin_key: str,
        monkeypatch: pytest.MonkeyPatch,
        arguments: list[str],
        typed: str,
        sentence: str,
    ) -> None:
        before = read()
        type_in(monkeypatch, typed)
        code, out, err = homing("users", *arguments)
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1
        assert read() == before
