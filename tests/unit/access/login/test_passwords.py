from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from app.access.login.fair_turns import MOST_WAITING
from app.access.login.passwords import Passwords
from app.core.errors import CapacityError, InvalidInputError, NodeDrainingError
from tests.waiting import turns

GOOD = "correct horse battery"


@pytest.fixture
def passwords() -> Iterator[Passwords]:
    made = Passwords()
    yield made
    made.close()


async def test_a_password_is_known_again(passwords: Passwords) -> None:
    kept = await passwords.hash(GOOD)
    assert kept.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert GOOD not in kept
    assert await passwords.check(GOOD, kept)
    assert not await passwords.check(GOOD + " ", kept)
    assert not await passwords.check("", kept)
    assert await passwords.hash(GOOD) != kept


async def test_nobody_has_a_password(passwords: Passwords) -> None:
    assert not await passwords.check(GOOD, None)
    assert not await passwords.check("", None)


@pytest.mark.parametrize("kept", ["", GOOD, "$argon2id$v=19$m=65536,t=3,p=4$!!$!!", "$2b$12$" + "a" * 53, "\ud800"])
async def test_what_is_no_hash_fits_nothing(passwords: Passwords, kept: str) -> None:
    assert not await passwords.check(GOOD, kept)


async def test_letters_count_however_they_were_typed(passwords: Passwords) -> None:
    kept = await passwords.hash("zw\u00f6lf Zeichen lang")
    assert await passwords.check("zwo\u0308lf Zeichen lang", kept)


@pytest.mark.parametrize("length", [0, 11, 257])
async def test_lengths_are_bounded(passwords: Passwords, length: int) -> None:
    with pytest.raises(InvalidInputError, match=f"password: has {length} characters; allowed are 12 to 256"):
        await passwords.hash("x" * length)


async def test_a_password_that_nobody_can_have_costs_nothing(passwords: Passwords) -> None:
    passwords.close()  # a hash could not be computed any more
    assert not await passwords.check("x" * 1_000_000, None)


async def test_only_so_many_wait(passwords: Passwords) -> None:
    asked = [asyncio.ensure_future(passwords.check(GOOD, None)) for _ in range(MOST_WAITING + 2)]
    done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_EXCEPTION)
    failed = [one for one in done if one.exception() is not None]
    assert [type(one.exception()) for one in failed] == [CapacityError]
    for one in asked:
        one.cancel()
    await asyncio.wait(asked)
    assert not await passwords.check(GOOD, None)


async def test_when_the_node_stops_those_who_wait_are_told_so(passwords: Passwords) -> None:
    kept = await passwords.hash(GOOD)
    first, *others = [asyncio.ensure_future(passwords.check(GOOD, kept)) for _ in range(4)]
    await turns()
    passwords.close()
    assert await first, "it had its turn"
    told = await asyncio.gather(*others, passwords.check(GOOD, kept), return_exceptions=True)
    assert [type(one) for one in told] == [NodeDrainingError] * 4
    assert "try again" in str(told[0])
