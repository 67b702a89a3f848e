from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.errors import ConfigurationError, InvalidInputError
from app.core.topics import TopicTemplate, canary_topics, matches, parse_share, share, validate_filter, validate_topic
from tests.unit.core.hostile_ids import CONTROLS, NONCHARACTERS, SURROGATES


def is_noncharacter(character: str) -> bool:
    return "\ufdd0" <= character <= "\ufdef" or ord(character) & 0xFFFE == 0xFFFE


FORBIDDEN_IN_VALUES = {
    character
    for character in map(chr, range(0x110000))
    if character in "/+#$" or unicodedata.category(character) in {"Cc", "Cs"} or is_noncharacter(character)
}
LEVELS = st.sampled_from(["a", "b", "ab", "$a", "$SYS", "é", ""])
TOPICS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join)
FILTERS = st.builds(
    lambda levels, last: "/".join([*levels, *last]),
    st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=5),
    st.sampled_from([[], ["#"]]),
) | st.just("#")


@pytest.mark.parametrize(
    "topic",
    [
        "a",
        "a/b",
        "/a",
        "a/",
        "a///b",
        "thing/product/1ZNDH1D0010098/services",
        "$aws/things/x",
        "a b/c",
        "日本/🚁",
        "a" * 65_535,
        "..",
        "%s",
    ],
)
def test_valid_topics_come_back_unchanged(topic: str) -> None:
    assert validate_topic(topic) == topic


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("", "is empty: at least one character"),
        ("a/+", "'+' at index 2 is a wildcard"),
        ("a+", "'+' at index 1 is a wildcard"),
        ("#", "'#' at index 0 is a wildcard"),
        ("$share/g/a", "starts with $share"),
        ("$share", "starts with $share"),
        ("a\x00b", "U+0000 at index 1"),
        ("a" * 65_536, "has 65536 bytes in UTF-8; allowed are 65535"),
        ("é" * 32_768, "has 65536 bytes"),
    ],
)
def test_wrong_topics_are_refused_with_the_reason(topic: str, reason: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        validate_topic(topic)
    assert caught.value.field == "topic"
    assert reason in caught.value.reason


@pytest.mark.parametrize("character", [*CONTROLS, *SURROGATES, *NONCHARACTERS])
def test_F93_forbidden_characters_are_refused_and_never_echoed(character: str) -> None:
    for validate in (validate_topic, validate_filter):
        with pytest.raises(InvalidInputError) as caught:
            validate(f"a/{character}/b")
        assert f"U+{ord(character):04X} at index 2" in caught.value.reason
        assert character not in str(caught.value)


@pytest.mark.parametrize(
    "topic_filter",
    ["#", "+", "a", "a/#", "+/#", "a/+/b", "+/+", "$SYS/#", "$share/g/a/+", "$share/g/#", "$share/$g/a", "$sharex/a"],
)
def test_valid_filters_come_back_unchanged(topic_filter: str) -> None:
    assert validate_filter(topic_filter) == topic_filter


@pytest.mark.parametrize(
    ("topic_filter", "reason"),
    [
        ("", "is empty"),
        ("a#", "level 1: '#' must be the whole of the last level"),
        ("a/#/b", "level 2: '#' must be"),
        ("##", "level 1: '#' must be"),
        ("a/b+", "level 2: '+' must be a whole level"),
        ("++", "level 1: '+' must be a whole level"),
        ("$share", "the group of a shared subscription is empty"),
        ("$share/", "the group of a shared subscription is empty"),
        ("$share//a", "the group of a shared subscription is empty"),
        ("$share/g", "has no filter after the group"),
        ("$share/g/", "has no filter after the group"),
        ("$share/+/a", "'+' is not allowed in the group"),
        ("$share/g#/a", "'#' is not allowed in the group"),
        ("$share/g/$share/h/a", "has $share twice"),
        ("x" * 65_536, "has 65536 bytes"),
    ],
)
def test_wrong_filters_are_refused_with_the_reason(topic_filter: str, reason: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        validate_filter(topic_filter)
    assert caught.value.field == "topic_filter"
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        # the examples of MQTT 5, section 4.7.1.2 and 4.7.1.3
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("sport/#", "sports", False),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        # section 4.7.2
        ("#", "$SYS/monitor/Clients", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor/Clients", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("$SYS/#", "$SYS", True),
        ("a/#", "a/$SYS", True),
        # section 4.7.3: case-sensitive, and a level more is another topic
        ("ACCOUNTS", "Accounts", False),
        ("/a", "a", False),
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/b/c/#", "a/b", False),
        ("+/#", "a", True),
        ("#", "a/b/c", True),
        # shared subscriptions match by what stands after the group
        ("$share/g/a/+", "a/b", True),
        ("$share/g/#", "a", True),
        ("$share/g/#", "$SYS/a", False),
        ("$share/a/b", "a/b", False),
        ("$share/g", "g", False),
    ],
)
def test_matches(topic_filter: str, topic: str, expected: bool) -> None:  # noqa: FBT001
    assert matches(topic_filter, topic) is expected


def slow_matches(wanted: list[str], levels: list[str]) -> bool:
    """The definition, level by level, without the rule about `$`."""
    if wanted == ["#"]:
        return True
    if not wanted or not levels:
        return not wanted and not levels
    return wanted[0] in ("+", levels[0]) and slow_matches(wanted[1:], levels[1:])


@settings(deadline=None, max_examples=500)
@given(FILTERS, TOPICS)
@example("#", "$SYS")
@example("a/b/#", "a/b")
def test_matches_agrees_with_the_slow_definition(topic_filter: str, topic: str) -> None:
    dollar_hidden = topic.startswith("$") and topic_filter[0:1] in ("+", "#")
    expected = not dollar_hidden and slow_matches(topic_filter.split("/"), topic.split("/"))
    assert matches(topic_filter, topic) is expected
    assert matches(f"$share/group/{topic_filter}", topic) is expected


def test_share_and_parse_share_are_inverse() -> None:
    assert share("homing", "thing/product/+/services_reply") == "$share/homing/thing/product/+/services_reply"
    assert parse_share("$share/homing/thing/product/+/x") == ("homing", "thing/product/+/x")
    assert parse_share("thing/+") == (None, "thing/+")
    assert parse_share("$SYS/#") == (None, "$SYS/#")


@pytest.mark.parametrize("group", ["", "a/b", "+", "g#", "a\x00", "a\nb", "\ud800"])
def test_share_refuses_a_wrong_group(group: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^group: .*shared subscription"):
        share(group, "a/b")


@pytest.mark.parametrize("topic_filter", ["", "a#", "$share/g/a"])
def test_share_refuses_a_wrong_filter(topic_filter: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^topic_filter: "):
        share("homing", topic_filter)


def test_a_template_renders_parses_and_gives_its_filter() -> None:
    template = TopicTemplate("v1/{device_id}/rpc/{method}/{id}")
    topic = template.render(device_id="dock-1", method="take_off", id="042-01J")
    assert topic == "v1/dock-1/rpc/take_off/042-01J"
    assert template.names == ("device_id", "method", "id")
    assert template.filter() == "v1/+/rpc/+/+"
    assert template.parse(topic) == {"device_id": "dock-1", "method": "take_off", "id": "042-01J"}


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "thing/product/x",
        "thing/product/x/services/more",
        "thing/product/x/services_reply",
        "thing/other/x/services",
        "/thing/product/x/services",
        "thing/product//services",
        "thing/product/x/services/",
        "THING/product/x/services",
    ],
)
def test_a_topic_of_another_shape_does_not_parse(topic: str) -> None:
    assert TopicTemplate("thing/product/{device_id}/services").parse(topic) is None


def test_a_template_without_placeholders_is_one_topic() -> None:
    template = TopicTemplate("fleet/responses")
    assert template.render(device_id="ignored") == template.filter() == "fleet/responses"
    assert template.parse("fleet/responses") == {}
    assert template.parse("fleet/other") is None


def test_percent_signs_in_a_template_are_literal() -> None:
    assert TopicTemplate("100%s/{device_id}/%(id)s").render(device_id="%d") == "100%s/%d/%(id)s"


def test_templates_are_equal_by_their_text() -> None:
    assert TopicTemplate("a/{id}") == TopicTemplate("a/{id}")
    assert len({TopicTemplate("a/{id}"), TopicTemplate("a/{id}"), TopicTemplate("a/{method}")}) == 2
    assert repr(TopicTemplate("a/{id}")) == "TopicTemplate('a/{id}')"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("a/{sn}/b", "{sn} is unknown; allowed: {device_id}, {id}, {method}"),
        ("a/{device_id}{id}", "level '{device_id}{id}' has no placeholder that can be read: a placeholder is {name}"),
        ("a/{}", "level '{}' has no placeholder that can be read"),
        ("a/{device_id", "with something between two of them"),
        ("a/x{Device_Id}", "{name} in lower-case letters"),
        ("{device_id*}/a/{method*}", "two placeholders are several levels; one may be"),
        ("a/{Method*}", "{name*}, or {name* but word, word}, is levels"),
        ("{id}/{id}", "{id} stands there twice"),
        ("a/+/{id}", "'+' at index 2 is a wildcard"),
        ("{device_id}/#", "'#' at index 12 is a wildcard"),
        ("$share/g/{id}", "starts with $share"),
        ("a/\x00/{id}", "U+0000"),
    ],
)
def test_a_wrong_template_is_a_configuration_error_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        TopicTemplate(text)
    assert str(caught.value).startswith("topic template '")
    assert reason in str(caught.value)
    assert "\x00" not in str(caught.value)


