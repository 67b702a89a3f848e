"""The states that devices tell, for every state store: the sentences of the port (app/store/echo_states.py)."""

from __future__ import annotations

from datetime import timedelta

from app.core.commands.callback import Expectation
from app.core.commands.command import CommandState
from app.core.commands.routing import MatchResult
from app.core.profiles.correlation import Correlation
from app.store.echo_states import MOST_EXPECTING
from app.store.holds import Claimed
from app.store.state import StateStore
from tests.contract.store_backends import Backend, answer, registration, topic_of

MINUTE = timedelta(minutes=1)
DEVICE = "lamp-1"
PLACE = Expectation(f"{topic_of(DEVICE)}#state", Correlation.ECHO)


class TestStates:
    async def test_open_commands_that_wait_there_are_found_oldest_first(
        self, store: StateStore, other_node: StateStore
    ) -> None:
        wanted = [registration(DEVICE, PLACE) for _ in range(MOST_EXPECTING + 1)]
        for one in wanted:
            await store.register(one)
        found = await other_node.states.expecting(DEVICE, PLACE.topic, MINUTE)
        assert [one.id for one in found] == [one.command_id for one in wanted[:MOST_EXPECTING]]
        assert await store.states.expecting(DEVICE, topic_of(DEVICE), MINUTE) == []
        assert await store.states.expecting("lamp-2", PLACE.topic, MINUTE) == []

    async def test_an_echo_is_recorded_as_what_it_is_and_no_longer_waited_for(
        self, store: StateStore, other_node: StateStore
    ) -> None:
        wanted = registration(DEVICE, PLACE)
        await store.register(wanted)
        assert (await other_node.respond(answer(wanted), "node-b")).verdict is MatchResult.WON
        (command,) = await store.get([wanted.command_id])
        assert command is not None
        assert (command.state, command.matched_by) == (CommandState.SUCCEEDED, Correlation.ECHO)
        assert await store.states.expecting(DEVICE, PLACE.topic, MINUTE) == []

    async def test_an_echo_elsewhere_than_expected_is_no_answer(self, store: StateStore) -> None:
        wanted = registration(DEVICE, PLACE)
        await store.register(wanted)
        elsewhere = answer(wanted, topic=topic_of(DEVICE))
        assert (await store.respond(elsewhere, "node-a")).verdict is MatchResult.MISMATCH

    async def test_what_began_too_long_ago_takes_no_echo(self, store: StateStore, backend: Backend) -> None:
        await store.register(registration(DEVICE, PLACE))
        await backend.advance(timedelta(milliseconds=20))
        assert await store.states.expecting(DEVICE, PLACE.topic, timedelta(milliseconds=10)) == []

    async def test_a_command_that_was_held_waits_for_an_echo_since_its_claim(
        self, store: StateStore, backend: Backend
    ) -> None:
        held = registration(DEVICE, PLACE, held=MINUTE)
        await store.register(held)
        await backend.advance(timedelta(milliseconds=600))
        assert isinstance(await store.claim(held.command_id, "node-a", "token"), Claimed)
        found = await store.states.expecting(DEVICE, PLACE.topic, timedelta(milliseconds=500))
        assert [one.id for one in found] == [held.command_id]

    async def test_the_last_state_is_remembered_for_as_long_as_said(
        self, store: StateStore, other_node: StateStore, backend: Backend
    ) -> None:
        assert await store.states.last_state(DEVICE, "state") is None
        await store.states.tell_state(DEVICE, "state", b"1", MINUTE)
        await store.states.tell_state(DEVICE, "state", b"2", timedelta(seconds=3))
        assert await store.states.last_state("lamp-2", "states") is None
        assert await other_node.states.last_state(DEVICE, "state") == b"2"
        await backend.advance(timedelta(seconds=3.1))
        assert await store.states.last_state(DEVICE, "state") is None
