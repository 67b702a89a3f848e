"""The names of topics that clients may publish to."""

from __future__ import annotations

from app.core.broker.bounds import BrokerBounds
from app.core.broker.codes import PacketError, ReasonCode
from app.core.broker.figures import FIGURES
from app.core.broker.filters import SHARED


def check_topic_name(topic: str, bounds: BrokerBounds) -> None:
    """Raise PacketError where no client may publish."""
    if len(topic.encode()) > bounds.topic_bytes or topic.count("/") >= bounds.levels:
        raise PacketError(ReasonCode.TOPIC_NAME_INVALID, f"a topic of more than {bounds.levels} levels, or too long")
    if topic.startswith((FIGURES, SHARED)):
        raise PacketError(ReasonCode.TOPIC_NAME_INVALID, "a topic that is not for clients to publish to")