def test_the_allowed_placeholders_are_the_callers_choice() -> None:
    assert TopicTemplate("{node}/x", allowed={"node"}).render(node="a") == "a/x"
    with pytest.raises(ConfigurationError, match="allowed: no placeholders"):
        TopicTemplate("{id}/x", allowed=())


@pytest.mark.parametrize("bad", ["", "/", "a/b", "+", "#", "$", "a$b", "\x00", "\n", "\x7f", "\ud800", "\uffff", "a\n"])
def test_F93_a_value_that_would_change_the_topic_is_refused(bad: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        TopicTemplate("a/{device_id}/b").render(device_id=bad)
    assert caught.value.field == "device_id"
    assert not bad or bad.isprintable() or bad not in str(caught.value)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"^method: is missing: topic a/\{method\} needs it"):
        TopicTemplate("a/{method}").render(device_id="x")


def test_a_rendered_topic_is_never_too_long() -> None:
    template = TopicTemplate("a/{device_id}")
    assert len(template.render(device_id="x" * 65_533)) == 65_535
    for value in ("x" * 65_534, "é" * 32_767, "🚁" * 16_384):
        with pytest.raises(InvalidInputError, match="bytes in UTF-8"):
            template.render(device_id=value)


@st.composite
def template_texts(draw: st.DrawFn) -> str:
    literals = st.sampled_from(["thing", "product", "%s", "%", "$aws", "é", "a b", "%(id)s"])
    levels = draw(st.lists(literals, min_size=1, max_size=4))
    for name in draw(st.lists(st.sampled_from(["device_id", "id", "method"]), unique=True)):
        levels.insert(draw(st.integers(0, len(levels))), f"{{{name}}}")
    return "/".join(levels)


