"""The audit of one node as one life: put together from the settings, or absent."""

from __future__ import annotations

from dataclasses import dataclass

from app.access.plane import AccessPlane
from app.audit.reader import AuditReader
from app.audit.recorder import Audit
from app.audit.retention import Retention
from app.audit.writer import AuditWriter
from app.kernel import Kernel
from app.plane import Plane
from app.runtime.services import Service
from app.store.directory import AccessDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlane:
    """The recorder and the reader of the audit on a node with an access directory."""

    recorder: Audit | None
    """None if nothing is recorded; the lines that are there can still be read."""
    reader: AuditReader
    plane: Plane
    """It begins before all others, and so ends after them."""


def open_audit(kernel: Kernel, access: AccessPlane | None) -> AuditPlane | None:
    """The plane on a node with an access directory; nothing is written yet."""
    if access is None:
        return None
    directory = access.directory
    keep, recorder = kernel.settings.audit_keep, _recorder(kernel, access, directory)
    # What is not written is no reason to take no commands, unless that is asked for.
    writing = [] if recorder is None else [Service("audit", recorder.run, close=recorder.close, fills=recorder.fills)]
    removing = None if keep is None else Retention(directory.audit, kernel.clock, keep)
    return AuditPlane(
        recorder=recorder,
        reader=AuditReader(directory.audit, access.authority, access.administration),
        plane=Plane(
            name="audit",
            services=[
                Service("directory", close=directory.close),
                *writing,
                *([] if removing is None else [Service("audit retention", removing.run)]),
            ],
            observers=[] if recorder is None else [recorder],
        ),
    )


def _recorder(kernel: Kernel, access: AccessPlane, directory: AccessDirectory) -> Audit | None:
    settings = kernel.settings
    if settings.audit == "off":
        return None
    recorder = Audit(
        AuditWriter(directory.audit, kernel.counters, settings.audit_dir),
        kernel.clock,
        kernel.counters,
        commands=settings.audit == "commands",
        required=settings.audit_required,
    )
    writer = f"{kernel.info.node_id}/{kernel.info.incarnation}"
    recorder.begin(writer, access.authority.who, access.authority.tenant_of)
    return recorder
