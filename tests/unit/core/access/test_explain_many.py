"""A10: 500 questions at random: the rule that decides is named, and what is said to be missing is what is missing."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from fnmatch import fnmatchcase
from random import Random

from app.core.access.callers import Caller
from app.core.access.explain import explain
from app.core.access.keys import make_key
from app.core.access.model import Binding, Document, Role
from app.core.access.questions import Question, Reason
from app.core.access.rules import BUILT_IN, Action
from app.core.access.snapshot import Snapshot
from tests.unit.core.access.documents import binding, key_of, role, service, tenant

KEY = make_key(Random(1).randbytes)
NOW_US = 50
METHODS = ("cover_open", "cover_close", "drone_open", "drone_close", "reboot", "firmware_update")
PATTERNS = ("*", "cover_*", "drone_*", "*_close", "reboot", "firmware_*")
DEVICES = ("dock-1", "dock-2", "dock-17", "mast-1")
ACTIONS = (Action.SEND, Action.READ, Action.CANCEL)


def rule_text(rng: Random) -> str:
    effect = rng.choice(("allow", "allow", "allow", "deny"))
    device = rng.choice(("*", "dock-*", "dock-1", "mast-*"))
    profile = rng.choice(("dji", "homing", "*"))
    return f"{effect} {rng.choice(ACTIONS)} {profile}:{rng.choice(PATTERNS)} on {device}"


def bound(rng: Random, name: str) -> Binding:
    """Mostly one that counts."""
    expires_us = rng.choice((None, None, None, 10, 90))
    return binding("ci", name, expires_us=expires_us, devices=rng.choice((("*",), ("*",), ("dock-1*",), ("mast-*",))))


def document(rng: Random) -> Document:
    roles = [role(f"r{number}", *[rule_text(rng) for _ in range(rng.randint(1, 4))]) for number in range(4)]
    return Document(
        cluster_id="c",
        version=1,
        tenants=(tenant("north", "dock-*", "mast-*"),),
        principals=(service("ci", "north"),),
        credentials=(key_of("ci", KEY),),
        roles=tuple(roles),
        bindings=tuple(bound(rng, one.name) for one in rng.sample(roles, rng.randint(1, 3))),
    )


def question(rng: Random) -> Question:
    return Question(rng.choice(ACTIONS), rng.choice(DEVICES), rng.choice(("dji", "homing")), rng.choice(METHODS))


def applying(document: Document, asked: Question) -> dict[str, set[str]]:
    """By effect, the names of the rules that say something about it: a plain reading of what is written."""
    found: dict[str, set[str]] = {"allow": set(), "deny": set()}
    for one in document.bindings:
        counts = one.expires_us is None or one.expires_us > NOW_US
        if not counts or not any(fnmatchcase(asked.device, pattern) for pattern in one.devices):
            continue
        (rules,) = [each.rules for each in document.roles if each.name == one.role]
        for number, text in enumerate(rules, 1):
            effect, action, what, _, device = text.split()
            profile, method = what.split(":")
            pairs = ((asked.profile, profile), (asked.method, method), (asked.device, device))
            if action == asked.action and all(fnmatchcase(value, pattern) for value, pattern in pairs):
                found[effect].add(f"{one.role}.{number}")
    return found


def mended(document: Document, sentence: str, asked: Question) -> Document:
    """As a person would do who believes the sentence: the parts that do not fit, or the binding, are made to."""
    name, number, text, why = re.fullmatch(r"([\w-]+)\.(\d+) ([^,]+?): (.+)", sentence).groups()  # type: ignore[union-attr] # else it fails
    known = {one.name: one.rules for one in document.roles} | dict(BUILT_IN)
    effect, action, what, _, device = known[name][int(number) - 1].split()
    assert f"{effect} {action} {what} on {device}" == text
    profile, method = what.split(":")
    parts = {"action": action, "profile": profile, "method": method, "device": device}
    told = re.match(r"([a-z]+(?: and [a-z]+)*) do(?:es)? not fit", why)
    for part in told[1].split(" and ") if told else ():
        parts[part] = str(getattr(asked, part))
    rules = f"allow {parts['action']} {parts['profile']}:{parts['method']} on {parts['device']}"
    roles = (*document.roles, Role(name="mended", tenant_id=None, rules=(rules,)))
    held = [one for one in document.bindings if one.role == name]
    if "binding" in why or "not bound" in why:
        held = [binding("ci", name)]
    return replace(document, roles=roles, bindings=(*document.bindings, *[replace(held[0], id="m", role="mended")]))


def test_500_questions_are_explained() -> None:
    rng, counted = Random(10), Counter[str]()
    caller = Caller.of_key(KEY.id)
    while counted["decided"] < 500 or counted["near"] < 500:
        base, asked = document(rng), question(rng)
        said, rules = explain(Snapshot.of(base), caller, asked, NOW_US), applying(base, asked)
        if said.reason is Reason.NO_RULE:
            assert not rules["allow"]
            assert not rules["deny"]
            counted["near"] += 1
            after = explain(Snapshot.of(mended(base, said.nearest[0], asked)), caller, asked, NOW_US)
            counted["correct"] += after.allowed
        else:
            counted["decided"] += 1
            assert said.rule is not None
            assert said.rule.name in rules["deny" if rules["deny"] else "allow"]
            assert said.allowed is not bool(rules["deny"])
    assert counted["correct"] >= 0.9 * counted["near"]
