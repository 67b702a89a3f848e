"""The `homing` command."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper


def main() -> None:
    """Run the command line of this process and exit."""
    from app.cli.root import run

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error: a device may say what this place cannot
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]  # it means that the width is unknown, and the help would be drawn in no column
    sys.exit(run())
