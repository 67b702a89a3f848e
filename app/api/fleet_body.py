"""Reads the fleet run that a caller asks for out of the JSON body of `POST /v1/fleet-runs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Final

import orjson

from app.api.command_body import CommandBodyReader
from app.core.characters import shown
from app.core.commands.deadlines import LearnedTimeouts
from app.core.errors import InvalidInputError
from app.core.events.instants import parse_instant
from app.core.fleets.fields import members_of, read_length
from app.core.fleets.spec import (
    LONGEST_RUN,
    USUAL_IN_FLIGHT,
    USUAL_LENGTH,
    RunSpec,
    read_further,
    read_in_flight,
    read_rules,
    read_waves,
)
from app.core.fleets.targets import BRANCHES, LEAVES, as_shown, read_selector
from app.core.fleets.windows import check_windows
from app.core.payload import MAX_BYTES, JsonValue, kind_in_words
from app.fleets.administration import RunRequest
from app.fleets.plan import FleetCommand
from app.settings import Settings
from app.store.rules import micros

FURTHER: Final = ("windows", "spread", "per", "done", "rate")
MEMBERS: Final = ("targets", "command", "waves", "stop", "in_flight", "start_at", "until", "order", *FURTHER)
OF_COMMAND: Final = ("method", "params", "timeout", "profile", "one_way", "hold")
USUAL_HOLD: Final = timedelta(minutes=5)
ORDERS: Final = ("shuffled", "as_listed")


class FleetBodyReader:
    """The bounds and defaults of a node. Timeouts are not learned: all targets of a run have the same."""

    def __init__(self, settings: Settings, now_us: Callable[[], int]) -> None:
        """`now_us` is the time, in microseconds since 1970."""
        self._commands = CommandBodyReader(settings, LearnedTimeouts(), now_us)

    def read(self, body: JsonValue) -> RunRequest:
        """Read the run that a caller asks for; InvalidInputError says what is wrong with it."""
        if not isinstance(body, dict):
            raise InvalidInputError("body", f"is {kind_in_words(body)}; a JSON object is needed")
        for name in body:
            if name not in MEMBERS:
                raise InvalidInputError(shown(name), f"is unknown; allowed: {', '.join(MEMBERS)}")
        for name in ("targets", "command"):
            if name not in body:
                raise InvalidInputError(name, "is missing; an object is needed")
        order = body.get("order", ORDERS[0])
        if order not in ORDERS:
            raise InvalidInputError("order", f"is none; allowed: {', '.join(ORDERS)}")
        command, hold = self.command(body["command"])
        targets = members_of("targets", body["targets"], (*LEAVES, *BRANCHES))
        selector = read_selector(targets)
        waves, stop = read_waves(body.get("waves", [])), read_rules(body.get("stop", []))
        in_flight = read_in_flight(body.get("in_flight", USUAL_IN_FLIGHT))
        further = read_further(body)
        check_windows(further.get("windows", ()), command.timeout)
        length = read_length("until", body["until"], LONGEST_RUN) if "until" in body else USUAL_LENGTH
        start_at = body.get("start_at")
        if start_at is not None and not isinstance(start_at, str):
            raise InvalidInputError("start_at", f"is {kind_in_words(start_at)}; an instant in RFC 3339 is needed")

        def spec(now: int) -> RunSpec:
            begins = now if start_at is None else max(now, parse_instant("start_at", start_at))
            if now and begins - now > micros(LONGEST_RUN):
                raise InvalidInputError("start_at", f"is more than {LONGEST_RUN.days} days ahead, which is the most")
            return RunSpec(
                waves=waves,
                stop=stop,
                in_flight=in_flight,
                hold=hold,
                start_at=begins,
                until=begins + micros(length),
                **further,
            )

        return RunRequest(
            targets=as_shown(targets),
            selector=selector,
            command=command,
            spec=spec,
            as_listed=order == "as_listed",
            fingerprint=blake2b(orjson.dumps(body, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest(),
        )

    def command(self, value: object) -> tuple[FleetCommand, timedelta]:
        """Read a command, and for how long it may wait for its device; InvalidInputError."""
        members: Mapping[str, Any] = members_of("command", value, OF_COMMAND)
        try:
            read = self._commands.read("", dict(members), None)
        except InvalidInputError as error:
            raise InvalidInputError(f"command.{error.field}", error.reason) from None
        size = len(orjson.dumps(read.params))
        if size > MAX_BYTES:
            raise InvalidInputError(
                "command.params", f"have {size} bytes; allowed are {MAX_BYTES}, as in a single command"
            )
        command = FleetCommand(
            method=read.method,
            params=read.params,
            timeout=read.timeout,
            profile=read.profile if "profile" in members else None,
            one_way=read.one_way,
        )
        return command, read.hold or USUAL_HOLD
