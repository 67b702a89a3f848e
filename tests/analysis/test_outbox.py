"""Alerts on their way: once, in order, and never lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.analysis.stream import outbox
from app.analysis.stream.outbox import AwayError, Outbox, RefusedError


class Receiver:
    def __init__(self) -> None:
        self.got: list[str] = []
        self.error: Exception | None = None

    def __call__(self, alert: dict[str, Any]) -> None:
        if self.error is not None:
            raise self.error
        self.got.append(alert["id"])


def test_what_was_sent_is_not_put_again(tmp_path: Path) -> None:
    receiver = Receiver()
    box = Outbox(tmp_path, receiver)
    for _ in range(2):  # a batch that is done again after a kill
        box.put("1.json", {"id": "a"})
        box.put("2.json", {"id": "b"})
        box.send_pending()
    assert receiver.got == ["a", "b"]
    assert box.counts() == {"pending": 0, "sent": 2, "refused": 0}


def test_what_was_refused_is_not_put_again(tmp_path: Path) -> None:
    receiver = Receiver()
    receiver.error = RefusedError("it answered 400")
    box = Outbox(tmp_path, receiver)
    box.put("1.json", {"id": "a"})
    box.send_pending()
    receiver.error = None
    box.put("1.json", {"id": "a"})
    box.send_pending()
    assert (receiver.got, box.counts()["refused"]) == ([], 1)


def test_they_wait_in_order_for_a_receiver_that_is_away(tmp_path: Path) -> None:
    receiver = Receiver()
    receiver.error = AwayError("it answered 503")
    box = Outbox(tmp_path, receiver)
    for number in range(3):
        box.put(f"{number}.json", {"id": str(number)})
    box.send_pending()
    assert box.counts()["pending"] == 3
    receiver.error = None
    Outbox(tmp_path, receiver).send_pending()
    assert receiver.got == ["0", "1", "2"]


def test_the_number_that_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST_PENDING", 2)
    receiver = Receiver()
    box = Outbox(tmp_path, receiver)
    for number in range(5):
        box.put(f"{number}.json", {"id": str(number)})
    box.send_pending()
    assert receiver.got == ["3", "4"]
    assert box.counts() == {"pending": 0, "sent": 2, "refused": 3}
