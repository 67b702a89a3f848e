"""A state store, said once more as plainly as possible: the judge of the random histories.

A step returns what both stores must return, without the instants, which only they know.
"""

from __future__ import annotations

import json
from dataclasses import replace

from app.core.commands.approval import ApprovalDecision
from app.core.commands.callback import Answer, Registration
from app.core.commands.command import CommandState
from app.core.commands.reception import reception_of, reception_of_finding
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.core.profiles.probes import ProbeFinding
from app.store.rules import error_of_finding, refused_by_second, replaced, superseded
from tests.contract.store_rows import FAR_AHEAD, ORDER_OF_STATES, UNKNOWN, Plain, Row, S


class Model:
    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.values: dict[tuple[str, str], str] = {}
        self.turns = 0
        self.sent: set[tuple[str, str]] = set()
        """Devices and names of their lanes through which something left, where a pace matters: a minute is long."""
        self.stopped: dict[tuple[str, str], str] = {}

    def register(self, new: Registration) -> Plain:
        if new.command_id in self.rows:
            return "held" if self.rows[new.command_id].state is S.HELD else "registered"
        for row in reversed(self.rows.values()):
            old = row.registration
            if new.idempotency_key and (old.device_id, old.idempotency_key) == (new.device_id, new.idempotency_key):
                if row.state is S.UNSENT:
                    break
                return self._join(row, new)
        taken = not new.begins_held and self._taken(new)
        if taken and new.hold is None:
            return "DeviceBusyError"
        held = new.begins_held or taken
        if not held and self._busy(new):
            return "DeviceBusyError"
        if new.hold is None or new.hold.approval is None:
            for row in self._namesakes(new):
                row.cancel(replaced(new.command_id))
            self._supersede(new)
        self.turns += 1
        state = S.HELD if held else S.PENDING
        self.rows[new.command_id] = Row(new, [new.home_node], state, was_held=held, ready=self.turns)
        if held:
            return "held"
        self._leaves(new)
        self._name(new)
        return "registered"

    def _supersede(self, new: Registration) -> None:
        if new.lane is not None and new.lane.order is LaneOrder.LATEST:
            for row in self._line(new):
                row.cancel(superseded(new.command_id))

    def _namesakes(self, new: Registration) -> list[Row]:
        """Return those that wait at the device of a command with its key, first come first."""
        if new.hold is None or not new.hold.replaces:
            return []
        rows = [one for one in self.rows.values() if one.registration.device_id == new.device_id]
        same = [one for one in rows if one.registration.hold and one.registration.hold.replaces == new.hold.replaces]
        return [one for one in same if one.state is S.HELD]

    def _last_one_stays(self, row: Row) -> bool:
        """Return whether a command that waits makes way for a later one; those before it make way for it."""
        same = self._namesakes(row.registration)
        place = same.index(row) if row in same else 0
        for one in same[:place]:
            one.cancel(replaced(row.registration.command_id))
        later = [one for one in same[place + 1 :] if not one.unapproved]
        if later:
            row.cancel(replaced(later[-1].registration.command_id))
        return bool(later)

    def decide(self, identity: str, decision: ApprovalDecision) -> Plain:
        row = self.rows.get(identity)
        if row is None or not row.was_held:
            return (False, None)
        if row.decision == decision:
            return (True, None if decision.approves else row.outcome())
        if not row.unapproved:
            return (False, None)
        row.decision = decision
        if not decision.approves:
            row.cancel(refused_by_second(decision))
            return (True, row.outcome())
        row.state = S.CANCELLED  # it takes no place of its own
        self._supersede(row.registration)
        self.turns += 1
        row.state, row.ready = S.HELD, self.turns
        self._last_one_stays(row)
        return (True, None)

    def _line(self, new: Registration) -> list[Row]:
        return [] if new.lane is None else self._standing(new.device_id, new.lane.name)

    def _standing(self, device: str, lane: str) -> list[Row]:
        rows = [one for one in self.rows.values() if (one.registration.device_id, one.lane_name) == (device, lane)]
        return sorted((row for row in rows if row.state is S.HELD and not row.unapproved), key=lambda row: row.ready)

    def _follower(self, new: Registration) -> str | None:
        lanes = () if new.lane is None else (() if self._stands(new) else (new.lane.name,), new.lane.excluded_by)
        lines = (self._standing(new.device_id, one) for some in lanes for one in some)
        return next((line[0].registration.command_id for line in lines if line), None)

    def _taken(self, new: Registration, turn: str = "") -> bool:
        """Return whether a lane has no room for a command; `turn` is the one that may be first in its line."""
        if new.lane is None:
            return False
        line, order = self._line(new), new.lane.order
        full = self._in_flight(new.device_id, new.lane.name) >= new.lane.width
        full = full or self._kept_back(new.device_id, new.lane) or self._stands(new)
        first = line[-1 if order is LaneOrder.LIFO else 0].registration.command_id if line else turn
        strict = order in (LaneOrder.FIFO, LaneOrder.FIFO_ACK) or (order is LaneOrder.LIFO and turn)
        behind = strict and first != turn
        return full or bool(behind)

    def _in_flight(self, device: str, lane: str) -> int:
        rows = [one for one in self.rows.values() if (one.registration.device_id, one.lane_name) == (device, lane)]
        return sum((row.waits and not row.passed_on) or row.rests for row in rows)

    def _kept_back(self, device: str, lane: CommandLane) -> bool:
        busy = any(self._in_flight(device, one) for one in lane.excludes)
        return busy or (bool(lane.pace) and (device, lane.name) in self.sent)

    def _stands(self, new: Registration) -> bool:
        return new.lane is not None and new.lane.stops and (new.device_id, new.lane.name) in self.stopped

    def _leaves(self, new: Registration) -> None:
        if new.lane is not None and new.lane.pace:
            self.sent.add((new.device_id, new.lane.name))

    def _ends(self, row: Row, *, held: bool, stood: bool) -> None:
        """Stop the lane of a command that has ended without success, unless it was cancelled while it waited."""
        lane, unsent = row.registration.lane, row.state is S.UNSENT
        if lane is None or not lane.stops or row.state is S.SUCCEEDED:
            return
        if (unsent and stood) if held else (not unsent or row.was_held):
            self.stopped.setdefault((row.registration.device_id, lane.name), row.registration.command_id)

    def resume(self, device: str, lane: str, stopped_by: str) -> Plain:
        if self.stopped.get((device, lane)) != stopped_by:
            return (False, None)
        del self.stopped[device, lane]
        line = self._standing(device, lane)
        return (True, line[0].registration.command_id if line else None)

    def lane_now(self, device: str, lane: CommandLane) -> Plain:
        waiting = tuple(row.registration.command_id for row in self._standing(device, lane.name))
        stopped = lane.stops and (device, lane.name) in self.stopped
        return (self._in_flight(device, lane.name), waiting, self._kept_back(device, lane), stopped)

    def _name(self, new: Registration) -> None:
        named = [one for one in new.expectations if one.correlation is Correlation.VALUE]
        self.values |= {(one.topic, one.value): new.command_id for one in named}

    def claim(self, identity: str, node: str, token: str) -> Plain:
        row = self.rows.get(identity)
        if row is None or not row.was_held or row.registration.hold is None:
            return None
        if row.state is S.PENDING and row.token == token:
            return ("claimed", row.command())
        if row.state is not S.HELD or row.token == token:
            return None
        if row.unapproved:
            return ("waits", "approval")
        if row.registration.hold.not_before == FAR_AHEAD:
            return ("waits", "time")
        if self._taken(row.registration, turn=identity):
            return ("waits", "lane")
        if self._busy(row.registration):
            return "DeviceBusyError"
        row.token = token
        self._begin_flight(row, node)
        self._leaves(row.registration)
        return ("claimed", row.command())

    def _begin_flight(self, row: Row, node: str) -> None:
        before = row.registration.home_node
        row.registration = replace(row.registration, home_node=node)
        others = [one for one in row.waiting[1:] if one != node]
        if before not in (node, *others):
            others.append(before)
        row.waiting, row.state, row.claims = [node, *others], S.PENDING, row.claims + 1
        row.passed_on = False
        self._name(row.registration)

    def pass_on(self, identity: str) -> str | None:
        row = self.rows.get(identity)
        lane = None if row is None else row.registration.lane
        if row is None or lane is None or lane.order is not LaneOrder.FIFO_ACK or row.state is S.HELD:
            return None
        row.passed_on = True
        if row.state in (S.PENDING, S.SENT):
            row.state = S.ACKNOWLEDGED
        return self._follower(row.registration)

    def give_back(self, identity: str, token: str) -> bool:
        row = self.rows.get(identity)
        if row is None or not row.was_held:
            return False
        if row.state is S.PENDING and row.token == token:
            row.state = S.HELD
            self.values = {value: one for value, one in self.values.items() if one != identity}
            return not (self._gives_way(row) or self._last_one_stays(row))
        if row.state is S.HELD:
            row.token = token
        return row.state is S.HELD

    def _gives_way(self, row: Row) -> bool:
        """Cancel one that waits again in a lane in which only the last one does, where that is another one."""
        line = self._line(row.registration)
        if row.registration.lane is None or row.registration.lane.order is not LaneOrder.LATEST or line[-1] is row:
            return False
        row.cancel(superseded(line[-1].registration.command_id))
        return True

    def _join(self, row: Row, new: Registration) -> Plain:
        if row.registration.fingerprint != new.fingerprint:
            return "IdempotencyMismatchError"
        if row.open and new.home_node not in row.waiting and len(row.waiting) < 5:
            row.waiting.append(new.home_node)
        return ("joined", row.command())

    def _busy(self, new: Registration) -> bool:
        for row in self.rows.values():
            for one in new.expectations:
                same_topic = [other for other in row.registration.expectations if other.topic == one.topic]
                waits = same_topic and row.waits
                if one.correlation is Correlation.ORDER and (waits or row.occupies(one.topic)):
                    return True
                if one.correlation is Correlation.VALUE and one in same_topic and row.waits:
                    return True
        return False

    def respond(self, answer: Answer, receiver: str, *, open_only: bool = False) -> Plain:  # noqa: C901, PLR0911 - as the script
        row = self._meant(answer)
        if row is None:
            return UNKNOWN
        identity, waiting = row.registration.command_id, tuple(row.waiting)
        topics = [one.topic for one in row.registration.expectations]
        if row.registration.device_id != answer.device_id or answer.topic not in topics:
            return ("mismatch", identity, None, ())
        if answer.profile not in ("", row.registration.profile):
            by_id = answer.correlation is Correlation.ID
            return ("mismatch", identity, None, ()) if by_id else ("unknown", None, None, ())
        if row.state is S.HELD and not row.claims:
            return UNKNOWN
        if row.open and answer.state is S.RUNNING:
            if row.state is S.HELD:
                self._begin_flight(row, row.registration.home_node)
            row.state, row.progress = S.RUNNING, answer.result
            return ("progress", identity, None, waiting)
        if row.open:
            was_held = row.state is S.HELD
            row.state, row.result, row.error, row.by = answer.state, answer.result, answer.error, receiver
            row.reception = reception_of(answer)
            if answer.state is not S.SUCCEEDED and not was_held:
                row.rest()
            self._ends(row, held=was_held, stood=was_held)
            row.freed.update(topics)
            return ("won", identity, row.outcome(), waiting)
        if open_only:
            return ("finished", identity, row.outcome(), waiting)
        if answer.state is not S.RUNNING and (row.state in (S.TIMED_OUT, S.CANCELLED, S.UNSENT) or row.confirmed):
            row.freed.add(answer.topic)
            if row.late is None:
                texts = {"result": answer.result, "error": answer.error}
                row.late = {"state": answer.state.value} | {
                    name: json.loads(text) if text is not None else None for name, text in texts.items()
                }
                return ("late", identity, row.outcome(), waiting)
        return ("duplicate", identity, row.outcome(), waiting)

    def _meant(self, answer: Answer) -> Row | None:
        if answer.correlation is Correlation.ID:
            return self.rows.get(answer.value)
        if answer.correlation is Correlation.VALUE:
            return self.rows.get(self.values.get((answer.topic, answer.value), ""))
        return next((row for row in self.rows.values() if row.occupies(answer.topic)), None)

    def finish(
        self, identity: str, end: CommandState, error: bytes | None, finisher: str = "", *, only_held: bool = False
    ) -> Plain:
        row = self.rows.get(identity)
        if row is None:
            return "CommandNotFoundError"
        if not row.open:
            return ("lost", row.outcome())
        held, stood = row.state is S.HELD, row.state is S.HELD and not row.unapproved
        if (held and end is S.TIMED_OUT) or (only_held and not held):
            return "IllegalTransitionError"
        if end is S.UNSENT and (row.state in (S.ACKNOWLEDGED, S.RUNNING) or row.taken_by not in (None, finisher)):
            return "IllegalTransitionError"
        row.state, row.error = end, error
        self._ends(row, held=held, stood=stood)
        if not held and end is not S.SUCCEEDED:
            row.rest()
        if held or end not in (S.TIMED_OUT, S.CANCELLED) or not row.registration.quarantine:
            row.freed.update(one.topic for one in row.registration.expectations)
        return ("won", row.outcome())

    def confirm(self, identity: str, finding: ProbeFinding, finder: str) -> Plain:
        row = self.rows.get(identity)
        if row is None:
            return "CommandNotFoundError"
        if not row.open:
            return ("lost", row.outcome())
        if not row.waits or not row.registration.expectations:
            return "IllegalTransitionError"
        row.state, row.by, row.reception = finding.state, finder, reception_of_finding(finding)
        row.error = error_of_finding(finding)
        self._ends(row, held=False, stood=False)
        if row.state is not S.SUCCEEDED:
            row.rest()
        row.freed.update(one.topic for one in row.registration.expectations)
        return ("won", row.outcome())

    def verify(self, identity: str, finding: ProbeFinding) -> Plain:
        row = self.rows.get(identity)
        if row is None:
            return "CommandNotFoundError"
        if row.state is not S.TIMED_OUT:
            return "IllegalTransitionError"
        if row.verified is not None:
            return False
        if row.late is not None:
            return "IllegalTransitionError"
        row.verified = {"state": finding.state.value, **json.loads(finding.to_json())}
        return True

    def mark(self, identity: str, state: CommandState, sender: str | None) -> bool:
        row = self.rows.get(identity)
        if row is None or not row.waits:
            return False
        if row.state is state and sender is not None and row.sender == sender:
            return True
        if ORDER_OF_STATES.index(row.state) >= ORDER_OF_STATES.index(state):
            return False
        row.state, row.sender = state, sender or row.sender
        return True

    def outcomes(self, identities: list[str]) -> Plain:
        found: list[Plain] = []
        for identity in identities:
            row = self.rows.get(identity)
            if row is None:
                found.append((identity, "timed_out", "gone"))
            else:
                found.append(row.outcome() if not row.open else None)
        return found

    def due(self, soon: set[str]) -> list[str]:
        return [identity for identity, row in self.rows.items() if row.waits and identity in soon]

    def pending_of(self, node: str) -> Plain:
        return sorted(row.command() for row in self.rows.values() if row.waits and row.registration.home_node == node)

    def newest_first(self, device: str | None, state: CommandState | None) -> Plain:
        return [
            row.command()
            for row in reversed(self.rows.values())
            if device in (None, row.registration.device_id) and state in (None, row.state)
        ]
