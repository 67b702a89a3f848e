"""`homing access`, `homing keys` and `homing users`, on a SQLite file."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.access.login.passwords import Passwords
from app.core.access.callers import Caller
from app.core.access.changes import Put
from app.core.access.identify import identify_key
from app.core.access.keys import Key, parse_key
from app.core.access.model import Credential, Document, Kind, Principal
from app.core.access.snapshot import Snapshot
from app.runtime.system import SystemClock
from app.store.engine import open_directory
from tests.unit.cli.conftest import Homing

Read = Callable[[], Document]
ROOT = Path(__file__).parents[3]
PASSWORD = "correct horse battery staple"


@pytest.fixture
def read(homing: Homing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Read:
    """A way to read what is on record in the file that the verbs have to use."""
    url = f"sqlite:///{tmp_path}/access.db"
    monkeypatch.setenv("HOMING_ACCESS_URL", url)
    monkeypatch.setenv("HOMING_ACCESS_BUDGET", "60s")

    def document() -> Document:
        async def read() -> Document:
            directory = open_directory(url, new_cluster_id=str, budget=timedelta(minutes=1))
            try:
                return await directory.read()
            finally:
                await directory.close()

        return asyncio.run(read())

    return document


@pytest.fixture
def admin_key(homing: Homing, read: Read) -> str:
    code, out, _ = homing("access", "init")
    assert code == 0
    return out.strip()


def type_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def credential_of(document: Document, key: str) -> Credential:
    parsed = parse_key(key)
    assert isinstance(parsed, Key)
    (found,) = [one for one in document.credentials if one.id == parsed.id]
    assert found.digest == parsed.digest
    return found


def counts(document: Document, key: str) -> bool:
    return isinstance(identify_key(Snapshot.of(document), key, round(SystemClock().wall() * 1e6)), Caller)


def principal(document: Document, name: str) -> Principal:
    (found,) = [one for one in document.principals if one.name == name]
    return found


class TestInit:
    def test_it_makes_one_key_that_may_do_everything_and_shows_it_once(self, homing: Homing, read: Read) -> None:
        code, out, err = homing("access", "init")
        assert code == 0
        assert re.fullmatch(r"homing_\w{8}_\w{43}_\w{6}\n", out)
        assert "shown once" in err
        assert "homing_" not in err
        document = read()
        assert counts(document, out.strip())
        assert [(one.subject, one.role, one.tenant_id) for one in document.bindings] == [("admin", "admin", None)]
        assert [(one.id, one.devices) for one in document.tenants] == [("default", ("*",))]

    def test_again_it_changes_nothing_and_says_so(self, homing: Homing, read: Read, admin_key: str) -> None:
        before = read()
        code, out, err = homing("access", "init")
        assert (code, out) == (0, "")
        assert "set up already, and nothing was changed. It is administered by admin." in err
        assert read() == before

    def test_who_lost_every_key_gets_another(self, homing: Homing, read: Read) -> None:
        """The only key has ended, as 0 days later it would."""
        first = homing("access", "init", "--days", "1")[1].strip()
        document = read()

        async def end() -> None:
            directory = open_directory(f"sqlite:///{Path.cwd()}/access.db", new_cluster_id=str)
            await directory.apply([Put(replace(document.credentials[0], expires_us=1))])
            await directory.close()

        asyncio.run(end())
        second = homing("access", "init")[1].strip()
        assert counts(read(), second)
        assert not counts(read(), first)

    def test_without_a_url_it_is_a_file_of_the_user_alone(
        self, homing: Homing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        assert homing("access", "init")[0] == 0
        file = tmp_path / "state" / "homing" / "access.db"
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700

    def test_of_three_at_once_one_makes_a_key(self, read: Read, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "app.cli", "access", "init"]
        started = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
            for _ in "123"
        ]
        ended = [(*process.communicate(), process.returncode) for process in started]
        assert [code for _, _, code in ended] == [0, 0, 0], ended
        (key,) = [out.strip() for out, _, _ in ended if out]
        assert counts(read(), key)
        assert len(read().credentials) == 1


class TestMigrate:
    def test_it_says_whether_there_was_something_to_do(self, homing: Homing, read: Read) -> None:
        assert homing("access", "migrate") == (0, "", "The tables were migrated.\n")
        assert homing("access", "migrate") == (0, "", "The tables are as this version of Homing needs them.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["access", "export"],
        ["access", "apply", "access.json"],
        ["keys", "list"],
        ["keys", "create", "ci"],
        ["keys", "revoke", "2F7QW9ZD"],
        ["keys", "rotate", "2F7QW9ZD"],
        ["users", "list"],
        ["users", "disable", "ann"],
        ["users", "add", "ann", "--no-password"],
    ],
)
@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("sqlite:///nothing.db", "the access directory has no tables yet: run homing access migrate"),
        ("sqlite:///none/access.db", "cannot be opened: No such file or directory"),
        ("postgresql://u:s3cret@127.0.0.1:1/d", "Connection refused"),
        ("postgresql://u:s3cret@h", "HOMING_ACCESS_URL: names no database"),
    ],
)
def test_a_directory_that_cannot_be_used_is_one_sentence(
    homing: Homing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], url: str, sentence: str
) -> None:
    (tmp_path / "access.json").write_text("{}")
    monkeypatch.setenv("HOMING_ACCESS_BUDGET", "60s")
    monkeypatch.setenv("HOMING_ACCESS_URL", url)
    code, out, err = homing(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert "s3cret" not in err


class TestKeys:
    def test_a_new_one_belongs_to_a_service_with_the_roles_that_were_given(
        self, homing: Homing, read: Read, admin_key: str
    ) -> None:
        code, out, err = homing(
            *("keys", "create", "ci", "--role", "operator", "--devices", "dock-*", "--devices", "cam-1"),
            *("--narrow", "allow send dji:cover_* on *", "--label", "build server", "--never"),
        )
        assert (code, err) == (0, "The key of ci, shown once:\n")
        document = read()
        found = credential_of(document, out.strip())
        assert (found.principal_id, found.name, found.expires_us) == ("ci", "build server", None)
        assert found.narrow == ("allow send dji:cover_* on *",)
        assert counts(document, out.strip())
        (binding,) = [one for one in document.bindings if one.subject == "ci"]
        assert (binding.role, binding.devices, binding.tenant_id) == ("operator", ("dock-*", "cam-1"), None)

    def test_a_device_has_keys_of_its_own_and_no_role(self, homing: Homing, read: Read, admin_key: str) -> None:
        code, first, err = homing("keys", "create", "living room/lamp", "--device")
        assert code == 0, err
        assert "living room/lamp logs in with its id as the user name and the key as the password" in err
        assert "has no role" not in err
        second = homing("keys", "create", "living%20room%2Flamp", "--device")[1]
        document = read()
        owners = {credential_of(document, one.strip()).principal_id for one in (first, second)}
        assert owners == {"device:living%20room%2Flamp"}
        (owner,) = [one for one in document.principals if one.id in owners]
        assert (owner.kind, owner.tenant_id) == (Kind.SERVICE, "default")
        rotated = homing("keys", "rotate", first.split("_")[1])[1]
        assert counts(read(), rotated.strip())
        assert counts(read(), first.strip()), "for a day"

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["lamp", "--role", "viewer"], "--device: its key meets no rules; --role, --tenant and --narrow are for"),
            (["lamp", "--tenant", "default"], "--device: its key meets no rules"),
            (["a/../b"], "device_id: 'a/../b' has nothing, '.', '..' or 'homing-canary' before or behind a slash"),
        ],
    )
    def test_what_a_device_cannot_be_is_refused(
        self, homing: Homing, read: Read, admin_key: str, words: list[str], said: str
    ) -> None:
        before = read()
        code, out, err = homing("keys", "create", *words, "--device")
        assert (code, out, read()) == (2, "", before)
        assert err.startswith(f"homing: {said}")

    def test_a_second_one_is_of_the_same_service(self, homing: Homing, read: Read, admin_key: str) -> None:
        first = homing("keys", "create", "ci", "--role", "viewer")[1].strip()
        second = homing("keys", "create", "ci")[1].strip()
        document = read()
        assert credential_of(document, first).principal_id == credential_of(document, second).principal_id == "ci"
        assert len(document.principals) == 2

    def test_tenants_may_have_services_of_one_name(self, homing: Homing, read: Read, admin_key: str) -> None:
        keys = [homing("keys", "create", "ci", *of)[1].strip() for of in ([], ["--tenant", "default"]) * 2]
        owners = [credential_of(read(), key).principal_id for key in keys]
        assert owners == ["ci", "default/ci"] * 2
        assert [(one.id, one.name) for one in read().principals if one.tenant_id] == [("default/ci", "ci")]

    def test_without_a_tenant_none_is_of_a_principal_of_a_tenant(
        self, homing: Homing, read: Read, admin_key: str, tmp_path: Path
    ) -> None:
        """Principals of earlier versions may have any id: here a tenant has taken what an operator would choose."""
        squatters = [{"id": "ops", "tenant": "default"}, {"id": "south/ci", "tenant": "default"}]
        document = {"tenants": [{"id": "default", "devices": ["*"]}, {"id": "south", "devices": []}]}
        principals = [{"id": "admin"}, *squatters]
        file = tmp_path / "access.json"
        file.write_text(json.dumps({**document, "principals": principals}))
        assert homing("access", "apply", str(file))[0] == 0
        before = read()
        for arguments in (
            ("keys", "create", "ops", "--role", "operator"),
            ("users", "add", "ops", "--no-password"),
            ("users", "disable", "ops"),
            ("keys", "create", "south/ci"),
            ("keys", "create", "ci", "--tenant", "south"),
        ):
            code, out, err = homing(*arguments)
            assert (code, out) == (2, ""), arguments
            assert "is on record already, as a principal of tenant 'default'" in err
            assert read() == before
        assert homing("keys", "create", "ops", "--tenant", "default")[0] == 0
        assert homing("keys", "create", "ann", "--tenant", "south")[0] == 0
        assert homing("keys", "create", "south/ann")[0] == 2  # it is a principal of a tenant, and none was named
        assert homing("users", "disable", "south/ann")[0] == 0  # the id says which

    def test_it_lasts_ninety_days_unless_said(self, homing: Homing, read: Read, admin_key: str) -> None:
        found = credential_of(read(), admin_key)
        assert found.expires_us == found.created_us + 90 * 86_400 * 1_000_000

    def test_who_has_no_role_is_told(self, homing: Homing, admin_key: str) -> None:
        assert "ci has no role yet, and may do nothing" in homing("keys", "create", "ci")[2]

    def test_the_list_shows_no_secret(self, homing: Homing, admin_key: str) -> None:
        _, key_id, secret, _ = admin_key.split("_")
        code, out, _ = homing("keys", "list")
        assert code == 0
        assert key_id in out
        assert "first key" in out
        assert secret not in out

    def test_a_rotated_one_goes_on_for_a_while_beside_the_new_one(
        self, homing: Homing, read: Read, admin_key: str
    ) -> None:
        old = homing("keys", "create", "ci", "--narrow", "allow read *:* on *", "--label", "x")[1].strip()
        code, out, err = homing("keys", "rotate", old.split("_")[1], "--grace", "2h")
        assert code == 0
        assert "ends at" in err
        document = read()
        assert counts(document, old)
        assert counts(document, out.strip())
        before, after = credential_of(document, old), credential_of(document, out.strip())
        assert (after.principal_id, after.name, after.narrow) == (before.principal_id, before.name, before.narrow)
        assert before.expires_us == after.created_us + 2 * 3600 * 1_000_000

    def test_without_grace_the_old_one_ends_at_once(self, homing: Homing, read: Read, admin_key: str) -> None:
        code, out, _ = homing("keys", "rotate", admin_key.split("_")[1], "--grace", "0s")
        assert code == 0
        assert not counts(read(), admin_key)
        assert counts(read(), out.strip())

    def test_a_revoked_one_counts_no_more_and_cannot_be_rotated(
        self, homing: Homing, read: Read, admin_key: str
    ) -> None:
        key = homing("keys", "create", "ci")[1].strip()
        key_id = key.split("_")[1]
        assert homing("keys", "revoke", key_id)[:2] == (0, "")
        assert not counts(read(), key)
        version = read().version
        assert homing("keys", "revoke", key_id)[0] == 0
        assert read().version == version
        code, _, err = homing("keys", "rotate", key_id)
        assert (code, err.count("\n")) == (2, 1)
        assert "is revoked" in err
        assert key_id not in homing("keys", "list")[1]
        assert key_id in homing("keys", "list", "--all")[1]

    def test_the_last_key_of_the_last_admin_is_not_revoked(self, homing: Homing, read: Read, admin_key: str) -> None:
        code, _, err = homing("keys", "revoke", admin_key.split("_")[1])
        assert (code, err.count("\n")) == (2, 1)
        assert "nobody could administer access any more" in err
        assert counts(read(), admin_key)

    def test_a_whole_key_in_the_place_of_an_id_does_not_come_back(self, homing: Homing, admin_key: str) -> None:
        code, out, err = homing("keys", "revoke", admin_key)
        assert (code, out) == (2, "")
        assert admin_key.split("_")[2] not in err

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["create", "ci", "--devices", "dock-*"], "--devices: says for which devices a --role counts"),
            (["create", "ci", "--role", "pilot"], "names the role 'pilot', which is not there"),
            (["create", "ci", "--role", "viewer", "--devices", "dock-?"], "is not allowed"),
            (["create", "ci", "--narrow", "allow everything"], "role '(key"),
            (["create", "ci", "--tenant", "south"], "names what is not on record"),
            (["create", "admin", "--role", "admin", "--devices", "dock-*"], "has the role 'admin' on * already"),
            (["create", ""], "is empty"),
            (["create", "group:x"], "begins with group:"),
            (["create", "oidc:x"], "begins with oidc:"),
            (["revoke", "2F7QW9ZD"], "there is no key of this id"),
            (["rotate", "2F7QW9ZD", "--grace", "soon"], "--grace: 'soon' is not a duration"),
        ],
    )
    def test_what_cannot_be_done_is_one_sentence_and_changes_nothing(
        self, homing: Homing, read: Read, admin_key: str, arguments: list[str], sentence: str
    ) -> None:
        before = read()
        code, out, err = homing("keys", *arguments)
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1
        assert read() == before


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


FILE: dict[str, Any] = {
    "tenants": [
        {"id": "north", "name": "Site North", "devices": ["dock-n*"]},
        {"id": "south", "devices": ["dock-s*"]},
    ],
    "principals": [
        {"id": "admin"},
        {"id": "ci", "tenant": "north"},
        {"id": "ann", "kind": "user", "tenant": "north", "email": "ann@example.org", "disabled": True},
    ],
    "roles": [{"name": "pilot", "tenant": "north", "rules": ["allow send dji:* on *", "deny send *:firmware_* on *"]}],
    "bindings": [
        {"subject": "admin", "role": "admin"},
        {
            "subject": "ci",
            "role": "pilot",
            "tenant": "north",
            "devices": ["dock-n1"],
            "expires": "2030-01-01T00:00:00Z",
        },
        {"subject": "group:night shift", "role": "viewer", "tenant": "south"},
    ],
    "devices": [
        {"id": "dock-n1", "tenant": "north", "profile": "dji", "labels": {"site": "roof"}, "note": "by the door"}
    ],
}


class TestApplyAndExport:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "access.json"
        path.write_text(json.dumps(FILE))
        return path

    def test_a_file_is_applied_once(self, homing: Homing, read: Read, admin_key: str, file: Path) -> None:
        code, out, _ = homing("access", "apply", "access.json")
        assert code == 0
        assert out.splitlines() == [
            *("- tenant 'default'", "+ tenant 'north'", "+ tenant 'south'"),
            *("+ principal 'ann'", "+ principal 'ci'", "+ role 'pilot' of tenant 'north'"),
            *("+ binding 'ci:pilot@north'", "+ binding 'group:night shift:viewer@south'", "+ device 'dock-n1'"),
        ]
        before = read()
        assert homing("access", "apply", "access.json") == (0, "", "Nothing to change.\n")
        assert read() == before
        assert counts(before, admin_key)

    def test_what_is_exported_can_be_applied_and_changes_nothing(
        self, homing: Homing, read: Read, admin_key: str, file: Path
    ) -> None:
        homing("access", "apply", "access.json")
        exported = homing("access", "export")[1]
        secret = admin_key.split("_")[2]
        assert secret not in exported
        assert "digest" not in exported
        before = read()
        file.write_text(exported)
        assert homing("access", "apply", "access.json") == (0, "", "Nothing to change.\n")
        assert read() == before

    def test_a_dry_run_prints_the_same_and_changes_nothing(
        self, homing: Homing, read: Read, admin_key: str, file: Path
    ) -> None:
        before = read()
        code, dry, err = homing("access", "apply", "access.json", "--dry-run")
        assert (code, err) == (0, "Nothing was changed: --dry-run.\n")
        assert read() == before
        assert homing("access", "apply", "access.json")[1] == dry

    def test_what_the_file_does_not_say_stays(
        self, homing: Homing, read: Read, admin_key: str, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        type_in(monkeypatch, PASSWORD)
        homing("users", "add", "ann", "--password-stdin")
        file.write_text(json.dumps({"principals": [{"id": "admin"}, {"id": "ann", "kind": "user", "email": "a@b"}]}))
        before = principal(read(), "ann")
        assert homing("access", "apply", "access.json")[:2] == (0, "~ principal 'ann'\n")
        after = principal(read(), "ann")
        assert (after.email, after.password_hash, after.created_us) == ("a@b", before.password_hash, before.created_us)

    def test_who_is_not_named_goes_with_keys_and_bindings(
        self, homing: Homing, read: Read, admin_key: str, file: Path
    ) -> None:
        homing("access", "apply", "access.json")
        key = homing("keys", "create", "ci", "--tenant", "north")[1].strip()
        without = {**FILE, "principals": FILE["principals"][:1], "bindings": FILE["bindings"][:1]}
        file.write_text(json.dumps(without))
        code, out, _ = homing("access", "apply", "access.json")
        assert code == 0
        assert f"- credential '{key.split('_')[1]}'" in out
        assert [one.id for one in read().principals] == ["admin"]

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            ("{", "access.json: Invalid JSON"),
            ("[]", "access.json: Input should be"),
            ('{"rules": []}', "access.json: rules: Extra inputs are not permitted"),
            ('{"tenants": [{"id": "a"}]}', "access.json: tenants[0].devices: Field required"),
            ('{"roles": [{"name": "admin", "rules": []}]}', "'admin' is built in"),
            ('{"roles": [{"name": "r", "rules": ["allow fly *:* on *"]}]}', "role 'r', line 1"),
            ('{"roles": [{"name": "r", "rules": []}, {"name": "r", "rules": []}]}', "roles: two of them are 'r'"),
            (
                '{"bindings": [{"subject": "ci", "role": "r"}, {"subject": "ci", "role": "r", "devices": ["a"]}]}',
                "bindings: two of them are 'ci:r@*'; give one of them an id",
            ),
            (
                '{"bindings": [{"subject": "a", "role": "viewer", "expires": "2030-01-01T00:00:00"}]}',
                "bindings[0].expires: has no time zone",
            ),
            ('{"tenants": [{"id": "a", "devices": ["*"]}, {"id": "b", "devices": ["x"]}]}', "overlap"),
            ('{"principals": [{"id": "ci"}]}', "nobody could administer access any more"),
            ('{"tenants": []}', "tenant 'default': is still named by others"),
            ('{"principals": [], "bindings": []}', "nobody could administer access any more"),
            ('{"devices": [{"id": "d", "tenant": "none"}]}', "device 'd': names what is not on record"),
        ],
    )
    def test_a_file_that_cannot_be_applied_is_one_sentence_and_changes_nothing(
        self, homing: Homing, read: Read, admin_key: str, file: Path, content: str, sentence: str
    ) -> None:
        homing("keys", "create", "of-default", "--tenant", "default")
        before = read()
        file.write_text(content)
        code, out, err = homing("access", "apply", "access.json")
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1
        assert read() == before

    def test_a_file_that_is_not_there(self, homing: Homing, read: Read) -> None:
        assert homing("access", "apply", "none.json") == (2, "", "homing: none.json: No such file or directory\n")


def test_explain_says_which_rule_decides_or_nearly_does(homing: Homing, admin_key: str) -> None:
    code, _, _ = homing("keys", "create", "ci", "--role", "viewer", "--devices", "dock-*")
    assert code == 0
    code, out, _ = homing("access", "explain", "ci", "read", "dji:cover_open", "on", "dock-1")
    assert (code, out) == (0, "allowed: allowed by viewer.1: allow read *:* on *\n")
    code, out, _ = homing("access", "explain", "ci", "send", "dji:cover_open", "on", "dock-1")
    assert code == 1
    assert out.splitlines()[0] == "denied: no_rule"
    assert "operator.5 allow send *:* on *: 'ci' is not bound to 'operator'" in out
    for wrong in (("x", "read", "a:b", "on", "d"), ("ci", "fly"), ("ci", "send", "dji"), ("ci", "send", "a:b", "d")):
        code, _, err = homing("access", "explain", *wrong)
        assert (code, bool(err)) == (2, True)


class TestAuditVerify:
    def test_an_audit_that_was_emptied_with_its_heads_is_not_called_intact(
        self, homing: Homing, admin_key: str, tmp_path: Path
    ) -> None:
        assert homing("audit", "verify")[0] == 0
        with closing(sqlite3.connect(tmp_path / "access.db")) as database, database:
            database.execute("DELETE FROM audit")
            database.execute("DELETE FROM audit_heads")
        code, _, err = homing("audit", "verify")
        assert code == 9
        assert "the audit is empty, there is nothing to verify; the directory has had 1 changes" in err
        assert "nothing is wrong" not in err
