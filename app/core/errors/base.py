"""The base of all errors."""

from __future__ import annotations


class HomingError(Exception):
    """Base of all errors raised by Homing."""
