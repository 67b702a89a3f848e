"""The import of structlog without the libraries that it takes along where they are installed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final, cast

UNUSED: Final = ("rich", "attr", "greenlet")
"""Libraries for tracebacks in colours and for thread-locals of greenlets, which no log of ours has."""


def load_structlog() -> None:
    """Import structlog, and leave what is unused of it to those who import it themselves (docs/adr/0146).

    It is called before any other module imports structlog.
    """
    hidden = [name for name in UNUSED if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = cast("ModuleType", None)  # by which the import system knows that there is none
    try:
        import structlog  # noqa: F401, PLC0415 - it is the purpose of the function
    finally:
        for name in hidden:
            del sys.modules[name]
