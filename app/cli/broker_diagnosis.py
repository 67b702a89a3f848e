"""The diagnoses of `homing doctor` about the broker in a node, before anybody has connected to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from app.cli.diagnosis import CheckLevel, Diagnosis
from app.core.addresses import is_loopback, split_address

if TYPE_CHECKING:
    from app.settings import Settings


def about_own_broker(settings: Settings, days_left: int | None, trouble: str) -> Iterator[Diagnosis]:
    """Diagnose the listeners; `days_left` of the certificate, if there is one, or the `trouble` with its files."""
    broker = settings.broker
    host = split_address(broker.url).hostname or ""
    if broker.url and settings.access.url and not (is_loopback(host) or host == "localhost"):
        yield Diagnosis(
            CheckLevel.WARN,
            "broker",
            "encryption",
            "HOMING_BROKER_URL can be reached from outside without TLS, so keys can be read on the way",
            "Listen on 127.0.0.1 there, and with HOMING_BROKER_TLS_URL for others.",
        )
    if trouble:
        yield Diagnosis(
            CheckLevel.FAIL, "broker", "certificate", trouble, "Correct the files: no node starts with them."
        )
    elif days_left is not None:
        yield _certificate(days_left)


def about_contested(client_ids: str) -> Iterator[Diagnosis]:
    """Diagnose clients that take one client id from each other in a loop, as the broker of a node tells of them."""
    if client_ids:
        yield Diagnosis(
            CheckLevel.WARN,
            "broker",
            "client ids",
            f"several clients connect as {client_ids}, and each one ends the connection of the other",
            "Give each client an id of its own.",
        )


def about_clock_jump(seconds: int) -> Iterator[Diagnosis]:
    """Diagnose the clock of the machine of a node's broker, which jumped by so many seconds while the broker ran."""
    if not seconds:
        return
    hours = f"{abs(seconds) / 3_600:.1f} h"
    if seconds > 0:
        seen = f"the clock of the node's machine jumped forward by {hours} while the node ran"
        advice = (
            "If it is right now, go on: events and deadlines of before have times that are too early. If it is wrong, "
            "correct it: what is kept for a time goes too early."
        )
    else:
        seen = f"the clock of the node's machine jumped back by {hours} while the node ran"
        advice = (
            "If it is right now, go on: new events get times after those that are there, and what is kept for a time "
            "goes later. If it is wrong, correct it."
        )
    yield Diagnosis(
        CheckLevel.WARN, "broker", "clock", seen, f"{advice} A machine without a battery needs NTP before the node."
    )


def _certificate(days_left: int) -> Diagnosis:
    from app.broker.certificate import SOON_DAYS

    advice = (
        "Replace the files of HOMING_BROKER_CERT_FILE and HOMING_BROKER_KEY_FILE; nodes take them while they serve."
    )
    if days_left < 0:
        return Diagnosis(CheckLevel.FAIL, "broker", "certificate", "it has expired", advice)
    soon = days_left < SOON_DAYS
    level = CheckLevel.WARN if soon else CheckLevel.OK
    return Diagnosis(level, "broker", "certificate", f"expires in {days_left} days", advice if soon else "")
