"""`POST /v1/devices/{device_id}/commands`: the one busy call, served in front of the framework.

Of what a node does for a loaded command, the layers of the framework would take more than our own code for the request
(docs/adr/0031-one-hot-route.md has the measurement). All other routes are ordinary ones of FastAPI, in `v1/`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.access.origin import ASKING
from app.api import problems
from app.api.command_body import CommandBodyReader
from app.api.credentials import credential_of
from app.api.http import BODY_SECONDS, BytesResponse, Serve, asking, headers_of, read_body
from app.api.idempotency import naming_the_difference
from app.api.media_types import media_type_refusal
from app.api.parking import DismissedError, Parking
from app.api.ports import Ports
from app.api.preferences import Preference, read_preference
from app.api.problems import ProblemType
from app.api.proposals import as_proposal
from app.api.representation import command_json, error_or_none, heard_json
from app.api.sse import EventStream, SseStreams, wants_events
from app.api.story import feed_of
from app.commands.send.invoker import Invocation
from app.commands.send.registrar import CommandRequest
from app.commands.send.unsent import error_of, unsent_code
from app.core.access.callers import Caller
from app.core.access.places import ConcurrencyPermit
from app.core.access.rules import Action
from app.core.commands.command import Command, CommandState
from app.core.commands.deadlines import LearnedTimeouts
from app.core.errors import (
    AccessError,
    DeviceNotFoundError,
    ForbiddenError,
    IdempotencyMismatchError,
    InterlockError,
    NeedsSecondPersonError,
)
from app.core.identifiers import validate_device_id
from app.core.payload import decode_json
from app.settings import Settings

PATH: Final = "/v1/devices/{device_id}/commands"
SWEEP_GRACE: Final = timedelta(milliseconds=500)

_PATH: Final = re.compile("/v1/devices/([^/]+)/commands")


class HotRoute:
    """`parking` has the callers that wait, `streams` those who follow; `learned` knows timeouts where none is given.

    `serve` sends the command, waits as long as the caller wants to, and says what became of it.
    """

    def __init__(
        self, ports: Ports, settings: Settings, parking: Parking, learned: LearnedTimeouts, streams: SseStreams
    ) -> None:
        self.body_seconds = BODY_SECONDS
        self._member = ports.node.member
        self._access = ports.access
        self._audit = ports.audit
        self._invoker = ports.commands.invoker
        self._holder = ports.commands.holder
        self._counters = ports.node.counters
        self._parking = parking
        self.body: Final = CommandBodyReader(settings, learned, ports.node.now_us, ports.access.profile_of)
        # After the deadline the outcome still has to be recorded, by another node where the home node died, and its
        # wake-up may be lost: then the sweep over parked callers finds it.
        self._grace = settings.store.budget + 2 * settings.cluster.sweep_interval + SWEEP_GRACE
        self._streams = streams
        self._watches = ports.commands.watches
        self._store = ports.commands.store
        self._explainer = ports.commands.explainer
        self.serve: Serve = self._send
        if ports.node.tracing is not None:
            from app.api.traced import traced  # noqa: PLC0415 - its library is an extra

            self.serve = traced(self._send, ports.node.tracing, "POST", PATH)

    def device_of(self, scope: Scope) -> str | None:
        """The device that a call is for; None when the call is for another route, or has a query."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["query_string"]:
            return None
        found = _PATH.fullmatch(scope["path"].removeprefix(scope.get("root_path", "")))
        return None if found is None else found[1]

    async def answer(self, device_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the call, and send the response or the problem."""
        try:
            response = await self.serve(device_id, scope, receive)
        except Exception as error:
            await problems.answer_to(error, self._counters, scope.get("root_path", ""))(scope, receive, send)
            if problems.is_mistake(error):
                raise
            return
        await response(scope, receive, send)

    async def _stream(
        self, asked: CommandRequest, caller: Caller | None, place: ConcurrencyPermit | None, root: str
    ) -> Response:
        """Send, and stream what happens from then on. It goes on when the caller hangs up."""
        identity = self._access.identity(caller)
        principal = None if identity is None else identity.principal
        free = self._streams.admit(principal)  # first, as nothing is sent for whom there is no place
        try:
            invocation = await self._invoke(asked, caller, place, park=False)
            self._check_joined(caller, invocation)
        except BaseException:
            free()
            raise
        command = invocation.command
        return EventStream(
            self._streams,
            partial(feed_of, self._watches, command.id, None, to_the_end=False),
            may=partial(self._check_still, caller, asked),
            principal=principal,
            free=free,
            headers=[
                problems.location_of(command.id, root),
                *([(b"idempotent-replayed", b"true")] if invocation.replayed else []),
            ],
        )

    async def _send(self, device_id: str, scope: Scope, receive: Receive) -> Response:
        headers = headers_of(scope)
        caller = self._access.caller(credential_of(headers, self._access))
        if self._audit is not None:
            ASKING.set(asking(caller, scope, headers))
        device_id = validate_device_id(device_id)
        refusal = media_type_refusal(headers)
        if refusal is not None:
            return refusal
        preference = read_preference(headers.get(b"prefer"))
        body = decode_json(await read_body(receive, headers, seconds=self.body_seconds))
        asked = self.body.read(device_id, body, headers.get(b"idempotency-key"))
        self._member.admit()  # first, as a node that is about to stop must not spend what it then does not do
        asked, place = self._spend(caller, asked)  # nobody else has a turn before the command is noted, and takes it
        if wants_events(headers.get(b"accept")):
            return await self._stream(asked, caller, place, scope.get("root_path", ""))
        longest = asked.timeout + self._grace
        if asked.hold is not None or asked.approval is not None:
            longest += asked.longest_hold()
            budget = timedelta() if preference.limit is None else min(preference.limit, longest)
        else:
            budget = longest if preference.limit is None else min(preference.limit, longest)
        invocation = await self._invoke(asked, caller, place, park=bool(budget))
        command, dismissed = invocation.command, False
        self._check_joined(caller, invocation)
        if budget and not command.state.final:
            try:
                may = partial(self._check_still, caller, asked)
                command = await self._parking.wait(invocation, budget, receive, may)
            except DismissedError:
                command, dismissed = invocation.command, True
        extra = [(b"idempotent-replayed", b"true")] if invocation.replayed else []
        if command.state.final:
            return self._outcome(scope, command, preference, extra)
        if dismissed or budget < longest or invocation.command.state is CommandState.HELD:
            return _accepted(scope, command, preference, extra)
        detail = f"command {command.id} is past its deadline and the store did not say what became of it; read it later"
        return problems.of_command(problems.NO_OUTCOME, detail, command, extra, root=scope.get("root_path", ""))

    async def _invoke(
        self, asked: CommandRequest, caller: Caller | None, place: ConcurrencyPermit | None, *, park: bool
    ) -> Invocation:
        try:
            if asked.hold is not None or asked.approval is not None:
                return await self._holder.invoke(asked, caller, park=park)
            return await self._invoker.invoke(asked, caller, park=park, place=place)
        except InterlockError as error:
            if self._audit is not None:
                self._audit.denied(str(error), asked.device_id)
            if self._access.may_read(caller, asked.device_id, asked.profile, asked.method):
                raise
            raise error.without_values() from None
        except IdempotencyMismatchError as error:
            raise await naming_the_difference(error, asked, self._store, partial(self._may_read, caller)) from None

    def _may_read(self, caller: Caller | None, command: Command) -> bool:
        return self._access.may_read(caller, command.device_id, command.profile, command.method)

    def _check_joined(self, caller: Caller | None, invocation: Invocation) -> None:
        """Return when the caller may read the command, which somebody else may have sent."""
        if invocation.replayed:
            command = invocation.command
            try:
                self._access.check(caller, Action.READ, command.device_id, command.profile, command.method)
            except AccessError:
                invocation.leave()
                raise

    def _spend(self, caller: Caller | None, asked: CommandRequest) -> tuple[CommandRequest, ConcurrencyPermit | None]:
        """Spend the caller's limits on the command; what is not allowed is put on record.

        What a second person has to approve is given as it waits for that.
        """
        place, rule = None, None
        try:
            try:
                place = self._access.spend(caller, Action.SEND, asked.device_id, asked.profile, asked.method)
            except NeedsSecondPersonError as error:
                rule = error
            within = self._holder.approval_of(asked)
            if rule is not None or within is not None:
                asked = as_proposal(asked, caller, rule, within, self._access)
        except (ForbiddenError, DeviceNotFoundError) as error:
            if self._audit is not None:
                self._audit.denied(str(error), asked.device_id)
            raise
        if self._audit is not None:
            self._audit.check()
        return asked, place

    def _check_still(self, caller: Caller | None, asked: CommandRequest) -> None:
        """Return while a caller who waits may send the command, by himself or with a second person."""
        try:
            self._access.check(caller, Action.SEND, asked.device_id, asked.profile, asked.method)
        except NeedsSecondPersonError:
            if asked.approval is None:
                raise

    def proposed(self, caller: Caller | None, asked: CommandRequest) -> CommandRequest:
        """Return what a caller asks for as it would wait for a second person; nothing is spent. As `Access.check`."""
        rule = None
        try:
            self._access.check(caller, Action.SEND, asked.device_id, asked.profile, asked.method)
        except NeedsSecondPersonError as error:
            rule = error
        return as_proposal(asked, caller, rule, self._holder.approval_of(asked), self._access)

    def _outcome(
        self, scope: Scope, command: Command, preference: Preference, extra: list[tuple[bytes, bytes]]
    ) -> BytesResponse:
        """Outcomes are data, so a device's refusal is 200; but with 504 nothing was answered, with 503 nothing sent."""
        if preference.wait is not None:
            extra.append((b"preference-applied", Preference(wait=preference.wait).applied))
        if command.state is CommandState.TIMED_OUT:
            error = error_of(command)
            heard = heard_json(self._explainer.last_heard(command.device_id))
            last = "" if heard is None else f"; this node heard the device last at {heard['at']} on {heard['topic']}"
            detail = f"command {command.id} to {command.device_id} timed out: {error.get('message')}{last}"
            return problems.of_command(
                problems.TIMED_OUT,
                detail,
                command,
                extra,
                root=scope.get("root_path", ""),
                known=error.get("known"),
                last_heard=heard,
            )
        if (code := unsent_code(command)) is not None:
            kind = problems.UNSENT_BY_CODE.get(code, problems.NOT_SENT)
            detail = self._why_unsent(command, kind)
            error_text = error_or_none(command.error)
            return problems.of_command(kind, detail, command, extra, root=scope.get("root_path", ""), error=error_text)
        return BytesResponse(command_json(command), headers=extra)

    def _why_unsent(self, command: Command, kind: ProblemType) -> str:
        if kind is problems.NOT_LISTENING:
            other = self._explainer.elsewhere(command.device_id, command.profile)
            hint = "" if other is None else f"; it was last heard on topics of profile {other}: try that one"
            reason = error_of(command)["message"]
            return f"{reason}{hint}; nobody got command {command.id}, and it is safe to send it again"
        again = "it is safe to send it again" if kind is problems.NOT_SENT else "nor will it when it is tried again"
        return f"command {command.id} did not leave Homing; {again}"


def _accepted(
    scope: Scope, command: Command, preference: Preference, extra: list[tuple[bytes, bytes]]
) -> BytesResponse:
    extra.append(problems.location_of(command.id, scope.get("root_path", "")))
    if preference.applied:
        extra.append((b"preference-applied", preference.applied))
    return BytesResponse(command_json(command), status=202, headers=extra)
