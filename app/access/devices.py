"""The records of devices: read from memory, written to the access directory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from app.access.administration import AccessAdministrator
from app.access.authority import Authority
from app.access.conditions import ANY, Precondition, tag_of
from app.access.follower import View
from app.core.access.callers import Caller
from app.core.access.changes import Change, Put, Remove
from app.core.access.decide import readable
from app.core.access.model import Device, Tenant
from app.core.access.patterns import fits
from app.core.access.rules import Action
from app.core.access.snapshot import DEFAULT_TENANT
from app.core.clock import Clock, wall_us
from app.core.errors import DeviceNotFoundError, InvalidInputError

SCANNED: Final = 2_000
"""The number of records that one page looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDetails:
    """The details to put on record about a device. Without a tenant, it stays with the one that owns it."""

    tenant: str | None = None
    profile: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The devices that a caller lists; `id` is a pattern. `after` is the id that the page before ended at."""

    id: str = ANY
    tenant: str | None = None
    profile: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    limit: int = 50
    after: str = ""

    def takes(self, device: Device) -> bool:
        """True if the device is one of them."""
        return (
            self.tenant in (None, device.tenant_id)
            and self.profile in (None, device.profile)
            and all(device.labels.get(name) == value for name, value in self.labels)
            and fits(self.id, device.id)
        )


class Devices:
    """`profile` is what a device speaks whose record does not say."""

    def __init__(self, authority: Authority, administration: AccessAdministrator, clock: Clock, profile: str) -> None:
        self._authority = authority
        self._administration = administration
        self._clock = clock
        self._profile = profile

    def read(self, caller: Caller | None, device_id: str) -> Device:
        """Return the record of the device; DeviceNotFoundError also when the caller may not know of it."""
        found = self._authority.view.snapshot.devices.get(device_id)
        self._authority.check(caller, Action.READ, device_id, self._profile_of(found))
        if found is None:
            raise unknown(device_id)
        return found

    def is_known(self, device_id: str) -> bool:
        """True if the device is on record, for whomever."""
        return device_id in self._authority.view.snapshot.devices

    def page(self, caller: Caller | None, query: Filter) -> tuple[list[Device], str | None]:
        """Devices that the caller may know of, in the order of their ids, and where the next page goes on.

        A page looks at SCANNED records at most, so that it may be short without being the last.
        """
        document = self._authority.view.document
        first = bisect_right(document.devices, query.after, key=lambda one: one.id) if query.after else 0
        scanned = document.devices[first : first + SCANNED]
        found = list(islice(self._readable(caller, scanned, query), query.limit + 1))
        if len(found) > query.limit:
            return found[:-1], found[-2].id
        return found, scanned[-1].id if first + SCANNED < len(document.devices) else None

    async def put(
        self, caller: Caller | None, device_id: str, wanted: DeviceDetails, condition: Precondition
    ) -> tuple[Device, bool]:
        """Put it on record; whether it was not there. Another tenant may be named by who operates Homing."""
        found: list[tuple[Device, bool]] = []

        def decide(view: View) -> list[Change]:
            known = self._changeable(caller, view, device_id, condition)
            owner = view.snapshot.tenancy.owner(device_id)
            tenant = wanted.tenant or owner
            if tenant is None:
                raise InvalidInputError("tenant", "is missing: no tenant's patterns fit this device")
            if tenant != owner:
                self._authority.check(caller, Action.ACCESS)  # beyond the walls of tenants
            device = Device(
                id=device_id, tenant_id=tenant, profile=wanted.profile, labels=dict(wanted.labels), note=wanted.note
            )
            found[:] = [(device, known is None)]
            return [] if device == known else [*_default_tenant(view, tenant), Put(device)]

        await self._administration.change(caller, decide)
        return found[0]

    async def remove(self, caller: Caller | None, device_id: str, condition: Precondition) -> None:
        """Take it from the record; DeviceNotFoundError."""

        def decide(view: View) -> list[Change]:
            if self._changeable(caller, view, device_id, condition) is None:
                raise unknown(device_id)
            return [Remove(kind=Device, id=device_id)]

        await self._administration.change(caller, decide)

    def _changeable(self, caller: Caller | None, view: View, device_id: str, condition: Precondition) -> Device | None:
        """Return the record of a device that the caller may change, and that is as they expect it."""
        known = view.snapshot.devices.get(device_id)
        self._authority.check(caller, Action.ACCESS, device_id, self._profile_of(known))
        condition.check(f"device {device_id!a}", None if known is None else tag_of(shown(known)))
        return known

    def _readable(self, caller: Caller | None, devices: tuple[Device, ...], query: Filter) -> Iterator[Device]:
        if caller is None:
            return iter(())
        wanted = (one for one in devices if query.takes(one))
        now_us = wall_us(self._clock)
        return readable(self._authority.view.snapshot, caller, wanted, self._profile, now_us)

    def _profile_of(self, device: Device | None) -> str:
        return (device.profile if device else None) or self._profile


def shown(device: Device) -> dict[str, object]:
    """A record as callers read it."""
    return {
        "id": device.id,
        "tenant": device.tenant_id,
        "profile": device.profile,
        "labels": dict(device.labels),
        "note": device.note,
    }


def unknown(device_id: str) -> DeviceNotFoundError:
    """The same words as for a device that the caller may not know of."""
    return DeviceNotFoundError(f"there is no device {device_id!a} that this key may know of")


def _default_tenant(view: View, tenant: str) -> list[Put]:
    """The tenant of those who have set up none: a device on record must name one that is."""
    known: tuple[Tenant, ...] = view.document.tenants
    return [] if known or tenant != DEFAULT_TENANT.id else [Put(DEFAULT_TENANT)]
