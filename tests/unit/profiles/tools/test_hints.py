"""Hints for what a profile says in vain, each with its line: it loads, and something of it never counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.errors import ConfigurationError
from app.profiles.loader import hints_in, read_profile, shipped_file, shipped_names

LAMP = """name = "lamp"
description = "A lamp that says all it can"

[request]
topic = "lamps/{device_id}/set"
payload = { ref = "{id}", do = "{method}", with = "{params}" }

[[response]]
name = "done"
topic = "lamps/{device_id}/done"
correlation = "id"
sources = [{ path = "ref" }]
rules = [{ state = "failed", when = [{ path = "code", is_not = [0] }] }, { state = "succeeded" }]
"""
CATALOGUE = """
[[method]]
name = "dim"
title = "Dim it"
params = { type = "object", properties = { level = { type = "integer" } }, additionalProperties = false }
"""
ECHO = """
[[response]]
name = "state"
topic = "lamps/{device_id}/state"
codec = "text"
correlation = "echo"
echo = [{ path = "$", equals = 40 }]
within = "5s"
rules = [{ state = "succeeded" }]
"""


def hints(folder: Path, text: str) -> list[str]:
    file = folder / "lamp.toml"
    file.write_text(text)
    read_profile(file)
    return [one.removeprefix(f"{file}:") for one in hints_in(file)]


def lamp(old: str = "", new: str = "", more: str = "") -> str:
    assert old in LAMP
    return LAMP.replace(old, new, 1) + more


INSIDE = "and text has nothing inside: it is always absent; allowed: $, or codec = 'json'"
UNKNOWN = "which is no [[method]] of the catalogue; is dim meant?"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            lamp("correlation", 'codec = "text"\ncorrelation'),
            [
                f"13: response.0.sources.0.path: leads to 'ref', {INSIDE}",
                f"14: response.0.rules.0.when.0.path: leads to 'code', {INSIDE}",
            ],
        ),
        (
            lamp(more=ECHO.replace("$", "state").replace("40", '"ON"')),
            [f"20: response.1.echo.0.path: leads to 'state', {INSIDE}"],
        ),
        (
            lamp(more=ECHO),
            [
                (
                    "20: response.1.echo.0.equals: is 40, and what is read as text never equals it; "
                    "allowed: type = 'text', 'number' or 'boolean'"
                )
            ],
        ),
        (lamp(more=ECHO.replace("equals = 40", 'equals = 40, type = "text"')), []),
        (
            lamp("rules", 'progress = "percent"\nrules'),
            ["13: response.0.progress: is never read, as no rule is 'running'; allowed: such a rule, or no progress"],
        ),
        (
            lamp('"{params}"', '"{params.colour}"', CATALOGUE),
            ["6: request.payload: has {params.colour}, and the params of dim may not have colour by their schema"],
        ),
        (lamp('"{params}"', '"{params.level}"', CATALOGUE), []),
        (
            lamp("payload", 'repeatable = ["dmi"]\npayload', CATALOGUE),
            [f"6: request.repeatable: has dmi, {UNKNOWN}"],
        ),
        (
            lamp("correlation", 'methods = ["dmi"]\ncorrelation', CATALOGUE),
            [f"11: response.0.methods: has dmi, {UNKNOWN}"],
        ),
        (lamp('correlation = "id"', 'correlation = "id"\nmethods = ["flash"]', CATALOGUE), []),
        (
            lamp('correlation = "id"', 'correlation = "id"\nmethods = ["flash"]', CATALOGUE).replace(
                "description", 'methods = "guarded"\ndescription', 1
            ),
            ["13: response.0.methods: has flash, which is no [[method]] of the catalogue; it has: dim"],
        ),
        (LAMP, []),
    ],
)
def test_what_never_counts_is_told_with_its_line_and_key(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert hints(tmp_path, text) == expected


@pytest.mark.parametrize("name", shipped_names())
def test_no_shipped_profile_says_anything_in_vain(name: str) -> None:
    file = shipped_file(name)
    assert file is not None
    assert hints_in(file) == []


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b'name = "lamp"\ndescription = \n', "lamp.toml:2: is no TOML at column 15: Invalid value"),
        (b'name = "lamp"\n[request', "lamp.toml:2: is no TOML at its end: Expected ']' at the end of a table"),
        (b'name = "lamp"\nname = "lamp"\n', "lamp.toml:2: is no TOML at column 14: Cannot overwrite a value"),
        (b'name = "lamp"\n# \xff\n', "lamp.toml:2: is no UTF-8, which TOML is written in: invalid start byte"),
    ],
)
def test_a_file_that_is_no_toml_is_told_with_its_line(tmp_path: Path, raw: bytes, sentence: str) -> None:
    file = tmp_path / "lamp.toml"
    file.write_bytes(raw)
    with pytest.raises(ConfigurationError) as found:
        read_profile(file)
    assert str(found.value).startswith(f"{tmp_path}/{sentence}")
