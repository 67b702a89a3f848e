"""Every key of the event log in Redis. `{t}` is `{<database>.<shard>}`, so that all keys of an append share a slot.

| key | type | content | ends |
|---|---|---|---|
| `mqtt:slab:{t}:<generation>` | stream | blocks; the id is the position of the last event | with its generation |
| `mqtt:shard:{t}` | hash | head, generation, epoch; how far it is cold, and a version of that; what it forgot | never |
| `mqtt:cuts:{t}` | hash | generation → first, last, count and size of what is in it | never |
| `mqtt:cold:{t}` | hash | generation → the same, and its files in the cold tier | with its generation |
| `mqtt:latest:{t}` | hash | topic → position and record of its last value | never |
| `mqtt:topics:{t}` | sorted set | topics that have a last value, by their bytes | never |
| `mqtt:latest:{t}:owners` | sorted set | topic, NUL, bytes of its last value, and the tenant whose it is | never |
| `mqtt:latest:{t}:shares` | hash | tenant → number and bytes of the last values that count to it | never |
| `mqtt:done:{t}:<call>` | string | the position that a call was given, so that it happens once | 1 or 2 minutes |
| `mqtt:done:{t}:key:<key>` | string | the call that a caller's key stands for | 2 minutes |
| `mqtt:done:{t}:writers` | hash | writer → number of his last batch, and the position that it was given | never |
| `mqtt:cursors:<owner>` | hash | name → JSON: the cursor of a reader of this caller | a year after the last commit |
| `mqtt:structures:<database>` | hash | structures of topics | with the oldest generation |
| `mqtt:database:<database>` | string | its number of shards | never |
| `mqtt:role:{<name>}` | string | who holds a role | lease time |
| `mqtt:epoch:{<name>}` | string | the number of the latest turn | never |
"""

from __future__ import annotations

from typing import Final

from app.core.events.event import Shard

_ESCAPES: Final = str.maketrans({one: f"%{ord(one):X}" for one in "%{}"})


def slabs(shard: Shard) -> str:
    """The beginning of the keys of all slabs of a shard; the generation follows."""
    return f"mqtt:slab:{{{shard}}}:"


def state(shard: Shard) -> str:
    """The key of a shard's end."""
    return f"mqtt:shard:{{{shard}}}"


def cuts(shard: Shard) -> str:
    """Its generations."""
    return f"mqtt:cuts:{{{shard}}}"


def cold(shard: Shard) -> str:
    """The key of the shard's generations in the cold tier."""
    return f"mqtt:cold:{{{shard}}}"


def latest(shard: Shard) -> str:
    """Its last values."""
    return f"mqtt:latest:{{{shard}}}"


def topics(shard: Shard) -> str:
    """Topics that have one."""
    return f"mqtt:topics:{{{shard}}}"


def owners(shard: Shard) -> str:
    """To whom they count. 0.2.0 does not know of it: what it adds is nobody's, what it deletes is still here."""
    return f"{latest(shard)}:owners"


def shares(shard: Shard) -> str:
    """The key of what counts to each tenant: the sums of `owners`."""
    return f"{latest(shard)}:shares"


def done(shard: Shard, call: str) -> str:
    """The key of what a call was given."""
    return f"mqtt:done:{{{shard}}}:{call}"


def writers(shard: Shard) -> str:
    """The last batch of each writer. Secrets, by which calls go, are longer."""
    return done(shard, "writers")


def cursors(owner: str) -> str:
    """The cursors of a caller; nobody is asked who they are where `owner` is empty.

    An issuer may call its people what it likes: a brace would choose the slot.
    """
    return f"mqtt:cursors:{owner.translate(_ESCAPES) or '-'}"


def structures(database: str) -> str:
    """The structures of its topics."""
    return f"mqtt:structures:{database}"


def shards(database: str) -> str:
    """The key of the number of shards of a database."""
    return f"mqtt:database:{database}"


def role(name: str) -> str:
    """The key of the holder of a role."""
    return f"mqtt:role:{{{name}}}"


def epoch(name: str) -> str:
    """The key of how often a role was taken."""
    return f"mqtt:epoch:{{{name}}}"
