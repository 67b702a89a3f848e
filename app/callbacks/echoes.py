"""Finds the command that a state answers: one that was told just now, or one that the device has told before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from app.core.commands.callback import Answer
from app.core.commands.command import Command, CommandState
from app.core.errors import UnavailableError
from app.core.payload import JsonValue
from app.core.profiles.conditions import all_hold
from app.core.profiles.correlation import Correlation
from app.core.profiles.profile import DeviceProfile, ResponseSpec, to_json
from app.core.profiles.response_reader import part_of
from app.core.profiles.templates import facts_of
from app.store.echo_states import MOST_STATE, EchoStates


class Echoes:
    """It asks the store for what it needs, as the command may be open on any node."""

    def __init__(self, states: EchoStates, profiles: Mapping[str, DeviceProfile]) -> None:
        self._states = states
        self._profiles = profiles
        self._with_no_ops = frozenset(name for name, profile in profiles.items() if profile.has_no_ops)

    async def named(self, answer: Answer) -> Answer | None:
        """The answer with the command that it is an echo for, None where there is none.

        What `CommandReader` raises when the store is away.
        """
        if answer.heard is None:
            return None
        echo, state = answer.heard
        if echo.no_op is not None and len(told := to_json(state)) <= MOST_STATE:
            await self._states.tell_state(answer.device_id, answer.topic, told, echo.no_op)
        for command in await self._states.expecting(answer.device_id, answer.topic, echo.within):
            if command.profile == answer.profile and echo.answers(state, facts_of(command)):
                return replace(answer, value=command.id)
        return None

    async def before(self, command: Command) -> Answer | None:
        """The answer to a command that asks for nothing but what is so already, and whose profile says that it counts.

        None also where the store does not say: then the device may still tell.
        """
        facts = facts_of(command)
        for topic, spec in self._profiles[command.profile].no_ops(facts):
            told = None
            with suppress(UnavailableError):
                told = await self._states.last_state(command.device_id, topic)
            if told is None or spec.echo is None:
                continue
            state = json.loads(told)
            if spec.echo.answers(state, facts):
                return _answer(command, topic, spec, state)
        return None

    def may_be_before(self, command: Command) -> bool:
        """True if `before` has anything to look for."""
        if command.profile not in self._with_no_ops:
            return False
        profile = self._profiles[command.profile]
        return next(profile.no_ops(facts_of(command)), None) is not None


def _answer(command: Command, topic: str, spec: ResponseSpec, state: JsonValue) -> Answer | None:
    read_as = next((rule.state for rule in spec.rules if all_hold(rule.when, state)), None)
    if read_as is not CommandState.SUCCEEDED:
        return None
    return Answer(
        topic=topic,
        device_id=command.device_id,
        correlation=Correlation.ECHO,
        value=command.id,
        state=read_as,
        result=part_of(state, spec.result),
        profile=command.profile,
    )
