"""Rights on the private services of a rig: nodes get no more than deploy/redis and deploy/mosquitto grant them."""

from __future__ import annotations

import base64
import hashlib
import secrets
from pathlib import Path
from typing import Final

from app.core.cluster.notices import NOTICES
from app.core.profiles.event_reader import EventReader
from app.core.topics import canary_topics
from app.profiles.loader import load_profiles
from app.store.redis.rights import CHANNELS, COMMANDS, KEYS

NODE_USER: Final = "homing"
DEVICE_USER: Final = "devices"
"""All devices of a fleet, as they share sessions. On the broker alone."""
RIG_USER: Final = "rig"
"""The user that looks on: in Redis it may do everything, on the broker it reads what that tells of itself."""
PASSWORD: Final = "private"  # noqa: S105 - of services that only this machine reaches, for as long as they run
_ROUNDS: Final = 101


def redis_users() -> str:
    """The file for `aclfile`. Nobody can be the default user; it has all rights as Redis loads its own file as that."""
    grants = [*(f"~{one}" for one in KEYS), *(f"&{one}" for one in CHANNELS), *(f"+{one}" for one in COMMANDS)]
    users = (
        "default off resetpass ~* &* +@all",
        f"{NODE_USER} on >{PASSWORD} resetkeys resetchannels -@all {' '.join(grants)}",
        f"{RIG_USER} on >{PASSWORD} ~* &* +@all",
    )
    return "".join(f"user {user}\n" for user in users)


def mosquitto_acl(own_profiles: Path | None = None) -> str:
    """The file for `acl_file`, for devices of the shipped profiles and of those in this folder."""
    nodes, devices = [f"user {NODE_USER}", f"topic readwrite {NOTICES}/#"], [f"user {DEVICE_USER}"]
    for profile in load_profiles(own_profiles).values():
        for requests in sorted({topic.filter() for topic in profile.told}):
            nodes.append(f"topic write {requests}")
            devices.append(f"topic read {requests}")
        for events in EventReader([profile]).filters():
            nodes.append(f"topic read {events}")
            devices.append(f"topic write {events}")
        for responses in sorted({topic.filter() for topic in profile.heard}):
            nodes += [f"topic read {responses}", *(f"topic write {one}" for one in canary_topics([responses]))]
            devices.append(f"topic write {responses}")
    return "\n".join((*nodes, *devices, f"user {RIG_USER}", "topic read $SYS/#", ""))


def mosquitto_passwords() -> str:
    """The file for `password_file`, as mosquitto_passwd makes it."""
    return "".join(f"{user}:{_hashed()}\n" for user in (NODE_USER, DEVICE_USER, RIG_USER))


def _hashed() -> str:
    salt = secrets.token_bytes(12)
    key = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, _ROUNDS)
    return f"$7${_ROUNDS}${base64.b64encode(salt).decode()}${base64.b64encode(key).decode()}"
