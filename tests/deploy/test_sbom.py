"""scripts/sbom: everything that the lock of the image has, in a document that is valid."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parents[2]
NOTE = "Package: zlib1g\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:1.2.13.dfsg-1\n"


def test_it_has_every_package_of_the_image_and_debians_too(tmp_path: Path) -> None:
    printed = subprocess.run(["scripts/sbom"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (tmp_path / "sbom.json").write_text(printed)
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian" / "zlib1g").write_text(NOTE)
    whole = subprocess.run(
        [sys.executable, "scripts/sbom_debian.py", tmp_path / "sbom.json", tmp_path / "debian"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    locked = re.findall(r"^([a-z0-9-]+)==(\S+)(?! ; sys_platform == 'win32')", _linux_lock(), re.MULTILINE)
    components = {(one["name"], one["version"]) for one in json.loads(whole)["components"]}
    assert len(locked) > 40
    assert set(locked) <= components
    assert ("preact", "11.2.0") in components
    assert "axe-core" not in whole  # only tests have it
    assert ("zlib1g", "1:1.2.13.dfsg-1") in components
    assert "pkg:deb/debian/zlib1g@1%3A1.2.13.dfsg-1?arch=amd64" in whole
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(whole) is None


def _linux_lock() -> str:
    lines = (ROOT / "requirements" / "image.txt").read_text().splitlines()
    return "\n".join(line for line in lines if "== 'win32'" not in line)
