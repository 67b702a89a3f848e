"""The `homing` command."""

from __future__ import annotations

import sys
from io import TextIOWrapper


def main() -> None:
    """Run the command line of this process and exit."""
    from app.cli.root import run

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error: a device may say what this place cannot
    sys.exit(run())
