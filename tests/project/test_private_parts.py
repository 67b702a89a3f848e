"""Private parts of libraries: which ones are used, and that no later version of such a library is installed unseen."""

from __future__ import annotations

import ast
import pkgutil
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.project.test_imports import ROOT, imported_names

PRIVATE = {
    "aiosqlite": {"aiosqlite.core._connection_worker_thread"},
    "paho-mqtt": {"paho.mqtt.client.Client._create_socket"},  # overridden, in app/mqtt/paho_control.py
    "uvicorn": {
        "uvicorn.protocols.http.flow_control.HIGH_WATER_LIMIT",
        "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol",
        "uvicorn.protocols.http.httptools_impl.RequestResponseCycle",
        "uvicorn.protocols.http.httptools_impl.STATUS_LINE",
    },
}
"""The private parts that may be used, by distribution. Other attributes with an underscore are refused by ruff
(SLF001)."""
UNDOCUMENTED = ("uvicorn.protocols.",)
"""Public by name alone."""
OURS = ("app.", "homing_client.")


def is_private(name: str) -> bool:
    if name.startswith((*OURS, "__future__")):
        return False
    return name.startswith(UNDOCUMENTED) or any(part.startswith("_") for part in name.split("."))


def test_no_other_private_part_of_a_library_is_imported() -> None:
    used = {
        name
        for folder in (ROOT / "app", ROOT / "client" / "homing_client")
        for path in folder.rglob("*.py")
        for _, name in imported_names(ast.parse(path.read_text("utf-8")))
        if is_private(name)
    }
    assert used == set().union(*PRIVATE.values()) - PRIVATE["paho-mqtt"]


@pytest.mark.parametrize("distribution", PRIVATE)
def test_what_is_private_is_there_and_its_library_has_an_upper_bound(distribution: str) -> None:
    for name in PRIVATE[distribution]:
        assert pkgutil.resolve_name(name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    texts = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    asked = [one for one in map(Requirement, texts) if one.name == distribution]
    assert asked
    assert all(any(bound.operator == "<" for bound in one.specifier) for one in asked)
