"""No command waits for the access directory: none of them causes a statement in its database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from app.core.access.changes import Put
from app.core.access.model import Role
from tests.api.rig import until
from tests.api.test_access import guarded


@pytest.mark.parametrize(("audit", "commands"), [("off", 2_000), ("commands", 1_000)])
async def test_thousands_of_commands_make_no_statement(tmp_path: Path, audit: str, commands: int) -> None:
    """Send commands with a limit and rules, of callers who may and who may not. What an audit writes it writes beside
    them.
    """
    async with guarded(tmp_path, audit=audit) as site:
        rules = tuple(f"allow send *:method-{number}* on *" for number in range(200))
        await site.change(Put(Role(name="many", tenant_id="air", rules=(*rules, "limit send *:* on * 999999/s"))))
        await site.add("busy", "operator", "many")
        authority: Any = site.rig.application.ports.access
        following = authority.following
        following._interval, before = 3_600.0, following.heard_at
        await until(lambda: bool(following.heard_at > before))  # the last look for an hour
        directory: Any = site.directory
        statements: list[str] = []

        def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            statements.append(statement)

        for engine in (directory._engine.sync_engine, directory._calls._visits._engine):
            event.listen(engine, "before_cursor_execute", note)
        answers = [
            (await site.send(who, f"drone-{number}", "ok", one_way=True)).status_code
            for number in range(commands // 4)
            for who in ("busy", "busy", "viewer", "nobody")
        ]
        assert {status: answers.count(status) for status in set(answers)} == {
            200: commands // 2,
            403: commands // 4,
            404: commands // 4,
        }
        assert [one for one in statements if audit == "off" or not is_of_audit(one)] == []
        await site.directory.version()
        assert statements, "the listener sees what is asked"


def is_of_audit(statement: str) -> bool:
    return statement.startswith("BEGIN") or "audit" in statement
