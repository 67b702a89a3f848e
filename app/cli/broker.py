"""`homing broker`: sessions and retained messages of the broker in a node, over its HTTP API."""

from __future__ import annotations

from app.cli.verbs import Verb, group

application = group(
    "Manage the broker in a node: end sessions of clients, delete retained messages.",
    {
        "sessions": Verb("broker.sessions", "client_id principal connected since subscriptions waiting in_flight will"),
        "show": Verb("broker.session"),
        "end": Verb("broker.end_session"),
        "retained": Verb("broker.retained", "topic qos bytes client_id"),
        "delete": Verb("broker.delete_retained"),
    },
)
