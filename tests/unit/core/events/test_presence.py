from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from app.core.events.event import Entry
from app.core.events.presence import FILTER, Change, Presences, change_of, entry_of, topic_of
from app.core.topics import matches

MINUTE = timedelta(minutes=1)


def test_the_first_sign_of_a_device_is_that_it_came_and_further_ones_are_no_change() -> None:
    known = Presences()
    assert known.heard("SN1", 0.0, MINUTE, online=True) == Change("SN1", online=True, offline_after=MINUTE)
    assert known.heard("SN1", 1.0, MINUTE, online=True) is None
    assert known.heard("SN1", 2.0, None, online=False) == Change("SN1", online=False, offline_after=MINUTE)
    assert known.heard("SN1", 3.0, None, online=False) is None
    assert known.silent(1000.0) == []


def test_a_device_that_is_silent_for_too_long_has_gone() -> None:
    known = Presences()
    known.heard("SN1", 0.0, MINUTE, online=True)
    known.heard("SN2", 0.0, None, online=True)
    known.heard("SN1", 59.0, MINUTE, online=True)
    assert known.silent(60.0) == []
    assert known.silent(118.9) == []
    assert known.silent(119.0) == [Change("SN1", online=False, offline_after=MINUTE, said=False)]
    assert known.silent(10_000.0) == [], "what never says how long it may be silent is there until it says that it goes"
    assert known.heard("SN1", 10_001.0, MINUTE, online=True) is not None


def test_what_was_known_before_is_given_its_whole_time_again() -> None:
    known = Presences()
    known.load(Change("SN1", online=True, offline_after=MINUTE), 500.0)
    assert known.heard("SN1", 501.0, None, online=True) is None
    assert known.silent(560.0) == []
    assert [one.device_id for one in known.silent(561.0)] == ["SN1"]


def test_a_change_survives_being_written_down() -> None:
    for change in (Change("SN1", online=True, offline_after=MINUTE), Change("SN1", online=False)):
        entry = entry_of(change, 17)
        assert change_of(entry) == (change, 17)
        assert matches(FILTER, entry.topic)
        assert not matches("#", entry.topic)
    assert change_of(Entry(topic_of("SN1"), b"[]")) is None
    assert change_of(Entry("a/b", b'{"online":true,"since":1,"offline_after_s":null}')) is None


def test_devices_are_bounded() -> None:
    known = Presences(most=2)
    assert [known.heard(f"SN{number}", 0.0, None, online=True) is not None for number in range(3)] == [
        True,
        True,
        False,
    ]
    assert len(known) == 2


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.sampled_from([0, 1, 30, 90])), max_size=40))
def test_it_is_as_the_last_sign_and_the_silence_since_say(signs: list[tuple[str, bool, int]]) -> None:
    known, now, last = Presences(), 0.0, {"a": 0.0, "b": 0.0}
    online: dict[str, bool | None] = {"a": None, "b": None}
    for device, there, pause in signs:
        now += pause
        for gone in known.silent(now):
            assert online[gone.device_id]
            online[gone.device_id] = gone.online
        for one, is_online in online.items():
            assert not is_online or now - last[one] < 60
        change = known.heard(device, now, MINUTE, online=there)
        assert (change is not None) is (online[device] is not there)
        online[device], last[device] = there, now
        assert len(known._due) <= 2
