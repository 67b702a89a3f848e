"""The tutorial of profiles works as it is written, and says what is shown there, but for ids, names and times."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from homing_rig.ports import lasting_port
from tests.cluster.test_families import OpenBroker
from tests.waiting import PATIENCE

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "profiles" / "tutorial.md"
BLOCK: Final = re.compile(r"^```(toml|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANGING: Final = {
    r"\b\d{3}-[0-9A-Z]{26}\b": "ID",
    r"\bnode-\w+": "NODE",
    r"\b\d+(\.\d+)? (ms|s)\b": "TIME",
    r"\b\d\d:\d\d:\d\d(\.\d+)?Z?": "CLOCK",
    r"\b\d{4,10}\b": "NUMBER",
    r"\(\d+ bytes\)": "(SIZE)",
}
"""The parts of the output that differ from run to run."""


def steady(text: str) -> str:
    """The text without what differs from run to run, and without white space at the ends of lines."""
    for pattern, name in CHANGING.items():
        text = re.sub(pattern, name, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def follow(page: str, folder: Path, mqtt_url: str, port: int, program: Path) -> list[tuple[str, str]]:
    """Return what the page shows and what was said instead, for each block of the shell that shows what it says."""
    blocks = BLOCK.findall(page)
    script = ["set -eE", "trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT"]
    shown = []
    for number, (kind, text) in enumerate(blocks):
        if kind == "toml":
            (folder / f"{number}.toml").write_text(text)
            script.append(f"cp {number}.toml lamp.toml; rm {number}.toml")
        elif kind == "sh":
            script.append(f"exec > {number}.said 2>&1\n{text}")
        else:
            shown.append((text, folder / f"{number - 1}.said"))
    whole = "\n".join(script).replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("PORT=8080", f"PORT={port}")
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOMING_")}
    done = subprocess.run(
        ["bash", "-c", whole.replace("mqtt://127.0.0.1:1883", mqtt_url)],
        env={
            **own,
            "PATH": f"{program.parent}:{own['PATH']}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
            "PYTHONUNBUFFERED": "1",
            "XDG_CONFIG_HOME": str(folder),
        },
        cwd=folder,
        timeout=4 * PATIENCE,
        check=False,
    )
    said = {one.name: one.read_text() for one in sorted(folder.glob("*.said")) + sorted(folder.glob("*.log"))}
    assert done.returncode == 0, said
    return [(text, file.read_text()) for text, file in shown]


def test_each_step_says_what_is_shown(homing_program: Path, tmp_path: Path) -> None:
    with OpenBroker() as broker:
        steps = follow(PAGE.read_text("utf-8"), tmp_path, broker.url, lasting_port(), homing_program)
    assert len(steps) >= 7
    for shown, said in steps:
        assert steady(said) == steady(shown)
