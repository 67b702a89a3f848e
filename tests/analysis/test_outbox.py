"""Alerts on their way: once, in order, and never lost."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.analysis.stream.outbox import Outbox, webhook
from app.core.webhooks.schedule import Reply


class Receiver:
    def __init__(self) -> None:
        self.got: list[str] = []
        self.reply = Reply(200)

    def __call__(self, alert: dict[str, Any]) -> Reply:
        if self.reply.delivered:
            self.got.append(alert["id"])
        return self.reply


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
    receiver.reply = Reply(400)
    box = Outbox(tmp_path, receiver)
    box.put("1.json", {"id": "a"})
    box.send_pending()
    receiver.reply = Reply(200)
    box.put("1.json", {"id": "a"})
    box.send_pending()
    assert (receiver.got, box.counts()["refused"]) == ([], 1)


@pytest.mark.parametrize("status", [None, 429, 500, 503])
def test_they_wait_in_order_for_a_receiver_that_is_away(tmp_path: Path, status: int | None) -> None:
    receiver = Receiver()
    receiver.reply = Reply(status)
    box = Outbox(tmp_path, receiver)
    for number in range(3):
        box.put(f"{number}.json", {"id": str(number)})
    box.send_pending()
    assert box.counts()["pending"] == 3
    receiver.reply = Reply(200)
    Outbox(tmp_path, receiver).send_pending()
    assert receiver.got == ["0", "1", "2"]


def test_the_number_that_waits_is_bounded(tmp_path: Path) -> None:
    receiver = Receiver()
    box = Outbox(tmp_path, receiver, most_pending=2)
    for number in range(5):
        box.put(f"{number}.json", {"id": str(number)})
    box.send_pending()
    assert receiver.got == ["3", "4"]
    assert box.counts() == {"pending": 0, "sent": 2, "refused": 3}


GARBAGE = b"nonsense\r\n\r\n"
MOVED = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(("said", "status"), [(GARBAGE, None), (b"", None), (MOVED, 302)])
def test_a_receiver_that_says_nonsense_is_away_and_a_redirect_is_not_followed(said: bytes, status: int | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        host, port = server.getsockname()

        def answer() -> bytes:
            connection, _ = server.accept()
            with connection:
                got = connection.recv(65536)
                connection.sendall(said)
            return got

        asked = pool.submit(answer)
        reply = webhook(f"http://{host}:{port}/hook?to=me")({"id": "a"})
        assert reply.status == status
        assert reply.reason
        assert asked.result().startswith(b"POST /hook?to=me HTTP/1.1\r\n")
        assert b"\r\nIdempotency-Key: a\r\n" in asked.result()
