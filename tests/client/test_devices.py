"""The records of devices, in both twins."""

from __future__ import annotations
