"""`homing webhooks`, `state` and `admin`: what can be administered over the HTTP API of a node, as whoever calls."""

from __future__ import annotations

from typing import Final

import typer

from app.cli.verbs import Verb, group

webhooks: Final = group(
    "URLs that are told of outcomes.",
    {
        "list": Verb("webhooks.all", "id url events devices methods enabled"),
        "create": Verb("webhooks.make"),
        "show": Verb("webhooks.get"),
        "update": Verb("webhooks.change"),
        "delete": Verb("webhooks.remove"),
        "rotate": Verb("webhooks.rotate"),
        "test": Verb("webhooks.test", must="delivered"),
        "deliveries": Verb("webhooks.deliveries", "event_id type progress attempts status next_at reason"),
        "redeliver": Verb("webhooks.retry"),
    },
)
state: Final = group(
    "Last values of topics and devices.",
    {
        "show": Verb("events.last"),
        "put": Verb("events.put_last"),
        "device": Verb("events.of_device"),
        "transact": Verb("events.transact"),
    },
)
roles: Final = group(
    "What those may do who have a role, as nodes have it and as far as your own key may.",
    {
        "list": Verb("access.roles", "name tenant rules"),
        "show": Verb("access.role"),
        "put": Verb("access.put_role"),
        "remove": Verb("access.remove_role"),
    },
)
admin: Final = typer.Typer(
    help="Keys, people, roles, tenants and the audit, as nodes have them and as far as your own key may.\n\n"
    "homing access, keys, users and audit work in the database itself, without a node: for whoever operates Homing.",
    no_args_is_help=True,
)
_ADMIN: Final = {
    "keys": group(
        "API keys.",
        {
            "list": Verb("access.keys", "id principal label created_at expires_at revoked_at last_used_at"),
            "create": Verb("access.make_key"),
            "rotate": Verb("access.rotate_key"),
            "revoke": Verb("access.revoke_key"),
        },
    ),
    "tenants": group(
        "Whose devices which are.",
        {
            "list": Verb("access.tenants", "id name devices"),
            "show": Verb("access.tenant"),
            "put": Verb("access.put_tenant"),
            "remove": Verb("access.remove_tenant"),
        },
    ),
    "principals": group(
        "People and services, and which roles they have.",
        {
            "list": Verb("access.principals", "id name kind tenant disabled"),
            "show": Verb("access.principal"),
            "put": Verb("access.put_principal"),
            "remove": Verb("access.remove_principal"),
            "bindings": Verb("access.bindings"),
            "bind": Verb("access.put_bindings"),
        },
    ),
    "roles": roles,
    "access": group(
        "All of it as one document, and why somebody may do something.",
        {
            "export": Verb("access.export"),
            "apply": Verb("access.apply"),
            "check": Verb("access.check", must="allowed"),
        },
    ),
    "audit": group(
        "Who asked what of which device.",
        {
            "list": Verb("access.audit", "at writer seq line"),
            "verify": Verb("access.verify_audit", must="intact"),
        },
    ),
}
for _name, _group in _ADMIN.items():
    admin.add_typer(_group, name=_name)
