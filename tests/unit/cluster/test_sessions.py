from __future__ import annotations

from collections import Counter
from itertools import count

import pytest

from app.cluster.sessions import OwnTopics, Sessions
from app.core.cluster.charter import Charter
from app.core.cluster.notices import SessionNotice, Word, decode_notice, encode_notice
from app.mqtt.options import shown_client_id
from app.runtime.system import new_secret
from tests.unit.assembly import ManualClock

CHARTER, OTHER = Charter("1f" * 16, b"k" * 64), Charter("2e" * 16, b"o" * 64)


class Rig:
    def __init__(self, group: str | None = "homing") -> None:
        self.own_topics: OwnTopics = {}
        self.heard: list[SessionNotice] = []
        self.answers: list[tuple[str, bytes]] = []
        self.counters: Counter[str] = Counter()
        ulids = count(1)
        self.sessions = Sessions(
            group=group,
            prefix="homing",
            filters=["a/+/b"],
            own_topics=self.own_topics,
            heard=self.heard.append,
            answer=lambda topic, payload: self.answers.append((topic, payload)),
            new_ulid=lambda: f"{next(ulids):026}",
            new_secret=new_secret,
            clock=ManualClock(),
            counters=self.counters,
        )


def test_client_ids_cannot_be_guessed_and_are_not_shown() -> None:
    first, second = (Rig().sessions.incarnation("n-1").client_id for _ in range(2))
    assert first.startswith("homing-n-1-")
    assert first[-32:] != second[-32:]
    assert shown_client_id(first) == "homing-n-1-…"
    assert shown_client_id("homing-doctor") == "homing-doctor"


def test_the_share_group_is_that_of_the_charter_and_nothing_else_tells_it() -> None:
    rig = Rig()
    session = rig.sessions.of(rig.sessions.incarnation("n1"), CHARTER)
    shared, notices = session.subscriptions
    assert shared.topic_filter == f"$share/homing-{CHARTER.group}/a/+/b"
    assert (notices.qos, notices.needed) == (1, False), "who is cut off hears of a death when it is back"
    assert session.info.filters == (shared.topic_filter, notices.topic_filter)
    assert session.will is not None
    told = f"{session.will} {notices.topic_filter} {CHARTER}"
    assert CHARTER.group not in told
    assert CHARTER.key.decode() not in told
    assert session.info.client_id not in told


def test_a_node_alone_shares_nothing_and_has_no_will() -> None:
    rig = Rig(group=None)
    session = rig.sessions.of(rig.sessions.incarnation("n1"), CHARTER)
    assert [one.topic_filter for one in session.subscriptions] == ["a/+/b"]
    assert session.will is None
    assert rig.own_topics == {}


def test_the_wills_of_others_are_heard_and_ones_own_is_not() -> None:
    rig = Rig()
    own, other = rig.sessions.incarnation("n1"), SessionNotice(Word.LOST, "n2", "i")
    session = rig.sessions.of(own, CHARTER)
    assert session.will is not None
    hear = rig.own_topics[session.will.topic]
    hear(session.will.payload)
    hear(encode_notice(other, CHARTER))
    assert rig.heard == [other]


def test_an_answer_is_heard_by_the_incarnation_that_asked_and_by_no_other() -> None:
    rig = Rig()
    own = rig.sessions.incarnation("n1")
    session = rig.sessions.of(own, CHARTER)
    hear = rig.own_topics[session.subscriptions[-1].topic_filter]
    ours, other = (SessionNotice(Word.STORED, "n2", "i", asker) for asker in (own.incarnation, "somebody"))
    hear(encode_notice(ours, CHARTER))
    hear(encode_notice(other, CHARTER))
    assert rig.heard == [ours]


def test_a_word_is_said_for_the_present_incarnation() -> None:
    rig = Rig()
    rig.sessions.say(Word.STORE)
    assert rig.answers == [], "nothing is joined yet"
    own = rig.sessions.incarnation("n1")
    topic = rig.sessions.of(own, CHARTER).subscriptions[-1].topic_filter
    rig.sessions.say(Word.STORED, "i")
    [(said_to, payload)] = rig.answers
    assert said_to == topic
    assert decode_notice(payload, CHARTER) == SessionNotice(Word.STORED, "n1", own.incarnation, "i")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"lost n2 i",
        b"lost n2 i 0000000000000000",
        b"\xff",
        encode_notice(SessionNotice(Word.LOST, "n2", "i"), OTHER),
    ],
)
def test_a_notice_that_is_not_signed_by_this_cluster_is_counted(payload: bytes) -> None:
    rig = Rig()
    session = rig.sessions.of(rig.sessions.incarnation("n1"), CHARTER)
    rig.own_topics[session.subscriptions[-1].topic_filter](payload)
    assert (rig.heard, rig.counters["drop.bad_notice"]) == ([], 1)


