from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from app.core.commands.deadlines import LearnedTimeouts
from app.core.errors import ConfigurationError
from app.profiles.timeouts import load_timeouts

GOOD = """
version = 1
device_group = '^(.*)-[0-9]+$'

[[timeout]]
profile = "dji"
method = "takeoff"
timeout = "4s"
records = 100

[[timeout]]
profile = "dji"
method = "takeoff"
device_group = "dock-fw2"
timeout = "7.5s"
"""


def load(tmp_path: Path, text: str) -> LearnedTimeouts:
    file = tmp_path / "timeouts.toml"
    file.write_text(text, encoding="utf-8")
    return load_timeouts(file)


@pytest.mark.parametrize(
    ("key", "seconds"),
    [
        (("dji", "takeoff", "dock-fw2-0001"), 7.5),
        (("dji", "takeoff", "dock-fw1-0001"), 4),
        (("dji", "takeoff", "odd"), 4),
        (("dji", "land", "dock-fw2-0001"), None),
        (("homing", "takeoff", "dock-fw2-0001"), None),
    ],
)
def test_the_group_goes_before_the_method(tmp_path: Path, key: tuple[str, str, str], seconds: float | None) -> None:
    learned = load(tmp_path, GOOD)
    for _ in range(2):
        assert learned.timeout(*key) == (None if seconds is None else timedelta(seconds=seconds))


def test_no_file_is_no_timeouts() -> None:
    assert load_timeouts(None).timeout("dji", "takeoff", "x") is None


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("version = 1", "", "version: Field required"),
        ("version = 1", "version = 2", "version is 2; allowed: 1"),
        ("version = 1", "version = ", "not TOML: "),
        ("^(.*)-[0-9]+$", "^(.*-[0-9]+$", "device_group: '^(.*-[0-9]+$' is no regular expression"),
        ("^(.*)-[0-9]+$", "^.*", "device_group: '^.*' has 0 groups in parentheses; allowed: exactly one"),
        ('"4s"', '"4"', "timeout.1.timeout: '4' is not a duration; allowed: a number and a unit"),
        ('"4s"', "4", "timeout.1.timeout: is not text: write a number and its unit"),
        ('"4s"', '"0s"', "timeout.1.timeout: 0s is out of range; allowed: 1ms to 720h"),
        ('"7.5s"', '"721h"', "timeout.2.timeout: 721h is out of range"),
        ('method = "takeoff"\ntimeout', 'method = "take off"\ntimeout', "timeout.1.method: "),
        (
            'profile = "dji"\nmethod = "takeoff"\ntimeout',
            'method = "takeoff"\ntimeout',
            "timeout.1.profile: Field required",
        ),
        ('device_group = "dock-fw2"', "", "timeout 2 (dji takeoff) is there already"),
        ("device_group = '^(.*)-[0-9]+$'", "", "timeout 2 is for a device_group, but the rule device_group is missing"),
    ],
)
def test_a_wrong_file_is_refused_with_file_key_and_reason(
    tmp_path: Path, before: str, after: str, sentence: str
) -> None:
    assert before in GOOD
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, GOOD.replace(before, after, 1))
    assert str(refused.value).startswith(f"HOMING_TIMEOUTS_FILE: {tmp_path / 'timeouts.toml'}: {sentence}")


@pytest.mark.parametrize(("name", "reason"), [("none.toml", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot be read: {reason}"):
        load_timeouts(tmp_path / name)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not TOML"):
        load_timeouts(tmp_path / "x.toml")
