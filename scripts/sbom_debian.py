"""Adds to an SBOM what no lock names: `sbom_debian.py SBOM FOLDER` prints it.

These are Debian packages, with dpkg's notes on them in FOLDER, and the npm packages of which files lie in `app`.
"""

from __future__ import annotations

import json
import sys
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote


def component(note: str) -> dict[str, Any]:
    """The component that dpkg's words about a package make, in CycloneDX."""
    fields = HeaderParser().parsestr(note)
    name, version = fields["Package"], fields["Version"]
    purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={fields['Architecture']}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def vendored() -> list[dict[str, Any]]:
    """The npm packages of `vendored.json` that a node serves files of, in CycloneDX."""
    listed = json.loads(Path(__file__).with_name("vendored.json").read_text("utf-8"))
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:npm/{one['name']}@{one['version']}",
            "name": one["name"],
            "version": one["version"],
            "licenses": [{"license": {"id": one["licence"]}}],
            "purl": f"pkg:npm/{one['name']}@{one['version']}",
        }
        for one in listed
        if any(file["to"].startswith("app/") for file in one["files"].values())
    ]


def main(sbom: Path, folder: Path) -> None:
    """Print the SBOM with these packages."""
    document = json.loads(sbom.read_text())
    notes = sorted(folder.iterdir()) if folder.is_dir() else []
    there = {one["bom-ref"] for one in document["components"]}
    found = [*vendored(), *(component(note.read_text()) for note in notes)]
    document["components"] += [one for one in found if one["bom-ref"] not in there]
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