@settings(deadline=None)
@given(template_texts(), st.fixed_dictionaries({name: st.text(max_size=20) for name in ("device_id", "id", "method")}))
def test_render_then_parse_gives_the_values_back(text: str, values: dict[str, str]) -> None:
    template = TopicTemplate(text)
    if any(not value or set(value) & FORBIDDEN_IN_VALUES for value in (values[name] for name in template.names)):
        with pytest.raises(InvalidInputError):
            template.render(**values)
        return
    topic = template.render(**values)
    assert validate_topic(topic) == topic
    assert template.parse(topic) == {name: values[name] for name in template.names}
    assert matches(template.filter(), topic)


@settings(deadline=None)
@given(template_texts(), TOPICS)
def test_what_parses_is_matched_by_the_filter_and_renders_back(text: str, topic: str) -> None:
    template = TopicTemplate(text)
    values = template.parse(topic)
    if values is None or any("$" in value for value in values.values()):
        return
    assert matches(template.filter(), topic)
    assert template.render(**values) == topic


@pytest.mark.parametrize(
    ("text", "topic", "values"),
    [
        (
            "$iothub/methods/res/{status}/?$rid={id}",
            "$iothub/methods/res/200/?$rid=042-A",
            {"status": "200", "id": "042-A"},
        ),
        (
            "command///res/{device_id}.{id}/{status}",
            "command///res/a.b.7/200",
            {"device_id": "a.b", "id": "7", "status": "200"},
        ),
        ("/{product}/{device_id}/reply", "/p/d/reply", {"product": "p", "device_id": "d"}),
        ("{device_id}/response/{method*}", "z/response/device/rename", {"device_id": "z", "method": "device/rename"}),
        ("{device_id}/response/{method*}", "z/response/restart", {"device_id": "z", "method": "restart"}),
        ("z/{device_id*}/set", "z/room/lamp 1/set", {"device_id": "room/lamp 1"}),
        ("z/{device_id*}/{method}/on", "z/a/b/c/set/on", {"device_id": "a/b/c", "method": "set"}),
        ("z/{device_id* but set, get}", "z/room/lamp", {"device_id": "room/lamp"}),
        ("{device_id*}", "lamp", {"device_id": "lamp"}),
    ],
)
def test_placeholders_are_parts_of_levels_and_ends_of_topics(text: str, topic: str, values: dict[str, str]) -> None:
    template = TopicTemplate(text, allowed=None)
    assert template.parse(topic) == values
    assert template.render(**values) == topic
    assert matches(template.filter(), topic)


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("res/{status}/?$rid={id}", "res/200/?$rid="),
        ("res/{status}/?$rid={id}", "res/200/$rid=1"),
        ("command///res/{id}", "command/t/d/res/1"),
        ("command///res/{id}", "command//res/1"),
        ("{device_id}/response/{method*}", "z/response"),
        ("{device_id}/response/{method*}", "z/request/a/b"),
        ("{a}-{b}", "x-"),
        ("z/{device_id*}/set", "z/set"),
        ("z/{device_id*}/set", "z/lamp/get"),
        ("z/{device_id*}/set", "z//set"),
        ("z/{device_id* but set, get}", "z/lamp/set"),
        ("z/{device_id* but set, get}", "z/get/lamp"),
        ("z/{device_id* but set, get}/x", "z/a/set/b/x"),
    ],
)
def test_what_only_looks_like_it_does_not_parse(text: str, topic: str) -> None:
    assert TopicTemplate(text, allowed=None).parse(topic) is None


@pytest.mark.parametrize("value", ["a//b", "/a", "a/", "a/+", "a/#"])
def test_a_value_of_several_levels_has_none_that_is_empty_or_a_wildcard(value: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^method: "):
        TopicTemplate("a/{method*}").render(method=value)


def test_canaries_go_through_open_filters_as_well() -> None:
    assert canary_topics(["a/+/b", "a/+/#"]) == ["a/homing-canary/b", "a/homing-canary/homing-canary"]


def test_a_topic_that_others_use_has_no_canary() -> None:
    assert canary_topics(["v1/gateway/rpc"]) == []
