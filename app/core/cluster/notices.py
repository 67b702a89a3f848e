"""Nodes of a cluster tell each other over the broker that a session has lost its connection, or is back.

`<word> <node id> <incarnation> <signature>`, with blanks between. The broker sends the first as the will of a session
(MQTT 5, section 3.1.2.5); a node sends the second itself. It is a hint: a node asks the store before it acts on it.

A node also asks who is there (`who`), and each node answers (`here`); an answer names the incarnation that asked in
front of its signature. One that has lost the store asks who has it (`store`), and a node that has had it all the while
answers (`stored`). So that its responses come to those, the one that asked leaves its session to them (`left`).

Behind the incarnation that asked, which may be empty, stands the secret part of the session's MQTT client id, sealed:
so a session of which the store has forgotten everything can be adopted. Nodes of 0.2.0 say none, and do not read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from app.core.cluster.charter import Charter

NOTICES: Final = "homing-cluster"
"""The first level of the topics of all clusters."""

_PURPOSE: Final = "notice"


class Word(StrEnum):
    """The word that is told of a session."""

    LOST = "lost"
    BACK = "back"
    WHO = "who"
    HERE = "here"
    STORE = "store"
    STORED = "stored"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class SessionNotice:
    """The notice of an incarnation about a session. `asker` is the incarnation that it answers."""

    word: Word
    node_id: str
    incarnation: str
    asker: str = ""
    secret: str = field(default="", repr=False)
    """The part of the session's MQTT client id that nobody can guess; empty where nothing was said of it."""


def notice_topic(charter: Charter) -> str:
    """The topic where the nodes of this cluster tell each other. It says nothing of the group or the key."""
    return f"{NOTICES}/{charter.sign('topic', '')}"


def encode_notice(notice: SessionNotice, charter: Charter) -> bytes:
    """The payload."""
    sealed = charter.seal(notice.incarnation, notice.secret)
    text = f"{notice.word} {notice.node_id} {notice.incarnation} {notice.asker} {sealed}".rstrip()
    return f"{text} {charter.sign(_PURPOSE, text)}".encode()


def decode_notice(payload: bytes, charter: Charter) -> SessionNotice:
    """Read a payload; ValueError when it is none, or not of a node of this cluster."""
    text, _, signature = payload.decode("ascii").rpartition(" ")
    if not charter.signed(_PURPOSE, text, signature):
        raise ValueError("not signed by this cluster")
    word, node_id, incarnation, *more = text.split(" ")
    asker, sealed, *_ = [*more, "", ""]
    return SessionNotice(Word(word), node_id, incarnation, asker, charter.unseal(incarnation, sealed))
