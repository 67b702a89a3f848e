"""Ending background tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

AGAIN: Final = timedelta(milliseconds=100)
MOST_AGAIN: Final = 20
"""The number of times that those are cancelled again whose end somebody does not want to wait for any more."""


async def end(tasks: Iterable[asyncio.Task[Any]], again: timedelta = AGAIN) -> None:
    """Cancel the tasks until they have ended; what they raise then is not of interest any more.

    Once is not always enough: a task whose call to redis-py is about to return when it is cancelled may never hear
    of it (seen with redis-py 8.1 on Python 3.11), and a loop would go on for ever. They are cancelled once per `again`.
    Whoever is cancelled meanwhile waits twenty times as long at most.
    """
    pending = set(tasks)
    cancelled: asyncio.CancelledError | None = None
    rounds = MOST_AGAIN
    while pending and rounds:
        for task in pending:
            task.cancel()
        try:
            done, pending = await asyncio.wait(pending, timeout=again.total_seconds())
        except asyncio.CancelledError as error:  # the tasks would be nobody's then: end them first, within bounds
            cancelled, done = error, {task for task in pending if task.done()}
            pending -= done
        rounds -= cancelled is not None
        for task in done:
            if not task.cancelled():
                task.exception()
    if cancelled is not None:
        raise cancelled
