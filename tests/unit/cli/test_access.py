"""`homing access` and `homing keys`, on a SQLite file."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.access.callers import Caller
from app.core.access.changes import Put
from app.core.access.identify import identify_key
from app.core.access.keys import Key, by_key, make_key, parse_key
from app.core.access.model import Credential, Document, Kind, Principal, Scheme
from app.core.access.snapshot import Snapshot
from app.runtime.system import SystemClock, random_bytes
from app.store.engine import open_directory
from tests.unit.cli.conftest import Homing, Read

ROOT = Path(__file__).parents[3]


def credential_of(document: Document, key: str) -> Credential:
    parsed = parse_key(key)
    assert isinstance(parsed, Key)
    (found,) = [one for one in document.credentials if one.id == parsed.id]
    assert found.digest == parsed.digest
    return found


def counts(document: Document, key: str) -> bool:
    return isinstance(identify_key(Snapshot.of(document), key, round(SystemClock().wall() * 1e6)), Caller)


def begun_by(document: Document, key: str) -> str:
    """The key of a login that this key has begun, as a node puts it on record."""
    of_key, login = credential_of(document, key), make_key(random_bytes)
    made = replace(of_key, id=login.id, digest=login.digest, scheme=Scheme.LOGIN, name=by_key(of_key.id))
    put(made)
    return login.text


def put(credential: Credential) -> None:
    async def put_on_record() -> None:
        directory = open_directory(f"sqlite:///{Path.cwd()}/access.db", new_cluster_id=str)
        await directory.apply([Put(credential)])
        await directory.close()

    asyncio.run(put_on_record())


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
        put(replace(read().credentials[0], expires_us=1))
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

    @pytest.mark.parametrize("verb", [("revoke",), ("rotate", "--grace", "0s")])
    def test_what_ends_a_key_ends_the_logins_that_it_has_begun(
        self, homing: Homing, read: Read, admin_key: str, verb: tuple[str, ...]
    ) -> None:
        ci = homing("keys", "create", "ci")[1].strip()
        logins = {key: begun_by(read(), key) for key in (admin_key, ci)}
        assert all(counts(read(), one) for one in logins.values())
        assert homing("keys", *verb, ci.split("_")[1])[0] == 0
        assert [counts(read(), one) for one in (ci, logins[ci], logins[admin_key])] == [False, False, True]

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
