"""A dock that is answered from the event log and by a service of the operator, on two nodes and a broker."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from importlib import resources
from pathlib import Path
from typing import Any

from aiohttp import web

from app.core.webhooks.signatures import signed_headers
from homing_rig.receivers import receiving
from tests.cluster.harness import cluster_of
from tests.cluster.test_docks import DOCK, dock_on
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

KEY = b"k" * 32
REPLIES = """
[[reply]]
name = "home"
topic = "thing/product/{device_id}/requests"
match = [{ path = "method", is_in = ["home_get"] }]
to = "thing/product/{device_id}/requests_reply"
payload = { tid = "{message.tid}", data = { home = "{state.osd.data.home}" } }
state.osd = { topic = "thing/product/{device_id}/osd" }

[[reply]]
name = "areas"
topic = "thing/product/{device_id}/requests"
match = [{ path = "method", is_in = ["flight_areas_get"] }]
to = "thing/product/{device_id}/requests_reply"
handler = "areas"
payload = { tid = "{message.tid}", data = { result = 0, output = { files = "{handler.files}" } } }

"""
"""Before the other replies of `dji`: the last of them refuses what is left."""


async def areas(request: web.Request) -> web.Response:
    asked = json.loads(await request.read())
    if asked["payload"]["data"] == "fail":
        return web.Response(status=503)
    if asked["payload"]["data"] == "sleep":
        await asyncio.Event().wait()
    return web.json_response({"files": [asked["device_id"], asked["payload"]["tid"]]})


async def test_a_dock_is_answered_from_the_log_and_by_a_handler(tmp_path: Path) -> None:
    shipped = resources.files("app.profiles.shipped").joinpath("dji.toml").read_text("utf-8")
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "dji.toml").write_text(shipped.replace("[[reply]]", f"{REPLIES}[[reply]]", 1))
    handlers = tmp_path / "handlers.toml"
    with MosquittoProcess() as broker, RedisProcess() as server:
        async with receiving(areas) as receiver:
            handlers.write_text(f'[areas]\nurl = "{receiver.url}"\nsecret = "whsec_{b64encode(KEY).decode()}"\n')
            settings = {
                "HOMING_PROFILES_DIR": str(profiles),
                "HOMING_EVENTS_URL": server.node_url,
                "HOMING_REPLY_HANDLERS": str(handlers),
                "HOMING_REPLY_NETWORKS": "127.0.0.0/8",
                "HOMING_REPLY_PLAIN_HTTP": "true",
                "HOMING_REPLY_BUDGET": "300ms",
            }
            with cluster_of(2, server, broker, **settings) as cluster:

                def dropped(reason: str) -> int:
                    return sum(cluster.counters(f"drop.{reason}"))

                async with dock_on(broker) as dock:
                    requests, replies = (f"thing/product/{DOCK}/requests{end}" for end in ("", "_reply"))
                    await dock.say(requests, "early", "home_get", None)
                    expected: dict[str, list[Any]] = {"early": [(replies, {"result": 1})]}  # no value: the next kind
                    await eventually(lambda: dock.told == expected)
                    while not sum(cluster.counters("events.appended")):  # a node is ready before its intake listens
                        await dock.say(f"thing/product/{DOCK}/osd", "o", "osd", {"home": [1.5, 2]})
                    for number in range(10):
                        await dock.say(requests, f"h{number}", "home_get", None)
                        await dock.say(requests, f"a{number}", "flight_areas_get", None)
                        files = {"files": [DOCK, f"a{number}"]}
                        expected[f"h{number}"] = [(replies, {"home": [1.5, 2]})]
                        expected[f"a{number}"] = [(replies, {"result": 0, "output": files})]
                    await dock.say(requests, "fails", "flight_areas_get", "fail")
                    await dock.say(requests, "sleeps", "flight_areas_get", "sleep")
                    await eventually(lambda: len(dock.told) == len(expected))
                    await eventually(lambda: dropped("reply_handler_refused") == dropped("reply_handler_timeout") == 1)
                    assert dock.told == expected  # each once, and nothing else
                    counted = cluster.counters("reply.asked")
                    assert sum(counted) == len(receiver.got) == 12
                    assert all(counted)  # the broker gave questions to both
            for headers, body in receiver.got:
                at = int(headers["webhook-timestamp"]) * 1_000_000
                signed = signed_headers([KEY], headers["webhook-id"], body, at)
                assert headers["webhook-signature"] == signed["webhook-signature"]
