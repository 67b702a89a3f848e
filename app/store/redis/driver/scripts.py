"""The Lua scripts, loaded once: the steps that happen in Redis as one."""

from __future__ import annotations

from importlib.resources import files

from app.store.redis.driver.lane import Script

_FOLDER = files("app.store.redis") / "lua"


def _read(name: str) -> str:
    return (_FOLDER / f"{name}.lua").read_text()


_READING = ("commands/pending", "events/pick", "queues/declared")
"""Those that change nothing."""


_COMMON = "".join(_read(f"commands/{name}") for name in ("common", "lanes", "outcomes"))


def load_script(name: str) -> Script:
    """A script of app/store/redis/lua, such as commands/register, with the part in front that those have in common."""
    return Script.of(_COMMON + _read(name), writes=name not in _READING)


REGISTER, RESPOND, FINISH, CONFIRM, VERIFY, MARK, SWEEP, PENDING, FOLLOW, KEEP_HAPPENINGS, ASK = _OF_COMMANDS = tuple(
    load_script(f"commands/{name}")
    for name in (
        *("register", "respond", "finish", "confirm", "verify", "mark", "sweep", "pending", "follow"),
        *("keep_happenings", "ask"),
    )
)
HOLD_CLAIM, HOLD_GIVE_BACK, HOLD_LANE, HOLD_DECIDE, HOLD_PASS_ON, HOLD_RESUME = _OF_HOLDS = tuple(
    load_script(f"commands/{name}") for name in ("claim", "give_back", "lane", "decide", "pass_on", "resume")
)
HOOK_PUT, HOOK_ENQUEUE, HOOK_CLAIM, HOOK_SETTLE, HOOK_AGAIN = _OF_WEBHOOKS = tuple(
    load_script(f"webhooks/{name}") for name in ("put", "enqueue", "claim", "settle", "again")
)
FLEET_FREEZE, FLEET_CREATE, FLEET_WRITE = _OF_FLEETS = tuple(
    Script.of(_read(f"fleets/{name}")) for name in ("freeze", "create", "write")
)
SCHEDULE_WRITE: Script = Script.of(_read("schedules/write"))
ROLE: Script = Script.of(_read("role"))
WRITE_SESSIONS: Script = Script.of(_read("sessions/write"))
SCRIPTS = (*_OF_COMMANDS, *_OF_HOLDS, *_OF_WEBHOOKS, *_OF_FLEETS, SCHEDULE_WRITE, ROLE)
APPEND_EVENTS, ROTATE_EVENTS, DROP_EVENTS, COOL_EVENTS, DISOWN_EVENTS, PICK_EVENTS, COMMIT_CURSOR = EVENT_SCRIPTS = (
    tuple(
        Script.of(_read(name), writes=name not in _READING)
        for name in [f"events/{one}" for one in ("append", "rotate", "drop", "cool", "disown", "pick", "commit_cursor")]
    )
)
QUEUE_FEED, QUEUE_SEEK, QUEUE_DYING, QUEUE_DECLARE, QUEUE_DECLARED = _OF_QUEUES = tuple(
    Script.of(_read(name), writes=name not in _READING)
    for name in [f"queues/{one}" for one in ("feed", "seek", "dying", "declare", "declared")]
)
QUEUE_TAKE, QUEUE_SETTLE, QUEUE_DISMISS = _OF_WINDOWS = tuple(
    Script.of(_read("queues/common") + _read(f"queues/{name}")) for name in ("take", "settle", "dismiss")
)
QUEUE_SCRIPTS = _OF_QUEUES + _OF_WINDOWS
