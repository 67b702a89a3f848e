"""Mistakes that are planted into the product, to see that tests find each: the kit of all `mutants.py` of the rig."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_BEFORE: list[dict[Any, dict[str, Any]]] = []
"""The members of classes as they were, for each block at whose end they are so again."""


def product_class(path: str) -> Any:
    """Return a class of the product. Untyped: what is planted does not fit, on purpose."""
    module, _, name = path.rpartition(".")
    found = getattr(import_module(module), name)
    for before in _BEFORE:
        before.setdefault(found, dict(vars(found)))
    return found


@contextmanager
def taken_back() -> Iterator[None]:
    """Take what is planted into classes in this block out again at its end."""
    before: dict[Any, dict[str, Any]] = {}
    _BEFORE.append(before)
    try:
        yield
    finally:
        _BEFORE.remove(before)
        for one, was in before.items():
            for name, value in tuple(vars(one).items()):
                if name not in was:
                    delattr(one, name)
                elif was[name] is not value:
                    setattr(one, name, was[name])


def change(script: str, old: str, new: str) -> None:
    """Plant a mistake into a Lua script, before it is loaded."""
    source = (resources.files("app.store.redis") / "lua" / f"{script}.lua").read_text()
    if source.count(old) != 1:
        raise LookupError(f"{script}.lua has {source.count(old)} times what the mutant is to change; needed is once")
    kind = product_class("app.store.redis.driver.combiner.Script")
    of = kind.of
    kind.of = lambda text, **more: of(text.replace(old, new), **more)


@dataclass(frozen=True, slots=True)
class TestedMutant:
    """A mistake that a test finds: `test` is the place of the test, below `tests`."""

    plant: Callable[[], None]
    test: str


def by_name(*mutants: TestedMutant) -> Mapping[str, TestedMutant]:
    """Return mutants by the names of what plants them."""
    return MappingProxyType({one.plant.__name__: one for one in mutants})


def plant_named(variable: str, mutants: Mapping[str, TestedMutant]) -> None:
    """Plant the mutant that a variable of the environment names, if it names one."""
    if name := os.environ.pop(variable, ""):
        mutants[name].plant()


def assert_found(plugin: str, variable: str, name: str, test: str, *, seconds: int) -> None:
    """Run a test with a mutant in a process of its own: it has to fail, or to take longer than so many seconds."""
    options = ["-q", "-x", f"--timeout={seconds}", "-p", plugin]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"tests/{test}"],
        cwd=ROOT,
        env={**os.environ, variable: name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == pytest.ExitCode.TESTS_FAILED, found.stdout
    assert "1 failed" in found.stdout, found.stdout
