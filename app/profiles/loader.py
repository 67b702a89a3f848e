"""Reads device profiles from TOML files and refuses wrong ones: all that is wrong at once, with file, line and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path as FilePath
from typing import Final

from pydantic import ValidationError

from app.core.errors import ConfigurationError
from app.core.profiles.profile import DeviceProfile
from app.profiles.language.faults import faults_of, listed
from app.profiles.language.fields import ReadFile, no_files
from app.profiles.language.positions import lines_of
from app.profiles.language.values import Values, read_values, with_values
from app.profiles.language.whole import TABLES, ProfileTable, checked
from app.profiles.tools.hints import hints

VARIABLE: Final = "HOMING_PROFILES_SHIPPED"
BY_DEFAULT: Final = ("homing", "dji")
"""The shipped profiles that a node speaks without being told."""
EVERY: Final = "all"


def parse_profile(
    text: str, source: str, values: Values | None = None, read_file: ReadFile = no_files
) -> DeviceProfile:
    """Build the profile from TOML text.

    ConfigurationError has a line for each fault: `source`, line, key, what is wrong with it, and what is allowed.
    """
    return _table_of(text, source, values, read_file).build()


def _table_of(text: str, source: str, values: Values | None, read_file: ReadFile) -> ProfileTable:
    try:
        return checked(with_values(tomllib.loads(text), values or {}), read_file)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(_no_toml(source, text, str(error))) from None
    except ValidationError as error:
        raise ConfigurationError(listed(source, faults_of(error, TABLES), lines_of(text))) from None


def _no_toml(source: str, text: str, said: str) -> str:
    what, _, where = said.rpartition(" (at ")
    found = re.fullmatch(r"line (\d+), column (\d+)\)", where)
    line, column = (found[1], f" at column {found[2]}") if found else (str(text.count("\n") + 1), " at its end")
    return f"{source}:{line}: is no TOML{column}: {what or said}"


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that is no profile: `name` is the one that it gives itself, or its file's; `faults` are sentences."""

    file: FilePath
    name: str
    faults: str

    @property
    def first(self) -> str:
        """The first of its faults."""
        return self.faults.partition("\n")[0]


def load_profiles(
    folder: FilePath | None = None, shipped: Sequence[str] = BY_DEFAULT, values: FilePath | None = None
) -> Mapping[str, DeviceProfile]:
    """The shipped profiles of these names (`all` is every one) and those in `folder`, by name.

    `values` is a file with a table for each profile that is given values. One in the folder replaces a shipped one of
    its name. ConfigurationError tells of all files with faults, of two that have the same name, and of names that
    are none of shipped profiles.
    """
    found, refused = load_what_can_be(folder, shipped, values)
    if refused:
        raise ConfigurationError("\n".join(one.faults for one in refused))
    return found


def load_what_can_be(
    folder: FilePath | None = None, shipped: Sequence[str] = BY_DEFAULT, values: FilePath | None = None
) -> tuple[Mapping[str, DeviceProfile], Sequence[Refused]]:
    """As `load_profiles`, without the files in `folder` that have faults.

    A shipped profile that one of those was to replace is not spoken either: devices would be told other things.
    """
    names = shipped_names()
    strangers = sorted({*shipped}.difference(names, {EVERY}))
    if strangers:
        known = ", ".join((*names, EVERY))
        raise ConfigurationError(f"{VARIABLE}: {', '.join(strangers)}: no such profile is shipped; allowed: {known}")
    chosen = names if EVERY in shipped else sorted(set(shipped))
    given = read_values(values)
    found = {name: _with_values(name, given) if name in given else _as_shipped(name) for name in chosen}
    own, refused = _own_profiles(folder, given)
    for one in refused:
        found.pop(one.name, None)
    found |= own
    if given.keys() - found.keys() - {one.name for one in refused}:
        unknown = ", ".join(sorted(given.keys() - found.keys()))
        raise ConfigurationError(f"{values}: {unknown}: no such profile is spoken; allowed: {', '.join(sorted(found))}")
    return found, refused


def _beside(folder: Traversable) -> ReadFile:
    def read(name: str) -> bytes:
        try:
            return (folder / name).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{name}: cannot be read: {error.strerror or error}") from None

    return read


_FOLDER: Final[Traversable] = resources.files("app.profiles.shipped")


def _shipped() -> Iterable[Traversable]:
    return (entry for entry in _FOLDER.iterdir() if entry.name.endswith(".toml"))


@cache  # nobody changes it, and a program may start many nodes
def _as_shipped(name: str) -> DeviceProfile:
    return _with_values(name, {})


def _with_values(name: str, values: Values) -> DeviceProfile:
    file = f"{name}.toml"
    return parse_profile((_FOLDER / file).read_text("utf-8"), file, values, _beside(_FOLDER))


def _own_profiles(folder: FilePath | None, values: Values) -> tuple[dict[str, DeviceProfile], list[Refused]]:
    found: dict[str, DeviceProfile] = {}
    origin: dict[str, FilePath] = {}
    refused = []
    for file in _files(folder):
        try:
            profile = read_profile(file, values)
        except ConfigurationError as error:
            refused.append(Refused(file, _name_in(file), str(error)))
            continue
        if profile.name in origin:
            fault = f"{file}: name: {profile.name!r} is the name of {origin[profile.name]}, too; allowed: one file"
            refused.append(Refused(file, file.stem, fault))
            continue
        found[profile.name] = profile
        origin[profile.name] = file
    return found, refused


def _name_in(file: FilePath) -> str:
    try:
        name = tomllib.loads(file.read_text("utf-8")).get("name")
    except (OSError, ValueError):
        name = None
    return name if isinstance(name, str) else file.stem


def read_profile(file: FilePath, values: Values | None = None) -> DeviceProfile:
    """The profile of one file; ConfigurationError as from `parse_profile`, or when it cannot be read."""
    return parse_profile(_text_of(file), str(file), values, _beside(file.parent))


def hints_in(file: FilePath) -> Sequence[str]:
    """Return what a file says in vain, a sentence each with line and key; ConfigurationError as from `read_profile`."""
    return hints_of(_text_of(file), str(file), _beside(file.parent))


def hints_of(text: str, source: str, read_file: ReadFile = no_files) -> Sequence[str]:
    """Return what a profile says in vain, as `hints_in` does; ConfigurationError as from `parse_profile`."""
    found = tuple(hints(_table_of(text, source, None, read_file)))
    return listed(source, found, lines_of(text)).splitlines()


def shipped_file(name: str) -> FilePath | None:
    """The file of a shipped profile; None when none has this name."""
    return next((FilePath(str(one)) for one in _shipped() if one.name == f"{name}.toml"), None)


def shipped_names() -> Sequence[str]:
    """The names of all shipped profiles."""
    return sorted(one.name.removesuffix(".toml") for one in _shipped())


def _text_of(file: FilePath) -> str:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{file}:{line}: is no UTF-8, which TOML is written in: {error.reason}") from None


def _files(folder: FilePath | None) -> Iterable[FilePath]:
    if folder is None:
        return ()
    if not folder.is_dir():
        raise ConfigurationError(f"{folder}: no such folder of profiles")
    return sorted(folder.glob("*.toml"))
