"""The `homing` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and exit."""
    from app.runtime.structured_logs import load_structlog

    load_structlog()
    from app.cli.root import run

    sys.exit(run())
