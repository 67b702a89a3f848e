"""Every key and channel in Redis: name, type, content, life, owner.

The hash tag is the partition of the device, three digits that a command id begins with, so that every key of one
device shares a slot and can be derived from the id. Topics and values of foreign origin are hashed into the key.

| key | type | content | ends |
|---|---|---|---|
| `mqtt:callback:{p}:<command id>` | hash | the record | retention after deadline or outcome |
| `mqtt:topic:{p}:<hash of topic>` | sorted set | ids that wait on it, by registration (µs) | with its last record |
| `mqtt:correlation:{p}:<hash of topic and value>` | string | command id | with its record |
| `mqtt:due:{p}` | sorted set | ids of open commands by deadline (µs) | with its last record |
| `mqtt:held:{p}` | sorted set | `<command id> <device>` that are held, by their end (µs) | as its records |
| `mqtt:held:{p}:<digest>` | sorted set | ids that wait in a lane of a device, by registration (µs) | as its records |
| `mqtt:held:{p}:<digest>:sent` | string | when a command left through a lane with a pace last (µs) | 1 min after |
| `mqtt:held:{p}:<digest>:stopped` | string | `<at µs> <command id>` after which a lane waits | when it is resumed |
| `mqtt:held:last` | string | a note that changes when a command was held, or a claim undone | 10 min after |
| `mqtt:list:{p}` | sorted set | `<command id>:<device id>` by registration (µs) | with its last record |
| `mqtt:history:{p}:<command id>` | sorted set | `<number> <at µs> <JSON text>` by number | with its record |
| `mqtt:state:{p}:<hash of topic>` | string | what a device told of its state (JSON) | as its profile says |
| `mqtt:state:{p}:<hash of device>:asked` | string | `<at µs> <command id>` that asks for its state | a second after |
| `mqtt:idempotency:{p}:<hash of device and key>` | string | command id | with its record |
| `mqtt:outbox:{p}` | sorted set | `<command id> outcome`, or `late`, or `verified`: to be told (µs) | as its records |
| `mqtt:happened:{p}` | stream | what happens to commands, while somebody follows all of them | 10 min after |
| `mqtt:webhooks` | hash | endpoint id → endpoint | never |
| `mqtt:webhook:{<endpoint id>}:due` | sorted set | event ids by the next attempt (µs) | a week after its last change |
| `mqtt:webhook:{<endpoint id>}:ended` | sorted set | event ids by the instant (µs) when they ended | a week after |
| `mqtt:webhook:{<endpoint id>}:events` | hash | event id → delivery | a week after |
| `mqtt:webhook:{<endpoint id>}:failing` | string | since when (µs) it does nothing but fail | with a success |
| `mqtt:run:{<run id>}` | hash | a fleet run (app/store/redis/lua/fleets/create.lua) | a week after its end |
| `mqtt:run:{<run id>}:targets` | hash | 1,000 targets each (JSON, zlib) by digest and number | with the run |
| `mqtt:run:{<run id>}:results` | hash | index of a target → how it ended (JSON) | with the run |
| `mqtt:run:{<run id>}:lease` | string | who drives it | lease time |
| `mqtt:run:{<run id>}:epoch` | string | how often it changed hands | with the run |
| `mqtt:runs` | sorted set | run ids by creation (µs) | never |
| `mqtt:runs:open` | sorted set | those that have not ended | never |
| `mqtt:schedules` | hash | tenant and name → schedule (JSON); `` → how often one changed | never |
| `mqtt:lease:{<node id>}` | string | the incarnation that lives | lease time |
| `mqtt:knows:{<node id>}` | string | words for what the node can do that those before it cannot | lease time |
| `mqtt:asserted:{<node id>}` | string | starts of servers that the node has told of its claims | a week after |
| `mqtt:broker:{<role>}` | hash | rows of the broker in a node (app/core/broker/rows.py), and its last write | never |
| `mqtt:broker:{<role>}:ahead` | hash | a write that is too large for one step, in parts | until it is done |
| `mqtt:sessions:{<node id>}` | hash | MQTT client id → incarnation, after `!` when being adopted | session life |
| `mqtt:draining:{<node id>}` | string | the incarnation that is about to stop | lease time |
| `mqtt:limits:{<node id>}` | string | what the node was asked for of what is limited, a second (JSON) | 3 s |
| `mqtt:adoption:{<node id>}:<client id>` | string | who adopts the session | adoption time |
| `mqtt:cluster` | hash | version, group, key (app/core/cluster/charter.py), made, listed; directory | session life |
| `mqtt:access` | hash | version, at (µs) and copy: the access rules (app/access/rules_copy.py) | HOMING_ACCESS_STALE |
| `mqtt:nodes` | sorted set | node ids, and `!`, by the time (ms) until which some of it may remain | session life |
| `mqtt:node:<node id>` | channel | wake-ups | - |
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from app.core.identifiers import PARTITIONS

ACCESS = "mqtt:access"
CLUSTER = "mqtt:cluster"
LAST_HELD = "mqtt:held:last"
NODES = "mqtt:nodes"
OPEN_RUNS = "mqtt:runs:open"
RUNS = "mqtt:runs"
SCHEDULES = "mqtt:schedules"
WEBHOOKS = "mqtt:webhooks"
NODE_CHANNEL_PREFIX = "mqtt:node:"


def _digest(*parts: str) -> str:
    # 96 bits in 16 characters: memory per pending command is mostly names of keys.
    return urlsafe_b64encode(blake2b("\0".join(parts).encode(), digest_size=12).digest()).decode("ascii")


_TAGS: Final = tuple(f"{{{partition:03d}}}" for partition in range(PARTITIONS))


def callback(partition: int, command_id: str) -> str:
    """The record of a command."""
    return f"mqtt:callback:{_TAGS[partition]}:{command_id}"


@lru_cache(maxsize=8192)
def topic(partition: int, topic_name: str) -> str:
    """The key of the commands that wait on a topic."""
    return f"mqtt:topic:{_TAGS[partition]}:{_digest(topic_name)}"


def correlation(partition: int, topic_name: str, value: str) -> str:
    """The key of the command that a foreign correlation value on a topic means."""
    return f"mqtt:correlation:{_TAGS[partition]}:{_digest(topic_name, value)}"


def state(partition: int, topic_name: str) -> str:
    """The state that was told last on a topic."""
    return f"mqtt:state:{_TAGS[partition]}:{_digest(topic_name)}"


def asked(partition: int, device_id: str) -> str:
    """The question that has the turn to ask a device for its state."""
    return f"mqtt:state:{_TAGS[partition]}:{_digest(device_id)}:asked"


def history(partition: int, command_id: str) -> str:
    """The reports of a command's progress."""
    return f"mqtt:history:{_TAGS[partition]}:{command_id}"


