"""`homing access apply` and `export`: the access directory as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import PASSWORD, Homing, Read, type_in
from tests.unit.cli.test_access import counts, principal

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
