"""Endpoints: who is told of what, and what no endpoint can be."""

from __future__ import annotations

import pytest

from app.core.commands.command import CommandState
from app.core.errors import InvalidInputError
from app.core.webhooks.deliveries import (
    Delivery,
    OutboxEntry,
    Progress,
    Tidings,
    after,
    before,
    decode_delivery,
    decode_endpoint,
    encode_delivery,
    encode_endpoint,
    event_id,
)
from app.core.webhooks.endpoints import (
    BY_STATE,
    OVERLAP_US,
    Endpoint,
    EventType,
    validate_events,
    validate_filter,
    validate_id,
    validate_url,
)
from app.core.webhooks.schedule import ATTEMPTS, DELAYS, GIVEN_UP_AFTER, MOST_RETRY_AFTER, SECOND, Reply, next_attempt

FAILED = Reply(500, "the receiver answered 500")


def endpoint(devices: str = "*", methods: str = "*:*") -> Endpoint:
    return Endpoint(
        id="wh_01J00000000000000000000001",
        tenant="acme",
        url="https://a.example",
        events=frozenset({EventType.FAILED}),
        devices=devices,
        methods=methods,
        created_at=7,
        root="f00",
    )


class TestFilter:
    @pytest.mark.parametrize(
        ("devices", "methods", "wanted"),
        [
            ("*", "*:*", True),
            ("dock-*", "dji:*", True),
            ("dock-*", "*:cover_*", True),
            ("dock-2", "*:*", False),
            ("*", "homing:*", False),
            ("*", "dji:drone_*", False),
        ],
    )
    def test_device_and_method_must_fit(self, devices: str, methods: str, *, wanted: bool) -> None:
        assert endpoint(devices, methods).wants("dock-1", "dji", "cover_open") is wanted

    def test_a_disabled_one_wants_nothing(self) -> None:
        assert not endpoint().disabled(1, "x").wants("dock-1", "dji", "cover_open")

    def test_a_method_alone_is_that_of_any_profile(self) -> None:
        assert validate_filter("*", "cover_*") == ("*", "*:cover_*")

    def test_the_first_colon_divides_as_in_rules(self) -> None:
        assert validate_filter("*", "tasmota:POWER:1") == ("*", "tasmota:POWER:1")

    @pytest.mark.parametrize(("devices", "methods"), [("", "*"), ("do?k", "*"), ("*", "DJI:*"), ("*", "a b")])
    def test_wildcards_of_other_languages_are_refused(self, devices: str, methods: str) -> None:
        with pytest.raises(InvalidInputError):
            validate_filter(devices, methods)


class TestEvents:
    def test_each_outcome_has_one(self) -> None:
        assert set(BY_STATE) == {one for one in CommandState if one.final}

    @pytest.mark.parametrize("names", [[], ["command.exploded"], ["webhook.test"], ["command.failed", ""]])
    def test_what_there_is_not_is_refused(self, names: list[str]) -> None:
        with pytest.raises(InvalidInputError, match="allowed: command"):
            validate_events(names)

    def test_the_late_answer_comes_after_the_outcome(self) -> None:
        outcome, late = OutboxEntry("042-X"), OutboxEntry("042-X", Tidings.LATE)
        assert before(event_id(late)) == event_id(outcome)
        assert before(event_id(outcome)) is None
        assert [OutboxEntry.read(one.member) for one in (outcome, late)] == [outcome, late]

    def test_that_a_second_person_is_asked_waits_for_nothing(self) -> None:
        asked, outcome = OutboxEntry("042-X", Tidings.ASKED), OutboxEntry("042-X")
        assert before(event_id(asked)) is None
        assert event_id(asked) not in after(event_id(outcome))
        assert OutboxEntry.read(asked.member) == asked


