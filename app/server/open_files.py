"""The number of files and connections that this process may have open."""

from __future__ import annotations

import resource


def allow_open_files(wanted: int) -> int:
    """Raise the limit of open files as far as the system lets us, if it is lower than `wanted`; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed
