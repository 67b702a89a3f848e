"""Versions of what nodes share in Redis, and how it changes from one to the next.

Two versions that follow one another, N - 1 and N, share a Redis during a rolling update. The rule for whoever adds to
what is there (docs/adr, "Two versions share a Redis"):

| what | how N adds to it | how N - 1 reads it |
|---|---|---|
| record | a further field, or a further word of the field `v` | reads fields by name, ignores further words |
| `about` | never: it is read by position | as it is |
| wake-up | a further word of the seventh field | ignores further words; what it cannot read it looks up |
| reception | a further word | ignores further words |
| members of lists, correlations, keys | never: under another kind of key (app/core/keys.py) | does not know that key |

Where that will not do, N raises `RECORD`: N - 1 then leaves such records alone, counts them as `drop.unreadable_record`
and names one of each burst in its log. 0.1.0 wrote no version at all; what has none is read as that one wrote it.
"""

from __future__ import annotations

from typing import Final

from app.core.errors import UnreadableRecordError

RECORD: Final = 1
"""The version that this code writes into the field `v` of a record; lua/parts/record.lua has it, too."""


def check_record(command_id: str, version: bytes | None) -> None:
    """UnreadableRecordError when a record with this field `v` is of a later version than this code reads."""
    if version is None:
        return
    number = version.split(b" ", 1)[0]
    if not number.isdigit() or len(number) > _MOST_DIGITS:
        raise UnreadableRecordError(command_id, "its version is no number")
    if int(number) > RECORD:
        raise UnreadableRecordError(command_id, f"it is of version {int(number)}, and this node reads up to {RECORD}")


_MOST_DIGITS: Final = 9
