"""Completion: the shell's offers when somebody presses Tab, asked as the shells ask."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.unit.cli.conftest import FakeNode, Homing
from tests.unit.cli.test_verbs import ANSWER, ID

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(homing: Homing, monkeypatch: pytest.MonkeyPatch) -> Complete:
    def offered(*words: str) -> list[str]:
        monkeypatch.setenv("_HOMING_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(("homing", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        return homing()[1].split()

    return offered


def test_verbs_are_offered(complete: Complete) -> None:
    assert {"watch", "webhooks", "whoami"} == set(complete("w"))
    assert complete("webhooks", "re") == ["redeliver"]
    assert set(complete("admin", "")) == {"keys", "tenants", "principals", "roles", "access", "audit"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("send", "dock"), ["dock-1"]),
        (("send", "dock-1", "cover"), ["cover_open"]),
        (("send", "dock-1", "cover_open", "--profile", "d"), ["dji"]),
        (("watch", ID[:3]), [ID]),
        (("devices", "show", "do"), ["dock-1"]),
        (("webhooks", "show", "wh"), ["wh_1"]),
        (("admin", "keys", "revoke", "K"), ["K1"]),
        (("admin", "principals", "show", "c"), ["ci"]),
        (("admin", "roles", "show", "pi"), ["pilot"]),
        (("events", "read", "a"), ["a/b"]),
        (("send", "nothing"), []),
    ],
)
def test_a_node_knows_what_can_be_typed(
    complete: Complete,
    fake_node: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    expected: list[str],
) -> None:
    fake_node.answers = [(200, ANSWER)]
    monkeypatch.setenv("HOMING_URL", fake_node.url)
    monkeypatch.setattr("app.cli.completion.PATIENCE", timedelta(minutes=1))  # beside programs that use both cores
    assert complete(*words) == expected


def test_a_node_that_is_mute_away_or_strange_offers_nothing(
    complete: Complete, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_node.answers = [(200, b"<html>")]
    monkeypatch.setenv("HOMING_URL", fake_node.url)
    assert complete("send", "d") == []
    with socket.create_server(("127.0.0.1", 0)) as mute:  # takes connections, and never answers
        monkeypatch.setenv("HOMING_URL", f"http://127.0.0.1:{mute.getsockname()[1]}")
        assert complete("send", "d") == []
    monkeypatch.setenv("HOMING_URL", "http://127.0.0.1:1")
    assert complete("webhooks", "show", "d") == []
