"""The profiles of a node and their methods over HTTP, and commands that are none of them."""

from __future__ import annotations

from jsonschema import Draft202012Validator

from tests.api.rig import Rig


async def test_the_profiles_are_listed(rig: Rig) -> None:
    body = (await rig.http.get("/v1/profiles")).json()
    assert [one["name"] for one in body["profiles"]] == ["dji", "homing"]
    dji = body["profiles"][0]
    assert (dji["unknown"], dji["presence"], dji["events"]) == ("guarded", True, ["osd", "state", "event", "topology"])
    assert body["default"] == "homing"


async def test_the_methods_of_a_profile_are_listed_with_the_schema_of_their_params(rig: Rig) -> None:
    body = (await rig.http.get("/v1/profiles/dji/methods")).json()
    methods = {one["name"]: one for one in body["methods"]}
    assert len(methods) > 90
    takeoff = methods["takeoff_to_point"]
    assert (takeoff["danger"], takeoff["usual"]) == ("high", "5m")
    Draft202012Validator.check_schema(takeoff["params"])
    assert methods["cover_open"]["params"] is None
    assert (await rig.http.get("/v1/profiles/homing/methods")).json() == {
        "profile": "homing",
        "unknown": "open",
        "methods": [],
    }


async def test_an_unknown_profile_is_404_and_what_is_no_name_422(rig: Rig) -> None:
    response = await rig.http.get("/v1/profiles/lamp/methods")
    assert (response.status_code, response.json()["type"]) == (404, "urn:homing:problem:profile-not-found")
    assert response.json()["detail"] == "'lamp' is unknown; allowed: dji, homing"
    assert (await rig.http.get("/v1/profiles/%C3%A9/methods")).status_code == 422


async def test_nothing_is_recorded_or_published_of_what_is_no_command_of_the_profile(rig: Rig) -> None:
    low = {"flight_id": "F1", "target_height": -5000}
    for method, params, one_way in (
        ("cover_opne", {}, False),
        ("takeoff_to_point", low, False),
        ("cover_opne", {}, True),
    ):
        response = await rig.send(method, params=params, profile="dji", one_way=one_way)
        assert (response.status_code, response.json()["type"]) == (422, "urn:homing:problem:invalid-input")
        if method == "cover_opne":
            reason = "'cover_opne' is no method of dji; did you mean cover_open?"
            assert response.json()["errors"] == [{"field": "method", "reason": reason}]
    assert rig.store.registrations == []
