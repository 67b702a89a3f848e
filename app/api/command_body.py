"""Reads what a caller asks for out of the JSON body of `POST /v1/devices/{device_id}/commands`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from app.commands.send.registrar import CommandRequest
from app.core.characters import shown
from app.core.commands.command import IfOffline
from app.core.commands.deadlines import LearnedTimeouts
from app.core.durations import ALLOWED, format_duration, parse_duration
from app.core.errors import InvalidInputError
from app.core.events.instants import parse_instant
from app.core.identifiers import validate_idempotency_key, validate_method, validate_replaces
from app.core.payload import JsonValue, kind_in_words
from app.settings import Settings
from app.webhooks.book import MOST_NAMED

_OF_HOLD: Final = ("hold", "not_before", "replaces")
MEMBERS: Final = ("method", "params", "timeout", "profile", "one_way", "if_offline", *_OF_HOLD, "notify")
SHORTEST_TIMEOUT: Final = timedelta(milliseconds=1)
SHORTEST_HOLD: Final = timedelta(seconds=1)
LONGEST_HOLD: Final = timedelta(days=30)
_MICROSECOND: Final = timedelta(microseconds=1)

_ALLOWED: Final = f"allowed: {', '.join(MEMBERS)}"
_MISSING: Final = object()


class CommandBodyReader:
    """The bounds and defaults of a node, for callers who say less.

    `learned` knows timeouts, `profile_of` the profile that is on record for a device, and `now_us` the time, in
    microseconds since 1970.
    """

    def __init__(
        self,
        settings: Settings,
        learned: LearnedTimeouts,
        now_us: Callable[[], int],
        profile_of: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._now_us = now_us
        self._profile_of = profile_of
        self._profile = settings.profile
        self._learned = learned
        self._max_timeout = settings.command.max_timeout
        self._default_timeout = min(settings.command.default_timeout, self._max_timeout)

    def read(self, device_id: str, body: JsonValue, key: bytes | None) -> CommandRequest:
        """Read the command that a caller asks for; InvalidInputError says what is wrong with it.

        `key` is the idempotency key.
        """
        if not isinstance(body, dict):
            raise InvalidInputError("body", f"is {kind_in_words(body)}; a JSON object is needed")
        for name in body:
            if name not in MEMBERS:
                raise InvalidInputError(shown(name), f"is unknown; {_ALLOWED}")
        method = validate_method(_text(body, "method"))
        named = "profile" in body
        profile = _text(body, "profile") if named else self.profile_for(device_id)
        given = self._timeout(body.get("timeout", _MISSING))
        hold = _hold(body.get("hold", _MISSING))
        return CommandRequest(
            device_id=device_id,
            method=method,
            params=body.get("params", {}),
            timeout=given or self._usual_timeout(profile, method, device_id),
            timeout_given=given is not None,
            profile=profile,
            one_way=_flag(body, "one_way"),
            if_offline=_if_offline(body.get("if_offline", _MISSING), hold),
            hold=hold,
            not_before=self._not_before(body.get("not_before", _MISSING), hold),
            replaces=_replaces(body.get("replaces", _MISSING), hold),
            notify=_notify(body.get("notify", _MISSING)),
            idempotency_key=None if key is None else validate_idempotency_key(key.decode("latin-1")),
        )

    def profile_for(self, device_id: str) -> str:
        """Return the profile of commands to a device that name none."""
        return self._profile_of(device_id) or self._profile

    def _not_before(self, value: object, hold: timedelta | None) -> int | None:
        """The instant before which the command is not sent; InvalidInputError where it cannot be sent then."""
        if value is _MISSING:
            return None
        if not isinstance(value, str):
            raise InvalidInputError("not_before", f"is {kind_in_words(value)}; an instant in RFC 3339 is needed")
        now = self._now_us()
        instant = parse_instant("not_before", value)
        if hold is None:
            raise InvalidInputError("hold", "is missing; not_before needs it, to say for how long the command may wait")
        if instant - now > LONGEST_HOLD // _MICROSECOND:
            raise InvalidInputError("not_before", f"is more than {LONGEST_HOLD.days} days ahead, which is the most")
        if instant - now >= hold // _MICROSECOND:
            raise InvalidInputError(
                "hold", f"of {format_duration(hold)} ends before not_before; it has to last beyond it"
            )
        return instant

    def _usual_timeout(self, profile: str, method: str, device_id: str) -> timedelta:
        """For a caller who gives none: what was learned, within the bounds, else the default."""
        learned = self._learned.timeout(profile, method, device_id)
        return self._default_timeout if learned is None else min(learned, self._max_timeout)

    def _timeout(self, value: object) -> timedelta | None:
        timeout = _duration("timeout", value)
        if timeout is None:
            return None
        if not SHORTEST_TIMEOUT <= timeout <= self._max_timeout:
            low, high = format_duration(SHORTEST_TIMEOUT), format_duration(self._max_timeout)
            raise InvalidInputError("timeout", f"{value} is out of range; allowed: {low} to {high}")
        return timeout


def _text(body: Mapping[str, JsonValue], name: str, default: str | None = None) -> str:
    value = body.get(name, _MISSING)
    if isinstance(value, str):
        return value
    if value is not _MISSING:
        raise InvalidInputError(name, f"is {kind_in_words(value)}; a string is needed")
    if default is None:
        raise InvalidInputError(name, "is missing; a string is needed")
    return default


def _duration(name: str, value: object) -> timedelta | None:
    if value is _MISSING:
        return None
    if not isinstance(value, str):
        hint = ": a bare number has no unit" if isinstance(value, int | float) and not isinstance(value, bool) else ""
        raise InvalidInputError(name, f"is {kind_in_words(value)}{hint}; allowed: a string of {ALLOWED}")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise InvalidInputError(name, str(error)) from None


def _hold(value: object) -> timedelta | None:
    hold = _duration("hold", value)
    if hold is not None and not SHORTEST_HOLD <= hold <= LONGEST_HOLD:
        low, high = format_duration(SHORTEST_HOLD), format_duration(LONGEST_HOLD)
        raise InvalidInputError("hold", f"{value} is out of range; allowed: {low} to {high}")
    return hold


def _replaces(value: object, hold: timedelta | None) -> str:
    if value is _MISSING:
        return ""
    if not isinstance(value, str):
        raise InvalidInputError("replaces", f"is {kind_in_words(value)}; a string is needed")
    if hold is None:
        raise InvalidInputError("hold", "is missing; replaces needs it, as it is about commands that wait")
    return validate_replaces(value)


def _if_offline(value: object, hold: timedelta | None) -> IfOffline | None:
    """The choice of the caller; a hold is one. InvalidInputError where the two contradict each other."""
    chosen = _offline_choice(value)
    if hold is None and chosen is IfOffline.HOLD:
        raise InvalidInputError("hold", "is missing; if_offline: hold needs it, to say for how long")
    if hold is not None and chosen not in (None, IfOffline.HOLD):
        raise InvalidInputError("if_offline", f"is {chosen}, and with hold the command waits; leave one of them out")
    return chosen if hold is None else IfOffline.HOLD


def _offline_choice(value: object) -> IfOffline | None:
    if value is _MISSING:
        return None
    if not isinstance(value, str):
        raise InvalidInputError("if_offline", f"is {kind_in_words(value)}; allowed: {', '.join(IfOffline)}")
    try:
        return IfOffline(value)
    except ValueError:
        raise InvalidInputError("if_offline", f"{value[:32]!a} is none; allowed: {', '.join(IfOffline)}") from None


def _notify(value: object) -> tuple[str, ...]:
    if value is _MISSING:
        return ()
    if not isinstance(value, list):
        raise InvalidInputError("notify", f"is {kind_in_words(value)}; a list of webhook ids is needed")
    if len(value) > MOST_NAMED:
        raise InvalidInputError("notify", f"has {len(value)} entries; allowed are {MOST_NAMED}")
    for one in value:
        if not isinstance(one, str):
            raise InvalidInputError("notify", f"has {kind_in_words(one)} in it; allowed: ids of webhooks")
    return tuple(dict.fromkeys(value))


def _flag(body: Mapping[str, JsonValue], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise InvalidInputError(name, f"is {kind_in_words(value)}; true or false is needed")
    return value
