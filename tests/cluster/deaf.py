"""`homing serve` whose wake-ups from other nodes all get lost: `python -m tests.cluster.deaf serve`."""

from __future__ import annotations

from app.callbacks.waker import Waker
from app.cli import main
from app.core.commands.routing import Outcome


def lose(_waker: Waker, _command_id: str, _outcome: Outcome | None) -> None:
    """As if Pub/Sub had dropped it."""


if __name__ == "__main__":
    Waker.wake = lose  # type: ignore[assignment,method-assign]  # this is the fault that the test injects
    main()
