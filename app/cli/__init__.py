"""The `homing` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        from app.cli.root import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("rich", "typer"):
            raise
        sys.exit(f"The command line needs {error.name}: install homing with its extra `cli`.")
    sys.exit(run())
