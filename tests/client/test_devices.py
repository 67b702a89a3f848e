"""What is on record about devices, in both twins."""

from __future__ import annotations
