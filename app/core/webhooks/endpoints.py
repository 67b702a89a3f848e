"""Endpoints: who wants to be told of what."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, urlsplit

from app.core.access.patterns import fits, validate_pattern
from app.core.commands.command import CommandState
from app.core.errors import InvalidInputError

OVERLAP_US: Final = 24 * 3_600_000_000
"""The time for which the secret of before signs as well, after a rotation."""

MOST_IN_BATCH: Final = 64
USUAL_BATCH: Final = 32
_MAX_URL: Final = 2_048
ENDPOINT_ID: Final = "wh_[0-9A-HJKMNP-TV-Z]{26}"
_ID: Final = re.compile(ENDPOINT_ID, re.ASCII)


class EventType(StrEnum):
    """The type of an event that an endpoint can be told of."""

    SUCCEEDED = "command.succeeded"
    FAILED = "command.failed"
    TIMED_OUT = "command.timed_out"
    CANCELLED = "command.cancelled"
    UNSENT = "command.unsent"
    LATE = "command.late"
    """The device answered after the command had its outcome."""
    VERIFIED = "command.verified"
    """A probe found what had become of the command, after it had timed out."""
    APPROVAL_ASKED = "command.approval_asked"
    """A second person is asked to approve the command."""
    DISABLED = "webhook.disabled"
    """Another endpoint of the tenant is not served any more."""
    TEST = "webhook.test"
    """Somebody asked for it; nobody can subscribe to it."""


SUBSCRIBABLE: Final = tuple(one for one in EventType if one is not EventType.TEST)
BY_STATE: Final = {one: EventType(f"command.{one}") for one in CommandState if one.final}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL that is told of events. Instants are microseconds since the Unix epoch.

    `devices` is a pattern of device ids; `methods` one of `profile:method`. Of an endpoint with a queue, `devices` is
    the place of the queue, which no device has, and there are no `events`: so nodes of 0.2.0 have nothing to tell it.
    `tenant` is "" where nobody is asked for a key. The secret is derived from `id` and `epoch`
    (`app/core/webhooks/signatures.py`).
    """

    id: str
    tenant: str
    url: str
    events: frozenset[EventType]
    devices: str
    methods: str
    created_at: int
    root: str = ""
    """Fingerprint of the root secret that its secrets are derived from."""
    epoch: int = 1
    rotated_at: int | None = None
    disabled_at: int | None = None
    disabled_reason: str | None = None
    queue: str = ""
    """The queue over the log whose events are pushed to it; "" if it is told of commands."""
    batch: int = 0
    """The most events of its queue that it gets at once."""

    @property
    def enabled(self) -> bool:
        """True if the endpoint is told of anything."""
        return self.disabled_at is None

    def wants(self, device_id: str, profile: str, method: str) -> bool:
        """True if some event of such a command may be for the endpoint."""
        return self.enabled and fits(self.devices, device_id) and fits(self.methods, f"{profile}:{method}")

    def epochs(self, now: int) -> tuple[int, ...]:
        """The epochs whose secrets sign at present, the newest first."""
        if self.epoch > 1 and self.rotated_at is not None and now < self.rotated_at + OVERLAP_US:
            return (self.epoch, self.epoch - 1)
        return (self.epoch,)

    def rotated(self, now: int) -> Endpoint:
        """The endpoint with the next secret."""
        return replace(self, epoch=self.epoch + 1, rotated_at=now)

    def disabled(self, now: int, reason: str) -> Endpoint:
        """Not served any more."""
        return replace(self, disabled_at=now, disabled_reason=reason)


def new_id(ulid: str) -> str:
    """The id of an endpoint."""
    return f"wh_{ulid}"


def validate_id(text: str) -> str:
    """The id itself; InvalidInputError when no endpoint can have it."""
    if not _ID.fullmatch(text):
        raise InvalidInputError("webhook_id", "is none; allowed: wh_ and a ULID, as POST /v1/webhooks gave it")
    return text


def validate_batch(batch: int) -> int:
    """The batch itself; InvalidInputError."""
    if not 1 <= batch <= MOST_IN_BATCH:
        raise InvalidInputError("batch", f"{batch} is out of range; allowed: 1 to {MOST_IN_BATCH}")
    return batch


def validate_events(names: Iterable[str]) -> frozenset[EventType]:
    """The events of an endpoint; InvalidInputError names the first that there is not."""
    known = {str(one): one for one in SUBSCRIBABLE}
    found = set()
    for name in names:
        if name not in known:
            raise InvalidInputError("events", f"{name[:64]!a} is none; allowed: {', '.join(known)}")
        found.add(known[name])
    if not found:
        raise InvalidInputError("events", f"is empty; allowed: {', '.join(known)}")
    return frozenset(found)


def validate_filter(devices: str, methods: str) -> tuple[str, str]:
    """Both patterns; InvalidInputError. A method alone is that of any profile."""
    devices = validate_pattern("devices", devices)
    profile, separator, method = methods.partition(":")
    if not separator:
        profile, method = "*", methods
    validate_pattern("methods", profile, of_profiles=True)
    validate_pattern("methods", method)
    return devices, f"{profile}:{method}"


def validate_url(text: str, *, plain_http: bool) -> str:
    """The URL itself; InvalidInputError where no webhook may go to. Addresses are judged when it is connected to."""
    if len(text) > _MAX_URL:
        raise InvalidInputError("url", f"has {len(text)} characters; allowed are {_MAX_URL}")
    if any(char <= " " or char > "~" for char in text):
        raise InvalidInputError("url", "has blanks or characters that are not ASCII; allowed: a URL as RFC 3986 has it")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InvalidInputError("url", "is none; allowed: https://host[:port]/path") from None
    _check_parts(parts, ("https", "http") if plain_http else ("https",))
    if port == 0:
        raise InvalidInputError("url", "has port 0; allowed: 1 to 65535")
    return text


def _check_parts(parts: SplitResult, schemes: Collection[str]) -> None:
    if parts.scheme not in schemes:
        raise InvalidInputError("url", f"begins with {parts.scheme[:16]!a}; allowed: {', '.join(schemes)}")
    if not parts.hostname:
        raise InvalidInputError("url", "names no host; allowed: https://host[:port]/path")
    if parts.username is not None or parts.password is not None:
        raise InvalidInputError("url", "has a user or a password; allowed is none: the signature tells who calls")
    if parts.fragment:
        raise InvalidInputError("url", "has a fragment, which no server sees; allowed is none")
