"""Says whether the analysis is as it was when all of its tests passed: `whole.py check|digest`."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTE = Path("tests/analysis/whole.txt")
PROGRAMS = ("app/analysis", "app/cli/analyze.py", "app/cli/submit.py")
"""Nothing else in the repository imports the first of them."""
BESIDE = ("tests/analysis", "docs/examples/anomalies.toml", "requirements/analysis.txt", "requirements/spark.txt")
"""What decides as well whether its tests pass."""


def files_in(root: Path, *places: str) -> Iterator[Path]:
    """Yield the files at these places, by their path below the root; the note is none of them."""
    for place in map(Path, places):
        found = (root / place).rglob("*") if (root / place).is_dir() else [root / place]
        for path in found:
            if path.is_file() and "__pycache__" not in path.parts and path != root / NOTE:
                yield path.relative_to(root)


def imported(source: str) -> Iterator[str]:
    """Yield the full name of everything that a module imports of Homing, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("app."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "app":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files_of(root: Path, name: str) -> Iterator[Path]:
    """Yield the modules that are loaded for a name: its own, and the packages around it."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        place = Path(*parts[:depth])
        yield from (one for one in (place.with_suffix(".py"), place / "__init__.py") if (root / one).is_file())


def decisive(root: Path) -> set[Path]:
    """All files on which the outcome of its tests depends, by their path below the root."""
    found: set[Path] = set()
    to_read = list(files_in(root, *PROGRAMS))
    while to_read:
        path = to_read.pop()
        if path not in found:
            found.add(path)
            names = imported((root / path).read_text("utf-8")) if path.suffix == ".py" else ()
            to_read += [one for name in names for one in files_of(root, name)]
    return found.union(files_in(root, *BESIDE))


def digest(root: Path) -> str:
    """Return the SHA-256 of all that."""
    hashed = hashlib.sha256()
    for path in sorted(decisive(root)):
        content = hashlib.sha256((root / path).read_bytes()).hexdigest()
        hashed.update(f"{path.as_posix()} {content}\n".encode())
    return hashed.hexdigest()


def is_unchanged(root: Path) -> bool:
    """True if all of its tests passed on what is there now."""
    return (root / NOTE).is_file() and (root / NOTE).read_text("utf-8").split() == [digest(root)]


def main(action: str) -> int:
    """Print the digest, or check; return the exit code, 1 if something has changed."""
    if action == "digest":
        print(digest(ROOT))
        return 0
    return 0 if is_unchanged(ROOT) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
