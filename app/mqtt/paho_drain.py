"""Ends sessions on paho: those that dead nodes left, and one's own with MQTT 3.1.1."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import structlog

from app.core.errors import BrokerUnavailableError
from app.mqtt.base import MessageHandler, Subscription
from app.mqtt.options import MqttOptions, tls_context
from app.mqtt.paho_link import PahoLink

_log = structlog.get_logger(__name__)


class PahoSessionDrain:
    """A `SessionDrain` over TCP or TLS. `counters` gets what a connection counts."""

    def __init__(self, options: MqttOptions, counters: Counter[str]) -> None:
        self._options = options
        self._counters = counters
        self._tls = tls_context(options)

    async def drain(self, topic_filters: Sequence[str], handler: MessageHandler, idle: timedelta) -> int:
        link = PahoLink(self._options, self._tls, handler, self._counters)
        try:
            await link.open([Subscription(one) for one in topic_filters], unsubscribe=True)
            await link.quiet(idle.total_seconds())
            await link.disconnect(keep_session=False)
        except (OSError, TimeoutError) as error:
            raise BrokerUnavailableError(f"the session was not drained: {text_of(error)}") from None
        finally:
            link.end("drained")
        if self._options.version == "3.1.1":
            await drop_session_of_3_1_1(self._options, self._tls, self._counters)
        return link.deliveries


async def drop_session_of_3_1_1(options: MqttOptions, tls: ssl.SSLContext | None, counters: Counter[str]) -> None:
    """3.1.1 has no session expiry: a session ends when its client connects with Clean Session."""
    link = PahoLink(options, tls, ignore, counters, clean=True)
    try:
        await link.open(())
        await link.disconnect(keep_session=False)
    except (OSError, TimeoutError) as error:
        _log.warning("mqtt_session_kept", client=options.shown_client_id, reason=text_of(error))
    finally:
        link.end("stopped")


def text_of(error: Exception) -> str:
    """The text that describes an error of a connection."""
    return str(error) or "timed out"


def ignore(_delivery: object) -> None:
    """Handle a message that nobody waits for."""
