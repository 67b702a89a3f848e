"""The Lua scripts, loaded once: the steps that happen in Redis as one.

In the head of a script stands which parts it uses, such as `-- Uses clock, record.`; these lie in lua/parts, and may
use others. Each call of a script makes all of its functions anew, so a script has no others than it needs.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from app.store.redis.driver.lane import Script

_FOLDER = files("app.store.redis") / "lua"
_USES: Final = re.compile(r"^-- Uses (.+)\.$", re.MULTILINE)

_READING = ("commands/pending", "events/pick", "queues/declared")
"""The scripts that change nothing."""


@cache
def _read(name: str) -> str:
    return (_FOLDER / f"{name}.lua").read_text()


def parts_of(text: str) -> list[str]:
    """The names of the parts that a script, or a part, says it uses itself."""
    said = _USES.search(text)
    return [] if said is None else [f"parts/{one}" for one in said[1].split(", ")]


def composed(name: str) -> str:
    """The text of a script, behind the parts that it uses; each part stands behind those that it uses itself."""
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        text = _read(name)
        for part in parts_of(text):
            if part not in texts:
                add(part)
        texts[name] = text

    add(name)
    return "".join(texts.values())


def load_script(name: str) -> Script:
    """A script of app/store/redis/lua, such as commands/register."""
    return Script.of(composed(name), writes=name not in _READING)


REGISTER, RESPOND, FINISH, CONFIRM, VERIFY, MARK, SWEEP, PENDING, FOLLOW, KEEP_HAPPENINGS, ASK = _OF_COMMANDS = tuple(
    load_script(f"commands/{name}")
    for name in (
        *("register", "respond", "finish", "confirm", "verify", "mark", "sweep", "pending", "follow"),
        *("keep_happenings", "ask"),
    )
)
HOLD_CLAIM, HOLD_RECLAIM, HOLD_GIVE_BACK, HOLD_LANE, HOLD_DECIDE, HOLD_PASS_ON, HOLD_RESUME = _OF_HOLDS = tuple(
    load_script(f"commands/{name}") for name in ("claim", "reclaim", "give_back", "lane", "decide", "pass_on", "resume")
)
HOOK_PUT, HOOK_ENQUEUE, HOOK_CLAIM, HOOK_SETTLE, HOOK_AGAIN = _OF_WEBHOOKS = tuple(
    load_script(f"webhooks/{name}") for name in ("put", "enqueue", "claim", "settle", "again")
)
FLEET_FREEZE, FLEET_CREATE, FLEET_WRITE = _OF_FLEETS = tuple(
    load_script(f"fleets/{name}") for name in ("freeze", "create", "write")
)
SCHEDULE_WRITE: Script = load_script("schedules/write")
ROLE: Script = load_script("role")
WRITE_SESSIONS, WRITE_AHEAD = SESSION_SCRIPTS = tuple(load_script(f"sessions/{name}") for name in ("write", "ahead"))
SCRIPTS = (*_OF_COMMANDS, *_OF_HOLDS, *_OF_WEBHOOKS, *_OF_FLEETS, SCHEDULE_WRITE, ROLE)
(
    APPEND_EVENTS,
    FORGOT_EVENTS,
    ROTATE_EVENTS,
    DROP_EVENTS,
    COOL_EVENTS,
    DISOWN_EVENTS,
    PICK_EVENTS,
    COMMIT_CURSOR,
) = EVENT_SCRIPTS = tuple(
    load_script(f"events/{name}")
    for name in ("append", "forgot", "rotate", "drop", "cool", "disown", "pick", "commit_cursor")
)
QUEUE_FEED, QUEUE_SEEK, QUEUE_DYING, QUEUE_DECLARE, QUEUE_DECLARED, QUEUE_TAKE, QUEUE_SETTLE, QUEUE_DISMISS = (
    QUEUE_SCRIPTS
) = tuple(
    load_script(f"queues/{name}")
    for name in ("feed", "seek", "dying", "declare", "declared", "take", "settle", "dismiss")
)
