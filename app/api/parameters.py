"""Parameters that several routes have: what they are, what is allowed, and the check that says so in a sentence."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import AfterValidator

from app.api import schemas
from app.api.schemas import said
from app.core import identifiers
from app.core.identifiers import validate_command_id, validate_device_id

DeviceId = Annotated[
    str,
    Path(
        description="The device, as its profile puts it into topics.",
        json_schema_extra=said(identifiers.DEVICE_ID),
        examples=[schemas.DEVICE_ID],
    ),
    AfterValidator(validate_device_id),
]
CommandId = Annotated[
    str,
    Path(
        description="The command.",
        json_schema_extra=said(identifiers.COMMAND_ID),
        examples=[schemas.COMMAND_ID],
    ),
    AfterValidator(validate_command_id),
]
