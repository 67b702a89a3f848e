"""The loans of a channel: credit, and when which of them is extended."""

from __future__ import annotations

import pytest

from app.core.events.event import Shard
from app.core.queues.channels import ChannelLoans
from app.core.queues.loans import LoanToken, SettleHow

LOAN = 30.0


def token(number: int = 1, index: int = 0, shard: int = 0, *, dead: bool = False) -> LoanToken:
    return LoanToken("0123abcd", Shard("events", shard), dead, number, index)


@pytest.fixture
def loans() -> ChannelLoans:
    return ChannelLoans(LOAN, 10)


def settle(loans: ChannelLoans, *tokens: LoanToken, how: SettleHow = SettleHow.DONE) -> None:
    for one in tokens:
        loans.settle(one, how, 0.0, 0.0)


def test_credit_is_the_prefetch_less_what_is_lent(loans: ChannelLoans) -> None:
    tokens = [token(index=at) for at in range(4)]
    loans.lend(tokens, 0.0)
    assert loans.credit == 6
    settle(loans, tokens[0], tokens[0])
    settle(loans, tokens[1], how=SettleHow.RETRY)
    assert loans.credit == 8
    settle(loans, token(number=9), token(index=0, shard=1), token(index=2, dead=True))
    assert loans.credit == 8
    loans.prefetch = 1
    assert loans.credit == 0
    assert list(loans.held()) == tokens[2:]
    loans.forget()
    assert (len(loans), loans.next_due()) == (0, None)


def test_a_loan_is_extended_at_half_of_it_by_all_that_is_not_settled(loans: ChannelLoans) -> None:
    loans.lend([token(index=at) for at in range(3)], 100.0)
    assert loans.next_due() == 115.0
    assert loans.due(114.9) == []
    settle(loans, token(index=0))
    assert loans.due(115.0) == [token(index=1), token(index=2)]
    loans.end(token(index=1))
    loans.extended(token(index=2), 115.0)
    assert loans.next_due() == 130.0
    assert loans.due(130.0) == [token(index=2)]
    loans.end(token(index=2))
    assert (len(loans), loans.next_due()) == (0, None)


def test_an_extension_that_fails_is_tried_again_and_then_the_loan_is_over(loans: ChannelLoans) -> None:
    loans.lend([token()], 0.0)
    assert loans.due(15.0) == [token()]
    assert loans.due(16.0) == []
    assert loans.due(22.5) == [token()]
    assert loans.due(30.0) == []
    assert loans.credit == 10


def test_a_loan_is_kept_for_ten_minutes_or_four_times_its_length() -> None:
    for loan, kept in ((30.0, 600.0), (3600.0, 4 * 3600.0), (4 * 3600.0, 12 * 3600.0)):
        loans, now = ChannelLoans(loan, 1), 0.0
        loans.lend([token()], now)
        while (due := loans.next_due()) is not None:
            now = due
            for one in loans.due(now):
                loans.extended(one, now)
        assert kept - loan / 2 <= now <= kept
        assert loans.credit == 1


def test_a_consumer_that_extends_by_itself_has_that_long(loans: ChannelLoans) -> None:
    loans.lend([token()], 0.0)
    loans.settle(token(), SettleHow.EXTEND, 1000.0, 10.0)
    assert loans.credit == 9
    loans.due(900.0)
    assert loans.credit == 9
    loans.due(1010.0)
    assert loans.credit == 10
