"""The Lua scripts, loaded once: the steps that happen in Redis as one."""

from __future__ import annotations

from importlib.resources import files

from app.store.redis.combiner import Script


def load_script(name: str) -> Script:
    """A script of app/store/redis/lua with the common part in front."""
    folder = files("app.store.redis") / "lua"
    return Script.of((folder / "common.lua").read_text() + (folder / f"{name}.lua").read_text())


REGISTER, RESPOND, FINISH, MARK, SWEEP, PENDING, FOLLOW, KEEP_HAPPENINGS = _OF_COMMANDS = tuple(
    load_script(name)
    for name in ("register", "respond", "finish", "mark", "sweep", "pending", "follow", "keep_happenings")
)
HOOK_PUT, HOOK_ENQUEUE, HOOK_CLAIM, HOOK_SETTLE, HOOK_AGAIN = _OF_WEBHOOKS = tuple(
    load_script(f"hook_{name}") for name in ("put", "enqueue", "claim", "settle", "again")
)
SCRIPTS = _OF_COMMANDS + _OF_WEBHOOKS


def _alone(name: str) -> Script:
    return Script.of((files("app.store.redis") / "lua" / f"{name}.lua").read_text())


APPEND_EVENTS, ROTATE_EVENTS, DROP_EVENTS, COOL_EVENTS, DISOWN_EVENTS = EVENT_SCRIPTS = (
    _alone("events_append"),
    _alone("events_rotate"),
    _alone("events_drop"),
    _alone("events_cool"),
    _alone("events_disown"),
)
ROLE: Script = _alone("role")
