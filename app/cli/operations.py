"""`homing webhooks`, `state` and `admin`: what can be administered over the HTTP API of a node, as whoever calls."""

from __future__ import annotations

from typing import Final

import typer

from app.cli.verbs import Verb, group

webhooks: Final = group(
    "Manage webhooks: URLs that receive events of commands.",
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
    "Read and write the last values of topics and devices.",
    {
        "show": Verb("events.last"),
        "put": Verb("events.put_last"),
        "device": Verb("events.of_device"),
        "transact": Verb("events.transact"),
    },
)
roles: Final = group(
    "Manage roles and their rules through a node, as far as your own key permits.",
    {
        "list": Verb("access.roles", "name tenant rules"),
        "show": Verb("access.role"),
        "put": Verb("access.put_role"),
        "remove": Verb("access.remove_role"),
    },
)
admin: Final = typer.Typer(
    help="Manage keys, people, roles and tenants through a node, as far as your own key permits; read the audit log. "
    "homing access, keys, users and audit work directly in the database, without a node, for operators of Homing "
    "itself.",
    no_args_is_help=True,
)
_ADMIN: Final = {
    "keys": group(
        "Manage API keys.",
        {
            "list": Verb("access.keys", "id principal label created_at expires_at revoked_at last_used_at"),
            "create": Verb("access.make_key"),
            "rotate": Verb("access.rotate_key"),
            "revoke": Verb("access.revoke_key"),
        },
    ),
    "tenants": group(
        "Manage tenants, who own devices.",
        {
            "list": Verb("access.tenants", "id name devices"),
            "show": Verb("access.tenant"),
            "put": Verb("access.put_tenant"),
            "remove": Verb("access.remove_tenant"),
        },
    ),
    "principals": group(
        "Manage people and services, and their roles.",
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
        "Export and apply the access directory as one document; check who may do what.",
        {
            "export": Verb("access.export"),
            "apply": Verb("access.apply"),
            "check": Verb("access.check", must="allowed"),
        },
    ),
    "audit": group(
        "Read and verify the audit log.",
        {
            "list": Verb("access.audit", "at writer seq line"),
            "verify": Verb("access.verify_audit", must="intact"),
        },
    ),
}
for _name, _group in _ADMIN.items():
    admin.add_typer(_group, name=_name)
