"""Makes a distribution that was copied known by its entry points: `verbs.py PYPROJECT SITE_PACKAGES`."""

import sys
import tomllib
from pathlib import Path

pyproject, site = map(Path, sys.argv[1:])
project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
folder = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
folder.mkdir()
metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
(folder / "METADATA").write_text(metadata, encoding="utf-8")
groups = [
    f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in points.items())
    for group, points in project["entry-points"].items()
]
(folder / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
