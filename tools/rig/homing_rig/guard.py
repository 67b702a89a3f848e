"""Access in a rig: a directory with some people in it, and the key by which the rig itself asks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Final

from app.core.access.changes import Put
from app.core.access.keys import make_key
from app.core.access.model import Binding, Credential, Kind, Principal, Role, Scheme, Tenant
from app.runtime.system import new_secret, random_bytes
from app.store.engine import open_directory

OTHER_KEYS: Final = 1_000
RULES: Final = 200
LIMIT: Final = "limit send *:* on * 999999/s burst 999999"
"""A limit that keeps nobody from anything, and is counted with every command."""
DATABASE: Final = "access.db"
"""The file of the directory. A node keeps a few connections to it, which it makes when it needs them."""
_BUDGET: Final = timedelta(minutes=1)


class Guard:
    """`settings` are those of the nodes, `authorization` the value of the header of callers."""

    def __init__(self, folder: Path) -> None:
        self.settings: Final = {"HOMING_ACCESS_URL": f"sqlite:///{folder / DATABASE}"}
        self._key = make_key(random_bytes)
        self.authorization: Final = f"Bearer {self._key.text}"

    async def set_up(self) -> None:
        """Make the directory: 200 rules let the rig do everything but some, and a thousand others have keys."""
        denied = [f"deny send *:firmware_{number} on dock-*" for number in range(RULES - 2)]
        rules = ("allow * *:* on *", LIMIT, *denied)
        changes = [
            Put(Tenant(id="default", name="default", devices=("*",), created_us=0)),
            Put(Principal(id="rig", tenant_id=None, kind=Kind.SERVICE, name="rig")),
            Put(Role(name="rig", tenant_id=None, rules=rules)),
            Put(Binding(id="rig", subject="rig", role="rig", tenant_id=None)),
            *[Put(self._credential(number)) for number in range(OTHER_KEYS)],
        ]
        directory = open_directory(self.settings["HOMING_ACCESS_URL"], new_cluster_id=new_secret, budget=_BUDGET)
        try:
            await directory.migrate()
            await directory.apply(changes)
        finally:
            await directory.close()

    def _credential(self, number: int) -> Credential:
        key = self._key if number == 0 else make_key(random_bytes)
        return Credential(id=key.id, principal_id="rig", scheme=Scheme.KEY, name="rig", digest=key.digest, created_us=0)
