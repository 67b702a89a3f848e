"""Each file of errors draws what it has, and the door of the package has them all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pytest

from app.core import errors

ROOT = Path(__file__).parents[3]
SUBJECTS = [import_module(f"{errors.__name__}.{found.name}") for found in iter_modules(errors.__path__)]
_DRAWN = re.compile(r"^(?P<lead>[│├└─ ]*)(?P<name>\w+Error)\b", re.MULTILINE)


def of_file(subject: ModuleType) -> dict[str, type[errors.HomingError]]:
    """Return the errors that a file defines, by name."""
    return {
        name: found
        for name, found in vars(subject).items()
        if isinstance(found, type) and issubclass(found, errors.HomingError) and found.__module__ == subject.__name__
    }


def drawn(subject: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield each error that the docstring of a file draws, with the one that it hangs from."""
    branch = ["HomingError"]
    for line in _DRAWN.finditer(subject.__doc__ or ""):
        del branch[len(line["lead"]) // len("├── ") + 1 :]
        yield line["name"], branch[-1]
        branch.append(line["name"])


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.__name__.rpartition(".")[2])
def test_a_file_of_errors_draws_what_is_derived_from_what(subject: ModuleType) -> None:
    found = {name: error.__base__.__name__ for name, error in of_file(subject).items() if error.__base__}

    assert len(found) == 1 or dict(drawn(subject)) == found


def test_every_error_can_be_imported_from_the_package() -> None:
    found = {name: error for subject in SUBJECTS for name, error in of_file(subject).items()}

    assert {name: getattr(errors, name, None) for name in found} == found
    assert found.keys() == set(errors.__all__) - {"without_values"}


def test_the_package_names_every_file() -> None:
    files = {subject.__name__.rpartition(".")[2] for subject in SUBJECTS}

    assert set(re.findall(r"^(\w+)  ", errors.__doc__ or "", re.MULTILINE)) == files - {"base"}


def test_nobody_imports_the_files() -> None:
    door = ROOT / "app" / "core" / "errors"
    modules = [*(ROOT / "app").rglob("*.py"), *(ROOT / "tools").rglob("homing_*/**/*.py")]
    found = [
        str(one.relative_to(ROOT))
        for one in modules
        if one.parent != door and f"{errors.__name__}." in one.read_text(encoding="utf-8")
    ]

    assert found == [], f"import them from {errors.__name__}"
