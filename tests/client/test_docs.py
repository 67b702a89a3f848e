"""The examples of the pages run as they stand, one after another, on the demo."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "client/README.md", "docs/client.md")
ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """Yield the URL of the demo, after its first round."""
    command = [sys.executable, "-m", "app.cli", "demo", "--port", "0", "--devices", "2"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        url = next(found[0] for line in process.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
        yield url
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_run(demo: str, name: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.+?)^```$", (ROOT / name).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    program = tmp_path / "example.py"
    program.write_text("\n".join(blocks).replace(ADDRESS, demo), "utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "client"),
        "HOMING_URL": demo,
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stdout
