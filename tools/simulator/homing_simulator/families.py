"""Families of devices: how each understands a command and answers it, when nothing goes wrong. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import orjson

from app.core.identifiers import id_of_name, name_of
from app.core.messages import Publication, ReceivedMessage

ECHO: Final = "echo"
"""A param of this name comes back in the result, so that a test can tell whose answer it got."""


@dataclass(frozen=True, slots=True)
class Request:
    """A command as a device read it. `deadline` is in seconds since the epoch, None where the family has none."""

    device_id: str
    command_id: str
    method: str
    params: Any
    body: dict[str, Any]
    response_topic: str
    correlation_data: bytes | None = None
    deadline: float | None = None
    heard: ReceivedMessage | None = None
    known: object = None
    """The further knowledge of a family that is played from its profile."""

    def publication(self, body: dict[str, Any]) -> Publication:
        """An answer on the response topic."""
        return Publication(self.response_topic, orjson.dumps(body), correlation_data=self.correlation_data)


@dataclass(frozen=True, slots=True)
class Family:
    """`command_topics` are filters of a device's commands.

    `read` raises ValueError, KeyError or TypeError for what is no command.
    `answers` and `refusal` take the wall clock in seconds since the epoch. The first answer is the reply, the others
    follow step by step.
    """

    command_topics: Callable[[str], tuple[str, ...]]
    read: Callable[[ReceivedMessage], Request]
    answers: Callable[[Request, float], list[Publication]]
    refusal: Callable[[Request, float], Publication | None]
    """None where the family has nothing that refuses."""
    unknown: Callable[[Request, float], Publication | None]
    """Answers a message that is no command of its profile's catalogue."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text is needed here")
    return value


# --- homing: Homing's own plain protocol, app/profiles/shipped/homing.toml ---


def _homing_topics(device_id: str) -> tuple[str, ...]:
    return (f"homing/{name_of(device_id)}/command",)


def _read_homing(message: ReceivedMessage) -> Request:
    name = message.topic.split("/", 2)[1]
    body = orjson.loads(message.payload)
    deadline = body.get("deadline")
    return Request(
        device_id=id_of_name(name),
        command_id=_text(body["id"]),
        method=_text(body["method"]),
        params=body.get("params"),
        body=body,
        response_topic=message.response_topic or f"homing/{name}/response",
        correlation_data=message.correlation_data,
        deadline=datetime.fromisoformat(deadline).timestamp() if deadline is not None else None,
    )


