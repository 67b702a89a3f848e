"""The devices that a run may mean: those on record that its caller may know of, and those that it names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from app.access.ports import Access
from app.core.access.callers import Caller
from app.core.access.model import Device
from app.core.access.rules import Action
from app.core.errors import AccessError, DeviceNotFoundError, ForbiddenError, InvalidInputError, NoTargetsError
from app.core.fleets.targets import TargetCandidate, TargetSelector, check_size
from app.fleets.plan import FleetCommand
from app.fleets.target_facts import TargetFacts

Recorded = Callable[[], Mapping[str, Device]]
"""The devices on record, by id."""
SHOWN: Final = 5
TOGETHER: Final = 500
"""The devices that are judged before others have a turn."""


class TargetSelection:
    """`recorded` is None where there are no records; `profile` is what a device speaks whose record does not say."""

    def __init__(self, access: Access, recorded: Recorded | None, profile: str, facts: TargetFacts) -> None:
        self._access = access
        self._facts = facts
        self._recorded = recorded
        self._profile = profile

    def check_labels(self, labels: Mapping[str, str]) -> None:
        """InvalidInputError where there are no records of devices, which have labels. `labels` says who names them."""
        if self._recorded is None:
            raise InvalidInputError(
                next(iter(labels.values())),
                "names a label, which the records of devices have, and this node has none; set HOMING_ACCESS_URL",
            )

    def check_proposer(self, caller: Caller | None) -> None:
        """Return when somebody else may approve a wave of a run of this caller; NeedsSecondPersonError."""
        self._access.check_proposer(caller)

    async def check_second(
        self, caller: Caller | None, proposer: Caller | None, targets: Iterable[Sequence[str]], method: str
    ) -> None:
        """Return when the caller may approve this for each of the targets, as another person. As `Access.check`.

        Of a target that they may not know of, nothing is told but that there is one: ForbiddenError.
        """
        for number, (device, profile, *_) in enumerate(targets):
            if number % TOGETHER == 0:
                await asyncio.sleep(0)
            try:
                self._access.check_second(caller, proposer, device, profile, method)
            except DeviceNotFoundError:
                raise ForbiddenError(
                    f"the caller may not approve {method} for all of the targets: some are devices that they may not "
                    "know of"
                ) from None

    async def targets(
        self, selector: TargetSelector, command: FleetCommand, caller: Caller | None, *, named: bool = True
    ) -> list[TargetCandidate]:
        """All that are meant, in the order in which they were named, and then by id.

        `named` tells whether the caller has named the ids of the selector, and not another one whose run this repeats.
        NoTargetsError; ForbiddenError says how many of them the caller may not send the command to, and which, as far
        as they have named them or may know of them. InvalidInputError where the selector needs records and there are
        none.
        """
        if self._recorded is None and (selector.from_record or not selector.named):
            has = "has patterns, labels or a profile" if selector.from_record else "names no ids of devices"
            raise InvalidInputError(
                "targets",
                f"{has}, so it takes the records of devices, and this node has none; allowed: ids of devices, or set "
                "HOMING_ACCESS_URL",
            )
        records = {} if self._recorded is None else self._recorded()
        listed, found = frozenset(selector.named), []
        for number, device_id in enumerate(dict.fromkeys([*selector.named, *sorted(records)])):
            if number % TOGETHER == 0:
                await asyncio.sleep(0)
            one = self._candidate(device_id, records.get(device_id), command)
            may_be_meant = selector.means(one) is not False
            if may_be_meant and (device_id in listed or self._may_know(one, command, caller)):
                found.append(one)
        if selector.asks:
            found = await self._decided(found, selector, caller)
        if not found:
            raise NoTargetsError("no device that this caller may know of is meant by the targets; nothing was begun")
        check_size(len(found))
        await self._check(found, command, caller, listed if named else frozenset())
        return found

    async def _decided(
        self, devices: Sequence[TargetCandidate], selector: TargetSelector, caller: Caller | None
    ) -> list[TargetCandidate]:
        """Return those that are meant by what the event log has of them; what is unknown of is not."""
        undecided = [one for one in devices if selector.means(one) is None]
        meant = await self._facts.meant(undecided, selector, caller)
        left_out = {one.device_id for one in undecided} - meant
        return [one for one in devices if one.device_id not in left_out]

    def _candidate(self, device_id: str, device: Device | None, command: FleetCommand) -> TargetCandidate:
        recorded = None if device is None else device.profile
        labels = {} if device is None else device.labels
        return TargetCandidate(device_id, command.profile or recorded or self._profile, labels)

    async def _check(
        self, targets: list[TargetCandidate], command: FleetCommand, caller: Caller | None, named: frozenset[str]
    ) -> None:
        refused = []
        for number, one in enumerate(targets):
            if number % TOGETHER == 0:
                await asyncio.sleep(0)
            if not self._may_send(one, command, caller):
                refused.append(one)
        if refused:
            known = (one for one in refused if one.device_id in named or self._may_know(one, command, caller))
            told = [one.device_id for one in islice(known, SHOWN)]
            shown = ", ".join([*told, *(["…"] if len(refused) > len(told) else [])])
            raise ForbiddenError(
                f"the caller may not send {command.method} to {len(refused)} of {len(targets)} targets: {shown}; "
                "nothing was begun"
            )

    def _may_know(self, one: TargetCandidate, command: FleetCommand, caller: Caller | None) -> bool:
        return self._access.may_read(caller, one.device_id, one.profile, command.method)

    def _may_send(self, one: TargetCandidate, command: FleetCommand, caller: Caller | None) -> bool:
        try:
            self._access.check(caller, Action.SEND, one.device_id, one.profile, command.method)
        except AccessError:
            return False
        return True
