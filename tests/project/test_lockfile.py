from __future__ import annotations

import pytest

from scripts.lockfile import dependency_digest, differences, problems, stamped

PYPROJECT = """
[build-system]
requires = ["hatchling"]
[project]
requires-python = ">=3.11"
dependencies = ["redis>=8.1"]
optional-dependencies = {demo = ["rocksdict"]}
[dependency-groups]
dev = ["pytest"]
"""
HASH = "    --hash=sha256:" + 64 * "a"
LOCK = f"""# an old head
redis[hiredis]==8.1.0 ; python_version < '4' \\
{HASH} \\
{HASH}
    # via homing (pyproject.toml)
rocksdict==0.12.1 \\
{HASH}
"""
DIGEST = dependency_digest(PYPROJECT)


def test_a_stamped_lock_is_sound() -> None:
    assert problems(stamped(LOCK, DIGEST), DIGEST) == []


def test_stamping_twice_changes_nothing() -> None:
    once = stamped(LOCK, DIGEST)
    assert stamped(once, DIGEST) == once
    assert "old head" not in once


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("redis>=8.1", "redis>=8.2"),
        ('"rocksdict"', '"rocksdict", "rich"'),
        ('"pytest"', '"pytest>=9"'),
        (">=3.11", ">=3.12"),
        ('"hatchling"', '"hatchling>=1.27"'),
    ],
)
def test_a_lock_of_other_dependencies_is_stale(before: str, after: str) -> None:
    changed = PYPROJECT.replace(before, after)
    assert changed != PYPROJECT
    (sentence,) = problems(stamped(LOCK, DIGEST), dependency_digest(changed))
    assert "stale" in sentence


def test_other_settings_leave_a_lock_fresh() -> None:
    assert dependency_digest(PYPROJECT + "[tool.ruff]\nline-length = 99\n") == DIGEST


@pytest.mark.parametrize(
    "line",
    [
        "redis>=8.1 \\",
        "redis==8.* \\",
        "redis==8.1.0",
        "redis @ https://example.org/redis.whl \\",
        "--index-url https://example.org/simple",
        "-r other.txt",
        "    --hash=md5:aaaa",
        "    # from https://example.org/simple",
    ],
)
def test_a_lock_holds_exact_pins_and_hashes_only(line: str) -> None:
    (sentence,) = problems(stamped(LOCK, DIGEST) + line + "\n", DIGEST)
    assert sentence.startswith("line 9 ")


def test_users_get_the_versions_that_were_tested() -> None:
    assert differences(LOCK, LOCK) == []
    (other,) = differences(LOCK, LOCK.replace("rocksdict==0.12.1", "rocksdict==0.12.0"))
    assert "rocksdict 0.12.1" in other
    (missing,) = differences(LOCK, LOCK.replace("rocksdict==0.12.1", "other==1"))
    assert "none" in missing
