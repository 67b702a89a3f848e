"""The methods of a profile: what each takes, what is refused before anything is published, and what codes mean."""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from itertools import combinations

import pytest

from app.core.errors import ConfigurationError, InvalidInputError
from app.core.messages import ReceivedMessage
from app.core.payload import JsonValue
from app.core.profiles.catalogue import MISSPELT
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.response_reader import ResponseReader
from app.profiles.loader import load_profiles, parse_profile

PROFILES = load_profiles(shipped=["all"])
DJI = PROFILES["dji"]
HEAD = 'name = "p"\ndescription = ""\n'
TAIL = """
[request]
topic = "c/{device_id}"
payload = { id = "{id}" }
[[response]]
name = "r"
topic = "r/{device_id}"
correlation = "id"
sources = [{ path = "id" }]
error_code = "code"
error_message = "text"
rules = [{ state = "failed", when = [{ path = "code", present = true }] }, { state = "succeeded" }]
"""
BLINK = '[[method]]\nname = "blink"\ntitle = "Blink"\n'


def profile(head: str, tail: str) -> DeviceProfile:
    return parse_profile(HEAD + head + TAIL + tail, "p.toml")


def refusal(one: DeviceProfile, method: str, params: JsonValue = None) -> str | None:
    try:
        one.check(method, params)
    except InvalidInputError as error:
        return str(error)
    return None


def test_a_misspelt_method_of_a_dock_is_refused_with_the_one_that_is_meant() -> None:
    assert refusal(DJI, "cover_opne") == "method: 'cover_opne' is no method of dji; did you mean cover_open?"


def test_what_no_dock_takes_is_refused_with_its_place() -> None:
    low: JsonValue = {"flight_id": "F1", "target_height": -5000}
    assert refusal(DJI, "takeoff_to_point", low) == "params.target_height: -5000 is less than the minimum of 2"
    assert refusal(DJI, "takeoff_to_point") == "params: 'flight_id' is a required property"
    deep: JsonValue = {"fly_to_id": "F1", "points": [{"latitude": 91}]}
    assert refusal(DJI, "fly_to_point", deep) == "params.points[0].latitude: 91 is greater than the maximum of 90"


def test_a_method_that_dji_may_have_added_since_is_sent() -> None:
    for method in ("ok", "take_off", "drone_dance", "cover_wash"):
        assert refusal(DJI, method, {"any": 1}) is None


def test_no_method_of_a_guarded_catalogue_is_taken_for_a_misspelt_one() -> None:
    """Else an older catalogue would refuse what a newer one has: names as near as these are told apart by the list."""
    near = [pair for pair in combinations(DJI.catalogue.methods, 2) if SequenceMatcher(None, *pair).ratio() >= MISSPELT]
    assert all(refusal(DJI, one, {}) is None or one in DJI.catalogue.methods for pair in near for one in pair)


@pytest.mark.parametrize(
    ("openness", "method", "said"),
    [
        ("open", "blnk", None),
        ("guarded", "blnk", "method: 'blnk' is no method of p; did you mean blink?; allowed: blink"),
        ("guarded", "fly", None),
        ("closed", "fly", "method: 'fly' is no method of p; allowed: blink"),
        ("closed", "blink", None),
    ],
)
def test_the_profile_says_what_becomes_of_other_methods(openness: str, method: str, said: str | None) -> None:
    one = profile(f'methods = "{openness}"', BLINK)
    assert [refusal(one, method) for _ in range(2)] == [said, said]  # the second time from memory


def test_a_long_list_is_not_told_but_where_it_is() -> None:
    many = "".join(f'[[method]]\nname = "m{number}"\ntitle = "M"\n' for number in range(30))
    said = refusal(profile('methods = "closed"', many), "blink")
    assert said == "method: 'blink' is no method of p; GET /v1/profiles/p/methods lists them"


def test_params_that_were_left_out_are_an_object_without_members() -> None:
    one = profile("", BLINK + 'params = { type = "object", properties = { n = { type = "integer" } } }')
    assert refusal(one, "blink", None) is None
    assert refusal(one, "blink", {"n": "x"}) == "params.n: 'x' is not of type 'integer'"
    assert refusal(one, "blink", []) == "params: [] is not of type 'object'"


def test_a_code_is_told_in_words_and_others_in_those_of_the_device() -> None:
    one = profile("", '[codes]\n7 = "too hot"\nE1 = "no lamp"\n')

    def error(**body: object) -> object:
        answer = ResponseReader([one]).read(ReceivedMessage("r/d", json.dumps({"id": "x", **body}).encode()))
        return json.loads(answer.error or b"")

    assert error(code=7, text="t") == {"code": 7, "message": "too hot"}
    assert error(code="E1") == {"code": "E1", "message": "no lamp"}
    assert error(code=8, text="t") == {"code": 8, "message": "t"}
    assert error(code=[7]) == {"code": [7], "message": "the device refused"}


@pytest.mark.parametrize(
    ("head", "tail", "said"),
    [
        ('methods = "closed"', "", "p.toml:3: methods: is 'closed' without any [[method]]"),
        ("", BLINK + BLINK, "p.toml:19: method.1.name: blink is there already; allowed: each method once"),
        ("", BLINK + 'params = { type = "objekt" }', "method.0.params: params.type: 'objekt' is not valid"),
        ("", BLINK + 'params = { "$ref" = "#" }', "p.toml:18: method.0.params: params.$ref: references could lead"),
        ("", BLINK + 'params = { pattern = "(" }', "method.0.params: params.pattern: '(' is no pattern"),
        ("", BLINK + 'params = { patternProperties = { "[" = {} } }', "params.patternProperties: '[' is no pattern"),
        ("", BLINK + 'usual = "10"', "p.toml:18: method.0.usual: '10' is not a duration"),
        ("", BLINK + 'danger = "some"', "p.toml:18: method.0.danger: is 'some'; allowed: 'low' or 'high'"),
        ("", BLINK + 'titel = "x"', "p.toml:18: method.0.titel: is unknown; is title meant?"),
        ("", "[codes]\n7 = 7\n", "codes.7: is a number; allowed: text"),
    ],
)
def test_a_wrong_catalogue_is_refused_with_its_line(head: str, tail: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        profile(head, tail)
    assert said in str(refused.value)


def test_a_closed_catalogue_lacks_nothing_that_requests_name() -> None:
    text = HEAD + 'methods = "closed"\n' + TAIL.replace("[request]", '[request]\nmethods = ["on", "blink"]') + BLINK
    with pytest.raises(ConfigurationError, match="requests or responses name on, which it lacks"):
        parse_profile(text, "p.toml")


@pytest.mark.parametrize("one", PROFILES.values(), ids=list(PROFILES))
def test_what_a_shipped_profile_repeats_is_in_its_catalogue(one: DeviceProfile) -> None:
    if one.catalogue.methods:
        assert one.repeatable <= one.catalogue.methods.keys()
