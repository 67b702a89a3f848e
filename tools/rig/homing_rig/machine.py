"""The machine that figures were taken on."""

from __future__ import annotations

import os
import platform
from typing import Any

from app import __version__


def describe_machine() -> dict[str, Any]:
    """Describe the machine as a reader must know it to compare figures."""
    return {
        "homing": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
