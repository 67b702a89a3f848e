"""Each thing that a profile can say about requests: which methods they are of, and what is filled in."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from app.core.commands.command import Command, CommandState, Hold
from app.core.errors import InvalidInputError
from app.core.messages import Publication
from app.core.payload import JsonValue
from app.core.profiles.templates import facts_of
from tests.unit.profiles.test_language import BY_ID, CREATED, ID, facts, profile


def test_requests_of_several_methods() -> None:
    one = profile(
        """
[[request]]
methods = ["on", "off"]
topic = "c/{device_id}/power"
payload = { id = "{id}", to = "{method}" }
[[request]]
methods = ["dim"]
topic = "c/{device_id}/level"
payload = { id = "{id}", to = "{params.level}" }
""",
        BY_ID,
    )
    topics = [one.compose(facts({"level": 1}, method)).topic for method in ("on", "off", "dim")]
    assert topics == ["c/d/power", "c/d/power", "c/d/level"]
    with pytest.raises(InvalidInputError, match="'blink' is no method of p; allowed: dim, off, on"):
        one.expectations(facts(method="blink"))


def composed(request: str, params: JsonValue) -> Publication:
    return profile(f'topic = "c/{{device_id}}"\n{request}', BY_ID).compose(facts(params))


def test_params_are_merged_and_the_profiles_own_members_go_first() -> None:
    request = 'payload = { transaction = "{id}" }\nmerge_params = true'
    sent = composed(request, {"transaction": 1, "to": "x"})
    assert json.loads(sent.payload) == {"transaction": ID, "to": "x"}
    assert json.loads(composed(request, None).payload) == {"transaction": ID}
    with pytest.raises(InvalidInputError, match="params: are no object"):
        composed(request, [1])


def test_absent_members_are_null_or_left_out() -> None:
    request = 'payload = { id = "{id}", a = "{params.a}", b = ["{params.b}", 1] }'
    assert json.loads(composed(request, {}).payload) == {"id": ID, "a": None, "b": [None, 1]}
    assert json.loads(composed(request + "\nomit_absent = true", {}).payload) == {"id": ID, "b": [1]}


def test_instants_in_seconds() -> None:
    request = 'payload = ["{id}", "{created_s}", "{deadline_s}", "{timeout_s}"]'
    assert json.loads(composed(request, {}).payload) == [ID, 1_732_000_000, 1_732_000_009, 10]


def test_the_timeout_of_a_held_command_begins_with_its_claim() -> None:
    hour, timeout = 3_600_000_000, timedelta(seconds=30)
    hold = Hold(CREATED + 8 * hour, timeout, "", claims=1)
    deadline = CREATED + hour + 30_000_000
    command = Command(ID, "d", "m", b"{}", "p", CommandState.PENDING, "n1", CREATED, deadline, hold=hold)
    one = profile('topic = "c/{device_id}"\npayload = ["{id}", "{created_s}", "{timeout_s}", "{timeout_ms}"]', BY_ID)
    sent = one.compose(facts_of(command))
    assert json.loads(sent.payload) == [ID, CREATED // 1_000_000, 30, 30_000]
    assert sent.message_expiry == timeout
