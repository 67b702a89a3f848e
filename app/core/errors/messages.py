"""Errors about what devices and handlers of replies say.

UndecodableMessageError  a device's message cannot be read
HandlerFailedError       a handler of replies said nothing that can be used
"""

from __future__ import annotations

from app.core.errors.base import HomingError


class UndecodableMessageError(HomingError):
    """A device's message cannot be read; `reason` is a short stable word for counting.

    `profile` is the one that has the topic, '' where none has or nobody asked.
    """

    def __init__(self, reason: str, profile: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.profile = profile


class HandlerFailedError(HomingError):
    """A handler of replies said nothing that can be used; `reason` is a stable word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
