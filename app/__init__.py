"""Homing: clustered MQTT callback routing."""

__version__ = "0.2.0"
