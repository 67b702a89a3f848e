"""Contexts: the URL that a client asks, and the key that it shows to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing_client import ConfigurationError, Homing
from homing_client.contexts import DEFAULT_URL, Context, Contexts, addresses, default_path, resolve

HERE = Context("https://homing.example", "homing_KEY")


@pytest.fixture
def saved() -> Path:
    return Contexts().with_one("here", HERE).with_one("other", Context("http://b:1")).save()


def test_what_was_saved_is_read_again_and_is_for_its_owner_alone(saved: Path) -> None:
    assert saved == default_path()
    assert saved.stat().st_mode & 0o777 == 0o600
    contexts = Contexts.load()
    assert contexts.current == "other"
    assert contexts.known == {"here": HERE, "other": Context("http://b:1")}
    strange = 'a.b "c" \\ é\n'
    Contexts().with_one(strange, Context("http://x", '"\\')).save()
    assert Contexts.load().get(strange) == Context("http://x", '"\\')
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize("name", ["\N{HELICOPTER}", "a\x7fb", "\x80", "\u2026"])
def test_a_name_of_any_letters_leaves_the_file_readable(saved: Path, name: str) -> None:
    Contexts.load().with_one(name, Context("http://x", "k")).save()
    assert Contexts.load().get(name) == Context("http://x", "k")
    assert Contexts.load().get("here") == HERE


def test_a_name_that_is_no_text_is_refused_and_the_file_stays(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        Contexts.load().with_one("\udcff", Context("http://x")).save()
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_a_key_of_the_file_that_no_header_can_carry_is_refused_in_a_sentence(saved: Path) -> None:
    saved.write_text('current = "here"\n[contexts.here]\nurl = "http://127.0.0.1:9"\nkey = "homing_\u2026"\n')
    with pytest.raises(ConfigurationError, match="characters that no key has"):
        Homing()


def test_a_file_that_others_may_read_is_not_used(saved: Path) -> None:
    saved.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        Contexts.load()


@pytest.mark.parametrize(
    "text", ["current = ", "contexts = 1", "[contexts]\na = 1", "[contexts.a]", "[contexts.a]\nurl=1"]
)
def test_a_file_that_makes_no_sense_gets_a_sentence(text: str) -> None:
    path = Contexts().save()
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"config\.toml"):
        Contexts.load()


def test_what_is_given_counts_first_then_the_environment_then_the_context(saved: Path) -> None:
    def found(url: str | None = None, key: str | None = None, context: str | None = None, **env: str) -> Context:
        return resolve(url, key, context, {"XDG_CONFIG_HOME": str(saved.parents[1])} | env)

    assert found() == Context("http://b:1")
    assert found(context="here") == HERE
    assert found(HOMING_CONTEXT="here") == HERE
    assert found(HOMING_URL="http://c:1") == Context("http://c:1")
    assert found("http://a:1", HOMING_URL="http://c:1") == Context("http://a:1")
    assert found(context="here", HOMING_URL="http://c:1") == HERE
    assert found(HOMING_KEY="k") == Context("http://b:1", "k")
    assert found(key="own", HOMING_KEY="k") == Context("http://b:1", "own")
    assert found(context="here", HOMING_KEY="k") == HERE, "the key of the shell is of another cluster, or of nobody"
    assert found(context="here", key="own", HOMING_KEY="k") == Context(HERE.url, "own")
    assert found(context="other", HOMING_KEY="k") == Context("http://b:1", "k"), "this context has none"
    assert found(HOMING_CONTEXT="here", HOMING_KEY="k") == Context(HERE.url, "k")
    with pytest.raises(ConfigurationError, match="known: here, other"):
        found(context="nowhere")


@pytest.mark.parametrize("key", ["a b", "a\nb", "clé"])
def test_what_is_no_key_is_not_repeated(key: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        resolve("http://x", environment={"HOMING_KEY": key})
    assert key not in str(wrong.value)
    assert resolve("http://x", environment={"HOMING_KEY": "k\n"}).key == "k"


def test_without_anything_it_is_this_machine() -> None:
    assert resolve(environment={"XDG_CONFIG_HOME": "/nowhere"}) == Context(DEFAULT_URL)


def test_the_key_of_a_context_is_not_shown_to_somebody_else(saved: Path) -> None:
    place = {"XDG_CONFIG_HOME": str(saved.parents[1]), "HOMING_CONTEXT": "here"}
    assert resolve("https://evil.example", environment=place).key is None
    assert resolve(environment=place | {"HOMING_URL": "http://homing.example"}).key is None
    assert resolve("https://homing.example/", environment=place).key == "homing_KEY"
    assert "homing_KEY" not in repr(HERE)


@pytest.mark.parametrize(
    "text",
    ["", ",", "localhost:8080", "ftp://x", "http://", "http://x:99999", "http://u:p@x", "http://x?y", "http://[x"],
)
def test_what_is_no_url_gets_a_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError):
        addresses(text)


def test_a_client_finds_the_current_context(saved: Path) -> None:
    with Homing() as homing:
        assert homing.url == "http://b:1"
    assert addresses("http://a/, https://b:2/x/") == ("http://a", "https://b:2/x")


def test_the_scheme_of_a_url_may_have_capitals() -> None:
    assert addresses("HTTPS://Homing.example/a, Http://[::1]:1/") == ("https://Homing.example/a", "http://[::1]:1")
