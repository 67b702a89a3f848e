"""POST /v1/devices/{device_id}/commands while something is away, full or about to stop."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from app.core.commands.command import CommandState
from app.core.errors import (
    BrokerUnavailableError,
    InvalidInputError,
    PacketTooLargeError,
    PublishUnconfirmedError,
    UnpublishableError,
)
from app.mqtt.base import Puback
from app.store.commands import Finished
from tests.api.rig import Rig, running
from tests.api.test_send import ASYNC, carries_its_command, problem


async def test_a_node_without_broker_refuses_before_anything_is_on_record(rig: Rig) -> None:
    rig.broker.disconnect("node-a")
    response = await rig.send("ok")
    problem(response, 503, "broker-unavailable")
    assert response.headers["retry-after"] == "1"
    assert rig.store.registrations == []


async def test_F2_a_broker_lost_after_the_registration_gives_503_with_the_id(rig: Rig) -> None:
    rig.store.after_register = lambda: rig.broker.disconnect("node-a")
    response = await rig.send("ok")
    body = problem(response, 503, "broker-unavailable")
    assert response.headers["retry-after"] == "1"
    await carries_its_command(rig, response, "unsent")
    assert body["command"]["error"]["code"] == "not_sent"
    assert len(rig.waiters) == 0


async def test_a_try_after_one_that_was_not_sent_is_sent(rig: Rig) -> None:
    rig.store.after_register = lambda: rig.broker.disconnect("node-a")
    key = {"Idempotency-Key": "again"}
    first = problem(await rig.send("ok", headers=key), 503, "broker-unavailable")
    rig.store.after_register = lambda: None
    rig.broker.restore("node-a")
    second = await rig.send("ok", headers=key)
    assert second.status_code == 200
    assert second.json()["id"] != first["command_id"]
    assert "idempotent-replayed" not in second.headers
    third = await rig.send("ok", headers=key)
    assert third.text == second.text
    assert third.headers["idempotent-replayed"] == "true"
    assert len(rig.device.received) == 1


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (PacketTooLargeError("payload", "makes a packet of 9 bytes; the broker takes 8"), 413, "packet-too-large"),
        (UnpublishableError("topic", "is empty"), 422, "unpublishable"),
        (InvalidInputError("topic", "has 70000 bytes in UTF-8; allowed are 65535"), 422, "unpublishable"),
    ],
)
async def test_what_mqtt_can_never_carry_is_no_503(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: InvalidInputError, status: int, slug: str
) -> None:
    def refuse(_publication: object) -> None:
        raise type(error)(error.field, error.reason)

    monkeypatch.setattr(rig.mqtt, "publish", refuse)
    for _ in range(2):
        response = await rig.send("ok", headers={"Idempotency-Key": "again"})
        body = problem(response, status, slug)
        assert "retry-after" not in response.headers
        assert body["errors"] == [{"field": error.field, "reason": error.reason}]
        command = (await rig.http.get(f"/v1/commands/{body['command_id']}")).json()
        assert (command["state"], command["error"]["code"]) == ("unsent", slug.replace("-", "_"))


async def test_what_the_broker_refuses_for_good_after_the_publish_is_no_503(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Puback()
    refused.set_exception(UnpublishableError("publication", "the broker refused the message: 0x90"))
    monkeypatch.setattr(rig.mqtt, "publish", lambda _publication: refused)
    response = await rig.send("ok")
    body = problem(response, 422, "unpublishable")
    assert "retry-after" not in response.headers
    await carries_its_command(rig, response, "unsent")
    said = "publication: the broker refused the message: 0x90"
    assert body["error"] == {"code": "unpublishable", "message": said, "code_text": "unpublishable"}


async def test_a_stopping_node_records_what_it_did_not_send_before_it_lets_go_of_the_store(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Puback()
    stop, finish, close = rig.mqtt.stop, rig.store.finish, rig.store.close
    ended: list[CommandState] = []

    async def stop_and_refuse(*, keep_session: bool = False) -> None:
        await stop(keep_session=keep_session)
        if not waits.done():
            waits.set_exception(BrokerUnavailableError("stopped"))

    async def finish_slowly(
        command_id: str, state: CommandState, finisher: str, error: bytes | None = None
    ) -> Finished:
        for _ in range(50):
            await asyncio.sleep(0)
        finished = await finish(command_id, state, finisher, error)
        ended.append(finished.outcome.state)
        return finished

    async def close_and_check() -> None:
        assert ended == [CommandState.UNSENT]
        await close()

    monkeypatch.setattr(rig.mqtt, "publish", lambda _publication: waits)
    monkeypatch.setattr(rig.mqtt, "stop", stop_and_refuse)
    monkeypatch.setattr(rig.store, "finish", finish_slowly)
    monkeypatch.setattr(rig.store, "close", close_and_check)
    await rig.send("ok", headers=ASYNC)
    await rig.node.stop()


async def test_a_lost_puback_is_decided_by_the_deadline(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # F5: it may have arrived, so it is neither sent again nor called unsent.
    lost = Puback(left=True)
    lost.set_exception(PublishUnconfirmedError("connection lost"))
    monkeypatch.setattr(rig.mqtt, "publish", lambda _publication: lost)
    response = await rig.send("silent", timeout="20ms")
    assert "may or may not have been delivered" in problem(response, 504, "timed-out")["detail"]
    await carries_its_command(rig, response, "timed_out")


async def test_F3_a_store_that_is_away_gives_503(rig: Rig) -> None:
    rig.store.away = True
    response = await rig.send("ok")
    body = problem(response, 503, "store-unavailable")
    assert response.headers["retry-after"] == "1"
    assert body["command_id"]  # it may be on record
    assert response.headers["location"] == f"/v1/commands/{body['command_id']}"
    assert rig.device.received == []
    assert len(rig.waiters) == 0


async def test_a_store_that_cannot_record_the_end_gives_503_with_the_id() -> None:
    async with running(store={"budget": timedelta(milliseconds=10)}) as rig:
        rig.store.finish_away = True
        response = await rig.send("silent", timeout="1ms")
        body = problem(response, 503, "outcome-unknown")
        assert response.headers["retry-after"] == "1"
        assert body["command_id"] == rig.store.registrations[-1].command_id
        assert len(rig.waiters) == 0
        rig.store.finish_away = False


async def test_too_many_open_commands_give_429() -> None:
    async with running(command={"max_pending": 1}) as rig:
        assert (await rig.send("silent", headers=ASYNC)).status_code == 202
        response = await rig.send("ok")
        problem(response, 429, "limit-reached")
        assert response.headers["retry-after"] == "1"
        assert len(rig.store.registrations) == 1


async def test_too_many_callers_give_429_and_async_ones_still_pass() -> None:
    async with running(command={"max_waiters": 1}) as rig:
        parked = asyncio.create_task(rig.send("silent", timeout="60s"))
        await rig.heard()
        problem(await rig.send("ok"), 429, "limit-reached")
        assert (await rig.send("ok", headers=ASYNC)).status_code == 202
        await rig.http.delete(f"/v1/commands/{rig.store.registrations[0].command_id}")
        assert (await parked).json()["state"] == "cancelled"


async def test_a_draining_node_gives_503(rig: Rig) -> None:
    await rig.node.stop()
    response = await rig.send("ok")
    problem(response, 503, "node-draining")
    assert response.headers["retry-after"] == "1"
