"""The records of devices, over HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, Final

import orjson
from fastapi import Depends, Query, Request
from fastapi import Response as Reply
from pydantic import AfterValidator, StringConstraints
from pydantic.json_schema import SkipJsonSchema

from app.access.conditions import ANY, tag_of
from app.access.devices import DeviceDetails, Filter, shown
from app.api import problems
from app.api.conditions import Conditional, etag
from app.api.cursors import ANY as ANY_CURSOR
from app.api.dependencies import Commands, Lists, NodePorts, Records, WhoAsks, needed_records
from app.api.http import BytesResponse
from app.api.openapi import acts, header, problems_of
from app.api.parameters import DeviceId, Limit, check_names, query
from app.api.problems import BY_ERROR
from app.api.routers import GuardedRouter
from app.api.v1 import command_models as schemas
from app.api.v1 import device_models as models
from app.api.v1.heard_devices import MOST_PLACE, HeardDevices
from app.core import errors
from app.core.access.model import Device
from app.core.access.patterns import validate_pattern
from app.core.access.rules import Action
from app.core.errors import InvalidInputError
from app.core.identifiers import validate_device_id

_LABEL: Final = re.compile("([A-Za-z0-9_./-]{1,64})=(.{0,256})", re.DOTALL)
_TAG: Final = {"ETag": header("The version of this record, for `If-Match`.")}
_NO_DIRECTORY: Final = BY_ERROR[errors.NoDirectoryError]
_UNKNOWN: Final = BY_ERROR[errors.DeviceNotFoundError]
_FAILED: Final = BY_ERROR[errors.PreconditionFailedError]
_CHANGED: Final = BY_ERROR[errors.VersionConflictError]
_LIST: Final = "devices"
_HEARD: Final = "heard devices"
_MOST_ID: Final = 128
_FILTERS: Final = ("id", "tenant", "profile", "label", "limit", "cursor", "heard")

router = GuardedRouter(prefix="/v1", tags=["devices"])


def _pattern(text: str | None) -> str | None:
    return None if text is None else validate_pattern("id", text)


@dataclass(frozen=True, slots=True)
class _ListedDevices:
    """The devices that a caller lists; `cursor` is what the page before gave."""

    filter: Filter
    cursor: str | None
    heard: bool


async def _filter(
    request: Request,
    id: Annotated[  # noqa: A002 - the name of the parameter
        str,
        AfterValidator(_pattern),
        query(
            "Return only devices whose id matches this pattern; `*` matches any text.",
            "[A-Za-z0-9_.:*-]{1,128}",
            "dock-*",
        ),
    ] = ANY,
    tenant: Annotated[
        Annotated[str, StringConstraints(min_length=1, max_length=128)] | SkipJsonSchema[None],
        Query(description="Return only devices of this tenant.", examples=["north"]),
    ] = None,
    profile: Annotated[
        Annotated[str, StringConstraints(pattern=schemas.PROFILE)] | SkipJsonSchema[None],
        Query(description="Return only devices whose record names this profile.", examples=["dji"]),
    ] = None,
    label: Annotated[
        list[str] | SkipJsonSchema[None],
        query("Return only devices with this label. Repeatable.", _LABEL.pattern, "site=roof"),
    ] = None,
    limit: Limit = 50,
    cursor: Annotated[
        str | SkipJsonSchema[None],
        Query(
            description="The `cursor` of the previous page.",
            json_schema_extra=schemas.said(ANY_CURSOR),
            examples=[schemas.DEVICE_ID],
        ),
    ] = None,
    heard: Annotated[  # noqa: FBT002 - a query parameter
        bool,
        Query(
            description="Also return devices that are not on record, and tell what is known of each.",
            json_schema_extra={"enum": [True, False]},
        ),
    ] = False,
) -> _ListedDevices:
    """The list of devices that a caller asks for."""
    check_names(request, _FILTERS, repeatable=("label",))
    labels = tuple([_label(one) for one in label or ()])
    return _ListedDevices(Filter(id=id, tenant=tenant, profile=profile, labels=labels, limit=limit), cursor, heard)


def _label(text: str) -> tuple[str, str]:
    found = _LABEL.fullmatch(text)
    if found is None:
        raise InvalidInputError("label", f"{text[:64]!a} is none; allowed: NAME=VALUE, as in site=roof")
    return found[1], found[2]


@router.get(
    "/devices",
    summary="List the registered devices, or all that anything is known of",
    response_model=models.DevicePage | models.HeardDevicePage,
    response_description="A page of devices.",
    responses=problems_of(_NO_DIRECTORY, problems.INVALID, BY_ERROR[errors.CapacityError], problems.UNAVAILABLE),
    openapi_extra=acts(Action.READ),
)
async def list_devices(
    asked: Annotated[_ListedDevices, Depends(_filter)], ports: NodePorts, lists: Lists, asker: WhoAsks
) -> Reply:
    """Lists devices that the caller may read, by id. A page may be short: it examines at most 2,000 records.

    With `heard`, devices follow that only presence, last values or recent commands are known of; it works without an
    access directory, too.
    """
    if asked.heard:
        place = "" if asked.cursor is None else asker.cursors.take(_HEARD, asked.cursor)
        async with lists.take():
            page, at = await HeardDevices(ports, asker, asked.filter).page(place)
        more = None if at is None else asker.cursors.give(_HEARD, at, MOST_PLACE)
        return BytesResponse(orjson.dumps({"devices": page, "cursor": more}))
    after = "" if asked.cursor is None else validate_device_id(asker.cursors.take(_LIST, asked.cursor))
    records = needed_records(ports.directory)
    found, behind = records.devices.page(asker.caller, replace(asked.filter, after=after))
    cursor = None if behind is None else asker.cursors.give(_LIST, behind, _MOST_ID)
    return BytesResponse(orjson.dumps({"devices": [shown(one) for one in found], "cursor": cursor}))


@router.get(
    "/devices/{device_id}",
    summary="Read the record of a device",
    response_model=models.Device,
    response_description="The device.",
    responses={
        200: {"headers": _TAG},
        **problems_of(_UNKNOWN, _NO_DIRECTORY, problems.INVALID, problems.UNAVAILABLE),
    },
    openapi_extra=acts(Action.READ),
)
async def read_device(device_id: DeviceId, records: Records, asker: WhoAsks) -> Reply:  # noqa: D103 - its summary says it
    return _answer(records.devices.read(asker.caller, device_id))


@router.put(
    "/devices/{device_id}",
    summary="Create or replace the record of a device",
    response_model=models.Device,
    response_description="The new record.",
    responses={
        200: {"headers": _TAG},
        201: {"description": "The record was created.", "headers": _TAG, "model": models.Device},
        **problems_of(
            _UNKNOWN,
            _NO_DIRECTORY,
            _FAILED,
            _CHANGED,
            BY_ERROR[errors.EntryConflictError],
            problems.INVALID,
            problems.ACCESS_STORE_AWAY,
        ),
    },
    openapi_extra=acts(Action.ACCESS),
)
async def put_device(
    device_id: DeviceId,
    body: models.DeviceBody,
    condition: Conditional,
    commands: Commands,
    records: Records,
    asker: WhoAsks,
) -> Reply:
    """Replaces the whole record: fields that the body leaves out are removed. Only operators may change the tenant."""
    known = sorted(commands.if_offline())
    if body.profile is not None and body.profile not in known:
        raise InvalidInputError("profile", f"{body.profile!a} is unknown; allowed: {', '.join(known)}")
    wanted = DeviceDetails(tenant=body.tenant, profile=body.profile, labels=body.labels, note=body.note)
    device, made = await records.devices.put(asker.caller, device_id, wanted, condition)
    return _answer(device, 201 if made else 200)


@router.delete(
    "/devices/{device_id}",
    status_code=204,
    summary="Delete the record of a device",
    response_description="The record was deleted.",
    responses=problems_of(_UNKNOWN, _NO_DIRECTORY, _FAILED, _CHANGED, problems.INVALID, problems.ACCESS_STORE_AWAY),
    openapi_extra=acts(Action.ACCESS),
)
async def remove_device(device_id: DeviceId, condition: Conditional, records: Records, asker: WhoAsks) -> Reply:
    """Commands may still be sent to the device. They then have to name its profile."""
    await records.devices.remove(asker.caller, device_id, condition)
    return Reply(status_code=204)


def _answer(device: Device, status: int = 200) -> BytesResponse:
    return BytesResponse(orjson.dumps(shown(device)), status=status, headers=[etag(tag_of(shown(device)))])
