"""A family of devices that name no command in their answers: each takes one at a time, and order alone tells."""

from __future__ import annotations

from typing import Final

import orjson

from app.core.messages import Publication, ReceivedMessage
from homing_simulator.families import ECHO, Family, Request

PROFILE: Final = """
name = "ordered"
description = "Devices whose answers carry no id"
quarantine_seconds = 5

[request]
topic = "ordered/{device_id}/set"
payload = { ref = "{id}", do = "{method}", with = "{params}" }

[[response]]
name = "done"
topic = "ordered/{device_id}/done"
correlation = "order"
result = "state"
rules = [{ state = "succeeded" }]
"""
"""A profile for HOMING_PROFILES_DIR. The id in the request is for the record of the rig; the answer does not repeat
it."""


def read_ordered(message: ReceivedMessage) -> Request:
    """A command, or ValueError and its like."""
    device_id = message.topic.split("/")[1]
    body = orjson.loads(message.payload)
    return Request(device_id, body["ref"], body["do"], body["with"], body, f"ordered/{device_id}/done")


def _answer(request: Request, _now: float) -> list[Publication]:
    return [request.publication({"state": {ECHO: request.params[ECHO]}})]


def _refuse(request: Request, now: float) -> Publication:
    return _answer(request, now)[0]


ORDERED: Final = Family(lambda device_id: (f"ordered/{device_id}/set",), read_ordered, _answer, _refuse, _refuse)
