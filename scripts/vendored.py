"""Takes files of others from npm: `vendored.py write` fetches, checks and puts them into their places.

`vendored.json` says what is taken: the digest of each package as its registry gives it, and of each file as it lies
here. Source maps are not taken, and a bare import of preact becomes one of the file beside it.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
LIST: Final = Path(__file__).with_name("vendored.json")
_MAP: Final = re.compile(rb"\n//# sourceMappingURL=\S+\s*\Z")
_BARE: Final = b'from"preact"'


def packages() -> list[dict[str, Any]]:
    """The packages of which files are taken."""
    found: list[dict[str, Any]] = json.loads(LIST.read_text("utf-8"))
    return found


def differing() -> list[str]:
    """The files that are missing, or are not as they were taken."""
    return [
        file["to"]
        for one in packages()
        for file in one["files"].values()
        if not (ROOT / file["to"]).is_file() or _digest((ROOT / file["to"]).read_bytes()) != file["sha256"]
    ]


def write() -> None:
    """Fetch all packages, and put their files into their places. SystemExit when one is not what it should be."""
    listed = packages()
    with tempfile.TemporaryDirectory() as folder:
        for one in listed:
            asked = f"{one['name']}@{one['version']}"
            done = subprocess.run(
                ["npm", "pack", "--silent", "--ignore-scripts", asked],
                cwd=folder,
                check=True,
                capture_output=True,
                text=True,
            )
            packed = Path(folder) / done.stdout.split()[-1]
            found = "sha512-" + b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
            if found != one["integrity"]:
                sys.exit(f"{asked} has the digest {found}, and not that of {LIST.name}")
            with tarfile.open(packed) as archive:
                for name, file in one["files"].items():
                    member = archive.extractfile(f"package/{name}")
                    if member is None:
                        sys.exit(f"{asked} has no file {name}")
                    data = _MAP.sub(b"\n", member.read()).replace(_BARE, b'from"./preact.js"')
                    (ROOT / file["to"]).write_bytes(data)
                    file["sha256"] = _digest(data)
    LIST.write_text(json.dumps(listed, indent=2) + "\n", "utf-8")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    write()