class TestUrl:
    @pytest.mark.parametrize(
        "url",
        ["https://a.example", "https://a.example:8443/x?y=1&z=%20", "https://[2a00:1450::1]/", "https://8.8.8.8/"],
    )
    def test_a_place_on_the_internet_is_one(self, url: str) -> None:
        assert validate_url(url, plain_http=False) == url

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("http://a.example", "begins with 'http'"),
            ("ftp://a.example", "begins with 'ftp'"),
            ("gopher://a.example", "begins with"),
            ("//a.example", "begins with"),
            ("a.example", "begins with"),
            ("https://", "names no host"),
            ("https:///path", "names no host"),
            ("https://user@a.example", "has a user"),
            ("https://user:secret@a.example", "has a user"),
            ("https://a.example/#x", "has a fragment"),
            ("https://a.example/ x", "blanks"),
            ("https://a.example/\r\nHost: b", "blanks"),
            ("https://ä.example", "not ASCII"),
            ("https://a.example:99999", "is none"),
            ("https://a.example:0", "port 0"),
            ("https://a.example/" + "x" * 2048, "characters"),
        ],
    )
    def test_everything_else_is_refused_with_a_reason(self, url: str, reason: str) -> None:
        with pytest.raises(InvalidInputError, match=reason):
            validate_url(url, plain_http=False)

    def test_without_tls_only_where_it_is_allowed(self) -> None:
        assert validate_url("http://a.example", plain_http=True) == "http://a.example"

    @pytest.mark.parametrize("text", ["", "wh_", "wh_01J0000000000000000000000I", "x" * 100, "../v1/keys"])
    def test_what_is_no_id_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidInputError):
            validate_id(text)


class TestSchedule:
    def test_it_takes_about_three_days(self) -> None:
        assert 74 * 3600 * SECOND < sum(DELAYS) < 76 * 3600 * SECOND
        assert sum(DELAYS) > GIVEN_UP_AFTER

    @pytest.mark.parametrize("attempt", range(1, ATTEMPTS))
    def test_each_delay_is_a_fifth_shorter_or_longer(self, attempt: int) -> None:
        planned = DELAYS[attempt - 1]
        found = [next_attempt(attempt, 1_000, random) for random in (0.0, 0.5, 1.0)]
        assert found == [1_000 + round(planned * factor) for factor in (0.8, 1.0, 1.2)]

    def test_it_ends(self) -> None:
        assert next_attempt(ATTEMPTS, 0, 0.5) is None

    @pytest.mark.parametrize(
        ("asked", "delay"),
        [
            ("60", 60 * SECOND),
            (" 60 ", 60 * SECOND),
            ("0", DELAYS[0]),
            ("86400", MOST_RETRY_AFTER),
            ("9" * 30, DELAYS[0]),
            ("-5", DELAYS[0]),
            ("soon", DELAYS[0]),
            ("", DELAYS[0]),
            ("Thu, 01 Jan 1970 00:10:00 GMT", 600 * SECOND),
            ("Fri, 31 Dec 9999 23:59:59 GMT", MOST_RETRY_AFTER),
        ],
    )
    def test_the_receiver_may_put_it_off_by_an_hour(self, asked: str, delay: int) -> None:
        assert next_attempt(1, 0, 0.5, asked) == delay


class TestDelivery:
    def delivery(self) -> Delivery:
        return Delivery("evt_042-X_1", EventType.FAILED, '{"größe":1}'.encode(), 3)

    def test_success_ends_it(self) -> None:
        after = self.delivery().after(Reply(204), 9, 0.5)
        assert (after.progress, after.attempts, after.attempted_at, after.next_at) == (Progress.DELIVERED, 1, 9, None)

    @pytest.mark.parametrize("status", [301, 400, 404, 500, 503, None])
    def test_only_2xx_is_success(self, status: int | None) -> None:
        after = self.delivery().after(Reply(status, "x"), 9, 0.5)
        assert (after.progress, after.next_at, after.delay) == (Progress.WAITING, 9 + DELAYS[0], DELAYS[0])

    def test_410_ends_it_at_once(self) -> None:
        assert self.delivery().after(Reply(410, "x"), 9, 0.5).progress is Progress.GIVEN_UP

    def test_so_does_the_last_attempt(self) -> None:
        one = self.delivery()
        for _ in range(ATTEMPTS):
            assert one.progress is Progress.WAITING
            one = one.after(FAILED, 9, 0.5)
        assert (one.progress, one.attempts, one.next_at) == (Progress.GIVEN_UP, ATTEMPTS, None)

    def test_what_is_kept_is_read_again(self) -> None:
        for one in (self.delivery(), self.delivery().after(FAILED, 9, 0.5), self.delivery().after(Reply(200), 9, 0.5)):
            assert decode_delivery(encode_delivery(one)) == one
        for kept in (endpoint(), endpoint().rotated(5).disabled(6, "große Not")):
            assert decode_endpoint(encode_endpoint(kept)) == kept

    def test_both_secrets_sign_for_a_day(self) -> None:
        rotated = endpoint().rotated(100)
        assert endpoint().epochs(100) == (1,)
        assert rotated.epochs(100 + OVERLAP_US - 1) == (2, 1)
        assert rotated.epochs(100 + OVERLAP_US) == (2,)
