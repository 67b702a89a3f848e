"""A simulated run as a file: all that decides it, so that it is the same run elsewhere, and after `plan_of` changed.

JSON Lines: a head with the version of the format, what made it, what was found and the plan; then a line for each
wish, each trouble and each event.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from homing_rig.simulation.broker import Quirks
from homing_rig.simulation.callers import Wish
from homing_rig.simulation.event_talk import Saying
from homing_rig.simulation.network import LAWS, PLACES
from homing_rig.simulation.plan import LONGEST, MOST_COMMANDS, MOST_TROUBLES, Plan, Trouble, TroubleKind
from homing_rig.simulation.suite import Outcome, SimulationError

VERSION: Final = 1
MOST_BYTES: Final = 16 << 20
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayHead:
    """The first line."""

    homing_simulation: int
    homing: str
    python: str
    digest: str
    """The digest of the run; empty when the simulation itself failed."""
    found: tuple[str, ...]
    """Its breaches, in words, or how the simulation failed."""
    plan: Plan


@dataclass(frozen=True, slots=True)
class Replay:
    """The content of a file."""

    head: ReplayHead
    plan: Plan

    @property
    def made_by(self) -> str:
        """On what the digest was made."""
        return f"Homing {self.head.homing} on Python {self.head.python}"


_HEAD: Final = TypeAdapter(ReplayHead)
_WISH: Final = TypeAdapter(Wish)
_TROUBLE: Final = TypeAdapter(Trouble)
_SAYING: Final = TypeAdapter(Saying)


def write_replay(path: Path, plan: Plan, found: Outcome) -> None:
    """Write the file, in place of one that is there; SimulationError when it cannot be written."""
    head = ReplayHead(
        homing_simulation=VERSION,
        homing=version("homing"),
        python=platform.python_version(),
        digest=found.digest,
        found=found.breaches or ((found.failed,) if found.failed else ()),
        plan=replace(plan, wishes=(), troubles=(), sayings=()),
    )
    lines = [_HEAD.dump_json(head)]
    lines += [orjson.dumps({"wish": one}) for one in plan.wishes]
    lines += [orjson.dumps({"trouble": one}) for one in plan.troubles]
    lines += [orjson.dumps({"saying": one}) for one in plan.sayings]
    try:
        path.write_bytes(b"\n".join([*lines, b""]))
    except OSError as error:
        raise SimulationError(f"{path} cannot be written: {error.strerror}") from None


def read_replay(path: Path, *, most_bytes: int = MOST_BYTES) -> Replay:
    """Read what `write_replay` wrote; SimulationError names the line and says what is allowed there."""
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise SimulationError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > most_bytes:
        raise SimulationError(f"{path} has more than {most_bytes} bytes, which is the most for a simulated run")
    lines = content.splitlines()
    head = _head(lines[0] if lines else b"", path)
    wishes, troubles, sayings = list[Wish](), list[Trouble](), list[Saying]()
    for number, line in enumerate(lines[1:], 2):
        where = f"{path} line {number}"
        match _object(line, where):
            case {"wish": given, **rest} if not rest:
                wishes.append(_read(_WISH, given, Wish, where))
            case {"trouble": given, **rest} if not rest:
                troubles.append(_read_trouble(given, where))
            case {"saying": given, **rest} if not rest:
                sayings.append(_read(_SAYING, given, Saying, where))
            case _:
                raise SimulationError(f"{where}: needed is an object with one member: wish, trouble or saying")
    plan = replace(head.plan, wishes=tuple(wishes), troubles=tuple(troubles), sayings=tuple(sayings))
    _check(plan, path)
    return Replay(head, plan)


def _head(line: bytes, path: Path) -> ReplayHead:
    where = f"{path} line 1"
    given = _object(line, where)
    if given.get("homing_simulation") != VERSION:
        said = given.get("homing_simulation")
        raise SimulationError(f"{where}: homing_simulation is {said!a:.40}; this version reads {VERSION}")
    plan = given.get("plan")
    if isinstance(plan, dict):
        _check_known(plan, Plan, f"{where}: plan")
        _check_known(plan.get("quirks"), Quirks, f"{where}: plan.quirks")
    head = _read(_HEAD, given, ReplayHead, where)
    if head.plan.wishes or head.plan.troubles or head.plan.sayings:
        raise SimulationError(f"{where}: plan: each wish, trouble and saying needs a line of its own, below this one")
    return head


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        given = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise SimulationError(f"{where}: is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise SimulationError(f"{where}: is no JSON object")
    return given


def _read(adapter: TypeAdapter[_T], given: object, kind: type, where: str) -> _T:
    _check_known(given, kind, where)
    try:
        return adapter.validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise SimulationError(f"{where}: {place}: {first['msg']}") from None


def _check_known(given: object, kind: type, where: str) -> None:
    """SimulationError for a member that no such object has: what is misspelled would count as left out."""
    known = {one.name for one in fields(kind)}
    if isinstance(given, dict) and (unknown := sorted(given.keys() - known)):
        raise SimulationError(f"{where}: {unknown[0]!a:.40} is unknown; allowed: {', '.join(sorted(known))}")


def _read_trouble(given: object, where: str) -> Trouble:
    found = _read(_TROUBLE, given, Trouble, where)
    if not re.fullmatch(found.targets, found.target):
        raise SimulationError(f"{where}: {found.kind} of {found.target!a:.40}; allowed: {found.targets}")
    if found.kind is not TroubleKind.CLOCK and not 0 <= found.seconds <= LONGEST:
        raise SimulationError(f"{where}: {found.kind} for {found.seconds:g} seconds; allowed: 0 to {LONGEST:g}")
    return found


def _check(plan: Plan, path: Path) -> None:
    """Check what no type says."""
    if plan.laws.keys() != {*PLACES} or not {*plan.laws.values()} <= {*LAWS}:
        raise SimulationError(
            f"{path} line 1: plan.laws: needed is, for each of {', '.join(PLACES)}, one of {', '.join(LAWS)}"
        )
    for name, count, most in (
        ("wishes", len(plan.wishes), MOST_COMMANDS),
        ("troubles", len(plan.troubles), MOST_TROUBLES),
        ("sayings", len(plan.sayings), MOST_COMMANDS),
        ("nodes", plan.nodes, len(plan.offsets)),
    ):
        if count > most:
            raise SimulationError(f"{path}: {count} {name}; allowed are {most}")
    for name, numbers in (
        ("wishes", [one.number for one in plan.wishes]),
        ("sayings", [one.number for one in plan.sayings]),
    ):
        if len(set(numbers)) < len(numbers):
            raise SimulationError(f"{path}: two {name} have the same number; each needs its own")
