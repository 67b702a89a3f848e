"""Copies what a node needs of the base image, and nothing else: `rootfs.py TARGET FOLDER…`.

That is the interpreter with its standard library, the shared libraries that it and the extensions in FOLDER… are linked
with, the authorities of TLS, and Debian's notes on the packages that these files belong to, for scanners and for the
licences. There is no shell and no package manager in it: less to attack, less to report, 70 MB less to send around.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

UNUSED = (
    "__pycache__",
    "config-3*",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tkinter",
    "turtledemo",
)
SYSTEM = ("/etc/ld.so.cache", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/openssl.cnf", "/usr/lib/ssl")
NAMES = {
    "etc/passwd": "root:x:0:0:root:/:/nonexistent\nhoming:x:10001:10001:Homing:/tmp:/nonexistent\n",
    "etc/group": "root:x:0:\nhoming:x:10001:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def libraries_of(files: Iterable[Path]) -> set[Path]:
    """The shared libraries that these programs and libraries are linked with, the loader included."""
    said = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False).stdout
    return {Path(found) for found in re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", said, re.MULTILINE)}


def shared_objects(folders: Iterable[Path]) -> Iterator[Path]:
    """All libraries below these folders."""
    for folder in folders:
        yield from (path for path in folder.rglob("*.so*") if path.is_file())


class Root:
    """A root file system in the making."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.copied: list[Path] = []

    def add(self, source: Path) -> None:
        """Copy a file or a folder to where it stands, with what links on the way lead to."""
        resolved = source.parent.resolve() / source.name
        if source.parent != resolved.parent:
            self._link_parents(source)
        target = self._target / resolved.relative_to("/")
        if target.exists() or target.is_symlink():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if resolved.is_symlink():
            target.symlink_to(resolved.readlink())
            self.add(resolved.parent / resolved.readlink())
        elif resolved.is_dir():
            shutil.copytree(resolved, target, symlinks=True, ignore=shutil.ignore_patterns(*UNUSED))
        else:
            shutil.copy2(resolved, target)
        self.copied.append(resolved)

    def _link_parents(self, source: Path) -> None:
        """Debian's /lib is a link to /usr/lib."""
        for parent in reversed(source.parents):
            link = self._target / parent.relative_to("/")
            if parent.is_symlink() and not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(parent.readlink())

    def note_packages(self) -> None:
        """Leave Debian's notes on the packages that the copied files belong to."""
        said = subprocess.run(
            ["dpkg", "-S", *map(str, self.copied)], capture_output=True, text=True, check=False
        ).stdout
        owners = {name.strip() for line in said.splitlines() for name in line.split(": ")[0].split(",")}
        for owner in sorted(owners):
            name = owner.partition(":")[0]
            status = subprocess.run(["dpkg", "-s", owner], capture_output=True, text=True, check=True).stdout
            note = self._target / "var/lib/dpkg/status.d" / name
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(status)
            licence = Path("/usr/share/doc", name, "copyright")
            if licence.is_file():
                self.add(licence.resolve())


def main(target: Path, folders: list[Path]) -> None:
    """Do all of it."""
    root = Root(target)
    interpreter = Path(sys.executable).resolve()
    standard_library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    dynamic = [interpreter, *shared_objects([standard_library / "lib-dynload", *folders])]
    bundled = tuple(str(folder) for folder in folders)
    for path in (interpreter, standard_library, *map(Path, SYSTEM), *sorted(libraries_of(dynamic))):
        if path.exists() and not str(path).startswith(bundled):
            root.add(path)
    for name, text in NAMES.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)
    (target / "tmp").mkdir(mode=0o1777)
    (target / "tmp").chmod(0o1777)
    root.note_packages()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]])
