"""A Redis as the cluster uses it: keys with an expiry, the cluster's scripts in Python, and channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

_LISTED: Final = "!"

Value = str | bytes | dict[str, str] | dict[str, float]


class RedisModel:
    """One database. `now_ms` is its clock; values go in as text and come out as bytes."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._values: dict[str, tuple[Value, float]] = {}
        self.channels: dict[str, dict[Callable[[bytes], None], None]] = {}
        """The listeners of each channel."""
        self._commands: Final[dict[str, Callable[..., Any]]] = {
            "GET": self._get,
            "MGET": lambda *names: [self._get(one) for one in names],
            "SET": self._set,
            "DEL": lambda *names: sum(self._values.pop(one, None) is not None for one in names),
            "PTTL": self._pttl,
            "HGET": lambda name, field: _bytes(self._hash(name).get(field)),
            "HMGET": lambda name, *fields: [_bytes(self._hash(name).get(one)) for one in fields],
            "HVALS": lambda name: [_bytes(one) for one in self._hash(name).values()],
            "ZSCORE": lambda name, member: self._scores(name).get(member),
            "ZRANGE": lambda name, _first, _last: [one.encode() for one in sorted(self._scores(name))],
            "ZREM": self._zrem,
            "PUBLISH": self.publish,
        }
        self._scripts: Final[dict[str, Callable[..., Any]]] = {
            "charter": self._charter,
            "directory": self._directory,
            "enlist": self._enlist,
            "join": self._join,
            "renew": self._renew,
            "leave": self._leave,
            "claim": self._claim,
            "adopted": self._adopted,
            "note_forgotten": self._note_forgotten,
            "role": self._role,
        }

    @property
    def size(self) -> int:
        """The number of keys."""
        return sum(self._live(name) is not None for name in tuple(self._values))

    def sessions(self) -> list[str]:
        """The client ids of all MQTT sessions of nodes that may be there."""
        names = [name for name in self._values if name.startswith("mqtt:sessions:")]
        return [client_id for name in names for client_id in self._hash(name)]

    def adoptions(self) -> bool:
        """True if somebody has the right to adopt a session."""
        names = [name for name in self._values if name.startswith("mqtt:adoption:")]
        return any(self._live(name) not in (None, "adopted") for name in names)

    def kept(self) -> dict[str, tuple[Value, float]]:
        """All that it has, for `restore`."""
        return {
            name: (dict(value) if isinstance(value, dict) else value, until)  # type: ignore[misc]
            for name, (value, until) in self._values.items()
        }

    def restore(self, kept: dict[str, tuple[Value, float]]) -> None:
        """Go back to what it had."""
        self._values = kept

    def call(self, name: str | bytes | int, *arguments: Any) -> Any:  # noqa: ANN401 - what Redis replies
        """The reply of a command."""
        return self._commands[str(name)](*arguments)

    def run(self, script: str, names: Sequence[str], *arguments: Any) -> Any:  # noqa: ANN401 - its reply
        """The reply of a script."""
        return self._scripts[script](*names, *arguments)

    def publish(self, channel: str, data: str | bytes) -> int:
        """Give it to all who listen."""
        heard = self.channels.get(channel, {})
        for hear in tuple(heard):
            hear(data if isinstance(data, bytes) else data.encode())
        return len(heard)

    def _live(self, name: str) -> Value | None:
        found = self._values.get(name)
        if found is None:
            return None
        if found[1] <= self._now_ms():
            del self._values[name]
            return None
        return found[0]

    def _get(self, name: str) -> bytes | None:
        found = self._live(name)
        return found.encode() if isinstance(found, str) else found if isinstance(found, bytes) else None

    def _set(self, name: str, value: str, _px: str = "", life_ms: float = float("inf")) -> None:
        self._values[name] = value, self._now_ms() + float(life_ms)

    def _pttl(self, name: str) -> int:
        return round(self._values[name][1] - self._now_ms()) if self._live(name) is not None else -2

    def _expire(self, name: str, life_ms: float) -> None:
        if (found := self._live(name)) is not None:
            self._values[name] = found, self._now_ms() + float(life_ms)

    def _hash(self, name: str, *, make: bool = False) -> dict[str, str]:
        found = self._live(name)
        if found is None:
            found = {}
            if make:
                self._values[name] = found, float("inf")
        return found  # type: ignore[return-value]

    def _scores(self, name: str) -> dict[str, float]:
        return self._hash(name)  # type: ignore[return-value]

    def _hdel(self, name: str, field: str) -> None:
        found = self._hash(name)
        found.pop(field, None)
        if not found:
            self._values.pop(name, None)

    def _zrem(self, name: str, member: str) -> None:
        self._hdel(name, member)

    def _gone(self, *names: str) -> int:
        return int(all(self._live(one) is None for one in names))

    # The scripts, in the order of their keys and arguments; what each does is said in app/cluster/lua, and of roles in
    # app/store/redis/lua.

    def _charter(
        self, charter: str, group: str, key: bytes, life_ms: int, listed: int, copied: str
    ) -> tuple[bytes, bytes, int, int]:
        now, known = self._now_ms(), self._hash(charter)
        if not known or ("listed" in known and not listed) or known["group"] == copied:
            known = {"group": group, "key": key.decode(), "made": f"{now:.0f}"}
            if "directory" in self._hash(charter):
                del self._values[charter]
            self._values[charter] = known, float("inf")
        had_list = "listed" in known
        self._expire(charter, life_ms)
        if listed:
            known["listed"] = "1"
        age = max(0, round(now - float(known["made"])))
        return known["group"].encode(), known["key"].encode(), age, int(had_list)

    def _directory(self, charter: str, own: str, life_ms: int) -> bytes:
        known = self._hash(charter, make=True)
        if "directory" not in known:
            known["directory"] = own
        if self._values[charter][1] == float("inf"):
            self._expire(charter, life_ms)
        return known["directory"].encode()

    def _enlist(self, names: str, node_id: str, life_ms: int, needed: int) -> int:
        scores = self._hash(names)
        if needed and _LISTED not in scores:
            return 0
        now = self._now_ms()
        kept = {one: until for one, until in self._scores(names).items() if until > now}
        kept |= {node_id: now + life_ms, _LISTED: now + life_ms}
        self._values[names] = kept, now + life_ms
        return 1

    def _join(
        self,
        lease: str,
        sessions: str,
        incarnation: str,
        client_id: str,
        lease_ms: int,
        session_ms: int,
        replaced: str,
        replaced_id: str,
    ) -> bytes | None:
        held = self._live(lease)
        if held is not None and held not in (incarnation, replaced):
            return self._get(lease)
        self._set(lease, incarnation, "PX", lease_ms)
        known = self._hash(sessions, make=True)
        known[client_id] = incarnation
        if replaced and replaced_id not in known:
            known[replaced_id] = "!" + replaced
        self._expire(sessions, session_ms)
        return None

    def _renew(
        self, lease: str, sessions: str, incarnation: str, client_id: str, lease_ms: int, session_ms: int
    ) -> int:
        held = self._live(lease)
        if (held is not None and held != incarnation) or self._hash(sessions).get(client_id) != incarnation:
            return 0
        self._expire(sessions, session_ms)
        self._set(lease, incarnation, "PX", lease_ms)
        return 1

    def _leave(self, lease: str, sessions: str, incarnation: str, client_id: str, kept: str) -> int:
        if self._live(lease) == incarnation:
            del self._values[lease]
        if kept != "1":
            self._hdel(sessions, client_id)
        return self._gone(lease, sessions)

    def _claim(
        self,
        lease: str,
        sessions: str,
        adoption: str,
        client_id: str,
        adopter: str,
        right_ms: int,
        lost: str,
        session_ms: int,
    ) -> int:
        known = self._hash(sessions).get(client_id)
        if known is None:
            return 0
        lives = self._live(lease) == known
        if lives and lost != "1":
            return 0
        if self._live(adoption) not in (None, adopter, "adopted"):
            return 0
        self._expire(sessions, session_ms)
        if lives:
            del self._values[lease]
        if not known.startswith("!"):
            self._hash(sessions)[client_id] = "!" + known
        self._set(adoption, adopter, "PX", right_ms)
        return 1

    def _note_forgotten(
        self, _lease: str, sessions: str, adoption: str, client_id: str, incarnation: str, session_ms: int
    ) -> int:
        if self._live(adoption) is not None or client_id in self._hash(sessions):
            return 0
        self._hash(sessions, make=True)[client_id] = incarnation
        self._expire(sessions, session_ms)
        return 1

    def _adopted(self, lease: str, sessions: str, adoption: str, client_id: str, known_ms: int) -> int:
        self._hdel(sessions, client_id)
        self._set(adoption, "adopted", "PX", known_ms)
        return self._gone(lease, sessions)

    def _role(self, role: str, epoch: str, who: str, life_ms: int, gone: str, latest: int) -> int:
        holder = self._live(role)
        dead = isinstance(holder, str) and gone and holder.startswith(gone)
        if holder not in (None, who) and not dead:
            return 0
        self._set(role, who, "PX", life_ms)
        known = int(self._get(epoch) or 0)
        if holder != who or known <= int(latest):
            known = max(known + 1, int(latest) + 1, int(self._now_ms()))
            self._set(epoch, str(known))
        return known


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode()