def _answer_homing(request: Request, _now: float) -> list[Publication]:
    params = request.params
    done = request.publication(
        {"id": request.command_id, "status": "ok", "result": {"method": request.method} | _echo(params)}
    )
    steps = params.get("steps", 0) if isinstance(params, dict) else 0
    if not isinstance(steps, int) or not 0 < steps <= MAX_STEPS:
        return [done]
    running = [
        request.publication(
            {"id": request.command_id, "status": "running", "progress": {"percent": 100 * step // steps}}
        )
        for step in range(steps)
    ]
    return [*running, done]


def _refuse_homing(request: Request, _now: float) -> Publication:
    error = {"code": "refused", "message": "the simulated device refuses"}
    return request.publication({"id": request.command_id, "status": "error", "error": error})


MAX_STEPS: Final = 100
"""Most progress messages that the param `steps` may ask a homing device for."""


def _echo(params: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {ECHO: params[ECHO]} if isinstance(params, dict) and ECHO in params else {}


# --- dji: DJI Cloud API, dock to cloud, "Topic Definition" and the pages of services and events ---

DJI_BUSY: Final = 314000
"""A non-zero `data.result`: the device is busy with something else."""
DJI_BAD_PARAMS: Final = 514171
"""A parameter is wrong, or there is no such command."""
_STEP_OF: Final = {
    "takeoff_to_point": ("flight_id", ("task_ready", "wayline_progress", "wayline_ok", "task_finish")),
    "fly_to_point": ("fly_to_id", ("wayline_progress", "wayline_progress", "wayline_ok")),
}
_TASK_STEPS: Final = ((0, 5), (25, 20), (60, 21), (90, 23), (100, 25))
"""Percent, and the `current_step` of a dock's wayline mission."""


def _dji_topics(device_id: str) -> tuple[str, ...]:
    return (f"thing/product/{device_id}/services",)


def _read_dji(message: ReceivedMessage) -> Request:
    device_id = message.topic.split("/", 3)[2]
    body = orjson.loads(message.payload)
    return Request(
        device_id=device_id,
        command_id=_text(body["tid"]),
        method=_text(body["method"]),
        params=body.get("data"),
        body=body,
        response_topic=f"thing/product/{device_id}/services_reply",
    )


def _answer_dji(request: Request, now: float) -> list[Publication]:
    if request.method == "flighttask_execute":
        return [_dji_reply(request, now, {"result": 0}), *_dji_task_events(request, now)]
    if request.method in _STEP_OF:
        return _answer_dji_flight(request, now, *_STEP_OF[request.method])
    output = _dji_output(request.method) | _echo(request.params)
    return [_dji_reply(request, now, {"result": 0, "output": output} if output else {"result": 0})]


def _answer_dji_flight(request: Request, now: float, key: str, statuses: tuple[str, ...]) -> list[Publication]:
    flight = request.params.get(key) if isinstance(request.params, dict) else None
    if not isinstance(flight, str):
        return [_dji_reply(request, now, {"result": DJI_BAD_PARAMS})]
    events = []
    for index, status in enumerate(statuses):
        left = len(statuses) - 1 - index
        data = {
            "result": 0,
            "status": status,
            key: flight,
            "track_id": request.command_id,
            "way_point_index": index,
            "remaining_distance": 40.5 * left,
            "remaining_time": 6 * left,
            "planned_path_points": [{"latitude": 47.2692, "longitude": 11.4041, "height": 620.0 + 30 * index}],
        }
        events.append(_dji_event(request, now, f"{request.method}_progress", data))
    return [_dji_reply(request, now, {"result": 0}), *events]


def _dji_task_events(request: Request, now: float) -> list[Publication]:
    flight = request.params.get("flight_id", "") if isinstance(request.params, dict) else ""
    events = []
    for percent, step in _TASK_STEPS:
        output = {
            "status": "ok" if percent == 100 else "in_progress",  # noqa: PLR2004 - per cent
            "progress": {"percent": percent, "current_step": step},
            "ext": {
                "flight_id": flight,
                "track_id": request.command_id,
                "current_waypoint_index": percent // 25,
                "media_count": percent // 20,
                "wayline_id": 0,
                "wayline_mission_state": 9 if percent == 100 else 6,  # noqa: PLR2004 - per cent
            },
        }
        events.append(_dji_event(request, now, "flighttask_progress", {"result": 0, "output": output}))
    return events


def _dji_output(method: str) -> dict[str, Any]:
    """The output that some services give besides `result`."""
    return {"status": "ok"} if method in _REPORTS_STATUS else {}


_REPORTS_STATUS: Final = frozenset(
    {"return_home", "debug_mode_open", "debug_mode_close", "supplement_light_open", "supplement_light_close"}
)


def _dji_reply(request: Request, now: float, data: dict[str, Any]) -> Publication:
    return request.publication(_dji_envelope(request, now, request.method, data))


def _dji_event(request: Request, now: float, method: str, data: dict[str, Any]) -> Publication:
    body = _dji_envelope(request, now, method, data) | {"need_reply": 1}
    return Publication(f"thing/product/{request.device_id}/events", orjson.dumps(body))


def _dji_envelope(request: Request, now: float, method: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "tid": request.command_id,
        "bid": request.body.get("bid", request.command_id),
        "timestamp": int(now * 1000),
        "gateway": request.body.get("gateway", request.device_id),
        "method": method,
        "data": data,
    }


def _refuse_dji(request: Request, now: float) -> Publication:
    return _dji_reply(request, now, {"result": DJI_BUSY})


def _unknown_to_homing(request: Request, _now: float) -> Publication:
    error = {"code": "unknown_method", "message": "the simulated device has no such method, or other params"}
    return request.publication({"id": request.command_id, "status": "error", "error": error})


def _unknown_to_dji(request: Request, now: float) -> Publication:
    return _dji_reply(request, now, {"result": DJI_BAD_PARAMS})


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        "homing": Family(_homing_topics, _read_homing, _answer_homing, _refuse_homing, _unknown_to_homing),
        "dji": Family(_dji_topics, _read_dji, _answer_dji, _refuse_dji, _unknown_to_dji),
    }
)
