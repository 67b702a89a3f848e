"""The rights of a node's Redis user: the commands that nodes and their scripts use, their keys and channels.

`deploy/redis/users.acl` grants exactly this, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from redis import Connection
from redis.exceptions import NoPermissionError, ResponseError

COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "asking": "ASKING",
        "client|setname": "CLIENT SETNAME homing-doctor",
        "cluster|info": "CLUSTER INFO",
        "cluster|slots": "CLUSTER SLOTS",
        "del": "DEL {key}",
        "evalsha": f"EVALSHA {'0' * 40} 0",
        "exists": "EXISTS {key}",
        "get": "GET {key}",
        "hdel": "HDEL {key} f",
        "hget": "HGET {key} f",
        "hgetall": "HGETALL {key}",
        "hmget": "HMGET {key} f",
        "hscan": "HSCAN {key} 0",
        "hset": "HSET {key} f v odd",
        "hvals": "HVALS {key}",
        "info": "INFO server",
        "mget": "MGET {key}",
        "pexpire": "PEXPIRE {key} 1",
        "pexpireat": "PEXPIREAT {key} 1",
        "ping": "PING",
        "pttl": "PTTL {key}",
        "publish": "PUBLISH {channel} doctor",
        "pubsub|numsub": "PUBSUB NUMSUB {channel}",
        "role": "ROLE",
        "script|load": "SCRIPT LOAD return",
        "select": "SELECT {database}",
        "set": "SET {key} v NX XX",
        "subscribe": "SUBSCRIBE {channel}",
        "time": "TIME",
        "unlink": "UNLINK {key}",
        "wait": "WAIT 0 1",
        "xadd": "XADD {key} no-id f v",
        "xrange": "XRANGE {key} - + COUNT 1",
        "xread": "XREAD COUNT 1 STREAMS {key} $",
        "zadd": "ZADD {key} no-number m",
        "zcard": "ZCARD {key}",
        "zcount": "ZCOUNT {key} 0 0",
        "zrange": "ZRANGE {key} 0 0",
        "zrangebylex": "ZRANGEBYLEX {key} - + LIMIT 0 1",
        "zrangebyscore": "ZRANGEBYSCORE {key} 0 0",
        "zrem": "ZREM {key} m",
        "zremrangebyscore": "ZREMRANGEBYSCORE {key} 0 0",
        "zrevrangebyscore": "ZREVRANGEBYSCORE {key} 0 0",
        "zscore": "ZSCORE {key} m",
    }
)
"""Each command as ACL rules name it, and a form of it that changes nothing: the key does not exist, or Redis finds the
arguments wrong, which it does after it has looked at the rights."""

KEYS: Final = (
    *(f"mqtt:{kind}:*" for kind in ("callback", "topic", "correlation", "due", "held", "list", "idempotency")),
    *(f"mqtt:{kind}:*" for kind in ("history", "state", "outbox", "webhook", "happened", "run")),
    *(f"mqtt:{kind}:*" for kind in ("lease", "knows", "sessions", "draining", "adoption", "asserted", "limits")),
    "mqtt:broker:*",
    *(f"mqtt:{kind}:*" for kind in ("slab", "shard", "cuts", "cold", "latest", "topics", "done", "cursors")),
    *(f"mqtt:{kind}:*" for kind in ("structures", "database", "role", "epoch", "queue", "dying")),
    "mqtt:guard:*",
    "mqtt:access",
    "mqtt:cluster",
    "mqtt:nodes",
    "mqtt:queues",
    "mqtt:runs",
    "mqtt:runs:open",
    "mqtt:schedules",
    "mqtt:webhooks",
)
CHANNELS: Final = ("mqtt:node:*", "mqtt:queue-hints")


OF_CLUSTER: Final = ("asking", "cluster|info", "cluster|slots", "pubsub|numsub", "mqtt:guard:*")
"""The rights that nodes use with a Redis Cluster alone."""
OF_BROKER: Final = ("hscan", "mqtt:broker:*")
"""The rights of a node whose own broker keeps its sessions in Redis."""
OPTIONAL: Final = frozenset(("role", "wait", *OF_CLUSTER, *OF_BROKER))
"""The rights that only some nodes use: `role` where Sentinels guard the primary, `wait` where replicas acknowledge."""


def missing(connection: Connection, run_id: str, also: Collection[str] = ()) -> list[str]:
    """The rights that the user of this connection lacks, as rules of an ACL: `+zadd`, `~mqtt:due:*`, `&mqtt:node:*`.

    `also` are those of OPTIONAL that are needed. The connection speaks RESP 2; afterwards it is subscribed and good for
    nothing else.
    """
    channel = f"mqtt:node:doctor-{run_id}"
    places = {"key": f"mqtt:callback:{{doctor-{run_id}}}", "channel": channel, "database": connection.db}

    def refused(form: str) -> str:
        return _refused(connection, [word.format(**places) for word in form.split(" ")])

    lacking = []
    for pattern in [one for one in KEYS if one in also or one not in OPTIONAL]:
        places["key"] = pattern.replace("*", f"{{doctor-{run_id}}}")
        # Neither finds anything, as no sorted set has this member; the second needs the right to write.
        if "key" in (refused("EXISTS {key}"), refused(f"ZREM {{key}} doctor-{run_id}")):
            lacking.append(f"~{pattern}")
    for pattern in CHANNELS:
        places["channel"] = pattern.replace("*", f"doctor-{run_id}")
        if refused("PUBLISH {channel} doctor") == "channel":
            lacking.append(f"&{pattern}")
    places["channel"] = channel
    places["key"] = f"mqtt:callback:{{doctor-{run_id}}}"
    asked = [one for one in COMMANDS.items() if one[0] in also or one[0] not in OPTIONAL]
    in_order = sorted(asked, key=lambda one: one[0] == "subscribe")
    return [*(f"+{name}" for name, form in in_order if refused(form) == "command"), *lacking]


def _refused(connection: Connection, command: Sequence[str]) -> str:
    """Return what the user has no right to, `command`, `key` or `channel`; nothing when that is not the problem."""
    try:
        connection.send_command(*command)
        connection.read_response()
    except NoPermissionError as error:
        said = str(error)
        return "command" if " to run " in said else "channel" if "channel" in said else "key"
    except ResponseError:
        pass
    return ""
