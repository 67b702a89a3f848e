"""Device software of others, each in an environment of its own below .venv/counterparts, from its registry."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.services import without_program

HOME = Path(__file__).parents[2] / ".venv" / "counterparts"
MINUTES = 10
"""For one installation."""


def python_with(name: str, *pinned: str) -> str:
    """The Python of an environment that has these packages; the test is skipped where they cannot be installed."""
    folder = HOME / name
    python = folder / "bin" / "python"
    if not _has(folder, pinned):
        _install(folder, [sys.executable, "-m", "venv", str(folder)], pinned)
        _install(folder, [str(python), "-m", "pip", "install", "--quiet", *pinned], pinned)
        _note(folder, pinned)
    return str(python)


def node_with(name: str, *pinned: str) -> Path:
    """The `node_modules` of a folder that has these packages; the test is skipped where they cannot be installed."""
    folder = HOME / name
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            without_program(f"{program} is not installed (Debian, Ubuntu: apt-get install nodejs npm)")
    if not _has(folder, pinned):
        folder.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-audit", "--no-fund", "--omit=dev", "--ignore-scripts"]
        _install(folder, ["npm", "install", "--prefix", str(folder), *quiet, *pinned], pinned)
        _note(folder, pinned)
    return folder / "node_modules"


def _has(folder: Path, pinned: Sequence[str]) -> bool:
    stamp = folder / "stamp"
    return stamp.exists() and stamp.read_text("utf-8").split() == list(pinned)


def _note(folder: Path, pinned: Sequence[str]) -> None:
    (folder / "stamp").write_text(" ".join(pinned), encoding="utf-8")


def _install(folder: Path, command: Sequence[str], pinned: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=60 * MINUTES)
    except (subprocess.SubprocessError, OSError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1:]
        shutil.rmtree(folder, ignore_errors=True)
        without_program(f"{', '.join(pinned)} cannot be installed from the registry: {''.join(said)}")
