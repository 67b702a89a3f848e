"""The Lua scripts of the cluster: the steps that happen in Redis as one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

_NAMES: Final = (
    *("charter", "directory", "enlist", "join", "renew", "leave"),
    *("note_forgotten", "claim", "adopted", "keep"),
)


@cache  # a program may begin many times
def cluster_scripts() -> Mapping[str, str]:
    """Return the text of each script, by its name."""
    folder = resources.files("app.cluster") / "lua"
    return {name: (folder / f"{name}.lua").read_text() for name in _NAMES}
