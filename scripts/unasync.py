"""Writes the blocking twin of the client from its async source: `unasync.py write|check`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "client" / "homing_client" / "_async"
TWIN = SOURCE.parent / "_sync"
HEAD = "# Made by scripts/unasync.py from _async/{name}. Do not edit.\n"
WORDS = {
    r"async (def|with|for)\b": r"\1",
    r"\bawait ": "",
    r"\bAsyncGenerator\[(\w+), None\]": r"Generator[\1, None, None]",
    r"\bAsync(?=[A-Z])": "",
    r"\b(Abstract)Async(?=Context)": r"\1",
    r"\b_async\b": "_sync",
    r"\basync_(sleep|together)\b": r"\1",
    r"\b(__)?a(enter|exit|iter|next|close)(?(1)__)\b": r"\1\2\1",
    r"\baclosing\b": "closing",
    r"\basynccontextmanager\b": "contextmanager",
}


def twin_of(name: str, source: str) -> str:
    """The blocking twin of a module."""
    for pattern, replacement in WORDS.items():
        source = re.sub(pattern, replacement, source)
    text = HEAD.format(name=name) + source
    ruff = [sys.executable, "-m", "ruff"]
    path = str(TWIN / name)
    for step in (["check", "--quiet", "--select", "I", "--fix-only"], ["format", "--quiet"]):
        done = subprocess.run(
            [*ruff, *step, "--stdin-filename", path, "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def main(action: str) -> int:
    """Write all twins, or say which are not what they should be; return the exit code."""
    twins = {path.name: twin_of(path.name, path.read_text("utf-8")) for path in sorted(SOURCE.glob("*.py"))}
    if action == "write":
        TWIN.mkdir(exist_ok=True)
        for name, text in twins.items():
            (TWIN / name).write_text(text, "utf-8")
        return 0
    there = {path.name: path.read_text("utf-8") for path in TWIN.glob("*.py")}
    stale = sorted(name for name in twins.keys() | there.keys() if twins.get(name) != there.get(name))
    for name in stale:
        print(f"client/homing_client/_sync/{name} is stale: run scripts/unasync.py write", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    if sys.argv[1:] not in (["write"], ["check"]):
        sys.exit("usage: unasync.py write|check")
    sys.exit(main(sys.argv[1]))
