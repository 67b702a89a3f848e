from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from string import ascii_letters, digits
from urllib.parse import quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import InvalidInputError
from app.core.identifiers import (
    PARTITIONS,
    command_id,
    id_of_name,
    name_of,
    partition_of,
    partition_of_command,
    validate_command_id,
    validate_device_id,
    validate_idempotency_key,
    validate_method,
    validate_node_id,
)
from app.core.topics import TopicTemplate, validate_topic
from tests.unit.core.hostile_ids import hostile_ids, is_device, is_method

ULID = "01JABCDEFGHJKMNPQRSTVWXYZ0"
HOSTILE = hostile_ids()
PLAIN = set(f"{ascii_letters}{digits}_.:-")
Validator = Callable[[str], str]
ID_VALIDATORS: list[tuple[Validator, str]] = [
    (validate_device_id, "device_id"),
    (validate_method, "method"),
    (validate_node_id, "node_id"),
]


def test_F93_the_corpus_has_at_least_500_different_ids() -> None:
    assert len(HOSTILE) >= 500
    assert len(set(HOSTILE)) == len(HOSTILE)


@pytest.mark.parametrize(("validate", "field"), [*ID_VALIDATORS, (validate_command_id, "command_id")])
def test_F93_every_hostile_id_is_refused_in_a_clean_sentence(validate: Validator, field: str) -> None:
    for hostile in HOSTILE:
        if validate is validate_method and is_method(hostile):
            assert validate(hostile) == hostile
            continue
        if validate is validate_device_id and is_device(hostile):
            assert set(validate(hostile)) <= PLAIN | {"%"}
            assert name_of(validate(hostile)) == unquote(hostile)
            continue
        with pytest.raises(InvalidInputError) as caught:
            validate(hostile)
        assert caught.value.field == field
        assert "allowed: " in caught.value.reason
        assert str(caught.value).isascii()
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("path", ["/a", "a/", "a//b", "a/./b", "../a", "a/..", "/"])
def test_a_method_with_slashes_has_something_between_them(path: str) -> None:
    with pytest.raises(
        InvalidInputError, match=r"has nothing, '.' or '..' before or behind a slash; allowed: 1 to 128"
    ):
        validate_method(path)
    assert validate_method("device/ota_update/check") == "device/ota_update/check"


def test_F93_what_structures_a_topic_is_refused_by_the_template_too() -> None:
    template = TopicTemplate("thing/product/{device_id}/services")
    for hostile in HOSTILE:
        try:
            topic = template.render(device_id=hostile)
        except InvalidInputError:
            continue
        assert validate_topic(topic).count("/") == 3
        assert not {"+", "#", "$"} & set(topic)


@pytest.mark.parametrize("good", ["a", "1ZNDH1D0010098", "dock-1", "A_b.c-9", "...", ".a", "-", "0", "a" * 64])
def test_plain_ids_come_back_unchanged(good: str) -> None:
    for validate, _ in ID_VALIDATORS:
        assert validate(good) == good


