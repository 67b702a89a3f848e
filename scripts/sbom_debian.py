"""Adds Debian packages to an SBOM: `sbom_debian.py SBOM FOLDER`, with dpkg's notes on them in FOLDER; prints it."""

from __future__ import annotations

import json
import sys
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote


def component(note: str) -> dict[str, Any]:
    """What dpkg says about a package, in CycloneDX."""
    fields = HeaderParser().parsestr(note)
    name, version = fields["Package"], fields["Version"]
    purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={fields['Architecture']}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def main(sbom: Path, folder: Path) -> None:
    """Print the SBOM with the packages."""
    document = json.loads(sbom.read_text())
    notes = sorted(folder.iterdir()) if folder.is_dir() else []
    document["components"] += [component(note.read_text()) for note in notes]
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
