"""A run as a file: all inputs are in it, it is the same run elsewhere, and a file that is wrong is refused in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from homing_rig.simulation.plan import Trouble, TroubleKind, plan_of
from homing_rig.simulation.replay import read_replay, write_replay
from homing_rig.simulation.suite import Outcome, SimulationError, ran
from tests.rig.simulation.mutants import MUTANTS, planted
from tests.unit.cli.conftest import Homing

BROKEN = "index_outlives_its_record"
"""A mistake that one command shows."""


def test_a_file_has_the_whole_plan(tmp_path: Path) -> None:
    for seed in range(20):
        plan = replace(plan_of(seed, 20), stir=seed)
        write_replay(tmp_path / "run.jsonl", plan, Outcome(seed, "abc", ("I4 x: y",), 20, 0, 1))
        found = read_replay(tmp_path / "run.jsonl")
        assert found.plan == plan
        assert (found.head.digest, found.head.found) == ("abc", ("I4 x: y",))


def test_a_replay_is_the_same_run(tmp_path: Path, homing: Homing) -> None:
    file = tmp_path / "run.jsonl"
    plan = plan_of(7, 20)
    write_replay(file, plan, ran(plan))
    code, out, err = homing("replay", str(file))
    assert (code, err) == (0, "")
    assert out.startswith(f"{plan.summary}\n")
    assert out.endswith("nothing was found\n")


def test_another_run_than_that_on_file_is_told(tmp_path: Path, homing: Homing) -> None:
    file = tmp_path / "run.jsonl"
    plan = plan_of(7, 20)
    write_replay(file, plan, replace(ran(plan), digest="0123456789abcdef"))
    code, _, err = homing("replay", str(file))
    assert code == 0
    assert err.startswith("this is not the run on file: Homing 0.")


def test_what_a_file_says_of_itself_moves_no_cursor(tmp_path: Path, homing: Homing) -> None:
    file = tmp_path / "run.jsonl"
    write_replay(file, plan_of(7, 1), Outcome(7, "", (), 1, 0, 0))
    head, *others = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([orjson.dumps(orjson.loads(head) | {"homing": "1\n\x1b[2J"}), *others]))
    code, _, err = homing("replay", str(file))
    assert code == 0
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_a_trouble_that_lasts_longer_than_a_cluster_needs_to_come_to_rest_is_waited_for(tmp_path: Path) -> None:
    """It counted as unrest that a node was away for as long as the file says."""
    file = tmp_path / "run.jsonl"
    plan = replace(plan_of(0, 4), nodes=2, troubles=(Trouble(1.0, TroubleKind.KILL, "n1", 60.0),))
    write_replay(file, plan, Outcome(0, "", (), 4, 1, 0))
    assert ran(read_replay(file).plan).breaches == ()


def test_a_finding_is_found_again_traced_and_shrunk(tmp_path: Path, homing: Homing) -> None:
    file, plan = tmp_path / "run.jsonl", plan_of(7, 8)
    with planted(MUTANTS[BROKEN]):
        found = ran(plan)
        assert found.breaches
        write_replay(file, plan, found)
        code, out, err = homing("replay", str(file), "--trace", "n1/1", "--until", "3")
        assert (code, err) == (1, "")
        assert "  n1/1         info: " in out
        assert found.breaches[0] in out
        assert max(float(line.split()[0]) for line in out.splitlines() if " n1/1 " in line) <= 3

        code, out, err = homing("replay", str(file), "--shrink", "--runs", "30")
        assert (code, err) == (1, "")
        assert out.startswith("I8 keys_left: 1 node, 1 command, 0 faults (before: ")
        small = read_replay(tmp_path / "run-small.jsonl")
        assert ran(small.plan).digest == small.head.digest
    assert ran(small.plan).breaches == ()


def changed(line: int, change: Callable[[dict[str, object]], object]) -> Callable[[list[bytes]], None]:
    def mend(lines: list[bytes]) -> None:
        given = orjson.loads(lines[line])
        change(given)
        lines[line] = orjson.dumps(given)

    return mend


def of_plan(**facts: object) -> Callable[[list[bytes]], None]:
    return changed(0, lambda head: head["plan"].update(facts))  # type: ignore[attr-defined]


def of_wish(**facts: object) -> Callable[[list[bytes]], None]:
    return changed(1, lambda line: line["wish"].update(facts))  # type: ignore[attr-defined]


def of_trouble(**facts: object) -> Callable[[list[bytes]], None]:
    return changed(-1, lambda line: line["trouble"].update(facts))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (list.clear, "line 1: is no JSON"),
        (lambda lines: lines.insert(1, b"[]"), "line 2: is no JSON object"),
        (lambda lines: lines.append(b'{"wish": '), "line 25: is no JSON"),
        (lambda lines: lines.append(b'{"wish": {}, "trouble": {}}'), "line 25: needed is an object with one member"),
        (lambda lines: lines.append(lines[1]), "two wishes have the same number"),
        (changed(0, lambda head: head.update(homing_simulation=2)), "homing_simulation is 2; this version reads 1"),
        (changed(0, lambda head: head.update(extra=1)), "line 1: 'extra' is unknown; allowed: digest, found"),
        (of_plan(nodes=0), "line 1: plan.nodes: Input should be greater than or equal to 1"),
        (of_plan(nodes=10), "line 1: plan.nodes: Input should be less than or equal to 9"),
        (of_plan(nodes=6), "6 nodes; allowed are 5"),
        (of_plan(lease=0.9), "line 1: plan.lease: Input should be greater than or equal to 1"),
        (of_plan(leese=2), "line 1: plan: 'leese' is unknown; allowed: intake, laws, lease, max_pending, "),
        (of_plan(quirks={"turn": "sticky"}), "line 1: plan.quirks: 'turn' is unknown; allowed: absent_members, "),
        (of_plan(quirks=[]), "line 1: plan.quirks: "),
        (changed(0, lambda head: head.update(plan=[])), "line 1: plan: "),
        (
            of_plan(troubles=[{"at": 1, "kind": "kill", "target": "n1"}]),
            "line 1: plan: each wish, trouble and saying needs a line of its own, below this one",
        ),
        (of_plan(laws={"store": "near"}), "line 1: plan.laws: needed is"),
        (
            of_plan(laws=dict.fromkeys(("store", "broker", "devices", "callers"), "odd")),
            "line 1: plan.laws: needed is, for each of store, broker, devices, callers, one of near, rack",
        ),
        (of_wish(at=-1), "line 2: at: Input should be greater than or equal to 0"),
        (of_wish(at=1e9), "line 2: at: Input should be less than or equal to 3600"),
        (of_wish(number="x"), "line 2: number: "),
        (of_wish(device="a/#"), "line 2: device: "),
        (of_wish(extra=1), "line 2: 'extra' is unknown; allowed: at, "),
        (of_trouble(kind="explode"), "line 24: kind: Input should be 'kill', "),
        (of_trouble(target="store"), "line 24: kill of 'store'"),
        (of_trouble(seconds=None), "line 24: seconds: "),
        (of_trouble(seconds=-0.1), "line 24: kill for -0.1 seconds; allowed: 0 to 600"),
        (of_trouble(kind="freeze", seconds=601), "line 24: freeze for 601 seconds; allowed: 0 to 600"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(
    tmp_path: Path, spoil: Callable[[list[bytes]], None], sentence: str
) -> None:
    file = tmp_path / "run.jsonl"
    plan = replace(plan_of(2, 20), troubles=(Trouble(1.0, TroubleKind.KILL, "n1", 1.0),) * 3)
    write_replay(file, plan, Outcome(1, "", (), 20, 3, 0))
    lines = file.read_bytes().splitlines()
    spoil(lines)
    file.write_bytes(b"\n".join(lines))
    with pytest.raises(SimulationError) as refused:
        read_replay(file)
    assert str(refused.value).startswith(str(file))
    assert sentence in str(refused.value)


def test_what_cannot_be_read_or_written_is_told(tmp_path: Path, homing: Homing) -> None:
    code, out, err = homing("replay", str(tmp_path / "missing"))
    assert (code, out) == (2, "")
    assert err == f"homing: {tmp_path}/missing cannot be read: No such file or directory\n"
    with pytest.raises(SimulationError, match="cannot be written: Is a directory"):
        write_replay(tmp_path, plan_of(1, 1), Outcome(1, "", (), 1, 0, 0))
    (tmp_path / "large").write_bytes(b"x" * 101)
    with pytest.raises(SimulationError, match="has more than 100 bytes"):
        read_replay(tmp_path / "large", most_bytes=100)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'{"saying": {"at": 3, "number": 0, "source": "n1"}}', "line 2: source: String should match pattern"),
        (b'{"saying": {"at": 3, "number": -1, "source": "device-1"}}', "line 2: number: Input should be greater"),
        (b'{"saying": {"at": 3, "number": 1, "source": "caller-1", "to": "n1"}}', "line 2: 'to' is unknown; allowed: "),
        (b'{"saying": {"at": 3, "number": 1, "source": "caller-1"}}\n' * 2, "two sayings have the same number"),
        (b'{"saying": {}, "wish": {}}', "line 2: needed is an object with one member: wish, trouble or saying"),
    ],
)
def test_a_wrong_event_is_refused_with_its_line(tmp_path: Path, line: bytes, sentence: str) -> None:
    file = tmp_path / "run.jsonl"
    write_replay(file, replace(plan_of(1, 0), troubles=()), Outcome(1, "", (), 0, 0, 0))
    file.write_bytes(file.read_bytes() + line)
    with pytest.raises(SimulationError, match=re.escape(sentence)):
        read_replay(file)
