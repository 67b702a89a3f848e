"""Records of devices, as they go in and out."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from app.api.v1.command_models import DEVICE_ID, PROFILE, Instant, LabelName, SchemaModel


class DeviceBody(SchemaModel):
    """The new record of a device. Fields that are left out are removed from the record."""

    tenant: Annotated[
        str | None,
        Field(description="The tenant that owns the device. If left out, the owner does not change.", max_length=128),
    ] = None
    profile: Annotated[
        str | None, Field(description="The profile for commands that do not name one.", pattern=PROFILE)
    ] = None
    labels: Annotated[
        dict[LabelName, Annotated[str, Field(max_length=256)]],
        Field(description="Labels for people and filters. Rights do not depend on them.", max_length=32),
    ] = Field(default={})
    note: Annotated[str, Field(max_length=1000)] = ""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"profile": "dji", "labels": {"site": "roof"}}]}
    )


class Device(SchemaModel):
    """The record of a device."""

    id: str
    tenant: str
    profile: Annotated[str | None, Field(description="The name of the device's profile; null for the node's default.")]
    labels: dict[str, str]
    note: str

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": DEVICE_ID,
                    "tenant": "north",
                    "profile": "dji",
                    "labels": {"site": "roof"},
                    "note": "by the door",
                }
            ]
        }
    )


class HeardDevice(SchemaModel):
    """A device that anything is known of. One that is not on record has neither tenant nor profile nor labels."""

    id: str
    tenant: str | None
    profile: str | None
    labels: dict[str, str]
    note: str
    on_record: bool
    online: Annotated[bool | None, Field(description="True if the device is there; null if that is not known.")]
    last_seen: Annotated[
        Instant | None, Field(description="The instant of the last event of the device; null if there is none.")
    ]
    failures: Annotated[
        int, Field(description="The number of its commands among the latest 200 of the last hour that have failed.")
    ]


class HeardDevicePage(SchemaModel):
    """A page of devices: those on record by id, then others. It may be short or empty without being the last one."""

    devices: list[HeardDevice]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class DevicePage(SchemaModel):
    """A page of devices, ordered by id. A page may be short or empty without being the last one."""

    devices: list[Device]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]
