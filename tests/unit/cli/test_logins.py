"""Logging in and out with keys and passwords, and the contexts that remember it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from app.core.access.keys import make_key
from homing_client.contexts import Contexts, default_path
from tests.unit.cli.conftest import FakeNode, Homing

KEY: Final = make_key(lambda count: b"k" * count).text
OPEN: Final = (200, {"open": True})
LIMITS: Final = [
    {"rule": "limit send *:* on * 5/s", "name": "few.1", "per": "principal", "share": 1.0, "left": 3, "count": 5},
    {"rule": "limit send *:* on * concurrent 1 per device", "name": "few.2", "per": "device", "share": 1, "left": None},
]
WHO: Final = (200, {"open": False, "principal": "ci", "tenant": "air", "roles": ["pilot"], "limits": LIMITS})
REFUSED: Final = (401, {"detail": "this node has to know who asks"})


def test_a_key_is_tried_and_kept(homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    _type(monkeypatch, KEY)
    fake_node.answers = [REFUSED, WHO]
    code, out, err = homing("login", fake_node.url, "--stdin")
    assert (code, out, err) == (0, "", f"You are ci at {fake_node.url}; kept as context 127.0.0.1.\n")
    assert [headers.get("Authorization") for _, _, headers, _ in fake_node.asked] == [None, f"Bearer {KEY}"]
    assert default_path().stat().st_mode & 0o777 == 0o600
    code, out, _ = homing("whoami")
    assert code == 0
    assert out.splitlines()[0] == f"You are ci at {fake_node.url}"
    assert "pilot" in out
    assert out.splitlines()[-2:] == [
        "  limit   limit send *:* on * 5/s: 3 left on this node",
        "  limit   limit send *:* on * concurrent 1 per device: counted for each device",
    ]
    assert KEY not in homing("context", "list", "--json")[1]


def test_a_key_that_is_refused_is_not_kept(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    _type(monkeypatch, KEY)
    fake_node.answers = [REFUSED]
    assert homing("login", fake_node.url, "--stdin")[0] == 8
    _type(monkeypatch, "")
    assert homing("login", fake_node.url, "--stdin")[0] == 2
    assert not default_path().exists()


def test_a_node_that_asks_nobody_needs_no_key(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [OPEN]
    code, _, err = homing("login", fake_node.url, "--context", "here")
    assert (code, err) == (0, f"Nobody is asked who they are at {fake_node.url}; kept as context here.\n")


def test_people_log_in_by_password_and_out(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    _type(monkeypatch, "correct horse")
    fake_node.answers = [(201, {"key": KEY}), WHO]
    code, _, err = homing("login", fake_node.url, "--user", "ann", "--tenant", "air", "--stdin", "--context", "c")
    assert code == 0, err
    assert fake_node.asked[0][3] == {"name": "ann", "password": "correct horse", "tenant": "air"}
    assert Contexts.load().get("c").key == KEY
    fake_node.asked.clear()
    fake_node.answers = [(204, b"")]
    assert homing("logout") == (0, "", "The key of context c is removed here. Its login has ended.\n")
    assert [(method, path) for method, path, _, _ in fake_node.asked] == [("DELETE", "/v1/login")]
    assert fake_node.asked[0][2]["Authorization"] == f"Bearer {KEY}"
    assert Contexts.load().get("c").key is None
    assert homing("logout") == (0, "", "c has no key.\n")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (409, "It is still valid: homing keys revoke {id}."),
        (401, "The node does not take it any more."),
        (503, "The node says: full."),
    ],
)
def test_who_logs_out_is_told_what_becomes_of_the_key(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, status: int, said: str
) -> None:
    _type(monkeypatch, KEY)
    fake_node.answers = [REFUSED, WHO]
    homing("login", fake_node.url, "--stdin", "--context", "c")
    fake_node.answers = [(status, {"detail": "full"})]
    told = said.format(id=KEY.split("_")[1])
    assert homing("logout") == (0, "", f"The key of context c is removed here. {told}\n")


def test_where_no_terminal_is_nobody_is_asked_for_a_secret(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    _type(monkeypatch, KEY)
    fake_node.answers = [REFUSED]
    for typed in (["login", fake_node.url], ["login", fake_node.url, "--user", "ann"]):
        code, out, err = homing(*typed)
        assert (code, out) == (2, "")
        assert err == "homing: there is no terminal to ask at: give it on standard input, with --stdin\n"


def test_contexts_are_chosen_and_forgotten(homing: Homing, fake_node: FakeNode, tmp_path: Path) -> None:
    fake_node.answers = [OPEN]
    for name in ("a", "b"):
        homing("login", fake_node.url, "--context", name)
    assert [line.split()[0:2] for line in homing("context", "list")[1].splitlines()[1:]] == [
        ["a", fake_node.url],
        ["b", "*"],
    ]
    assert homing("context", "use", "a")[0] == 0
    assert Contexts.load().current == "a"
    assert homing("context", "remove", "a")[0] == 0
    assert homing("logout")[0] == 2
    code, _, err = homing("context", "use", "x")
    assert (code, err) == (2, "homing: there is no context 'x'; known: b\n")
    default_path().chmod(0o644)
    assert "chmod 600" in homing("whoami")[2]


def _type(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    import io  # noqa: PLC0415

    monkeypatch.setattr("sys.stdin", io.StringIO(f"{line}\n"))
