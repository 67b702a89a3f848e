"""Devices of any family, played from its profile alone. No I/O."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from app.core.commands.command import CommandState
from app.core.errors import ConfigurationError
from app.core.identifiers import name_of
from app.core.messages import Publication, ReceivedMessage
from app.core.payload import JsonValue, Missing
from app.core.profiles.profile import DeviceProfile, RequestSpec
from app.core.topics import TopicTemplate
from homing_simulator.answers import Answering, correlation_of, echoed
from homing_simulator.asked import INSTANTS, Known, asked, device_of
from homing_simulator.families import ECHO, Family, Request

_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+(?:\.[A-Za-z0-9_]+)*)(?:\*[^{}]*)?\}")


def played(profile: DeviceProfile) -> Family:
    """The device's side of a profile: it reads what the profile publishes, and says what the profile reads."""
    return Player(profile).family()


class Player:
    """Finds out what a request says, and makes what the profile reads as its answers."""

    def __init__(self, profile: DeviceProfile) -> None:
        self._profile: Final = profile
        self._answering: Final = Answering(profile)

    def family(self) -> Family:
        """It as fleets use it."""
        return Family(self.command_topics, self.read, self.answers, self.refusal, self.refusal)

    def command_topics(self, device_id: str) -> tuple[str, ...]:
        """The topic filters of a device's commands; ConfigurationError when the profile has no such devices."""
        values = {"device_id": name_of(device_id)}
        if self._profile.device is not None:
            parts = self._profile.device.parse(device_id)
            if parts is None:
                raise ConfigurationError(
                    f"first_device: profile {self._profile.name!r} has ids of the form {self._profile.device.text}"
                )
            values |= {name: name_of(part) for name, part in parts.items()}
        for spec in self._profile.responses:
            if spec.device is not None and spec.device.fixed not in (None, device_id):
                raise ConfigurationError(
                    f"first_device: profile {self._profile.name!r} speaks to {spec.device.fixed} alone"
                )
        return tuple(dict.fromkeys(_filter(one.topic, values) for one in self._profile.requests))

    def read(self, message: ReceivedMessage) -> Request:
        """The command that a message is; ValueError when it is none of this profile."""
        for request, known in asked(self._profile, message):
            device_id = device_of(self._profile, known)
            method = self._method(request, known)
            if device_id is not None and method is not None:
                return Request(
                    device_id=device_id,
                    command_id=next(filter(None, map(known.text, ("id", "id_number", "id_short", "id_uuid"))), ""),
                    method=method,
                    params=None if isinstance(known.params, Missing) else known.params,
                    body={},
                    response_topic=message.response_topic or self._somewhere(method, device_id, known, message),
                    correlation_data=message.correlation_data,
                    deadline=_deadline(known),
                    heard=message,
                    known=known,
                )
        raise ValueError("is no command of this profile")

    def _method(self, request: RequestSpec, known: Known) -> str | None:
        """The method; "" where the profile does not tell devices. None when this request is not for it."""
        said = known.text("method")
        if said is not None:
            return said if request.methods is None or said in request.methods else None
        for one in sorted(request.methods or ("",)):
            if any(correlation_of(spec, known) is not None for spec in self._answering.kinds(one)):
                return one
        return None

    def answers(self, request: Request, _now: float) -> list[Publication]:
        """The messages that it sends while it does the command and when it is done, as far as the profile has them."""
        both = (CommandState.RUNNING, CommandState.SUCCEEDED)
        return [one for state in both if (one := self._said(state, request)) is not None]

    def refusal(self, request: Request, _now: float) -> Publication | None:
        """The message that says that it will not; None where the family has nothing that does."""
        return self._said(CommandState.FAILED, request)

    def _said(self, state: CommandState, request: Request) -> Publication | None:
        if request.heard is None or not isinstance(request.known, Known):
            return None
        result: JsonValue = echoed(request.method, request.params, ECHO)
        said = self._answering.answer(
            state, request.method, request.device_id, request.known, request.heard, result=result
        )
        # A device that hears its own answer as a command would never end.
        return None if said is None or self._is_command(said) else said

    def _is_command(self, said: Publication) -> bool:
        try:
            self.read(ReceivedMessage(said.topic, said.payload, correlation_data=said.correlation_data))
        except ValueError:
            return False
        return True

    def _somewhere(self, method: str, device_id: str, known: Known, message: ReceivedMessage) -> str:
        """The topic on which its answers are expected: what is no answer is said there, too."""
        for state in (CommandState.SUCCEEDED, CommandState.RUNNING, CommandState.FAILED):
            said = self._answering.answer(state, method, device_id, known, message, result=None)
            if said is not None:
                return said.topic
        return ""


def _filter(topic: TopicTemplate, values: dict[str, str]) -> str:
    """The filter of a template for one device."""
    levels: list[str] = []
    for level in topic.text.split("/"):
        known = _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), level)
        if "*" in known:
            return "/".join([*levels, "#"])
        levels.append("+" if "{" in known else known)
    return "/".join(levels)


def _deadline(known: Known) -> float | None:
    """In seconds since the epoch."""
    for name, of_a_second in INSTANTS.items():
        found = known.fact(name)
        if isinstance(found, int | float):
            return found / of_a_second
    said = known.fact("deadline")
    return datetime.fromisoformat(said).timestamp() if isinstance(said, str) else None
