"""`homing exchange`: messages with keys, among which queues choose, over the HTTP API of a node."""

from __future__ import annotations

from app.cli.verbs import Verb, group

application = group(
    "Manage exchanges. They take messages with keys, and queues choose messages by key.",
    {
        "list": Verb("exchanges.all", "name kind created_at"),
        "declare": Verb("exchanges.declare"),
        "show": Verb("exchanges.get"),
        "delete": Verb("exchanges.delete"),
        "publish": Verb("exchanges.publish"),
    },
)
