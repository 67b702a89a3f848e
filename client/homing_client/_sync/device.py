# Made by scripts/unasync.py from _async/device.py. Do not edit.
"""A device, to be talked to by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from homing_client._models import Command
from homing_client._operations import IfOffline
from homing_client._sync.commands import CommandCalls


class Device:
    """A device, and the profile by which it speaks (where that is not left to the node)."""

    def __init__(self, homing: CommandCalls, device_id: str, profile: str | None) -> None:
        self._homing = homing
        self.id: Final = device_id
        self.profile: Final = profile

    def send(  # noqa: PLR0913 - each is a member of the body or a header
        self,
        method: str,
        params: Any = None,  # noqa: ANN401 - any JSON value
        *,
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
        """As Homing.send."""
        return self._homing.send(
            self.id,
            method,
            params,
            profile=self.profile,
            timeout=timeout,
            one_way=one_way,
            if_offline=if_offline,
            hold=hold,
            not_before=not_before,
            replaces=replaces,
            notify=notify,
            wait=wait,
            idempotency_key=idempotency_key,
        )

    def call(
        self,
        method: str,
        params: Any = None,  # noqa: ANN401 - any JSON value
        *,
        timeout: timedelta | str | None = None,
        one_way: bool = False,
        if_offline: IfOffline | None = None,
        notify: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Command:
        """As Homing.call."""
        return self._homing.call(
            self.id,
            method,
            params,
            profile=self.profile,
            timeout=timeout,
            one_way=one_way,
            if_offline=if_offline,
            notify=notify,
            idempotency_key=idempotency_key,
        )

    def commands(self, *, state: str | None = None) -> Iterator[Command]:
        """List the commands that were sent to the device, newest first."""
        return self._homing.commands_of(self.id, state=state)