def test_under_another_charter_only_its_notices_are_heard() -> None:
    rig = Rig()
    info = rig.sessions.incarnation("n1")
    first = rig.sessions.of(info, CHARTER)
    second = rig.sessions.of(info, OTHER)
    assert list(rig.own_topics) == [second.subscriptions[-1].topic_filter] != [first.subscriptions[-1].topic_filter]


def test_the_signature_covers_every_word() -> None:
    payload = encode_notice(SessionNotice(Word.LOST, "n2", "i"), CHARTER)
    assert decode_notice(payload, CHARTER) == SessionNotice(Word.LOST, "n2", "i")
    for changed in (payload.replace(b"lost", b"back"), payload.replace(b"n2", b"n3"), payload.replace(b" i ", b" j ")):
        with pytest.raises(ValueError, match="signed"):
            decode_notice(changed, CHARTER)


def test_a_node_answers_who_asks_under_its_charter_and_nobody_else() -> None:
    rig = Rig()
    session = rig.sessions.of(rig.sessions.incarnation("n1"), CHARTER)
    topic = session.subscriptions[-1].topic_filter
    hear = rig.own_topics[topic]
    question = SessionNotice(Word.WHO, "n1", "01ASKS")
    for charter in (OTHER, CHARTER):
        hear(encode_notice(question, charter))
    hear(encode_notice(SessionNotice(Word.WHO, "n1", session.info.incarnation), CHARTER))  # its own question
    [(answered_on, answer)] = rig.answers
    assert answered_on == topic
    assert decode_notice(answer, CHARTER) == SessionNotice(Word.HERE, "n1", session.info.incarnation, "01ASKS")
    hear(answer.replace(b"01ASKS", b"01LIES"))
    hear(encode_notice(SessionNotice(Word.HERE, "n2", "01THERE", "01ASKS"), CHARTER))
    assert rig.heard == []


def survivor_of_others() -> Rig:
    """A node whose incarnation is not the first one of any node."""
    rig = Rig()
    rig.sessions.incarnation("n1")
    rig.sessions.of(rig.sessions.incarnation("n1"), CHARTER)
    return rig


def test_a_will_tells_nodes_of_this_cluster_alone_which_session_is_lost() -> None:
    """So another node can adopt it, though the store has forgotten that it exists."""
    dead, survivor = Rig(), survivor_of_others()
    session = dead.sessions.of(dead.sessions.incarnation("n-2"), CHARTER)
    assert session.will is not None
    survivor.own_topics[session.will.topic](session.will.payload)
    [notice] = survivor.heard
    named = survivor.sessions.named(notice)
    assert named is not None
    assert (named.node_id, named.client_id, named.incarnation, named.filters) == (
        session.info.node_id,
        session.info.client_id,
        session.info.incarnation,
        session.info.filters,
    )
    secret = session.info.client_id[-32:]
    assert secret.encode() not in session.will.payload
    assert secret not in repr(notice)


def test_nodes_of_0_2_0_read_a_will_of_this_version_and_the_other_way_round() -> None:
    """They take the fourth word for who has asked: here it has to be empty."""
    session = Rig().sessions.of(Rig().sessions.incarnation("n2"), CHARTER)
    assert session.will is not None
    text, _, signature = session.will.payload.decode().rpartition(" ")
    assert CHARTER.signed("notice", text, signature)
    _word, _node, _incarnation, *asker = text.split(" ")
    assert asker[:1] == [""]
    old = f"lost n2 {session.info.incarnation}"
    survivor = survivor_of_others()
    survivor.own_topics[session.will.topic](f"{old} {CHARTER.sign('notice', old)}".encode())
    [notice] = survivor.heard
    assert survivor.sessions.named(notice) is None


def test_a_secret_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="65 bytes are no such secret"):
        CHARTER.seal("i", "x" * 65)
