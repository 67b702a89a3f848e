"""The `homing` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and exit."""
    from app.cli.root import run

    sys.exit(run())
