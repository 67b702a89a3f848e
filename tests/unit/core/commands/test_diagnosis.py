"""The table of verdicts: each row, and that nothing is claimed where nothing is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.core.commands.command import Command, CommandState
from app.core.commands.diagnosis import Case, CommandDiagnosis, DeviceSighting, Verdict, judge
from app.core.commands.misses import MissedMessage, Near, Target, alike, compare
from app.core.commands.reach import NEVER_LEFT, NOTHING_KNOWN, DeliveryProgress
from app.store.rules import superseded

ID = "151-01M80ZQYYQW6PR18C8J3RFTSV5"
TOPIC = "thing/product/SN1/services_reply"
TARGET = Target("SN1", [ID], [TOPIC], 1_000_000_000, 2_000_000_000)
TAKEN = DeliveryProgress(published=True, acknowledged=True, subscribed=True)
ELSEWHERE = DeviceSighting(1_900_000_000, "n2", "dji", TOPIC)


def command(state: CommandState = CommandState.TIMED_OUT, **changes: Any) -> Command:
    facts: dict[str, Any] = {
        "id": ID,
        "device_id": "SN1",
        "method": "cover_open",
        "params": b"{}",
        "profile": "homing",
        "home_node": "n1",
        "created_at": 1_500_000_000,
        "deadline": 1_600_000_000,
        "finished_at": 1_600_000_000 if state.final else None,
    }
    return Command(**facts | {"state": state} | changes)


def case(state: CommandState = CommandState.TIMED_OUT, **changes: Any) -> Case:
    about = {name: changes.pop(name) for name in ("late",) if name in changes}
    return replace(Case(command(state, **about), reach=TAKEN), **changes)


def near(
    topic: str = TOPIC, reason: str = "unknown", got: str = "", device: str = "SN1", at: int = 1_550_000_000
) -> Near:
    return compare(MissedMessage(at, "n2", topic, reason, got, device), TARGET)


@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        (case(CommandState.SUCCEEDED), Verdict.ANSWERED),
        (case(CommandState.FAILED), Verdict.DEVICE_REFUSED),
        (case(CommandState.CANCELLED), Verdict.CANCELLED),
        (case(CommandState.CANCELLED, code="refused_by_second"), Verdict.REFUSED_BY_SECOND),
        (case(CommandState.CANCELLED, code="superseded"), Verdict.SUPERSEDED),
        (case(CommandState.CANCELLED, code="not_allowed_any_more"), Verdict.NOT_ALLOWED),
        (case(CommandState.UNSENT, code="hold_expired"), Verdict.HOLD_EXPIRED),
        (case(CommandState.UNSENT, code="not_approved"), Verdict.NOT_APPROVED),
        (case(CommandState.FAILED, code="superseded"), Verdict.DEVICE_REFUSED),
        (case(CommandState.ACKNOWLEDGED), Verdict.WAITING),
        (case(CommandState.PENDING), Verdict.WAITING),
        (case(CommandState.PENDING, orphaned=True), Verdict.NODE_DIED),
        (case(CommandState.ACKNOWLEDGED, orphaned=True), Verdict.WAITING),
        (case(CommandState.SENT, orphaned=True), Verdict.WAITING),
        (case(CommandState.ACKNOWLEDGED, nearest=near(got=ID[:-1])), Verdict.ID_CHANGED),
        (case(CommandState.UNSENT, code="not_sent"), Verdict.NOT_HANDED_OVER),
        (case(CommandState.UNSENT, code="no_subscriber"), Verdict.NO_SUBSCRIBER),
        (case(CommandState.UNSENT, code="no_subscriber", heard=[ELSEWHERE]), Verdict.WRONG_PROFILE),
        (
            case(CommandState.UNSENT, code="no_subscriber", heard=[ELSEWHERE, replace(ELSEWHERE, profile="homing")]),
            Verdict.NO_SUBSCRIBER,
        ),
        (
            case(CommandState.UNSENT, code="no_subscriber", heard=[replace(ELSEWHERE, at=5)]),
            Verdict.NO_SUBSCRIBER,
        ),
        (case(late=b"{}"), Verdict.ANSWERED_LATE),
        (case(reach=NEVER_LEFT), Verdict.NOT_HANDED_OVER),
        (case(reach=NOTHING_KNOWN), Verdict.NODE_DIED),
        (case(reach=DeliveryProgress(published=True, acknowledged=False)), Verdict.NOT_ACKNOWLEDGED),
        (case(reach=DeliveryProgress(published=True, acknowledged=True, subscribed=False)), Verdict.NO_SUBSCRIBER),
        (case(), Verdict.SILENT),
        (case(heard=[replace(ELSEWHERE, profile="homing")]), Verdict.SILENT),
        (case(reach=replace(TAKEN, subscribed=None), heard=[ELSEWHERE]), Verdict.WRONG_PROFILE),
        (case(nearest=near(got=ID.lower())), Verdict.ID_CHANGED),
        (case(nearest=near(got=f"id:{ID}")), Verdict.ID_CHANGED),
        (case(nearest=near("homing/SN1/response", "mismatch", ID)), Verdict.ANSWERED_ELSEWHERE),
        (
            case(nearest=near("thing/product/sn1/services_reply", "mismatch", ID, "sn1")),
            Verdict.ANSWERED_ELSEWHERE,
        ),
        (case(nearest=near(reason="not_json", device="")), Verdict.UNDECODABLE),
        (case(nearest=near(at=1_600_000_000)), Verdict.ANSWERED_LATE),
        # Nothing is claimed by these.
        (case(nearest=near()), Verdict.NO_IDEA),
        (case(gaps=["n2 did not answer in time"]), Verdict.NO_IDEA),
        (case(reach=DeliveryProgress(published=True)), Verdict.NO_IDEA),
        (case(nearest=near(got="151-01M80ZQYYQ0000000000000000")), Verdict.NO_IDEA),
        (case(nearest=near(reason="not_a_response", device="")), Verdict.NO_IDEA),
        (case(nearest=near(reason="retained", device="")), Verdict.NO_IDEA),
    ],
)
def test_each_row_of_the_table(known: Case, verdict: Verdict) -> None:
    said: CommandDiagnosis = judge(known)
    assert said.code is verdict
    assert said.text


def test_who_took_the_place_of_a_command_is_named() -> None:
    ended = replace(command(CommandState.CANCELLED), error=superseded(ID))
    said = judge(Case(ended, code="superseded"))
    assert said.evidence == (f"command {ID} came after it in its lane, where only the last one waits",)


def test_the_caller_of_a_dead_node_is_told_what_the_key_does_meanwhile() -> None:
    open_still = judge(case(CommandState.PENDING, orphaned=True)).text
    assert "idempotency key waits" in open_still
    assert "idempotency key" not in judge(case(reach=NOTHING_KNOWN)).text


def test_what_others_said_at_another_time_is_not_near() -> None:
    other = MissedMessage(
        5, "n2", "thing/product/SN2/services_reply", "unknown", "239-01M80ZQYYQW6PR18C8J3RFTSV5", "SN2"
    )
    assert compare(other, TARGET).score == 0


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (near(), True),
        (near("homing/SN1/response", "mismatch", ID), True),
        (near("thing/product/sn1/services_reply", "mismatch", ID, "sn1"), True),
        (near("thing/product/sn1/services_reply", "unknown", ID.lower(), "sn1"), True),
        (near(reason="not_json", device=""), True),
        (near(at=999_999_999), False),
        (near(at=2_000_000_001), False),
        (near(got="POWER", device="SN2"), False),
        (near("thing/product/SN2/services_reply", "not_json", device=""), False),
    ],
)
def test_only_what_is_of_its_device_or_names_it_within_its_life_concerns_a_command(
    one: Near, *, expected: bool
) -> None:
    assert one.concerns(ID) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("abc", "ABC", True),
        ("abcdef", "abcdfe", True),
        ("abcdef", "xyzdefu", False),
        ("abcd", "abcd-1", True),
        ("", "", False),
        ("a", "a" * 10, False),
        ("a" * 100, "a" * 99 + "bbb", False),
    ],
)
def test_ids_that_are_alike(one: str, other: str, *, expected: bool) -> None:
    assert alike(one, other) is expected
    assert alike(other, one) is expected
