"""`homing exchange`: messages with keys, among which queues choose, over the HTTP API of a node."""

from __future__ import annotations

from app.cli.verbs import Verb, group

application = group(
    "Exchanges: messages with keys, among which queues choose.",
    {
        "list": Verb("exchanges.all", "name kind created_at"),
        "declare": Verb("exchanges.declare"),
        "show": Verb("exchanges.get"),
        "delete": Verb("exchanges.delete"),
        "publish": Verb("exchanges.publish"),
    },
)
