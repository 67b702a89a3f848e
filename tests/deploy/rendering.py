"""Renders deploy/k8s with kustomize, as kubectl has it built in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

Manifest = dict[str, Any]

KUBERNETES: Final = Path(__file__).parents[2] / "deploy" / "k8s"
BUILT_IN_KUSTOMIZE_2: Final = 20
"""Up to kubectl 1.20 (that is Debian's) it had kustomize 2.0.3, which names some fields otherwise."""


def find_kubectl() -> Path:
    """kubectl of the machine, or the one that scripts/test put into .venv; skip, or fail in CI, without either."""
    found = shutil.which("kubectl", path=f"{os.environ.get('PATH', '')}:{Path('.venv/kubectl/usr/bin').resolve()}")
    if found is None:
        missing = "kubectl is not installed (Debian, Ubuntu: apt-get install kubernetes-client)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return Path(found)


def render(overlay: str, scratch: Path) -> list[Manifest]:
    """Return what `kubectl kustomize deploy/k8s/<overlay>` prints."""
    kubectl = find_kubectl()
    root = KUBERNETES
    if _minor_version(kubectl) <= BUILT_IN_KUSTOMIZE_2:
        root = scratch / "k8s"
        if not root.exists():
            shutil.copytree(KUBERNETES, root)
            for file in root.rglob("kustomization.yaml"):
                _for_kustomize_2(file)
    done = subprocess.run([kubectl, "kustomize", root / overlay], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def _minor_version(kubectl: Path) -> int:
    said = subprocess.run([kubectl, "version", "--client"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v1\.(\d+)|Minor:\"(\d+)", said)
    assert found, said
    return int(found[1] or found[2])


def _for_kustomize_2(file: Path) -> None:
    written: Manifest = yaml.safe_load(file.read_text())
    resources = written.pop("resources")
    written["bases"] = [one for one in resources if (file.parent / one).is_dir()]
    written["resources"] = [one for one in resources if not (file.parent / one).is_dir()]
    written["patchesStrategicMerge"] = [patch["path"] for patch in written.pop("patches", [])]
    file.write_text(yaml.safe_dump(written))