def test_colons_and_lengths_up_to_128_are_for_devices_and_methods_only() -> None:
    for good in ("urn:dev:mac:0024befffe804ff1", "a" * 128):
        assert validate_device_id(good) == good
        assert validate_method(good) == good
        with pytest.raises(InvalidInputError):
            validate_node_id(good)
    for validate in (validate_device_id, validate_method):
        with pytest.raises(InvalidInputError):
            validate("a" * 129)
    with pytest.raises(InvalidInputError):
        validate_node_id("a" * 65)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "is empty"),
        ("a+b", "'+' at index 1 is not allowed"),
        ("a$", "'$' at index 1 is not allowed"),
        ("50%", "'%' at index 2 is not allowed"),
        ("50%25", "'%' is not allowed"),
        ("a%2", "'%' at index 1 is not allowed"),
        ("%FF", "has an escape that is no UTF-8"),
        ("ab\n", "U+000A at index 2 is not allowed"),
        ("a%0Ab", "U+000A is not allowed"),
        ("a\ufffd", "U+FFFD at index 1 is not allowed"),
        ("a\u202eb", "U+202E at index 1 is not allowed"),
        ("a" * 129, "has 129 characters"),
        ("\u00fc" * 30, "has 180 characters when it is escaped"),
    ],
)
def test_the_error_says_what_where_and_what_is_allowed(value: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        validate_device_id(value)
    assert str(caught.value) == (
        f"device_id: {message}; allowed: 1 to 128 of A-Z a-z 0-9 _ . : -, others escaped as in a URL, "
        "without + # $ * % and unprintable ones"
    )


@pytest.mark.parametrize("wrong", ["a//b", "/a", "a/", "a/../b", "./a", "a%2F%2E%2E", "homing-canary/x"])
def test_nothing_between_the_slashes_of_a_name_is_empty_or_leads_elsewhere(wrong: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^device_id: '.*' has nothing, '\.', '\.\.' or 'homing-c"):
        validate_device_id(wrong)


@pytest.mark.parametrize(
    ("name", "device_id"),
    [
        ("living room/lamp 1", "living%20room%2Flamp%201"),
        ("K\u00fcche", "K%C3%BCche"),
        ("Tom's (2)", "Tom%27s%20%282%29"),
        ("a~b", "a%7Eb"),
        ("urn:dev:1", "urn:dev:1"),
    ],
)
def test_a_name_and_its_id_are_one_device(name: str, device_id: str) -> None:
    assert validate_device_id(name) == device_id
    assert validate_device_id(device_id) == device_id
    assert validate_device_id(quote(name, safe="")) == device_id
    assert validate_device_id(device_id.replace("%2F", "%2f")) == device_id
    assert id_of_name(name) == device_id
    assert name_of(device_id) == name


@given(st.text(max_size=140))
def test_no_device_speaks_for_another_whose_id_is_its_name(name: str) -> None:
    """A message says a name, also where it looks like an id."""
    found = id_of_name(name)
    if accepts(validate_device_id, found):
        assert validate_device_id(found) == found
        assert name_of(found) == name


@pytest.mark.parametrize("name", ["living%20room", "a%2Fb", "%41", "%20" * 60, "\ud800"])
def test_a_name_with_an_escape_in_it_is_nobodys(name: str) -> None:
    assert not accepts(validate_device_id, id_of_name(name))


@settings(deadline=None)
@given(st.text(max_size=140))
def test_validators_accept_exactly_their_characters(text: str) -> None:
    letters = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
    dots = text in (".", "..")
    if 1 <= len(text) <= 128 and set(text) <= letters | {":"} and not dots:
        assert validate_device_id(text) == text
    else:
        assert accepts(validate_device_id, text, anew=True) is is_device(text)
    of_method = (
        1 <= len(text) <= 128 and set(text) <= letters | set(":/") and not {"", ".", ".."} & set(text.split("/"))
    )
    assert accepts(validate_method, text) is of_method
    assert accepts(validate_node_id, text) is (1 <= len(text) <= 64 and set(text) <= letters and not dots)
    visible = all("!" <= character <= "~" for character in text)
    assert accepts(validate_idempotency_key, text) is (1 <= len(text) <= 255 and visible)


@pytest.mark.parametrize("key", ["a", "8e03978e-40d5-43e8-bc93-6894a57f9324", "!~", "a/b#c+$", "k" * 255])
def test_visible_ascii_is_an_idempotency_key(key: str) -> None:
    assert validate_idempotency_key(key) == key


@pytest.mark.parametrize("key", ["", "a b", " a", "a\n", "a\x00", "é", "\x7f", "\x80", "\ud800", "k" * 256])
def test_anything_else_is_no_idempotency_key(key: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^idempotency_key: .*allowed: 1 to 255 of the visible ASCII"):
        validate_idempotency_key(key)


@pytest.mark.parametrize(
    ("device_id", "partition"),
    [("1ZNDH1D0010098", 42), ("dock-1", 151), ("a", 47)],
)
def test_partitions_are_pinned_because_keys_and_ids_carry_them(device_id: str, partition: int) -> None:
    assert partition_of(device_id) == partition


def test_partitions_are_the_same_in_a_process_with_another_hash_seed() -> None:
    script = "from app.core.identifiers import partition_of; print([partition_of(f'd{i}') for i in range(100)])"
    printed = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONHASHSEED": "7", "PYTHONPATH": "."}, capture_output=True, check=True
    )
    assert printed.stdout.decode().strip() == str([partition_of(f"d{i}") for i in range(100)])


def test_devices_spread_evenly_over_all_partitions() -> None:
    counts = [0] * PARTITIONS
    for number in range(25_600):
        counts[partition_of.__wrapped__(f"1ZNDH1D{number:07d}")] += 1
    assert min(counts) > 50
    assert max(counts) < 150


@settings(deadline=None)
@given(st.from_regex(r"\A[A-Za-z0-9_.:-]{1,128}\Z"))
def test_a_command_id_carries_the_partition_of_its_device(device_id: str) -> None:
    made = command_id(device_id, ULID)
    assert validate_command_id(made) == made
    assert partition_of_command(made) == partition_of(device_id) < PARTITIONS
    assert made == f"{partition_of(device_id):03d}-{ULID}"


def test_every_partition_has_command_ids_and_no_other_number_has() -> None:
    for partition in range(PARTITIONS):
        assert partition_of_command(f"{partition:03d}-{ULID}") == partition
    for number in (*range(PARTITIONS, 1000), 1042):
        with pytest.raises(InvalidInputError):
            partition_of_command(f"{number:03d}-{ULID}")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is empty"),
        ("042", "has 3 characters, not 30"),
        (f"42-{ULID}", "has 29 characters, not 30"),
        (f"256-{ULID}", "does not have the form of one"),
        (f"0042{ULID}", "does not have the form of one"),
        (f"042-8{ULID[1:]}", "does not have the form of one"),
        (f"042-{ULID.lower()}", "'j' at index 6 is not allowed"),
        (f"042-{ULID[:-1]}U", "'U' at index 29 is not allowed"),
        (f"042-{ULID}\n", "U+000A at index 30 is not allowed"),
        (f"٠42-{ULID}", "U+0660 at index 0 is not allowed"),
        (f"042-{ULID}-", "has 31 characters"),
        ("042-" + "0" * 1_000_000, "has 1000004 characters"),
    ],
)
def test_a_wrong_command_id_is_refused_with_the_reason(value: str, reason: str) -> None:
    for refuse in (validate_command_id, partition_of_command):
        with pytest.raises(InvalidInputError) as caught:
            refuse(value)
        assert caught.value.field == "command_id"
        assert reason in caught.value.reason
        assert "allowed: 000 to 255, '-', and a ULID" in caught.value.reason


def accepts(validate: Validator, text: str, *, anew: bool = False) -> bool:
    """True if it comes back unchanged, or at all."""
    try:
        return anew | (validate(text) == text)
    except InvalidInputError:
        return False
