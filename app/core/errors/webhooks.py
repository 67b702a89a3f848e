"""Errors about webhooks.

WebhooksOffError      this node serves none
WebhookNotFoundError
WebhookChangedError   somebody else has changed it meanwhile
"""

from __future__ import annotations

from app.core.errors.base import HomingError


class WebhooksOffError(HomingError):
    """This node serves no webhooks."""


class WebhookNotFoundError(HomingError):
    """There is no such webhook, or delivery of it, that the caller may know of."""


class WebhookChangedError(HomingError):
    """Somebody else has changed the webhook meanwhile."""
