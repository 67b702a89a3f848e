"""Rules for what must agree across files, and what no file may name."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import pytest

from app import __version__
from app.settings import PREFIX, Settings
from scripts.lockfile import DISTRIBUTIONS

ROOT = Path(__file__).parent.parent.parent

# Put together here, so that this file does not name them either.
REGISTRY_HOSTS = [f"{name}.{top}" for name, top in [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org")]]
HOME_FOLDERS = "|".join(["ro" + "ot", "ho" + "me", "wo" + "rk", "Us" + "ers"])
FORBIDDEN = re.compile(rf"{'|'.join(map(re.escape, REGISTRY_HOSTS))}|(?<![\w.:$~/{{}}*-])/(?:{HOME_FOLDERS})\b(?!-)")


OF_OTHERS = ROOT / "app" / "api" / "assets"
"""Minified scripts that others have written, whose paths and links are theirs."""


def project_files() -> list[Path]:
    """Every file that is in the repository or about to be."""
    git = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_folder_of_one_machine() -> None:
    files = project_files()
    assert ROOT / "pyproject.toml" in files
    found = [
        f"{path.relative_to(ROOT)}:{number} names {match[0]}"
        for path in files
        if not (path.parent == OF_OTHERS and path.name.endswith("-bundle.js"))
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        for match in FORBIDDEN.finditer(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", [*REGISTRY_HOSTS, *(f"cd /{folder}/x" for folder in HOME_FOLDERS.split("|"))])
def test_a_planted_name_is_found(text: str) -> None:
    assert FORBIDDEN.search(text)


@pytest.mark.parametrize("text", ["https://homing.example/home/x", "and/or/work", "tests/workers", "GET /homework"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert not FORBIDDEN.search(text)


def test_the_version_is_the_same_everywhere() -> None:
    for folder in DISTRIBUTIONS:
        pyproject = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))
        project = pyproject["project"]
        assert project["version"] == __version__
        asked = [*project["dependencies"], *chain(*project.get("optional-dependencies", {}).values())]
        ours = {one.partition("==")[2] for one in asked if one.startswith("homing") and "==" in one}
        assert ours <= {__version__}
    top = re.search(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert top is not None
    assert top[1] == __version__


def settings_env_names() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        nested = getattr(field.annotation, "model_fields", None)
        names = [name] if nested is None else [f"{name}_{inner}" for inner in nested]
        yield from (PREFIX + variable.upper() for variable in names)


def test_the_example_environment_explains_every_setting() -> None:
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    variable = re.compile(r"(?:# ?)?(HOMING_[A-Z0-9_]+)=")
    named = [(match[1], before) for before, line in pairwise(["", *lines]) if (match := variable.match(line))]
    assert sorted(name for name, _ in named) == sorted(settings_env_names())
    unexplained = [name for name, before in named if not before.startswith("# ") or variable.match(before)]
    assert not unexplained
