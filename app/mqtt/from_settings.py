"""Turns the settings of the broker into options for the clients of a node."""

from __future__ import annotations

from dataclasses import replace

from app.mqtt.options import MqttOptions
from app.settings import Settings


def intake_options(settings: Settings, client_id: str) -> MqttOptions:
    """For a client that brings events in."""
    options = mqtt_options(settings, client_id)
    return replace(options, receive_maximum=settings.events.receive_maximum)


def mqtt_options(settings: Settings, client_id: str) -> MqttOptions:
    """For one client of the broker."""
    mqtt = settings.mqtt
    options = MqttOptions.from_url(mqtt.url, client_id=client_id, version=mqtt.version)
    return replace(
        options,
        username=mqtt.username or options.username,
        password=mqtt.password.get_secret_value() or options.password,
        ca_file=mqtt.ca_file,
        certificate_file=mqtt.cert_file,
        key_file=mqtt.key_file,
        keepalive=mqtt.keepalive,
        receive_maximum=mqtt.receive_maximum,
        session_expiry=mqtt.session_expiry,
    )
