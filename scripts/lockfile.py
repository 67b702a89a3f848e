"""Stamps the lock files in requirements/ and finds what is wrong with them, offline: `lockfile.py stamp|check`."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = (".", "client", "tools/simulator", "tools/rig")
"""Folders with a pyproject.toml."""
STAMP = "# dependency tables of pyproject.toml: sha256:"
SUBSETS = ("analysis", "image", "runtime")
"""The sets that users install: each a part of the packages that the tests run with."""
LOCKS = ("dev", "spark", *SUBSETS)
PIN = re.compile(r"(?P<name>[a-z0-9-]+)(\[[a-z0-9,-]+\])?==(?P<version>[0-9][0-9a-z.!+]*)( ; [^\\]+)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def _decisive(pyproject: str) -> dict[str, object]:
    tables = tomllib.loads(pyproject)
    project = tables["project"]
    return {
        "requires-python": project["requires-python"],
        "dependencies": project["dependencies"],
        "optional-dependencies": project.get("optional-dependencies"),
        "dependency-groups": tables.get("dependency-groups"),
        "build-system": tables["build-system"],
    }


def dependency_digest(*pyprojects: str) -> str:
    """Return the SHA-256 of all that decides what gets locked; other settings may change freely."""
    decisive = [_decisive(pyproject) for pyproject in pyprojects]
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def stamped(lock: str, digest: str) -> str:
    """Return the lock with a head that says what it was made from."""
    body = [line for line in lock.splitlines() if not line.startswith("#")]
    return "\n".join(["# Made by scripts/lock: exact versions with hashes. Do not edit.", STAMP + digest, *body, ""])


def problems(lock: str, digest: str) -> list[str]:
    """Say in sentences why this lock must not be used; nothing when it is sound."""
    found = []
    if STAMP + digest not in lock.splitlines():
        found.append("is stale: pyproject.toml asks for other dependencies. Run scripts/lock.")
    # An annotation is indented ("    # via aiohttp"); a hash belongs to the pin above it.
    for number, line in enumerate(lock.splitlines(), start=1):
        if "://" in line or line.startswith("-"):
            found.append(f"line {number} names a place to install from or an option: only pins and hashes are allowed.")
        elif line and not line.lstrip().startswith("#") and not (PIN.fullmatch(line) or HASH.fullmatch(line)):
            found.append(f"line {number} is neither an exact pin with hashes nor a hash: {line!r}.")
    return found


def pins(lock: str) -> dict[str, str]:
    """Return the locked version of each package."""
    return {pin["name"]: pin["version"] for line in lock.splitlines() if (pin := PIN.fullmatch(line))}


def differences(subset: str, dev: str) -> list[str]:
    """Say which packages would be tested in another version than the one that users get."""
    tested = pins(dev)
    return [
        f"has {name} {version}, but the tests run with {tested.get(name, 'none')}. Run scripts/lock."
        for name, version in pins(subset).items()
        if tested.get(name) != version
    ]


def main(action: str) -> int:
    """Stamp or check all locks in requirements/; return the exit code."""
    digest = dependency_digest(*((ROOT / folder / "pyproject.toml").read_text() for folder in DISTRIBUTIONS))
    paths = {name: ROOT / "requirements" / f"{name}.txt" for name in LOCKS}
    if action == "stamp":
        for path in paths.values():
            path.write_text(stamped(path.read_text(), digest))
        return 0
    locks = {name: path.read_text() for name, path in paths.items()}
    found = {name: problems(lock, digest) for name, lock in locks.items()}
    for name in SUBSETS:
        found[name] += differences(locks[name], locks["dev"])
    for name, sentences in found.items():
        for sentence in sentences:
            print(f"requirements/{name}.txt {sentence}", file=sys.stderr)
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    if sys.argv[1:] not in (["stamp"], ["check"]):
        sys.exit("usage: lockfile.py stamp|check")
    sys.exit(main(sys.argv[1]))
