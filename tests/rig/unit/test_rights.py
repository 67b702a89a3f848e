"""The rights that the rigs give are those that are deployed (S9)."""

from __future__ import annotations

from pathlib import Path

from homing_rig.chaos.ordered import PROFILE
from homing_rig.rights import NODE_USER, mosquitto_acl, mosquitto_passwords, redis_users
from tests.services import DEPLOY


def rules_of(users: str) -> set[str]:
    """The rules of a node's user, without the password."""
    (rules,) = [line.split()[2:] for line in users.splitlines() if line.startswith(f"user {NODE_USER} ")]
    return {rule for rule in rules if rule[0] not in "#>"}


def topics_of(acl: str) -> set[str]:
    """The rules of a node, without those for `homing doctor` and what the broker tells."""
    _, _, own = acl.partition(f"user {NODE_USER}\n")
    lines = own.partition("\nuser ")[0].splitlines()
    return {line for line in lines if line.startswith("topic ") and "doctor" not in line and "$SYS" not in line}


def test_S9_redis_grants_what_is_deployed() -> None:
    assert rules_of(redis_users()) == rules_of((DEPLOY / "redis" / "users.acl").read_text("utf-8"))


def test_S9_mosquitto_grants_what_is_deployed() -> None:
    deployed = topics_of((DEPLOY / "mosquitto" / "acl").read_text("utf-8"))
    assert topics_of(mosquitto_acl()) == deployed
    assert len(deployed) == 23


def test_own_profiles_have_rules_too(tmp_path: Path) -> None:
    (tmp_path / "ordered.toml").write_text(PROFILE, "utf-8")
    nodes, _, devices = mosquitto_acl(tmp_path).partition("user devices")
    for rule in ("topic {} ordered/+/set", "topic {} ordered/+/done"):
        ways = ("write", "read") if rule.endswith("set") else ("read", "write")
        assert rule.format(ways[0]) in nodes
        assert rule.format(ways[1]) in devices


def test_no_two_passwords_look_alike() -> None:
    hashes = [line.partition(":")[2] for line in mosquitto_passwords().splitlines()]
    assert len(set(hashes)) == 3
