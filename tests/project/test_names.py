"""Names of classes and modules. One class name has one meaning in `app/` (ADR 0086): who sees `Entry` knows which."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

SHARED = {
    "Command": "the model of the API names its schema in /openapi.json after what it shows",
    "Database": "the model of the API names its schema in /openapi.json after what it shows",
    "Device": "the model of the API names its schema in /openapi.json after what it shows",
    "Event": "the model of the API names its schema in /openapi.json after what it shows",
    "Generation": "the model of the API names its schema in /openapi.json after what it shows",
    "Node": "the model of the API names its schema in /openapi.json after what it shows",
    "CommandError": "a schema in /openapi.json, and the base of the exceptions about one command",
}
"""Names that two classes may have, each with the reason. The table has room for ten."""

NOUNS = {
    "app/api/parking.py": "the place where callers are parked",
    "app/callbacks/pending.py": "an adjective: the command that is open",
    "app/core/commands/routing.py": "the field's word for where a message goes next",
    "app/core/events/reading.py": "what is asked of one shard, `Reading`, and what it gives",
    "app/runtime/tracing.py": "the field's word, and the name of the extra",
    "tools/rig/homing_rig/simulation/recording.py": "a noun: the record of a simulated run",
}
"""Modules whose names end in -ing, each with the reason."""
_CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)


def doubles(folder: Path) -> dict[str, list[str]]:
    """Names of classes without underscores in front, with the files of all that have each, where several do."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for name in _CLASS.findall(path.read_text(encoding="utf-8")):
            found[name.lstrip("_")].append(str(path.relative_to(folder)))
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_two_classes_have_one_name() -> None:
    found = doubles(ROOT / "app")
    assert {name: paths for name, paths in found.items() if name not in SHARED} == {}, (
        "name the newer one after what sets it apart; docs/adr/0086 has examples"
    )


def test_each_exception_is_needed_still_and_is_of_two_classes_only() -> None:
    found = doubles(ROOT / "app")
    assert {name: len(found.get(name, ())) for name in SHARED} == dict.fromkeys(SHARED, 2)
    assert len(SHARED) <= 10


def test_an_underscore_does_not_make_another_name(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Lane: ...\n")
    (tmp_path / "two.py").write_text("class _Lane: ...\n")

    assert doubles(tmp_path) == {"Lane": ["one.py", "two.py"]}


def test_modules_are_named_after_what_they_hold() -> None:
    """By an agent noun or a plain noun, such as `merge` or `follower`: a gerund does not tell what is in there."""
    modules = [*(ROOT / "app").rglob("*.py"), *(ROOT / "tools").rglob("homing_*/**/*.py")]
    gerunds = {path.relative_to(ROOT).as_posix() for path in modules if path.stem.endswith("ing")}
    assert gerunds == set(NOUNS)
