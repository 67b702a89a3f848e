"""Conditions of callers about an entry that they change: names of its states, and checks of them."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Final, NamedTuple

from app.core.errors import PreconditionFailedError

ANY: Final = "*"


class Precondition(NamedTuple):
    """The precondition of a caller (RFC 9110, section 13): tags, or `*` for any; None where nothing is said."""

    match: frozenset[str] | None = None
    none_match: frozenset[str] | None = None

    def check(self, what: str, tag: str | None) -> None:
        """PreconditionFailedError when it does not hold; `tag` is None when nothing is on record."""
        if self.match is not None and not _among(tag, self.match):
            raise PreconditionFailedError(f"{what} {_is(tag)}, which If-Match does not name: read it again")
        if self.none_match is not None and _among(tag, self.none_match):
            raise PreconditionFailedError(f"{what} {_is(tag)}, which If-None-Match excludes")


def _among(tag: str | None, tags: frozenset[str]) -> bool:
    return tag is not None and (ANY in tags or tag in tags)


def _is(tag: str | None) -> str:
    return "is not on record" if tag is None else f'is on record as "{tag}"'


def tag_of(shown: object) -> str:
    """The tag that tells a state from all others, by what is shown of it: the same on every node."""
    return blake2b(json.dumps(shown, sort_keys=True).encode(), digest_size=12).hexdigest()
