"""Profiles that can never work, or say too little of an echo, are refused."""

from __future__ import annotations

import pytest

from app.core.errors import ConfigurationError
from app.core.profiles.correlation import Correlation
from tests.unit.profiles.test_language import BY_ID, WITH_ID, facts, profile


@pytest.mark.parametrize(
    ("request_", "response", "head", "said"),
    [
        (
            WITH_ID,
            BY_ID.replace("{device_id}", "{device_id}/{status}"),
            "",
            "{status} is unknown, and nothing reads it",
        ),
        (WITH_ID, BY_ID + 'result = "{status}"', "", "{status} is no placeholder of the topic; it has: device_id"),
        (
            WITH_ID,
            BY_ID.replace("{device_id}", "{device_id}/{s}")
            + 'rules = [{ state = "failed", when = [{ path = "{s}", is_in = [200] }] }]',
            "",
            "{s} is text of the topic; allowed: text to compare it with",
        ),
        (WITH_ID, BY_ID.replace("{device_id}", "all"), "", "needs a level {device_id}"),
        (WITH_ID, BY_ID + 'device = { fixed = "x" }', "", "the topic has a placeholder {device_id} already"),
        (WITH_ID, BY_ID + "device = {}", "", "needs exactly one of path, fixed"),
        (WITH_ID, BY_ID, 'device_id = "{id}"', "'{id}' is no form of ids"),
        (WITH_ID, BY_ID, 'device_id = "pump"', "'pump' is no form of ids"),
        (WITH_ID, BY_ID.replace("device_id", "a"), 'device_id = "{a}:{b}"', "has not all parts of device_id, {a}:{b}"),
        (WITH_ID.replace("{device_id}", "{b}"), BY_ID, 'device_id = "{a}:{c}"', "{b} is unknown; allowed: {id}"),
        ('topic = "c"\ncodec = "empty"\npayload = 1', BY_ID, "", "is needed, unless codec is 'empty', which has none"),
        ('topic = "c/{id}"', BY_ID, "", "is needed, unless codec is 'empty'"),
        ('topic = "c/{id}"\ncodec = "text"\npayload = {}', BY_ID, "", "is no text, which codec 'text' needs"),
        ('topic = "c/{id}"\npayload = 1\nmerge_params = true', BY_ID, "", "needs a payload that is a table"),
        (WITH_ID + 'methods = ["a"]\nrepeatable = ["b"]', BY_ID, "", "has b, which is not among the methods"),
        (WITH_ID + 'methods = ["a"]', BY_ID + 'methods = ["b"]', "", "has b, for which there is no request"),
        (
            f"[[request]]\n{WITH_ID}[[request]]\n{WITH_ID}",
            BY_ID,
            "",
            "request.1: is never reached for any method: one before it has them",
        ),
        (
            WITH_ID,
            'topic = "r/{device_id}"\ncorrelation = "value"\nvalue = "{id_number}"\nsources = [{ path = "id" }]',
            "",
            "carries {id_number} nowhere, so that no response can",
        ),
        (
            WITH_ID,
            'topic = "r/{device_id}"\ncorrelation = "value"\nvalue = "{created_s}"\nsources = [{ path = "id" }]',
            "",
            "has an instant, which is not known before the command is on record",
        ),
        (
            WITH_ID,
            'topic = "r/{device_id}"\ncorrelation = "value"\nvalue = ["{method}", "{id}"]\nsources = [{ path = "a" }]',
            "",
            "value has several parts; allowed: all = [ … ] with as many places",
        ),
        (WITH_ID, BY_ID.replace('path = "id"', 'keys = "$"'), "", "all and keys go with correlation 'value'"),
        (
            WITH_ID + "properties = true",
            BY_ID.replace("{device_id}", "{device_id}/{_x}"),
            "",
            "needs a first kind of response whose topic the command knows",
        ),
    ],
)
def test_what_can_never_work_is_refused(request_: str, response: str, head: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        profile(request_, response, head)
    assert said in str(caught.value)


ECHO = 'topic = "r/{device_id}"\ncorrelation = "echo"\n'


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        ('within = "5s"', "echo goes with correlation 'echo', and only with it"),
        ('echo = [{ path = "x" }]', "within goes with correlation 'echo', and only with it"),
        ('echo = []\nwithin = "5s"', "echo: "),
        ('echo = [{ path = "x" }]\nwithin = "5s"\nsources = [{ path = "x" }]', "'echo' has no sources"),
        ('echo = [{ path = "x" }]\nwithin = "0s"', "out of range"),
        ('echo = [{ path = "x", equals = "{parms.x}" }]\nwithin = "5s"', "{parms.x} is unknown"),
        ('echo = [{ path = "x", tolerance = 2.0 }]\nwithin = "5s"', "go with equals"),
        ('echo = [{ path = "x", equals = "{method}", type = "text", tolerance = 2.0 }]\nwithin = "5s"', "for numbers"),
        ('echo = { jmespath = "a b" }\nwithin = "5s"', "no JMESPath"),
    ],
)
def test_an_echo_that_says_too_little_or_nonsense_is_refused(response: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        profile(WITH_ID, ECHO + response)
    assert sentence in str(error.value)


def test_a_command_that_asks_for_no_state_expects_no_echo() -> None:
    one = profile(WITH_ID, ECHO + 'echo = [{ path = "on", equals = "{params.on}" }]\nwithin = "5s"')
    assert one.expectations(facts({"other": 1})) == ()
    (expected,) = one.expectations(facts({"on": True}))
    assert expected.correlation is Correlation.ECHO
