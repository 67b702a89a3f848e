"""The time of day of a service, which can be stepped while it runs: by libfaketime, for which see Debian's package.

Only `gettimeofday` and its kin are wrong then; the monotonic clock goes on, as it does on a machine whose time of day
was set. The C library stands in front of jemalloc, with whose `malloc` libfaketime would wait for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PACKAGE: Final = "libfaketime"
_PLACES: Final = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/lib64/faketime", "/usr/local/lib/faketime")
_NAME: Final = "libfaketime.so.1"
MISSING: Final = f"{_NAME} is not installed (Debian, Ubuntu: apt-get install {_PACKAGE})"
_LOOKS_AGAIN: Final = 1
"""The seconds after which a process notices that its clock was stepped, as long as it does not look each time."""


def library() -> Path | None:
    """The path of libfaketime; None when it is not installed."""
    found = (one for place in _PLACES for one in Path("/").glob(f"{place.removeprefix('/')}/{_NAME}"))
    return next(found, None)


class SteppedClock:
    """A clock that is right until it is stepped. FileNotFoundError without libfaketime."""

    def __init__(self, file: Path, *, at_once: bool = False) -> None:
        """`file` says by how much the clock is wrong.

        `at_once`: whether a process sees a step with its next look at the clock, for which it reads the file each time,
        and not within a second.
        """
        found = library()
        if found is None:
            raise FileNotFoundError(MISSING)
        self._library = found
        self._file = file
        self._looks = {"FAKETIME_NO_CACHE": "1"} if at_once else {"FAKETIME_CACHE_DURATION": str(_LOOKS_AGAIN)}
        self._seconds = 0
        self.right()

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment that gives a process this clock."""
        return {
            "LD_PRELOAD": f"{self._library} libc.so.6",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            **self._looks,
        }

    def step(self, seconds: int) -> None:
        """Go so many seconds forward, or back."""
        self._seconds += seconds
        self._write()

    def right(self) -> None:
        """Be right again."""
        self._seconds = 0
        self._write()

    def _write(self) -> None:
        # In one step: whoever reads must not find half a number.
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{self._seconds:+d}\n", "ascii")
        fresh.replace(self._file)
