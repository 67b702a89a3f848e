"""Reads paths as they stand in profiles: `data.output`, `data.*.result`, `[2].code`, `"a b".c`, `$`, `{user.name}`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from app.core.paths import EVERY, Every, Path, Step

_STEP: Final = re.compile(
    r"""\[(?P<index>0|[1-9][0-9]{0,5})\]|\.?(?:(?P<every>\*)|"(?P<quoted>[^"]+)"|(?P<key>[^.\[\]*"{}$]+))"""
)
_KEY: Final = re.compile(r'[^.\[\]*"{}$]+')
_CAPTURE: Final = re.compile(r"\{([a-z_]+)\}")
_USER: Final = re.compile(r"\{user\.([!-z|~]{1,64})\}")

ALLOWED: Final = (
    "keys of nested objects with dots between, such as data.code; further [0] for an element of a list, * for every "
    'member, "…" around a key with dots in it, $ alone for the whole payload, {name} for a placeholder of the topic, '
    "{user.name} for a user property of MQTT 5"
)


class PathExpr(NamedTuple):
    """A path leads into the payload, to a placeholder of the topic, or to a user property."""

    path: Path
    capture: str | None = None
    user: str | None = None

    @property
    def is_text(self) -> bool:
        """True if all that stands there is text, and not in the payload."""
        return self.capture is not None or self.user is not None

    def within(self, *, wide: bool) -> Path:
        """The path in the payload, or in all of a message (`wide`)."""
        if self.capture is not None:
            return ("topic", self.capture)
        if self.user is not None:
            return ("user", self.user)
        return ("payload", *self.path) if wide else self.path


def parse_path(text: str) -> PathExpr:
    """ValueError says what is wrong with it, and what is allowed."""
    if text == "$":
        return PathExpr(())
    if (found := _CAPTURE.fullmatch(text)) is not None:
        return PathExpr((), capture=found[1])
    if (found := _USER.fullmatch(text)) is not None:
        return PathExpr((), user=found[1])
    if text.startswith(("$.", "$[", "/", "@")):
        raise ValueError(f"{text!a} is a path of another language; allowed: {ALLOWED}")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or (found[0].startswith(".") == (not steps) and found["index"] is None):
            break
        steps.append(_step(found))
        at = found.end()
    if at < len(text) or not steps:
        empty = "has an empty key" if ".." in text or text.startswith(".") or text.endswith(".") or not text else ""
        raise ValueError(f"{text!a} {empty or 'cannot be read'}; allowed: {ALLOWED}")
    return PathExpr(tuple(steps))


def _step(found: re.Match[str]) -> Step:
    if found["index"] is not None:
        return int(found["index"])
    return EVERY if found["every"] else found["quoted"] or found["key"]


def shown(path: Path) -> str:
    """A path as people write it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{_name(step)}" for step in path).lstrip(".") or "$"


def _name(step: str | Every) -> str:
    if step is EVERY:
        return "*"
    return step if _KEY.fullmatch(step) else f'"{step}"'