@lru_cache(maxsize=PARTITIONS)
def due(partition: int) -> str:
    """Open commands by deadline."""
    return f"mqtt:due:{_TAGS[partition]}"


@lru_cache(maxsize=PARTITIONS)
def held(partition: int) -> str:
    """The key of the commands that wait to be sent."""
    return f"mqtt:held:{_TAGS[partition]}"


@lru_cache(maxsize=PARTITIONS)
def listing(partition: int) -> str:
    """All commands on record by registration time."""
    return f"mqtt:list:{_TAGS[partition]}"


def idempotency(partition: int, device_id: str, key: str) -> str:
    """The command that an idempotency key stands for."""
    return f"mqtt:idempotency:{_TAGS[partition]}:{_digest(device_id, key)}"


@lru_cache(maxsize=PARTITIONS)
def outbox(partition: int) -> str:
    """The key of what happened to commands that somebody is to be told of."""
    return f"mqtt:outbox:{_TAGS[partition]}"


@lru_cache(maxsize=PARTITIONS)
def happened(partition: int) -> str:
    """The key of what happened to commands, while somebody follows them all."""
    return f"mqtt:happened:{_TAGS[partition]}"


def webhook(endpoint_id: str) -> list[str]:
    """The queue of an endpoint: what is due, what has ended, the events, since when it fails."""
    return [f"mqtt:webhook:{{{endpoint_id}}}:{part}" for part in ("due", "ended", "events", "failing")]


def run(run_id: str) -> list[str]:
    """The keys of a fleet run: itself, its targets, its results, the lease and the epoch of its driver."""
    name = f"mqtt:run:{{{run_id}}}"
    return [name, *(f"{name}:{part}" for part in ("targets", "results", "lease", "epoch"))]


def broker_rows(role: str) -> str:
    """The key of what the broker in a node keeps; it shares a slot with the role of whoever is the broker."""
    return f"mqtt:broker:{{{role}}}"


def broker_ahead(role: str) -> str:
    """The key of a large write to these rows, which is made in parts."""
    return f"{broker_rows(role)}:ahead"


def lease(node_id: str) -> str:
    """The key of the lease that says who lives under a node id; all keys of a node id share a slot."""
    return f"mqtt:lease:{{{node_id}}}"


def knows(node_id: str) -> str:
    """The key of what a node can do; a lease is read by nodes that know no further members of it."""
    return f"mqtt:knows:{{{node_id}}}"


def asserted(node_id: str) -> str:
    """The key of which starts of servers a node has told of what it has claimed."""
    return f"mqtt:asserted:{{{node_id}}}"


def sessions(node_id: str) -> str:
    """The MQTT sessions that incarnations of a node id may have left at the broker."""
    return f"mqtt:sessions:{{{node_id}}}"


def limits(node_id: str) -> str:
    """The key of how often a node was asked for what is limited."""
    return f"mqtt:limits:{{{node_id}}}"


def draining(node_id: str) -> str:
    """The key that says that a node is about to stop."""
    return f"mqtt:draining:{{{node_id}}}"


def adoption(node_id: str, client_id: str) -> str:
    """The key that says who adopts a session."""
    return f"mqtt:adoption:{{{node_id}}}:{client_id}"


def node_channel(node_id: str) -> str:
    """The channel that a node listens on."""
    return f"{NODE_CHANNEL_PREFIX}{node_id}"
