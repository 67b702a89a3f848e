"""The frames of a connection with channels, as they come in."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError

from app.api.faults import faults_of
from app.api.problems import UNREADABLE
from app.api.v1.exchange_models import ExchangeMessage
from app.api.v1.queue_models import SettleBody, check_consumer
from app.core.errors import InvalidInputError, UndecodableMessageError
from app.core.payload import MAX_DEPTH, decode_json
from app.core.queues.channels import MOST_PREFETCHED

MOST_BYTES: Final = 1024 * 1024
MOST_CHANNELS: Final = 64
MOST_ID: Final = 2**53 - 1
_AROUND_DATA: Final = 2
"""Objects around the data of a message: `{"publish": {"data": …}}`."""

ChannelNumber = Annotated[StrictInt, Field(ge=1, le=2**31 - 1)]
Prefetch = Annotated[StrictInt, Field(ge=0, le=MOST_PREFETCHED)]


class _FrameModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _NumberedFrame(_FrameModel):
    id: Annotated[StrictInt, Field(ge=0, le=MOST_ID)]
    """Comes back in the answer."""


class OpenedChannel(_FrameModel):
    """A channel that takes from a queue."""

    channel: ChannelNumber
    queue: str
    prefetch: Prefetch = 32
    consumer: str = ""
    auto: StrictBool = False


class OpenedPublishing(_FrameModel):
    """A channel that publishes."""

    channel: ChannelNumber
    publish: Literal[True]


class ClosedChannel(_FrameModel):
    """A channel that is not used any more."""

    channel: ChannelNumber


class OpenCall(_NumberedFrame):
    """Opens a channel."""

    open: OpenedChannel


class OpenPublishingCall(_NumberedFrame):
    """Opens a channel that publishes."""

    open: OpenedPublishing


class ChannelMessage(ExchangeMessage):
    """A message, the exchange that it is for, and the key under which it may be repeated."""

    exchange: str
    idempotency_key: str | None = None


class PublishCall(_NumberedFrame):
    """Publishes a message."""

    channel: ChannelNumber
    publish: ChannelMessage


class CloseCall(_NumberedFrame):
    """Closes a channel."""

    close: ClosedChannel


class PrefetchCall(_NumberedFrame):
    """Changes how much a channel is lent at once; 0 is a pause."""

    channel: ChannelNumber
    prefetch: Prefetch


class SettleCall(_NumberedFrame, SettleBody):
    """Settles what a channel was lent."""

    channel: ChannelNumber


ConnectCall = OpenCall | OpenPublishingCall | PublishCall | CloseCall | PrefetchCall | SettleCall
Model = TypeVar("Model", OpenCall, OpenPublishingCall, PublishCall, CloseCall, PrefetchCall, SettleCall)


def frame_of(data: bytes) -> dict[str, Any]:
    """The object in a frame; InvalidInputError for what is none."""
    try:
        value = decode_json(data, max_bytes=MOST_BYTES, max_depth=MAX_DEPTH + _AROUND_DATA)
    except UndecodableMessageError as error:
        raise InvalidInputError("frame", UNREADABLE.get(error.reason, error.reason)) from None
    if not isinstance(value, dict):
        raise InvalidInputError("frame", "it is no JSON object")
    return value


def refused_message(data: bytes) -> int | None:
    """The id of a call that publishes what not every reader of JSON takes; None of whatever else is in a frame.

    So a message that is wrong has an answer, and does not end the connection of those before it.
    """
    try:
        frame = json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None
    number = frame.get("id") if isinstance(frame, dict) and "publish" in frame else None
    return number if type(number) is int and 0 <= number <= MOST_ID else None


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a member is there twice")
    return found


def call_of(frame: dict[str, Any]) -> ConnectCall:
    """The call in a frame; InvalidInputError about the member that is wrong."""
    if "open" in frame:
        if isinstance(frame["open"], dict) and "publish" in frame["open"]:
            return _read(OpenPublishingCall, frame)
        call = _read(OpenCall, frame)
        check_consumer("open.consumer", call.open.consumer)
        return call
    if "publish" in frame:
        return _read(PublishCall, frame)
    if "close" in frame:
        return _read(CloseCall, frame)
    if "prefetch" in frame:
        return _read(PrefetchCall, frame)
    return _read(SettleCall, frame)


def _read(model: type[Model], frame: dict[str, Any]) -> Model:
    try:
        return model.model_validate(frame)
    except ValidationError as error:
        raise InvalidInputError(*faults_of(error.errors())[0]) from None
