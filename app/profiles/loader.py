"""Reads device profiles from TOML files and refuses wrong ones: all that is wrong at once, with file, line and key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path as FilePath
from typing import Final

from pydantic import ValidationError

from app.core.errors import ConfigurationError
from app.core.profile import DeviceProfile
from app.profiles.faults import faults_of, listed
from app.profiles.fields import ReadFile, no_files
from app.profiles.positions import lines_of
from app.profiles.values import Values, read_values, with_values
from app.profiles.whole import TABLES, checked

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
    try:
        return checked(with_values(tomllib.loads(text), values or {}), read_file).build()
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{source}: not TOML: {error}") from None
    except ValidationError as error:
        raise ConfigurationError(listed(source, faults_of(error, TABLES), lines_of(text))) from None


def load_profiles(
    folder: FilePath | None = None, shipped: Sequence[str] = BY_DEFAULT, values: FilePath | None = None
) -> Mapping[str, DeviceProfile]:
    """The shipped profiles of these names (`all` is every one) and those in `folder`, by name.

    `values` is a file with a table for each profile that is given values. One in the folder replaces a shipped one of
    its name. ConfigurationError tells of all files with faults, of two that have the same name, and of names that
    are none of shipped profiles.
    """
    files = {entry.name.removesuffix(".toml"): entry for entry in _shipped()}
    strangers = sorted(set(shipped) - files.keys() - {EVERY})
    if strangers:
        known = ", ".join((*sorted(files), EVERY))
        raise ConfigurationError(f"{VARIABLE}: {', '.join(strangers)}: no such profile is shipped; allowed: {known}")
    chosen = sorted(files) if EVERY in shipped else sorted(set(shipped))
    given = read_values(values)
    beside = _beside(_FOLDER)
    found = {name: parse_profile(files[name].read_text("utf-8"), f"{name}.toml", given, beside) for name in chosen}
    found |= _own_profiles(folder, given)
    if given.keys() - found.keys():
        unknown = ", ".join(sorted(given.keys() - found.keys()))
        raise ConfigurationError(f"{values}: {unknown}: no such profile is spoken; allowed: {', '.join(sorted(found))}")
    return found


def _beside(folder: Traversable) -> ReadFile:
    def read(name: str) -> bytes:
        try:
            return (folder / name).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{name}: cannot be read: {error.strerror or error}") from None

    return read


_FOLDER: Final[Traversable] = resources.files("app.profiles")


def _shipped() -> Iterable[Traversable]:
    return (entry for entry in _FOLDER.iterdir() if entry.name.endswith(".toml"))


def _own_profiles(folder: FilePath | None, values: Values) -> dict[str, DeviceProfile]:
    found: dict[str, DeviceProfile] = {}
    origin: dict[str, FilePath] = {}
    refused = []
    for file in _files(folder):
        try:
            profile = read_profile(file, values)
        except ConfigurationError as error:
            refused.append(str(error))
            continue
        if profile.name in origin:
            refused.append(
                f"{file}: name: {profile.name!r} is the name of {origin[profile.name]}, too; allowed: one file"
            )
        found[profile.name] = profile
        origin[profile.name] = file
    if refused:
        raise ConfigurationError("\n".join(refused))
    return found


def read_profile(file: FilePath, values: Values | None = None) -> DeviceProfile:
    """The profile of one file; ConfigurationError as from `parse_profile`, or when it cannot be read."""
    try:
        return parse_profile(file.read_text("utf-8"), str(file), values, _beside(file.parent))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {error}") from None


def _files(folder: FilePath | None) -> Iterable[FilePath]:
    if folder is None:
        return ()
    if not folder.is_dir():
        raise ConfigurationError(f"{folder}: no such folder of profiles")
    return sorted(folder.glob("*.toml"))
