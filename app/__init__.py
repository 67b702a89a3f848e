"""Homing: clustered MQTT callback routing."""

__version__ = "0.3.0"
