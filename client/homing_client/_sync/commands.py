# Made by scripts/unasync.py from _async/commands.py. Do not edit.
"""The calls about commands, which a client has beside all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

from homing_client import _answers as answers
from homing_client import _operations as operations
from homing_client import _system
from homing_client._errors import BY_STATE
from homing_client._models import Command, CommandEvent, Happening
from homing_client._operations import IfOffline, JsonObject
from homing_client._sync.session import Session
from homing_client._wire import Request


class CommandCalls:
    """Sends commands, and tells what became of them. `Homing` is one."""

    _session: Session

    def send(  # noqa: PLR0913 - each is a member of the body or a header
        self,
        device_id: str,
        method: str,
        params: Any = None,  # noqa: ANN401 - any JSON value
        *,
        profile: str | None = None,
        timeout: timedelta | str | None = None,
        one_way: bool = False,
        if_offline: IfOffline | None = None,
        hold: timedelta | str | None = None,
        not_before: datetime | str | None = None,
        replaces: str | None = None,
        notify: Sequence[str] = (),
        wait: bool | timedelta = True,
        idempotency_key: str | None = None,
    ) -> Command:
        """Send a command, and wait for its outcome, whatever that is.

        `wait`: False does not, and a timedelta waits that long at most. `timeout` is how long the device may take; the
        node decides when it is left out. Sent again, by this client or by its user with the same `idempotency_key`,
        it is the same command. `notify` names webhooks that are told of its outcome. With `hold` it may wait so long
        for a device that is away; then True does not wait either, and the command comes back as `held`. It is not sent
        before `not_before`, an instant with its zone, and what waits for the device with the same key `replaces` is
        cancelled.

        Raises InvalidInputError, NotAllowedError, LimitError, UnavailableError, UnreachableError.
        """
        request = operations.send(
            device_id,
            method,
            params,
            key=_system.new_key() if idempotency_key is None else idempotency_key,
            wait=False if hold is not None and wait is True else wait,
            profile=profile,
            timeout=timeout,
            one_way=one_way,
            if_offline=if_offline,
            hold=hold,
            not_before=not_before,
            replaces=replaces,
            notify=notify,
        )
        command = answers.command_sent(self._session.exchange(request))
        if command.is_final or wait is not True or hold is not None:
            return command
        return self.wait(command.id)

    def dry_run(  # noqa: PLR0913 - each is a member of the body or a header
        self,
        device_id: str,
        method: str,
        params: Any = None,  # noqa: ANN401 - any JSON value
        *,
        profile: str | None = None,
        timeout: timedelta | str | None = None,
        one_way: bool = False,
        if_offline: IfOffline | None = None,
        hold: timedelta | str | None = None,
        not_before: datetime | str | None = None,
        replaces: str | None = None,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """Say what would become of a command: whether it would be sent, would wait or be refused, and why.

        Nothing is sent, registered or counted. Raises what `send` raises where the input is wrong or not allowed.
        """
        request = operations.send(
            device_id,
            method,
            params,
            key=idempotency_key or "",
            wait=False,
            profile=profile,
            timeout=timeout,
            one_way=one_way,
            if_offline=if_offline,
            hold=hold,
            not_before=not_before,
            replaces=replaces,
            notify=(),
        )
        return answers.body_of(self._session.exchange(operations.dry_run(request)))

    def call(
        self,
        device_id: str,
        method: str,
        params: Any = None,  # noqa: ANN401 - any JSON value
        *,
        profile: str | None = None,
        timeout: timedelta | str | None = None,
        one_way: bool = False,
        if_offline: IfOffline | None = None,
        notify: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Command:
        """Send a command, and return it when it has succeeded.

        Raises CommandError (DeviceRefusedError, TimedOutError, CommandCancelledError, NotSentError) for every other
        outcome, and what `send` raises.
        """
        command = self.send(
            device_id,
            method,
            params,
            profile=profile,
            timeout=timeout,
            one_way=one_way,
            if_offline=if_offline,
            notify=notify,
            idempotency_key=idempotency_key,
        )
        if command.state in BY_STATE:
            raise BY_STATE[command.state](command)
        return command

    def get(self, command_id: str) -> Command:
        """Read the current state of a command. Raises NotFoundError."""
        return answers.command_of(self._session.exchange(operations.get(command_id)))

    def explain(self, command_id: str) -> JsonObject:
        """Explain what became of a command, as far as it is known: `verdict`, `timeline`, `misses`.

        Raises NotFoundError.
        """
        return self._object(operations.explain(command_id))

    def wait(self, command_id: str) -> Command:
        """A command with its outcome; waits until there is one. Raises NotFoundError."""
        between = 0.1
        while True:
            command = self.get(command_id)
            if command.is_final:
                return command
            _system.sleep(between)
            between = min(1.0, between * 1.5)

    def watch(self, command_id: str, *, after: str | None = None, to_the_end: bool = False) -> Iterator[CommandEvent]:
        """Follow the events of a command, until it has its outcome; with `to_the_end`, until nothing more can come.

        Where a connection breaks, or a node stops, it goes on elsewhere without a gap. `after`: the id of the last
        event that is known already. Raises NotFoundError.
        """
        with closing(self._session.stream(operations.events_of(command_id, to_the_end=to_the_end), after)) as told:
            for one in told:
                event = answers.event_of(one)
                if event is None:
                    continue
                yield event
                if event.kind == "outcome" and not to_the_end:
                    return

    def watch_all(
        self,
        *,
        device: str | None = None,
        profile: str | None = None,
        method: str | None = None,
        states: Sequence[str] = (),
        kinds: Sequence[str] = (),
        after: str | None = None,
    ) -> Iterator[Happening]:
        """Follow the events of all commands of the cluster that the caller may read. It does not end by itself.

        `device`, `profile`, `method`: only where they fit, `*` is any text. `states`, `kinds`: only these. `after`: the
        id of the last one that is known already. Where a connection breaks, or a node stops, it goes on elsewhere; what
        happened in the millisecond of the last one may come again, and where some were dropped a `gap` says so.
        """
        asked = operations.events_of_all(device, profile, method, states, kinds)
        with closing(self._session.stream(asked, after)) as told:
            for one in told:
                happening = answers.happening_of(one)
                if happening is not None:
                    yield happening

    def cancel(self, command_id: str) -> Command:
        """End a command; the device is not told. Raises NotFoundError, and ConflictError when it had an outcome."""
        return answers.command_of(self._session.exchange(operations.cancel(command_id)))

    def resume_lane(self, device_id: str, lane: str) -> JsonObject:
        """Resume a lane of a device that a failed command has stopped.

        `resumed` is false if it was not stopped, or if another command stops it by now; `next` is the command that is
        tried now. Raises NotAllowedError.
        """
        return answers.body_of(self._session.exchange(operations.resume_lane(device_id, lane)))

    def probe(self, command_id: str) -> JsonObject:
        """Check whether a command that has timed out was done: `result`, and `command`, with what was found `verified`.

        It may take ten seconds, where the device is asked. Raises NotFoundError, InvalidInputError where its profile
        has no probe for it, and ConflictError for one that has not timed out, or was answered late.
        """
        return answers.body_of(self._session.exchange(operations.probe(command_id)))

    def approvals(self, limit: int | None = None) -> list[JsonObject]:
        """List the commands that wait for a second person, soonest end first, each with its `fingerprint`."""
        return answers.listed(self._session.exchange(operations.approvals(limit)), "approvals")

    def approval(self, command_id: str) -> JsonObject:
        """One of them. Raises NotFoundError, and ConflictError where it waits for nobody, or not any more."""
        return answers.body_of(self._session.exchange(operations.approval(command_id)))

    def approve(self, command_id: str, fingerprint: str, *, note: str = "") -> Command:
        """Approve a command as a second person: exactly the one that has this fingerprint.

        Raises NotFoundError, NotAllowedError, and ConflictError when it is another one, or nobody is asked any more.
        """
        return self._decide(command_id, fingerprint, "approve", note)

    def refuse(self, command_id: str, fingerprint: str, *, note: str = "") -> Command:
        """Refuse a command as a second person. Raises what `approve` does."""
        return self._decide(command_id, fingerprint, "refuse", note)

    def _decide(self, command_id: str, fingerprint: str, decision: str, note: str) -> Command:
        request = operations.decide(command_id, fingerprint, decision, note)
        return answers.command_of(self._session.exchange(request))

    def commands(
        self,
        *,
        device: str | None = None,
        state: str | None = None,
        method: str | None = None,
        profile: str | None = None,
        since: str | None = None,
        until: str | None = None,
        page_size: int | None = None,
    ) -> Iterator[Command]:
        """All commands that the caller may read, newest first. They are read a page at a time.

        `method` and `profile` are patterns, such as `cover_*`. `since` and `until` are instants between which the
        commands were created: RFC 3339, or so long ago, as `-10m`. Nodes of 0.2 know `device` and `state` alone.
        """
        filters = {"state": state, "method": method, "profile": profile, "since": since, "until": until}

        def page(cursor: str | None) -> Request:
            return operations.page({"device": device, **filters}, cursor, page_size)

        for one in self._pages(page, "commands"):
            yield Command.of(one)

    def commands_of(
        self,
        device_id: str,
        *,
        state: str | None = None,
        method: str | None = None,
        profile: str | None = None,
        since: str | None = None,
        until: str | None = None,
        page_size: int | None = None,
    ) -> Iterator[Command]:
        """As `commands`, of one device."""
        filters = {"state": state, "method": method, "profile": profile, "since": since, "until": until}

        def page(cursor: str | None) -> Request:
            return operations.page_of_device(device_id, filters, cursor, page_size)

        for one in self._pages(page, "commands"):
            yield Command.of(one)

    def _pages(self, page: Callable[[str | None], Request], member: str) -> Iterator[JsonObject]:
        cursor: str | None = None
        while True:
            body = self._object(page(cursor))
            for one in body.get(member) or ():
                yield one
            cursor = body.get("cursor")
            if cursor is None:
                return

    def _object(self, request: Request) -> JsonObject:
        return answers.body_of(self._session.exchange(request))
