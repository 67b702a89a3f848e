"""`homing backup` and `homing restore`: a folder of `homing up`, copied while it is in use or not, and made anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.output import err, out, tell, written
from app.cli.up import FOLDER

if TYPE_CHECKING:
    from app.store.backup.manifest import BackupManifest

_Target = Annotated[Path, typer.Argument(metavar="DIR", help="The new folder of the backup.")]
_Backup = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the backup.")]
_Data = Annotated[
    Path, typer.Option("--data", metavar="DIR", envvar="HOMING_DATA", help="The folder of homing up, in use or not.")
]
_New = Annotated[
    Path, typer.Option("--data", metavar="NEW", help="The folder to make. It may be there if it is empty.")
]
_Secrets = Annotated[bool, typer.Option("--secrets", help="Copy the key files in secrets/ as well.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def backup(target: _Target, *, data: _Data = FOLDER, secrets: _Secrets = False, as_json: _Json = False) -> None:
    """Copy the folder of homing up to a new one: store, access directory, layout, and a manifest with checksums.

    A node may use the folder meanwhile: it goes on, and the copy is of one moment. A backup that fails leaves nothing.
    Exit code: 0 done, 1 it cannot be done now, 2 it cannot be done.
    """
    from app.runtime.system import SystemClock
    from app.store.backup.backups import back_up

    manifest = back_up(data.absolute(), target, secrets=secrets, wall=SystemClock().wall())
    _print(manifest, target, as_json=as_json)
    if not secrets and not as_json:
        tell(err, "Secrets are not in it: keep secrets/ of the folder elsewhere, or take a backup with --secrets.")


def restore(source: _Backup, *, data: _New, as_json: _Json = False) -> None:
    """Check a backup and make a new folder for homing up from it.

    Messages that were on the way to clients are sent again, and QoS 2 is at-least-once across a restore. Exit code: 0
    done, 2 the backup is damaged, or the folder is not new.
    """
    from app.store.backup.backups import restore as restore_backup

    manifest = restore_backup(source, data)
    _print(manifest, data, as_json=as_json)
    if not as_json:
        tell(err, f"It is of {manifest.made_at}. Start it with: homing up --data {data}")


def _print(manifest: BackupManifest, folder: Path, *, as_json: bool) -> None:
    facts = {
        "folder": str(folder.absolute()),
        "made_at": manifest.made_at,
        "written_by": manifest.written_by,
        "files": len(manifest.files),
        "bytes": manifest.size,
    }
    if as_json:
        out.line(written(facts))
    else:
        tell(out, f"{folder}: {len(manifest.files)} files, {manifest.size} bytes")
